//! Tests deadlines by simulation: on a simulated clock, a server takes exactly the stated execution times.

use crate::common::{Bench, Dice, event};
use proptest::prelude::*;
use unisono_eventchannel::*;
use unisono_time::{Duration, Instant};

/// An event to be published in the simulation.
#[derive(Clone, Copy, Debug)]
struct Coming {
    at: u64,
    topic: usize,
    due: u64,
}

/// Runs the server until all events are delivered. Returns, by topic, the number of deadlines that had passed
/// at the end of a delivery. If `knows` is false, the channel does not see the deadlines, and so serves in
/// order of arrival.
fn missed(
    bench: &mut Bench,
    topics: &[TopicId],
    mut coming: Vec<Coming>,
    took: &[u64],
    knows: bool,
) -> Vec<u64> {
    coming.sort_by_key(|event| event.at);
    let mut missed = vec![0; topics.len()];
    let (mut now, mut next) = (0, 0);
    loop {
        while let Some(arrived) = coming.get(next).filter(|arrived| arrived.at <= now) {
            let mut publication = event().with_fields(FieldSet::new().with("due", arrived.due as i64));
            publication.deadline = knows.then_some(Instant::from_nanos(arrived.due));
            bench.publish(arrived.at, topics[arrived.topic], publication);
            next += 1;
        }
        match bench.next(now) {
            Some(delivery) => {
                let got = delivery.event.expect("nothing is dropped").event;
                let topic = topics.iter().position(|topic| *topic == got.topic).expect("one of them");
                now += took[topic];
                bench.channel.finish(Instant::from_nanos(now), Some(Duration::from_nanos(took[topic])));
                let due = coming_due(&got.fields);
                missed[topic] += u64::from(now > due);
            }
            None => match coming.get(next) {
                Some(arrived) => now = now.max(arrived.at),
                None => return missed,
            },
        }
    }
}

fn coming_due(fields: &FieldSet) -> u64 {
    match fields.field("due") {
        Some(FieldValue::Number(number)) => number.to_f64() as u64,
        _ => panic!("every event says when it is due"),
    }
}

fn roomy(class: &str) -> InboxSpec {
    let capacity = InboxCapacity { events: 1 << 20, bytes: usize::MAX };
    InboxSpec { class: Some(class.into()), capacity, ..InboxSpec::default() }
}

/// Three classes, each loaded with 95 % of its share. Each class has a sensor (one event of 100 us every 10
/// ms), updates (20 events every 50 ms) and video in rounds (all frames of half a second at once, as in the
/// paper's section 3.5). An event is due when the next round of its kind begins. Rounds have random phases
/// and are a little late.
#[test]
fn at_95_percent_load_deadlines_in_classes_miss_at_most_a_twentieth_of_what_arrival_order_misses() {
    const SEED: u64 = 20_020_115;
    const EXECUTION: u64 = 100_000;
    let shares = [("control", 1_u32), ("video", 2), ("bulk", 1)];
    // the period in ms, and the events in each period
    let streams = |class: usize| [(10, 1), (50, 20), (500, if class == 1 { 2125 } else { 937 })];
    let (mut total, mut events) = ([0, 0], 0);
    for seed in 0..3 {
        let mut dice = Dice(SEED + seed);
        let mut coming = Vec::new();
        for (topic, (period, at_once)) in (0..3).flat_map(streams).enumerate() {
            let (period, mut at) = (period * 1_000_000, dice.below(period * 1_000_000));
            while at < 2_000_000_000 {
                coming.extend((0..at_once).map(|_| Coming { at, topic, due: at + period }));
                at += period + dice.below(period / 100);
            }
        }
        events += coming.len();
        for (knows, total) in [true, false].into_iter().zip(&mut total) {
            let mut bench = Bench::new(&shares);
            let topics: Vec<_> = (0..9).map(|at| bench.topic(&at.to_string())).collect();
            for number in 0..9 {
                let execution = ExecutionTime::constant(Duration::from_nanos(EXECUTION));
                bench.reader(&number.to_string(), InboxSpec { execution, ..roomy(shares[number / 3].0) });
            }
            *total += missed(&mut bench, &topics, coming.clone(), &[EXECUTION; 9], knows).iter().sum::<u64>();
        }
    }
    let [deadline, arrival] = total;
    assert!(
        arrival > 1000 && deadline * 20 <= arrival,
        "of {events} events of the seed {SEED} {deadline} miss by deadline, {arrival} by arrival"
    );
}

proptest! {
    /// Some events are kept events: the list has them before all other events of their supplier and topic.
    #[test]
    fn one_suppliers_events_on_one_topic_leave_as_from_a_list_sorted_by_deadline(
        full in prop::sample::select(vec![FullInbox::DropOldest, FullInbox::DropByDeadline]),
        between in prop::sample::select(vec![BetweenSuppliers::Deadlines, BetweenSuppliers::Shares]),
        kept in 0..6_usize,
        steps in prop::collection::vec(prop::option::weighted(0.7, prop::option::of(1..30_u64)), 0..150),
    ) {
        let mut bench = Bench::new(&[("rest", 1)]);
        let topic = TopicSpec::new("t").expect("a name").keeping(HistoryDepth::Last { events: 6 });
        let topic = bench.channel.declare(topic).expect("room");
        bench.channel.offer(bench.supplier, Offer::new(topic)).expect("no type");
        (0..kept).for_each(|_| bench.publish(0, topic, event()));
        let inbox = InboxSpec { full, between, ..roomy("rest") };
        bench.reader("t", inbox);
        let mut list: Vec<_> = (1..=kept as u64).map(|number| (0, number)).collect();
        let mut last = kept as u64;
        for step in steps {
            if let Some(due) = step {
                last += 1;
                list.push((due.unwrap_or(u64::MAX), last));
                list.sort_unstable();
                bench.publish(0, topic, due.map_or(event(), |due| event().due(Instant::from_nanos(due))));
            } else {
                let first = (!list.is_empty()).then(|| list.remove(0).1);
                prop_assert_eq!(bench.next_number(0), first);
            }
        }
        let rest: Vec<_> = std::iter::from_fn(|| bench.next_number(0)).collect();
        prop_assert_eq!(rest, list.into_iter().map(|(_, number)| number).collect::<Vec<_>>());
    }
}

/// Generates a consumer with a reservation: class, execution time, period, deadline.
fn asked() -> impl Strategy<Value = (usize, u64, u64, u64)> {
    (0..3_usize, 1_000..60_000_u64, 100_000..2_000_000_u64, 1..4_u64)
        .prop_map(|(class, execution, period, tightness)| (class, execution, period, period * tightness / 2))
}

proptest! {
    #[test]
    fn what_was_admitted_never_misses_a_deadline_whatever_the_others_do(
        reservations in prop::collection::vec(asked(), 1..12), flood in 1_000..100_000_u64, seed: u64,
    ) {
        let shares = [("a", 3_u32), ("b", 2), ("c", 1)];
        let (mut bench, mut dice) = (Bench::new(&shares), Dice(seed));
        let (mut topics, mut took, mut coming, mut admitted) = (Vec::new(), Vec::new(), Vec::new(), 0);
        // consumers without a reservation have more work than there is time for, and all of it is urgent
        for (class, _) in shares {
            let topic = bench.topic(&format!("flood/{class}"));
            let execution = ExecutionTime::constant(Duration::from_nanos(flood));
            bench.reader(&format!("flood/{class}"), InboxSpec { execution, ..roomy(class) });
            for _ in 0..600 {
                let at = dice.below(20_000_000);
                coming.push(Coming { at, topic: topics.len(), due: at + 1 });
            }
            topics.push(topic);
            took.push(flood);
        }
        for (number, (class, execution, period, deadline)) in reservations.into_iter().enumerate() {
            let reservation = Reservation { period: Duration::from_nanos(period), deadline: Duration::from_nanos(deadline), largest: 1 << 20 };
            let spec = InboxSpec {
                execution: ExecutionTime::constant(Duration::from_nanos(execution)),
                reservation: Some(reservation),
                ..roomy(shares[class].0)
            };
            let name = format!("reserved/{number}");
            let Ok(consumer) = bench.channel.connect(Instant::ZERO, ConsumerSpec::new(&name).with(spec)) else { continue };
            let topic = bench.topic(&name);
            bench.subscribe(consumer, &name);
            admitted += 1;
            let mut at = dice.below(period) * dice.below(2); // in half of the cases the phase is 0
            while at < 20_000_000 {
                coming.push(Coming { at, topic: topics.len(), due: at + deadline });
                at += period + dice.below(2) * dice.below(period / 4);
            }
            topics.push(topic);
            took.push(execution);
        }
        let missed = missed(&mut bench, &topics, coming, &took, true);
        prop_assert!(missed[3..].iter().all(|missed| *missed == 0), "{:?} of {} admitted", &missed[3..], admitted);
    }
}

#[test]
fn a_class_that_is_full_refuses_the_next_consumer_and_takes_it_when_another_has_left() {
    let mut bench = Bench::new(&[("video", 1), ("rest", 1)]);
    let reservation = Some(Reservation {
        period: Duration::from_millis(1),
        deadline: Duration::from_millis(1),
        largest: 1024,
    });
    let execution = ExecutionTime { event: Duration::from_micros(20), kibibyte: Duration::from_micros(80) };
    let spec = InboxSpec { reservation, execution, ..roomy("video") };
    let connect = |bench: &mut Bench| {
        bench.channel.connect(Instant::ZERO, ConsumerSpec::new("viewer").with(spec.clone()))
    };
    let admitted: Vec<_> = std::iter::from_fn(|| connect(&mut bench).ok()).collect();
    // the class is guaranteed half of each ms, less twice the longest event of the class and its share of
    // another one: 2.5 events
    assert_eq!(admitted.len(), 2);
    let said = connect(&mut bench).expect_err("it is full").to_string();
    assert_eq!(
        said,
        "class `video` would need 400000 ns of service within 1000000 ns and is sure of 350000: 50000 ns too much"
    );
    let video = bench.channel.hierarchy().find("video").expect("it is there");
    assert!((bench.channel.utilization(video) - 0.2).abs() < 1e-9);
    bench.channel.disconnect(Instant::ZERO, admitted[0]);
    connect(&mut bench).expect("one has left");
}
