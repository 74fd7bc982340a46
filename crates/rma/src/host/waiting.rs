//! Waiting for a flag that another member of this host signals.
//!
//! The idea: the adaptive policy of `unisono-sync`, with what only a job knows: whether members outnumber
//! processors, and what waiting has cost lately (the same controller as the barrier's, one a member).
//! A waiter looks ten times a second whether somebody is gone. Cost: nothing before the wait is one in
//! earnest; an addition a wait. When not to use: for fences, which are barrier episodes and wait there.

use super::Host;
use std::cell::Cell;
use unisono_linux::clock::{Nanos, now};
use unisono_linux::futex::Scope;
use unisono_sync::{
    Adaptive, Advice, Brief, Controller, Flag, Mode, SpinBudget, Unwatched, Verdict, WaitPolicy, Wakeups,
    Watch,
};

/// How long a sleeper sleeps at most before it looks around.
const SLICE: Nanos = Nanos(100_000_000);
/// Two long yields within this prove that strangers want these cores.
const TOGETHER: u64 = 50_000_000;

/// One member's way to wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    policy: Adaptive,
    controller: Option<Controller>,
    waits: u32,
    due: u32,
    asleep: Cell<bool>,
    probing: bool,
    last_long_yield: Cell<u64>,
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
            controller: None,
            waits: 0,
            due: 1,
            asleep: Cell::new(false),
            probing: false,
            last_long_yield: Cell::new(0),
        }
    }
}

impl Waiting {
    /// The first moment of a wait: whether `flag` has reached `target` by now.
    #[inline]
    pub(crate) fn wait_briefly(&mut self, host: &Host, flag: Flag<'_>, target: u32) -> bool {
        if flag.reached(target) {
            return true;
        }
        if host.crowded || self.asleep.get() {
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
        let mut look = Look {
            host,
            until,
            looks: 0,
            asleep: &self.asleep,
            probing: self.probing,
            last_long_yield: &self.last_long_yield,
        };
        let verdict = self.policy.wait(flag, target, &mut look);
        self.learn();
        verdict
    }

    /// Counts a wait; now and then decides whether to stay awake.
    #[inline]
    fn learn(&mut self) {
        self.waits += 1;
        if self.waits >= self.due {
            self.decide();
        }
    }

    #[cold]
    fn decide(&mut self) {
        let moment = now();
        let controller = self.controller.get_or_insert_with(|| Controller::new(moment));
        let step = controller.observe(moment, self.waits, self.asleep.get());
        self.asleep.set(step.mode == Mode::Asleep);
        self.probing = step.probing;
        self.due = step.look_after.max(1);
        self.waits = 0;
    }
}

struct Look<'a> {
    host: &'a Host,
    until: Option<Nanos>,
    looks: u32,
    asleep: &'a Cell<bool>,
    probing: bool,
    last_long_yield: &'a Cell<u64>,
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
        if self.asleep.get() {
            Advice::Sleep
        } else if self.host.crowded {
            Advice::GiveWay
        } else {
            Advice::Spin
        }
    }

    fn awaited_may_run(&self) -> bool {
        !self.host.crowded
    }

    fn yield_took_long(&mut self) {
        let moment = now().0;
        let before = self.last_long_yield.replace(moment);
        if self.probing || moment.saturating_sub(before) < TOGETHER {
            self.asleep.set(true);
        }
    }
}
