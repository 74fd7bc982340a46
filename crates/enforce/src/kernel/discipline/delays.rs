//! Histograms of packets' delays, in buckets whose width grows with the delay.
//!
//! From 2^9 ns on, each doubling of the delay has four buckets, so a quantile is at most a quarter too long.
//! The BPF program counts, one histogram for each class (`count_delay` in fairqueue.bpf.c); this module reads
//! and adds the histograms.

/// The same values as in `fairqueue.bpf.c`.
const MIN_DELAY_LOG2: u32 = 9;
const BUCKETS: usize = 96;
/// Bytes of a histogram.
pub(super) const SIZE: usize = BUCKETS * size_of::<u64>();

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DelayHistogram([u64; BUCKETS]);

impl Default for DelayHistogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl DelayHistogram {
    pub(super) fn read(bytes: &[u8]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let mut counts = [0; BUCKETS];
        counts.iter_mut().zip(words).for_each(|(count, word)| *count = u64::from_ne_bytes(*word));
        Self(counts)
    }

    /// Returns an upper bound, in nanoseconds, of the delays of this part of all packets, or `None` if there
    /// were no packets. Delays beyond the last bucket are not distinguished.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let all: u64 = self.0.iter().sum();
        let mut left = (all as f64 * part).ceil().max(1.0);
        let at = self.0.iter().position(|count| {
            left -= *count as f64;
            left <= 0.0
        })?;
        let at = at as u64 + 1; // the bound is the start of the next bucket
        Some((4 + at % 4) << (u64::from(MIN_DELAY_LOG2) - 2 + at / 4))
    }
}

impl std::ops::AddAssign<&Self> for DelayHistogram {
    fn add_assign(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(count, more)| *count += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_counts(counts: &[(usize, u64)]) -> DelayHistogram {
        let mut delays = DelayHistogram::default();
        counts.iter().for_each(|(at, count)| delays.0[*at] = *count);
        delays
    }

    #[test]
    fn a_part_of_all_packets_waited_at_most_as_long_as_its_bucket_says() {
        assert_eq!(DelayHistogram::default().quantile(0.5), None);
        assert_eq!(from_counts(&[(0, 1)]).quantile(0.5), Some(640), "512 ns and a quarter");
        assert_eq!(from_counts(&[(3, 7)]).quantile(0.99), Some(1024));
        assert_eq!(from_counts(&[(4, 7)]).quantile(0.99), Some(1280));
        let skewed = from_counts(&[(8, 98), (40, 2)]);
        assert_eq!(skewed.quantile(0.5), Some(2560));
        assert_eq!(skewed.quantile(0.98), Some(2560));
        assert_eq!(skewed.quantile(0.99), Some((1 << 19) * 5 / 4), "2 of 100 are longer");
    }

    #[test]
    fn what_is_counted_twice_is_read_and_added() {
        let mut bytes = vec![0; SIZE];
        bytes[8..16].copy_from_slice(&3_u64.to_ne_bytes());
        let mut delays = DelayHistogram::read(&bytes);
        delays += &from_counts(&[(1, 2), (95, 1)]);
        assert_eq!(delays, from_counts(&[(1, 5), (95, 1)]));
    }
}
