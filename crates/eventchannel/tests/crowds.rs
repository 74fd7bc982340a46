//! Tests that many subscriptions of one tenant, and many topics of one supplier, cost others few steps.

use std::collections::BTreeMap;
use unisono_eventchannel::*;
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_time::Instant;

/// The maximum number of steps of one call.
const MAX_WORK: usize = 2048;
const TENANT: TenantId = TenantId(7);

type Channel = EventChannel<Vec<u8>>;

fn channel() -> Channel {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    EventChannel::new(tree.expect("a default class"), ChannelLimits::default())
}

fn interest(pattern: &str) -> Interest {
    Interest::in_topics(pattern.parse().expect("a pattern"))
}

fn consumer(channel: &mut Channel) -> ConsumerId {
    let spec = ConsumerSpec { tenant: TENANT, ..ConsumerSpec::new("c") };
    channel.connect(Instant::from_nanos(1), spec).expect("room")
}

/// Makes a supplier of the topics `m/0`, `m/1`, ...
fn supplier(channel: &mut Channel, topics: usize, ownership: Ownership) -> (SupplierId, Vec<TopicId>) {
    let supplier = channel.supplier(Instant::from_nanos(1), None).expect("room");
    let offered = (0..topics).map(|number| {
        let spec = TopicSpec { ownership, ..TopicSpec::new(&format!("m/{number}")).expect("a name") };
        let topic = channel.declare(spec).expect("room");
        channel.offer(supplier, Offer::new(topic)).expect("no type");
        topic
    });
    let topics = offered.collect();
    (supplier, topics)
}

/// Returns the topic of a notice about a supplier.
fn topic_of(notice: &ChannelNotice) -> Option<TopicId> {
    match notice {
        ChannelNotice::Gone { topic, .. } | ChannelNotice::Owner { topic, .. } => Some(*topic),
        _ => None,
    }
}

fn publish(channel: &mut Channel, supplier: SupplierId, topic: TopicId) -> usize {
    channel.take_work();
    let published = channel.try_publish(Instant::from_nanos(2), supplier, topic, Publication::new(vec![]));
    assert!(matches!(published, Ok(Published::Taken { .. })));
    channel.take_work()
}

#[test]
fn equal_subscriptions_of_one_consumer_cost_a_publisher_as_much_as_one() {
    let mut channel = channel();
    let (supplier, topics) = supplier(&mut channel, 1, Ownership::Shared);
    let reader = consumer(&mut channel);
    let mut equal: Vec<_> = (0..4000)
        .map(|_| channel.subscribe(Instant::from_nanos(1), reader, interest("m/+")).expect("room"))
        .collect();
    assert!(publish(&mut channel, supplier, topics[0]) < 4);
    // of the equal subscriptions the first one matches; when it is removed, another one does
    while let Some(subscription) = equal.first().copied() {
        assert!(publish(&mut channel, supplier, topics[0]) < 4);
        let delivered =
            channel.next(Instant::from_nanos(3)).and_then(|delivery| delivery.event).expect("an event");
        assert_eq!(delivered.subscription, subscription);
        channel.unsubscribe(subscription);
        equal.remove(0);
        while channel.next(Instant::from_nanos(3)).is_some() {}
        if equal.len() > 3 {
            equal.drain(..equal.len() - 3).for_each(|more| channel.unsubscribe(more));
        }
    }
    publish(&mut channel, supplier, topics[0]);
    assert!(channel.next(Instant::from_nanos(3)).is_none());
}

#[test]
fn a_tenant_has_a_bounded_number_of_subscriptions_that_may_all_match_one_topic() {
    let mut channel = channel();
    let (supplier, topics) = supplier(&mut channel, 1, Ownership::Shared);
    let most = TenantLimits::default().broad;
    let broad = |number: usize| {
        let text = format!("zone > {number}");
        [
            interest("m/+"),
            interest("m/0").typed("T"),
            interest("m/0").filtered(text.parse().expect("a filter")),
        ]
    };
    let mut taken = 0;
    'all: for number in 0.. {
        let reader = consumer(&mut channel);
        for interest in broad(number) {
            match channel.subscribe(Instant::from_nanos(1), reader, interest) {
                Ok(_) => taken += 1,
                Err(error) => {
                    assert!(error.to_string().contains("4096 subscriptions with wildcards"), "{error}");
                    break 'all;
                }
            }
        }
    }
    assert_eq!(taken, most);
    assert!(publish(&mut channel, supplier, topics[0]) < 2 * 2048);
    let reader = consumer(&mut channel);
    channel
        .subscribe(Instant::from_nanos(1), reader, interest("m/0"))
        .expect("a name without a wildcard has room");
    let held = [interest("m/#")];
    assert!(
        channel.take_interests(TENANT, &held).is_err(),
        "a caller that matches itself shares the limit"
    );
    channel.disconnect(Instant::from_nanos(1), ConsumerId(reader.0));
    assert!(channel.take_interests(TenantId(8), &held).is_ok(), "another tenant has its own");
}

#[test]
fn a_supplier_of_a_thousand_topics_departs_in_pieces() {
    let mut channel = channel();
    let (supplier, topics) = supplier(&mut channel, 1024, Ownership::Shared);
    let readers: Vec<_> = (0..31).map(|_| consumer(&mut channel)).collect();
    for reader in &readers {
        for _ in 0..30 {
            channel.subscribe(Instant::from_nanos(1), *reader, interest("m/+")).expect("room");
        }
    }
    channel.take_work();
    channel.bury(supplier);
    let work = channel.take_work();
    assert!((1..MAX_WORK).contains(&work), "{work} steps in one call");
    assert!(!channel.has_supplier(supplier), "the departure takes effect at once");
    assert!(
        channel.next_wake().is_some_and(|wake| wake <= Instant::from_nanos(2)),
        "the rest is told at once"
    );
    let mut told: BTreeMap<ConsumerId, usize> = BTreeMap::new();
    let mut last = false;
    while let Some(delivery) = channel.next(Instant::from_nanos(2)) {
        assert!(channel.take_work() < MAX_WORK);
        *told.entry(delivery.consumer).or_default() += delivery.notices.len();
        last |= delivery.notices.iter().any(|notice| topic_of(notice) == topics.last().copied());
    }
    assert!(last && told.len() == 31 && told.values().all(|notices| *notices >= 256), "{told:?}");
    assert_eq!(channel.next_wake(), None);
}

#[test]
fn an_event_is_preceded_by_the_departure_of_its_former_owner() {
    let mut channel = channel();
    let reader = consumer(&mut channel);
    channel.subscribe(Instant::from_nanos(1), reader, interest("m/+")).expect("room");
    let others: Vec<_> = (0..200).map(|_| consumer(&mut channel)).collect();
    for other in others {
        channel.subscribe(Instant::from_nanos(1), other, interest("m/+")).expect("room");
        channel.pause(other);
    }
    let (first, topics) = supplier(&mut channel, 64, Ownership::Exclusive);
    let (second, _) = supplier(&mut channel, 64, Ownership::Exclusive);
    channel.take_work();
    channel.bury(first);
    let topic = topics[63];
    assert_eq!(channel.owner(topic), Some(second));
    publish(&mut channel, second, topic);
    let mut notices = Vec::new();
    loop {
        let delivery = channel.next(Instant::from_nanos(2)).expect("the event is due");
        notices.extend(delivery.notices.into_iter().filter(|notice| topic_of(notice) == Some(topic)));
        if delivery.event.is_some() {
            break;
        }
    }
    let expected = [
        ChannelNotice::Gone { topic, supplier: first, why: Departed::Died },
        ChannelNotice::Owner { topic, supplier: second },
    ];
    assert_eq!(notices, expected);
}

#[test]
fn a_change_of_an_offer_counts_its_consumers() {
    let mut channel = channel();
    let readers: Vec<_> = (0..512).map(|_| consumer(&mut channel)).collect();
    for reader in readers {
        channel.subscribe(Instant::from_nanos(1), reader, interest("m/+")).expect("room");
    }
    channel.take_work();
    let (leaving, _) = supplier(&mut channel, 1, Ownership::Shared);
    assert!(channel.take_work() >= 512, "an offer is compared with all requests");
    channel.withdraw(leaving);
    assert!(channel.take_work() >= 512, "a departure is told to all consumers");
}

#[test]
fn the_topics_whose_consumers_have_changed_are_named_by_patterns() {
    let mut channel = channel();
    let reader = consumer(&mut channel);
    let named = |channel: &mut Channel| match channel.take_changed_audiences() {
        ChangedAudiences::Of(patterns) => {
            let mut patterns: Vec<_> = patterns.iter().map(ToString::to_string).collect();
            patterns.sort();
            patterns
        }
        _ => vec!["all".to_owned()],
    };
    let first = channel.subscribe(Instant::from_nanos(1), reader, interest("a/+")).expect("room");
    channel.subscribe(Instant::from_nanos(1), reader, interest("b")).expect("room");
    assert_eq!(named(&mut channel), ["a/+", "b"]);
    channel.subscribe(Instant::from_nanos(1), reader, interest("a/+")).expect("room");
    channel.unsubscribe(first);
    assert_eq!(named(&mut channel), Vec::<String>::new(), "an equal one changes nothing");
    channel.disconnect(Instant::from_nanos(1), reader);
    assert_eq!(named(&mut channel), ["a/+", "b"]);
    let reader = consumer(&mut channel);
    for number in 0..5000 {
        channel.subscribe(Instant::from_nanos(1), reader, interest(&format!("n/{number}"))).expect("room");
    }
    assert_eq!(named(&mut channel), ["all"]);
}
