//! What a job did, for `--json`.

use serde::{Deserialize, Serialize};

/// A finished job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobSummary {
    /// The program and its arguments.
    pub command: Vec<String>,
    pub size: usize,
    /// What the launcher exits with: the first failing rank's code (128 + signal), 124 after the time limit.
    pub exit_code: u8,
    /// The first rank that failed.
    pub first_failure: Option<usize>,
    /// Whether the time limit passed.
    pub timed_out: bool,
    /// Whether ranks were bound to processors: "core" or "none".
    pub bind: String,
    /// From the first start to the last end.
    pub seconds: f64,
    pub ranks: Vec<RankSummary>,
}

/// A rank of a finished job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankSummary {
    pub rank: usize,
    /// The host that it ran on, in a job on several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<String>,
    /// The kernel's number of its process.
    pub process: u32,
    /// The processor it was bound to.
    pub cpu: Option<usize>,
    /// If it ended by itself.
    pub exit_code: Option<i32>,
    /// If a signal ended it.
    pub signal: Option<i32>,
    /// From its start to its end.
    pub seconds: f64,
}
