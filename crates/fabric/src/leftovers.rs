//! Lists deployments, and removes what killed ones have left behind.
//!
//! Processes, and namespaces without names, end with the process that holds them, even if it is killed. Names
//! of namespaces under `/run/netns` do not. A deployment therefore first writes a note under
//! `/run/unisono/tree`, named after its process, and the next deployment (or `unisono tree undeploy`) removes
//! the names of processes that are gone. A process is identified by its number and its start time, because
//! numbers are reused.

use crate::error::Error;
use crate::expedited_rcu::{self, journal};
use serde::Serialize;
use std::io::{self, Write};
use std::time::{Duration, Instant};
use unisono_linux::network_namespace;
use unisono_linux::process::Signal;
use unisono_linux::undo::Author;

/// The prefix of the notes' names, because other parts of Unisono write into the same directory.
const MARK: &str = "tree-";

/// The note that this process has a deployment. The drop of this value removes the note.
#[derive(Debug)]
pub struct Note {
    name: String,
}

impl Note {
    pub fn write() -> Result<Self, Error> {
        let author = Author::this_process();
        let name = format!("{MARK}{}.json", author.process);
        let text = serde_json::to_string(&author).expect("serializes because it holds numbers alone");
        // a note of this name is from an earlier process with this number
        let written =
            journal().remove(&name).and_then(|()| journal().create(&name)?.write_all(text.as_bytes()));
        written.map_err(Error::io(format!("write {}", journal().path().join(&name).display())))?;
        Ok(Self { name })
    }

    pub fn prefix() -> String {
        prefix(std::process::id())
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let _ = journal().remove(&self.name);
        journal().remove_if_empty();
    }
}

fn prefix(process: u32) -> String {
    format!("unisono-{process}")
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Removed {
    pub ended: Vec<u32>,
    /// The processes of the deployments that had been killed before.
    pub dead: Vec<u32>,
    pub names: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunningDeployments {
    Leave,
    /// Running deployments are asked to end, and killed after ten seconds.
    End,
}

/// Removes the leftovers of dead deployments. `running` decides whether running deployments are ended, too.
/// `only` restricts this to the deployment of one process.
pub fn remove(running: RunningDeployments, only: Option<u32>) -> Result<Removed, Error> {
    let mut removed = Removed::default();
    let notes = notes().map_err(Error::io(format!("read {}", journal().path().display())))?;
    for (note, author) in
        notes.into_iter().filter(|(_, author)| only.is_none_or(|only| only == author.process))
    {
        match (author.lives(), running) {
            (true, RunningDeployments::Leave) => continue,
            (true, RunningDeployments::End) => {
                terminate(author)?;
                removed.ended.push(author.process);
            }
            (false, _) => removed.dead.push(author.process),
        }
        // the dash prevents the names of process 123 from being taken for the names of process 12
        for name in network_namespace::names(&(prefix(author.process) + "-")) {
            network_namespace::remove(&name).map_err(Error::io(format!("remove the name {name}")))?;
            removed.names += 1;
        }
        let _ = journal().remove(&note); // a deployment that ended normally has removed its note already
    }
    expedited_rcu::restore_expedited().map_err(Error::io("turn /sys/kernel/rcu_expedited back"))?;
    journal().remove_if_empty();
    Ok(removed)
}

fn terminate(author: Author) -> Result<(), Error> {
    let what = || format!("end the deployment of process {}", author.process);
    let Some(process) = author.hold() else { return Ok(()) }; // it has just ended
    let start = Instant::now();
    for (signal, timeout) in [(Signal::Terminate, 10), (Signal::Kill, 10)] {
        let _ = process.send(signal); // the process may have ended in the meantime
        if process.has_ended(Some(Duration::from_secs(timeout))).map_err(Error::io(what()))? {
            return Ok(());
        }
    }
    Err(Error::Barrier(format!(
        "process {} does not end within {:?}",
        author.process,
        start.elapsed()
    )))
}

fn notes() -> io::Result<Vec<(String, Author)>> {
    let names = journal().files(".json")?.into_iter().filter(|name| name.starts_with(MARK));
    let read = |name: String| {
        let author = serde_json::from_str(&journal().read(&name).ok()??).ok()?;
        Some((name, author))
    };
    Ok(names.filter_map(read).collect())
}
