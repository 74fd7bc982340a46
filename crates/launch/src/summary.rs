//! The summary of a job, for `--json`.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobSummary {
    pub command: Vec<String>,
    pub size: usize,
    /// The launcher's exit code: the first failing rank's code (128 + signal), or 124 after the time limit.
    pub exit_code: u8,
    pub first_failure: Option<usize>,
    pub timed_out: bool,
    /// Whether ranks were bound to processors: "core" or "none".
    pub bind: String,
    /// The time from the first rank's start to the last rank's end.
    pub seconds: f64,
    pub ranks: Vec<RankSummary>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankSummary {
    pub rank: usize,
    /// The rank's host, in a job on several hosts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<String>,
    /// The process number.
    pub process: u32,
    pub cpu: Option<usize>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// The time from the rank's start to its end.
    pub seconds: f64,
}
