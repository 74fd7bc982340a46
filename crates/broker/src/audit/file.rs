//! The file of audit entries: one JSON object per line. Entries are appended.

use super::AuditEntry;
use jiff::Timestamp;
use rustix::process::geteuid;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use unisono_linux::clock::{Duration, Instant};

/// The mode of a new file.
const MODE: u32 = 0o600;
/// Bits of a mode by which users other than the owner change a file.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// The reason why entries cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    #[error("cannot open the audit file {}: {why}", path.display())]
    Open { path: PathBuf, why: io::Error },
    #[error("{} is no regular file; name another one for the audit", path.display())]
    NoFile { path: PathBuf },
    /// Another user can write to the file, and so could remove entries.
    #[error(
        "other users can change the audit file {} (mode {mode:o}, owner {owner}); chown it to the broker's user, and \
         chmod 600 it", path.display()
    )]
    Unguarded { path: PathBuf, mode: u32, owner: u32 },
    #[error("cannot write to the audit file {}: {why}; entries are lost until it can be written", path.display())]
    Write { path: PathBuf, why: io::Error },
}

/// An open audit file. A broker that opens it and then becomes another user can still write to it.
#[derive(Debug)]
pub struct AuditFile {
    path: PathBuf,
    file: File,
    /// Whether the last line may have been cut off.
    is_torn: bool,
}

#[derive(Serialize)]
struct AuditLine<'a> {
    time: String,
    #[serde(flatten)]
    entry: &'a AuditEntry,
}

impl AuditFile {
    /// Opens a file to append to; it is created with mode 600 if it is missing.
    ///
    /// # Errors
    /// The file cannot be opened, is a link or no regular file, or belongs to another user.
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let refused = |why| AuditError::Open { path: path.to_owned(), why };
        // opening a pipe without a reader would block
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(MODE)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
            .map_err(refused)?;
        let facts = file.metadata().map_err(refused)?;
        if !facts.is_file() {
            return Err(AuditError::NoFile { path: path.to_owned() });
        }
        let (mode, owner) = (facts.mode() & 0o7777, facts.uid());
        if mode & WRITABLE_BY_OTHERS != 0 || (owner != geteuid().as_raw() && owner != 0) {
            return Err(AuditError::Unguarded { path: path.to_owned(), mode, owner });
        }
        Ok(Self { path: path.to_owned(), file, is_torn: false })
    }

    /// Appends entries in one write; `now` is the monotonic clock.
    ///
    /// # Errors
    /// The write failed, for example on a full disk. The entries are not written again.
    pub fn append(&mut self, now: Instant, entries: &[AuditEntry]) -> Result<(), AuditError> {
        let mut bytes = if self.is_torn { b"\n".to_vec() } else { Vec::new() };
        for entry in entries {
            let line = AuditLine { time: time_of_day(now - entry.at), entry };
            serde_json::to_writer(&mut bytes, &line).map_err(|error| self.failed(error.into()))?;
            bytes.push(b'\n');
        }
        self.is_torn = true;
        self.file.write_all(&bytes).map_err(|why| self.failed(why))?;
        self.is_torn = false;
        Ok(())
    }

    /// Makes a file whose every write fails.
    #[cfg(test)]
    pub(crate) fn full() -> Self {
        let path = PathBuf::from("/dev/full");
        let file = OpenOptions::new().append(true).open(&path).expect("each Linux has it");
        Self { path, file, is_torn: false }
    }

    fn failed(&self, why: io::Error) -> AuditError {
        AuditError::Write { path: self.path.clone(), why }
    }
}

/// Returns the time of day `ago` before now, to the microsecond (RFC 3339).
fn time_of_day(ago: Duration) -> String {
    let ago = jiff::SignedDuration::from_nanos(i64::try_from(ago.as_nanos()).unwrap_or(i64::MAX));
    let at = Timestamp::now().checked_sub(ago).unwrap_or_else(|_| Timestamp::now());
    format!("{at:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{AuditAction, AuditOutcome, AuditSubject};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn entry(name: &str) -> AuditEntry {
        let subject = AuditSubject {
            action: AuditAction::JoinGroup,
            outcome: AuditOutcome::Refused,
            who: Some("unix:7".to_owned()),
            address: "192.0.2.1".to_owned(),
            name: name.to_owned(),
            what: None,
        };
        AuditEntry { at: Instant::from_nanos(5), subject, why: Some("no".to_owned()), count: 2 }
    }

    #[test]
    fn lines_are_appended_to_a_file_of_the_owner_alone() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = directory.path().join("audit");
        for name in ["one", "two\n{\"forged\":1}"] {
            let mut file = AuditFile::open(&path).expect("it is ours");
            file.append(Instant::from_nanos(7), &[entry(name)]).expect("there is room");
        }
        assert_eq!(path.metadata().expect("it is there").mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).expect("it is text");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[0]["action"], "join-group");
        assert_eq!((&lines[0]["outcome"], &lines[0]["count"]), (&"refused".into(), &2.into()));
        assert!(lines[0]["time"].as_str().is_some_and(|time| time.parse::<Timestamp>().is_ok()), "{text}");
    }

    #[test]
    fn what_others_could_change_and_what_is_no_file_are_refused() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("open"), b"").expect("there is room");
        std::fs::set_permissions(path("open"), std::fs::Permissions::from_mode(0o666)).expect("ours");
        let open = AuditFile::open(&path("open")).expect_err("others may write it");
        assert!(matches!(open, AuditError::Unguarded { mode: 0o666, .. }), "{open}");
        std::fs::write(path("victim"), b"").expect("there is room");
        symlink(path("victim"), path("link")).expect("there is room");
        assert!(matches!(AuditFile::open(&path("link")), Err(AuditError::Open { .. })));
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .expect("there is room");
        AuditFile::open(&path("pipe")).expect_err("a pipe without a reader is not waited for");
        assert!(matches!(AuditFile::open("/dev/null".as_ref()), Err(AuditError::NoFile { .. })));
    }

    #[test]
    fn a_line_after_one_that_was_cut_off_stands_alone() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = directory.path().join("audit");
        std::fs::write(&path, b"{\"cut\":").expect("there is room");
        let mut file = AuditFile { is_torn: true, ..AuditFile::open(&path).expect("it is ours") };
        file.append(Instant::from_nanos(7), &[entry("a")]).expect("there is room");
        let text = std::fs::read_to_string(&path).expect("it is text");
        let last = text.lines().last().expect("a line");
        serde_json::from_str::<serde_json::Value>(last).expect("an object");
    }
}
