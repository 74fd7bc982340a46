//! Control groups for tests, which are removed after the test, however it ends.
//!
//! A test that fails or is killed cannot remove its own groups. So their names contain the process number of
//! the test, and the harness removes the groups of ended processes after each test. If the harness itself is
//! killed, its next run removes them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use unisono_linux::cgroup::hierarchies;

const PREFIX: &str = "unisono-test-";
/// The number of attempts to remove a group, and the pause between two: killed processes leave their group
/// only after they have been waited for.
const MAX_REMOVE_ATTEMPTS: u32 = 200;
const REMOVE_INTERVAL: Duration = Duration::from_millis(10);

/// Returns the name of a control group of this test, below the root of a hierarchy. `what` distinguishes the
/// group from other groups of the test.
#[must_use]
pub fn name(what: &str) -> String {
    format!("{PREFIX}{what}-{}", std::process::id())
}

/// Removes the control groups of tests that have ended.
pub(crate) fn remove_left_behind() {
    for hierarchy in hierarchies().unwrap_or_default() {
        for group in child_groups(&hierarchy.root) {
            let name = group.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let process =
                name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit('-').next()?.parse::<u32>().ok());
            if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
                remove(&group);
            }
        }
    }
}

fn child_groups(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).map(|all| all.flatten().collect::<Vec<_>>()).unwrap_or_default();
    let is_group = |entry: &&fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.iter().filter(is_group).map(fs::DirEntry::path).collect()
}

fn remove(group: &Path) {
    for inner in child_groups(group) {
        remove(&inner);
    }
    // thaws the group, because a frozen process does not end; one of the two files exists
    let _ = (
        fs::write(group.join("cgroup.freeze"), "0"),
        fs::write(group.join("freezer.state"), "THAWED"),
    );
    for _ in 0..MAX_REMOVE_ATTEMPTS {
        if fs::remove_dir(group).is_ok() || !group.exists() {
            return;
        }
        std::thread::sleep(REMOVE_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn groups_of_a_test_that_has_ended_are_removed_and_others_stay() {
        let mut gone = Command::new("true").spawn().expect("true starts");
        gone.wait().expect("it ends");
        let dead = format!("{PREFIX}groups-{}", gone.id());
        let mut tried = 0;
        for hierarchy in hierarchies().expect("mounts can be read") {
            let (dead, alive) = (hierarchy.root.join(&dead), hierarchy.root.join(name("groups")));
            if fs::create_dir_all(dead.join("inner")).is_err() {
                continue;
            }
            fs::create_dir(&alive).expect("the one beside it could be made");
            remove_left_behind();
            let found = (dead.exists(), alive.exists());
            fs::remove_dir(&alive).expect("nobody is in it");
            assert_eq!(found, (false, true), "{}", hierarchy.root.display());
            tried += 1;
        }
        if tried == 0 {
            eprintln!("skipped: no control groups can be made here");
        }
    }
}
