//! What is put back when a queue goes: the program, the place for it if there was none, the queue's own device.

use super::NAME;
use super::error::{Error, failed};
use crate::journal::{Journal, Record};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use unisono_linux::interface::Interface;
use unisono_linux::netlink::{Socket, capture, egress};

/// What is to be put back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Before {
    /// The place for programs was made by us.
    pub(super) made_clsact: bool,
    /// The queue's own device.
    pub(super) queue: String,
}

/// Where questions are asked.
pub(super) fn socket_of(journal: &Journal) -> PathBuf {
    journal.path().with_extension("socket")
}

/// Puts back what a queue that was killed left.
pub(super) fn put_back_leftovers(journal: &Journal, device: &str) -> Result<(), Error> {
    let Some(record) = journal.read::<serde_json::Value>()? else { return Ok(()) };
    if record.backend != NAME {
        return Err(Error::Taken { device: device.to_owned(), backend: record.backend });
    }
    if record.owner_lives() {
        return Err(Error::Taken { device: device.to_owned(), backend: record.backend });
    }
    match journal.read::<Before>()? {
        Some(record) => put_back(journal, &record),
        None => Ok(()),
    }
}

/// Puts back what was there before. What is gone already is no error.
pub(super) fn put_back(journal: &Journal, record: &Record<Before>) -> Result<(), Error> {
    let mut netlink = Socket::open().map_err(failed("open a netlink socket"))?;
    // a device of the same name that is another one is not ours
    if let Ok(found) = Interface::find(&record.device)
        && found.index.0 == record.index
    {
        let _ = netlink.run(&[egress::detach(found.index)]);
        if record.before.made_clsact {
            // what others have put there since stays, and so does the place for it
            let _ = egress::remove_unused_clsact(&mut netlink, found.index);
        }
    }
    if let Ok(queue) = Interface::find(&record.before.queue) {
        let _ = netlink.run(&[capture::remove(queue.index)]);
    }
    match std::fs::remove_file(socket_of(journal)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("remove the socket for questions")(error));
        }
        _ => {}
    }
    Ok(journal.remove()?)
}
