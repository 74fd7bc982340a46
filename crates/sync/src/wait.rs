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

/// How long spin-block spins before it sleeps.
///
/// A waiter that spins as long as a sleep costs, and then sleeps, pays at most twice the better of the two
/// (Karlin, Li, Manasse, Owicki 1991). Peter et al. tuned to 50 us, about the price of a wake-up across
/// halted CPUs (28 to 60 us measured on two virtual CPUs of an AMD EPYC, Linux 6.18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpinBudget(Nanos);

impl SpinBudget {
    pub const DEFAULT: Self = Self(Nanos(50_000));
    /// A second: a longer spin is no budget but a policy, and that one is called `spin`.
    pub const MAX: Self = Self(Nanos(1_000_000_000));

    /// A budget of at most [`SpinBudget::MAX`]; zero means to sleep at once. A longer budget is an error.
    pub fn new(budget: Nanos) -> Result<Self, BadSpinBudget> {
        if budget > Self::MAX.0 { Err(BadSpinBudget { budget }) } else { Ok(Self(budget)) }
    }

    pub const fn nanos(self) -> Nanos {
        self.0
    }
}

impl Default for SpinBudget {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A spin budget beyond [`SpinBudget::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a spin budget of {:?} is too long: at most 1s, or wait by 'spin', which never sleeps",
    std::time::Duration::from(*budget)
)]
pub struct BadSpinBudget {
    budget: Nanos,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_spin_budget_beyond_a_second_is_refused() {
        assert_eq!(SpinBudget::new(Nanos(50_000)), Ok(SpinBudget::DEFAULT));
        assert!(SpinBudget::new(SpinBudget::MAX.nanos()).is_ok());
        assert!(SpinBudget::new(Nanos(1_000_000_001)).is_err());
    }
}
