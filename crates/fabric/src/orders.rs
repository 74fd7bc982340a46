//! What the deployment and the processes of its nodes say to each other: a line of JSON each.

use crate::software::SoftwareAlgorithm;
use serde::{Deserialize, Serialize};

/// What a node is told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeOrder {
    /// Set up the registers that are its duty, for all its groups.
    SetUp {
        /// Links that are down, by number, in the order in which they failed: trees are repaired around one
        /// after the other, so that everybody comes to the same.
        without: Vec<u32>,
        /// With which episode barriers begin: never twice the same, so that no register is taken for set up
        /// before it is.
        first: u16,
    },
    Release,
    /// Run barriers in the switches.
    Barriers {
        /// Of which jobs at once, by position; those of which it is no member do not concern it.
        jobs: Vec<usize>,
        run: BarrierRun,
    },
    /// Run barriers in software.
    Software {
        algorithm: SoftwareAlgorithm,
        /// Among whose members.
        job: usize,
        /// Which run this is: messages of others are not meant.
        tag: u8,
        run: BarrierRun,
    },
    /// Give up what it is doing.
    Stop,
}

/// How many barriers, and what to keep of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BarrierRun {
    /// Before the clock starts.
    pub warm_up: u32,
    /// While it runs.
    pub count: u32,
    /// Whether to report when each barrier was entered and left.
    pub trace: bool,
    /// After how long in one barrier to say so, in milliseconds.
    pub stuck_after: u64,
}

/// What a node says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeReport {
    /// It is there.
    Ready,
    /// So many registers were set up or released at its request.
    SetUp { registers: usize },
    /// The barriers are done.
    Done {
        /// From the end of the warm-up to the end, in nanoseconds.
        nanos: u64,
        /// How often its timer ran out.
        repeated: u64,
        /// When each was entered and left, if asked for.
        moments: Vec<(u64, u64)>,
    },
    /// It has been in one barrier for long; it goes on waiting.
    Stuck {
        /// Of which job.
        job: usize,
        /// In which episode.
        episode: u16,
    },
    /// It gave up, as it was told.
    Stopped,
    /// It cannot go on.
    Failed { why: String },
}
