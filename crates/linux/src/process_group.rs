//! A program with all its descendants: signals to a whole process group, and the group's priority.
//!
//! Start the program with `std::os::unix::process::CommandExt::process_group(0)`; its number is then the
//! group's. A signal goes through the leader's pidfd, so that it cannot reach a group that took the number
//! later (Linux 6.9; on older kernels the number is used if no other process has taken it). Cost: one system
//! call each. A signal does not reach a child that has left the group (setsid, setpgid); to reach it, use a
//! control group.
//!
//! Reference: pidfd_send_signal(2), kill(2), setpriority(2).

use crate::pidfd::start_time;
use crate::pinned::PinnedProcess;
use crate::process_list::{self, ListedProcess};
use crate::signal::Signal;
use rustix::io::Errno;
use rustix::process::{Pid, kill_process_group, setpriority_pgrp, test_kill_process_group};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Child;
use std::sync::Arc;

/// `PIDFD_SIGNAL_PROCESS_GROUP` of linux/pidfd.h.
const TO_THE_GROUP: u32 = 1 << 2;

/// A process group, identified by its leader, which is pinned.
#[derive(Clone, Debug)]
pub struct ProcessGroup {
    leader: Arc<PinnedProcess>,
    number: Pid,
}

impl ProcessGroup {
    /// Refers to the group that was made for this child. Fails with `ESRCH` if this process has already
    /// waited for the child.
    pub fn of_child(child: &Child) -> io::Result<Self> {
        let leader = PinnedProcess::of_child(child)?;
        // kill(2) takes group 0 as the caller's own group, and group 1 (-1) as every process
        let number = i32::try_from(leader.number()).ok().filter(|number| *number > 1).and_then(Pid::from_raw);
        Ok(Self { number: number.ok_or(Errno::INVAL)?, leader: Arc::new(leader) })
    }

    /// Sends a signal to every process of the group; a group without processes is no error.
    pub fn send_signal(&self, signal: Signal) -> io::Result<()> {
        let sent = match self.through_the_leader(signal) {
            Err(Errno::INVAL) if self.has_its_number() => kill_process_group(self.number, signal.named()),
            sent => sent,
        };
        match sent {
            Err(Errno::SRCH | Errno::INVAL) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn through_the_leader(&self, signal: Signal) -> rustix::io::Result<()> {
        let (held, none) = (self.leader.as_fd().as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: numbers and a null pointer, which stands for what kill(2) sends.
        let sent =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, held, signal.number(), none, TO_THE_GROUP) };
        if sent < 0 {
            let error = io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
        }
        Ok(())
    }

    /// Returns whether no other process has the leader's number: a group keeps the number while it has
    /// processes.
    fn has_its_number(&self) -> bool {
        start_time(self.leader.number()).is_none_or(|now| now == self.leader.started())
    }

    /// Returns whether a process of the group is left (an ended process that was not waited for counts).
    pub fn is_alive(&self) -> bool {
        self.has_its_number() && test_kill_process_group(self.number) != Err(Errno::SRCH)
    }

    /// Gives every thread of the group this nice value (-20 favours it most); threads that it starts later
    /// inherit it. Needs `CAP_SYS_NICE` to favour it.
    pub fn set_nice(&self, nice: i32) -> io::Result<()> {
        if !self.has_its_number() {
            return Err(Errno::SRCH.into());
        }
        Ok(setpriority_pgrp(Some(self.number), nice)?)
    }
}

/// Sends a signal to each process of a group whose leader, not a child of this process, had this number and
/// started then. Nothing is sent if another process has the number by now.
pub fn signal_group(leader: u32, started: u64, signal: Signal) {
    if start_time(leader).is_some_and(|now| now != started) {
        return;
    }
    let is_member = |group: i32| group.cast_unsigned() == leader;
    for ListedProcess { number, .. } in process_list::all().into_iter().filter(|one| is_member(one.group)) {
        let Ok(member) = PinnedProcess::now(number.cast_unsigned()) else { continue };
        if member.started() >= started && member.stat().is_ok_and(|stat| is_member(stat.group)) {
            let _ = member.send(signal); // it may have ended, or belong to another user by now
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    fn pair() -> Child {
        Command::new("sh").args(["-c", "sleep 100 & sleep 100"]).process_group(0).spawn().expect("sh")
    }

    #[test]
    fn a_group_is_killed_with_its_grandchildren() {
        let mut child = pair();
        let group = ProcessGroup::of_child(&child).expect("a number above 1");
        assert!(group.is_alive());
        group.send_signal(Signal::Kill).expect("our own children");
        child.wait().expect("it was killed");
        let mut tries = 0;
        // init or a subreaper waits for the grandchild
        while group.is_alive() && tries < 500 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            tries += 1;
        }
        assert!(!group.is_alive() || only_zombies(child.id()), "the grandchild is still there");
        group.send_signal(Signal::Terminate).expect("a group without processes is no error");
    }

    #[test]
    fn a_group_whose_leader_was_collected_is_reached_and_a_leader_of_another_time_is_not() {
        let script = "sleep 100 & exit 0";
        let mut child = Command::new("sh").args(["-c", script]).process_group(0).spawn().expect("sh");
        let group = ProcessGroup::of_child(&child).expect("not waited for");
        let (leader, started) = (child.id(), group.leader.started());
        child.wait().expect("it ends by itself");
        assert!(ProcessGroup::of_child(&child).is_err(), "its number may be anybody's");
        assert!(group.is_alive(), "the one that it started is left");
        signal_group(leader, started + 1_000_000, Signal::Kill);
        assert!(group.is_alive() && !only_zombies(leader), "its members started before that leader");
        signal_group(leader, started, Signal::Kill);
        while group.is_alive() && !only_zombies(leader) {
            std::thread::yield_now();
        }
    }

    fn only_zombies(group: u32) -> bool {
        let members = process_list::all().into_iter().filter(|one| one.group.cast_unsigned() == group);
        members.map(|one| one.number).all(crate::process_stat::is_gone)
    }
}
