//! Hanging a cut-off part on again: a search outwards from what stands, nearest to the root first.

use super::{NONE, Repair, Standing};
use crate::{Neighbour, SwitchId};
use std::collections::BTreeSet;

/// Kept between repairs, so that a small one does not pay for a large network.
pub(super) struct Scratch {
    /// By switch: whether it may get a place in this repair, or has one.
    state: Vec<State>,
    /// By switch: what was found for it.
    found: Vec<Place>,
}

/// A place for a switch in the tree: the order is by what places are chosen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    depth: u32,
    parent: u32,
    /// The parent's port.
    port: u16,
    link: u32,
}

impl Place {
    const NOWHERE: Self = Self { depth: NONE, parent: NONE, port: u16::MAX, link: NONE };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Outside,
    Wanting,
    Placed,
}

impl Scratch {
    pub(super) fn new(count: usize) -> Self {
        Self { state: vec![State::Outside; count], found: vec![Place::NOWHERE; count] }
    }
}

impl Standing<'_> {
    /// Cuts off the subtrees of these switches, and hangs on again what can be.
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
        self.search(&area);
        let mut lost = BTreeSet::new();
        for &(switch, ..) in &before {
            if self.is_member[switch as usize] && !self.take_in(switch, &mut touched) {
                lost.insert(switch);
            }
        }
        for switch in widowed {
            self.prune(switch, &mut touched);
        }
        for switch in area {
            self.scratch.state[switch as usize] = State::Outside;
        }
        let was = |&&(switch, parent, up): &&(u32, u32, u32)| {
            self.parent[switch as usize] != NONE
                && (self.parent[switch as usize], self.up[switch as usize]) != (parent, up)
        };
        let moved = before.iter().filter(was).count();
        touched.extend(before.iter().map(|(switch, ..)| *switch));
        touched.sort_unstable();
        touched.dedup();
        let register = |switch: u32| (self.parent[switch as usize] != NONE).then(|| self.register(switch));
        let changed = touched.iter().map(|&switch| (SwitchId(switch), register(switch))).collect();
        Repair { changed, cut_off: self.members_of(&lost), moved, height: self.height() }
    }

    /// Takes a subtree out of the tree, and notes who hung on whom.
    fn cut(&mut self, top: u32, before: &mut Vec<(u32, u32, u32)>) {
        let mut open = vec![top];
        while let Some(switch) = open.pop() {
            before.push((switch, self.parent[switch as usize], self.up[switch as usize]));
            self.leave(switch);
            open.append(&mut self.children[switch as usize]);
        }
    }

    /// The living switches outside the tree that what was cut off reaches without crossing the tree.
    fn area(&mut self, before: &[(u32, u32, u32)]) -> Vec<u32> {
        let mut area: Vec<u32> = Vec::new();
        let cut = before.iter().map(|(switch, ..)| *switch);
        for switch in cut.filter(|&switch| !self.dead_switches[switch as usize]) {
            self.scratch.state[switch as usize] = State::Wanting;
            area.push(switch);
        }
        let mut next = 0;
        while next < area.len() {
            for n in self.network.neighbours(SwitchId(area[next])) {
                let near = n.switch.0 as usize;
                if self.lives(n) && self.parent[near] == NONE && self.scratch.state[near] == State::Outside {
                    self.scratch.state[near] = State::Wanting;
                    area.push(n.switch.0);
                }
            }
            next += 1;
        }
        area
    }

    fn lives(&self, near: &Neighbour) -> bool {
        !self.dead_links[near.link as usize] && !self.dead_switches[near.switch.0 as usize]
    }

    /// Finds for each switch of the area the place nearest to the root; of equals, below the lowest id and
    /// there at the lowest port.
    fn search(&mut self, area: &[u32]) {
        // By depth, who may have a place there; its place is final when its depth's turn comes.
        let mut open: Vec<Vec<u32>> = Vec::new();
        for &switch in area {
            let mut found = Place::NOWHERE;
            for n in self.network.neighbours(SwitchId(switch)).iter().filter(|n| self.lives(n)) {
                let near = n.switch.0;
                if self.parent[near as usize] != NONE {
                    let depth = self.depth[near as usize] + 1;
                    found = found.min(Place { depth, parent: near, port: n.far.0, link: n.link });
                }
            }
            self.scratch.found[switch as usize] = found;
            if found != Place::NOWHERE {
                enter(&mut open, found.depth, switch);
            }
        }
        let mut depth = 0;
        while (depth as usize) < open.len() {
            for switch in std::mem::take(&mut open[depth as usize]) {
                let wants = self.scratch.state[switch as usize] == State::Wanting;
                if !wants || self.scratch.found[switch as usize].depth != depth {
                    continue;
                }
                self.scratch.state[switch as usize] = State::Placed;
                for n in self.network.neighbours(SwitchId(switch)) {
                    let near = n.switch.0;
                    if self.scratch.state[near as usize] != State::Wanting || !self.lives(n) {
                        continue;
                    }
                    let place = Place { depth: depth + 1, parent: switch, port: n.port.0, link: n.link };
                    let found = &mut self.scratch.found[near as usize];
                    if place.depth < found.depth {
                        enter(&mut open, place.depth, near);
                    }
                    *found = place.min(*found);
                }
            }
            depth += 1;
        }
    }

    /// Brings a switch into the tree with whatever is on its way there; false if there is no way.
    fn take_in(&mut self, mut switch: u32, touched: &mut Vec<u32>) -> bool {
        if self.scratch.state[switch as usize] != State::Placed {
            return false;
        }
        while self.parent[switch as usize] == NONE {
            let Place { depth, parent, link, .. } = self.scratch.found[switch as usize];
            self.enter(switch, parent, link, depth);
            self.children[parent as usize].push(switch);
            touched.extend([switch, parent]);
            switch = parent;
        }
        true
    }

    /// Removes a switch that has lost its purpose, and its parent if that loses its own by it.
    fn prune(&mut self, mut switch: u32, touched: &mut Vec<u32>) {
        touched.push(switch);
        while self.parent[switch as usize] != NONE
            && switch != self.root
            && !self.is_member[switch as usize]
            && self.children[switch as usize].is_empty()
        {
            let parent = self.parent[switch as usize];
            self.leave(switch);
            self.children[parent as usize].retain(|&child| child != switch);
            touched.push(parent);
            switch = parent;
        }
    }
}

fn enter(open: &mut Vec<Vec<u32>>, depth: u32, switch: u32) {
    if open.len() <= depth as usize {
        open.resize_with(depth as usize + 1, Vec::new);
    }
    open[depth as usize].push(switch);
}
