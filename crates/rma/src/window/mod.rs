//! A window: memory that the other members of a job access, and the calls of the standard on it.
//!
//! Two layers. The *safe* layer moves slices of [`Plain`](crate::Plain) values; data that cannot be moved at
//! once is copied, and what is read is kept by the window until it is taken. The *raw* layer (functions
//! whose names begin with `raw_`) takes addresses and [`Layout`](crate::Layout)s, never copies what it can
//! leave in place, and leaves to the caller what the standard leaves to it: that origin buffers stay valid
//! and untouched until the operation is complete. Both may be mixed.
//!
//! Promised, whatever the transport and the [`Style`](crate::Style):
//! - Every misuse is an [`Error`](crate::Error) at the caller, with nothing written or sent.
//! - Ranges are checked at the origin against the size and unit that the target announced.
//! - Accumulates, fetch-and-op and compare-and-swap on the same element are atomic among each other.
//! - Operations of one origin to one target on the same element happen in the order issued (for
//!   accumulates; puts and gets are unordered, as the standard has it).
//! - A member that is gone makes every call that needs it fail within a second, naming it.
//!
//! A `Window` is used by one thread at a time (`&mut self`); it may move between threads.

mod raw;
mod safe;
mod synchronize;

pub use safe::Pending;

use crate::error::Error;
use crate::rank::Rank;
use crate::spec::Spec;
use crate::stats::WindowStats;

/// How a window came by its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// Memory of the engine's, mapped by every process of the host ([`Job::allocate`](crate::Job::allocate)).
    Allocated,
    /// Memory of the user's ([`Job::create`](crate::Job::create)).
    Created,
    /// Memory attached later; displacements are addresses ([`Job::dynamic`](crate::Job::dynamic)).
    Dynamic,
}

/// A member's part of a window, directly accessible: what `MPI_Win_shared_query` answers.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// Its first byte in this process's address space.
    pub base: *mut u8,
    /// Its length.
    pub bytes: u64,
    /// Its displacement unit.
    pub unit: u32,
}

/// Shared or exclusive, for [`Window::lock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lock {
    /// Others may hold it too, if shared.
    Shared,
    /// Nobody else holds it.
    Exclusive,
}

/// An operation whose completion at the origin can be asked for; see [`Window::raw_rput`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request is complete only after wait_request() or test_request()"]
pub struct Request(pub(crate) u64);

/// A window. See the module.
#[derive(Debug)]
pub struct Window {
    pub(crate) flavor: Flavor,
    pub(crate) spec: Spec,
    pub(crate) stats: WindowStats,
}

impl Window {
    /// How it came by its memory.
    #[must_use]
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// What it was made as.
    #[must_use]
    pub fn spec(&self) -> Spec {
        self.spec
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> WindowStats {
        self.stats
    }

    /// Where a member's part lies in this process's address space; `None` where it is out of reach.
    /// One's own always is there, except in a dynamic window. Loads and stores through it race with
    /// other members unless epochs order them.
    #[must_use]
    pub fn mapped(&self, rank: Rank) -> Option<Mapped> {
        let _ = rank;
        None
    }

    /// Frees the window; collective, and waits for everybody. Every later call is [`Error::Freed`]. A
    /// window that is dropped without it frees this rank's part only: for the others this rank is gone
    /// from the window.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::Sync`] inside an epoch or while a lock is held, [`Error::Gone`].
    pub fn free(&mut self) -> Result<(), Error> {
        Err(NOT_YET)
    }

    /// Attaches memory to a dynamic window: others access it by its address.
    ///
    /// # Safety
    /// `bytes` bytes at `address` stay valid, and are accessed only as the epochs allow, until detached.
    ///
    /// # Errors
    /// [`Error::Flavor`], [`Error::Attach`] for memory that overlaps what is attached.
    pub unsafe fn attach(&mut self, address: *mut u8, bytes: usize) -> Result<(), Error> {
        let _ = (address, bytes);
        Err(NOT_YET)
    }

    /// Detaches memory, by the address it was attached with.
    ///
    /// # Errors
    /// [`Error::Flavor`], [`Error::Attach`] when nothing is attached there.
    pub fn detach(&mut self, address: *mut u8) -> Result<(), Error> {
        let _ = address;
        Err(NOT_YET)
    }
}

/// While the engine behind these signatures grows.
pub(crate) const NOT_YET: Error = Error::Unsupported { what: "this call", why: "in this build yet" };
