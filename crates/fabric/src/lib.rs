//! Barrier trees in the switches of Linux: the data plane of `unisono tree deploy` and `tree bench`.
//!
//! ```text
//!   SwitchNetwork, groups --> Deployment: Fabric (namespaces) + SwitchProgram (BPF) + a process a member
//!                          |-- set_up: the members write the registers, by messages through the network
//!                          |-- barriers: in the switches;  software: over UDP through the same switches
//!                          |-- cables: cables that are down, from the kernel's notifications
//!                          `-- suspects: the nodes and links that hold up a barrier, read from the registers
//! ```
//!
//! Switches are network namespaces joined by pairs of devices. A barrier register is an element of a BPF map.
//! A tc program at every port combines and replicates ([PROTOCOL.md](../PROTOCOL.md)). Nodes send the paper's
//! two bytes, and two bytes of episode, over raw sockets.
//!
//! Read `deployment` first, then `fabric` (the network), `switch.bpf.c` with `layout` (the switches), and
//! `node` (the members). `orders` has the messages between deployment and nodes. `served` lends the switches
//! to other programs, such as those of MPI.
//!
//! The crate does not plan trees and does not define how a switch handles a frame: `unisono-btin` does both,
//! and its table of cases tests the BPF program. It needs root, clang and a kernel with BPF when it runs, and
//! none of them when it is built ([decision
//! 9](../../../docs/decisions/0009-the-switch-program-is-compiled-when-it-runs.md)).
#![forbid(unsafe_code)]

pub mod bench;
pub mod cables;
mod deployment;
pub mod diagnose;
mod error;
mod expedited_rcu;
pub mod export;
pub mod fabric;
mod home_processors;
pub mod hop;
mod job;
pub mod layout;
pub mod leftovers;
mod node;
mod node_processes;
pub mod orders;
mod program;
pub mod served;
pub mod software;
mod switches;

pub use deployment::{BarriersRan, Deployment, EnduranceResult, Repaired, TRACED_BARRIERS};
pub use error::Error;
pub use home_processors::HomeProcessors;
pub use job::BarrierJob;
pub use program::SwitchProgram;
pub use switches::Times;
