//! Events in the log over real sockets: acknowledged events outlive the broker, and a named consumer
//! continues at its last position. Every test ends under a watchdog.

use crate::common::watchdog::{while_serving, within_a_minute};
use std::path::Path;
use std::time::Duration as StdDuration;
use unisono_broker::log::{EventLog, LogBounds};
use unisono_broker::{Broker, Limits, OWNER, Server};
use unisono_events_client::{
    Advertisement, AgainSpec, BrokerAddress, ChannelWait, Client, ClientOptions, Durability, Error,
    EventDraft, KeptHistory, LogStatistics, NoticeText, PayloadForm, PublishOutcome, ReceivedEvent,
    Reception, ResumeSpec, SubscriptionSpec, now,
};
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_linux::clock::Duration;

pub(crate) const WIDE: LogBounds = LogBounds { bytes: 16 << 20, age: Duration::MAX };

pub(crate) fn broker(directory: &Path, bounds: LogBounds) -> Broker {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    let log = EventLog::open(&directory.join("log"), bounds).expect("the log opens");
    let kept = vec!["kept/#".parse().expect("a pattern")];
    let mut broker =
        Broker::new(tree.expect("it is sound"), Limits::default()).with_log(log, Duration::ZERO, kept);
    broker.keep_again(now()).expect("the log is read");
    broker
}

/// The part of a test that runs while one broker serves at a path.
type BrokerLife = Box<dyn FnOnce(&Path) + Send>;

/// Runs one broker after the other in a directory; gives up after a minute.
fn with_brokers(bounds: LogBounds, lives: Vec<BrokerLife>) {
    within_a_minute(move || {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let unix = directory.path().join("events");
        for life in lives {
            let mut server =
                Server::new(broker(directory.path(), bounds), ChannelWait::Sleep).expect("descriptors");
            server.listen_unix(&unix, OWNER).expect("it listens");
            while_serving(&mut server, || life(&unix));
        }
    });
}

fn client(unix: &Path) -> Client {
    Client::connect_unix(unix).expect("it listens")
}

fn event(client: &mut Client) -> ReceivedEvent {
    match client.receive(Some(StdDuration::from_secs(20))).expect("it goes on") {
        Some(Reception::Event(event)) => event,
        other => panic!("{other:?}"),
    }
}

fn nothing(client: &mut Client) {
    let got = client.receive(Some(StdDuration::from_millis(100))).expect("it goes on");
    assert!(got.is_none(), "{got:?}");
}

pub(crate) fn offer(durability: Durability, writer: Option<&str>) -> Advertisement {
    Advertisement { durability, writer: writer.map(str::to_owned), ..Advertisement::new("plant/1") }
}

pub(crate) fn follower(name: &str) -> SubscriptionSpec {
    let resume = ResumeSpec { name: name.to_owned(), after: None, ..ResumeSpec::default() };
    SubscriptionSpec { resume: Some(resume), ..SubscriptionSpec::new("plant/+") }
}

/// Publishes events with these numbers as their payload.
fn publish(unix: &Path, numbers: std::ops::Range<u64>) {
    let mut supplier = client(unix);
    let topic = supplier.advertise(&offer(Durability::Written, None)).expect("a topic");
    for number in numbers {
        let published = supplier.try_publish(topic, &EventDraft::new(&number.to_le_bytes())).expect("taken");
        assert!(matches!(published.outcome, PublishOutcome::Written(_)), "{published:?}");
    }
}

fn number(event: &ReceivedEvent) -> u64 {
    u64::from_le_bytes(event.payload.bytes()[..].try_into().expect("eight bytes"))
}

fn log_of(client: &mut Client) -> LogStatistics {
    client.statistics().expect("it answers").log.expect("it keeps a log")
}

#[test]
fn an_acknowledgement_says_synced_once_the_disk_has_it_and_many_share_one_sync() {
    with_brokers(
        WIDE,
        vec![Box::new(|unix| {
            let mut supplier = client(unix);
            let topic = supplier.advertise(&offer(Durability::Synced, None)).expect("a topic");
            let handed: Vec<_> = (0..500)
                .map(|_| {
                    supplier.publish_with_receipt(topic, &EventDraft::new(b"x"), None).expect("it leaves")
                })
                .collect();
            for (number, handed) in (1..).zip(handed) {
                let published = supplier.outcome(handed).expect("it is taken");
                assert_eq!((published.sequence, published.outcome), (number, PublishOutcome::Synced(0)));
            }
            let log = log_of(&mut supplier);
            assert_eq!((log.next, log.synced, log.written), (501, 501, 500));
            assert!((1..500).contains(&log.syncs), "{log:?}");
        })],
    );
}

#[test]
fn a_named_consumer_goes_on_after_what_it_acknowledged_across_a_restart() {
    with_brokers(
        WIDE,
        vec![
            Box::new(|unix| {
                let mut consumer = client(unix);
                consumer.subscribe(&follower("billing")).expect("it fits");
                publish(unix, 0..10);
                for expected in 0..10 {
                    let got = event(&mut consumer);
                    assert_eq!((number(&got), got.delivery), (expected, Some(expected + 1)));
                    assert_eq!((&*got.topic, got.retained, got.repeated), ("plant/1", false, 0));
                    // the sixth stays unacknowledged: it and later events may come again
                    if expected != 5 {
                        consumer.acknowledge(&got).expect("it is there");
                    }
                }
                // an answer shows that the broker has read the acknowledgements before it ends
                consumer.statistics().expect("it is there");
            }),
            Box::new(|unix| publish(unix, 10..12)),
            Box::new(|unix| {
                let mut consumer = client(unix);
                consumer.subscribe(&follower("billing")).expect("it fits");
                for expected in 5..12 {
                    let got = event(&mut consumer);
                    assert_eq!((number(&got), got.retained), (expected, true));
                    consumer.acknowledge(&got).expect("it is there");
                }
                publish(unix, 12..14);
                assert_eq!([number(&event(&mut consumer)), number(&event(&mut consumer))], [12, 13]);
                nothing(&mut consumer);
                // a consumer that keeps its position itself
                let mut exact = client(unix);
                let resume = ResumeSpec { name: "exact".to_owned(), after: Some(3), ..ResumeSpec::default() };
                let spec = SubscriptionSpec { resume: Some(resume), ..follower("") };
                exact.subscribe(&spec).expect("it fits");
                assert_eq!(number(&event(&mut exact)), 3);
            }),
        ],
    );
}

#[test]
fn a_slow_named_consumer_with_a_short_queue_misses_nothing() {
    with_brokers(
        WIDE,
        vec![Box::new(|unix| {
            let mut consumer = client(unix);
            let spec = SubscriptionSpec { queue_events: 4, queue_bytes: 20, ..follower("slow") };
            consumer.subscribe(&spec).expect("it fits");
            publish(unix, 0..300);
            for expected in 0..300 {
                let got = event(&mut consumer);
                assert_eq!(number(&got), expected);
                consumer.acknowledge(&got).expect("it is there");
            }
            nothing(&mut consumer);
        })],
    );
}

#[test]
fn what_is_not_acknowledged_comes_again_to_a_named_consumer_until_it_is() {
    with_brokers(
        WIDE,
        vec![Box::new(|unix| {
            let mut consumer = client(unix);
            let again = AgainSpec { after_ns: 20_000_000, attempts: 1, window: 8 };
            consumer
                .subscribe(&SubscriptionSpec { again: Some(again), ..follower("tries") })
                .expect("it fits");
            publish(unix, 7..8);
            for repeated in 0..4 {
                let got = event(&mut consumer);
                assert_eq!((number(&got), got.repeated, got.delivery), (7, repeated, Some(1)));
                if repeated == 3 {
                    consumer.acknowledge(&got).expect("it is there");
                }
            }
            nothing(&mut consumer);
        })],
    );
}

#[test]
fn an_event_that_its_writer_numbers_is_in_the_log_once_however_often_it_comes() {
    let publish = |unix: &Path, numbers: std::ops::Range<u64>, durability| -> Vec<PublishOutcome> {
        let mut supplier = client(unix);
        let topic = supplier.advertise(&offer(durability, Some("boiler"))).expect("a topic");
        let handed: Vec<_> = numbers
            .map(|number| {
                let payload = number.to_le_bytes();
                supplier
                    .publish_with_receipt(topic, &EventDraft::new(&payload), Some(number))
                    .expect("it leaves")
            })
            .collect();
        handed.into_iter().map(|one| supplier.outcome(one).expect("taken").outcome).collect()
    };
    with_brokers(
        WIDE,
        vec![
            Box::new(move |unix| {
                assert_eq!(publish(unix, 1..4, Durability::Synced), [PublishOutcome::Synced(0); 3]);
            }),
            Box::new(move |unix| {
                let mut consumer = client(unix);
                let resume =
                    ResumeSpec { name: "reader".to_owned(), after: Some(0), ..ResumeSpec::default() };
                consumer
                    .subscribe(&SubscriptionSpec { resume: Some(resume), ..follower("") })
                    .expect("it fits");
                let again = publish(unix, 2..6, Durability::Written);
                let (twice, new) = (PublishOutcome::Duplicate, PublishOutcome::Written(0));
                assert_eq!(again, [twice, twice, new, new]);
                let got: Vec<_> = (0..5).map(|_| event(&mut consumer)).collect();
                assert_eq!(got.iter().map(number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
                assert!(got.iter().all(|event| event.supplier == got[0].supplier), "one name, one number");
                nothing(&mut consumer);
            }),
        ],
    );
}

#[test]
fn a_consumer_that_was_away_too_long_is_told_what_it_lost() {
    with_brokers(
        LogBounds { bytes: 33 << 10, age: Duration::MAX },
        vec![Box::new(|unix| {
            let mut consumer = client(unix);
            consumer.subscribe(&follower("away")).expect("it fits");
            drop(consumer);
            publish(unix, 0..1000);
            let mut consumer = client(unix);
            let first = log_of(&mut consumer).first;
            assert!(first > 1);
            consumer.subscribe(&follower("away")).expect("it fits");
            match consumer.receive(Some(StdDuration::from_secs(20))).expect("it goes on") {
                Some(Reception::Notice { notice: NoticeText::Lost { first: 1, last }, .. }) => {
                    assert_eq!(last + 1, first);
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(number(&event(&mut consumer)), first - 1);
        })],
    );
}

#[test]
fn topics_that_the_broker_keeps_are_in_the_log_though_no_supplier_asks() {
    with_brokers(
        WIDE,
        vec![Box::new(|unix| {
            let mut supplier = client(unix);
            for name in ["kept/a", "other"] {
                let topic = supplier.advertise(&Advertisement::new(name)).expect("a topic");
                let published = supplier.try_publish(topic, &EventDraft::new(b"x")).expect("it is taken");
                let written = name == "kept/a";
                assert_eq!(matches!(published.outcome, PublishOutcome::Written(0)), written, "{published:?}");
            }
            assert_eq!(log_of(&mut supplier).written, 1);
        })],
    );
}

#[test]
fn a_name_has_one_consumer_and_what_does_not_go_with_a_name_is_refused() {
    with_brokers(
        WIDE,
        vec![Box::new(|unix| {
            let (mut one, mut other) = (client(unix), client(unix));
            one.subscribe(&follower("same")).expect("it fits");
            let refused = |client: &mut Client, spec: &SubscriptionSpec| match client.subscribe(spec) {
                Err(Error::Refused(reason)) => reason,
                other => panic!("{other:?}"),
            };
            assert!(refused(&mut other, &follower("same")).contains("connected already"));
            assert!(refused(&mut other, &follower("../x")).contains("letters, digits"));
            let grouped = SubscriptionSpec { group: Some("g".to_owned()), ..follower("x") };
            assert!(refused(&mut other, &grouped).contains("cannot be of a group"));
            let local = SubscriptionSpec { local_only: true, ..follower("x") };
            assert!(refused(&mut other, &local).contains("cannot be local only"));
            drop(one);
            // its place is free as soon as the broker has seen that it went
            while other.subscribe(&follower("same")).is_err() {}
        })],
    );
}

#[test]
fn who_asks_for_types_is_told_them_by_the_broker_and_out_of_the_log() {
    with_brokers(
        WIDE,
        vec![Box::new(|unix| {
            let types = ClientOptions::new().with_types();
            let mut asking = types.connect(&BrokerAddress::Unix(unix.to_owned())).expect("it listens");
            asking.subscribe(&SubscriptionSpec::new("#")).expect("it fits");
            let mut plain = client(unix);
            plain.subscribe(&SubscriptionSpec::new("#")).expect("it fits");
            let kinds = [Some("reading"), None, Some("")];
            // a topic may change its type while it has no supplier
            for kind in kinds {
                let mut supplier = client(unix);
                let event_type = kind.map(str::to_owned);
                let topic =
                    supplier.advertise(&Advertisement { event_type, ..offer(Durability::Written, None) });
                supplier.try_publish(topic.expect("a topic"), &EventDraft::new(b"x")).expect("it is taken");
                assert_eq!(event(&mut asking).event_type.as_deref(), kind);
                assert_eq!(event(&mut plain).event_type, None);
                drop(supplier);
                for client in [&mut asking, &mut plain] {
                    let came = client.receive(Some(StdDuration::from_secs(20))).expect("it goes on");
                    assert!(
                        matches!(came, Some(Reception::Notice { notice: NoticeText::Gone { .. }, .. })),
                        "{came:?}"
                    );
                }
            }
            let mut reading = types.connect(&BrokerAddress::Unix(unix.to_owned())).expect("it listens");
            let resume =
                Some(ResumeSpec { name: "reader".to_owned(), after: Some(0), ..ResumeSpec::default() });
            reading.subscribe(&SubscriptionSpec { resume, ..SubscriptionSpec::new("#") }).expect("it fits");
            let came = kinds.map(|_| event(&mut reading).event_type);
            assert_eq!(came.each_ref().map(Option::as_deref), kinds);
        })],
    );
}

/// Returns the content type and the schema of the next event.
fn form(client: &mut Client) -> (Option<String>, Option<String>) {
    let event = event(client);
    (event.content_type().map(str::to_owned), event.schema().map(str::to_owned))
}

#[test]
fn the_form_of_payloads_is_in_the_log_and_outlives_a_restart() {
    let cbor = || (Some("application/cbor".to_owned()), Some("Reading".to_owned()));
    let publish_typed = move |unix: &Path| {
        let (content_type, schema) = cbor();
        let kept = Advertisement {
            content: PayloadForm { content_type, schema },
            durability: Durability::Written,
            history: KeptHistory::Last(1),
            ..Advertisement::new("kept/1")
        };
        let mut supplier = client(unix);
        let topic = supplier.advertise(&kept).expect("a topic");
        supplier.try_publish(topic, &EventDraft::new(b"x")).expect("it is taken");
    };
    let resuming = || {
        let resume = ResumeSpec { name: "reader".to_owned(), after: Some(0), ..ResumeSpec::default() };
        SubscriptionSpec { resume: Some(resume), ..SubscriptionSpec::new("kept/+") }
    };
    with_brokers(
        WIDE,
        vec![
            Box::new(publish_typed),
            Box::new(move |unix| {
                let mut late = client(unix);
                late.subscribe(&SubscriptionSpec::new("kept/+")).expect("it fits");
                assert_eq!(form(&mut late), cbor(), "what the topic keeps");
                let mut reader = client(unix);
                reader.subscribe(&resuming()).expect("it fits");
                assert_eq!(form(&mut reader), cbor(), "out of the log");
                // the form is the supplier's, and the former one ended with its broker
                let mut plain = client(unix);
                let again = Advertisement { history: KeptHistory::Last(1), ..Advertisement::new("kept/1") };
                let topic = plain.advertise(&again).expect("a topic");
                plain.try_publish(topic, &EventDraft::new(b"y")).expect("it is taken");
                assert_eq!([form(&mut late), form(&mut reader)], [(None, None), (None, None)]);
            }),
        ],
    );
}

#[test]
fn topics_of_the_log_keep_across_a_restart_what_they_kept() {
    let topics = [
        ("kept/last", KeptHistory::Last(2)),
        ("kept/values", KeptHistory::LastValue(2)),
        ("other", KeptHistory::Last(2)),
        ("kept/none", KeptHistory::None),
    ];
    let declared = move |topic: &str, history| Advertisement { history, ..Advertisement::new(topic) };
    let late = |unix: &Path| {
        let mut late = client(unix);
        late.subscribe(&SubscriptionSpec::new("#")).expect("it fits");
        let mut came = Vec::new();
        while let Some(got) = late.receive(Some(StdDuration::from_millis(300))).expect("it goes on") {
            let Reception::Event(event) = got else { panic!("{got:?}") };
            assert!(event.retained);
            let payload = String::from_utf8_lossy(&event.payload.bytes()).into_owned();
            came.push((event.topic.to_string(), event.key.unwrap_or_default(), payload));
        }
        came.sort_unstable();
        came
    };
    let expected = |topics: &[(&str, &str, &str)]| -> Vec<(String, String, String)> {
        topics
            .iter()
            .map(|(topic, key, payload)| ((*topic).into(), (*key).into(), (*payload).into()))
            .collect()
    };
    let kept = [
        ("kept/last", "x", "4"),
        ("kept/last", "y", "5"),
        ("kept/values", "x", "4"),
        ("kept/values", "y", "5"),
    ];
    with_brokers(
        WIDE,
        vec![
            Box::new(move |unix| {
                let mut supplier = client(unix);
                for (topic, history) in topics {
                    let topic = supplier.advertise(&declared(topic, history)).expect("a topic");
                    for (key, payload) in [("x", "1"), ("y", "2"), ("x", "3"), ("x", "4"), ("y", "5")] {
                        let draft = EventDraft::new(payload.as_bytes()).keyed(key);
                        supplier.try_publish(topic, &draft).expect("it is taken");
                    }
                }
                drop(supplier);
                let others = [("other", "x", "4"), ("other", "y", "5")];
                assert_eq!(late(unix), expected(&[&kept[..], &others].concat()));
            }),
            Box::new(move |unix| {
                // before any supplier has come back, the topic has its former declaration
                assert_eq!(late(unix), expected(&kept));
                let mut supplier = client(unix);
                let differs = supplier.advertise(&declared("kept/last", KeptHistory::None));
                assert!(differs.expect_err("it keeps two").to_string().contains("keeps the last 2"));
                let last =
                    supplier.advertise(&declared("kept/last", KeptHistory::Last(2))).expect("the same");
                supplier.try_publish(last, &EventDraft::new(b"6").keyed("x")).expect("it is taken");
            }),
            Box::new(move |unix| {
                let mut now = kept;
                (now[0], now[1]) = (("kept/last", "x", "6"), ("kept/last", "y", "5"));
                assert_eq!(late(unix), expected(&now));
            }),
        ],
    );
}

#[test]
fn a_consumer_that_resumes_has_the_order_of_the_log_whatever_the_deadlines() {
    with_brokers(
        WIDE,
        vec![Box::new(|unix| {
            let (mut consumer, mut supplier) = (client(unix), client(unix));
            let again = Some(AgainSpec { after_ns: 60_000_000_000, attempts: 0, window: 1 });
            consumer.subscribe(&SubscriptionSpec { again, ..follower("billing") }).expect("it fits");
            let topics = ["plant/1", "plant/2"].map(|topic| {
                let spec = Advertisement { topic: topic.to_owned(), ..offer(Durability::Written, None) };
                supplier.advertise(&spec).expect("a topic")
            });
            for number in 0..20_u64 {
                let due = StdDuration::from_secs(1000 - number % 7);
                let event = EventDraft::new(b"x");
                let event = if number.is_multiple_of(3) { event } else { event.due_in(due) };
                supplier.try_publish(topics[number as usize % 2], &event).expect("it is taken");
            }
            for position in 1..=20 {
                let event = event(&mut consumer);
                assert_eq!(event.delivery, Some(position));
                consumer.acknowledge(&event).expect("the broker lives");
            }
        })],
    );
}
