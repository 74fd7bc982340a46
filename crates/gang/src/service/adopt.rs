//! Makes gangs of running processes, and returns the processes to their groups.
//!
//! ```text
//!   process   its group GROUP:  make GROUP/unisono-PID-gang-RANDOM, move the process and its descendants in
//!   group     GROUP itself: no process is moved, and only its freezer is written
//! ```
//! A new group lies inside the group where the processes were, so that limits of that group stay in force.
//! Processes that a program starts later are inside, too. Everything is in the journal before it is done.
//!
//! Cost: a read of `/proc` for a process (about 10 us for each process of the machine), and a write for each
//! process that is moved. When not to use: if another program freezes a group (a paused container), the
//! daemon thaws the group at its next turn.

use super::request::{GangName, GangRefusal, GangRefusalKind, GangTarget, ServiceResult, refused};
use super::state::FoundTarget;
use crate::error::{Error, Result};
use crate::journal::{GangJournal, UndoEntry};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::{CgroupHierarchy, ControlGroup, ProcessMover};
use unisono_linux::clock::{self, Instant};
use unisono_linux::local_socket::own_user;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process_list::{self, ListedProcess};
use unisono_linux::process_stat::ProcessStat;

/// Maximum rounds of searching for processes that were started while others were moved. Each round is shorter
/// than the one before, unless the program starts processes without end.
const MAX_ROUNDS: usize = 50;
/// Maximum number of groups read of a container or a service.
const MAX_GROUPS: usize = 1000;

/// An inspection of a target, which proceeds in pieces and changes nothing.
#[derive(Debug)]
pub(super) struct TargetScan {
    /// The target group, or the group of the target's processes.
    group: ControlGroup,
    /// The target process, if the target is not a group.
    leader: Option<PinnedProcess>,
    name: GangName,
    owners: BTreeSet<u32>,
    /// For a process: the scan of all processes of the machine, until it is complete.
    scan: Option<FamilyScan>,
    /// Processes and groups that were not read yet.
    processes: Vec<u32>,
    groups: Vec<ControlGroup>,
    groups_seen: usize,
}

/// The control group of a gang.
#[derive(Debug)]
pub enum GangHome {
    /// A group made for the gang.
    Made(ControlGroup),
    /// A group that existed before.
    Borrowed(ControlGroup),
}

impl GangHome {
    pub fn group(&self) -> &ControlGroup {
        match self {
            GangHome::Made(group) | GangHome::Borrowed(group) => group,
        }
    }
}

fn bad(text: String) -> GangRefusal {
    GangRefusal::new(GangRefusalKind::BadRequest, text)
}

/// Returns the hierarchy beside `first` whose groups can be frozen too: the version 1 freezer on a host that
/// has both versions, where container engines keep their groups in version 1.
pub fn freezer_beside(all: &[CgroupHierarchy], first: &CgroupHierarchy) -> Option<CgroupHierarchy> {
    CgroupHierarchy::with(all, "freezer").filter(|freezer| freezer.root != first.root).cloned()
}

impl TargetScan {
    /// Begins to inspect a target. `freezer` is the version 1 freezer, if `hierarchy` is another one.
    pub(super) fn begin(
        target: &GangTarget,
        hierarchy: &CgroupHierarchy,
        freezer: Option<&CgroupHierarchy>,
    ) -> ServiceResult<TargetScan> {
        match target {
            GangTarget::Process { number, started } => scan_process(*number, *started, hierarchy),
            GangTarget::Group { path } => {
                let in_freezer = freezer.filter(|freezer| path.starts_with(&freezer.root));
                scan_group(path, in_freezer.unwrap_or(hierarchy))
            }
        }
    }

    /// Continues until this moment. Returns the target once everything was read.
    pub(super) fn go_on(
        &mut self,
        hierarchy: &CgroupHierarchy,
        until: Instant,
    ) -> ServiceResult<Option<FoundTarget>> {
        if let (Some(scan), Some(leader)) = (&mut self.scan, &self.leader) {
            let Some(family) = scan.family_of(leader, until) else { return Ok(None) };
            self.scan = None;
            if family.contains(&std::process::id()) {
                let text =
                    format!("process {} has started this daemon, which cannot stop itself", leader.number());
                return Err(bad(text));
            }
            self.processes = family.into_iter().collect();
        }
        loop {
            if let Some(number) = self.processes.pop() {
                self.scan_member(number, hierarchy)?;
            } else if let Some(group) = self.groups.pop() {
                self.scan_groups_below(&group);
            } else {
                return Ok(Some(FoundTarget {
                    group: self.group.path().to_owned(),
                    group_owner: owner_of(&self.group),
                    owners: self.owners.clone(),
                    name: self.name.clone(),
                }));
            }
            if clock::now() >= until {
                return Ok(None);
            }
        }
    }

    /// Adds the owner of a process of the target. If another process has taken the number by now, this only
    /// adds an owner, and so permits nothing more.
    fn scan_member(&mut self, number: u32, hierarchy: &CgroupHierarchy) -> ServiceResult<()> {
        let Ok(member) = PinnedProcess::now(number) else { return Ok(()) }; // it has ended
        let Ok(owner) = member.owner() else { return Ok(()) };
        if let Some(leader) = &self.leader {
            let Ok(other) = hierarchy.group_of(member.thread()) else { return Ok(()) };
            if other.path() != self.group.path() && member.lives() {
                return Err(bad(format!(
                    "process {number}, which {} has started, is in another control group ({}); add that group",
                    leader.number(),
                    other.path().display()
                )));
            }
        }
        self.owners.insert(owner);
        Ok(())
    }

    fn scan_groups_below(&mut self, group: &ControlGroup) {
        self.processes.extend(group.processes().unwrap_or_default().into_iter().map(u32::from));
        let room = MAX_GROUPS.saturating_sub(self.groups_seen);
        let below: Vec<ControlGroup> = groups_in(group).into_iter().take(room).collect();
        self.groups_seen += below.len();
        self.groups.extend(below);
    }

    /// Starts to make the target a gang's home. If it fails, the journal's entries undo the completed part.
    pub(super) fn begin_to_move(self, journal: &mut GangJournal) -> Result<HomeComing> {
        let Some(leader) = self.leader else {
            journal.write(&UndoEntry::borrowed(&self.group)?)?;
            return Ok(HomeComing::Done(GangHome::Borrowed(self.group)));
        };
        let home = journal.make_group(&self.group, &format!("unisono-{}-gang", std::process::id()))?;
        let mover = home.mover(&self.group)?;
        let (group, owners, scan) = (self.group, self.owners, FamilyScan::begin());
        let (family, new, moved) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
        Ok(HomeComing::Moves(Box::new(Moving {
            leader,
            group,
            home,
            mover,
            owners,
            scan,
            family,
            new,
            moved,
            rounds: 0,
        })))
    }
}

/// The outcome of a finished inspection.
pub(super) enum HomeComing {
    Done(GangHome),
    Moves(Box<Moving>),
}

/// The processes of a program during their move into their gang's home.
#[derive(Debug)]
pub(super) struct Moving {
    leader: PinnedProcess,
    group: ControlGroup,
    home: ControlGroup,
    mover: ProcessMover,
    owners: BTreeSet<u32>,
    scan: FamilyScan,
    family: BTreeSet<u32>,
    new: Vec<u32>,
    moved: BTreeSet<u32>,
    rounds: usize,
}

impl Moving {
    /// Moves processes until this moment. Returns whether all have been moved.
    pub(super) fn go_on(&mut self, hierarchy: &CgroupHierarchy, until: Instant) -> Result<bool> {
        loop {
            while let Some(member) = self.new.pop() {
                self.take(member, hierarchy)?;
                if clock::now() >= until {
                    return Ok(false);
                }
            }
            let Some(family) = self.scan.family_of(&self.leader, until) else { return Ok(false) };
            self.new = family.iter().copied().filter(|member| self.moved.insert(*member)).collect();
            (self.family, self.scan) = (family, FamilyScan::begin());
            if self.new.is_empty() {
                return Ok(true);
            }
            self.rounds += 1;
            if self.rounds > MAX_ROUNDS {
                let text = format!(
                    "process {} starts processes faster than they can be moved",
                    self.leader.number()
                );
                return Err(Error::Host(text));
            }
        }
    }

    fn take(&self, member: u32, hierarchy: &CgroupHierarchy) -> Result<()> {
        if member == self.leader.number() {
            self.mover.add(&self.leader)?;
            return Ok(());
        }
        let Ok(member) = PinnedProcess::now(member) else { return Ok(()) }; // it has ended
        if self.may_come(&member, hierarchy)? {
            self.mover.add(&member)?;
        }
        Ok(())
    }

    /// Returns whether a process that was listed as a gang's, and is pinned now, is still the listed process:
    /// its parent is in the gang, it is in the same group as the gang's other processes, and its owner is an
    /// owner of the target. Fails if the process belongs to the gang, but to another user by now.
    fn may_come(&self, member: &PinnedProcess, hierarchy: &CgroupHierarchy) -> Result<bool> {
        let (Ok(stat), Ok(owner)) = (member.stat(), member.owner()) else { return Ok(false) };
        let group = hierarchy.group_of(member.thread());
        let is_there =
            group.is_ok_and(|group| [&self.group, &self.home].iter().any(|here| here.path() == group.path()));
        if !is_there || !self.family.contains(&stat.parent.cast_unsigned()) {
            return Ok(false);
        }
        if !self.owners.contains(&owner) && member.lives() {
            return Err(Error::Host(format!("process {} belongs to user {owner} by now", member.number())));
        }
        Ok(member.lives())
    }

    /// Ends the move after all processes have arrived.
    pub(super) fn arrive(self) -> (GangHome, PinnedProcess) {
        (GangHome::Made(self.home), self.leader)
    }

    /// Returns the group into which the processes are moved.
    pub(super) fn home(&self) -> &ControlGroup {
        &self.home
    }
}

/// A scan of all processes of the machine, which proceeds in pieces.
#[derive(Debug)]
pub(super) struct FamilyScan {
    pending: Vec<i32>,
    read: Vec<ListedProcess>,
}

impl FamilyScan {
    pub(super) fn begin() -> FamilyScan {
        FamilyScan { pending: process_list::numbers(), read: Vec::new() }
    }

    /// Scans until this moment. Returns a process and all its descendants, once everything was read.
    fn family_of(&mut self, process: &PinnedProcess, until: Instant) -> Option<BTreeSet<u32>> {
        while let Some(number) = self.pending.pop() {
            self.read.extend(process_list::listed(number));
            if clock::now() >= until {
                return None;
            }
        }
        let is_it = |listed: &ListedProcess| listed.number == process.thread().0;
        let family = process_list::descendants_in(&self.read, is_it);
        Some(family.into_iter().map(i32::cast_unsigned).collect())
    }
}

fn scan_process(number: u32, started: u64, hierarchy: &CgroupHierarchy) -> ServiceResult<TargetScan> {
    let gone = |_| bad(format!("there is no process {number}, or it is another one by now"));
    check_runs_programs(number, started)?;
    let process = PinnedProcess::identified(number, started).map_err(gone)?;
    let group = hierarchy.group_of(process.thread()).map_err(refused)?;
    if let Some(whose) = scheduler_in(group.path()) {
        let text = format!("process {number} is in a gang already ({whose})");
        return Err(GangRefusal::new(GangRefusalKind::InUse, text));
    }
    let name = GangName::like(&process.name().map_err(gone)?);
    let scan = Some(FamilyScan::begin());
    let (processes, groups, owners) = (Vec::new(), Vec::new(), BTreeSet::new());
    Ok(TargetScan { group, leader: Some(process), name, owners, scan, processes, groups, groups_seen: 0 })
}

/// Refuses a process that cannot run a program: it belongs to the kernel, or has ended.
fn check_runs_programs(number: u32, started: u64) -> ServiceResult<()> {
    match ProcessStat::read(number).filter(|stat| stat.started == started) {
        Some(stat) if stat.is_kernel => {
            Err(bad(format!("process {number} is a thread of the kernel, which no gang can stop")))
        }
        Some(stat) if stat.state == 'Z' => {
            let text = format!(
                "process {number} has ended (a zombie: process {} has not asked for its exit code)",
                stat.parent
            );
            Err(bad(text))
        }
        _ => Ok(()),
    }
}

fn scan_group(path: &Path, hierarchy: &CgroupHierarchy) -> ServiceResult<TargetScan> {
    let shown = path.display();
    let root = hierarchy.root.as_path();
    // compares the text alone: an access to a path on a dead file system would stop the daemon
    let Ok(inside) = path.strip_prefix(root) else {
        return Err(bad(format!("{shown} cannot be frozen; name a control group below {}", root.display())));
    };
    if inside.as_os_str().is_empty() {
        return Err(bad(format!("{shown} holds the whole machine; name a group below it")));
    }
    let missing = |_| bad(format!("{shown} is no control group; look for it: cat /proc/PID/cgroup"));
    hierarchy.open(inside).map_err(missing)?;
    if let Some(whose) = scheduler_in(path) {
        let text = format!("{shown} is a gang already ({whose})");
        return Err(GangRefusal::new(GangRefusalKind::InUse, text));
    }
    let group = ControlGroup::at(path.to_owned(), hierarchy.version);
    let own = hierarchy.group_of(Tid::SELF).map_err(refused)?;
    if own.path().starts_with(path) {
        return Err(bad(format!("this daemon is in {shown}, and it cannot stop itself")));
    }
    let paused = group.read("cgroup.freeze").or_else(|_| group.read("freezer.self_freezing"));
    if paused.is_ok_and(|text| text.trim() == "1") {
        return Err(bad(format!("{shown} is frozen by somebody else; let it run first")));
    }
    let last = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = GangName::like(last.trim_end_matches(".scope").trim_end_matches(".service"));
    let (owners, scan, processes, groups) = (BTreeSet::new(), None, Vec::new(), vec![group.clone()]);
    Ok(TargetScan { group, leader: None, name, owners, scan, processes, groups, groups_seen: 1 })
}

/// Returns the name of the topmost group on a path that a gang scheduler of this user has made. If another
/// user has made a group with such a name, it does not count.
fn scheduler_in(path: &Path) -> Option<String> {
    let name_of = |part: &Path| Some(part.file_name()?.to_string_lossy().into_owned());
    let is_ours = |part: &&Path| {
        let name = name_of(part).unwrap_or_default();
        // the scheduler's process number follows the prefix
        let rest = name.strip_prefix("unisono-").unwrap_or_default();
        rest.starts_with(|c: char| c.is_ascii_digit())
            && fs::symlink_metadata(part).is_ok_and(|directory| directory.uid() == own_user())
    };
    path.ancestors().filter(is_ours).last().and_then(name_of)
}

/// Returns the user who may move processes into a group; root if that cannot be read.
fn owner_of(group: &ControlGroup) -> u32 {
    group.owner().unwrap_or(0)
}

/// Returns the group and all groups below it.
pub fn groups_below(group: &ControlGroup) -> Vec<ControlGroup> {
    let mut found = vec![group.clone()];
    let mut next = 0;
    while next < found.len() && found.len() < MAX_GROUPS {
        let below = groups_in(&found[next]);
        found.extend(below);
        next += 1;
    }
    found
}

/// Returns the child groups of this group.
fn groups_in(group: &ControlGroup) -> Vec<ControlGroup> {
    let entries = fs::read_dir(group.path()).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| ControlGroup::at(entry.path(), group.version())).collect()
}

/// Returns whether a journal's entry concerns this home.
pub fn is_about(entry: &UndoEntry, home: &GangHome) -> bool {
    match entry {
        UndoEntry::Group { path, .. } | UndoEntry::Borrowed { path, .. } => path == home.group().path(),
        _ => false,
    }
}

pub fn threads_in(groups: &[ControlGroup]) -> BTreeSet<i32> {
    groups.iter().flat_map(|group| group.threads().unwrap_or_default()).map(|thread| thread.0).collect()
}

/// Returns whether no more processes can appear in this home. A group that existed before the gang may be
/// empty for a while.
pub fn is_over(home: &GangHome) -> bool {
    match home {
        GangHome::Made(group) => threads_in(&groups_below(group)).is_empty(),
        GangHome::Borrowed(group) => !group.path().exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn refusal(number: u32) -> Option<String> {
        let stat = ProcessStat::read(number)?;
        check_runs_programs(number, stat.started).err().map(|refusal| refusal.message)
    }

    #[test]
    fn a_zombie_and_a_thread_of_the_kernel_are_refused_with_the_reason() {
        assert_eq!(refusal(std::process::id()), None);
        let mut child = Command::new("true").spawn().expect("it starts");
        while ProcessStat::read(child.id()).is_some_and(|stat| stat.state != 'Z') {
            std::thread::yield_now();
        }
        let said = refusal(child.id()).expect("a zombie runs nothing");
        assert!(said.contains("has ended") && said.contains(&std::process::id().to_string()), "{said}");
        child.wait().expect("it has ended");
        // a container has no thread of the kernel among its processes
        if ProcessStat::read(2).is_some_and(|stat| stat.is_kernel) {
            let said = refusal(2).expect("no gang can stop it");
            assert!(said.contains("a thread of the kernel"), "{said}");
        }
    }
}
