//! References to processes: pidfd_open(2).
//!
//! A process number is reused; a pidfd is not: it always tells whether *that* process has ended, even before
//! its parent has waited for it, and a signal through it cannot reach another process. A process is
//! identified by its number and its start time ([`start_time`]), so that a process opened late is not
//! mistaken for its successor.
//!
//! Cost: a system call to open (plus reading `/proc/PID/stat` to identify), one poll(2) for any number of
//! pidfds. Reference: pidfd_open(2), pidfd_send_signal(2), proc_pid_stat(5) field 22.

use crate::poll::readable_of;
use crate::process_stat::ProcessStat;
use crate::signal::Signal;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A reference to a process; readable when the process has ended.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process that has this number now. Fails with `ESRCH` if there is none, and with `ENOSYS`
    /// before Linux 5.3.
    pub fn open(process: impl Into<u32>) -> io::Result<Self> {
        let process = Pid::from_raw(process.into().cast_signed()).ok_or(Errno::INVAL)?;
        Ok(Self(pidfd_open(process, PidfdFlags::empty())?))
    }

    /// Sends a signal. Fails with `ESRCH` if the process has ended, and with `EPERM` if it belongs to another
    /// user.
    pub fn send(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, signal.named())?)
    }

    /// Returns whether the process has ended. Waits for its end for at most `timeout` (`None`: no limit).
    pub fn has_ended(&self, timeout: Option<Duration>) -> io::Result<bool> {
        Ok(readable_of(&[self.0.as_fd()], timeout)?.first() == Some(&true))
    }

    /// Returns the positions of the processes that have ended, by one system call that does not wait.
    pub fn ended<'a>(all: impl IntoIterator<Item = &'a Self>) -> io::Result<Vec<usize>> {
        let all: Vec<BorrowedFd<'_>> = all.into_iter().map(AsFd::as_fd).collect();
        let ended = readable_of(&all, Some(Duration::ZERO))?;
        Ok(ended.iter().enumerate().filter(|(_, ended)| **ended).map(|(at, _)| at).collect())
    }
}

crate::as_fd!(PidFd.0);

/// Returns the start time of a process, in clock ticks since boot; `None` if the process does not exist.
pub fn start_time(process: u32) -> Option<u64> {
    ProcessStat::read(process).map(|stat| stat.started)
}

/// Returns whether the process with this number and start time is still running. An ended process stays in
/// the process list until its parent waits for it, which in a container may never happen.
pub fn runs(process: u32, started: u64) -> bool {
    // open first, then check: after that the number cannot pass to another process unnoticed
    let held = PidFd::open(process);
    let is_it = start_time(process) == Some(started);
    let ended = held.and_then(|held| held.has_ended(Some(Duration::ZERO))).is_ok_and(|ended| ended);
    is_it && !ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_ended_is_told_from_one_that_lives_before_it_is_collected() {
        let mut ends = Command::new("true").spawn().expect("true can be started");
        let mut lives = Command::new("sleep").arg("100").spawn().expect("sleep can be started");
        let all = [lives.id(), ends.id()].map(|id| PidFd::open(id).expect("a child has a pidfd"));
        let timeout = std::time::Instant::now();
        while PidFd::ended(&all).expect("poll works").is_empty() && timeout.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
        assert_eq!(PidFd::ended(&all).expect("poll works"), [1]);
        let started = |of: u32| start_time(of).expect("it has not been collected");
        assert!(runs(lives.id(), started(lives.id())) && !runs(ends.id(), started(ends.id())));
        assert!(!runs(lives.id(), started(lives.id()) + 1), "another process of this number");
        lives.kill().expect("our child can be killed");
        lives.wait().expect("our child can be collected");
        ends.wait().expect("our child can be collected");
    }
}
