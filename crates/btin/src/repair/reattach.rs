//! Attaches the parts that were cut off: a search from the remaining tree, beginning with the switches
//! nearest to the root.

use super::{NONE, Repair, StandingTree};
use crate::{Neighbour, SwitchId};
use std::collections::BTreeSet;

/// The working memory of repairs. It is kept between repairs, so that the cost of a small repair does not
/// depend on the size of the network.
pub(super) struct RepairScratch {
    /// By switch: whether it may get a place in this repair, or has got one.
    state: Vec<SwitchMark>,
    /// By switch: the best attachment found so far.
    found: Vec<Attachment>,
    /// The switches that can be attached to the remaining tree, nearest to the root first; and in `below` the
    /// switches that can be attached to those.
    beside: Vec<(u32, u32)>,
    below: Vec<(u32, u32)>,
    /// Switches that were outside the tree and are in it now.
    new: Vec<u32>,
}

/// A switch that was cut off, its parent and the link to it.
type CutSwitch = (u32, u32, u32);

/// A place for a switch in the tree; the derived order is the order of choice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Attachment {
    depth: u32,
    parent: u32,
    /// The port of the parent.
    port: u16,
    link: u32,
}

impl Attachment {
    const NOWHERE: Self = Self { depth: NONE, parent: NONE, port: u16::MAX, link: NONE };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SwitchMark {
    Outside,
    /// The switch was in the tree and is cut off.
    Cut,
    CutPlaced,
    /// The switch was outside the tree, and may be on the way from a cut-off switch to the tree.
    Reached,
    ReachedPlaced,
}

impl SwitchMark {
    fn wants(self) -> bool {
        matches!(self, Self::Cut | Self::Reached)
    }

    fn placed(self) -> Self {
        match self {
            Self::Cut => Self::CutPlaced,
            Self::Reached => Self::ReachedPlaced,
            other => other,
        }
    }
}

impl RepairScratch {
    pub(super) fn new(count: usize) -> Self {
        Self {
            state: vec![SwitchMark::Outside; count],
            found: vec![Attachment::NOWHERE; count],
            beside: Vec::new(),
            below: Vec::new(),
            new: Vec::new(),
        }
    }
}

impl StandingTree<'_> {
    /// Cuts off the subtrees of these switches, and attaches all switches that still can be reached.
    pub(super) fn hang_again(&mut self, tops: &[u32]) -> Repair {
        let mut touched = Vec::new();
        let mut before = Vec::new();
        let mut widowed = Vec::new();
        for &top in tops {
            let parent = self.parent[top as usize];
            if parent != NONE {
                self.children[parent as usize].retain(|&child| child != top);
                widowed.push(parent);
                self.cut(top, &mut before);
            }
        }
        let area = self.area(&before);
        self.search();
        let mut lost = BTreeSet::new();
        for &(switch, ..) in &before {
            if self.is_member[switch as usize] && !self.take_in(switch) {
                lost.insert(switch);
            }
        }
        for switch in widowed {
            self.prune(switch, &mut touched);
        }
        for switch in area {
            self.scratch.state[switch as usize] = SwitchMark::Outside;
        }
        let moved = self.compare(&before, &mut touched);
        touched.sort_unstable();
        touched.dedup();
        let register = |switch: u32| (self.parent[switch as usize] != NONE).then(|| self.register(switch));
        let changed = touched.iter().map(|&switch| (SwitchId(switch), register(switch))).collect();
        Repair { changed, cut_off: self.members_of(&lost), moved, height: self.height() }
    }

    /// Takes a subtree out of the tree, and records each switch with its parent.
    fn cut(&mut self, top: u32, before: &mut Vec<CutSwitch>) {
        let mut open = vec![top];
        while let Some(switch) = open.pop() {
            before.push((switch, self.parent[switch as usize], self.up[switch as usize]));
            self.remove(switch);
            open.append(&mut self.children[switch as usize]);
        }
    }

    /// Collects the switches whose register has changed, because they have another parent or another link to
    /// it, or because they gained or lost a child. Returns how many have another parent or another link to
    /// it.
    fn compare(&mut self, before: &[CutSwitch], touched: &mut Vec<u32>) -> usize {
        let mut moved = 0;
        for &(switch, parent, up) in before {
            let now = self.parent[switch as usize];
            if (now, self.up[switch as usize]) == (parent, up) {
                continue;
            }
            touched.extend([switch, parent]);
            if now != NONE {
                touched.push(now);
                moved += 1;
            }
        }
        for switch in self.scratch.new.drain(..) {
            touched.extend([switch, self.parent[switch as usize]]);
        }
        moved
    }

    /// Returns the area of a repair: the working switches that were cut off, and the switches outside the
    /// tree that these reach without crossing the tree. Finds for each of these switches the best direct link
    /// to the remaining tree: nearest to the root, then to the lowest id, then to the lowest port.
    fn area(&mut self, before: &[CutSwitch]) -> Vec<u32> {
        let mut area: Vec<u32> = Vec::new();
        let cut = before.iter().map(|(switch, ..)| *switch);
        for switch in cut.filter(|&switch| !self.dead_switches[switch as usize]) {
            self.scratch.state[switch as usize] = SwitchMark::Cut;
            area.push(switch);
        }
        let mut next = 0;
        while let Some(&switch) = area.get(next) {
            next += 1;
            let mut found = Attachment::NOWHERE;
            for n in self.network.neighbours(SwitchId(switch)) {
                let near = n.switch.0 as usize;
                if !self.lives(n) {
                    continue;
                }
                if self.parent[near] != NONE {
                    let depth = self.depth[near] + 1;
                    found = found.min(Attachment { depth, parent: n.switch.0, port: n.far.0, link: n.link });
                } else if self.scratch.state[near] == SwitchMark::Outside {
                    self.scratch.state[near] = SwitchMark::Reached;
                    area.push(n.switch.0);
                }
            }
            self.scratch.found[switch as usize] = found;
            if found != Attachment::NOWHERE {
                self.scratch.beside.push((found.depth, switch));
            }
        }
        area
    }

    fn lives(&self, near: &Neighbour) -> bool {
        !self.dead_links[near.link as usize] && !self.dead_switches[near.switch.0 as usize]
    }

    /// Finds for each switch of the area the place nearest to the root; among equals, the smallest
    /// `Attachment`.
    fn search(&mut self) {
        let mut beside = std::mem::take(&mut self.scratch.beside);
        let mut below = std::mem::take(&mut self.scratch.below);
        beside.sort_unstable();
        let (mut next_beside, mut next_below) = (0, 0);
        // Both lists are processed in order of depth, so that a place is final when its turn comes.
        loop {
            let (depth, switch) = match (beside.get(next_beside), below.get(next_below)) {
                (Some(&one), other) if other.is_none_or(|other| one.0 <= other.0) => {
                    next_beside += 1;
                    one
                }
                (_, Some(&other)) => {
                    next_below += 1;
                    other
                }
                _ => break,
            };
            let state = &mut self.scratch.state[switch as usize];
            if !state.wants() || self.scratch.found[switch as usize].depth != depth {
                continue;
            }
            *state = state.placed();
            for n in self.network.neighbours(SwitchId(switch)) {
                let near = n.switch.0;
                if !self.scratch.state[near as usize].wants() || !self.lives(n) {
                    continue;
                }
                let place = Attachment { depth: depth + 1, parent: switch, port: n.port.0, link: n.link };
                let found = &mut self.scratch.found[near as usize];
                if place.depth < found.depth {
                    below.push((place.depth, near));
                }
                *found = place.min(*found);
            }
        }
        beside.clear();
        below.clear();
        (self.scratch.beside, self.scratch.below) = (beside, below);
    }

    /// Adds a switch to the tree, with the switches on its way to the tree. Returns false if there is no way.
    fn take_in(&mut self, mut switch: u32) -> bool {
        if !matches!(self.scratch.state[switch as usize], SwitchMark::CutPlaced | SwitchMark::ReachedPlaced) {
            return false;
        }
        while self.parent[switch as usize] == NONE {
            let Attachment { depth, parent, link, .. } = self.scratch.found[switch as usize];
            self.enter(switch, parent, link, depth);
            self.children[parent as usize].push(switch);
            if self.scratch.state[switch as usize] == SwitchMark::ReachedPlaced {
                self.scratch.new.push(switch);
            }
            switch = parent;
        }
        true
    }

    /// Removes a switch if it has neither members nor children, and then does the same with its parent.
    fn prune(&mut self, mut switch: u32, touched: &mut Vec<u32>) {
        touched.push(switch);
        while self.parent[switch as usize] != NONE
            && switch != self.root
            && !self.is_member[switch as usize]
            && self.children[switch as usize].is_empty()
        {
            let parent = self.parent[switch as usize];
            self.remove(switch);
            self.children[parent as usize].retain(|&child| child != switch);
            touched.push(parent);
            switch = parent;
        }
    }
}
