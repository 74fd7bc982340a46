//! The errors of a log, and the damage that it may have.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// The reason why a log cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    #[error("the log in {}: {source}{}", path.display(), elsewhere(source))]
    Directory { path: PathBuf, source: io::Error },
    /// The directory is missing and cannot be made.
    #[error(
        "cannot make the directory {} for the log: {source}; choose one on a disk, in a directory that this \
         user may write",
        path.display()
    )]
    NoDirectory { path: PathBuf, source: io::Error },
    #[error("another broker writes the log in {}; stop it, or choose another directory", path.display())]
    Taken { path: PathBuf },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The event is not in the log.
    #[error("cannot write {}: {source}; make room on the disk, or give the log less (--log-bytes)", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "an event of {bytes} bytes is too large for a log of {most} bytes; publish a smaller one, or give the log more (--log-bytes)"
    )]
    TooLarge { bytes: u64, most: u64 },
    #[error(
        "{}:{line}: {what}; remove the line, and its name belongs to the first identity that uses it",
        path.display()
    )]
    Owners { path: PathBuf, line: usize, what: String },
    #[error(
        "the log keeps events of {most} identities, as many as it keeps apart; one more has room when all events of \
         another one have left the log (--log-bytes, --log-age)"
    )]
    TooManyOwners { most: u32 },
    #[error(
        "{}:{line}: {what}; the session has ended, and its file stays until its client begins another one",
        path.display()
    )]
    Session { path: PathBuf, line: usize, what: String },
    #[error("{most} names of consumers and writers have owners, as many as may be; free one")]
    TooManyNames { most: usize },
    #[error(
        "the log has no room for the declaration of another topic (one identity's have at most {most} bytes); declare fewer topics with a history"
    )]
    TooManyTopics { most: u64 },
    /// The events of the other process are unknown here.
    #[error(
        "another broker has written to the log in {} since this one let it have the log; start the broker again",
        path.display()
    )]
    WrittenByOther { path: PathBuf },
    /// The disk may have lost events that were written; no more are accepted.
    #[error("the log in {} could not be synced ({reason}) and takes nothing more; start the broker again", path.display())]
    Unsynced { path: PathBuf, reason: String },
}

/// Returns the remedy for a directory in which the kernel lets this user write nothing.
fn elsewhere(source: &io::Error) -> &'static str {
    match source.raw_os_error().map(|_| source.kind()) {
        Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
            "; choose a directory that this user may write"
        }
        _ => "",
    }
}

/// A damaged range in a log file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {bytes} bytes from offset {offset} on are damaged; at least {lost} events before position {next} are lost", path.display())]
pub struct LogDamage {
    pub path: PathBuf,
    pub offset: u64,
    pub bytes: u64,
    /// The least number of lost events, computed from the positions around the range.
    pub lost: u64,
    /// The position of the first whole event behind the range.
    pub next: u64,
}
