//! A member of a job, by number.

use std::fmt;

/// A member of a job, from 0 to the job's size less one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl Rank {
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the rank with this index. A job has at most [`MAX_RANKS`](super::MAX_RANKS) members, so every
    /// index fits.
    pub const fn at(index: usize) -> Self {
        Self(index as u32)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
