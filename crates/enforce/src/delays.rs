//! Converts histograms of the delays of packets and requests into figures.

use unisono_fairqueue::DelayFigures;
use unisono_measure::Histogram;

/// Returns the figures of a histogram, or `None` if it is empty.
pub(crate) fn figures(delays: &Histogram) -> Option<DelayFigures> {
    let distribution = delays.distribution(1.0)?;
    let nanos = |value: f64| value.max(0.0) as u64;
    Some(DelayFigures {
        // the histogram counts a delay of 0 ns (reading and sending in the same turn) as 1 ns
        min_ns: if distribution.min <= 1.0 { 0 } else { nanos(distribution.min) },
        median_ns: nanos(distribution.median),
        mean_ns: nanos(delays.mean()),
        p99_ns: nanos(distribution.p99),
        max_ns: nanos(distribution.max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_did_not_wait_waited_for_0_ns() {
        let mut delays = Histogram::coarse();
        assert!(figures(&delays).is_none());
        [0, 5_000_000].into_iter().for_each(|nanos| delays.record_nanos(nanos));
        assert_eq!(figures(&delays).map(|figures| figures.min_ns), Some(0));
    }
}
