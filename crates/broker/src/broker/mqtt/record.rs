//! The logged part of a session, as the broker has it in memory (`saved.rs` writes and restores it).

use crate::log::{SessionLine, session_file};
use std::collections::BTreeSet;

/// The logged part of a session.
#[derive(Debug)]
pub(super) struct SessionRecord {
    /// The name of its file.
    pub(super) file: String,
    /// Positions of logged events that wait, by the QoS of their queue.
    pub(super) waiting: [BTreeSet<u64>; 3],
    /// When the client disconnected, in nanoseconds of the log's time.
    pub(super) away: Option<u64>,
    /// Lines that are not written yet.
    pub(super) lines: Vec<u8>,
    /// Whether the file lacks changes, so that it has to be written anew.
    pub(super) is_stale: bool,
}

impl SessionRecord {
    pub(super) fn new(key: &str) -> Self {
        Self {
            file: session_file(key),
            waiting: [const { BTreeSet::new() }; 3],
            away: None,
            lines: Vec::new(),
            is_stale: true,
        }
    }

    pub(super) fn note(&mut self, line: &SessionLine) {
        // a file that is to be written anew needs no lines: it then describes the whole session
        if !self.is_stale {
            line.write(&mut self.lines);
        }
    }
}
