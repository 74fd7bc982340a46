//! The specification of a window: a builder with the meaning of MPI's info keys.

use unisono_text::named;

named! {
    /// How a window synchronizes. A study compares the styles to measure the gain of each design.
    #[derive(Default)]
    pub enum Style {
        /// Stores and flags where members share memory; the paper's protocol elsewhere.
        #[default]
        Direct = "direct",
        /// The paper's protocol everywhere: the second synchronization call does all work (sections 4.1 to
        /// 4.3).
        Deferred = "deferred",
        /// The naive forms that the paper describes: two barriers for a fence, a start that waits for posts,
        /// done messages, a lock that waits for its grant, an unlock message and its acknowledgement.
        Naive = "naive",
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locks {
    /// The program may lock. Where origins cannot reach the target's memory, an agent thread of the target
    /// makes progress.
    #[default]
    Possible,
    /// The program never locks (`no_locks`): there is no agent, and lock calls are errors.
    Never,
}

/// The guarantee for operations of a passive epoch at the epoch's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completion {
    /// Complete at origin and target, as the standard says.
    #[default]
    Remote,
    /// Complete at the origin only: neither unlock nor a later call waits for the target (the paper's future
    /// work). Operations are complete at the target after the next flush there, `Window::settle` or
    /// `Window::free`. They may wait there for their lock; a shared lock that this rank requests while it
    /// holds another goes before them.
    Local,
}

/// Where the parts of an allocated window lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Each at the start of a page.
    #[default]
    Pages,
    /// In shared memory each part follows the part of the rank before, as with `MPI_Win_allocate_shared`.
    Contiguous,
}

/// The specification of a window. All members of a job give the same one, except for `unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    pub(crate) unit: u32,
    pub(crate) locks: Locks,
    pub(crate) completion: Completion,
    pub(crate) style: Style,
    pub(crate) placement: Placement,
}

impl Default for Spec {
    fn default() -> Self {
        Self::new()
    }
}

impl Spec {
    /// Creates a specification with displacements in bytes, locks possible, remote completion, and the direct
    /// style.
    pub const fn new() -> Self {
        Self {
            unit: 1,
            locks: Locks::Possible,
            completion: Completion::Remote,
            style: Style::Direct,
            placement: Placement::Pages,
        }
    }

    /// Sets the displacement unit of this rank's part to `bytes` bytes.
    #[must_use]
    pub const fn unit(self, bytes: u32) -> Self {
        Self { unit: bytes, ..self }
    }

    #[must_use]
    pub const fn locks(self, locks: Locks) -> Self {
        Self { locks, ..self }
    }

    #[must_use]
    pub const fn completion(self, completion: Completion) -> Self {
        Self { completion, ..self }
    }

    #[must_use]
    pub const fn placement(self, placement: Placement) -> Self {
        Self { placement, ..self }
    }

    #[must_use]
    pub const fn style(self, style: Style) -> Self {
        Self { style, ..self }
    }
}
