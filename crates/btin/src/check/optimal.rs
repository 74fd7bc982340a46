//! Checks the optional rules: whether a sound tree is the tree that the paper chooses (least height, lowest
//! ports).
//!
//! The search is as simple as possible: it finds the distances from every member switch by relaxing all links
//! until no distance changes.

use super::{Broken, TreeElement, TreeRule, broken};
use crate::relax::relax;
use crate::{BarrierGroup, SwitchId, SwitchNetwork, Tree};

pub(super) fn check(
    network: &SwitchNetwork,
    group: &BarrierGroup,
    tree: &Tree,
    height: u32,
) -> Result<(), Broken> {
    let members = group.member_switches(network);
    for root in &members {
        let distances = distances(network, *root);
        let farthest = members.iter().map(|member| distances[member.0 as usize]).max();
        if let Some(min_height) = farthest
            && min_height < height
        {
            let what = format!("the height is {height}, but switch {} as root gives {min_height}", root.0);
            return broken(TreeRule::LeastHeight, TreeElement::RootSwitch, what);
        }
    }
    let root = tree.root_switch;
    let at_root = group.members().iter().map(|node| network.nodes()[node.0 as usize]);
    let lowest = at_root.filter(|end| end.switch == root).map(|end| end.port).min();
    let register = &tree.registers[&root];
    if lowest != register.parent {
        let says = |port: Option<crate::Port>| port.map_or("none".to_owned(), |port| port.0.to_string());
        let what = format!(
            "the root node is at port {} of switch {}, and the lowest port of a member there is {}",
            says(register.parent),
            root.0,
            says(lowest)
        );
        return broken(TreeRule::LowestRootPort, TreeElement::RootNode, what);
    }
    for (switch, register) in &tree.registers {
        for (at, port) in register.children.iter().enumerate() {
            let child = network.neighbour_at(*switch, *port).map(|seen| seen.switch);
            let lower = network.neighbours(*switch).iter().find(|seen| Some(seen.switch) == child);
            if let Some(lower) = lower
                && lower.port < *port
            {
                let what = format!(
                    "port {} of switch {} leads to switch {}, and so does port {}",
                    port.0, switch.0, lower.switch.0, lower.port.0
                );
                return broken(TreeRule::LowestParallel, TreeElement::Child(*switch, at), what);
            }
        }
    }
    Ok(())
}

/// Returns the number of links from a switch to every switch, or `u32::MAX` for unreachable switches.
fn distances(network: &SwitchNetwork, from: SwitchId) -> Vec<u32> {
    let mut distance = vec![u32::MAX; network.switch_count()];
    distance[from.0 as usize] = 0;
    relax(network, &mut distance);
    distance
}
