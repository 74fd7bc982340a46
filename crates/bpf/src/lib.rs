//! Barrier trees in the switches of Linux.
#![forbid(unsafe_code)]

pub mod compile;
mod error;
pub mod layout;
pub mod object;
mod program;

pub use error::Error;
pub use program::SwitchProgram;
