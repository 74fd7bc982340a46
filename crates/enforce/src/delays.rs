//! Converts histograms of the delays of packets and requests into figures.

use unisono_fairqueue::DelayFigures;
use unisono_measure::Histogram;

/// Returns the figures of a histogram, or `None` if it is empty.
pub(crate) fn figures(delays: &Histogram) -> Option<DelayFigures> {
    let distribution = delays.distribution(1.0)?;
    let nanos = |value: f64| value.max(0.0) as u64;
    Some(DelayFigures {
        min_ns: nanos(distribution.min),
        median_ns: nanos(distribution.median),
        mean_ns: nanos(delays.mean()),
        p99_ns: nanos(distribution.p99),
        max_ns: nanos(distribution.max),
    })
}
