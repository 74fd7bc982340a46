//! Publishes events: checks an event, finds the matching subscriptions, and puts the event into the inbox of
//! each consumer that asked for it.
//!
//! Either all of these inboxes take the event or none does. Before the channel puts the event into the first
//! inbox, it checks whether any of them blocks.

use super::{ChannelLimits, Destined, EventChannel, OfferState, WORK_STEPS};
use crate::error::PublishError;
use crate::event::{ChannelEvent, EventPayload, NO_DEADLINE, Publication, Retention};
use crate::ids::{CorrelationId, InboxId, SubscriptionId, SupplierId, TopicId};
use crate::inbox::{Gap, GapCause, Parcel};
use crate::kept::{KeptCharge, cost};
use crate::quality::{EventOrigin, Offer, RateMeter};
use std::sync::Arc;
use unisono_time::Instant;

/// The outcome of a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Published {
    /// The event is in the inboxes of `inboxes` consumers and groups.
    Taken { sequence: u64, inboxes: usize },
    /// Another supplier owns the exclusive topic: a stronger one, or an equally strong one with an earlier
    /// offer. No consumer gets the event.
    Standby { sequence: u64 },
    /// An event with this number or a later one has been published before; no consumer gets this event.
    Duplicate { last: u64 },
}

/// A search for subscriptions that need not be repeated for further events of its topic, as long as no
/// subscription comes or goes and no topic gets another type. It has met no filter, so its result does not
/// depend on the event's fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReusableSearch {
    topic: TopicId,
    /// The value of `audiences` at the search.
    audiences: u64,
    /// The number of patterns that were compared.
    compared: usize,
}

/// The decision of an offer on a publication.
enum Admission {
    /// The event may be published. `meter` is the state of the offer's rate meter after the publication.
    Admitted { sequence: u64, deadline: Instant, meter: RateMeter },
    /// An event with this number or a later one has been published before.
    Duplicate,
}

impl OfferState {
    /// Checks a publication against the channel's limits and the offer's deadline, numbers and rate.
    fn admit<P: EventPayload>(
        &self,
        now: Instant,
        limits: &ChannelLimits,
        publication: &Publication<P>,
    ) -> Result<Admission, PublishError> {
        let (bytes, fields) = (publication.payload.length(), publication.fields.len());
        if bytes > limits.payload {
            return Err(PublishError::TooLarge { bytes, most: limits.payload });
        }
        if fields > limits.fields {
            return Err(PublishError::TooManyFields { fields, most: limits.fields });
        }
        let offered = self.offer.deadline.map_or(NO_DEADLINE, |deadline| now + deadline);
        let deadline = publication.deadline.unwrap_or(NO_DEADLINE).min(offered);
        if deadline < now {
            return Err(PublishError::PastDeadline { by: now - deadline });
        }
        let sequence = publication.sequence.unwrap_or_else(|| self.sequence.saturating_add(1));
        if sequence <= self.sequence && publication.sequence.is_some() {
            return Ok(Admission::Duplicate);
        }
        if sequence <= self.sequence {
            return Err(PublishError::NumbersUsedUp);
        }
        let mut meter = self.meter;
        if let Some(rate) = self.offer.rate {
            meter.admit(now, rate).map_err(|until| PublishError::TooFast { after: until - now })?;
        }
        Ok(Admission::Admitted { sequence, deadline, meter })
    }
}

impl<P: EventPayload> EventChannel<P> {
    /// Publishes an event of a supplier on a topic.
    ///
    /// # Errors
    /// The error names the cause, or the inbox that refused the event. In this case no consumer has got the
    /// event, and the supplier may publish it again.
    pub fn try_publish(
        &mut self,
        now: Instant,
        supplier: SupplierId,
        topic: TopicId,
        publication: Publication<P>,
    ) -> Result<Published, PublishError> {
        self.try_publish_kept(now, supplier, topic, publication, |_, _| Ok(()))
    }

    /// Like [`try_publish`](Self::try_publish), for events that have to be stored elsewhere before a consumer
    /// gets them. `keep` is called after all other checks have passed, with the subscriptions that match.
    ///
    /// # Errors
    /// The errors of [`try_publish`](Self::try_publish), and [`PublishError::NotKept`] with the reason of
    /// `keep`.
    pub fn try_publish_kept(
        &mut self,
        now: Instant,
        supplier: SupplierId,
        topic: TopicId,
        publication: Publication<P>,
        keep: impl FnOnce(&mut ChannelEvent<P>, &[SubscriptionId]) -> Result<(), String>,
    ) -> Result<Published, PublishError> {
        if !self.departures.is_empty() {
            self.report_departures_from(topic);
        }
        let state = self.suppliers.get_mut(&supplier).ok_or(PublishError::NotOffered)?;
        if let Some(lease) = &mut state.lease {
            lease.renewed = now;
        }
        let state = state.offers.get_mut(&topic).ok_or(PublishError::NotOffered)?;
        let Some(at) = self.topics.get_mut(&topic) else { return Err(PublishError::NotOffered) };
        let (last, bytes) = (state.sequence, publication.payload.length());
        let (sequence, deadline, meter) = match state.admit(now, &self.limits, &publication)? {
            Admission::Admitted { sequence, deadline, meter } => (sequence, deadline, meter),
            Admission::Duplicate => return Ok(Published::Duplicate { last }),
        };
        if at.owner.is_some_and(|owner| owner != supplier) {
            (state.meter, state.sequence) = (meter, sequence);
            return Ok(Published::Standby { sequence });
        }
        let copies = at.copies(publication.retention);
        if copies > 0 {
            let Publication { payload, key, fields, keeping, retention, .. } = &publication;
            let each = cost(payload.memory(), key.as_deref(), fields.memory());
            let freed = at.freed(key.as_ref(), *retention);
            self.kept.check(keeping, self.limits.kept, copies.saturating_mul(each), &freed)?;
        }
        let compared = match self.reusable_search {
            Some(it) if (it.topic, it.audiences) == (topic, self.audiences) => it.compared,
            _ => {
                let name = (&*at.spec.name, at.spec.event_type.as_deref());
                let compared = self.index.matching(name, &mut at.route, &publication.fields, &mut self.found);
                // sorted, so that the order of service and the inbox named in a refusal do not depend on the
                // order of the matches
                self.found.sort_unstable();
                let search = ReusableSearch { topic, audiences: self.audiences, compared };
                self.reusable_search = (!self.index.has_met_filters()).then_some(search);
                compared
            }
        };
        let mut found = std::mem::take(&mut self.found);
        self.work += (found.len() + compared) / WORK_STEPS;
        let Offer { origin, share, order, owner, .. } = state.offer;
        if origin == EventOrigin::Remote {
            self.reusable_search = None;
            found.retain(|subscription| {
                let destined = self.subscriptions.get(subscription);
                let receiver = destined.and_then(|destined| self.receivers.get(&destined.inbox));
                receiver.is_some_and(|receiver| receiver.inbox.spec.origins.accept(origin))
            });
        }
        let blocked = found.iter().find_map(|subscription| {
            let receiver = self.receivers.get_mut(&self.subscriptions.get(subscription)?.inbox)?;
            let is_behind = receiver.readers() > 0 && receiver.caught_up(topic).is_none();
            let full = receiver.inbox.blocks(owner, bytes)
                || (is_behind && receiver.inbox.blocks_behind(owner, at.kept_size(), bytes));
            full.then(|| Arc::clone(&receiver.name))
        });
        if let Some(consumer) = blocked {
            self.found = found;
            return Err(PublishError::Full { consumer });
        }

        let Publication { key, fields, payload, criticality, retention, keeping, .. } = publication;
        let mut event = ChannelEvent {
            topic,
            key,
            fields,
            payload,
            supplier,
            origin,
            share,
            order,
            sequence,
            published: now,
            deadline,
            criticality,
        };
        if let Err(reason) = keep(&mut event, &found) {
            self.found = found;
            return Err(PublishError::NotKept { reason });
        }
        (state.meter, state.sequence) = (meter, sequence);
        at.published += 1;
        let event = self.spare_events.hold(event);
        if copies > 0 || retention == Retention::Remove {
            let charge = KeptCharge::new(&keeping, event.memory(), self.kept.next_count());
            at.keep(&mut self.kept, &event, (retention, charge));
        }
        // a supplier may begin with any number: no event is missing before its first one
        if last > 0 && sequence - last > 1 {
            let (first, last) = (last + 1, sequence - 1);
            let lost = last - first + 1;
            self.report_gap(Gap { topic, supplier, first, last, lost, cause: GapCause::NotReceived }, origin);
        }
        self.publications += 1;
        if self.reading.are_behind() {
            self.catch_up(now, topic, &found);
        }
        let inboxes = self.put_into_inboxes(now, &event, &found);
        self.work += inboxes;
        self.found = found;
        Ok(Published::Taken { sequence, inboxes })
    }

    /// Puts an event into the inbox of each subscription, and into correlations. Returns the number of
    /// inboxes.
    fn put_into_inboxes(
        &mut self,
        now: Instant,
        event: &Arc<ChannelEvent<P>>,
        found: &[SubscriptionId],
    ) -> usize {
        let (topic, supplier) = (event.topic, event.supplier);
        let mut inboxes = 0;
        let mut foremost: Option<(usize, InboxId)> = None;
        let mut parts: Vec<(CorrelationId, usize)> = Vec::new();
        for subscription in found {
            let Some(Destined { inbox, .. }) = self.subscriptions.get(subscription).copied() else {
                continue;
            };
            let Some(receiver) = self.receivers.get_mut(&inbox) else { continue };
            receiver.last_event = now;
            if let Some(part) = self.parts.get(subscription) {
                parts.push(*part);
                continue;
            }
            if std::mem::replace(&mut receiver.matched, self.publications) == self.publications {
                continue; // the event is in this inbox already, by another of its subscriptions
            }
            self.arrivals += 1;
            inboxes += 1;
            let before = receiver.inbox.turn();
            receiver.inbox.push(now, self.arrivals, Parcel::new(Arc::clone(event), *subscription));
            // An inbox that has events but no position in its class has no consumer that takes events now.
            let stands = receiver.standing.is_some() || before.is_none();
            if stands && receiver.inbox.turn() != before {
                self.place(inbox);
            }
            if stands && self.dispatcher.classes_compete() {
                let waiting = self.receivers.get(&inbox).map(|it| it.inbox.waiting_of(topic, supplier));
                foremost = waiting.map(|waiting| (waiting, inbox)).into_iter().chain(foremost).min();
            }
        }
        if self.dispatcher.classes_compete()
            && let Some(offer) = self.suppliers.get_mut(&supplier).and_then(|it| it.offers.get_mut(&topic))
        {
            offer.foremost = foremost.map(|(_, inbox)| inbox);
        }
        parts.sort_unstable();
        for of_one in parts.chunk_by(|(one, _), (other, _)| one == other) {
            inboxes += usize::from(self.correlate_event(now, event, of_one));
        }
        inboxes
    }

    /// Reports missing events to all inboxes that ask for the topic and accept events of this origin.
    fn report_gap(&mut self, gap: Gap, origin: EventOrigin) {
        let inboxes = self.audience(gap.topic);
        self.work += inboxes.len();
        for inbox in inboxes {
            let arrival = self.arrival();
            let receiver = self.receivers.get_mut(&inbox);
            if let Some(receiver) = receiver.filter(|it| it.inbox.spec.origins.accept(origin)) {
                receiver.inbox.report_gap(arrival, gap);
            }
            self.place(inbox);
        }
    }
}
