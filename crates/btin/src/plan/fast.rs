//! For `unisono tree plan --ties fast`, the default from 20,000 switches or 200,000 links on: finds a root in
//! about the time of two dozen searches. Least height decides, then fewest links, then the lowest number.
//!
//! Leaves make the paper's rule slow. In a regular network nearly all roots tie in height and links, and the
//! leaves of a tree are known only once the tree is grown. Leaves hardly matter to a barrier, whose time
//! depends on the height of its tree. Without them, a root needs no tree of its own if a bound shows that its
//! tree is no lower than the best one and has no fewer links.
//!
//! Bounds of the height come from four sources, the cheapest first:
//! - searches from probable centers and from the members furthest from them, as in
//!   [`choose`](mod@super::choose);
//! - symmetries of the network that map members onto members: a root and its image have the same height;
//! - walks from 64 members at once, spread over the network ([`Farthest`]);
//! - searches from the remaining candidates, the most promising first, until the work budget is spent.
//!
//! If every switch has a member, all trees have the same number of links, so the lowest root of least height
//! wins. Otherwise a search counts the links of each root of least height, the lowest root first, while the
//! budget lasts.
//!
//! [`Certainty`] states the limits of the proof: the least possible height of a tree, and the number of roots
//! that may be better. Two kinds of networks leave a gap: networks that look nearly the same from every
//! switch without being symmetric (a torus with one additional link, or a torus that is numbered at random:
//! every switch has a different furthest member, and only a search from that member would show the distance),
//! and groups with members at only some switches. The choice never depends on elapsed time or on the number
//! of threads, so that every member computes the same tree.
//!
//! Cost: at most [`SEARCHES`] searches of the network, or [`ALWAYS`] edge visits if that is more, and one
//! walk.

use super::Certainty;
use super::choose::{Bounds, MAX_FUTILE_PAIRS, MIN_DROP_DIVISOR, RootChoice};
use super::farthest::{Farthest, TARGETS};
use super::search::TreeMeasure;
use super::symmetry;

/// The work budget, in searches of the whole network. Reading a network's file takes as long as 30 to 60
/// searches (measured on files of 300,000 to 11,000,000 links), and planning must not take longer than
/// reading.
const SEARCHES: usize = 24;

/// The work budget in any network, in edge visits: about 20 ms.
const ALWAYS: usize = 20_000_000;

/// With more orbits than this, the network has too little symmetry: one search for each orbit does not pay.
const MAX_ORBITS: usize = 64;

pub(super) struct WorkBudget {
    /// The number of edge visits that are left.
    edges_visited: usize,
    search: usize,
}

impl WorkBudget {
    pub(super) fn new(edges_visited: usize, search: usize) -> Self {
        Self { edges_visited, search }
    }

    /// Subtracts the work of one search from the budget. Returns whether the budget was sufficient.
    fn take_search(&mut self) -> bool {
        let enough = self.edges_visited >= self.search;
        self.edges_visited = self.edges_visited.saturating_sub(self.search);
        enough
    }
}

impl Bounds<'_> {
    /// Finds the best root by height, links and number, and states how far that is proved.
    pub(super) fn fast(self) -> (RootChoice, Certainty) {
        let search = self.graph.edge_ends() + self.graph.len();
        self.fast_within(WorkBudget::new(ALWAYS.max(SEARCHES * search), search))
    }

    pub(super) fn fast_within(mut self, mut budget: WorkBudget) -> (RootChoice, Certainty) {
        self.search_in_turn(&mut budget);
        self.compare_by_symmetry(&mut budget);
        self.walk_from_members(&mut budget);
        while let Some(next) = self.likeliest()
            && budget.take_search()
        {
            self.search_from(next);
        }
        let best = self.best.expect("the first search is from a candidate");
        let open = self.alive.iter().filter(|&&root| self.at_best(root).shape < best.shape).count();
        (best, Certainty { min_height: self.min_height(), open, stopped: false })
    }

    /// Returns the candidates whose trees may be lower than the lowest tree found.
    fn lower(&self) -> impl Iterator<Item = u32> {
        let max_height = self.best.map_or(u32::MAX, |best| best.shape.height);
        self.alive.iter().copied().filter(move |&root| self.at_least[root as usize] < max_height)
    }

    /// Returns the best tree that a candidate can have according to its bounds.
    fn at_best(&self, root: u32) -> RootChoice {
        let edges = u32::try_from(self.members.switches.len()).unwrap_or(u32::MAX) - 1;
        let shape = TreeMeasure { height: self.at_least[root as usize], edges, leaves: 0 };
        RootChoice { shape, without_members: !self.members.is_member[root as usize], root }
    }

    /// Returns the next root from which to search: a central root whose tree may be lower than the lowest
    /// found, or, if there is none, the root of lowest number that may be better.
    fn likeliest(&self) -> Option<u32> {
        let key = |&root: &u32| (self.at_least[root as usize], self.away[root as usize], root);
        if let Some(lower) = self.lower().min_by_key(key) {
            return Some(lower);
        }
        let best = self.best?;
        self.alive.iter().map(|&root| self.at_best(root)).filter(|one| *one < best).min().map(|one| one.root)
    }

    /// Searches from probable centers and from the members furthest from them, as long as this excludes
    /// enough candidates.
    fn search_in_turn(&mut self, budget: &mut WorkBudget) {
        let mut in_vain = 0;
        while in_vain < MAX_FUTILE_PAIRS {
            let key = |&root: &u32| (self.at_least[root as usize], self.away[root as usize], root);
            let Some(centre) = self.lower().min_by_key(key) else { return };
            let before = self.lower().count();
            budget.take_search();
            self.search_from(centre);
            let rim = self.furthest_member();
            if rim != centre && budget.take_search() {
                self.search_from(rim);
            }
            in_vain =
                if (before - self.lower().count()) * MIN_DROP_DIVISOR > before { 0 } else { in_vain + 1 };
        }
    }

    /// Applies the bounds of one switch of each orbit to all switches onto which symmetries map it.
    fn compare_by_symmetry(&mut self, budget: &mut WorkBudget) {
        if self.lower().nth(MIN_DROP_DIVISOR).is_none() {
            return;
        }
        let found = symmetry::orbits(self.graph, &self.members.is_member, self.workers, budget.edges_visited);
        let Some((orbits, edges_visited)) = found else { return };
        budget.edges_visited -= edges_visited;
        self.share(&orbits);
        let mut open: Vec<u32> = self.lower().collect();
        open.sort_unstable_by_key(|&root| (orbits[root as usize], root));
        open.dedup_by_key(|root| orbits[*root as usize]);
        if open.len() > MAX_ORBITS {
            return;
        }
        for root in open {
            if budget.take_search() {
                self.search_from(root);
            }
        }
        self.share(&orbits);
    }

    fn share(&mut self, orbits: &[u32]) {
        let mut known = vec![0; self.graph.len()];
        for (&orbit, &at_least) in orbits.iter().zip(&self.at_least) {
            known[orbit as usize] = at_least.max(known[orbit as usize]);
        }
        for (at_least, &orbit) in self.at_least.iter_mut().zip(orbits) {
            *at_least = known[orbit as usize];
        }
        self.drop_higher();
    }

    /// Walks from members that are spread over the network, as long as this excludes enough candidates.
    fn walk_from_members(&mut self, budget: &mut WorkBudget) {
        let members = &self.members.switches;
        // steps of the golden ratio spread the starts over the members, without a period that might coincide
        // with the network's
        let spread = |number: u64| {
            members[((((number * 0x9E37_79B9) & 0xFFFF_FFFF) * members.len() as u64) >> 32) as usize]
        };
        for walk in 0.. {
            let before = self.lower().count();
            if before == 0 || budget.edges_visited == 0 {
                return;
            }
            let mut from: Vec<u32> =
                (1..=TARGETS as u64).map(|at| spread(walk * TARGETS as u64 + at)).collect();
            from.sort_unstable();
            from.dedup();
            let farthest = Farthest::from_members(self.graph, &from, &self.members.is_member);
            budget.edges_visited = budget.edges_visited.saturating_sub(farthest.edges_visited);
            for (at_least, away) in self.at_least.iter_mut().zip(farthest.away) {
                *at_least = away.max(*at_least);
            }
            for (&root, &height) in from.iter().zip(&farthest.heights) {
                self.at_least[root as usize] = height;
            }
            let max_height = self.best.map_or(u32::MAX, |best| best.shape.height);
            let lowest = farthest.heights.iter().zip(&from).min().filter(|(height, _)| **height < max_height);
            if let Some((_, &root)) = lowest {
                self.search_from(root);
            }
            self.drop_higher();
            if (before - self.lower().count()) * MIN_DROP_DIVISOR <= before {
                return;
            }
        }
    }

    /// Drops the candidates whose trees are higher than the lowest tree found.
    fn drop_higher(&mut self) {
        let max_height = self.best.map_or(u32::MAX, |best| best.shape.height);
        let Self { alive, at_least, .. } = self;
        alive.retain(|&root| at_least[root as usize] <= max_height);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::everybody;
    use super::super::tests::families::{
        fat_tree, fat_tree_of_pods, network_and_group, regular, torus, torus_of_cubes, with_nodes,
    };
    use super::super::*;
    use super::*;
    use crate::BarrierGroup;
    use proptest::prelude::*;

    fn options(ties: Ties, scan: Scan, roots: Roots) -> PlanOptions {
        PlanOptions { ties, scan, roots, ..PlanOptions::default() }
    }

    fn watched(
        network: &SwitchNetwork,
        group: &BarrierGroup,
        options: &PlanOptions,
    ) -> (TreePlan, Certainty) {
        let mut watch = |_, _| ControlFlow::Continue(());
        plan_watched(network, group, options, &mut watch).expect("the network is connected")
    }

    fn within(
        network: &SwitchNetwork,
        group: &BarrierGroup,
        edges_visited: usize,
    ) -> (RootChoice, Certainty) {
        let graph = Graph::new(network);
        let members = MemberSwitches::new(network, group);
        let mut search = Search::new(&graph);
        search.run(&graph, members.switches[0], Scan::Queue);
        let workers = Workers::new(None);
        let bounds = Bounds::new(&graph, &members, &members.switches, (Scan::Queue, Ties::Fast), workers);
        bounds.fast_within(WorkBudget::new(edges_visited, graph.edge_ends() + graph.len()))
    }

    proptest! {
        #[test]
        fn fast_and_exact_agree_on_height_and_links((network, group) in network_and_group()) {
            for scan in [Scan::Queue, Scan::Level] {
                for roots in [Roots::Members, Roots::Any] {
                    let (fast, sure) = watched(&network, &group, &options(Ties::Fast, scan, roots));
                    let exact = plan(&network, &group, &options(Ties::Exact, scan, roots)).expect("connected");
                    prop_assert_eq!((fast.height, fast.edges), (exact.height, exact.edges));
                    prop_assert_eq!((sure.min_height, sure.open, sure.stopped), (exact.height, 0, false));
                }
            }
        }

        #[test]
        fn what_is_said_to_be_proved_is_true_with_any_amount_of_work(
            (network, group) in network_and_group(), edges_visited in 0_usize..20_000,
        ) {
            let (found, sure) = within(&network, &group, edges_visited);
            let exact = plan(&network, &group, &PlanOptions::default()).expect("connected");
            prop_assert!(sure.min_height <= exact.height && exact.height <= found.shape.height);
            if sure.open == 0 {
                prop_assert_eq!((found.shape.height, found.shape.edges), (exact.height, exact.edges));
                prop_assert_eq!(sure.min_height, exact.height);
            }
        }
    }

    #[test]
    fn two_dozen_searches_prove_the_height_in_tori_fat_trees_and_random_networks() {
        let cases =
            [torus_of_cubes(14), torus(51, 52), fat_tree(4, 5), fat_tree_of_pods(24), regular(3_000, 8)];
        for links in cases {
            let (n, network) = (links.0, with_nodes(&links));
            let search = Graph::new(&network).edge_ends() + n as usize;
            let (found, sure) = within(&network, &everybody(&network), SEARCHES * search);
            assert_eq!((sure.min_height, sure.open), (found.shape.height, 0), "{n} switches");
            let exact = plan(&network, &everybody(&network), &PlanOptions::default()).expect("connected");
            assert_eq!((found.shape.height, found.shape.edges), (exact.height, exact.edges), "{n} switches");
        }
    }

    #[test]
    fn a_torus_with_a_link_more_is_planned_though_its_least_height_is_not_proved() {
        let (n, mut links) = torus_of_cubes(14);
        links.push((5, 1700));
        let network = with_nodes(&(n, links));
        let search = Graph::new(&network).edge_ends() + n as usize;
        let (found, sure) = within(&network, &everybody(&network), SEARCHES * search);
        assert!(sure.open > 0 && sure.min_height < found.shape.height);
        assert!(
            found.shape.height <= 21 && sure.min_height >= 14,
            "{} {}",
            found.shape.height,
            sure.min_height
        );
    }

    #[test]
    fn a_plan_that_is_stopped_is_the_best_of_those_measured_and_says_so() {
        let n = 700;
        let network = with_nodes(&regular(n, 4));
        let subset = (0..n).filter(|node| node % 7 != 3).map(NodeId).collect();
        let subset = BarrierGroup::new(&network, crate::GroupId(0), subset).expect("all exist");
        for (group, scan) in
            [(&everybody(&network), Scan::Queue), (&everybody(&network), Scan::Level), (&subset, Scan::Queue)]
        {
            for after in 0..3 {
                let mut asked = 0;
                let mut watch = |_, _| {
                    asked += 1;
                    if asked > after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                let options = options(Ties::Exact, scan, Roots::Members);
                let (stopped, sure) = plan_watched(&network, group, &options, &mut watch).expect("connected");
                let whole = plan(&network, group, &options).expect("connected");
                assert_eq!(sure.stopped, asked > after);
                assert!(sure.min_height <= whole.height && whole.height <= stopped.height);
                assert!(sure.stopped || stopped == whole);
                crate::check::check(&network, group, &stopped.tree, crate::check::Rules::Sound)
                    .expect("it is a tree");
            }
        }
    }
}
