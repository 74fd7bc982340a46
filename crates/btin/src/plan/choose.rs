//! For `unisono tree plan` with either kind of ties: finds the best root without growing a tree from every
//! candidate.
//!
//! Heights come first. A search from a switch w bounds the height of every candidate v: it is at least
//! `height(w) - d(v, w)`, and at least `d(v, w)` if w has a member (eccentricity bounds, Takes and Kosters,
//! "Computing the eccentricity distribution of large graphs", 2013, here with the members as the only
//! targets). Searches start alternately from the candidate with the lowest bound, which is probably in the
//! middle of the network, and from the member furthest from it, which is probably at the rim. A candidate
//! whose bound exceeds the best height so far is dropped. In irregular networks a dozen searches leave a
//! handful of candidates.
//!
//! In regular networks (tori, fat trees) all candidates have the same height, so that bounds drop none. When
//! bounds drop too few candidates, the remaining candidates are measured: many roots at once ([`lanes`] and,
//! for leaves by queue, [`branches`]), or one by one. If every switch has a member, so that leaves alone
//! decide, the measurement of a candidate ends as soon as the candidate cannot win ([`lean`](super::lean)).
//!
//! If every switch has a member, a [`symmetry`](super::symmetry) makes the trees of many roots equal. Only
//! the lowest root of each such class is measured: a few hundred in a torus or fat tree of 100,000 switches.
//!
//! Two more bounds need no search. If no switch has more than k neighbors, at most k (k - 1)^(i - 1) switches
//! are i steps away from a root, so no tree is lower than the number of steps that reach all members at this
//! rate. And each neighbor of a root is its child and has a leaf below it, so a tree has at least as many
//! leaves as its root has neighbors. In a ring these bounds leave only the first candidate.
//!
//! Cost: O(links) for each search; at worst one search for each candidate.

use super::bits::LANES;
use super::branches::{self, QueueLeaves};
use super::graph::Graph;
use super::lanes::{self, CountLeaves, Parents};
use super::lean::{Lean, TreeSize};
use super::search::{Search, TreeMeasure};
use super::symmetry::Symmetries;
use super::walk::{NoRecorder, Walk, blocks};
use super::workers::{PlanWatch, Workers};
use super::{Certainty, MemberSwitches, Scan, Ties};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A candidate for the root. The derived order of the fields is the rule of choice, ties included: the shape
/// of the tree, then member switches first, then the lowest id. The least candidate becomes the root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RootChoice {
    pub(super) shape: TreeMeasure,
    pub(super) without_members: bool,
    pub(super) root: u32,
}

/// Searches for bounds stop after this many consecutive pairs of searches that each dropped less than
/// 1/[`MIN_DROP_DIVISOR`] of the candidates.
pub(super) const MAX_FUTILE_PAIRS: u32 = 2;
/// The inverse of the smallest fraction of candidates that makes a pair of searches worth its time.
pub(super) const MIN_DROP_DIVISOR: usize = 16;

/// If the height times `NARROW` exceeds the number of switches (rings, paths), the searches of a walk reach a
/// switch in different levels, so that a walk saves no work.
const NARROW: usize = 16;

/// The roots left by symmetries are far apart, so that a walk visits each switch about `height` times. From
/// this height on, individual searches are faster.
const FAR_APART: usize = 150;

/// The least number of candidates for which a walk pays.
const WORTH_LANES: usize = 32;

/// The planner searches for symmetries if measuring the candidates individually is estimated to take longer
/// than this, in nanoseconds.
const WORTH_SYMMETRY: f64 = 1e6;

/// An estimate of the time to visit one edge in one search, in nanoseconds. These three estimates select the
/// method and the number of threads.
const EDGE_COST: f64 = 0.75;
/// Nanoseconds to visit one edge in all searches of a walk at once.
const EDGE_COST_BATCHED: f64 = 2.0;
/// The number of nanoseconds that each binary digit of a branch adds to [`EDGE_COST_BATCHED`].
const EDGE_COST_PER_DIGIT: f64 = 2.0;

/// Returns the best of these candidates. All candidates must reach all members.
pub(super) fn choose(
    graph: &Graph,
    members: &MemberSwitches,
    candidates: &[u32],
    rule: (Scan, Ties),
    (reached, workers): (&[u32], Workers),
    watch: &mut PlanWatch,
) -> (RootChoice, Certainty) {
    let bounds = Bounds::new(graph, members, candidates, rule, workers);
    match bounds.ties {
        Ties::Fast => bounds.fast(),
        Ties::Exact => bounds.exact(reached, watch),
    }
}

/// Returns a lower bound of every tree's height, given the number of member switches.
fn min_height(graph: &Graph, members: usize) -> u32 {
    let max_degree = (0..).take(graph.len()).map(|switch| graph.near(switch).len()).max().unwrap_or(0);
    let (mut level, mut within, mut height) = (1, 1, 0);
    while within < members && level > 0 {
        level = if height == 0 { max_degree } else { level.saturating_mul(max_degree - 1) };
        within = within.saturating_add(level);
        height += 1;
    }
    height
}

impl RootChoice {
    /// Makes the candidate `root` with the measures in `found`. It takes the number of links from this
    /// candidate, because all trees of a group with members at every switch have the same number of links.
    fn with(self, found: TreeSize, root: u32) -> Self {
        let shape = TreeMeasure { height: found.height, edges: self.shape.edges, leaves: found.leaves };
        Self { shape, without_members: false, root }
    }
}

pub(super) struct Bounds<'a> {
    pub(super) graph: &'a Graph,
    pub(super) members: &'a MemberSwitches,
    pub(super) scan: Scan,
    pub(super) ties: Ties,
    pub(super) workers: Workers,
    search: Search,
    /// Candidates that are neither measured nor excluded.
    pub(super) alive: Vec<u32>,
    /// By switch: a lower bound of the height of its tree.
    pub(super) at_least: Vec<u32>,
    /// By switch: the sum of its distances from the starts of all searches.
    pub(super) away: Vec<u32>,
    pub(super) best: Option<RootChoice>,
}

impl<'a> Bounds<'a> {
    pub(super) fn new(
        graph: &'a Graph,
        members: &'a MemberSwitches,
        candidates: &[u32],
        (scan, ties): (Scan, Ties),
        workers: Workers,
    ) -> Self {
        let floor = min_height(graph, members.switches.len());
        Self {
            graph,
            members,
            scan,
            ties,
            workers,
            search: Search::new(graph),
            alive: candidates.to_vec(),
            at_least: vec![floor; graph.len()],
            away: vec![0; graph.len()],
            best: None,
        }
    }

    /// Chooses the root by the paper's rule.
    fn exact(mut self, reached: &[u32], watch: &mut PlanWatch) -> (RootChoice, Certainty) {
        self.narrow();
        let best = self.best.expect("the first search is from a candidate");
        self.alive.retain(|&root| self.at_least[root as usize] <= best.shape.height);
        self.alive.sort_unstable();
        let min_height = self.min_height();
        let best = self.measure(best, reached, watch);
        let (min_height, open) = if watch.stopped { (min_height, watch.left) } else { (u32::MAX, 0) };
        (
            best,
            Certainty { min_height: min_height.min(best.shape.height), open, stopped: watch.stopped },
        )
    }

    /// Measures the candidates that the bounds left. Symmetries reduce their number first; then they are
    /// measured many at once, or individually.
    fn measure(mut self, mut best: RootChoice, reached: &[u32], watch: &mut PlanWatch) -> RootChoice {
        let everywhere = self.members.switches.len() == reached.len();
        if everywhere {
            self.drop_beaten(&best);
        }
        let narrow = best.shape.height as usize * NARROW > self.graph.len();
        let everything = everywhere && reached.len() == self.graph.len();
        let all_alike = if everything { self.keep_one_of_symmetric() } else { None };
        let apart =
            all_alike.is_some() && (self.scan == Scan::Queue || best.shape.height as usize > FAR_APART);
        if self.alive.len() >= WORTH_LANES && !narrow && !apart {
            if everywhere && self.scan == Scan::Level {
                self.by_lanes(&mut best, || Parents::new(self.graph), true, watch);
                return best;
            }
            let widths = self.by_lanes(&mut best, || NoRecorder, false, watch);
            if watch.stopped || everywhere && self.by_branches(&mut best, widths, watch) {
                return best;
            }
        }
        if everywhere {
            self.leaves_one_by_one(best, all_alike.as_ref(), watch)
        } else {
            self.measure_each(best, watch)
        }
    }

    /// Returns a lower bound of the best tree's height.
    pub(super) fn min_height(&self) -> u32 {
        let max_height = self.best.map_or(u32::MAX, |best| best.shape.height);
        self.alive.iter().map(|&root| self.at_least[root as usize]).fold(max_height, u32::min)
    }

    /// Drops the candidates that cannot beat `best` even if their height and leaves equal their lower bounds.
    /// Valid only if every switch has a member.
    fn drop_beaten(&mut self, best: &RootChoice) {
        let Self { alive, at_least, graph, .. } = self;
        alive.retain(|&root| {
            let leaves = u32::try_from(graph.near(root).len().max(1)).unwrap_or(u32::MAX);
            best.with(TreeSize { height: at_least[root as usize], leaves }, root) < *best
        });
    }

    /// Keeps only the lowest candidate of each class of equal trees. `None`: there are too many classes to
    /// help.
    fn keep_one_of_symmetric(&mut self) -> Option<Symmetries> {
        let before = self.alive.len();
        if before < WORTH_LANES || self.measuring_cost() < WORTH_SYMMETRY {
            return None;
        }
        let symmetries = Symmetries::find(self.graph, self.scan, self.workers)?;
        let mut taken = vec![false; self.graph.len()];
        self.alive.retain(|&root| !std::mem::replace(&mut taken[symmetries.lowest(root) as usize], true));
        (self.alive.len() * MIN_DROP_DIVISOR < before).then_some(symmetries)
    }

    fn choice(&mut self, root: u32) -> RootChoice {
        let without_members = !self.members.is_member[root as usize];
        let mut shape = self.search.shape(&self.members.is_member);
        if self.ties == Ties::Fast {
            shape.leaves = 0; // leaves do not count there
        }
        RootChoice { shape, without_members, root }
    }

    fn narrow(&mut self) {
        let mut in_vain = 0;
        while in_vain < MAX_FUTILE_PAIRS {
            let key = |&&root: &&u32| (self.at_least[root as usize], self.away[root as usize], root);
            let Some(&centre) = self.alive.iter().min_by_key(key) else { return };
            let before = self.alive.len();
            self.search_from(centre);
            let rim = self.furthest_member();
            if rim != centre {
                self.search_from(rim);
            }
            in_vain = if (before - self.alive.len()) * MIN_DROP_DIVISOR > before { 0 } else { in_vain + 1 };
        }
    }

    /// Measures the heights of the remaining candidates, many at once. If `decides`, it measures leaves, too,
    /// and finds the best root. Otherwise the candidates of least height stay alive, or all of them if the
    /// network seems to be regular. Returns the number of edges visited for one block of 512 roots.
    fn by_lanes<K: CountLeaves + Send>(
        &mut self,
        best: &mut RootChoice,
        keep: impl Fn() -> K + Sync,
        decides: bool,
        watch: &mut PlanWatch,
    ) -> usize {
        let Self { graph, members, .. } = *self;
        let ordered = blocks(graph, &self.alive, LANES);
        let min_height = AtomicU32::new(best.shape.height);
        let (min_height, ordered) = (&min_height, &ordered[..]);
        let measure = |(walk, found): &mut (Walk<K>, Vec<(u32, TreeSize)>), block: usize| {
            let roots = &ordered[block * LANES..ordered.len().min((block + 1) * LANES)];
            // A stale value is too high: it costs work but excludes no root of least height, so `Relaxed` is
            // enough.
            let max_height = min_height.load(Ordering::Relaxed);
            let MemberSwitches { switches, is_member } = members;
            let measured = lanes::measure(walk, graph, roots, switches, is_member, max_height);
            for (&root, limit) in roots.iter().zip(measured) {
                if let Some(limit) = limit {
                    min_height.fetch_min(limit.height, Ordering::Relaxed);
                    found.push((root, limit));
                }
            }
        };
        let state = || (Walk::new(graph, keep()), Vec::new());
        let all = ordered.len().div_ceil(LANES);
        let _ = watch.report(0, ordered.len()); // the next block asks again whether to stop
        let mut first = state();
        measure(&mut first, 0);
        let edges_visited = first.0.edges_visited;
        let mut found = first.1;
        // If the first block drops no candidate, the network is assumed to be regular, so that later blocks
        // would drop none either.
        let regular = !decides && found.len() == ordered.len().min(LANES) && all > 1;
        if !regular {
            let workers = self
                .workers
                .for_steps((edges_visited as f64 * (all - 1) as f64 * EDGE_COST_BATCHED) as usize);
            let mut report = |block: usize| watch.report((block + 1) * LANES, ordered.len());
            let others =
                workers.run_pieces(all - 1, &mut report, state, |own, block| measure(own, block + 1));
            found.extend(others.into_iter().flat_map(|(_, found)| found));
        }
        for &(root, limit) in &found {
            self.at_least[root as usize] = limit.height;
            if decides {
                *best = (*best).min(best.with(limit, root));
            }
        }
        let mut left: Vec<u32> = found.iter().map(|(root, _)| *root).collect();
        if regular {
            left.extend(&ordered[LANES..]);
        }
        let min_height = min_height.load(Ordering::Relaxed);
        if watch.stopped && min_height < best.shape.height {
            let lowest =
                found.iter().filter(|(_, limit)| limit.height == min_height).map(|(root, _)| *root).min();
            self.search.run(graph, lowest.unwrap_or(best.root), self.scan);
            *best = self.choice(self.search.root());
        }
        left.retain(|&root| self.at_least[root as usize] <= min_height);
        left.sort_unstable();
        self.alive = left;
        edges_visited
    }

    /// Measures the remaining candidates with their leaves by queue, many at once. Valid only if every switch
    /// has a member. Does nothing and returns false if individual searches are faster.
    fn by_branches(&self, best: &mut RootChoice, edges_visited: usize, watch: &mut PlanWatch) -> bool {
        let Self { graph, members, alive, .. } = self;
        let all = &members.switches;
        let Some(digits) = branches::digits(graph) else { return false };
        let together = edges_visited as f64
            * (EDGE_COST_BATCHED + EDGE_COST_PER_DIGIT * digits as f64)
            * (all.len().div_ceil(LANES) * branches::walks(graph, alive.len())) as f64;
        if together > self.measuring_cost() {
            return false;
        }
        let all = blocks(graph, all, LANES);
        let workers = self.workers.for_steps(together as usize);
        let queue = QueueLeaves { graph, all: &all, workers, portion: branches::portion(graph) };
        let Some(found) = queue.measure(alive, watch) else { return false };
        *best =
            alive.iter().zip(found).map(|(&root, found)| best.with(found, root)).fold(*best, RootChoice::min);
        true
    }

    /// Estimates the time to measure the remaining candidates individually, in nanoseconds.
    fn measuring_cost(&self) -> f64 {
        self.alive.len() as f64 * (self.graph.edge_ends() + self.graph.len()) as f64 * EDGE_COST
    }

    /// Measures the remaining candidates individually, by leaves alone. Valid only if every switch has a
    /// member.
    fn leaves_one_by_one(
        self,
        best: RootChoice,
        symmetries: Option<&Symmetries>,
        watch: &mut PlanWatch,
    ) -> RootChoice {
        let workers = self.workers.for_steps(self.measuring_cost() as usize);
        let Self { graph, members, scan, alive, at_least, .. } = self;
        let all = alive.len();
        // The best root that any thread has found. The result does not depend on the order of the threads,
        // because a thread gives up a candidate only if it is worse than the best so far.
        let best = Mutex::new(best);
        let open = || best.lock().unwrap_or_else(PoisonError::into_inner);
        let measure = |lean: &mut Lean, at: usize| {
            let root = alive[at];
            let RootChoice { shape: TreeMeasure { height, leaves, .. }, root: other, .. } = *open();
            let limit = TreeSize { height, leaves: if root < other { leaves } else { leaves - 1 } };
            let rest = symmetries.map_or(&[][..], |symmetries| symmetries.leaves_at_least(root));
            if let Some(found) = lean.measure(graph, root, scan, at_least[root as usize], rest, limit) {
                let mut best = open();
                *best = (*best).min(best.with(found, root));
            }
        };
        workers.run_pieces(
            all,
            &mut |done| watch.report(done, all),
            || Lean::new(graph, members.switches.len()),
            measure,
        );
        best.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures the remaining candidates individually.
    fn measure_each(self, best: RootChoice, watch: &mut PlanWatch) -> RootChoice {
        let workers = self.workers.for_steps(self.measuring_cost() as usize);
        let Self { graph, members, scan, alive, .. } = self;
        let all = alive.len();
        let min_height = AtomicU32::new(best.shape.height);
        let measure = |(search, best): &mut (Search, RootChoice), at: usize| {
            let root = alive[at];
            if search.run_to(graph, root, scan, members, min_height.load(Ordering::Relaxed)) {
                let without_members = !members.is_member[root as usize];
                let found = RootChoice { shape: search.shape(&members.is_member), without_members, root };
                min_height.fetch_min(found.shape.height, Ordering::Relaxed);
                *best = (*best).min(found);
            }
        };
        let found = workers.run_pieces(
            all,
            &mut |done| watch.report(done, all),
            || (Search::new(graph), best),
            measure,
        );
        found.into_iter().map(|(_, best)| best).fold(best, RootChoice::min)
    }

    pub(super) fn search_from(&mut self, from: u32) {
        self.search.run(self.graph, from, self.scan);
        self.take_searched(from);
    }

    /// Returns a member switch that is furthest from the start of the last search.
    pub(super) fn furthest_member(&self) -> u32 {
        self.search.last_reached(&self.members.is_member)
    }

    /// Updates all bounds with the distances of the last search.
    fn take_searched(&mut self, from: u32) {
        let height = self.search.height(&self.members.is_member);
        self.at_least[from as usize] = height;
        let at = self.alive.iter().position(|&root| root == from);
        if let Some(at) = at {
            self.alive.swap_remove(at);
            if self.best.is_none_or(|best| height <= best.shape.height) {
                let found = self.choice(from);
                self.best = Some(self.best.map_or(found, |best| best.min(found)));
            }
        }
        let has_member = self.members.is_member[from as usize];
        let max_height = self.best.map_or(u32::MAX, |best| best.shape.height);
        let Self { search, alive, at_least, away, .. } = self;
        alive.retain(|&root| {
            let depth = search.depth(root);
            let bound = &mut at_least[root as usize];
            *bound = (*bound).max(height.saturating_sub(depth)).max(if has_member { depth } else { 0 });
            away[root as usize] += depth;
            *bound <= max_height
        });
    }
}
