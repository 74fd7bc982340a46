//! The specification of a barrier: its size, algorithm and wait policy.

use crate::algorithm::Algorithm;
use crate::error::Error;
use crate::recommended::{RecommendedLoad, recommended};
use unisono_sync::{SpinBudget, Wait};

/// A specification of a barrier, from which a [`Group`](crate::Group) is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    pub(crate) participants: usize,
    pub(crate) capacity: usize,
    pub(crate) algorithm: Algorithm,
    pub(crate) wait: Wait,
    pub(crate) spin_budget: SpinBudget,
}

impl GroupSpec {
    /// The largest number of participants: more than any host has processors. The lines of this many members
    /// take about a megabyte of memory, and their count fits into 13 bits of a lock word of `unisono-rma`.
    pub const MAX_PARTICIPANTS: usize = 4096;

    /// Specifies a barrier with the [`recommended`] algorithm for the CPUs that this thread may use. It waits
    /// adaptively, with a spin budget of 50 us. Fails with [`Error::NoParticipants`], [`Error::TooMany`].
    pub fn new(participants: usize) -> Result<Self, Error> {
        let algorithm = recommended(participants, cpus(), RecommendedLoad::Unknown).algorithm;
        Self::with_algorithm(participants, algorithm)
    }

    /// Specifies a barrier as [`new`](Self::new) does, but with a given algorithm; it then need not read the
    /// files from which the CPUs are counted. Fails with [`Error::NoParticipants`], [`Error::TooMany`].
    pub fn with_algorithm(participants: usize, algorithm: Algorithm) -> Result<Self, Error> {
        let max = Self::MAX_PARTICIPANTS;
        match participants {
            0 => Err(Error::NoParticipants),
            wanted if wanted > max => Err(Error::TooMany { wanted, max }),
            participants => Ok(Self {
                participants,
                capacity: participants,
                algorithm,
                wait: Wait::Adaptive,
                spin_budget: SpinBudget::DEFAULT,
            }),
        }
    }

    #[must_use]
    pub const fn algorithm(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }

    #[must_use]
    pub const fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// Sets the longest spin of the wait policies that spin and then sleep.
    #[must_use]
    pub const fn spin_budget(self, spin_budget: SpinBudget) -> Self {
        Self { spin_budget, ..self }
    }

    /// Sets the number of places, with room for members that join later. Places are never reused, so count
    /// every member that ever joins. Fails with [`Error::TooMany`].
    pub fn capacity(self, capacity: usize) -> Result<Self, Error> {
        if capacity > Self::MAX_PARTICIPANTS {
            return Err(Error::TooMany { wanted: capacity, max: Self::MAX_PARTICIPANTS });
        }
        Ok(Self { capacity: capacity.max(self.participants), ..self })
    }
}

/// Returns the number of CPUs that this thread may use.
fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
