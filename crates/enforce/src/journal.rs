//! What was there before, written down before it is changed.
//!
//! One file for each device with a policy, `/run/unisono/queue/<network namespace>-<device>.json`: who applied it, what is
//! to be put back, and the policy itself. It appears whole or not at all (written beside, flushed, renamed), and goes
//! when all is as it was. Whoever is about to change a device reads it first: a journal in the phase [`Phase::Changing`]
//! whose process is gone belongs to one that was killed.
//!
//! A device is known by its name, its number and the network namespace with its number; a process by its number and
//! its start, since both are used again. [`Journal::lock`] keeps two commands from changing one device at a time.
//!
//! Cost: two system calls to flush; some milliseconds. When not to use: for what changes often.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use unisono_linux::pidfd::{runs, start_time};

const DIRECTORY: &str = "/run/unisono/queue";
const FORMAT: &str = "unisono-queue-1";
/// How the names of journals of shares of processor time begin.
const SHARES: &str = "cpu-";
/// Others need milliseconds.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
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
    /// Which place.
    pub backend: String,
    /// The device's name.
    pub device: String,
    /// Its number.
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
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is not ours, or of another version.
    #[error(
        "{path} is no journal of this version ({why}); what it was to put back is unknown: look at the device, then remove the file"
    )]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another command changes the device.
    #[error("another `unisono queue` is at work on this device ({path} is locked); wait for it to end")]
    Busy {
        /// The lock.
        path: PathBuf,
    },
}

/// The right to change the device, until dropped.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    /// Holds the lock until it is closed, which comes after the file is gone.
    _file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path); // whoever waits for it notices, and makes a new one
        let _ = self.path.parent().map(fs::remove_dir); // unless there are other journals
    }
}

impl<B> Record<B> {
    /// A record of this process, of a change that is about to begin.
    #[must_use]
    pub fn new(backend: &str, device: &str, index: u32, policy: &str, before: B) -> Self {
        let process = std::process::id();
        Self {
            format: FORMAT.to_owned(),
            boot: boot(),
            backend: backend.to_owned(),
            device: device.to_owned(),
            index,
            process,
            started: start_time(process).unwrap_or(0),
            phase: Phase::Changing,
            policy: policy.to_owned(),
            before,
        }
    }

    /// Whether the process that wrote it still runs.
    #[must_use]
    pub fn owner_lives(&self) -> bool {
        runs(self.process, self.started)
    }
}

/// What names this boot; empty where the kernel does not say.
fn boot() -> String {
    fs::read_to_string(BOOT).map(|text| text.trim().to_owned()).unwrap_or_default()
}

impl Journal {
    /// The journal of a device of this thread's network namespace.
    ///
    /// # Errors
    /// `/proc` does not say which namespace that is.
    pub fn of(device: &str) -> Result<Self, JournalError> {
        let namespace = fs::metadata(NAMESPACE).map_err(failed("read", Path::new(NAMESPACE)))?.ino();
        Ok(Self::in_directory(Path::new(DIRECTORY), namespace, device))
    }

    fn in_directory(directory: &Path, namespace: u64, device: &str) -> Self {
        Self { path: directory.join(format!("{namespace}-{device}.json")) }
    }

    /// The journal of a process that shares out processor time, which is the host's whatever the network namespace.
    #[must_use]
    pub fn of_shares(process: u32) -> Self {
        Self { path: Path::new(DIRECTORY).join(format!("{SHARES}{process}.json")) }
    }

    /// Keeps others from beginning to share out processor time, and from putting back what was left of it; waits for
    /// them a while.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn lock_shares() -> Result<Lock, JournalError> {
        let all = Self { path: Path::new(DIRECTORY).join("cpu.json") };
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            match all.lock() {
                Err(JournalError::Busy { .. }) if std::time::Instant::now() < until => {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                locked => return locked,
            }
        }
    }

    /// The journals of all processes that share out processor time, or were killed while they did.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn all_shares() -> Result<Vec<Self>, JournalError> {
        Ok(Self::with_prefix(SHARES)?.into_iter().map(|(_, journal)| journal).collect())
    }

    /// The journal at a path that was recorded earlier.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The journals of all devices of this thread's network namespace: name and journal.
    ///
    /// # Errors
    /// `/proc` does not say which namespace that is, or the directory cannot be read.
    pub fn all() -> Result<Vec<(String, Self)>, JournalError> {
        let namespace = fs::metadata(NAMESPACE).map_err(failed("read", Path::new(NAMESPACE)))?.ino();
        Self::with_prefix(&format!("{namespace}-"))
    }

    fn with_prefix(prefix: &str) -> Result<Vec<(String, Self)>, JournalError> {
        let entries = match fs::read_dir(DIRECTORY) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed("read", Path::new(DIRECTORY)))?,
        };
        let mut all: Vec<(String, Self)> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let rest = name.strip_prefix(prefix)?.strip_suffix(".json")?.to_owned();
                Some((rest, Self { path: entry.path() }))
            })
            .collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(all)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps others from changing the device.
    ///
    /// # Errors
    /// Somebody else has it, or `/run/unisono/queue` cannot be written.
    pub fn lock(&self) -> Result<Lock, JournalError> {
        let path = self.path.with_extension("lock");
        loop {
            self.make_directory()?;
            let file = match OpenOptions::new().create(true).truncate(false).write(true).open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue, // the directory has just gone
                file => file.map_err(failed("open", &path))?,
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => return Err(JournalError::Busy { path }),
                Err(fs::TryLockError::Error(error)) => return Err(failed("lock", &path)(error)),
            }
            // the file may have been removed between opening and locking it
            let is_there = fs::metadata(&path).ok().map(|facts| facts.ino());
            if is_there == file.metadata().ok().map(|facts| facts.ino()) {
                return Ok(Lock { path, _file: file });
            }
        }
    }

    /// What it says; none if there is none, or it is of an earlier boot.
    ///
    /// # Errors
    /// It cannot be read, or is no journal of this version.
    pub fn read<B: DeserializeOwned>(&self) -> Result<Option<Record<B>>, JournalError> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(failed("read", &self.path))?,
        };
        let form = |why: String| JournalError::Form { path: self.path.clone(), why };
        let record: Record<B> = serde_json::from_str(&text).map_err(|error| form(error.to_string()))?;
        if record.format != FORMAT {
            return Err(form(format!("its format is {:?}", record.format)));
        }
        Ok(Some(record).filter(|record| record.boot == boot()))
    }

    /// Writes it down, for good before this returns.
    ///
    /// # Errors
    /// The disk says no; the journal is as it was then.
    pub fn write<B: Serialize>(&self, record: &Record<B>) -> Result<(), JournalError> {
        self.make_directory()?;
        let text = serde_json::to_string_pretty(record).expect("serializes because its keys are texts");
        let beside = self.path.with_extension("new");
        let written = File::create(&beside).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(failed("write", &beside))?;
        fs::rename(&beside, &self.path).map_err(failed("write", &self.path))
    }

    /// Takes it away: all is as it was.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self) -> Result<(), JournalError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("remove", &self.path)(error)),
            _ => Ok(()),
        }
    }

    fn make_directory(&self) -> Result<(), JournalError> {
        let directory = self.path.parent().unwrap_or(Path::new(DIRECTORY));
        fs::create_dir_all(directory).map_err(failed("make", directory))
    }
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
        let journal = Journal::in_directory(directory.path(), 7, "eth0");
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
    fn two_cannot_change_a_device_at_a_time() {
        let (_directory, journal) = journal();
        let lock = journal.lock().expect("nobody else has it");
        assert!(matches!(journal.lock(), Err(JournalError::Busy { .. })));
        drop(lock);
        let again = journal.lock().expect("it is free again");
        let path = again.path.clone();
        drop(again);
        assert!(!path.exists(), "nothing is left behind");
    }
}
