//! Bad input that no client library sends: the broker tells the sender the fault and counts it, and no other
//! program is affected. `events.rs` and `mqtt.rs` have the faults that libraries can send.

use crate::common::mqtt::{Raw, V5, V311};
use crate::common::watchdog::{while_serving, within_a_minute};
use crate::common::{broker, event, with_broker};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration as StdDuration;
use unisono_broker::log::{EventLog, LogBounds};
use unisono_broker::{ClientId, Limits, OWNER, Server, Task, Tokens};
use unisono_events_client::{
    Advertisement, AgainSpec, ChannelWait, Client, Duration, EventDraft, FieldSet, Greeting, Instant,
    KeptHistory, NoticeText, Reception, ResumeSpec, SubscriptionSpec, now,
};
use unisono_events_wire::Frame;
use unisono_events_wire::frame::{PublishFlags, PublishHead};
use unisono_events_wire::transport::TransportPeer;

/// Returns a frame as a socket carries it.
fn framed(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    frame.write(&mut bytes);
    let length = u32::try_from(bytes.len() - 4).expect("short").to_le_bytes();
    bytes[..4].copy_from_slice(&length);
    bytes
}

/// A connection for arbitrary bytes.
struct Socket(UnixStream);

impl Socket {
    fn greeting(path: &Path) -> Self {
        let mut socket = Self(UnixStream::connect(path).expect("it listens"));
        socket.send(&framed(&Frame::Hello(Greeting::default())));
        assert!(socket.heard().contains("Welcome"));
        socket
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("it is there");
    }

    /// Returns the next frame, in the form of `Debug`.
    fn heard(&mut self) -> String {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).expect("a frame");
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        self.0.read_exact(&mut bytes).expect("a whole frame");
        format!("{:?}", Frame::read(&bytes).expect("a frame"))
    }

    fn ends(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}

fn publication(payload: &[u8]) -> Vec<u8> {
    let flags = PublishFlags { answer: true, ..PublishFlags::default() };
    let head = PublishHead { flags, topic: 1, token: 1, ..PublishHead::default() };
    framed(&Frame::Publish { head, payload })
}

#[test]
fn what_was_never_opened_ends_the_connection_of_the_one_who_names_it_and_no_other() {
    with_broker(|addresses| {
        let [mut writer, mut reader, _] = addresses.clients();
        reader.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
        let bad = [
            publication(b"x"),
            framed(&Frame::Close { number: 7 }),
            framed(&Frame::Unsubscribe { number: 7 }),
            framed(&Frame::Acknowledge { consumer: 7, delivery: 1 }),
            framed(&Frame::Flush { number: 7 }),
        ];
        for (count, bytes) in (1..).zip(&bad) {
            let mut socket = Socket::greeting(&addresses.unix);
            socket.send(bytes);
            let said = socket.heard();
            assert!(
                said.starts_with("Bye") && (said.contains("never") || said.contains("no path")),
                "{said}"
            );
            assert!(socket.ends());
            assert_eq!(writer.statistics().expect("it goes on").sent_away, count);
        }
        let topic = writer.advertise(&Advertisement::new("t")).expect("a topic");
        writer.publish(topic, &EventDraft::new(b"good")).expect("it goes on");
        assert_eq!(*event(&mut reader).payload.bytes(), *b"good");
    });
}

#[test]
fn a_greeting_of_another_version_is_answered_with_that() {
    with_broker(|addresses| {
        let mut hello = framed(&Frame::Hello(Greeting::default()));
        let text = serde_json::to_vec(&Greeting::default()).expect("plain");
        let before = hello.len() - text.len();
        hello[before - 1] ^= 1; // the last byte of the protocol's name and version
        let mut socket = Socket(UnixStream::connect(&addresses.unix).expect("it listens"));
        socket.send(&hello);
        let said = socket.heard();
        assert!(said.contains("another protocol, or of another version"), "{said}");
        assert!(socket.ends());
    });
}

#[test]
fn an_event_larger_than_the_broker_takes_is_rejected_to_its_supplier_and_counted() {
    with_broker(|addresses| {
        let mut reader = addresses.client();
        reader.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
        let most = reader.largest();
        let mut socket = Socket::greeting(&addresses.unix);
        socket.send(&framed(&Frame::Advertise { number: 1, spec: Advertisement::new("t") }));
        assert!(socket.heard().starts_with("Accepted"));
        socket.send(&publication(&vec![7; most + 1]));
        let said = socket.heard();
        assert!(said.starts_with("Rejected") && said.contains(&(most + 1).to_string()), "{said}");
        assert_eq!(reader.statistics().expect("it goes on").refused, 1);
        // its connection continues, and no consumer got a part of it
        socket.send(&publication(b"small"));
        assert!(socket.heard().starts_with("Published"));
        assert_eq!(*event(&mut reader).payload.bytes(), *b"small");
        // a frame larger than any event ends the connection
        socket.send(&u32::MAX.to_le_bytes());
        assert!(socket.heard().starts_with("Bye") && socket.ends());
    });
}

#[test]
fn times_that_would_keep_the_broker_busy_are_refused_and_it_goes_on() {
    with_broker(|addresses| {
        let mut client = addresses.client();
        let plain = SubscriptionSpec::new("t");
        let again = |after_ns| Some(AgainSpec { after_ns, attempts: u32::MAX, window: 1 });
        for (odd, what) in [
            (SubscriptionSpec { every_ns: Some(1), ..plain.clone() }, "a period of 1 ns"),
            (
                SubscriptionSpec { silence_ns: Some(99_999), ..plain.clone() },
                "a time of silence of 99999 ns",
            ),
            (
                SubscriptionSpec { again: again(0), ..plain.clone() },
                "a time until an event comes again of 0 ns",
            ),
        ] {
            let refused = client.subscribe(&odd).expect_err("too short").to_string();
            assert!(refused.contains(what) && refused.contains("the shortest is 100000 ns"), "{refused}");
        }
        let shortest = SubscriptionSpec { every_ns: Some(100_000), again: again(100_000), ..plain };
        client.subscribe(&shortest).expect("it is long enough");
        let topic = client.advertise(&Advertisement::new("t")).expect("a topic");
        client.try_publish(topic, &EventDraft::new(b"1")).expect("the broker goes on");
    });
}

#[test]
fn a_key_or_a_field_that_fits_no_frame_is_refused_before_it_leaves() {
    with_broker(|addresses| {
        for mut client in addresses.clients() {
            let topic = client.advertise(&Advertisement::new("t")).expect("a topic");
            let key = "k".repeat(1025);
            let field =
                |name: &str, text: &str| EventDraft::new(b"").with_fields(FieldSet::new().with(name, text));
            let odd = [
                (EventDraft::new(b"").keyed(&key), "a key of 1025 bytes; at most 1024"),
                (field("a", &"x".repeat(70_000)), "the field `a` of 70000 bytes; at most 65535"),
                (field(&"n".repeat(256), ""), "the name of a field of 256 bytes; at most 255"),
            ];
            for (draft, what) in odd {
                let refused = client.try_publish(topic, &draft).expect_err("too long").to_string();
                assert!(refused.contains(what), "{refused}");
            }
            client.try_publish(topic, &EventDraft::new(b"")).expect("the connection goes on");
        }
    });
}

#[test]
fn what_can_never_be_granted_is_not_said_to_be_in_use() {
    with_broker(|addresses| {
        let mut client = addresses.client();
        let huge = SubscriptionSpec { queue_bytes: 1 << 40, ..SubscriptionSpec::new("t") };
        let refused = client.subscribe(&huge).expect_err("too much").to_string();
        assert!(
            refused.contains(" bytes are more than the broker gives") && refused.contains("ask for less"),
            "{refused}"
        );
        let history = KeptHistory::Last(1 << 30);
        let refused = client.advertise(&Advertisement { history, ..Advertisement::new("t") });
        let refused = refused.expect_err("too many").to_string();
        assert!(refused.contains("1073741824 events of history; a topic keeps at most"), "{refused}");
    });
}

#[test]
fn a_token_that_others_could_read_on_its_way_is_refused_and_counted() {
    let text = format!(
        "[[token]]\nname = \"t\"\nsha256 = \"{}\"",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    );
    let tokens = Tokens::parse(&text, now(), 0).expect("it is sound");
    let mut broker = broker().with_tokens(tokens);
    let mut greet = |number: u32, address: &str, is_encrypted: bool| {
        let peer = TransportPeer::Address(address.parse().expect("an address"));
        assert!(broker.connected(Instant::from_nanos(1), ClientId(number), peer));
        if is_encrypted {
            broker.secured(ClientId(number), Vec::new());
        }
        let mut bytes = Vec::new();
        let token = Some("test".to_owned());
        Frame::Hello(Greeting { token, ..Greeting::default() }).write(&mut bytes);
        let _ = broker.received(Instant::from_nanos(1), ClientId(number), &bytes, None);
        let Some(Task::Answer { head, .. }) = broker.task() else { panic!("an answer") };
        let answer = format!("{:?}", Frame::read(&head).expect("a frame"));
        while broker.task().is_some() {}
        (
            answer,
            broker.statistics(Instant::from_nanos(1)).refusals.get("token").copied().unwrap_or(0),
        )
    };
    let (answer, refused) = greet(1, "192.0.2.7", false);
    assert!(
        answer.starts_with("Bye") && answer.contains("replace it, and connect to tls:"),
        "{answer}"
    );
    assert_eq!(refused, 1);
    for (number, address, is_encrypted) in [(2, "192.0.2.7", true), (3, "127.0.0.1", false)] {
        let (answer, refused) = greet(number, address, is_encrypted);
        assert!(answer.starts_with("Welcome"), "{answer}");
        assert_eq!(refused, 1);
    }
}

/// Runs a test with a broker whose log is in a directory.
fn with_log(directory: &Path, test: impl FnOnce(&mut Client, &Path)) {
    let bounds = LogBounds { bytes: 1 << 20, age: Duration::MAX };
    let log = EventLog::open(&directory.join("log"), bounds).expect("the log opens");
    let kept = vec!["kept/#".parse().expect("a pattern")];
    let unix = directory.join("events");
    let mut server =
        Server::new(broker().with_log(log, Duration::ZERO, kept), ChannelWait::Sleep).expect("descriptors");
    server.listen_unix(&unix, OWNER).expect("it listens");
    while_serving(&mut server, || test(&mut Client::connect_unix(&unix).expect("it listens"), &unix));
}

fn publish(client: &mut Client, payloads: &[&[u8]]) {
    let topic = client.advertise(&Advertisement::new("kept/a")).expect("a topic");
    for payload in payloads {
        client.try_publish(topic, &EventDraft::new(payload)).expect("it is taken");
    }
}

/// Returns the payloads and losses that a consumer of the whole log is told.
fn told(client: &mut Client, count: usize) -> Vec<String> {
    let resume = Some(ResumeSpec { name: "reader".to_owned(), after: Some(0), ..ResumeSpec::default() });
    let spec = SubscriptionSpec { resume, ..SubscriptionSpec::new("kept/#") };
    client.subscribe(&spec).expect("it fits");
    let told = (0..count).map(|_| match client.receive(Some(StdDuration::from_secs(20))) {
        Ok(Some(Reception::Event(event))) => String::from_utf8_lossy(&event.payload.bytes()).into_owned(),
        Ok(Some(Reception::Notice { notice: NoticeText::Lost { first, last }, .. })) => {
            format!("lost {first} to {last}")
        }
        other => panic!("{other:?}"),
    });
    told.collect()
}

/// Changes the only segment of the log.
fn change(directory: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let entries = std::fs::read_dir(directory.join("log")).expect("a directory");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut paths = paths.filter(|path| path.extension().is_some_and(|it| it == "events"));
    let path = paths.next().expect("a segment");
    let mut bytes = std::fs::read(&path).expect("a file");
    change(&mut bytes);
    std::fs::write(&path, bytes).expect("it is written");
}

#[test]
fn an_event_that_was_damaged_on_the_disk_is_told_as_lost_and_counted_and_the_broker_goes_on() {
    within_a_minute(|| {
        let directory = tempfile::tempdir().expect("a scratch directory");
        with_log(directory.path(), |client, _| publish(client, &[b"first", b"second", b"third"]));
        change(directory.path(), |bytes| {
            let at = bytes.windows(6).position(|text| text == b"second").expect("it is there");
            bytes[at] ^= 1;
        });
        with_log(directory.path(), |client, unix| {
            let log = client.statistics().expect("it goes on").log.expect("it keeps one");
            assert_eq!((log.damaged, log.torn), (1, 0));
            publish(client, &[b"fourth"]);
            let mut reader = Client::connect_unix(unix).expect("it listens");
            let mut told = told(&mut reader, 4);
            // a notice may come before the events that wait
            told.sort_unstable();
            assert_eq!(told, ["first", "fourth", "lost 2 to 2", "third"]);
        });
    });
}

#[test]
fn a_log_with_a_torn_tail_is_served_to_its_last_whole_event_and_what_was_cut_off_is_counted() {
    within_a_minute(|| {
        let directory = tempfile::tempdir().expect("a scratch directory");
        with_log(directory.path(), |client, _| publish(client, &[b"first", b"second", b"third"]));
        change(directory.path(), |bytes| {
            let at = bytes.windows(5).position(|text| text == b"third").expect("it is there");
            bytes.truncate(at + 2);
        });
        with_log(directory.path(), |client, unix| {
            let log = client.statistics().expect("it goes on").log.expect("it keeps one");
            assert_eq!((log.damaged, log.next), (0, 3));
            assert!(log.torn > 0);
            publish(client, &[b"third again"]);
            let mut reader = Client::connect_unix(unix).expect("it listens");
            assert_eq!(told(&mut reader, 3), ["first", "second", "third again"]);
        });
    });
}

#[test]
fn a_consumer_with_too_many_patterns_or_a_bad_one_to_leave_out_is_refused() {
    with_broker(|addresses| {
        let mut client = addresses.client();
        let leaving_out = |except: Vec<unisono_events_client::ExceptSpec>| {
            let mut spec = SubscriptionSpec::new("#");
            spec.interests[0].except = except;
            spec
        };
        let except =
            |topics: &str| unisono_events_client::ExceptSpec { topics: topics.to_owned(), but: Vec::new() };
        let most = Limits::default().interests;
        let many = (0..most).map(|number| except(&format!("a/{number}"))).collect();
        let said = client.subscribe(&leaving_out(many)).expect_err("too many").to_string();
        assert!(
            said.contains(&format!("{} patterns", most + 1)) && said.contains(&most.to_string()),
            "{said}"
        );
        let said = client.subscribe(&leaving_out(vec![except("a/#/b")])).expect_err("no pattern").to_string();
        assert!(said.contains("`a/#/b`: column 3"), "{said}");
        client.subscribe(&leaving_out(vec![except("a/#")])).expect("it fits");
        assert_eq!(client.statistics().expect("it goes on").refused, 2);
    });
}

#[test]
fn a_payload_beyond_the_limit_is_never_confirmed() {
    with_broker(|at| {
        let mut reader = Raw::connect(at.mqtt, V5, "reader");
        reader.subscribe(1, "q", 1);
        let large = vec![b'x'; (4 << 20) + 1];
        for qos in [1, 2] {
            let mut writer = Raw::connect(at.mqtt, V5, "writer");
            // PUBACK and PUBREC have no code 0x95
            assert_eq!(writer.publish_code("q", &large, qos), 0x97, "quota exceeded");
            let mut writer = Raw::connect(at.mqtt, V311, "old writer");
            writer.send_message("q", &large, qos);
            assert!(writer.ends_silently(), "a confirmation of MQTT 3.1.1 always means success");
        }
        let mut writer = Raw::connect(at.mqtt, V311, "old writer");
        writer.publish("q", b"small", 1, false);
        assert_eq!(&*reader.message().payload, b"small");
    });
}
