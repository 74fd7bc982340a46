//! At-least-once delivery: an event that is not acknowledged in time is delivered again.
//!
//! The channel keeps a delivered event until the consumer acknowledges it. After the timeout, or when the
//! consumer leaves, the event returns to the inbox, and another consumer of the group may get it. Redelivered
//! events may arrive out of order.
//!
//! A consumer gets no further event while its window is full, or while its unacknowledged events take as many
//! bytes as its queue may hold. One event may exceed this bound of bytes, because the size is known only at
//! delivery.

use super::EventChannel;
use crate::alarms::ChannelAlarm;
use crate::event::EventPayload;
use crate::ids::{ConsumerId, InboxId};
use crate::inbox::{Parcel, Redelivery};
use crate::oversize::OversizeShare;
use std::collections::BTreeMap;
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

/// The deliveries to a consumer that were not acknowledged yet.
#[derive(Debug)]
pub(super) struct Unacknowledged<P> {
    /// By number, each with the time of its redelivery.
    pub(super) parcels: BTreeMap<u64, (Instant, Parcel<P>)>,
    /// Approximate bytes of `parcels`.
    pub(super) bytes: usize,
    /// The event that is larger than the queue, if any.
    oversize: OversizeShare,
    /// The number of the last delivery.
    delivered: u64,
}

impl<P: EventPayload> Unacknowledged<P> {
    fn take(&mut self, number: u64) -> Option<(Instant, Parcel<P>)> {
        let (again, parcel) = self.parcels.remove(&number)?;
        self.bytes -= parcel.memory();
        if self.oversize.holds(Some(Arc::as_ptr(&parcel.event).addr())) {
            self.oversize.release();
        }
        Some((again, parcel))
    }
}

impl<P: EventPayload> EventChannel<P> {
    /// Acknowledges the delivery with this number for a consumer.
    pub fn acknowledge(&mut self, consumer: ConsumerId, number: u64) -> Acknowledged {
        let Some((again, _, inbox)) = self.take_unacknowledged(consumer, number) else {
            return Acknowledged::Unknown;
        };
        self.alarms.clear(again, ChannelAlarm::Redelivery(consumer, number));
        self.place(inbox);
        Acknowledged::Done
    }

    /// Returns the number of unacknowledged deliveries of a consumer.
    #[must_use]
    pub fn unacknowledged(&self, consumer: ConsumerId) -> usize {
        self.unacknowledged.get(&consumer).map_or(0, |those| those.parcels.len())
    }

    /// Returns the approximate bytes of a consumer's unacknowledged deliveries.
    #[must_use]
    pub fn unacknowledged_bytes(&self, consumer: ConsumerId) -> usize {
        self.unacknowledged.get(&consumer).map_or(0, |those| those.bytes)
    }

    /// Takes a delivery out; returns the time of its redelivery, and its inbox.
    fn take_unacknowledged(
        &mut self,
        consumer: ConsumerId,
        number: u64,
    ) -> Option<(Instant, Parcel<P>, InboxId)> {
        let inbox = self.consumers.get(&consumer)?.inbox;
        let (again, parcel) = self.unacknowledged.get_mut(&consumer)?.take(number)?;
        Some((again, parcel, inbox))
    }

    /// Stores a delivery until it is acknowledged. Returns its number.
    pub(super) fn keep(
        &mut self,
        now: Instant,
        consumer: ConsumerId,
        redelivery: Redelivery,
        parcel: Parcel<P>,
    ) -> Option<u64> {
        let member = self.consumers.get(&consumer)?;
        let capacity =
            self.receivers.get(&member.inbox).map_or(usize::MAX, |it| it.inbox.spec.capacity.bytes);
        let tenants = &mut self.tenants;
        let kept = self.unacknowledged.entry(consumer).or_insert_with(|| {
            let oversize = OversizeShare::new(tenants.oversize(member.tenant));
            Unacknowledged { parcels: BTreeMap::new(), bytes: 0, oversize, delivered: 0 }
        });
        kept.delivered += 1;
        kept.bytes += parcel.memory();
        let weight = parcel.weight();
        if weight > capacity {
            // this cannot fail: the event was counted while it waited, and no other oversize event has been
            // counted since
            let _ = kept.oversize.hold((Arc::as_ptr(&parcel.event).addr(), weight));
        }
        let again = now + redelivery.after;
        kept.parcels.insert(kept.delivered, (again, parcel));
        self.alarms.set(again, ChannelAlarm::Redelivery(consumer, kept.delivered));
        Some(kept.delivered)
    }

    /// Handles the expiry of a delivery's acknowledgement timeout.
    pub(super) fn repeat(&mut self, now: Instant, consumer: ConsumerId, number: u64) {
        if let Some((_, parcel, inbox)) = self.take_unacknowledged(consumer, number) {
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
