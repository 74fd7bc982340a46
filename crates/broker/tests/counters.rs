//! The broker's counters: for each consumer or group, for departed consumers, for each topic, for each reason
//! of a refusal.

use crate::common::bench::{BrokerBench, Comes};
use crate::common::{broker, event, with_broker};
use std::time::Duration as StdDuration;
use unisono_events_client::{
    Advertisement, Client, ClientOptions, EventDraft, InterestSpec, ReservedTime, Statistics,
    SubscriptionSpec, WhenLate, now,
};
use unisono_events_wire::{Frame, Greeting};

fn statistics(client: &mut Client) -> Statistics {
    client.statistics().expect("the broker is there")
}

/// Waits until the broker's statistics satisfy a condition, such as the departure of a client.
fn until(client: &mut Client, is_so: impl Fn(&Statistics) -> bool) -> Statistics {
    loop {
        let statistics = statistics(client);
        if is_so(&statistics) {
            return statistics;
        }
        std::thread::sleep(StdDuration::from_millis(1));
    }
}

#[test]
fn the_number_of_refusals_is_the_sum_of_their_reasons() {
    let mut broker = broker();
    broker.count_tls_failure();
    let told = broker.statistics(now());
    assert_eq!((told.refused, told.refusals["tls"]), (1, 1));
    let mut bench = BrokerBench::with_rules("[[allow]]\nwho = [\"*\"]\n", &["one"]);
    let stranger = bench.connect(Comes::Anonymous, false);
    bench.say(stranger, &Frame::Hello(Greeting::default()));
    assert!(bench.bye(stranger).expect("it has no token").contains("no token came"));
    let told = bench.broker.statistics(bench.now);
    assert_eq!((told.refused, told.refusals["token"]), (1, 1));
}

#[test]
fn a_group_is_one_row_and_what_it_got_is_counted_once() {
    with_broker(|addresses| {
        let address = unisono_events_client::BrokerAddress::Unix(addresses.unix.clone());
        let mut workers = ["one", "two"].map(|name| {
            let mut worker = ClientOptions::new().named(name).connect(&address).expect("it listens");
            let spec =
                SubscriptionSpec { group: Some("workers".to_owned()), ..SubscriptionSpec::new("jobs") };
            worker.subscribe(&spec).expect("it fits");
            worker
        });
        let mut supplier = addresses.client();
        let jobs = supplier.advertise(&Advertisement::new("jobs")).expect("a topic");
        for _ in 0..10 {
            supplier.try_publish(jobs, &EventDraft::new(b"job")).expect("there is room");
        }
        let told = until(&mut supplier, |told| told.consumers[0].delivered == 10);
        let [row] = &told.consumers[..] else { panic!("one row: {:?}", told.consumers) };
        assert_eq!((&*row.name, row.members, row.matched), ("workers", 2, 10));
        assert_eq!(row.programs, Some(vec!["one".to_owned(), "two".to_owned()]));
        let [one, two] = &mut workers;
        let _ = (event(one), event(two)); // both had some
    });
}

#[test]
fn what_consumers_had_that_have_gone_stays_in_the_totals() {
    with_broker(|addresses| {
        let mut supplier = addresses.client();
        let heat = supplier.advertise(&Advertisement::new("heat")).expect("a topic");
        let mut before = 0;
        for round in 1..=3 {
            let mut consumer = addresses.client();
            // its queue holds two events, and it reads none before the statistics are read
            let spec = SubscriptionSpec { queue_events: 2, direct: false, ..SubscriptionSpec::new("heat") };
            consumer.subscribe(&spec).expect("it fits");
            for _ in 0..5 {
                supplier.try_publish(heat, &EventDraft::new(b"hot")).expect("nobody blocks");
            }
            drop(consumer);
            let told = until(&mut supplier, |told| told.consumers.is_empty());
            assert_eq!(told.departed.matched, 5 * round);
            let all = told.departed.delivered + told.departed.lost;
            assert!(all >= before, "totals do not fall");
            before = all;
        }
    });
}

#[test]
fn missed_deadlines_are_counted_by_consumer_and_by_topic_also_when_the_consumer_has_gone() {
    with_broker(|addresses| {
        let mut supplier = addresses.client();
        let topics =
            ["heat", "noise"].map(|topic| supplier.advertise(&Advertisement::new(topic)).expect("a topic"));
        let mut consumer = addresses.client();
        let spec = SubscriptionSpec { late: WhenLate::Drop, direct: false, ..SubscriptionSpec::new("#") };
        consumer.subscribe(&spec).expect("it fits");
        // it reads nothing: the connection fills, and the rest waits until it is late
        let large = vec![0; 1 << 20];
        let mut published = 0;
        while statistics(&mut supplier).consumers[0].waiting == 0 {
            supplier.try_publish(topics[0], &EventDraft::new(&large)).expect("nobody blocks");
            published += 1;
        }
        let soon = now() + unisono_events_client::Duration::from_millis(50);
        for (topic, count) in [(topics[0], 1), (topics[1], 2)] {
            for _ in 0..count {
                supplier.try_publish(topic, &EventDraft::new(b"late").due_at(soon)).expect("in time");
            }
        }
        while now() <= soon {
            std::thread::sleep(StdDuration::from_millis(10));
        }
        while statistics(&mut supplier).consumers[0].waiting > 0 {
            // there may be no event left: the queue may have dropped the oldest large ones
            let _ = consumer.receive(Some(StdDuration::from_millis(10))).expect("the broker is there");
        }
        let told = statistics(&mut supplier);
        let row = &told.consumers[0];
        assert_eq!((row.missed, row.dropped_late), (3, 3), "of {published}: {row:?}");
        assert_eq!((row.missed_by_topic["heat"], row.missed_by_topic["noise"]), (1, 2));
        assert_eq!(row.lost, row.dropped_late + row.dropped_full);
        let taken = (told.published_by_topic["heat"], told.published_by_topic["noise"]);
        assert_eq!(taken, (published + 1, 2));
        drop(consumer);
        let told = until(&mut supplier, |told| told.consumers.is_empty());
        assert_eq!((told.departed.missed, told.departed.lost >= 3), (3, true));
        assert_eq!((told.missed_by_topic["heat"], told.missed_by_topic["noise"]), (1, 2));
    });
}

#[test]
fn each_refusal_is_counted_by_its_reason() {
    with_broker(|addresses| {
        let mut client = addresses.client();
        let heat = client.advertise(&Advertisement::new("heat")).expect("a topic");
        let of = SubscriptionSpec::new("heat");
        let reserve = Some(ReservedTime { period_ns: 1000, deadline_ns: 1000, largest: 100 });
        let bad_filter = InterestSpec {
            topics: "heat".to_owned(),
            filter: Some("level >".to_owned()),
            ..InterestSpec::default()
        };
        for (reason, spec) in [
            ("admission", SubscriptionSpec { reserve, execution_ns: 2000, ..of.clone() }),
            ("offered", SubscriptionSpec { reliable: true, ..of.clone() }),
            ("class", SubscriptionSpec { class: Some("none".to_owned()), ..of.clone() }),
            ("filter", SubscriptionSpec { interests: vec![bad_filter], ..of.clone() }),
            ("topic", SubscriptionSpec::new("a/#/b")),
            ("limit", SubscriptionSpec { interests: Vec::new(), ..of.clone() }),
            ("memory", SubscriptionSpec { queue_bytes: 1 << 40, ..of }),
        ] {
            let refusals =
                |client: &mut Client| statistics(client).refusals.get(reason).copied().unwrap_or(0);
            let before = refusals(&mut client);
            assert!(client.subscribe(&spec).is_err(), "{reason}");
            assert_eq!(refusals(&mut client), before + 1, "{reason}");
        }
        let typed = Advertisement { event_type: Some("other".to_owned()), ..Advertisement::new("heat") };
        assert!(client.advertise(&typed).is_err());
        let past = EventDraft::new(b"").due_at(unisono_events_client::Instant::from_nanos(1));
        assert!(client.try_publish(heat, &past).is_err());
        let told = statistics(&mut client);
        assert_eq!((told.refusals["topic"], told.refusals["deadline"]), (2, 1));
        assert_eq!(told.refused, told.refusals.values().sum::<u64>());
        assert_eq!(told.departed, Default::default(), "what was refused had nothing");
    });
}
