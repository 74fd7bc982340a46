//! Delivers events that were kept before a subscription was made, piece by piece, to the consumer of the
//! subscription.
//!
//! ```text
//!   kept events, in the order in which they came:   e1 e2 e3 e4 e5 | e6 ...
//!                                                        ^ a reader   ^ the subscription came here
//! ```
//! Idea: a *reader* walks over all kept events up to the last one before its subscription, and puts the
//! events that the subscription asks for into the inbox. It stops while the inbox is half full, and continues
//! after the consumer has taken an event. The tenants whose inboxes have readers take turns, and so do the
//! inboxes of each tenant.
//!
//! A topic's kept events precede its new ones: when an event of a topic is published, the inboxes that ask
//! for it first *catch up* with that topic.
//!
//! Cost: a check of each kept event for each subscription. The first [`PIECE`] checks are made at once, so
//! that a subscription to few kept events has put them into the inbox when the call returns.

use super::subscribe::PastEvents;
use super::{EventChannel, WORK_STEPS};
use crate::event::{ChannelEvent, EventPayload};
use crate::ids::{InboxId, SubscriptionId, TopicId};
use crate::inbox::{GapCause, Parcel};
use crate::kept::{KeptPlace, KeptRole};
use crate::tenant::TenantId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use unisono_time::Instant;

/// The number of kept events that are checked in one turn of an inbox (a *piece*): about 0.1 ms.
const PIECE: usize = 256;
/// Maximum number of kept events checked for new subscriptions between two calls of
/// [`take_work`](EventChannel::take_work) or of [`next`](EventChannel::next); further checks wait for a turn.
const MAX_CHECKS: usize = 1024;
/// Maximum number of pieces that one call of [`next`](EventChannel::next) reads while it has nothing to
/// deliver.
pub(super) const MAX_PIECES: usize = 8;
/// The number of deliveries between two pieces that are read, so that deliveries take at most twice as long
/// as without readers.
const DELIVERIES_A_PIECE: usize = 64;
/// The maximum number of kept events with which consumers catch up for one publication; beyond it, they lose
/// the oldest events and get a gap. Chosen so that a publisher waits at most a millisecond.
const MAX_CAUGHT_UP: usize = 4096;
/// The maximum number of topics that one inbox records as caught up. Kept events of further topics may come
/// after new events.
const MAX_TOPICS_CAUGHT_UP: usize = 1024;

/// A reader of the kept events for one subscription.
#[derive(Debug)]
pub(super) struct PastReader {
    subscription: SubscriptionId,
    /// The place of the last event read.
    after: KeptPlace,
    /// The count of the last event before the subscription.
    until: u64,
    wanted: PastEvents,
    /// The value of `audiences` when the subscription was made.
    asked: u64,
}

/// Inboxes whose readers can continue.
#[derive(Debug, Default)]
pub(super) struct ReadingInboxes {
    by_tenant: BTreeMap<TenantId, VecDeque<InboxId>>,
    /// The tenant that had the last turn.
    last: TenantId,
    /// The number of inboxes with readers, whether or not these readers can continue.
    behind: usize,
    /// Deliveries since the last piece was read.
    deliveries: usize,
}

impl ReadingInboxes {
    pub(super) fn is_empty(&self) -> bool {
        self.by_tenant.is_empty()
    }

    /// Returns whether any inbox has readers.
    pub(super) fn are_behind(&self) -> bool {
        self.behind > 0
    }

    pub(super) fn push(&mut self, tenant: TenantId, inbox: InboxId) {
        self.by_tenant.entry(tenant).or_default().push_back(inbox);
    }

    /// Removes and returns the next inbox, by turns of the tenants.
    fn pop(&mut self) -> Option<InboxId> {
        let later = self.by_tenant.range(TenantId(self.last.0.saturating_add(1))..).next();
        let tenant = *later.or_else(|| self.by_tenant.first_key_value())?.0;
        self.last = tenant;
        let inboxes = self.by_tenant.get_mut(&tenant)?;
        let inbox = inboxes.pop_front();
        if inboxes.is_empty() {
            self.by_tenant.remove(&tenant);
        }
        inbox
    }

    /// Updates the count after an inbox has lost a reader or was closed.
    fn lost_readers(&mut self, before: usize, after: usize) {
        self.behind -= usize::from(before > 0 && after == 0);
    }
}

impl<P: EventPayload> EventChannel<P> {
    /// Starts the delivery of kept events for a new subscription.
    pub(super) fn begin_past(
        &mut self,
        now: Instant,
        (inbox, subscription): (InboxId, SubscriptionId),
        wanted: PastEvents,
    ) {
        let (until, asked) = (self.kept.count(), self.audiences);
        let after = (0, KeptRole::History);
        if self.kept.after(after, until).next().is_none() {
            return;
        }
        let Some(receiver) = self.receivers.get_mut(&inbox) else { return };
        self.reading.behind += usize::from(receiver.readers() == 0);
        receiver.rare_mut().readers.push_back(PastReader { subscription, after, until, wanted, asked });
        let most = PIECE.min(MAX_CHECKS.saturating_sub(self.looks));
        self.looks += most;
        self.read(now, inbox, most);
        self.queue_readers(inbox);
    }

    /// Queues an inbox for a turn of its readers, if these can continue.
    pub(super) fn queue_readers(&mut self, inbox: InboxId) {
        let Some(receiver) = self.receivers.get_mut(&inbox) else { return };
        if receiver.may_read_on() {
            receiver.rare_mut().reads = true;
            self.reading.push(receiver.tenant, inbox);
        }
    }

    /// Counts a delivery, and reads a piece at every [`DELIVERIES_A_PIECE`]th one.
    pub(super) fn read_on_beside(&mut self, now: Instant) {
        if !self.reading.is_empty() {
            self.reading.deliveries += 1;
            if self.reading.deliveries >= DELIVERIES_A_PIECE {
                self.reading.deliveries = 0;
                self.read_on(now);
            }
        }
    }

    /// Reads a piece for one inbox. Returns false if no reader can continue.
    pub(super) fn read_on(&mut self, now: Instant) -> bool {
        let Some(inbox) = self.reading.pop() else { return false };
        if let Some(receiver) = self.receivers.get_mut(&inbox) {
            if let Some(rare) = &mut receiver.rare {
                rare.reads = false;
            }
            self.read(now, inbox, PIECE);
            self.queue_readers(inbox);
        }
        true
    }

    /// Removes the reader of a subscription that has ended.
    pub(super) fn end_reader(&mut self, inbox: InboxId, subscription: SubscriptionId) {
        let Some(receiver) = self.receivers.get_mut(&inbox) else { return };
        let before = receiver.readers();
        if let Some(rare) = &mut receiver.rare {
            rare.readers.retain(|reader| reader.subscription != subscription);
            self.readers_ended(inbox, before);
        }
    }

    /// Removes the readers of an inbox that is closed.
    pub(super) fn end_readers(&mut self, readers: usize) {
        self.reading.lost_readers(readers, 0);
    }

    fn readers_ended(&mut self, inbox: InboxId, before: usize) {
        let Some(receiver) = self.receivers.get_mut(&inbox) else { return };
        self.reading.lost_readers(before, receiver.readers());
        if let Some(rare) = receiver.rare.as_mut().filter(|rare| rare.readers.is_empty()) {
            rare.caught_up = Default::default();
        }
    }

    /// Lets the readers of an inbox check up to `most` kept events, while the inbox has room.
    fn read(&mut self, now: Instant, inbox: InboxId, most: usize) {
        let (mut looks, mut pushed) = (0, false);
        while looks < most {
            let Some(receiver) = self.receivers.get_mut(&inbox) else { return };
            let (before, has_room) = (receiver.readers(), receiver.inbox.has_room_for_past());
            let Some(rare) = receiver.rare.as_mut().filter(|_| has_room) else { break };
            let Some(reader) = rare.readers.front_mut() else { break };
            let next = self.kept.after(reader.after, reader.until).next();
            let Some((place, event)) = next.map(|(place, event)| (place, Arc::clone(event))) else {
                rare.readers.pop_front();
                self.readers_ended(inbox, before);
                continue;
            };
            reader.after = place;
            let (subscription, wanted, asked) = (reader.subscription, reader.wanted, reader.asked);
            looks += 1;
            let caught_up = receiver.caught_up(event.topic).is_some_and(|before| asked <= before);
            if !caught_up && self.is_wanted(now, (inbox, subscription, wanted, asked), place, &event) {
                self.deliver_past(now, inbox, subscription, event);
                pushed = true;
            }
        }
        self.work += looks / WORK_STEPS;
        if pushed {
            self.place(inbox);
        }
    }

    fn deliver_past(
        &mut self,
        now: Instant,
        inbox: InboxId,
        subscription: SubscriptionId,
        event: Arc<ChannelEvent<P>>,
    ) {
        let arrival = self.arrival();
        if let Some(receiver) = self.receivers.get_mut(&inbox) {
            let parcel = Parcel { retained: true, ..Parcel::new(event, subscription) };
            receiver.inbox.push(now, arrival, parcel);
        }
    }

    /// Returns whether a reader has to put a kept event into its inbox.
    fn is_wanted(
        &mut self,
        now: Instant,
        (inbox, subscription, wanted, asked): (InboxId, SubscriptionId, PastEvents, u64),
        (count, role): KeptPlace,
        event: &ChannelEvent<P>,
    ) -> bool {
        self.reusable_search = None; // `found` is overwritten
        let Self { topics, index, subscriptions, parts, receivers, found, kept, work, .. } = self;
        let (Some(receiver), Some(topic)) = (receivers.get(&inbox), topics.get_mut(&event.topic)) else {
            return false;
        };
        let name = (&*topic.spec.name, topic.spec.event_type.as_deref());
        let asks = index.interest(subscription).is_some_and(|interest| {
            let passes = interest.filter.as_ref().is_none_or(|filter| filter.matches(&event.fields));
            interest.asks_for(name.0, name.1) && passes
        });
        // an event that is kept in both roles is delivered once; a retained event whose deadline has passed
        // is not delivered
        let again =
            role == KeptRole::Retained && (event.deadline < now || kept.is_there((count, KeptRole::History)));
        if !asks || again || !receiver.inbox.spec.origins.accept(event.origin) {
            return false;
        }
        if wanted == PastEvents::All || receiver.subscriptions.as_slice().len() == 1 {
            return true;
        }
        *work += index.matching(name, &mut topic.route, &event.fields, found) / WORK_STEPS;
        let whole = found.iter().filter(|subscription| !parts.contains_key(subscription));
        let mut destined = whole.filter_map(|subscription| subscriptions.get(subscription));
        !destined.any(|it| it.inbox == inbox && it.asked < asked)
    }

    /// Catches up with a topic before a new event of it is delivered: the inboxes of the subscriptions in
    /// `found`, which the event matches, first get the kept events that their readers have not reached.
    pub(super) fn catch_up(&mut self, now: Instant, topic: TopicId, found: &[SubscriptionId]) {
        let mut room = MAX_CAUGHT_UP;
        let kept: Vec<_> = match self.topics.get(&topic) {
            Some(topic) => {
                let history = topic.history.charged().chain(&topic.retained);
                history.map(|(event, charge)| (charge.place, Arc::clone(event))).collect()
            }
            None => return,
        };
        for subscription in found {
            let Some(inbox) = self.subscriptions.get(subscription).map(|destined| destined.inbox) else {
                continue;
            };
            let audiences = self.audiences;
            let Some(receiver) = self.receivers.get_mut(&inbox) else { continue };
            let known = receiver.caught_up(topic);
            if receiver.readers() == 0 || known == Some(audiences) {
                continue;
            }
            let rare = receiver.rare_mut();
            if known.is_none() && rare.caught_up.len() >= MAX_TOPICS_CAUGHT_UP {
                continue;
            }
            rare.caught_up.insert(topic, audiences);
            let readers: Vec<_> = rare
                .readers
                .iter()
                .filter(|reader| known.is_none_or(|known| reader.asked > known))
                .map(|it| (it.after, it.until, (inbox, it.subscription, it.wanted, it.asked)))
                .collect();
            for (after, until, reader) in readers {
                self.catch_up_one(now, (after, until), reader, &kept, &mut room);
            }
            self.place(inbox);
        }
    }

    fn catch_up_one(
        &mut self,
        now: Instant,
        (after, until): (KeptPlace, u64),
        reader: (InboxId, SubscriptionId, PastEvents, u64),
        kept: &[(KeptPlace, Arc<ChannelEvent<P>>)],
        room: &mut usize,
    ) {
        let unread = kept.iter().filter(|(place, _)| *place > after && place.0 <= until);
        let unread: Vec<_> = unread.collect();
        let lost = unread.len().saturating_sub(*room);
        *room -= unread.len() - lost;
        self.work += unread.len() / WORK_STEPS;
        for (number, (place, event)) in unread.into_iter().enumerate() {
            if !self.is_wanted(now, reader, *place, event) {
                continue;
            }
            if number >= lost {
                self.deliver_past(now, reader.0, reader.1, Arc::clone(event));
                continue;
            }
            let arrival = self.arrival();
            if let Some(receiver) = self.receivers.get_mut(&reader.0) {
                receiver.inbox.counters_mut().matched += 1;
                receiver.inbox.counters_mut().dropped_full += 1;
                receiver.inbox.lose(arrival, event, GapCause::Full);
            }
        }
    }
}
