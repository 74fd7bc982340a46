//! When the channel next has something to do without being asked: leases, redeliveries, timers, correlations
//! that run out.
//!
//! A sorted set; an alarm that no longer means anything is found out when it is due, so that renewing a lease
//! costs nothing here.

use crate::ids::TimerId;
use crate::ids::{ConsumerId, CorrelationId, InboxId, SupplierId};
use std::collections::BTreeSet;
use unisono_linux::clock::Nanos;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ChannelAlarm {
    SupplierLease(SupplierId),
    ConsumerLease(ConsumerId),
    /// A delivery that has not been acknowledged.
    Redelivery(ConsumerId, u64),
    /// An inbox without consumers.
    Linger(InboxId),
    Timer(TimerId),
    Correlation(CorrelationId),
}

#[derive(Debug, Default)]
pub(crate) struct Alarms {
    set: BTreeSet<(Nanos, ChannelAlarm)>,
}

impl Alarms {
    pub(crate) fn set(&mut self, at: Nanos, alarm: ChannelAlarm) {
        self.set.insert((at, alarm));
    }

    pub(crate) fn clear(&mut self, at: Nanos, alarm: ChannelAlarm) {
        self.set.remove(&(at, alarm));
    }

    pub(crate) fn first(&self) -> Option<Nanos> {
        self.set.first().map(|(at, _)| *at)
    }

    /// An alarm that is due, the earliest first.
    pub(crate) fn due(&mut self, now: Nanos) -> Option<(Nanos, ChannelAlarm)> {
        let first = *self.set.first()?;
        (first.0 <= now).then(|| {
            self.set.remove(&first);
            first
        })
    }
}
