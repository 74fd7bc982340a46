//! What inboxes have done, also those that are closed: their totals never fall.

use super::EventChannel;
use crate::event::EventPayload;
use crate::ids::{ConsumerId, InboxId, TopicId};
use crate::inbox::{Inbox, InboxCounters};
use std::collections::BTreeMap;
use std::sync::Arc;
use unisono_fairqueue::ClassId;
use unisono_linux::clock::Nanos;

/// Topics of which the misses of closed inboxes are counted apart. Others are counted as of no topic. A
/// table or a monitoring program shows no more. Chosen, not measured.
const MOST_DEPARTED_TOPICS: usize = 256;

/// What the inboxes have done that are closed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DepartedInboxes {
    pub counters: InboxCounters,
    /// Missed deadlines by topic; under the empty name those of topics that are gone, and of the topics
    /// beyond the first 256.
    pub misses: BTreeMap<Arc<str>, u64>,
}

/// What an inbox is and has done.
#[derive(Clone, Debug)]
pub struct InboxAccount<'a> {
    pub inbox: InboxId,
    /// None: it belongs to one consumer.
    pub group: Option<&'a Arc<str>>,
    pub class: ClassId,
    /// None: a group's inbox that waits for a consumer to come back.
    pub members: Vec<ConsumerId>,
    pub counters: InboxCounters,
    pub waiting: usize,
    pub misses: &'a BTreeMap<TopicId, u64>,
}

impl<P: EventPayload> EventChannel<P> {
    /// All inboxes, in no order.
    pub fn inboxes(&self) -> impl Iterator<Item = InboxAccount<'_>> {
        self.receivers.iter().map(|(inbox, receiver)| InboxAccount {
            inbox: *inbox,
            group: receiver.group.as_ref(),
            class: receiver.class,
            members: receiver.members.iter().copied().collect(),
            counters: receiver.inbox.counters,
            waiting: receiver.inbox.len(),
            misses: &receiver.inbox.misses,
        })
    }

    #[must_use]
    pub fn departed(&self) -> &DepartedInboxes {
        &self.departed
    }

    /// As [`disconnect`](Self::disconnect), for a consumer that nobody is to see: what it did is not among
    /// [`departed`](Self::departed).
    pub fn disconnect_unseen(&mut self, now: Nanos, consumer: ConsumerId) {
        let departed = std::mem::take(&mut self.departed);
        self.disconnect(now, consumer);
        self.departed = departed;
    }

    /// An inbox is closed.
    pub(super) fn keep_account(&mut self, inbox: &Inbox<P>) {
        self.departed.counters.add(&inbox.counters);
        for (topic, missed) in &inbox.misses {
            let name = self.topics.get(topic).map(|topic| Arc::clone(&topic.spec.name)).unwrap_or_default();
            let misses = &mut self.departed.misses;
            let has_place = misses.len() < MOST_DEPARTED_TOPICS || misses.contains_key(&name);
            let total = misses.entry(if has_place { name } else { Arc::default() }).or_default();
            *total = total.saturating_add(*missed);
        }
    }
}
