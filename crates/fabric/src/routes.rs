//! Shortest ways for messages between nodes: for each pair of switches the first port to take.
//!
//! The software barriers that ours is compared with get the shortest ways there are, and switches that
//! forward as fast as they combine. (Whole packets are stored, never spread over several links, so that no
//! rule about turns is needed here.) Cost: a breadth-first search a switch.

use std::collections::VecDeque;
use unisono_btin::{Network, Port, SwitchId};

/// The first port from each switch towards `target`; none where there is no way, or at the target.
#[must_use]
pub(crate) fn towards(network: &Network, target: SwitchId) -> Vec<Option<Port>> {
    let mut first: Vec<Option<Port>> = vec![None; network.switch_count()];
    let mut queue = VecDeque::from([target]);
    while let Some(here) = queue.pop_front() {
        for neighbour in network.neighbours(here) {
            let way = &mut first[neighbour.switch.0 as usize];
            if way.is_none() && neighbour.switch != target {
                *way = Some(neighbour.far);
                queue.push_back(neighbour.switch);
            }
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_btin::{End, Link};

    #[test]
    fn following_the_ports_leads_to_the_target_by_as_few_links_as_there_are() {
        // a ring of five: the way is never longer than two
        let end = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
        let links = (0..5).map(|at| Link { a: end(at, 0), b: end((at + 1) % 5, 1) }).collect();
        let network = Network::new(vec![2; 5], links, vec![]).expect("it is sound");
        for target in network.switches() {
            let first = towards(&network, target);
            assert_eq!(first[target.0 as usize], None);
            for start in network.switches() {
                let (mut here, mut hops) = (start, 0);
                while let Some(port) = first[here.0 as usize] {
                    let next = network.neighbours(here).iter().find(|seen| seen.port == port);
                    here = next.expect("the port has a link").switch;
                    hops += 1;
                    assert!(hops <= 2, "{start:?} to {target:?}");
                }
                assert_eq!(here, target);
            }
        }
    }
}
