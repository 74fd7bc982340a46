//! The journal: a list of changes to undo, each written before the change is made.
//!
//! Each line is a JSON object, flushed to the file before the machine is changed. Three processes may undo
//! it: the scheduler when it ends, its guardian when the scheduler is killed, and `unisono gang restore` when
//! both were killed. So undoing is idempotent, and it only touches state that is still as the scheduler left
//! it. A thread whose affinity has changed since was moved by its program, and is left alone.
//!
//! A scheduler that runs for long undoes parts of its journal while it runs ([`GangJournal::undo`]). When the
//! journal has become long, the scheduler rewrites the file without the threads that have ended
//! ([`GangJournal::compact`]).
//!
//! Where: `/run/unisono/gang` for root, else `$XDG_RUNTIME_DIR/unisono/gang`, else `/tmp/unisono-UID/gang`. A
//! journal names its scheduler by process number and start time, because numbers are reused.

mod entry;
mod undo;

pub use entry::{UndoEntry, start_time};
pub use undo::Restored;
pub(crate) use undo::move_out;

use crate::error::{Error, Result, journal_error, system};
use entry::parse;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use undo::undo_all;
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::{ControlGroup, unguessable};
use unisono_linux::private_directory::runtime_directory;
use unisono_linux::undo::{Author, DirectoryLock, UndoDirectory};

const ENDING: &str = ".journal";
/// Time limit of the wait for another process that restores: emptying a group takes up to two seconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum attempts to empty a group: processes that end or fork meanwhile delay it. Two seconds.
const MAX_ROUNDS: u64 = 200;
/// Number of entries up to which [`GangJournal::compact`] never rewrites the file; afterwards the limit is
/// twice the number of entries that remained at the last rewriting, if that is more.
const LONG: usize = 1000;

/// Returns the directory of journals of this user.
pub fn directory() -> PathBuf {
    if unisono_linux::process::is_root() {
        return "/run/unisono/gang".into();
    }
    runtime_directory().join("gang")
}

#[derive(Debug)]
pub struct GangJournal {
    path: PathBuf,
    file: File,
    /// Whether the file may end with a part of a line, which a full file system has cut off.
    is_torn: bool,
    entries: Vec<UndoEntry>,
    /// Maximum number of entries before [`GangJournal::compact`] rewrites the file.
    max_entries: usize,
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
            // left by a killed scheduler that had the same process number
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                restore(&path)?;
                directory.create(&name)
            }
            made => made,
        };
        let file = file.map_err(journal_error("create the journal", &path))?;
        let mut journal = GangJournal { path, file, is_torn: false, entries: Vec::new(), max_entries: LONG };
        journal.write(&UndoEntry::Scheduler(scheduler))?;
        Ok(journal)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes an entry; call it before the change.
    pub fn write(&mut self, entry: &UndoEntry) -> Result<()> {
        let mut line = if self.is_torn { b"\n".to_vec() } else { Vec::new() };
        let written = serde_json::to_writer(&mut line, entry);
        written.map_err(|error| journal_error("write the journal", &self.path)(error.into()))?;
        line.push(b'\n');
        self.is_torn = true;
        self.file.write_all(&line).map_err(journal_error("write the journal", &self.path))?;
        self.is_torn = false;
        self.entries.push(entry.clone());
        Ok(())
    }

    /// Makes a group inside another one, under a name that no other process can have guessed and taken. The
    /// group is in the journal before it is made.
    pub(crate) fn make_group(&mut self, parent: &ControlGroup, prefix: &str) -> Result<ControlGroup> {
        loop {
            let name = unguessable(prefix).map_err(system("choose a name for a control group"))?;
            let entry = UndoEntry::group(&parent.path().join(&name), parent.version());
            self.write(&entry)?;
            match parent.create(&name) {
                // the group belongs to another process: there is nothing to undo
                Err(error) if error.source.kind() == ErrorKind::AlreadyExists => {
                    self.entries.retain(|written| *written != entry);
                    let _lock = lock(&self.path)?;
                    self.write_anew()?;
                }
                made => return Ok(made?),
            }
        }
    }

    /// Returns the number of entries, for [`GangJournal::undo_since`].
    pub(crate) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// Undoes the entries after the first `before`.
    pub(crate) fn undo_since(&mut self, before: usize) -> Result<Restored> {
        let chosen: Vec<UndoEntry> = self.entries.iter().skip(before).cloned().collect();
        self.undo(|entry| chosen.contains(entry))
    }

    /// Undoes the entries that `chosen` selects, and removes them from the journal; if an entry cannot be
    /// undone, all of them stay. A group that is not empty is not removed.
    pub fn undo(&mut self, chosen: impl Fn(&UndoEntry) -> bool) -> Result<Restored> {
        let is_chosen = |entry: &UndoEntry| !matches!(entry, UndoEntry::Scheduler(_)) && chosen(entry);
        let _lock = lock(&self.path)?;
        let done = undo_all(self.entries.iter().filter(|entry| is_chosen(entry)).cloned().collect(), 1)?;
        if done.unrestored.is_empty() {
            self.entries.retain(|entry| !is_chosen(entry));
            self.write_anew()?;
        }
        Ok(done)
    }

    /// Writes the journal anew without threads that have ended, if it has become long.
    pub fn compact(&mut self) -> Result<()> {
        if self.entries.len() <= self.max_entries {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        let mut live: Vec<UndoEntry> = std::mem::take(&mut self.entries);
        live.reverse();
        // of several affinities of a thread only the last one counts
        live.retain(|entry| match entry {
            UndoEntry::Affinity { thread, started, .. } => {
                seen.insert((*thread, *started)) && start_time(Tid(*thread)) == Some(*started)
            }
            _ => true,
        });
        live.reverse();
        self.entries = live;
        self.max_entries = LONG.max(self.entries.len() * 2);
        let _lock = lock(&self.path)?;
        self.write_anew()
    }

    /// Replaces a file beside the journals atomically.
    pub fn keep_beside(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let _lock = lock(&self.path)?;
        place_of(&self.path)
            .0
            .write(name, bytes)
            .map_err(journal_error("write beside the journal", &self.path))
    }

    /// Reads the contents of a file beside the journals, written by this scheduler or an earlier one.
    pub fn read_beside(&self, name: &str) -> Result<Option<String>> {
        place_of(&self.path).0.read(name).map_err(journal_error("read beside the journal", &self.path))
    }

    fn write_anew(&mut self) -> Result<()> {
        let mut text = Vec::new();
        for entry in &self.entries {
            let written = serde_json::to_writer(&mut text, entry);
            written.map_err(|error| journal_error("write the journal", &self.path)(error.into()))?;
            text.push(b'\n');
        }
        let (directory, name) = place_of(&self.path);
        directory.write(name, &text).map_err(journal_error("write the journal", &self.path))?;
        // the old handle still refers to the replaced file
        let file = OpenOptions::new().append(true).open(&self.path);
        self.file = file.map_err(journal_error("open the journal", &self.path))?;
        self.is_torn = false;
        Ok(())
    }
}

/// Locks the directory of this journal against other processes that undo.
fn lock(path: &Path) -> Result<DirectoryLock> {
    let (directory, _) = place_of(path);
    let lock =
        directory.lock(LOCK_TIMEOUT).map_err(journal_error("lock the journals in", directory.path()))?;
    lock.ok_or_else(|| {
        let who = directory.path().display();
        Error::Host(format!(
            "another process has been restoring from {who} for {} seconds; try again when it has ended",
            LOCK_TIMEOUT.as_secs()
        ))
    })
}

/// Returns the directory of a journal and its name there.
fn place_of(path: &Path) -> (UndoDirectory, &str) {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    (UndoDirectory::at(path.parent().unwrap_or(Path::new("/"))), name)
}

/// Reads the entries of a journal; a last line that was cut off by a crash is ignored. Fails if other users
/// may have written the file.
pub fn read(path: &Path) -> Result<Vec<UndoEntry>> {
    let (directory, name) = place_of(path);
    let text = directory.read(name).map_err(journal_error("read the journal", path))?;
    let text = text.ok_or_else(|| journal_error("read the journal", path)(ErrorKind::NotFound.into()))?;
    Ok(parse(&text))
}

/// Removes a file beside the journals of this user.
pub fn forget_beside(name: &str) -> Result<()> {
    let directory = UndoDirectory::at(&directory());
    directory.remove(name).map_err(system("remove what was beside the journal"))?;
    directory.remove_if_empty();
    Ok(())
}

/// Returns whether the scheduler that wrote these entries is alive.
pub fn is_alive(entries: &[UndoEntry]) -> bool {
    entries.iter().any(|entry| matches!(entry, UndoEntry::Scheduler(scheduler) if scheduler.lives()))
}

/// Undoes everything in a journal and removes it if nothing is left. Entries that could not be undone are in
/// [`Restored::unrestored`] and stay in the journal. If a journal does not exist, another process has already
/// undone it.
pub fn restore(path: &Path) -> Result<Restored> {
    // the check precedes the lock, which would make the directory
    if !path.exists() {
        return Ok(Restored::default());
    }
    let _lock = lock(path)?;
    let (journals, name) = place_of(path);
    let Some(text) = journals.read(name).map_err(journal_error("read the journal", path))? else {
        return Ok(Restored::default());
    };
    let done = undo_all(parse(&text), MAX_ROUNDS)?;
    if done.unrestored.is_empty() {
        journals.remove(name).map_err(journal_error("remove the journal", path))?;
    }
    Ok(done)
}

/// Returns the journals of this user's schedulers. Fails if users other than this one could have written into
/// the directory.
pub fn all() -> std::io::Result<Vec<PathBuf>> {
    let directory = directory();
    let names = UndoDirectory::at(&directory).files(ENDING)?;
    Ok(names.into_iter().map(|name| directory.join(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::undo::may_be_undone;
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use unisono_linux::affinity::{self, CpuSet};
    use unisono_linux::cgroup::{self, CgroupVersion};
    use unisono_linux::pinned::PinnedThread;

    /// Writes a journal as a scheduler of this user would, whatever the umask.
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
    fn a_journal_that_cannot_be_made_is_named() {
        let error = GangJournal::create_in(Path::new("/dev/null/journals")).expect_err("no directory");
        assert!(
            error.to_string().starts_with("cannot create the journal /dev/null/journals/gang-"),
            "{error}"
        );
    }

    #[test]
    fn a_line_that_a_full_disk_cut_off_hides_no_later_one() {
        let dir = tempfile::tempdir().expect("directory");
        let mut journal = GangJournal::create_in(&dir.path().join("journals")).expect("there is room");
        let full = OpenOptions::new().append(true).open("/dev/full").expect("each Linux has it");
        let entry = UndoEntry::Stopped { leader: 7, started: 9 };
        let file = std::mem::replace(&mut journal.file, full);
        journal.write(&entry).expect_err("the disk is full");
        journal.file = file;
        journal.file.write_all(b"{\"stopped\":{\"lea").expect("what there was room for");
        journal.write(&entry).expect("there is room again");
        assert_eq!(read(journal.path()).expect("read").last(), Some(&entry));
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
            let entry = UndoEntry::affinity(&PinnedThread::now(me).expect("it runs"), &before, &one);
            let path = dir.path().join("gang-2.journal");
            fs::write(dir.path().join("another"), "").expect("there is room"); // so that the directory stays
            let write = || write(&path, &(serde_json::to_string(&entry).expect("serializes") + "\n"));
            write();
            affinity::restrict_own(&one).expect("restrict");
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
                UndoEntry::Reclassed { path: group.to_owned(), version: 2 },
            ] {
                write(&path, &(serde_json::to_string(&entry).expect("serializes") + "\n"));
                let left = restore(&path).expect("it is ours").unrestored;
                assert!(left.len() == 1 && left[0].contains(why), "{left:?}");
            }
        }
        assert!(elsewhere.exists() && path.exists());
        for hierarchy in cgroup::hierarchies().expect("mounts can be read") {
            let entry = UndoEntry::group(&hierarchy.root, hierarchy.version);
            let why = may_be_undone(&entry, &[hierarchy]).expect_err("the root is nobody's");
            assert!(why.contains("of a gang scheduler"), "{why}");
        }
    }

    #[test]
    fn what_is_undone_is_forgotten_and_the_rest_stays_in_the_file() {
        let dir = tempfile::tempdir().expect("directory");
        let mut journal = GangJournal::create_in(dir.path()).expect("a new file");
        let gone = |n: usize| UndoEntry::group(Path::new(&format!("/gone/unisono-1/{n}")), CgroupVersion::V2);
        journal.write(&gone(1)).expect("room");
        journal.write(&gone(2)).expect("room");
        journal.undo(|entry| *entry == gone(1)).expect("nothing to do");
        journal.write(&gone(3)).expect("room");
        let now = read(journal.path()).expect("it is ours");
        assert_eq!(now[1..], [gone(2), gone(3)]);
        assert!(is_alive(&now), "its scheduler stays named");
    }

    #[test]
    fn a_long_journal_keeps_the_last_core_of_threads_that_live() {
        let dir = tempfile::tempdir().expect("directory");
        let mut journal = GangJournal::create_in(dir.path()).expect("a new file");
        let group = UndoEntry::group(Path::new("/gone/unisono-1"), CgroupVersion::V2);
        journal.write(&group).expect("room");
        let me = Tid::current();
        let entry = |thread: i32, started, core: usize| UndoEntry::Affinity {
            thread,
            started,
            before: "0-1".into(),
            after: core.to_string(),
        };
        let started = start_time(me).expect("it runs");
        for core in 0..LONG {
            journal.write(&entry(me.0, started, core)).expect("room");
            journal.write(&entry(me.0, started + 1, core)).expect("room");
        }
        journal.compact().expect("room");
        let now = read(journal.path()).expect("it is ours");
        // a thread of the same number with another start time is a different thread, and has ended
        assert_eq!(now[1..], [group, entry(me.0, started, LONG - 1)]);
    }

    #[test]
    fn two_that_restore_at_once_do_it_once() {
        let dir = tempfile::tempdir().expect("directory");
        let mut journal = GangJournal::create_in(dir.path()).expect("a new file");
        journal.write(&UndoEntry::Stopped { leader: 0, started: 0 }).expect("room");
        let path = journal.path().to_owned();
        let held = lock(&path).expect("nobody else has it");
        let other = std::thread::spawn({
            let path = path.clone();
            move || restore(&path)
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(path.exists() && !other.is_finished(), "it restores although it is locked");
        fs::remove_file(&path).expect("it is ours");
        drop(held);
        assert_eq!(other.join().expect("no panic").expect("gone is no error"), Restored::default());
    }

    #[test]
    fn a_borrowed_group_is_left_alone_unless_it_is_a_control_group() {
        let dir = tempfile::tempdir().expect("directory");
        let (path, group) = (dir.path().join("gang-1.journal"), dir.path().join("group"));
        fs::create_dir(&group).expect("directory");
        fs::write(group.join("cgroup.freeze"), "1").expect("room");
        let entry = UndoEntry::borrowed(&ControlGroup::at(group.clone(), CgroupVersion::V2)).expect("there");
        write(&path, &(serde_json::to_string(&entry).expect("serializes") + "\n"));
        let left = restore(&path).expect("it is ours").unrestored;
        assert!(left.len() == 1 && left[0].contains("no control group"), "{left:?}");
        assert_eq!(fs::read_to_string(group.join("cgroup.freeze")).expect("it is there"), "1");
    }

    #[test]
    fn what_an_earlier_scheduler_with_the_same_number_left_is_undone_first() {
        let dir = tempfile::tempdir().expect("directory");
        let first = GangJournal::create_in(dir.path()).expect("a new file");
        let second = GangJournal::create_in(dir.path()).expect("a new file");
        assert_eq!((first.path(), read(second.path()).expect("it is ours").len()), (second.path(), 1));
    }
}
