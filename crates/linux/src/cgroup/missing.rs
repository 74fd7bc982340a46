//! Why no hierarchy of version 2 is seen, and the remedy.
//!
//! `ip netns exec` mounts `/sys` anew, and with it the control groups vanish from the process's view,
//! although the host has them. To mount them again fails there or gives another place than programs expect;
//! entering only the network namespace keeps them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The reason why this process sees no hierarchy of version 2, as the predicate of a sentence about `/sys`,
/// and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingCgroup2 {
    pub reason: String,
    pub remedy: String,
}

impl MissingCgroup2 {
    pub fn here() -> Self {
        Self::below(Path::new("/"))
    }

    /// Looks at `ROOT/proc` and `ROOT/run/netns`; `ROOT` is `/`, or holds recorded files.
    pub fn below(root: &Path) -> Self {
        let mounts =
            |who: &str| fs::read_to_string(root.join(format!("proc/{who}/mountinfo"))).unwrap_or_default();
        let has = |mounts: &str, kind: &str| mounts.lines().any(|line| line.contains(&format!(" - {kind} ")));
        // process 1 of a container may be hidden in the same way, so its mounts may have none, either
        let (own, name) = (mounts("self"), netns_name(root));
        if has(&mounts("1"), "cgroup2") || name.is_some() && !has(&own, "cgroup") {
            let name = name.unwrap_or_else(|| "NAME".to_owned());
            return Self {
                reason: "cgroup2 is hidden from this process: /sys was mounted anew, as `ip netns exec` does"
                    .to_owned(),
                remedy: format!("enter only the network namespace: nsenter --net=/run/netns/{name} COMMAND"),
            };
        }
        let remedy = if has(&own, "cgroup") || has(&own, "tmpfs") && own.contains(" /sys/fs/cgroup ") {
            "mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified"
        } else {
            "mount -t cgroup2 none /sys/fs/cgroup"
        };
        Self { reason: "no cgroup2 is mounted".to_owned(), remedy: format!("mount it: {remedy}") }
    }
}

/// Returns the name below `/run/netns` of this process's network namespace, if it has one.
fn netns_name(root: &Path) -> Option<String> {
    let own = fs::metadata(root.join("proc/self/ns/net")).ok()?;
    let entries = fs::read_dir(root.join("run/netns")).ok()?.flatten();
    let is_own = |entry: &fs::DirEntry| {
        entry.metadata().is_ok_and(|facts| (facts.dev(), facts.ino()) == (own.dev(), own.ino()))
    };
    // a name is a bind mount: its metadata is the namespace's
    let path = entries.filter(is_own).map(|entry| entry.file_name()).next()?;
    path.into_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH_SYS: &str = "40 31 0:22 / /sys rw,relatime - sysfs srv rw\n";
    const ALL: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw\n\
        34 31 0:31 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    fn root(own: &str, first: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (who, text) in [("self", own), ("1", first)] {
            fs::create_dir_all(root.path().join(format!("proc/{who}"))).expect("room");
            fs::write(root.path().join(format!("proc/{who}/mountinfo")), text).expect("room");
        }
        root
    }

    #[test]
    fn a_fresh_sys_hides_the_groups_and_mounting_them_is_no_remedy() {
        let root = root(FRESH_SYS, ALL);
        let found = MissingCgroup2::below(root.path());
        assert!(found.reason.contains("`ip netns exec`"), "{found:?}");
        assert!(found.remedy.ends_with("nsenter --net=/run/netns/NAME COMMAND"), "{found:?}");
        // the name of the namespace is found where it can be
        fs::create_dir_all(root.path().join("proc/self/ns")).expect("room");
        fs::create_dir_all(root.path().join("run/netns")).expect("room");
        fs::write(root.path().join("run/netns/other"), "").expect("room");
        fs::write(root.path().join("run/netns/srv"), "").expect("room");
        fs::hard_link(root.path().join("run/netns/srv"), root.path().join("proc/self/ns/net")).expect("room");
        let found = MissingCgroup2::below(root.path());
        assert!(found.remedy.ends_with("--net=/run/netns/srv COMMAND"), "{found:?}");
    }

    #[test]
    fn where_nothing_hides_the_groups_they_are_mounted_where_there_is_a_place() {
        let version_1 = ALL.lines().take(2).collect::<Vec<_>>().join("\n");
        for (mounts, remedy) in
            [(FRESH_SYS, "none /sys/fs/cgroup"), (&version_1, "none /sys/fs/cgroup/unified")]
        {
            let found = MissingCgroup2::below(root(mounts, mounts).path());
            assert_eq!(found.reason, "no cgroup2 is mounted");
            assert!(found.remedy.ends_with(remedy), "{found:?}");
        }
    }
}
