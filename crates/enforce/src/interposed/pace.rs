//! When a link of a given rate is free again. Exact to the nanosecond, and errors do not add up.
//!
//! A pause after each packet would add this process's lateness to every packet. Instead each packet occupies
//! a virtual clock for its length, from the moment the link was free, even if this process sees that moment
//! late. The rate is exact as long as the process is never later than [`Pacer::PATIENCE`]. Capacity of
//! moments in which nothing waits is lost, as on a cable. The caller decides what counts as the length; here,
//! as with HTB, it is the whole frame with its Ethernet header, without preamble, checksum and gap.
//!
//! Pure: time is an argument.

use unisono_linux::clock::Nanos;

/// A link, or a class with a ceiling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    bits_per_second: u64,
    free_at: Nanos,
    /// Remainder of the division that gave `free_at`: the part of a nanosecond, times the rate.
    remainder: u64,
}

impl Pacer {
    /// Up to this lateness is made up for by sending faster.
    pub(crate) const PATIENCE: Nanos = Nanos(5_000_000);

    pub(crate) fn new(bits_per_second: u64) -> Self {
        Self { bits_per_second: bits_per_second.max(1), free_at: Nanos::ZERO, remainder: 0 }
    }

    pub(crate) fn set_rate(&mut self, bits_per_second: u64) {
        (self.bits_per_second, self.remainder) = (bits_per_second.max(1), 0);
    }

    pub(crate) fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// Nothing waited until now: that capacity is lost.
    pub(crate) fn rest_until(&mut self, now: Nanos) {
        if now > self.free_at {
            (self.free_at, self.remainder) = (now, 0);
        }
    }

    /// A packet is sent now, or would have been when the link became free.
    pub(crate) fn carry(&mut self, now: Nanos, bytes: u32) {
        self.rest_until(now.since(Self::PATIENCE));
        let wanted = u64::from(bytes) * 8 * 1_000_000_000 + self.remainder;
        self.free_at += Nanos(wanted / self.bits_per_second);
        self.remainder = wanted % self.bits_per_second;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_busy_link_carries_its_rate_exactly_however_late_it_is_looked_at(
            rate in 1_000_000_u64..10_000_000_000,
            packets in prop::collection::vec((60_u32..1600, 0..Pacer::PATIENCE.0 / 2), 1..300),
        ) {
            let mut pacer = Pacer::new(rate);
            let (mut now, mut bits) = (Nanos::ZERO, 0_u64);
            for (bytes, late) in packets {
                now = now.max(Nanos(late).after(pacer.free_at()));
                pacer.carry(now, bytes);
                bits += u64::from(bytes) * 8;
            }
            let exact = u128::from(bits) * 1_000_000_000 / u128::from(rate);
            prop_assert_eq!(u128::from(pacer.free_at().0), exact);
        }
    }

    #[test]
    fn an_idle_link_saves_nothing_up_and_long_lateness_is_lost() {
        let mut pacer = Pacer::new(8_000);
        pacer.rest_until(Nanos::SECOND.times(5));
        pacer.carry(Nanos::SECOND.times(5), 1000);
        assert_eq!(pacer.free_at(), Nanos::SECOND.times(6));
        pacer.carry(Nanos::SECOND.times(8), 1000);
        assert_eq!(pacer.free_at(), Nanos::SECOND.times(9).since(Pacer::PATIENCE));
    }
}
