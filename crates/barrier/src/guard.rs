//! What a waiting participant watches for: the deadline, members that are gone, members that died.
//!
//! Only the slow path comes here: every few dozen polls, after every yield, before every sleep. In the process
//! form sleepers wake ten times a second to look, so that a member killed without a word is noticed within a
//! fraction of a second; who dies in the thread form takes everybody along, and sleepers sleep undisturbed.
//! Cost: a load of a cached line a look, a clock reading every sixteenth look, the liveness of
//! all other processes ten times a second.

use crate::control::Control;
use crate::error::Gone;
#[cfg(not(loom))]
use crate::{adaptivity, roll_call::RollCall};
use unisono_linux::clock::Nanos;
#[cfg(not(loom))]
use unisono_linux::{clock, futex::Scope};
use unisono_sync::{Advice, Verdict, Watch};

/// How long a sleeper sleeps at most before it looks around, and how often a waiter calls the roll.
#[cfg(not(loom))]
const SLICE: Nanos = Nanos(100_000_000);

/// Looks between two readings of the clock, where no deadline asks for more.
#[cfg(not(loom))]
const LOOKS_PER_CLOCK: u32 = 16;

/// Why a wait ended without its episode.
#[derive(Clone, Debug)]
pub(crate) enum Stopped {
    Gone(Gone),
    #[cfg_attr(loom, expect(dead_code, reason = "time does not pass in a model"))]
    TimedOut,
    Disbanded,
}

pub(crate) struct Guard<'a> {
    control: &'a Control,
    /// `None` for one who joins: whoever is gone, from whatever episode, it cannot.
    episode: Option<u32>,
    deadline: Option<Nanos>,
    /// The place and the number of members, where waits are advised.
    #[cfg(not(loom))]
    advised: Option<(usize, usize)>,
    #[cfg(not(loom))]
    looks: u32,
    #[cfg(not(loom))]
    roll_call: Option<(Nanos, RollCall)>,
    pub(crate) stopped: Option<Stopped>,
}

impl<'a> Guard<'a> {
    /// For a wait for `episode`.
    #[inline]
    pub(crate) fn new(control: &'a Control, episode: u32, deadline: Option<Nanos>) -> Self {
        Self {
            control,
            episode: Some(episode),
            deadline,
            #[cfg(not(loom))]
            advised: None,
            #[cfg(not(loom))]
            looks: 0,
            #[cfg(not(loom))]
            roll_call: None,
            stopped: None,
        }
    }

    /// For one who waits to join.
    pub(crate) fn for_any_episode(control: &'a Control) -> Self {
        Self { episode: None, ..Self::new(control, 0, None) }
    }

    /// With advice for the member at place `id`, one of `members`.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn advised(self, id: usize, members: usize) -> Self {
        Self { advised: Some((id, members)), ..self }
    }

    fn stop(&mut self, why: Stopped) -> Verdict {
        self.stopped = Some(why);
        Verdict::Stop
    }

    /// Stops if somebody is gone or everybody has left.
    fn look_at_members(&mut self) -> Verdict {
        if let Some(gone) = self.control.find_gone(self.episode) {
            self.stop(Stopped::Gone(gone))
        } else if self.control.is_disbanded() {
            self.stop(Stopped::Disbanded)
        } else {
            Verdict::Continue
        }
    }

    /// Stops at the deadline; calls the roll when it is time.
    #[cfg(not(loom))]
    #[cold]
    fn look_at_clock(&mut self) -> Verdict {
        let now = clock::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return self.stop(Stopped::TimedOut);
        }
        if self.control.scope == Scope::Private {
            return Verdict::Continue;
        }
        let (next, roll_call) = self.roll_call.get_or_insert_with(|| (SLICE.after(now), RollCall::default()));
        if now < *next {
            return Verdict::Continue;
        }
        *next = SLICE.after(now);
        roll_call.call(self.control, self.episode.unwrap_or(0));
        self.look_at_members()
    }
}

#[cfg(not(loom))]
impl Watch for Guard<'_> {
    fn look(&mut self) -> Verdict {
        if self.look_at_members() == Verdict::Stop {
            return Verdict::Stop;
        }
        self.looks += 1;
        if self.deadline.is_none() && !self.looks.is_multiple_of(LOOKS_PER_CLOCK) {
            return Verdict::Continue;
        }
        self.look_at_clock()
    }

    fn sleep_until(&mut self) -> Option<Nanos> {
        if self.control.scope == Scope::Private {
            return self.deadline;
        }
        // Who sleeps looks rarely: let its next look be one at the clock.
        self.looks |= LOOKS_PER_CLOCK - 1;
        let slice = SLICE.after(clock::now());
        Some(self.deadline.map_or(slice, |deadline| deadline.min(slice)))
    }

    #[inline]
    fn advice(&self) -> Advice {
        self.advised.map_or(Advice::Spin, |(_, members)| adaptivity::advice(self.control, members))
    }

    fn awaited_may_run(&self) -> bool {
        self.advised.zip(self.episode).is_none_or(|((id, members), episode)| {
            adaptivity::awaited_may_run(self.control, id, members, episode)
        })
    }

    fn yield_took_long(&mut self) {
        adaptivity::yield_took_long(self.control);
    }
}

#[cfg(loom)]
impl Watch for Guard<'_> {
    fn look(&mut self) -> Verdict {
        let _ = self.deadline;
        self.look_at_members()
    }

    fn sleep_until(&mut self) -> Option<Nanos> {
        None
    }

    fn advice(&self) -> Advice {
        match self.control.mode().load(unisono_sync::atomics::Ordering::Relaxed) {
            0 => Advice::Spin,
            1 => Advice::Sleep,
            _ => Advice::GiveWay,
        }
    }
}
