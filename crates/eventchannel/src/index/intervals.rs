//! An interval tree: finds the ranges that contain a number.
//!
//! Idea: an interval tree as wide as a B+-tree. The ranges are sorted by their lower ends; each branch stores
//! its first range and its highest upper end. A search for a key stops in a node at the first branch that
//! begins above the key, and skips branches that end below it. So it enters only branches with a result, and
//! at most one more on each level.
//!
//! Cost: a search without results visits about `log(ranges) / log(16)` nodes; each result adds at most one
//! path from the root, and neighbouring results share a leaf. Each node is a contiguous array of numbers that
//! is read from its start, so a search has about one cache miss per visited node, and not per comparison.
//! Adding and removing walk one path from the root. Nothing is rebuilt when subscriptions change. A node that
//! loses ranges is not merged with another one; it is removed when it is empty.
//!
//! When not to use it: for equality, which a hash table finds in one step.
//!
//! Reference: Cormen, Leiserson, Rivest, Stein, "Introduction to Algorithms", interval trees (a search tree
//! by the lower end, with the maximum of the upper ends); here with the nodes of a B+-tree.

/// The maximum number of ranges in a leaf, and of branches in an inner node. A node has the size of a few
/// cache lines, as in other B-trees. Chosen, not measured. Tests use narrow nodes, so that a few ranges make
/// many levels.
const WIDTH: usize = if cfg!(test) { 4 } else { 32 };

/// Identifies a clause: a node of the graph of clauses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ClauseId(pub(crate) u32);

/// The lowest key and the highest key (both inclusive), and the clause.
type KeyRange = (u64, u64, ClauseId);

#[derive(Debug, Default)]
pub(crate) struct IntervalIndex {
    root: RangeNode,
    ranges: usize,
}

#[derive(Debug)]
enum RangeNode {
    /// Ranges in ascending order, so that a search can stop at the first range that begins above the key.
    Leaf(Vec<KeyRange>),
    /// For each branch its first range, its highest upper end, and its node.
    Branches { firsts: Vec<KeyRange>, highest: Vec<u64>, nodes: Vec<RangeNode> },
}

impl Default for RangeNode {
    fn default() -> Self {
        Self::Leaf(Vec::new())
    }
}

impl IntervalIndex {
    pub(crate) fn len(&self) -> usize {
        self.ranges
    }

    /// Adds the keys from `low` to `high`, both inclusive; the caller guarantees `low <= high`.
    pub(crate) fn insert(&mut self, (low, high): (u64, u64), clause: ClauseId) {
        if let Some(right) = self.root.insert((low, high, clause)) {
            let left = std::mem::take(&mut self.root);
            self.root = RangeNode::over(vec![left, right]);
        }
        self.ranges += 1;
    }

    pub(crate) fn remove(&mut self, (low, high): (u64, u64), clause: ClauseId) {
        self.ranges -= usize::from(self.root.remove((low, high, clause)));
        while let RangeNode::Branches { nodes, .. } = &mut self.root
            && nodes.len() < 2
        {
            self.root = nodes.pop().unwrap_or_default();
        }
    }

    /// Passes the clause of each range that contains the key to `found`.
    pub(crate) fn containing(&self, key: u64, mut found: impl FnMut(ClauseId)) {
        if self.ranges > 0 {
            self.root.containing(key, &mut found);
        }
    }
}

impl RangeNode {
    /// Makes an inner node over non-empty nodes in ascending order.
    fn over(nodes: Vec<Self>) -> Self {
        let firsts = nodes.iter().filter_map(Self::first).collect();
        Self::Branches { firsts, highest: nodes.iter().map(Self::highest).collect(), nodes }
    }

    fn first(&self) -> Option<KeyRange> {
        match self {
            Self::Leaf(ranges) => ranges.first().copied(),
            Self::Branches { firsts, .. } => firsts.first().copied(),
        }
    }

    fn highest(&self) -> u64 {
        match self {
            Self::Leaf(ranges) => ranges.iter().map(|(_, high, _)| *high).max(),
            Self::Branches { highest, .. } => highest.iter().copied().max(),
        }
        .unwrap_or(0)
    }

    /// Adds a range. If the node became too wide and was split, returns its right half.
    fn insert(&mut self, range: KeyRange) -> Option<Self> {
        match self {
            Self::Leaf(ranges) => {
                ranges.insert(ranges.partition_point(|other| *other < range), range);
                (ranges.len() > WIDTH).then(|| Self::Leaf(ranges.split_off(WIDTH / 2)))
            }
            Self::Branches { firsts, highest, nodes } => {
                let at = firsts.partition_point(|first| *first <= range).saturating_sub(1);
                let right = nodes[at].insert(range);
                firsts[at] = firsts[at].min(range);
                highest[at] = nodes[at].highest();
                if let Some((right, first)) =
                    right.and_then(|right| right.first().map(|first| (right, first)))
                {
                    firsts.insert(at + 1, first);
                    highest.insert(at + 1, right.highest());
                    nodes.insert(at + 1, right);
                }
                (nodes.len() > WIDTH).then(|| Self::Branches {
                    firsts: firsts.split_off(WIDTH / 2),
                    highest: highest.split_off(WIDTH / 2),
                    nodes: nodes.split_off(WIDTH / 2),
                })
            }
        }
    }

    /// Removes one copy of a range. Returns whether the range was present.
    fn remove(&mut self, range: KeyRange) -> bool {
        match self {
            Self::Leaf(ranges) => match ranges.binary_search(&range) {
                Ok(at) => {
                    ranges.remove(at);
                    true
                }
                Err(_) => false,
            },
            Self::Branches { firsts, highest, nodes } => {
                let Some(at) = firsts.partition_point(|first| *first <= range).checked_sub(1) else {
                    return false;
                };
                let found = nodes[at].remove(range);
                match nodes[at].first() {
                    Some(first) => (firsts[at], highest[at]) = (first, nodes[at].highest()),
                    None => {
                        firsts.remove(at);
                        highest.remove(at);
                        nodes.remove(at);
                    }
                }
                found
            }
        }
    }

    fn containing(&self, key: u64, found: &mut impl FnMut(ClauseId)) {
        match self {
            Self::Leaf(ranges) => {
                let begun = ranges.iter().take_while(|(low, ..)| *low <= key);
                begun.filter(|(_, high, _)| *high >= key).for_each(|(.., clause)| found(*clause));
            }
            Self::Branches { firsts, highest, nodes } => {
                let begun = firsts.iter().take_while(|(low, ..)| *low <= key);
                for ((_, highest), node) in begun.zip(highest).zip(nodes) {
                    if *highest >= key {
                        node.containing(key, found);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = u64> {
        prop_oneof![8 => 0..20_u64, 8 => 0..1000_u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
    }

    /// Checks the invariants on which a search relies. Returns the number of levels.
    fn levels(node: &RangeNode) -> usize {
        match node {
            RangeNode::Leaf(ranges) => {
                assert!(ranges.is_sorted() && ranges.len() <= WIDTH);
                1
            }
            RangeNode::Branches { firsts, highest, nodes } => {
                assert!((1..=WIDTH).contains(&nodes.len()) && firsts.is_sorted());
                for ((first, highest), node) in firsts.iter().zip(highest).zip(nodes) {
                    assert_eq!((Some(*first), *highest), (node.first(), node.highest()));
                }
                let below: Vec<usize> = nodes.iter().map(levels).collect();
                assert!(below.iter().all(|levels| *levels == below[0]), "{below:?}");
                below[0] + 1
            }
        }
    }

    proptest! {
        #[test]
        fn a_key_is_found_in_the_ranges_that_hold_it_and_no_others(
            ranges in prop::collection::vec((key(), key(), 0..3_u8), 0..200),
            keys in prop::collection::vec(key(), 1..20),
        ) {
            // each range is inserted one to three times for the same clause; then one copy of each is removed
            let ends = |(one, other, times): (u64, u64, u8)| (one.min(other), one.max(other), times);
            let ranges: Vec<_> = ranges.into_iter().map(ends).collect();
            let mut index = IntervalIndex::default();
            let named = || (0_u32..).map(|at| ClauseId(at / 2)).zip(&ranges);
            for (clause, (low, high, times)) in named() {
                (0..=*times).for_each(|_| index.insert((*low, *high), clause));
            }
            levels(&index.root);
            for (clause, (low, high, _)) in named() {
                index.remove((*low, *high), clause);
            }
            index.remove((7, 5), ClauseId(0)); // never inserted
            prop_assert!(levels(&index.root) <= 8, "{}", levels(&index.root));
            let left = named().flat_map(|(clause, range)| (0..range.2).map(move |_| (clause, range)));
            for key in keys {
                let mut found = Vec::new();
                index.containing(key, |clause| found.push(clause));
                found.sort_unstable();
                let holding = left.clone().filter(|(_, (low, high, _))| (*low..=*high).contains(&key));
                let mut expected: Vec<ClauseId> = holding.map(|(clause, _)| clause).collect();
                expected.sort_unstable();
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(index.len(), left.clone().count());
            for (clause, (low, high, _)) in left {
                index.remove((*low, *high), clause);
            }
            prop_assert!(index.len() == 0 && index.root.first().is_none() && levels(&index.root) == 1);
        }
    }
}
