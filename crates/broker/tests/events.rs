//! Suppliers and consumers over real sockets: published events arrive, and no program harms another one.
//! Every test ends under a watchdog.

use crate::common::{broker, event, notice, with_broker};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration as StdDuration;
use unisono_broker::{Exposure, ServeError, Server};
use unisono_eventchannel::FieldSet;
use unisono_events_client::{
    Advertisement, AgainSpec, ChannelWait, Client, Error, EventDraft, InterestSpec, KeptHistory, NoticeText,
    PartRule, Reception, ReservedTime, ResumeSpec, SubscriptionSpec, TogetherSpec, WhenFull, now,
};
use unisono_linux::clock::Duration;

#[test]
fn events_arrive_with_all_that_they_carry_over_each_transport_from_each() {
    with_broker(|addresses| {
        for mut supplier in addresses.clients() {
            for mut consumer in addresses.clients() {
                let topic = supplier.advertise(&Advertisement::new("plant/1/heat")).expect("a topic");
                let hot = InterestSpec {
                    topics: "plant/+/heat".to_owned(),
                    filter: Some("celsius > 80".to_owned()),
                    ..InterestSpec::default()
                };
                let spec = SubscriptionSpec { interests: vec![hot], ..SubscriptionSpec::default() };
                let subscription = consumer.subscribe(&spec).expect("it fits");
                let draft = |celsius: f64| {
                    let fields = FieldSet::new().with("celsius", celsius).with("site", "roof");
                    EventDraft::new(b"payload").keyed("k").with_fields(fields).critical(4)
                };
                let due = now() + Duration::from_secs(3);
                supplier.publish(topic, &draft(79.0).due_at(due)).expect("it leaves");
                supplier.publish(topic, &draft(81.5).due_at(due)).expect("it leaves");
                let got = event(&mut consumer);
                assert_eq!((got.subscription, &*got.topic, got.sequence), (subscription, "plant/1/heat", 2));
                assert_eq!((&*got.payload.bytes(), got.key.as_deref()), (&b"payload"[..], Some("k")));
                assert_eq!((got.criticality, got.late, got.retained), (4, false, false));
                assert_eq!(got.fields, FieldSet::new().with("celsius", 81.5).with("site", "roof"));
                // over TCP the remaining time is transmitted, so that each hop adds its delay
                let said = got.deadline.expect("it has one");
                assert!(
                    said.as_nanos().abs_diff(due.as_nanos()) < 1_000_000_000,
                    "{said:?} instead of {due:?}"
                );
                assert!(got.published <= now());
            }
        }
    });
}

#[test]
fn who_connects_to_shared_memory_and_leaves_at_once_harms_nobody() {
    with_broker(|addresses| {
        for _ in 0..50 {
            drop(std::os::unix::net::UnixStream::connect(&addresses.unix).expect("it listens"));
        }
        let mut client = Client::connect_shared(&addresses.unix).expect("it serves on");
        client.subscribe(&SubscriptionSpec::new("heat")).expect("it answers");
    });
}

#[test]
fn who_cannot_share_memory_is_told_the_other_way() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let path = directory.path().join("other");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a scratch directory");
    let other = std::thread::spawn(move || {
        let (mut program, _) = listener.accept().expect("it listens");
        program.write_all(b"220 another service").expect("it is connected");
        program
    });
    let unshared = Client::connect_shared(&path).expect_err("no broker");
    assert!(matches!(unshared, Error::Unshared { .. }), "{unshared}");
    assert!(unshared.to_string().ends_with(&format!("unix:{}, without shared memory", path.display())));
    drop(other.join().expect("it does not panic"));
}

#[test]
fn large_and_many_events_arrive_in_order() {
    with_broker(|addresses| {
        let from_all = addresses.clients().into_iter().zip(std::iter::repeat_with(|| addresses.client()));
        let to_shared = std::iter::repeat_with(|| addresses.local()).take(2).enumerate();
        let to_shared = to_shared.map(|(from, [unix, shared])| match from {
            0 => (unix, shared),
            _ => (Client::connect_shared(&addresses.unix).expect("it listens"), shared),
        });
        for (mut supplier, mut consumer) in from_all.chain(to_shared) {
            let topic = supplier.advertise(&Advertisement::new("bulk")).expect("a topic");
            let spec = SubscriptionSpec { full: WhenFull::BlockSupplier, ..SubscriptionSpec::new("bulk") };
            consumer.subscribe(&spec).expect("it fits");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 0..20_000_u32 {
                        let bytes = number.to_le_bytes();
                        supplier.publish_buffered(topic, &EventDraft::new(&bytes)).expect("it leaves");
                    }
                    supplier.publish(topic, &EventDraft::new(&vec![9; 3_000_000])).expect("it leaves");
                });
                for number in 0..20_000_u32 {
                    assert_eq!(*event(&mut consumer).payload.bytes(), number.to_le_bytes());
                }
                let large = event(&mut consumer).payload;
                assert!(large.bytes().len() == 3_000_000 && large.bytes().iter().all(|byte| *byte == 9));
            });
        }
    });
}

#[test]
fn what_is_refused_says_why_to_the_one_who_asked_and_nobody_else_notices() {
    with_broker(|addresses| {
        let mut client = addresses.client();
        let refused = |answer: Result<_, Error>| answer.map(drop).expect_err("it cannot be").to_string();
        let said = refused(client.advertise(&Advertisement::new("a/#")).map(|_| ()));
        assert!(said.contains('#'), "{said}");
        let bad = InterestSpec {
            topics: "a".to_owned(),
            filter: Some("level >".to_owned()),
            ..InterestSpec::default()
        };
        let spec = SubscriptionSpec { interests: vec![bad], ..SubscriptionSpec::default() };
        let said = refused(client.subscribe(&spec).map(|_| ()));
        assert!(said.starts_with("the broker refuses: the filter `level >`: 1:8: expected"), "{said}");
        let reserve = ReservedTime { period_ns: 1000, deadline_ns: 1000, largest: 100 };
        let spec =
            SubscriptionSpec { reserve: Some(reserve), execution_ns: 2000, ..SubscriptionSpec::new("a") };
        let said = refused(client.subscribe(&spec).map(|_| ()));
        assert!(said.contains("would need 2.0000 of the whole"), "{said}");

        let topic = client.advertise(&Advertisement::new("a")).expect("a topic");
        let wants = SubscriptionSpec { reliable: true, ..SubscriptionSpec::new("a") };
        let said = refused(client.subscribe(&wants).map(|_| ()));
        assert!(said.contains("offered best effort, requested at least once"), "{said}");
        let past = EventDraft::new(b"").due_at(now() - Duration::from_millis(1));
        let said = refused(client.try_publish(topic, &past).map(|_| ()));
        assert!(said.starts_with("the event is refused: the deadline passed"), "{said}");
        client.publish(topic, &past).expect("it leaves");
        let told = client.receive(Some(StdDuration::from_secs(20))).expect("it goes on");
        assert!(matches!(told, Some(Reception::Rejected { topic: of, .. }) if of == topic), "{told:?}");
        let large = vec![0; client.largest() + 1];
        assert!(matches!(client.publish(topic, &EventDraft::new(&large)), Err(Error::TooLong { .. })));

        let mut consumer = addresses.client();
        let narrow =
            SubscriptionSpec { queue_events: 1, full: WhenFull::BlockSupplier, ..SubscriptionSpec::new("a") };
        consumer.subscribe(&narrow).expect("it fits");
        assert!(client.try_publish(topic, &EventDraft::new(b"good")).is_ok());
        assert_eq!(*event(&mut consumer).payload.bytes(), *b"good");
        let resumes = SubscriptionSpec {
            resume: Some(ResumeSpec { name: "me".to_owned(), after: None, forget: false }),
            ..SubscriptionSpec::new("a")
        };
        assert!(refused(client.subscribe(&resumes).map(|_| ())).contains("keeps no log"));
        let lossy = SubscriptionSpec { best_effort: true, reliable: true, ..SubscriptionSpec::new("a") };
        assert!(refused(client.subscribe(&lossy).map(|_| ())).contains("leave out one of the two"));
        let told = client.statistics().expect("an answer");
        let reasons = [
            ("admission", 1),
            ("deadline", 2),
            ("filter", 1),
            ("log", 1),
            ("offered", 1),
            ("request", 1),
            ("topic", 1),
        ];
        assert_eq!(told.refusals, reasons.map(|(name, count)| (name.to_owned(), count)).into());
        assert_eq!(told.refused, 8);
    });
}

#[test]
fn a_consumer_that_reads_nothing_loses_its_own_events_alone_and_is_told_of_the_gap() {
    with_broker(|addresses| {
        for mut slow in addresses.local() {
            let [mut supplier, mut fast] = addresses.local();
            let topic = supplier.advertise(&Advertisement::new("feed")).expect("a topic");
            slow.subscribe(&SubscriptionSpec { queue_events: 50, ..SubscriptionSpec::new("feed") })
                .expect("it fits");
            let roomy = SubscriptionSpec { full: WhenFull::BlockSupplier, ..SubscriptionSpec::new("feed") };
            fast.subscribe(&roomy).expect("it fits");
            let payload = vec![1; 1000];
            for _ in 0..5000 {
                supplier.publish_buffered(topic, &EventDraft::new(&payload)).expect("it leaves");
                supplier.flush().expect("it leaves");
                assert_eq!(event(&mut fast).payload.bytes().len(), 1000);
            }
            let (mut got, mut lost, mut last) = (0, 0, 0);
            while last < 5000 {
                match slow.receive(Some(StdDuration::from_secs(20))).expect("it goes on") {
                    Some(Reception::Event(event)) => {
                        assert!(event.sequence > last, "in order");
                        (got, last) = (got + 1, event.sequence);
                    }
                    Some(Reception::Notice { notice: NoticeText::Gap { lost: more, cause, .. }, .. }) => {
                        assert_eq!(cause, "full");
                        lost += more;
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(lost > 0, "the kernel and the rings hold less than 5 MB");
            assert_eq!(got + lost, 5000);
        }
    });
}

#[test]
fn a_supplier_that_is_blocked_goes_on_when_the_consumer_reads_or_dies() {
    with_broker(|addresses| {
        for (dies, shares) in [(false, false), (true, false), (false, true), (true, true)] {
            let ([one, other], [third, fourth]) = (addresses.local(), addresses.local());
            let (mut supplier, mut consumer) = if shares { (other, fourth) } else { (one, third) };
            let topic = supplier.advertise(&Advertisement::new("block")).expect("a topic");
            let narrow = SubscriptionSpec {
                queue_events: 4,
                full: WhenFull::BlockSupplier,
                ..SubscriptionSpec::new("block")
            };
            consumer.subscribe(&narrow).expect("it fits");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let payload = vec![0; 100_000];
                    for _ in 0..100 {
                        supplier.publish(topic, &EventDraft::new(&payload)).expect("it leaves");
                    }
                    // the answer comes behind all of them
                    supplier.statistics().expect("it goes on");
                });
                std::thread::sleep(StdDuration::from_millis(50));
                if dies {
                    drop(consumer);
                } else {
                    for sequence in 1..=100 {
                        assert_eq!(event(&mut consumer).sequence, sequence);
                    }
                }
            });
        }
    });
}

#[test]
fn those_who_listen_hear_whether_a_supplier_left_or_died() {
    with_broker(|addresses| {
        let mut consumer = addresses.client();
        consumer.subscribe(&SubscriptionSpec::new("life")).expect("it fits");
        for dies in [false, true] {
            let mut supplier = addresses.client();
            let topic = supplier.advertise(&Advertisement::new("life")).expect("a topic");
            supplier.publish(topic, &EventDraft::new(b"last words")).expect("it leaves");
            assert_eq!(*event(&mut consumer).payload.bytes(), *b"last words");
            if dies {
                // as the kernel does when a process is killed: the connection ends without a goodbye
                let socket = std::os::fd::AsFd::as_fd(&supplier).try_clone_to_owned().expect("a descriptor");
                rustix::net::shutdown(&socket, rustix::net::Shutdown::Both).expect("connected");
            }
            drop(supplier);
            assert!(matches!(notice(&mut consumer), NoticeText::Gone { died, .. } if died == dies));
        }
    });
}

#[test]
fn history_comes_first_and_a_correlation_comes_as_one() {
    with_broker(|addresses| {
        let mut client = addresses.client();
        let kept = Advertisement { history: KeptHistory::LastValue(8), ..Advertisement::new("state") };
        let state = client.advertise(&kept).expect("a topic");
        for (key, value) in [("a", b"1"), ("b", b"2"), ("a", b"3")] {
            client.publish(state, &EventDraft::new(value).keyed(key)).expect("it leaves");
        }
        client.subscribe(&SubscriptionSpec::new("state")).expect("it fits");
        let values: BTreeMap<_, _> = (0..2)
            .map(|_| event(&mut client))
            .map(|event| {
                assert!(event.retained);
                (event.key.expect("keyed"), event.payload.bytes().to_vec())
            })
            .collect();
        assert_eq!(values, [("a".to_owned(), b"3".to_vec()), ("b".to_owned(), b"2".to_vec())].into());

        let part = |topics: &str| InterestSpec { topics: topics.to_owned(), ..InterestSpec::default() };
        let together = TogetherSpec { rule: PartRule::All, within_ns: 60_000_000_000, report: false };
        let spec = SubscriptionSpec {
            interests: vec![part("door"), part("motion")],
            together: Some(together),
            ..SubscriptionSpec::default()
        };
        client.subscribe(&spec).expect("it fits");
        for name in ["motion", "door"] {
            let topic = client.advertise(&Advertisement::new(name)).expect("a topic");
            client.publish(topic, &EventDraft::new(name.as_bytes())).expect("it leaves");
        }
        let got = event(&mut client);
        assert_eq!((&*got.topic, got.with.len(), &*got.with[0].topic), ("door", 1, "motion"));
    });
}

#[test]
fn a_sequence_comes_as_one_in_its_order_alone_and_the_first_of_any_parts_comes_at_once() {
    with_broker(|addresses| {
        let mut clients = addresses.clients();
        for client in &mut clients {
            let mut topic = |name: &str| client.advertise(&Advertisement::new(name)).expect("a topic");
            let (open, close) = (topic("open"), topic("close"));
            let publish = |client: &mut Client, topic, number: u8| {
                client.publish(topic, &EventDraft::new(&[number])).expect("it leaves");
            };
            client.subscribe(&together(PartRule::Sequence, 60_000_000_000)).expect("it fits");
            for (topic, number) in [(close, 1), (open, 2), (close, 3), (close, 4)] {
                publish(client, topic, number);
            }
            let got = event(client);
            let numbers = (got.payload.bytes().to_vec(), got.with[0].payload.bytes().to_vec());
            assert_eq!(
                numbers,
                (vec![3], vec![2]),
                "the first came before its time, the last begins nothing"
            );
            let any = client.subscribe(&together(PartRule::Any, 60_000_000_000)).expect("it fits");
            publish(client, close, 5);
            let got = event(client);
            assert_eq!((got.subscription, &*got.payload.bytes(), got.with.len()), (any, &[5][..], 0));
        }
    });
}

/// Makes a subscription to a correlation of `open` and `close`.
fn together(rule: PartRule, within_ns: u64) -> SubscriptionSpec {
    let part = |topics: &str| InterestSpec { topics: topics.to_owned(), ..InterestSpec::default() };
    let together = Some(TogetherSpec { rule, within_ns, report: true });
    SubscriptionSpec { interests: vec![part("open"), part("close")], together, ..SubscriptionSpec::default() }
}

#[test]
fn a_correlation_that_is_not_completed_in_time_is_told_and_a_timer_tells_each_period() {
    with_broker(|addresses| {
        let mut clients = addresses.clients();
        for client in &mut clients {
            client.subscribe(&together(PartRule::Sequence, 1_000_000)).expect("it fits");
            let open = client.advertise(&Advertisement::new("open")).expect("a topic");
            client.publish(open, &EventDraft::new(b"")).expect("it leaves");
            assert_eq!(notice(client), NoticeText::Incomplete {});
            let period = 5_000_000;
            let ticking = SubscriptionSpec { every_ns: Some(period), ..SubscriptionSpec::new("nothing") };
            client.subscribe(&ticking).expect("it fits");
            let mut tick = || match notice(client) {
                NoticeText::Tick { at_ns } => at_ns,
                other => panic!("{other:?}"),
            };
            let (first, second, third) = (tick(), tick(), tick());
            assert_eq!((second - first, third - second), (period, period), "late or not, none is left out");
        }
    });
}

#[test]
fn what_is_not_acknowledged_comes_again_and_what_is_does_not() {
    with_broker(|addresses| {
        let mut client = addresses.client();
        let reliable = Advertisement { reliable: true, ..Advertisement::new("order") };
        let topic = client.advertise(&reliable).expect("a topic");
        let again = AgainSpec { after_ns: 20_000_000, attempts: 100, window: 10 };
        let spec = SubscriptionSpec { again: Some(again), reliable: true, ..SubscriptionSpec::new("order") };
        client.subscribe(&spec).expect("it fits");
        client.publish(topic, &EventDraft::new(b"one")).expect("it leaves");
        let first = event(&mut client);
        assert!(first.delivery.is_some() && first.repeated == 0);
        let second = event(&mut client);
        assert_eq!((second.sequence, second.repeated), (1, 1));
        client.acknowledge(&second).expect("it leaves");
        while let Some(reception) = client.receive(Some(StdDuration::from_millis(200))).expect("it goes on") {
            // one more event may have been on its way
            let Reception::Event(event) = reception else { panic!("{reception:?}") };
            client.acknowledge(&event).expect("it leaves");
        }
    });
}

#[test]
fn requests_are_answered_and_a_request_that_nobody_answers_ends() {
    with_broker(|addresses| {
        for mut asker in addresses.clients() {
            let mut server = addresses.client();
            server.subscribe(&SubscriptionSpec::new("double")).expect("it fits");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let request = event(&mut server);
                        let twice = [&*request.payload.bytes(), &*request.payload.bytes()].concat();
                        assert!(server.reply(&request, EventDraft::new(&twice)).expect("it leaves"));
                    }
                });
                let topic = asker.advertise(&Advertisement::new("double")).expect("a topic");
                for number in 0..50_u32 {
                    let bytes = number.to_le_bytes();
                    let reply = asker.request(topic, EventDraft::new(&bytes), StdDuration::from_secs(20));
                    assert_eq!(*reply.expect("an answer").payload.bytes(), [bytes, bytes].concat());
                }
            });
            drop(server);
            let nobody = asker.advertise(&Advertisement::new("nobody")).expect("a topic");
            // a request without a receiver lasts until its timeout; on a loaded machine a short timeout ends
            // before the broker answers
            let mut replies = [20, 1_000, 30_000]
                .into_iter()
                .map(|millis| asker.request(nobody, EventDraft::new(b""), StdDuration::from_millis(millis)));
            let reply = replies.find(|reply| !matches!(reply, Err(Error::NoReply(_))));
            let said = reply.expect("an answer").expect_err("nobody is there").to_string();
            assert!(said.contains("nobody subscribes to nobody; start a program that replies"), "{said}");
            // a silent subscriber sends no reply, and a failing one sends its reason
            let mut server = addresses.client();
            server.subscribe(&SubscriptionSpec::new("nobody")).expect("it fits");
            let reply = asker.request(nobody, EventDraft::new(b""), StdDuration::from_millis(20));
            assert!(matches!(reply, Err(Error::NoReply(_))), "{reply:?}");
            let _ = event(&mut server);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let request = event(&mut server);
                    assert!(request.is_request());
                    assert!(server.reply_failure(&request, "out of order").expect("it leaves"));
                });
                let reply = asker.request(nobody, EventDraft::new(b""), StdDuration::from_secs(20));
                let said = reply.expect_err("it failed").to_string();
                assert_eq!(said, "the request failed: out of order");
            });
        }
    });
}

#[test]
fn a_request_waits_for_who_replies_and_reaches_them_once() {
    with_broker(|addresses| {
        let (mut asker, mut server) = (addresses.client(), addresses.client());
        let topic = asker.advertise(&Advertisement::new("late")).expect("a topic");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(StdDuration::from_millis(100));
                server.subscribe(&SubscriptionSpec::new("late")).expect("it fits");
                let request = event(&mut server);
                server.reply(&request, EventDraft::new(b"here")).expect("it leaves");
                assert!(server.receive(Some(StdDuration::from_millis(50))).expect("it lives").is_none());
            });
            let reply = asker.request(topic, EventDraft::new(b""), StdDuration::from_secs(20));
            assert_eq!(*reply.expect("an answer").payload.bytes(), *b"here");
        });
    });
}

#[test]
fn a_program_answers_a_thousand_askers_on_topics_that_stay_open() {
    const ASKERS: i64 = 1000;
    // a broker lets a program have 1024 topics: with 100 of its own it has to close some
    for own in [0, 100] {
        with_broker(move |addresses| {
            let mut server = addresses.client();
            server.subscribe(&SubscriptionSpec::new("work")).expect("it fits");
            for number in 0..own {
                server.advertise(&Advertisement::new(&format!("own/{number}"))).expect("a topic");
            }
            let (mut asker, mut witness) = (addresses.client(), addresses.client());
            witness.subscribe(&SubscriptionSpec::new("reply/#")).expect("it fits");
            let topic = asker.advertise(&Advertisement::new("work")).expect("a topic");
            let mut closed = 0;
            for number in (0..ASKERS).chain(0..ASKERS) {
                let reply_to = format!("reply/{number}");
                let fields = FieldSet::new().with("reply_to", &*reply_to).with("request", number);
                asker.publish(topic, &EventDraft::new(b"").with_fields(fields)).expect("it leaves");
                let request = event(&mut server);
                assert!(server.reply(&request, EventDraft::new(b"")).expect("it leaves"), "{own} {number}");
                let answer = loop {
                    match witness.receive(Some(StdDuration::from_secs(60))).expect("it lives") {
                        Some(Reception::Event(answer)) => break answer,
                        Some(Reception::Notice { notice: NoticeText::Gone { .. }, .. }) => closed += 1,
                        other => panic!("{other:?}"),
                    }
                };
                assert_eq!(&*answer.topic, reply_to);
            }
            assert_eq!(closed > 0, own > 0, "{closed} topics were closed");
        });
    }
}

#[test]
fn an_address_that_others_reach_or_that_is_in_use_is_refused() {
    let mut server = Server::new(broker(), ChannelWait::Sleep).expect("descriptors are left");
    let open: SocketAddr = "0.0.0.0:0".parse().expect("an address");
    assert!(matches!(server.listen_tcp(open, Exposure::Loopback), Err(ServeError::Exposed { .. })));
    let any = "127.0.0.1:0".parse().expect("an address");
    let bound = server.listen_tcp(any, Exposure::Loopback).expect("it listens");
    let second = server.listen_tcp(bound, Exposure::Loopback);
    assert!(matches!(second, Err(ServeError::ListenTcp { .. })), "{second:?}");
    let nobody = Client::connect_unix(Path::new("/nonexistent/socket"));
    assert!(matches!(nobody, Err(Error::Nobody { .. })));
}
