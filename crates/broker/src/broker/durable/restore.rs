//! Restores the retained events and histories of topics from the log after a restart, and then MQTT sessions.
//!
//! Logged topics get back their events, as far as the log still has them. Other topics start empty, as all
//! topics of a broker without a log do. Cost: the log is read once more when the broker starts.

use crate::broker::Broker;
use crate::log::{KeptTopic, LogCursor, LogEntry, LogError, LoggedEvent};
use std::collections::HashMap;
use unisono_eventchannel::{Retention, SupplierOwner, TopicId, TopicSpec};
use unisono_events_wire::Advertisement;
use unisono_linux::clock::Instant;

impl Broker {
    /// Restores the kept events of the log's topics and the MQTT sessions, in a broker with a log. From now
    /// on sessions outlive the broker.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn keep_again(&mut self, now: Instant) -> Result<(), LogError> {
        let Some(durable) = &mut self.durable else { return Ok(()) };
        let (topics, owners) = (durable.log.kept_topics()?, durable.log.chain_owners());
        let mut gone = Vec::new();
        for declared in topics {
            let (by, memory) = (self.terms_of_owner(declared.owner.as_ref()), declared.memory());
            // a topic that exceeds the present limits is forgotten; its supplier declares it anew
            if self
                .declare_again(&declared)
                .and_then(|topic| self.channel.keep_beside(topic, &by.1, memory).ok())
                .is_none()
            {
                gone.push(declared.topic);
            }
        }
        let mut terms = HashMap::new();
        for (chain, owner) in owners {
            terms.insert(chain, self.terms_of_owner(Some(&owner)));
        }
        let of_nobody = self.terms_of_owner(None);
        let Some(durable) = &mut self.durable else { return Ok(()) };
        let _ = durable.log.forget_topics(gone.iter().map(String::as_str));
        let mut cursor = LogCursor::at(durable.log.first());
        while let Some(entry) = durable.log.read(&mut cursor)? {
            let LogEntry::Event { position } = entry else { continue };
            let Ok(event) = LoggedEvent::read(cursor.body()) else { continue };
            // the memory is charged to the owner of the event, as for newly published events
            let (tenant, keeping) = cursor.chain().and_then(|chain| terms.get(&chain)).unwrap_or(&of_nobody);
            let retention = match (event.retained, event.payload.is_empty()) {
                (false, _) => Retention::AsTopic,
                (true, false) => Retention::Retain,
                (true, true) => Retention::Remove,
            };
            let mut topic = self.channel.topic(event.topic);
            if topic.is_none() && retention == Retention::Retain {
                let declared = TopicSpec::new(event.topic).ok();
                let declared = declared.map(|spec| self.channel.declare_by((*tenant, keeping), spec));
                topic = declared.and_then(Result::ok);
            }
            let Some(topic) = topic else { continue };
            // events of an earlier declaration may have another type
            let event_type = self.channel.topic_spec(topic).and_then(|spec| spec.event_type.as_deref());
            let fits = self.channel.keeps(topic) && event_type == event.event_type;
            if retention == Retention::AsTopic && !fits {
                continue;
            }
            if let Some(mut kept) = durable.event(now, cursor.body(), position) {
                (kept.topic, kept.payload.origin.retain) = (TopicId(topic.0), event.retained);
                // without room the event is missing, as it would have been refused to its supplier
                let _ = self.channel.keep_again(kept, retention, keeping);
            }
        }
        // retires the topics whose events the log no longer has
        self.channel.retire_unused();
        self.forget_retired();
        self.sessions_again(now)
    }

    fn declare_again(&mut self, declared: &KeptTopic) -> Option<TopicId> {
        let KeptTopic { topic, event_type, history, exclusive, owner } = declared.clone();
        let spec = Advertisement { event_type, history, exclusive, ..Advertisement::new(&topic) };
        let (tenant, keeping) = self.terms_of_owner(owner.as_ref());
        let owner = owner.map_or_else(SupplierOwner::default, |owner| owner.of_supplier());
        self.channel.declare_as(owner, (tenant, &keeping), spec.topic_spec().ok()?).ok()
    }
}
