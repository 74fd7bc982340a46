//! Barrier trees in the switches of Linux: the data plane.
//!
//! ```text
//!   Network, groups --> Deployment: Fabric (namespaces, cables) + SwitchProgram (BPF) + a process a member
//!                          |-- set_up: the members write the registers, by messages through the network
//!                          |-- barriers: in the switches;  software: over UDP through the same switches
//!                          |-- cables: which carry nothing, said by the kernel when it happens
//!                          `-- suspects: whom a barrier waits for, read from the registers
//! ```
//!
//! Switches are network namespaces joined by pairs of devices; a barrier register is an element of a BPF map;
//! combining and replicating happen in a tc program at every port ([PROTOCOL.md](../PROTOCOL.md)). Nodes
//! speak the paper's two bytes, and two of episode, over raw sockets.
//!
//! It does not plan trees and does not decide what a switch does with a frame: `unisono-btin` does both, and
//! its table of cases is what the program is tested with. Needs root, clang and a kernel with BPF when it
//! runs, and nothing when it is built ([decision
//! 9](../../../docs/decisions/0009-the-switch-program-is-compiled-when-it-runs.md)).
#![forbid(unsafe_code)]

pub mod bench;
pub mod cables;
mod crew;
mod deployment;
pub mod diagnose;
mod error;
pub mod export;
pub mod fabric;
mod grace;
mod homes;
pub mod hop;
mod job;
pub mod layout;
pub mod leftovers;
mod node;
mod notes;
pub mod orders;
mod program;
mod routes;
pub mod software;

pub use deployment::{BarriersRan, CHECKED, Deployment, Endured, Repaired, Times};
pub use error::Error;
pub use homes::Homes;
pub use job::BarrierJob;
pub use program::SwitchProgram;
