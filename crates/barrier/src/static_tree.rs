//! Static f-way tree.
//!
//! The idea: the tree is fixed beforehand. A parent waits for each of its children on a word that only that
//! child writes. All participants wait for one word that the root writes. There is no read-modify-write.
//!
//! Cost per participant: one store and, for a parent, a wait for each child; O(log n) steps up, one down.
//! When not to use: where several sockets poll the one release word (wake by a tree there:
//! [`crate::Algorithm::McsTree`]); or where participants share cores in no known order.
//!
//! Reference: Grunwald, Vajracharya, "Efficient barriers for distributed shared memory computers", IPPS 1994
//! (static f-way tournament, global wake-up).

use crate::algorithm::{EpisodeWait, GroupWords, Leadership, Protocol};
use unisono_sync::{WaitPolicy, Watch};

/// The number of children of a node. All their words fit in the node's line, so that the node reads one line.
/// The line has 16 words, but the depth of the tree hardly shrinks beyond 4 (64 participants: three levels
/// with 4, two with 8), and with more children the last child of a node signals later. The number comes from
/// the MCS tree; it was not measured.
#[cfg(not(loom))]
const FAN_IN: usize = 4;
#[cfg(loom)]
const FAN_IN: usize = 2;

/// The line of the release. The children of rank r signal line 1 + r.
const RELEASE: usize = 0;

#[derive(Debug)]
pub(crate) struct StaticTree {
    rank: usize,
    children: usize,
    /// The number of children whose arrival this participant has seen in this episode.
    seen: usize,
    signalled: bool,
}

impl Protocol for StaticTree {
    fn lines(members: usize) -> usize {
        1 + members
    }

    fn new(rank: usize, members: usize) -> Self {
        let first_child = rank * FAN_IN + 1;
        let children = members.saturating_sub(first_child).min(FAN_IN);
        Self { rank, children, seen: 0, signalled: false }
    }

    #[inline]
    fn arrive(&mut self, words: &GroupWords<'_>, episode: u32) {
        (self.seen, self.signalled) = (0, false);
        while self.seen < self.children && words.flag(1 + self.rank, self.seen).reached(episode) {
            self.seen += 1;
        }
        self.signal_if_all_seen(words, episode);
    }

    #[inline]
    fn complete(&mut self, mut wait: EpisodeWait<'_, impl WaitPolicy, impl Watch>) -> Option<Leadership> {
        let (words, episode) = (wait.words, wait.episode);
        while self.seen < self.children {
            wait.until(words.flag(1 + self.rank, self.seen))?;
            self.seen += 1;
        }
        self.signal_if_all_seen(words, episode);
        if self.rank == 0 {
            return Some(Leadership::Leader);
        }
        wait.until(words.flag(RELEASE, 0))?;
        Some(Leadership::Follower)
    }
}

impl StaticTree {
    #[inline]
    fn signal_if_all_seen(&mut self, words: &GroupWords<'_>, episode: u32) {
        if self.signalled || self.seen < self.children {
            return;
        }
        self.signalled = true;
        let flag = match self.rank.checked_sub(1) {
            None => words.flag(RELEASE, 0),
            Some(above) => words.flag(1 + above / FAN_IN, above % FAN_IN),
        };
        flag.signal(episode, words.wakeups);
    }
}
