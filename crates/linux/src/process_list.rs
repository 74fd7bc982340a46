//! The processes of the machine and their parents, from the directories of `/proc`.
//!
//! A process whose parent has ended gets another parent (`init`, or a subreaper); then only its process group
//! tells its origin. Cost: a file for each process of the machine (about 10 us each).
//!
//! Reference: proc_pid_stat(5).

use crate::process_stat::ProcessStat;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A process at the time when the list was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedProcess {
    pub number: i32,
    pub parent: i32,
    /// The number of the process that leads, or led, its group.
    pub group: i32,
    /// When the process started, in clock ticks since boot.
    pub started: u64,
}

/// Returns the processes that there are now.
pub fn all() -> Vec<ListedProcess> {
    numbers().into_iter().filter_map(listed).collect()
}

/// Returns the numbers of the processes without reading anything else about them.
pub fn numbers() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the processes for which `is_first` returns true, and all their descendants.
pub fn with_descendants(is_first: impl Fn(&ListedProcess) -> bool) -> BTreeSet<i32> {
    descendants_in(&all(), is_first)
}

/// Does the same as [`with_descendants`], in a list that was read before.
pub fn descendants_in(all: &[ListedProcess], is_first: impl Fn(&ListedProcess) -> bool) -> BTreeSet<i32> {
    let mut next: Vec<i32> = all.iter().filter(|one| is_first(one)).map(|one| one.number).collect();
    let mut found: BTreeSet<i32> = next.iter().copied().collect();
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    all.iter().for_each(|one| children.entry(one.parent).or_default().push(one.number));
    while let Some(parent) = next.pop() {
        let born = children.get(&parent).into_iter().flatten().copied();
        next.extend(born.filter(|child| found.insert(*child)));
    }
    found
}

/// Reads one process; `None`: it has ended.
pub fn listed(number: i32) -> Option<ListedProcess> {
    let ProcessStat { parent, group, started, .. } = ProcessStat::read(number)?;
    Some(ListedProcess { number, parent, group, started })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};

    #[test]
    fn the_children_of_a_child_are_found_and_strangers_are_not() {
        let script = "sh -c 'echo $$; read x; true'; true";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh is on every Linux");
        let mut written = [0; 16];
        let length = child.stdout.as_mut().expect("piped").read(&mut written).expect("it says its number");
        let grandchild = String::from_utf8_lossy(&written[..length]).trim().parse::<i32>().expect("a number");
        let first = child.id().cast_signed();
        let found = with_descendants(|one| one.number == first);
        drop(child.stdin.take());
        child.wait().expect("it ends with its input");
        assert!(found.is_superset(&BTreeSet::from([first, grandchild])), "{found:?}");
        assert!(!found.contains(&std::process::id().cast_signed()));
    }
}
