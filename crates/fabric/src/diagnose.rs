//! Finds, from the registers, the node, cable or register that holds up a stuck barrier.
//!
//! A register shows the ports from which no arrival has been received. If a node is at such a port, that node
//! (or its cable) is the suspect. If a child switch is there and has all arrivals below it, the cable between
//! the two switches loses frames. If the child switch waits itself, the cause is further down. A switch that
//! has all arrivals while the switch above it is an episode ahead has missed its release.

use crate::layout::RegisterState;
use std::fmt;
use unisono_btin::{NodeId, Port, SwitchId, SwitchNetwork, Tree, TurnPoint};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Suspect {
    Node {
        node: NodeId,
        switch: SwitchId,
        port: Port,
    },
    /// A cable that loses frames.
    Link {
        link: u32,
        /// The switch nearer to the root.
        upper: SwitchId,
        lower: SwitchId,
    },
    /// A switch without the register that it should have.
    Register {
        switch: SwitchId,
    },
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { node, switch, port } => {
                write!(f, "node {} (port {} of switch {}) has not arrived", node.0, port.0, switch.0)
            }
            Self::Link { link, upper, lower } => {
                write!(f, "link {link} between switch {} and switch {} loses what is sent", upper.0, lower.0)
            }
            Self::Register { switch } => write!(f, "switch {} has no register of the group", switch.0),
        }
    }
}

/// Returns the suspects of a stuck barrier in this tree, ascending.
pub fn suspects(
    network: &SwitchNetwork,
    tree: &Tree,
    turn: TurnPoint,
    state: impl Fn(SwitchId) -> Option<RegisterState>,
) -> Vec<Suspect> {
    let mut suspects = Vec::new();
    for (switch, register) in &tree.registers {
        let Some(here) = state(*switch) else {
            suspects.push(Suspect::Register { switch: *switch });
            continue;
        };
        let child_at = |port| {
            register.children.binary_search(&port).ok().and_then(|_| network.neighbour_at(*switch, port))
        };
        for port in here.missing() {
            match child_at(port) {
                Some(seen) => {
                    let complete = |below: RegisterState| below.missing().next().is_none();
                    if state(seen.switch)
                        .is_some_and(|below| below.episode == here.episode && complete(below))
                    {
                        suspects.push(Suspect::Link { link: seen.link, upper: *switch, lower: seen.switch });
                    }
                }
                None => suspects.extend(node_at(network, *switch, port)),
            }
        }
        for seen in register.children.iter().filter_map(|port| child_at(*port)) {
            let behind = |below: RegisterState| below.episode == here.episode.wrapping_sub(1);
            if state(seen.switch).is_some_and(behind) {
                suspects.push(Suspect::Link { link: seen.link, upper: *switch, lower: seen.switch });
            }
        }
        let is_waiting_for_root = turn == TurnPoint::AtNode
            && *switch == tree.root_switch
            && here.missing().next().is_none()
            && here.below != 0;
        if let (true, Some(port)) = (is_waiting_for_root, register.parent) {
            suspects.extend(node_at(network, *switch, port));
        }
    }
    suspects.sort_unstable();
    suspects.dedup();
    suspects
}

fn node_at(network: &SwitchNetwork, switch: SwitchId, port: Port) -> Option<Suspect> {
    let (_, node) = network.locals(switch).iter().find(|(at, _)| *at == port)?;
    Some(Suspect::Node { node: *node, switch, port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_btin::{BarrierGroup, End, GroupId, PlanOptions, SwitchLink, plan};

    /// Makes two switches with two members each, joined by link 0 at their ports 7. The root switch is 0.
    fn two_switches() -> (SwitchNetwork, Tree) {
        let end = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
        let nodes = vec![end(0, 0), end(0, 1), end(1, 0), end(1, 1)];
        let network = SwitchNetwork::new(vec![8; 2], vec![SwitchLink { a: end(0, 7), b: end(1, 7) }], nodes)
            .expect("it is sound");
        let group =
            BarrierGroup::new(&network, GroupId(0), (0..4).map(NodeId).collect()).expect("they exist");
        let tree = plan(&network, &group, &PlanOptions::default()).expect("it is connected").tree;
        (network, tree)
    }

    fn found(turn: TurnPoint, states: [(u32, u32, u16); 2]) -> Vec<String> {
        let (network, tree) = two_switches();
        let state = |switch: SwitchId| {
            let (below, arrived, episode) = states[switch.0 as usize];
            (below != 0).then_some(RegisterState { below, arrived, episode })
        };
        suspects(&network, &tree, turn, state).iter().map(ToString::to_string).collect()
    }

    const ROOT: u32 = 1 << 7 | 1 << 1;
    const LEAF: u32 = 0b11;

    #[test]
    fn a_member_that_is_missing_is_named_and_not_the_switches_that_wait_for_it() {
        let names = found(TurnPoint::AtNode, [(ROOT, 1 << 1, 5), (LEAF, 0b01, 5)]);
        assert_eq!(names, ["node 3 (port 1 of switch 1) has not arrived"]);
    }

    #[test]
    fn a_cable_that_loses_arrivals_or_releases_is_named() {
        let names = found(TurnPoint::AtNode, [(ROOT, 1 << 1, 5), (LEAF, LEAF, 5)]);
        assert_eq!(names, ["link 0 between switch 0 and switch 1 loses what is sent"]);
        let names = found(TurnPoint::AtNode, [(ROOT, 1 << 1, 6), (LEAF, LEAF, 5)]);
        assert_eq!(names, ["link 0 between switch 0 and switch 1 loses what is sent"]);
    }

    #[test]
    fn a_root_node_that_does_not_release_is_named() {
        let names = found(TurnPoint::AtNode, [(ROOT, ROOT, 5), (LEAF, LEAF, 5)]);
        assert_eq!(names, ["node 0 (port 0 of switch 0) has not arrived"]);
        let names = found(TurnPoint::AtSwitch, [(ROOT | 1, ROOT, 5), (LEAF, LEAF, 5)]);
        assert_eq!(names, ["node 0 (port 0 of switch 0) has not arrived"]);
    }

    #[test]
    fn a_register_that_is_gone_is_named() {
        let names = found(TurnPoint::AtNode, [(ROOT, 1 << 1, 5), (0, 0, 0)]);
        assert_eq!(names, ["switch 1 has no register of the group"]);
    }
}
