//! Which deployments there are, and what one that was killed may have left behind.
//!
//! Processes and namespaces without names end with the process that holds them, whatever ends it. Names under
//! `/run/netns` do not: they are written down first, in a file under `/run/unisono` named after the
//! process, and the next deployment (or `unisono tree undeploy`) takes away what belongs to processes that
//! are gone. A process is known by its number and its start, because numbers are used again.

use crate::error::Error;
use crate::grace;
use crate::notes::{DIRECTORY, note};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use unisono_linux::affinity::Tid;
use unisono_linux::network_namespace;
use unisono_linux::pidfd::{runs, start_time};
use unisono_linux::process::{PidFd, Signal};

const MARK: &str = "tree-";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DeploymentEntry {
    process: u32,
    started: u64,
}

/// The note that this process has a deployment; taken away when dropped.
#[derive(Debug)]
pub struct Note {
    path: PathBuf,
}

impl Note {
    /// Writes it.
    ///
    /// # Errors
    /// `/run/unisono` cannot be written.
    pub fn write() -> Result<Self, Error> {
        let process = std::process::id();
        let entry = DeploymentEntry { process, started: start_time(process).unwrap_or(0) };
        let path = Path::new(DIRECTORY).join(format!("{MARK}{process}.json"));
        let text = serde_json::to_string(&entry).expect("serializes because it holds numbers alone");
        note(&path, &text).map_err(Error::io(format!("write {}", path.display())))?;
        Ok(Self { path })
    }

    /// What the names of this deployment's namespaces begin with.
    #[must_use]
    pub fn prefix() -> String {
        prefix(std::process::id())
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_dir(DIRECTORY); // unless others have their notes there
    }
}

fn prefix(process: u32) -> String {
    format!("unisono-{process}")
}

/// What was taken away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Deployments that were told to end.
    pub ended: Vec<u32>,
    /// Deployments that had been killed before.
    pub dead: Vec<u32>,
    /// Names of namespaces.
    pub names: usize,
}

/// What to do about deployments that run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunningDeployments {
    Leave,
    /// They are told to end, and killed if they do not within ten seconds.
    End,
}

/// Takes away what deployments have left that are gone, and those that run if that is wanted: all, or only
/// the one of this process.
///
/// # Errors
/// A name cannot be taken away.
pub fn remove(running: RunningDeployments, only: Option<u32>) -> Result<Removed, Error> {
    let mut removed = Removed::default();
    for (path, entry) in
        notes().into_iter().filter(|(_, entry)| only.is_none_or(|only| only == entry.process))
    {
        let lives = runs(entry.process, entry.started);
        match (lives, running) {
            (true, RunningDeployments::Leave) => continue,
            (true, RunningDeployments::End) => {
                end(&entry)?;
                removed.ended.push(entry.process);
            }
            (false, _) => removed.dead.push(entry.process),
        }
        // the dash keeps process 12 from being taken for process 123
        for name in network_namespace::names(&(prefix(entry.process) + "-")) {
            network_namespace::remove(&name).map_err(Error::io(format!("remove the name {name}")))?;
            removed.names += 1;
        }
        let _ = fs::remove_file(path); // whoever ended in order has removed it
    }
    grace::calm_down().map_err(Error::io("turn /sys/kernel/rcu_expedited back"))?;
    let _ = fs::remove_dir(DIRECTORY); // unless others have their notes there
    Ok(removed)
}

fn end(entry: &DeploymentEntry) -> Result<(), Error> {
    let what = || format!("end the deployment of process {}", entry.process);
    let process = Tid(i32::try_from(entry.process).unwrap_or(i32::MAX));
    let Ok(process) = PidFd::open(process) else { return Ok(()) }; // it has just ended
    if start_time(entry.process) != Some(entry.started) {
        return Ok(());
    }
    let start = Instant::now();
    for (signal, patience) in [(Signal::Terminate, 10), (Signal::Kill, 10)] {
        let _ = process.send(signal); // it may have ended meanwhile
        if process.has_ended(Some(Duration::from_secs(patience))).map_err(Error::io(what()))? {
            return Ok(());
        }
    }
    Err(Error::Barrier(format!(
        "process {} does not end within {:?}",
        entry.process,
        start.elapsed()
    )))
}

fn notes() -> Vec<(PathBuf, DeploymentEntry)> {
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(MARK)));
    paths.sort();
    let read = |path: PathBuf| {
        let entry = serde_json::from_str(&fs::read_to_string(&path).ok()?).ok()?;
        Some((path, entry))
    };
    paths.into_iter().filter_map(read).collect()
}
