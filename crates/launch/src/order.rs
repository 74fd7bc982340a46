//! The user's options for a job, and the part of the job that each host runs.

use crate::lines::Prefix;
use crate::placement::Bind;
use crate::summary::JobSummary;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::time::Duration;

/// Whether the job prints its window operations at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindowTable {
    #[default]
    Omitted,
    /// Rank 0 prints them on its standard error when it leaves the job.
    Printed,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Options {
    pub ranks: usize,
    pub command: Vec<OsString>,
    pub bind: Bind,
    /// Whether each line of output begins with its rank.
    pub prefix: Prefix,
    /// Whether rank 0 prints the job's window operations.
    pub windows: WindowTable,
    /// The grace period: the time that the other ranks get after a failure before SIGTERM, and after SIGTERM
    /// before SIGKILL.
    pub grace: Duration,
    /// The time limit of the job.
    pub limit: Option<Duration>,
}

/// The launcher's first message to a helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HelperOrder {
    pub(crate) directory: OsString,
    pub(crate) options: Options,
    pub(crate) part: JobPart,
}

/// The ranks of a job that are started on one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobPart {
    /// The lowest rank on the host; the others follow it.
    pub(crate) first: usize,
    /// The number of ranks in the whole job.
    pub(crate) size: usize,
    pub(crate) key: String,
    pub(crate) remote: Option<RemotePart>,
}

/// The data that only a job on several hosts has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RemotePart {
    pub(crate) host: String,
    pub(crate) root: String,
}

/// The helper's last message to the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HelperEnd {
    Ended(JobSummary),
    /// The ranks were not started, or their supervision failed before their end.
    Refused {
        code: u8,
        problem: String,
    },
}
