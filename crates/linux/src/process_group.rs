//! A program with all that it started: signals to a whole process group, and its priority.
//!
//! Start the program with `std::os::unix::process::CommandExt::process_group(0)`; its number is then the
//! group's. Cost: one system call each. A child that leaves its group (setsid, setpgid) is not reached:
//! what must catch those too needs a cgroup. Reference: kill(2), setpriority(2).

use crate::signal::Signal;
use rustix::io::Errno;
use rustix::process::{Pid, kill_process_group, setpriority_pgrp, test_kill_process_group};
use std::io;

/// A process group as the kernel numbers it: the number of the process it was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessGroup(Pid);

impl ProcessGroup {
    /// The group that was made for the child with this number; `None` for numbers that kill(2) reads as
    /// "everybody" or "ourselves".
    pub fn of_child(pid: impl Into<u32>) -> Option<Self> {
        i32::try_from(pid.into()).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw).map(Self)
    }

    /// Sends a signal to every process of the group; a group without processes is no error.
    pub fn tell(self, signal: Signal) -> io::Result<()> {
        match kill_process_group(self.0, signal.named()) {
            Err(Errno::SRCH) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a process of the group is left (one that ended and was not waited for counts).
    pub fn is_alive(self) -> bool {
        test_kill_process_group(self.0) != Err(Errno::SRCH)
    }

    /// Gives every thread of the group this nice value (-20 favours it most); threads that it starts later
    /// inherit it. Needs `CAP_SYS_NICE` to favour it.
    pub fn set_nice(self, nice: i32) -> io::Result<()> {
        Ok(setpriority_pgrp(Some(self.0), nice)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_group_is_killed_with_its_grandchildren() {
        let mut child =
            Command::new("sh").args(["-c", "sleep 100 & sleep 100"]).process_group(0).spawn().expect("sh");
        let group = ProcessGroup::of_child(child.id()).expect("a number above 1");
        assert!(group.is_alive());
        group.tell(Signal::Kill).expect("our own children");
        child.wait().expect("it was killed");
        let mut tries = 0;
        // the grandchild is reaped by whoever adopts it
        while group.is_alive() && tries < 500 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            tries += 1;
        }
        assert!(!group.is_alive() || only_zombies(child.id()), "the grandchild is still there");
        group.tell(Signal::Terminate).expect("a group without processes is no error");
    }

    fn only_zombies(group: u32) -> bool {
        let Ok(processes) = std::fs::read_dir("/proc") else { return true };
        processes.flatten().filter_map(|p| std::fs::read_to_string(p.path().join("stat")).ok()).all(|stat| {
            let mut fields = stat.rsplit(')').next().unwrap_or("").split_whitespace();
            let state = fields.next();
            fields.nth(1) != Some(&group.to_string()) || state == Some("Z")
        })
    }

    #[test]
    fn numbers_that_mean_everybody_are_refused() {
        assert_eq!(ProcessGroup::of_child(0_u32), None);
        assert_eq!(ProcessGroup::of_child(1_u32), None);
        assert_eq!(ProcessGroup::of_child(u32::MAX), None);
    }
}
