//! Restores the retained events and histories of topics from the log after a restart.
//!
//! Logged topics get back their events, as far as the log still has them. Other topics start empty, as after
//! any restart. Cost: the log is read once more when the broker starts.

use crate::broker::Broker;
use crate::log::{KeptTopic, LogCursor, LogEntry, LogError, LoggedEvent};
use crate::spec::Advertisement;
use unisono_eventchannel::{KeepingTerms, Retention, SupplierOwner, TenantId, TopicId, TopicSpec};
use unisono_linux::clock::Nanos;

impl Broker {
    /// Restores the kept events of the log's topics, in a broker with a log.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn keeping_again(mut self, now: Nanos) -> Result<Self, LogError> {
        let Some(durable) = &mut self.durable else { return Ok(self) };
        for KeptTopic { topic, event_type, history, exclusive, owner } in durable.log.kept_topics()? {
            let spec = Advertisement { event_type, history, exclusive, ..Advertisement::of(&topic) };
            // a topic that exceeds the present limits is declared anew by its supplier
            if let Ok(spec) = spec.topic_spec() {
                let owner = owner.map_or_else(SupplierOwner::default, |owner| owner.of_supplier());
                let _ = self.channel.declare_as(owner, (TenantId::NONE, &KeepingTerms::default()), spec);
            }
        }
        // no account is charged: the original publisher may not come back
        let terms = KeepingTerms {
            all: usize::try_from(self.limits.memory).unwrap_or(usize::MAX),
            ..Default::default()
        };
        let mut cursor = LogCursor::at(durable.log.first());
        while let Some(entry) = durable.log.read(&mut cursor)? {
            let LogEntry::Event { position } = entry else { continue };
            let Ok(event) = LoggedEvent::read(cursor.body()) else { continue };
            let retention = match (event.retained, event.payload.is_empty()) {
                (false, _) => Retention::AsTopic,
                (true, false) => Retention::Retain,
                (true, true) => Retention::Remove,
            };
            let mut topic = self.channel.topic(event.topic);
            if topic.is_none() && retention == Retention::Retain {
                let declared = TopicSpec::new(event.topic).ok().map(|spec| self.channel.declare(spec));
                topic = declared.and_then(Result::ok);
            }
            let Some(topic) = topic else { continue };
            // events of an earlier declaration have another type
            let event_type = self.channel.topic_spec(topic).and_then(|spec| spec.event_type.as_deref());
            let fits = self.channel.keeps(topic) && event_type == event.event_type;
            if retention == Retention::AsTopic && !fits {
                continue;
            }
            if let Some(mut kept) = durable.event(now, cursor.body(), position) {
                (kept.topic, kept.payload.origin.retain) = (TopicId(topic.0), event.retained);
                // without room the event is missing, as it would have been refused to its supplier
                let _ = self.channel.keep_again(kept, retention, &terms);
            }
        }
        Ok(self)
    }
}
