//! The dissemination barrier: in round r, every rank sends a message to the rank whose number is 2^r higher
//! (modulo n), and waits for the message of the rank whose number is 2^r lower. After ceil(log2 n) rounds
//! every rank has received, directly or indirectly, the arrivals of all others, without a root.
//!
//! A rank that has been released may already send messages of the next episode. These messages arrive at most
//! one episode early, because no rank passes a barrier that this rank has not reached. After a timeout, a
//! rank asks the rank for which it waits to send its message again, because that rank may have been released
//! long ago, and a released rank repeats nothing by itself.

use super::{RankMessage, RankMessages};

/// This bit of `round` asks the receiver to send the message of that round again.
const ASK: u8 = 0x80;

#[derive(Clone, Debug)]
pub struct DisseminationRank {
    rank: u32,
    ranks: u32,
    rounds: u8,
    /// The current round. `None`: the rank has not arrived.
    round: Option<u8>,
    episode: u32,
    /// The rounds whose messages have arrived, as bits, for this episode and for the next.
    heard: [u32; 2],
}

impl DisseminationRank {
    pub(super) fn new(rank: u32, ranks: u32) -> Self {
        let rounds = ranks.next_power_of_two().trailing_zeros() as u8;
        Self { rank, ranks, rounds, round: None, episode: 0, heard: [0; 2] }
    }

    pub(super) fn arrive(&mut self, out: &mut RankMessages) -> bool {
        self.round = Some(0);
        self.signal(0, self.episode, out);
        self.proceed(out)
    }

    pub(super) fn take(&mut self, message: RankMessage, out: &mut RankMessages) -> bool {
        let round = message.round & !ASK;
        if message.round & ASK != 0 {
            let has_sent = match self.episode.wrapping_sub(message.episode) {
                0 => self.round.is_some_and(|now| round <= now),
                1 => true,
                _ => false,
            };
            if has_sent {
                self.signal(round, message.episode, out);
            }
            return false;
        }
        let ahead = message.episode.wrapping_sub(self.episode) as usize;
        if round < self.rounds && ahead < 2 {
            self.heard[ahead] |= 1 << round;
        }
        self.proceed(out)
    }

    pub(super) fn retransmit(&self, out: &mut RankMessages) {
        if let Some(round) = self.round {
            let whom = (self.rank + self.ranks - (1 << round) % self.ranks) % self.ranks;
            out.push((whom, RankMessage { episode: self.episode, round: round | ASK, from: self.rank }));
        }
    }

    fn proceed(&mut self, out: &mut RankMessages) -> bool {
        let Some(mut round) = self.round else { return false };
        while round < self.rounds && self.heard[0] & 1 << round != 0 {
            round += 1;
            self.signal(round, self.episode, out);
        }
        let released = round >= self.rounds;
        self.round = (!released).then_some(round);
        if released {
            self.episode = self.episode.wrapping_add(1);
            self.heard = [self.heard[1], 0];
        }
        released
    }

    fn signal(&self, round: u8, episode: u32, out: &mut RankMessages) {
        if round < self.rounds {
            let to = (self.rank + (1 << round)) % self.ranks;
            out.push((to, RankMessage { episode, round, from: self.rank }));
        }
    }
}
