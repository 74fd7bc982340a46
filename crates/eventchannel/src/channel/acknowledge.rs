//! At-least-once delivery: an event that is not acknowledged in time is delivered again.
//!
//! The channel keeps a delivered event until the consumer acknowledges it. After the timeout, or when the
//! consumer leaves, the event returns to the inbox, and another consumer of the group may get it. Redelivered
//! events may arrive out of order.
//!
//! A consumer gets no further event while its window is full, or while its unacknowledged events take as many
//! bytes as its queue may hold. One event may exceed this bound of bytes, because the size is known only at
//! delivery.

use super::{AttachedConsumer, EventChannel};
use crate::alarms::ChannelAlarm;
use crate::event::EventPayload;
use crate::ids::{ConsumerId, InboxId};
use crate::inbox::{Parcel, Redelivery};
use std::sync::Arc;
use unisono_time::Instant;

/// Result of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledged {
    /// The event is acknowledged and removed.
    Done,
    /// The delivery was acknowledged before, never existed, or timed out. If it timed out, the event is
    /// delivered again.
    Unknown,
}

impl<P: EventPayload> AttachedConsumer<P> {
    /// Updates the counts after a delivery is no longer outstanding.
    fn returned(&mut self, parcel: &Parcel<P>) {
        self.outstanding_bytes -= parcel.memory();
        if self.oversize.holds(Some(Arc::as_ptr(&parcel.event).addr())) {
            self.oversize.release();
        }
    }
}

impl<P: EventPayload> EventChannel<P> {
    /// Acknowledges the delivery with this number for a consumer.
    pub fn acknowledge(&mut self, consumer: ConsumerId, number: u64) -> Acknowledged {
        let Some(member) = self.consumers.get_mut(&consumer) else { return Acknowledged::Unknown };
        let Some((again, parcel)) = member.outstanding.remove(&number) else { return Acknowledged::Unknown };
        member.returned(&parcel);
        let inbox = member.inbox;
        self.alarms.clear(again, ChannelAlarm::Redelivery(consumer, number));
        self.place(inbox);
        Acknowledged::Done
    }

    /// Returns the number of unacknowledged deliveries of a consumer.
    #[must_use]
    pub fn unacknowledged(&self, consumer: ConsumerId) -> usize {
        self.consumers.get(&consumer).map_or(0, |member| member.outstanding.len())
    }

    /// Returns the approximate bytes of a consumer's unacknowledged deliveries.
    #[must_use]
    pub fn unacknowledged_bytes(&self, consumer: ConsumerId) -> usize {
        self.consumers.get(&consumer).map_or(0, |member| member.outstanding_bytes)
    }

    /// Stores a delivery until it is acknowledged. Returns its number.
    pub(super) fn keep(
        &mut self,
        now: Instant,
        consumer: ConsumerId,
        redelivery: Redelivery,
        parcel: Parcel<P>,
    ) -> Option<u64> {
        let member = self.consumers.get_mut(&consumer)?;
        let capacity =
            self.receivers.get(&member.inbox).map_or(usize::MAX, |it| it.inbox.spec.capacity.bytes);
        member.delivered += 1;
        member.outstanding_bytes += parcel.memory();
        let weight = parcel.weight();
        if weight > capacity {
            // this cannot fail: the event was counted while it waited, and no other oversize event has been
            // counted since
            let _ = member.oversize.hold((Arc::as_ptr(&parcel.event).addr(), weight));
        }
        let again = now + redelivery.after;
        member.outstanding.insert(member.delivered, (again, parcel));
        self.alarms.set(again, ChannelAlarm::Redelivery(consumer, member.delivered));
        Some(member.delivered)
    }

    /// Handles the expiry of a delivery's acknowledgement timeout.
    pub(super) fn repeat(&mut self, now: Instant, consumer: ConsumerId, number: u64) {
        let Some(member) = self.consumers.get_mut(&consumer) else { return };
        let inbox = member.inbox;
        if let Some((_, parcel)) = member.outstanding.remove(&number) {
            member.returned(&parcel);
            self.requeue(now, inbox, parcel);
        }
    }

    /// Puts an unacknowledged event back into its inbox.
    pub(super) fn requeue(&mut self, now: Instant, inbox: InboxId, parcel: Parcel<P>) {
        let arrival = self.arrival();
        if let Some(receiver) = self.receivers.get_mut(&inbox) {
            receiver.inbox.push_again(now, arrival, parcel);
        }
        self.place(inbox);
    }
}
