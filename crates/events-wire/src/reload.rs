//! The broker's report after its files were read again.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The files that a reload has read, and the connections that it has ended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReloadReport {
    /// The reason if nothing has changed: the first error of a file. `None`: the new files are in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The kinds of files that were read: `policy`, `permissions`, `tokens`, `certificates`.
    pub read: Vec<String>,
    /// Number of connections that were ended.
    pub ended: u64,
    /// Number of MQTT sessions that were ended.
    pub sessions_ended: u64,
    /// The first of the connections that were ended.
    pub ends: Vec<EndedConnection>,
}

/// A connection that was ended because its client has lost the permissions for its present use.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EndedConnection {
    /// The client's identity, as it is written in the permissions.
    pub who: String,
    /// The name that the client has chosen.
    pub name: String,
    pub why: String,
}

impl ReloadReport {
    /// The maximum length of `ends`. The audit log lists all ended connections. Chosen, not measured.
    pub const MAX_ENDS: usize = 64;
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.refused {
            return write!(f, "{why}; nothing was changed");
        }
        match self.read.as_slice() {
            [] => f.write_str("the broker was started without files")?,
            [one] => write!(f, "read again: {one}")?,
            [first @ .., last] => write!(f, "read again: {} and {last}", first.join(", "))?,
        }
        write!(f, "; connections ended: {}", self.ended)?;
        if self.sessions_ended > 0 {
            write!(f, "; MQTT sessions ended: {}", self.sessions_ended)?;
        }
        Ok(())
    }
}
