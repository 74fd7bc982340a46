//! The basic types of gang scheduling: a gang's number and its weight.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU32;

/// A gang: threads and processes that are scheduled together. Gangs are numbered in order of arrival; a
/// number is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GangId(pub usize);

impl fmt::Display for GangId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gang {}", self.0 + 1)
    }
}

/// The user to whom the processes of a gang belong. The gangs of one user divide that user's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangOwner(pub u32);

/// Number of consecutive slices of a gang's turn (the paper's GangHi is a weight of 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GangWeight(NonZeroU32);

impl GangWeight {
    /// The default weight: one slice per turn.
    pub const ONE: GangWeight = GangWeight(NonZeroU32::MIN);
    pub const MAX: u32 = 1000;

    pub fn new(weight: u32) -> Option<GangWeight> {
        NonZeroU32::new(weight).filter(|w| w.get() <= Self::MAX).map(GangWeight)
    }

    pub fn number(self) -> u32 {
        self.0.get()
    }
}
