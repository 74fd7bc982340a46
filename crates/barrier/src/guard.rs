//! Stops a wait that cannot succeed: the deadline has passed, or a member is gone or dead.
//!
//! Only the slow path calls the guard: after every few dozen polls, after every yield, and before every
//! sleep. In the process form a sleeper wakes ten times a second to check whether a process was killed. In
//! the thread form it sleeps undisturbed, because a signal that kills a thread ends the whole process. Cost:
//! each call loads one cached line; every sixteenth call reads the clock, and every call does if there is a
//! deadline; ten times a second a call checks that the other processes are alive.

use crate::control::Control;
use crate::error::GoneMember;
use crate::liveness::LivenessCheck;
use unisono_linux::clock::Instant;
use unisono_linux::futex::Scope;
use unisono_sync::atomics::now;
use unisono_sync::{MAX_SLEEP, SparseChecks, Watch, WatchVerdict};

/// The reason why a wait ended before its episode.
#[derive(Clone, Debug)]
pub(crate) enum Stopped {
    Gone(GoneMember),
    TimedOut,
    Disbanded,
}

pub(crate) struct Guard<'a> {
    control: &'a Control,
    /// `None` for a joiner, which cannot join once any member is gone, whatever episode the member is gone
    /// from.
    episode: Option<u32>,
    deadline: Option<Instant>,
    /// Without a deadline, few calls read the clock: it costs 20 times as much as the cached attention line.
    checks: SparseChecks<16>,
    liveness: Option<(Instant, LivenessCheck)>,
    pub(crate) stopped: Option<Stopped>,
}

impl<'a> Guard<'a> {
    #[inline]
    pub(crate) fn new(control: &'a Control, episode: u32, deadline: Option<Instant>) -> Self {
        Self {
            control,
            episode: Some(episode),
            deadline,
            checks: SparseChecks::default(),
            liveness: None,
            stopped: None,
        }
    }

    /// Creates the guard of a joiner.
    pub(crate) fn for_any_episode(control: &'a Control) -> Self {
        Self { episode: None, ..Self::new(control, 0, None) }
    }

    fn stop(&mut self, why: Stopped) -> WatchVerdict {
        self.stopped = Some(why);
        WatchVerdict::Stop
    }

    /// Stops the wait if a member is gone or all members have left.
    fn check_members(&mut self) -> WatchVerdict {
        if let Some(gone) = self.control.find_gone(self.episode) {
            self.stop(Stopped::Gone(gone))
        } else if self.control.is_disbanded() {
            self.stop(Stopped::Disbanded)
        } else {
            WatchVerdict::Continue
        }
    }

    /// Stops the wait at the deadline; checks the other processes when the next check is due.
    #[cold]
    fn check_clock(&mut self) -> WatchVerdict {
        let now = now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return self.stop(Stopped::TimedOut);
        }
        if self.control.scope == Scope::Private {
            return WatchVerdict::Continue;
        }
        let (next, liveness) =
            self.liveness.get_or_insert_with(|| (now + MAX_SLEEP, LivenessCheck::default()));
        if now < *next {
            return WatchVerdict::Continue;
        }
        *next = now + MAX_SLEEP;
        liveness.check(self.control, self.episode.unwrap_or(0));
        self.check_members()
    }
}

impl Watch for Guard<'_> {
    fn check(&mut self) -> WatchVerdict {
        if self.check_members() == WatchVerdict::Stop {
            return WatchVerdict::Stop;
        }
        if self.checks.is_due() || self.deadline.is_some() {
            return self.check_clock();
        }
        WatchVerdict::Continue
    }

    fn sleep_until(&mut self) -> Option<Instant> {
        if self.control.scope == Scope::Private {
            return self.deadline;
        }
        Some(self.checks.sleep_until(now(), self.deadline))
    }
}
