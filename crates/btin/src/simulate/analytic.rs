//! Closed forms of the paper: latencies without faults and contention, and the height of Theorem 1.
//!
//! With h the height of the tree, a message between the root and the farthest member crosses d = h + 2 links,
//! and so takes m = t_s + d t_p + (d + 1) t_r:
//!
//! | scheme | latency |
//! |---|---|
//! | tree, turned at the root node | 2 m |
//! | tree, turned at the root switch | t_s + D t_p + (D + 1) t_r with D = 2 h + 2: one message there and back |
//! | multicast | 2 m + (n - 2) s, with s the time that the root node needs to receive a message ([`Conditions::intake`](super::Conditions::intake)) |
//! | unicast | 2 m + (n - 2) s + (n - 2) t_s |
//!
//! In the last two rows, d is the distance of the farthest member by the routes of that scheme. Both
//! latencies are upper bounds, because the last message in line need not come from the farthest member.
//!
//! Reference: paper, sections 4.1 and 5.1. The intake is our assumption: the paper does not state it.

use super::{Costs, Scheme, SimulatedTime};
use crate::SwitchNetwork;

/// Returns the latency of a barrier of `members` members whose farthest member is `distance` links from the
/// root. `distance` includes the two links to the nodes (for trees, it is height + 2).
pub fn latency(
    scheme: Scheme,
    costs: &Costs,
    distance: u64,
    members: u64,
    intake: SimulatedTime,
) -> SimulatedTime {
    let both_ways = costs.message(distance) * 2;
    let behind_the_first = members.saturating_sub(2);
    match scheme {
        _ if members < 2 => SimulatedTime::ZERO, // a member alone waits for no message, wherever the tree turns
        Scheme::BtinTurn => costs.message(2 * distance - 2),
        Scheme::Btin => both_ways,
        Scheme::Multicast => both_ways + intake * behind_the_first,
        Scheme::Unicast => both_ways + (intake + costs.startup) * behind_the_first,
    }
}

/// Returns the average height of a tree over `of` switches by Theorem 1 (the theorem says both switches and
/// members): the logarithm of `of` to the base f k - p / q - 1, where f k - p / q is the mean number of a
/// switch's links to other switches.
///
/// Returns `None` if the base is not above 1: the theorem does not apply to networks with two links a switch
/// or fewer.
pub fn theorem_1(network: &SwitchNetwork, of: usize) -> Option<f64> {
    let switches = network.switch_count() as f64;
    let base = 2.0 * network.links().len() as f64 / switches - 1.0;
    (base > 1.0 && of > 0).then(|| (of as f64).ln() / base.ln())
}

/// Returns the link crossings of multicast and of the barrier tree, counted in the way that reproduces the
/// figures of section 5.2: multicast is charged all q - 1 links of a tree of all q switches for each of its n
/// messages, and the barrier tree is charged each of these links twice and each member once. No message takes
/// such a way, and by the paper's own definition only the links that are crossed count
/// ([`Simulated::hops`](super::Simulated::hops)).
pub fn figure_7_traffic(switches: u64, members: u64) -> (u64, u64) {
    let links = switches.saturating_sub(1);
    (members * links, 2 * links + members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_height_6_takes_what_one_works_out_by_hand() {
        let costs = Costs::default();
        let of = |scheme| latency(scheme, &costs, 8, 256, SimulatedTime::nanoseconds(320) / 3);
        assert_eq!(of(Scheme::Btin), SimulatedTime::nanoseconds(2 * (2_000 + 8 * 20 + 9 * 300)));
        assert_eq!(of(Scheme::BtinTurn), SimulatedTime::nanoseconds(2_000 + 14 * 20 + 15 * 300));
        let less = 1.0 - of(Scheme::BtinTurn).as_us() / of(Scheme::Btin).as_us();
        assert!((0.26..0.31).contains(&less), "{less}");
        let factor = of(Scheme::Multicast).as_us() / of(Scheme::Btin).as_us();
        assert!((3.7..3.9).contains(&factor), "{factor}");
    }

    #[test]
    fn traffic_counted_on_the_whole_tree_gives_the_figures_of_section_5_2() {
        // the paper states gains of 46.8 and 88.6
        for (switches, gain) in [(75, 46.9), (300, 89.6)] {
            let (multicast, tree) = figure_7_traffic(switches, 256);
            assert!((multicast as f64 / tree as f64 - gain).abs() < 0.05, "{multicast} / {tree}");
        }
    }
}
