//! The lifetime of an offer: twice the recent time of a copy by the kernel.
//!
//! A target that copies through the kernel itself comes back to the library within that time, and takes the
//! offer. If offers stand shorter than a copy lasts, two members keep missing each other's offers: each makes
//! one in 33 epochs, and the other is in the kernel meanwhile. The copy's time depends on the processor, on
//! the kernel's mitigations of processor vulnerabilities, and on a hypervisor, so it is measured here: each
//! revoked offer is followed by such a copy.
//!
//! Four lock-put-unlock by each of two pinned ranks, on a machine whose kernel takes 1.4 to 2.9 us for 16
//! bytes, against a fixed time of 2 us (and offers of ring entries alone): 16 B 0.45 times as long (95 %
//! interval 0.23 to 0.80, n = 14; 1.2 to 1.7 us), 1 KB 0.42 (0.27 to 0.77, n = 14), 256 KB 0.73 (0.50 to
//! 0.80, n = 7). (`ghost --pin 0,1 --only lock --windows created --seconds 0.1`; MPICH 4.0, 256 KB Open MPI
//! 4.1; interleaved; AMD EPYC, Linux 6.18.)
//!
//! Cost: two readings of the clock after an offer in vain. When not to use: where the origin has to wait for
//! the target in any case.

use unisono_linux::clock::Nanos;

/// The assumed time of a short copy before the first measurement, and the lower bound. (16 B: 1.0 to 1.4 us,
/// AMD EPYC, Linux 6.18.)
const SHORT_COPY: Nanos = Nanos(1_000);
/// The upper bound: a longer short copy was interrupted. With it an offer in vain takes 16 us, once in 33
/// epochs.
const MAX_SHORT_COPY: Nanos = Nanos(8_000);
/// The time of each further KiB before the first measurement, and the lower bound. 22 bytes a nanosecond.
const KIB: Nanos = Nanos(46);
/// The upper bound of the time of a KiB: a longer one was interrupted. 2 bytes a nanosecond.
const MAX_COPY_PER_KIB: Nanos = Nanos(500);
/// From this length on a copy shows the time of its bytes. A shorter copy shows the time of the call.
const MIN_LONG_COPY: usize = 16 << 10;

/// The measured times of the kernel's copies of puts.
#[derive(Debug)]
pub(super) struct OfferLifetime {
    short: Nanos,
    kib: Nanos,
}

impl Default for OfferLifetime {
    fn default() -> Self {
        Self { short: SHORT_COPY, kib: KIB }
    }
}

impl OfferLifetime {
    /// The lifetime of an offer of `bytes` bytes.
    #[inline]
    pub(super) fn for_bytes(&self, bytes: usize) -> Nanos {
        Nanos(2 * (self.short.0 + self.beyond_short(bytes)))
    }

    #[inline]
    fn beyond_short(&self, bytes: usize) -> u64 {
        (bytes as u64).saturating_mul(self.kib.0) / 1024
    }

    /// Learns from a copy by the kernel: its length and its time.
    pub(super) fn record_copy(&mut self, bytes: usize, time: Nanos) {
        if bytes < MIN_LONG_COPY {
            let short = time.0.saturating_sub(self.beyond_short(bytes));
            self.short = smoothed(self.short, short, SHORT_COPY, MAX_SHORT_COPY);
        } else {
            let kib = time.0.saturating_sub(self.short.0) / (bytes as u64 / 1024);
            self.kib = smoothed(self.kib, kib, KIB, MAX_COPY_PER_KIB);
        }
    }
}

/// A longer time counts at once, a shorter one by an eighth: a lifetime that is too short makes every offer
/// fail.
fn smoothed(before: Nanos, time: u64, min: Nanos, max: Nanos) -> Nanos {
    let faded = before.0 - before.0 / 8 + time / 8;
    Nanos(time.max(faded).clamp(min.0, max.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_stands_for_twice_the_time_of_the_last_copies() {
        let mut lifetime = OfferLifetime::default();
        assert_eq!(lifetime.for_bytes(16), Nanos(2_000));
        lifetime.record_copy(16, Nanos(2_900));
        assert_eq!(lifetime.for_bytes(16), Nanos(5_800), "a longer copy counts at once");
        for _ in 0..100 {
            lifetime.record_copy(16, Nanos(1_400));
        }
        let copied = lifetime.for_bytes(16).0;
        assert!((2_800..2_900).contains(&copied), "a shorter one by and by: {copied}");
        lifetime.record_copy(256 << 10, Nanos(copied / 2 + 256 * 150));
        assert_eq!(lifetime.for_bytes(16).0, copied + 4, "the time of the bytes counts for itself");
        assert_eq!(lifetime.for_bytes(512 << 10).0, copied + 2 * 512 * 150);
    }

    #[test]
    fn an_interrupted_copy_makes_no_offer_stand_for_long() {
        let mut lifetime = OfferLifetime::default();
        for bytes in [16, 512 << 10] {
            lifetime.record_copy(bytes, Nanos(400_000_000));
        }
        assert_eq!(lifetime.for_bytes(0), Nanos(16_000));
        assert_eq!(lifetime.for_bytes(512 << 10), Nanos(16_000 + 512_000));
        lifetime.record_copy(1 << 20, Nanos(0));
        assert!(lifetime.for_bytes(512 << 10) < Nanos(16_000 + 512_000));
    }
}
