//! The shortest way through an episode: two on cores of their own, waiting awake.
//!
//! The idea: an episode of two that is over within some loads has no time for questions. What has to be asked
//! at each - does anything need attention, has anybody been sent to sleep - is two words of a line that
//! everybody keeps in its cache. What has to be done now and then - a note of where one runs, a look at the
//! clock - is counted beforehand: a participant is given so many episodes to pass quickly, and takes the full
//! way when they are used up. Cost: one store, one exchange of the line, and some twenty instructions. When not
//! to use: where cores are shared, or with more than two.

use crate::algorithm::Place;
use crate::control::{ATTENTION_CHANGE, Control};
use unisono_sync::atomics::Ordering;
use unisono_sync::{Exchange, Unwatched, Verdict, WaitPolicy};

/// Episodes that may be passed quickly.
#[derive(Debug, Default)]
pub(crate) struct Quick {
    given: u32,
    left: u32,
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
    }

    /// Ends the quick way; says how many episodes it was used for.
    #[inline]
    pub(crate) fn end(&mut self) -> u32 {
        let used = self.given - self.left;
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
        if Exchange.wait(place.flag(0, rank), episode, &mut Unwatched) == Verdict::Stop {
            return Passed::Half;
        }
        if control.attention().load(Ordering::Relaxed) & ATTENTION_CHANGE == 0 {
            Passed::Whole
        } else {
            Passed::WholeAndChange
        }
    }
}
