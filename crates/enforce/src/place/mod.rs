//! The places by name: which one a device's policy is in, and what they have in common.

pub mod switch;

use crate::error::Error;
use crate::interposed::{self, Counters, Interposed};
use crate::journal::{Journal, LinkSide};
use crate::kernel::{self, FairQueue, Kernel, KernelPlace};
use std::ops::{Deref, DerefMut};
use switch::Finished;
use unisono_fairqueue::{Backend, Live, TrafficDirection};

/// A device whose policy ended because its processes were killed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settled {
    pub side: LinkSide,
    /// Whether it is as it was before the policy.
    pub is_as_before: bool,
    pub notes: Vec<String>,
}

/// Waits for unfinished changes on devices of this thread's network namespace, and restores what killed
/// processes have left. A device that could not be restored is among the answers, with the reason.
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
    Kernel(Kernel),
    Interposed(Interposed),
    FairQueue(FairQueue),
}

impl Place {
    /// The place that a device's policy is in. A device that was renamed is also found by its old name.
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

    pub fn side(&self) -> LinkSide {
        LinkSide { device: self.device().to_owned(), direction: self.direction() }
    }

    /// Restores what killed processes have left. The caller must hold the journal's lock.
    pub(crate) fn mend(&mut self, journal: &Journal) -> Result<(), Error> {
        match self {
            Self::Kernel(kernel) => kernel.mend(journal),
            Self::Interposed(queue) => queue.mend(journal),
            Self::FairQueue(queue) => queue.mend(journal),
        }
    }

    /// Ends what a journal that was put aside describes, because another place is in force now. The caller
    /// must hold the journal's lock.
    pub(crate) fn give_way(&mut self, aside: &Journal) -> Result<(), Error> {
        match self {
            Self::Kernel(kernel) => kernel.give_way(aside),
            Self::Interposed(queue) => queue.give_way(aside),
            // its journal is never put aside
            Self::FairQueue(_) => Ok(()),
        }
    }

    /// See [`Backend::live`]; with what the place counts besides the classes, if it counts anything.
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
