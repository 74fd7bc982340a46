//! The tree of a group's members themselves, for barriers in software along the links of a planned tree.
//!
//! The idea: the members at a switch, and the members that stand for its child switches, form a tree in which
//! a member has at most [`ARITY`] children; a member of the switch is at its top. That member stands for the
//! switch and everything below. So the messages of a subtree's members stay in the subtree, and each link of
//! the planned tree carries few arrivals and few releases. Cost: 2 (n - 1) messages; the longest chain has
//! two messages a level. When not to use: switches that combine arrivals themselves need none of these
//! messages. Reference: the software combining tree of Mellor-Crummey and Scott (1991), arranged by the tree
//! of the paper's section 3.1.

use crate::plan::members_at;
use crate::{BarrierGroup, NodeId, SwitchId, SwitchNetwork, TreePlan};
use std::collections::BTreeMap;

/// The most children that a member has at one switch: with more, the children wait longer for the messages of
/// one sender; with fewer, the tree is deeper. Chosen, not measured.
const ARITY: usize = 4;

/// Parents and children of members; all numbers are positions in [`BarrierGroup::members`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberTree {
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
}

impl MemberTree {
    /// Makes the tree for a group and its plan. Every process that makes it from the same plan gets the same
    /// tree.
    pub fn new(network: &SwitchNetwork, group: &BarrierGroup, plan: &TreePlan) -> Self {
        let members = group.members();
        let position = |node: NodeId| members.binary_search(&node).expect("found because it is a member");
        let mut tree = Self { parents: vec![None; members.len()], children: vec![Vec::new(); members.len()] };
        let mut order = vec![plan.tree.root_switch];
        let mut next = 0;
        while let Some(&switch) = order.get(next) {
            order.extend(plan.children(network, switch));
            next += 1;
        }
        // children come before their parents
        let mut tops: BTreeMap<SwitchId, usize> = BTreeMap::new();
        for switch in order.into_iter().rev() {
            let here = members_at(network, group, switch).map(|(_, node)| position(node));
            let below = plan.children(network, switch).filter_map(|child| tops.get(&child).copied());
            let together: Vec<usize> = here.chain(below).collect();
            for (at, member) in together.iter().enumerate().skip(1) {
                let parent = together[(at - 1) / ARITY];
                tree.parents[*member] = Some(parent);
                tree.children[parent].push(*member);
            }
            if let Some(top) = together.first() {
                tops.insert(switch, *top);
            }
        }
        tree
    }

    /// Returns the parent of a member, or `None` if the member is the root.
    pub fn parent(&self, member: usize) -> Option<usize> {
        self.parents[member]
    }

    pub fn children(&self, member: usize) -> &[usize] {
        &self.children[member]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::families::network_and_group;
    use crate::{End, GroupId, PlanOptions, Port, SwitchLink, plan};
    use proptest::prelude::*;

    fn tree_of(network: &SwitchNetwork, group: &BarrierGroup) -> (MemberTree, TreePlan) {
        let planned = plan(network, group, &PlanOptions::default()).expect("connected");
        (MemberTree::new(network, group, &planned), planned)
    }

    /// Returns the switches from a switch up to the root of the planned tree.
    fn way_up(network: &SwitchNetwork, planned: &TreePlan, from: SwitchId) -> Vec<SwitchId> {
        let mut way = vec![from];
        while let Some(&switch) = way.last().filter(|switch| **switch != planned.tree.root_switch) {
            let up = planned.tree.registers[&switch].parent.expect("only the root has none");
            way.push(network.neighbour_at(switch, up).expect("a link").switch);
        }
        way
    }

    #[test]
    fn a_member_of_each_switch_stands_for_it_and_for_the_switches_below() {
        let at = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
        // a spine without nodes, two leaves with three nodes each
        let links = [0, 1].map(|leaf| SwitchLink { a: at(leaf, 7), b: at(2, leaf as u16) });
        let nodes = (0..6).map(|node| at(node / 3, (node % 3) as u16)).collect();
        let network = SwitchNetwork::new(vec![8; 3], links.to_vec(), nodes).expect("sound");
        let all = BarrierGroup::new(&network, GroupId(0), (0..6).map(NodeId).collect()).expect("members");
        let (tree, _) = tree_of(&network, &all);
        let parents: Vec<Option<usize>> = (0..6).map(|member| tree.parent(member)).collect();
        assert_eq!(parents, [None, Some(0), Some(0), Some(0), Some(3), Some(3)]);
        assert_eq!(tree.children(0), [1, 2, 3]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn every_member_hangs_below_one_root_and_one_member_of_each_subtree_has_a_parent_outside(
            (network, group) in network_and_group()
        ) {
            let (tree, planned) = tree_of(&network, &group);
            let members = group.members();
            let roots = (0..members.len()).filter(|member| tree.parent(*member).is_none()).count();
            prop_assert_eq!(roots, 1);
            for member in 0..members.len() {
                let (mut at, mut steps) = (member, 0);
                while let Some(parent) = tree.parent(at) {
                    prop_assert!(tree.children(parent).contains(&at));
                    (at, steps) = (parent, steps + 1);
                    prop_assert!(steps < members.len(), "a cycle");
                }
            }
            let is_below = |member: usize, switch: &SwitchId| {
                way_up(&network, &planned, network.switch_of(members[member])).contains(switch)
            };
            for switch in planned.tree.registers.keys() {
                let leaves = (0..members.len()).filter(|member| {
                    let parent = tree.parent(*member);
                    is_below(*member, switch) && !parent.is_some_and(|parent| is_below(parent, switch))
                });
                prop_assert_eq!(leaves.count(), 1, "above switch {}", switch.0);
            }
        }
    }
}
