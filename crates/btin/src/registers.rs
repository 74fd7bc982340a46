//! Barrier registers, each the knowledge that a switch has of a group (paper, Figure 4), and the tree that
//! they form.
//!
//! This module has only the part that set-up writes. Arrival bits and data belong to a barrier in progress,
//! and so to [`Switch`](crate::Switch).

use crate::{GroupId, NodeId, Port, SwitchId};
use std::collections::BTreeMap;

/// Where a barrier turns from reduction to distribution.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TurnPoint {
    /// At the root node, as in the paper.
    #[default]
    AtNode,
    /// At the root switch; no node is involved.
    AtSwitch,
}

/// The register of one switch for one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register {
    /// The port towards the parent switch; at the root switch, the port of the root node. `None` only at a
    /// root switch without members (beyond the paper), where messages turn around in the switch.
    pub parent: Option<Port>,
    /// The ports towards child switches, ascending.
    pub children: Vec<Port>,
    /// The ports of local member nodes, without the root node's port, ascending.
    pub locals: Vec<Port>,
}

impl Register {
    /// Returns the port above, from which the release comes, and the ports below, ascending. The switch waits
    /// for the arrivals of the ports below and sends them the release. A switch that turns messages around
    /// has no port above; the port of its root node counts as below.
    pub fn sides(&self, turn: TurnPoint) -> (Option<Port>, Vec<Port>) {
        let (above, turned) = match turn {
            TurnPoint::AtNode => (self.parent, None),
            TurnPoint::AtSwitch => (None, self.parent),
        };
        let mut below: Vec<Port> = self.children.iter().chain(&self.locals).chain(&turned).copied().collect();
        below.sort_unstable();
        (above, below)
    }

    pub fn uses(&self, port: Port) -> bool {
        self.parent == Some(port) || self.children.contains(&port) || self.locals.contains(&port)
    }
}

/// A barrier tree: the registers of all its switches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    pub group: GroupId,
    /// The switch at which reduction ends and distribution begins.
    pub root_switch: SwitchId,
    /// The member at the root switch that receives the last reduction message and sends the first
    /// distribution message. `None`: the root switch has no members.
    pub root_node: Option<NodeId>,
    pub registers: BTreeMap<SwitchId, Register>,
}

impl Tree {
    /// Returns the turn point that a switch of this tree has to use: only the root switch can turn messages
    /// around.
    pub fn turn_at(&self, switch: SwitchId, turn: TurnPoint) -> TurnPoint {
        if switch == self.root_switch { turn } else { TurnPoint::AtNode }
    }
}

/// A part of a [`Tree`] that an error can point at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeElement {
    Group,
    RootSwitch,
    RootNode,
    Register(SwitchId),
    Parent(SwitchId),
    /// A child port of a register, by its index.
    Child(SwitchId, usize),
    /// A local port of a register, by its index.
    Local(SwitchId, usize),
    /// A statement of the file about the tree, by its key.
    Claim(&'static str),
    /// A missing part; the error points at the whole tree.
    Whole,
}

/// A file's statements about its tree besides the registers; `unisono tree plan --json` writes them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Claims {
    /// The number of links from the root switch to the switch farthest below it.
    pub height: Option<u32>,
    pub edges: Option<u32>,
    /// The number of switches of the tree without children.
    pub leaves: Option<u32>,
    /// The members of the group, if they were named for the plan (`unisono tree plan --members`) and not by
    /// the network's file.
    pub members: Option<Vec<NodeId>>,
}
