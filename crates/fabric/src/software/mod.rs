//! Software barriers over datagrams, for comparison: central, tree and dissemination.
//!
//! Like [`unisono_btin::GroupMember`], they have no I/O and no clock: they accept and return messages, and
//! the caller calls [`Software::retransmit`] after a timeout. They also tolerate loss and repetition, so that
//! all compared barriers give the same guarantees.
//!
//! | | messages a barrier | longest chain | the busiest member handles |
//! |---|---|---|---|
//! | central | 2 (n - 1) | 2 | 2 (n - 1) |
//! | tree of arity k | 2 (n - 1) | 2 log_k n | 2 (k + 1) |
//! | dissemination | n ceil(log2 n) | ceil(log2 n) | 2 ceil(log2 n) |
//!
//! Reference: Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory
//! multiprocessors" (central, tree); Hensgen, Finkel and Manber, "Two algorithms for barrier
//! synchronization".

mod dissemination;
mod tree;

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SoftwareAlgorithm {
    /// All ranks send to rank 0, which answers all of them: a tree of one level.
    Central,
    /// Each rank sends to its parent; each parent has at most this many children.
    Tree(u16),
    /// In round r, each rank sends to the rank whose number is 2^r higher, modulo the number of ranks. There
    /// are no answers.
    Dissemination,
}

impl fmt::Display for SoftwareAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Central => write!(f, "central"),
            Self::Tree(arity) => write!(f, "tree of {arity}"),
            Self::Dissemination => write!(f, "dissemination"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankMessage {
    /// The number of the barrier, from 0.
    pub episode: u32,
    /// The round of a dissemination; in a tree, whether it is an arrival or a release.
    pub round: u8,
    pub from: u32,
}

impl RankMessage {
    pub const LENGTH: usize = 9;

    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&self.episode.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.from.to_be_bytes());
        bytes[8] = self.round;
        bytes
    }

    /// Decodes a message. Returns `None` if there are too few bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LENGTH] = bytes.first_chunk()?;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Some(Self { episode: word(0), from: word(4), round: bytes[8] })
    }
}

/// Messages, each with its destination rank.
pub type RankMessages = Vec<(u32, RankMessage)>;

/// One rank's part in a software barrier.
#[derive(Clone, Debug)]
pub enum Software {
    Tree(tree::TreeRank),
    Dissemination(dissemination::DisseminationRank),
}

impl Software {
    pub fn new(algorithm: SoftwareAlgorithm, rank: u32, ranks: u32) -> Self {
        match algorithm {
            SoftwareAlgorithm::Central => Self::Tree(tree::TreeRank::new(rank, ranks, ranks)),
            SoftwareAlgorithm::Tree(arity) => {
                Self::Tree(tree::TreeRank::new(rank, ranks, u32::from(arity.max(2))))
            }
            SoftwareAlgorithm::Dissemination => {
                Self::Dissemination(dissemination::DisseminationRank::new(rank, ranks))
            }
        }
    }

    /// Arrives. Returns whether that releases this rank.
    pub fn arrive(&mut self, out: &mut RankMessages) -> bool {
        match self {
            Self::Tree(node) => node.arrive(out),
            Self::Dissemination(rank) => rank.arrive(out),
        }
    }

    /// Handles a received message. Returns whether the message releases this rank.
    pub fn take(&mut self, message: RankMessage, out: &mut RankMessages) -> bool {
        match self {
            Self::Tree(node) => node.take(message, out),
            Self::Dissemination(rank) => rank.take(message, out),
        }
    }

    /// Repeats the messages that may have been lost. It is called after a timeout.
    pub fn retransmit(&self, out: &mut RankMessages) {
        match self {
            Self::Tree(node) => node.retransmit(out),
            Self::Dissemination(rank) => rank.retransmit(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{Rng, SeedableRng};

    /// Runs barriers over a network that loses, repeats and reorders messages. Returns the number of messages
    /// of the last barrier.
    fn run(algorithm: SoftwareAlgorithm, ranks: u32, barriers: u32, seed: u64, loss: f64) -> usize {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
        let mut all: Vec<Software> = (0..ranks).map(|rank| Software::new(algorithm, rank, ranks)).collect();
        let mut wire: RankMessages = Vec::new();
        let mut last = 0;
        for _ in 0..barriers {
            let mut waiting = vec![true; ranks as usize];
            let mut order: Vec<u32> = (0..ranks).collect();
            for at in (1..order.len()).rev() {
                order.swap(at, random.random_range(0..=at));
            }
            last = 0;
            for (arrived, rank) in (1..).zip(order) {
                let mut out = Vec::new();
                if all[rank as usize].arrive(&mut out) {
                    waiting[rank as usize] = false;
                }
                last += out.len();
                wire.append(&mut out);
                let all_arrived = arrived == ranks;
                while !wire.is_empty() || all_arrived && waiting.contains(&true) {
                    if wire.is_empty() {
                        for (rank, _) in waiting.iter().enumerate().filter(|(_, waiting)| **waiting) {
                            all[rank].retransmit(&mut wire);
                        }
                        continue;
                    }
                    let (to, message) = wire.swap_remove(random.random_range(0..wire.len()));
                    if random.random_bool(loss) {
                        continue;
                    }
                    for _ in 0..1 + u32::from(random.random_bool(loss)) {
                        let mut out = Vec::new();
                        if all[to as usize].take(message, &mut out) {
                            assert!(all_arrived, "{algorithm}: released before all had arrived");
                            assert!(std::mem::take(&mut waiting[to as usize]), "{algorithm}: released twice");
                        }
                        last += out.len();
                        wire.append(&mut out);
                    }
                }
            }
        }
        last
    }

    const ALL: [SoftwareAlgorithm; 4] = [
        SoftwareAlgorithm::Central,
        SoftwareAlgorithm::Tree(2),
        SoftwareAlgorithm::Tree(4),
        SoftwareAlgorithm::Dissemination,
    ];

    #[test]
    fn without_loss_they_send_what_the_table_says() {
        for ranks in [1_u32, 2, 3, 8, 21] {
            let rounds = ranks.next_power_of_two().trailing_zeros();
            for algorithm in ALL {
                let expected = if algorithm == SoftwareAlgorithm::Dissemination {
                    ranks * rounds
                } else {
                    2 * (ranks - 1)
                };
                assert_eq!(run(algorithm, ranks, 3, 1, 0.0), expected as usize, "{algorithm}, {ranks}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn nobody_is_released_early_and_everybody_in_the_end(
            ranks in 1_u32..20, seed in any::<u64>(), loss in 0.0..0.4,
        ) {
            for algorithm in ALL {
                run(algorithm, ranks, 6, seed, loss);
            }
        }

        #[test]
        fn a_message_survives_the_wire(episode in any::<u32>(), from in any::<u32>(), round in any::<u8>()) {
            let message = RankMessage { episode, round, from };
            prop_assert_eq!(RankMessage::from_bytes(&message.to_bytes()), Some(message));
            prop_assert_eq!(RankMessage::from_bytes(&message.to_bytes()[1..]), None);
        }
    }
}
