//! Other collective operations by barrier registers, for `unisono tree simulate --collectives`.
//!
//! A register combines six bits on the way up and replicates six bits on the way down. That is enough for
//!
//! - **allreduce** (OR, AND, min, max, sum): a barrier that carries data, at the cost of a barrier;
//! - **multicast**: an allreduce by OR in which all members but the source contribute zero; it is also a
//!   barrier;
//! - **total exchange**: a multicast from each member in turn, n barriers one after the other. One register
//!   holds one message, so these barriers cannot overlap.
//!
//! Cost: one barrier, or n barriers for a total exchange. When not to use it: for a total exchange among more
//! than a few members. With direct messages between all pairs, each node starts up n - 1 messages, and all
//! nodes do so at the same time; the n barriers run one after the other. With the paper's costs, n - 1
//! start-ups take 2 us each, and n barriers take 6 to 12 us each. [`direct_exchange`] computes the time with
//! direct messages.
//!
//! Reference: paper, section 6 names multicast and total exchange as future work.

use crate::simulate::{Conditions, Scheme, Simulated, SimulatedBarrier, SimulatedTime, Simulator};
use crate::{NodeId, ReductionOperator};

#[derive(Clone, PartialEq, Debug)]
pub struct Collective {
    /// The value that every member received, one for each round. `None`: members received different values.
    pub results: Vec<Option<u8>>,
    /// The time from the last arrival at the first round to the last release from the last round.
    pub latency: Option<SimulatedTime>,
    pub simulated: Simulated,
}

/// Combines one value of six bits from each member; every member receives the result.
pub fn allreduce(
    simulator: &Simulator<'_>,
    barrier: &SimulatedBarrier<'_>,
    (operation, values): (ReductionOperator, &dyn Fn(NodeId) -> u8),
    scheme: Scheme,
    conditions: &Conditions,
) -> Collective {
    rounds(simulator, barrier, (operation, &|node, _| values(node)), scheme, conditions, 1)
}

/// Sends a value of six bits from one member to all others.
pub fn multicast(
    simulator: &Simulator<'_>,
    barrier: &SimulatedBarrier<'_>,
    (source, value): (NodeId, u8),
    scheme: Scheme,
    conditions: &Conditions,
) -> Collective {
    let brings = |node, _| if node == source { value } else { 0 };
    rounds(simulator, barrier, (ReductionOperator::Or, &brings), scheme, conditions, 1)
}

/// Sends every member's value to every other member. The results are the members' values, in the order of the
/// group.
///
/// # Panics
/// For a group of more than 65,535 members.
pub fn total_exchange(
    simulator: &Simulator<'_>,
    barrier: &SimulatedBarrier<'_>,
    values: &dyn Fn(NodeId) -> u8,
    scheme: Scheme,
    conditions: &Conditions,
) -> Collective {
    let members = barrier.group.members();
    let n = u16::try_from(members.len()).expect("a group of at most 65,535 because episodes have 16 bits");
    let brings = |node, round: u16| if members[usize::from(round)] == node { values(node) } else { 0 };
    rounds(simulator, barrier, (ReductionOperator::Or, &brings), scheme, conditions, n)
}

fn rounds(
    simulator: &Simulator<'_>,
    barrier: &SimulatedBarrier<'_>,
    (operation, data): (ReductionOperator, &dyn Fn(NodeId, u16) -> u8),
    scheme: Scheme,
    conditions: &Conditions,
    rounds: u16,
) -> Collective {
    let conditions = Conditions { episodes: rounds, ..conditions.clone() };
    let one = SimulatedBarrier { operation, data, ..*barrier };
    let simulated = simulator.run(&[one], scheme, &conditions);
    let course = &simulated.courses[0];
    let latency = match course.episode_times() {
        [first, .., last] if course.is_complete() => Some(last.last_release.since(first.last_arrival)),
        _ => course.latency(),
    };
    Collective {
        results: course.episode_times().iter().map(|round| round.result).collect(),
        latency,
        simulated,
    }
}

/// Computes the time of a total exchange by direct messages: every node starts up n - 1 messages one after
/// the other, each to the next member in turn, and receives one message in t_r + t_p. No message waits on its
/// way.
pub fn direct_exchange(
    simulator: &Simulator<'_>,
    barrier: &SimulatedBarrier<'_>,
    conditions: &Conditions,
) -> SimulatedTime {
    let costs = &conditions.costs;
    let members = barrier.group.members();
    let n = members.len();
    let distances = simulator.distances(barrier, conditions);
    let intake = costs.switch + costs.propagation;
    let mut last = SimulatedTime::ZERO;
    for receiver in 0..n {
        let mut arrivals: Vec<SimulatedTime> = (1..n)
            .map(|turn| {
                let sender = (receiver + n - turn) % n;
                // the cost of a message includes the first start-up
                costs.startup * (turn as u64 - 1) + costs.message(distances[sender * n + receiver])
            })
            .collect();
        arrivals.sort_unstable();
        let done = arrivals.into_iter().fold(SimulatedTime::ZERO, |busy, at| at.max(busy + intake));
        last = last.max(done);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{NetworkOptions, generate};
    use crate::{PlanOptions, plan};

    /// Runs a check on each of several random groups, with both turn points.
    fn for_random_groups(members: u32, check: impl Fn(&Simulator<'_>, &SimulatedBarrier<'_>, Scheme)) {
        for seed in 0..8 {
            let options =
                NetworkOptions { switches: 20, nodes: 60, members, seed, ..NetworkOptions::default() };
            let topology = generate(&options).expect("there is such a network");
            let group = &topology.groups[0];
            let planned = plan(&topology.network, group, &PlanOptions::default()).expect("connected");
            let barrier = SimulatedBarrier::planned(group, &planned);
            for scheme in [Scheme::Btin, Scheme::BtinTurn] {
                check(&Simulator::new(&topology.network), &barrier, scheme);
            }
        }
    }

    fn value(node: NodeId) -> u8 {
        (node.0 * 37 % 64) as u8
    }

    #[test]
    fn an_allreduce_is_what_a_direct_computation_says_in_the_time_of_a_barrier() {
        for_random_groups(25, |simulator, barrier, scheme| {
            let conditions = Conditions::default();
            let plain = simulator.run(std::slice::from_ref(barrier), scheme, &conditions).latency();
            for operation in ReductionOperator::ALL {
                let run = allreduce(simulator, barrier, (operation, &value), scheme, &conditions);
                let direct = barrier.group.members().iter().map(|node| value(*node));
                assert_eq!(run.results, [direct.reduce(|a, b| operation.combine(a, b))], "{operation:?}");
                assert_eq!(run.latency, plain);
            }
        });
    }

    #[test]
    fn a_multicast_tells_everybody_the_source_s_value() {
        for_random_groups(25, |simulator, barrier, scheme| {
            for source in [0, 12, 24].map(|at| barrier.group.members()[at]) {
                let run = multicast(simulator, barrier, (source, 42), scheme, &Conditions::default());
                assert_eq!(run.results, [Some(42)]);
            }
        });
    }

    #[test]
    fn a_total_exchange_tells_everybody_everything_and_takes_a_barrier_a_member() {
        for_random_groups(25, |simulator, barrier, scheme| {
            let conditions = Conditions::default();
            let run = total_exchange(simulator, barrier, &value, scheme, &conditions);
            let direct: Vec<_> = barrier.group.members().iter().map(|node| Some(value(*node))).collect();
            assert_eq!(run.results, direct);
            let one = simulator.run(std::slice::from_ref(barrier), scheme, &conditions).latency();
            let (all, one) = (run.latency.expect("it ends"), one.expect("it ends"));
            assert!(all <= one * 25 && all >= one * 12, "{all:?} for 25 rounds of {one:?}");
            assert!(
                all > direct_exchange(simulator, barrier, &conditions),
                "messages overlap, barriers do not"
            );
        });
    }

    #[test]
    fn a_direct_exchange_between_two_is_one_message() {
        for_random_groups(2, |simulator, barrier, _| {
            let conditions = Conditions::default();
            let distances = simulator.distances(barrier, &conditions);
            assert_eq!(
                direct_exchange(simulator, barrier, &conditions),
                conditions.costs.message(distances[1])
            );
        });
    }
}
