//! Agreement on the start of measuring: as soon as both ends have opened their conversations, however long
//! that took.
//!
//! ```text
//!   an end: opens its conversations, creates `server` or `client` --> the driver sees both files
//!   an end: reads `begin`, and measures from that moment on      <-- the driver writes `begin`
//! ```
//! A moment fixed in advance may pass on a busy machine while the ends still start: then a run is too short,
//! or over before it begins.
//!
//! Cost: none during the measurement. Before it, an end polls every [`POLL_INTERVAL`].

use super::ConversationEnd;
use crate::Error;
use crate::options::write_result;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use unisono_linux::clock::{self, Instant};

/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A directory for the agreement of a run's ends and its driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StartRendezvous(PathBuf);

impl StartRendezvous {
    /// Creates the directory.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn at(directory: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        Ok(Self(directory.to_owned()))
    }

    fn ready(&self, end: ConversationEnd) -> PathBuf {
        self.0.join(match end {
            ConversationEnd::Server => "server",
            ConversationEnd::Client => "client",
        })
    }

    fn begin(&self) -> PathBuf {
        self.0.join("begin")
    }

    /// Whether both ends have opened their conversations.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        ConversationEnd::ALL.iter().all(|(end, ..)| self.ready(*end).exists())
    }

    /// Announces the start of measuring to the ends.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin_at(&self, moment: Instant) -> Result<(), Error> {
        write_result(&self.begin(), &moment.as_nanos().to_string())
    }

    /// Announces that this end is ready, and waits for the start of measuring.
    ///
    /// # Errors
    /// A file cannot be written or read, or no start is announced within `timeout`.
    pub(super) fn wait(&self, end: ConversationEnd, timeout: Duration) -> Result<Instant, Error> {
        write_result(&self.ready(end), "")?;
        let give_up_at = clock::now() + timeout.into();
        while !self.begin().exists() {
            if clock::now() > give_up_at {
                return Err(Error::Exchange(format!("not told to begin within {timeout:?}")));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        let path = self.begin();
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Error::Exchange(format!("{}: {error}", path.display())))?;
        text.trim()
            .parse()
            .map(Instant::from_nanos)
            .map_err(|_| Error::Exchange(format!("{} says no time", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_hear_the_moment_once_both_are_ready() {
        let directory = tempfile::tempdir().expect("a directory");
        let rendezvous = &StartRendezvous::at(&directory.path().join("rendezvous")).expect("a directory");
        let long = Duration::from_secs(600);
        std::thread::scope(|scope| {
            let client = scope.spawn(|| rendezvous.wait(ConversationEnd::Client, long));
            while !rendezvous.ready(ConversationEnd::Client).exists() {
                std::thread::sleep(POLL_INTERVAL);
            }
            assert!(!rendezvous.is_complete(), "the server is not there");
            let server = scope.spawn(|| rendezvous.wait(ConversationEnd::Server, long));
            while !rendezvous.is_complete() {
                std::thread::sleep(POLL_INTERVAL);
            }
            rendezvous.begin_at(Instant::from_nanos(77)).expect("written");
            for end in [client, server] {
                assert_eq!(end.join().expect("no panic").expect("told"), Instant::from_nanos(77));
            }
        });
    }

    #[test]
    fn an_end_that_is_not_told_gives_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let rendezvous = StartRendezvous::at(&directory.path().join("rendezvous")).expect("a directory");
        let waited = rendezvous.wait(ConversationEnd::Client, Duration::ZERO);
        assert!(waited.expect_err("nobody told it").to_string().contains("not told to begin"));
    }
}
