//! Checks whether any process other than the queue's own two still uses their network namespace.
//!
//! The two processes of a queue keep their namespace and its devices alive, also after it was deleted: `ip
//! netns delete` removes the name and leaves the rest to the kernel. So the guard checks whether the
//! namespace is still needed: whether it has another process, or a name (a mount).
//!
//! A process is in the namespace if its `/proc/PID/net/dev` has the inode number of the namespace's own.
//! Every user may read that number; `/proc/PID/ns/net` would need privileges that the guard gives up.
//!
//! Cost, every [`EVERY`]: three system calls in the namespace of process 1; elsewhere one for each process
//! until the first that is in the namespace. Limit: a namespace that is held only by an open descriptor
//! counts as left. Reference: network_namespaces(7), proc_pid_mountinfo(5).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use unisono_linux::affinity::Tid;

/// The interval of checks. A queue in a deleted namespace holds only memory and a device, so it may stay this
/// long.
const EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Namespace {
    /// The inode number of its `net/dev`.
    devices: u64,
    /// The text of its mounts in /proc/self/mountinfo.
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

    /// Whether the namespace has no name and no process but this one and its child. Checks every [`EVERY`];
    /// in between it returns false.
    pub(super) fn is_unused_by_others(&mut self, child: Tid) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.next = now + EVERY;
        // a failed check counts as used
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
        // it may have got a name during the scan
        self.has_name()
    }

    fn has_name(&self) -> io::Result<bool> {
        Ok(fs::read_to_string("/proc/self/mountinfo")?.contains(&self.mount))
    }
}

/// The inode number of a process's `net/dev`. `None`: the process has ended.
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
