//! What a job did, for `--json`.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobSummary {
    pub command: Vec<String>,
    pub size: usize,
    /// What the launcher exits with: the first failing rank's code (128 + signal), 124 after the time limit.
    pub exit_code: u8,
    pub first_failure: Option<usize>,
    pub timed_out: bool,
    /// Whether ranks were bound to processors: "core" or "none".
    pub bind: String,
    /// From the first start to the last end.
    pub seconds: f64,
    pub ranks: Vec<RankSummary>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankSummary {
    pub rank: usize,
    /// The host that it ran on, in a job on several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub host: Option<String>,
    /// The kernel's number of its process.
    pub process: u32,
    pub cpu: Option<usize>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// From its start to its end.
    pub seconds: f64,
}
