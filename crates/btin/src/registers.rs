//! Barrier registers: what a switch must know about a group (paper, Figure 4), and the tree that they form.
//!
//! Only the part that set-up writes is here. Arrival bits and data belong to a barrier in progress, and so to
//! [`Switch`](crate::Switch).

use crate::{GroupId, NodeId, Port, SwitchId};
use std::collections::BTreeMap;

/// Where a barrier turns from reduction to distribution.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TurnPoint {
    /// At the root node, as in the paper.
    #[default]
    AtNode,
    /// At the root switch, which needs no node for it.
    AtSwitch,
}

/// The register of one switch for one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register {
    /// The port towards the parent switch; at the root switch that of the root node. None only at a root
    /// switch without members (beyond the paper), where messages turn around in the switch.
    pub parent: Option<Port>,
    /// The ports towards child switches, ascending.
    pub children: Vec<Port>,
    /// The ports of local member nodes, without the root node's, ascending.
    pub locals: Vec<Port>,
}

impl Register {
    /// The port from which the release comes, and the ports that have to arrive and are released, ascending.
    /// A switch at which messages turn around has no port above: it counts the root node among those below.
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
    /// Where reduction ends and distribution begins.
    pub root_switch: SwitchId,
    /// The member there that takes the last reduction message and sends the first distribution message.
    /// `None`: the root switch has no members.
    pub root_node: Option<NodeId>,
    pub registers: BTreeMap<SwitchId, Register>,
}

impl Tree {
    /// Where messages of this tree turn around, as far as one of its switches is concerned: only the root
    /// switch can turn them.
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
    /// What the file claims about the tree under this key.
    Claim(&'static str),
    /// Something is missing, so that no part can be pointed at.
    Whole,
}

/// What a file says about its tree beside the registers, as `unisono tree plan --json` does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Claims {
    /// Links from the root switch to the switch farthest below it.
    pub height: Option<u32>,
    pub edges: Option<u32>,
    /// Switches of the tree without children.
    pub leaves: Option<u32>,
}
