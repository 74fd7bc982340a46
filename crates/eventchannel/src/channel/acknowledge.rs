//! Delivery at least once: an event that is not acknowledged in time is delivered again.
//!
//! The channel keeps an event that it has delivered until the consumer acknowledges it. If that takes too
//! long, or the consumer leaves, the event returns to the inbox. Then another consumer of the group may get
//! it. Events that are delivered again may come in another order.
//!
//! A consumer with as many bytes unacknowledged as its queue may hold is delivered nothing more, as one with
//! a full window. One event beyond may be among them, because its size is known when it is delivered.

use super::{AttachedConsumer, EventChannel};
use crate::alarms::ChannelAlarm;
use crate::event::EventPayload;
use crate::ids::{ConsumerId, InboxId};
use crate::inbox::{Parcel, Redelivery};
use std::sync::Arc;
use unisono_linux::clock::Nanos;

/// What became of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledged {
    /// The event is done with.
    Done,
    /// It was acknowledged before, never delivered, or is to be delivered again because the acknowledgement
    /// came too late.
    Unknown,
}

impl<P: EventPayload> AttachedConsumer<P> {
    /// A delivery is not outstanding any more.
    fn returned(&mut self, parcel: &Parcel<P>) {
        self.outstanding_bytes -= parcel.memory();
        if self.oversize.holds(Some(Arc::as_ptr(&parcel.event).addr())) {
            self.oversize.let_go();
        }
    }
}

impl<P: EventPayload> EventChannel<P> {
    /// A consumer has done with an event; the number is that of the delivery.
    pub fn acknowledge(&mut self, consumer: ConsumerId, number: u64) -> Acknowledged {
        let Some(member) = self.consumers.get_mut(&consumer) else { return Acknowledged::Unknown };
        let Some((again, parcel)) = member.outstanding.remove(&number) else { return Acknowledged::Unknown };
        member.returned(&parcel);
        let inbox = member.inbox;
        self.alarms.clear(again, ChannelAlarm::Redelivery(consumer, number));
        self.place(inbox);
        Acknowledged::Done
    }

    /// How many deliveries a consumer has not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self, consumer: ConsumerId) -> usize {
        self.consumers.get(&consumer).map_or(0, |member| member.outstanding.len())
    }

    /// About how many bytes the deliveries take that a consumer has not acknowledged.
    #[must_use]
    pub fn unacknowledged_bytes(&self, consumer: ConsumerId) -> usize {
        self.consumers.get(&consumer).map_or(0, |member| member.outstanding_bytes)
    }

    /// Keeps what is delivered until it is acknowledged; answers its number.
    pub(super) fn keep(
        &mut self,
        now: Nanos,
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
            // it was counted while it waited, and nothing was since
            let _ = member.oversize.hold((Arc::as_ptr(&parcel.event).addr(), weight));
        }
        let again = redelivery.after.after(now);
        member.outstanding.insert(member.delivered, (again, parcel));
        self.alarms.set(again, ChannelAlarm::Redelivery(consumer, member.delivered));
        Some(member.delivered)
    }

    /// A delivery was not acknowledged in time.
    pub(super) fn repeat(&mut self, now: Nanos, consumer: ConsumerId, number: u64) {
        let Some(member) = self.consumers.get_mut(&consumer) else { return };
        let inbox = member.inbox;
        if let Some((_, parcel)) = member.outstanding.remove(&number) {
            member.returned(&parcel);
            self.give_back(now, inbox, parcel);
        }
    }

    /// An event that was not acknowledged goes back to its inbox.
    pub(super) fn give_back(&mut self, now: Nanos, inbox: InboxId, parcel: Parcel<P>) {
        let arrival = self.arrival();
        if let Some(receiver) = self.receivers.get_mut(&inbox) {
            receiver.inbox.push_again(now, arrival, parcel);
        }
        self.place(inbox);
    }
}
