//! The guardian: a process of its own that restores the machine when the scheduler is killed.
//!
//! It holds a pidfd of the scheduler, which becomes readable when that process ends, for any reason. A
//! scheduler that ends in order has removed its journal; if the journal still exists, the guardian undoes its
//! entries. The guardian lives in its own session, so that keys and signals meant for the programs do not
//! reach it, and outside the gangs, so that no freezer stops it. When it is killed, too, the next run or
//! `unisono gang restore` does its work (`leftover.rs`).
//!
//! After a kill of the scheduler the programs continue, without gangs, until the user ends them.

use crate::error::{Result, system};
use crate::journal::{self, Restored};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use unisono_linux::affinity::Tid;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process::{Family, start};

/// Starts the guardian: `command` with the journal's path and this process's number as arguments.
pub fn post(mut command: Command, journal: &Path) -> Result<Child> {
    command.arg(journal).arg(std::process::id().to_string()).stdin(Stdio::null()).stdout(Stdio::null());
    start(&mut command, Vec::new(), Family::OwnSession).map_err(system("start the guardian"))
}

/// Does the guardian's work: waits for the scheduler's end, and restores if the journal still exists.
pub fn guard(journal: &Path, scheduler: Tid) -> Result<Option<Restored>> {
    // pinned first: a reused number has another start time than the journal states
    let held = PinnedProcess::now(scheduler);
    let alive = || journal::read(journal).is_ok_and(|entries| journal::is_alive(&entries));
    match held {
        Ok(process) if alive() => {
            process.has_ended(None).map_err(system("wait for the scheduler"))?;
        }
        _ => {}
    }
    if !journal.exists() {
        return Ok(None);
    }
    journal::restore(journal).map(Some)
}
