//! Control groups, version 1 and version 2: mount points, making and removing groups, moving processes,
//! freezing, processor weights, limits on the number of tasks.
//!
//! A [`CgroupHierarchy`] is a mounted hierarchy; a [`ControlGroup`] is a directory in it. Version 2 has a
//! single hierarchy, with its controllers in `cgroup.controllers`, and every group can be frozen (kernels
//! from 5.2 on). Version 1 has a hierarchy for each controller. Cost: a write takes about 1.3 us with warm
//! caches and 5 to 20 us after another program ran; freezing walks every task of the group.
//!
//! A process is moved through a [`ProcessMover`], which explains why the number of the process alone is not
//! enough.
//!
//! When not to use: these calls change the machine for other users. A program that makes a group has to
//! remove it, even after a crash (see the journal in `unisono-gang`).
//!
//! Reference: cgroups(7); Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.

mod hierarchy;
mod missing;
mod mover;

use crate::affinity::Tid;
use crate::pinned::PinnedProcess;
use rustix::rand::GetRandomFlags;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use hierarchy::{CgroupHierarchy, CgroupVersion, hierarchies, hierarchies_below};
pub use missing::MissingCgroup2;
pub use mover::{MovedProcess, ProcessMover};

#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct Error {
    pub action: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

impl Error {
    /// Returns whether the group was removed in the meantime: an open file of it returns `ENODEV`, its path
    /// `ENOENT`.
    pub fn is_gone(&self) -> bool {
        self.source.kind() == ErrorKind::NotFound || self.source.raw_os_error() == Some(libc::ENODEV)
    }
}

fn wrong(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error { action, path: path.to_owned(), source }
}

/// Whether the tasks of a group may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frozen {
    No,
    /// The tasks stop at their next return to user space, and new tasks do not start.
    Yes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    dir: PathBuf,
    version: CgroupVersion,
}

impl ControlGroup {
    /// Refers to the group at a path that was recorded earlier; the path is not checked.
    pub fn at(dir: PathBuf, version: CgroupVersion) -> Self {
        Self { dir, version }
    }

    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Makes a group inside this one. Fails with [`ErrorKind::AlreadyExists`] if a group of this name exists:
    /// it may contain anything and belong to anybody. [`unguessable`] makes names that no other user can have
    /// taken.
    pub fn create(&self, name: &str) -> Result<ControlGroup, Error> {
        let dir = self.dir.join(name);
        match fs::create_dir(&dir) {
            Err(error) => Err(wrong("create", &dir)(error)),
            Ok(()) => Ok(ControlGroup { dir, version: self.version }),
        }
    }

    /// Removes the group; it is no error if the group is gone already. Fails with `EBUSY` while it contains
    /// processes or groups.
    pub fn remove(&self) -> Result<(), Error> {
        match fs::remove_dir(&self.dir) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(wrong("remove", &self.dir)(error)),
            _ => Ok(()),
        }
    }

    /// Writes a file of the group. Fails if the hierarchy has no such file (no such controller), or if the
    /// kernel refuses the value.
    pub fn write(&self, file: &str, value: &str) -> Result<(), Error> {
        let path = self.dir.join(file);
        let written =
            OpenOptions::new().write(true).open(&path).and_then(|mut f| f.write_all(value.as_bytes()));
        written.map_err(wrong("write", &path))
    }

    /// Reads a file of the group. Fails if the hierarchy has no such file (no such controller).
    pub fn read(&self, file: &str) -> Result<String, Error> {
        let path = self.dir.join(file);
        fs::read_to_string(&path).map_err(wrong("read", &path))
    }

    /// Returns whether the group has this file, which depends on the controller and the kernel version.
    pub fn has(&self, file: &str) -> bool {
        self.dir.join(file).exists()
    }

    /// Opens `cgroup.procs`: a process that writes `0` to it moves into the group (see
    /// [`crate::process::start`]).
    pub fn open_procs(&self) -> Result<File, Error> {
        let path = self.dir.join("cgroup.procs");
        OpenOptions::new().write(true).open(&path).map_err(wrong("open", &path))
    }

    /// Moves a process with all its threads into this group. It is no error if the process has ended. For
    /// many processes, open a [`ControlGroup::mover`] once.
    pub fn add(&self, process: &PinnedProcess) -> Result<MovedProcess, Error> {
        self.mover(self)?.add(process)
    }

    /// Returns the processes in this group itself (not in groups below it).
    pub fn processes(&self) -> Result<Vec<Tid>, Error> {
        Ok(numbers(&self.read("cgroup.procs")?))
    }

    /// Returns the threads in this group itself; one read, even for many processes.
    pub fn threads(&self) -> Result<Vec<Tid>, Error> {
        let file = if self.version == CgroupVersion::V2 { "cgroup.threads" } else { "tasks" };
        Ok(numbers(&self.read(file)?))
    }

    /// Returns the processor time in nanoseconds that the group has used. Fails if the hierarchy does not
    /// count processor time.
    pub fn used_ns(&self) -> Result<u64, Error> {
        self.meter()?.used_ns()
    }

    /// Opens a file of this group that holds a number, for many reads. Fails if the hierarchy has no such
    /// file (no such controller).
    pub fn number_file(&self, file: &str) -> Result<NumberFile, Error> {
        let path = self.dir.join(file);
        match File::open(&path) {
            Ok(file) => Ok(NumberFile { file, path }),
            Err(error) => Err(wrong("open", &path)(error)),
        }
    }

    /// Opens the file that [`ControlGroup::used_ns`] reads, for many reads. Fails if the hierarchy does not
    /// count processor time.
    pub fn meter(&self) -> Result<GroupMeter, Error> {
        Ok(match self.version {
            CgroupVersion::V2 => GroupMeter::Microseconds(self.number_file("cpu.stat")?),
            CgroupVersion::V1 => GroupMeter::Nanoseconds(self.number_file("cpuacct.usage")?),
        })
    }

    /// Sets the group's weight relative to its siblings, in units of a default task (1.0). Fails if the
    /// hierarchy has no `cpu` controller.
    pub fn set_weight(&self, weight: f64) -> Result<(), Error> {
        let (file, value) = weight_words(self.version, weight);
        self.write(file, &value)
    }

    /// Opens the weight file of this group, for many writes. Fails if the hierarchy has no `cpu` controller.
    pub fn weight_file(&self) -> Result<WeightFile, Error> {
        let path = self.dir.join(weight_words(self.version, 1.0).0);
        match OpenOptions::new().write(true).open(&path) {
            Ok(file) => Ok(WeightFile { file, version: self.version, path }),
            Err(error) => Err(wrong("open", &path)(error)),
        }
    }

    /// Opens the file that freezes and thaws this group, for many writes. Fails if the hierarchy is neither
    /// of version 2 nor has the `freezer` controller.
    pub fn freeze_file(&self) -> Result<FreezeFile, Error> {
        let (file, words) = match self.version {
            CgroupVersion::V2 => ("cgroup.freeze", ["0", "1"]),
            CgroupVersion::V1 => ("freezer.state", ["THAWED", "FROZEN"]),
        };
        let path = self.dir.join(file);
        match OpenOptions::new().write(true).open(&path) {
            Ok(file) => Ok(FreezeFile { file, words, path }),
            Err(error) => Err(wrong("open", &path)(error)),
        }
    }
}

/// Returns the prefix and 64 random bits: no other user can have made a group of this name before.
pub fn unguessable(prefix: &str) -> io::Result<String> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(format!("{prefix}-{:016x}", u64::from_ne_bytes(random)))
}

fn weight_words(version: CgroupVersion, weight: f64) -> (&'static str, String) {
    match version {
        CgroupVersion::V1 => ("cpu.shares", format!("{:.0}", (weight * 1024.0).clamp(2.0, 262_144.0))),
        CgroupVersion::V2 => ("cpu.weight", format!("{:.0}", (weight * 100.0).clamp(1.0, 10_000.0))),
    }
}

fn numbers(text: &str) -> Vec<Tid> {
    text.split_whitespace().filter_map(|n| n.parse().ok().map(Tid)).collect()
}

/// An open file that freezes and thaws a group (`cgroup.freeze`, `freezer.state`).
#[derive(Debug)]
pub struct FreezeFile {
    file: File,
    words: [&'static str; 2],
    path: PathBuf,
}

impl FreezeFile {
    /// Freezes or thaws the group. Running threads stop within a few microseconds; threads that wait for a
    /// processor stop when they would get it.
    pub fn set(&self, frozen: Frozen) -> Result<(), Error> {
        let word = self.words[usize::from(frozen == Frozen::Yes)];
        self.file.write_all_at(word.as_bytes(), 0).map_err(wrong("write", &self.path))
    }
}

/// An open file that sets the weight of a group.
#[derive(Debug)]
pub struct WeightFile {
    file: File,
    version: CgroupVersion,
    path: PathBuf,
}

impl WeightFile {
    /// Sets the weight relative to the group's siblings, in units of a default task (1.0); 0 selects the
    /// smallest weight.
    pub fn set(&self, weight: f64) -> Result<(), Error> {
        let (_, value) = weight_words(self.version, weight);
        self.file.write_all_at(value.as_bytes(), 0).map_err(wrong("write", &self.path))
    }
}

/// An open file of a group that holds a number.
#[derive(Debug)]
pub struct NumberFile {
    file: File,
    path: PathBuf,
}

impl NumberFile {
    /// Reads the current number; 0 if the file holds a word instead (`max`).
    pub fn read(&self) -> Result<u64, Error> {
        Ok(self.start()?.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0))
    }

    fn start(&self) -> Result<String, Error> {
        let mut bytes = [0u8; 64];
        let read = self.file.read_at(&mut bytes, 0).map_err(wrong("read", &self.path))?;
        Ok(String::from_utf8_lossy(&bytes[..read]).into_owned())
    }
}

/// The open file that counts the processor time of a group and its descendants.
#[derive(Debug)]
pub enum GroupMeter {
    /// Version 1: a single number.
    Nanoseconds(NumberFile),
    /// Version 2: the first of several named lines.
    Microseconds(NumberFile),
}

impl GroupMeter {
    pub fn used_ns(&self) -> Result<u64, Error> {
        match self {
            GroupMeter::Nanoseconds(number_file) => number_file.read(),
            GroupMeter::Microseconds(number_file) => {
                let text = number_file.start()?;
                let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
                Ok(usage.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0) * 1000)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_action_and_the_path() {
        let group = ControlGroup::at("/sys/fs/cgroup/unisono-that-is-not-there".into(), CgroupVersion::V2);
        let error = group.write("cpu.weight", "1").expect_err("no such group").to_string();
        assert!(
            error.starts_with("cannot write /sys/fs/cgroup/unisono-that-is-not-there/cpu.weight: "),
            "{error}"
        );
        assert!(group.remove().is_ok(), "one that is gone is no error");
    }

    #[test]
    fn weights_stay_within_what_each_version_accepts() {
        let words = |version, weight| weight_words(version, weight).1;
        assert_eq!([0.0, 1.0, 1e9].map(|w| words(CgroupVersion::V1, w)), ["2", "1024", "262144"]);
        assert_eq!([0.0, 1.0, 1e9].map(|w| words(CgroupVersion::V2, w)), ["1", "100", "10000"]);
    }
}
