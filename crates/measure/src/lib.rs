//! Statistics of runs: quantiles and histograms, intervals of medians, paired comparison, detection of two
//! modes, noise warnings, verdicts in words, and the record format that `study` writes and `report` reads.
//!
//! The idea: Unisono shows no number alone. A median comes with its interval and the number of runs that it
//! was computed from. A comparison pairs runs that are neighbors in time. Runs that fall into two clusters
//! are shown as two clusters, never as the mean between them.
//!
//! | to | use |
//! |---|---|
//! | collect nanoseconds inside a program | [`Histogram`] |
//! | summarize a handful of runs | [`quantile::distribution`], [`interval::median_interval`] |
//! | compare two variants | [`paired::compare`], or [`verdict::judge`] straight from records |
//! | see whether the runs have *one* median at all | [`modes::two_modes`] |
//! | say which values of the records are meant | [`Selector`] |
//! | see why figures are doubtful | [`noise::run_warnings`] |
//! | know how long an undecided comparison takes | [`time_to_decide::pairs_to_decide`] |
//! | know whether a run is data | [`disturbance::NormalLoad`] |
//!
//! This crate does not run anything and does not draw anything.
#![forbid(unsafe_code)]

pub mod background;
pub mod budget;
pub mod bystanders;
pub mod disturbance;
pub mod evidence;
pub mod histogram;
pub mod interval;
pub mod modes;
pub mod noise;
pub mod paired;
pub mod quantile;
pub mod record;
pub mod selector;
pub mod tick_share;
pub mod time_to_decide;
pub mod units;
pub mod verdict;

pub use evidence::Evidence;
pub use histogram::Histogram;
pub use interval::Estimate;
pub use modes::{RunCluster, TwoModes};
pub use paired::Comparison;
pub use selector::Selector;
