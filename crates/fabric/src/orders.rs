//! The messages between the deployment and the processes of its nodes: one line of JSON for each.

use crate::software::SoftwareAlgorithm;
use serde::{Deserialize, Serialize};
use unisono_linux::clock::{Duration, Instant};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeOrder {
    /// Set up the registers that are the node's duty, for all its groups.
    SetUp {
        /// The links that are down, in the order of their failures. Trees are repaired around one link after
        /// the other, so that all nodes compute the same trees.
        without: Vec<u32>,
        /// The first episode. No earlier set-up began with this episode, so that a register of an earlier
        /// set-up does not count as set up.
        first: u16,
    },
    Release,
    Barriers {
        /// The indices of the jobs to run at the same time. A node ignores jobs that it is no member of.
        jobs: Vec<usize>,
        run: BarrierRun,
    },
    Software {
        algorithm: SoftwareAlgorithm,
        job: usize,
        /// The number of this run; messages of other runs are ignored.
        tag: u8,
        run: BarrierRun,
    },
    Stop,
}

/// The number of barriers, and the data to record of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BarrierRun {
    pub warm_up: u32,
    pub count: u32,
    /// Whether to report when each barrier was entered and left.
    pub trace: bool,
    /// A barrier that takes longer than this, in milliseconds, is reported.
    pub stuck_after: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeReport {
    Ready,
    /// The number of registers that were set up or released at its request.
    SetUp {
        registers: usize,
    },
    Done {
        /// The time from the end of the warm-up to the end of the run.
        took: Duration,
        repeated: u64,
        /// When each barrier was entered and left, if a trace was requested.
        moments: Vec<(Instant, Instant)>,
    },
    /// The node has been in one barrier for longer than [`BarrierRun::stuck_after`], and continues to wait.
    Stuck {
        job: usize,
        episode: u16,
    },
    Stopped,
    Failed {
        why: String,
    },
}
