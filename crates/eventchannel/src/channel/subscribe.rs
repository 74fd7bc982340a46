//! Subscriptions: how each is added and removed, and what its consumer gets of the past.
//!
//! What a consumer of a group asks for, the group asks for, as long as that consumer is there. What the last
//! one asked for stays while the group lingers.

use super::{Destined, EventChannel};
use crate::error::ChannelError;
use crate::event::{ChannelEvent, EventPayload};
use crate::ids::{ConsumerId, InboxId, SubscriptionId};
use crate::inbox::Parcel;
use crate::index::Interest;
use std::sync::Arc;
use unisono_linux::clock::Nanos;

/// What a new subscription gets of the events that its topics keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PastEvents {
    /// Those that no other subscription of the consumer, or of its group, asks for: it had the others.
    New,
    /// All of them, as MQTT wants it.
    All,
    None,
}

impl<P: EventPayload> EventChannel<P> {
    /// A consumer, or its group, asks for events. What the topics keep of the past comes first, but for what
    /// another of its subscriptions asks for.
    ///
    /// # Errors
    /// The consumer does not exist, a topic or an offer that is there does not meet its request, or there are
    /// too many.
    pub fn subscribe(
        &mut self,
        now: Nanos,
        consumer: ConsumerId,
        interest: Interest,
    ) -> Result<SubscriptionId, ChannelError> {
        self.subscribe_with(now, consumer, interest, PastEvents::New)
    }

    /// The same, and says what it gets of the past.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    pub fn subscribe_with(
        &mut self,
        now: Nanos,
        consumer: ConsumerId,
        interest: Interest,
        wanted: PastEvents,
    ) -> Result<SubscriptionId, ChannelError> {
        let unknown = ChannelError::Unknown { what: "consumer", number: consumer.0 };
        let inbox = self.consumers.get(&consumer).ok_or(unknown)?.inbox;
        if self.subscriptions.len() >= self.limits.subscriptions {
            return Err(ChannelError::TooMany { what: "subscriptions", most: self.limits.subscriptions });
        }
        // what is there has to meet its request, whatever it wants of the past
        let past = self.past(now, inbox, &interest)?;
        let past = match wanted {
            PastEvents::New => self.not_asked_for(inbox, past),
            PastEvents::All => past,
            PastEvents::None => Vec::new(),
        };
        let id = SubscriptionId(self.number());
        if let Some(receiver) = self.receivers.get_mut(&inbox) {
            for event in past {
                self.arrivals += 1;
                let parcel = Parcel { retained: true, ..Parcel::new(event, id) };
                receiver.inbox.push(now, self.arrivals, parcel);
            }
        }
        self.add(id, Destined { inbox, by: consumer, part: None }, interest);
        self.place(inbox);
        Ok(id)
    }

    pub(super) fn add(&mut self, id: SubscriptionId, destined: Destined, interest: Interest) {
        if let Some(receiver) = self.receivers.get_mut(&destined.inbox) {
            receiver.subscriptions.insert(id);
        }
        self.subscriptions.insert(id, destined);
        self.index.insert(id, interest);
        self.audiences += 1;
    }

    /// What the topics keep that an interest asks for, the oldest first, if they offer what the inbox
    /// requests.
    pub(super) fn past(
        &self,
        now: Nanos,
        inbox: InboxId,
        interest: &Interest,
    ) -> Result<Vec<Arc<ChannelEvent<P>>>, ChannelError> {
        let unknown = ChannelError::Unknown { what: "inbox", number: inbox.0 };
        let receiver = self.receivers.get(&inbox).ok_or(unknown)?;
        let (request, hears) = (receiver.inbox.spec.request, receiver.inbox.spec.hears);
        let mut past = Vec::new();
        for (number, topic) in &self.topics {
            if !interest.asks_for(&topic.spec.name, topic.spec.event_type.as_deref()) {
                continue;
            }
            let mut offers = topic
                .suppliers
                .iter()
                .filter_map(|supplier| self.suppliers.get(supplier)?.offers.get(number));
            request
                .meets_topic(topic.spec.history)
                .and_then(|()| offers.try_for_each(|state| request.meets_offer(&state.offer)))
                .map_err(|mismatch| ChannelError::Mismatch {
                    topic: Arc::clone(&topic.spec.name),
                    mismatch,
                })?;
            let passes = |event: &&Arc<ChannelEvent<P>>| {
                let filter = interest.filter.as_ref();
                hears.hears(event.origin) && filter.is_none_or(|filter| filter.matches(&event.fields))
            };
            let history = || topic.history.events();
            let retained =
                topic.retained.iter().map(|(event, _)| event).filter(|event| {
                    event.deadline >= now && !history().any(|other| Arc::ptr_eq(other, event))
                });
            past.extend(history().chain(retained).filter(passes).map(Arc::clone));
        }
        past.sort_by_key(|event| event.published);
        Ok(past)
    }

    /// Those of these events that no subscription of an inbox asks for.
    fn not_asked_for(
        &mut self,
        inbox: InboxId,
        mut past: Vec<Arc<ChannelEvent<P>>>,
    ) -> Vec<Arc<ChannelEvent<P>>> {
        if self.receivers.get(&inbox).is_none_or(|receiver| receiver.subscriptions.is_empty()) {
            return past;
        }
        let Self { topics, index, subscriptions, found, .. } = self;
        past.retain(|event| {
            let Some(topic) = topics.get_mut(&event.topic) else { return true };
            let name = (&*topic.spec.name, topic.spec.event_type.as_deref());
            index.matching(name, &mut topic.route, &event.fields, found);
            let mut destined = found.iter().filter_map(|subscription| subscriptions.get(subscription));
            !destined.any(|it| it.inbox == inbox && it.part.is_none())
        });
        past
    }

    /// Ends a subscription. What it let in is still delivered.
    pub fn unsubscribe(&mut self, subscription: SubscriptionId) {
        self.index.remove(subscription);
        self.audiences += 1;
        if let Some(Destined { inbox, .. }) = self.subscriptions.remove(&subscription)
            && let Some(receiver) = self.receivers.get_mut(&inbox)
        {
            receiver.subscriptions.remove(&subscription);
        }
    }

    /// A consumer has asked for all that it wants. What consumers of its group asked for that had gone before
    /// it came is asked for no more, unless it asks for that, too.
    pub fn replace_departed(&mut self, consumer: ConsumerId) {
        let Some(inbox) = self.consumers.get(&consumer).map(|consumer| consumer.inbox) else { return };
        let Some(receiver) = self.receivers.get(&inbox) else { return };
        let members = receiver.members.clone();
        self.forget_asked(inbox, |by| !members.contains(&by));
    }

    /// Ends what these consumers asked for, and no other consumer of the inbox.
    pub(super) fn forget_asked(&mut self, inbox: InboxId, gone: impl Fn(ConsumerId) -> bool) {
        let Some(receiver) = self.receivers.get(&inbox) else { return };
        let asked = receiver.subscriptions.iter().copied();
        let mut over: Vec<SubscriptionId> = asked
            .filter(|it| self.subscriptions.get(it).is_some_and(|it| it.part.is_none() && gone(it.by)))
            .collect();
        self.correlations.retain(|_, state| {
            if state.inbox != inbox {
                return true;
            }
            state.by.retain(|by| !gone(*by));
            if state.by.is_empty() {
                over.extend(&state.parts);
            }
            !state.by.is_empty()
        });
        self.timers.retain(|_, state| state.inbox != inbox || !gone(state.by));
        over.into_iter().for_each(|subscription| self.unsubscribe(subscription));
    }
}
