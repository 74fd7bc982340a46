//! Tests how topics are declared, changed and removed, one guarantee in each test.

use crate::common::{Bench, Bytes, all, classes, event};
use unisono_eventchannel::*;
use unisono_time::{Duration, Instant};

fn spec(name: &str) -> TopicSpec {
    TopicSpec::new(name).expect("a name")
}

#[test]
fn topics_that_nobody_offers_and_that_keep_nothing_are_retired_together() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let (kept, offered) = (bench.topic("kept"), bench.topic("offered"));
    bench.publish(0, kept, Publication { retention: Retention::Retain, ..event() });
    bench.channel.declare(spec("unused")).expect("there is room");
    assert_eq!(bench.channel.retire_unused(), 1);
    assert_eq!(
        ["kept", "offered", "unused"].map(|name| bench.channel.topic(name)),
        [Some(kept), Some(offered), None]
    );
}

#[test]
fn a_topic_is_not_retired_while_an_event_of_it_waits_or_may_be_delivered_again() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let redelivery = Some(Redelivery { after: Duration::from_nanos(1000), attempts: 2, window: 1 });
    let reader = bench.reader("t", InboxSpec { redelivery, ..InboxSpec::default() });
    let together = bench.consumer("together", InboxSpec::default());
    let parts = vec![all("part"), all("other")];
    let correlation = Correlation {
        parts,
        rule: CorrelationRule::All,
        within: Duration::from_nanos(5),
        incomplete: Incomplete::Forget,
    };
    bench.channel.correlate(together, correlation).expect("it fits");
    let topics = [bench.topic("t"), bench.topic("part")];
    topics.iter().for_each(|topic| bench.publish(0, *topic, event()));
    bench.channel.withdraw(bench.supplier);
    assert_eq!(bench.channel.retire_unused(), 0, "one waits in an inbox, one for its correlation");
    bench.channel.advance(Instant::from_nanos(10));
    let told: Vec<Delivery<Bytes>> = std::iter::from_fn(|| bench.next(10)).collect();
    let delivered = told.into_iter().find_map(|delivery| delivery.event).expect("it waits");
    assert_eq!(bench.channel.retire_unused(), 1, "the correlation has run out; the other may be repeated");
    assert!(bench.channel.topic_spec(delivered.event.topic).is_some());
    bench.channel.acknowledge(reader, delivered.acknowledgement.expect("it is to be acknowledged"));
    assert_eq!(bench.channel.retire_unused(), 0, "that the supplier has gone is told after its event");
    assert!(bench.next(10).is_some_and(|delivery| delivery.event.is_none()));
    assert_eq!(bench.channel.retire_unused(), 1);
}

/// Makes a channel of at most `topics` topics, with a supplier.
fn bounded(topics: usize) -> (EventChannel<Bytes>, SupplierId) {
    let limits = ChannelLimits { topics, ..ChannelLimits::default() };
    let mut channel = EventChannel::new(classes(&[("rest", 1)]), limits);
    let supplier = channel.supplier(Instant::ZERO, None).expect("room");
    (channel, supplier)
}

#[test]
fn programs_that_come_and_go_never_use_up_the_topics() {
    let (mut channel, lasting) = bounded(4);
    let kept = channel.declare(spec("kept")).expect("room");
    channel.offer(lasting, Offer::new(kept)).expect("no type");
    let asker = channel.connect(Instant::ZERO, ConsumerSpec::new("asker")).expect("room");
    channel.subscribe(Instant::ZERO, asker, all("reply/#")).expect("room");
    for number in 0..50 {
        let topic = channel.declare(spec(&format!("reply/{number}"))).expect("topics that were left go");
        let supplier = channel.supplier(Instant::ZERO, None).expect("room");
        channel.offer(supplier, Offer::new(topic)).expect("no type");
        channel.try_publish(Instant::ZERO, supplier, topic, event()).expect("taken");
        channel.withdraw(supplier);
        let of: Vec<TopicId> = std::iter::from_fn(|| channel.next(Instant::ZERO))
            .flat_map(|delivery| delivery.event.map(|event| event.event.topic))
            .collect();
        assert_eq!(of, [topic]);
    }
    assert_eq!(channel.topic("kept"), Some(kept));
}

#[test]
fn what_was_missed_of_topics_that_have_gone_is_counted_together() {
    let (mut channel, lasting) = bounded(4);
    let kept = channel.declare(spec("kept")).expect("room");
    channel.offer(lasting, Offer::new(kept)).expect("no type");
    let asker = channel.connect(Instant::ZERO, ConsumerSpec::new("asker")).expect("room");
    channel.subscribe(Instant::ZERO, asker, all("#")).expect("room");
    let miss = |channel: &mut EventChannel<Bytes>, at: u64, supplier, topic| {
        channel
            .try_publish(Instant::from_nanos(at), supplier, topic, event().due(Instant::from_nanos(at)))
            .expect("taken");
        while channel.next(Instant::from_nanos(at + 1)).is_some() {}
    };
    for number in 0..50 {
        let topic = channel.declare(spec(&format!("reply/{number}"))).expect("topics that were left go");
        let supplier = channel.supplier(Instant::from_nanos(number * 2), None).expect("room");
        channel.offer(supplier, Offer::new(topic)).expect("no type");
        miss(&mut channel, number * 2, supplier, topic);
        channel.withdraw(supplier);
        while channel.next(Instant::from_nanos(number * 2 + 1)).is_some() {}
    }
    miss(&mut channel, 200, lasting, kept);
    let misses: Vec<(TopicId, u64)> = channel.misses(asker).collect();
    assert!(misses.len() <= 4 + 1, "{misses:?}");
    assert!(misses.contains(&(kept, 1)) && misses[0].0 == TopicId(0), "{misses:?}");
    assert_eq!(misses.iter().map(|(_, missed)| missed).sum::<u64>(), 51);
    assert_eq!(channel.counters(asker).expect("it is there").missed, 51);
}

#[test]
fn too_many_topics_in_use_are_refused() {
    let (mut channel, supplier) = bounded(2);
    for name in ["a", "b"] {
        let topic = channel.declare(spec(name)).expect("room");
        channel.offer(supplier, Offer::new(topic)).expect("no type");
    }
    let refused = channel.declare(spec("c")).expect_err("both are offered").to_string();
    assert_eq!(refused, "there are 2 topics already, as many as may be");
}

#[test]
fn a_look_that_found_no_unused_topic_is_repeated_after_a_second_or_when_offers_were_withdrawn() {
    let (mut channel, supplier) = bounded(2);
    let [a, b] = ["a", "b"].map(|name| channel.declare(spec(name)).expect("room"));
    channel.offer(supplier, Offer::new(a)).expect("no type");
    let other = channel.supplier(Instant::ZERO, None).expect("room");
    channel.offer(other, Offer::new(b)).expect("no type");
    let reader = channel.connect(Instant::ZERO, ConsumerSpec::new("reader")).expect("room");
    channel.subscribe(Instant::ZERO, reader, all("b")).expect("room");
    channel.try_publish(Instant::ZERO, other, b, event()).expect("taken");
    channel.withdraw(other);
    channel.declare(spec("c")).expect_err("an event of b waits");
    while channel.next(Instant::from_nanos(10)).is_some() {}
    channel.declare(spec("c")).expect_err("nobody looks again so soon");
    channel.advance(Instant::from_secs(1));
    let c = channel.declare(spec("c")).expect("b is not used");
    channel.offer(supplier, Offer::new(c)).expect("no type");
    channel.declare(spec("d")).expect_err("both are offered");
    channel.withdraw(supplier);
    channel.declare(spec("d")).expect("they were withdrawn");
}

#[test]
fn a_topic_stays_while_somebody_is_still_to_be_told_of_it() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    bench.reader("t", InboxSpec::default());
    bench.channel.withdraw(bench.supplier);
    assert_eq!(bench.channel.retire_unused(), 0, "that the supplier has gone waits");
    let told = bench.next(0).expect("it is told").notices;
    assert!(matches!(told[..], [ChannelNotice::Gone { topic: of, .. }] if of == topic), "{told:?}");
    assert_eq!(bench.channel.retire_unused(), 1);
}

#[test]
fn a_topic_that_differs_is_refused_with_both_values_until_it_is_unused() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let keeping = spec("t").keeping(HistoryDepth::Last { events: 1 });
    let refused = bench.channel.declare(keeping.clone()).expect_err("it is offered").to_string();
    assert_eq!(
        refused,
        "the topic `t` is in use otherwise: declared: keeps none, shared, of any type; asked: keeps the last event, \
         shared, of any type; ask for what is declared, or wait until nobody offers the topic and it keeps nothing"
    );
    bench.channel.withdraw(bench.supplier);
    assert_eq!(bench.channel.declare(keeping.clone()), Ok(topic));
    bench.supplier = bench.channel.supplier(Instant::ZERO, None).expect("room");
    bench.channel.offer(bench.supplier, Offer::new(topic)).expect("no type");
    bench.publish(0, topic, event());
    bench.channel.withdraw(bench.supplier);
    let typed = spec("t").typed("heat").owned(Ownership::Exclusive);
    let refused = bench.channel.declare(typed).expect_err("it keeps an event").to_string();
    assert!(refused.contains("asked: keeps none, exclusive, of type `heat`"), "{refused}");
    let late = bench.consumer(
        "late",
        InboxSpec {
            request: QualityRequest {
                history: HistoryDepth::Last { events: 1 },
                ..QualityRequest::default()
            },
            ..InboxSpec::default()
        },
    );
    bench.subscribe(late, "t");
    assert_eq!(bench.next_number(0), Some(1), "it is what was asked for");
}

#[test]
fn a_consumer_that_differs_from_its_group_is_told_each_difference() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let inbox = InboxSpec::default();
    let member = |inbox| ConsumerSpec::new("member").grouped("workers").with(inbox);
    bench.channel.connect(Instant::ZERO, member(inbox.clone())).expect("room");
    let capacity = InboxCapacity { events: 5, ..inbox.capacity };
    let other = InboxSpec { capacity, full: FullInbox::BlockSupplier, class: Some("rest".into()), ..inbox };
    let refused = bench.channel.connect(Instant::ZERO, member(other)).expect_err("it differs").to_string();
    assert_eq!(
        refused,
        "the group `workers` has another inbox: class: declared the default, asked rest; queue: declared 1024 events, \
         16777216 bytes, asked 5 events, 16777216 bytes; when full: declared drop oldest, asked block supplier; state \
         the same as its other consumers, or name another group"
    );
}
