//! Events that a supplier sends to its consumers directly. The channel still admits, matches and counts the
//! parties: it names the consumers of a topic, and the supplier reports the events that it sent.

use super::EventChannel;
use crate::event::EventPayload;
use crate::ids::{ConsumerId, SupplierId, TopicId};
use crate::inbox::InboxCounters;

impl<P: EventPayload> EventChannel<P> {
    /// The consumers subscribed to a topic, whatever their filters. `None`: a group is among the subscribers.
    pub fn audience_of(&mut self, topic: TopicId) -> Option<Vec<ConsumerId>> {
        let receivers = self.audience(topic).into_iter().filter_map(|inbox| self.receivers.get(&inbox));
        let alone = receivers.map(|receiver| match receiver.group {
            Some(_) => None,
            None => receiver.members.front().copied(),
        });
        alone.collect()
    }

    /// Whether a consumer's inbox holds events of this supplier and topic.
    #[must_use]
    pub fn waits_from(&self, consumer: ConsumerId, supplier: SupplierId, topic: TopicId) -> bool {
        self.receiver(consumer).is_some_and(|receiver| receiver.inbox.holds(topic, supplier))
    }

    /// Sequence number of a supplier's last event of a topic; 0: no event yet.
    #[must_use]
    pub fn last_sequence(&self, supplier: SupplierId, topic: TopicId) -> u64 {
        let state = self.suppliers.get(&supplier).and_then(|state| state.offers.get(&topic));
        state.map_or(0, |state| state.sequence)
    }

    /// A supplier has sent `events` events directly; their sequence numbers are used up.
    pub fn skip_sequences(&mut self, supplier: SupplierId, topic: TopicId, events: u64) {
        let state = self.suppliers.get_mut(&supplier).and_then(|state| state.offers.get_mut(&topic));
        if let Some(state) = state {
            state.sequence = state.sequence.saturating_add(events);
        }
    }

    /// Adds the events of a topic that a consumer received from suppliers directly, and those lost on the
    /// way.
    pub fn count_direct(&mut self, consumer: ConsumerId, topic: TopicId, counted: InboxCounters) {
        let inbox = self.consumers.get(&consumer).map(|member| member.inbox);
        let Some(receiver) = inbox.and_then(|inbox| self.receivers.get_mut(&inbox)) else { return };
        receiver.inbox.counters.add(&counted);
        if counted.missed > 0 {
            receiver.inbox.count_misses(topic, counted.missed);
        }
    }
}
