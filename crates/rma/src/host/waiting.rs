//! Waiting for a flag that another member of this host signals.
//!
//! The idea: the adaptive policy of `unisono-sync`, with what only a job knows: whether members outnumber
//! processors, and what waiting has cost lately (a regime like the barrier's, but each member's own: they wait for
//! different things).
//! A waiter looks ten times a second whether somebody is gone. Cost: nothing before the wait is one in
//! earnest; an addition a wait. When not to use: for fences, which are barrier episodes and wait there.

use super::Host;
use unisono_linux::clock::{Nanos, now};
use unisono_linux::futex::Scope;
use unisono_sync::atomics::AtomicU32;
use unisono_sync::{
    Adaptive, Advice, Brief, Flag, Learner, Regime, SpinBudget, Unwatched, Verdict, WaitPolicy, Wakeups,
    Watch,
};

/// How long a sleeper sleeps at most before it looks around.
const SLICE: Nanos = Nanos(100_000_000);

/// One member's way to wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    policy: Adaptive,
    learner: Learner,
    mode: AtomicU32,
    last_long_yield: AtomicU32,
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
        Self {
            policy: Adaptive::new(SpinBudget::DEFAULT, wakeups),
            learner: Learner::default(),
            mode: AtomicU32::new(0),
            last_long_yield: AtomicU32::new(0),
        }
    }

    #[inline]
    fn regime(&self) -> Regime<'_> {
        Regime::new(&self.mode, &self.last_long_yield)
    }

    /// The first moment of a wait: whether `flag` has reached `target` by now.
    #[inline]
    pub(crate) fn wait_briefly(&mut self, host: &Host, flag: Flag<'_>, target: u32) -> bool {
        if flag.reached(target) {
            return true;
        }
        if host.crowded || self.regime().is_asleep() {
            return false;
        }
        let reached = Brief.wait(flag, target, &mut Unwatched) == Verdict::Continue;
        if reached {
            self.learn();
        }
        reached
    }

    /// How long this waiter has slept so far.
    pub(crate) fn asleep(&self) -> Nanos {
        self.policy.asleep()
    }

    /// Waits until `flag` has reached `target`, somebody is gone or the moment `until` has come.
    #[cold]
    pub(crate) fn wait_until(
        &mut self,
        host: &Host,
        flag: Flag<'_>,
        target: u32,
        until: Option<Nanos>,
    ) -> Verdict {
        let regime = Regime::new(&self.mode, &self.last_long_yield);
        let mut look = Look { host, until, looks: 0, regime };
        let verdict = self.policy.wait(flag, target, &mut look);
        self.learn();
        verdict
    }

    /// Counts a wait; now and then decides whether to stay awake.
    #[inline]
    fn learn(&mut self) {
        let regime = Regime::new(&self.mode, &self.last_long_yield);
        self.learner.learn(regime, self.policy.blocks(), now);
    }
}

struct Look<'a> {
    host: &'a Host,
    until: Option<Nanos>,
    looks: u32,
    regime: Regime<'a>,
}

impl Watch for Look<'_> {
    fn look(&mut self) -> Verdict {
        self.looks += 1;
        if !self.looks.is_multiple_of(16) {
            return Verdict::Continue;
        }
        let over = self.until.is_some_and(|until| now() >= until);
        if over || self.host.who_is_gone().is_some() { Verdict::Stop } else { Verdict::Continue }
    }

    fn sleep_until(&mut self) -> Option<Nanos> {
        // Who sleeps looks rarely: let its next look be a thorough one.
        self.looks |= 15;
        let slice = SLICE.after(now());
        Some(self.until.map_or(slice, |until| until.min(slice)))
    }

    fn advice(&self) -> Advice {
        self.regime.advice(|| self.host.crowded)
    }

    fn awaited_may_run(&self) -> bool {
        !self.host.crowded
    }

    fn yield_took_long(&mut self) {
        self.regime.yield_took_long(now());
    }
}
