//! Gangs of real programs on this machine: control groups, journal, guardian, placement, and the run itself.

pub(crate) mod board;
mod floor;
pub mod guardian;
mod hold;
pub mod leftover;
mod options;
pub mod placement;
mod program;
mod reserve;
pub(crate) mod resting;
pub mod run;
pub(crate) mod scheduler;
mod summary;
pub(crate) mod threads;
pub(crate) mod trace;
mod watch;
mod width;
pub mod worth;
