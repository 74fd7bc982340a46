//! Hold on to a process: pidfd_open(2).
//!
//! A process number is reused; a pidfd is not: it says for ever whether *that* process has ended, also
//! before its parent has collected it. A process is identified by its number and its start time
//! ([`start_time`]), so that one opened late is not mistaken for its successor.
//!
//! Cost: a system call to open (plus reading `/proc/PID/stat` to identify), one poll(2) for any number of
//! them. Reference: pidfd_open(2), proc_pid_stat(5) field 22.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A process held on to.
#[derive(Debug)]
pub struct Pidfd {
    descriptor: OwnedFd,
}

impl Pidfd {
    /// Holds on to the process that now has this number.
    ///
    /// # Errors
    /// `ESRCH` when there is none, `ENOSYS` before Linux 5.3, `EMFILE` without descriptors.
    pub fn open(process: u32) -> io::Result<Self> {
        // SAFETY: pidfd_open takes two integers.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
        let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor for us; it is close-on-exec.
        Ok(Self { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    /// The positions of those that have ended, by one system call that does not wait.
    ///
    /// # Errors
    /// The kernel's reason (no memory).
    pub fn ended(all: &[Self]) -> io::Result<Vec<usize>> {
        let request =
            |one: &Self| libc::pollfd { fd: one.descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut requests: Vec<libc::pollfd> = all.iter().map(request).collect();
        let count = libc::nfds_t::try_from(requests.len()).unwrap_or(libc::nfds_t::MAX);
        // SAFETY: the array is valid for `count` entries for the whole call.
        if unsafe { libc::poll(requests.as_mut_ptr(), count, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(requests.iter().enumerate().filter(|(_, one)| one.revents != 0).map(|(at, _)| at).collect())
    }
}

/// When a process started, in clock ticks since boot; `None` when there is no such process.
#[must_use]
pub fn start_time(process: u32) -> Option<u64> {
    parse_start_time(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Whether the process of this number that started then still runs. One that has ended stays in the list of processes
/// until its parent asks how it ended, which in a container may be never.
#[must_use]
pub fn runs(process: u32, started: u64) -> bool {
    // held first, then looked at: the number cannot change hands in between
    let held = Pidfd::open(process);
    let is_it = start_time(process) == Some(started);
    let ended = held.and_then(|held| Pidfd::ended(&[held])).is_ok_and(|ended| !ended.is_empty());
    is_it && !ended
}

/// Field 22, counted after the command's name, which may hold spaces and parentheses.
fn parse_start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_ended_is_told_from_one_that_lives_before_it_is_collected() {
        let mut ends = Command::new("true").spawn().expect("true can be started");
        let mut lives = Command::new("sleep").arg("100").spawn().expect("sleep can be started");
        let all = [lives.id(), ends.id()].map(|id| Pidfd::open(id).expect("a child has a pidfd"));
        let patience = std::time::Instant::now();
        while Pidfd::ended(&all).expect("poll works").is_empty() && patience.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
        assert_eq!(Pidfd::ended(&all).expect("poll works"), [1]);
        let started = |of: u32| start_time(of).expect("it has not been collected");
        assert!(runs(lives.id(), started(lives.id())) && !runs(ends.id(), started(ends.id())));
        assert!(!runs(lives.id(), started(lives.id()) + 1), "another process of this number");
        lives.kill().expect("our child can be killed");
        lives.wait().expect("our child can be collected");
        ends.wait().expect("our child can be collected");
    }

    #[test]
    fn the_start_time_is_found_behind_a_hostile_command_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4321 99 1";
        assert_eq!(parse_start_time(stat), Some(4321));
        assert_eq!(parse_start_time("7 (a"), None);
        assert!(start_time(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(start_time(u32::MAX), None);
    }
}
