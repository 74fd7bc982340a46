//! When a link of a given rate is free again, to the nanosecond and without error that adds up.
//!
//! The idea: not a pause after each packet, which would add every lateness of this process to the packet, but
//! a virtual clock: each packet occupies the link for its length, from when the link was free, even if this
//! process comes late to see it. The rate is exact as long as it is never later than [`Pacer::PATIENCE`];
//! what a link does not carry while nothing waits is lost, as on a cable. What a packet's length is, the
//! caller says; here, as with HTB, the whole frame with its Ethernet header, without preamble, checksum and
//! gap.
//!
//! Pure: time is an argument, in nanoseconds.

/// A link, or a class that may not have more than so much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    bits_per_second: u64,
    free_at: u64,
    /// Of the division that `free_at` came from: the part of a nanosecond, times the rate.
    remainder: u64,
}

impl Pacer {
    /// Lateness up to here is made up for by sending faster.
    pub(crate) const PATIENCE: u64 = 5_000_000;

    pub(crate) fn new(bits_per_second: u64) -> Self {
        Self { bits_per_second: bits_per_second.max(1), free_at: 0, remainder: 0 }
    }

    /// From now on another rate.
    pub(crate) fn set_rate(&mut self, bits_per_second: u64) {
        (self.bits_per_second, self.remainder) = (bits_per_second.max(1), 0);
    }

    /// When it is free.
    pub(crate) fn free_at(&self) -> u64 {
        self.free_at
    }

    /// Nothing was to be sent until now: what was not carried is lost.
    pub(crate) fn rest_until(&mut self, now: u64) {
        if now > self.free_at {
            (self.free_at, self.remainder) = (now, 0);
        }
    }

    /// A packet is sent now, or should have been since it was free.
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
