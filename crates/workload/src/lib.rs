//! The programs that a study runs: BARRIER (the paper's Figure 1), small real kernels, and a bursty stream of
//! requests.
//!
//! All follow one protocol, as do the peers in C and C++: the same flags ([`Options`]), a short warm-up, the
//! measured seconds, then one JSON object ([`Measurement`]). This makes them comparable. The study decides
//! which programs run side by side. They are a crate of their own because they are timed, so they are
//! compiled with optimization, and the crates that start them are not.
#![forbid(unsafe_code)]

pub mod arrival;
pub mod barrier;
pub mod barrier_choice;
pub mod bursts;
pub mod competitor;
pub mod conversation;
pub mod decisions;
pub mod ghost;
mod histogram;
pub mod kernel;
mod meter;
pub mod microbenchmark;
pub mod options;
pub mod retry;
pub mod spin;

pub use meter::{Measurement, NsPerBarrier};
pub use options::{Options, Pin};

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{0}")]
    Options(String),
    #[error("cannot pin participant {participant} to processor {cpu}: {source}")]
    Pin { participant: usize, cpu: usize, source: std::io::Error },
    #[error("cannot start participant {participant} of {threads}: {source}")]
    Start { participant: usize, threads: usize, source: std::io::Error },
    #[error("participant {participant}'s barrier failed: {reason}")]
    Barrier { participant: usize, reason: String },
    #[error("participant {participant} panicked")]
    Panicked { participant: usize },
    #[error("{0}")]
    Exchange(String),
    #[error("cannot write {path}: {source}")]
    Result { path: PathBuf, source: std::io::Error },
}
