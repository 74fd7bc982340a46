//! Simulations with loss, repetition and reordering: no member is released early, and every barrier ends.

use super::tests::{group, network, planned};
use super::*;
use crate::{End, ReductionOperator, SwitchId};
use proptest::prelude::*;
use std::fmt::Write;

fn faulty(loss: f64, duplicate: f64, jitter_us: u64, seed: u64) -> Conditions {
    let faults = Faults { loss, duplicate, jitter: SimulatedTime::microseconds(jitter_us), failing: vec![] };
    Conditions { faults, seed, attempts: 10_000, ..Conditions::default() }
}

proptest! {
    #[test]
    fn under_loss_duplication_and_reordering_nobody_is_released_before_all_have_arrived(
        (seed, members) in (0..1_000_u64, 1..40_usize),
        (loss, duplicate, jitter) in (0.0..0.3, 0.0..0.3, 0..20_u64),
        (arrivals, episodes) in (0..30_u64, 1..6_u16),
        contended: bool,
    ) {
        let network = network(12, 16, 40, 8, seed);
        let group = group(&network, members, 7, seed);
        let plan = planned(&network, &group);
        let conditions = Conditions {
            arrivals: SimulatedTime::microseconds(arrivals),
            episodes,
            channels: if contended { Channels::Contended } else { Channels::Free },
            ..faulty(loss, duplicate, jitter, seed)
        };
        let simulator = Simulator::new(&network);
        for scheme in Scheme::ALL {
            let run = simulator.run(&[SimulatedBarrier::planned(&group, &plan)], scheme, &conditions);
            let course = &run.courses[0];
            prop_assert!(course.is_complete(), "{scheme:?} left {:?} waiting", course.unreleased);
            for episode in course.episode_times() {
                prop_assert_eq!((episode.arrived, episode.released), (members, members));
                prop_assert!(episode.first_release >= episode.last_arrival, "{:?}: {:?}", scheme, episode);
            }
        }
    }

    #[test]
    fn an_allreduce_counts_everybody_once_whatever_the_network_repeats(
        (seed, members) in (0..1_000_u64, 1..40_usize),
        (loss, duplicate, jitter) in (0.0..0.2, 0.0..0.5, 0..20_u64),
    ) {
        let network = network(12, 16, 40, 8, seed);
        let group = group(&network, members, 7, seed);
        let plan = planned(&network, &group);
        let conditions = Conditions { episodes: 3, ..faulty(loss, duplicate, jitter, seed) };
        let data = |node: crate::NodeId, episode: u16| ((node.0 * 7 + u32::from(episode) * 3) % 5) as u8;
        for operation in ReductionOperator::ALL {
            for scheme in [Scheme::Btin, Scheme::BtinTurn] {
                let one = SimulatedBarrier {
                    operation, data: &data, ..SimulatedBarrier::planned(&group, &plan)
                };
                let run = Simulator::new(&network).run(&[one], scheme, &conditions);
                for (number, episode) in (0..).zip(run.courses[0].episode_times()) {
                    let direct = group.members().iter().map(|node| data(*node, number));
                    let direct = direct.reduce(|a, b| operation.combine(a, b));
                    prop_assert_eq!(episode.result, direct, "{:?} {:?}", operation, scheme);
                }
            }
        }
    }
}

#[test]
fn a_failed_link_ends_in_names_of_those_who_wait_and_of_whom_they_wait_for() {
    let network = network(12, 16, 40, 8, 4);
    let group = group(&network, 40, 0, 4);
    let plan = planned(&network, &group);
    let (parent, register) = plan
        .tree
        .registers
        .iter()
        .find(|(_, register)| !register.children.is_empty())
        .expect("not all are leaves");
    let port = register.children[0];
    let cut = network.neighbour_at(*parent, port).expect("it leads to a child");
    let mut conditions = Conditions { attempts: 5, ..Conditions::default() };
    conditions.faults.failing = vec![(cut.link, SimulatedTime::ZERO)];
    for scheme in [Scheme::Btin, Scheme::BtinTurn] {
        let run =
            Simulator::new(&network).run(&[SimulatedBarrier::planned(&group, &plan)], scheme, &conditions);
        let course = &run.courses[0];
        assert_eq!((run.latency(), course.unreleased.len()), (None, 40), "a barrier needs everybody");
        assert!(course.missing.contains(&End { switch: *parent, port }), "{:?}", course.missing);
        // below the failed link, switches wait for the release; above it, they wait for an arrival
        for end in &course.missing {
            let is_above = is_above(&plan.tree, &network, *parent, end.switch);
            assert!(is_above || Some(end.port) == plan.tree.registers[&end.switch].parent, "{end:?}");
        }
    }
    conditions.faults.failing = vec![(cut.link, SimulatedTime::microseconds(1_000_000))];
    let late =
        Simulator::new(&network).run(&[SimulatedBarrier::planned(&group, &plan)], Scheme::Btin, &conditions);
    assert!(late.courses[0].is_complete(), "it failed when all was over");
}

/// Returns whether `switch` is `from` or on the way from there to the root.
fn is_above(tree: &crate::Tree, network: &SwitchNetwork, mut from: SwitchId, switch: SwitchId) -> bool {
    loop {
        if from == switch {
            return true;
        }
        if from == tree.root_switch {
            return false;
        }
        let parent = tree.registers[&from].parent.expect("it is not the root");
        from = network.neighbour_at(from, parent).expect("it leads to the parent").switch;
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_this_is_it() {
    let network = network(30, 40, 80, 8, 11);
    let group = group(&network, 64, 3, 11);
    let plan = planned(&network, &group);
    let conditions =
        Conditions { arrivals: SimulatedTime::microseconds(5), episodes: 4, ..faulty(0.02, 0.02, 1, 42) };
    let mut text = String::new();
    for scheme in Scheme::ALL {
        let run =
            || Simulator::new(&network).run(&[SimulatedBarrier::planned(&group, &plan)], scheme, &conditions);
        let once = run();
        assert_eq!(once, run());
        let course = &once.courses[0];
        let latency = once.latency().map_or(0, SimulatedTime::as_picoseconds);
        let (hops, messages) = (once.hops, once.messages);
        let (lost, again, repeated) = (once.lost, once.duplicated, course.repetitions);
        writeln!(
            text,
            "{}: {latency} ps, {hops} hops, {messages} messages, {lost} lost, {again} doubled, {repeated} repeated",
            scheme.name(),
        )
        .expect("a string takes everything");
    }
    insta::assert_snapshot!(text);
}
