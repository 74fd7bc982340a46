//! Restores the device when a queue ends: removes the program, its clsact discipline if there was none
//! before, and the queue's own device.

use super::options::Options;
use super::{INTERPOSED_BACKEND, STOP_TIMEOUT};
use crate::error::interposed::{Error, failed};
use crate::journal::{Journal, Record};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use unisono_linux::netlink::filter::{self, TrafficHook};
use unisono_linux::netlink::link::{self, Index};
use unisono_linux::netlink::{NetlinkSocket, capture, egress};
use unisono_linux::undo::Author;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct BeforeQueue {
    /// Whether this queue made the device's clsact discipline.
    pub(super) made_clsact: bool,
    /// The name of the queue's own device.
    pub(super) queue: String,
    /// The number of the queue's own device; 0 until it is made. A device of that name with another number
    /// belongs to another program.
    #[serde(default)]
    pub(super) queue_index: u32,
    /// The worker; written before the worker gives up its copy of the lock (PROTOCOL.md).
    #[serde(default)]
    pub(super) worker: Option<Author>,
    /// The queue's options.
    #[serde(default)]
    pub(super) options: Option<Options>,
}

/// Returns the path of the guard's control socket.
pub(crate) fn socket_path(journal: &Journal) -> PathBuf {
    journal.path().with_extension("socket")
}

/// Kills the processes of a queue, waits for their end, and restores the device. The caller must hold the
/// journal's lock.
pub(super) fn kill_and_restore(journal: &Journal, device: &str) -> Result<(), Error> {
    let Some(record) = journal.header()? else { return Ok(()) };
    if record.backend != INTERPOSED_BACKEND {
        return Err(Error::Taken { device: device.to_owned(), backend: record.backend });
    }
    let Some(record) = journal.read::<BeforeQueue>()? else { return Ok(()) };
    // the guard first: it would notice the worker's end, and restore the device by itself
    for process in [Some(record.author), record.before.worker].into_iter().flatten() {
        if process.process != std::process::id() && !process.kill(STOP_TIMEOUT) {
            let what = format!("does not end (process {})", process.process);
            return Err(Error::Worker { device: device.to_owned(), what });
        }
    }
    let mut netlink = NetlinkSocket::open().map_err(failed("open a netlink socket"))?;
    restore(journal, &record, &mut netlink)
}

/// Restores the state from before the queue. Does nothing if no journal describes this record any more: then
/// another process has restored it, and the device may have another queue. Parts that are missing are no
/// error. Devices are identified by their numbers, which a renaming does not change. The caller must hold the
/// journal's lock.
pub(super) fn restore(
    journal: &Journal,
    record: &Record<BeforeQueue>,
    netlink: &mut NetlinkSocket,
) -> Result<(), Error> {
    // while another backend comes into force, this queue's journal is pending, and the other backend's
    // journal has its name
    let mut of_record = Vec::new();
    for journal in [journal.clone(), journal.pending()] {
        let written = journal.header()?;
        if written.is_some_and(|written| written.author == record.author) {
            of_record.push(journal);
        }
    }
    if of_record.is_empty() {
        return Ok(());
    }
    let there = link::all(netlink)?;
    if there.iter().any(|link| link.index.0 == record.index) {
        let device = Index(record.index);
        let _ = filter::remove_ours(netlink, device, TrafficHook::Egress);
        if record.before.made_clsact {
            // if others have attached programs since, these stay, and the clsact discipline stays with them
            let _ = egress::remove_unused_clsact(netlink, device);
        }
    }
    let BeforeQueue { queue, queue_index, .. } = &record.before;
    if there.iter().any(|link| link.index.0 == *queue_index && link.name == *queue) {
        let _ = netlink.run(&[capture::remove(Index(*queue_index))]);
    }
    match std::fs::remove_file(socket_path(journal)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("remove the socket for questions")(error));
        }
        _ => {}
    }
    for journal in of_record {
        journal.remove()?;
    }
    Ok(())
}
