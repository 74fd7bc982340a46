//! Simulated time in whole picoseconds: fine enough for a third of a switch delay, and the same on every
//! host.

use std::iter::Sum;
use std::ops::{Add, Div, Mul, Sub};

/// A point in simulated time, or a duration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SimulatedTime(u64);

impl SimulatedTime {
    pub const ZERO: Self = Self(0);

    pub const fn picoseconds(ps: u64) -> Self {
        Self(ps)
    }

    pub const fn nanoseconds(ns: u64) -> Self {
        Self(ns * 1_000)
    }

    pub const fn microseconds(us: u64) -> Self {
        Self(us * 1_000_000)
    }

    pub const fn as_picoseconds(self) -> u64 {
        self.0
    }

    pub fn as_us(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the time since `earlier`; zero if `earlier` is later than this.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for SimulatedTime {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for SimulatedTime {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul<u64> for SimulatedTime {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0 * times)
    }
}

impl Div<u64> for SimulatedTime {
    type Output = Self;
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl Sum for SimulatedTime {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::ZERO, Add::add)
    }
}
