//! Copies of this process: fork(2), from a process with one thread.
//!
//! Starting a thousand processes of our own by fork alone takes a tenth of a second; executing the
//! program anew each time takes several. After the fork of a process with several threads only calls that are safe in signal
//! handlers are allowed, and nothing checks that; with one thread anything is. So [`fork`] refuses when there
//! are more, and that check makes it safe to call.
//!
//! When not to use it: in libraries that others call, who may have threads. Reference: fork(2), _exit(2).

use crate::affinity::Tid;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a copy that panicked ends with.
const PANICKED: i32 = 101;

/// Runs `body` in a copy of this process, which ends with the code that it answers. No destructors of this process's
/// values run in the copy; descriptors are shared until it closes its own.
///
/// # Errors
/// This process has several threads, or the kernel cannot make another process.
pub fn fork(body: impl FnOnce() -> i32) -> io::Result<Tid> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("a process of {threads} threads cannot be copied safely")));
    }
    // SAFETY: this process has one thread, so that the copy may do whatever this process may: no lock is held
    // by a thread that is not there.
    let child = unsafe { libc::fork() };
    match child {
        0 => {
            let code = catch_unwind(AssertUnwindSafe(body)).unwrap_or(PANICKED);
            // SAFETY: ends this process; nothing of the parent's is run.
            unsafe { libc::_exit(code) }
        }
        -1 => Err(io::Error::last_os_error()),
        child => Ok(Tid(child)),
    }
}

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Collects a child that has ended, if there is one; never waits.
///
/// # Errors
/// `ECHILD`: there are no children left.
pub fn collect() -> io::Result<Option<(Tid, Ended)>> {
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    let child = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        child if libc::WIFSIGNALED(status) => Ok(Some((Tid(child), Ended::Signal(libc::WTERMSIG(status))))),
        child => Ok(Some((Tid(child), Ended::Code(libc::WEXITSTATUS(status))))),
    }
}
