//! For all of `unisono tree plan`: computes the contents of each switch's register: the ports whose arrivals
//! the switch waits for, and the port of its parent.

use super::{graph::cable, search::Search};
use crate::{BarrierGroup, NodeId, Port, Register, SwitchId, SwitchNetwork, Tree};

/// Returns the registers of a search's tree after the removal of leaves without members.
pub(super) fn fill(
    network: &SwitchNetwork,
    group: &BarrierGroup,
    search: &mut Search,
    is_member: &[bool],
) -> Tree {
    let root = SwitchId(search.root());
    let links = search.kept_links(is_member).map(|(parent, child)| {
        let (parent, child) = (SwitchId(parent), SwitchId(child));
        let cable = cable(network, parent, child);
        (parent, cable.port, child, cable.far)
    });
    from_links(network, group, root, links)
}

/// Returns the registers of a tree that is given by its links. Each link is the parent, its port, the child,
/// and its port.
pub(super) fn from_links(
    network: &SwitchNetwork,
    group: &BarrierGroup,
    root: SwitchId,
    links: impl Iterator<Item = (SwitchId, Port, SwitchId, Port)>,
) -> Tree {
    let count = network.switch_count();
    let mut in_tree = vec![false; count];
    let mut parents: Vec<Option<Port>> = vec![None; count];
    let mut children: Vec<Vec<Port>> = vec![Vec::new(); count];
    in_tree[root.0 as usize] = true;
    for (parent, down, child, up) in links {
        in_tree[child.0 as usize] = true;
        parents[child.0 as usize] = Some(up);
        children[parent.0 as usize].push(down);
    }
    let mut root_node = None;
    let register = |switch: SwitchId| {
        let at = switch.0 as usize;
        let mut members = members_at(network, group, switch);
        if switch == root {
            (parents[at], root_node) = members.next().unzip();
        }
        children[at].sort_unstable();
        let children = std::mem::take(&mut children[at]);
        (
            switch,
            Register { parent: parents[at], children, locals: members.map(|(port, _)| port).collect() },
        )
    };
    // Collected in order: a map built from sorted entries needs no search.
    let registers = network.switches().filter(|switch| in_tree[switch.0 as usize]).map(register).collect();
    Tree { group: group.id(), root_switch: root, root_node, registers }
}

/// Returns the members at a switch, in order of port. The first one is the representative of the switch.
pub(crate) fn members_at<'a>(
    network: &'a SwitchNetwork,
    group: &'a BarrierGroup,
    switch: SwitchId,
) -> impl Iterator<Item = (Port, NodeId)> + use<'a> {
    network.locals(switch).iter().copied().filter(|(_, node)| group.contains(*node))
}
