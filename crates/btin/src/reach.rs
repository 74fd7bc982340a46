//! The connected components of a network. They show which members a tree cannot reach, before a tree is
//! planned.
//!
//! Cost: one walk over switches and links.

use crate::{BarrierGroup, NodeId, SwitchId, SwitchNetwork};

/// The components of a network, numbered from 0 in the order of their lowest switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Components {
    part: Vec<u32>,
    count: u32,
}

impl Components {
    pub fn new(network: &SwitchNetwork) -> Self {
        let mut part = vec![u32::MAX; network.switch_count()];
        let mut count = 0;
        let mut stack = Vec::new();
        for start in network.switches() {
            if part[start.0 as usize] != u32::MAX {
                continue;
            }
            part[start.0 as usize] = count;
            stack.push(start);
            while let Some(here) = stack.pop() {
                for seen in network.neighbours(here) {
                    if part[seen.switch.0 as usize] == u32::MAX {
                        part[seen.switch.0 as usize] = count;
                        stack.push(seen.switch);
                    }
                }
            }
            count += 1;
        }
        Self { part, count }
    }

    /// Returns the number of components; 1 if the network is connected.
    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn part(&self, switch: SwitchId) -> u32 {
        self.part[switch.0 as usize]
    }

    /// Returns the members outside the component with the most members, ascending. If several components have
    /// the most, the first one counts.
    pub fn cut_off(&self, network: &SwitchNetwork, group: &BarrierGroup) -> Vec<NodeId> {
        let part_of = |node: &NodeId| self.part(network.switch_of(*node));
        let mut members = vec![0_u32; self.count as usize];
        for node in group.members() {
            members[part_of(node) as usize] += 1;
        }
        let max = members.iter().max().copied().unwrap_or_default();
        let home = (0..).zip(&members).find(|(_, n)| **n == max).map_or(0, |(part, _)| part);
        group.members().iter().copied().filter(|node| part_of(node) != home).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{End, GroupId, Port, SwitchLink};

    #[test]
    fn members_outside_the_part_with_most_members_are_cut_off() {
        let end = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
        let links =
            vec![SwitchLink { a: end(0, 0), b: end(2, 0) }, SwitchLink { a: end(1, 0), b: end(3, 0) }];
        let nodes = vec![end(0, 1), end(1, 1), end(3, 1), end(4, 1)];
        let network = SwitchNetwork::new(vec![4; 5], links, nodes).expect("it is sound");
        let parts = Components::new(&network);
        assert_eq!(parts.count(), 3);
        let group =
            BarrierGroup::new(&network, GroupId(0), (0..4).map(NodeId).collect()).expect("they exist");
        assert_eq!(parts.cut_off(&network, &group), [NodeId(0), NodeId(3)]);
    }
}
