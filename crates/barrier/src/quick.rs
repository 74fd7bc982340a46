//! The shortest way through an episode: two on cores of their own, waiting awake.
//!
//! The idea: an episode of two that is over within some loads has no time for questions. What has to be asked
//! at each - does anything need attention, has anybody been sent to sleep - is two words of a line that
//! everybody keeps in its cache. What has to be done now and then - a note of where one runs, a look at the
//! clock - is counted beforehand: a participant is given so many episodes to pass quickly, and takes the full
//! way when they are used up. How to look at the line - taking it, or only reading - depends on how far apart
//! the two cores are, which on a virtual machine nobody says and anybody may change: each participant times such
//! stretches of episodes, and now and then tries the other way. Cost: one store, one exchange of the line, and some twenty instructions. When not
//! to use: where cores are shared, or with more than two.

use crate::algorithm::Place;
use crate::control::{ATTENTION_CHANGE, Control};
#[cfg(not(loom))]
use unisono_linux::clock::{Ticks, ticks};
use unisono_sync::atomics::Ordering;
use unisono_sync::{Exchange, Unwatched, Verdict, WaitPolicy};

/// Episodes that may be passed quickly, and the way to look while passing them.
#[derive(Debug, Default)]
pub(crate) struct Quick {
    given: u32,
    left: u32,
    look: Look,
    #[cfg(not(loom))]
    began: Ticks,
}

/// How far the quick way led.
pub(crate) enum Passed {
    /// Nothing has been done: the full way is due.
    No,
    /// This participant has arrived; the other has not been seen yet.
    Half,
    /// The episode is complete.
    Whole,
    /// The episode is complete, and something changes before the next.
    WholeAndChange,
}

impl Quick {
    /// Gives so many episodes.
    #[inline]
    pub(crate) fn give(&mut self, episodes: u32) {
        (self.given, self.left) = (episodes, episodes);
        #[cfg(not(loom))]
        if episodes >= LEAST_STRETCH {
            self.look.choose();
            self.began = ticks();
        }
    }

    /// Ends the quick way; says how many episodes it was used for.
    #[inline]
    pub(crate) fn end(&mut self) -> u32 {
        let used = self.given - self.left;
        #[cfg(not(loom))]
        if used >= LEAST_STRETCH {
            self.look.learn(ticks().since(self.began).0 / u64::from(used));
        }
        (self.given, self.left) = (0, 0);
        used
    }

    /// Tries to pass `episode` as `rank`, one of the two of an exchange.
    #[inline]
    pub(crate) fn pass(&mut self, control: &Control, place: &Place<'_>, rank: usize, episode: u32) -> Passed {
        if self.left == 0 || control.needs_a_word() {
            return Passed::No;
        }
        self.left -= 1;
        place.flag(0, 1 - rank).signal(episode, place.wakeups);
        if self.look.now.wait(place.flag(0, rank), episode, &mut Unwatched) == Verdict::Stop {
            return Passed::Half;
        }
        if control.attention().load(Ordering::Relaxed) & ATTENTION_CHANGE == 0 {
            Passed::Whole
        } else {
            Passed::WholeAndChange
        }
    }
}

/// Which way to look costs less.
#[derive(Debug, Default)]
struct Look {
    now: Exchange,
    #[cfg(not(loom))]
    learned: Learned,
}

#[cfg(not(loom))]
#[derive(Debug, Default)]
struct Learned {
    /// What an episode cost when looked at so, smoothed; 0 if unknown.
    taking: u64,
    reading: u64,
    stretches: u32,
}

/// Stretches of fewer episodes say nothing.
#[cfg(not(loom))]
const LEAST_STRETCH: u32 = 32;
/// The way that has cost more is tried once in so many stretches.
#[cfg(not(loom))]
const TRIED_EVERY: u32 = 64;
/// Costs are kept in fractions of a tick, so that smoothing does not stick.
#[cfg(not(loom))]
const FRACTION: u64 = 64;

#[cfg(not(loom))]
impl Look {
    /// The way to look during the next stretch.
    fn choose(&mut self) {
        let Learned { taking, reading, stretches } = &mut self.learned;
        let (better, other) = if *reading < *taking {
            (Exchange::Reading, Exchange::Taking)
        } else {
            (Exchange::Taking, Exchange::Reading)
        };
        *stretches = stretches.wrapping_add(1);
        self.now = if *stretches % TRIED_EVERY == 0 { other } else { better };
    }

    /// An episode of the stretch has cost so many ticks.
    fn learn(&mut self, ticks: u64) {
        let known = match self.now {
            Exchange::Taking => &mut self.learned.taking,
            Exchange::Reading => &mut self.learned.reading,
        };
        let cost = ticks.saturating_mul(FRACTION);
        *known = match *known {
            0 => cost,
            more if cost < more => more.midpoint(cost),
            // one stretch that was interrupted, or spent computing, is not believed at once
            less => less + (cost.min(less * 2) - less) / 4,
        };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The way looked at in most of the stretches, when looking costs so much.
    fn mostly(look: &mut Look, taking: u64, reading: u64) -> Exchange {
        let mut reads = 0;
        for _ in 0..1000 {
            look.choose();
            reads += u32::from(look.now == Exchange::Reading);
            look.learn(if look.now == Exchange::Reading { reading } else { taking });
        }
        assert!(reads > 0 && reads < 1000, "the other way is tried now and then");
        if reads > 500 { Exchange::Reading } else { Exchange::Taking }
    }

    #[test]
    fn the_way_that_costs_less_is_found_and_found_again_when_that_changes() {
        let mut look = Look::default();
        assert_eq!(mostly(&mut look, 420, 280), Exchange::Reading);
        assert_eq!(mostly(&mut look, 1290, 2160), Exchange::Taking);
        assert_eq!(mostly(&mut look, 420, 280), Exchange::Reading);
    }

    #[test]
    fn one_interrupted_stretch_changes_little() {
        let mut look = Look::default();
        mostly(&mut look, 420, 280);
        let before = look.learned.reading;
        look.now = Exchange::Reading;
        look.learn(1_000_000);
        assert!(look.learned.reading <= before * 5 / 4);
    }
}
