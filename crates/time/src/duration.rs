//! A length of time.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// A length of time in nanoseconds. Half the size of `core::time::Duration`; all operators saturate.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Duration(u64);

impl Duration {
    pub const ZERO: Self = Self(0);
    pub const SECOND: Self = Self(1_000_000_000);
    /// The longest length, which stands for no limit.
    pub const MAX: Self = Self(u64::MAX);

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

    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the number of whole microseconds, rounded down.
    #[inline]
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1000
    }

    /// Returns the number of whole milliseconds, rounded down.
    #[inline]
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    #[inline]
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    #[inline]
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns the difference of two lengths, whichever is longer.
    #[inline]
    #[must_use]
    pub const fn abs_diff(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }
}

impl Add for Duration {
    type Output = Self;

    #[inline]
    fn add(self, more: Self) -> Self {
        Self(self.0.saturating_add(more.0))
    }
}

impl AddAssign for Duration {
    #[inline]
    fn add_assign(&mut self, more: Self) {
        *self = *self + more;
    }
}

/// The difference is zero if the subtracted length is longer.
impl Sub for Duration {
    type Output = Self;

    #[inline]
    fn sub(self, less: Self) -> Self {
        Self(self.0.saturating_sub(less.0))
    }
}

impl SubAssign for Duration {
    #[inline]
    fn sub_assign(&mut self, less: Self) {
        *self = *self - less;
    }
}

impl Mul<u64> for Duration {
    type Output = Self;

    #[inline]
    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

/// Rounds down; panics if the divisor is zero.
impl Div<u64> for Duration {
    type Output = Self;

    #[inline]
    fn div(self, divisor: u64) -> Self {
        Self(self.0 / divisor)
    }
}

impl Sum for Duration {
    #[inline]
    fn sum<I: Iterator<Item = Self>>(lengths: I) -> Self {
        lengths.fold(Self::ZERO, Add::add)
    }
}

/// A length of more than 584 years becomes [`Duration::MAX`].
impl From<core::time::Duration> for Duration {
    #[inline]
    fn from(length: core::time::Duration) -> Self {
        Self(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Duration> for core::time::Duration {
    #[inline]
    fn from(length: Duration) -> Self {
        Self::from_nanos(length.0)
    }
}

/// Writes the length in the largest unit that fits, as `1.5ms`.
impl fmt::Display for Duration {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&core::time::Duration::from(*self), f)
    }
}

impl fmt::Debug for Duration {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    #[test]
    fn units_convert_exactly_or_round_down() {
        assert_eq!(Duration::from_secs(3), Duration::from_millis(3000));
        assert_eq!(Duration::from_millis(3), Duration::from_micros(3000));
        assert_eq!(Duration::from_micros(3), Duration::from_nanos(3000));
        assert_eq!(Duration::from_nanos(1_999_999).as_millis(), 1);
        assert_eq!(Duration::from_nanos(1_999).as_micros(), 1);
        assert!((Duration::from_millis(1500).as_secs_f64() - 1.5).abs() < 1e-9);
    }

    #[test]
    fn every_operator_saturates() {
        let long = Duration::from_nanos(u64::MAX - 1);
        assert_eq!(long + Duration::SECOND, Duration::MAX);
        assert_eq!(long * 2, Duration::MAX);
        assert_eq!(Duration::ZERO - long, Duration::ZERO);
        assert_eq!([long, long].into_iter().sum::<Duration>(), Duration::MAX);
        assert_eq!(Duration::from_secs(u64::MAX), Duration::MAX);
        assert_eq!(Duration::from(core::time::Duration::MAX), Duration::MAX);
        let mut length = Duration::SECOND;
        length += long;
        assert_eq!(length, Duration::MAX);
        length -= Duration::MAX;
        assert!(length.is_zero());
    }

    #[test]
    fn differences_and_quotients_are_plain_arithmetic() {
        let (short, long) = (Duration::from_micros(2), Duration::from_micros(7));
        assert_eq!(long - short, Duration::from_micros(5));
        assert_eq!(short.abs_diff(long), long.abs_diff(short));
        assert_eq!(long / 2, Duration::from_nanos(3500));
    }

    #[test]
    fn a_length_is_written_with_its_unit_and_width() {
        assert_eq!(Duration::from_micros(1500).to_string(), "1.5ms");
        assert_eq!(std::format!("{:>6?}", Duration::from_nanos(20)), "  20ns");
    }

    #[test]
    fn the_standard_type_converts_both_ways() {
        let length = core::time::Duration::from_millis(20);
        assert_eq!(core::time::Duration::from(Duration::from(length)), length);
    }
}
