//! Messages of MQTT clients in the log, and when they are confirmed.
//!
//! A message to a topic that is kept is written before anybody gets it. PUBACK (QoS 1) and PUBREC (QoS 2) say
//! that the log has it: written, or synced, as the broker was told. A message that the log does not take goes
//! to nobody and is not confirmed. A message of QoS 0 promises nothing, and is delivered also then.
//!
//! Confirmations of a client keep their order (MQTT 5.0, section 4.6). So while one of them waits for the
//! disk, later ones wait too, whatever their topic.

use super::{DurableEvents, MOST_UNSYNCED, SyncedAnswer, UnsyncedAnswer, append};
use crate::body::EventBody;
use crate::broker::Broker;
use crate::broker::mqtt::MqttSessionId;
use crate::mqtt::{MqttFault, MqttQos, MqttReason};
use crate::spec::Durability;
use crate::task::{ClientId, Task};
use std::sync::Arc;
use unisono_eventchannel::{Publication, PublishError, Published, SupplierId, TopicId};
use unisono_linux::clock::Nanos;

impl Broker {
    /// The same, where MQTT messages of QoS 1 and 2 to topics that are kept are confirmed when they have come
    /// so far; at least, when they are written.
    #[must_use]
    pub fn confirming_messages(mut self, durability: Durability) -> Self {
        if let Some(durable) = &mut self.durable {
            durable.messages = durability.max(Durability::Written);
        }
        self
    }

    /// Whether a client has to wait with its next message of QoS 1 or 2 until the disk has earlier ones.
    pub(in crate::broker) fn waits_for_disk(&mut self, session: MqttSessionId) -> bool {
        let behind = |durable: &DurableEvents| durable.unsynced.len() >= MOST_UNSYNCED;
        self.durable.as_ref().is_some_and(behind)
            && self.mqtt.unconfirmed(session).is_some_and(|unconfirmed| *unconfirmed > 0)
    }

    /// Publishes a message; if its topic is kept, also its position in the log.
    pub(in crate::broker) fn publish_message(
        &mut self,
        now: Nanos,
        (session, supplier, topic): (MqttSessionId, SupplierId, TopicId),
        qos: MqttQos,
        publication: Publication<EventBody>,
    ) -> Result<(Published, Option<u64>), PublishError> {
        let name =
            self.channel.topic_spec(topic).map(|spec| (Arc::clone(&spec.name), spec.event_type.clone()));
        let (Some(durable), Some((name, event_type))) = (&mut self.durable, name) else {
            return Ok((self.channel.try_publish(now, supplier, topic, publication)?, None));
        };
        let DurableEvents { log, epoch, kept, followers, hungry, .. } = durable;
        if !kept.iter().any(|pattern| pattern.matches(&name)) {
            return Ok((self.channel.try_publish(now, supplier, topic, publication)?, None));
        }
        let chain = self.mqtt.owner(session).map(|(owner, _)| log.chain_of(owner)).unwrap_or_default();
        let (mut position, retention) = (None, publication.retention);
        let published = self.channel.try_publish_kept(now, supplier, topic, publication, |event| {
            let of = (&*name, event_type.as_deref(), "");
            match append((&mut *log, chain, *epoch, now), of, event, retention) {
                Ok(at) => position = Some(at),
                Err(error) if qos > MqttQos::AtMostOnce => return Err(error.to_string()),
                // nobody was promised that it is kept; the log has counted it
                Err(_) => {}
            }
            Ok(())
        })?;
        hungry.extend(followers.keys());
        Ok((published, position))
    }

    /// Confirms a message of QoS 1 or 2: now, or when the disk has it.
    pub(in crate::broker) fn confirm_message(
        &mut self,
        client: ClientId,
        (session, exactly_once): (MqttSessionId, Option<u16>),
        position: Option<u64>,
        packet: Vec<u8>,
    ) {
        let (unconfirmed, tasks) = (self.mqtt.unconfirmed(session), &mut self.tasks);
        match (&mut self.durable, unconfirmed) {
            (Some(durable), Some(unconfirmed))
                if durable.messages == Durability::Synced
                    && (*unconfirmed > 0 || position.is_some_and(|at| at >= durable.log.synced())) =>
            {
                *unconfirmed += 1;
                // one that is not in the log, or came before, does not become new when the sync fails
                let exactly_once = exactly_once.filter(|_| position.is_some());
                let position = position.unwrap_or(durable.log.next() - 1);
                let what = SyncedAnswer::Message { session, exactly_once, packet };
                durable.unsynced.push_back(UnsyncedAnswer { position, client, what });
            }
            _ => tasks.push_back(Task::Answer { client, head: packet, body: None }),
        }
    }

    /// A sync has ended for which the confirmation of a message waited. After one that failed the client is
    /// sent away, and its message is a new one when it comes again: MQTT 3.1.1 knows no refusal.
    pub(super) fn message_synced(
        &mut self,
        now: Nanos,
        client: ClientId,
        (session, exactly_once): (MqttSessionId, Option<u16>),
        packet: Vec<u8>,
        result: &Result<(), String>,
    ) {
        if let Some(unconfirmed) = self.mqtt.unconfirmed(session) {
            *unconfirmed -= 1;
        }
        match result {
            Ok(()) => self.tasks.push_back(Task::Answer { client, head: packet, body: None }),
            Err(reason) => {
                if let Some(number) = exactly_once {
                    self.mqtt.forget_unreleased(session, number);
                }
                let reason = format!("the log could not be synced: {reason}");
                self.mqtt_send_away(now, client, &MqttFault::new(MqttReason::Refused as u8, reason));
            }
        }
    }
}
