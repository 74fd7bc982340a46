//! Chooses the next delivery, and charges its class for the time that the delivery took.

use super::past::MAX_PIECES;
use super::{EventChannel, Receiver};
use crate::delivery::{ChannelNotice, DeliveredEvent, Delivery, Lateness};
use crate::event::{ChannelEvent, EventPayload, NO_DEADLINE};
use crate::ids::{ConsumerId, InboxId, SubscriptionId, TopicId};
use crate::inbox::{Inbox, LateEvents, Parcel};
use std::sync::Arc;
use unisono_time::{Duration, Instant};

/// The delivery in service.
#[derive(Debug)]
pub(super) struct Underway {
    inbox: InboxId,
    /// The worst-case time, which is charged to the class if the caller passes no measured time to `finish`.
    worst: Duration,
    /// The topic and the deadline of the event, if the deadline can still be missed.
    due: Option<(TopicId, Instant)>,
}

impl<P: EventPayload> EventChannel<P> {
    /// Returns the next delivery. The delivery is in service until [`finish`](Self::finish). Another call of
    /// `next` before that ends it and charges its worst-case execution time.
    pub fn next(&mut self, now: Instant) -> Option<Delivery<P>> {
        self.finish(now, None);
        self.advance(now);
        self.looks = 0;
        self.departures.begin();
        self.report_departures();
        self.read_on_beside(now);
        let mut pieces = 0;
        loop {
            let Some(inbox) = self.dispatcher.next() else {
                if pieces < MAX_PIECES && self.read_on(now) {
                    pieces += 1;
                    continue;
                }
                return None;
            };
            let arrival = self.arrival();
            let Some(receiver) = self.receivers.get_mut(&inbox) else { continue };
            let Some(at) = receiver.free_member(&self.unacknowledged, &self.paused) else { continue };
            let consumer = receiver.members.as_slice()[at];
            if receiver.members.len() > 1 {
                receiver.members.remove(at);
                receiver.members.push(consumer); // the consumers of the inbox take turns
            }
            let popped = receiver.inbox.pop(now, arrival);
            let (gaps, lost_beside) = receiver.inbox.take_gaps();
            let mut notices: Vec<_> = gaps.into_iter().map(ChannelNotice::Gap).collect();
            notices.extend((lost_beside > 0).then_some(ChannelNotice::FurtherGaps { lost: lost_beside }));
            if let Some(rare) = &mut receiver.rare {
                notices.extend(rare.notices.drain(..).map(|(_, notice)| notice));
            }
            receiver.report_departed();
            if receiver.may_read_on() {
                receiver.rare_mut().reads = true;
                self.reading.push(receiver.tenant, inbox);
            }
            let bytes = popped.as_ref().map_or(0, |(parcel, _)| parcel.bytes());
            let worst = receiver.inbox.spec.execution.for_bytes(bytes);
            let redelivery = receiver.inbox.spec.redelivery;
            let event = popped.map(|(parcel, late)| {
                let lateness = if late { Lateness::Late } else { Lateness::InTime };
                let Parcel { subscription, retained, repeated, .. } = parcel;
                let (event, with, acknowledgement) = match redelivery {
                    None => (parcel.event, parcel.with, None),
                    Some(redelivery) => {
                        let (event, with) = (Arc::clone(&parcel.event), parcel.with.clone());
                        (event, with, self.keep(now, consumer, redelivery, parcel))
                    }
                };
                DeliveredEvent { event, subscription, lateness, retained, with, acknowledgement, repeated }
            });
            self.place(inbox);
            if event.is_none() && notices.is_empty() {
                continue; // all waiting events were late, and the consumer does not want late events
            }
            let due = event.as_ref().and_then(|it| may_miss(&it.event, it.lateness, it.retained));
            self.underway = Some(Underway { inbox, worst, due });
            return Some(Delivery { consumer, notices, event });
        }
    }

    /// Returns the next delivery if it is another event for `consumer`, which got the last one. The event
    /// must come without a notice and need no acknowledgement, and its inbox must come before all others. The
    /// result equals the result of [`next`](Self::next), but takes fewer instructions. `None`: nothing has
    /// changed, and the caller calls [`next`](Self::next) instead.
    pub fn next_to_same(&mut self, now: Instant, consumer: ConsumerId) -> Option<DeliveredEvent<P>> {
        self.next_to_same_if(now, consumer, |_| true)
    }

    /// Like [`next_to_same`](Self::next_to_same), for an event whose delivery does not depend on the time:
    /// neither it nor the last event has a deadline. So `now` may be the time of an earlier delivery, as long
    /// as the caller does nothing else with the channel in between. The event completes no correlation.
    /// `None`: the caller calls [`next_to_same`](Self::next_to_same) instead.
    pub fn next_in_run(&mut self, now: Instant, consumer: ConsumerId) -> Option<DeliveredEvent<P>> {
        if self.underway.as_ref()?.due.is_some() {
            return None;
        }
        self.next_to_same_if(now, consumer, Inbox::has_plain_first)
    }

    fn next_to_same_if(
        &mut self,
        now: Instant,
        consumer: ConsumerId,
        is_wanted: impl FnOnce(&Inbox<P>) -> bool,
    ) -> Option<DeliveredEvent<P>> {
        let &Underway { inbox, worst, due } = self.underway.as_ref()?;
        let is_missed = due.is_some_and(|(_, deadline)| deadline < now);
        let receiver = self.receivers.get_mut(&inbox)?;
        let alarm = self.alarms.first().is_some_and(|at| at <= now);
        let told = self.departures.is_empty();
        if is_missed
            || alarm
            || !told
            || !receiver.has_plain_next(consumer)
            || !is_wanted(&receiver.inbox)
            || !self.dispatcher.continue_service(inbox, worst)
        {
            return None;
        }
        self.clock = self.clock.max(now);
        self.arrivals += 1;
        let (parcel, late) = receiver.inbox.pop(now, self.arrivals)?;
        receiver.report_departed();
        let becomes_idle = receiver.inbox.becomes_idle();
        let (class, after) = (receiver.class, receiver.standing_now());
        let before = std::mem::replace(&mut receiver.standing, after);
        self.dispatcher.place(class, inbox, (before, after));
        let worst = receiver.inbox.spec.execution.for_bytes(parcel.bytes());
        let lateness = if late { Lateness::Late } else { Lateness::InTime };
        let Parcel { event, subscription, retained, with, repeated } = parcel;
        self.underway = Some(Underway { inbox, worst, due: may_miss(&event, lateness, retained) });
        if becomes_idle {
            self.list_idle(inbox);
        }
        Some(DeliveredEvent {
            event,
            subscription,
            lateness,
            retained,
            with,
            acknowledgement: None,
            repeated,
        })
    }

    /// Puts an event into the inbox of one consumer or its group, whatever its subscriptions. If `retained`
    /// is true, the event's deadline no longer counts. Returns false if the consumer does not exist.
    pub fn enqueue(
        &mut self,
        now: Instant,
        consumer: ConsumerId,
        event: ChannelEvent<P>,
        retained: bool,
    ) -> bool {
        let Some(inbox) = self.consumers.get(&consumer).map(|member| member.inbox) else { return false };
        let arrival = self.arrival();
        let Some(receiver) = self.receivers.get_mut(&inbox) else { return false };
        // number 0 stands for no subscription: the channel's own numbers begin at 1
        let parcel = Parcel { retained, ..Parcel::new(self.spare_events.hold(event), SubscriptionId(0)) };
        receiver.last_event = now;
        receiver.inbox.push(now, arrival, parcel);
        self.place(inbox);
        true
    }

    /// Ends the last delivery. Its class is charged `took`, or the worst case if the time was not measured. A
    /// deadline that has passed in the meantime is counted as missed.
    pub fn finish(&mut self, now: Instant, took: Option<Duration>) {
        let Some(Underway { inbox, worst, due }) = self.underway.take() else { return };
        self.dispatcher.finish(took.unwrap_or(worst));
        if let Some((topic, deadline)) = due
            && deadline < now
            && let Some(receiver) = self.receivers.get_mut(&inbox)
        {
            receiver.inbox.count_missed_in_service(topic);
        }
    }
}

impl<P: EventPayload> Receiver<P> {
    /// Queues the notices of departed suppliers once their last events have been delivered. Such a notice
    /// must not come with the last event itself, because the notices of a delivery precede its event.
    fn report_departed(&mut self) {
        if self.inbox.has_departed() {
            let gone = |(topic, supplier, why)| (NO_DEADLINE, ChannelNotice::Gone { topic, supplier, why });
            let notices: Vec<_> = self.inbox.departed().map(gone).collect();
            self.rare_mut().notices.extend(notices);
        }
    }

    /// Returns whether the next delivery is an event without notices for `consumer`, and needs no
    /// acknowledgement.
    fn has_plain_next(&self, consumer: ConsumerId) -> bool {
        let spec = &self.inbox.spec;
        self.standing.is_some()
            && self.members.as_slice() == [consumer]
            && !self.has_notices()
            && self.readers() == 0
            && spec.redelivery.is_none()
            && spec.late == LateEvents::Deliver
            && self.inbox.len() > 0
            && !self.inbox.has_gaps()
    }
}

/// Returns the topic and the deadline of an event if it may still miss its deadline while it is delivered.
fn may_miss<P>(event: &ChannelEvent<P>, lateness: Lateness, retained: bool) -> Option<(TopicId, Instant)> {
    let may_miss = lateness == Lateness::InTime && !retained && event.deadline != NO_DEADLINE;
    may_miss.then_some((event.topic, event.deadline))
}
