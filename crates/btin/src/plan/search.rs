//! One breadth-first search, and what is left of its tree without leaves that have no members.

use super::{Scan, graph::Graph};

/// What trees are chosen by, in this order: the derived order is the paper's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Shape {
    pub(super) height: u32,
    pub(super) edges: u32,
    pub(super) leaves: u32,
}

/// The state of a search, kept so that the next one allocates nothing.
pub(super) struct Search {
    /// In the order in which they were reached.
    order: Vec<u32>,
    depth: Vec<u32>,
    parent: Vec<u32>,
    kept: Vec<Kept>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    No,
    /// Has a member but no child that is kept.
    Leaf,
    Inner,
}

const UNREACHED: u32 = u32::MAX;

impl Search {
    pub(super) fn new(graph: &Graph) -> Self {
        let count = graph.len();
        Self {
            order: Vec::with_capacity(count),
            depth: vec![UNREACHED; count],
            parent: vec![UNREACHED; count],
            kept: vec![Kept::No; count],
        }
    }

    /// Grows the tree of a root.
    pub(super) fn run(&mut self, graph: &Graph, root: u32, scan: Scan) {
        self.order.clear();
        self.depth.fill(UNREACHED);
        self.depth[root as usize] = 0;
        self.parent[root as usize] = root;
        self.order.push(root);
        let mut level = 0..1;
        while !level.is_empty() {
            if scan == Scan::Level {
                self.order[level.clone()].sort_unstable();
            }
            for at in level.clone() {
                let switch = self.order[at];
                for &next in graph.near(switch) {
                    if self.depth[next as usize] == UNREACHED {
                        self.depth[next as usize] = self.depth[switch as usize] + 1;
                        self.parent[next as usize] = switch;
                        self.order.push(next);
                    }
                }
            }
            level = level.end..self.order.len();
        }
    }

    /// Measures the tree after removing leaves without members.
    pub(super) fn shape(&mut self, is_member: &[bool]) -> Shape {
        let mut shape = Shape { height: 0, edges: 0, leaves: 0 };
        for &switch in &self.order {
            self.kept[switch as usize] = if is_member[switch as usize] { Kept::Leaf } else { Kept::No };
        }
        for &switch in self.order[1..].iter().rev() {
            let kept = self.kept[switch as usize];
            if kept == Kept::No {
                continue;
            }
            self.kept[self.parent[switch as usize] as usize] = Kept::Inner;
            shape.height = shape.height.max(self.depth[switch as usize]);
            shape.edges += 1;
            shape.leaves += u32::from(kept == Kept::Leaf);
        }
        shape.leaves = shape.leaves.max(1); // a root by itself
        shape
    }

    pub(super) fn reached(&self) -> &[u32] {
        &self.order
    }

    pub(super) fn has_reached(&self, switch: u32) -> bool {
        self.depth[switch as usize] != UNREACHED
    }

    pub(super) fn root(&self) -> u32 {
        self.order[0]
    }

    /// The links of the tree between switches that are kept, each as parent and child.
    pub(super) fn kept_links(&mut self, is_member: &[bool]) -> impl Iterator<Item = (u32, u32)> {
        self.shape(is_member);
        let kept = self.order[1..].iter().filter(|&&switch| self.kept[switch as usize] != Kept::No);
        kept.map(|&switch| (self.parent[switch as usize], switch))
    }
}
