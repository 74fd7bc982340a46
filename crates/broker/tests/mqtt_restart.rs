//! MQTT sessions with a log: their queues and exchanges outlive the broker, whenever it ends.
//!
//! A broker that is dropped between two packets has written what a killed one has written: its files. Where a
//! test kills the broker, it says whether the packets of the last turn had left.

use crate::common::bench::{BenchClient, BrokerBench, Comes};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use unisono_broker::log::{SavedSession, SessionLine};
use unisono_events_client::Duration;

const PUBLISH: u8 = 3;
const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
const PUBREL: u8 = 0x62;
const PUBCOMP: u8 = 0x70;
const HOUR: u32 = 3600;

fn start(directory: &Path) -> BrokerBench {
    BrokerBench::open().with_log(directory, 16 << 20)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory.join("sessions")).expect("it is there");
    files.map(|file| file.expect("it is there").path()).collect()
}

/// A PUBLISH to a client: its first byte, topic, packet identifier, properties and payload.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Came {
    qos: u8,
    duplicate: bool,
    topic: String,
    id: u16,
    properties: Vec<u8>,
    payload: Vec<u8>,
}

fn came((head, body): &(Vec<u8>, Vec<u8>)) -> Option<Came> {
    if head[0] >> 4 != PUBLISH {
        return None;
    }
    let at = 1 + head[1..].iter().position(|byte| byte & 0x80 == 0)? + 1;
    let length = usize::from(u16::from_be_bytes([head[at], head[at + 1]]));
    let topic = String::from_utf8(head[at + 2..at + 2 + length].to_vec()).ok()?;
    let (qos, mut rest) = (head[0] >> 1 & 3, &head[at + 2 + length..]);
    let mut id = 0;
    if qos > 0 {
        id = u16::from_be_bytes([rest[0], rest[1]]);
        rest = &rest[2..];
    }
    let duplicate = head[0] & 8 != 0;
    Some(Came { qos, duplicate, topic, id, properties: rest[1..].to_vec(), payload: body.clone() })
}

/// Returns the messages for a client since the last call.
fn messages(bench: &mut BrokerBench, client: BenchClient) -> Vec<Came> {
    bench.packets(client).iter().filter_map(came).collect()
}

fn numbers(messages: &[Came]) -> Vec<u8> {
    messages.iter().map(|message| message.payload[0]).collect()
}

fn publish(topic: &str, (qos, id, duplicate): (u8, u16, bool), payload: &[u8]) -> (u8, Vec<u8>) {
    let mut body = (topic.len() as u16).to_be_bytes().to_vec();
    body.extend(topic.as_bytes());
    if qos > 0 {
        body.extend(id.to_be_bytes());
    }
    body.push(0);
    body.extend(payload);
    (0x30 | qos << 1 | u8::from(duplicate) << 3, body)
}

/// Publishes and ends the exchange.
fn send(bench: &mut BrokerBench, client: BenchClient, topic: &str, qos: u8, payload: &[u8]) {
    let (kind, body) = publish(topic, (qos, 7, false), payload);
    let answer = bench.packet(client, kind, &body);
    if qos == 2 {
        assert_eq!(answer.expect("PUBREC").0[0], PUBREC);
        assert_eq!(bench.packet(client, PUBREL, &[0, 7]).expect("PUBCOMP").0[0], PUBCOMP);
    }
}

fn confirm(bench: &mut BrokerBench, client: BenchClient, message: &Came) {
    let id = message.id.to_be_bytes();
    match message.qos {
        1 => drop(bench.packet(client, PUBACK, &id)),
        2 => {
            assert_eq!(bench.packet(client, PUBREC, &id).expect("PUBREL").0[0], PUBREL);
            bench.packet(client, PUBCOMP, &id);
        }
        _ => {}
    }
}

#[test]
fn messages_that_came_while_the_client_was_away_come_once_and_in_order_after_a_restart() {
    for qos in [1, 2] {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut bench = start(directory.path());
        let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
        assert_eq!(bench.mqtt_subscribe(reader, "plant/#", qos), qos);
        let (writer, ..) = bench.mqtt(Comes::User(8), "writer", true, 0);
        send(&mut bench, writer, "plant/a", qos, &[1]);
        let first = messages(&mut bench, reader);
        assert_eq!(numbers(&first), [1]);
        confirm(&mut bench, reader, &first[0]);
        bench.gone(reader);
        send(&mut bench, writer, "plant/b", qos, &[2]);
        send(&mut bench, writer, "other", qos, &[9]);
        drop(bench);
        let mut bench = start(directory.path());
        let (writer, ..) = bench.mqtt(Comes::User(8), "writer", true, 0);
        send(&mut bench, writer, "plant/a", qos, &[3]);
        drop(bench);
        let mut bench = start(directory.path());
        let (reader, _, found) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
        assert!(found, "the session outlives two brokers");
        let all = messages(&mut bench, reader);
        assert_eq!(numbers(&all), [2, 3]);
        assert!(all.iter().all(|message| message.qos == qos && !message.duplicate), "{all:?}");
        for message in &all {
            confirm(&mut bench, reader, message);
        }
        drop(bench);
        let mut bench = start(directory.path());
        let (reader, _, found) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
        assert!(found && messages(&mut bench, reader).is_empty(), "each comes once");
        assert_eq!(bench.notes, [""; 0]);
    }
}

#[test]
fn a_message_in_flight_comes_again_under_its_identifier_and_one_that_was_received_is_only_released() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = start(directory.path());
    let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
    assert_eq!(bench.mqtt_subscribe(reader, "#", 2), 2);
    let (writer, ..) = bench.mqtt(Comes::User(8), "writer", true, 0);
    for (qos, number) in [(2, 1), (1, 2), (2, 3), (0, 4)] {
        send(&mut bench, writer, "t", qos, &[number]);
    }
    let first = messages(&mut bench, reader);
    assert_eq!(numbers(&first), [1, 2, 3, 4]);
    // the client has the first one, and says so
    let released = bench.packet(reader, PUBREC, &first[0].id.to_be_bytes()).expect("PUBREL");
    assert_eq!(released.0[0], PUBREL);
    drop(bench);
    let mut bench = start(directory.path());
    let (reader, _, found) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
    assert!(found);
    let packets = bench.packets(reader);
    assert_eq!(packets[0].0, [PUBREL, 2, 0, first[0].id as u8]);
    let again: Vec<Came> = packets.iter().filter_map(came).collect();
    assert_eq!(again, [1, 2].map(|at| Came { duplicate: true, ..first[at].clone() }));
    bench.packet(reader, PUBCOMP, &first[0].id.to_be_bytes());
    again.iter().for_each(|message| confirm(&mut bench, reader, message));
    drop(bench);
    let mut bench = start(directory.path());
    let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
    assert!(bench.packets(reader).is_empty(), "all exchanges have ended");
}

#[test]
fn a_message_that_the_log_does_not_have_frees_its_identifier() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = start(directory.path());
    let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
    assert_eq!(bench.mqtt_subscribe(reader, "#", 2), 2);
    // a program's event has no durability unless the program asks for it
    let program = bench.program(Comes::User(8), "program");
    bench.advertise(program, 1, unisono_events_client::Advertisement::new("t")).expect("it may");
    bench.publish(program, 1, b"x", None).expect("an answer").expect("it is taken");
    let first = messages(&mut bench, reader);
    assert_eq!((first.len(), first[0].qos), (1, 2));
    drop(bench);
    let mut bench = start(directory.path());
    let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
    assert_eq!(bench.packets(reader), [(vec![PUBREL, 2, 0, first[0].id as u8], Vec::new())]);
    bench.packet(reader, PUBCOMP, &first[0].id.to_be_bytes());
}

#[test]
fn a_message_of_qos_2_from_a_client_is_published_once_whenever_the_broker_ends() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut got = Vec::new();
    let mut bench = start(directory.path());
    let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
    assert_eq!(bench.mqtt_subscribe(reader, "t", 1), 1);
    for topic in ["t", "nobody"] {
        let (kind, body) = publish(topic, (2, 5, false), &[1]);
        let (writer, ..) = bench.mqtt(Comes::User(8), "writer", false, HOUR);
        assert_eq!(bench.packet(writer, kind, &body).expect("PUBREC").0[0], PUBREC);
        // the client has not received the PUBREC, and sends the message again
        drop(std::mem::replace(&mut bench, start(&directory.path().join("other"))));
        bench = start(directory.path());
        let (writer, _, found) = bench.mqtt(Comes::User(8), "writer", false, HOUR);
        assert!(found);
        let (kind, body) = publish(topic, (2, 5, true), &[1]);
        assert_eq!(bench.packet(writer, kind, &body).expect("PUBREC").0[0], PUBREC);
        let answer = bench.packet(writer, PUBREL, &[0, 5]).expect("PUBCOMP").0;
        assert_eq!(answer, [PUBCOMP, 2, 0, 5], "the broker knew it");
        drop(std::mem::replace(&mut bench, start(&directory.path().join("other"))));
        bench = start(directory.path());
        // now the client uses the packet identifier for another message
        let (writer, ..) = bench.mqtt(Comes::User(8), "writer", false, HOUR);
        let (kind, body) = publish(topic, (2, 5, false), &[2]);
        assert_eq!(bench.packet(writer, kind, &body).expect("PUBREC").0[0], PUBREC);
        assert_eq!(bench.packet(writer, PUBREL, &[0, 5]).expect("PUBCOMP").0, [PUBCOMP, 2, 0, 5]);
        bench.gone(writer);
        let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
        for message in messages(&mut bench, reader) {
            confirm(&mut bench, reader, &message);
            got.push((message.topic, message.payload[0]));
        }
    }
    assert_eq!(got, [("t".to_owned(), 1), ("t".to_owned(), 2)]);
}

#[test]
fn a_session_ends_at_its_time_also_while_no_broker_runs() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let at = |seconds| {
        let mut bench = BrokerBench::open();
        bench.now = unisono_events_client::Instant::from_secs(seconds);
        bench.with_log(directory.path(), 1 << 20)
    };
    let mut bench = at(100);
    let (away, ..) = bench.mqtt(Comes::User(7), "away", false, 60);
    assert_eq!(bench.mqtt_subscribe(away, "#", 1), 1);
    let _connected = bench.mqtt(Comes::User(7), "connected", false, 60);
    let _for_ever = bench.mqtt(Comes::User(7), "for ever", false, u32::MAX);
    let _brief = bench.mqtt(Comes::User(7), "brief", true, 0);
    bench.gone(away);
    assert_eq!(files(directory.path()).len(), 3, "a session that ends with its connection has no file");
    drop(bench);
    let bench = at(159);
    assert_eq!(files(directory.path()).len(), 3);
    drop(bench);
    // the time of the other client's session counts from the first start after its connection
    let mut bench = at(161);
    assert_eq!(files(directory.path()).len(), 2);
    assert!(!bench.mqtt(Comes::User(7), "away", true, 0).2);
    bench.wait(Duration::from_secs(57));
    assert_eq!(files(directory.path()).len(), 2);
    bench.wait(Duration::from_secs(2));
    assert_eq!(files(directory.path()).len(), 1);
    drop(bench);
    let mut bench = at(1_000_000_000);
    assert!(bench.mqtt(Comes::User(7), "for ever", false, 0).2, "it is there");
    assert_eq!(files(directory.path()).len(), 0, "from now on it ends with its connection");
    assert_eq!(bench.notes, [""; 0]);
}

#[test]
fn a_damaged_file_is_named_and_no_other_session_suffers() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = start(directory.path());
    for name in ["one", "two"] {
        let (reader, ..) = bench.mqtt(Comes::User(7), name, false, HOUR);
        assert_eq!(bench.mqtt_subscribe(reader, name, 1), 1);
        bench.gone(reader);
    }
    drop(bench);
    let has = |path: &PathBuf, what: &str| std::fs::read_to_string(path).expect("a text").contains(what);
    let damaged = files(directory.path()).into_iter().find(|path| has(path, "\"one\"")).expect("its file");
    let mut text = std::fs::read(&damaged).expect("it is there");
    let line_end = text.iter().position(|byte| *byte == b'\n').expect("a line");
    text[line_end + 3] = b'\xFF';
    std::fs::write(&damaged, &text).expect("room on the disk");
    let mut bench = start(directory.path());
    bench.work();
    let place = format!("{}:2: ", damaged.display());
    assert!(bench.notes.len() == 1 && bench.notes[0].starts_with(&place), "{:?}", bench.notes);
    assert!(bench.mqtt(Comes::User(7), "two", false, HOUR).2);
    assert_eq!(std::fs::read(&damaged).expect("it stays"), text);
    let (reader, _, found) = bench.mqtt(Comes::User(7), "one", false, HOUR);
    assert!(!found);
    assert_eq!(bench.mqtt_subscribe(reader, "one", 1), 1);
    drop(bench);
    let mut bench = start(directory.path());
    assert!(bench.mqtt(Comes::User(7), "one", false, HOUR).2, "the new session has the file");
    assert_eq!(bench.notes, [""; 0]);
}

const RULES: &str = r##"
[[allow]]
who = ["mqtt:one", "mqtt:two"]
publish = ["#"]
subscribe = ["#"]
"##;

#[test]
fn a_session_belongs_to_its_identity_also_after_a_restart_and_its_file_to_the_broker() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let start = |rules| BrokerBench::with_rules(rules, &["one", "two"]).with_log(directory.path(), 1 << 20);
    let mut bench = start(RULES);
    let (reader, ..) = bench.mqtt(Comes::Token("one"), "plc", false, HOUR);
    assert_eq!(bench.mqtt_subscribe(reader, "a", 1), 1);
    bench.gone(reader);
    let (writer, ..) = bench.mqtt(Comes::Token("two"), "w", true, 0);
    assert_eq!(bench.mqtt_publish(writer, "a"), 0);
    for file in files(directory.path()) {
        assert_eq!(file.metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
    }
    drop(bench);
    let mut bench = start(RULES);
    assert!(!bench.mqtt(Comes::Token("two"), "plc", false, HOUR).2, "that of another identity");
    let (reader, _, found) = bench.mqtt(Comes::Token("one"), "plc", false, HOUR);
    assert!(found && messages(&mut bench, reader).len() == 1);
    drop(bench);
    // rules that were changed while no broker ran
    let mut bench = start(&RULES.replace("subscribe = [\"#\"]", "subscribe = [\"b\"]"));
    bench.work();
    assert!(
        bench.notes.iter().any(|note| note.contains("may not subscribe to `a`")),
        "{:?}",
        bench.notes
    );
    assert!(!bench.mqtt(Comes::Token("one"), "plc", false, HOUR).2);
}

#[test]
fn subscriptions_and_messages_have_their_options_after_a_restart() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = start(directory.path());
    let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
    // an identifier, and none of its own messages
    let body = [&[0, 1, 2, 0x0B, 77, 0, 3][..], b"own", &[2 | 4]].concat();
    assert_eq!(*bench.packet(reader, 0x82, &body).expect("SUBACK").0.last().expect("a code"), 2);
    assert_eq!(bench.mqtt_subscribe(reader, "gone", 1), 1);
    let unsubscribe = [&[0, 2, 0, 0, 4][..], b"gone"].concat();
    assert_eq!(bench.packet(reader, 0xA2, &unsubscribe).expect("UNSUBACK").0[0], 0xB0);
    // two messages that the client itself publishes after the restart: they are not delivered to it
    let mut frozen = Vec::new();
    for (qos, payload) in [(1, 1), (2, 2)] {
        let (kind, body) = publish("own", (qos, 9, false), &[payload]);
        frozen.push((kind, body));
    }
    bench.gone(reader);
    let (writer, ..) = bench.mqtt(Comes::User(7), "writer", true, 0);
    // with a content type
    let body = [&[0, 3][..], b"own", &[0, 4, 4, 3, 0, 1, b'j'], b"\x03"].concat();
    assert!(bench.packet(writer, 0x32, &body).is_some());
    assert_eq!(bench.mqtt_publish(writer, "gone"), 0x10, "nobody waits for it");
    drop(bench);
    let mut bench = start(directory.path());
    let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
    for (kind, body) in frozen {
        assert!(bench.packet(reader, kind, &body).is_some());
    }
    bench.packet(reader, PUBREL, &[0, 9]);
    drop(bench);
    let mut bench = start(directory.path());
    let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
    let all = messages(&mut bench, reader);
    assert_eq!(numbers(&all), [3]);
    assert_eq!((all[0].qos, &*all[0].properties), (1, &[0x0B, 77, 3, 0, 1, b'j'][..]));
}

#[test]
fn a_queue_that_was_full_has_its_newest_messages_after_a_restart() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = start(directory.path());
    let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
    assert_eq!(bench.mqtt_subscribe(reader, "t", 1), 1);
    bench.gone(reader);
    let (writer, ..) = bench.mqtt(Comes::User(8), "writer", true, 0);
    for number in 0..9000_u32 {
        send(&mut bench, writer, "t", 1, &number.to_be_bytes());
    }
    drop(bench);
    let mut bench = start(directory.path());
    let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
    let (mut got, mut unread) = (Vec::new(), messages(&mut bench, reader));
    while !unread.is_empty() {
        // the broker sends as many as the client may have unconfirmed
        for message in std::mem::take(&mut unread) {
            got.push(u32::from_be_bytes(message.payload[..].try_into().expect("four bytes")));
            let next = bench.packet(reader, PUBACK, &message.id.to_be_bytes());
            unread.extend(next.as_ref().and_then(came));
            unread.extend(messages(&mut bench, reader));
        }
    }
    assert_eq!(got.len(), 8192);
    assert!(got.iter().copied().eq(9000 - 8192..9000), "the newest ones, in their order");
    let (writer, ..) = bench.mqtt(Comes::User(8), "writer", true, 0);
    send(&mut bench, writer, "t", 1, b"last");
    assert_eq!(messages(&mut bench, reader).len(), 1);
    let text = std::fs::read(&files(directory.path())[0]).expect("it is there");
    assert!(text.len() < 1 << 20, "obsolete lines do not stay: {}", text.len());
    let (saved, _) = SavedSession::read(&text).expect("it is sound").expect("it is whole");
    assert_eq!(saved.flights().len(), 1);
}

/// A step of the two clients, or the end of the broker.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The writer goes on with its exchange.
    Write,
    /// The reader reads and answers the next packet.
    Read,
    /// The broker is killed. The packets of its last turn have left, or not.
    Kill { packets_left: bool },
    /// The reader's connection breaks, and it comes back.
    Reconnect,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Write),
        8 => Just(Step::Read),
        2 => any::<bool>().prop_map(|packets_left| Step::Kill { packets_left }),
        1 => Just(Step::Reconnect),
    ]
}

/// A writer and a reader with QoS 2 that remember what MQTT has clients remember.
struct Exchange {
    bench: BrokerBench,
    writer: BenchClient,
    reader: BenchClient,
    /// The number of the writer's message, and whether it has PUBREC for it.
    writing: (u8, bool),
    /// Identifiers that the reader has received and not seen released.
    received: BTreeSet<u16>,
    unread: Vec<(Vec<u8>, Vec<u8>)>,
    got: BTreeMap<u8, Vec<u8>>,
}

impl Exchange {
    fn new(directory: &Path) -> Self {
        let mut bench = start(directory);
        let writer = bench.mqtt(Comes::User(8), "writer", false, HOUR).0;
        let reader = bench.mqtt(Comes::User(7), "reader", false, HOUR).0;
        assert_eq!(bench.mqtt_subscribe(reader, "two", 2), 2);
        assert_eq!(bench.mqtt_subscribe(reader, "one", 1), 1);
        let (received, unread, got) = (BTreeSet::new(), Vec::new(), BTreeMap::new());
        Self { bench, writer, reader, writing: (0, false), received, unread, got }
    }

    fn write(&mut self) {
        let (number, has_receipt) = self.writing;
        if has_receipt {
            let answer = self.bench.packet(self.writer, PUBREL, &[0, 3]);
            if answer.is_some_and(|(head, _)| head[0] == PUBCOMP) {
                self.writing = (number + 1, false);
            }
            return;
        }
        let topic = if number % 3 == 0 { "one" } else { "two" };
        let (kind, body) = publish(topic, (2, 3, true), &[number]);
        let answer = self.bench.packet(self.writer, kind, &body);
        self.writing.1 = answer.is_some_and(|(head, _)| head[0] == PUBREC);
    }

    fn read(&mut self) -> bool {
        self.unread.extend(self.bench.packets(self.reader));
        if self.unread.is_empty() {
            return false;
        }
        let packet = self.unread.remove(0);
        if packet.0[0] == PUBREL {
            let id = [packet.0[2], packet.0[3]];
            self.received.remove(&u16::from_be_bytes(id));
            self.answer(PUBCOMP, id);
        } else if let Some(message) = came(&packet) {
            let is_new = message.qos < 2 || self.received.insert(message.id);
            if is_new {
                self.got.entry(message.qos).or_default().push(message.payload[0]);
            }
            self.answer(if message.qos == 2 { PUBREC } else { PUBACK }, message.id.to_be_bytes());
        }
        true
    }

    fn answer(&mut self, kind: u8, id: [u8; 2]) {
        let first = self.bench.packet(self.reader, kind, &id);
        self.unread.extend(first);
        self.unread.extend(self.bench.packets(self.reader));
    }

    fn kill(&mut self, directory: &Path, packets_left: bool) {
        if packets_left {
            while self.read() {}
        }
        self.unread.clear();
        // the log has one writer
        let other = tempfile::tempdir().expect("a scratch directory");
        drop(std::mem::replace(&mut self.bench, start(other.path())));
        self.bench = start(directory);
        let (writer, _, found) = self.bench.mqtt(Comes::User(8), "writer", false, HOUR);
        assert!(found);
        self.writer = writer;
        self.come_back();
    }

    fn come_back(&mut self) {
        let (reader, _, found) = self.bench.mqtt(Comes::User(7), "reader", false, HOUR);
        assert!(found);
        self.reader = reader;
    }
}

proptest! {
    #[test]
    fn whenever_the_broker_is_killed_each_message_of_qos_2_comes_once_and_of_qos_1_at_least_once(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut exchange = Exchange::new(directory.path());
        for step in steps {
            match step {
                Step::Write => exchange.write(),
                Step::Read => drop(exchange.read()),
                Step::Kill { packets_left } => exchange.kill(directory.path(), packets_left),
                Step::Reconnect => {
                    exchange.bench.gone(exchange.reader);
                    exchange.unread.clear();
                    exchange.come_back();
                }
            }
        }
        while exchange.writing.1 {
            exchange.write();
        }
        while exchange.read() {}
        let written = 0..exchange.writing.0;
        let (one, two): (Vec<u8>, Vec<u8>) = written.partition(|number| number % 3 == 0);
        prop_assert_eq!(exchange.got.remove(&2).unwrap_or_default(), two);
        let mut got = exchange.got.remove(&1).unwrap_or_default();
        got.sort_unstable();
        got.dedup();
        prop_assert_eq!(got, one);
        prop_assert_eq!(&exchange.bench.notes, &[""; 0]);
    }
}

#[test]
fn a_message_whose_identifier_was_noted_and_that_never_came_into_the_log_is_taken_when_it_comes_again() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = start(directory.path());
    let _writer = bench.mqtt(Comes::User(8), "writer", false, HOUR);
    drop(bench);
    // killed between the two writes
    let path = files(directory.path()).remove(0);
    let mut text = std::fs::read(&path).expect("it is there");
    SessionLine::Arrived { id: 5, position: 1 }.write(&mut text);
    std::fs::write(&path, text).expect("room on the disk");
    let mut bench = start(directory.path());
    let (reader, ..) = bench.mqtt(Comes::User(7), "reader", true, 0);
    assert_eq!(bench.mqtt_subscribe(reader, "t", 2), 2);
    let (writer, ..) = bench.mqtt(Comes::User(8), "writer", false, HOUR);
    let (kind, body) = publish("t", (2, 5, true), &[1]);
    assert_eq!(bench.packet(writer, kind, &body).expect("PUBREC").0[0], PUBREC);
    assert_eq!(numbers(&messages(&mut bench, reader)), [1]);
}

#[test]
fn a_session_whose_last_messages_a_power_failure_took_from_the_log_gets_the_next_ones() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut bench = start(directory.path());
    let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
    assert_eq!(bench.mqtt_subscribe(reader, "t", 1), 1);
    drop(bench);
    // the kernel had written this file, and not the 90 events that the client has got
    let path = files(directory.path()).remove(0);
    let mut text = std::fs::read(&path).expect("it is there");
    SessionLine::Emptied { queue: 1, before: 91 }.write(&mut text);
    std::fs::write(&path, text).expect("room on the disk");
    let mut bench = start(directory.path());
    let (writer, ..) = bench.mqtt(Comes::User(8), "writer", true, 0);
    send(&mut bench, writer, "t", 1, &[1]);
    drop(bench);
    let mut bench = start(directory.path());
    let (reader, ..) = bench.mqtt(Comes::User(7), "reader", false, HOUR);
    assert_eq!(numbers(&messages(&mut bench, reader)), [1]);
}
