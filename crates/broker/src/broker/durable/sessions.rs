//! MQTT sessions in the log: their files are written before the server gets its next task, and read when the
//! broker starts.
//!
//! Cost of a start: the log is read once more, from the first position that a session needs.

use super::{SyncedAnswer, UnsyncedAnswer};
use crate::broker::Broker;
use crate::broker::mqtt::MqttSessionId;
use crate::log::{
    FoundSession, LogCursor, LogEntry, LogError, LoggedEvent, SavedSession, SessionSync, WallTime,
};
use crate::mqtt::MqttQos;
use crate::task::{ClientId, Task};
use std::collections::HashMap;
use std::sync::Arc;
use unisono_eventchannel::{ChannelEvent, TopicId, TopicPattern, TopicSpec};
use unisono_events_wire::Durability;
use unisono_linux::clock::Instant;

/// Maximum number of topics whose routes are cached while the log is read. Chosen as the number of topics of
/// a channel.
const MAX_ROUTES: usize = 65_536;

/// The queues that events of one topic go to.
#[derive(Debug)]
struct SessionRoute {
    /// The number of the session in the list of all.
    session: usize,
    queue: u8,
    /// The first position that a subscription of the queue concerns.
    from: u64,
}

impl Broker {
    /// Returns whether sessions outlive the broker.
    pub(in crate::broker) fn keeps_sessions(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.log.keeps_sessions())
    }

    /// Returns the position of the next event of the log, and the log's time.
    pub(in crate::broker) fn log_place(&self, now: Instant) -> (u64, WallTime) {
        self.durable.as_ref().map_or((0, WallTime::default()), |durable| {
            (durable.log.next(), WallTime::at(now, durable.time_ahead))
        })
    }

    pub(in crate::broker) fn forget_session_file(&mut self, file: &str) {
        let Some(durable) = &mut self.durable else { return };
        if let Err(error) = durable.log.forget_session(file) {
            let text = format!("an MQTT session that has ended is still in the log: {error}");
            self.tasks.push_back(Task::Note { text });
        }
    }

    /// Writes the changes of all sessions.
    pub(in crate::broker) fn write_sessions(&mut self) {
        while let Some(id) = self.mqtt.take_unwritten() {
            self.write_session(id, SessionSync::No);
        }
    }

    /// Writes the changes of a session; returns whether its file is complete. If it is not, it is written
    /// anew at the next change.
    pub(in crate::broker) fn write_session(&mut self, id: MqttSessionId, sync: SessionSync) -> bool {
        let Some(durable) = &mut self.durable else { return false };
        let log = &mut durable.log;
        let is_overgrown = |file: &str| log.is_session_overgrown(file);
        let Some((file, lines, whole)) = self.mqtt.take_lines(id, (log.next(), is_overgrown)) else {
            return false;
        };
        let written = match whole {
            Some(session) => log.save_session(&file, &session, sync),
            None if lines.is_empty() && sync == SessionSync::No => Ok(()),
            None => log.append_to_session(&file, &lines, sync).map(drop),
        };
        let was_complete = self.mqtt.set_written(id, written.is_ok());
        if let Err(error) = &written
            && was_complete
        {
            let client = self.mqtt.whose(id).map_or("", |(_, client, _)| client);
            let text = format!(
                "the MQTT session of `{client}` is not as it was when the broker starts again, unless it can be written \
                 before: {error}"
            );
            self.tasks.push_back(Task::Note { text });
        }
        written.is_ok()
    }

    /// Returns whether a session's change that is confirmed to the client has to be synced first.
    pub(super) fn session_sync(&self) -> SessionSync {
        match self.durable.as_ref().map(|durable| durable.messages) {
            Some(Durability::Synced) => SessionSync::Next,
            _ => SessionSync::No,
        }
    }

    /// Sends a client the answer to a change of its session: now, or when the change is synced.
    pub(in crate::broker) fn confirm_change(&mut self, client: ClientId, id: MqttSessionId, packet: Vec<u8>) {
        let sync = self.session_sync();
        // after a failed sync the log is never synced again
        let may_sync = self.durable.as_ref().is_some_and(|durable| durable.log.usable().is_ok());
        let waits = may_sync && sync == SessionSync::Next && self.write_session(id, sync);
        match (&mut self.durable, self.mqtt.unconfirmed(id)) {
            (Some(durable), Some(unconfirmed)) if waits => {
                *unconfirmed += 1;
                let what = SyncedAnswer::Message { session: id, exactly_once: None, packet };
                let (position, sync) = (0, durable.log.next_sync());
                durable.unsynced.push_back(UnsyncedAnswer { position, sync, client, what });
            }
            _ => self.confirm_message(client, (id, None), None, packet),
        }
    }

    /// Restores all sessions of the log.
    pub(super) fn sessions_again(&mut self, now: Instant) -> Result<(), LogError> {
        let (_, at) = self.log_place(now);
        let Some(durable) = &mut self.durable else { return Ok(()) };
        let next = durable.log.found_end();
        let mut again = Vec::new();
        for found in durable.log.saved_sessions()? {
            let FoundSession { file, session } = match found {
                Ok(found) => found,
                Err(damage) => {
                    self.tasks.push_back(Task::Note { text: damage.to_string() });
                    continue;
                }
            };
            match self.mqtt_session_again((now, at, next), &file, &session) {
                Ok(id) => again.push((id, session)),
                Err(why) => {
                    self.forget_session_file(&file);
                    let client = &session.head.client;
                    let note = why.map(|why| format!("the MQTT session of `{client}` has ended: {why}"));
                    note.into_iter().for_each(|text| self.tasks.push_back(Task::Note { text }));
                }
            }
        }
        self.write_sessions();
        self.session_messages_again(now, &again)
    }

    /// Restores the messages of sessions: waiting messages, and messages in flight.
    fn session_messages_again(
        &mut self,
        now: Instant,
        sessions: &[(MqttSessionId, SavedSession)],
    ) -> Result<(), LogError> {
        let Some(first) = sessions.iter().map(|(_, saved)| saved.first()).min() else { return Ok(()) };
        let (mut listed, mut sent) = (HashMap::<u64, Vec<(usize, u8)>>::new(), HashMap::new());
        for (session, (_, saved)) in sessions.iter().enumerate() {
            for (queue, position) in &saved.waiting {
                listed.entry(*position).or_default().push((session, *queue));
            }
            for flight in saved.flights().iter().filter(|flight| !flight.received && flight.position > 0) {
                sent.insert((session, flight.id), (flight.position, None));
            }
        }
        let mut in_flight = HashMap::<u64, Vec<(usize, u16)>>::new();
        for ((session, id), (position, _)) in &sent {
            in_flight.entry(*position).or_default().push((*session, *id));
        }
        let patterns = patterns(sessions);
        let mut routes = HashMap::<String, Vec<SessionRoute>>::new();
        let mut refused = 0_u64;
        let Some(durable) = &self.durable else { return Ok(()) };
        let mut cursor = LogCursor::at(first.max(durable.log.first()));
        while let Some(entry) = self.durable.as_ref().map_or(Ok(None), |it| it.log.read(&mut cursor))? {
            let LogEntry::Event { position } = entry else { continue };
            let Ok(event) = LoggedEvent::read(cursor.body()) else { continue };
            for (session, id) in in_flight.get(&position).into_iter().flatten() {
                let Some(durable) = &mut self.durable else { return Ok(()) };
                if let Some(event) = durable.event(now, cursor.body(), position)
                    && let (Some(topic), Some((_, found))) =
                        (durable.name(event.topic).cloned(), sent.get_mut(&(*session, *id)))
                {
                    *found = Some((topic, Arc::new(event)));
                }
            }
            if event.message.is_some_and(|message| message.qos == MqttQos::AtMostOnce as u8) {
                continue;
            }
            if routes.len() >= MAX_ROUTES {
                routes.clear();
            }
            if !routes.contains_key(event.topic) {
                routes.insert(event.topic.to_owned(), routes_of(event.topic, &patterns));
            }
            let route = routes.get(event.topic).into_iter().flatten();
            let found = route.filter(|route| {
                let (_, saved) = &sessions[route.session];
                let matches = || route.from <= position;
                position >= saved.head.next && saved.waits((route.queue, position), matches)
            });
            let found = found.map(|route| (route.session, route.queue));
            let of_list = listed.get(&position).into_iter().flatten().copied();
            for (session, queue) in of_list.chain(found).collect::<Vec<_>>() {
                let id = sessions[session].0;
                if !self.enqueue_again(now, (id, queue), (cursor.body(), position), event.topic) {
                    refused += 1;
                }
            }
        }
        for (session, (id, saved)) in sessions.iter().enumerate() {
            for flight in saved.flights() {
                let event = sent.remove(&(session, flight.id)).and_then(|(_, event)| event);
                self.mqtt.flight_again(*id, &flight, event);
            }
        }
        if refused > 0 {
            let text = format!(
                "{refused} messages for MQTT sessions are lost: there are as many topics as may be (--print-limits)"
            );
            self.tasks.push_back(Task::Note { text });
        }
        Ok(())
    }

    /// Puts an event of the log into the queue of a session; false: there is no room for its topic.
    fn enqueue_again(
        &mut self,
        now: Instant,
        (id, queue): (MqttSessionId, u8),
        (body, position): (&[u8], u64),
        topic: &str,
    ) -> bool {
        let Some(consumer) = self.mqtt.queue(id, queue) else { return true };
        let known = match self.channel.topic(topic) {
            Some(known) => Some(known),
            None => {
                let owner = self.mqtt.owner(id).map(|(owner, _)| owner.clone());
                let (tenant, keeping) = self.terms_of_owner(owner.as_ref());
                let spec = TopicSpec::new(topic).ok();
                spec.and_then(|spec| self.channel.declare_by((tenant, &keeping), spec).ok())
            }
        };
        let (Some(topic), Some(durable)) = (known, &mut self.durable) else { return false };
        let Some(event) = durable.event(now, body, position) else { return false };
        // an event that is too late does not wait
        if event.deadline >= now {
            let event = ChannelEvent { topic: TopicId(topic.0), ..event };
            self.channel.enqueue(now, consumer, event, false);
            self.mqtt.note_waiting(vec![(id, queue)], position);
        }
        true
    }
}

/// Returns the patterns of all sessions' subscriptions of QoS 1 and 2, without the patterns of groups.
fn patterns(sessions: &[(MqttSessionId, SavedSession)]) -> Vec<(TopicPattern, SessionRoute)> {
    let all = sessions.iter().enumerate();
    let all =
        all.flat_map(|(session, (_, saved))| saved.subscriptions.values().map(move |own| (session, own)));
    // the filter of a group is no pattern of topics: it begins with $share
    let own = all.filter(|(_, own)| own.qos > 0 && !own.filter.starts_with(crate::mqtt::SHARE));
    let parsed = own.filter_map(|(session, own)| {
        Some((own.filter.parse().ok()?, SessionRoute { session, queue: own.qos, from: own.from }))
    });
    parsed.collect()
}

/// Returns the queues that events of a topic go to, each once.
fn routes_of(topic: &str, patterns: &[(TopicPattern, SessionRoute)]) -> Vec<SessionRoute> {
    let mut routes: Vec<SessionRoute> = Vec::new();
    for (_, SessionRoute { session, queue, from }) in patterns.iter().filter(|(of, _)| of.matches(topic)) {
        // patterns of one session are next to each other
        let known = routes.iter_mut().rev().take_while(|route| route.session == *session);
        match known.into_iter().find(|route| route.queue == *queue) {
            Some(known) => known.from = known.from.min(*from),
            None => routes.push(SessionRoute { session: *session, queue: *queue, from: *from }),
        }
    }
    routes
}
