//! Adds and removes subscriptions, and decides which kept events their consumers get.
//!
//! A subscription of a consumer in a group belongs to the group until that consumer disconnects. The
//! subscriptions of the last consumer stay while the group lingers.

use super::{Destined, EventChannel, WORK_STEPS};
use crate::delivery::ChannelNotice;
use crate::error::ChannelError;
use crate::event::{EventPayload, NO_DEADLINE};
use crate::ids::{ConsumerId, InboxId, SubscriptionId};
use crate::inbox::FullInbox;
use crate::index::{AudienceChange, Interest};
use crate::number_map::{NumberSet, give_back};
use crate::quality::{Mismatch, QualityRequest};
use crate::tenant::{TenantId, TenantResource};
use crate::trie::PatternTrie;
use std::sync::Arc;
use unisono_time::Instant;

/// The maximum number of mismatch notices for a new subscription, because its pattern may match all topics.
/// Chosen, not measured.
const MAX_TOLD: usize = 64;

/// The kept events that a new subscription gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PastEvents {
    /// The events for which no other subscription of the consumer, or of its group, asks: the consumer has
    /// received the others.
    New,
    /// All events, as MQTT requires.
    All,
    None,
}

/// Returns the number of operations that count against the limits of the tenant: all comparisons except the
/// one with the pattern.
fn operations(interest: &Interest) -> usize {
    interest.comparisons() - 1
}

/// Returns the resources of a tenant that these interests take.
fn resources(interests: &[Interest]) -> [(TenantResource, usize); 3] {
    [
        (TenantResource::Subscriptions, interests.len()),
        (TenantResource::Broad, interests.iter().filter(|interest| interest.is_broad()).count()),
        (TenantResource::Operations, interests.iter().map(operations).sum()),
    ]
}

impl<P: EventPayload> EventChannel<P> {
    /// Adds a subscription for a consumer or its group. The events that the topics keep are delivered first,
    /// except events that another subscription of the inbox asks for.
    ///
    /// # Errors
    /// The consumer does not exist, a topic that the interest names does not meet the consumer's request, or
    /// there are too many subscriptions.
    pub fn subscribe(
        &mut self,
        now: Instant,
        consumer: ConsumerId,
        interest: Interest,
    ) -> Result<SubscriptionId, ChannelError> {
        self.subscribe_with(now, consumer, interest, PastEvents::New)
    }

    /// Like [`subscribe`](Self::subscribe), with a choice of the kept events.
    ///
    /// # Errors
    /// The errors of [`subscribe`](Self::subscribe).
    pub fn subscribe_with(
        &mut self,
        now: Instant,
        consumer: ConsumerId,
        interest: Interest,
        wanted: PastEvents,
    ) -> Result<SubscriptionId, ChannelError> {
        let (inbox, _) = self.attachment(consumer)?;
        // existing topics and offers have to meet the request of the inbox, whatever kept events the
        // subscription wants
        self.check_request(inbox, std::slice::from_ref(&interest))?;
        self.subscribe_checked(now, consumer, interest, wanted)
    }

    /// Adds several subscriptions for a consumer or its group, as [`subscribe`](Self::subscribe) adds one:
    /// existing topics and offers are compared with the consumer's request only once.
    ///
    /// # Errors
    /// The errors of [`subscribe`](Self::subscribe); subscriptions before the refused one stay.
    pub fn subscribe_all(
        &mut self,
        now: Instant,
        consumer: ConsumerId,
        interests: Vec<Interest>,
    ) -> Result<(), ChannelError> {
        let (inbox, _) = self.attachment(consumer)?;
        self.check_request(inbox, &interests)?;
        for interest in interests {
            self.subscribe_checked(now, consumer, interest, PastEvents::New)?;
        }
        Ok(())
    }

    fn subscribe_checked(
        &mut self,
        now: Instant,
        consumer: ConsumerId,
        interest: Interest,
        wanted: PastEvents,
    ) -> Result<SubscriptionId, ChannelError> {
        let (inbox, tenant) = self.attachment(consumer)?;
        self.check_subscriptions(tenant, std::slice::from_ref(&interest))?;
        let id = SubscriptionId(self.number());
        let destined = Destined { inbox, by: consumer, tenant, asked: 0 };
        self.add(id, destined, interest);
        if wanted != PastEvents::None {
            self.begin_past(now, (inbox, id), wanted);
        }
        self.place(inbox);
        Ok(id)
    }

    /// Checks that a tenant may add these subscriptions.
    pub(super) fn check_subscriptions(
        &self,
        tenant: TenantId,
        interests: &[Interest],
    ) -> Result<(), ChannelError> {
        if self.subscriptions.len() + interests.len() > self.limits.subscriptions {
            return Err(ChannelError::TooMany { what: "subscriptions", most: self.limits.subscriptions });
        }
        resources(interests).into_iter().try_for_each(|(what, more)| self.tenants.check(tenant, what, more))
    }

    /// Counts interests that the caller matches itself against the limits of a tenant, like subscriptions.
    ///
    /// # Errors
    /// The tenant has reached a limit.
    pub fn take_interests(&mut self, tenant: TenantId, interests: &[Interest]) -> Result<(), ChannelError> {
        self.check_subscriptions(tenant, interests)?;
        resources(interests).into_iter().for_each(|(what, more)| self.tenants.take(tenant, what, more));
        self.work += interests.iter().map(|interest| 1 + operations(interest) / WORK_STEPS).sum::<usize>();
        Ok(())
    }

    /// Releases the resources that [`take_interests`](Self::take_interests) counted.
    pub fn release_interests(&mut self, tenant: TenantId, interests: &[Interest]) {
        resources(interests).into_iter().for_each(|(what, less)| self.tenants.release(tenant, what, less));
    }

    pub(super) fn add(&mut self, id: SubscriptionId, mut destined: Destined, interest: Interest) {
        for (what, more) in resources(std::slice::from_ref(&interest)) {
            self.tenants.take(destined.tenant, what, more);
        }
        self.work += 1 + operations(&interest) / WORK_STEPS;
        if let Some(receiver) = self.receivers.get_mut(&destined.inbox) {
            receiver.subscriptions.insert(id);
        }
        let owner = (!self.parts.contains_key(&id)).then_some(destined.inbox.0);
        let pattern = interest.pattern.clone();
        if self.index.insert_for(owner, id, interest) == AudienceChange::Changed {
            self.changes.add(pattern);
        }
        self.audiences += 1;
        destined.asked = self.audiences;
        self.subscriptions.insert(id, destined);
    }

    /// Compares the existing topics and offers for these interests with the request of the inbox: a topic
    /// that an interest names must meet it, and so must at least one of the topic's offers, if there are any.
    /// The inbox gets a notice of other mismatches, and of topics that keep more than its queue holds, up to
    /// [`MAX_TOLD`]. Cost: nothing for an empty request and a queue that holds every history; otherwise a
    /// search of all topics.
    pub(super) fn check_request(
        &mut self,
        inbox: InboxId,
        interests: &[Interest],
    ) -> Result<(), ChannelError> {
        let unknown = ChannelError::Unknown { what: "inbox", number: inbox.0 };
        let spec = &self.receivers.get(&inbox).ok_or(unknown)?.inbox.spec;
        let (request, events) = (spec.request, spec.capacity.events);
        let asks = request != (QualityRequest { share: request.share, ..QualityRequest::default() });
        let may_overflow = spec.full != FullInbox::BlockSupplier && self.deepest > events;
        if !asks && !may_overflow {
            return Ok(());
        }
        let mut patterns = PatternTrie::default();
        for (number, interest) in (0..).zip(interests) {
            patterns.insert(&interest.pattern, number);
        }
        self.work += self.topics.len() / WORK_STEPS;
        let mut told = Vec::new();
        for (id, topic) in &self.topics {
            let (name, event_type) = (&topic.spec.name, topic.spec.event_type.as_deref());
            let asking = patterns.matching(name).into_iter().map(|number| &interests[number as usize]);
            let asking: Vec<_> = asking.filter(|interest| interest.asks_for(name, event_type)).collect();
            if asking.is_empty() {
                continue;
            }
            let offers = topic.suppliers.iter();
            let offers = offers.filter_map(|supplier| self.suppliers.get(supplier)?.offers.get(id));
            let kept = topic.spec.history;
            if may_overflow && kept.max_events() > events && told.len() < MAX_TOLD {
                told.push(ChannelNotice::Mismatch { topic: *id, mismatch: Mismatch::Queue { kept, events } });
            }
            if !asks {
                continue;
            }
            let met: Vec<_> = offers.map(|state| request.meets_offer(&state.offer)).collect();
            let of_topic = request.meets_topic(topic.spec.history);
            let Err(mismatch) = of_topic.and_then(|()| met.iter().copied().collect::<Result<(), _>>()) else {
                continue;
            };
            let meets_in_part = of_topic.is_ok() && met.iter().any(Result::is_ok);
            if !meets_in_part && asking.iter().any(|interest| interest.pattern.is_exactly(name)) {
                return Err(ChannelError::Mismatch { topic: Arc::clone(name), mismatch });
            }
            if told.len() < MAX_TOLD {
                told.push(ChannelNotice::Mismatch { topic: *id, mismatch });
            }
        }
        for notice in told {
            self.notify(inbox, NO_DEADLINE, notice);
        }
        Ok(())
    }

    /// Ends a subscription. Events that are already in the inbox are still delivered.
    pub fn unsubscribe(&mut self, subscription: SubscriptionId) {
        let Some(inbox) = self.forget_subscription(subscription) else { return };
        self.end_reader(inbox, subscription);
        if let Some(receiver) = self.receivers.get_mut(&inbox) {
            receiver.subscriptions.remove(subscription);
        }
    }

    /// Removes a subscription. Returns its inbox.
    pub(super) fn forget_subscription(&mut self, subscription: SubscriptionId) -> Option<InboxId> {
        let Destined { inbox, tenant, .. } = self.subscriptions.remove(&subscription)?;
        give_back(&mut self.subscriptions);
        self.parts.remove(&subscription);
        if let Some(interest) = self.index.interest(subscription) {
            let pattern = interest.pattern.clone();
            for (what, less) in resources(std::slice::from_ref(interest)) {
                self.tenants.release(tenant, what, less);
            }
            if self.index.remove(subscription) == AudienceChange::Changed {
                self.changes.add(pattern);
            }
        }
        self.audiences += 1;
        Some(inbox)
    }

    /// Removes the subscriptions that departed consumers of the group have left. A consumer calls this after
    /// it has made all its own subscriptions; these stay, even if they equal removed ones.
    pub fn replace_departed(&mut self, consumer: ConsumerId) {
        let Some(inbox) = self.consumers.get(&consumer).map(|consumer| consumer.inbox) else { return };
        let Some(receiver) = self.receivers.get(&inbox) else { return };
        let members: NumberSet<ConsumerId> = receiver.members.as_slice().iter().copied().collect();
        self.forget_asked(inbox, |by| !members.contains(&by));
    }

    /// Ends the subscriptions, correlations and timers of the consumers for which `gone` holds, and of no
    /// others.
    pub(super) fn forget_asked(&mut self, inbox: InboxId, gone: impl Fn(ConsumerId) -> bool) {
        let Some(receiver) = self.receivers.get(&inbox) else { return };
        let asked = receiver.subscriptions.as_slice();
        self.work += asked.len() / WORK_STEPS;
        let asked = asked.iter().copied().filter(|it| !self.parts.contains_key(it));
        let mut over: Vec<SubscriptionId> =
            asked.filter(|it| self.subscriptions.get(it).is_some_and(|it| gone(it.by))).collect();
        let rare = receiver.rare.as_ref();
        let (correlations, timers) =
            rare.map(|rare| (rare.correlations.clone(), rare.timers.clone())).unwrap_or_default();
        for id in correlations {
            let Some(state) = self.correlations.get_mut(&id) else { continue };
            state.by.retain(|by| !gone(*by));
            if state.by.is_empty() {
                over.extend(&state.parts);
                self.correlations.remove(&id);
            }
        }
        for id in timers {
            if self.timers.get(&id).is_some_and(|timer| gone(timer.by)) {
                self.end_timer(id);
            }
        }
        let Self { receivers, correlations, timers, .. } = self;
        if let Some(rare) = receivers.get_mut(&inbox).and_then(|receiver| receiver.rare.as_mut()) {
            rare.correlations.retain(|id| correlations.contains_key(id));
            rare.timers.retain(|id| timers.contains_key(id));
        }
        over.into_iter().for_each(|subscription| self.unsubscribe(subscription));
    }
}
