//! Finds out which setting makes parallel programs fast on this machine: it watches the programs, runs them
//! in each of a few ways, and judges what it saw.
//!
//! ```text
//!   remedy   what to start for each way to run the programs       (pure)
//!   tree     reads /proc: the threads of a program and its children
//!   switches records for how long threads work between two sleeps
//!   watch    turns readings into an observation of one run        (pure)
//!   trial    runs the ways by turns, watches each run, stops what takes too long
//!   judge    turns runs and observations into a verdict           (pure)
//!   predict  what the simulator expects of each way               (pure)
//! ```
//! Read the files in this order.
//!
//! Every way that is still in the trial runs once in each round, so a change of the machine affects all ways
//! alike. A way is compared with plain Linux in the same round. A way that failed or was stopped leaves the
//! trial. A remedy is advised only if it beats
//! plain Linux, and a simpler remedy is preferred unless a later one is clearly faster.
//!
//! Cost: the programs run many times. While one runs, reading `/proc` takes at most 1 % of one processor; a
//! reading that takes longer is made less often. Do not use it for programs that must not run twice, or that
//! do not end.
//!
//! Reference: S. Peter and others, "Gang scheduling isn't worth it... yet", ETH Zurich TR 745 (2011), section
//! 3: the conditions under which gangs pay. The sixth condition, the quota of a container, is newer than the
//! paper.
#![forbid(unsafe_code)]

pub mod judge;
pub mod predict;
pub mod remedy;
pub mod switches;
pub mod tree;
pub mod trial;
pub mod watch;

pub use judge::{Advice, AdviceVerdict, GangCondition, judge};
pub use predict::Prediction;
pub use remedy::{FitPlan, TriedRemedy};
pub use trial::{RunEnd, TrialRun, TrialRuns};
pub use watch::Observation;
