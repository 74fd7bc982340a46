//! The words of gang scheduling as types: a gang, its weight, its width, time.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// A gang: threads and processes that are scheduled together. Numbers are given in order of arrival and
/// not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GangId(pub usize);

impl fmt::Display for GangId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gang {}", self.0 + 1)
    }
}

/// How many slices in a row a gang gets when its turn comes (the paper's GangHi is a weight of 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(NonZeroU32);

impl Weight {
    /// The weight of a gang that nobody favours.
    pub const ONE: Weight = Weight(NonZeroU32::MIN);
    /// The largest weight.
    pub const MAX: u32 = 1000;

    /// A weight from 1 to [`Weight::MAX`].
    #[must_use]
    pub fn new(weight: u32) -> Option<Weight> {
        NonZeroU32::new(weight).filter(|w| w.get() <= Self::MAX).map(Weight)
    }

    #[must_use]
    pub fn number(self) -> u32 {
        self.0.get()
    }
}

/// A point in time or a length of time, in nanoseconds of a clock that the caller chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// This much later.
    #[must_use]
    pub fn plus(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }

    /// The time since `earlier`, or zero.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// So many times this length.
    #[must_use]
    pub fn times(self, factor: u64) -> Nanos {
        Nanos(self.0.saturating_mul(factor))
    }
}

impl From<Duration> for Nanos {
    fn from(time: Duration) -> Self {
        Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(time: Nanos) -> Self {
        Duration::from_nanos(time.0)
    }
}
