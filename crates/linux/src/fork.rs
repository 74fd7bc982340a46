//! Copies of this process: fork(2), from a process with a single thread.
//!
//! Starting a thousand processes of our own by fork alone takes a tenth of a second; executing the program
//! each time takes several seconds. After a process with several threads forks, the child may only make calls
//! that are safe in signal handlers, and no compiler checks that. A single-threaded process has no such
//! restriction. So [`fork`] fails if there are more threads, and this check makes it safe to call.
//!
//! When not to use it: in libraries, because their callers may have threads. Reference: fork(2), _exit(2).

use crate::affinity::Tid;
use crate::parent_death::die_with_parent;
use crate::pinned::PinnedProcess;
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, waitpid};
use std::fmt;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// The exit code of a copy that panicked.
const PANICKED: i32 = 101;
/// The exit code of a copy whose parent was gone before the copy began.
const ORPHANED: i32 = 102;

static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Returns a number that differs between this process and each of its forked children, from the first call
/// on. Costs one read of memory, where getpid(2) costs a system call. A child that is made by clone(2) itself
/// and not by fork(3) has its parent's number.
pub fn generation() -> u64 {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is safe in the child of a process with threads.
        unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// A running copy of this process. Dropping it kills the copy and waits for it.
#[derive(Debug)]
pub struct ForkedChild {
    process: Tid,
    ended: Option<ChildEnd>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildEnd {
    Code(i32),
    Signal(i32),
}

impl fmt::Display for ChildEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
        }
    }
}

/// Runs `body` in a copy of this process. The copy exits with the code that `body` returns, and ends at the
/// latest with the thread that made it. The copy runs no destructors of this process's values; it shares
/// descriptors until it closes its own. Fails if this process has several threads, or if the kernel cannot
/// make another process.
pub fn fork(body: impl FnOnce() -> i32) -> io::Result<ForkedChild> {
    let mut threads = count_threads()?;
    let mut looks = 0;
    // a thread that has been joined remains in the list for a moment
    while threads != 1 && looks < 50 {
        thread::sleep(Duration::from_millis(1));
        threads = count_threads()?;
        looks += 1;
    }
    if threads != 1 {
        return Err(io::Error::other(format!("a process of {threads} threads cannot be copied safely")));
    }
    let parent = std::process::id();
    // SAFETY: this process has one thread, so no lock in the copy is held by a missing thread, and the copy
    // may make any call.
    let child = unsafe { libc::fork() };
    match child {
        0 => {
            let run = || if die_with_parent(Some(parent)).is_ok() { body() } else { ORPHANED };
            let code = catch_unwind(AssertUnwindSafe(run)).unwrap_or(PANICKED);
            // SAFETY: ends this process without running code of the parent.
            unsafe { libc::_exit(code) }
        }
        -1 => Err(io::Error::last_os_error()),
        child => Ok(ForkedChild { process: Tid(child), ended: None }),
    }
}

fn count_threads() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

impl ForkedChild {
    pub fn process(&self) -> Tid {
        self.process
    }

    /// Pins the child. Fails with `ESRCH` once its end was collected ([`wait`](Self::wait),
    /// [`ended`](Self::ended)).
    pub fn pin(&self) -> io::Result<PinnedProcess> {
        if self.ended.is_some() {
            return Err(Errno::SRCH.into());
        }
        // the child has not been collected, so its number is still its own
        PinnedProcess::now(self.process)
    }

    /// Returns how the child ended, or `None` if it has not ended; never waits.
    pub fn ended(&mut self) -> Option<ChildEnd> {
        self.collect(WaitOptions::NOHANG)
    }

    /// Waits until the child ends by itself.
    pub fn wait(&mut self) -> ChildEnd {
        self.collect(WaitOptions::empty()).unwrap_or(ChildEnd::Signal(libc::SIGKILL))
    }

    /// Kills the child and waits for its end.
    pub fn kill(&mut self) -> ChildEnd {
        self.signal_to_end();
        self.wait()
    }

    /// Kills the child without waiting for its end, so that many children can end at the same time.
    pub fn signal_to_end(&mut self) {
        if self.ended().is_none() {
            // the child has not been waited for, so its number is still its own
            let _ = self.process.pid().map(|child| rustix::process::kill_process(child, Signal::KILL));
        }
    }

    fn collect(&mut self, options: WaitOptions) -> Option<ChildEnd> {
        if self.ended.is_none()
            && let Ok(Some((_, status))) = waitpid(self.process.pid(), options)
        {
            let code = || ChildEnd::Code(status.exit_status().unwrap_or(0));
            self.ended = Some(status.terminating_signal().map_or_else(code, ChildEnd::Signal));
        }
        self.ended
    }
}

impl Drop for ForkedChild {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_has_another_generation_and_its_parent_keeps_its_own() {
        let own = generation();
        // SAFETY: the child compares two numbers and exits, without locks or memory of other threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = i32::from(generation() == own);
            // SAFETY: ends the child without running code of the parent.
            unsafe { libc::_exit(code) }
        }
        let waited = waitpid(Tid(child).pid(), WaitOptions::empty()).expect("it is a child");
        let (_, status) = waited.expect("it has ended");
        assert_eq!(status.exit_status(), Some(0));
        assert_eq!(generation(), own);
    }
}
