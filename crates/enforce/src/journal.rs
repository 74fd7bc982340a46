//! What was there before, written down before it is changed.
//!
//! One file for each device with a policy, `/run/unisono/queue/<network namespace>-<device's number>.json`:
//! who applied it, what is to be put back, and the policy itself. It appears whole or not at all, and goes
//! when all is as it was. A journal in the phase [`Phase::Changing`] whose process is gone belongs to one
//! that was killed.
//!
//! A device is known by its number and the network namespace with its number, because a device may be renamed
//! while its policy holds; a process by its number and its start, since both are used again. One command at a
//! time changes queues on a host ([`Journal::lock`]): each takes milliseconds, and what is half way is waited
//! for.
//!
//! Where the files lie, and why they may be believed: [`unisono_linux::undo`].
//!
//! Cost: two system calls to flush; some milliseconds. When not to use: for what changes often.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use unisono_linux::netlink::{Socket, link};
use unisono_linux::pidfd::{PidFd, start_time};
use unisono_linux::process::Signal;
use unisono_linux::undo::{DirectoryLock, PreparedFile, UndoDirectory};

const DIRECTORY: &str = "/run/unisono/queue";
const FORMAT: &str = "unisono-queue-1";
/// How the names of journals of shares of processor time begin.
const SHARES: &str = "cpu-";
/// How long a command that changes a queue is waited for. Draining the classes of a policy before takes up to
/// 3 s, everything else milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// How the names of journals end.
const ENDING: &str = "json";
/// How they end while another place comes into force: see [`Journal::aside`].
const ASIDE: &str = "aside";
const NAMESPACE: &str = "/proc/thread-self/ns/net";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The journal of one device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Journal {
    path: PathBuf,
}

/// What a journal says; `B` is what is to be put back, as the place understands it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record<B> {
    format: String,
    /// Since when the machine runs: another boot has nothing to put back.
    boot: String,
    pub backend: String,
    /// The device's name when the policy was applied.
    pub device: String,
    pub index: u32,
    /// Who changes it, or has.
    pub process: u32,
    /// When that process started.
    pub started: u64,
    /// How far it is.
    pub phase: Phase,
    /// The policy, as it was written.
    pub policy: String,
    /// What is to be put back.
    pub before: B,
}

/// A process by its number and its start, because numbers are used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StartedProcess {
    pub number: u32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
}

impl StartedProcess {
    /// The process that has this number now.
    #[must_use]
    pub fn of(number: u32) -> Self {
        Self { number, started: start_time(number).unwrap_or(0) }
    }

    /// Holds on to it. None: it is gone, and its number may be another's.
    #[must_use]
    pub fn hold(self) -> Option<PidFd> {
        // held first, then looked at: the number cannot change hands in between
        let held = PidFd::open(self.number).ok()?;
        (start_time(self.number) == Some(self.started)).then_some(held)
    }

    /// Whether it has ended, waiting for that at most so long.
    #[must_use]
    pub fn has_ended(self, patience: Duration) -> bool {
        self.hold().is_none_or(|held| held.has_ended(Some(patience)).unwrap_or(false))
    }

    /// Kills it; whether it has ended in time.
    #[must_use]
    pub fn kill(self, patience: Duration) -> bool {
        let Some(held) = self.hold() else { return true };
        let _ = held.send(Signal::Kill); // it may have ended
        held.has_ended(Some(patience)).unwrap_or(false)
    }
}

/// How far a change is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// It has begun.
    Changing,
    /// The policy holds.
    Holds,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The system says no.
    #[error("{what} {path}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// It is not ours, or of another version.
    #[error(
        "{path} is no journal of this version ({why}); what it was to put back is unknown: look at the device, then remove the file"
    )]
    Form {
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another command changes a queue of this host, and does not end.
    #[error("another `unisono queue` is at work ({path} has been locked for {} s); wait for it to end", PATIENCE.as_secs())]
    Busy {
        /// What is locked.
        path: PathBuf,
    },
}

impl<B> Record<B> {
    /// A record of this process, of a change that is about to begin.
    #[must_use]
    pub fn new(backend: &str, device: &str, index: u32, policy: &str, before: B) -> Self {
        let StartedProcess { number: process, started } = StartedProcess::of(std::process::id());
        Self {
            format: FORMAT.to_owned(),
            boot: boot(),
            backend: backend.to_owned(),
            device: device.to_owned(),
            index,
            process,
            started,
            phase: Phase::Changing,
            policy: policy.to_owned(),
            before,
        }
    }

    /// The same when the policy holds.
    #[must_use]
    pub fn that_holds(mut self) -> Self {
        self.phase = Phase::Holds;
        self
    }

    /// Whether another record is of the same change by the same process.
    pub(crate) fn is_of_owner_of<C>(&self, other: &Record<C>) -> bool {
        self.owner() == other.owner()
    }

    /// The process that wrote it.
    pub(crate) fn owner(&self) -> StartedProcess {
        StartedProcess { number: self.process, started: self.started }
    }

    /// Whether the policy holds and its process looks after it. Of one that is changing a device, the holder
    /// of the lock knows that it was killed: it would hold the lock itself (PROTOCOL.md).
    pub(crate) fn is_in_force(&self) -> bool {
        self.phase == Phase::Holds && self.owner_lives()
    }

    /// Whether the process that wrote it still runs. One that has ended stays in the list of processes until
    /// its parent asks how it ended, which in a container may be never.
    #[must_use]
    pub fn owner_lives(&self) -> bool {
        !self.owner().has_ended(Duration::ZERO)
    }
}

/// What names this boot; empty where the kernel does not say.
fn boot() -> String {
    fs::read_to_string(BOOT).map(|text| text.trim().to_owned()).unwrap_or_default()
}

impl Journal {
    /// The journal of a device of this thread's network namespace: see [`Self::find`].
    ///
    /// # Errors
    /// As there.
    pub fn of(device: &str) -> Result<Self, JournalError> {
        Ok(Self::find(device)?.1)
    }

    /// The name that a device has now, and its journal. A device of this thread's network namespace is found
    /// by its name; one that has been renamed or is gone, by the name that it had when a policy was applied.
    ///
    /// # Errors
    /// The kernel does not say which namespace and which devices there are, or the directory cannot be read.
    pub fn find(device: &str) -> Result<(String, Self), JournalError> {
        let (namespace, devices) = (namespace()?, devices()?);
        if let Some((index, _)) = devices.iter().find(|(_, name)| name == device) {
            return Ok((device.to_owned(), Self::in_directory(Path::new(DIRECTORY), namespace, *index)));
        }
        for (index, journal) in Self::of_namespace(namespace, ENDING)? {
            let record = journal.read::<serde_json::Value>();
            if record.is_ok_and(|record| record.is_some_and(|record| record.device == device)) {
                return Ok((name_of(&devices, index).unwrap_or(device).to_owned(), journal));
            }
        }
        // no device has the number 0
        Ok((device.to_owned(), Self::in_directory(Path::new(DIRECTORY), namespace, 0)))
    }

    fn in_directory(directory: &Path, namespace: u64, index: u32) -> Self {
        Self { path: directory.join(format!("{namespace}-{index}.json")) }
    }

    /// The journal of a process that shares out processor time, which is the host's whatever the network
    /// namespace.
    #[must_use]
    pub fn of_shares(process: u32) -> Self {
        Self { path: Path::new(DIRECTORY).join(format!("{SHARES}{process}.json")) }
    }

    /// Keeps others from beginning to share out processor time, and from putting back what was left of it.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn lock_shares() -> Result<DirectoryLock, JournalError> {
        Self::of_shares(0).lock()
    }

    /// The journals of all processes that share out processor time, or were killed while they did.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn all_shares() -> Result<Vec<Self>, JournalError> {
        Ok(Self::files(SHARES, ENDING)?.into_iter().map(|(_, journal)| journal).collect())
    }

    /// The journal at a path that was recorded earlier.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The journals of all devices of this thread's network namespace, each with the name that its device has
    /// now. A device that is gone has the name that it had when the policy was applied.
    ///
    /// # Errors
    /// As [`Self::find`]; or a journal cannot be read.
    pub fn all() -> Result<Vec<(String, Self)>, JournalError> {
        Self::all_that_end(ENDING)
    }

    fn all_that_end(ending: &str) -> Result<Vec<(String, Self)>, JournalError> {
        let (namespace, devices) = (namespace()?, devices()?);
        let mut all = Vec::new();
        for (index, journal) in Self::of_namespace(namespace, ending)? {
            if let Some(record) = journal.read::<serde_json::Value>()? {
                let name = name_of(&devices, index).unwrap_or(&record.device);
                all.push((name.to_owned(), journal));
            }
        }
        Ok(all)
    }

    /// The journals of a namespace, each with its device's number.
    fn of_namespace(namespace: u64, ending: &str) -> Result<Vec<(u32, Self)>, JournalError> {
        let all = Self::files(&format!("{namespace}-"), ending)?;
        Ok(all.into_iter().filter_map(|(index, journal)| Some((index.parse().ok()?, journal))).collect())
    }

    /// The journals of this thread's network namespace that were put aside.
    ///
    /// # Errors
    /// As [`Self::all`].
    pub(crate) fn all_aside() -> Result<Vec<(String, Self)>, JournalError> {
        Self::all_that_end(ASIDE)
    }

    fn files(prefix: &str, ending: &str) -> Result<Vec<(String, Self)>, JournalError> {
        let directory = UndoDirectory::at(Path::new(DIRECTORY));
        let ending = format!(".{ending}");
        let names = directory.files(&ending).map_err(failed("read", directory.path()))?;
        let rest = |name: &str| Some(name.strip_prefix(prefix)?.strip_suffix(&ending)?.to_owned());
        let journal = |name: &str| Self { path: directory.path().join(name) };
        Ok(names.iter().filter_map(|name| Some((rest(name)?, journal(name)))).collect())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the journal of the policy before lies while another place comes into force beside it.
    #[must_use]
    pub(crate) fn aside(&self) -> Self {
        Self { path: self.path.with_extension(ASIDE) }
    }

    /// The journal that was put aside there.
    #[must_use]
    pub(crate) fn before_aside(&self) -> Self {
        Self { path: self.path.with_extension(ENDING) }
    }

    /// Has another journal's place, and takes no room for it.
    ///
    /// # Errors
    /// The disk says no; nothing has changed.
    pub(crate) fn become_that(&self, other: &Self) -> Result<(), JournalError> {
        self.directory().rename(self.name(), other.name()).map_err(failed("rename", &self.path))
    }

    fn directory(&self) -> UndoDirectory {
        UndoDirectory::at(self.path.parent().unwrap_or(Path::new(DIRECTORY)))
    }

    fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Keeps others from changing queues of this host until it is dropped. Waits for the one that does.
    ///
    /// # Errors
    /// It does not end, or `/run/unisono/queue` cannot be written, or is not this user's alone.
    pub fn lock(&self) -> Result<DirectoryLock, JournalError> {
        self.lock_within(PATIENCE)
    }

    fn lock_within(&self, patience: Duration) -> Result<DirectoryLock, JournalError> {
        let directory = self.directory();
        let lock = directory.lock(patience).map_err(failed("lock", directory.path()))?;
        lock.ok_or_else(|| JournalError::Busy { path: directory.path().to_owned() })
    }

    /// As [`Self::lock`], for any device, but makes nothing: none where no journal is, so that nobody can be
    /// at work.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn lock_what_is_there() -> Result<Option<DirectoryLock>, JournalError> {
        match fs::symlink_metadata(DIRECTORY) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            _ => Self::of_shares(0).lock().map(Some),
        }
    }

    /// The lock that the program which started this one has passed on under a number.
    ///
    /// # Errors
    /// It has not.
    pub fn lock_passed_on(&self, number: i32) -> Result<DirectoryLock, JournalError> {
        let directory = self.directory();
        directory.lock_passed_on(number).map_err(failed("use the lock of", directory.path()))
    }

    /// What it says; none if there is none, or it is of an earlier boot.
    ///
    /// # Errors
    /// It cannot be read, others can have written it, or it is no journal of this version.
    pub fn read<B: DeserializeOwned>(&self) -> Result<Option<Record<B>>, JournalError> {
        let text = self.directory().read(self.name()).map_err(failed("read", &self.path))?;
        let Some(text) = text else { return Ok(None) };
        let form = |why: String| JournalError::Form { path: self.path.clone(), why };
        let record: Record<B> = serde_json::from_str(&text).map_err(|error| form(error.to_string()))?;
        if record.format != FORMAT {
            return Err(form(format!("its format is {:?}", record.format)));
        }
        Ok(Some(record).filter(|record| record.boot == boot()))
    }

    /// Writes it down, for good before this returns. Only while this process has the [lock](Self::lock).
    ///
    /// # Errors
    /// The disk says no; the journal is as it was then.
    pub fn write<B: Serialize>(&self, record: &Record<B>) -> Result<(), JournalError> {
        self.commit(self.prepare(record)?)
    }

    /// Writes down beside the journal what it will say after a change, so that the end of a change needs no
    /// room.
    ///
    /// # Errors
    /// The disk says no; nothing has changed.
    pub fn prepare<B: Serialize>(&self, record: &Record<B>) -> Result<PreparedFile, JournalError> {
        let text = serde_json::to_string_pretty(record).expect("serializes because its keys are texts");
        self.directory().prepare(self.name(), text.as_bytes()).map_err(failed("write", &self.path))
    }

    /// Has it say what was prepared.
    ///
    /// # Errors
    /// The disk says no; the journal is as it was then.
    pub fn commit(&self, prepared: PreparedFile) -> Result<(), JournalError> {
        prepared.commit().map_err(failed("write", &self.path))
    }

    /// Takes it away: all is as it was.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self) -> Result<(), JournalError> {
        self.directory().remove(self.name()).map_err(failed("remove", &self.path))
    }
}

/// The number of this thread's network namespace.
fn namespace() -> Result<u64, JournalError> {
    Ok(fs::metadata(NAMESPACE).map_err(failed("read", Path::new(NAMESPACE)))?.ino())
}

/// The devices of this thread's network namespace: number and name.
fn devices() -> Result<Vec<(u32, String)>, JournalError> {
    let asked = Socket::open().and_then(|mut socket| link::all(&mut socket).map_err(std::io::Error::other));
    let links = asked.map_err(failed("list the devices of", Path::new(NAMESPACE)))?;
    Ok(links.into_iter().map(|link| (link.index.0, link.name)).collect())
}

fn name_of(devices: &[(u32, String)], index: u32) -> Option<&str> {
    devices.iter().find(|(number, _)| *number == index).map(|(_, name)| name.as_str())
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::System { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_linux::pidfd::PidFd;

    fn journal() -> (tempfile::TempDir, Journal) {
        let directory = tempfile::tempdir().expect("there is room");
        let journal = Journal::in_directory(directory.path(), 7, 3);
        (directory, journal)
    }

    #[test]
    fn what_was_written_is_read_until_it_is_removed() {
        let (_directory, journal) = journal();
        assert_eq!(journal.read::<u32>().expect("none is no error"), None);
        let record = Record::new("kernel", "eth0", 3, "rate = \"1mbit\"", 5_u32);
        journal.write(&record).expect("there is room");
        assert!(record.owner_lives());
        assert_eq!(journal.read().expect("it is there"), Some(record));
        journal.remove().expect("it is there");
        journal.remove().expect("twice is no error");
        assert_eq!(journal.read::<u32>().expect("none is no error"), None);
    }

    #[test]
    fn an_owner_that_has_ended_is_gone_before_it_is_collected() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        let mut record = Record::new("kernel", "eth0", 3, "", 5_u32);
        (record.process, record.started) = (child.id(), start_time(child.id()).expect("it runs"));
        assert!(record.owner_lives());
        child.kill().expect("it is ours");
        let held = PidFd::open(child.id()).expect("it has not been collected");
        while !held.has_ended(None).expect("it is held") {
            std::thread::yield_now();
        }
        assert!(start_time(child.id()).is_some() && !record.owner_lives());
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
