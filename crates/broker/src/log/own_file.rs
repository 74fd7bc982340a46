//! Opens the log's own files, and nothing that has their names instead.
//!
//! Root opens a log before it becomes the broker's user, and a former broker, which served as another user,
//! may have left anything in its directory. Root would follow a link there to any file of the host. So links
//! are not followed, and pipes and devices are refused.

use super::LogError;
use rustix::fs::OFlags;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Error, ErrorKind, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use unisono_linux::private_directory::belongs_to_no_stranger;

/// Opens a file. Fails with `ELOOP` for a link, and with `InvalidInput` for other files that are not regular.
pub(super) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // opening a pipe would block
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(Error::new(ErrorKind::InvalidInput, "it is no regular file; remove it"))
    }
}

/// Reads a file.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(OpenOptions::new().read(true), path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes the directory of a log, and folders in it. Also fails if a stranger could put files there
/// (`PermissionDenied`), or if a folder is a link or a file (`NotADirectory`).
pub(super) fn make_directory(path: &Path, folders: &[&str]) -> Result<(), LogError> {
    let failed = |source| LogError::Directory { path: path.to_owned(), source };
    make(path)?;
    belongs_to_no_stranger(path).map_err(failed)?;
    for folder in folders.iter().map(|folder| path.join(folder)) {
        make(&folder)?;
        if !folder.symlink_metadata().map_err(failed)?.is_dir() {
            return Err(failed(ErrorKind::NotADirectory.into()));
        }
    }
    Ok(())
}

fn make(path: &Path) -> Result<(), LogError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| {
        // /proc answers that the new directory is not there
        let source = match path.parent() {
            Some(parent) if source.kind() == ErrorKind::NotFound && parent.is_dir() => {
                Error::other(format!("{} takes no directories", parent.display()))
            }
            _ => source,
        };
        LogError::NoDirectory { path: path.to_owned(), source }
    })
}

#[cfg(test)]
mod tests {
    use crate::log::{EventLog, LogBounds, LogError};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    fn refused(path: &Path) -> String {
        EventLog::open(path, LogBounds::default()).map(drop).expect_err("it is not the log's").to_string()
    }

    #[test]
    fn links_that_a_former_owner_left_lead_nowhere() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let (log, victim) = (directory.path().join("log"), directory.path().join("victim"));
        drop(EventLog::open(&log, LogBounds::default()).expect("it is new"));
        for name in ["lock", "00000000000000000001.events", "owners", "topics"] {
            let _ = fs::remove_file(log.join(name)); // a new log has only some of them
            symlink(&victim, log.join(name)).expect("room");
            fs::write(&victim, "of another program\n").expect("room");
            let opened = EventLog::open(&log, LogBounds::default()).and_then(|mut log| log.kept_topics());
            assert!(opened.is_err(), "{name}");
            assert_eq!(fs::read_to_string(&victim).expect("it is there"), "of another program\n", "{name}");
            fs::remove_file(log.join(name)).expect("it is there");
        }
        // root would make an empty file such as /etc/nologin
        fs::remove_file(&victim).expect("it is there");
        fs::remove_file(log.join("lock")).expect("a broker made it");
        symlink(&victim, log.join("lock")).expect("room");
        refused(&log);
        assert!(!victim.exists());
        fs::remove_file(log.join("lock")).expect("it is there");
        fs::remove_dir(log.join("sessions")).expect("it is empty");
        symlink(directory.path(), log.join("sessions")).expect("room");
        assert!(refused(&log).contains("not a directory"));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named_with_the_reason_and_a_remedy() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let file = directory.path().join("file");
        fs::write(&file, "").expect("room");
        let cannot_make = |path: &Path| {
            let said = refused(path);
            assert!(said.starts_with(&format!("cannot make the directory {} ", path.display())), "{said}");
            assert!(said.ends_with("in a directory that this user may write"), "{said}");
            said
        };
        assert!(cannot_make("/proc/log".as_ref()).contains("for the log: /proc takes no directories; "));
        cannot_make(&file);
        cannot_make(&file.join("log"));
    }

    #[test]
    fn a_link_among_the_sessions_is_damage_and_ends_no_other_session() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let (path, victim) = (directory.path().join("log"), directory.path().join("victim"));
        let mut log = EventLog::open(&path, LogBounds::default()).expect("it is new");
        fs::write(&victim, "a line\n").expect("room");
        symlink(&victim, path.join("sessions").join("0".repeat(32))).expect("room");
        let found = log.saved_sessions().expect("others can be read");
        assert!(matches!(found[..], [Err(LogError::Read { .. })]), "{found:?}");
    }

    #[test]
    fn a_directory_into_which_strangers_could_put_files_is_refused() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let log = directory.path().join("log");
        drop(EventLog::open(&log, LogBounds::default()).expect("it is new"));
        for mode in [0o707, 0o1777] {
            fs::set_permissions(&log, fs::Permissions::from_mode(mode)).expect("ours");
            assert!(refused(&log).contains("may be written by other users"));
        }
        fs::set_permissions(&log, fs::Permissions::from_mode(0o770)).expect("ours");
        drop(EventLog::open(&log, LogBounds::default()).expect("its group is chosen by its owner"));
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(refused(&log).contains("may be written by other users"));
    }
}
