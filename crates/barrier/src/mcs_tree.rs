//! The tree barrier of Mellor-Crummey and Scott.
//!
//! The idea: two trees whose nodes are the participants. *Arrival*: each parent waits for up to four
//! children. Their words lie together in the parent's line, so that it polls one line. *Wake-up*: a binary
//! tree, in which each participant polls a line of its own and wakes at most two others.
//! ```text
//!   arrival (4-ary)        0            wake-up (binary)      0
//!                    / / \  \                               /   \
//!                   1 2   3  4                             1     2
//!                  5..8                                   3 4   5 6
//! ```
//! Cost per participant: one store up, at most two down, no read-modify-write. An episode has the fewest line
//! transfers of all algorithms (2n - 2), and each participant polls only its own memory. When not to use: for
//! few threads on one socket, where one release word is faster than a tree.
//!
//! Reference: Mellor-Crummey, Scott, "Algorithms for scalable synchronization on shared-memory
//! multiprocessors", ACM TOCS 9(1), 1991, section 3.5 (algorithm 11).

use crate::algorithm::{EpisodeWait, GroupWords, Leadership, Protocol};
use unisono_sync::{Flag, WaitPolicy, Watch};

/// Mellor-Crummey and Scott (1991, section 3.5) take 4 for arrivals, because a node then polls one word of
/// four bytes, and 2 for wake-ups, because a node wakes its children one after the other. Other numbers were
/// not measured here.
#[cfg(not(loom))]
const ARRIVAL_FAN_IN: usize = 4;
#[cfg(loom)]
const ARRIVAL_FAN_IN: usize = 2;
const WAKE_UP_FAN_OUT: usize = 2;

/// The lines of a participant: one for its children's arrivals, and a separate one for its own wake-up.
const LINES_EACH: usize = 2;

#[derive(Debug)]
pub(crate) struct McsTree {
    rank: usize,
    members: usize,
    children: usize,
    seen: usize,
    /// Whether this participant has signalled its parent or, at the root, begun the wake-up.
    passed_on: bool,
}

impl Protocol for McsTree {
    fn lines(members: usize) -> usize {
        members * LINES_EACH
    }

    fn new(rank: usize, members: usize) -> Self {
        let first_child = rank * ARRIVAL_FAN_IN + 1;
        let children = members.saturating_sub(first_child).min(ARRIVAL_FAN_IN);
        Self { rank, members, children, seen: 0, passed_on: false }
    }

    #[inline]
    fn arrive(&mut self, words: &GroupWords<'_>, episode: u32) {
        (self.seen, self.passed_on) = (0, false);
        while self.seen < self.children && self.child(words, self.seen).reached(episode) {
            self.seen += 1;
        }
        self.pass_on_if_all_seen(words, episode);
    }

    #[inline]
    fn complete(&mut self, mut wait: EpisodeWait<'_, impl WaitPolicy, impl Watch>) -> Option<Leadership> {
        let (words, episode) = (wait.words, wait.episode);
        while self.seen < self.children {
            wait.until(self.child(words, self.seen))?;
            self.seen += 1;
        }
        self.pass_on_if_all_seen(words, episode);
        if self.rank == 0 {
            return Some(Leadership::Leader);
        }
        wait.until(wake_up(words, self.rank))?;
        self.wake_children(words, episode);
        Some(Leadership::Follower)
    }
}

impl McsTree {
    #[inline]
    fn pass_on_if_all_seen(&mut self, words: &GroupWords<'_>, episode: u32) {
        if self.passed_on || self.seen < self.children {
            return;
        }
        self.passed_on = true;
        match self.rank.checked_sub(1) {
            None => self.wake_children(words, episode),
            Some(above) => {
                let parent = LINES_EACH * (above / ARRIVAL_FAN_IN);
                words.flag(parent, above % ARRIVAL_FAN_IN).signal(episode, words.wakeups);
            }
        }
    }

    #[inline]
    fn wake_children(&self, words: &GroupWords<'_>, episode: u32) {
        let first = self.rank * WAKE_UP_FAN_OUT + 1;
        for child in first..self.members.min(first + WAKE_UP_FAN_OUT) {
            wake_up(words, child).signal(episode, words.wakeups);
        }
    }

    #[inline]
    fn child<'a>(&self, words: &GroupWords<'a>, child: usize) -> Flag<'a> {
        words.flag(LINES_EACH * self.rank, child)
    }
}

#[inline]
fn wake_up<'a>(words: &GroupWords<'a>, rank: usize) -> Flag<'a> {
    words.flag(LINES_EACH * rank + 1, 0)
}
