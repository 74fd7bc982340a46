//! The places by their names: which one a device's policy is in, and what they have in common.

use crate::error::Error;
use crate::interposed::{self, Counters, Interposed};
use crate::journal::Journal;
use crate::kernel::{self, FairQueue, Kernel};
use unisono_fairqueue::{Backend, Live, Policy};

/// A place on one device.
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
    /// The place in which a device's policy is.
    ///
    /// # Errors
    /// It has none, or its journal cannot be read.
    pub fn of(device: &str) -> Result<Self, Error> {
        let record = Journal::of(device)?.read::<serde_json::Value>()?;
        match record.as_ref().map(|record| record.backend.as_str()) {
            Some(kernel::NAME) => Ok(Self::Kernel(Kernel::new(device))),
            Some(interposed::NAME) => Ok(Self::Interposed(Interposed::at(device))),
            Some(FairQueue::NAME) => Ok(Self::FairQueue(FairQueue::new(device))),
            Some(other) => Err(Error::OtherBackend { device: device.to_owned(), backend: other.to_owned() }),
            None => Err(Error::NoPolicy { device: device.to_owned() }),
        }
    }

    fn backend(&mut self) -> &mut dyn Backend<Error = Error> {
        match self {
            Self::Kernel(kernel) => kernel,
            Self::Interposed(queue) => queue,
            Self::FairQueue(queue) => queue,
        }
    }

    /// Checks a policy against this host, and changes nothing.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn check(&mut self, policy: &Policy) -> Result<(), Error> {
        match self {
            Self::Kernel(kernel) => kernel.check(policy),
            Self::Interposed(queue) => queue.check(policy),
            Self::FairQueue(queue) => queue.check(policy),
        }
    }

    /// What the last call has to say besides its result.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        match self {
            Self::Kernel(kernel) => kernel.notes(),
            Self::Interposed(queue) => queue.notes(),
            Self::FairQueue(queue) => queue.notes(),
        }
    }

    /// See [`Backend::apply`].
    ///
    /// # Errors
    /// As there.
    pub fn apply(&mut self, policy: &Policy) -> Result<(), Error> {
        self.backend().apply(policy)
    }

    /// See [`Backend::live`].
    ///
    /// # Errors
    /// As there.
    pub fn live(&mut self) -> Result<Live, Error> {
        self.backend().live()
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

    /// See [`Backend::clear`].
    ///
    /// # Errors
    /// As there.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.backend().clear()
    }
}
