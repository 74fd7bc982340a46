//! Events that a supplier sends to its consumers directly. The channel still admits the parties and matches
//! topics with consumers: it names the consumers of a topic, and counts the events that the parties report.

use super::EventChannel;
use crate::event::EventPayload;
use crate::ids::{ConsumerId, SupplierId, TopicId};
use crate::inbox::InboxCounters;

impl<P: EventPayload> EventChannel<P> {
    /// Returns the consumers that are subscribed to a topic, whatever their filters, or `None` if a group is
    /// among the subscribers.
    pub fn audience_of(&mut self, topic: TopicId) -> Option<Vec<ConsumerId>> {
        let receivers = self.audience(topic).into_iter().filter_map(|inbox| self.receivers.get(&inbox));
        let alone = receivers.map(|receiver| match receiver.group() {
            Some(_) => None,
            None => receiver.members.as_slice().first().copied(),
        });
        alone.collect()
    }

    /// Returns whether a consumer's inbox holds events of this supplier on this topic.
    #[must_use]
    pub fn waits_from(&self, consumer: ConsumerId, supplier: SupplierId, topic: TopicId) -> bool {
        self.receiver(consumer).is_some_and(|receiver| receiver.inbox.holds(topic, supplier))
    }

    /// Returns the sequence number of a supplier's last event on a topic, or 0 if there is no event yet.
    #[must_use]
    pub fn last_sequence(&self, supplier: SupplierId, topic: TopicId) -> u64 {
        let state = self.suppliers.get(&supplier).and_then(|state| state.offers.get(&topic));
        state.map_or(0, |state| state.sequence)
    }

    /// Skips the sequence numbers of `events` events that a supplier has sent directly.
    pub fn skip_sequences(&mut self, supplier: SupplierId, topic: TopicId, events: u64) {
        let state = self.suppliers.get_mut(&supplier).and_then(|state| state.offers.get_mut(&topic));
        if let Some(state) = state {
            state.sequence = state.sequence.saturating_add(events);
        }
    }

    /// Adds to a consumer's counters the events of a topic that it received from suppliers directly, and the
    /// events that were lost on the way.
    pub fn count_direct(&mut self, consumer: ConsumerId, topic: TopicId, counted: InboxCounters) {
        let inbox = self.consumers.get(&consumer).map(|member| member.inbox);
        let Some(receiver) = inbox.and_then(|inbox| self.receivers.get_mut(&inbox)) else { return };
        receiver.inbox.count_direct(topic, counted);
    }

    /// Counts events of a topic that were delivered to a consumer, and that it dropped because their
    /// deadlines had passed on the way.
    pub fn count_late(&mut self, consumer: ConsumerId, topic: TopicId, events: u64) {
        let inbox = self.consumers.get(&consumer).map(|member| member.inbox);
        if let Some(receiver) = inbox.and_then(|inbox| self.receivers.get_mut(&inbox)) {
            receiver.inbox.count_late(topic, events);
        }
    }
}
