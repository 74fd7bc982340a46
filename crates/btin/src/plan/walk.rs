//! For `unisono tree plan --ties exact` with many tied roots: hundreds of breadth-first searches in one walk
//! over the network, one bit for each search (multi-source search, Then et al., "The more the merrier",
//! 2014).
//!
//! Each switch has a row of bits for the searches that have reached it, and a row for the searches that
//! reached it in the current level. A level visits a switch once for all searches: it reads the bits of the
//! switch's neighbors, in order of id. So the first neighbor that has the bit of a search is the neighbor of
//! lowest id that is nearer to the start of that search. [`WalkRecorder`] defines which of these facts a walk
//! records.
//!
//! Cost: each switch visits its neighbors once in each level in which some search reaches it. In a random
//! network, each switch does so in all of the network's dozen levels, wherever the searches begin. In a
//! torus, the number of these levels is about the diameter of the area in which the searches begin, so
//! [`blocks`] groups switches that are close to each other.

use super::bits::{Bits, LANES};
use super::graph::Graph;
use unisono_intrinsics::{Wide, vectorized};

/// The data that a walk records, besides the searches that have reached each switch.
pub(super) trait WalkRecorder {
    /// Clears all data for a walk in which the search of lane i begins at `from[i]`.
    fn begin(&mut self, graph: &Graph, from: &[u32]);

    /// The data gathered about one switch in one level.
    type Gathered;

    fn gather(&self) -> Self::Gathered;

    /// Records that the searches in `claim` have reached a switch. Its neighbor `near` is the neighbor of
    /// lowest id that is nearer to their starts.
    fn take(&mut self, gathered: &mut Self::Gathered, near: usize, claim: Bits);

    /// Stores the data gathered about a switch, if any search has reached it.
    fn put(&mut self, switch: usize, gathered: Self::Gathered);
}

/// The recorder of walks that find only heights: it records nothing.
pub(super) struct NoRecorder;

impl WalkRecorder for NoRecorder {
    type Gathered = ();

    fn begin(&mut self, _: &Graph, _: &[u32]) {}

    fn gather(&self) {}

    #[inline(always)]
    fn take(&mut self, (): &mut (), _: usize, _: Bits) {}

    #[inline(always)]
    fn put(&mut self, _: usize, (): ()) {}
}

/// Up to [`LANES`] breadth-first searches at once.
pub(super) struct Walk<K> {
    pub(super) seen: Vec<Bits>,
    now: Vec<Bits>,
    next: Vec<Bits>,
    mark: Vec<Mark>,
    front: Vec<u32>,
    reach: Vec<u32>,
    pub(super) keep: K,
    /// Edges visited in all runs of this walk.
    pub(super) edges_visited: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Open,
    /// The switch is adjacent to the front, and the next level visits it.
    Listed,
    Full,
}

/// If the front has at least 1/`DENSE` of the network's switches, the next level visits all switches that are
/// not full, instead of the neighbors of the front.
const DENSE: usize = 4;

impl<K: WalkRecorder> Walk<K> {
    pub(super) fn new(graph: &Graph, keep: K) -> Self {
        let rows = || vec![Bits::NONE; graph.len()];
        let (seen, now, next) = (rows(), rows(), rows());
        let mark = vec![Mark::Open; graph.len()];
        Self { seen, now, next, mark, front: Vec::new(), reach: Vec::new(), keep, edges_visited: 0 }
    }

    /// Searches until all switches are reached, or for `max_height` levels. Returns for each search the last
    /// level that reached a member.
    pub(super) fn run(
        &mut self,
        graph: &Graph,
        from: &[u32],
        is_member: &[bool],
        max_height: u32,
    ) -> Vec<u32> {
        let all = Bits::first(from.len());
        self.begin(graph, from);
        let mut heights = vec![0; from.len()];
        let mut level = 0;
        while !self.front.is_empty() && level < max_height {
            level += 1;
            let moved = vectorized(Grow { walk: self, graph, all, is_member });
            for (lane, height) in heights.iter_mut().enumerate() {
                if moved.has(lane) {
                    *height = level;
                }
            }
        }
        heights
    }

    fn begin(&mut self, graph: &Graph, from: &[u32]) {
        debug_assert!(from.len() <= LANES);
        for row in [&mut self.seen, &mut self.now, &mut self.next] {
            row.fill(Bits::NONE);
        }
        self.mark.fill(Mark::Open);
        self.front.clear();
        self.keep.begin(graph, from);
        for (lane, &start) in from.iter().enumerate() {
            self.seen[start as usize].put(lane);
            self.now[start as usize].put(lane);
            self.front.push(start);
        }
    }

    /// Lists the switches that the next level visits.
    fn list(&mut self, graph: &Graph) {
        self.reach.clear();
        if self.front.len() * DENSE >= graph.len() {
            let switches = 0..u32::try_from(graph.len()).unwrap_or(u32::MAX);
            self.reach.extend(switches.filter(|&switch| self.mark[switch as usize] == Mark::Open));
        } else {
            for &switch in &self.front {
                for &near in graph.near(switch) {
                    if self.mark[near as usize] == Mark::Open {
                        self.mark[near as usize] = Mark::Listed;
                        self.reach.push(near);
                    }
                }
            }
        }
    }

    /// Runs one more level of all searches. Returns the searches that reached a member in it.
    #[inline(always)]
    fn grow(&mut self, graph: &Graph, all: Bits, is_member: &[bool]) -> Bits {
        self.list(graph);
        let mut moved = Bits::NONE;
        let mut kept = 0;
        for at in 0..self.reach.len() {
            let switch = self.reach[at] as usize;
            let before = all.and_not(self.seen[switch]);
            let mut open = before;
            let near = graph.near(self.reach[at]);
            self.edges_visited += near.len();
            let mut gathered = self.keep.gather();
            for &near in near {
                let claim = self.now[near as usize].and(open);
                open = open.xor(claim);
                self.keep.take(&mut gathered, near as usize, claim);
            }
            self.mark[switch] = if open.is_none() { Mark::Full } else { Mark::Open };
            let new = before.xor(open);
            if new.is_none() {
                continue;
            }
            self.keep.put(switch, gathered);
            self.seen[switch] = self.seen[switch].or(new);
            if is_member[switch] {
                moved = moved.or(new);
            }
            self.next[switch] = new;
            self.reach[kept] = self.reach[at];
            kept += 1;
        }
        self.reach.truncate(kept);
        for &switch in &self.front {
            self.now[switch as usize] = Bits::NONE;
        }
        std::mem::swap(&mut self.now, &mut self.next);
        std::mem::swap(&mut self.front, &mut self.reach);
        moved
    }
}

struct Grow<'a, K> {
    walk: &'a mut Walk<K>,
    graph: &'a Graph,
    all: Bits,
    is_member: &'a [bool],
}

impl<K: WalkRecorder> Wide for Grow<'_, K> {
    type Output = Bits;

    #[inline(always)]
    fn run(self) -> Bits {
        self.walk.grow(self.graph, self.all, self.is_member)
    }
}

/// Orders roots so that roots that are close in the network are adjacent. Each block of `size` roots is found
/// by breadth-first searches among the remaining roots.
pub(super) fn blocks(graph: &Graph, roots: &[u32], size: usize) -> Vec<u32> {
    let mut wanted = vec![false; graph.len()];
    roots.iter().for_each(|&root| wanted[root as usize] = true);
    let mut ordered = Vec::with_capacity(roots.len());
    let mut queue = std::collections::VecDeque::new();
    for &first in roots {
        if !wanted[first as usize] {
            continue;
        }
        queue.clear();
        queue.push_back(first);
        wanted[first as usize] = false;
        while let Some(root) = queue.pop_front() {
            ordered.push(root);
            if ordered.len() % size == 0 {
                queue.drain(..).for_each(|root| wanted[root as usize] = true);
                break;
            }
            for &near in graph.near(root) {
                if std::mem::take(&mut wanted[near as usize]) {
                    queue.push_back(near);
                }
            }
        }
    }
    // Roots that were put back after their turn.
    ordered.extend(roots.iter().copied().filter(|&root| wanted[root as usize]));
    ordered
}
