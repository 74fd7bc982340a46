//! Shared locks on bytes of a file that belong to an open file description: fcntl(2), "Open file description
//! locks".
//!
//! Such a lock ends when the last descriptor of the description is closed. So a descriptor that a program
//! inherits holds its locks until the program ends, however it ends. The bytes need not exist: a lock is only
//! a number that others can see. The locks are shared ones, which need no more than the right to read the
//! file: a process can lock bytes that others have locked, and users can lock bytes of a file of root. Any
//! process that may read the file sees the locks of all other descriptions.
//!
//! Cost: a system call for each lock; [`locked`] needs two for each locked range, each of which takes longer
//! the more ranges are locked.

use crate::clock::{self, Instant};
use crate::local_socket::own_user;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The largest number of ranges that are read: other processes may lock more, and each range costs two system
/// calls.
const MAX_RANGES: usize = 10_000;
/// The mode of a file that all users may read, and so lock.
const READABLE_BY_ALL: u32 = 0o644;

fn request(kind: libc::c_int, bytes: &Range<u64>) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start as libc::off_t,
        l_len: (bytes.end - bytes.start) as libc::off_t,
        l_pid: 0, // the kernel refuses another number
    }
}

/// Makes this user's file if it is missing: all users may lock its bytes, and only this user may write it.
/// Fails with `PermissionDenied` if it is another user's, or no regular file.
pub fn make(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(READABLE_BY_ALL);
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != own_user() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file belongs to another user"));
    }
    // the umask may have kept other users out
    file.set_permissions(Permissions::from_mode(READABLE_BY_ALL))
}

/// Opens a file of root or of this user to lock its bytes. Fails with `PermissionDenied` for any other file:
/// its owner could fill its file system, or keep all locks out.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    if found.is_file() && [0, own_user()].contains(&found.uid()) {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file belongs to another user"))
}

/// Locks the bytes. Other descriptions may have locked them, too.
pub fn lock(file: &File, bytes: Range<u64>) -> io::Result<()> {
    set(file, libc::F_RDLCK, bytes)
}

/// Unlocks the bytes.
pub fn unlock(file: &File, bytes: Range<u64>) -> io::Result<()> {
    set(file, libc::F_UNLCK, bytes)
}

/// Does nothing for an empty range.
fn set(file: &File, kind: libc::c_int, bytes: Range<u64>) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(()); // a length of 0 would mean all bytes up to the end
    }
    let lock = request(kind, &bytes);
    // SAFETY: `lock` is valid for reads.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Returns the ranges within `bytes` that other descriptions have locked, in no order. Reads no further after
/// `until`: another user may have locked so many ranges that reading all of them takes minutes.
pub fn locked(file: &File, bytes: Range<u64>, until: Instant) -> io::Result<Vec<Range<u64>>> {
    let (mut found, mut rest) = (Vec::new(), vec![bytes]);
    while let Some(part) = rest.pop() {
        if part.is_empty() {
            continue;
        }
        if found.len() >= MAX_RANGES || clock::now() >= until {
            break;
        }
        // the kernel answers with a lock that excludes this one, which is any lock
        let mut lock = request(libc::F_WRLCK, &part);
        // SAFETY: `lock` is valid for reads and writes.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if lock.l_type == libc::F_UNLCK as libc::c_short {
            continue;
        }
        let start = (lock.l_start as u64).max(part.start);
        // a length of 0 means up to the end of any file
        let end = if lock.l_len == 0 { u64::MAX } else { (lock.l_start + lock.l_len) as u64 };
        let end = end.min(part.end);
        found.push(start..end);
        rest.extend([part.start..start, end..part.end]);
    }
    Ok(found)
}

/// Makes a second descriptor of the same description that programs inherit, with a number that scripts do not
/// use.
pub fn inheritable(file: &File) -> io::Result<OwnedFd> {
    /// Shells use numbers up to 255; the usual limit is 1024.
    const FIRST: libc::c_int = 500;
    let file = file.as_fd().as_raw_fd();
    for first in [FIRST, 3] {
        // SAFETY: F_DUPFD takes a number.
        let fd = unsafe { libc::fcntl(file, libc::F_DUPFD, first) };
        if fd >= 0 {
            // SAFETY: `fd` was just made and has no other owner.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Duration;

    fn soon() -> Instant {
        clock::now() + Duration::from_secs(60)
    }

    #[test]
    fn others_see_the_locks_until_the_last_descriptor_is_closed() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = directory.path().join("locks");
        make(&path).expect("a file");
        let (ours, theirs) = (open(&path).expect("a file"), open(&path).expect("a file"));
        for range in [2..4, 9..10] {
            lock(&ours, range).expect("a lock");
        }
        lock(&theirs, 3..8).expect("a lock that two have");
        unlock(&theirs, 3..5).expect("it is locked");
        let seen = |file: &File| {
            let mut ranges = locked(file, 0..100, soon()).expect("an answer");
            ranges.sort_by_key(|range| range.start);
            ranges
        };
        assert_eq!(seen(&theirs), [2..4, 9..10]);
        let reader = open(&path).expect("a file");
        assert_eq!(seen(&reader), [2..4, 5..8, 9..10]);
        let inherited = inheritable(&ours).expect("a descriptor");
        drop(ours);
        assert_eq!(seen(&theirs), [2..4, 9..10]);
        drop(inherited);
        assert_eq!(seen(&theirs), []);
    }

    #[test]
    fn a_reader_leaves_off_when_its_time_is_over() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = directory.path().join("locks");
        make(&path).expect("a file");
        let (ours, theirs) = (open(&path).expect("a file"), open(&path).expect("a file"));
        lock(&ours, 1..2).expect("a lock");
        assert_eq!(locked(&theirs, 0..9, clock::now()).expect("an answer"), []);
        let seen = locked(&theirs, 0..9, soon()).expect("an answer");
        assert_eq!((seen.len(), seen[0].clone()), (1, 1..2));
    }

    #[test]
    fn a_file_of_another_user_and_what_is_no_file_are_refused() {
        use std::os::unix::fs::{chown, symlink};
        let directory = tempfile::tempdir().expect("a scratch directory");
        let (path, link) = (directory.path().join("locks"), directory.path().join("link"));
        make(&path).expect("a file");
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is this user's");
        make(&path).expect("it is there");
        let mode = std::fs::metadata(&path).expect("it is there").mode();
        assert_eq!(mode & 0o777, READABLE_BY_ALL, "left so by a process that was killed");
        symlink(&path, &link).expect("room");
        assert!(make(&link).is_err() && open(&link).is_err() && open(directory.path()).is_err());
        if own_user() == 0 {
            chown(&path, Some(crate::privilege::NOBODY), None).expect("root may");
            assert!(make(&path).is_err() && open(&path).is_err());
        }
    }
}
