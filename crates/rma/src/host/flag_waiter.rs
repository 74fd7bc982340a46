//! Waiting for a flag that another member of this host signals.
//!
//! The idea: the adaptive policy of `unisono-sync`, with two facts that only a job knows: whether members
//! outnumber processors, and the recent cost of waiting. The recent cost is recorded as a regime, as in the
//! barrier, but each member has a regime of its own, because members wait for different events. While it
//! waits, a member checks whether another is gone; at most ten times a second this includes the processes.
//! Cost: nothing while the initial polls last, then one addition for each wait. When not to use: for fences,
//! because they are barrier episodes and wait in the barrier.

use super::HostMembers;
use unisono_linux::clock::{Duration, Instant, now};
use unisono_linux::futex::Scope;
use unisono_sync::{
    Flag, InitialPoll, Lines, Regime, SparseChecks, SpinBudget, Unwatched, Wait, WaitHints, WaitPolicy,
    Waiter, Wakeups, Watch, WatchVerdict,
};

#[derive(Debug)]
pub(crate) struct FlagWaiter {
    waiter: Waiter,
    /// The cache line that holds this waiter's regime.
    lines: Lines,
}

impl Default for FlagWaiter {
    /// Creates a waiter for bells ([`HostMembers::bell`]). Their wake-ups are symmetric, because any member
    /// may ring a bell.
    fn default() -> Self {
        Self::new(Wakeups::Symmetric(Scope::Shared))
    }
}

impl FlagWaiter {
    /// Creates a waiter for flags that are signalled with the same `wakeups`.
    pub(crate) fn new(wakeups: Wakeups) -> Self {
        let waiter = Waiter::new(Wait::Adaptive, SpinBudget::DEFAULT, wakeups);
        Self { waiter, lines: Lines::on_heap(1) }
    }

    /// Makes the initial polls of a wait, unless members outnumber processors or waits have lately slept.
    /// Returns whether `flag` has reached `target`.
    #[inline]
    pub(crate) fn wait_briefly(&mut self, host: &HostMembers, flag: Flag<'_>, target: u32) -> bool {
        if flag.reached(target) {
            return true;
        }
        let regime = Regime::new(self.lines.line(0));
        if host.crowded || regime.is_asleep() {
            return false;
        }
        let reached = InitialPoll::Pausing.wait(flag, target, &mut Unwatched) == WatchVerdict::Continue;
        if reached {
            self.waiter.learn(regime);
        }
        reached
    }

    /// Returns the time that this waiter has slept so far.
    pub(crate) fn asleep(&self) -> Duration {
        self.waiter.asleep()
    }

    /// Waits until `flag` has reached `target`, a member is gone or the moment `until` has come.
    #[cold]
    pub(crate) fn wait_until(
        &mut self,
        host: &HostMembers,
        flag: Flag<'_>,
        target: u32,
        until: Option<Instant>,
    ) -> WatchVerdict {
        let regime = Regime::new(self.lines.line(0));
        let hints = || WaitHints { regime, crowded: host.crowded, last_cpus: None };
        let verdict = self.waiter.policy(hints).wait(
            flag,
            target,
            &mut FlagWatch { host, until, checks: SparseChecks::default() },
        );
        self.waiter.learn(regime);
        verdict
    }
}

struct FlagWatch<'a> {
    host: &'a HostMembers,
    until: Option<Instant>,
    /// The check for gone members reads a line of each member, so only one call in 16 makes the check: about
    /// one check in 16 us of polling.
    checks: SparseChecks<16>,
}

impl Watch for FlagWatch<'_> {
    fn check(&mut self) -> WatchVerdict {
        if !self.checks.is_due() {
            return WatchVerdict::Continue;
        }
        let over = self.until.is_some_and(|until| now() >= until);
        if over || self.host.gone_member().is_some() { WatchVerdict::Stop } else { WatchVerdict::Continue }
    }

    fn sleep_until(&mut self) -> Option<Instant> {
        Some(self.checks.sleep_until(now(), self.until))
    }
}
