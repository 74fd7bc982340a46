//! Barrier trees in the switches of an irregular network.
//!
//! A barrier over a network costs as many messages through one root as it has members, unless the switches
//! combine arrivals on the way up and replicate the release on the way down. For that each switch of a tree
//! holds one *barrier register* a group. This crate finds the tree, fills the registers, checks them
//! independently, and simulates what they are worth against unicast and multicast, after Moh, Yu, Han, Lee
//! and Lee, "A Fast Tree-Based Barrier Synchronization on Switch-Based Irregular Networks".
//!
//! ```text
//!   Network --- group of members ---> Tree (a Register a switch) ---> check | simulate | a data plane
//! ```
//!
//! It opens no sockets and knows no kernel: the data plane for Linux switches is another crate.
#![forbid(unsafe_code)]

pub mod check;
pub mod collective;
pub mod draw;
pub mod export;
pub mod format;
mod frame;
pub mod generate;
mod group;
mod member;
mod message;
mod names;
mod network;
mod operation;
mod plan;
pub mod reach;
pub mod read;
mod registers;
mod relax;
pub mod repair;
pub mod routing;
pub mod setup;
pub mod simulate;
pub mod switch;

pub use format::{Generated, ReadError, Topology};
pub use frame::BarrierFrame;
pub use group::{BarrierGroup, GroupError, GroupId};
pub use member::{GroupMember, MemberRole};
pub use message::{MessageKind, SyncMessage};
pub use names::{Names, PortNames};
pub use network::{End, Link, Neighbour, Network, NetworkError, NodeId, Port, SwitchId};
pub use operation::ReductionOperator;
pub use plan::{Certainty, Loads, PlanError, PlanOptions, Roots, Scan, Ties, TreePlan, plan, plan_watched};
pub use registers::{Claims, Register, Tree, TreeElement};
pub use switch::{Dropped, FrameOutcome, Switch, TurnPoint};
