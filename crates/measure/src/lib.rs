//! What a run measured and how sure we are of it: histograms, bootstrap intervals, paired
//! comparison, noise verdicts, and the record format that `study` writes and `report` reads.
//!
//! This crate does not run anything and does not draw anything.
#![forbid(unsafe_code)]

pub mod record;
pub mod units;
