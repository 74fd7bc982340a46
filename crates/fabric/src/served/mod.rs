//! Switches for other programs: a network whose registers processes of its hosts claim, such as ranks of MPI.
//!
//! ```text
//!   a host (namespace of a node)                        switches
//!     process --HelperConnection::claim--> helper --requests--> registers
//!             <--packet socket------------   (root)
//!             --SwitchMember::arrive ------------------arrivals--> register -> register
//!             <----------------------------------------releases---
//! ```
//! The idea: only root can open packet sockets and write registers. So a deployment leaves a process of root
//! at each host, the *helper*. A process asks its helper for a group; the helper plans the group's tree, as
//! all helpers of the group do, writes the registers that are its host's part (those for which its node is
//! the representative, as the paper's `Setup_Register` has it), and gives the process a socket. The processes
//! agree among themselves on the group's number, its members and its first episode.
//!
//! A group has the register with its number in every switch of its tree. A claim finds a register in use if
//! another group has the number there; the processes then try the next number, and if no number is left, they
//! have no barrier in the switches. (The paper keeps such registers in a node's memory.) Registers are
//! returned when all processes have left the group (`group.rs`), or at once when a process dies.
//!
//! Cost: a round trip to the helper and one to each switch for each group; nothing for each barrier. When not
//! to use: across hosts that are not one deployment.

mod client;
mod group;
mod helper;
mod member;
mod message;
mod network;

pub use client::{GroupClaim, HelperConnection};
pub use member::SwitchMember;
pub use message::{GroupSet, HelperOffer, digest};
pub use network::{MAX_REGISTERS, ServedNetwork};
