//! Simulations without faults, compared with closed forms, slow counts, and the paper.

use super::*;
use crate::{
    BarrierGroup, End, GroupId, Loads, NodeId, PlanOptions, Port, Roots, SwitchId, SwitchLink, SwitchNetwork,
    TreePlan, plan,
};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

/// Makes a connected network: a random tree of switches, more links, and nodes at free ports.
pub(super) fn network(switches: u32, links: usize, nodes: usize, ports: u16, seed: u64) -> SwitchNetwork {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut free: Vec<Vec<Port>> = (0..switches).map(|_| (0..ports).map(Port).collect()).collect();
    let mut cable = |a: u32, b: u32, free: &mut Vec<Vec<Port>>| {
        let mut end = |switch: u32| {
            let ports = &mut free[switch as usize];
            let port = ports.swap_remove(random.random_range(0..ports.len()));
            End { switch: SwitchId(switch), port }
        };
        SwitchLink { a: end(a), b: end(b) }
    };
    let mut draw = Pcg64Mcg::seed_from_u64(seed ^ 1);
    let mut made = Vec::new();
    for switch in 1..switches {
        let with_room: Vec<u32> = (0..switch).filter(|other| free[*other as usize].len() > 1).collect();
        made.push(cable(with_room[draw.random_range(0..with_room.len())], switch, &mut free));
    }
    while made.len() < links {
        let (a, b) = (draw.random_range(0..switches), draw.random_range(0..switches));
        if a != b && !free[a as usize].is_empty() && !free[b as usize].is_empty() {
            made.push(cable(a, b, &mut free));
        }
    }
    let mut ends: Vec<End> = (0..switches)
        .flat_map(|s| free[s as usize].iter().map(move |port| End { switch: SwitchId(s), port: *port }))
        .collect();
    ends.shuffle(&mut draw);
    ends.truncate(nodes);
    SwitchNetwork::new(vec![ports; switches as usize], made, ends).expect("every port was taken once")
}

pub(super) fn group(network: &SwitchNetwork, members: usize, id: u8, seed: u64) -> BarrierGroup {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut nodes: Vec<NodeId> = (0..).take(network.nodes().len()).map(NodeId).collect();
    nodes.shuffle(&mut random);
    nodes.truncate(members);
    BarrierGroup::new(network, GroupId(id), nodes).expect("they are nodes")
}

pub(super) fn planned(network: &SwitchNetwork, group: &BarrierGroup) -> TreePlan {
    plan(network, group, &PlanOptions::default()).expect("the network is connected")
}

#[test]
fn a_tree_takes_exactly_what_its_height_says_and_crosses_each_edge_twice() {
    for seed in 0..30 {
        let network = network(20, 30, 60, 8, seed);
        let simulator = Simulator::new(&network);
        for members in [2, 3, 10, 60] {
            let group = group(&network, members, 0, seed);
            let plan = planned(&network, &group);
            let costs = Costs::default();
            for scheme in [Scheme::Btin, Scheme::BtinTurn] {
                let simulated = simulator.run(
                    &[SimulatedBarrier::planned(&group, &plan)],
                    scheme,
                    &Conditions::default(),
                );
                let n = members as u64;
                let expected =
                    analytic::latency(scheme, &costs, u64::from(plan.height) + 2, n, SimulatedTime::ZERO);
                let latency = simulated.latency().expect("nothing is lost");
                // in a tree of one switch, the farthest member switch is the root node's own
                assert_eq!(latency, expected, "{scheme:?} {members} members, seed {seed}");
                assert_eq!(simulated.hops, 2 * (u64::from(plan.edges) + n));
                assert_eq!(simulated.messages, n);
            }
        }
    }
}

#[test]
fn unicast_crosses_every_way_twice_and_never_beats_the_closed_form_by_more_than_the_ways_differ() {
    for seed in 0..20 {
        let network = network(20, 30, 60, 8, seed);
        let simulator = Simulator::new(&network);
        let group = group(&network, 40, 0, seed);
        let plan = planned(&network, &group);
        for routes in [Routes::UpDown, Routes::Shortest] {
            for way in Intake::ALL {
                let conditions = Conditions { routes, intake: way, ..Conditions::default() };
                let run =
                    |scheme| simulator.run(&[SimulatedBarrier::planned(&group, &plan)], scheme, &conditions);
                let root = plan.tree.root_node.expect("members are roots");
                let from = network.switch_of(root);
                let routes = routes::SwitchRoutes::new(&network, &simulator.wiring, from, routes);
                let distances: Vec<u64> = group
                    .members()
                    .iter()
                    .filter(|node| **node != root)
                    .map(|node| routes.out(network.switch_of(*node)).len() as u64 + 2)
                    .collect();
                let farthest = distances.iter().copied().max().expect("there are others");
                let unicast = run(Scheme::Unicast);
                assert_eq!(unicast.hops, 2 * distances.iter().sum::<u64>());
                assert_eq!((unicast.messages, unicast.startups), (78, 78));
                let intake = conditions.intake(&network);
                for simulated in [unicast, run(Scheme::Multicast)] {
                    let latency = simulated.latency().expect("nothing is lost");
                    let closed = analytic::latency(simulated.scheme, &conditions.costs, farthest, 40, intake);
                    let closed =
                        closed + if way == Intake::StartupEach { intake } else { SimulatedTime::ZERO };
                    let slack = conditions.costs.message(farthest) - conditions.costs.message(2);
                    assert!(latency <= closed && closed <= latency + slack * 2, "{latency:?} {closed:?}");
                }
            }
        }
    }
}

#[test]
fn ways_are_legal_and_as_short_as_a_slow_search_finds_them() {
    for seed in 0..20 {
        let network = network(12, 20, 20, 6, seed);
        let wiring = wiring::Wiring::new(&network);
        let depth = slow_distances(&network, SwitchId(0));
        let rank = |switch: SwitchId| (depth[switch.0 as usize], switch.0);
        for root in network.switches() {
            let shortest = slow_distances(&network, root);
            let free = routes::SwitchRoutes::new(&network, &wiring, root, Routes::Shortest);
            let legal = routes::SwitchRoutes::new(&network, &wiring, root, Routes::UpDown);
            for switch in network.switches() {
                assert_eq!(free.out(switch).len() as u32, shortest[switch.0 as usize]);
                assert!(legal.out(switch).len() >= free.out(switch).len());
                let mut at = root;
                let mut has_gone_down = false;
                for channel in legal.out(switch) {
                    let wiring::PortPeer::Switch(end) = wiring.far(*channel) else {
                        panic!("a way leaves the switches")
                    };
                    let goes_up = rank(end.switch) < rank(at);
                    assert!(!(goes_up && has_gone_down), "up after down");
                    has_gone_down |= !goes_up;
                    at = end.switch;
                }
                assert_eq!(at, switch);
                assert_eq!(legal.back(switch).len(), legal.out(switch).len());
            }
        }
    }
}

fn slow_distances(network: &SwitchNetwork, from: SwitchId) -> Vec<u32> {
    let mut distance = vec![u32::MAX; network.switch_count()];
    distance[from.0 as usize] = 0;
    for _ in network.switches() {
        for link in network.links() {
            for (a, b) in [(link.a, link.b), (link.b, link.a)] {
                let next = distance[a.switch.0 as usize].saturating_add(1);
                let known = &mut distance[b.switch.0 as usize];
                *known = next.min(*known);
            }
        }
    }
    distance
}

#[test]
fn a_multicast_crosses_each_cable_of_its_tree_once() {
    let network = network(20, 30, 60, 8, 3);
    let group = group(&network, 50, 0, 3);
    let plan = planned(&network, &group);
    let run = |scheme| {
        Simulator::new(&network).run(
            &[SimulatedBarrier::planned(&group, &plan)],
            scheme,
            &Conditions::default(),
        )
    };
    let (unicast, multicast) = (run(Scheme::Unicast), run(Scheme::Multicast));
    let down = multicast.hops - unicast.hops / 2;
    let limit = network.links().len() as u64 + 50;
    assert!((50..=limit).contains(&down), "{down} crossings of the distribution");
    assert_eq!(multicast.messages, 50);
}

#[test]
fn one_member_waits_for_nobody() {
    let network = network(5, 6, 10, 6, 1);
    let group = group(&network, 1, 0, 1);
    let plan = planned(&network, &group);
    for scheme in Scheme::ALL {
        let simulator = Simulator::new(&network);
        let simulated =
            simulator.run(&[SimulatedBarrier::planned(&group, &plan)], scheme, &Conditions::default());
        assert_eq!(simulated.latency(), Some(SimulatedTime::ZERO), "{scheme:?}");
        assert_eq!((simulated.hops, simulated.messages, simulated.startups), (0, 0, 0), "{scheme:?}");
        let on_paper =
            simulator.analytic(&SimulatedBarrier::planned(&group, &plan), scheme, &Conditions::default());
        assert_eq!(on_paper, SimulatedTime::ZERO, "{scheme:?}");
    }
}

#[test]
fn contention_never_makes_a_barrier_faster_and_groups_get_in_each_others_way() {
    let network = network(20, 24, 60, 8, 5);
    let simulator = Simulator::new(&network);
    let groups: Vec<BarrierGroup> = (0..20).map(|id| group(&network, 30, id, u64::from(id))).collect();
    let plans: Vec<TreePlan> = groups.iter().map(|group| planned(&network, group)).collect();
    let barriers: Vec<SimulatedBarrier> =
        groups.iter().zip(&plans).map(|(g, p)| SimulatedBarrier::planned(g, p)).collect();
    // start-ups wait for each other as well; with a start-up time of zero, messages wait for cables only
    let costs = Costs { startup: SimulatedTime::ZERO, ..Costs::default() };
    let free = Conditions { costs, intake: Intake::OnePort, ..Conditions::default() };
    let contended = Conditions { channels: Channels::Contended, ..free.clone() };
    for scheme in Scheme::ALL {
        let alone = simulator.run(&barriers, scheme, &free);
        let together = simulator.run(&barriers, scheme, &contended);
        for (alone, together) in alone.courses.iter().zip(&together.courses) {
            assert!(alone.latency() <= together.latency(), "{scheme:?}");
        }
        assert!(alone.latency() < together.latency(), "{scheme:?}: 20 groups have to wait somewhere");
        assert_eq!((alone.hops, alone.messages), (together.hops, together.messages));
    }
}

#[test]
fn a_register_in_a_nodes_memory_costs_a_visit_there_on_the_way_up_and_down() {
    let network = network(20, 30, 60, 8, 2);
    let group = group(&network, 60, 0, 2);
    let plan = planned(&network, &group);
    let root = plan.tree.root_switch;
    let in_memory = BTreeMap::from([(root, plan.tree.root_node.expect("a member is the root"))]);
    let run = |barrier: &SimulatedBarrier| {
        Simulator::new(&network).run(std::slice::from_ref(barrier), Scheme::Btin, &Conditions::default())
    };
    let plain = run(&SimulatedBarrier::planned(&group, &plan)).latency().expect("complete");
    let kept = run(&SimulatedBarrier { in_memory: &in_memory, ..SimulatedBarrier::planned(&group, &plan) })
        .latency()
        .expect("complete");
    let visit = SimulatedTime::nanoseconds(2_000 + 2 * 20 + 3 * 300); // `plain` includes the switch's own delay
    assert_eq!(kept, plain + visit * 2);
}

#[test]
fn trees_that_share_links_load_the_busiest_link_less_than_the_papers_on_average_and_take_no_longer() {
    let (mut shared_most, mut paper_most) = (0, 0);
    for seed in 0..12 {
        let network = network(24, 60, 80, 12, seed);
        let groups: Vec<BarrierGroup> =
            (0..30).map(|id| group(&network, 12, id, seed ^ u64::from(id) << 8)).collect();
        let options = PlanOptions::default();
        let (mut shared, mut paper) = (Loads::new(&network), Loads::new(&network));
        let by_load: Vec<TreePlan> = groups
            .iter()
            .map(|group| shared.plan(&network, group, &options).expect("the network is connected"))
            .collect();
        let by_paper: Vec<TreePlan> = groups.iter().map(|group| planned(&network, group)).collect();
        by_paper.iter().for_each(|plan| paper.add(&network, &plan.tree));
        let simulate = |plans: &[TreePlan]| {
            let barriers: Vec<SimulatedBarrier> =
                groups.iter().zip(plans).map(|(g, p)| SimulatedBarrier::planned(g, p)).collect();
            Simulator::new(&network).run(&barriers, Scheme::Btin, &Conditions::default())
        };
        let (ours, theirs) = (simulate(&by_load), simulate(&by_paper));
        // each link's load in the planner is the simulator's count in each direction of the link
        for (simulated, counted) in [(&ours, &shared), (&theirs, &paper)] {
            let counted: Vec<_> = counted.links().iter().map(|load| (*load, *load)).collect();
            assert_eq!(simulated.links, counted, "seed {seed}");
        }
        assert_eq!(ours.latency(), theirs.latency(), "same heights, seed {seed}");
        let busiest = |simulated: &Simulated| simulated.links.iter().map(|(up, _)| *up).max().unwrap_or(0);
        // the planner chooses parents greedily, from the leaves up, so the busiest link sometimes carries one
        // barrier more
        assert!(
            busiest(&ours) <= busiest(&theirs) + 1,
            "seed {seed}: {} against {}",
            busiest(&ours),
            busiest(&theirs)
        );
        shared_most += busiest(&ours);
        paper_most += busiest(&theirs);
    }
    assert!(shared_most * 20 < paper_most * 19, "{shared_most} against {paper_most} in 12 networks");
}

#[test]
fn a_root_without_members_turns_messages_around_whatever_the_scheme_is_called() {
    let ports = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
    let links =
        vec![SwitchLink { a: ports(0, 0), b: ports(1, 0) }, SwitchLink { a: ports(0, 1), b: ports(2, 0) }];
    let network = SwitchNetwork::new(vec![4; 3], links, vec![ports(1, 1), ports(2, 1)]).expect("it is sound");
    let group = BarrierGroup::new(&network, GroupId(0), vec![NodeId(0), NodeId(1)]).expect("they are nodes");
    let options = PlanOptions { roots: Roots::Any, ..PlanOptions::default() };
    let plan = plan(&network, &group, &options).expect("connected");
    assert_eq!((plan.tree.root_switch, plan.tree.root_node), (SwitchId(0), None));
    let (simulator, conditions) = (Simulator::new(&network), Conditions::default());
    for scheme in [Scheme::Btin, Scheme::BtinTurn] {
        let simulated = simulator.run(&[SimulatedBarrier::planned(&group, &plan)], scheme, &conditions);
        let on_paper = simulator.analytic(&SimulatedBarrier::planned(&group, &plan), scheme, &conditions);
        assert_eq!((simulated.latency(), simulated.startups), (Some(on_paper), 1), "{scheme:?}");
    }
}

#[test]
fn a_single_member_is_planned_checked_and_released_by_its_switch_or_by_itself() {
    let conditions = Conditions { episodes: 3, ..Conditions::default() };
    for seed in 0..20 {
        let network = network(12, 16, 40, 8, seed);
        let simulator = Simulator::new(&network);
        let group = group(&network, 1, 0, seed);
        let plan = planned(&network, &group);
        let rules = crate::check::Rules::Optimal;
        let shape = crate::check::check(&network, &group, &plan.tree, rules).expect("one register is a tree");
        assert_eq!((shape.height, shape.edges, plan.tree.registers.len()), (0, 0, 1));
        for scheme in Scheme::ALL {
            let simulated = simulator.run(&[SimulatedBarrier::planned(&group, &plan)], scheme, &conditions);
            let on_paper = simulator.analytic(&SimulatedBarrier::planned(&group, &plan), scheme, &conditions);
            assert_eq!(simulated.latency(), Some(on_paper), "{scheme:?}, seed {seed}");
        }
        // every barrier has to end even if messages get lost
        let faults = Faults { loss: 0.2, ..Faults::default() };
        let lossy = Conditions { faults, seed, ..conditions.clone() };
        for scheme in Scheme::ALL {
            let simulated = simulator.run(&[SimulatedBarrier::planned(&group, &plan)], scheme, &lossy);
            assert!(simulated.latency().is_some(), "{scheme:?}, seed {seed}");
        }
    }
}
