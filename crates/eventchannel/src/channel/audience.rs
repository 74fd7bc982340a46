//! The consumers of a topic (its *audience*), and the subscription changes that may have changed them.

use super::{EventChannel, WORK_STEPS};
use crate::event::EventPayload;
use crate::ids::{InboxId, TopicId};
use crate::pattern::TopicPattern;
use std::collections::{BTreeSet, HashSet};

/// The maximum number of patterns that are recorded as changed; beyond it, all topics count as changed. A
/// single frame may change this many patterns. Chosen, not measured.
const MAX_CHANGES: usize = 4096;

/// The topics whose consumers may have changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ChangedAudiences {
    All,
    /// Topics that match one of the patterns.
    Of(HashSet<TopicPattern>),
}

impl Default for ChangedAudiences {
    fn default() -> Self {
        Self::Of(HashSet::new())
    }
}

impl ChangedAudiences {
    pub(super) fn add(&mut self, pattern: TopicPattern) {
        if let Self::Of(patterns) = self {
            patterns.insert(pattern);
            if patterns.len() > MAX_CHANGES {
                *self = Self::All;
            }
        }
    }

    /// Returns whether no topic's consumers have changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Of(patterns) if patterns.is_empty())
    }
}

impl<P: EventPayload> EventChannel<P> {
    /// Returns the inboxes with a subscription that asks for the topic, each once.
    pub(super) fn audience(&mut self, topic: TopicId) -> BTreeSet<InboxId> {
        let Some(topic) = self.topics.get(&topic) else { return BTreeSet::new() };
        let (mut inboxes, mut compared) = (BTreeSet::new(), 0);
        for (id, _) in self.index.of_topic(&topic.spec.name, topic.spec.event_type.as_deref()) {
            compared += 1;
            inboxes.extend(self.subscriptions.get(&id).map(|destined| destined.inbox));
        }
        self.work += compared / WORK_STEPS;
        inboxes
    }

    /// Returns the topics whose consumers may have changed since the last call.
    pub fn take_changed_audiences(&mut self) -> ChangedAudiences {
        std::mem::take(&mut self.changes)
    }

    /// Returns whether the consumers of some topic may have changed since the last call of
    /// [`take_changed_audiences`](Self::take_changed_audiences).
    #[must_use]
    pub fn have_audiences_changed(&self) -> bool {
        !self.changes.is_empty()
    }
}
