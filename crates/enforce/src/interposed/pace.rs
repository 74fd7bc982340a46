//! When a link of a given rate is free again. Exact to the nanosecond, and errors do not add up.
//!
//! A pause after each packet would add this process's lateness to every packet. Instead each packet occupies
//! a virtual clock for its length, from the moment the link was free, even if this process sees that moment
//! late. The rate is exact as long as the process is never later than [`Pacer::PATIENCE`]. Capacity of
//! moments in which nothing waits is lost, as on a cable. The caller decides what counts as the length; here,
//! as with HTB, it is the whole frame with its Ethernet header, without preamble, checksum and gap.
//!
//! Pure: time is an argument, in nanoseconds.

/// A link, or a class with a ceiling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    bits_per_second: u64,
    free_at: u64,
    /// Remainder of the division that gave `free_at`: the part of a nanosecond, times the rate.
    remainder: u64,
}

impl Pacer {
    /// Up to this lateness (ns) is made up for by sending faster.
    pub(crate) const PATIENCE: u64 = 5_000_000;

    pub(crate) fn new(bits_per_second: u64) -> Self {
        Self { bits_per_second: bits_per_second.max(1), free_at: 0, remainder: 0 }
    }

    pub(crate) fn set_rate(&mut self, bits_per_second: u64) {
        (self.bits_per_second, self.remainder) = (bits_per_second.max(1), 0);
    }

    pub(crate) fn free_at(&self) -> u64 {
        self.free_at
    }

    /// Nothing waited until now: that capacity is lost.
    pub(crate) fn rest_until(&mut self, now: u64) {
        if now > self.free_at {
            (self.free_at, self.remainder) = (now, 0);
        }
    }

    /// A packet is sent now, or would have been when the link became free.
    pub(crate) fn carry(&mut self, now: u64, bytes: u32) {
        self.rest_until(now.saturating_sub(Self::PATIENCE));
        let wanted = u64::from(bytes) * 8 * 1_000_000_000 + self.remainder;
        self.free_at += wanted / self.bits_per_second;
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
            packets in prop::collection::vec((60_u32..1600, 0..Pacer::PATIENCE / 2), 1..300),
        ) {
            let mut pacer = Pacer::new(rate);
            let (mut now, mut bits) = (0, 0_u64);
            for (bytes, late) in packets {
                now = now.max(pacer.free_at() + late);
                pacer.carry(now, bytes);
                bits += u64::from(bytes) * 8;
            }
            let exact = u128::from(bits) * 1_000_000_000 / u128::from(rate);
            prop_assert_eq!(u128::from(pacer.free_at()), exact);
        }
    }

    #[test]
    fn an_idle_link_saves_nothing_up_and_long_lateness_is_lost() {
        let mut pacer = Pacer::new(8_000);
        pacer.rest_until(5_000_000_000);
        pacer.carry(5_000_000_000, 1000);
        assert_eq!(pacer.free_at(), 6_000_000_000);
        pacer.carry(8_000_000_000, 1000);
        assert_eq!(pacer.free_at(), 9_000_000_000 - Pacer::PATIENCE);
    }
}
