//! The processes of the machine and their parents, from the directories of `/proc`.
//!
//! A process whose parent has ended gets another parent (`init`, or a subreaper); then only its process group
//! tells its origin. Cost: a file for each process of the machine (about 10 us each).
//!
//! Reference: proc_pid_stat(5).

use crate::process_stat::ProcessStat;
use std::collections::BTreeSet;
use std::fs;

/// A process at the time when the list was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedProcess {
    pub number: i32,
    pub parent: i32,
    /// The number of the process that leads, or led, its group.
    pub group: i32,
}

/// The processes for which `is_first` returns true, and all their descendants.
pub fn with_descendants(is_first: impl Fn(&ListedProcess) -> bool) -> BTreeSet<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeSet::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all: Vec<ListedProcess> = numbers.filter_map(listed).collect();
    let mut next: Vec<i32> = all.iter().filter(|one| is_first(one)).map(|one| one.number).collect();
    let mut found: BTreeSet<i32> = next.iter().copied().collect();
    while let Some(parent) = next.pop() {
        let children = all.iter().filter(|one| one.parent == parent).map(|one| one.number);
        next.extend(children.filter(|child| found.insert(*child)));
    }
    found
}

fn listed(number: i32) -> Option<ListedProcess> {
    let ProcessStat { parent, group, .. } = ProcessStat::of(number)?;
    Some(ListedProcess { number, parent, group })
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
        let mut said = [0; 16];
        let length = child.stdout.as_mut().expect("piped").read(&mut said).expect("it says its number");
        let grandchild = String::from_utf8_lossy(&said[..length]).trim().parse::<i32>().expect("a number");
        let first = child.id().cast_signed();
        let found = with_descendants(|one| one.number == first);
        drop(child.stdin.take());
        child.wait().expect("it ends with its input");
        assert!(found.is_superset(&BTreeSet::from([first, grandchild])), "{found:?}");
        assert!(!found.contains(&std::process::id().cast_signed()));
    }
}
