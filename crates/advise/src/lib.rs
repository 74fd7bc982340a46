//! Finds the setting that makes parallel programs fast on this machine: runs the programs with several
//! remedies, watches the runs, and judges them.
//!
//! ```text
//!   remedy   the command line of each remedy                   (pure)
//!   tree     reads /proc: the threads of a program and its children
//!   wrapper  finds the program behind a process that only waits for it
//!   switches records how long threads work between two sleeps
//!   watch    turns readings into an observation of one run            (pure)
//!   trial    runs the remedies in turns, watches each run, stops runs that take too long
//!   cost     the cost of a run, and the price that others pay            (pure)
//!   judge    turns runs and observations into a verdict               (pure)
//!   predict  simulates each remedy and compares it with plain Linux      (pure)
//! ```
//! Read the files in this order.
//!
//! Every remedy that is still in the trial runs once in each round, so a change of the machine affects all
//! remedies alike. A remedy is compared with plain Linux in the same round. A remedy that failed or was
//! stopped leaves the trial. A remedy is advised only if it beats plain Linux even without the processors
//! that it took from other programs, and a simpler remedy is preferred unless a later one is clearly faster.
//!
//! Cost: the programs run many times. During a run, reading `/proc` takes at most 1 % of one processor;
//! readings that take longer are made less often. Do not use it for programs that must not run twice, or that
//! do not end.
//!
//! Reference: S. Peter and others, "Gang scheduling isn't worth it... yet", ETH Zurich TR 745 (2011), section
//! 3: the conditions under which gangs pay. The sixth condition, the quota of a container, is newer than the
//! paper.
#![forbid(unsafe_code)]

pub mod cost;
pub mod judge;
pub mod predict;
pub mod remedy;
pub mod switches;
pub mod tree;
pub mod trial;
pub mod watch;
pub mod wrapper;

pub use cost::BystanderLoss;
pub use judge::{Advice, AdviceVerdict, GangCondition, SelfishRemedy, judge, threads_at_a_time};
pub use predict::Prediction;
pub use remedy::{FitPlan, TriedRemedy};
pub use trial::{RunEnd, TrialRun, TrialRuns};
pub use watch::Observation;
