//! For `unisono tree plan --share-links` and `simulate --share-links` (beyond the paper): plans trees of many
//! groups that run at the same time, so that few of them share a link.
//!
//! If a switch has several possible parents of the same depth, the choice changes neither its depth nor the
//! height of the tree. If the lowest id or the order of the queue decides, all groups choose alike, so that
//! the same links carry all of them. Here a switch takes the link that carries the fewest barriers. Among
//! equal links it prefers a parent that is already in the tree, then the parent with the lowest id, then the
//! parent's lowest port; parallel links share the load, too. The root is the same as [`plan`]'s.
//!
//! Cost: one more search. When not to use it: if members plan by themselves from network and group alone,
//! because they would have to agree on the loads; or if links and leaves matter, because the tree may have
//! more of them than the paper's tree.

use super::search::Search;
use super::{Graph, MemberSwitches, PlanError, PlanOptions, TreePlan, plan, registers};
use crate::{BarrierGroup, SwitchId, SwitchNetwork, Tree};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loads {
    links: Vec<u32>,
}

impl Loads {
    pub fn new(network: &SwitchNetwork) -> Self {
        Self { links: vec![0; network.links().len()] }
    }

    /// Returns, by link, the number of barriers that it carries.
    pub fn links(&self) -> &[u32] {
        &self.links
    }

    pub fn add(&mut self, network: &SwitchNetwork, tree: &Tree) {
        for (&switch, register) in &tree.registers {
            for below in register.children.iter().filter_map(|port| network.neighbour_at(switch, *port)) {
                self.links[below.link as usize] += 1;
            }
        }
    }

    /// Plans a tree with the same root and height as [`plan`]'s, over the least loaded links, and adds the
    /// tree to the loads.
    pub fn plan(
        &mut self,
        network: &SwitchNetwork,
        group: &BarrierGroup,
        options: &PlanOptions,
    ) -> Result<TreePlan, PlanError> {
        let mut planned = plan(network, group, options)?;
        let members = MemberSwitches::new(network, group);
        let graph = Graph::new(network);
        let mut search = Search::new(&graph);
        search.run(&graph, planned.tree.root_switch.0, options.scan);

        // Visits the deepest switches first, so that only members and switches above a member take a link to
        // a parent.
        let mut links = Vec::new();
        let mut wanted = members.is_member.clone();
        for &switch in search.reached()[1..].iter().rev() {
            if !wanted[switch as usize] {
                continue;
            }
            let above = |n: &&crate::Neighbour| search.depth(n.switch.0) + 1 == search.depth(switch);
            let paths = network.neighbours(SwitchId(switch)).iter().filter(above);
            let way = paths
                .min_by_key(|n| (self.links[n.link as usize], !wanted[n.switch.0 as usize], n.switch, n.far));
            let way = *way.expect("there is a way because the search reached the switch by one");
            wanted[way.switch.0 as usize] = true;
            links.push((way.switch, way.far, SwitchId(switch), way.port));
        }
        planned.edges = u32::try_from(links.len()).expect("fits because switches are counted in 32 bits");
        planned.tree = registers::from_links(network, group, planned.tree.root_switch, links.into_iter());
        let leaves = planned.tree.registers.values().filter(|register| register.children.is_empty()).count();
        planned.leaves = u32::try_from(leaves).expect("fits because switches are counted in 32 bits");
        self.add(network, &planned.tree);
        Ok(planned)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::families::{network_and_group, torus, with_nodes};
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
        let (n, network) = (64, with_nodes(&torus(8, 8)));
        let (mut aware, mut paper) = (Loads::new(&network), Loads::new(&network));
        for id in 0..32_u8 {
            let members =
                (0..n).filter(|node| (node * 7 + u32::from(id) * 13) % 5 == 0).map(NodeId).collect();
            let group = BarrierGroup::new(&network, GroupId(id), members).expect("all exist");
            let options = PlanOptions::default();
            aware.plan(&network, &group, &options).expect("it is connected");
            paper.add(&network, &plan(&network, &group, &options).expect("it is connected").tree);
        }
        let heaviest = |loads: &Loads| loads.links().iter().max().copied();
        assert!(
            heaviest(&aware) < heaviest(&paper),
            "{:?} against {:?}",
            heaviest(&aware),
            heaviest(&paper)
        );
    }
}
