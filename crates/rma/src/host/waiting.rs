//! Waiting for a flag that another member of this host signals.
//!
//! The idea: the adaptive policy of `unisono-sync`, with what only a job knows: whether members outnumber
//! processors, and what waiting has cost lately (a regime like the barrier's, but each member's own: they
//! wait for different things). A waiter looks ten times a second whether somebody is gone. Cost: nothing
//! before the wait is one in earnest; an addition a wait. When not to use: for fences, which are barrier
//! episodes and wait there.

use super::Host;
use unisono_linux::clock::{Nanos, now};
use unisono_linux::futex::Scope;
use unisono_sync::{
    Company, Flag, Glance, Lines, Regime, SpinBudget, Unwatched, Wait, WaitPolicy, Waiter, Wakeups, Watch,
    WatchVerdict,
};

/// How long a sleeper sleeps at most before it looks around.
const SLICE: Nanos = Nanos(100_000_000);

/// One member's way to wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    waiter: Waiter,
    /// The line of its regime.
    lines: Lines,
}

impl Default for Waiting {
    /// For bells, which anybody rings.
    fn default() -> Self {
        Self::new(Wakeups::Symmetric(Scope::Shared))
    }
}

impl Waiting {
    /// For flags that are signalled with the same `wakeups`.
    pub(crate) fn new(wakeups: Wakeups) -> Self {
        let waiter = Waiter::new(Wait::Adaptive, SpinBudget::DEFAULT, wakeups);
        Self { waiter, lines: Lines::on_heap(1) }
    }

    /// The first moment of a wait: whether `flag` has reached `target` by now.
    #[inline]
    pub(crate) fn wait_briefly(&mut self, host: &Host, flag: Flag<'_>, target: u32) -> bool {
        if flag.reached(target) {
            return true;
        }
        let regime = Regime::new(self.lines.line(0));
        if host.crowded || regime.is_asleep() {
            return false;
        }
        let reached = Glance::Pausing.wait(flag, target, &mut Unwatched) == WatchVerdict::Continue;
        if reached {
            self.waiter.learn(regime);
        }
        reached
    }

    /// How long this waiter has slept so far.
    pub(crate) fn asleep(&self) -> Nanos {
        self.waiter.asleep()
    }

    /// Waits until `flag` has reached `target`, somebody is gone or the moment `until` has come.
    #[cold]
    pub(crate) fn wait_until(
        &mut self,
        host: &Host,
        flag: Flag<'_>,
        target: u32,
        until: Option<Nanos>,
    ) -> WatchVerdict {
        let regime = Regime::new(self.lines.line(0));
        let company = Company { regime, crowded: host.crowded, whereabouts: None };
        let verdict = self.waiter.among(company).wait(flag, target, &mut FlagLook { host, until, looks: 0 });
        self.waiter.learn(regime);
        verdict
    }
}

struct FlagLook<'a> {
    host: &'a Host,
    until: Option<Nanos>,
    looks: u32,
}

impl Watch for FlagLook<'_> {
    fn look(&mut self) -> WatchVerdict {
        self.looks += 1;
        if !self.looks.is_multiple_of(16) {
            return WatchVerdict::Continue;
        }
        let over = self.until.is_some_and(|until| now() >= until);
        if over || self.host.who_is_gone().is_some() { WatchVerdict::Stop } else { WatchVerdict::Continue }
    }

    fn sleep_until(&mut self) -> Option<Nanos> {
        // Who sleeps looks rarely: let its next look be a thorough one.
        self.looks |= 15;
        let slice = SLICE.after(now());
        Some(self.until.map_or(slice, |until| until.min(slice)))
    }
}
