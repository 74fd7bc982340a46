//! Barrier registers: what a switch must know about a group (paper, Figure 4), and the tree they make up.
//!
//! Only what is set up lies here; arrival bits and data belong to a barrier in progress, and so to the
//! switch that runs it.

use crate::{GroupId, NodeId, Port, SwitchId};
use std::collections::BTreeMap;

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
    /// Whether a port means something in it.
    #[must_use]
    pub fn uses(&self, port: Port) -> bool {
        self.parent == Some(port) || self.children.contains(&port) || self.locals.contains(&port)
    }
}

/// A barrier tree: the registers of all its switches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// Whose barrier it is.
    pub group: GroupId,
    /// Where reduction ends and distribution begins.
    pub root_switch: SwitchId,
    /// The member there that takes the last reduction message and sends the first distribution message; none
    /// if the root switch has no members.
    pub root_node: Option<NodeId>,
    /// The registers, by switch.
    pub registers: BTreeMap<SwitchId, Register>,
}

/// A part of a [`Tree`] that an error can point at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeElement {
    Group,
    RootSwitch,
    RootNode,
    /// A register as a whole.
    Register(SwitchId),
    /// The parent port of a register.
    Parent(SwitchId),
    /// A child port of a register, by its index.
    Child(SwitchId, usize),
    /// A local port of a register, by its index.
    Local(SwitchId, usize),
    /// What the file claims about the tree under this key.
    Claim(&'static str),
    /// The error is about something that is missing.
    Whole,
}

/// What a file says about its tree beside the registers, as `unisono tree plan --json` does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Claims {
    /// Links from the root switch to the switch farthest below it.
    pub height: Option<u32>,
    /// Links between switches of the tree.
    pub edges: Option<u32>,
    /// Switches without children.
    pub leaves: Option<u32>,
}
