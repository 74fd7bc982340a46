//! The file system of a path: statfs(2).
//!
//! A file like `cgroup.procs` has its meaning only in the kernel's own file system; in any other directory it
//! is an ordinary file. Reference: statfs(2), linux/magic.h.

use std::io;
use std::path::Path;

/// Returns whether a path leads to a file system of control groups, of version 1 or 2.
pub fn has_cgroups(path: &Path) -> io::Result<bool> {
    Ok([libc::CGROUP_SUPER_MAGIC, libc::CGROUP2_SUPER_MAGIC].contains(&rustix::fs::statfs(path)?.f_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_processes_are_no_control_groups_and_the_hierarchies_are() {
        assert!(!has_cgroups(Path::new("/proc/self")).expect("proc is mounted"));
        assert!(has_cgroups(Path::new("/no such/directory")).is_err());
        for hierarchy in crate::cgroup::hierarchies().expect("mounts can be read") {
            assert!(has_cgroups(&hierarchy.root).expect("it is mounted"), "{}", hierarchy.root.display());
        }
    }
}
