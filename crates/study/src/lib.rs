//! Turns study files into interleaved runs, and runs into records.
//!
//! ```text
//!   studies/*.toml --file--> StudyFile --plan--> [PlannedRun] --runner--> records.jsonl
//!                                                     |
//!                                        driver (single, pair, wait-cost, burst, ...)
//!                                                     |
//!                                    programs: unisono-workload (ours), peer (others')
//! ```
//! A study examines one claim: which variants to compare, over which sweeps, how often (repetitions), which
//! charts to draw and which verdicts to give. Runs of one repetition are neighbors in time. Read `file`
//! first, then `plan`, `runner` and `driver`. `continuation` plans more runs for undecided comparisons,
//! `extension` adds the studies of another program. This crate neither draws nor prints: `unisono-report`
//! draws the records, and the program prints.
#![forbid(unsafe_code)]

pub mod child;
pub mod compare;
pub mod continuation;
pub mod driver;
pub mod extension;
pub mod file;
pub(crate) mod foreign_load;
pub mod host;
pub mod library;
pub mod peer;
pub mod plan;
pub mod profile;
pub mod record_file;
pub mod runner;
pub mod summary;
mod time_left;
mod time_table;

/// The commit of this build, or `unknown`.
pub const COMMIT: &str = env!("UNISONO_COMMIT");
