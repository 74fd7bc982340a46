//! A slow and literal planner; tests compare the real planner with it.

use super::everybody;
use super::families::{fat_tree, network_and_group, regular, ring, torus, with_nodes};
use crate::GroupId;
use crate::plan::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;

/// The key by which trees are compared: height, edges, leaves, whether the root is without members, root.
type OracleKey = (usize, usize, usize, bool, u32);
type ParentOf = BTreeMap<u32, u32>;

fn near(network: &SwitchNetwork, switch: u32) -> BTreeSet<u32> {
    network.neighbours(SwitchId(switch)).iter().map(|n| n.switch.0).filter(|&n| n != switch).collect()
}

fn grow(network: &SwitchNetwork, root: u32, scan: Scan) -> ParentOf {
    let mut parents = BTreeMap::new();
    match scan {
        Scan::Queue => {
            let mut queue = VecDeque::from([root]);
            while let Some(switch) = queue.pop_front() {
                for next in near(network, switch) {
                    if next != root && !parents.contains_key(&next) {
                        parents.insert(next, switch);
                        queue.push_back(next);
                    }
                }
            }
        }
        Scan::Level => {
            let mut level = BTreeSet::from([root]);
            while !level.is_empty() {
                let mut below = BTreeSet::new();
                for &switch in &level {
                    for next in near(network, switch) {
                        if next != root && !parents.contains_key(&next) {
                            parents.insert(next, switch);
                            below.insert(next);
                        }
                    }
                }
                level = below;
            }
        }
    }
    parents
}

fn depth(parents: &ParentOf, mut switch: u32) -> usize {
    let mut depth = 0;
    while let Some(&up) = parents.get(&switch) {
        switch = up;
        depth += 1;
    }
    depth
}

fn literal(network: &SwitchNetwork, group: &BarrierGroup, options: &PlanOptions) -> (OracleKey, ParentOf) {
    let members: BTreeSet<u32> = group.member_switches(network).iter().map(|s| s.0).collect();
    let candidates: BTreeSet<u32> = match options.roots {
        Roots::Members => members.clone(),
        Roots::Any => network.switches().map(|s| s.0).collect(),
    };
    let trees = candidates.into_iter().map(|root| {
        let mut parents = grow(network, root, options.scan);
        let leaves = |parents: &ParentOf| -> Vec<u32> {
            let inner: BTreeSet<u32> = parents.values().copied().collect();
            parents.keys().copied().filter(|switch| !inner.contains(switch)).collect()
        };
        loop {
            let bare: Vec<u32> =
                leaves(&parents).into_iter().filter(|leaf| !members.contains(leaf)).collect();
            if bare.is_empty() {
                break;
            }
            parents.retain(|switch, _| !bare.contains(switch));
        }
        let height = parents.keys().map(|&switch| depth(&parents, switch)).max().unwrap_or(0);
        (
            (height, parents.len(), leaves(&parents).len().max(1), !members.contains(&root), root),
            parents,
        )
    });
    trees.min_by_key(|(key, _)| *key).expect("a group has members")
}

fn parents_of(network: &SwitchNetwork, plan: &TreePlan) -> ParentOf {
    let mut parents = BTreeMap::new();
    for (&switch, register) in &plan.tree.registers {
        for &child in &register.children {
            let link = network.neighbour_at(switch, child).expect("it leads to a child");
            let there = &plan.tree.registers[&link.switch];
            assert_eq!(there.parent, Some(link.far), "both ends name the same cable");
            parents.insert(link.switch.0, switch.0);
        }
    }
    parents
}

fn agree(network: &SwitchNetwork, group: &BarrierGroup, options: &PlanOptions) {
    let (key, parents) = literal(network, group, options);
    let plan = plan(network, group, options).expect("the network is connected");
    let root = plan.tree.root_switch.0;
    let found = (
        plan.height as usize,
        plan.edges as usize,
        plan.leaves as usize,
        plan.tree.root_node.is_none(),
        root,
    );
    assert_eq!(found, key, "{options:?}");
    assert_eq!(parents_of(network, &plan), parents, "{options:?}");
}

proptest! {
    #[test]
    fn the_plan_is_the_literal_one((network, group) in network_and_group()) {
        for scan in [Scan::Queue, Scan::Level] {
            for roots in [Roots::Members, Roots::Any] {
                agree(&network, &group, &PlanOptions { scan, roots, ..PlanOptions::default() });
            }
        }
    }
}

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn the_plan_is_the_literal_one_where_hundreds_of_roots_are_tied() {
    for links in
        [torus(12, 13), torus(10, 10), fat_tree(3, 4), regular(200, 3), regular(300, 4), ring(150), ring(301)]
    {
        let network = with_nodes(&links);
        for scan in [Scan::Queue, Scan::Level] {
            agree(&network, &everybody(&network), &PlanOptions { scan, ..PlanOptions::default() });
        }
    }
}

proptest! {
    #[test]
    fn searches_made_together_find_what_each_finds_alone((network, group) in network_and_group()) {
        let graph = Graph::new(&network);
        let members = MemberSwitches::new(&network, &group);
        let mut together = walk::Walk::new(&graph, lanes::Parents::new(&graph));
        let mut search = Search::new(&graph);
        let roots = walk::blocks(&graph, &members.switches, 5);
        prop_assert_eq!(roots.iter().copied().collect::<BTreeSet<_>>(), members.switches.iter().copied().collect());
        for max_height in [2, u32::MAX] {
            let MemberSwitches { switches, is_member } = &members;
            let found = lanes::measure(&mut together, &graph, &roots, switches, is_member, max_height);
            for (&root, found) in roots.iter().zip(found) {
                search.run(&graph, root, Scan::Level);
                let alone = search.shape(&members.is_member);
                prop_assert_eq!(found.map(|found| found.height), (alone.height <= max_height).then_some(alone.height));
                if members.switches.len() == network.switch_count() {
                    prop_assert_eq!(found.map(|found| found.leaves), (alone.height <= max_height).then_some(alone.leaves));
                }
            }
        }
    }

    #[test]
    fn leaves_read_off_the_trees_around_others_are_those_of_the_tree_by_queue(
        (network, group) in network_and_group(), threads in 1usize..4, portion in 1usize..30,
    ) {
        let graph = Graph::new(&network);
        let all: Vec<u32> = (0..).take(graph.len()).collect();
        let all = walk::blocks(&graph, &all, bits::LANES);
        let workers = Workers::new(NonZeroUsize::new(threads));
        let roots = MemberSwitches::new(&network, &group).switches;
        let mut search = Search::new(&graph);
        let queue = branches::QueueLeaves { graph: &graph, all: &all, workers, portion };
        let mut report = |_, _| ControlFlow::Continue(());
        let found = queue.measure(&roots, &mut workers::PlanWatch::new(&mut report));
        for (&root, found) in roots.iter().zip(found.expect("there are few neighbours")) {
            search.run(&graph, root, Scan::Queue);
            let TreeMeasure { height, leaves, .. } = search.shape(&vec![true; graph.len()]);
            prop_assert_eq!(found, lean::TreeSize { height, leaves }, "root {}", root);
        }
    }
}

proptest! {
    #[test]
    fn a_search_for_leaves_alone_finds_those_of_the_tree(
        (network, _) in network_and_group(), slack in 0u32..4,
    ) {
        let graph = Graph::new(&network);
        let everywhere = vec![true; graph.len()];
        let mut lean = lean::Lean::new(&graph, graph.len());
        let mut search = Search::new(&graph);
        for scan in [Scan::Queue, Scan::Level] {
            for root in network.switches() {
                search.run(&graph, root.0, scan);
                let TreeMeasure { height, leaves, .. } = search.shape(&everywhere);
                let found = lean::TreeSize { height, leaves };
                // from each depth on: the sum of the decreases in the number of switches from one level to
                // the next
                let depths = |at| network.switches().filter(|s| search.depth(s.0) == at).count();
                let less = |at| u32::try_from(depths(at).saturating_sub(depths(at + 1))).expect("few");
                let rest: Vec<u32> = (0..=height).map(|from| (from..=height).map(less).sum()).collect();
                let mut measure = |at_least, height, leaves| {
                    let limit = lean::TreeSize { height, leaves };
                    let found = lean.measure(&graph, root.0, scan, at_least, &[], limit);
                    assert_eq!(lean.measure(&graph, root.0, scan, at_least, &rest, limit), found);
                    found
                };
                prop_assert_eq!(measure(0, height + slack, leaves + slack), Some(found));
                prop_assert_eq!(measure(height, height + 1, 0), Some(found));
                prop_assert_eq!(measure(height, height, leaves - 1), None);
                if height > 0 {
                    prop_assert_eq!(measure(0, height - 1, u32::MAX), None);
                }
            }
        }
    }
}

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn the_plan_is_the_literal_one_where_many_candidates_are_dropped_together() {
    // Chains of two switches at seven places of a torus, so that heights differ and blocks lose some of their
    // roots.
    let (mut n, mut links) = torus(9, 31);
    for rim in 0..7 {
        links.extend([(rim * 40, n), (n, n + 1)]);
        n += 2;
    }
    let network = with_nodes(&(n, links));
    let everybody = everybody(&network);
    let some = (0..n).filter(|node| node % 3 != 1).map(NodeId).collect();
    let some = BarrierGroup::new(&network, GroupId(0), some).expect("all exist");
    for scan in [Scan::Queue, Scan::Level] {
        for roots in [Roots::Members, Roots::Any] {
            agree(&network, &everybody, &PlanOptions { scan, roots, ..PlanOptions::default() });
            agree(&network, &some, &PlanOptions { scan, roots, ..PlanOptions::default() });
        }
    }
}

#[test]
#[ignore = "takes seconds of processor time; `cargo xtask test` runs it"]
fn any_number_of_threads_comes_to_the_same_tree() {
    for links in [torus(41, 44), regular(1800, 4)] {
        let network = with_nodes(&links);
        let everybody = everybody(&network);
        let subset = (0..links.0).filter(|node| node % 7 != 3).map(NodeId).collect();
        let subset = BarrierGroup::new(&network, GroupId(0), subset).expect("all exist");
        for (group, scan) in [(&everybody, Scan::Queue), (&everybody, Scan::Level), (&subset, Scan::Queue)] {
            let by = |threads| {
                let threads = NonZeroUsize::new(threads);
                let options = PlanOptions { scan, threads, ..PlanOptions::default() };
                plan(&network, group, &options).expect("it is connected")
            };
            let alone = by(1);
            assert_eq!(by(2), alone);
            assert_eq!(by(5), alone);
        }
    }
}
