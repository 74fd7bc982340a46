//! Gangs of real programs on this machine: control groups, journal, guardian, placement, and the run itself.

pub mod guardian;
mod hold;
pub mod leftover;
mod main_loop;
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
pub(crate) mod turn_status;
mod turns;
mod watch;
mod width;
pub mod worth;
