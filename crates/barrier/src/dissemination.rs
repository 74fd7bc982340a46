//! Dissemination barrier.
//!
//! The idea: in round k each participant signals the participant 2^k ranks after it, and waits for the
//! participant 2^k ranks before it. After ceil(log2 n) rounds each participant has a signal from every other
//! participant, directly or through others.
//! ```text
//!   round 0   0->1->2->3->4->0      round 1   0->2->4->1->3->0      round 2   0->4->3->2->1->0
//! ```
//! Cost per participant: ceil(log2 n) stores and as many waits, each on a word that only one other
//! participant writes. No line is contended, and there is no root. A group of two uses the [exchange
//! barrier](crate::exchange) instead. When not to use: with more participants than cores, because all must
//! run in *every* round; or where access to shared memory is slow, because an episode takes n ceil(log2 n)
//! messages.
//!
//! Reference: Hensgen, Finkel, Manber, Int. J. Parallel Programming 17(1), 1988; Mellor-Crummey, Scott 1991,
//! section 3.3. Where the published algorithm uses parity and sense reversal, this one uses increasing
//! episode numbers: if a partner is an episode ahead, its number is greater than the awaited one, which also
//! ends the wait.

use crate::algorithm::{EpisodeWait, GroupWords, Leadership, Protocol, rounds};
use unisono_sync::{CacheLine, WaitPolicy, Watch};

#[derive(Debug)]
pub(crate) struct Dissemination {
    rank: usize,
    members: usize,
    rounds: usize,
    lines_per_member: usize,
    /// The round whose signal this participant awaits; it has already sent its own signal of that round.
    round: usize,
}

impl Protocol for Dissemination {
    fn lines(members: usize) -> usize {
        members * lines_per_member(members)
    }

    fn new(rank: usize, members: usize) -> Self {
        let (rounds, lines_per_member) = (rounds(members), lines_per_member(members));
        Self { rank, members, rounds, lines_per_member, round: 0 }
    }

    #[inline]
    fn arrive(&mut self, words: &GroupWords<'_>, episode: u32) {
        self.round = 0;
        self.signal(words, episode);
    }

    #[inline]
    fn complete(&mut self, mut wait: EpisodeWait<'_, impl WaitPolicy, impl Watch>) -> Option<Leadership> {
        let (words, episode) = (wait.words, wait.episode);
        while self.round < self.rounds {
            wait.until(self.flag(words, self.rank, self.round))?;
            self.round += 1;
            self.signal(words, episode);
        }
        Some(Leadership::of_first(self.rank))
    }
}

impl Dissemination {
    #[inline]
    fn signal(&self, words: &GroupWords<'_>, episode: u32) {
        if self.round < self.rounds {
            let mut partner = self.rank + (1 << self.round);
            if partner >= self.members {
                partner -= self.members;
            }
            self.flag(words, partner, self.round).signal(episode, words.wakeups);
        }
    }

    #[inline]
    fn flag<'a>(&self, words: &GroupWords<'a>, rank: usize, round: usize) -> unisono_sync::Flag<'a> {
        words.flag(rank * self.lines_per_member + round / CacheLine::FLAGS, round % CacheLine::FLAGS)
    }
}

fn lines_per_member(members: usize) -> usize {
    rounds(members).max(1).div_ceil(CacheLine::FLAGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_all_rounds_everybody_has_heard_of_everybody() {
        for members in 1..=70_usize {
            let mut known: Vec<u128> = (0..members).map(|rank| 1 << rank).collect();
            for round in 0..rounds(members) {
                let before = known.clone();
                for (rank, words) in before.iter().enumerate() {
                    known[(rank + (1 << round)) % members] |= words;
                }
            }
            assert!(known.iter().all(|words| words.count_ones() as usize == members), "{members} members");
        }
    }
}
