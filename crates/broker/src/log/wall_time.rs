//! The time of day, which the log stores because it outlives the monotonic clock.

use std::ops::{Add, Sub};
use unisono_linux::clock::{Duration, Instant};

/// Nanoseconds since 1970 (`CLOCK_REALTIME`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WallTime(pub u64);

impl WallTime {
    /// Returns the time of day at `moment`; `ahead` is the lead of the time of day over the monotonic clock.
    #[must_use]
    pub fn at(moment: Instant, ahead: Duration) -> Self {
        Self((moment + ahead).as_nanos())
    }
}

impl Add<Duration> for WallTime {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(length.as_nanos()))
    }
}

/// Zero if the subtracted time is later, as after a clock was set back.
impl Sub for WallTime {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
