//! For [`symmetry`](super): all shortest ways from one switch of each kind, grouped by their first step.

use super::super::graph::Graph;
use super::numbers::SymmetricDigits;
use std::collections::BTreeMap;

/// A set of neighbors of a switch. Each neighbor has the bit of its place among the neighbors of the origin
/// of the switch's kind.
pub(super) type Slots = u64;

/// All shortest ways from the origin of one kind.
pub(super) struct ShortestPaths {
    pub(super) origin: u32,
    distance: Vec<u32>,
    /// By switch: the neighbors of the origin that are nearer to that switch.
    first: Vec<Slots>,
    /// The distinct values of `first`.
    pub(super) firsts: Vec<Slots>,
}

impl ShortestPaths {
    /// Returns `None` if the origin has more than 64 neighbors, because a word then has too few bits.
    pub(super) fn new(graph: &Graph, origin: u32) -> Option<Self> {
        let mut distance = vec![u32::MAX; graph.len()];
        let mut first: Vec<Slots> = vec![0; graph.len()];
        let mut order = Vec::with_capacity(graph.len());
        distance[origin as usize] = 0;
        for (slot, &near) in graph.near(origin).iter().enumerate() {
            first[near as usize] = 1_u64.checked_shl(u32::try_from(slot).ok()?)?;
        }
        order.push(origin);
        let mut at = 0;
        while let Some(&switch) = order.get(at) {
            at += 1;
            let (here, paths) = (distance[switch as usize], first[switch as usize]);
            for &near in graph.near(switch) {
                if distance[near as usize] == u32::MAX {
                    distance[near as usize] = here + 1;
                    order.push(near);
                }
                if distance[near as usize] == here + 1 {
                    first[near as usize] |= paths;
                }
            }
        }
        let mut firsts = Vec::new();
        let mut last = 0;
        for &switch in &order[1..] {
            let paths = first[switch as usize];
            if paths != last && !firsts.contains(&paths) {
                firsts.push(paths);
            }
            last = paths;
        }
        Some(Self { origin, distance, first, firsts })
    }

    /// Returns, for each depth, a lower bound of the leaves of a breadth-first tree around the origin from
    /// that depth on: the sum of all decreases in the number of switches from one level to the next.
    pub(super) fn leaves_at_least(&self) -> Vec<u32> {
        let mut leaves: Vec<u32> = Vec::new();
        for &depth in self.distance.iter().filter(|&&depth| depth != u32::MAX) {
            leaves.resize(leaves.len().max(depth as usize + 1), 0);
            leaves[depth as usize] += 1;
        }
        let (mut below, mut rest) = (0, 0);
        for level in leaves.iter_mut().rev() {
            rest += level.saturating_sub(below);
            below = std::mem::replace(level, rest);
        }
        leaves
    }

    /// Returns the switches to which exactly these neighbors are nearer than the origin is.
    pub(super) fn towards(&self, first: Slots) -> Vec<u32> {
        (0..).zip(&self.first).filter(|(_, paths)| **paths == first).map(|(switch, _)| switch).collect()
    }
}

/// All shortest ways from the origins of all kinds.
pub(super) struct ShortestPathTables<'a> {
    pub(super) graph: &'a Graph,
    pub(super) numbers: &'a SymmetricDigits,
    pub(super) kinds: &'a [ShortestPaths],
}

impl ShortestPathTables<'_> {
    pub(super) fn kind(&self, switch: u32) -> usize {
        let origin = self.numbers.origin(switch);
        self.kinds.iter().position(|kind| kind.origin == origin).expect("there is one for each origin")
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        self.kinds[self.kind(from)].distance[self.numbers.relative(to, from) as usize]
    }

    /// Returns the switches that have a shortest way to a target through the origin, or `None` if the search
    /// needs more than `steps` steps.
    pub(super) fn over(&self, kind: usize, targets: Vec<u32>, mut steps: usize) -> Option<Vec<u32>> {
        let kind = &self.kinds[kind];
        let far = |switch: u32| kind.distance[switch as usize];
        let mut found = Vec::new();
        let mut level = BTreeMap::from([(kind.origin, targets)]);
        while !level.is_empty() {
            let mut next: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for (&switch, targets) in &level {
                found.push(switch);
                for &near in self.graph.near(switch).iter().filter(|&&near| far(near) == far(switch) + 1) {
                    steps = steps.checked_sub(targets.len())?;
                    let on = |&&to: &&u32| self.distance(near, to) == far(near) + far(to);
                    let mut more = targets.iter().filter(on).peekable();
                    if more.peek().is_some() {
                        next.entry(near).or_default().extend(more);
                    }
                }
            }
            for targets in next.values_mut() {
                targets.sort_unstable();
                targets.dedup();
            }
            level = next;
        }
        Some(found)
    }
}
