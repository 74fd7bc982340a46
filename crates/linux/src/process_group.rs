//! A program with all its descendants: signals to a whole process group, and its priority.
//!
//! Start the program with `std::os::unix::process::CommandExt::process_group(0)`; its number is then the
//! group's. Cost: one system call each. A child that leaves the group (setsid, setpgid) is not reached; to
//! reach such children too, use a cgroup. Reference: kill(2), setpriority(2).

use crate::signal::Signal;
use rustix::io::Errno;
use rustix::process::{Pid, kill_process_group, setpriority_pgrp, test_kill_process_group};
use std::io;

/// A process group, by its number: the number of the process that it was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessGroup(Pid);

impl ProcessGroup {
    /// The group that was made for the child with this number; `None` for numbers that have another meaning
    /// in kill(2) (all processes, or this group).
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

    /// Whether the group still has a process, including an ended process that was not waited for.
    pub fn is_alive(self) -> bool {
        test_kill_process_group(self.0) != Err(Errno::SRCH)
    }

    /// Sets the nice value of every thread of the group (-20 gives the most processor time); threads started
    /// later inherit it. Lowering it needs `CAP_SYS_NICE`.
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
        // init or a subreaper waits for the grandchild
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
