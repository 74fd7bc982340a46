//! The journal: records the previous state of a device before a change.
//!
//! Each policy in force has one file in `/run/unisono/queue`. The file is called `<network namespace>-<number
//! of the device>.json`, or `...-in.json` for a policy of incoming packets. It records the process that
//! applied the policy, the state to restore, and the policy itself. The file appears completely or not at
//! all, and is removed when the device is restored. If a journal is in the phase [`Phase::Changing`] and its
//! process is gone, the process was killed.
//!
//! A device is identified by the inode number of its network namespace and by its own number (ifindex),
//! because it may be renamed while its policy holds. The kernel reuses the inode numbers of namespaces: a
//! record with another cookie (`SO_NETNS_COOKIE`) than the present namespace of that number is from a
//! namespace that no longer exists. A process is identified by its number and its start time, because process
//! numbers are reused, too. One command at a time changes queues on a host ([`Journal::lock`]), and the next
//! command waits for it: usually for milliseconds, for up to 3 s if removed classes have to become empty.
//!
//! [`unisono_linux::undo`] says who can write these files and why they can be trusted.
//!
//! Cost of a write: some ten system calls, among them one fsync(2) and one rename(2). `/run` is usually
//! memory, where a flush costs nothing; on a disk it takes some milliseconds. A change of one class appends a
//! line to the journal (`Journal::prepare_change`), so its cost does not grow with the policy. When not to
//! use it: for data that change often.

mod class_change;
mod record;
mod senders;
mod side;

pub use record::{Phase, Record, RecordHeader};
pub use senders::SenderNumbers;
pub use side::LinkSide;

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
/// The prefix of the names of journals of processes that keep shares of processor time.
const SHARES: &str = "cpu-";
/// The time to wait for another command that is changing a queue. Such a command waits up to 3 s for classes
/// of the previous policy to become empty; everything else takes milliseconds. The limit is enough for two
/// such commands on a busy host, and no longer than a person waits without a message.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The suffix of a journal's name.
const ENDING: &str = "json";
/// The suffix of a journal's name while another backend comes into force: see [`Journal::pending`].
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
    /// The file is not a journal, or another version of this program wrote it.
    #[error(
        "{path} is no journal of this version ({why}); what it was to put back is unknown: look at the device, then remove the file"
    )]
    Form { path: PathBuf, why: String },
    /// Another command has brought another policy into force meanwhile.
    #[error("{path} describes another policy now; repeat the command")]
    Replaced { path: PathBuf },
    /// Another command is changing a queue of this host, and has not ended within the time limit.
    #[error("another `unisono queue` is at work ({path} has been locked for {} s); wait for it to end", LOCK_TIMEOUT.as_secs())]
    Busy { path: PathBuf },
}

impl Journal {
    /// Returns the journal of a device's outgoing packets: see [`Self::find`].
    pub fn for_device(device: &str) -> Result<Self, JournalError> {
        Self::for_side(&LinkSide::out(device))
    }

    /// Returns the journal of one direction of a device: see [`Self::find`].
    pub fn for_side(side: &LinkSide) -> Result<Self, JournalError> {
        Ok(Self::find(side)?.1)
    }

    /// Finds the journal of a device, and the device's present name. A device that is in this thread's
    /// network namespace is found by its present name. A device that was renamed or is gone is also found by
    /// the name that it had when the policy was applied.
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
            let record = journal.header();
            if number.direction == direction
                && record.is_ok_and(|record| record.is_some_and(|record| record.device == device))
            {
                return Ok((side.at(devices.name_of(number.index).unwrap_or(device)), journal));
            }
        }
        // a name without a device and without a journal; no device has the number 0, so this journal does not
        // exist
        Ok((side.clone(), at(0)))
    }

    fn in_directory(directory: &Path, namespace: u64, side: NumberedSide) -> Self {
        Self { path: directory.join(format!("{namespace}-{side}.json")) }
    }

    /// Returns the journal of a process that keeps shares of processor time. Its name has no network
    /// namespace, because processor time belongs to the host.
    pub fn for_shares(process: u32) -> Self {
        Self { path: Path::new(DIRECTORY).join(format!("{SHARES}{process}.json")) }
    }

    /// Takes the host's one journal lock, as [`Self::lock`] does. While it is held, no other process begins
    /// to keep shares of processor time or restores the groups of a killed one.
    pub fn lock_shares() -> Result<DirectoryLock, JournalError> {
        Self::for_shares(0).lock()
    }

    /// Returns the journals of all processes that keep shares of processor time, or were killed while they
    /// did.
    pub fn all_shares() -> Result<Vec<Self>, JournalError> {
        Ok(Self::files(SHARES, ENDING)?.into_iter().map(|(_, journal)| journal).collect())
    }

    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Returns the journals of all devices of this thread's network namespace, each with its device's present
    /// name. A device that is gone has the name from the time when the policy was applied.
    pub fn all() -> Result<Vec<(LinkSide, Self)>, JournalError> {
        Self::all_with_suffix(ENDING)
    }

    fn all_with_suffix(ending: &str) -> Result<Vec<(LinkSide, Self)>, JournalError> {
        let devices = Devices::of_this_thread()?;
        let mut all = Vec::new();
        for (NumberedSide { index, direction }, journal) in Self::of_namespace(devices.namespace, ending)? {
            if let Some(record) = journal.header()? {
                let device = devices.name_of(index).unwrap_or(&record.device).to_owned();
                all.push((LinkSide { device, direction }, journal));
            }
        }
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(all)
    }

    /// Returns the numbered control groups of all policies of this thread's network namespace.
    pub(crate) fn senders() -> Result<SenderNumbers, JournalError> {
        // the guard of an interposed queue calls this, too, and its seccomp filter forbids to list devices
        let namespace = side::namespace()?;
        let mut senders = SenderNumbers::default();
        for ending in [ENDING, PENDING] {
            for (_, journal) in Self::of_namespace(namespace, ending)? {
                if let Some(record) = journal.header()? {
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

    /// Returns the [pending](Self::pending) journals of this thread's network namespace.
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

    /// Returns the journal of the same device's other direction.
    pub fn for_other_direction(&self) -> Self {
        let other = NumberedSide::other_name(self.name());
        Self { path: self.path.with_file_name(other) }
    }

    /// Returns whether the policy of the same device's other direction has made the device's clsact
    /// discipline.
    pub(crate) fn other_direction_made_clsact(&self) -> Result<bool, JournalError> {
        let Some(other) = self.for_other_direction().read::<serde_json::Value>()? else { return Ok(false) };
        // each backend has a field of its own for this; a policy of outgoing packets with HTB makes no
        // clsact, so its `had_clsact` (false) says nothing
        let before = &other.before;
        Ok(before["made_clsact"] == true
            || before["clsact"] == false
            || before["had_clsact"] == false && self.is_outgoing())
    }

    fn is_outgoing(&self) -> bool {
        self.name_parts().is_some_and(|(_, side)| side.direction == TrafficDirection::Out)
    }

    /// Returns the number of the network namespace and the side of a device, or `None` for a journal of
    /// shares of processor time.
    fn name_parts(&self) -> Option<(u64, NumberedSide)> {
        let (namespace, side) = self.name().split_once('.')?.0.split_once('-')?;
        Some((namespace.parse().ok()?, NumberedSide::parse(side)?))
    }

    /// Returns the journals of network namespaces that no longer exist, with their records. A namespace
    /// counts as existing if the process that applied the policy lives, or if the namespaces in use cannot be
    /// listed.
    pub(crate) fn of_gone_namespaces() -> Result<Vec<(Self, RecordHeader)>, JournalError> {
        let here = side::namespace()?;
        let mut in_use = None;
        let mut gone = Vec::new();
        for ending in [ENDING, PENDING] {
            for (_, journal) in Self::files("", ending)? {
                let Some((namespace, _)) = journal.name_parts() else { continue };
                let Some(record) = journal.header_of_any()? else { continue };
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

    /// Returns this journal's name while another backend comes into force.
    pub(crate) fn pending(&self) -> Self {
        Self { path: self.path.with_extension(PENDING) }
    }

    /// Returns the name that this journal had before it was renamed to [`Self::pending`].
    pub(crate) fn current(&self) -> Self {
        Self { path: self.path.with_extension(ENDING) }
    }

    /// Renames this journal to `other`. A rename needs no space in the file system. On an error nothing has
    /// changed.
    pub(crate) fn rename_to(&self, other: &Self) -> Result<(), JournalError> {
        self.directory().rename(self.name(), other.name()).map_err(failed("rename", &self.path))
    }

    fn directory(&self) -> UndoDirectory {
        UndoDirectory::at(self.path.parent().unwrap_or(Path::new(DIRECTORY)))
    }

    fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Locks the directory of the journals: until the lock is dropped, no other process changes queues of
    /// this host. Waits for the present holder, and fails with [`JournalError::Busy`] after 10 s.
    pub fn lock(&self) -> Result<DirectoryLock, JournalError> {
        self.lock_within(LOCK_TIMEOUT)
    }

    fn lock_within(&self, timeout: Duration) -> Result<DirectoryLock, JournalError> {
        let directory = self.directory();
        let lock = directory.lock(timeout).map_err(failed("lock", directory.path()))?;
        lock.ok_or_else(|| JournalError::Busy { path: directory.path().to_owned() })
    }

    /// Takes the lock as [`Self::lock`] does, but does not create the directory of journals. Returns `None`
    /// if the directory does not exist: then no command can be changing a queue.
    pub fn lock_if_used() -> Result<Option<DirectoryLock>, JournalError> {
        match fs::symlink_metadata(DIRECTORY) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            _ => Self::for_shares(0).lock().map(Some),
        }
    }

    /// Returns whether a command is changing the queues of this host at this moment.
    pub fn is_locked() -> Result<bool, JournalError> {
        match fs::symlink_metadata(DIRECTORY) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            _ => match Self::for_shares(0).lock_within(Duration::ZERO) {
                Err(JournalError::Busy { .. }) => Ok(true),
                free => free.map(|_| false),
            },
        }
    }

    /// Returns whether a command is changing queues while no policy of this side is in force: it is being
    /// applied, or moves to another backend. A reader would wait for that command, or find no policy.
    pub fn is_being_changed(side: &LinkSide) -> Result<bool, JournalError> {
        let holds = Self::for_side(side)?.header()?.is_some_and(|record| record.phase == Phase::Holds);
        Ok(!holds && Self::is_locked()?)
    }

    /// Returns the lock that this program's starter holds and has passed on as the descriptor `number`.
    pub fn lock_passed_on(&self, number: i32) -> Result<DirectoryLock, JournalError> {
        let directory = self.directory();
        directory.lock_passed_on(number).map_err(failed("use the lock of", directory.path()))
    }

    /// Reads the record. Returns `None` if there is no journal, if it is from an earlier boot, or if it is
    /// from a network namespace that no longer exists and whose number this thread's namespace now has.
    pub fn read<B: DeserializeOwned>(&self) -> Result<Option<Record<B>>, JournalError> {
        Ok(self.read_any()?.filter(|record| !self.is_of_gone_namespace(record)))
    }

    /// Reads the header of the record that [`Self::read`] returns: one line, however many classes there are.
    pub fn header(&self) -> Result<Option<RecordHeader>, JournalError> {
        Ok(self.header_of_any()?.filter(|header| !self.is_of_gone_namespace(header)))
    }

    /// Reads the record as [`Self::read`] does, whichever network namespace wrote it; but still returns
    /// `None` for a record from an earlier boot.
    pub(crate) fn read_any<B: DeserializeOwned>(&self) -> Result<Option<Record<B>>, JournalError> {
        let text = self.directory().read(self.name()).map_err(failed("read", &self.path))?;
        let record = text.map(|text| Record::parse(&text)).transpose().map_err(|why| self.form(why))?;
        Ok(record.filter(|record: &Record<B>| record.is_of_this_boot()))
    }

    /// Reads the header of the record that [`Self::read_any`] returns.
    fn header_of_any(&self) -> Result<Option<RecordHeader>, JournalError> {
        let line = self.directory().read_first_line(self.name()).map_err(failed("read", &self.path))?;
        let header = line.map(|line| RecordHeader::parse(&line)).transpose().map_err(|why| self.form(why))?;
        Ok(header.filter(RecordHeader::is_of_this_boot))
    }

    fn form(&self, why: String) -> JournalError {
        JournalError::Form { path: self.path.clone(), why }
    }

    fn is_of_gone_namespace(&self, header: &RecordHeader) -> bool {
        let is_here = self
            .name_parts()
            .is_some_and(|(namespace, _)| side::namespace().is_ok_and(|here| here == namespace));
        is_here && header.is_of_other_namespace()
    }

    /// Writes the record, and flushes it before it returns. The caller must hold the [lock](Self::lock). On
    /// an error the old record is still there.
    pub fn write<B: Serialize>(&self, record: &Record<B>) -> Result<(), JournalError> {
        self.commit(self.prepare(record)?)
    }

    /// Writes the future contents of the journal into a file beside it, so that [`Self::commit`] at the end
    /// of the change needs no space in the file system. On an error nothing has changed.
    pub fn prepare<B: Serialize>(&self, record: &Record<B>) -> Result<PreparedFile, JournalError> {
        self.prepare_policy(record, &record.policy)
    }

    fn prepare_policy<B: Serialize>(
        &self,
        record: &Record<B>,
        policy: &str,
    ) -> Result<PreparedFile, JournalError> {
        let text = record.to_text(policy).expect("serializes because its keys are texts");
        self.directory().prepare(self.name(), text.as_bytes()).map_err(failed("write", &self.path))
    }

    /// Keeps the present contents of the journal beside it, as [`Self::prepare`] does with future contents.
    pub fn prepare_present(&self) -> Result<PreparedFile, JournalError> {
        self.directory().prepare_present(self.name()).map_err(failed("link", &self.path))
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

    pub(super) fn journal() -> (tempfile::TempDir, Journal) {
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
    fn the_header_is_read_alone_and_a_journal_of_one_line_as_well() {
        let (_directory, journal) = journal();
        let record = Record::new("kernel", "eth0", 3, "rate = \"1mbit\"", vec![5_u32]).in_force();
        journal.write(&record).expect("there is room");
        let text = fs::read_to_string(journal.path()).expect("it is there");
        let (header, body) = text.split_once('\n').expect("two lines");
        // the header is sound, and the rest is not
        fs::write(journal.path(), format!("{header}\n{{")).expect("there is room");
        assert_eq!(journal.header().expect("one line").as_ref(), Some(&*record));
        assert!(journal.read::<Vec<u32>>().is_err());
        // as earlier versions wrote it
        let of_one_line =
            format!("{},{}", header.trim_end_matches('}'), body.trim_start_matches('{').trim_end());
        fs::write(journal.path(), of_one_line).expect("there is room");
        assert_eq!(journal.header().expect("one line").as_ref(), Some(&*record));
        let read = journal.read::<Vec<u32>>().expect("it is sound").expect("it is there");
        assert_eq!((&*read, &read.policy, &read.before), (&*record, &record.policy, &record.before));
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
