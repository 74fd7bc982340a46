//! The lifetime of an offer: twice the recent time of a copy by the kernel.
//!
//! A target that copies through the kernel itself returns to the library within that time, and claims the
//! offer. If offers are revoked sooner than a copy lasts, two members keep missing each other's offers: each
//! makes an offer in one of 33 epochs, and the other is in the kernel meanwhile. The copy's time depends on
//! the processor, on the kernel's mitigations of processor vulnerabilities, and on a hypervisor, so it is
//! measured here: each revoked offer is followed by such a copy.
//!
//! Measured with four lock-put-unlock sequences by each of two pinned ranks, on a machine whose kernel takes
//! 1.4 to 2.9 us for 16 bytes. Compared with a fixed lifetime of 2 us (and with offers of ring entries only),
//! puts of 16 B took 0.45 times as long (95 % interval 0.23 to 0.80, n = 14; 1.2 to 1.7 us), of 1 KB 0.42
//! times (0.27 to 0.77, n = 14), of 256 KB 0.73 times (0.50 to 0.80, n = 7). (`ghost --pin 0,1 --only lock
//! --windows created --seconds 0.1`; MPICH 4.0, 256 KB Open MPI 4.1; interleaved; AMD EPYC, Linux 6.18.)
//!
//! Cost: two readings of the clock after an offer in vain. When not to use: where the origin has to wait for
//! the target in any case.

use unisono_linux::clock::Duration;

/// The assumed time of a short copy before the first measurement, and the lower bound. (16 B: 1.0 to 1.4 us,
/// AMD EPYC, Linux 6.18.)
const SHORT_COPY: Duration = Duration::from_micros(1);
/// The upper bound: a short copy that took longer was interrupted. With this bound an offer in vain takes 16
/// us, once in 33 epochs.
const MAX_SHORT_COPY: Duration = Duration::from_micros(8);
/// The time of each further KiB before the first measurement, and the lower bound. 22 bytes a nanosecond.
const KIB: Duration = Duration::from_nanos(46);
/// The upper bound of the time of a KiB: a copy that took longer was interrupted. 2 bytes a nanosecond.
const MAX_COPY_PER_KIB: Duration = Duration::from_nanos(500);
/// A copy of at least this length measures the time of its bytes. A shorter copy measures the time of the
/// call.
const MIN_LONG_COPY: usize = 16 << 10;

/// The measured times of the kernel's copies of puts.
#[derive(Debug)]
pub(super) struct OfferLifetime {
    short: Duration,
    kib: Duration,
}

impl Default for OfferLifetime {
    fn default() -> Self {
        Self { short: SHORT_COPY, kib: KIB }
    }
}

impl OfferLifetime {
    /// Returns the lifetime of an offer of `bytes` bytes.
    #[inline]
    pub(super) fn for_bytes(&self, bytes: usize) -> Duration {
        (self.short + self.beyond_short(bytes)) * 2
    }

    #[inline]
    fn beyond_short(&self, bytes: usize) -> Duration {
        self.kib * (bytes as u64) / 1024
    }

    /// Updates the measured times by the length and the time of a copy by the kernel.
    pub(super) fn record_copy(&mut self, bytes: usize, time: Duration) {
        if bytes < MIN_LONG_COPY {
            let short = time - self.beyond_short(bytes);
            self.short = smoothed(self.short, short, SHORT_COPY, MAX_SHORT_COPY);
        } else {
            let kib = (time - self.short) / (bytes as u64 / 1024);
            self.kib = smoothed(self.kib, kib, KIB, MAX_COPY_PER_KIB);
        }
    }
}

/// Adopts a longer time at once and a shorter one by an eighth, because a lifetime that is too short makes
/// every offer fail.
fn smoothed(before: Duration, time: Duration, min: Duration, max: Duration) -> Duration {
    let faded = before - before / 8 + time / 8;
    time.max(faded).clamp(min, max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_stands_for_twice_the_time_of_the_last_copies() {
        let mut lifetime = OfferLifetime::default();
        assert_eq!(lifetime.for_bytes(16), Duration::from_micros(2));
        lifetime.record_copy(16, Duration::from_nanos(2_900));
        assert_eq!(lifetime.for_bytes(16), Duration::from_nanos(5_800), "a longer copy counts at once");
        for _ in 0..100 {
            lifetime.record_copy(16, Duration::from_nanos(1_400));
        }
        let copied = lifetime.for_bytes(16);
        let shorter = Duration::from_nanos(2_800)..Duration::from_nanos(2_900);
        assert!(shorter.contains(&copied), "a shorter one by and by: {copied}");
        lifetime.record_copy(256 << 10, copied / 2 + Duration::from_nanos(256 * 150));
        assert_eq!(
            lifetime.for_bytes(16),
            copied + Duration::from_nanos(4),
            "the time of the bytes counts for itself"
        );
        assert_eq!(lifetime.for_bytes(512 << 10), copied + Duration::from_nanos(2 * 512 * 150));
    }

    #[test]
    fn an_interrupted_copy_makes_no_offer_stand_for_long() {
        let mut lifetime = OfferLifetime::default();
        for bytes in [16, 512 << 10] {
            lifetime.record_copy(bytes, Duration::from_millis(400));
        }
        assert_eq!(lifetime.for_bytes(0), Duration::from_micros(16));
        assert_eq!(lifetime.for_bytes(512 << 10), Duration::from_micros(16 + 512));
        lifetime.record_copy(1 << 20, Duration::ZERO);
        assert!(lifetime.for_bytes(512 << 10) < Duration::from_micros(16 + 512));
    }
}
