//! The contract of a way to wait, and the ways by name.

use crate::flag::Flag;
use crate::watch::{Watch, WatchVerdict};
use unisono_linux::clock::Nanos;
use unisono_linux::named::named;

/// A way to wait for a flag.
///
/// A policy belongs to one waiter: it may learn. Signals for the flag must use the
/// [`Wakeups`](crate::Wakeups) that the policy was made with.
pub trait WaitPolicy {
    /// Returns [`WatchVerdict::Continue`] once `flag` has reached `target`, or [`WatchVerdict::Stop`] as soon
    /// as `watch` says so.
    fn wait<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> WatchVerdict;

    /// The part of [`wait`](Self::wait) that keeps the core, if the policy has one. `None` when the policy
    /// would now sleep or give way; the caller may then wait for something else instead.
    fn wait_briefly<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> Option<WatchVerdict>;

    /// As [`wait`](Self::wait), for a flag whose signaller needs the core that this waiter runs on.
    fn wait_behind<W: Watch>(&mut self, flag: Flag<'_>, target: u32, watch: &mut W) -> WatchVerdict {
        self.wait(flag, target, watch)
    }
}

/// How long a waiter has waited. Waits that end within their first polls ([`Glance`](crate::Glance)) read no
/// clock and are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Awake: polling, giving way, looking around.
    pub awake: Nanos,
    /// Asleep in the kernel.
    pub asleep: Nanos,
}

impl Waited {
    /// Adds a wait that lasted `total`; the waiter slept for `asleep` of it.
    pub fn add(&mut self, total: Nanos, asleep: Nanos) {
        self.awake.0 += total.since(asleep).0;
        self.asleep.0 += asleep.0;
    }

    /// What came on top of `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self { awake: self.awake.since(before.awake), asleep: self.asleep.since(before.asleep) }
    }
}

named! {
    "wait policy";
    pub enum Wait {
        /// Poll the word; for idle cores that belong to the program.
        Spin = "spin",
        /// Poll, giving the core away each time; for more threads than cores and nobody else there.
        Yield = "yield",
        /// Sleep at once; beside foreign load.
        Block = "block",
        /// Spin for a fixed time, then sleep: never more than twice the cost of the better choice.
        SpinBlock = "spin-block",
        /// Find out which of the above, and notice when it changes.
        Adaptive = "adaptive",
    }
}
