//! What kind of barrier to make.

use crate::algorithm::Algorithm;
use crate::error::Error;
use crate::recommended::{RecommendedLoad, recommended};
use unisono_sync::{SpinBudget, Wait};

/// A description of a barrier, to be turned into a [`Group`](crate::Group).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    pub(crate) participants: usize,
    pub(crate) capacity: usize,
    pub(crate) algorithm: Algorithm,
    pub(crate) wait: Wait,
    pub(crate) spin_budget: SpinBudget,
}

impl GroupSpec {
    /// The most participants a group can have: more than any host has processors. The lines of as many
    /// members take about a megabyte of memory, and a count of them fits into 13 bits of a lock word of
    /// `unisono-rma`.
    pub const MAX_PARTICIPANTS: usize = 4096;

    /// A barrier as [`recommended`] for the CPUs this thread may use: waiting adaptively, with 50 us to spin.
    /// Fails with [`Error::NoParticipants`], [`Error::TooMany`].
    pub fn new(participants: usize) -> Result<Self, Error> {
        let algorithm = recommended(participants, cpus(), RecommendedLoad::Unknown).algorithm;
        Self::with_algorithm(participants, algorithm)
    }

    /// As [`new`](Self::new), with a known algorithm. Counting the CPUs reads several files. Fails with
    /// [`Error::NoParticipants`], [`Error::TooMany`].
    pub fn with_algorithm(participants: usize, algorithm: Algorithm) -> Result<Self, Error> {
        let most = Self::MAX_PARTICIPANTS;
        match participants {
            0 => Err(Error::NoParticipants),
            wanted if wanted > most => Err(Error::TooMany { wanted, most }),
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

    /// Spinning at most so long where the wait policy spins and sleeps.
    #[must_use]
    pub const fn spin_budget(self, spin_budget: SpinBudget) -> Self {
        Self { spin_budget, ..self }
    }

    /// With room for members who join later: places are never reused, so count everyone who ever joins. Fails
    /// with [`Error::TooMany`].
    pub fn capacity(self, capacity: usize) -> Result<Self, Error> {
        if capacity > Self::MAX_PARTICIPANTS {
            return Err(Error::TooMany { wanted: capacity, most: Self::MAX_PARTICIPANTS });
        }
        Ok(Self { capacity: capacity.max(self.participants), ..self })
    }
}

/// How many CPUs this thread may use.
fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
