//! Barrier trees in the switches of Linux.
#![forbid(unsafe_code)]

pub mod compile;
mod error;
pub mod fabric;
pub mod layout;
pub mod object;
mod program;
mod routes;
pub mod software;

pub use error::Error;
pub use program::SwitchProgram;
