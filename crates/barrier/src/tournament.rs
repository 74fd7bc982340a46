//! Tournament barrier.
//!
//! The idea: pairs meet in rounds, and the winner of each pair is fixed beforehand. The loser signals the
//! winner and waits; the winner plays on. So all arrivals reach the champion (rank 0). The release runs back
//! down the brackets: each winner wakes the losers that it beat, the latest first.
//! ```text
//!   round 2   0 <------------- 4          arrival: the loser stores into the winner's line
//!   round 1   0 <----- 2       4 <-- 6    release: the winner stores into the loser's line
//!   round 0   0<-1   2<-3    4<-5  6<-7
//! ```
//! Cost per participant: one store up, and one down for each participant that it beat; no read-modify-write;
//! 2 ceil(log2 n) steps on the longest path. When not to use: with more participants than cores, for the same
//! reason as the dissemination barrier.
//!
//! Reference: Hensgen, Finkel, Manber 1988; Lubachevsky 1989; Mellor-Crummey, Scott 1991, section 3.4. Their
//! release is one word; here it is the tree, so that no line has to reach all participants at the same time.

use crate::algorithm::{EpisodeWait, GroupWords, Leadership, Protocol, rounds};
use unisono_sync::{CacheLine, Flag, WaitPolicy, Watch};

#[derive(Debug)]
pub(crate) struct Tournament {
    rank: usize,
    members: usize,
    /// The number of rounds that this participant wins before it loses; all rounds, for the champion.
    wins: usize,
    lines_per_member: usize,
    round: usize,
    /// Whether this participant has signalled its winner or, as champion, released its losers.
    settled: bool,
}

impl Protocol for Tournament {
    fn lines(members: usize) -> usize {
        members * lines_per_member(members)
    }

    fn new(rank: usize, members: usize) -> Self {
        let wins = if rank == 0 { rounds(members) } else { rank.trailing_zeros() as usize };
        Self { rank, members, wins, lines_per_member: lines_per_member(members), round: 0, settled: false }
    }

    #[inline]
    fn arrive(&mut self, words: &GroupWords<'_>, episode: u32) {
        (self.round, self.settled) = (0, false);
        while self.round < self.wins
            && (!self.has_loser(self.round) || self.loser_flag(words, self.round).reached(episode))
        {
            self.round += 1;
        }
        self.settle_if_won(words, episode);
    }

    #[inline]
    fn complete(&mut self, mut wait: EpisodeWait<'_, impl WaitPolicy, impl Watch>) -> Option<Leadership> {
        let (words, episode) = (wait.words, wait.episode);
        while self.round < self.wins {
            if self.has_loser(self.round) {
                wait.until(self.loser_flag(words, self.round))?;
            }
            self.round += 1;
        }
        self.settle_if_won(words, episode);
        if self.rank == 0 {
            return Some(Leadership::Leader);
        }
        wait.until(self.released(words, self.rank))?;
        self.release_losers(words, episode);
        Some(Leadership::Follower)
    }
}

impl Tournament {
    #[inline]
    fn settle_if_won(&mut self, words: &GroupWords<'_>, episode: u32) {
        if self.settled || self.round < self.wins {
            return;
        }
        self.settled = true;
        if self.rank == 0 {
            self.release_losers(words, episode);
        } else {
            let winner = self.rank - (1 << self.wins);
            self.flag(words, winner, 1 + self.wins).signal(episode, words.wakeups);
        }
    }

    #[inline]
    fn release_losers(&self, words: &GroupWords<'_>, episode: u32) {
        for round in (0..self.wins).rev().filter(|round| self.has_loser(*round)) {
            self.released(words, self.rank + (1 << round)).signal(episode, words.wakeups);
        }
    }

    #[inline]
    fn has_loser(&self, round: usize) -> bool {
        self.rank + (1 << round) < self.members
    }

    /// Returns the flag by which the loser of a round signals this participant.
    #[inline]
    fn loser_flag<'a>(&self, words: &GroupWords<'a>, round: usize) -> Flag<'a> {
        self.flag(words, self.rank, 1 + round)
    }

    #[inline]
    fn released<'a>(&self, words: &GroupWords<'a>, rank: usize) -> Flag<'a> {
        self.flag(words, rank, 0)
    }

    #[inline]
    fn flag<'a>(&self, words: &GroupWords<'a>, rank: usize, flag: usize) -> Flag<'a> {
        words.flag(rank * self.lines_per_member + flag / CacheLine::FLAGS, flag % CacheLine::FLAGS)
    }
}

const fn lines_per_member(members: usize) -> usize {
    (1 + rounds(members)).div_ceil(CacheLine::FLAGS)
}
