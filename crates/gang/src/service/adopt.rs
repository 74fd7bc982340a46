//! Makes processes that run already into gangs, and gives them back.
//!
//! ```text
//!   process   its group GROUP:  make GROUP/unisono-PID-gang-RANDOM, move the process and all it started in
//!   group     GROUP itself: nobody is moved, and only its freezer is written
//! ```
//! A new group lies inside the group where the processes were, so that limits of that group hold on.
//! Processes that a program starts later are inside, too. Everything is in the journal before it is done.
//!
//! Cost: a read of `/proc` for a process (about 10 us for each process of the machine), and a write for each
//! process that is moved. When not: a group that somebody else freezes (a container that is paused) is thawed
//! at its next turn.

use super::request::{GangName, GangRefusal, GangRefusalKind, GangTarget};
use super::state::FoundTarget;
use crate::error::{Error, Result};
use crate::journal::{GangJournal, UndoEntry};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, ControlGroup};
use unisono_linux::file_system::has_cgroups;
use unisono_linux::local_socket::own_user;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process_list::{ListedProcess, with_descendants};

/// How often it is looked for processes that were started while others were moved. Each round is shorter than
/// the one before, unless the program starts processes without end.
const MAX_ROUNDS: usize = 50;
/// The groups of a container or a service; more are not looked at.
const MAX_GROUPS: usize = 1000;

/// A target as it is now, checked.
#[derive(Debug)]
pub struct LookedAt {
    pub found: FoundTarget,
    /// The group that the target is, or in which its processes are.
    group: ControlGroup,
    /// A process that is to be made a gang.
    process: Option<PinnedProcess>,
}

/// Where a gang lives.
#[derive(Debug)]
pub enum GangHome {
    /// A group that was made for it.
    Made(ControlGroup),
    /// A group that is there without us.
    Borrowed(ControlGroup),
}

impl GangHome {
    pub fn group(&self) -> &ControlGroup {
        match self {
            GangHome::Made(group) | GangHome::Borrowed(group) => group,
        }
    }
}

fn host(error: impl std::fmt::Display) -> GangRefusal {
    GangRefusal::new(GangRefusalKind::Host, error.to_string())
}

fn bad(text: String) -> GangRefusal {
    GangRefusal::new(GangRefusalKind::BadRequest, text)
}

/// The hierarchy in which gangs are frozen: version 2, or the freezer of version 1.
pub fn freezing(all: &[CgroupHierarchy]) -> Result<&CgroupHierarchy> {
    let second = CgroupHierarchy::of_version(all, CgroupVersion::V2).filter(|h| h.top().has("cgroup.procs"));
    second.or_else(|| CgroupHierarchy::with(all, "freezer")).ok_or_else(|| {
        Error::Host(
            "gangs need control groups that can be frozen, and neither cgroup version 2 nor the version 1 \
             freezer is mounted; try: mount -t cgroup2 none /sys/fs/cgroup"
                .into(),
        )
    })
}

/// Looks at a target. Nothing is changed.
pub fn look_at(
    target: &GangTarget,
    hierarchy: &CgroupHierarchy,
) -> std::result::Result<LookedAt, GangRefusal> {
    match target {
        GangTarget::Process { number, started } => look_at_process(*number, *started, hierarchy),
        GangTarget::Group { path } => look_at_group(path, hierarchy),
    }
}

fn look_at_process(
    number: u32,
    started: u64,
    hierarchy: &CgroupHierarchy,
) -> std::result::Result<LookedAt, GangRefusal> {
    let gone = |_| bad(format!("there is no process {number}, or it is another one by now"));
    let process = PinnedProcess::identified(number, started).map_err(gone)?;
    let group = hierarchy.group_of(process.thread()).map_err(host)?;
    if let Some(whose) = scheduler_in(group.path()) {
        let text = format!("process {number} is in a gang already ({whose})");
        return Err(GangRefusal::new(GangRefusalKind::InUse, text));
    }
    let family = family_of(&process);
    if family.contains(&std::process::id()) {
        return Err(bad(format!("process {number} has started this daemon, which cannot stop itself")));
    }
    let mut owners = BTreeSet::new();
    for member in &family {
        let Ok(member) = PinnedProcess::now(*member) else { continue }; // it has ended
        let (Ok(owner), Ok(other)) = (member.owner(), hierarchy.group_of(member.thread())) else { continue };
        if other.path() != group.path() && member.lives() {
            return Err(bad(format!(
                "process {}, which {number} has started, is in another control group ({}); add that group",
                member.number(),
                other.path().display()
            )));
        }
        owners.insert(owner);
    }
    let name = process.name().map_err(gone)?;
    let found = FoundTarget {
        group: group.path().to_owned(),
        group_owner: owner_of(&group),
        owners,
        name: GangName::like(&name),
    };
    Ok(LookedAt { found, group, process: Some(process) })
}

fn look_at_group(path: &Path, hierarchy: &CgroupHierarchy) -> std::result::Result<LookedAt, GangRefusal> {
    let shown = path.display();
    if fs::canonicalize(path).ok().as_deref() != Some(path) || !has_cgroups(path).unwrap_or(false) {
        return Err(bad(format!("{shown} is no control group; look for it: cat /proc/PID/cgroup")));
    }
    let root = hierarchy.root.as_path();
    if !path.starts_with(root) {
        return Err(bad(format!("{shown} cannot be frozen; name the group below {}", root.display())));
    }
    if path == root {
        return Err(bad(format!("{shown} holds the whole machine; name a group below it")));
    }
    if let Some(whose) = scheduler_in(path) {
        let text = format!("{shown} is a gang already ({whose})");
        return Err(GangRefusal::new(GangRefusalKind::InUse, text));
    }
    let group = ControlGroup::at(path.to_owned(), hierarchy.version);
    let own = hierarchy.group_of(Tid::SELF).map_err(host)?;
    if own.path().starts_with(path) {
        return Err(bad(format!("this daemon is in {shown}, and it cannot stop itself")));
    }
    let paused = group.read("cgroup.freeze").or_else(|_| group.read("freezer.self_freezing"));
    if paused.is_ok_and(|text| text.trim() == "1") {
        return Err(bad(format!("{shown} is frozen by somebody else; let it run first")));
    }
    let mut owners = BTreeSet::new();
    for inside in groups_below(&group) {
        for process in inside.processes().unwrap_or_default() {
            // a number that another process has taken by now only adds an owner, and so allows nothing
            owners.extend(PinnedProcess::now(process).and_then(|process| process.owner()));
        }
    }
    let last = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = GangName::like(last.trim_end_matches(".scope").trim_end_matches(".service"));
    let found = FoundTarget { group: path.to_owned(), group_owner: owner_of(&group), owners, name };
    Ok(LookedAt { found, group, process: None })
}

/// The first part of a path that a gang scheduler of this user has made. A group that somebody else has given
/// such a name is a group like others.
fn scheduler_in(path: &Path) -> Option<String> {
    let name_of = |part: &Path| Some(part.file_name()?.to_string_lossy().into_owned());
    let is_ours = |part: &&Path| {
        let name = name_of(part).unwrap_or_default();
        // its process number follows
        let rest = name.strip_prefix("unisono-").unwrap_or_default();
        rest.starts_with(|c: char| c.is_ascii_digit())
            && fs::symlink_metadata(part).is_ok_and(|directory| directory.uid() == own_user())
    };
    path.ancestors().filter(is_ours).last().and_then(name_of)
}

/// Who may move processes into a group. Root's, if that cannot be read.
fn owner_of(group: &ControlGroup) -> u32 {
    group.owner().unwrap_or(0)
}

/// The process and all that it has started.
fn family_of(process: &PinnedProcess) -> BTreeSet<u32> {
    let is_it = |listed: &ListedProcess| listed.number == process.thread().0;
    with_descendants(is_it).into_iter().map(i32::cast_unsigned).collect()
}

/// The group and those below it.
pub fn groups_below(group: &ControlGroup) -> Vec<ControlGroup> {
    let mut found = vec![group.clone()];
    let mut next = 0;
    while next < found.len() && found.len() < MAX_GROUPS {
        let entries = fs::read_dir(found[next].path()).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let below: Vec<_> =
            directories.map(|entry| ControlGroup::at(entry.path(), group.version())).collect();
        found.extend(below);
        next += 1;
    }
    found
}

impl LookedAt {
    /// The process that is to be made a gang, if it is not a group.
    pub fn process(&self) -> Option<&PinnedProcess> {
        self.process.as_ref()
    }

    /// Makes the target a gang's home. If it fails, what the journal says undoes the part that was done.
    pub fn take(self, hierarchy: &CgroupHierarchy, journal: &mut GangJournal) -> Result<GangHome> {
        let Some(process) = self.process else {
            journal.write(&UndoEntry::borrowed(&self.group)?)?;
            return Ok(GangHome::Borrowed(self.group));
        };
        let home = journal.make_group(&self.group, &format!("unisono-{}-gang", std::process::id()))?;
        let mover = home.mover(&self.group)?;
        let mut moved = BTreeSet::new();
        for _ in 0..MAX_ROUNDS {
            let family = family_of(&process);
            let new: Vec<u32> = family.iter().copied().filter(|member| moved.insert(*member)).collect();
            if new.is_empty() {
                return Ok(GangHome::Made(home));
            }
            for member in new {
                let Ok(member) = PinnedProcess::now(member) else { continue }; // it has ended
                if member.number() == process.number() {
                    mover.add(&process)?;
                } else if may_come(&member, &family, &self.found.owners, hierarchy, [&self.group, &home])? {
                    mover.add(&member)?;
                }
            }
        }
        Err(Error::Host(format!(
            "process {} starts processes faster than they can be moved",
            process.number()
        )))
    }
}

/// Whether a process that was listed as a gang's, and is held now, is still the one that was listed: it has a
/// parent there, it is where the others are, and its owner is one of theirs. Fails if it is the gang's, but
/// another user's by now.
fn may_come(
    member: &PinnedProcess,
    family: &BTreeSet<u32>,
    owners: &BTreeSet<u32>,
    hierarchy: &CgroupHierarchy,
    groups: [&ControlGroup; 2],
) -> Result<bool> {
    let (Ok(stat), Ok(owner)) = (member.stat(), member.owner()) else { return Ok(false) };
    let group = hierarchy.group_of(member.thread());
    let is_there = group.is_ok_and(|group| groups.iter().any(|here| here.path() == group.path()));
    if !is_there || !family.contains(&stat.parent.cast_unsigned()) {
        return Ok(false);
    }
    if !owners.contains(&owner) && member.lives() {
        return Err(Error::Host(format!("process {} belongs to user {owner} by now", member.number())));
    }
    Ok(member.lives())
}

/// Whether a journal's entry is about this home.
pub fn is_about(entry: &UndoEntry, home: &GangHome) -> bool {
    match entry {
        UndoEntry::Group { path, .. } | UndoEntry::Borrowed { path, .. } => path == home.group().path(),
        _ => false,
    }
}

pub fn threads_in(groups: &[ControlGroup]) -> BTreeSet<i32> {
    groups.iter().flat_map(|group| group.threads().unwrap_or_default()).map(|thread| thread.0).collect()
}

/// Whether nobody will come any more. A group of others may be empty for a while.
pub fn is_over(home: &GangHome) -> bool {
    match home {
        GangHome::Made(group) => threads_in(&groups_below(group)).is_empty(),
        GangHome::Borrowed(group) => !group.path().exists(),
    }
}
