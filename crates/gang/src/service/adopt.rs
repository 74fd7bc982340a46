//! Makes processes that run already into gangs, and gives them back.
//!
//! ```text
//!   process   its group GROUP:  make GROUP/unisono-PID-gang-N, move the process and all it started in
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
use crate::gang::GangId;
use crate::journal::{GangJournal, UndoEntry};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, ControlGroup};
use unisono_linux::file_system::has_cgroups;
use unisono_linux::process_list::with_descendants;
use unisono_linux::undo::Author;

/// How often it is looked for processes that were started while others were moved. Each round is shorter than
/// the one before, unless the program starts processes without end.
const MOST_ROUNDS: usize = 50;
/// The groups of a container or a service; more are not looked at.
const MOST_GROUPS: usize = 1000;

/// A target as it is now, checked.
#[derive(Debug)]
pub struct LookedAt {
    pub found: FoundTarget,
    /// The group that the target is, or in which its processes are.
    group: ControlGroup,
    /// A process that is to be made a gang.
    process: Option<Author>,
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
        GangTarget::Process { number, started } => {
            look_at_process(Author { process: *number, started: *started }, hierarchy)
        }
        GangTarget::Group { path } => look_at_group(path, hierarchy),
    }
}

fn look_at_process(
    process: Author,
    hierarchy: &CgroupHierarchy,
) -> std::result::Result<LookedAt, GangRefusal> {
    let number = Tid(process.process.cast_signed());
    let gone = || bad(format!("there is no process {number}, or it is another one by now"));
    // held while it is looked at: the number cannot change hands in between
    let _held = process.hold().ok_or_else(gone)?;
    let group = hierarchy.group_of(number).map_err(host)?;
    if let Some(whose) = scheduler_in(group.path()) {
        let text = format!("process {number} is in a gang already ({whose})");
        return Err(GangRefusal::new(GangRefusalKind::InUse, text));
    }
    let family = family_of(number);
    if family.contains(&std::process::id().cast_signed()) {
        return Err(bad(format!("process {number} has started this daemon, which cannot stop itself")));
    }
    let mut owners = BTreeSet::new();
    for member in &family {
        let Ok(directory) = fs::metadata(format!("/proc/{member}")) else { continue }; // it has ended
        owners.insert(directory.uid());
        let Ok(other) = hierarchy.group_of(Tid(*member)) else { continue };
        if other.path() != group.path() && Path::new(&format!("/proc/{member}")).exists() {
            return Err(bad(format!(
                "process {member}, which {number} has started, is in another control group ({}); add that group",
                other.path().display()
            )));
        }
    }
    let name = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
    let found = FoundTarget {
        group: group.path().to_owned(),
        group_owner: owner_of(&group),
        owners,
        name: GangName::like(name.trim()),
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
            owners.extend(fs::metadata(format!("/proc/{process}")).map(|directory| directory.uid()));
        }
    }
    let last = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = GangName::like(last.trim_end_matches(".scope").trim_end_matches(".service"));
    let found = FoundTarget { group: path.to_owned(), group_owner: owner_of(&group), owners, name };
    Ok(LookedAt { found, group, process: None })
}

/// The first part of a path that a gang scheduler has made.
fn scheduler_in(path: &Path) -> Option<String> {
    let mut names = path.iter().map(|part| part.to_string_lossy());
    let is_ours = |name: &str| {
        // its process number follows
        let rest = name.strip_prefix("unisono-").unwrap_or_default();
        rest.starts_with(|c: char| c.is_ascii_digit())
    };
    names.find(|name| is_ours(name)).map(String::from)
}

/// Who may move processes into a group. Root's, if that cannot be read.
fn owner_of(group: &ControlGroup) -> u32 {
    fs::metadata(group.path().join("cgroup.procs")).map_or(0, |file| file.uid())
}

/// The process and all that it has started.
fn family_of(process: Tid) -> BTreeSet<i32> {
    with_descendants(|listed| listed.number == process.0)
}

/// The group and those below it.
pub fn groups_below(group: &ControlGroup) -> Vec<ControlGroup> {
    let mut found = vec![group.clone()];
    let mut next = 0;
    while next < found.len() && found.len() < MOST_GROUPS {
        let entries = fs::read_dir(found[next].path()).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let below: Vec<_> =
            directories.map(|entry| ControlGroup::at(entry.path(), group.version())).collect();
        found.extend(below);
        next += 1;
    }
    found
}

/// The group that is made for a gang of this daemon inside the group where its processes are.
pub fn home_in(group: &Path, id: GangId) -> PathBuf {
    group.join(format!("unisono-{}-gang-{}", std::process::id(), id.0 + 1))
}

impl LookedAt {
    /// The process that is to be made a gang, if it is not a group.
    pub fn process(&self) -> Option<Author> {
        self.process
    }

    /// Makes the target a gang's home. If it fails, what the journal says undoes the part that was done.
    pub fn take(self, id: GangId, journal: &mut GangJournal) -> Result<GangHome> {
        let Some(process) = self.process else {
            journal.write(&UndoEntry::borrowed(&self.group)?)?;
            return Ok(GangHome::Borrowed(self.group));
        };
        let path = home_in(self.group.path(), id);
        journal.write(&UndoEntry::group(&path, self.group.version()))?;
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let home = self.group.create(&name)?;
        let number = Tid(process.process.cast_signed());
        let _held = process.hold().ok_or_else(|| Error::Input(format!("process {number} has ended")))?;
        let mut moved = BTreeSet::new();
        for _ in 0..MOST_ROUNDS {
            let new: Vec<i32> =
                family_of(number).into_iter().filter(|member| moved.insert(*member)).collect();
            if new.is_empty() {
                return Ok(GangHome::Made(home));
            }
            for member in new {
                match home.admit(Tid(member)) {
                    Err(error) if Path::new(&format!("/proc/{member}/ns")).exists() && member == number.0 => {
                        return Err(error.into());
                    }
                    _ => {} // a child that ends is not moved
                }
            }
        }
        Err(Error::Host(format!("process {number} starts processes faster than they can be moved")))
    }
}

/// Whether a journal's entry is about this home.
pub fn is_about(entry: &UndoEntry, home: &GangHome) -> bool {
    match entry {
        UndoEntry::Group { path, .. } | UndoEntry::Borrowed { path, .. } => path == home.group().path(),
        _ => false,
    }
}

/// Whether an entry is about what was begun for this gang.
pub fn is_of(entry: &UndoEntry, id: GangId, group: &Path) -> bool {
    match entry {
        UndoEntry::Group { path, .. } => *path == home_in(group, id),
        UndoEntry::Borrowed { path, .. } => path == group,
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
