//! A child that must not outlive its parent (`PR_SET_PDEATHSIG`).
//!
//! The child asks for it itself, first thing: no code runs between fork and exec, and no `unsafe` at
//! the caller. A parent that died before the question is noticed by comparing its number.
//! When not to use: the signal is sent when the *thread* that started the child ends, so start such
//! children from a thread that lives as long as they are wanted. Reference: PR_SET_PDEATHSIG(2const).

use std::io;
use std::os::unix::process::parent_id;

/// Has the kernel kill this process when the thread that started it ends. `parent` is the process that
/// should be the parent, if known.
///
/// # Errors
/// The parent is not (or no longer) `parent`: the caller should end too.
pub fn die_with_parent(parent: Option<u32>) -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and touches no memory of ours.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    match parent {
        Some(parent) if parent_id() != parent => {
            Err(io::Error::other(format!("the parent process {parent} is gone")))
        }
        _ => Ok(()),
    }
}
