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
//! always has a policy. A change of the queue's [way](crate::interposed::WayName), and our scheduler in the
//! kernel, need the hook of the old backend. In these cases the device is without a policy for a moment, and
//! stays without one if the command is killed then.
//!
//! The journal is put aside by a rename, which needs no disk space. The old backend is not touched until the
//! new one holds, so it keeps its policy and options if that fails.

use super::named;
use crate::cpu::{self, Keeping};
use crate::error::Error;
use crate::interposed::{self, Interposed, ServerCommand};
use crate::journal::{Journal, LinkSide, Phase, Record};
use crate::place::EnforcingPlace;
use serde_json::Value;
use std::process::Command;
use unisono_fairqueue::{Policy, TrafficDirection};
use unisono_linux::undo::DirectoryLock;

/// Applies a policy with a backend, even if another backend is in force on the device. `server` starts a
/// queue again if that is needed. Remarks for the user are added to `notes`. On an error, the previous policy
/// is in force again unless the error says otherwise.
pub fn apply(
    place: &mut dyn EnforcingPlace,
    policy: &Policy,
    server: ServerCommand,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let side = place.side();
    let journal = Journal::of_side(&side)?;
    let Some(record) = journal.read::<Value>()?.filter(|record| place.is_barred_by(record)) else {
        return noting(place, notes, |place| place.apply(policy));
    };
    place.check(policy)?;
    let hooks = named(&record.backend, &side)?.kind().hooks;
    if place.kind().hooks.iter().any(|hook| hooks.contains(hook)) {
        one_after_the_other(place, policy, &record, server, notes)?;
    } else {
        beside(&side, &journal, &record, notes, |lock| place.begin(policy, lock))?;
    }
    notes.extend_from_slice(place.notes());
    notes.push(match place.kind().name {
        name if name == record.backend => {
            format!("the queue at {side} works otherwise now, as was asked for")
        }
        name => {
            format!("the policy of {side} was with the backend {}, and is with {name} now", record.backend)
        }
    });
    Ok(())
}

/// Applies a policy to the link and to processor time: both, or neither. `keeper` makes the command of a
/// program that keeps the shares; without it no process keeps shares of processor time for this device
/// afterwards.
pub fn apply_with_shares(
    place: &mut dyn EnforcingPlace,
    policy: &Policy,
    keeper: Option<&dyn Fn() -> Command>,
    server: ServerCommand,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let LinkSide { device, direction } = place.side();
    if direction == TrafficDirection::In {
        return apply(place, policy, server, notes);
    }
    let Some(keeper) = keeper else {
        apply(place, policy, server, notes)?;
        return cpu::of(&device)?.iter().try_for_each(cpu::end);
    };
    let keeping = Keeping::begin(&device, &policy.text, keeper, notes)?;
    let done = apply(place, &Policy { cpu: None, ..policy.clone() }, server, notes);
    if done.is_err() {
        keeping.undo(notes)?;
    }
    done
}

fn noting(
    place: &mut dyn EnforcingPlace,
    notes: &mut Vec<String>,
    work: impl FnOnce(&mut dyn EnforcingPlace) -> Result<(), Error>,
) -> Result<(), Error> {
    let done = work(place);
    notes.extend_from_slice(place.notes());
    done
}

/// Begins the new backend while the old one is in force.
fn beside(
    side: &LinkSide,
    journal: &Journal,
    before: &Record<Value>,
    notes: &mut Vec<String>,
    begin: impl FnOnce(&DirectoryLock) -> Result<(), Error>,
) -> Result<(), Error> {
    let aside = journal.aside();
    let lock = journal.lock()?;
    if journal.read::<Value>()?.is_none_or(|now| now.author != before.author) {
        return Err(Error::Meanwhile { device: side.device.clone() });
    }
    journal.become_that(&aside)?;
    let done = begin(&lock);
    drop(lock); // a queue that begins unlocks it for both
    let _lock = journal.lock()?;
    // another command may have finished the change meanwhile
    let (backend, device) = (before.backend.clone(), side.device.clone());
    match (done, finish(side, &aside, notes)) {
        (Ok(()), Ok(_)) => Ok(()),
        (Ok(()), Err(error)) => Err(Error::Beside { device, backend, error: Box::new(error) }),
        (Err(error), Ok(_)) => Err(Error::AsBefore { device, backend, error: Box::new(error) }),
        (Err(error), Err(undo)) => Err(error.unless_half_way(&device, Err(undo))),
    }
}

/// The fate of a policy whose journal was aside.
pub(crate) enum Finished {
    /// It is in force again.
    IsBack,
    /// Another backend is in force.
    HasGone,
}

/// Finishes the change that a journal aside describes. The caller must hold the journal's lock, so no other
/// command is at work.
pub(crate) fn finish(side: &LinkSide, aside: &Journal, notes: &mut Vec<String>) -> Result<Finished, Error> {
    let journal = aside.before_aside();
    let Some(before) = aside.read::<Value>()? else { return Ok(Finished::HasGone) };
    let now = journal.read::<Value>()?;
    if now.as_ref().is_some_and(|now| now.phase == Phase::Holds) {
        noting(&mut *named(&before.backend, side)?, notes, |place| place.give_way(aside))?;
        return Ok(Finished::HasGone);
    }
    if let Some(now) = now {
        noting(&mut *named(&now.backend, side)?, notes, |place| place.mend(&journal))?;
    }
    aside.become_that(&journal)?;
    Ok(Finished::IsBack)
}

/// For a new backend that needs a hook of the old one.
fn one_after_the_other(
    place: &mut dyn EnforcingPlace,
    policy: &Policy,
    before: &Record<Value>,
    server: ServerCommand,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let side = place.side();
    let (mut again, policy_before) = place_again(before, &side, server)?;
    noting(&mut *named(&before.backend, &side)?, notes, |place| place.clear())?;
    let Err(error) = place.apply(policy) else { return Ok(()) };
    notes.extend_from_slice(place.notes());
    let error = Box::new(error);
    let (device, backend) = (side.device, before.backend.clone());
    match noting(&mut *again, notes, |again| again.apply(&policy_before)) {
        Ok(()) => Err(Error::AsBefore { device, backend, error }),
        Err(again) => Err(Error::WithoutPolicy { device, backend, error, again: Box::new(again) }),
    }
}

/// The backend of a record with its own options, and its policy.
fn place_again(
    before: &Record<Value>,
    side: &LinkSide,
    server: ServerCommand,
) -> Result<(Box<dyn EnforcingPlace>, Policy), Error> {
    let mut policy = Policy::parse(&before.policy)?;
    // the record has the weights of control groups that it had set, if any
    if before.before["weights"].as_array().is_none_or(Vec::is_empty) {
        policy.cpu = None;
    }
    let options = Interposed::options_of(before).filter(|_| before.backend == interposed::NAME);
    let place: Box<dyn EnforcingPlace> = match options {
        Some(options) => Box::new(Interposed::again(options, server)),
        None => named(&before.backend, side)?,
    };
    Ok((place, policy))
}
