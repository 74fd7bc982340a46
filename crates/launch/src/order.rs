//! What is to be started: the job as its user asks for it, and the part of it that one host gets.

use crate::lines::Prefix;
use crate::placement::Bind;
use crate::summary::JobSummary;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::time::Duration;

/// Whether the job prints at its end what its windows did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WindowTable {
    #[default]
    Omitted,
    /// Rank 0 does, on its standard error, when the program ends its membership.
    Printed,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Options {
    pub ranks: usize,
    pub command: Vec<OsString>,
    pub bind: Bind,
    /// Whether lines say whose they are.
    pub prefix: Prefix,
    /// Whether rank 0 prints what the windows of the job did.
    pub windows: WindowTable,
    /// What the others get after a failure before SIGTERM, and after SIGTERM before SIGKILL.
    pub grace: Duration,
    /// The longest that the job may take.
    pub limit: Option<Duration>,
}

/// What a launcher tells a helper first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HelperOrder {
    pub(crate) directory: OsString,
    pub(crate) options: Options,
    pub(crate) part: JobPart,
}

/// The part of a job that one launcher starts itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobPart {
    /// The lowest rank; the others follow.
    pub(crate) first: usize,
    /// Ranks of the whole job.
    pub(crate) size: usize,
    pub(crate) key: String,
    pub(crate) remote: Option<RemotePart>,
}

/// What only a job on several hosts has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RemotePart {
    pub(crate) host: String,
    pub(crate) root: String,
}

/// What a helper tells the launcher last.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HelperEnd {
    Ended(JobSummary),
    /// The ranks were not started, or not watched to their end.
    Refused {
        code: u8,
        problem: String,
    },
}
