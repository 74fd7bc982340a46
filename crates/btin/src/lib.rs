#![doc = include_str!("../README.md")]
//! # Reading the crate
//!
//! ```text
//!   SwitchNetwork --- group of members ---> Tree (a Register a switch) ---> check | simulate | a data plane
//! ```
//!
//! Read `network`, `group` and `registers` first: they define the terms. Then read `plan/mod` (the choice of
//! the tree), `switch/mod` and `member` (how switches and members handle frames), and `setup/mod` (how
//! registers get into switches). `read` and `format` are about files; `check`, `routing` and `simulate` judge
//! trees; `repair` mends them.
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
mod member_tree;
mod message;
mod names;
mod network;
mod operation;
mod plan;
pub mod reach;
#[cfg(feature = "foreign")]
pub mod read;
mod registers;
mod relax;
pub mod repair;
pub mod routing;
pub mod setup;
pub mod simulate;
pub mod switch;

pub use format::{Generated, NetworkFile, ReadError};
pub use frame::BarrierFrame;
pub use group::{BarrierGroup, GroupError, GroupId};
pub use member::{GroupMember, MemberRole};
pub use member_tree::MemberTree;
pub use message::{MessageKind, SyncMessage};
pub use names::{Names, PortNames, host_of_label};
pub use network::{End, Neighbour, NodeId, Port, SwitchId, SwitchLink, SwitchNetwork, SwitchNetworkError};
pub use operation::ReductionOperator;
pub use plan::{Certainty, Loads, PlanError, PlanOptions, Roots, Scan, Ties, TreePlan, plan, plan_watched};
pub use registers::{Claims, Register, Tree, TreeElement, TurnPoint};
pub use switch::{Dropped, FrameOutcome, Switch};
