//! Direct links over TCP with real brokers: events and replies between two programs arrive as if they had
//! gone through the broker, and whatever hinders a link sends them through the broker again.

use crate::common::mqtt::{Raw, V5};
use crate::common::{Addresses, broker, event, with_server, with_this_broker};
use crate::direct::{blocking, come_and_go, links};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration as StdDuration;
use unisono_broker::{BrokerSettings, Exposure, Permissions, Server};
use unisono_events_client::{
    Advertisement, Client, Duration, Error, EventDraft, FieldSet, Instant, NoticeText, Reception,
    SubscriptionSpec, TopicHandle, now,
};

pub(crate) fn with_links(test: impl FnOnce(&Addresses) + Send + 'static) {
    with_this_broker(broker().with_direct_tcp(), test);
}

pub(crate) fn tcp(at: SocketAddr) -> Client {
    Client::connect_tcp(at).expect("it listens")
}

/// A consumer and a supplier with a link in use between them.
struct Pair {
    consumer: Client,
    supplier: Client,
    topic: TopicHandle,
    /// The number of the last event.
    last: u64,
}

impl Pair {
    fn new(at: SocketAddr, operator: &mut Client, spec: &SubscriptionSpec) -> Self {
        let (mut consumer, mut supplier) = (tcp(at), tcp(at));
        consumer.subscribe(spec).expect("it fits");
        let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
        let mut it = Self { consumer, supplier, topic, last: 0 };
        it.until_links(operator, 1);
        it
    }

    /// Publishes an event, and receives it.
    fn exchange(&mut self) {
        self.last += 1;
        self.supplier.publish(self.topic, &EventDraft::new(&self.last.to_le_bytes())).expect("it leaves");
        let came = event(&mut self.consumer);
        assert_eq!((&*came.payload.bytes(), came.sequence), (&self.last.to_le_bytes()[..], self.last));
    }

    /// Exchanges events until the broker counts so many links.
    fn until_links(&mut self, operator: &mut Client, count: u64) {
        while links(operator) != count {
            self.exchange();
        }
    }
}

#[test]
fn events_go_directly_with_all_that_they_carry_and_the_broker_sees_none_of_them() {
    with_links(|addresses| {
        let mut operator = addresses.client();
        let mut pair = Pair::new(addresses.tcp, &mut operator, &SubscriptionSpec::new("+"));
        let published = |operator: &mut Client| {
            operator.statistics().expect("it answers").published_by_topic.get("t").copied()
        };
        let before = published(&mut operator);
        (0..100).for_each(|_| pair.exchange());
        let fields = FieldSet::new().with("celsius", 81.5).with("site", "roof");
        let due = now() + Duration::from_secs(30);
        let draft = EventDraft::new(b"payload").keyed("k").with_fields(fields.clone()).due_at(due);
        let sent = pair.supplier.try_publish(pair.topic, &draft).expect("it is taken");
        assert_eq!(sent.sequence, pair.last + 1);
        assert_eq!(sent.outcome, unisono_events_client::PublishOutcome::Taken(1));
        let got = event(&mut pair.consumer);
        assert_eq!((&*got.topic, got.sequence, got.key.as_deref()), ("t", pair.last + 1, Some("k")));
        assert_eq!((&*got.payload.bytes(), got.fields), (&b"payload"[..], fields));
        assert!(got.deadline.is_some_and(|deadline| deadline >= due), "{:?} {due:?}", got.deadline);
        let past = EventDraft::new(b"").due_at(Instant::from_nanos(1));
        let refused = pair.supplier.try_publish(pair.topic, &past).expect_err("it is past");
        assert!(matches!(&refused, Error::Rejected(reason) if reason.contains("deadline")), "{refused}");
        assert_eq!((published(&mut operator), links(&mut operator)), (before, 1));
        // the consumer has reported what it got
        assert!(pair.consumer.receive(Some(StdDuration::from_millis(150))).expect("it lives").is_none());
        let counted = operator.statistics().expect("it answers").consumers.remove(0);
        assert_eq!(counted.delivered, pair.last + 1);
        // a critical event may overtake others in a full queue, which needs the broker
        pair.supplier.publish(pair.topic, &EventDraft::new(b"critical").critical(1)).expect("it leaves");
        assert_eq!((event(&mut pair.consumer).sequence, links(&mut operator)), (pair.last + 2, 0));
    });
}

#[test]
fn without_the_operators_word_nothing_listens_and_all_goes_through_the_broker() {
    with_this_broker(broker(), |addresses| {
        let (mut consumer, mut supplier) = (tcp(addresses.tcp), tcp(addresses.tcp));
        consumer.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
        let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
        for number in 1..=20 {
            supplier.publish(topic, &EventDraft::new(b"x")).expect("it leaves");
            assert_eq!(event(&mut consumer).sequence, number);
        }
        let statistics = consumer.statistics().expect("it answers");
        assert_eq!((statistics.direct, statistics.published_by_topic["t"]), (0, 20));
    });
}

#[test]
fn requests_and_replies_go_directly() {
    with_links(|addresses| {
        let (at, is_over) = (addresses.tcp, AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut service = tcp(at);
                service.subscribe(&SubscriptionSpec::new("add")).expect("it fits");
                while !is_over.load(Ordering::Relaxed) {
                    let came = service.receive(Some(StdDuration::from_millis(20))).expect("it lives");
                    if let Some(Reception::Event(request)) = came {
                        let answer = request.payload.bytes().iter().map(|byte| byte + 1).collect::<Vec<_>>();
                        assert!(service.reply(&request, EventDraft::new(&answer)).expect("it lives"));
                    }
                }
            });
            let (mut requester, mut operator) = (tcp(at), addresses.client());
            let topic = requester.advertise(&Advertisement::new("add")).expect("a topic");
            let mut number = 0_u8;
            let mut ask = || {
                number = (number + 1) % 100;
                let asked = requester.request(topic, EventDraft::new(&[number]), StdDuration::from_secs(20));
                assert_eq!(*asked.expect("a reply").payload.bytes(), [number + 1]);
            };
            while links(&mut operator) != 2 {
                ask();
            }
            let published =
                |operator: &mut Client| operator.statistics().expect("it answers").published_by_topic;
            let before = published(&mut operator);
            (0..500).for_each(|_| ask());
            assert_eq!(published(&mut operator), before);
            is_over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn the_order_is_kept_while_others_come_and_go_who_need_the_broker() {
    with_links(|addresses| {
        const EVENTS: u64 = 20_000;
        let mut operator = addresses.client();
        let Pair { mut consumer, mut supplier, topic, last } =
            Pair::new(addresses.tcp, &mut operator, &blocking("t"));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in last + 1..=last + EVENTS {
                    supplier.publish(topic, &EventDraft::new(&number.to_le_bytes())).expect("it leaves");
                }
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(StdDuration::from_millis(1));
                }
            });
            let coming = scope.spawn(|| come_and_go(addresses, &over, StdDuration::from_millis(2)));
            for number in last + 1..=last + EVENTS {
                let came = event(&mut consumer);
                assert_eq!((&*came.payload.bytes(), came.sequence), (&number.to_le_bytes()[..], number));
            }
            over.store(true, Ordering::Relaxed);
            coming.join().expect("it goes on");
        });
    });
}

#[test]
fn whoever_was_accepted_before_an_event_gets_it() {
    with_links(|addresses| {
        let mut operator = addresses.client();
        let mut pair = Pair::new(addresses.tcp, &mut operator, &SubscriptionSpec::new("t"));
        pair.supplier
            .subscribe(&SubscriptionSpec { direct: false, ..SubscriptionSpec::new("v") })
            .expect("it fits");
        let asked = operator.advertise(&Advertisement::new("v")).expect("a topic");
        for round in 0..10 {
            // the supplier has just read from the broker, and calls nothing meanwhile
            operator.publish(asked, &EventDraft::new(b"x")).expect("it leaves");
            event(&mut pair.supplier);
            let mut other = if round % 2 == 0 { addresses.client() } else { tcp(addresses.tcp) };
            let subscription = other.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
            pair.exchange();
            assert_eq!(event(&mut other).sequence, pair.last, "round {round}");
            other.unsubscribe(subscription).expect("the broker lives");
            pair.until_links(&mut operator, 1);
        }
        let mut other = Raw::connect(addresses.mqtt, V5, "other");
        other.subscribe(1, "t", 0);
        pair.exchange();
        assert_eq!(other.packet().0 >> 4, 3, "a PUBLISH");
    });
}

#[test]
fn an_event_that_is_due_earlier_overtakes_those_that_have_come() {
    with_links(|addresses| {
        let mut operator = addresses.client();
        let mut pair = Pair::new(addresses.tcp, &mut operator, &SubscriptionSpec::new("t"));
        for seconds in [50_u64, 40, 30, 20] {
            let payload = seconds.to_le_bytes();
            let draft = EventDraft::new(&payload).due_in(StdDuration::from_secs(seconds));
            pair.supplier.publish(pair.topic, &draft).expect("it leaves");
        }
        std::thread::sleep(StdDuration::from_millis(100));
        for seconds in [20_u64, 30, 40, 50] {
            assert_eq!(*event(&mut pair.consumer).payload.bytes(), seconds.to_le_bytes());
        }
    });
}

#[test]
fn events_of_all_sizes_arrive_and_a_consumer_that_does_not_read_gets_them_from_the_broker() {
    with_links(|addresses| {
        let mut operator = addresses.client();
        let Pair { mut consumer, mut supplier, topic, last } =
            Pair::new(addresses.tcp, &mut operator, &blocking("t"));
        let sizes = [0, 1, 5_000, 40_000, 3, 1_000_000, 3_000_000, 10];
        let count = sizes.len() * 8;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (number, size) in sizes.into_iter().cycle().take(count).enumerate() {
                    supplier.publish(topic, &EventDraft::new(&vec![number as u8; size])).expect("it leaves");
                }
                supplier
            });
            std::thread::sleep(StdDuration::from_millis(500));
            for (number, size) in sizes.into_iter().cycle().take(count).enumerate() {
                let came = event(&mut consumer);
                assert_eq!(came.sequence, last + 1 + number as u64);
                let bytes = came.payload.bytes();
                assert!(bytes.len() == size && bytes.iter().all(|byte| *byte == number as u8), "{number}");
            }
        });
        assert_eq!(links(&mut operator), 0, "it was stopped for longer than a supplier waits");
    });
}

#[test]
fn a_consumer_that_reads_nothing_loses_the_oldest_events_in_the_broker_and_is_told() {
    with_links(|addresses| {
        let mut operator = addresses.client();
        let spec = SubscriptionSpec { queue_events: 100, ..SubscriptionSpec::new("t") };
        let Pair { mut consumer, mut supplier, topic, last } = Pair::new(addresses.tcp, &mut operator, &spec);
        const EVENTS: u64 = 10_000;
        for _ in 0..EVENTS {
            supplier.publish(topic, &EventDraft::new(&[0; 1000])).expect("it leaves");
        }
        assert_eq!(links(&mut operator), 0);
        let mut next = last + 1;
        while next <= last + EVENTS {
            match consumer.receive(Some(StdDuration::from_secs(20))).expect("it lives") {
                Some(Reception::Event(event)) => assert_eq!(event.sequence, next),
                Some(Reception::Notice {
                    notice: NoticeText::Gap { first, last, lost, cause, .. }, ..
                }) => {
                    assert_eq!((first, lost, cause.as_str()), (next, last + 1 - first, "full"));
                    next = last;
                }
                other => panic!("{other:?}"),
            }
            next += 1;
        }
        assert!(consumer.receive(Some(StdDuration::from_millis(150))).expect("it lives").is_none());
        let counted = operator.statistics().expect("it answers").consumers.remove(0);
        assert_eq!(counted.matched, last + EVENTS, "{counted:?}");
        assert!(counted.dropped_full > 0, "{counted:?}");
    });
}

#[test]
fn a_supplier_goes_on_when_its_consumer_is_gone_and_a_consumer_is_told_after_the_last_event() {
    with_links(|addresses| {
        let mut operator = addresses.client();
        let mut pair = Pair::new(addresses.tcp, &mut operator, &SubscriptionSpec::new("t"));
        let mut other = tcp(addresses.tcp);
        // its sockets are closed without a word, as if its process was killed
        drop(std::mem::replace(&mut pair.consumer, tcp(addresses.tcp)));
        other.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
        pair.consumer = other;
        for _ in 0..5 {
            pair.exchange();
        }
        pair.until_links(&mut operator, 1);
        let Pair { mut consumer, mut supplier, topic, last } = pair;
        for _ in 0..50 {
            supplier.publish(topic, &EventDraft::new(b"x")).expect("it leaves");
        }
        drop(supplier);
        for number in last + 1..=last + 50 {
            assert_eq!(event(&mut consumer).sequence, number);
        }
        let gone = crate::common::notice(&mut consumer);
        assert!(matches!(gone, NoticeText::Gone { died: false, .. }), "{gone:?}");
    });
}

#[test]
fn the_descriptor_tells_of_events_of_links_and_of_frames_of_the_broker() {
    with_links(|addresses| {
        let mut operator = addresses.client();
        let mut pair = Pair::new(addresses.tcp, &mut operator, &SubscriptionSpec::new("t"));
        pair.consumer
            .subscribe(&SubscriptionSpec { direct: false, ..SubscriptionSpec::new("u") })
            .expect("it fits");
        let other = pair.supplier.advertise(&Advertisement::new("u")).expect("a topic");
        for round in 0..20 {
            let none = pair.consumer.receive(Some(StdDuration::ZERO)).expect("the broker lives");
            assert!(none.is_none(), "{none:?}");
            let topic = if round % 2 == 0 { pair.topic } else { other };
            pair.supplier.publish(topic, &EventDraft::new(b"x")).expect("it leaves");
            let mut fds = [PollFd::new(&pair.consumer, PollFlags::IN)];
            let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
            assert_eq!(poll(&mut fds, Some(&timeout)).expect("it waits"), 1, "round {round}");
            event(&mut pair.consumer);
        }
    });
}

#[test]
fn a_rule_with_a_bound_ends_a_link_and_a_rule_that_forbids_ends_the_program() {
    const ALL: &str = "[[allow]]\nwho = [\"*\"]\npublish = [\"#\"]\nsubscribe = [\"#\"]\nblock = true\n";
    let rules = Arc::new(Mutex::new(ALL.to_owned()));
    let parse = |text: &str| Permissions::parse(text, &|_| None).map_err(|error| error.to_string());
    let broker = broker().with_permissions(parse(ALL).expect("it is sound")).with_direct_tcp();
    let directory = tempfile::tempdir().expect("a scratch directory");
    let (unix, file) = (directory.path().join("events"), Arc::clone(&rules));
    let at = unix.clone();
    let listen = move |server: &mut Server| {
        server.listen_unix(&at, unisono_broker::OWNER).expect("it listens");
        server.set_settings_reader(Box::new(move || {
            let permissions = Some(parse(&file.lock().expect("no panic"))?);
            Ok(BrokerSettings { permissions, ..BrokerSettings::default() })
        }));
        vec![
            server
                .listen_tcp("127.0.0.1:0".parse().expect("it is one"), Exposure::Loopback)
                .expect("it listens"),
        ]
    };
    with_server(broker, listen, move |at| {
        let _directory = directory;
        let mut operator = Client::connect_unix(&unix).expect("it listens");
        let mut pair = Pair::new(at[0], &mut operator, &SubscriptionSpec::new("t"));
        *rules.lock().expect("no panic") = format!("{ALL}size = 10\n");
        assert_eq!(operator.reload().expect("an answer").refused, None);
        pair.until_links(&mut operator, 0);
        let refused =
            pair.supplier.try_publish(pair.topic, &EventDraft::new(&[0; 11])).expect_err("11 bytes");
        assert!(refused.to_string().contains("the permissions allow 10"), "{refused}");
        *rules.lock().expect("no panic") = ALL.to_owned();
        operator.reload().expect("an answer");
        pair.until_links(&mut operator, 1);
        *rules.lock().expect("no panic") = ALL.replace("publish = [\"#\"]\n", "publish = [\"u\"]\n");
        assert_eq!(operator.reload().expect("an answer").ended, 1);
        // what the supplier publishes before it learns of its end goes nowhere after the consumer was told
        let ended = loop {
            match pair.supplier.publish(pair.topic, &EventDraft::new(b"late")) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert!(ended.to_string().contains("may not publish `t` any more"), "{ended}");
        loop {
            match pair.consumer.receive(Some(StdDuration::from_secs(20))).expect("it lives") {
                Some(Reception::Notice { notice: NoticeText::Gone { .. }, .. }) => break,
                Some(_) => {}
                None => panic!("no notice"),
            }
        }
        assert!(pair.consumer.receive(Some(StdDuration::from_millis(50))).expect("it lives").is_none());
    });
}
