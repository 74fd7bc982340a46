//! For `unisono tree deploy`: the members set up the registers by themselves (paper, `Setup_Register`,
//! section 3.1).
//!
//! Every member knows the network and the group, so each computes the same tree by itself and no process has
//! to distribute it. The representative of a member switch (its member at the lowest port) writes the
//! register of its own switch. Below that switch, down to the next member switches, it asks a node of each
//! switch without members to write the register there:
//!
//! ```text
//!        [1: member]            the agent at 1: writes 1, asks for 4 and 5
//!         /       \
//!       (4)       [2: member]    the agent at 2: writes 2
//!      /  \
//!   (5)   [3: member]           the agent at 3: writes 3
//!     \
//!    [6: member]                the agent at 6: writes 6
//! ```
//!
//! Each switch without members has exactly one nearest member switch above it, so that each register is
//! requested once. A root without members (beyond the paper) has no member switch above it: the
//! representative of the lowest member switch asks for the root and the switches without members below it.
//!
//! This module is the protocol without a network: a [`SetupAgent`] makes requests and handles the answers,
//! and a [`Bank`] stores the registers of one switch. Messages may be lost, repeated and reordered. An agent
//! repeats a request until it has an answer, and a repeated request changes nothing. Successive groups of the
//! same id are numbered (the *life* of a group), so that a late request cannot set up a released register
//! again.
//!
//! A switch has a finite number of registers. If none is free, a node at the switch keeps the register in its
//! memory: the representative member if there is one. Each message that the switch combines or replicates
//! then makes a trip to that node ([`TreePlan::in_memory`](crate::TreePlan::in_memory) lists these registers;
//! the simulator charges for the trips). The register stays there until its group ends. A switch that has
//! neither a free register nor a node refuses, and the group has no barrier in the switches.
//!
//! Cost: a plan at each member; a request and a reply for each switch of the tree that has no members; no
//! messages between members.

mod agent;
mod allot;
mod bank;

pub use agent::SetupAgent;
pub use allot::{NoPlace, allot};
pub use bank::Bank;

use crate::{GroupId, NodeId, Register, SwitchId};

/// A message from an agent to a switch, by way of a node there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetupRequest {
    pub group: GroupId,
    /// Counts the groups that have had this id, so that a late request of an earlier group is recognized.
    pub life: u32,
    pub from: NodeId,
    pub switch: SwitchId,
    pub order: RegisterOrder,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegisterOrder {
    Set {
        register: Register,
        /// The node at the switch whose memory keeps the register if the switch has none free. `None`: the
        /// switch has no nodes.
        keeper: Option<NodeId>,
    },
    Release,
}

/// A message from a switch to the agent that sent the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetupReply {
    pub group: GroupId,
    /// As in the request.
    pub life: u32,
    pub to: NodeId,
    pub switch: SwitchId,
    pub answer: SetupAnswer,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupAnswer {
    /// The group's register is in the switch.
    InSwitch,
    /// The group's register is in the memory of this node.
    InMemory(NodeId),
    /// No register of the switch is free, and there is no node whose memory could keep one.
    Refused,
    Released,
}

#[cfg(test)]
mod tests;
