//! For `unisono tree plan --ties fast`: finds, in one walk over the network, the distance of each switch from
//! the furthest of up to 64 members.
//!
//! Each switch has a word of 64 bits, one bit for each member: the bit is set when that member's search has
//! reached the switch. The level in which the last bit is set is the distance to the furthest of those
//! members, and no tree around that switch is lower than this distance.
//!
//! Cost: each level visits all links of the switches that got new bits in the previous level. So each link is
//! visited about three times in a random network, and in nearly every level in a torus. When not to use it:
//! for the exact heights of many roots; [`walk`](super::walk) finds the heights of 512 roots at a time.
//!
//! Reference: Then et al., "The more the merrier: efficient multi-source graph traversal", 2014.

use super::graph::Graph;

pub(super) const TARGETS: usize = 64;

pub(super) struct Farthest {
    /// By switch: the number of links to the furthest of the members from which the walk started.
    pub(super) away: Vec<u32>,
    /// For each member from which the walk started: the height of the tree around it.
    pub(super) heights: Vec<u32>,
    pub(super) edges_visited: usize,
}

impl Farthest {
    /// Walks from these members; there must be at most [`TARGETS`].
    pub(super) fn from_members(graph: &Graph, from: &[u32], is_member: &[bool]) -> Self {
        let mut farthest =
            Self { away: vec![0; graph.len()], heights: vec![0; from.len()], edges_visited: 0 };
        let word = || vec![0_u64; graph.len()];
        let (mut seen, mut now, mut next) = (word(), word(), word());
        let (mut front, mut reached) = (Vec::new(), Vec::new());
        for (bit, &member) in from.iter().enumerate() {
            seen[member as usize] |= 1 << bit;
            now[member as usize] |= 1 << bit;
            front.push(member);
        }
        front.sort_unstable();
        front.dedup();
        for level in 1.. {
            for &switch in &front {
                let bits = std::mem::take(&mut now[switch as usize]);
                farthest.edges_visited += graph.near(switch).len();
                for &near in graph.near(switch) {
                    let new = bits & !seen[near as usize];
                    if new != 0 {
                        if next[near as usize] == 0 {
                            reached.push(near);
                        }
                        next[near as usize] |= new;
                    }
                }
            }
            if reached.is_empty() {
                break;
            }
            let mut at_members = 0;
            for &switch in &reached {
                let new = std::mem::take(&mut next[switch as usize]);
                seen[switch as usize] |= new;
                now[switch as usize] = new;
                farthest.away[switch as usize] = level;
                at_members |= if is_member[switch as usize] { new } else { 0 };
            }
            for (bit, height) in farthest.heights.iter_mut().enumerate() {
                if at_members >> bit & 1 == 1 {
                    *height = level;
                }
            }
            std::mem::swap(&mut front, &mut reached);
            reached.clear();
        }
        farthest
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemberSwitches;
    use super::super::search::Search;
    use super::super::tests::families::network_and_group;
    use super::*;
    use crate::plan::Scan;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_tells_what_a_search_from_each_of_the_members_tells((network, group) in network_and_group()) {
            let graph = Graph::new(&network);
            let MemberSwitches { switches, is_member } = MemberSwitches::new(&network, &group);
            let from = &switches[..switches.len().min(TARGETS)];
            let farthest = Farthest::from_members(&graph, from, &is_member);
            let mut search = Search::new(&graph);
            let mut away = vec![0; graph.len()];
            for (member, height) in from.iter().zip(farthest.heights) {
                search.run(&graph, *member, Scan::Queue);
                prop_assert_eq!(height, search.height(&is_member));
                (0..).zip(&mut away).for_each(|(switch, away)| *away = (*away).max(search.depth(switch)));
            }
            prop_assert_eq!(farthest.away, away);
        }
    }
}
