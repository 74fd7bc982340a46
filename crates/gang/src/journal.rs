//! The journal: what to undo, written before it is done.
//!
//! Each line is a JSON object, flushed to the file before the machine is changed. Three may undo it: the
//! scheduler when it ends, its guardian when the scheduler is killed, and `unisono gang restore` when both
//! were killed. So undoing twice does no harm, and it touches only what is still as the scheduler left it. A
//! thread whose affinity is another one now was moved by its program, and stays.
//!
//! Where: `/run/unisono/gang` for root, else `$XDG_RUNTIME_DIR/unisono/gang`, else `/tmp/unisono-UID/gang`. A
//! journal names its scheduler by process number and start time, because numbers are used again.

use crate::class;
use crate::error::{Result, system};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Component, Path, PathBuf};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::cgroup::{self, CgroupHierarchy, CgroupVersion, ControlGroup, Frozen};
use unisono_linux::file_system;
use unisono_linux::local_socket::own_user;
use unisono_linux::pidfd;
use unisono_linux::process_group::ProcessGroup;
use unisono_linux::signal::Signal;
use unisono_linux::undo::{Author, UndoDirectory};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UndoEntry {
    Scheduler(Author),
    /// A group that may exist: thaw it, move who is in it back, remove it.
    Group {
        path: PathBuf,
        /// 1 or 2.
        version: u8,
    },
    /// A thread that was given a core.
    Affinity {
        thread: i32,
        started: u64,
        /// What it may use when this is undone.
        before: String,
        /// What we set; anything else is the program's own choice.
        after: String,
    },
    /// The threads of this group were put into a real-time class.
    RealTime {
        path: PathBuf,
        /// 1 or 2.
        version: u8,
    },
    /// A process group that may be stopped.
    Stopped {
        leader: i32,
        started: u64,
    },
}

fn number(version: CgroupVersion) -> u8 {
    if version == CgroupVersion::V1 { 1 } else { 2 }
}

fn version(number: u8) -> CgroupVersion {
    if number == 1 { CgroupVersion::V1 } else { CgroupVersion::V2 }
}

impl UndoEntry {
    pub(crate) fn group(path: &Path, version: CgroupVersion) -> UndoEntry {
        UndoEntry::Group { path: path.to_owned(), version: number(version) }
    }

    pub(crate) fn real_time(group: &ControlGroup) -> UndoEntry {
        UndoEntry::RealTime { path: group.path().to_owned(), version: number(group.version()) }
    }

    pub(crate) fn affinity(thread: Tid, before: &CpuSet, after: &CpuSet) -> Option<UndoEntry> {
        let started = start_time(thread)?;
        Some(UndoEntry::Affinity {
            thread: thread.0,
            started,
            before: before.to_string(),
            after: after.to_string(),
        })
    }
}

/// When a process or thread started, in the kernel's ticks since boot: with its number it names it for good.
pub fn start_time(thread: Tid) -> Option<u64> {
    pidfd::start_time(u32::try_from(thread.0).ok()?)
}

const ENDING: &str = ".journal";

/// The directory of journals of this user.
pub fn directory() -> PathBuf {
    if unisono_linux::process::is_root() {
        return "/run/unisono/gang".into();
    }
    if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        return Path::new(&dir).join("unisono/gang");
    }
    format!("/tmp/unisono-{}/gang", own_user()).into()
}

#[derive(Debug)]
pub struct GangJournal {
    path: PathBuf,
    file: File,
}

impl GangJournal {
    /// Starts the journal of this process. Fails if the directory belongs to another user.
    pub fn create() -> Result<GangJournal> {
        GangJournal::create_in(&directory())
    }

    fn create_in(dir: &Path) -> Result<GangJournal> {
        let scheduler = Author::this_process();
        let name = format!("gang-{}{ENDING}", scheduler.process);
        let path = dir.join(&name);
        let directory = UndoDirectory::at(dir);
        let file = match directory.create(&name) {
            // of a scheduler that had this number before and was killed
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                restore(&path)?;
                directory.create(&name)
            }
            made => made,
        };
        let file = file.map_err(system("create the journal"))?;
        let mut journal = GangJournal { path, file };
        journal.write(&UndoEntry::Scheduler(scheduler))?;
        Ok(journal)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes an entry; call it before the change.
    pub fn write(&mut self, entry: &UndoEntry) -> Result<()> {
        let mut line = serde_json::to_vec(entry).map_err(|e| system("write the journal")(e.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(system("write the journal"))
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Restored {
    pub groups: usize,
    /// Processes moved out of them.
    pub processes: usize,
    /// Threads whose affinity or class was put back.
    pub threads: usize,
    /// What is still not as it was, in words.
    pub left: Vec<String>,
}

/// The directory in which a journal lies, and its name there.
fn place_of(path: &Path) -> (UndoDirectory, &str) {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    (UndoDirectory::at(path.parent().unwrap_or(Path::new("/"))), name)
}

/// The entries of a journal; a last line that was cut off by a crash is ignored. Fails if users other than
/// this one can have written the file.
pub fn read(path: &Path) -> Result<Vec<UndoEntry>> {
    let (directory, name) = place_of(path);
    let text = directory.read(name).map_err(system("read the journal"))?;
    let text = text.ok_or_else(|| system("read the journal")(ErrorKind::NotFound.into()))?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Whether the scheduler that wrote these entries is alive.
pub fn is_alive(entries: &[UndoEntry]) -> bool {
    entries.iter().any(|entry| matches!(entry, UndoEntry::Scheduler(scheduler) if scheduler.lives()))
}

/// Undoes everything in a journal and removes it if nothing is left. What could not be undone is in
/// [`Restored::left`] and stays in the journal.
pub fn restore(path: &Path) -> Result<Restored> {
    let mut entries = read(path)?;
    let mut done = Restored::default();
    let all = cgroup::hierarchies()?;
    entries.retain(|entry| match names_a_group_of_ours(entry, &all) {
        Ok(()) => true,
        Err(reason) => {
            done.left.push(reason);
            false
        }
    });
    for entry in &entries {
        undo_thread(entry, &mut done);
    }
    // first let everybody run, then move them out, inner groups before outer ones
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
        if let Ok(valve) = group.valve() {
            let _ = valve.set(Frozen::No); // a parent without a valve, or gone meanwhile
        }
    }
    for group in &groups {
        match empty_and_remove(group, &all, &mut done.processes) {
            Ok(()) => done.groups += 1,
            Err(reason) => done.left.push(reason),
        }
    }
    if done.left.is_empty() {
        let (journals, name) = place_of(path);
        journals.remove(name).map_err(system("remove the journal"))?;
        if journals.path() == directory() {
            journals.remove_if_empty(); // others have their journals there
        }
    }
    Ok(done)
}

/// Whether the group that an entry names, if it names one that is there, is one that a scheduler has made: a
/// directory of a control group file system, reached without a detour, at or below one whose name begins with
/// `unisono-`. A journal that says otherwise was not written by a scheduler, and its other groups may be
/// anybody's.
fn names_a_group_of_ours(entry: &UndoEntry, all: &[CgroupHierarchy]) -> std::result::Result<(), String> {
    let (UndoEntry::Group { path, version: v } | UndoEntry::RealTime { path, version: v }) = entry else {
        return Ok(());
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
    match home_of(&ControlGroup::at(path.clone(), version(*v)), all) {
        Some(home) if home.version() == version(*v) => Ok(()),
        _ => refused("no control group of a gang scheduler"),
    }
}

fn undo_thread(entry: &UndoEntry, done: &mut Restored) {
    match entry {
        UndoEntry::Affinity { thread, started, before, after } => {
            let thread = Tid(*thread);
            let (Ok(before), Ok(after)) = (before.parse(), after.parse()) else { return };
            let ours = start_time(thread) == Some(*started)
                && affinity::allowed(thread).is_ok_and(|now| now == after);
            if ours && affinity::restrict(thread, &before).is_ok() {
                done.threads += 1;
            }
        }
        UndoEntry::RealTime { path, version: v } => {
            let group = ControlGroup::at(path.clone(), version(*v));
            done.threads += class::put_back(&[group]).0;
        }
        UndoEntry::Stopped { leader, started } => {
            let leader = Tid(*leader);
            // a group outlives its leader; its number is not used again while somebody is in it
            if start_time(leader).is_none_or(|now| now == *started) {
                // fails if everybody in it belongs to another user now
                let _ = ProcessGroup::of_child(leader).map(|group| group.tell(Signal::Continue));
            }
        }
        UndoEntry::Scheduler(_) | UndoEntry::Group { .. } => {}
    }
}

fn empty_and_remove(
    group: &ControlGroup,
    all: &[CgroupHierarchy],
    moved: &mut usize,
) -> std::result::Result<(), String> {
    let Some(home) = home_of(group, all) else {
        return Err(format!("{}: its hierarchy is not mounted", group.path().display()));
    };
    let mut last = String::new();
    // processes that end or fork meanwhile make several rounds necessary
    for round in 0..200u64 {
        for process in group.processes().unwrap_or_default() {
            if home.admit(process).is_ok() {
                *moved += 1;
            }
        }
        match group.remove() {
            Ok(()) => return Ok(()),
            Err(error) => last = error.to_string(),
        }
        std::thread::sleep(std::time::Duration::from_millis(round.min(10)));
    }
    Err(last)
}

/// Where processes go: the group that holds the scheduler's parent group.
fn home_of(group: &ControlGroup, all: &[CgroupHierarchy]) -> Option<ControlGroup> {
    let hierarchy =
        all.iter().filter(|h| group.path().starts_with(&h.root)).max_by_key(|h| h.root.as_os_str().len())?;
    let ours = |part: &std::ffi::OsStr| part.to_str().is_some_and(|name| name.starts_with("unisono-"));
    let home = group.path().ancestors().find(|dir| dir.file_name().is_some_and(ours))?.parent()?;
    Some(ControlGroup::at(home.to_owned(), hierarchy.version))
}

/// The journals of this user's schedulers. Fails if users other than this one could have written into the
/// directory.
pub fn all() -> std::io::Result<Vec<PathBuf>> {
    let directory = directory();
    let names = UndoDirectory::at(&directory).files(ENDING)?;
    Ok(names.into_iter().map(|name| directory.join(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// As a scheduler of this user writes it, whatever the umask.
    fn write(path: &Path, text: &str) {
        fs::write(path, text).expect("there is room");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is this user's");
    }

    #[test]
    fn entries_survive_the_file_and_a_line_cut_off_is_ignored() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("gang-1.journal");
        let entries = [
            UndoEntry::Scheduler(Author { process: 1, started: 0 }),
            UndoEntry::group(Path::new("/nowhere/unisono-1/gang-1"), CgroupVersion::V1),
            UndoEntry::Stopped { leader: 7, started: 9 },
        ];
        let lines: Vec<String> =
            entries.iter().map(|e| serde_json::to_string(e).expect("serializes")).collect();
        write(&path, &format!("{}\n{{\"group\":{{\"pa", lines.join("\n")));
        assert_eq!(read(&path).expect("read"), entries);
    }

    #[test]
    fn a_journal_belongs_to_its_scheduler_and_not_to_a_later_process_with_that_number() {
        let scheduler = Author::this_process();
        assert!(is_alive(&[UndoEntry::Scheduler(scheduler)]));
        assert!(!is_alive(&[UndoEntry::Scheduler(Author { started: scheduler.started + 1, ..scheduler })]));
        let line = serde_json::to_string(&UndoEntry::Scheduler(Author { process: 7, started: 9 }));
        let before = r#"{"scheduler":{"process":7,"started":9}}"#; // as older programs wrote it
        assert_eq!(line.expect("serializes"), before);
    }

    #[test]
    fn restoring_gives_back_an_affinity_only_while_it_is_ours() {
        let dir = tempfile::tempdir().expect("directory");
        std::thread::spawn(move || {
            let me = Tid::current();
            let before = affinity::allowed(me).expect("own affinity");
            let one = CpuSet::single(before.iter().next().expect("a processor"));
            let entry = UndoEntry::affinity(me, &before, &one).expect("own start time");
            let path = dir.path().join("gang-2.journal");
            let write = || write(&path, &(serde_json::to_string(&entry).expect("serializes") + "\n"));
            write();
            affinity::restrict(me, &one).expect("restrict");
            assert_eq!(restore(&path).expect("restore").threads, 1);
            assert_eq!(affinity::allowed(me).expect("own affinity"), before);
            assert!(!path.exists());
            if before.len() > 1 {
                write();
                assert_eq!(restore(&path).expect("restore").threads, 0, "not ours any more");
            }
        })
        .join()
        .expect("thread");
    }

    #[test]
    fn a_journal_that_others_can_have_written_is_not_carried_out() {
        let dir = tempfile::tempdir().expect("directory");
        let journals = dir.path().join("unisono-1000");
        fs::create_dir(&journals).expect("directory");
        let path = journals.join("gang-1.journal");
        write(&path, "");
        assert!(read(&path).is_ok());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("it is this user's");
        assert!(restore(&path).expect_err("anybody's").to_string().contains("may be written by other users"));
        write(&path, "");
        let link = journals.join("gang-2.journal");
        symlink(&path, &link).expect("link");
        assert!(restore(&link).expect_err("a link").to_string().contains("is a link"));
        fs::set_permissions(&journals, fs::Permissions::from_mode(0o777)).expect("it is this user's");
        assert!(restore(&path).expect_err("anybody's").to_string().contains("may be written by other users"));
        assert!(GangJournal::create_in(&journals).is_err());
        assert!(path.exists());
    }

    #[test]
    fn groups_that_no_scheduler_makes_are_left_alone_and_named() {
        let dir = tempfile::tempdir().expect("directory");
        let (path, elsewhere) = (dir.path().join("gang-1.journal"), dir.path().join("unisono-1"));
        fs::create_dir(&elsewhere).expect("directory");
        let link = dir.path().join("unisono-link");
        symlink(&elsewhere, &link).expect("link");
        let detour = dir.path().join("unisono-1/../unisono-1");
        for (group, why) in [
            (elsewhere.as_path(), "no control group"),
            (&link, "a path with links"),
            (&detour, "no plain path"),
            (Path::new("unisono-1"), "no plain path"),
        ] {
            for entry in [
                UndoEntry::group(group, CgroupVersion::V2),
                UndoEntry::RealTime { path: group.to_owned(), version: 2 },
            ] {
                write(&path, &(serde_json::to_string(&entry).expect("serializes") + "\n"));
                let left = restore(&path).expect("it is ours").left;
                assert!(left.len() == 1 && left[0].contains(why), "{left:?}");
            }
        }
        assert!(elsewhere.exists() && path.exists());
        for hierarchy in cgroup::hierarchies().expect("mounts can be read") {
            let entry = UndoEntry::group(&hierarchy.root, hierarchy.version);
            let why = names_a_group_of_ours(&entry, &[hierarchy]).expect_err("the root is nobody's");
            assert!(why.contains("of a gang scheduler"), "{why}");
        }
    }

    #[test]
    fn what_an_earlier_scheduler_with_the_same_number_left_is_undone_first() {
        let dir = tempfile::tempdir().expect("directory");
        let first = GangJournal::create_in(dir.path()).expect("a new file");
        let second = GangJournal::create_in(dir.path()).expect("a new file");
        assert_eq!((first.path(), read(second.path()).expect("it is ours").len()), (second.path(), 1));
    }
}
