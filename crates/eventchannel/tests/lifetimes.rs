//! Tests what happens as time passes: leases, owners, acknowledgements, timers, correlations. Each test's
//! name states one guarantee.

use crate::common::{Bench, Bytes, all, classes, event};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use unisono_eventchannel::*;
use unisono_time::{Duration, Instant};

fn notices(bench: &mut Bench, now: u64) -> Vec<ChannelNotice> {
    std::iter::from_fn(|| bench.next(now)).flat_map(|delivery| delivery.notices).collect()
}

fn reliable(after: u64, attempts: u32, window: usize) -> InboxSpec {
    let redelivery = Some(Redelivery { after: Duration::from_nanos(after), attempts, window });
    InboxSpec { redelivery, ..InboxSpec::default() }
}

/// Takes the next event. Returns its sequence number, the number to acknowledge, and how often it was
/// delivered before.
fn got(bench: &mut Bench, now: u64) -> Option<(u64, u64, u32)> {
    let event = bench.next(now)?.event?;
    Some((event.event.sequence, event.acknowledgement?, event.repeated))
}

#[test]
fn a_supplier_that_is_silent_for_its_lease_has_died_and_its_listeners_are_told() {
    let mut bench = Bench::new(&[("rest", 1)]);
    bench.supplier = bench.channel.supplier(Instant::ZERO, Some(Duration::from_nanos(100))).expect("room");
    let (supplier, topic) = (bench.supplier, bench.topic("t"));
    bench.reader("t", InboxSpec::default());
    assert_eq!(bench.channel.next_wake(), Some(Instant::from_nanos(100)));
    bench.publish(60, topic, event());
    bench.next(60);
    bench.channel.advance(Instant::from_nanos(100)); // the publication renewed the lease
    assert_eq!(bench.channel.next_wake(), Some(Instant::from_nanos(160)));
    bench.channel.renew_supplier(Instant::from_nanos(150), supplier);
    assert_eq!(
        (notices(&mut bench, 160), bench.channel.next_wake()),
        (vec![], Some(Instant::from_nanos(250)))
    );
    assert_eq!(notices(&mut bench, 250), [ChannelNotice::Gone { topic, supplier, why: Departed::Died }]);
    let refused = bench.channel.try_publish(Instant::from_nanos(251), supplier, topic, event());
    assert_eq!((refused, bench.channel.next_wake()), (Err(PublishError::NotOffered), None));
}

#[test]
fn that_a_supplier_has_gone_is_told_after_its_last_event() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let (supplier, topic) = (bench.supplier, bench.topic("t"));
    let other = bench.topic("other");
    bench.reader("#", InboxSpec::default());
    let late = LateEvents::Drop;
    bench.reader("t", InboxSpec { late, ..InboxSpec::default() });
    let capacity = InboxCapacity { events: 1, bytes: 100 };
    bench.reader("#", InboxSpec { capacity, ..InboxSpec::default() });
    bench.publish(1, topic, event().due(Instant::from_nanos(5)));
    bench.publish(1, topic, event().due(Instant::from_nanos(5)));
    bench.channel.withdraw(supplier);
    let again = bench.channel.supplier(Instant::from_nanos(1), None).expect("room");
    bench.channel.offer(again, Offer::new(other)).expect("no type");
    bench.channel.try_publish(Instant::from_nanos(1), again, other, event()).expect("taken"); // the third one has no room
    let mut heard: BTreeMap<ConsumerId, Vec<Option<u64>>> = BTreeMap::new();
    while let Some(delivery) = bench.next(9) {
        let gone = ChannelNotice::Gone { topic, supplier, why: Departed::Left };
        let of_consumer = heard.entry(delivery.consumer).or_default();
        of_consumer.extend(delivery.notices.iter().filter(|notice| **notice == gone).map(|_| None));
        let event = delivery.event.map(|it| it.event).filter(|event| event.topic == topic);
        of_consumer.extend(event.map(|event| Some(event.sequence)));
    }
    let heard: Vec<Vec<Option<u64>>> = heard.into_values().collect();
    assert_eq!(heard, [vec![Some(1), Some(2), None], vec![None], vec![None]]);
}

#[test]
fn of_an_exclusive_topic_the_strongest_supplier_is_heard_and_the_next_one_when_it_dies() {
    let mut channel: EventChannel<Bytes> =
        EventChannel::new(classes(&[("rest", 1)]), ChannelLimits::default());
    let spec = TopicSpec::new("t").expect("a name").owned(Ownership::Exclusive);
    let topic = channel.declare(spec).expect("room");
    let first = channel.supplier(Instant::ZERO, None).expect("room");
    let strong = channel.supplier(Instant::ZERO, Some(Duration::from_nanos(100))).expect("room");
    let late = channel.supplier(Instant::ZERO, None).expect("room");
    let reader = channel.connect(Instant::ZERO, ConsumerSpec::new("reader")).expect("admitted");
    channel.subscribe(Instant::ZERO, reader, all("t")).expect("it fits");
    for (supplier, strength) in [(first, 1), (strong, 2), (late, 1)] {
        channel.offer(supplier, Offer { strength, ..Offer::new(topic) }).expect("no type");
    }
    assert_eq!(channel.owner(topic), Some(strong));
    let push = |channel: &mut EventChannel<Bytes>, now: u64, supplier| {
        channel.try_publish(Instant::from_nanos(now), supplier, topic, event()).expect("offered")
    };
    assert_eq!(push(&mut channel, 1, first), Published::Standby { sequence: 1 });
    assert_eq!(push(&mut channel, 1, strong), Published::Taken { sequence: 1, inboxes: 1 });
    let delivery = channel.next(Instant::from_nanos(2)).expect("an event");
    let told = [ChannelNotice::Owner { topic, supplier: strong }]; // it replaced the first owner
    assert_eq!(
        (delivery.notices, delivery.event.expect("an event").event.supplier),
        (told.to_vec(), strong)
    );
    // the owner dies: of the two equally strong suppliers, consumers get the events of the first to offer,
    // without a gap
    let told = channel.next(Instant::from_nanos(500)).expect("notices").notices;
    let gone = ChannelNotice::Gone { topic, supplier: strong, why: Departed::Died };
    assert_eq!(told, [gone, ChannelNotice::Owner { topic, supplier: first }]);
    assert_eq!(push(&mut channel, 501, first), Published::Taken { sequence: 2, inboxes: 1 });
    assert_eq!(push(&mut channel, 501, late), Published::Standby { sequence: 1 });
    assert_eq!(channel.next(Instant::from_nanos(502)).expect("an event").notices, []);
}

#[test]
fn what_is_not_acknowledged_in_time_is_delivered_again_and_given_up_in_the_end() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let reader = bench.reader("t", reliable(100, 3, 8));
    bench.publish(0, topic, event());
    bench.publish(0, topic, event());
    assert_eq!(
        (got(&mut bench, 10), got(&mut bench, 10), got(&mut bench, 10)),
        (Some((1, 1, 0)), Some((2, 2, 0)), None)
    );
    assert_eq!(bench.channel.acknowledge(reader, 2), Acknowledged::Done);
    assert_eq!(bench.channel.acknowledge(reader, 2), Acknowledged::Unknown);
    assert_eq!((bench.channel.next_wake(), got(&mut bench, 109)), (Some(Instant::from_nanos(110)), None));
    assert_eq!(got(&mut bench, 110), Some((1, 3, 1)));
    // the acknowledgement is too late: a newer delivery of the event has replaced the first
    assert_eq!(bench.channel.acknowledge(reader, 1), Acknowledged::Unknown);
    assert_eq!(got(&mut bench, 210), Some((1, 4, 2)));
    let last = bench.next(310).expect("it is given up");
    let gap = Gap { topic, supplier: bench.supplier, first: 1, last: 1, lost: 1, cause: GapCause::GivenUp };
    assert_eq!((last.notices, last.event.is_none()), (vec![ChannelNotice::Gap(gap)], true));
    let counters = bench.channel.counters(reader).expect("it is there");
    assert_eq!((counters.repeated, counters.given_up, bench.channel.unacknowledged(reader)), (2, 1, 0));
}

#[test]
fn a_consumer_gets_no_more_than_its_window_before_it_acknowledges() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let reader = bench.reader("t", reliable(1_000_000, 3, 2));
    for _ in 0..3 {
        bench.publish(0, topic, event());
    }
    assert_eq!(
        (got(&mut bench, 1), got(&mut bench, 1), got(&mut bench, 1)),
        (Some((1, 1, 0)), Some((2, 2, 0)), None)
    );
    bench.channel.acknowledge(reader, 1);
    assert_eq!((got(&mut bench, 2), got(&mut bench, 2)), (Some((3, 3, 0)), None));
}

#[test]
fn what_a_dead_consumer_had_not_acknowledged_goes_to_another_of_its_group() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let spec = ConsumerSpec::new("worker").grouped("workers").with(reliable(1_000_000, 9, 8));
    let leased = ConsumerSpec { lease: Some(Duration::from_nanos(100)), ..spec.clone() };
    let one = bench.channel.connect(Instant::ZERO, leased).expect("admitted");
    bench.subscribe(one, "t");
    bench.publish(0, topic, event());
    assert_eq!(got(&mut bench, 1), Some((1, 1, 0)));
    let other = bench.channel.connect(Instant::from_nanos(2), spec).expect("the same inbox");
    assert_eq!(got(&mut bench, 99), None);
    let again = bench.next(100).expect("the first has died");
    assert_eq!((again.consumer, again.event.expect("an event").repeated), (other, 1));
}

#[test]
fn who_comes_back_in_time_goes_on_with_what_waits() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let inbox = InboxSpec { linger: Duration::from_nanos(1000), ..reliable(1_000_000, 9, 8) };
    let spec = ConsumerSpec::new("reader").grouped("session").with(inbox);
    let connect = |bench: &mut Bench, now: u64| {
        bench.channel.connect(Instant::from_nanos(now), spec.clone()).expect("admitted")
    };
    let first = connect(&mut bench, 0);
    bench.subscribe(first, "t");
    bench.publish(0, topic, event());
    assert_eq!(got(&mut bench, 1), Some((1, 1, 0)));
    bench.channel.disconnect(Instant::from_nanos(10), first);
    bench.publish(20, topic, event());
    assert_eq!(got(&mut bench, 30), None);
    let second = connect(&mut bench, 1009);
    assert_eq!((got(&mut bench, 1009), got(&mut bench, 1009)), (Some((1, 1, 1)), Some((2, 2, 0))));
    bench.channel.disconnect(Instant::from_nanos(2000), second);
    bench.channel.advance(Instant::from_nanos(3000));
    connect(&mut bench, 3001);
    bench.publish(3002, topic, event());
    assert_eq!(got(&mut bench, 3002), None); // a new inbox, without subscriptions
}

#[test]
fn timers_tick_and_tell_of_silence() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let reader = bench.reader("t", InboxSpec::default());
    let clock = bench.reader("none", InboxSpec::default());
    let tick = bench
        .channel
        .set_timer(Instant::ZERO, clock, TimerSpec::Every(Duration::from_nanos(30)))
        .expect("a period");
    assert_eq!(
        (bench.channel.next_wake(), notices(&mut bench, 29)),
        (Some(Instant::from_nanos(30)), vec![])
    );
    let at = |at: u64| ChannelNotice::Tick { timer: tick, at: Instant::from_nanos(at) };
    assert_eq!(notices(&mut bench, 30), [at(30)]);
    assert_eq!(notices(&mut bench, 95), [at(60), at(90)]);
    bench.channel.disconnect(Instant::from_nanos(96), clock);
    let silence = bench
        .channel
        .set_timer(Instant::from_nanos(100), reader, TimerSpec::Silence(Duration::from_nanos(50)))
        .expect("a period");
    bench.publish(120, topic, event());
    assert_eq!(notices(&mut bench, 169), []);
    assert_eq!(
        notices(&mut bench, 170),
        [ChannelNotice::Silence { timer: silence, since: Instant::from_nanos(120) }]
    );
    assert_eq!(bench.channel.next_wake(), Some(Instant::from_nanos(220)));
    let zero = bench.channel.set_timer(Instant::ZERO, reader, TimerSpec::Every(Duration::ZERO));
    assert_eq!(zero, Err(ChannelError::ZeroPeriod));
    bench.channel.disconnect(Instant::from_nanos(200), reader);
    bench.channel.advance(Instant::from_nanos(1000));
    assert_eq!(bench.channel.next_wake(), None);
}

#[test]
fn a_timer_that_is_far_behind_leaves_periods_out_and_goes_on_in_step() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let clock = bench.reader("none", InboxSpec::default());
    for timer in [TimerSpec::Every(Duration::from_nanos(1)), TimerSpec::Silence(Duration::from_nanos(1))] {
        bench.channel.set_timer(Instant::ZERO, clock, timer).expect("a period");
    }
    // ten seconds are 10^10 periods; a channel that rang for each would be busy for minutes
    let calls = (1..).find(|_| {
        bench.channel.advance(Instant::from_secs(10));
        bench.channel.next_wake() == Some(Instant::from_nanos(10_000_000_001))
    });
    assert!(calls.is_some_and(|calls| calls < 4), "{calls:?} calls, each of which rings a few times");
    bench.channel.disconnect(Instant::from_nanos(10_000_000_001), clock);
    let clock = bench.reader("none", InboxSpec::default());
    let start = 10_000_000_002;
    let tick = bench
        .channel
        .set_timer(Instant::from_nanos(start), clock, TimerSpec::Every(Duration::from_nanos(30)))
        .expect("a period");
    let told = notices(&mut bench, start + 30 * 5000 + 7);
    assert!(
        (256..258).contains(&told.len()),
        "as many as wait, and one that rang later: {}",
        told.len()
    );
    assert_eq!(
        told.last(),
        Some(&ChannelNotice::Tick { timer: tick, at: Instant::from_nanos(start + 30 * 5000) })
    );
}

#[test]
fn a_tick_is_due_before_the_next_one_among_the_events_of_its_class() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let reader = bench.reader("none", InboxSpec::default());
    bench.reader("t", InboxSpec::default());
    bench
        .channel
        .set_timer(Instant::ZERO, reader, TimerSpec::Every(Duration::from_nanos(100)))
        .expect("a period");
    bench.publish(0, topic, event().due(Instant::from_nanos(150)));
    bench.publish(0, topic, event().due(Instant::from_nanos(250)));
    let order: Vec<_> = std::iter::from_fn(|| bench.next(100)).map(|it| it.consumer == reader).collect();
    assert_eq!(order, [false, true, false]);
}

#[test]
fn events_that_belong_together_are_delivered_together() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let (door, motion) = (bench.topic("door"), bench.topic("motion"));
    let reader = bench.consumer("alarm", InboxSpec::default());
    let filter = "open".parse().expect("a filter");
    let correlation = |rule| Correlation {
        parts: vec![all("door").filtered(filter), all("motion")],
        rule,
        within: Duration::from_nanos(100),
        incomplete: Incomplete::Report,
    };
    let sequence = bench.channel.correlate(reader, correlation(CorrelationRule::Sequence)).expect("it fits");
    let open = || event().with_fields(FieldSet::new().with("open", true));
    bench.publish(0, motion, event());
    bench.publish(10, door, event());
    bench.publish(20, door, open());
    bench.publish(110, door, event());
    bench.publish(120, motion, event().due(Instant::from_nanos(500)));
    let delivery = bench.next(121).expect("door, then motion").event.expect("an event");
    assert_eq!(
        (delivery.event.topic, delivery.event.sequence, delivery.event.deadline),
        (motion, 2, Instant::from_nanos(500))
    );
    assert_eq!(
        delivery.with.iter().map(|event| (event.topic, event.sequence)).collect::<Vec<_>>(),
        [(door, 2)]
    );
    assert!(bench.next(122).is_none());
    // a door event, but no motion event in time
    bench.publish(200, door, open());
    assert_eq!(bench.channel.next_wake(), Some(Instant::from_nanos(301)));
    assert_eq!(notices(&mut bench, 300), []);
    assert_eq!(notices(&mut bench, 301), [ChannelNotice::Incomplete { correlation: sequence }]);
    bench.publish(302, motion, event());
    assert!(bench.next(303).is_none());
    let none = Correlation {
        parts: Vec::new(),
        rule: CorrelationRule::Any,
        within: Duration::from_nanos(1),
        incomplete: Incomplete::Forget,
    };
    assert_eq!(
        bench.channel.correlate(reader, none),
        Err(ChannelError::Parts { parts: 0, most: MAX_PARTS })
    );
    bench.channel.disconnect(Instant::from_nanos(303), reader);
    bench.publish(304, door, open());
    assert_eq!(bench.channel.next_wake(), None);
}

#[derive(Clone, Debug)]
enum Step {
    Publish,
    Next,
    /// Acknowledges an outstanding delivery.
    Acknowledge(usize),
    Pass(u64),
    Leave(usize),
    Come,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Publish),
        6 => Just(Step::Next),
        4 => (0..8_usize).prop_map(Step::Acknowledge),
        3 => (1..80_u64).prop_map(Step::Pass),
        1 => (0..4_usize).prop_map(Step::Leave),
        1 => Just(Step::Come),
    ]
}

proptest! {
    #[test]
    fn no_event_is_lost_and_none_comes_again_once_it_was_acknowledged(
        steps in prop::collection::vec(step(), 1..150), window in 1..4_usize,
    ) {
        let mut bench = Bench::new(&[("rest", 1)]);
        let topic = bench.topic("t");
        let inbox = InboxSpec { linger: Duration::from_nanos(u64::MAX), ..reliable(100, u32::MAX, window) };
        let spec = ConsumerSpec::new("worker").grouped("workers").with(inbox);
        let mut members = vec![bench.channel.connect(Instant::ZERO, spec.clone()).expect("admitted")];
        bench.subscribe(members[0], "t");
        let (mut now, mut published, mut done) = (0, 0, BTreeSet::new());
        // consumer, number of the delivery, sequence, when
        let mut open: Vec<(ConsumerId, u64, u64, u64)> = Vec::new();
        let deliver = |bench: &mut Bench, open: &mut Vec<_>, done: &BTreeSet<u64>, now: u64| {
            let Some(delivery) = bench.next(now) else { return Ok(false) };
            let event = delivery.event.expect("nothing is dropped");
            let (sequence, number) = (event.event.sequence, event.acknowledgement.expect("asked for"));
            prop_assert!(!done.contains(&sequence), "{} came again", sequence);
            open.retain(|(_, _, other, _): &(ConsumerId, u64, u64, u64)| *other != sequence);
            open.push((delivery.consumer, number, sequence, now));
            prop_assert!(bench.channel.unacknowledged(delivery.consumer) <= window);
            Ok(true)
        };
        for step in steps {
            match step {
                Step::Pass(by) => now += by,
                Step::Publish => {
                    bench.publish(now, topic, event());
                    published += 1;
                }
                Step::Next => {
                    deliver(&mut bench, &mut open, &done, now)?;
                }
                Step::Acknowledge(which) => {
                    bench.channel.advance(Instant::from_nanos(now));
                    let Some((consumer, number, sequence, at)) = open.get(which).copied() else { continue };
                    let alive = members.contains(&consumer) && now < at + 100;
                    let expected = if alive { Acknowledged::Done } else { Acknowledged::Unknown };
                    prop_assert_eq!(bench.channel.acknowledge(consumer, number), expected);
                    if alive {
                        done.insert(sequence);
                        open.remove(which);
                    }
                }
                Step::Leave(which) if which < members.len() => {
                    bench.channel.disconnect(Instant::from_nanos(now), members.remove(which));
                }
                Step::Leave(_) => {}
                Step::Come => {
                    let come = bench.channel.connect(Instant::from_nanos(now), spec.clone()).expect("the same");
                    bench.subscribe(come, "t");
                    members.push(come);
                }
            }
        }
        // at the end a new consumer acknowledges everything
        for member in members {
            bench.channel.disconnect(Instant::from_nanos(now), member);
        }
        let last = bench.channel.connect(Instant::from_nanos(now), spec).expect("the same");
        open.clear();
        while deliver(&mut bench, &mut open, &done, now)? {
            for (_, number, sequence, _) in open.drain(..) {
                prop_assert_eq!(bench.channel.acknowledge(last, number), Acknowledged::Done);
                done.insert(sequence);
            }
        }
        prop_assert_eq!(done, (1..=published).collect::<BTreeSet<u64>>());
    }
}
