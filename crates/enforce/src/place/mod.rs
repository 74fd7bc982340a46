//! The places by their names: which one a device's policy is in, and what they have in common.

pub mod switch;

use crate::error::Error;
use crate::interposed::{self, Counters, Interposed};
use crate::journal::{Journal, LinkSide};
use crate::kernel::{self, FairQueue, Kernel, KernelPlace};
use std::ops::{Deref, DerefMut};
use switch::Finished;
use unisono_fairqueue::{Backend, Live, TrafficDirection};

/// A device that had a policy until its processes were killed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settled {
    pub side: LinkSide,
    /// Whether it is as it was before the policy.
    pub is_as_before: bool,
    /// What there is to say.
    pub notes: Vec<String>,
}

/// Waits for what is half way on devices of this thread's network namespace, and puts back what processes
/// that were killed have left there. A device that could not be put back is among the answers, with the
/// reason.
///
/// # Errors
/// Another command does not end, or the journals cannot be read.
pub fn settle() -> Result<Vec<Settled>, Error> {
    let Some(_lock) = Journal::lock_what_is_there()? else { return Ok(Vec::new()) };
    let mut settled = Vec::new();
    for (side, aside) in Journal::all_aside()? {
        let (device, mut notes) = (&side.device, Vec::new());
        match switch::finish(&side, &aside, &mut notes) {
            Ok(Finished::IsBack) => notes.push(format!(
                "a command that was to change the place in force on {device} has ended half way; the policy before is in force"
            )),
            Ok(Finished::HasGone) => notes.push(format!(
                "took away what the place before had left on {device}; another place is in force"
            )),
            Err(error) => notes.push(format!("{device}: {error}")),
        }
        settled.push(Settled { side, is_as_before: false, notes });
    }
    for (side, journal) in Journal::all()? {
        let read = || journal.read::<serde_json::Value>();
        let Some(record) = read()? else { continue };
        let mut place = Place::named(&record.backend, &side)?;
        let mended = place.mend(&journal);
        let mut notes = place.notes().to_vec();
        if let Err(error) = &mended {
            notes.push(format!("{side}: {error}"));
        }
        let is_as_before = mended.is_ok() && read()?.is_none();
        if is_as_before || !notes.is_empty() {
            settled.push(Settled { side, is_as_before, notes });
        }
    }
    Ok(settled)
}

/// A place on one device; what all places can do is [`Backend`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Place {
    /// The kernel's own classes.
    Kernel(Kernel),
    /// A queue of our own in front of the device.
    Interposed(Interposed),
    /// The kernel with our scheduler in it.
    FairQueue(FairQueue),
}

impl Place {
    /// The place in which a device's policy is. A device that was renamed since is also found by the name
    /// that it had.
    ///
    /// # Errors
    /// It has none, or its journal cannot be read.
    pub fn of(side: &LinkSide) -> Result<Self, Error> {
        let (now, journal) = Journal::find(side)?;
        match journal.read::<serde_json::Value>()? {
            Some(record) => Self::named(&record.backend, &now),
            None => Err(Error::NoPolicy { device: side.to_string() }),
        }
    }

    pub(crate) fn named(backend: &str, side: &LinkSide) -> Result<Self, Error> {
        match (backend, side.direction) {
            (kernel::NAME, _) => Ok(Self::Kernel(Kernel::at(side.clone()))),
            (interposed::NAME, TrafficDirection::Out) => Ok(Self::Interposed(Interposed::at(&side.device))),
            (FairQueue::NAME, TrafficDirection::Out) => Ok(Self::FairQueue(FairQueue::new(&side.device))),
            (other, _) => Err(Error::OtherBackend { device: side.to_string(), backend: other.to_owned() }),
        }
    }

    /// The direction of the device that this place schedules.
    #[must_use]
    pub fn side(&self) -> LinkSide {
        LinkSide { device: self.device().to_owned(), direction: self.direction() }
    }

    /// Puts back what processes that were killed have left. Only with the journal's lock.
    pub(crate) fn mend(&mut self, journal: &Journal) -> Result<(), Error> {
        match self {
            Self::Kernel(kernel) => kernel.mend(journal),
            Self::Interposed(queue) => queue.mend(journal),
            Self::FairQueue(queue) => queue.mend(journal),
        }
    }

    /// Ends what a journal that was put aside tells of: another place is in force by now. Only with the
    /// journal's lock.
    pub(crate) fn give_way(&mut self, aside: &Journal) -> Result<(), Error> {
        match self {
            Self::Kernel(kernel) => kernel.give_way(aside),
            Self::Interposed(queue) => queue.give_way(aside),
            // its journal is never put aside
            Self::FairQueue(_) => Ok(()),
        }
    }

    /// See [`Backend::live`]; and what a place counts besides the classes, if it is one that does.
    ///
    /// # Errors
    /// As there.
    pub fn figures(&mut self) -> Result<(Live, Option<Counters>), Error> {
        match self {
            Self::Interposed(queue) => {
                let (live, counters) = queue.figures()?;
                Ok((live, Some(counters)))
            }
            other => Ok((other.live()?, None)),
        }
    }
}

impl Deref for Place {
    type Target = dyn Backend<Error = Error>;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Kernel(kernel) => kernel,
            Self::Interposed(queue) => queue,
            Self::FairQueue(queue) => queue,
        }
    }
}

impl DerefMut for Place {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Kernel(kernel) => kernel,
            Self::Interposed(queue) => queue,
            Self::FairQueue(queue) => queue,
        }
    }
}
