//! Compares repairs with the checker of registers, and with the connected components of the network.

use super::*;
use crate::check::{Rules, check};
use crate::plan::tests::families::{network_and_group, ring, with_nodes};
use crate::plan::tests::{everybody, network};
use crate::reach::Components;
use crate::{GroupId, PlanOptions, plan};
use proptest::prelude::*;

fn planned(network: &SwitchNetwork, group: &BarrierGroup) -> Tree {
    plan(network, group, &PlanOptions::default()).expect("members are connected").tree
}

fn parents(network: &SwitchNetwork, tree: &Tree) -> BTreeMap<u32, u32> {
    let up = |(switch, register): (&SwitchId, &Register)| {
        let up = network.neighbour_at(*switch, register.parent?)?;
        (*switch != tree.root_switch).then_some((switch.0, up.switch.0))
    };
    tree.registers.iter().filter_map(up).collect()
}

fn depth(parents: &BTreeMap<u32, u32>, mut switch: u32) -> u32 {
    let mut depth = 0;
    while let Some(&up) = parents.get(&switch) {
        (switch, depth) = (up, depth + 1);
    }
    depth
}

proptest! {
    #[test]
    fn what_can_be_reached_is_hung_on_again_and_nothing_else_moves(
        (network, group) in network_and_group(),
        failures in proptest::collection::vec((any::<bool>(), any::<proptest::sample::Index>()), 1..8),
    ) {
        let mut tree = planned(&network, &group);
        let mut standing = StandingTree::new(&network, &group, &tree).expect("the tree fits");
        let mut alive: Vec<NodeId> = group.members().to_vec();
        for (of_link, which) in failures {
            let failure = if of_link && !network.links().is_empty() {
                NetworkFailure::Link(u32::try_from(which.index(network.links().len())).expect("few"))
            } else {
                NetworkFailure::Switch(SwitchId(u32::try_from(which.index(network.switch_count())).expect("few")))
            };
            let was = parents(&network, &tree);
            let repair = match standing.fail(failure) {
                Ok(repair) => repair,
                Err(RepairError::RootDied { root }) => {
                    prop_assert_eq!(failure, NetworkFailure::Switch(tree.root_switch));
                    prop_assert_eq!(root, tree.root_switch.0);
                    return Ok(());
                }
                Err(error) => panic!("{error}"),
            };
            alive.retain(|node| !repair.cut_off.contains(node));

            // The remaining members are the members that the root reaches.
            let now = standing.network();
            let parts = Components::new(&now);
            let place = |node: &NodeId| network.switch_of(*node);
            let reached = |node: &&NodeId| parts.part(place(node)) == parts.part(tree.root_switch)
                && !standing.dead_switches[place(node).0 as usize];
            prop_assert_eq!(&alive, &group.members().iter().filter(reached).copied().collect::<Vec<_>>());

            // The registers are a tree of the remaining members, and `changed` has all changes.
            let group = BarrierGroup::new(&now, group.id(), alive.clone()).expect("the root has members");
            let after = standing.tree();
            let shape = check(&now, &group, &after, Rules::Sound).map_err(|broken| broken.to_string());
            prop_assert_eq!(shape.as_ref().map(|shape| shape.height), Ok(repair.height));
            let counted = standing.plan();
            let of = |shape: crate::check::TreeShape| (shape.height, shape.edges, shape.leaves);
            prop_assert_eq!(shape.map(of), Ok((counted.height, counted.edges, counted.leaves)));
            for (switch, register) in repair.changed {
                prop_assert_ne!(tree.registers.get(&switch), register.as_ref(), "it is as it was");
                match register {
                    Some(register) => tree.registers.insert(switch, register),
                    None => tree.registers.remove(&switch),
                };
            }
            prop_assert_eq!(&tree, &after);

            // A switch that was not cut off has kept its parent; a switch that was cut off is as near to the
            // root as possible.
            let is = parents(&network, &after);
            for (&switch, &up) in &is {
                let Some(&before) = was.get(&switch) else { continue };
                let mut way = vec![switch];
                while let Some(&up) = was.get(way.last().expect("it begins with the switch")) {
                    way.push(up);
                }
                let cut = match failure {
                    NetworkFailure::Switch(dead) => way.contains(&dead.0),
                    NetworkFailure::Link(link) => way.windows(2).any(|pair| {
                        let SwitchLink { a, b } = network.links()[link as usize];
                        (a.switch.0, b.switch.0) == (pair[0], pair[1]) || (b.switch.0, a.switch.0) == (pair[0], pair[1])
                    }),
                };
                if !cut {
                    prop_assert_eq!(up, before);
                    continue;
                }
                for near in now.neighbours(SwitchId(switch)) {
                    if after.registers.contains_key(&near.switch) {
                        prop_assert!(depth(&is, switch) <= depth(&is, near.switch.0) + 1);
                    }
                }
            }
        }
    }
}

#[test]
fn a_ring_that_breaks_goes_on_as_a_path() {
    let network = with_nodes(&ring(8));
    let group = everybody(&network);
    let tree = planned(&network, &group);
    let mut standing = StandingTree::new(&network, &group, &tree).expect("the tree fits");
    let repair = standing.fail(NetworkFailure::Link(0)).expect("the root lives"); // between 0, the root, and 1
    assert_eq!((repair.height, repair.moved, repair.cut_off.len()), (7, 4, 0));
    let second = standing.fail(NetworkFailure::Switch(SwitchId(6))).expect("the root lives");
    assert_eq!(second.cut_off, [1, 2, 3, 4, 5, 6].map(NodeId));
    assert_eq!(second.height, 1);
}

#[test]
fn a_parallel_link_takes_over_and_no_depth_changes() {
    let network = network(2, &[(0, 1), (0, 1)], &[0, 1]);
    let group = everybody(&network);
    let tree = planned(&network, &group);
    let mut standing = StandingTree::new(&network, &group, &tree).expect("the tree fits");
    let repair = standing.fail(NetworkFailure::Link(0)).expect("the root lives");
    assert_eq!((repair.moved, repair.height), (1, 1));
    assert_eq!(standing.tree().registers[&SwitchId(1)].parent, Some(Port(1)));
}

#[test]
fn a_link_outside_the_tree_changes_nothing() {
    let network = network(3, &[(0, 1), (0, 2), (1, 2)], &[0, 1, 2]);
    let group = everybody(&network);
    let tree = planned(&network, &group);
    let mut standing = StandingTree::new(&network, &group, &tree).expect("the tree fits");
    let repair = standing.fail(NetworkFailure::Link(2)).expect("the root lives");
    assert_eq!((repair.changed.len(), repair.moved), (0, 0));
    assert_eq!(standing.tree(), tree);
}

#[test]
fn when_the_root_dies_the_error_says_so_and_a_plan_without_it_works() {
    let network = network(3, &[(0, 1), (0, 2), (1, 2)], &[0, 1, 2]);
    let group = everybody(&network);
    let mut standing =
        StandingTree::new(&network, &group, &planned(&network, &group)).expect("the tree fits");
    let error = standing.fail(NetworkFailure::Switch(SwitchId(0))).expect_err("it is the root");
    assert_eq!(
        error.to_string(),
        "switch 0 is the root of the tree: a tree cannot be repaired without its root; plan anew without it"
    );
    assert_eq!(standing.fail(NetworkFailure::Link(0)), Err(RepairError::NoTree { root: 0 }));
    let rest = standing.network();
    let group = BarrierGroup::new(&rest, GroupId(0), vec![NodeId(1), NodeId(2)]).expect("both exist");
    assert_eq!(planned(&rest, &group).root_switch, SwitchId(1));
}
