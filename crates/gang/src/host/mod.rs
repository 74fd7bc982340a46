//! Gangs of real programs on this machine: groups, journal, guardian, placement, and the run itself.

mod floor;
pub mod guardian;
mod hold;
pub mod leftover;
mod options;
pub mod placement;
mod program;
mod reserve;
pub mod run;
mod scheduler;
mod summary;
mod trace;
mod watch;
mod width;
