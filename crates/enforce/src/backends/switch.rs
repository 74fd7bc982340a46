//! Brings another backend into force on a device that has a policy.
//!
//! ```text
//!   classes of the kernel <--> interposed queue                  the new backend begins beside the old one
//!       journal of the old one put aside --> new one holds --> old one ends --> its journal is removed
//!                  |                              |
//!                  |                              +-- failed, killed: new one undone, journal of the old one back
//!                  +-- next process that finds a journal aside: keeps a new one that holds, else undoes it
//!
//!   any other change      both need the same hook: old one ends --> new one begins
//!                                                                        +-- failed: old one begins again
//! ```
//! An interposed queue and the device's queueing discipline do not interfere, because the queue passes frames
//! to the driver, bypassing the discipline. So one can be set up while the other is in force, and the device
//! always has a policy. In two cases the new backend needs a hook of the old one: when an interposed queue
//! gets another [frame path](crate::interposed::FramePathName) or other options, and when our scheduler in
//! the kernel begins or ends. Then the device has no policy for a moment, and stays without one if the
//! command is killed in that moment.
//!
//! The journal is put aside by a rename, which needs no disk space. The old backend is not touched until the
//! new one holds, so it keeps its policy and options if that fails.

use super::with_name;
use crate::backend::Backend;
use crate::cpu::{self, KeeperSwitch};
use crate::error::Error;
use crate::interposed::{self, Interposed, ServerCommand};
use crate::journal::{Journal, LinkSide, Phase, Record};
use serde_json::Value;
use std::process::Command;
use unisono_fairqueue::{Policy, TrafficDirection};
use unisono_linux::undo::DirectoryLock;

/// Applies a policy with a backend, even if another backend is in force on the device. `server` makes the
/// command that starts the previous interposed queue again, if the change fails. Remarks for the user are
/// added to `notes`. On an error, the previous policy is in force again unless the error says otherwise.
pub fn apply(
    backend: &mut dyn Backend,
    policy: &Policy,
    server: ServerCommand,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let side = backend.side();
    let journal = Journal::for_side(&side)?;
    let is_same = |name: &str| backend.kind().name == name && name != interposed::INTERPOSED_BACKEND;
    // the rest of the record of thousands of classes takes milliseconds to read
    let record = match journal.header()?.filter(|record| !is_same(&record.backend)) {
        Some(_) => journal.read::<Value>()?.filter(|record| backend.conflicts_with(record)),
        None => None,
    };
    let Some(record) = record else {
        return with_notes(backend, notes, |backend| backend.apply(policy));
    };
    backend.check(policy)?;
    let hooks = with_name(&record.backend, &side)?.kind().hooks;
    if backend.kind().hooks.iter().any(|hook| hooks.contains(hook)) {
        break_before_make(backend, policy, &record, server, notes)?;
    } else {
        make_before_break(&side, &journal, &record, notes, |lock| backend.install(policy, lock))?;
    }
    notes.extend_from_slice(backend.notes());
    notes.push(match backend.kind().name {
        name if name == record.backend => {
            format!("the queue at {side} works otherwise now, as was asked for")
        }
        name => {
            format!("the policy of {side} was with the backend {}, and is with {name} now", record.backend)
        }
    });
    Ok(())
}

/// Applies a policy to the link and to processor time: to both, or to neither. `keeper` makes the command of
/// the program that keeps the shares of processor time. Without `keeper`, a process that keeps shares for
/// this device is stopped.
pub fn apply_with_shares(
    backend: &mut dyn Backend,
    policy: &Policy,
    keeper: Option<&dyn Fn() -> Command>,
    server: ServerCommand,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let LinkSide { device, direction } = backend.side();
    if direction == TrafficDirection::In {
        return apply(backend, policy, server, notes);
    }
    let Some(keeper) = keeper else {
        apply(backend, policy, server, notes)?;
        return cpu::keeper_of(&device)?.iter().try_for_each(cpu::stop);
    };
    let keeping = KeeperSwitch::start(&device, &policy.text, keeper, notes)?;
    let mut without = policy.clone();
    without.cpu = None;
    let done = apply(backend, &without, server, notes);
    if done.is_err() {
        keeping.roll_back(notes)?;
    }
    done
}

/// Applies a policy to both directions of a device: to both, or to neither. After an error, both directions
/// have the policies that they had before, unless the error says otherwise.
pub fn apply_to_both(
    outgoing: &mut dyn Backend,
    incoming: &mut dyn Backend,
    policy: &Policy,
    server: ServerCommand,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    outgoing.check(policy)?;
    let side = incoming.side();
    let before = Journal::for_side(&side)?.read::<Value>()?;
    apply(incoming, policy, server, notes)?;
    let Err(error) = apply_with_shares(outgoing, policy, None, server, notes) else { return Ok(()) };
    let undone = match before {
        None => with_notes(&mut *with_name(incoming.kind().name, &side)?, notes, |backend| backend.remove()),
        Some(before) => recorded_backend(&before, &side, server).and_then(|(mut backend, policy)| {
            with_notes(&mut *backend, notes, |backend| backend.apply(&policy))
        }),
    };
    Err(error.or_not_restored(&side.to_string(), undone))
}

fn with_notes(
    backend: &mut dyn Backend,
    notes: &mut Vec<String>,
    work: impl FnOnce(&mut dyn Backend) -> Result<(), Error>,
) -> Result<(), Error> {
    let done = work(backend);
    notes.extend_from_slice(backend.notes());
    done
}

/// Begins the new backend while the old one is in force.
fn make_before_break(
    side: &LinkSide,
    journal: &Journal,
    before: &Record<Value>,
    notes: &mut Vec<String>,
    install: impl FnOnce(&DirectoryLock) -> Result<(), Error>,
) -> Result<(), Error> {
    let pending = journal.pending();
    let lock = journal.lock()?;
    if journal.header()?.is_none_or(|now| now.author != before.author) {
        return Err(Error::ChangedMeanwhile { device: side.device.clone() });
    }
    journal.rename_to(&pending)?;
    let done = install(&lock);
    drop(lock); // an interposed queue that has begun has already unlocked all copies of this lock
    let _lock = journal.lock()?;
    // another command may have finished the change meanwhile
    let (backend, device) = (before.backend.clone(), side.device.clone());
    match (done, finish(side, &pending, notes)) {
        (Ok(()), Ok(_)) => Ok(()),
        (Ok(()), Err(error)) => Err(Error::OldBackendRemains { device, backend, error: Box::new(error) }),
        (Err(error), Ok(_)) => Err(Error::RolledBack { device, backend, error: Box::new(error) }),
        (Err(error), Err(undo)) => Err(error.or_not_restored(&device, Err(undo))),
    }
}

/// The fate of a policy whose journal is pending.
pub(crate) enum SwitchOutcome {
    /// The policy is in force again.
    RolledBack,
    /// Another backend is in force.
    Committed,
}

/// Finishes the change that a pending journal describes. The caller must hold the journal's lock, so no other
/// command is at work.
pub(crate) fn finish(
    side: &LinkSide,
    pending: &Journal,
    notes: &mut Vec<String>,
) -> Result<SwitchOutcome, Error> {
    let journal = pending.current();
    let Some(before) = pending.read::<Value>()? else { return Ok(SwitchOutcome::Committed) };
    let now = journal.header()?;
    if now.as_ref().is_some_and(|now| now.phase == Phase::Holds) {
        with_notes(&mut *with_name(&before.backend, side)?, notes, |backend| backend.retire(pending))?;
        return Ok(SwitchOutcome::Committed);
    }
    if let Some(now) = now {
        with_notes(&mut *with_name(&now.backend, side)?, notes, |backend| backend.recover(&journal))?;
    }
    pending.rename_to(&journal)?;
    Ok(SwitchOutcome::RolledBack)
}

/// Ends the old backend and then begins the new one, which needs a hook of the old one. If the new one fails,
/// begins the old one again.
fn break_before_make(
    new: &mut dyn Backend,
    policy: &Policy,
    before: &Record<Value>,
    server: ServerCommand,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let side = new.side();
    let (mut old, policy_before) = recorded_backend(before, &side, server)?;
    with_notes(&mut *with_name(&before.backend, &side)?, notes, |old| old.remove())?;
    let Err(error) = new.apply(policy) else { return Ok(()) };
    notes.extend_from_slice(new.notes());
    let error = Box::new(error);
    let (device, backend) = (side.device, before.backend.clone());
    match with_notes(&mut *old, notes, |old| old.apply(&policy_before)) {
        Ok(()) => Err(Error::RolledBack { device, backend, error }),
        Err(again) => Err(Error::WithoutPolicy { device, backend, error, again: Box::new(again) }),
    }
}

/// Returns the backend of a record, with the options that it had, and its policy.
fn recorded_backend(
    before: &Record<Value>,
    side: &LinkSide,
    server: ServerCommand,
) -> Result<(Box<dyn Backend>, Policy), Error> {
    let mut policy = Policy::parse(&before.policy)?;
    // the backend kept [cpu] and [io] only if its record has weights of control groups
    if before.before["weights"].as_array().is_none_or(Vec::is_empty) {
        (policy.cpu, policy.io) = (None, None);
    }
    let options = Interposed::options_of(before).filter(|_| before.backend == interposed::INTERPOSED_BACKEND);
    let backend: Box<dyn Backend> = match options {
        Some(options) => Box::new(Interposed::with_options(options, server)),
        None => with_name(&before.backend, side)?,
    };
    Ok((backend, policy))
}
