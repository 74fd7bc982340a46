//! Setting up registers, by the members themselves (paper, `Setup_Register`, section 3.1).
//!
//! Every member knows the network and the group, so each finds the same tree by itself and nobody has to
//! hand it out. The representative of a member switch (its member at the lowest port) writes the register of
//! its own switch, and asks a node of each switch without members below it, down to the next member switches,
//! to write the register there:
//!
//! ```text
//!        [1: member]            the agent at 1: writes 1, asks for 4 and 5
//!         /       \
//!      (4)       [2: member]    the agent at 2: writes 2
//!      /  \
//!   (5)   [3: member]           the agent at 3: writes 3
//!     \
//!    [6: member]                the agent at 6: writes 6
//! ```
//!
//! A switch without members has exactly one member switch nearest above it, so it is asked for exactly once.
//! Above a root without members (beyond the paper) there is none: the representative of the lowest member
//! switch asks for those.
//!
//! This is the protocol without a network: an [`SetupAgent`] says what to send and takes what comes back, a
//! [`Bank`] is the registers of one switch. Messages may be lost, repeated and overtake each other: what is
//! not answered is asked again, asking twice changes nothing, and a number that grows with each group of the
//! same id (its *life*) keeps a late request from bringing back what was released.
//!
//! A switch has a finite number of registers. If none is free, the register is kept in the memory of a node
//! at the switch, the representative member if there is one, at the price of a trip to that node for whatever
//! the switch combines or replicates ([`TreePlan::in_memory`](crate::TreePlan::in_memory) says where; the
//! simulator charges it). It stays there until its group ends. A switch that has neither a free register nor
//! a node refuses, and the group has no barrier in the switches.
//!
//! Cost: a plan at each member; a request and a reply for each switch of the tree that has no members;
//! nothing at all between members.

mod agent;
mod allot;
mod bank;

pub use agent::SetupAgent;
pub use allot::{NoPlace, allot};
pub use bank::Bank;

use crate::{GroupId, NodeId, Register, SwitchId};

/// From an agent to a switch, by way of a node there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetupRequest {
    pub group: GroupId,
    /// Which group of that id, in the order of their making.
    pub life: u32,
    /// Whose answer it wants.
    pub from: NodeId,
    /// At which switch.
    pub switch: SwitchId,
    /// What to do.
    pub order: RegisterOrder,
}

/// What to do with a register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegisterOrder {
    /// Set it up.
    Set {
        /// What it says.
        register: Register,
        /// The node at the switch that keeps it if no register is free; none if there are no nodes.
        keeper: Option<NodeId>,
    },
    /// Give it back.
    Release,
}

/// From a switch to the agent that asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetupReply {
    pub group: GroupId,
    /// Which group of that id.
    pub life: u32,
    pub to: NodeId,
    pub switch: SwitchId,
    /// What became of it.
    pub answer: SetupAnswer,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupAnswer {
    /// It is in a register of the switch.
    InSwitch,
    /// It is in the memory of this node.
    InMemory(NodeId),
    /// There is no register free, and no node to keep it.
    Refused,
    /// It is released, now or already.
    Released,
}

#[cfg(test)]
mod tests;
