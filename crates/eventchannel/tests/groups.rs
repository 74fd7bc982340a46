//! Tests consumers that connect and disconnect: the subscriptions of their groups, and the past events that
//! they get.

use crate::common::{Bench, Bytes, all, classes, event};
use unisono_eventchannel::*;
use unisono_time::{Duration, Instant};

fn worker(inbox: InboxSpec) -> ConsumerSpec {
    ConsumerSpec::new("worker").grouped("workers").with(inbox)
}

fn come(bench: &mut Bench, now: u64, pattern: &str) -> ConsumerId {
    let come =
        bench.channel.connect(Instant::from_nanos(now), worker(InboxSpec::default())).expect("admitted");
    bench.channel.subscribe(Instant::from_nanos(now), come, all(pattern)).expect("it fits");
    bench.channel.replace_departed(come);
    come
}

/// Takes all waiting events. Returns their sequence numbers, and whether each is retained.
fn taken(bench: &mut Bench, now: u64) -> Vec<(u64, bool)> {
    std::iter::from_fn(|| bench.next(now))
        .filter_map(|delivery| delivery.event.map(|it| (it.event.sequence, it.retained)))
        .collect()
}

fn keeping(bench: &mut Bench, name: &str) -> TopicId {
    let spec = TopicSpec::new(name).expect("a name").keeping(HistoryDepth::Last { events: 4 });
    let topic = bench.channel.declare(spec).expect("room");
    bench.channel.offer(bench.supplier, Offer::new(topic)).expect("it is there");
    topic
}

#[test]
fn a_group_asks_for_what_the_consumers_ask_for_that_are_there() {
    let limits = ChannelLimits { subscriptions: 3, ..ChannelLimits::default() };
    let mut channel: EventChannel<Bytes> = EventChannel::new(classes(&[("rest", 1)]), limits);
    let spec = worker(InboxSpec::default());
    let stays = channel.connect(Instant::ZERO, spec.clone()).expect("admitted");
    channel.subscribe(Instant::ZERO, stays, all("job")).expect("it fits");
    for at in 1..10 {
        let goes = channel.connect(Instant::from_nanos(at), spec.clone()).expect("admitted");
        channel
            .subscribe(Instant::from_nanos(at), goes, all("job"))
            .expect("what the former one asked for is gone");
        channel
            .set_timer(Instant::from_nanos(at), goes, TimerSpec::Every(Duration::from_nanos(1)))
            .expect("its timer is gone, too");
        let within = Duration::from_nanos(100);
        let (rule, incomplete) = (CorrelationRule::All, Incomplete::Forget);
        let parts = vec![all("job")];
        channel.correlate(goes, Correlation { parts, rule, within, incomplete }).expect("and this");
        channel.disconnect(Instant::from_nanos(at), goes);
    }
    let mut bench = Bench::new(&[("rest", 1)]);
    let (a, b) = (bench.topic("a"), bench.topic("b"));
    come(&mut bench, 0, "a");
    let other = come(&mut bench, 0, "b");
    bench.publish(1, b, event());
    assert_eq!(taken(&mut bench, 1).len(), 1);
    bench.channel.disconnect(Instant::from_nanos(2), other);
    bench.publish(3, b, event());
    assert!(taken(&mut bench, 3).is_empty(), "who asked for it is gone");
    bench.publish(4, a, event());
    assert_eq!(taken(&mut bench, 4).len(), 1);
}

#[test]
fn what_a_topic_keeps_comes_once_to_a_group_and_to_patterns_that_overlap() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = keeping(&mut bench, "plant/heat");
    for at in 0..3 {
        bench.publish(at, topic, event());
    }
    let past = [(1, true), (2, true), (3, true)];
    let reader = bench.consumer("reader", InboxSpec::default());
    for pattern in ["plant/heat", "plant/#", "#"] {
        bench.subscribe(reader, pattern);
    }
    assert_eq!(taken(&mut bench, 3), past);
    bench.channel.disconnect(Instant::from_nanos(4), reader);
    come(&mut bench, 5, "plant/#");
    assert_eq!(taken(&mut bench, 5), past);
    come(&mut bench, 6, "plant/#");
    come(&mut bench, 6, "plant/heat");
    assert_eq!(taken(&mut bench, 6), [], "the group has it");
    let other = keeping(&mut bench, "other");
    bench.publish(7, other, event());
    come(&mut bench, 8, "#");
    assert_eq!(taken(&mut bench, 8), [(1, true)], "nobody asked for it before");
}

#[test]
fn a_group_in_which_two_ask_for_the_same_events_together_gets_them_once() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let (door, motion) = (bench.topic("door"), bench.topic("motion"));
    let both = || Correlation {
        parts: vec![all("door"), all("motion")],
        rule: CorrelationRule::All,
        within: Duration::from_nanos(100),
        incomplete: Incomplete::Forget,
    };
    let members = [0, 1].map(|_| {
        let member = bench.channel.connect(Instant::ZERO, worker(InboxSpec::default())).expect("admitted");
        bench.channel.correlate(member, both()).expect("it fits");
        member
    });
    let both_come = |bench: &mut Bench, at: u64| {
        bench.publish(at, door, event());
        bench.publish(at, motion, event());
        taken(bench, at).len()
    };
    assert_eq!(both_come(&mut bench, 1), 1);
    bench.channel.disconnect(Instant::from_nanos(2), members[0]);
    assert_eq!(both_come(&mut bench, 3), 1, "the other one asks for it still");
    let differs = Correlation { rule: CorrelationRule::Sequence, ..both() };
    bench.channel.correlate(members[1], differs).expect("it fits");
    assert_eq!(both_come(&mut bench, 4), 2, "another rule is another wish");
}

#[test]
fn a_group_lingers_from_when_its_last_consumer_went() {
    let inbox = InboxSpec { linger: Duration::from_nanos(1000), ..InboxSpec::default() };
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("job");
    let connect = |bench: &mut Bench, now: u64| {
        let come = bench.channel.connect(Instant::from_nanos(now), worker(inbox.clone())).expect("admitted");
        bench.channel.subscribe(Instant::from_nanos(now), come, all("job")).expect("it fits");
        bench.channel.replace_departed(come);
        come
    };
    let first = connect(&mut bench, 0);
    bench.channel.disconnect(Instant::from_nanos(10), first);
    let second = connect(&mut bench, 500);
    bench.channel.disconnect(Instant::from_nanos(900), second);
    bench.publish(950, topic, event());
    bench.channel.advance(Instant::from_nanos(1500)); // 1000 after the first consumer left, 600 after the second one
    let third = connect(&mut bench, 1501);
    assert_eq!(taken(&mut bench, 1501), [(1, false)]);
    bench.publish(1502, topic, event());
    assert_eq!(taken(&mut bench, 1502), [(2, false)], "once, although two generations asked for it");
    bench.channel.disconnect(Instant::from_nanos(2000), third);
    bench.publish(2500, topic, event());
    bench.channel.advance(Instant::from_nanos(3000));
    connect(&mut bench, 3001);
    assert_eq!(taken(&mut bench, 3001), [], "it lingered long enough");
}
