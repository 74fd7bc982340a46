//! Gangs: parallel programs whose threads run at the same time, in turns with those of other programs.
//!
//! ```text
//!   policy (pure)          Rotation: which gangs now, until when   <- property tests, simulator
//!   mechanism (the host)   freeze | real-time | stop               <- one trait, one conformance suite
//!   run                    programs, groups, journal, guardian, placement, measurement
//! ```
//!
//! What it does not do: it does not change programs, does not know what they synchronize with, and does not
//! schedule across machines. When gangs are not worth it - programs that block often, unequal work between
//! threads - `unisono study gang` shows it.
#![forbid(unsafe_code)]

pub mod error;
pub mod gang;
pub mod host;
pub mod matrix;
pub mod mechanism;
pub mod policy;
pub mod simulate;

pub use error::{Error, Result};
pub use gang::{GangId, Nanos, Weight};
