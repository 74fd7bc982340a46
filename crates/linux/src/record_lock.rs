//! Locks on bytes of a file that belong to an open file description: fcntl(2), "Open file description locks".
//!
//! Such a lock ends when the last descriptor of the description is closed. So a descriptor that a program
//! inherits holds its locks until the program ends, however it ends. The bytes need not exist: a lock is only
//! a number that others can see. Any process that may read the file sees the locks of all descriptions.
//!
//! Cost: a system call for each lock; [`locked`] needs two for each locked range.

use crate::local_socket::own_user;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The largest number of ranges that are read: other processes may lock more, and each range costs two system
/// calls.
const MAX_RANGES: usize = 10_000;

fn request(bytes: &Range<u64>) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start as libc::off_t,
        l_len: (bytes.end - bytes.start) as libc::off_t,
        l_pid: 0, // the kernel refuses another number
    }
}

/// Opens this user's file, or makes it: other users may read it, and so see its locks. Fails with
/// `PermissionDenied` if it is another user's, or no regular file.
pub fn open_own(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o644);
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    if found.is_file() && found.uid() == own_user() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file belongs to another user"))
}

/// Opens a file of any user for [`locked`].
pub fn open_to_read(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Locks the bytes, if no other description has locked any of them; returns whether it did. Fails if the file
/// is not open for writing.
pub fn try_lock(file: &File, bytes: Range<u64>) -> io::Result<bool> {
    let lock = request(&bytes);
    // SAFETY: `lock` is valid for reads.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

/// Unlocks the bytes; does nothing for an empty range.
pub fn unlock(file: &File, bytes: Range<u64>) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(()); // a length of 0 would mean all bytes up to the end
    }
    let lock = libc::flock { l_type: libc::F_UNLCK as libc::c_short, ..request(&bytes) };
    // SAFETY: `lock` is valid for reads.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Returns the ranges within `bytes` that other descriptions have locked, in no order. The file may be open
/// only for reading.
pub fn locked(file: &File, bytes: Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let (mut found, mut rest) = (Vec::new(), vec![bytes]);
    while let Some(part) = rest.pop() {
        if part.is_empty() || found.len() >= MAX_RANGES {
            continue;
        }
        let mut lock = request(&part);
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

    #[test]
    fn others_see_the_locks_until_the_last_descriptor_is_closed() {
        let path = std::env::temp_dir().join(format!("unisono-record-lock-{}", std::process::id()));
        let (ours, theirs) = (open_own(&path).expect("a file"), open_own(&path).expect("a file"));
        for range in [2..4, 9..10] {
            assert!(try_lock(&ours, range).expect("a lock"));
        }
        assert!(!try_lock(&theirs, 3..8).expect("an answer"), "one of the bytes is locked");
        assert!(try_lock(&theirs, 5..6).expect("a lock"));
        let seen = |file: &File| {
            let mut ranges = locked(file, 0..100).expect("an answer");
            ranges.sort_by_key(|range| range.start);
            ranges
        };
        assert_eq!(seen(&theirs), [2..4, 9..10]);
        let reader = open_to_read(&path).expect("a file");
        assert_eq!(seen(&reader), [2..4, 5..6, 9..10]);
        let inherited = inheritable(&ours).expect("a descriptor");
        drop(ours);
        assert_eq!(seen(&theirs), [2..4, 9..10]);
        drop(inherited);
        assert_eq!(seen(&theirs), []);
        std::fs::remove_file(path).expect("our file");
    }
}
