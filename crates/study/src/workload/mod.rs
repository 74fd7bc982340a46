//! The programs that a study runs: BARRIER (the paper's Figure 1), small real kernels, and a bursty
//! stream of requests.
//!
//! All follow one protocol, which the peers in C and C++ follow too: the same flags ([`Options`]), a
//! short warm-up, then so many seconds, then one JSON object ([`Measurement`]). Whoever compares them
//! reads nothing else.
//!
//! What this module does not do: choose what to run beside what, or judge (that is the study's).

pub mod arrival;
pub mod barrier;
pub mod bursts;
pub mod competitor;
pub mod decisions;
pub mod disk;
pub mod ghost;
pub mod histogram;
pub mod kernel;
pub mod meter;
pub mod options;
pub mod own;
mod patience;
pub mod service;
pub mod spin;
mod stamp;
pub mod traffic;

pub use meter::{Measurement, NsPerBarrier};
pub use options::{Options, Pin};

use std::path::PathBuf;

/// Why a workload could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The options contradict themselves or this host.
    #[error("{0}")]
    Options(String),
    /// A participant could not be put on its processor.
    #[error("cannot pin participant {participant} to processor {cpu}: {source}")]
    Pin {
        participant: usize,
        /// Where it should have gone.
        cpu: usize,
        source: std::io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start participant {participant} of {threads}: {source}")]
    Start {
        participant: usize,
        /// How many were asked for.
        threads: usize,
        source: std::io::Error,
    },
    /// The barrier under test gave up.
    #[error("participant {participant}'s barrier failed: {reason}")]
    Barrier {
        participant: usize,
        /// What it said.
        reason: String,
    },
    /// A participant panicked.
    #[error("participant {participant} panicked")]
    Panicked { participant: usize },
    /// The exchange of ghost areas failed.
    #[error("{0}")]
    Exchange(String),
    /// The result could not be written.
    #[error("cannot write {path}: {source}")]
    Result { path: PathBuf, source: std::io::Error },
}
