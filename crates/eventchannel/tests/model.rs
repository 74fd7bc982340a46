//! Compares the channel with a naive model: lists that are searched from end to end.

use crate::common::{Bench, event};
use proptest::prelude::*;
use std::collections::BTreeMap;
use unisono_eventchannel::*;
use unisono_time::Instant;

const CONSUMERS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    /// Topic, relative deadline, criticality.
    Publish(usize, Option<u64>, u8),
    Next,
    Pass(u64),
    Pause(usize),
    Resume(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..2_usize, prop::option::weighted(0.8, 0..40_u64), 0..3_u8)
            .prop_map(|(topic, due, critical)| Step::Publish(topic, due, critical)),
        5 => Just(Step::Next),
        3 => (1..15_u64).prop_map(Step::Pass),
        1 => (0..CONSUMERS).prop_map(Step::Pause),
        2 => (0..CONSUMERS).prop_map(Step::Resume),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Item {
    topic: usize,
    sequence: u64,
    deadline: u64,
    critical: u8,
    due: u64,
    arrival: u64,
}

struct Naive {
    full: FullInbox,
    late: LateEvents,
    order: DispatchOrder,
    capacity: usize,
    paused: bool,
    queue: Vec<Item>,
    lost: Vec<(usize, u64, GapCause)>,
    lost_since: u64,
    missed: u64,
}

impl Naive {
    fn lose(&mut self, arrival: u64, item: Item, cause: GapCause) {
        if self.lost.is_empty() {
            self.lost_since = arrival;
        }
        self.lost.push((item.topic, item.sequence, cause));
    }

    fn push(&mut self, now: u64, mut item: Item) {
        let precedes = |other: &&Item| match self.order {
            DispatchOrder::Deadlines => false,
            DispatchOrder::Publication => other.topic == item.topic,
            DispatchOrder::Arrival => true,
        };
        let before = self.queue.iter().filter(precedes).map(|other| other.due).max();
        item.due = item.deadline.max(before.unwrap_or(0));
        self.queue.push(item);
        if self.queue.len() > self.capacity {
            let least = self.queue.iter().map(|item| item.critical).min().expect("not empty");
            let of_least = self.queue.iter().filter(|item| item.critical == least);
            let earliest = of_least.clone().min_by_key(|item| (item.due, item.arrival)).expect("not empty");
            let victim = match self.full {
                FullInbox::DropByDeadline if earliest.due < now => earliest,
                FullInbox::DropByDeadline => {
                    of_least.max_by_key(|item| (item.due, item.arrival)).expect("not empty")
                }
                _ => of_least.min_by_key(|item| item.arrival).expect("not empty"),
            };
            let victim = *victim;
            self.queue.retain(|other| other.arrival != victim.arrival);
            self.lose(item.arrival, victim, GapCause::Full);
        }
    }

    fn turn(&self) -> Option<(u64, u64)> {
        let gap = (!self.lost.is_empty()).then_some((u64::MAX, self.lost_since));
        self.queue.iter().map(|item| (item.due, item.arrival)).min().or(gap)
    }

    fn pop(&mut self, now: u64, arrival: u64) -> Option<(Item, bool)> {
        loop {
            let turn = self.queue.iter().map(|item| (item.due, item.arrival)).min()?;
            let at = self.queue.iter().position(|item| (item.due, item.arrival) == turn).expect("just found");
            let item = self.queue.remove(at);
            let late = item.deadline < now;
            self.missed += u64::from(late);
            match self.late {
                LateEvents::Deliver => {}
                _ if !late => {}
                LateEvents::Drop => continue,
                LateEvents::Report => {
                    self.lose(arrival, item, GapCause::Late);
                    continue;
                }
            }
            return Some((item, late));
        }
    }
}

/// Returns the gaps in the channel's form: for each topic and cause, the first number, the last number and
/// the count.
fn gaps(lost: &mut Vec<(usize, u64, GapCause)>) -> Vec<(usize, GapCause, u64, u64, u64)> {
    let mut gaps: BTreeMap<(usize, GapCause), (u64, u64, u64)> = BTreeMap::new();
    for (topic, sequence, cause) in lost.drain(..) {
        let gap = gaps.entry((topic, cause)).or_insert((sequence, sequence, 0));
        *gap = (gap.0.min(sequence), gap.1.max(sequence), gap.2 + 1);
    }
    gaps.into_iter().map(|((topic, cause), (first, last, lost))| (topic, cause, first, last, lost)).collect()
}

fn full() -> impl Strategy<Value = FullInbox> {
    prop::sample::select(vec![FullInbox::DropOldest, FullInbox::DropByDeadline, FullInbox::BlockSupplier])
}

fn order() -> impl Strategy<Value = DispatchOrder> {
    use DispatchOrder::{Arrival, Deadlines, Publication};
    prop::sample::select(vec![Deadlines, Deadlines, Publication, Arrival])
}

fn late() -> impl Strategy<Value = LateEvents> {
    prop::sample::select(vec![LateEvents::Deliver, LateEvents::Drop, LateEvents::Report])
}

proptest! {
    #[test]
    fn one_class_delivers_what_a_search_through_lists_would(
        specs in prop::collection::vec((full(), late(), 1..5_usize, any::<bool>(), order()), CONSUMERS),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut bench = Bench::new(&[("rest", 1)]);
        let topics = ["x/a", "x/b"].map(|name| bench.topic(name));
        let (mut consumers, mut naive) = (Vec::new(), Vec::new());
        for (number, (full, late, events, one_topic, order)) in specs.iter().enumerate() {
            let spec = InboxSpec {
                capacity: InboxCapacity { events: *events, bytes: usize::MAX },
                full: *full,
                late: *late,
                order: *order,
                ..InboxSpec::default()
            };
            let consumer = bench.consumer(&number.to_string(), spec);
            bench.subscribe(consumer, if *one_topic { "x/a" } else { "x/+" });
            consumers.push(consumer);
            naive.push(Naive {
                full: *full,
                late: *late,
                order: *order,
                capacity: *events,
                paused: false,
                queue: Vec::new(),
                lost: Vec::new(),
                lost_since: 0,
                missed: 0,
            });
        }
        let (mut now, mut arrivals, mut numbers) = (0, 0, [0, 0]);
        for step in steps {
            match step {
                Step::Pass(by) => now += by,
                Step::Pause(which) => {
                    naive[which].paused = true;
                    bench.channel.pause(consumers[which]);
                }
                Step::Resume(which) => {
                    naive[which].paused = false;
                    bench.channel.resume(consumers[which]);
                }
                Step::Publish(topic, due, critical) => {
                    let mut publication = event().critical(Criticality(critical));
                    publication.deadline = due.map(|due| Instant::from_nanos(now + due));
                    let deadline = publication.deadline.map_or(u64::MAX, |deadline| deadline.as_nanos());
                    let asks = |number: &usize| topic == 0 || !specs[*number].3;
                    let blocking = (0..CONSUMERS).filter(asks).find(|number| {
                        naive[*number].full == FullInbox::BlockSupplier && naive[*number].queue.len() >= naive[*number].capacity
                    });
                    let done = bench.channel.try_publish(Instant::from_nanos(now), bench.supplier, topics[topic], publication);
                    if let Some(number) = blocking {
                        prop_assert_eq!(done, Err(PublishError::Full { consumer: number.to_string().into() }));
                        continue;
                    }
                    numbers[topic] += 1;
                    let sequence = numbers[topic];
                    let inboxes = (0..CONSUMERS).filter(asks).count();
                    prop_assert_eq!(done, Ok(Published::Taken { sequence, inboxes }));
                    for number in (0..CONSUMERS).filter(asks) {
                        arrivals += 1;
                        let item = Item { topic, sequence, deadline, critical, due: deadline, arrival: arrivals };
                        naive[number].push(now, item);
                    }
                }
                Step::Next => {
                    let expected = loop {
                        let free = (0..CONSUMERS).filter(|number| !naive[*number].paused);
                        let turns = free.filter_map(|number| Some((naive[number].turn()?, number)));
                        let Some((_, number)) = turns.min() else { break None };
                        arrivals += 1;
                        let popped = naive[number].pop(now, arrivals);
                        let gaps = gaps(&mut naive[number].lost);
                        if popped.is_some() || !gaps.is_empty() {
                            break Some((number, gaps, popped.map(|(item, late)| (item.topic, item.sequence, late))));
                        }
                    };
                    let got = bench.next(now).map(|delivery| {
                        let topic = |id: TopicId| topics.iter().position(|topic| *topic == id).expect("one of the two");
                        let gaps: Vec<_> = delivery.notices.iter().map(|notice| match notice {
                            ChannelNotice::Gap(gap) => (topic(gap.topic), gap.cause, gap.first, gap.last, gap.lost),
                            other => panic!("{other:?}"),
                        }).collect();
                        let event = delivery.event.map(|it| {
                            (topic(it.event.topic), it.event.sequence, it.lateness == Lateness::Late)
                        });
                        let number = consumers.iter().position(|consumer| *consumer == delivery.consumer);
                        (number.expect("one of them"), gaps, event)
                    });
                    prop_assert_eq!(got, expected);
                    // the delivery ends at once
                    bench.channel.finish(Instant::from_nanos(now), None);
                }
            }
        }
        for (consumer, naive) in consumers.iter().zip(&naive) {
            prop_assert_eq!(bench.channel.waiting(*consumer), naive.queue.len());
            let counters = bench.channel.counters(*consumer).expect("it is there");
            prop_assert_eq!(counters.missed, naive.missed);
            prop_assert_eq!(counters.missed, bench.channel.misses(*consumer).map(|(_, missed)| missed).sum::<u64>());
        }
    }
}
