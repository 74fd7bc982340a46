//! Compares routes with an independent judge and an exhaustive search; tests the paper's three cases with the
//! search for cycles.

use super::dependencies::{Dependencies, Resource, Storage};
use super::legal::{Illegal, RouteJudge};
use super::*;
use crate::generate::{NetworkOptions, Sparse, generate};
use crate::{BarrierGroup, End, GroupId, NetworkFile, NodeId, PlanOptions, Port, plan};
use proptest::prelude::*;

fn drawn(switches: u32, connectivity: f64, seed: u64) -> NetworkFile {
    let options = NetworkOptions {
        switches,
        ports: 6,
        nodes: 2 * switches,
        members: switches.min(20),
        connectivity,
        seed,
        ..NetworkOptions::default()
    };
    generate(&NetworkOptions { sparse: Sparse::BareTree, ..options }).expect("it fits")
}

/// Makes three switches in a ring. Each has a node at port 2.
fn ring() -> SwitchNetwork {
    let end = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
    let links = (0..3).map(|here| SwitchLink { a: end(here, 0), b: end((here + 1) % 3, 1) }).collect();
    SwitchNetwork::new(vec![3; 3], links, (0..3).map(|here| end(here, 2)).collect()).expect("it is sound")
}

/// Finds the length of the shortest legal route by an exhaustive search.
fn shortest(network: &SwitchNetwork, directions: &UpDown, from: SwitchId, to: SwitchId) -> Option<usize> {
    let mut places = std::collections::BTreeSet::from([(from, false)]);
    for length in 0..=2 * network.switch_count() {
        if places.iter().any(|(here, _)| *here == to) {
            return Some(length);
        }
        let mut next = places.clone();
        for (here, turned) in &places {
            for seen in network.neighbours(*here).iter().filter(|seen| seen.switch != *here) {
                let down =
                    directions.direction(network, channel(network, seen.link, *here)) == Direction::Down;
                if down || !turned {
                    next.insert((seen.switch, down));
                }
            }
        }
        places = next;
    }
    None
}

proptest! {
    #[test]
    fn every_route_is_legal_and_as_short_as_any_legal_route(
        switches in 1..25_u32, connectivity in 0.4..1.0_f64, seed: u64, root: prop::sample::Index,
    ) {
        let network = drawn(switches, connectivity, seed).network;
        let root = SwitchId(u32::try_from(root.index(switches as usize)).expect("it is small"));
        let directions = UpDown::new(&network, root);
        let judge = RouteJudge::new(&network, root);
        for from in network.switches() {
            let routes = directions.routes(&network, from);
            for to in network.switches() {
                let route = routes.to(&network, to).expect("it is connected");
                prop_assert_eq!(judge.check(from, to, &route), Ok(()));
                prop_assert_eq!(Some(route.len()), shortest(&network, &directions, from, to));
            }
            // following parents in the spanning tree leads up to the root
            let mut here = from;
            while let Some(up) = directions.parent(here) {
                prop_assert_eq!(directions.direction(&network, up), Direction::Up);
                here = up.ends(&network).1;
            }
            prop_assert_eq!(here, root);
        }
    }

    #[test]
    fn one_barrier_several_and_several_among_normal_messages_cannot_deadlock(
        switches in 2..25_u32, connectivity in 0.4..1.0_f64, seed: u64, groups in 1..5_u8,
    ) {
        let topology = drawn(switches, connectivity, seed);
        let network = &topology.network;
        let mut all = Dependencies::new();
        for id in 0..groups {
            // the groups differ in their members, and so in their roots
            let nodes = u32::try_from(network.nodes().len()).expect("it is small");
            let members = (0..nodes).filter(|node| node % (u32::from(id) + 2) == u32::from(id) % 2).map(NodeId).collect();
            let group = BarrierGroup::new(network, GroupId(id), members).expect("they exist");
            let tree = plan(network, &group, &PlanOptions::default()).expect("it is connected").tree;
            let mut one = Dependencies::new();
            one.barrier(network, &tree, Storage::Register);
            prop_assert_eq!(one.cycle(), None);
            all.barrier(network, &tree, Storage::Register);
        }
        prop_assert_eq!(all.cycle(), None);
        let directions = UpDown::new(network, SwitchId(u32::try_from(seed % u64::from(switches)).expect("it is small")));
        all.normal_messages(network, &directions);
        prop_assert_eq!(all.cycle(), None);
    }
}

#[test]
fn without_the_rule_normal_messages_in_a_ring_wait_in_a_circle() {
    let network = ring();
    let mut any_turn = Dependencies::new();
    any_turn.turns(&network, |_, _| true);
    assert_eq!(any_turn.cycle().map(|cycle| cycle.len()), Some(3));
    let mut ruled = Dependencies::new();
    ruled.normal_messages(&network, &UpDown::new(&network, SwitchId(0)));
    assert!(!ruled.is_empty() && ruled.len() < any_turn.len());
    assert_eq!(ruled.cycle(), None);
}

#[test]
fn without_room_in_the_switches_three_barriers_in_a_ring_wait_in_a_circle() {
    use crate::{Register, Tree};
    // each tree is a path around the ring with its own root: arrivals come in at port 1 and leave by port 0
    let network = ring();
    let register = |parent, children: &[u16]| Register {
        parent: Some(Port(parent)),
        children: children.iter().copied().map(Port).collect(),
        locals: if parent == 2 { vec![] } else { vec![Port(2)] },
    };
    let mut stored = Dependencies::new();
    let mut blocked = Dependencies::new();
    for root in 0..3 {
        let at = |steps: u32| SwitchId((root + 3 - steps) % 3);
        let registers = [(at(0), register(2, &[1])), (at(1), register(0, &[1])), (at(2), register(0, &[]))];
        let group = GroupId(u8::try_from(root).expect("three"));
        let registers = registers.into_iter().collect();
        let tree = Tree { group, root_switch: at(0), root_node: Some(NodeId(root)), registers };
        let members = BarrierGroup::new(&network, group, (0..3).map(NodeId).collect()).expect("they exist");
        let checked = crate::check::check(&network, &members, &tree, crate::check::Rules::Sound);
        assert!(checked.is_ok(), "{checked:?}");
        stored.barrier(&network, &tree, Storage::Register);
        blocked.barrier(&network, &tree, Storage::Channel);
    }
    assert_eq!(stored.cycle(), None);
    let cycle = blocked.cycle().expect("they block each other");
    assert!(
        cycle.len() == 3 && cycle.iter().all(|one| matches!(one, Resource::Channel(_))),
        "{cycle:?}"
    );
}

#[test]
fn the_judge_names_what_is_wrong_with_a_route() {
    let network = ring();
    let s = SwitchId;
    let judge = RouteJudge::new(&network, s(0));
    let (there, back) = (LinkDirection::There, LinkDirection::Back);
    let judged = |from, to, route: &[(u32, LinkDirection)]| {
        let route: Vec<_> = route.iter().map(|&(link, way)| RoutingChannel { link, way }).collect();
        judge.check(s(from), s(to), &route)
    };
    // link 0 joins 0 and 1, link 1 joins 1 and 2, link 2 joins 2 and 0; up is towards 0, and from 2 to 1
    assert_eq!(judged(2, 1, &[(2, there), (0, there)]), Ok(()));
    assert_eq!(judged(1, 0, &[(0, back)]), Ok(()));
    let up_after_down = Illegal::UpAfterDown { step: 1, from: 2, to: 0 };
    assert_eq!(judged(1, 0, &[(1, there), (2, there)]), Err(up_after_down));
    let broken = Illegal::Broken { step: 1, begins: 1, is: 2 };
    assert_eq!(judged(1, 0, &[(1, there), (0, back)]), Err(broken));
    assert_eq!(judged(0, 2, &[(0, there)]), Err(Illegal::Elsewhere { ends: 1, to: 2 }));
    assert!(matches!(judged(0, 2, &[(3, there)]), Err(Illegal::NoSuchLink { .. })));
}

#[test]
fn there_is_no_route_to_what_is_cut_off() {
    let network = SwitchNetwork::new(vec![1; 2], vec![], vec![]).expect("it is sound");
    let directions = UpDown::new(&network, SwitchId(1));
    assert_eq!(directions.root(), SwitchId(1));
    assert_eq!(directions.routes(&network, SwitchId(0)).to(&network, SwitchId(1)), None);
    assert_eq!(directions.routes(&network, SwitchId(1)).to(&network, SwitchId(1)), Some(vec![]));
}

#[test]
fn the_proof_has_every_case_and_without_room_it_shows_the_cycle() {
    use super::proof::{ProofTraffic, judge_routes, prove};
    let topology = drawn(20, 0.8, 3);
    let network = &topology.network;
    let trees: Vec<_> = (0..3_u8)
        .map(|id| {
            let members = (0..40).filter(|node| node % 4 == u32::from(id)).map(NodeId).collect();
            let group = BarrierGroup::new(network, GroupId(id), members).expect("they exist");
            plan(network, &group, &PlanOptions::default()).expect("it is connected").tree
        })
        .collect();
    let directions = UpDown::new(network, SwitchId(0));
    let cases = prove(network, &directions, &trees, Storage::Register);
    let expected = [0, 1, 2].map(|id| ProofTraffic::Barrier(GroupId(id)));
    let expected =
        [&expected[..], &[ProofTraffic::Barriers(3), ProofTraffic::NormalMessages, ProofTraffic::Mixed(3)]]
            .concat();
    assert_eq!(cases.iter().map(|case| case.traffic).collect::<Vec<_>>(), expected);
    for (case, tree) in cases.iter().zip(&trees) {
        let registers = tree.registers.len();
        // The channels are both directions of every link of the tree. Each link gives four dependencies, and
        // the root's release waits for its arrivals.
        assert_eq!((case.channels, case.registers), (2 * (registers - 1), registers));
        assert_eq!(case.dependencies, 4 * (registers - 1) + 1);
    }
    assert!(cases.iter().all(|case| case.cycle.is_none()));
    assert_eq!(cases[5].dependencies, cases[3].dependencies + cases[4].dependencies);

    // Each resource of a cycle waits for the next by one of the dependencies, so the first channel ends at
    // the switch at which the next one starts.
    let blocked = prove(network, &directions, &trees, Storage::Channel);
    let cycle = blocked[5].cycle.as_ref().expect("trees and messages lie across each other");
    for (at, one) in cycle.iter().enumerate() {
        let (Resource::Channel(here), Resource::Channel(next)) = (one, &cycle[(at + 1) % cycle.len()]) else {
            panic!("without room nothing but channels is waited for")
        };
        assert_eq!(here.ends(network).1, next.ends(network).0);
    }

    let switches: Vec<_> = network.switches().collect();
    let (routes, crossed) = judge_routes(network, &directions, &switches).expect("they are legal");
    assert!(routes == 20 * 19 && crossed >= routes);
}

#[test]
fn following_the_ports_back_leads_to_where_the_routes_begin_by_as_few_links_as_there_are() {
    // in a ring of five switches, the greatest distance is two links
    let end = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
    let links = (0..5).map(|at| SwitchLink { a: end(at, 0), b: end((at + 1) % 5, 1) }).collect();
    let network = SwitchNetwork::new(vec![2; 5], links, vec![]).expect("it is sound");
    for target in network.switches() {
        let routes = RouteTree::shortest(&network, target);
        for start in network.switches() {
            let (mut here, mut hops) = (start, 0);
            while let Some(port) = routes.port_back(&network, here) {
                here = network.neighbour_at(here, port).expect("the port has a link").switch;
                hops += 1;
                assert!(hops <= 2, "{start:?} to {target:?}");
            }
            assert_eq!(here, target);
        }
    }
}
