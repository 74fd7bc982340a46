//! Checks whether any process other than the queue's own two still uses their network namespace.
//!
//! The two processes of a queue keep their namespace and its devices alive even after it was deleted, because
//! `ip netns delete` removes only the name. So the guard checks whether the namespace still has another
//! process or a name (a mount); if not, the queue ends.
//!
//! A process is in the namespace if its `/proc/PID/net/dev` has the same inode number as the namespace's own
//! file. Every user may read that number; `/proc/PID/ns/net` would need privileges that the guard gives up.
//!
//! Cost, every [`EVERY`]: three system calls in the namespace of process 1; in another namespace, one for
//! each process until the first that is in the namespace. Limit: a namespace that is held only by an open
//! descriptor counts as unused. Reference: network_namespaces(7), proc_pid_mountinfo(5).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use unisono_linux::affinity::Tid;

/// The interval of checks. A queue in a deleted namespace costs only memory and a device, so it may stay this
/// long.
const EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Namespace {
    /// The inode number of the namespace's `net/dev`.
    devices: u64,
    /// The text in /proc/self/mountinfo that only mounts of the namespace have.
    mount: String,
    next: Instant,
}

impl Namespace {
    pub(super) fn of_this_process() -> io::Result<Self> {
        let number = fs::metadata("/proc/self/ns/net")?.ino();
        Ok(Self {
            devices: devices("self").ok_or(io::ErrorKind::NotFound)?,
            mount: format!(" net:[{number}] "),
            next: Instant::now() + EVERY,
        })
    }

    /// Returns whether the namespace has no name and no process but this one and `child`. Checks only every
    /// [`EVERY`], and in between returns false.
    pub(super) fn is_unused_by_others(&mut self, child: Tid) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.next = now + EVERY;
        // if the check fails, the namespace counts as used
        self.is_used(child).is_ok_and(|used| !used)
    }

    fn is_used(&self, child: Tid) -> io::Result<bool> {
        if devices("1") == Some(self.devices) || self.has_name()? {
            return Ok(true);
        }
        let own = [std::process::id(), child.0.unsigned_abs()];
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(process) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            if !own.contains(&process) && devices(&process.to_string()) == Some(self.devices) {
                return Ok(true);
            }
        }
        // the namespace may have got a name during the search
        self.has_name()
    }

    fn has_name(&self) -> io::Result<bool> {
        Ok(fs::read_to_string("/proc/self/mountinfo")?.contains(&self.mount))
    }
}

/// Returns the inode number of a process's `net/dev`, or `None` if the process has ended.
fn devices(process: &str) -> Option<u64> {
    let file = Path::new("/proc").join(process).join("net/dev");
    fs::metadata(file).ok().map(|found| found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_other_processes_is_used_and_one_that_nobody_else_is_in_is_not() {
        let namespace = Namespace::of_this_process().expect("proc is mounted");
        assert!(namespace.is_used(Tid(0)).expect("proc can be read"));
        let nobodys = Namespace { devices: 0, mount: " net:[0] ".to_owned(), next: Instant::now() };
        assert!(!nobodys.is_used(Tid(0)).expect("proc can be read"));
        let mut not_yet = Namespace { next: Instant::now() + EVERY, ..nobodys };
        assert!(!not_yet.is_unused_by_others(Tid(0)));
        not_yet.next = Instant::now();
        assert!(not_yet.is_unused_by_others(Tid(0)));
    }
}
