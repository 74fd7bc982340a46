//! MQTT messages in the log, and their confirmations.
//!
//! A message to a logged topic, or a message that a session of the log waits for, is written before it is
//! delivered. PUBACK (QoS 1) and PUBREC (QoS 2) say that the log has the message: written, or synced, as
//! configured. A message that the log refuses is neither delivered nor confirmed. A message of QoS 0 has no
//! guarantee, and is delivered even then.
//!
//! Confirmations of a client keep their order (MQTT 5.0, section 4.6). So while a confirmation waits for the
//! disk, later ones of any topic wait, too.

use super::{DurableEvents, MAX_UNSYNCED, SyncedAnswer, UnsyncedAnswer, append};
use crate::body::EventBody;
use crate::broker::Broker;
use crate::broker::mqtt::MqttSessionId;
use crate::log::{SessionLine, SessionSync};
use crate::mqtt::{MqttFault, MqttQos, MqttReason};
use crate::name_owner::NameOwner;
use crate::task::{ClientId, Task};
use std::sync::Arc;
use unisono_eventchannel::{Publication, PublishError, Published, SupplierId, TopicId};
use unisono_events_wire::Durability;
use unisono_linux::clock::Instant;

impl Broker {
    /// Sets the durability at which MQTT messages of QoS 1 and 2 to logged topics are confirmed; at least
    /// [`Durability::Written`].
    pub fn confirm_messages(&mut self, durability: Durability) {
        if let Some(durable) = &mut self.durable {
            durable.messages = durability.max(Durability::Written);
        }
    }

    /// Returns whether a client's next message of QoS 1 or 2 has to wait until earlier ones are synced.
    pub(in crate::broker) fn waits_for_disk(&mut self, session: MqttSessionId) -> bool {
        let behind = |durable: &DurableEvents| durable.unsynced.len() >= MAX_UNSYNCED;
        self.durable.as_ref().is_some_and(behind)
            && self.mqtt.unconfirmed(session).is_some_and(|unconfirmed| *unconfirmed > 0)
    }

    /// Publishes a message; returns its position in the log too, if it was logged.
    pub(in crate::broker) fn publish_message(
        &mut self,
        now: Instant,
        (session, supplier, topic): (MqttSessionId, SupplierId, TopicId),
        (qos, number): (MqttQos, Option<u16>),
        publication: Publication<EventBody>,
    ) -> Result<(Published, Option<u64>), PublishError> {
        let name =
            self.channel.topic_spec(topic).map(|spec| (Arc::clone(&spec.name), spec.event_type.clone()));
        let (Some(durable), Some((name, event_type))) = (&mut self.durable, name) else {
            return Ok((self.channel.try_publish(now, supplier, topic, publication)?, None));
        };
        let is_kept = durable.kept.iter().any(|pattern| pattern.matches(&name));
        if !is_kept && (qos == MqttQos::AtMostOnce || !self.mqtt.has_waiters()) {
            return Ok((self.channel.try_publish(now, supplier, topic, publication)?, None));
        }
        // the packet identifier of a QoS 2 message from a kept session is written to the session's file
        // before the message is written to the log
        let mut arrival = None;
        if qos == MqttQos::ExactlyOnce
            && let Some(number) = number
        {
            self.write_session(session, SessionSync::No);
            arrival = self.mqtt.written_file(session).map(|file| (file, number));
        }
        let sync = self.session_sync();
        let Some(durable) = &mut self.durable else { return Err(PublishError::NotOffered) };
        let DurableEvents { log, time_ahead, followers, readable, .. } = durable;
        let owner = self.mqtt.owner(session).map_or(&NameOwner::Anonymous, |(owner, _)| owner);
        let (mut position, retention) = (None, publication.retention);
        let (mut waiters, mut is_doubtful) = (Vec::new(), false);
        let published = self.channel.try_publish_kept(now, supplier, topic, publication, |event, found| {
            if qos > MqttQos::AtMostOnce {
                waiters = self.mqtt.waiters_of(found);
            }
            if !is_kept && waiters.is_empty() {
                return Ok(());
            }
            let mut before = None;
            if let Some((file, id)) = &arrival {
                let mut line = Vec::new();
                SessionLine::Arrived { id: *id, position: log.next() }.write(&mut line);
                let noted = log.append_to_session(file, &line, sync).map_err(|error| error.to_string())?;
                before = Some((file, noted));
            }
            let of = (&*name, event_type.as_deref(), "");
            match append(
                (&mut *log, owner, *time_ahead, now),
                of,
                event,
                (retention, qos > MqttQos::AtMostOnce),
            ) {
                Ok(at) => position = Some(at),
                Err(error) if qos > MqttQos::AtMostOnce => {
                    // removes the note of the identifier again, because the next event of the log gets this
                    // position
                    let taken_back = before.map(|(file, bytes)| log.shorten_session(file, bytes));
                    is_doubtful = matches!(taken_back, Some(Err(_)));
                    return Err(error.to_string());
                }
                // QoS 0 has no guarantee; the log has counted the failure
                Err(_) => {}
            }
            Ok(())
        });
        if is_doubtful {
            self.mqtt.doubt_file(session);
        }
        let published = published?;
        let Some(position) = position else { return Ok((published, None)) };
        readable.extend(followers.keys());
        self.mqtt.note_waiting(waiters, position);
        Ok((published, Some(position)))
    }

    /// Confirms a message of QoS 1 or 2: now, or when it is synced.
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
                // after a failed sync, the client's repetition counts as a new message only if this message
                // was logged
                let exactly_once = exactly_once.filter(|_| position.is_some());
                let position = position.unwrap_or(durable.log.next() - 1);
                let what = SyncedAnswer::Message { session, exactly_once, packet };
                durable.unsynced.push_back(UnsyncedAnswer { position, sync: 0, client, what });
            }
            _ => tasks.push_back(Task::Answer { client, head: packet, body: None }),
        }
    }

    /// Confirms or refuses a message whose sync has ended. After a failed sync the client is disconnected,
    /// and its message counts as new when it comes again: MQTT 3.1.1 has no refusal.
    pub(super) fn message_synced(
        &mut self,
        now: Instant,
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
