//! The exchange: dissemination for two.
//!
//! The idea: each participant stores once and polls once. The two words lie in *one* line. A participant that
//! takes the line for its store finds the other's word in it, so an episode can move the line once instead of
//! twice. Cost: one store, one transfer of the line. When not to use: with more than two participants (see
//! [`crate::dissemination`]).

use crate::algorithm::{EpisodeWait, GroupWords, Leadership, Protocol};
use unisono_sync::{WaitPolicy, Watch};

#[derive(Debug)]
pub(crate) struct PairExchange {
    /// 0 or 1. Masked at each use, so that the compiler drops the bounds check.
    rank: usize,
}

impl Protocol for PairExchange {
    fn lines(_members: usize) -> usize {
        1
    }

    fn new(rank: usize, _members: usize) -> Self {
        Self { rank }
    }

    #[inline]
    fn arrive(&mut self, words: &GroupWords<'_>, episode: u32) {
        words.flag(0, !self.rank & 1).signal(episode, words.wakeups);
    }

    #[inline]
    fn complete(&mut self, mut wait: EpisodeWait<'_, impl WaitPolicy, impl Watch>) -> Option<Leadership> {
        let words = wait.words;
        wait.until(words.flag(0, self.rank & 1))?;
        Some(Leadership::of_first(self.rank))
    }
}
