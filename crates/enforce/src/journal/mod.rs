//! The journal: records the previous state of a device before a change.
//!
//! Each policy in force has one file in `/run/unisono/queue`. The file is called `<network namespace>-<number
//! of the device>.json`, or `...-in.json` for a policy of incoming packets. It records the process that
//! applied the policy, the state to restore, and the policy itself. The file appears completely or not at
//! all, and is removed when the device is restored. If a journal is in the phase [`Phase::Changing`] and its
//! process is gone, the process was killed.
//!
//! A device is identified by the numbers of its network namespace and of itself, because it may be renamed
//! while its policy holds. The kernel gives the number of a namespace out again; a record with another cookie
//! (`SO_NETNS_COOKIE`) is from a namespace that is gone. A process is identified by its number and its start
//! time, because numbers are reused. One command at a time changes queues on a host ([`Journal::lock`]). Each
//! change takes milliseconds, and the next command waits for it.
//!
//! The place of the files, and why they can be trusted: [`unisono_linux::undo`].
//!
//! Cost: two system calls to flush; some milliseconds. When not to use: for data that changes often.

mod record;
mod senders;
mod side;

pub use record::{Phase, Record};
pub use senders::SenderNumbers;
pub use side::LinkSide;

use record::{FORMAT, boot};
use serde::Serialize;
use serde::de::DeserializeOwned;
use side::{Devices, NumberedSide};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use unisono_fairqueue::TrafficDirection;
use unisono_linux::network_namespace;
use unisono_linux::next_step::next_step;
use unisono_linux::undo::{DirectoryLock, PreparedFile, UndoDirectory};

const DIRECTORY: &str = "/run/unisono/queue";
/// Prefix of the names of journals of shares of processor time.
const SHARES: &str = "cpu-";
/// The time to wait for another command that changes a queue. Draining the classes of the previous policy
/// takes up to 3 s, everything else milliseconds. Two such commands and a busy host fit in; a person does not
/// wait longer without a message.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Suffix of a journal's name.
const ENDING: &str = "json";
/// Suffix while another backend comes into force: see [`Journal::pending`].
const PENDING: &str = "aside";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Journal {
    path: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    #[error("cannot {what} {path}: {source}; {}", next_step(source))]
    System { what: &'static str, path: PathBuf, source: std::io::Error },
    /// It is not ours, or another version wrote it.
    #[error(
        "{path} is no journal of this version ({why}); what it was to put back is unknown: look at the device, then remove the file"
    )]
    Form { path: PathBuf, why: String },
    /// Another command changes a queue of this host, and does not end.
    #[error("another `unisono queue` is at work ({path} has been locked for {} s); wait for it to end", LOCK_TIMEOUT.as_secs())]
    Busy { path: PathBuf },
}

impl Journal {
    /// The journal of outgoing packets of a device in this thread's network namespace: see [`Self::find`].
    pub fn for_device(device: &str) -> Result<Self, JournalError> {
        Self::for_side(&LinkSide::out(device))
    }

    /// The journal of one direction of a device: see [`Self::find`].
    pub fn for_side(side: &LinkSide) -> Result<Self, JournalError> {
        Ok(Self::find(side)?.1)
    }

    /// A device's present name, and its journal. A device of this thread's network namespace is found by its
    /// name. A device that was renamed or is gone is found by its name at the time when the policy was
    /// applied.
    pub fn find(side: &LinkSide) -> Result<(LinkSide, Self), JournalError> {
        let devices = Devices::of_this_thread()?;
        let (device, direction) = (side.device.as_str(), side.direction);
        let at = |index| {
            let side = NumberedSide { index, direction };
            Self::in_directory(Path::new(DIRECTORY), devices.namespace, side)
        };
        if let Some(index) = devices.index_of(device) {
            return Ok((side.clone(), at(index)));
        }
        for (number, journal) in Self::of_namespace(devices.namespace, ENDING)? {
            let record = journal.read::<serde_json::Value>();
            if number.direction == direction
                && record.is_ok_and(|record| record.is_some_and(|record| record.device == device))
            {
                return Ok((side.at(devices.name_of(number.index).unwrap_or(device)), journal));
            }
        }
        // no device has the number 0
        Ok((side.clone(), at(0)))
    }

    fn in_directory(directory: &Path, namespace: u64, side: NumberedSide) -> Self {
        Self { path: directory.join(format!("{namespace}-{side}.json")) }
    }

    /// The journal of a process that shares processor time. It belongs to the host, not to a network
    /// namespace.
    pub fn for_shares(process: u32) -> Self {
        Self { path: Path::new(DIRECTORY).join(format!("{SHARES}{process}.json")) }
    }

    /// Prevents other processes from beginning to share processor time, and from restoring the groups of a
    /// killed one.
    pub fn lock_shares() -> Result<DirectoryLock, JournalError> {
        Self::for_shares(0).lock()
    }

    /// The journals of all processes that share processor time, or were killed while they did.
    pub fn all_shares() -> Result<Vec<Self>, JournalError> {
        Ok(Self::files(SHARES, ENDING)?.into_iter().map(|(_, journal)| journal).collect())
    }

    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The journals of all devices of this thread's network namespace, each with its device's present name. A
    /// device that is gone has the name at the time when the policy was applied.
    pub fn all() -> Result<Vec<(LinkSide, Self)>, JournalError> {
        Self::all_with_suffix(ENDING)
    }

    fn all_with_suffix(ending: &str) -> Result<Vec<(LinkSide, Self)>, JournalError> {
        let devices = Devices::of_this_thread()?;
        let mut all = Vec::new();
        for (NumberedSide { index, direction }, journal) in Self::of_namespace(devices.namespace, ending)? {
            if let Some(record) = journal.read::<serde_json::Value>()? {
                let device = devices.name_of(index).unwrap_or(&record.device).to_owned();
                all.push((LinkSide { device, direction }, journal));
            }
        }
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(all)
    }

    /// The control groups of all policies of this thread's network namespace.
    pub(crate) fn senders() -> Result<SenderNumbers, JournalError> {
        // the guard of a queue calls this, too, and may not list devices
        let namespace = side::namespace()?;
        let mut senders = SenderNumbers::default();
        for ending in [ENDING, PENDING] {
            for (_, journal) in Self::of_namespace(namespace, ending)? {
                if let Some(record) = journal.read::<serde_json::Value>()? {
                    senders.extend(&record.senders);
                }
            }
        }
        Ok(senders)
    }

    fn of_namespace(namespace: u64, ending: &str) -> Result<Vec<(NumberedSide, Self)>, JournalError> {
        let all = Self::files(&format!("{namespace}-"), ending)?;
        Ok(all
            .into_iter()
            .filter_map(|(side, journal)| Some((NumberedSide::parse(&side)?, journal)))
            .collect())
    }

    /// The journals of this thread's network namespace that are [pending](Self::pending).
    pub(crate) fn all_pending() -> Result<Vec<(LinkSide, Self)>, JournalError> {
        Self::all_with_suffix(PENDING)
    }

    fn files(prefix: &str, ending: &str) -> Result<Vec<(String, Self)>, JournalError> {
        let directory = UndoDirectory::at(Path::new(DIRECTORY));
        let ending = format!(".{ending}");
        let names = directory.files(&ending).map_err(failed("read", directory.path()))?;
        let rest = |name: &str| Some(name.strip_prefix(prefix)?.strip_suffix(&ending)?.to_owned());
        let journal = |name: &str| Self { path: directory.path().join(name) };
        Ok(names.iter().filter_map(|name| Some((rest(name)?, journal(name)))).collect())
    }

    /// The journal of the same device's other direction.
    pub fn for_other_direction(&self) -> Self {
        let other = NumberedSide::other_name(self.name());
        Self { path: self.path.with_file_name(other) }
    }

    /// Whether the policy of the same device's other direction has made the device's clsact discipline.
    pub(crate) fn other_direction_made_clsact(&self) -> Result<bool, JournalError> {
        let Some(other) = self.for_other_direction().read::<serde_json::Value>()? else { return Ok(false) };
        // the fields of the backends; a policy of outgoing packets in the kernel's classes needs none
        let before = &other.before;
        Ok(before["made_clsact"] == true
            || before["clsact"] == false
            || before["had_clsact"] == false && self.is_outgoing())
    }

    fn is_outgoing(&self) -> bool {
        self.name_parts().is_some_and(|(_, side)| side.direction == TrafficDirection::Out)
    }

    /// The number of the network namespace and the side of a device. `None`: it is a journal of shares.
    fn name_parts(&self) -> Option<(u64, NumberedSide)> {
        let (namespace, side) = self.name().split_once('.')?.0.split_once('-')?;
        Some((namespace.parse().ok()?, NumberedSide::parse(side)?))
    }

    /// The journals of network namespaces that are gone, with what they say. A namespace of another process's
    /// view counts as there.
    pub(crate) fn of_gone_namespaces() -> Result<Vec<(Self, Record<serde_json::Value>)>, JournalError> {
        let here = side::namespace()?;
        let mut in_use = None;
        let mut gone = Vec::new();
        for ending in [ENDING, PENDING] {
            for (_, journal) in Self::files("", ending)? {
                let Some((namespace, _)) = journal.name_parts() else { continue };
                let Some(record) = journal.read_any::<serde_json::Value>()? else { continue };
                let is_gone = match namespace == here {
                    true => record.is_of_other_namespace(),
                    false if record.author.lives() => false,
                    false => {
                        let in_use = in_use.get_or_insert_with(|| network_namespace::in_use().ok().flatten());
                        in_use.as_ref().is_some_and(|in_use| !in_use.contains(&namespace))
                    }
                };
                if is_gone {
                    gone.push((journal, record));
                }
            }
        }
        Ok(gone)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The journal of the previous policy while another backend comes into force.
    pub(crate) fn pending(&self) -> Self {
        Self { path: self.path.with_extension(PENDING) }
    }

    /// The name that this journal had before the rename to [`Self::pending`].
    pub(crate) fn current(&self) -> Self {
        Self { path: self.path.with_extension(ENDING) }
    }

    /// Renames this journal to `other`. A rename needs no disk space. On an error nothing has changed.
    pub(crate) fn rename_to(&self, other: &Self) -> Result<(), JournalError> {
        self.directory().rename(self.name(), other.name()).map_err(failed("rename", &self.path))
    }

    fn directory(&self) -> UndoDirectory {
        UndoDirectory::at(self.path.parent().unwrap_or(Path::new(DIRECTORY)))
    }

    fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Prevents other processes from changing queues of this host until the lock is dropped. Waits for its
    /// present holder.
    pub fn lock(&self) -> Result<DirectoryLock, JournalError> {
        self.lock_within(LOCK_TIMEOUT)
    }

    fn lock_within(&self, timeout: Duration) -> Result<DirectoryLock, JournalError> {
        let directory = self.directory();
        let lock = directory.lock(timeout).map_err(failed("lock", directory.path()))?;
        lock.ok_or_else(|| JournalError::Busy { path: directory.path().to_owned() })
    }

    /// As [`Self::lock`] for any device, but creates nothing. `None`: there is no directory of journals, so
    /// no command can be at work.
    pub fn lock_if_used() -> Result<Option<DirectoryLock>, JournalError> {
        match fs::symlink_metadata(DIRECTORY) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            _ => Self::for_shares(0).lock().map(Some),
        }
    }

    /// The lock that the starter of this program has passed on under a descriptor number.
    pub fn lock_passed_on(&self, number: i32) -> Result<DirectoryLock, JournalError> {
        let directory = self.directory();
        directory.lock_passed_on(number).map_err(failed("use the lock of", directory.path()))
    }

    /// The record. `None`: there is no journal, or it is from an earlier boot, or from a network namespace
    /// that is gone and whose number this thread's namespace has now.
    pub fn read<B: DeserializeOwned>(&self) -> Result<Option<Record<B>>, JournalError> {
        let Some(record) = self.read_any()? else { return Ok(None) };
        let is_here = self
            .name_parts()
            .is_some_and(|(namespace, _)| side::namespace().is_ok_and(|here| here == namespace));
        Ok(Some(record).filter(|record| !(is_here && record.is_of_other_namespace())))
    }

    /// The record of any network namespace, in this boot.
    pub(crate) fn read_any<B: DeserializeOwned>(&self) -> Result<Option<Record<B>>, JournalError> {
        let text = self.directory().read(self.name()).map_err(failed("read", &self.path))?;
        let Some(text) = text else { return Ok(None) };
        let form = |why: String| JournalError::Form { path: self.path.clone(), why };
        let record: Record<B> = serde_json::from_str(&text).map_err(|error| form(error.to_string()))?;
        if record.format != FORMAT {
            return Err(form(format!("its format is {:?}", record.format)));
        }
        Ok(Some(record).filter(|record| record.boot == boot()))
    }

    /// Writes the record to the disk before it returns. The caller must hold the [lock](Self::lock). On an
    /// error the old record is still there.
    pub fn write<B: Serialize>(&self, record: &Record<B>) -> Result<(), JournalError> {
        self.commit(self.prepare(record)?)
    }

    /// Writes the future contents of the journal into a file beside it, so that the end of the change needs
    /// no disk space. On an error nothing has changed.
    pub fn prepare<B: Serialize>(&self, record: &Record<B>) -> Result<PreparedFile, JournalError> {
        let text = serde_json::to_string_pretty(record).expect("serializes because its keys are texts");
        self.directory().prepare(self.name(), text.as_bytes()).map_err(failed("write", &self.path))
    }

    /// Replaces the journal by a prepared file. On an error the old record is still there.
    pub fn commit(&self, prepared: PreparedFile) -> Result<(), JournalError> {
        prepared.commit().map_err(failed("write", &self.path))
    }

    /// Removes the journal, after the device was restored.
    pub fn remove(&self) -> Result<(), JournalError> {
        self.directory().remove(self.name()).map_err(failed("remove", &self.path))
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::System { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_linux::pidfd::{PidFd, start_time};
    use unisono_linux::undo::Author;

    fn journal() -> (tempfile::TempDir, Journal) {
        let directory = tempfile::tempdir().expect("there is room");
        let journal = Journal::in_directory(
            directory.path(),
            7,
            NumberedSide { index: 3, direction: TrafficDirection::In },
        );
        (directory, journal)
    }

    #[test]
    fn what_was_written_is_read_until_it_is_removed() {
        let (_directory, journal) = journal();
        assert_eq!(journal.read::<u32>().expect("none is no error"), None);
        let record = Record::new("kernel", "eth0", 3, "rate = \"1mbit\"", 5_u32);
        journal.write(&record).expect("there is room");
        assert!(record.author.lives());
        assert_eq!(journal.read().expect("it is there"), Some(record));
        journal.remove().expect("it is there");
        journal.remove().expect("twice is no error");
        assert_eq!(journal.read::<u32>().expect("none is no error"), None);
    }

    #[test]
    fn an_owner_that_has_ended_is_gone_before_it_is_collected() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        let mut record = Record::new("kernel", "eth0", 3, "", 5_u32);
        record.author = Author::for_process(child.id());
        assert!(record.author.lives());
        child.kill().expect("it is ours");
        let held = PidFd::open(child.id()).expect("it has not been collected");
        while !held.has_ended(None).expect("it is held") {
            std::thread::yield_now();
        }
        assert!(start_time(child.id()).is_some() && !record.author.lives());
        child.wait().expect("it is ours");
    }

    #[test]
    fn another_boot_has_nothing_to_put_back_and_a_stranger_is_refused() {
        let (_directory, journal) = journal();
        let mut record = Record::new("kernel", "eth0", 3, "", 5_u32);
        record.boot = "another".to_owned();
        journal.write(&record).expect("there is room");
        assert_eq!(journal.read::<u32>().expect("it is sound"), None);
        record.format = "unisono-queue-0".to_owned();
        journal.write(&record).expect("there is room");
        assert!(journal.read::<u32>().is_err());
        fs::write(journal.path(), "{").expect("there is room");
        assert!(journal.read::<u32>().expect_err("half of it").to_string().contains("no journal"));
    }

    #[test]
    fn one_command_at_a_time_changes_queues_and_the_next_one_waits_for_it() {
        let (_directory, journal) = journal();
        let lock = journal.lock().expect("nobody else has it");
        assert!(matches!(journal.lock_within(Duration::from_millis(5)), Err(JournalError::Busy { .. })));
        let waits = std::thread::spawn({
            let journal = journal.clone();
            move || drop(journal.lock().expect("it is given up"))
        });
        std::thread::sleep(Duration::from_millis(20));
        drop(lock);
        waits.join().expect("no panic");
    }
}
