//! Software combining tree.
//!
//! The idea: a tree of counters replaces the single counter, so that few participants meet at each counter.
//! The last participant at a node climbs to the node's parent. The last participant at the root starts the
//! release. On the way down each participant releases the nodes that it completed on its way up, from top to
//! bottom.
//! ```text
//!            [root]              counters of FAN_IN; the last to arrive climbs,
//!           /      \             the release comes down the path that it climbed
//!       [0..4)    [4..8)
//! ```
//! Cost per participant: O(log n) read-modify-writes for the participant that climbs highest, one for most.
//! At most `FAN_IN` participants contend for a line. When not to use: for few threads, where the levels cost
//! more than the contention.
//!
//! Reference: Yew, Tzeng, Lawrie, "Distributing hot-spot addressing in large-scale multiprocessors", IEEE
//! Trans. Computers 36(4), 1987; with sense reversal: Mellor-Crummey, Scott 1991, section 3.2.

use crate::algorithm::{EpisodeWait, GroupWords, Leadership, Protocol};
use unisono_sync::atomics::Ordering;
use unisono_sync::{WaitPolicy, Watch};

/// The number of participants or nodes below a node. All of them write one word of it, so a node costs one
/// line transfer per child, one after the other. With 2 a group of 64 has six levels instead of three, and
/// each level costs a transfer that overlaps with no other; with 8 the transfers at one node take longer than
/// two levels of 4. 4 is the literature's number for such trees; it was not measured here.
#[cfg(not(loom))]
const FAN_IN: usize = 4;
#[cfg(loom)]
const FAN_IN: usize = 2; // so that three threads make two levels
/// `FAN_IN` to this power exceeds the largest group, also in a model.
const MAX_DEPTH: usize = 13;

/// The flag of a node's line that releases the participants stopped at the node.
const RELEASE: usize = 0;

#[derive(Clone, Copy, Debug, Default)]
struct CombiningNode {
    line: usize,
    fan_in: u32,
}

#[derive(Debug)]
pub(crate) struct CombiningTree {
    /// The nodes from this participant's leaf to the root.
    path: [CombiningNode; MAX_DEPTH],
    depth: usize,
    /// The number of nodes on the path that this participant completed in this episode.
    climbed: usize,
}

impl Protocol for CombiningTree {
    fn lines(members: usize) -> usize {
        levels(members).sum()
    }

    fn new(rank: usize, members: usize) -> Self {
        let mut path = [CombiningNode::default(); MAX_DEPTH];
        let (mut below, mut index, mut first, mut depth) = (members, rank, 0, 0);
        for nodes in levels(members) {
            index /= FAN_IN;
            let fan_in = FAN_IN.min(below - index * FAN_IN);
            path[depth] =
                CombiningNode { line: first + index, fan_in: u32::try_from(fan_in).unwrap_or(u32::MAX) };
            (first, below, depth) = (first + nodes, nodes, depth + 1);
        }
        Self { path, depth, climbed: 0 }
    }

    fn arrive(&mut self, words: &GroupWords<'_>, episode: u32) {
        self.climbed = 0;
        while self.climbed < self.depth {
            let node = self.path[self.climbed];
            let counter = words.counter(node.line);
            // SYNC(combining-count) release: publishes the writes of all participants below;
            // SYNC(combining-count) acquire: the last to arrive sees the writes of all others
            if counter.fetch_add(1, Ordering::AcqRel) + 1 < node.fan_in {
                return;
            }
            // No participant counts here again before this node's release below.
            counter.store(0, Ordering::Relaxed);
            self.climbed += 1;
        }
        self.release_climbed(words, episode);
    }

    fn complete(&mut self, mut wait: EpisodeWait<'_, impl WaitPolicy, impl Watch>) -> Option<Leadership> {
        let (words, episode) = (wait.words, wait.episode);
        if self.climbed == self.depth {
            return Some(Leadership::Leader);
        }
        let stopped_at = self.path[self.climbed];
        wait.until(words.flag(stopped_at.line, RELEASE))?;
        self.release_climbed(words, episode);
        Some(Leadership::Follower)
    }
}

impl CombiningTree {
    fn release_climbed(&self, words: &GroupWords<'_>, episode: u32) {
        for node in self.path[..self.climbed].iter().rev() {
            words.flag(node.line, RELEASE).signal(episode, words.wakeups);
        }
    }
}

/// Returns the number of nodes of each level, from the leaves to the root.
fn levels(members: usize) -> impl Iterator<Item = usize> {
    let above = |nodes: &usize| (*nodes > 1).then(|| nodes.div_ceil(FAN_IN));
    std::iter::successors(Some(members.div_ceil(FAN_IN)), above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fan_ins_of_every_level_add_up_to_the_level_below() {
        for members in [1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 4096] {
            let all: Vec<_> = (0..members).map(|rank| CombiningTree::new(rank, members)).collect();
            let mut below = members;
            for (level, nodes) in levels(members).enumerate() {
                let mut lines: Vec<_> = all.iter().map(|one| one.path[level]).collect();
                lines.sort_by_key(|node| node.line);
                lines.dedup_by_key(|node| node.line);
                assert_eq!(lines.len(), nodes, "level {level} of {members}");
                assert_eq!(lines.iter().map(|node| node.fan_in as usize).sum::<usize>(), below);
                assert!(lines.iter().all(|node| node.line < CombiningTree::lines(members)));
                below = nodes;
            }
            assert_eq!(below, 1);
        }
    }
}
