//! Tests that several deliveries taken at once for one consumer equal the deliveries that the channel makes
//! one by one.

use crate::common::{Bench, classes, event};
use proptest::prelude::*;
use unisono_eventchannel::*;
use unisono_time::Instant;

#[derive(Clone, Debug)]
enum Step {
    /// Supplier, topic, relative deadline, criticality.
    Publish(usize, usize, Option<u64>, u8),
    /// Asks for this many deliveries, all at one time.
    Next(usize),
    /// Asks for this many deliveries, each a nanosecond after the one before.
    Run(usize),
    Pass(u64),
    Pause(usize),
    Resume(usize),
    /// A supplier leaves.
    Withdraw(usize),
    Disconnect(usize),
}

const CONSUMERS: usize = 4;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..2_usize, 0..2_usize, prop::option::weighted(0.5, 0..40_u64), 0..3_u8)
            .prop_map(|(supplier, topic, due, critical)| Step::Publish(supplier, topic, due, critical)),
        8 => (1..6_usize).prop_map(Step::Next),
        4 => (1..9_usize).prop_map(Step::Run),
        3 => (1..15_u64).prop_map(Step::Pass),
        1 => (0..CONSUMERS).prop_map(Step::Pause),
        2 => (0..CONSUMERS).prop_map(Step::Resume),
        1 => (0..2_usize).prop_map(Step::Withdraw),
        1 => (0..CONSUMERS).prop_map(Step::Disconnect),
    ]
}

/// A consumer's class, group, policies, capacity, and whether it subscribes to one topic only.
type Wish = ((bool, bool), (FullInbox, LateEvents, BetweenSuppliers), usize, bool, bool);

fn wish() -> impl Strategy<Value = Wish> {
    use {BetweenSuppliers as Between, FullInbox as Full, LateEvents as Late};
    let full = prop::sample::select(vec![Full::DropOldest, Full::DropByDeadline, Full::BlockSupplier]);
    let late = prop::sample::select(vec![Late::Deliver, Late::Deliver, Late::Drop, Late::Report]);
    let between = prop::sample::select(vec![Between::Deadlines, Between::Deadlines, Between::Shares]);
    let redelivered = prop::bool::weighted(0.2);
    (
        (any::<bool>(), prop::bool::weighted(0.3)),
        (full, late, between),
        1..12_usize,
        any::<bool>(),
        redelivered,
    )
}

struct Twin {
    channel: EventChannel<crate::common::Bytes>,
    topics: [TopicId; 2],
    suppliers: [SupplierId; 2],
    consumers: Vec<ConsumerId>,
}

fn twin(wishes: &[Wish]) -> Twin {
    let mut bench = Bench::new(&[("few", 1), ("rest", 3)]);
    let topics = ["x/a", "x/b"].map(|name| bench.topic(name));
    let Bench { mut channel, supplier } = bench;
    let other = channel.supplier(Instant::ZERO, None).expect("room");
    topics.iter().for_each(|topic| channel.offer(other, Offer::new(*topic)).expect("no type"));
    let mut consumers = Vec::new();
    for (number, ((few, grouped), (full, late, between), events, one_topic, redelivered)) in
        wishes.iter().enumerate()
    {
        let inbox = InboxSpec {
            class: few.then(|| "few".into()),
            capacity: InboxCapacity { events: *events, bytes: usize::MAX },
            full: *full,
            late: *late,
            between: *between,
            redelivery: redelivered.then_some(Redelivery {
                after: Duration::from_nanos(20),
                attempts: 2,
                window: 4,
            }),
            ..InboxSpec::default()
        };
        let mut spec = ConsumerSpec::new(&number.to_string()).with(inbox);
        spec.group = grouped.then(|| "group".into());
        // the channel refuses a second consumer of a group with other settings
        let Ok(consumer) = channel.connect(Instant::ZERO, spec) else { continue };
        let pattern = if *one_topic { "x/a" } else { "x/+" };
        channel.subscribe(Instant::ZERO, consumer, crate::common::all(pattern)).expect("it fits");
        consumers.push(consumer);
    }
    Twin { channel, topics, suppliers: [supplier, other], consumers }
}

/// Writes a delivery as text, because the events of two channels are different objects.
fn told(
    consumer: ConsumerId,
    notices: &[ChannelNotice],
    event: Option<&DeliveredEvent<crate::common::Bytes>>,
) -> String {
    format!("{consumer:?} {notices:?} {event:?}")
}

proptest! {
    #[test]
    fn deliveries_in_a_row_are_those_one_by_one(
        wishes in prop::collection::vec(wish(), 1..=CONSUMERS), steps in prop::collection::vec(step(), 1..150),
    ) {
        let (mut slow, mut fast) = (twin(&wishes), twin(&wishes));
        let (mut now, mut last) = (0, None);
        for step in steps {
            match step {
                Step::Pass(by) => now += by,
                Step::Publish(supplier, topic, due, critical) => {
                    let done = [&mut slow, &mut fast].map(|twin| {
                        let mut publication = event().critical(Criticality(critical));
                        publication.deadline = due.map(|due| Instant::from_nanos(now + due));
                        let (supplier, topic) = (twin.suppliers[supplier], twin.topics[topic]);
                        format!("{:?}", twin.channel.try_publish(Instant::from_nanos(now), supplier, topic, publication))
                    });
                    prop_assert_eq!(&done[0], &done[1]);
                }
                Step::Next(count) => {
                    for _ in 0..count {
                        let one = slow.channel.next(Instant::from_nanos(now));
                        let one = one.map(|it| told(it.consumer, &it.notices, it.event.as_ref()));
                        let again: Option<ConsumerId> = last.take();
                        let again = again.and_then(|to| Some((to, fast.channel.next_to_same(Instant::from_nanos(now), to)?)));
                        let other = match again {
                            Some((to, event)) => {
                                last = Some(to);
                                Some(told(to, &[], Some(&event)))
                            }
                            None => fast.channel.next(Instant::from_nanos(now)).map(|it| {
                                last = Some(it.consumer);
                                told(it.consumer, &it.notices, it.event.as_ref())
                            }),
                        };
                        prop_assert_eq!(one, other);
                    }
                }
                Step::Run(count) => {
                    let began = now;
                    for _ in 0..count {
                        now += 1;
                        let at = Instant::from_nanos(now);
                        let one = slow.channel.next(at).map(|it| told(it.consumer, &it.notices, it.event.as_ref()));
                        // an alarm that is due meanwhile ends the run
                        let is_quiet = fast.channel.next_wake().is_none_or(|wake| wake > at);
                        let time = if is_quiet { Instant::from_nanos(began) } else { at };
                        let again: Option<ConsumerId> = last;
                        let other = match again.and_then(|to| fast.channel.next_in_run(time, to)) {
                            Some(event) => again.map(|to| told(to, &[], Some(&event))),
                            None => fast.channel.next(at).map(|it| {
                                last = Some(it.consumer);
                                told(it.consumer, &it.notices, it.event.as_ref())
                            }),
                        };
                        prop_assert_eq!(one, other);
                    }
                }
                Step::Pause(which) | Step::Resume(which) | Step::Disconnect(which) => {
                    for twin in [&mut slow, &mut fast] {
                        let Some(consumer) = twin.consumers.get(which).copied() else { continue };
                        match step {
                            Step::Pause(_) => twin.channel.pause(consumer),
                            Step::Resume(_) => twin.channel.resume(consumer),
                            _ => twin.channel.disconnect(Instant::from_nanos(now), consumer),
                        }
                    }
                }
                Step::Withdraw(which) => {
                    [&mut slow, &mut fast].into_iter().for_each(|twin| twin.channel.withdraw(twin.suppliers[which]));
                }
            }
        }
        for consumer in &slow.consumers {
            let of = |twin: &Twin| (twin.channel.counters(*consumer), twin.channel.waiting(*consumer));
            prop_assert_eq!(of(&slow), of(&fast));
        }
        for (id, _) in classes(&[("few", 1), ("rest", 3)]).classes() {
            prop_assert_eq!(slow.channel.served(id), fast.channel.served(id));
        }
        prop_assert_eq!(slow.channel.departed(), fast.channel.departed());
    }
}
