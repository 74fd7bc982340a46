//! Direct rings with real brokers: events from a supplier to a consumer without the broker arrive as if they
//! had gone through it. Every test ends under a watchdog.

use crate::common::{Addresses, event, notice, with_broker};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;
use unisono_events_client::{
    Advertisement, Client, Duration, Error, EventDraft, FieldSet, Instant, NoticeText, Reception,
    SubscriptionSpec, TopicHandle, WhenFull, WhenLate, now,
};

fn shared(addresses: &Addresses) -> Client {
    Client::connect_shared(&addresses.unix).expect("it listens")
}

pub(crate) fn links(client: &mut Client) -> u64 {
    client.statistics().expect("it answers").direct
}

fn direct(topic: &str) -> SubscriptionSpec {
    SubscriptionSpec::new(topic)
}

pub(crate) fn blocking(topic: &str) -> SubscriptionSpec {
    SubscriptionSpec { full: WhenFull::BlockSupplier, ..direct(topic) }
}

/// Subscribes to all topics and unsubscribes, again and again until `over`, each time after a pause. Returns
/// the number of direct links that the broker counted meanwhile.
pub(crate) fn come_and_go(addresses: &Addresses, over: &AtomicBool, pause: StdDuration) -> u64 {
    let mut seen = 0;
    while !over.load(Ordering::Relaxed) {
        let mut other = addresses.client();
        let subscription = other.subscribe(&SubscriptionSpec::new("#")).expect("it fits");
        seen += links(&mut other);
        let _ = other.receive(Some(StdDuration::from_millis(1))).expect("the broker lives");
        other.unsubscribe(subscription).expect("the broker lives");
        std::thread::sleep(pause);
        seen += links(&mut other);
    }
    seen
}

/// Connects a consumer and a supplier, with a ring in use between them. The first event has come.
fn pair(addresses: &Addresses, spec: &SubscriptionSpec) -> (Client, Client, TopicHandle) {
    let (mut consumer, mut supplier) = (shared(addresses), shared(addresses));
    consumer.subscribe(spec).expect("it fits");
    let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
    supplier.publish(topic, &EventDraft::new(b"first")).expect("it leaves");
    let first = event(&mut consumer);
    assert_eq!((&*first.payload.bytes(), first.sequence), (&b"first"[..], 1));
    assert_eq!(links(&mut addresses.client()), 1);
    (consumer, supplier, topic)
}

#[test]
fn events_go_directly_with_all_that_they_carry_and_the_answers_are_those_of_the_broker() {
    with_broker(|addresses| {
        let (mut consumer, mut supplier, topic) = pair(addresses, &direct("+"));
        let fields = FieldSet::new().with("celsius", 81.5).with("site", "roof");
        let due = now() + Duration::from_secs(3);
        let draft = EventDraft::new(b"payload").keyed("k").with_fields(fields.clone()).due_at(due);
        let published = supplier.try_publish(topic, &draft).expect("it is taken");
        assert_eq!(published.sequence, 2);
        assert_eq!(published.outcome, unisono_events_client::PublishOutcome::Taken(1));
        let got = event(&mut consumer);
        assert_eq!((&*got.topic, got.sequence, got.key.as_deref()), ("t", 2, Some("k")));
        assert_eq!((&*got.payload.bytes(), got.fields, got.deadline), (&b"payload"[..], fields, Some(due)));
        assert!(got.published <= now() && !got.late && !got.retained && got.delivery.is_none());
        let refused = supplier
            .try_publish(topic, &EventDraft::new(b"").due_at(Instant::from_nanos(1)))
            .expect_err("it is past");
        assert!(matches!(&refused, Error::Rejected(reason) if reason.contains("deadline")), "{refused}");
        supplier.publish(topic, &EventDraft::new(b"").due_at(Instant::from_nanos(1))).expect("refused later");
        let rejected = supplier.receive(Some(StdDuration::ZERO)).expect("the broker lives");
        assert!(matches!(rejected, Some(Reception::Rejected { topic: of, .. }) if of == topic));
        // a critical event may overtake others in a full queue, which needs the broker
        supplier.publish(topic, &EventDraft::new(b"critical").critical(1)).expect("it leaves");
        assert_eq!((event(&mut consumer).sequence, links(&mut supplier)), (3, 0));
        supplier.publish(topic, &EventDraft::new(b"next")).expect("it leaves");
        assert_eq!(event(&mut consumer).sequence, 4);
    });
}

#[test]
fn the_order_is_kept_while_others_come_and_go_who_need_the_broker() {
    with_broker(|addresses| {
        const EVENTS: u64 = 30_000;
        let (mut consumer, mut supplier, topic) = pair(addresses, &blocking("t"));
        let over = AtomicBool::new(false);
        let mut direct = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 2..=EVENTS {
                    supplier
                        .publish_buffered(topic, &EventDraft::new(&number.to_le_bytes()))
                        .expect("it leaves");
                    if number.is_multiple_of(7) {
                        supplier.flush().expect("it leaves");
                    }
                }
                supplier.flush().expect("it leaves");
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(StdDuration::from_millis(1));
                }
            });
            let coming = scope.spawn(|| come_and_go(addresses, &over, StdDuration::from_millis(1)));
            for number in 2..=EVENTS {
                let came = event(&mut consumer);
                assert_eq!((&*came.payload.bytes(), came.sequence), (&number.to_le_bytes()[..], number));
            }
            over.store(true, Ordering::Relaxed);
            direct += coming.join().expect("it goes on");
        });
        assert!(direct > 0, "never direct while others came and went");
    });
}

#[test]
fn whoever_was_accepted_before_an_event_gets_it() {
    with_broker(|addresses| {
        let mut supplier = shared(addresses);
        let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
        let mut consumers = Vec::new();
        for round in 0..30_u32 {
            let mut consumer = if round % 10 == 9 { addresses.client() } else { shared(addresses) };
            consumer.subscribe(&direct("t")).expect("it fits");
            consumers.push(consumer);
            supplier.publish(topic, &EventDraft::new(&round.to_le_bytes())).expect("it leaves");
            for consumer in &mut consumers {
                assert_eq!(*event(consumer).payload.bytes(), round.to_le_bytes(), "round {round}");
            }
            if round % 10 == 9 {
                consumers.clear();
            }
        }
    });
}

#[test]
fn a_consumer_that_reads_nothing_loses_the_oldest_is_told_and_the_broker_counts() {
    with_broker(|addresses| {
        let spec = SubscriptionSpec { queue_events: 100, ..direct("t") };
        let (mut consumer, mut supplier, topic) = pair(addresses, &spec);
        for number in 2..=5_000_u64 {
            supplier.publish_buffered(topic, &EventDraft::new(&number.to_le_bytes())).expect("it leaves");
        }
        supplier.flush().expect("it leaves");
        let NoticeText::Gap { first: 2, last, lost, cause, .. } = notice(&mut consumer) else {
            panic!("a gap")
        };
        assert_eq!((cause.as_str(), lost), ("full", last - 1));
        assert!(5_000 - last >= 75, "{} events were kept of 100", 5_000 - last);
        for number in last + 1..=5_000 {
            assert_eq!(event(&mut consumer).sequence, number);
        }
        // the consumer reports its counts when it begins to wait, but not if it has just reported
        assert!(consumer.receive(Some(StdDuration::from_millis(150))).expect("the broker lives").is_none());
        let counted = consumer.statistics().expect("it answers").consumers.remove(0);
        assert_eq!((counted.dropped_full, counted.delivered), (lost, 5_000 - lost));
        assert_eq!(counted.matched, 5_000);
    });
}

#[test]
fn what_is_late_is_delivered_dropped_or_reported_and_counted() {
    for late in [WhenLate::Deliver, WhenLate::Drop, WhenLate::Report] {
        with_broker(move |addresses| {
            let spec = SubscriptionSpec { late, ..direct("t") };
            let (mut consumer, mut supplier, topic) = pair(addresses, &spec);
            supplier
                .publish(topic, &EventDraft::new(b"late").due_in(StdDuration::from_millis(5)))
                .expect("it leaves");
            std::thread::sleep(StdDuration::from_millis(10));
            supplier.publish(topic, &EventDraft::new(b"next")).expect("it leaves");
            match late {
                WhenLate::Deliver => assert!(event(&mut consumer).late),
                WhenLate::Drop => {}
                WhenLate::Report => {
                    let NoticeText::Gap { first: 2, last: 2, lost: 1, cause, .. } = notice(&mut consumer)
                    else {
                        panic!("a gap")
                    };
                    assert_eq!(cause, "late");
                }
            }
            assert_eq!(event(&mut consumer).sequence, 3);
            assert!(consumer.receive(Some(StdDuration::from_millis(1))).expect("the broker lives").is_none());
            let counted = consumer.statistics().expect("it answers").consumers.remove(0);
            let dropped = u64::from(late != WhenLate::Deliver);
            assert_eq!((counted.missed, counted.dropped_late, counted.delivered), (1, dropped, 3 - dropped));
            assert_eq!(counted.missed_by_topic.get("t"), Some(&1));
        });
    }
}

#[test]
fn events_of_all_sizes_arrive_and_large_ones_are_read_in_place() {
    with_broker(|addresses| {
        let (mut consumer, mut supplier, topic) = pair(addresses, &blocking("t"));
        std::thread::scope(|scope| {
            let sizes = [0, 1, 200, 300, 5_000, 40_000, 3, 1_000_000, 3_000_000, 10, 1_000_001];
            scope.spawn(move || {
                for (number, size) in sizes.into_iter().cycle().take(66).enumerate() {
                    let payload = vec![number as u8; size];
                    supplier.publish(topic, &EventDraft::new(&payload)).expect("it leaves");
                }
            });
            // the test keeps more payloads than a consumer may hold in place, so that the others are copied
            let mut kept = Vec::new();
            for (number, size) in sizes.into_iter().cycle().take(66).enumerate() {
                let came = event(&mut consumer);
                let bytes = came.payload.bytes();
                assert!(bytes.len() == size && bytes.iter().all(|byte| *byte == number as u8), "{number}");
                drop(bytes);
                if size > 100_000 {
                    assert!(kept.len() >= 4 || came.payload.in_place().is_some(), "{number}");
                    kept.push((number, came.payload));
                    kept.truncate(6);
                }
            }
            for (number, payload) in kept {
                assert!(payload.bytes().iter().all(|byte| *byte == number as u8));
            }
        });
    });
}

#[test]
fn a_payload_that_is_written_in_place_arrives_over_every_transport_and_through_a_ring() {
    with_broker(|addresses| {
        for (supplier, direct) in [(0, true), (1, true), (1, false), (2, true)] {
            let mut supplier = addresses.clients().into_iter().nth(supplier).expect("three");
            let mut consumer = shared(addresses);
            consumer.subscribe(&SubscriptionSpec { direct, ..blocking("t") }).expect("it fits");
            let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
            for (number, bytes) in [0, 10, 5_000, 1_000_000].into_iter().enumerate() {
                let calls = std::cell::Cell::new(0);
                let write = |place: &mut [u8]| {
                    calls.set(calls.get() + 1);
                    place.fill(number as u8);
                };
                let draft = EventDraft::written(bytes, &write).keyed("k");
                supplier.publish(topic, &draft).expect("it leaves");
                assert_eq!(calls.get(), 1);
                let came = event(&mut consumer);
                let payload = came.payload.bytes();
                assert!(payload.len() == bytes && payload.iter().all(|byte| *byte == number as u8));
                assert_eq!(came.key.as_deref(), Some("k"));
            }
        }
    });
}

#[test]
fn a_supplier_goes_on_when_a_consumer_that_blocks_it_is_gone_and_one_that_leaves_is_told_after_its_events() {
    with_broker(|addresses| {
        let (consumer, mut supplier, topic) = pair(addresses, &blocking("t"));
        let mut other = shared(addresses);
        other.subscribe(&blocking("t")).expect("it fits");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 2..=4_000_u64 {
                    supplier.publish(topic, &EventDraft::new(&number.to_le_bytes())).expect("it leaves");
                }
                drop(supplier);
            });
            // it has read nothing since, and the supplier waits for it
            std::thread::sleep(StdDuration::from_millis(50));
            drop(consumer);
            for number in 2..=4_000_u64 {
                assert_eq!(event(&mut other).sequence, number);
            }
            assert!(matches!(notice(&mut other), NoticeText::Gone { died: false, .. }));
        });
    });
}

#[test]
fn the_descriptor_tells_of_events_in_rings_and_of_frames_of_the_broker() {
    with_broker(|addresses| {
        let (mut consumer, mut supplier, topic) = pair(addresses, &direct("t"));
        consumer.subscribe(&SubscriptionSpec::new("u")).expect("it fits");
        let other = supplier.advertise(&Advertisement::new("u")).expect("a topic");
        for round in 0..20 {
            assert!(consumer.receive(Some(StdDuration::ZERO)).expect("the broker lives").is_none());
            let topic = if round % 2 == 0 { topic } else { other };
            supplier.publish(topic, &EventDraft::new(b"x")).expect("it leaves");
            let mut fds = [PollFd::new(&consumer, PollFlags::IN)];
            let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
            assert_eq!(poll(&mut fds, Some(&timeout)).expect("it waits"), 1, "round {round}");
            // a ready descriptor only means that an event may have come
            event(&mut consumer);
        }
    });
}

#[test]
fn a_consumer_that_never_waits_is_counted_all_the_same() {
    with_broker(|addresses| {
        let (mut consumer, mut supplier, topic) = pair(addresses, &blocking("t"));
        for _ in 0..500 {
            supplier.publish_buffered(topic, &EventDraft::new(b"x")).expect("it leaves");
        }
        supplier.flush().expect("it leaves");
        std::thread::sleep(StdDuration::from_millis(120));
        for _ in 0..400 {
            event(&mut consumer);
        }
        let counted = consumer.statistics().expect("it answers").consumers.remove(0);
        assert!(counted.delivered > 1, "{counted:?}");
    });
}

#[test]
fn what_only_the_broker_can_do_is_done_by_it() {
    let with = |change: fn(&mut SubscriptionSpec)| {
        let mut spec = direct("t");
        change(&mut spec);
        spec
    };
    let specs = [
        with(|spec| spec.direct = false),
        with(|spec| spec.group = Some("g".to_owned())),
        with(|spec| spec.class = Some("rest".to_owned())),
        with(|spec| spec.full = WhenFull::DropByDeadline),
        with(|spec| spec.interests[0].filter = Some("x > 1".to_owned())),
        with(|spec| spec.every_ns = Some(1_000_000_000)),
        with(|spec| spec.silence_ns = Some(1_000_000_000)),
        with(|spec| spec.queue_events = 3),
        with(|spec| spec.history = unisono_events_client::KeptHistory::None),
    ];
    with_broker(move |addresses| {
        let last = specs.len() - 1;
        for (at, spec) in specs.into_iter().enumerate() {
            let (mut consumer, mut supplier) = (shared(addresses), shared(addresses));
            consumer.subscribe(&spec).expect("it fits");
            let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
            let fields = FieldSet::new().with("x", 2);
            for _ in 0..2 {
                supplier
                    .publish(topic, &EventDraft::new(b"x").with_fields(fields.clone()))
                    .expect("it leaves");
            }
            while event(&mut consumer).sequence != 2 {}
            // the last subscription asks for no such feature, and shows that a ring would be seen
            assert_eq!(links(&mut supplier), u64::from(at == last), "{spec:?}");
        }
    });
}
