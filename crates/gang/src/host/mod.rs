//! Gangs of real programs on this machine: groups, journal, guardian, placement, and the run itself.

pub mod arena;
pub mod guardian;
mod hold;
pub mod journal;
pub mod placement;
mod reserve;
pub mod run;
mod scheduler;
mod watch;
