//! The distribution of the time of barriers, in logarithmic buckets.
//!
//! There are 128 buckets for each power of two of 1/64 ns, so a quantile is right to 0.8 %, from a fraction
//! of a nanosecond to nine years. It is not a library's histogram, because the peers' `meter.h` must have the
//! same buckets for quantiles to be comparable. Cost: one count for each batch; 60 KiB, of which a run
//! touches a few cache lines.

const SUB_BITS: u32 = 7;
const SUB_BUCKETS: u64 = 1 << SUB_BITS;
const BUCKETS: usize = ((64 - SUB_BITS as usize) << SUB_BITS) + SUB_BUCKETS as usize;

/// Units per nanosecond.
const UNITS_PER_NS: f64 = 64.0;

#[derive(Clone, Debug)]
pub(crate) struct BatchHistogram {
    total: u64,
    counts: Box<[u64]>,
}

impl Default for BatchHistogram {
    fn default() -> Self {
        Self { total: 0, counts: vec![0; BUCKETS].into_boxed_slice() }
    }
}

impl BatchHistogram {
    /// Counts `weight` events of this length.
    pub(crate) fn add(&mut self, ns: f64, weight: u64) {
        self.counts[bucket((ns * UNITS_PER_NS) as u64)] += weight;
        self.total += weight;
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the length that a share `q` of the events do not exceed; 0 without events.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let rank = ((q * self.total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(bucket) / UNITS_PER_NS;
            }
        }
        0.0
    }
}

fn bucket(value: u64) -> usize {
    if value < SUB_BUCKETS {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    (u64::from(shift + 1) * SUB_BUCKETS + ((value >> shift) & (SUB_BUCKETS - 1))) as usize
}

fn middle(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < SUB_BUCKETS {
        return bucket as f64;
    }
    let shift = bucket / SUB_BUCKETS - 1;
    let within = if shift > 0 { 0.5 } else { 0.0 };
    ((SUB_BUCKETS + bucket % SUB_BUCKETS) as f64 + within) * 2f64.powi(shift as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_within_a_hundredth_of_its_buckets_middle() {
        for value in (0..60).map(|n| 1u64 << n).flat_map(|p| [p, p + p / 3, p + p / 2, 2 * p - 1]) {
            let middle = middle(bucket(value));
            assert!((middle - value as f64).abs() <= value as f64 / 100.0, "{value} -> {middle}");
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn buckets_ascend_with_their_values() {
        let buckets: Vec<usize> = (0..100_000).map(bucket).collect();
        assert!(buckets.is_sorted());
    }

    #[test]
    fn quantiles_weigh_events_by_their_number() {
        let mut histogram = BatchHistogram::default();
        histogram.add(50.0, 90);
        histogram.add(5000.0, 10);
        assert!((histogram.quantile(0.5) - 50.0).abs() < 0.5);
        assert!((histogram.quantile(0.9) - 50.0).abs() < 0.5);
        assert!((histogram.quantile(0.91) - 5000.0).abs() < 50.0);
        assert_eq!(histogram.total(), 100);
    }

    #[test]
    fn nothing_measured_has_no_median() {
        assert!(BatchHistogram::default().quantile(0.5).abs() < f64::EPSILON);
    }
}
