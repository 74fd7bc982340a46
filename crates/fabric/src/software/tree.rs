//! The combining tree: arrivals go up, releases come down. With one level it is the central barrier.
//!
//! Ranks form a heap: the parent of rank r is (r - 1) / k. A rank repeats its arrival until it is released; a
//! parent that has been released answers an old arrival with the lost release.

use super::{RankMessage, RankMessages};

const ARRIVAL: u8 = 0;
const RELEASE: u8 = 1;

#[derive(Clone, Debug)]
pub struct TreeRank {
    rank: u32,
    parent: Option<u32>,
    first_child: u32,
    arrived: Vec<bool>,
    missing: usize,
    here: bool,
    episode: u32,
}

impl TreeRank {
    pub(super) fn new(rank: u32, ranks: u32, arity: u32) -> Self {
        let first_child = rank.saturating_mul(arity).saturating_add(1).min(ranks);
        let children = first_child.saturating_add(arity).min(ranks) - first_child;
        let missing = children as usize;
        let parent = rank.checked_sub(1).map(|before| before / arity);
        Self { rank, parent, first_child, arrived: vec![false; missing], missing, here: false, episode: 0 }
    }

    pub(super) fn arrive(&mut self, out: &mut RankMessages) -> bool {
        self.here = true;
        self.proceed(out)
    }

    pub(super) fn take(&mut self, message: RankMessage, out: &mut RankMessages) -> bool {
        let from_parent = self.parent == Some(message.from) && message.round == RELEASE;
        if from_parent {
            return message.episode == self.episode && self.here && self.missing == 0 && self.release(out);
        }
        let child =
            message.from.checked_sub(self.first_child).and_then(|at| self.arrived.get_mut(at as usize));
        let (Some(arrived), ARRIVAL) = (child, message.round) else { return false };
        if message.episode == self.episode && !*arrived {
            *arrived = true;
            self.missing -= 1;
            return self.proceed(out);
        }
        if message.episode.wrapping_add(1) == self.episode {
            out.push((message.from, RankMessage { round: RELEASE, from: self.rank, ..message }));
        }
        false
    }

    pub(super) fn retransmit(&self, out: &mut RankMessages) {
        if let (true, 0, Some(parent)) = (self.here, self.missing, self.parent) {
            out.push((parent, self.message(ARRIVAL)));
        }
    }

    fn proceed(&mut self, out: &mut RankMessages) -> bool {
        if !self.here || self.missing > 0 {
            return false;
        }
        match self.parent {
            Some(parent) => {
                out.push((parent, self.message(ARRIVAL)));
                false
            }
            None => self.release(out),
        }
    }

    fn release(&mut self, out: &mut RankMessages) -> bool {
        let children = (self.first_child..).take(self.arrived.len());
        out.extend(children.map(|child| (child, self.message(RELEASE))));
        self.arrived.fill(false);
        self.missing = self.arrived.len();
        self.here = false;
        self.episode = self.episode.wrapping_add(1);
        true
    }

    fn message(&self, round: u8) -> RankMessage {
        RankMessage { episode: self.episode, round, from: self.rank }
    }
}
