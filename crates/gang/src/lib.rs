//! Gang scheduling: all threads of a parallel program run at the same time, and programs take turns.
//!
//! ```text
//!   policy (pure)          Rotation: which gangs now, until when   <- property tests, simulator
//!   mechanism (the host)   freeze | real-time | sched-ext | stop   <- one trait, one conformance suite
//!   host                   programs, guardian, placement, measurement
//! ```
//!
//! Read the files in this order:
//!
//! 1. `gang.rs`, `matrix.rs`, `turn_quota.rs`, `policy/`: which gang runs when, without a clock;
//!    `simulate/` tries the policy on simulated cores, beside simulated kernels.
//! 2. `journal/`: the changes to undo, written before they are made; `cgroups.rs`: the gangs' control groups.
//! 3. `mechanism/`: stopping gangs and letting them run.
//! 4. `host/run.rs`: one run from start to end; `host/scheduler.rs`: the thread that switches gangs.
//! 5. `service/mod.rs`: the daemon, to which running programs are added.
//!
//! The crate does not change programs, does not know how the threads of real programs synchronize, and does
//! not talk to other machines: `shared_clock.rs` lets daemons agree by their clocks alone. Gangs do not help
//! programs that block often or whose threads have unequal work; `unisono study gang` measures that.
#![forbid(unsafe_code)]

pub mod cgroups;
mod class;
pub mod error;
pub mod gang;
pub mod host;
pub mod journal;
pub mod matrix;
pub mod mechanism;
pub mod policy;
pub mod service;
mod shared_clock;
pub mod simulate;
mod steering;
pub mod turn_quota;

pub use error::{Error, GangHint, Result};
pub use gang::{GangId, GangWeight};
