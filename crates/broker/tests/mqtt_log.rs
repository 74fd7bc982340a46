//! MQTT messages in the log: PUBACK and PUBREC say that they are there. Tests over sockets end under a
//! watchdog.

use crate::common::mqtt::{Raw, V5, V311};
use crate::common::watchdog::{while_serving, within_a_minute};
use std::path::Path;
use std::time::Duration as StdDuration;
use unisono_broker::log::{EventLog, LogBounds};
use unisono_broker::{Broker, ClientId, Exposure, Limits, OWNER, Server, Task};
use unisono_events_client::{ChannelWait, Client, Durability, Reception, ResumeSpec, SubscriptionSpec};
use unisono_events_wire::transport::TransportPeer;
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_linux::clock::{Duration, Instant};

const CLIENT: ClientId = ClientId(7);

fn broker(directory: &Path, bytes: u64) -> Broker {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let log = EventLog::open(&directory.join("log"), LogBounds { bytes, age: Duration::MAX });
    let kept = vec!["kept/#".parse().expect("a pattern")];
    let broker = Broker::new(tree.expect("it is sound"), Limits::default());
    broker.with_log(log.expect("the log opens"), Duration::ZERO, kept)
}

/// Runs a test with a broker that serves programs and MQTT clients, with the log in a directory.
fn serving(directory: &Path, bytes: u64, test: impl FnOnce(std::net::SocketAddr, &Path)) {
    let mut server = Server::new(broker(directory, bytes), ChannelWait::Sleep).expect("descriptors");
    let unix = directory.join("events");
    server.listen_unix(&unix, OWNER).expect("it listens");
    let any = "127.0.0.1:0".parse().expect("an address");
    let mqtt = server.listen_mqtt(any, Exposure::Loopback).expect("it listens");
    while_serving(&mut server, || test(mqtt, &unix));
}

#[test]
fn messages_that_were_confirmed_are_in_the_log_after_a_restart() {
    within_a_minute(|| {
        let directory = tempfile::tempdir().expect("a scratch directory");
        serving(directory.path(), 16 << 20, |mqtt, unix| {
            for version in [V311, V5] {
                let mut client = Raw::connect(mqtt, version, "c");
                for qos in [1, 2, 0] {
                    client.publish("kept/a", &[version, qos], qos, false);
                    client.publish("other", b"x", qos, false);
                }
                client.subscribe(1, "nothing", 0); // so that the messages of QoS 0 have come
            }
            let mut program = Client::connect_unix(unix).expect("it listens");
            let log = program.statistics().expect("it answers").log.expect("it keeps a log");
            assert_eq!((log.written, log.failed), (6, 0), "of `kept/#` and of no other topic");
        });
        serving(directory.path(), 16 << 20, |_, unix| {
            let mut program = Client::connect_unix(unix).expect("it listens");
            let resume = ResumeSpec { name: "reader".to_owned(), after: Some(0), ..ResumeSpec::default() };
            let spec = SubscriptionSpec { resume: Some(resume), ..SubscriptionSpec::new("kept/a") };
            program.subscribe(&spec).expect("it fits");
            for expected in [[4, 1], [4, 2], [4, 0], [5, 1], [5, 2], [5, 0]] {
                match program.receive(Some(StdDuration::from_secs(20))).expect("it goes on") {
                    Some(Reception::Event(event)) => assert_eq!(*event.payload.bytes(), expected),
                    other => panic!("{other:?}"),
                }
            }
        });
    });
}

#[test]
fn a_message_that_the_log_does_not_take_is_not_confirmed_and_goes_to_nobody() {
    within_a_minute(|| {
        let directory = tempfile::tempdir().expect("a scratch directory");
        // the log takes no event of 8 KiB
        let large = vec![7; 8 << 10];
        serving(directory.path(), 4 << 10, |mqtt, unix| {
            let mut reader = Raw::connect(mqtt, V5, "reader");
            reader.subscribe(1, "#", 0);
            let mut client = Raw::connect(mqtt, V5, "new");
            for qos in [1, 2] {
                assert_eq!(client.publish_code("kept/a", &large, qos), 0x97);
            }
            let mut old = Raw::connect(mqtt, V311, "old");
            old.publish("kept/a", &large, 0, false);
            assert_eq!(reader.message().payload, large, "QoS 0 promises nothing, and is delivered");
            old.send_message("kept/a", &large, 1);
            assert!(old.ends(), "MQTT 3.1.1 knows no refusal");
            client.publish("other", b"others notice nothing", 1, false);
            assert_eq!(reader.message().topic, "other");
            let mut program = Client::connect_unix(unix).expect("it listens");
            let log = program.statistics().expect("it answers").log.expect("it keeps a log");
            assert_eq!((log.written, log.failed), (0, 4));
        });
    });
}

/// A client without a connection: packets go in, packets come out.
struct Packets(Broker);

impl Packets {
    fn new(directory: &Path) -> Self {
        let mut broker = broker(directory, 16 << 20);
        broker.confirm_messages(Durability::Synced);
        broker.keep_again(Instant::from_nanos(1)).expect("it is read");
        assert!(broker.connected_by_mqtt(Instant::from_nanos(1), CLIENT, TransportPeer::User(0)));
        let mut packets = Self(broker);
        // a session that outlives its connection by 60 s
        let connect = [16, 19, 0, 4, b'M', b'Q', b'T', b'T', 5, 0, 0, 0, 5, 0x11, 0, 0, 0, 60, 0, 1, b'c'];
        assert_eq!(packets.say(&connect)[0][0], 0x20);
        packets
    }

    /// Sends a packet. Returns the packets of the broker's answer; an empty one means that it ends the
    /// connection.
    fn say(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let _ = self.0.received(Instant::from_nanos(1), CLIENT, bytes, None);
        self.heard()
    }

    fn heard(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.0.task())
            .map(|task| match task {
                Task::Answer { head, .. } => head,
                Task::SendAway { .. } => Vec::new(),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn synced(&mut self, result: Result<(), String>) -> Vec<Vec<u8>> {
        let job = self.0.sync().expect("somebody waits");
        job.run().expect("the disk works");
        self.0.synced(Instant::from_nanos(1), &job, result);
        self.heard()
    }
}

fn publish(topic: &str, qos: u8, id: u8) -> Vec<u8> {
    let body = [&[0, topic.len() as u8], topic.as_bytes(), &[0, id, 0, b'x']].concat();
    [&[0x30 | qos << 1, body.len() as u8][..], &body].concat()
}

/// Returns the first byte and the packet identifier of each PUBACK or PUBREC.
fn confirmed(packets: &[Vec<u8>]) -> Vec<(u8, u8)> {
    packets.iter().map(|packet| (packet[0], packet[3])).collect()
}

#[test]
fn messages_are_confirmed_in_their_order_once_the_disk_has_them() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut client = Packets::new(directory.path());
    assert_eq!(confirmed(&client.say(&publish("other", 1, 1))), [(0x40, 1)], "nothing waits");
    assert_eq!(client.say(&publish("kept/a", 1, 2)), Vec::<Vec<u8>>::new());
    assert_eq!(client.say(&publish("other", 1, 3)), Vec::<Vec<u8>>::new(), "not before the one before");
    assert_eq!(client.say(&publish("kept/b", 2, 4)), Vec::<Vec<u8>>::new());
    assert_eq!(confirmed(&client.synced(Ok(()))), [(0x40, 2), (0x40, 3), (0x50, 4)]);
    assert!(client.0.sync().is_none(), "nobody waits");
    assert_eq!(confirmed(&client.say(&publish("other", 1, 5))), [(0x40, 5)]);
    // a message of QoS 2 comes again while the first copy waits
    assert_eq!(client.say(&publish("kept/b", 2, 6)), Vec::<Vec<u8>>::new());
    assert_eq!(client.say(&publish("kept/b", 2, 6)), Vec::<Vec<u8>>::new());
    assert_eq!(confirmed(&client.synced(Ok(()))), [(0x50, 6), (0x50, 6)]);
    let log = client.0.statistics(Instant::from_nanos(1)).log.expect("it keeps a log");
    assert_eq!((log.written, log.syncs), (3, 2));
}

#[test]
fn after_a_sync_that_failed_a_client_is_sent_away_and_its_message_is_a_new_one() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut client = Packets::new(directory.path());
    assert_eq!(client.say(&publish("kept/a", 2, 1)), Vec::<Vec<u8>>::new());
    let said = client.synced(Err("the disk is on fire".to_owned()));
    let [last_word, end] = &said[..] else { panic!("{said:?}") };
    assert!(last_word[0] == 0xE0 && end.is_empty(), "DISCONNECT: {said:?}");
    assert!(String::from_utf8_lossy(last_word).contains("the disk is on fire"));
    assert!(client.0.connected_by_mqtt(Instant::from_nanos(1), CLIENT, TransportPeer::User(0)));
    let connect = [16, 19, 0, 4, b'M', b'Q', b'T', b'T', 5, 0, 0, 0, 5, 0x11, 0, 0, 0, 60, 0, 1, b'c'];
    assert_eq!(client.say(&connect)[0][2], 1, "the session is there");
    let said = client.say(&publish("kept/a", 2, 1));
    assert_eq!((said[0][0], said[0][4]), (0x50, 0x97), "not confirmed as one that came before: {said:?}");
}

#[test]
fn a_sync_that_failed_makes_no_message_new_that_is_not_in_the_log() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut client = Packets::new(directory.path());
    assert_eq!(client.say(&publish("kept/a", 1, 1)), Vec::<Vec<u8>>::new());
    assert_eq!(client.say(&publish("other", 2, 2)), Vec::<Vec<u8>>::new(), "it waits for the one before");
    client.synced(Err("the disk is on fire".to_owned()));
    assert!(client.0.connected_by_mqtt(Instant::from_nanos(1), CLIENT, TransportPeer::User(0)));
    let connect = [16, 19, 0, 4, b'M', b'Q', b'T', b'T', 5, 0, 0, 0, 5, 0x11, 0, 0, 0, 60, 0, 1, b'c'];
    assert_eq!(client.say(&connect)[0][2], 1, "the session is there");
    let said = client.say(&publish("other", 2, 2));
    let no_subscribers = said[0].get(4) == Some(&0x10);
    assert!(said[0][0] == 0x50 && !no_subscribers, "it was published again: {said:?}");
}

#[test]
fn what_a_session_is_told_is_on_the_disk_if_messages_are() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let mut client = Packets::new(directory.path());
    let subscribe = [0x82, 7, 0, 1, 0, 0, 1, b'a', 1];
    assert_eq!(client.say(&subscribe), Vec::<Vec<u8>>::new());
    let job = client.0.sync().expect("SUBACK waits");
    // comes too late for this sync
    let unsubscribe = [0xA2, 6, 0, 2, 0, 0, 1, b'a'];
    assert_eq!(client.say(&unsubscribe), Vec::<Vec<u8>>::new());
    job.run().expect("the disk works");
    client.0.synced(Instant::from_nanos(1), &job, Ok(()));
    assert_eq!(confirmed(&client.heard()), [(0x90, 1)]);
    assert_eq!(confirmed(&client.synced(Ok(()))), [(0xB0, 2)]);
    assert!(client.0.sync().is_none(), "nobody waits");
    assert_eq!(client.say(&publish("kept/b", 2, 4)), Vec::<Vec<u8>>::new());
    assert_eq!(confirmed(&client.synced(Ok(()))), [(0x50, 4)]);
    let release = [0x62, 2, 0, 4];
    assert_eq!(client.say(&release), Vec::<Vec<u8>>::new());
    assert_eq!(confirmed(&client.synced(Ok(()))), [(0x70, 4)]);
}
