//! Informs consumers of suppliers that leave, and of owners that change.
//!
//! A supplier may offer a thousand topics, each with thousands of consumers. Its departure takes effect at
//! once; the notices to consumers are queued in portions, before the next deliveries. All pending departures
//! from a topic are reported before a new event of the topic, a new offer for it, or its end.
//!
//! Cost: one search of a topic's consumers for each topic of the supplier, and one more for a new owner.

use super::{EventChannel, WORK_STEPS};
use crate::delivery::ChannelNotice;
use crate::event::{EventPayload, NO_DEADLINE};
use crate::ids::{InboxId, SupplierId, TopicId};
use crate::quality::Departed;
use crate::tenant::TenantResource;
use crate::topic::Ownership;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of steps of reporting departures between two calls of
/// [`take_work`](EventChannel::take_work) or of [`next`](EventChannel::next); further departures are reported
/// later. So many steps take about a millisecond.
const MAX_TOLD: usize = 1024;

/// The departure of a supplier from a topic.
#[derive(Clone, Copy, Debug)]
struct SupplierDeparture {
    supplier: SupplierId,
    why: Departed,
    /// The new owner of the topic, if consumers are to be notified of it.
    owner: Option<SupplierId>,
}

/// Departures of which consumers have not been notified.
#[derive(Debug, Default)]
pub(super) struct Departures {
    by_topic: BTreeMap<TopicId, Vec<SupplierDeparture>>,
    /// The steps of reporting since the last call of `begin`.
    told: usize,
}

impl Departures {
    pub(super) fn begin(&mut self) {
        self.told = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_topic.is_empty()
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = TopicId> {
        self.by_topic.keys().copied()
    }
}

impl<P: EventPayload> EventChannel<P> {
    /// Removes a supplier that has left or died.
    pub(super) fn depart(&mut self, supplier: SupplierId, why: Departed) {
        let Some(state) = self.suppliers.remove(&supplier) else { return };
        self.tenants.release(state.tenant, TenantResource::Suppliers, 1);
        if let Some(failed_search) = &mut self.failed_search {
            failed_search.withdrawn += state.offers.len();
        }
        self.work += state.offers.len() / WORK_STEPS;
        for id in state.offers.into_keys() {
            if let Some(topic) = self.topics.get_mut(&id) {
                topic.suppliers.remove(&supplier);
            }
            let owner = self.elect(id);
            self.departures.by_topic.entry(id).or_default().push(SupplierDeparture { supplier, why, owner });
        }
        self.report_departures();
    }

    /// Notifies consumers of departures, as far as the bound allows. Returns false if some departures wait
    /// for the next call.
    pub(super) fn report_departures(&mut self) -> bool {
        while self.departures.told < MAX_TOLD {
            let Some(topic) = self.departures.topics().next() else { return true };
            self.report_departures_from(topic);
        }
        self.departures.is_empty()
    }

    /// Notifies the consumers of a topic of all departures from it.
    pub(super) fn report_departures_from(&mut self, topic: TopicId) {
        let Some(departures) = self.departures.by_topic.remove(&topic) else { return };
        let before = self.work;
        let inboxes = self.audience(topic);
        for SupplierDeparture { supplier, why, owner } in departures {
            self.work += inboxes.len();
            for inbox in &inboxes {
                // consumers get the notice of a supplier's departure only after the supplier's last event
                let receiver = self.receivers.get_mut(inbox);
                if !receiver.is_some_and(|it| it.inbox.departs(topic, supplier, why)) {
                    self.notify(*inbox, NO_DEADLINE, ChannelNotice::Gone { topic, supplier, why });
                }
            }
            if let Some(owner) = owner {
                self.report_owner(topic, owner, &inboxes);
            }
        }
        self.departures.told += 1 + self.work - before;
    }

    /// Elects the owner of a topic with exclusive ownership. Returns the new owner if consumers are to be
    /// notified; they are notified of every owner except the first.
    pub(super) fn elect(&mut self, id: TopicId) -> Option<SupplierId> {
        let topic = self.topics.get_mut(&id)?;
        if topic.spec.ownership == Ownership::Shared {
            return None;
        }
        let strength = |supplier: &&SupplierId| {
            let state = self.suppliers.get(*supplier).and_then(|state| state.offers.get(&id));
            state.map(|state| (state.offer.strength, std::cmp::Reverse(state.since)))
        };
        self.work += topic.suppliers.len() / WORK_STEPS;
        let owner = topic.suppliers.iter().max_by_key(strength).copied();
        let before = std::mem::replace(&mut topic.owner, owner);
        let told = topic.heard_before;
        topic.heard_before |= owner.is_some();
        owner.filter(|_| before != owner && told)
    }

    /// Notifies the inboxes that ask for a topic of its new owner.
    pub(super) fn report_owner(&mut self, topic: TopicId, supplier: SupplierId, inboxes: &BTreeSet<InboxId>) {
        self.work += inboxes.len();
        for inbox in inboxes {
            self.notify(*inbox, NO_DEADLINE, ChannelNotice::Owner { topic, supplier });
        }
    }

    /// Returns the supplier whose events are delivered on a topic with exclusive ownership.
    #[must_use]
    pub fn owner(&self, topic: TopicId) -> Option<SupplierId> {
        self.topics.get(&topic)?.owner
    }
}
