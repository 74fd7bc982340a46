//! For all of `unisono tree plan`: one breadth-first search, and its tree after the removal of leaves without
//! members.

use super::{MemberSwitches, Scan, graph::Graph};
use std::ops::Range;

/// The measures of a tree; the derived order is the paper's order of choice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct TreeMeasure {
    pub(super) height: u32,
    pub(super) edges: u32,
    pub(super) leaves: u32,
}

/// The state of a search, kept so that the next one allocates nothing.
pub(super) struct Search {
    /// Switches in the order of their discovery.
    order: Vec<u32>,
    depth: Vec<u32>,
    parent: Vec<u32>,
    kept: Vec<KeptSwitch>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptSwitch {
    No,
    /// Has a member, but no kept child.
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
            kept: vec![KeptSwitch::No; count],
        }
    }

    pub(super) fn run(&mut self, graph: &Graph, root: u32, scan: Scan) {
        self.begin(root);
        let mut level = 0..1;
        while !level.is_empty() {
            level = self.grow(graph, level, scan);
        }
    }

    /// Grows the tree of a root level by level until it has all members, because switches further away would
    /// be removed anyway. Returns false if the members take more than `max_height` levels.
    pub(super) fn run_to(
        &mut self,
        graph: &Graph,
        root: u32,
        scan: Scan,
        members: &MemberSwitches,
        max_height: u32,
    ) -> bool {
        self.begin(root);
        let mut missing = members.switches.len() - usize::from(members.is_member[root as usize]);
        let mut level = 0..1;
        for _ in 0..max_height {
            if missing == 0 {
                break;
            }
            level = self.grow(graph, level, scan);
            let found =
                self.order[level.clone()].iter().filter(|&&switch| members.is_member[switch as usize]);
            missing -= found.count();
        }
        missing == 0
    }

    fn begin(&mut self, root: u32) {
        self.order.clear();
        self.depth.fill(UNREACHED);
        self.depth[root as usize] = 0;
        self.parent[root as usize] = root;
        self.order.push(root);
    }

    fn grow(&mut self, graph: &Graph, level: Range<usize>, scan: Scan) -> Range<usize> {
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
        level.end..self.order.len()
    }

    /// Measures the tree after the removal of leaves without members.
    pub(super) fn shape(&mut self, is_member: &[bool]) -> TreeMeasure {
        let mut shape = TreeMeasure { height: 0, edges: 0, leaves: 0 };
        for &switch in &self.order {
            self.kept[switch as usize] =
                if is_member[switch as usize] { KeptSwitch::Leaf } else { KeptSwitch::No };
        }
        for &switch in self.order[1..].iter().rev() {
            let kept = self.kept[switch as usize];
            if kept == KeptSwitch::No {
                continue;
            }
            self.kept[self.parent[switch as usize] as usize] = KeptSwitch::Inner;
            shape.height = shape.height.max(self.depth[switch as usize]);
            shape.edges += 1;
            shape.leaves += u32::from(kept == KeptSwitch::Leaf);
        }
        shape.leaves = shape.leaves.max(1); // a root alone is a leaf
        shape
    }

    pub(super) fn reached(&self) -> &[u32] {
        &self.order
    }

    /// Returns a member switch that is furthest from the root.
    pub(super) fn last_reached(&self, is_member: &[bool]) -> u32 {
        let member = self.order.iter().rev().find(|&&switch| is_member[switch as usize]);
        *member.unwrap_or(&self.order[0])
    }

    pub(super) fn height(&self, is_member: &[bool]) -> u32 {
        self.depth[self.last_reached(is_member) as usize]
    }

    pub(super) fn depth(&self, switch: u32) -> u32 {
        self.depth[switch as usize]
    }

    pub(super) fn has_reached(&self, switch: u32) -> bool {
        self.depth[switch as usize] != UNREACHED
    }

    pub(super) fn root(&self) -> u32 {
        self.order[0]
    }

    /// Returns the links of the tree after the removal of leaves without members, each as parent and child.
    pub(super) fn kept_links(&mut self, is_member: &[bool]) -> impl Iterator<Item = (u32, u32)> {
        self.shape(is_member);
        let kept = self.order[1..].iter().filter(|&&switch| self.kept[switch as usize] != KeptSwitch::No);
        kept.map(|&switch| (self.parent[switch as usize], switch))
    }
}
