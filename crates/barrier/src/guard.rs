//! What a waiting participant watches for: the deadline, members that are gone, members that died.
//!
//! Only the slow path comes here: every few dozen polls, after every yield, after every sleep. Sleepers
//! wake ten times a second to look, so that a member killed without a word is noticed within a fraction of
//! a second. Cost: a load of a cached line a look, a clock reading every sixteenth look, the liveness of
//! all other processes ten times a second.

use crate::control::Control;
use crate::error::Gone;
use unisono_linux::clock::Nanos;
use unisono_sync::{Verdict, Watch};

/// How long a sleeper sleeps at most before it looks around.
#[cfg(not(loom))]
const SLICE: Nanos = Nanos(100_000_000);

/// Why a wait ended without its episode.
#[derive(Clone, Debug)]
pub(crate) enum Stopped {
    Gone(Gone),
    TimedOut,
}

pub(crate) struct Guard<'a> {
    control: &'a Control,
    episode: u32,
    deadline: Option<Nanos>,
    looks: u32,
    #[cfg(not(loom))]
    next_roll_call: Option<Nanos>,
    pub(crate) stopped: Option<Stopped>,
}

impl<'a> Guard<'a> {
    #[inline]
    pub(crate) fn new(control: &'a Control, episode: u32, deadline: Option<Nanos>) -> Self {
        Self {
            control,
            episode,
            deadline,
            looks: 0,
            #[cfg(not(loom))]
            next_roll_call: None,
            stopped: None,
        }
    }
}

impl Watch for Guard<'_> {
    #[cfg(not(loom))]
    fn look(&mut self) -> Verdict {
        if let Some(gone) = self.control.find_gone(self.episode) {
            self.stopped = Some(Stopped::Gone(gone));
            return Verdict::Stop;
        }
        self.looks += 1;
        if self.deadline.is_none() && !self.looks.is_multiple_of(16) {
            return Verdict::Continue;
        }
        let now = unisono_linux::clock::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.stopped = Some(Stopped::TimedOut);
            return Verdict::Stop;
        }
        Verdict::Continue
    }

    #[cfg(loom)]
    fn look(&mut self) -> Verdict {
        self.looks += 1;
        if let Some(gone) = self.control.find_gone(self.episode) {
            self.stopped = Some(Stopped::Gone(gone));
            return Verdict::Stop;
        }
        Verdict::Continue
    }

    #[cfg(not(loom))]
    fn sleep_until(&mut self) -> Option<Nanos> {
        let slice = SLICE.after(unisono_linux::clock::now());
        Some(self.deadline.map_or(slice, |deadline| deadline.min(slice)))
    }

    #[cfg(loom)]
    fn sleep_until(&mut self) -> Option<Nanos> {
        None
    }
}
