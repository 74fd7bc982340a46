//! Groups: the nodes that synchronize with each other.

use crate::{NodeId, SwitchId, SwitchNetwork};
use unisono_text::counted;

/// The number of a group: 8 bits in a message (paper, Figure 5), so there are at most 256 groups at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupId(pub u8);

/// A group: its number and its member nodes, ascending, each once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BarrierGroup {
    id: GroupId,
    members: Vec<NodeId>,
}

/// Why a list of nodes is not a group.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    #[error("the group has no members; name at least one node")]
    Empty,
    #[error("member {node} does not exist: the network has {} (0 to {})", counted(nodes, "node"), nodes.saturating_sub(1))]
    NoSuchNode { node: u32, nodes: usize },
    #[error("member {node} is named twice")]
    Twice { node: u32 },
}

impl BarrierGroup {
    /// Makes a group of these nodes of a network, given in any order.
    pub fn new(network: &SwitchNetwork, id: GroupId, mut members: Vec<NodeId>) -> Result<Self, GroupError> {
        members.sort_unstable();
        let Some(&last) = members.last() else { return Err(GroupError::Empty) };
        if last.0 as usize >= network.nodes().len() {
            return Err(GroupError::NoSuchNode { node: last.0, nodes: network.nodes().len() });
        }
        if let Some(pair) = members.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(GroupError::Twice { node: pair[0].0 });
        }
        Ok(Self { id, members })
    }

    pub fn id(&self) -> GroupId {
        self.id
    }

    pub fn members(&self) -> &[NodeId] {
        &self.members
    }

    pub fn contains(&self, node: NodeId) -> bool {
        self.members.binary_search(&node).is_ok()
    }

    /// Returns the switches with at least one member (the *member switches*), ascending, each once.
    pub fn member_switches(&self, network: &SwitchNetwork) -> Vec<SwitchId> {
        let mut switches: Vec<_> = self.members.iter().map(|node| network.switch_of(*node)).collect();
        switches.sort_unstable();
        switches.dedup();
        switches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{End, Port};

    fn network() -> SwitchNetwork {
        let at = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
        SwitchNetwork::new(vec![4; 2], vec![], vec![at(1, 0), at(0, 0), at(1, 2)]).expect("it is sound")
    }

    #[test]
    fn members_are_sorted_and_their_switches_named_once() {
        let network = network();
        let group = BarrierGroup::new(&network, GroupId(7), vec![NodeId(2), NodeId(0)]).expect("both exist");
        assert_eq!(group.members(), [NodeId(0), NodeId(2)]);
        assert_eq!(group.member_switches(&network), [SwitchId(1)]);
        assert!(group.contains(NodeId(2)) && !group.contains(NodeId(1)));
    }

    #[test]
    fn no_members_unknown_members_and_members_named_twice_are_refused() {
        let network = network();
        let group = |members: &[u32]| {
            BarrierGroup::new(&network, GroupId(0), members.iter().copied().map(NodeId).collect())
                .expect_err("it must be refused")
                .to_string()
        };
        assert_eq!(group(&[]), "the group has no members; name at least one node");
        assert_eq!(group(&[0, 3]), "member 3 does not exist: the network has 3 nodes (0 to 2)");
        assert_eq!(group(&[1, 1]), "member 1 is named twice");
    }
}
