//! For `unisono tree plan --without-link` and `--without-switch`, and for `tree deploy`: repairs a tree in
//! use after a link or a switch has failed.
//!
//! A new plan would move the root and rewrite every register. A repair keeps the root and the part of the
//! tree that is still connected to it, and attaches only the parts that were cut off:
//!
//! ```text
//!        [root]                     the remaining tree keeps its registers
//!       /      \
//!     [a]      [b] . . .            the cut-off part searches outwards, from
//!      x        .        .          its neighbors in the remaining tree: the
//!     [c]. . . .        [d]         one nearest to the root becomes the parent,
//!    /   \\                          then breadth-first within the part
//!  [e]   [f]
//! ```
//!
//! The depths of the cut-off switches are the least that the remaining tree permits; among equal parents the
//! switch with the lowest id is chosen. Switches outside the tree are added if they are on the way from a
//! cut-off switch to the remaining tree. Switches without members that no longer lead to a member release
//! their register. The result lists the members that cannot be reached. If the root itself fails, the tree
//! cannot be repaired: the error says so, and the remedy is a new plan without the failed switch
//! ([`StandingTree::network`]).
//!
//! Cost: the links of the cut-off part, and of the switches outside the tree that it reaches; a link that the
//! tree does not use costs nothing. Building a [`StandingTree`] from registers is linear in the network.
//!
//! When not to use it: when height matters most. A repaired tree may be higher than a new plan's, by the
//! length of the detour. The result states the height, so that the caller can compare and plan anew later.

mod aftermath;
mod reattach;

pub use aftermath::{Aftermath, RootFate, aftermath, around_links};

use crate::plan::members_at;
use crate::{
    BarrierGroup, NodeId, PlanError, Port, Register, SwitchId, SwitchLink, SwitchNetwork, Tree, TreePlan,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NetworkFailure {
    /// A link, by its number in the network.
    Link(u32),
    /// A switch with all its links and nodes.
    Switch(SwitchId),
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Repair {
    /// The registers to write, all of them different from before, and the registers to release (`None`).
    pub changed: BTreeMap<SwitchId, Option<Register>>,
    /// Members that cannot be reached any more, ascending.
    pub cut_off: Vec<NodeId>,
    /// The number of switches that got another parent or another cable to it.
    pub moved: usize,
    pub height: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    #[error(
        "switch {root} is the root of the tree: a tree cannot be repaired without its root; plan anew without it"
    )]
    RootDied { root: u32 },
    #[error("the tree has lost its root switch {root}; plan anew without it")]
    NoTree { root: u32 },
    #[error(
        "the registers are no tree of this network: port {port} of switch {switch} does not lead to a child"
    )]
    NoChild { switch: u32, port: u16 },
    #[error("there is no {what} {number} in this network")]
    NoSuch { what: &'static str, number: u32 },
    #[error("no member is left: all are at switches that failed")]
    NobodyLeft,
    #[error(transparent)]
    Plan(PlanError),
}

const NONE: u32 = u32::MAX;

/// A tree in use that can be repaired, and its failures so far.
///
/// ```
/// use unisono_btin::generate::{NetworkOptions, generate};
/// use unisono_btin::repair::{NetworkFailure, StandingTree};
/// use unisono_btin::{PlanOptions, plan};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = NetworkOptions { switches: 16, nodes: 32, members: 32, ..NetworkOptions::default() };
/// let file = generate(&options)?;
/// let (network, group) = (&file.network, &file.groups[0]);
/// let planned = plan(network, group, &PlanOptions::default())?;
/// let mut standing = StandingTree::new(network, group, &planned.tree)?;
/// let repair = standing.fail(NetworkFailure::Link(0))?;
/// assert!(repair.cut_off.is_empty());
/// # Ok(())
/// # }
/// ```
pub struct StandingTree<'a> {
    network: &'a SwitchNetwork,
    group: &'a BarrierGroup,
    root: u32,
    root_lost: bool,
    /// By switch: the parent (itself at the root), or NONE outside the tree.
    parent: Vec<u32>,
    /// By switch: the link to the parent.
    up: Vec<u32>,
    depth: Vec<u32>,
    children: Vec<Vec<u32>>,
    is_member: Vec<bool>,
    dead_links: Vec<bool>,
    dead_switches: Vec<bool>,
    /// The number of switches of the tree at each depth.
    at_depth: Vec<u32>,
    scratch: reattach::RepairScratch,
}

impl<'a> StandingTree<'a> {
    /// Makes a tree in use in a network without failures. Fails with [`RepairError::NoChild`] if the
    /// registers do not fit the network.
    pub fn new(
        network: &'a SwitchNetwork,
        group: &'a BarrierGroup,
        tree: &Tree,
    ) -> Result<Self, RepairError> {
        let count = network.switch_count();
        let mut is_member = vec![false; count];
        group.members().iter().for_each(|node| is_member[network.switch_of(*node).0 as usize] = true);
        let root = tree.root_switch.0;
        let mut standing = Self {
            network,
            group,
            root,
            root_lost: false,
            parent: vec![NONE; count],
            up: vec![NONE; count],
            depth: vec![0; count],
            children: vec![Vec::new(); count],
            is_member,
            dead_links: vec![false; network.links().len()],
            dead_switches: vec![false; count],
            at_depth: Vec::new(),
            scratch: reattach::RepairScratch::new(count),
        };
        standing.enter(root, root, NONE, 0);
        let mut open = vec![root];
        while let Some(switch) = open.pop() {
            let Some(register) = tree.registers.get(&SwitchId(switch)) else { continue };
            for &port in &register.children {
                let link = network.neighbour_at(SwitchId(switch), port);
                let Some(link) = link.filter(|link| standing.parent[link.switch.0 as usize] == NONE) else {
                    return Err(RepairError::NoChild { switch, port: port.0 });
                };
                let depth = standing.depth[switch as usize] + 1;
                standing.enter(link.switch.0, switch, link.link, depth);
                standing.children[switch as usize].push(link.switch.0);
                open.push(link.switch.0);
            }
        }
        Ok(standing)
    }

    /// Records a failure and attaches the parts of the tree that it cuts off. Fails with
    /// [`RepairError::RootDied`] for the root switch, with [`RepairError::NoTree`] after that, and with
    /// [`RepairError::NoSuch`] for an unknown link or switch. The failure is recorded even if the repair
    /// fails.
    pub fn fail(&mut self, failure: NetworkFailure) -> Result<Repair, RepairError> {
        let tops = match failure {
            NetworkFailure::Link(link) => {
                let dead = self.dead_links.get_mut(link as usize);
                *dead.ok_or(RepairError::NoSuch { what: "link", number: link })? = true;
                let SwitchLink { a, b } = self.network.links()[link as usize];
                [a, b]
                    .map(|end| end.switch.0)
                    .into_iter()
                    .filter(|&top| self.up[top as usize] == link)
                    .collect()
            }
            NetworkFailure::Switch(SwitchId(switch)) => {
                let dead = self.dead_switches.get_mut(switch as usize);
                *dead.ok_or(RepairError::NoSuch { what: "switch", number: switch })? = true;
                if switch == self.root {
                    self.root_lost = true;
                    return Err(RepairError::RootDied { root: self.root });
                }
                vec![switch]
            }
        };
        if self.root_lost {
            return Err(RepairError::NoTree { root: self.root });
        }
        Ok(self.hang_again(&tops))
    }

    pub fn tree(&self) -> Tree {
        let in_tree = (0..).zip(&self.parent).filter(|(_, parent)| **parent != NONE);
        let registers = in_tree.map(|(switch, _)| (SwitchId(switch), self.register(switch))).collect();
        let root = SwitchId(self.root);
        let root_node = members_at(self.network, self.group, root).next().map(|(_, node)| node);
        Tree { group: self.group.id(), root_switch: root, root_node, registers }
    }

    /// Returns the present tree as a plan: with its height, links and leaves. No register is in a node's
    /// memory ([`setup::allot`](crate::setup::allot) decides which have to be).
    pub fn plan(&self) -> TreePlan {
        let tree = self.tree();
        let switches = tree.registers.len();
        let leaves = tree.registers.values().filter(|register| register.children.is_empty()).count();
        let number = |n: usize| u32::try_from(n).expect("fits because switches are counted in 32 bits");
        let (height, edges, leaves) = (self.height(), number(switches - 1), number(leaves));
        TreePlan { tree, height, edges, leaves, in_memory: BTreeMap::new() }
    }

    pub fn height(&self) -> u32 {
        u32::try_from(self.at_depth.len() - 1).expect("fits because switches are counted in 32 bits")
    }

    /// Returns the remaining network: the same switches, nodes and ports, without the links that failed or
    /// that end at a failed switch.
    pub fn network(&self) -> SwitchNetwork {
        let ports = self.network.switches().map(|switch| self.network.ports(switch)).collect();
        let lives =
            |link: &SwitchLink| ![link.a, link.b].iter().any(|end| self.dead_switches[end.switch.0 as usize]);
        let links = self.network.links().iter().zip(&self.dead_links);
        let links = links.filter(|(link, dead)| !**dead && lives(link)).map(|(link, _)| *link).collect();
        let network = SwitchNetwork::new(ports, links, self.network.nodes().to_vec());
        network.expect("ports are used once because they were before")
    }

    fn register(&self, switch: u32) -> Register {
        let here = SwitchId(switch);
        let port = |link: u32, end: u32| {
            let SwitchLink { a, b } = self.network.links()[link as usize];
            if a.switch.0 == end { a.port } else { b.port }
        };
        let children = self.children[switch as usize].iter();
        let mut children: Vec<Port> = children.map(|&child| port(self.up[child as usize], switch)).collect();
        children.sort_unstable();
        let mut members = members_at(self.network, self.group, here).map(|(port, _)| port);
        let parent =
            if switch == self.root { members.next() } else { Some(port(self.up[switch as usize], switch)) };
        Register { parent, children, locals: members.collect() }
    }

    fn enter(&mut self, switch: u32, parent: u32, up: u32, depth: u32) {
        let at = switch as usize;
        (self.parent[at], self.up[at], self.depth[at]) = (parent, up, depth);
        if self.at_depth.len() <= depth as usize {
            self.at_depth.resize(depth as usize + 1, 0);
        }
        self.at_depth[depth as usize] += 1;
    }

    fn remove(&mut self, switch: u32) {
        let at = switch as usize;
        self.at_depth[self.depth[at] as usize] -= 1;
        while self.at_depth.last() == Some(&0) {
            self.at_depth.pop();
        }
        (self.parent[at], self.up[at]) = (NONE, NONE);
    }

    fn members_of(&self, switches: &BTreeSet<u32>) -> Vec<NodeId> {
        let members =
            switches.iter().flat_map(|&switch| members_at(self.network, self.group, SwitchId(switch)));
        let mut members: Vec<NodeId> = members.map(|(_, node)| node).collect();
        members.sort_unstable();
        members
    }
}

#[cfg(test)]
mod tests;
