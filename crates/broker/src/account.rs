//! The traffic of a class on paths.

use unisono_events_wire::DelayDistribution;
use unisono_linux::clock::Instant;
use unisono_measure::histogram::Histogram;

/// Counters of a leaf class.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    pub(crate) late: u64,
    delay: Histogram,
}

impl Account {
    pub(crate) fn sent(&mut self, now: Instant, came: Instant, deadline: Instant, bytes: u32) {
        self.messages += 1;
        self.bytes += u64::from(bytes);
        self.late += u64::from(now > deadline);
        self.delay.record_nanos((now - came).as_nanos());
    }

    /// Returns the microseconds from arrival to sending.
    pub(crate) fn delay_us(&self) -> Option<DelayDistribution> {
        let delay = self.delay.distribution(1e3)?;
        Some(DelayDistribution {
            n: delay.n,
            min: delay.min,
            p25: delay.p25,
            median: delay.median,
            p75: delay.p75,
            p99: delay.p99,
            max: delay.max,
        })
    }
}
