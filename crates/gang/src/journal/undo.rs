//! Undoes the entries of a journal.

use super::entry::{UndoEntry, inode_of, version};
use crate::class;
use crate::error::Result;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Component;
use std::time::Duration;
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::{self, CgroupHierarchy, ControlGroup, Frozen, MovedProcess, ProcessMover};
use unisono_linux::file_system;
use unisono_linux::pinned::{PinnedProcess, PinnedThread};
use unisono_linux::process_group::signal_group;
use unisono_linux::signal::Signal;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub groups: usize,
    /// Processes that were moved out of these groups.
    pub processes: usize,
    /// Threads whose affinity or class was put back.
    pub threads: usize,
    /// Descriptions of the changes that could not be undone.
    pub unrestored: Vec<String>,
}

/// Undoes these entries. Makes at most `rounds` attempts to empty a group.
pub(super) fn undo_all(mut entries: Vec<UndoEntry>, rounds: u64) -> Result<Restored> {
    let mut done = Restored::default();
    let all = cgroup::hierarchies()?;
    entries.retain(|entry| match may_be_undone(entry, &all) {
        Ok(()) => true,
        Err(reason) => {
            done.unrestored.push(reason);
            false
        }
    });
    for entry in &entries {
        undo_thread(entry, &mut done);
    }
    // first thaw all groups, then empty them, inner groups before outer ones
    let mut groups: Vec<ControlGroup> = entries
        .iter()
        .filter_map(|entry| match entry {
            UndoEntry::Group { path, version: v } => Some(ControlGroup::at(path.clone(), version(*v))),
            _ => None,
        })
        .filter(|group| group.path().exists())
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.path().components().count()));
    for group in &groups {
        if let Ok(freeze_file) = group.freeze_file() {
            let _ = freeze_file.set(Frozen::No); // a parent without such a file, or gone meanwhile
        }
    }
    for group in &groups {
        match empty_and_remove(group, &all, rounds, &mut done.processes) {
            Ok(()) => done.groups += 1,
            Err(reason) => done.unrestored.push(reason),
        }
    }
    Ok(done)
}

/// Checks that the group of an entry, if it exists, is a directory of a control group file system, reached by
/// an absolute path without `..` and without links. A group to remove must also be at or below a directory
/// whose name begins with `unisono-`. Any other journal was not written by a scheduler, and its groups may
/// belong to other programs.
pub(super) fn may_be_undone(entry: &UndoEntry, all: &[CgroupHierarchy]) -> std::result::Result<(), String> {
    let (path, v, is_ours) = match entry {
        UndoEntry::Group { path, version } | UndoEntry::Reclassed { path, version } => (path, *version, true),
        UndoEntry::Borrowed { path, version, .. } => (path, *version, false),
        _ => return Ok(()),
    };
    let refused = |why: &str| Err(format!("{}: {why}; it is left alone", path.display()));
    let detour = |part| !matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || path.components().any(detour) {
        return refused("no plain path");
    }
    match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()), // it is gone
        Ok(real) if real == *path => {}
        _ => return refused("a path with links"),
    }
    if !file_system::has_cgroups(path).unwrap_or(false) {
        return refused("no control group");
    }
    match home_of(&ControlGroup::at(path.clone(), version(v)), all) {
        Some(home) if home.version() == version(v) => Ok(()),
        _ if is_ours => refused("no control group of a gang scheduler"),
        _ => Ok(()),
    }
}

fn undo_thread(entry: &UndoEntry, done: &mut Restored) {
    match entry {
        UndoEntry::Affinity { thread, started, before, after } => {
            let (Ok(before), Ok(after)) = (before.parse(), after.parse()) else { return };
            let Ok(thread) = PinnedThread::identified(Tid(*thread), *started) else { return }; // it has ended
            let ours = thread.allowed().is_ok_and(|now| now == after);
            if ours && thread.restrict(&before).is_ok() {
                done.threads += 1;
            }
        }
        UndoEntry::Reclassed { path, version: v } => {
            let group = ControlGroup::at(path.clone(), version(*v));
            done.threads += class::put_back(&[group]).0;
        }
        UndoEntry::Borrowed { path, version: v, inode } => {
            if inode_of(path).is_ok_and(|now| now == *inode) {
                // an error means that the group is gone, so it has no processes
                let _ = ControlGroup::at(path.clone(), version(*v))
                    .freeze_file()
                    .map(|freeze_file| freeze_file.set(Frozen::No));
            }
        }
        UndoEntry::Stopped { leader, started } => {
            signal_group(leader.cast_unsigned(), *started, Signal::Continue);
        }
        UndoEntry::Scheduler(_) | UndoEntry::Group { .. } => {}
    }
}

fn empty_and_remove(
    group: &ControlGroup,
    all: &[CgroupHierarchy],
    rounds: u64,
    moved: &mut usize,
) -> std::result::Result<(), String> {
    let Some(home) = home_of(group, all) else {
        return Err(format!("{}: its hierarchy is not mounted", group.path().display()));
    };
    let mut last = String::new();
    // processes that end or fork meanwhile require several rounds
    for round in 0..rounds {
        let moving = move_all(group, &home, moved);
        match group.remove() {
            Ok(()) => return Ok(()),
            // the reason why processes were not moved is more precise
            Err(error) => last = moving.err().map_or_else(|| error.to_string(), |why| why.to_string()),
        }
        if round + 1 < rounds {
            std::thread::sleep(Duration::from_millis(round.min(10)));
        }
    }
    Err(last)
}

/// Moves some processes of a group that a scheduler has made back to their former group. Returns whether none
/// is left.
pub(crate) fn move_out(group: &ControlGroup) -> Result<bool> {
    let all = cgroup::hierarchies()?;
    let Some(home) = home_of(group, &all) else { return Ok(true) };
    let listed = group.processes()?;
    if listed.is_empty() {
        return Ok(true);
    }
    move_some(group, &listed[..listed.len().min(HELD_AT_ONCE)], &home.mover(&home)?)?;
    Ok(false)
}

/// Maximum number of processes pinned at the same time: a process may have 1024 descriptors.
const HELD_AT_ONCE: usize = 128;

/// Moves the processes of a group to `home`, a group around it.
fn move_all(group: &ControlGroup, home: &ControlGroup, moved: &mut usize) -> Result<()> {
    let listed = group.processes()?;
    if listed.is_empty() {
        return Ok(());
    }
    let mover = home.mover(home)?;
    for some in listed.chunks(HELD_AT_ONCE) {
        *moved += move_some(group, some, &mover)?;
    }
    Ok(())
}

/// Moves processes that were listed in a group. Returns their number.
fn move_some(group: &ControlGroup, listed: &[Tid], mover: &ProcessMover) -> Result<usize> {
    let held: Vec<PinnedProcess> =
        listed.iter().filter_map(|number| PinnedProcess::now(*number).ok()).collect();
    // the processes are listed again after they were pinned, because a number may have belonged to another
    // process before
    let there: BTreeSet<Tid> = group.processes()?.into_iter().collect();
    let mut moved = 0;
    for process in held.iter().filter(|process| there.contains(&process.thread())) {
        moved += usize::from(mover.add(process)? == MovedProcess::Yes);
    }
    Ok(moved)
}

/// Finds the destination of processes: the group that holds the scheduler's parent group.
fn home_of(group: &ControlGroup, all: &[CgroupHierarchy]) -> Option<ControlGroup> {
    let hierarchy =
        all.iter().filter(|h| group.path().starts_with(&h.root)).max_by_key(|h| h.root.as_os_str().len())?;
    let ours = |part: &std::ffi::OsStr| part.to_str().is_some_and(|name| name.starts_with("unisono-"));
    let home = group.path().ancestors().find(|dir| dir.file_name().is_some_and(ours))?.parent()?;
    Some(ControlGroup::at(home.to_owned(), hierarchy.version))
}
