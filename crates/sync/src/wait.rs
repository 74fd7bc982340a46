//! The trait of a wait policy, and the policies by name.

use crate::flag::Flag;
use crate::watch::{Watch, WatchVerdict};
use unisono_linux::clock::Duration;
use unisono_text::named;

/// A way to wait for a flag.
///
/// A policy belongs to one waiter, because it may learn. Signallers of the flag must use the
/// [`Wakeups`](crate::Wakeups) that the policy was made with.
pub trait WaitPolicy {
    /// Returns [`WatchVerdict::Continue`] once `flag` has reached `target`, or [`WatchVerdict::Stop`] as soon
    /// as `watch` says so.
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> WatchVerdict;

    /// Runs the part of [`wait`](Self::wait) that keeps the core, if the policy has such a part. Returns
    /// `None` when the policy would now sleep or yield; the caller may then wait for something else instead.
    /// By default the whole wait keeps the core.
    fn wait_briefly<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Option<WatchVerdict> {
        Some(self.wait(flag, target, watch))
    }

    /// Waits as [`wait`](Self::wait) does, but for a flag whose signaller needs the core on which this waiter
    /// runs.
    fn wait_behind<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> WatchVerdict {
        self.wait(flag, target, watch)
    }
}

/// The time that a waiter has waited. Waits that end within their first polls
/// ([`InitialPoll`](crate::InitialPoll)) read no clock and are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Awake: polling, yielding, asking the watch.
    pub awake: Duration,
    /// Asleep in the kernel.
    pub asleep: Duration,
}

impl Waited {
    /// Adds a wait that lasted `total`; the waiter slept for `asleep` of it.
    pub fn add(&mut self, total: Duration, asleep: Duration) {
        self.awake += total - asleep;
        self.asleep += asleep;
    }

    /// Returns the time added since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self { awake: self.awake - before.awake, asleep: self.asleep - before.asleep }
    }
}

named! {
    "wait policy";
    pub enum Wait {
        /// Poll the word; for idle cores that belong to the program.
        Spin = "spin",
        /// Poll, and yield the core between polls; for more threads than cores and no foreign load.
        Yield = "yield",
        /// Sleep at once; beside foreign load.
        Block = "block",
        /// Spin for a fixed time, then sleep: at most twice the cost of the better choice.
        SpinBlock = "spin-block",
        /// Measure which of the above is cheapest, and follow changes.
        Adaptive = "adaptive",
    }
}
