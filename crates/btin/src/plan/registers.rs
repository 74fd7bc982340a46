//! From a tree of switches to the registers of its switches.

use super::{graph::cable, search::Search};
use crate::{Group, Network, NodeId, Port, Register, SwitchId, Tree};
use std::collections::BTreeMap;

/// The registers of a search's tree, without leaves that have no members.
pub(super) fn fill(network: &Network, group: &Group, search: &mut Search, is_member: &[bool]) -> Tree {
    let root = SwitchId(search.root());
    let links: Vec<_> = search.kept_links(is_member).collect();
    from_links(
        network,
        group,
        root,
        links.into_iter().map(|(parent, child)| (SwitchId(parent), SwitchId(child))),
    )
}

/// The registers of a tree that is given by its links, each as parent and child.
pub(super) fn from_links(
    network: &Network,
    group: &Group,
    root: SwitchId,
    links: impl Iterator<Item = (SwitchId, SwitchId)>,
) -> Tree {
    let mut registers = BTreeMap::new();
    registers.insert(root, empty());
    for (parent, child) in links {
        let cable = cable(network, parent, child);
        registers.entry(parent).or_insert_with(empty).children.push(cable.port);
        registers.entry(child).or_insert_with(empty).parent = Some(cable.far);
    }
    let mut root_node = None;
    for (&switch, register) in &mut registers {
        register.children.sort_unstable();
        let mut members = members_at(network, group, switch);
        if switch == root {
            (register.parent, root_node) = members.next().unzip();
        }
        register.locals = members.map(|(port, _)| port).collect();
    }
    Tree { group: group.id(), root_switch: root, root_node, registers }
}

/// The members at a switch, in order of port: the first is its representative.
pub(crate) fn members_at<'a>(
    network: &'a Network,
    group: &'a Group,
    switch: SwitchId,
) -> impl Iterator<Item = (Port, NodeId)> + use<'a> {
    network.locals(switch).iter().copied().filter(|(_, node)| group.contains(*node))
}

fn empty() -> Register {
    Register { parent: None, children: Vec::new(), locals: Vec::new() }
}
