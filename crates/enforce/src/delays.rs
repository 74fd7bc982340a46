//! Delays of packets and requests as figures.

use unisono_fairqueue::DelayFigures;
use unisono_measure::Histogram;

/// `None` if nothing was recorded.
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
