//! The lines of an MQTT session's file, and the session that they describe (`sessions.rs` has the files).
//!
//! The first line names the client that owns the session. Each further line is a change. So a session is what
//! is left when all lines have been applied in their order.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

const VERSION: u32 = 1;
/// Queues of a session: 1 and 2, by the QoS of their subscriptions. 0: no queue.
const QUEUES: usize = 3;

/// The address that a session's memory is charged to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionPeer {
    User(u32),
    Address(IpAddr),
}

/// The first line of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionHead {
    version: u32,
    /// The client identifier.
    pub client: String,
    /// The identity that made the session, as permissions write it.
    pub identity: String,
    pub peer: SessionPeer,
    /// From this position on, the events of the log determine which events wait.
    pub next: u64,
}

impl SessionHead {
    #[must_use]
    pub fn new(client: &str, identity: String, peer: SessionPeer, next: u64) -> Self {
        Self { version: VERSION, client: client.to_owned(), identity, peer, next }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedSubscription {
    pub filter: String,
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identifier: Option<u32>,
    /// The position of the first event that it concerns.
    pub from: u64,
}

/// A message of QoS 1 or 2 in flight to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedFlight {
    pub id: u16,
    /// 0: the log does not have the message.
    pub position: u64,
    /// The queue that it came from; 0: of a group.
    pub queue: u8,
    pub qos: u8,
    pub retain: bool,
    /// Whether it has the identifiers of all subscriptions of the queue that match it, and not `identifier`.
    pub matching: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identifier: Option<u32>,
    /// Whether the client has said that it has the message (PUBREC).
    #[serde(default)]
    pub received: bool,
}

/// A line of a session's file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SessionLine {
    Session(SessionHead),
    Connected {
        expiry: u32,
    },
    /// The client has been away since `at`, in nanoseconds of the log's time.
    Away {
        expiry: u32,
        at: u64,
    },
    Subscribed(SavedSubscription),
    Unsubscribed {
        filter: String,
    },
    /// Positions before [`SessionHead::next`] that wait.
    Waiting {
        queue: u8,
        positions: Vec<u64>,
    },
    /// Nothing before this position waits.
    Emptied {
        queue: u8,
        before: u64,
    },
    Sent(SavedFlight),
    /// The client does not get the event: it is too large or too late.
    Dropped {
        queue: u8,
        position: u64,
    },
    Received {
        id: u16,
    },
    Done {
        id: u16,
    },
    /// A message of QoS 2 from the client. The line counts if `position` is 0, or if the log has reached this
    /// position.
    Arrived {
        id: u16,
        position: u64,
    },
    Released {
        id: u16,
    },
}

impl SessionLine {
    /// Appends the line with its end.
    pub fn write(&self, lines: &mut Vec<u8>) {
        serde_json::to_writer(&mut *lines, self).expect("has a text because it is numbers and names");
        lines.push(b'\n');
    }
}

/// A session as its file describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedSession {
    pub head: SessionHead,
    /// The number of seconds for which the session outlives its connection.
    pub expiry: u32,
    /// When the client disconnected, in nanoseconds of the log's time. `None`: it was connected.
    pub away: Option<u64>,
    pub subscriptions: BTreeMap<String, SavedSubscription>,
    /// Queues and positions of listed events.
    pub waiting: BTreeSet<(u8, u64)>,
    finished: BTreeSet<(u8, u64)>,
    emptied: [u64; QUEUES],
    /// Messages in flight by packet identifier, with their place in the order of sending.
    flights: BTreeMap<u16, (u64, SavedFlight)>,
    sent: u64,
    /// QoS 2 messages of the client that it has not released, with their positions; 0: not in the log.
    pub arrived: BTreeMap<u16, u64>,
}

impl SavedSession {
    #[must_use]
    pub fn new(head: SessionHead) -> Self {
        Self {
            head,
            expiry: 0,
            away: None,
            subscriptions: BTreeMap::new(),
            waiting: BTreeSet::new(),
            finished: BTreeSet::new(),
            emptied: [0; QUEUES],
            flights: BTreeMap::new(),
            sent: 0,
            arrived: BTreeMap::new(),
        }
    }

    /// Parses a file. Returns the session and the number of bytes of the file's whole lines, or `None` if the
    /// first line is missing.
    ///
    /// # Errors
    /// The number of the first unreadable line, and its error.
    pub fn read(text: &[u8]) -> Result<Option<(Self, usize)>, (usize, String)> {
        let mut session: Option<Self> = None;
        let mut whole = 0;
        for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
            let Some(line) = line.strip_suffix(b"\n") else { break };
            whole += line.len() + 1;
            let line = serde_json::from_slice(line).map_err(|error| (number, error.to_string()))?;
            match (&mut session, line) {
                (None, SessionLine::Session(head)) if head.version == VERSION => {
                    session = Some(Self::new(head));
                }
                (None, SessionLine::Session(head)) => {
                    let what = format!("the version {}; this broker reads {VERSION}", head.version);
                    return Err((number, what));
                }
                (Some(session), line) => session.apply(line).map_err(|what| (number, what.to_owned()))?,
                (None, _) => return Err((number, "the first line does not say whose it is".to_owned())),
            }
        }
        Ok(session.map(|session| (session, whole)))
    }

    /// Applies a line behind the first one.
    ///
    /// # Errors
    /// The line cannot follow the ones before.
    pub fn apply(&mut self, line: SessionLine) -> Result<(), &'static str> {
        let checked = |queue: u8| match usize::from(queue) {
            1.. if usize::from(queue) < QUEUES => Ok(usize::from(queue)),
            _ => Err("a queue that no session has"),
        };
        match line {
            SessionLine::Session(_) => return Err("a second first line"),
            SessionLine::Connected { expiry } => (self.expiry, self.away) = (expiry, None),
            SessionLine::Away { expiry, at } => (self.expiry, self.away) = (expiry, Some(at)),
            SessionLine::Subscribed(subscription) if subscription.qos > 2 => {
                return Err("a QoS of 3 or more");
            }
            SessionLine::Subscribed(subscription) => {
                self.subscriptions.insert(subscription.filter.clone(), subscription);
            }
            SessionLine::Unsubscribed { filter } => drop(self.subscriptions.remove(&filter)),
            SessionLine::Waiting { queue, positions } => {
                checked(queue)?;
                self.waiting.extend(positions.into_iter().map(|position| (queue, position)));
            }
            SessionLine::Emptied { queue, before } => {
                let emptied = &mut self.emptied[checked(queue)?];
                *emptied = before.max(*emptied);
                self.waiting.retain(|(of, position)| *of != queue || *position >= before);
                self.finished.retain(|(of, position)| *of != queue || *position >= before);
            }
            SessionLine::Sent(flight)
                if flight.id == 0 || !(1..=2).contains(&flight.qos) || flight.queue > 2 =>
            {
                return Err("a message that no session sends");
            }
            SessionLine::Sent(flight) => self.send(flight),
            SessionLine::Dropped { queue, position } => {
                checked(queue)?;
                self.finish(queue, position);
            }
            SessionLine::Received { id } => {
                if let Some((_, flight)) = self.flights.get_mut(&id) {
                    flight.received = true;
                }
            }
            SessionLine::Done { id } => drop(self.flights.remove(&id)),
            SessionLine::Arrived { id, position } => drop(self.arrived.insert(id, position)),
            SessionLine::Released { id } => drop(self.arrived.remove(&id)),
        }
        Ok(())
    }

    /// Adds a message in flight, behind all others.
    pub fn send(&mut self, flight: SavedFlight) {
        self.finish(flight.queue, flight.position);
        self.sent += 1;
        self.flights.insert(flight.id, (self.sent, flight));
    }

    fn finish(&mut self, queue: u8, position: u64) {
        if queue == 0 {
            return;
        }
        self.waiting.remove(&(queue, position));
        if position >= self.head.next {
            self.finished.insert((queue, position));
        }
    }

    /// Returns whether an event waits in a queue. `matches` returns whether a subscription of the queue asks
    /// for the event.
    pub fn waits(&self, (queue, position): (u8, u64), matches: impl FnOnce() -> bool) -> bool {
        if position < self.head.next {
            return self.waiting.contains(&(queue, position));
        }
        let emptied = self.emptied.get(usize::from(queue)).copied().unwrap_or(u64::MAX);
        position >= emptied && !self.finished.contains(&(queue, position)) && matches()
    }

    /// Returns the lowest position in the log that the session needs.
    pub fn first(&self) -> u64 {
        let flights =
            self.flights.values().map(|(_, flight)| flight.position).filter(|position| *position > 0);
        let waiting = self.waiting.iter().map(|(_, position)| *position);
        flights.chain(waiting).chain([self.head.next]).min().unwrap_or(self.head.next)
    }

    /// Returns the highest position that the session knows: the position of a message that is done or in
    /// flight, or of an event before the session's queues.
    pub(super) fn last(&self) -> u64 {
        let done = self.finished.iter().map(|(_, position)| *position);
        let before = self.emptied.into_iter().chain(self.subscriptions.values().map(|own| own.from));
        let before = before.chain([self.head.next]).map(|position| position.saturating_sub(1));
        let flights = self.flights.values().map(|(_, flight)| flight.position);
        done.chain(before).chain(flights).max().unwrap_or(0)
    }

    /// Returns the messages in flight, in the order of sending.
    pub fn flights(&self) -> Vec<SavedFlight> {
        let mut flights: Vec<_> = self.flights.values().copied().collect();
        flights.sort_unstable_by_key(|(order, _)| *order);
        flights.into_iter().map(|(_, flight)| flight).collect()
    }

    /// Returns the lines of a new file.
    pub fn lines(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        SessionLine::Session(self.head.clone()).write(&mut lines);
        let life = match self.away {
            Some(at) => SessionLine::Away { expiry: self.expiry, at },
            None => SessionLine::Connected { expiry: self.expiry },
        };
        life.write(&mut lines);
        for subscription in self.subscriptions.values() {
            SessionLine::Subscribed(subscription.clone()).write(&mut lines);
        }
        for flight in self.flights() {
            SessionLine::Sent(flight).write(&mut lines);
        }
        // the order matters: a later line about an event overrides an earlier one
        for queue in 1..=2 {
            let before = self.emptied[usize::from(queue)];
            if before > self.head.next {
                SessionLine::Emptied { queue, before }.write(&mut lines);
            }
        }
        for (queue, position) in &self.finished {
            SessionLine::Dropped { queue: *queue, position: *position }.write(&mut lines);
        }
        for queue in 1..=2 {
            let of = self.waiting.range((queue, 0)..=(queue, u64::MAX));
            let positions: Vec<u64> = of.map(|(_, position)| *position).collect();
            if !positions.is_empty() {
                SessionLine::Waiting { queue, positions }.write(&mut lines);
            }
        }
        for (id, position) in &self.arrived {
            SessionLine::Arrived { id: *id, position: *position }.write(&mut lines);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head() -> SessionHead {
        SessionHead::new("c", "unix:7".to_owned(), SessionPeer::User(7), 10)
    }

    fn line() -> impl Strategy<Value = SessionLine> {
        let (queue, position, id) = (1..=2_u8, 1..20_u64, 1..6_u16);
        let flight = (id.clone(), position.clone(), queue.clone(), any::<bool>());
        prop_oneof![
            any::<u32>().prop_map(|expiry| SessionLine::Connected { expiry }),
            (any::<u32>(), any::<u64>()).prop_map(|(expiry, at)| SessionLine::Away { expiry, at }),
            ("[ab]", queue.clone(), position.clone()).prop_map(|(filter, qos, from)| {
                let (no_local, retain_as_published, identifier) = (qos == 1, qos == 2, Some(7));
                let it = SavedSubscription { filter, qos, no_local, retain_as_published, identifier, from };
                SessionLine::Subscribed(it)
            }),
            "[ab]".prop_map(|filter| SessionLine::Unsubscribed { filter }),
            (queue.clone(), prop::collection::vec(1..10_u64, 0..4))
                .prop_map(|(queue, positions)| SessionLine::Waiting { queue, positions }),
            (queue.clone(), position.clone())
                .prop_map(|(queue, before)| SessionLine::Emptied { queue, before }),
            flight.prop_map(|(id, position, queue, retain)| {
                let (qos, matching, identifier, received) = (queue, true, None, false);
                SessionLine::Sent(SavedFlight {
                    id,
                    position,
                    queue,
                    qos,
                    retain,
                    matching,
                    identifier,
                    received,
                })
            }),
            (queue, position.clone()).prop_map(|(queue, position)| SessionLine::Dropped { queue, position }),
            id.clone().prop_map(|id| SessionLine::Received { id }),
            id.clone().prop_map(|id| SessionLine::Done { id }),
            (id.clone(), position).prop_map(|(id, position)| SessionLine::Arrived { id, position }),
            id.prop_map(|id| SessionLine::Released { id }),
        ]
    }

    proptest! {
        #[test]
        fn a_session_that_is_written_anew_is_the_same_wherever_a_crash_cuts_the_file_off(
            lines in prop::collection::vec(line(), 0..30), cut in 0..200_usize,
        ) {
            let mut text = Vec::new();
            SessionLine::Session(head()).write(&mut text);
            let mut expected = SavedSession::new(head());
            for line in lines {
                line.write(&mut text);
                expected.apply(line).expect("it is one of ours");
            }
            let (read, whole) = SavedSession::read(&text).expect("they are ours").expect("it is whole");
            prop_assert_eq!((&read, whole), (&expected, text.len()));
            let (again, _) = SavedSession::read(&expected.lines()).expect("they are ours").expect("it is whole");
            prop_assert_eq!(again.flights(), expected.flights());
            prop_assert_eq!(again.lines(), expected.lines());
            for (queue, position) in (1..=2).flat_map(|queue| (1..30).map(move |position| (queue, position))) {
                prop_assert_eq!(
                    again.waits((queue, position), || true),
                    expected.waits((queue, position), || true),
                    "{} {}", queue, position
                );
            }
            prop_assert_eq!((&again.subscriptions, &again.arrived), (&expected.subscriptions, &expected.arrived));
            prop_assert_eq!((again.expiry, again.away), (expected.expiry, expected.away));
            text.truncate(text.len().saturating_sub(cut));
            let lines = text.iter().filter(|byte| **byte == b'\n').count();
            prop_assert_eq!(SavedSession::read(&text).expect("they are ours").is_some(), lines > 0);
        }

        #[test]
        fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200), whole in any::<bool>()) {
            let mut bytes = Vec::new();
            if whole {
                SessionLine::Session(head()).write(&mut bytes);
            }
            bytes.extend(text);
            let _ = SavedSession::read(&bytes);
        }
    }

    #[test]
    fn the_error_of_a_damaged_file_has_the_number_of_the_line() {
        let mut good = Vec::new();
        SessionLine::Session(head()).write(&mut good);
        for (text, at) in [
            (&b"xx\n"[..], 1),
            (b"{\"done\":{\"id\":3}}\n", 1),
            (b"{\"session\":{\"version\":2,\"client\":\"c\",\"identity\":\"anonymous\",\"peer\":{\"user\":1},\"next\":1}}\n", 1),
            (&[&good[..], b"{\"done\":{}}\n"].concat(), 2),
            (&[&good[..], &good].concat(), 2),
            (&[&good[..], b"{\"emptied\":{\"queue\":0,\"before\":3}}\n"].concat(), 2),
        ] {
            assert_eq!(SavedSession::read(text).expect_err("damaged").0, at, "{}", String::from_utf8_lossy(text));
        }
    }
}
