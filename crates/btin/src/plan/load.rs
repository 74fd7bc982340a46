//! Ties between parents broken by load, for many groups at the same time (beyond the paper).
//!
//! Which of several parents of the same depth a switch hangs on changes neither its depth nor the height of
//! the tree, but by id or by queue all groups choose alike, and the same links carry all of them. Here the
//! link that carries the fewest barriers is taken, then the lowest id, then the lowest port; parallel links
//! share, too. The root is the one that the plan would take.
//!
//! Cost: one more search. When not to use it: members can no longer plan by themselves from network and group
//! alone, they have to agree on the loads; links and leaves may be more than the paper's tree has.

use super::search::Search;
use super::{Graph, MemberSwitches, PlanError, PlanOptions, TreePlan, plan, registers};
use crate::{BarrierGroup, Network, SwitchId, Tree};
use std::collections::BTreeMap;

/// How many barriers each link carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loads {
    links: Vec<u32>,
}

impl Loads {
    /// No barriers yet.
    #[must_use]
    pub fn new(network: &Network) -> Self {
        Self { links: vec![0; network.links().len()] }
    }

    /// By link: how many barriers it carries.
    #[must_use]
    pub fn links(&self) -> &[u32] {
        &self.links
    }

    /// A barrier more.
    pub fn add(&mut self, network: &Network, tree: &Tree) {
        for (&switch, register) in &tree.registers {
            let near = network.neighbours(switch);
            for port in &register.children {
                if let Ok(at) = near.binary_search_by_key(port, |n| n.port) {
                    self.links[near[at].link as usize] += 1;
                }
            }
        }
    }

    /// A tree of the same root and height as [`plan`]'s, over links that carry little; it is added.
    ///
    /// # Errors
    /// As [`plan`].
    pub fn plan(
        &mut self,
        network: &Network,
        group: &BarrierGroup,
        options: &PlanOptions,
    ) -> Result<TreePlan, PlanError> {
        let mut planned = plan(network, group, options)?;
        let members = MemberSwitches::new(network, group);
        let graph = Graph::new(network);
        let mut search = Search::new(&graph);
        search.run(&graph, planned.tree.root_switch.0, options.scan);

        // From the deepest up, so that only what leads to a member takes a link.
        let mut links = BTreeMap::new();
        let mut wanted = members.is_member.clone();
        for &switch in search.reached()[1..].iter().rev() {
            if !wanted[switch as usize] {
                continue;
            }
            let above = |n: &&crate::Neighbour| search.depth(n.switch.0) + 1 == search.depth(switch);
            let ways = network.neighbours(SwitchId(switch)).iter().filter(above);
            let way = ways
                .min_by_key(|n| (self.links[n.link as usize], !wanted[n.switch.0 as usize], n.switch, n.far));
            let way = *way.expect("there is a way because the search reached the switch by one");
            wanted[way.switch.0 as usize] = true;
            links.insert(SwitchId(switch), way);
        }
        planned.tree = registers::from_cables(network, group, planned.tree.root_switch, &links);
        planned.edges = u32::try_from(links.len()).expect("fits because switches are counted in 32 bits");
        let leaves = planned.tree.registers.values().filter(|register| register.children.is_empty()).count();
        planned.leaves = u32::try_from(leaves).expect("fits because switches are counted in 32 bits");
        self.add(network, &planned.tree);
        Ok(planned)
    }
}

#[cfg(test)]
mod tests {
    use super::super::families::{network_and_group, torus};
    use super::super::tests::network;
    use super::*;
    use crate::check::{Rules, check};
    use crate::{GroupId, NodeId};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn loads_change_neither_root_nor_height_and_leave_a_sound_tree((network, group) in network_and_group()) {
            let options = PlanOptions::default();
            let paper = plan(&network, &group, &options).expect("the network is connected");
            let mut loads = Loads::new(&network);
            for _ in 0..3 {
                let plan = loads.plan(&network, &group, &options).expect("the network is connected");
                prop_assert_eq!((plan.tree.root_switch, plan.height), (paper.tree.root_switch, paper.height));
                let shape = check(&network, &group, &plan.tree, Rules::Sound).expect("it is a tree");
                prop_assert_eq!((shape.height, shape.edges, shape.leaves), (plan.height, plan.edges, plan.leaves));
            }
        }
    }

    #[test]
    fn many_groups_share_the_links_of_a_torus() {
        let (n, links) = torus(8, 8);
        let network = network(n, &links, &(0..n).collect::<Vec<_>>());
        let (mut aware, mut paper) = (Loads::new(&network), Loads::new(&network));
        for id in 0..32_u8 {
            let members =
                (0..n).filter(|node| (node * 7 + u32::from(id) * 13) % 5 == 0).map(NodeId).collect();
            let group = BarrierGroup::new(&network, GroupId(id), members).expect("all exist");
            let options = PlanOptions::default();
            aware.plan(&network, &group, &options).expect("it is connected");
            paper.add(&network, &plan(&network, &group, &options).expect("it is connected").tree);
        }
        let most = |loads: &Loads| loads.links().iter().max().copied();
        assert!(most(&aware) < most(&paper), "{:?} against {:?}", most(&aware), most(&paper));
    }
}
