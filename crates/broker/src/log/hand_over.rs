//! Lets another process open the log, and takes the log back if that process has failed.
//!
//! While the log is unlocked, this process writes nothing to it. A process that opens a whole log changes no
//! segment and no session before it serves; it rewrites the file of the topics, with the same content. So the
//! log can be taken back if all files of segments and sessions, damaged ones included, are as they were.

use super::sessions::SESSIONS;
use super::topics::KeptTopics;
use super::{EventLog, LogError};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::Duration as StdDuration;
use unisono_linux::clock::{self, Duration};

/// The inode and the length of each file of a segment or a session.
pub(super) type LogFiles = BTreeMap<PathBuf, (u64, u64)>;

/// The time within which the kernel releases the lock of a process that ends: the connection to it may be
/// closed before its lock. Chosen, not measured.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
const EXIT_POLL_INTERVAL: StdDuration = StdDuration::from_millis(1);

impl EventLog {
    /// The directory of the log, for other processes.
    pub(crate) fn absolute_path(&self) -> PathBuf {
        // a directory that is gone has no other name
        fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone())
    }

    /// Lets another process open the log. Nothing may be appended before [`lock_again`](Self::lock_again).
    ///
    /// # Errors
    /// The kernel's refusal; the log stays locked.
    pub fn unlock(&mut self) -> Result<(), LogError> {
        self.handed_over = self.files().map_err(|error| self.failed(error))?;
        flock(&self.lock, FlockOperation::Unlock).map_err(|error| self.failed(error.into()))
    }

    /// Takes the log back from a process that has failed.
    ///
    /// # Errors
    /// A process has the log open, or has written to it: this log knows no event of that process.
    pub fn lock_again(&mut self) -> Result<(), LogError> {
        let until = clock::now() + EXIT_TIMEOUT;
        while flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            if clock::now() >= until {
                return Err(LogError::Taken { path: self.path.clone() });
            }
            thread::sleep(EXIT_POLL_INTERVAL);
        }
        if !self.is_as_it_was().map_err(|error| self.failed(error))? {
            return Err(LogError::WrittenByOther { path: self.path.clone() });
        }
        if self.topics.is_some() {
            self.topics = Some(KeptTopics::open(&self.path)?);
        }
        Ok(())
    }

    fn failed(&self, source: io::Error) -> LogError {
        LogError::Directory { path: self.path.clone(), source }
    }

    /// Whether the files of segments and sessions are as they were when the log was unlocked.
    fn is_as_it_was(&self) -> io::Result<bool> {
        // a process of root may have given the files to its next user before it failed
        let own = rustix::process::geteuid();
        if !own.is_root() && fs::metadata(&self.path)?.uid() != own.as_raw() {
            return Ok(false);
        }
        Ok(self.files()? == self.handed_over)
    }

    fn files(&self) -> io::Result<LogFiles> {
        let mut files = LogFiles::new();
        for (directory, is_all) in [(self.path.clone(), false), (self.path.join(SESSIONS), true)] {
            for entry in fs::read_dir(directory)? {
                let path = entry?.path();
                if is_all || path.extension().is_some_and(|extension| extension == super::EXTENSION) {
                    let file = fs::symlink_metadata(&path)?;
                    files.insert(path, (file.ino(), file.len()));
                }
            }
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{LogBounds, LogCursor, LogEntry, LoggedEvent};

    fn positions(log: &EventLog) -> usize {
        let mut cursor = LogCursor::at(1);
        let mut found = 0;
        while let Some(entry) = log.read(&mut cursor).expect("it is readable") {
            assert!(matches!(entry, LogEntry::Event { .. }), "{entry:?}");
            found += 1;
        }
        found
    }

    #[test]
    fn a_log_is_taken_back_from_a_process_that_has_only_read_it() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let open = || EventLog::open(directory.path(), LogBounds::default());
        let mut log = open().expect("it is new");
        log.kept_topics().expect("there is room");
        log.append(&LoggedEvent::default()).expect("there is room");
        assert!(matches!(open(), Err(LogError::Taken { .. })));
        log.unlock().expect("it is locked");
        {
            let mut other = open().expect("it is free");
            other.kept_topics().expect("there is room");
            assert!(matches!(log.lock_again(), Err(LogError::Taken { .. })));
        }
        log.lock_again().expect("the other process has changed nothing");
        log.append(&LoggedEvent::default()).expect("there is room");
        assert_eq!(positions(&log), 2);
        drop(log);
        assert_eq!(positions(&open().expect("it is sound")), 2);
    }

    #[test]
    fn a_log_with_damaged_segments_is_taken_back_too() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let bounds = LogBounds { bytes: 64 << 10, ..LogBounds::default() };
        let mut log = EventLog::open(directory.path(), bounds).expect("it is new");
        for _ in 0..20 {
            log.append(&LoggedEvent { payload: &[1; 1000], ..LoggedEvent::default() })
                .expect("there is room");
        }
        let names: Vec<PathBuf> =
            log.chains.values().flat_map(|it| &it.segments).map(|it| it.path.clone()).collect();
        assert!(names.len() > 2, "{names:?}");
        drop(log);
        // the end of the first segment and the head of the second
        for (name, from) in names.iter().zip([fs::metadata(&names[0]).expect("it is there").len() - 9, 0]) {
            let mut bytes = fs::read(name).expect("it is there");
            bytes[from as usize] ^= 1;
            fs::write(name, bytes).expect("it is written");
        }
        let mut log = EventLog::open(directory.path(), bounds).expect("damage is no error");
        assert_eq!(log.damage().len(), 3, "and the positions between: {:?}", log.damage());
        log.unlock().expect("it is locked");
        drop(EventLog::open(directory.path(), bounds).expect("it is free"));
        log.lock_again().expect("the other process has changed nothing");
    }

    #[test]
    fn the_lock_of_a_process_that_is_about_to_end_is_waited_for() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut log = EventLog::open(directory.path(), LogBounds::default()).expect("it is new");
        log.unlock().expect("it is locked");
        let other = EventLog::open(directory.path(), LogBounds::default()).expect("it is free");
        thread::scope(|threads| {
            threads.spawn(|| {
                thread::sleep(StdDuration::from_millis(50));
                drop(other);
            });
            log.lock_again().expect("the other process has changed nothing");
        });
    }

    #[test]
    fn a_log_that_another_process_has_written_is_not_taken_back() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut log = EventLog::open(directory.path(), LogBounds::default()).expect("it is new");
        log.append(&LoggedEvent::default()).expect("there is room");
        log.unlock().expect("it is locked");
        let mut other = EventLog::open(directory.path(), LogBounds::default()).expect("it is free");
        other.append(&LoggedEvent::default()).expect("there is room");
        drop(other);
        assert!(matches!(log.lock_again(), Err(LogError::WrittenByOther { .. })));
    }
}
