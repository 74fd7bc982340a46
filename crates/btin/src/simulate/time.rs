//! Simulated time, in picoseconds: fine enough for a third of a switch delay, and whole, so that runs are
//! the same everywhere.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// A point in simulated time, or a stretch of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SimulatedTime(u64);

impl SimulatedTime {
    pub const ZERO: Self = Self(0);

    /// So many picoseconds.
    #[must_use]
    pub const fn picoseconds(ps: u64) -> Self {
        Self(ps)
    }

    /// So many nanoseconds.
    #[must_use]
    pub const fn nanoseconds(ns: u64) -> Self {
        Self(ns * 1_000)
    }

    /// So many microseconds.
    #[must_use]
    pub const fn microseconds(us: u64) -> Self {
        Self(us * 1_000_000)
    }

    #[must_use]
    pub const fn as_picoseconds(self) -> u64 {
        self.0
    }

    /// In microseconds, for reading.
    #[must_use]
    pub fn as_us(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The time until now since `earlier`, or nothing if that lies ahead.
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

impl AddAssign for SimulatedTime {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
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
