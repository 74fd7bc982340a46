//! Counters of inboxes, open and closed. The totals never fall, because the counters of closed inboxes are
//! added to them.

use super::EventChannel;
use crate::event::EventPayload;
use crate::ids::{ConsumerId, InboxId, TopicId};
use crate::inbox::{Inbox, InboxCounters};
use std::collections::BTreeMap;
use std::sync::Arc;
use unisono_fairqueue::ClassId;
use unisono_time::Instant;

/// The maximum number of topics for which closed inboxes have a misses counter each; the misses of further
/// topics are summed under the empty name. A table or a monitoring program shows no more. Chosen, not
/// measured.
const MAX_DEPARTED_TOPICS: usize = 256;

/// Totals of the closed inboxes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DepartedInboxes {
    pub counters: InboxCounters,
    /// Missed deadlines by topic. The empty name stands for topics that no longer exist and for topics beyond
    /// the first 256.
    pub misses: BTreeMap<Arc<str>, u64>,
}

/// State and counters of one inbox.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InboxAccount<'a> {
    pub inbox: InboxId,
    /// The consumer group; `None`: the inbox of a single consumer.
    pub group: Option<&'a Arc<str>>,
    pub class: ClassId,
    /// The consumers of the inbox. Empty for a group's inbox that waits for a consumer to come back.
    pub members: Vec<ConsumerId>,
    pub counters: InboxCounters,
    pub waiting: usize,
    pub misses: &'a BTreeMap<TopicId, u64>,
}

impl<P: EventPayload> EventChannel<P> {
    /// Returns the accounts of all inboxes, in no particular order.
    pub fn inboxes(&self) -> impl Iterator<Item = InboxAccount<'_>> {
        self.receivers.iter().map(|(inbox, receiver)| InboxAccount {
            inbox: *inbox,
            group: receiver.group(),
            class: receiver.class,
            members: receiver.members.as_slice().to_vec(),
            counters: receiver.inbox.counters(),
            waiting: receiver.inbox.len(),
            misses: receiver.inbox.misses(),
        })
    }

    /// Returns the events taken of each topic since it was declared.
    pub fn published(&self) -> impl Iterator<Item = (&str, u64)> {
        self.topics.values().map(|topic| (&*topic.spec.name, topic.published))
    }

    #[must_use]
    pub fn departed(&self) -> &DepartedInboxes {
        &self.departed
    }

    /// Disconnects an internal consumer, as [`disconnect`](Self::disconnect) does, but does not add its
    /// counters to [`departed`](Self::departed).
    pub fn disconnect_unseen(&mut self, now: Instant, consumer: ConsumerId) {
        let departed = std::mem::take(&mut self.departed);
        self.disconnect(now, consumer);
        self.departed = departed;
    }

    /// Adds the counters of an inbox that is being closed to the totals.
    pub(super) fn keep_account(&mut self, inbox: &Inbox<P>) {
        self.departed.counters.add(&inbox.counters());
        for (topic, missed) in inbox.misses() {
            let name = self.topics.get(topic).map(|topic| Arc::clone(&topic.spec.name)).unwrap_or_default();
            let misses = &mut self.departed.misses;
            let has_place = misses.len() < MAX_DEPARTED_TOPICS || misses.contains_key(&name);
            let total = misses.entry(if has_place { name } else { Arc::default() }).or_default();
            *total = total.saturating_add(*missed);
        }
    }
}
