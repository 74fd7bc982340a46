//! What the deployment and the processes of its nodes say to each other: one line of JSON for each message.

use crate::software::SoftwareAlgorithm;
use serde::{Deserialize, Serialize};
use unisono_linux::clock::Nanos;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeOrder {
    /// Set up the registers that are its duty, for all its groups.
    SetUp {
        /// Links that are down, in the order in which they failed. Trees are repaired around one after the
        /// other, so that all nodes compute the same trees.
        without: Vec<u32>,
        /// The episode with which barriers begin. It is never used twice, so that no register counts as set
        /// up before it is.
        first: u16,
    },
    Release,
    Barriers {
        /// The jobs to run at once, by position. A node ignores jobs of which it is no member.
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

/// How many barriers, and what to keep of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BarrierRun {
    pub warm_up: u32,
    pub count: u32,
    /// Whether to report when each barrier was entered and left.
    pub trace: bool,
    /// After this long in one barrier it is reported (ms).
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
        /// From the end of the warm-up to the end.
        took: Nanos,
        repeated: u64,
        /// When each barrier was entered and left, if a trace was asked for.
        moments: Vec<(Nanos, Nanos)>,
    },
    /// It has been in one barrier for long, and goes on waiting.
    Stuck {
        job: usize,
        episode: u16,
    },
    Stopped,
    Failed {
        why: String,
    },
}
