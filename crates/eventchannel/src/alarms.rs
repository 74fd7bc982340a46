//! When the channel next has to act by itself: when a lease ends, an event must be delivered again, a timer
//! rings, or a correlation runs out of time.
//!
//! A sorted set of times. An alarm that no longer means anything stays in it; the channel notices that when
//! the alarm is due. So renewing a lease costs nothing here.

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
