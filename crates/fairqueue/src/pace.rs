//! Computes when a link of a given rate is free again. Exact to the nanosecond; rounding errors do not
//! accumulate.
//!
//! If the sender slept after each packet, each wake-up that is late would lower the rate. Instead each packet
//! advances a virtual clock by the time that the link needs for it, from the moment at which the link became
//! free, even if the sender notices that moment late. The rate is exact as long as the sender is never later
//! than the allowed lateness, and a burst that catches up is no longer than that. Capacity is lost while no
//! packet waits, as on a cable. The caller decides which bytes count as the length.
//!
//! Pure logic: time is an argument.

use crate::rate::Rate;
use unisono_time::{Duration, Instant};

/// The pace of a link, or of a class with a ceiling.
///
/// ```
/// use unisono_fairqueue::{Duration, Instant, LinkPace};
///
/// let mut link = LinkPace::new("100mbit".parse()?, Duration::from_millis(1));
/// link.carry(Instant::from_millis(5), 1250); // 10,000 bits
/// assert_eq!(link.free_at(), Instant::from_micros(4100), "a process that is late by 1 ms may catch up");
/// # Ok::<(), unisono_fairqueue::RateError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LinkPace {
    rate: Rate,
    /// The maximum lateness of the sender that it may catch up on by sending faster.
    late: Duration,
    free_at: Instant,
    /// The remainder of the division that gave `free_at`: a fraction of a nanosecond, times the rate.
    remainder: u64,
}

impl LinkPace {
    /// Returns a free link whose sender may catch up on a lateness of at most `late`.
    #[must_use]
    pub const fn new(rate: Rate, late: Duration) -> Self {
        Self { rate, late, free_at: Instant::ZERO, remainder: 0 }
    }

    pub fn set_rate(&mut self, rate: Rate) {
        (self.rate, self.remainder) = (rate, 0);
    }

    #[must_use]
    pub fn free_at(&self) -> Instant {
        self.free_at
    }

    /// Records that no packet has waited until `now`, so that the link's capacity until then is lost.
    pub fn skip_until(&mut self, now: Instant) {
        if now > self.free_at {
            (self.free_at, self.remainder) = (now, 0);
        }
    }

    /// Returns the transmission time of a packet of this length, rounded down.
    #[must_use]
    pub fn time_of(&self, bytes: u32) -> Duration {
        Duration::from_nanos(bit_nanos(bytes) / self.rate.bits_per_second())
    }

    /// Charges a packet that is sent now. It counts as sent when the link became free, or, if that is later,
    /// at `now` minus the allowed lateness.
    #[inline]
    pub fn carry(&mut self, now: Instant, bytes: u32) {
        self.skip_until(now - self.late);
        let wanted = bit_nanos(bytes).saturating_add(self.remainder);
        self.free_at += Duration::from_nanos(wanted / self.rate.bits_per_second());
        self.remainder = wanted % self.rate.bits_per_second();
    }
}

/// Returns the bits of a packet times the nanoseconds of a second. Exact up to 2 GiB, more than any frame.
fn bit_nanos(bytes: u32) -> u64 {
    u64::from(bytes).saturating_mul(8 * Duration::SECOND.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX_LATENESS: Duration = Duration::from_millis(5);

    fn link(bits_per_second: u64, late: Duration) -> LinkPace {
        LinkPace::new(Rate::new(bits_per_second).expect("a positive rate"), late)
    }

    proptest! {
        #[test]
        fn a_busy_link_carries_its_rate_exactly_however_late_it_is_looked_at(
            rate in 1_000_000_u64..10_000_000_000,
            packets in prop::collection::vec((60_u32..1600, 0..MAX_LATENESS.as_nanos() / 2), 1..300),
        ) {
            let mut pace = link(rate, MAX_LATENESS);
            let (mut now, mut bits) = (Instant::ZERO, 0_u64);
            for (bytes, late) in packets {
                now = now.max(pace.free_at() + Duration::from_nanos(late));
                pace.carry(now, bytes);
                bits += u64::from(bytes) * 8;
            }
            let exact = u128::from(bits) * 1_000_000_000 / u128::from(rate);
            prop_assert_eq!(u128::from(pace.free_at().as_nanos()), exact);
        }
    }

    #[test]
    fn an_idle_link_saves_nothing_up_and_long_lateness_is_lost() {
        let mut pace = link(8_000, MAX_LATENESS);
        pace.skip_until(Instant::from_secs(5));
        pace.carry(Instant::from_secs(5), 1000);
        assert_eq!(pace.free_at(), Instant::from_secs(6));
        pace.carry(Instant::from_secs(8), 1000);
        assert_eq!(pace.free_at(), Instant::from_secs(9) - MAX_LATENESS);
        assert_eq!(pace.time_of(1000), Duration::SECOND);
    }
}
