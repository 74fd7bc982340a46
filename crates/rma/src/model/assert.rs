//! Asserts: promises of the caller at a synchronization call that let the call do less.
//!
//! Reference: MPI-4.0 section 12.5.5; the paper, section 1 (its fence example) and 4.2 (no check).

use std::fmt;
use std::ops::BitOr;

/// A set of promises. A broken promise makes the result undefined, as the standard says; where a check is
/// cheap, a broken promise is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assert(u8);

impl Assert {
    pub const NONE: Self = Self(0);
    /// Start: every target has called post before. Post: no origin calls start before the post returns. Lock:
    /// no other rank holds or asks for a lock that excludes this one.
    pub const NO_CHECK: Self = Self(1);
    /// Fence, post: this rank has not stored into its own part since the last synchronization.
    pub const NO_STORE: Self = Self(2);
    /// Fence, post: no rank puts or accumulates into this rank's part until the next synchronization.
    pub const NO_PUT: Self = Self(4);
    /// Fence: this rank has issued no operation since the last fence. Either all ranks make this promise, or
    /// none.
    pub const NO_PRECEDE: Self = Self(8);
    /// Fence: this rank issues no operation before the next fence. Either all ranks make this promise, or
    /// none.
    pub const NO_SUCCEED: Self = Self(16);

    pub(crate) const ANY_FENCE: Self = Self(2 | 4 | 8 | 16);
    pub(crate) const ANY_POST: Self = Self(1 | 2 | 4);

    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the promises of `self` that are not among `allowed`.
    #[inline]
    #[must_use]
    pub const fn beyond(self, allowed: Self) -> Self {
        Self(self.0 & !allowed.0)
    }

    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Assert {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Assert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::NO_CHECK, "NO_CHECK"),
            (Self::NO_STORE, "NO_STORE"),
            (Self::NO_PUT, "NO_PUT"),
            (Self::NO_PRECEDE, "NO_PRECEDE"),
            (Self::NO_SUCCEED, "NO_SUCCEED"),
        ];
        let set: Vec<_> = names.into_iter().filter(|(bit, _)| self.has(*bit)).map(|(_, name)| name).collect();
        f.write_str(&set.join(" | "))
    }
}
