//! A moment or a length in one type.

use core::ops::AddAssign;

/// Nanoseconds: a duration, or a point in time on `CLOCK_MONOTONIC` (on another clock where a name says so).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Nanos(pub u64);

impl Nanos {
    pub const ZERO: Self = Self(0);
    pub const SECOND: Self = Self(1_000_000_000);
    /// Later than every point in time, longer than every wait.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point in time `self` after `start`, saturating: [`NEVER`](Self::NEVER) stays never.
    #[must_use]
    pub const fn after(self, start: Self) -> Self {
        Self(start.0.saturating_add(self.0))
    }

    /// This duration times `factor`, saturating.
    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// The time from `start` to `self`; zero if `start` is later.
    #[must_use]
    pub const fn since(self, start: Self) -> Self {
        Self(self.0.saturating_sub(start.0))
    }

    /// The absolute difference of two points in time or of two durations.
    #[must_use]
    pub const fn apart(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }
}

/// Saturating, as all arithmetic here.
impl AddAssign for Nanos {
    fn add_assign(&mut self, more: Self) {
        *self = more.after(*self);
    }
}

impl From<core::time::Duration> for Nanos {
    fn from(length: core::time::Duration) -> Self {
        Self(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for core::time::Duration {
    fn from(length: Nanos) -> Self {
        Self::from_nanos(length.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forever_saturates_instead_of_wrapping() {
        assert_eq!(Nanos(u64::MAX).after(Nanos(5)), Nanos(u64::MAX));
        assert_eq!(Nanos(3).since(Nanos(5)), Nanos::ZERO);
        assert_eq!(Nanos(u64::MAX / 2).times(3), Nanos::NEVER);
        assert_eq!(Nanos::from(core::time::Duration::MAX), Nanos::NEVER);
    }
}
