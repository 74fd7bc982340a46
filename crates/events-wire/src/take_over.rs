//! The hand-over of a broker's listening sockets, and then of its log, to the process that serves after it.
//!
//! ```text
//!   successor                        broker
//!      |-- TAKE-OVER sockets --------->|  serves on
//!      |<- sockets, TAKEN-OVER --------|
//!   reads and checks all that it needs
//!      |-- TAKE-OVER log ------------->|  serves nobody, writes and syncs the log, unlocks it
//!      |<- TAKEN-OVER -----------------|  waits
//!   opens the log
//!      |-- TAKE-OVER serving --------->|  ends
//! ```
//! If the successor's connection ends before its last frame, the broker locks its log again and serves on.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The steps of a successor, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TakeOverStep {
    /// The successor asks for the listening sockets.
    Sockets,
    /// The successor can serve, and asks for the log.
    Log,
    /// The successor serves.
    Serving,
}

impl TakeOverStep {
    const ALL: [Self; 3] = [Self::Sockets, Self::Log, Self::Serving];

    pub(crate) fn number(self) -> u32 {
        self as u32
    }

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.number() == number)
    }
}

/// The broker's answer to a step of a successor.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TakeOverReport {
    /// The reason if the broker refuses the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Number of sockets that were passed before this answer.
    pub sockets: u32,
    /// The directory of the broker's log, as an absolute path. `None`: the broker keeps no log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
}
