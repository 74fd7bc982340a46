//! The order of events in direct rings, with real brokers: by deadline, as through the broker, or in the
//! order of publication where a supplier or a consumer asks for it.

use crate::common::{Addresses, event, notice, with_broker};
use std::time::Duration as StdDuration;
use unisono_events_client::{
    Advertisement, Client, Duration, EventDraft, EventOrder, Instant, NoticeText, Reception,
    SubscriptionSpec, TopicHandle, WhenFull, WhenLate, now,
};

fn shared(addresses: &Addresses) -> Client {
    Client::connect_shared(&addresses.unix).expect("it listens")
}

fn links(addresses: &Addresses) -> u64 {
    addresses.client().statistics().expect("it answers").direct
}

fn supplier(addresses: &Addresses, order: EventOrder) -> (Client, TopicHandle) {
    let mut supplier = shared(addresses);
    let topic = supplier.advertise(&Advertisement { order, ..Advertisement::new("t") }).expect("a topic");
    supplier.publish(topic, &EventDraft::new(b"first")).expect("it leaves");
    (supplier, topic)
}

/// Connects a consumer and a supplier, with a ring in use between them. The first event has come.
fn pair(addresses: &Addresses, spec: &SubscriptionSpec, order: EventOrder) -> (Client, Client, TopicHandle) {
    let mut consumer = shared(addresses);
    consumer.subscribe(spec).expect("it fits");
    let (supplier, topic) = supplier(addresses, order);
    assert_eq!((event(&mut consumer).sequence, links(addresses)), (1, 1));
    (consumer, supplier, topic)
}

/// Returns a deadline far ahead, so that no event is late, or no deadline for 0.
fn due(start: Instant, number: u64) -> Instant {
    match number {
        0 => Instant::from_nanos(u64::MAX),
        _ => start + Duration::from_secs(1000 + number),
    }
}

fn draft(payload: &[u8], due: Instant) -> EventDraft<'_> {
    if due == Instant::from_nanos(u64::MAX) {
        EventDraft::new(payload)
    } else {
        EventDraft::new(payload).due_at(due)
    }
}

#[test]
fn events_leave_a_ring_as_from_a_list_sorted_by_deadline() {
    with_broker(|addresses| {
        for full in [WhenFull::DropOldest, WhenFull::BlockSupplier] {
            let spec = SubscriptionSpec { full, ..SubscriptionSpec::new("t") };
            let (mut consumer, mut supplier, topic) = pair(addresses, &spec, EventOrder::Deadlines);
            let (start, mut list, mut random, mut last) = (now(), Vec::new(), 20_021_115_u64, 1);
            for round in 0..2000_u64 {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (choice, which) = (random >> 60, (random >> 40) % 7);
                // the bursts leave many events in the ring; sometimes one is larger than its slots
                if choice < if round % 200 < 100 { 11 } else { 5 } {
                    last += 1;
                    let bytes = if (random >> 30).is_multiple_of(97) { 300 + round as usize * 4 } else { 4 };
                    list.push((due(start, which), last));
                    list.sort_unstable();
                    supplier.publish(topic, &draft(&vec![7; bytes], due(start, which))).expect("it leaves");
                } else if !list.is_empty() {
                    assert_eq!(event(&mut consumer).sequence, list.remove(0).1, "in round {round}");
                }
            }
            list.into_iter().for_each(|(_, number)| assert_eq!(event(&mut consumer).sequence, number));
            assert_eq!(links(addresses), 1, "all through the ring");
            drop((consumer, supplier));
        }
    });
}

#[test]
fn an_urgent_event_behind_many_of_the_same_supplier_comes_first_also_through_the_broker() {
    with_broker(|addresses| {
        let (mut consumer, mut supplier, topic) =
            pair(addresses, &SubscriptionSpec::new("t"), EventOrder::Deadlines);
        (0..300).for_each(|_| supplier.publish(topic, &EventDraft::new(b"status")).expect("it leaves"));
        let soon = EventDraft::new(b"alarm").due_in(StdDuration::from_secs(1000));
        supplier.publish(topic, &soon).expect("it leaves");
        assert_eq!((event(&mut consumer).sequence, links(addresses)), (302, 1));
        assert_eq!(event(&mut consumer).sequence, 2);
        // a critical event goes through the broker, and still overtakes the events in the ring
        let sooner = EventDraft::new(b"alarm").due_in(StdDuration::from_secs(900)).critical(1);
        supplier.try_publish(topic, &sooner).expect("it is taken");
        assert_eq!((event(&mut consumer).sequence, links(addresses)), (303, 0));
        (3..=301).for_each(|number| assert_eq!(event(&mut consumer).sequence, number));
        supplier.publish(topic, &EventDraft::new(b"next")).expect("it leaves");
        assert_eq!(event(&mut consumer).sequence, 304);
    });
}

#[test]
fn the_order_of_publication_is_kept_for_a_supplier_or_a_consumer_that_asks_for_it() {
    use EventOrder::{Deadlines, Publication};
    for (offered, asked) in [(Publication, Deadlines), (Deadlines, Publication)] {
        with_broker(move |addresses| {
            let spec = SubscriptionSpec { order: asked, ..SubscriptionSpec::new("t") };
            let (mut consumer, mut supplier, topic) = pair(addresses, &spec, offered);
            for number in 2..200 {
                let due = StdDuration::from_secs(2000 - number);
                supplier.publish(topic, &EventDraft::new(b"x").due_in(due)).expect("it leaves");
            }
            assert_eq!(links(addresses), 1);
            // the last one comes through the broker
            let last = EventDraft::new(b"x").due_in(StdDuration::from_secs(100)).critical(1);
            supplier.try_publish(topic, &last).expect("it is taken");
            (2..=200).for_each(|number| assert_eq!(event(&mut consumer).sequence, number));
        });
    }
}

#[test]
fn rings_of_several_suppliers_are_read_by_deadline_also_after_an_event_was_held_back() {
    with_broker(|addresses| {
        let (mut consumer, mut one, topic) =
            pair(addresses, &SubscriptionSpec::new("t"), EventOrder::Deadlines);
        let (mut other, others) = supplier(addresses, EventOrder::Deadlines);
        assert_eq!((event(&mut consumer).sequence, links(addresses)), (1, 2));
        let start = now();
        let publish = |of: &mut Client, topic, number| {
            of.publish(topic, &draft(&[number as u8], due(start, number))).expect("it leaves");
        };
        publish(&mut one, topic, 0);
        publish(&mut other, others, 0);
        publish(&mut one, topic, 5);
        assert_eq!(event(&mut consumer).payload.bytes()[0], 5);
        // the consumer has taken the next event of each ring and holds it back; both rings are empty now
        for (number, of_one) in [(6, true), (3, false), (4, true), (2, false)] {
            match of_one {
                true => publish(&mut one, topic, number),
                false => publish(&mut other, others, number),
            }
        }
        let came: Vec<u8> = (0..6).map(|_| event(&mut consumer).payload.bytes()[0]).collect();
        assert_eq!(came, [2, 3, 4, 6, 0, 0]);
    });
}

#[test]
fn a_queue_of_sorted_events_keeps_its_bound_and_each_loss_is_told() {
    with_broker(|addresses| {
        let spec = SubscriptionSpec { queue_events: 64, ..SubscriptionSpec::new("t") };
        let (mut consumer, mut supplier, topic) = pair(addresses, &spec, EventOrder::Deadlines);
        let start = now();
        let mut publish = |from: u64, to: u64| {
            for number in from..to {
                let due = due(start, 5000 - number);
                supplier.publish(topic, &draft(b"x", due)).expect("it leaves");
            }
        };
        publish(2, 62);
        assert_eq!(event(&mut consumer).sequence, 61);
        publish(62, 102);
        // 59 events waited and 40 more have come: 35 too many for the queue of 64, which drops the oldest
        let told = notice(&mut consumer);
        assert!(
            matches!(told, NoticeText::Gap { first: 2, last: 36, lost: 35, ref cause, .. } if cause == "full"),
            "{told:?}"
        );
        (37..102)
            .rev()
            .filter(|number| *number != 61)
            .for_each(|number| assert_eq!(event(&mut consumer).sequence, number));
    });
}

#[test]
fn an_event_past_its_deadline_is_refused_to_its_supplier_on_every_transport() {
    with_broker(|addresses| {
        for direct in [true, false] {
            for mut supplier in addresses.clients() {
                let mut consumer = shared(addresses);
                let late = WhenLate::Report;
                let spec = SubscriptionSpec { direct, late, ..SubscriptionSpec::new("t") };
                consumer.subscribe(&spec).expect("it fits");
                let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
                let past = EventDraft::new(b"late").due_at(Instant::from_nanos(1));
                let error = supplier.try_publish(topic, &past).expect_err("it is too late").to_string();
                assert!(error.contains("the deadline passed"), "{error}");
                supplier.publish(topic, &past).expect("the refusal comes later");
                let refused = supplier.receive(Some(StdDuration::from_secs(20))).expect("the broker lives");
                assert!(matches!(refused, Some(Reception::Rejected { .. })), "{refused:?}");
                supplier.publish(topic, &EventDraft::new(b"in time")).expect("it leaves");
                assert_eq!(event(&mut consumer).sequence, 1, "neither event has a number");
            }
        }
    });
}
