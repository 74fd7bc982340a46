//! The consumers of topics with direct suppliers: which have come or gone.

use super::DirectRings;
use super::counts::LinkCounts;
use crate::broker::Broker;
use unisono_eventchannel::{
    ChangedAudiences, ConsumerId, Interest, NumberMap, SubscriptionId, SubscriptionIndex, TopicId,
};

impl Broker {
    /// Marks the topics with ring suppliers whose consumers may have changed.
    pub(in crate::broker) fn find_changed_audiences(&mut self) {
        if !self.channel.have_audiences_changed() {
            return;
        }
        let changes = self.channel.take_changed_audiences();
        let (DirectRings { topics, changed, .. }, channel) = (&mut self.direct, &self.channel);
        if topics.is_empty() {
            return;
        }
        let before = changed.len();
        match changes {
            ChangedAudiences::Of(patterns) => {
                let (mut wild, mut number) = (SubscriptionIndex::default(), 0);
                for pattern in patterns {
                    if let Some(name) = pattern.as_name() {
                        changed.extend(channel.topic(name).filter(|topic| topics.contains_key(topic)));
                    } else {
                        wild.insert(SubscriptionId(number), Interest::in_topics(pattern));
                        number += 1;
                    }
                }
                if number > 0 {
                    self.counters.work += topics.len() / 16;
                    let is_named = |topic: &TopicId| {
                        let spec = channel.topic_spec(*topic);
                        spec.is_some_and(|spec| wild.of_topic(&spec.name, None).next().is_some())
                    };
                    changed.extend(topics.keys().copied().filter(is_named));
                }
            }
            _ => changed.extend(topics.keys().copied()),
        }
        self.counters.work += changed.len() - before;
    }

    /// Drops the links of consumers that have gone from the changed topics. Returns the consumers of each
    /// changed topic, and counts the remaining links of all topics.
    pub(super) fn drop_links(&mut self) -> (NumberMap<TopicId, Option<Vec<ConsumerId>>>, LinkCounts) {
        let (mut audiences, mut dropped) = (NumberMap::default(), Vec::new());
        let changed = std::mem::take(&mut self.direct.changed);
        let affected: Vec<_> = self.direct.suppliers_of(&changed).collect();
        for of in affected {
            let Some(at) = self.direct.suppliers.get_mut(&of) else { continue };
            let audience = audiences.entry(at.topic).or_insert_with(|| self.channel.audience_of(at.topic));
            at.links.retain(|consumer, it| {
                let stays = audience.as_ref().is_some_and(|audience| audience.contains(consumer));
                if !stays {
                    dropped.push(it.link);
                }
                stays
            });
        }
        if !dropped.is_empty() {
            for topic in std::mem::take(&mut self.direct.short) {
                audiences.entry(topic).or_insert_with(|| self.channel.audience_of(topic));
            }
        }
        let (mut counts, DirectRings { suppliers, readers, .. }) = (LinkCounts::default(), &self.direct);
        for ((client, _), at) in suppliers {
            at.links.iter().for_each(|(consumer, it)| counts.add(*client, readers.get(consumer), it.used));
        }
        self.forget(dropped.into_iter());
        (audiences, counts)
    }
}
