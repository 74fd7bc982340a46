//! The user's next step after a system error: the words at the end of a message.
//!
//! The kernel names the error, and a message names the failed action; neither tells how to correct it. For an
//! error that is not in the table, the next step is the command that examines the host.
//!
//! Reference: errno(3).

use crate::process::is_root;
use std::io::{self, ErrorKind};

/// The next step for an action that only root may take.
pub const WITH_SUDO: &str = "run it with sudo";

#[must_use]
pub fn next_step(error: &io::Error) -> &'static str {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::PermissionDenied, _) if !is_root() => WITH_SUDO,
        (ErrorKind::PermissionDenied, _) => {
            "this process is root and still may not: a container or a security module forbids it; run it on the host"
        }
        (ErrorKind::StorageFull | ErrorKind::QuotaExceeded, _) => {
            "make room on that file system, then try again: df -h"
        }
        (ErrorKind::ReadOnlyFilesystem, _) => "mount that file system writable, then try again",
        (ErrorKind::OutOfMemory, _) | (_, Some(libc::ENOBUFS)) => "free some memory, then try again: free -h",
        (_, Some(libc::EMFILE | libc::ENFILE)) => "allow more open files, then try again: ulimit -n 65536",
        (_, Some(libc::EAGAIN)) => "try again; if it stays so, allow more processes: ulimit -u",
        (ErrorKind::ResourceBusy, _) => "end the program that uses it, then try again",
        _ => "look what this host can do: unisono doctor",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_an_unknown_error_have_steps_of_their_own() {
        let step = |errno| next_step(&io::Error::from_raw_os_error(errno));
        assert!(step(libc::ENOSPC).contains("df -h"));
        assert!(step(libc::EMFILE).contains("ulimit -n"));
        assert!(step(libc::ENXIO).contains("unisono doctor"));
        assert_eq!(step(libc::EACCES) == WITH_SUDO, !is_root());
        assert_eq!(step(libc::EPERM), step(libc::EACCES));
    }
}
