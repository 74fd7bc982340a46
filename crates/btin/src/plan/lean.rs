//! For `unisono tree plan --ties exact` and groups with members at every switch: counts the leaves of one
//! breadth-first tree, with as little work as possible.
//!
//! Every switch has a member, so no leaf is removed from such a tree, and its number of links does not depend
//! on the root. So this search stores neither depths nor parents, only the reached switches. A switch that
//! reaches another one for the first time is not a leaf. Each switch not reached yet turns at most one more
//! switch into an inner one. The search gives up a candidate as soon as even then too many leaves would be
//! left. It ends when all switches are reached: the switches not scanned by then are leaves. If the number of
//! switches at each depth is known, it gives up earlier, after a level: if the next level has fewer switches,
//! at least the difference are leaves.

use super::{Scan, graph::Graph};

/// The height and the number of leaves of a tree, or upper limits of them for a candidate's tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TreeSize {
    pub(super) height: u32,
    pub(super) leaves: u32,
}

/// The state of a search, kept so that the next one allocates nothing.
pub(super) struct Lean {
    /// Switches in the order of their discovery; one element more than there are switches.
    order: Vec<u32>,
    seen: Vec<u8>,
    level: Vec<u64>,
    /// The number of switches to reach.
    count: usize,
}

impl Lean {
    pub(super) fn new(graph: &Graph, count: usize) -> Self {
        let switches = graph.len();
        Self {
            order: vec![0; count + 1],
            seen: vec![0; switches],
            level: vec![0; switches.div_ceil(64)],
            count,
        }
    }

    /// Measures the height and leaves of a root's tree, whose height is known to be at least `at_least`.
    /// Returns `None` if they exceed `limit`; the height is compared first. `rest` (may be empty) is, for
    /// each depth, a lower bound of the number of leaves from that depth on.
    pub(super) fn measure(
        &mut self,
        graph: &Graph,
        root: u32,
        scan: Scan,
        at_least: u32,
        rest: &[u32],
        limit: TreeSize,
    ) -> Option<TreeSize> {
        let count = self.count;
        self.seen.fill(0);
        self.seen[root as usize] = 1;
        self.order[0] = root;
        let (mut found, mut inner, mut height) = (1, 0, 0);
        let mut level = 0..1;
        while found < count {
            height += 1;
            if height > limit.height {
                return None;
            }
            if scan == Scan::Level {
                self.sort(level.clone());
            }
            // A lower tree wins with any number of leaves; as long as this tree may be lower, leaves do not
            // matter.
            let max_leaves = if height.max(at_least) == limit.height { limit.leaves as usize } else { count };
            // A scanned switch that reached no other is a leaf.
            let leaves = level.start - inner;
            if leaves + rest.get(height as usize - 1).map_or(0, |&rest| rest as usize) > max_leaves {
                return None;
            }
            for at in level.clone() {
                let before = found;
                for &next in graph.near(self.order[at]) {
                    // There is no branch here, because the processor would mispredict it every other time.
                    let seen = &mut self.seen[next as usize];
                    self.order[found] = next;
                    found += usize::from(*seen == 0);
                    *seen = 1;
                }
                inner += usize::from(found > before);
                if found == count {
                    break;
                }
                if inner + (count - found) + max_leaves < count {
                    return None;
                }
            }
            level = level.end..found;
        }
        let leaves =
            u32::try_from((count - inner).max(1)).expect("fits because switches are counted in 32 bits");
        (height < limit.height || leaves <= limit.leaves).then_some(TreeSize { height, leaves })
    }

    /// Sorts a level by id: small levels by comparison, large ones by a bit set.
    fn sort(&mut self, level: std::ops::Range<usize>) {
        if level.len() * 8 < self.level.len() {
            self.order[level].sort_unstable();
            return;
        }
        for &switch in &self.order[level.clone()] {
            self.level[switch as usize / 64] |= 1 << (switch % 64);
        }
        let mut place = self.order[level].iter_mut();
        for (base, word) in (0..).step_by(64).zip(&mut self.level) {
            while *word != 0 {
                *place.next().expect("as many are marked as there are places") = base + word.trailing_zeros();
                *word &= *word - 1;
            }
        }
    }
}
