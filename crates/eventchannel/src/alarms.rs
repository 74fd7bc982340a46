//! The channel's own deadlines: the end of a lease, a redelivery, a timer, the timeout of a correlation.
//!
//! The alarms are a sorted set of times. An alarm that has become stale stays in the set, and the channel
//! recognizes it as stale when it is due. So the renewal of a lease needs no change of the set.

use crate::ids::TimerId;
use crate::ids::{ConsumerId, CorrelationId, InboxId, SupplierId};
use std::collections::BTreeSet;
use unisono_time::Instant;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ChannelAlarm {
    SupplierLease(SupplierId),
    ConsumerLease(ConsumerId),
    /// A delivery that has not been acknowledged.
    Redelivery(ConsumerId, u64),
    /// An inbox without consumers reaches the end of its linger time.
    Linger(InboxId),
    Timer(TimerId),
    Correlation(CorrelationId),
}

#[derive(Debug, Default)]
pub(crate) struct Alarms {
    set: BTreeSet<(Instant, ChannelAlarm)>,
}

impl Alarms {
    pub(crate) fn set(&mut self, at: Instant, alarm: ChannelAlarm) {
        self.set.insert((at, alarm));
    }

    pub(crate) fn clear(&mut self, at: Instant, alarm: ChannelAlarm) {
        self.set.remove(&(at, alarm));
    }

    pub(crate) fn first(&self) -> Option<Instant> {
        self.set.first().map(|(at, _)| *at)
    }

    /// Removes and returns the earliest alarm that is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<(Instant, ChannelAlarm)> {
        let first = *self.set.first()?;
        (first.0 <= now).then(|| {
            self.set.remove(&first);
            first
        })
    }
}
