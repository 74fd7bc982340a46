//! The entries of a journal.

use crate::error::{Result, system};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use unisono_linux::affinity::{CpuSet, Tid};
use unisono_linux::cgroup::{CgroupVersion, ControlGroup};
use unisono_linux::pidfd;
use unisono_linux::pinned::PinnedThread;
use unisono_linux::undo::Author;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UndoEntry {
    Scheduler(Author),
    /// A group that may exist: thaw it, move its processes back, remove it.
    Group {
        path: PathBuf,
        /// The version of control groups, 1 or 2.
        version: u8,
    },
    /// A group that another program has made and that may be frozen: thaw it, if it is still the same.
    Borrowed {
        path: PathBuf,
        /// The version of control groups, 1 or 2.
        version: u8,
        inode: u64,
    },
    /// A thread that was given a core.
    Affinity {
        thread: i32,
        started: u64,
        /// The affinity to restore.
        before: String,
        /// The affinity that the scheduler set; any other value is the program's own choice.
        after: String,
    },
    /// The threads of this group were put into a class other than the fair one.
    #[serde(alias = "real-time")]
    Reclassed {
        path: PathBuf,
        /// The version of control groups, 1 or 2.
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

pub(super) fn version(number: u8) -> CgroupVersion {
    if number == 1 { CgroupVersion::V1 } else { CgroupVersion::V2 }
}

impl UndoEntry {
    pub(crate) fn group(path: &Path, version: CgroupVersion) -> UndoEntry {
        UndoEntry::Group { path: path.to_owned(), version: number(version) }
    }

    /// Makes the entry for a group that another program has made. Fails if the group is gone.
    pub(crate) fn borrowed(group: &ControlGroup) -> Result<UndoEntry> {
        let inode = inode_of(group.path()).map_err(system("look at the control group"))?;
        Ok(UndoEntry::Borrowed { path: group.path().to_owned(), version: number(group.version()), inode })
    }

    pub(crate) fn reclassed(group: &ControlGroup) -> UndoEntry {
        UndoEntry::Reclassed { path: group.path().to_owned(), version: number(group.version()) }
    }

    pub(crate) fn affinity(thread: &PinnedThread, before: &CpuSet, after: &CpuSet) -> UndoEntry {
        UndoEntry::Affinity {
            thread: thread.number().0,
            started: thread.started(),
            before: before.to_string(),
            after: after.to_string(),
        }
    }
}

pub(super) fn inode_of(path: &Path) -> std::io::Result<u64> {
    Ok(fs::symlink_metadata(path)?.ino())
}

/// Returns the start time of a process or thread, in the kernel's ticks since boot: with the number it
/// identifies the process or thread for good.
pub fn start_time(thread: Tid) -> Option<u64> {
    pidfd::start_time(u32::try_from(thread.0).ok()?)
}

/// Parses the entries of a journal. A line that cannot be parsed was cut off by a crash, and is skipped.
pub(super) fn parse(text: &str) -> Vec<UndoEntry> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
