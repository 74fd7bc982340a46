//! Which root: exact, without growing a tree from every candidate.
//!
//! Heights come first. A search from any switch w says of every candidate v that its height is at least
//! `height(w) - d(v, w)`, and at least `d(v, w)` if w has a member (eccentricity bounds, Takes and Kosters,
//! "Computing the eccentricity distribution of large graphs", 2013, here with the members as the only
//! targets). So searches are made in turn from the candidate with the lowest bound, likely a centre, and from
//! the member furthest from it, likely at the rim, and candidates whose bound exceeds the best height so far
//! are dropped. In irregular networks a dozen searches leave a handful.
//!
//! In regular ones (tori, fat trees) bounds drop nothing, since all candidates have the same height. When
//! bounds stop paying, what is left is measured one by one, giving up as soon as a candidate cannot win:
//! see [`lean`](super::lean) where every switch has a member, so that leaves alone decide.
//!
//! Two bounds come for nothing. Who has at most k neighbours reaches at most k (k - 1)^(i - 1) switches in i
//! steps, so no height is less than what reaching all members takes; and all neighbours of a root are its
//! children, each with a leaf below it, so a tree has no fewer leaves than its root has neighbours. In a ring
//! that leaves only the first candidate.
//!
//! Cost: O(links) for each search, as many as it takes; at worst one for each candidate.

use super::graph::Graph;
use super::lanes::{Lanes, blocks};
use super::lean::{Lean, Limit};
use super::search::{Search, Shape};
use super::{Members, Scan};

/// What candidates are compared by: the shape, then member switches first, then the lowest id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Choice {
    pub(super) shape: Shape,
    pub(super) without_members: bool,
    pub(super) root: u32,
}

/// So many searches in a row that drop less than one candidate in [`FEW`] end the bounding.
const PATIENCE: u32 = 2;
const FEW: usize = 16;

/// A network so many times narrower than long (a ring, a path) is left by one root at a switch before the next
/// comes, so that searches together save nothing.
const NARROW: usize = 16;

/// From so many candidates on they are measured together.
const WORTH_LANES: usize = 32;

/// Told how many candidates of how many have been measured; the numbers start again where the way of
/// measuring changes.
pub(super) type Watch<'a> = &'a mut dyn FnMut(usize, usize);

/// The best of these candidates, which all reach all members.
pub(super) fn choose(
    graph: &Graph,
    members: &Members,
    candidates: &[u32],
    scan: Scan,
    reached: usize,
    watch: Watch,
) -> Choice {
    let floor = least_height(graph, members.switches.len());
    let mut bounds = Bounds {
        graph,
        members,
        scan,
        search: Search::new(graph),
        alive: candidates.to_vec(),
        at_least: vec![floor; graph.len()],
        away: vec![0; graph.len()],
        best: None,
    };
    bounds.narrow();
    let mut best = bounds.best.expect("the first search is from a candidate");
    bounds.alive.retain(|&root| bounds.at_least[root as usize] <= best.shape.height);
    bounds.alive.sort_unstable();
    let everywhere = members.switches.len() == reached;
    if everywhere {
        bounds.drop_beaten(&best);
    }
    let narrow = bounds.best.map_or(0, |best| best.shape.height) as usize * NARROW > graph.len();
    if bounds.alive.len() >= WORTH_LANES && !narrow {
        bounds.by_lanes(&mut best, everywhere, watch);
    }
    let alive = std::mem::take(&mut bounds.alive);
    let all = alive.len();
    if everywhere {
        let mut lean = Lean::new(graph, reached);
        for (done, root) in alive.into_iter().enumerate() {
            watch(done, all);
            let limit = Limit { height: best.shape.height, leaves: best.shape.leaves };
            let at_least = bounds.at_least[root as usize];
            if let Some(found) = lean.measure(graph, root, scan, at_least, limit) {
                best = best.min(best.with(found, root));
            }
        }
    } else {
        for (done, root) in alive.into_iter().enumerate() {
            watch(done, all);
            if bounds.search.run_to(graph, root, scan, members, best.shape.height) {
                best = best.min(bounds.choice(root));
            }
        }
    }
    best
}

/// What no height can be less than, with so many members to reach.
fn least_height(graph: &Graph, members: usize) -> u32 {
    let most = (0..).take(graph.len()).map(|switch| graph.near(switch).len()).max().unwrap_or(0);
    let (mut level, mut within, mut height) = (1, 1, 0);
    while within < members && level > 0 {
        level = if height == 0 { most } else { level.saturating_mul(most - 1) };
        within = within.saturating_add(level);
        height += 1;
    }
    height
}

impl Choice {
    /// Another root of a group that has members at every switch, where all trees have the same links.
    fn with(self, found: Limit, root: u32) -> Self {
        let shape = Shape { height: found.height, edges: self.shape.edges, leaves: found.leaves };
        Self { shape, without_members: false, root }
    }
}

struct Bounds<'a> {
    graph: &'a Graph,
    members: &'a Members,
    scan: Scan,
    search: Search,
    /// Candidates that are neither measured nor dropped.
    alive: Vec<u32>,
    /// By switch: what its height is at least.
    at_least: Vec<u32>,
    /// By switch: the sum of its distances from where searches began.
    away: Vec<u32>,
    best: Option<Choice>,
}

impl Bounds<'_> {
    /// Drops who can at best be equal to one that comes before it, where every switch has a member.
    fn drop_beaten(&mut self, best: &Choice) {
        let Self { alive, at_least, graph, .. } = self;
        alive.retain(|&root| {
            let leaves = u32::try_from(graph.near(root).len().max(1)).unwrap_or(u32::MAX);
            best.with(Limit { height: at_least[root as usize], leaves }, root) < *best
        });
    }

    fn choice(&mut self, root: u32) -> Choice {
        let without_members = !self.members.is_member[root as usize];
        Choice { shape: self.search.shape(&self.members.is_member), without_members, root }
    }

    fn narrow(&mut self) {
        let mut in_vain = 0;
        while in_vain < PATIENCE {
            let key = |&&root: &&u32| (self.at_least[root as usize], self.away[root as usize], root);
            let Some(&centre) = self.alive.iter().min_by_key(key) else { return };
            let before = self.alive.len();
            self.search_from(centre);
            let rim = self.search.last_reached(&self.members.is_member);
            if rim != centre {
                self.search_from(rim);
            }
            in_vain = if (before - self.alive.len()) * FEW > before { 0 } else { in_vain + 1 };
        }
    }

    /// Measures all that is left at once: heights, and where that decides everything the rest as well. What
    /// stays alive then has the least height that there is, and only that.
    fn by_lanes(&mut self, best: &mut Choice, everywhere: bool, watch: Watch) {
        let mut lanes = Lanes::<8>::new(self.graph);
        let size = Lanes::<8>::ROOTS;
        let decides = everywhere && self.scan == Scan::Level;
        let ordered = blocks(self.graph, &self.alive, size);
        let mut least = best.shape.height;
        let mut left = Vec::new();
        for (number, block) in (0..).zip(ordered.chunks(size)) {
            watch(number * size, ordered.len());
            let Members { switches, is_member } = self.members;
            let found = lanes.measure(self.graph, block, switches, is_member, least);
            for (&root, found) in block.iter().zip(&found) {
                let Some(found) = *found else { continue };
                if decides {
                    *best = (*best).min(best.with(found, root));
                }
                least = least.min(found.height);
                self.at_least[root as usize] = found.height;
                left.push(root);
            }
            // Where a first block drops nobody, no other will: the network is regular.
            if number == 0 && left.len() == block.len() && !decides {
                left.extend(&ordered[block.len()..]);
                break;
            }
        }
        left.retain(|&root| !decides && self.at_least[root as usize] <= least);
        left.sort_unstable();
        self.alive = left;
    }

    fn search_from(&mut self, from: u32) {
        self.search.run(self.graph, from, self.scan);
        self.take_searched(from);
    }

    /// Learns from a search that was made.
    fn take_searched(&mut self, from: u32) {
        let height = self.search.height(&self.members.is_member);
        let at = self.alive.iter().position(|&root| root == from);
        if let Some(at) = at {
            self.alive.swap_remove(at);
            if self.best.is_none_or(|best| height <= best.shape.height) {
                let found = self.choice(from);
                self.best = Some(self.best.map_or(found, |best| best.min(found)));
            }
        }
        let has_member = self.members.is_member[from as usize];
        let most = self.best.map_or(u32::MAX, |best| best.shape.height);
        let Self { search, alive, at_least, away, .. } = self;
        alive.retain(|&root| {
            let depth = search.depth(root);
            let bound = &mut at_least[root as usize];
            *bound = (*bound).max(height.saturating_sub(depth)).max(if has_member { depth } else { 0 });
            away[root as usize] += depth;
            *bound <= most
        });
    }
}
