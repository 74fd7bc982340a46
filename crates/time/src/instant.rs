//! A moment.

use crate::duration::Duration;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A moment on a monotonic clock, in nanoseconds since an origin that all its users share. On Linux that is
/// `CLOCK_MONOTONIC`; a simulation begins at [`Instant::ZERO`]. All operators saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Instant(u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// A moment later than every other; it stands for a deadline that does not exist.
    pub const NEVER: Self = Self(u64::MAX);

    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    #[inline]
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1000))
    }

    #[inline]
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    #[inline]
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Returns the number of nanoseconds since the origin of the clock.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the number of whole microseconds since the origin of the clock, rounded down.
    #[inline]
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1000
    }

    /// Returns the time from `earlier` to `self`, or `None` if `earlier` is later.
    #[inline]
    #[must_use]
    pub fn checked_since(self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }

    /// Returns the length of time between two moments, whichever is later.
    #[inline]
    #[must_use]
    pub const fn abs_diff(self, other: Self) -> Duration {
        Duration::from_nanos(self.0.abs_diff(other.0))
    }
}

/// [`Instant::NEVER`] stays never.
impl Add<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(length.as_nanos()))
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, length: Duration) {
        *self = *self + length;
    }
}

/// The result is [`Instant::ZERO`] if the length reaches before the origin; [`Instant::NEVER`] stays never.
impl Sub<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn sub(self, length: Duration) -> Self {
        if self == Self::NEVER { self } else { Self(self.0.saturating_sub(length.as_nanos())) }
    }
}

impl SubAssign<Duration> for Instant {
    #[inline]
    fn sub_assign(&mut self, length: Duration) {
        *self = *self - length;
    }
}

/// The time is zero if the subtracted moment is later; [`Instant::checked_since`] tells the cases apart.
impl Sub for Instant {
    type Output = Duration;

    #[inline]
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_leads_from_one_moment_to_another_and_back() {
        let (start, length) = (Instant::from_millis(3), Duration::from_micros(250));
        assert_eq!((start + length) - start, length);
        assert_eq!((start + length) - length, start);
        assert_eq!(start.abs_diff(start + length), length);
        let mut moment = start;
        moment += length;
        moment -= length;
        assert_eq!(moment, start);
    }

    #[test]
    fn the_time_since_a_later_moment_is_zero_and_can_be_told_apart() {
        let (early, late) = (Instant::from_nanos(5), Instant::from_nanos(7));
        assert_eq!(early - late, Duration::ZERO);
        assert_eq!(early.checked_since(late), None);
        assert_eq!(late.checked_since(early), Some(Duration::from_nanos(2)));
        assert_eq!(early.checked_since(early), Some(Duration::ZERO));
    }

    #[test]
    fn never_stays_never() {
        assert_eq!(Instant::NEVER + Duration::SECOND, Instant::NEVER);
        assert_eq!(Instant::NEVER - Duration::SECOND, Instant::NEVER);
        assert_eq!(Instant::from_nanos(5) + Duration::MAX, Instant::NEVER);
        assert_eq!(Instant::from_nanos(5) - Duration::SECOND, Instant::ZERO);
        assert!(Instant::from_secs(u64::MAX / 2) >= Instant::NEVER);
    }

    #[test]
    fn units_of_moments_are_those_of_lengths() {
        assert_eq!(Instant::from_secs(2) - Instant::ZERO, Duration::from_secs(2));
        assert_eq!(Instant::from_millis(2) - Instant::ZERO, Duration::from_millis(2));
        assert_eq!(Instant::from_micros(2).as_nanos(), 2000);
        assert_eq!(Instant::from_nanos(2999).as_micros(), 2);
    }
}
