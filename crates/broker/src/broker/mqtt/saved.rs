//! The logged part of a session, which outlives the broker: `log/sessions.rs` has the file.
//!
//! Each change of a session becomes a line. Lines are written before the server gets the next task, and so
//! before any packet that depends on them leaves the broker: a client's message of QoS 2 is known before its
//! PUBREC, its release before PUBCOMP, and a message's identifier before its PUBLISH. Then a broker that is
//! killed at any moment delivers no message of QoS 2 twice.
//!
//! Messages of MQTT clients of QoS 1 and 2 that a kept session waits for are in the log, whatever their topic
//! (`durable/messages.rs`). A session stores the positions of the waiting ones.
//!
//! Cost: for each waiting message, its position; a line for each message sent and each confirmation, and one
//! write for all lines of a turn.

use super::super::Broker;
use super::record::SessionRecord;
use super::session::{InFlight, InFlightStep, MqttSession, SentIdentifiers, SentMessage};
use super::{MqttSessionId, MqttSessions};
use crate::body::EventBody;
use crate::log::{
    SavedFlight, SavedSession, SavedSubscription, SessionHead, SessionLine, SessionPeer, WallTime,
    session_file,
};
use crate::mqtt::{FilterRequest, MqttQos, MqttVersion, PastPolicy};
use crate::name_owner::NameOwner;
use crate::permissions::ClientIdentity;
use std::sync::Arc;
use unisono_eventchannel::{ChannelEvent, ConsumerId, SubscriptionId};
use unisono_events_wire::transport::TransportPeer;
use unisono_linux::clock::{Duration, Instant};

impl MqttSession {
    /// Returns the QoS of a consumer's queue, or 0 for the queue of a group or of QoS 0.
    fn queue_of(&self, consumer: ConsumerId) -> u8 {
        let queue = self.consumers.iter().position(|own| *own == Some(consumer));
        queue.and_then(|queue| u8::try_from(queue).ok()).unwrap_or(0)
    }

    /// Returns the session as its file describes it, if it is kept.
    pub(super) fn saved(&self, next: u64) -> Option<SavedSession> {
        let record = self.record.as_ref()?;
        let peer = match self.peer {
            TransportPeer::User(user) => SessionPeer::User(user),
            TransportPeer::Address(address) => SessionPeer::Address(address),
        };
        let head = SessionHead::new(&self.name, self.owner.to_string(), peer, next);
        let mut saved = SavedSession::new(head);
        (saved.expiry, saved.away) = (self.expiry, record.away);
        let subscriptions = self.subscriptions.values();
        let subscriptions = subscriptions.map(|own| saved_subscription(&own.request, own.identifier, next));
        saved.subscriptions = subscriptions.map(|own| (own.filter.clone(), own)).collect();
        for queue in 1..=2_u8 {
            let waiting = record.waiting[usize::from(queue)].iter();
            saved.waiting.extend(waiting.map(|position| (queue, *position)));
        }
        for (id, flight) in self.in_order() {
            saved.send(flight.saved(id, None));
        }
        saved.arrived = self.unreleased.iter().map(|id| (*id, 0)).collect();
        Some(saved)
    }
}

impl InFlight {
    /// Returns the message as the file describes it. `queue` is the queue that it has just left, if it has.
    fn saved(&self, id: u16, queue: Option<u8>) -> SavedFlight {
        match &self.step {
            InFlightStep::Sent(message) => {
                let (of, identifier) = match message.identifiers {
                    SentIdentifiers::Matching { subscribed, .. } => (Some(subscribed as u8), None),
                    SentIdentifiers::Of(identifier) => (None, identifier),
                };
                SavedFlight {
                    id,
                    position: message.event.payload.position,
                    queue: queue.or(of).unwrap_or(0),
                    qos: message.qos as u8,
                    retain: message.retain,
                    matching: of.is_some(),
                    identifier,
                    received: false,
                }
            }
            InFlightStep::Released => SavedFlight {
                id,
                position: 0,
                queue: 0,
                qos: MqttQos::ExactlyOnce as u8,
                retain: false,
                matching: false,
                identifier: None,
                received: true,
            },
        }
    }
}

fn saved_subscription(request: &FilterRequest, identifier: Option<u32>, from: u64) -> SavedSubscription {
    SavedSubscription {
        filter: request.filter.clone(),
        qos: request.qos as u8,
        no_local: request.no_local,
        retain_as_published: request.retain_as_published,
        identifier,
        from,
    }
}

impl MqttSessions {
    /// Returns whether kept sessions wait for messages.
    pub(in crate::broker) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Returns the kept sessions that wait for an event, and their queues, by the subscriptions that match
    /// the event.
    pub(in crate::broker) fn waiters_of(&self, found: &[SubscriptionId]) -> Vec<(MqttSessionId, u8)> {
        if self.waiters.is_empty() {
            return Vec::new();
        }
        found.iter().filter_map(|subscription| self.waiters.get(subscription).copied()).collect()
    }

    /// Records that a logged event waits in these queues.
    pub(in crate::broker) fn note_waiting(&mut self, waiters: Vec<(MqttSessionId, u8)>, position: u64) {
        for (id, queue) in waiters {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let most = session.queue_events();
            let Some(record) = &mut session.record else { continue };
            let waiting = &mut record.waiting[usize::from(queue)];
            waiting.insert(position);
            // the queue holds at most this many events, so it has dropped its oldest one
            if waiting.len() > most {
                waiting.pop_first();
            }
        }
    }

    /// Adds a line to a kept session's file.
    pub(super) fn note(&mut self, id: MqttSessionId, line: &SessionLine) {
        let record = self.sessions.get_mut(&id).and_then(|session| session.record.as_mut());
        if let Some(record) = record {
            record.note(line);
            self.unwritten.insert(id);
        }
    }

    /// Notes that an event has left its queue: to the client with this packet identifier, or nowhere.
    pub(super) fn note_delivery(
        &mut self,
        id: MqttSessionId,
        (consumer, position): (ConsumerId, u64),
        number: Option<u16>,
    ) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let queue = session.queue_of(consumer);
        let flight = number.and_then(|number| Some((number, session.in_flight.get(&number)?)));
        let sent = flight.map(|(number, flight)| flight.saved(number, Some(queue)));
        let Some(record) = &mut session.record else { return };
        let waited = record.waiting[usize::from(queue)].remove(&position);
        match sent {
            Some(sent) => self.note(id, &SessionLine::Sent(sent)),
            None if waited && queue > 0 => self.note(id, &SessionLine::Dropped { queue, position }),
            None => {}
        }
    }

    /// Notes that a queue is empty: events that it has dropped do not wait any more.
    pub(super) fn note_emptied(&mut self, id: MqttSessionId, consumer: ConsumerId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let queue = session.queue_of(consumer);
        let Some(record) = &mut session.record else { return };
        let waiting = std::mem::take(&mut record.waiting[usize::from(queue)]);
        if let Some(last) = waiting.last() {
            self.note(id, &SessionLine::Emptied { queue, before: last + 1 });
        }
    }

    /// Notes a new subscription, in place of a former one; `from` is the position of its first event.
    pub(super) fn note_subscription(&mut self, id: MqttSessionId, filter: &str, from: u64) {
        let Some(own) = self.sessions.get(&id).and_then(|session| session.subscriptions.get(filter)) else {
            return;
        };
        let line = SessionLine::Subscribed(saved_subscription(&own.request, own.identifier, from));
        let waiter = (own.shared.is_none() && own.request.qos > MqttQos::AtMostOnce)
            .then_some((own.subscription, (id, own.request.qos as u8)));
        if self.sessions.get(&id).is_some_and(|session| session.record.is_some()) {
            self.waiters.extend(waiter);
        }
        self.note(id, &line);
    }

    /// Makes the log record all events that match a kept session's subscriptions of QoS 1 and 2.
    fn add_waiters(&mut self, id: MqttSessionId) {
        let Some(session) = self.sessions.get(&id).filter(|session| session.record.is_some()) else { return };
        let own = session.subscriptions.values().filter(|own| own.shared.is_none());
        let own = own.filter(|own| own.request.qos > MqttQos::AtMostOnce);
        self.waiters.extend(own.map(|own| (own.subscription, (id, own.request.qos as u8))));
    }

    /// Returns the file of a kept session whose lines are all written.
    pub(in crate::broker) fn written_file(&self, id: MqttSessionId) -> Option<String> {
        let record = self.sessions.get(&id)?.record.as_ref()?;
        (!record.is_stale && record.lines.is_empty()).then(|| record.file.clone())
    }

    /// Marks a session's file to be written anew, because it may differ from the session.
    pub(in crate::broker) fn doubt_file(&mut self, id: MqttSessionId) {
        if let Some(record) = self.sessions.get_mut(&id).and_then(|session| session.record.as_mut()) {
            record.is_stale = true;
            record.lines.clear();
            self.unwritten.insert(id);
        }
    }

    /// Returns a kept session with lines to write.
    pub(in crate::broker) fn take_unwritten(&mut self) -> Option<MqttSessionId> {
        self.unwritten.pop_first()
    }

    /// Returns the file of a kept session, its new lines, and the whole session if the file has to be written
    /// anew.
    pub(in crate::broker) fn take_lines(
        &mut self,
        id: MqttSessionId,
        (next, is_overgrown): (u64, impl FnOnce(&str) -> bool),
    ) -> Option<(String, Vec<u8>, Option<SavedSession>)> {
        self.unwritten.remove(&id);
        let session = self.sessions.get_mut(&id)?;
        let record = session.record.as_mut()?;
        let lines = std::mem::take(&mut record.lines);
        let (file, is_stale) = (record.file.clone(), record.is_stale);
        let whole = (is_stale || is_overgrown(&file)).then(|| session.saved(next)).flatten();
        Some((file, lines, whole))
    }

    /// Records whether a session's file is complete; returns whether it was before.
    pub(in crate::broker) fn set_written(&mut self, id: MqttSessionId, complete: bool) -> bool {
        let record = self.sessions.get_mut(&id).and_then(|session| session.record.as_mut());
        record.is_none_or(|record| !std::mem::replace(&mut record.is_stale, !complete))
    }

    /// Returns the consumer of a session's queue.
    pub(in crate::broker) fn queue(&self, id: MqttSessionId, queue: u8) -> Option<ConsumerId> {
        *self.sessions.get(&id)?.consumers.get(usize::from(queue))?
    }

    /// Restores a message in flight. If the log no longer has the event of a QoS 2 message, the broker sends
    /// PUBREL instead: the client may have the message, and would take a new message with the same packet
    /// identifier for a repetition.
    pub(in crate::broker) fn flight_again(
        &mut self,
        id: MqttSessionId,
        flight: &SavedFlight,
        event: Option<(Arc<str>, Arc<ChannelEvent<EventBody>>)>,
    ) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let step = match event {
            Some((topic, event)) if !flight.received => {
                let is_own = event.payload.origin.publisher.as_deref() == Some(&*session.key);
                let subscribed = MqttQos::from_bits(flight.queue).unwrap_or_default();
                let identifiers = match flight.matching {
                    true => SentIdentifiers::Matching { subscribed, is_own },
                    false => SentIdentifiers::Of(flight.identifier),
                };
                let qos = MqttQos::from_bits(flight.qos).unwrap_or_default();
                InFlightStep::Sent(SentMessage { topic, event, qos, retain: flight.retain, identifiers })
            }
            // a client does not remember the packet identifiers of QoS 1, so they can be used again at once
            None if flight.qos < MqttQos::ExactlyOnce as u8 => return,
            _ => InFlightStep::Released,
        };
        session.keep(flight.id, None, step);
    }
}

impl Broker {
    /// Makes the log keep a session that outlives its connection, or forget a session that does not.
    pub(super) fn mqtt_keep(&mut self, id: MqttSessionId) {
        if !self.keeps_sessions() {
            return;
        }
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return };
        let expiry = session.expiry;
        if expiry == 0 {
            return self.mqtt_forget(id);
        }
        match &mut session.record {
            Some(record) => {
                record.away = None;
                self.mqtt.note(id, &SessionLine::Connected { expiry });
            }
            None => {
                session.record = Some(Box::new(SessionRecord::new(&session.key)));
                self.mqtt.unwritten.insert(id);
                self.mqtt.add_waiters(id);
            }
        }
    }

    /// Makes the log forget a session.
    pub(super) fn mqtt_forget(&mut self, id: MqttSessionId) {
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return };
        let Some(record) = session.record.take() else { return };
        for own in session.subscriptions.values() {
            self.mqtt.waiters.remove(&own.subscription);
        }
        self.mqtt.unwritten.remove(&id);
        self.forget_session_file(&record.file);
    }

    /// Notes that a kept session's client is away.
    pub(super) fn mqtt_away(&mut self, id: MqttSessionId, at: WallTime) {
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return };
        let (expiry, at) = (session.expiry, at.0);
        if let Some(record) = &mut session.record {
            record.away = Some(at);
            self.mqtt.note(id, &SessionLine::Away { expiry, at });
        }
    }

    /// Restores a session as its file describes it, without its messages.
    ///
    /// # Errors
    /// The session has ended. The error has the reason, unless the session has expired.
    pub(in crate::broker) fn mqtt_session_again(
        &mut self,
        (now, at, next): (Instant, WallTime, u64),
        file: &str,
        saved: &SavedSession,
    ) -> Result<MqttSessionId, Option<String>> {
        let SavedSession { head, expiry, .. } = saved;
        let gone = WallTime(saved.away.unwrap_or(at.0));
        let ends = gone + Duration::from_secs((*expiry).into());
        if *expiry < u32::MAX && ends <= at {
            return Err(None);
        }
        let who = match head.identity.strip_prefix("mqtt:") {
            Some(name) => ClientIdentity::Mqtt(name.into()),
            None => head.identity.parse::<NameOwner>().map_err(Some)?.identity(),
        };
        let owner = NameOwner::from(&who);
        let key = owner.key_of(&head.client);
        if session_file(&key) != file {
            return Err(Some("its file has the name of another session".to_owned()));
        }
        let grant = self.access.grant_again(&who).filter(|_| self.may_leave_something(&owner));
        let grant = grant.ok_or_else(|| Some(format!("no rule of the permissions lets {who} have one")))?;
        let peer = match head.peer {
            SessionPeer::User(user) => TransportPeer::User(user),
            SessionPeer::Address(address) => TransportPeer::Address(address),
        };
        let names = (head.client.as_str().into(), Arc::clone(&key));
        let opened = self.mqtt_open(names, (peer, who, grant), MqttVersion::V5);
        let id = opened.map_err(|fault| Some(fault.text))?;
        for own in saved.subscriptions.values() {
            let request = FilterRequest {
                filter: own.filter.clone(),
                qos: MqttQos::from_bits(own.qos).unwrap_or_default(),
                no_local: own.no_local,
                retain_as_published: own.retain_as_published,
                past: PastPolicy::Skip,
            };
            let done = self.mqtt_subscribe_one(now, id, own.identifier, (0, request));
            let done = done.map_err(|(_, text)| text);
            if let Err(text) = done {
                self.mqtt_end(now, id);
                return Err(Some(text));
            }
        }
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return Err(None) };
        session.expiry = *expiry;
        session.ends = if *expiry == u32::MAX { Instant::NEVER } else { now + (ends - at) };
        let away = Some(gone.0);
        session.record = Some(Box::new(SessionRecord { away, is_stale: false, ..SessionRecord::new(&key) }));
        self.mqtt.add_waiters(id);
        if saved.away.is_none() {
            self.mqtt.note(id, &SessionLine::Away { expiry: *expiry, at: gone.0 });
        }
        for (number, position) in &saved.arrived {
            // the broker was killed before the log had the message
            if *position >= next {
                self.mqtt.note(id, &SessionLine::Released { id: *number });
            } else if let Err(fault) = self.mqtt_charge_unreleased(id) {
                self.mqtt_end(now, id);
                return Err(Some(fault.text));
            } else if let Some(session) = self.mqtt.sessions.get_mut(&id) {
                session.unreleased.insert(*number);
            }
        }
        self.mqtt_place(id);
        Ok(id)
    }
}
