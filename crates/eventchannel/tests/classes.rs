//! Tests changes of classes and weights while events wait: nothing is lost, and guarantees remain valid.

use crate::common::{Bench, classes, event};
use proptest::prelude::*;
use std::collections::BTreeMap;
use unisono_eventchannel::*;
use unisono_time::{Duration, Instant};

const NOW: Instant = Instant::ZERO;

fn of_class(class: &str) -> InboxSpec {
    InboxSpec { class: Some(class.into()), ..InboxSpec::default() }
}

fn change(bench: &mut Bench, hierarchy: Hierarchy) -> Result<(), ClassChangeError> {
    let change = bench.channel.check_classes(hierarchy)?;
    bench.channel.change_classes(NOW, change);
    Ok(())
}

/// Returns the number of deliveries to each of two consumers among the next `count` deliveries.
fn served(bench: &mut Bench, readers: [ConsumerId; 2], count: usize) -> [usize; 2] {
    let next: Vec<_> = (0..count).map(|_| bench.next(0).expect("events wait").consumer).collect();
    readers.map(|reader| next.iter().filter(|consumer| **consumer == reader).count())
}

#[test]
fn new_weights_hold_for_events_that_wait_and_none_is_lost() {
    let mut bench = Bench::new(&[("a", 3), ("b", 1)]);
    let capacity = InboxCapacity { events: 2000, bytes: 1 << 20 };
    let readers = ["a", "b"].map(|class| bench.reader("t", InboxSpec { capacity, ..of_class(class) }));
    let topic = bench.topic("t");
    (0..1000).for_each(|_| bench.publish(0, topic, event()));
    assert_eq!(served(&mut bench, readers, 400), [300, 100]);
    change(&mut bench, classes(&[("a", 1), ("b", 4)])).expect("both classes stay");
    assert_eq!(served(&mut bench, readers, 500), [100, 400]);
    // a new class before the others changes the numbers of all classes
    change(&mut bench, classes(&[("first", 7), ("b", 1), ("a", 1)])).expect("both classes stay");
    assert_eq!(served(&mut bench, readers, 400), [200, 200]);
    assert_eq!(served(&mut bench, readers, 700), [400, 300]);
    assert_eq!(bench.next(0).map(|it| it.consumer), None, "each of the 2000 events came once");
}

#[test]
fn a_consumer_whose_class_is_gone_goes_on_in_the_default_class() {
    let mut bench = Bench::new(&[("a", 1), ("b", 1)]);
    let reader = bench.reader("t", of_class("a"));
    let topic = bench.topic("t");
    (0..3).for_each(|_| bench.publish(0, topic, event()));
    assert_eq!(bench.next_number(0), Some(1));
    let root = ClassSpec::new("all").with([ClassSpec::new("c"), ClassSpec::new("d")]);
    let refused = change(&mut bench, Hierarchy::new(root).expect("unique names")).expect_err("no default");
    assert_eq!(refused, ClassChangeError::InUse { class: "a".to_owned() });
    assert_eq!(bench.next_number(0), Some(2), "the refusal changed nothing");
    change(&mut bench, classes(&[("c", 1), ("rest", 1)])).expect("there is a default class");
    assert_eq!(bench.next_number(0), Some(3));
    bench.publish(0, topic, event());
    assert_eq!(bench.next_number(0), Some(4));
    let rest = bench.channel.hierarchy().find("rest").expect("it is there");
    assert_eq!(
        bench.channel.inboxes().map(|it| (it.class, it.members)).next(),
        Some((rest, vec![reader]))
    );
    bench.channel.connect(NOW, ConsumerSpec::new("new").with(of_class("c"))).expect("a new class");
    bench.channel.connect(NOW, ConsumerSpec::new("old").with(of_class("a"))).expect_err("it is gone");
}

#[test]
fn a_change_that_breaks_a_guarantee_is_refused() {
    let mut bench = Bench::new(&[("a", 3), ("b", 1)]);
    let (period, deadline) = (Duration::from_millis(1), Duration::from_millis(100));
    let reservation = Some(Reservation { period, deadline, largest: 0 });
    let execution = ExecutionTime::constant(Duration::from_micros(400));
    bench.consumer("reserved", InboxSpec { execution, reservation, ..of_class("a") });
    let refused = change(&mut bench, classes(&[("a", 1), ("b", 3)])).expect_err("0.4 of 0.25");
    assert!(
        matches!(refused, ClassChangeError::Admission(AdmissionError::Utilization { .. })),
        "{refused}"
    );
    assert_eq!(bench.channel.hierarchy().share(bench.channel.hierarchy().find("a").expect("there")), 0.75);
    change(&mut bench, classes(&[("a", 9), ("b", 1)])).expect("more than before");
    let request = QualityRequest { share: Some(0.1), ..QualityRequest::default() };
    bench.consumer("asks", InboxSpec { request, ..of_class("b") });
    let refused = change(&mut bench, classes(&[("a", 99), ("b", 1)])).expect_err("0.1 of 0.01");
    assert!(refused.to_string().contains("the consumer `asks` of class `b`"), "{refused}");
}

proptest! {
    /// The model: one list of numbers for each consumer.
    #[test]
    fn every_consumer_gets_each_event_once_and_in_order_whatever_changes(
        steps in prop::collection::vec((0..12_u32, 1..9_u32, 1..9_u32), 1..120),
    ) {
        let mut bench = Bench::new(&[("a", 1), ("b", 1), ("rest", 1)]);
        let readers = ["a", "b", "rest"].map(|class| bench.reader("t", of_class(class)));
        let topic = bench.topic("t");
        let mut expected: BTreeMap<ConsumerId, Vec<u64>> = readers.iter().map(|it| (*it, vec![])).collect();
        let mut got = expected.clone();
        let mut published = 0;
        let take = |bench: &mut Bench, got: &mut BTreeMap<ConsumerId, Vec<u64>>| {
            let Some(delivery) = bench.next(0) else { return false };
            let number = delivery.event.expect("no gap").event.sequence;
            got.get_mut(&delivery.consumer).expect("a reader").push(number);
            true
        };
        for (what, one, other) in steps {
            match what {
                0 => change(&mut bench, classes(&[("a", one), ("b", other), ("rest", 1)])).expect("a default"),
                1 => change(&mut bench, classes(&[("b", one), ("rest", other)])).expect("a default"),
                2 => change(&mut bench, classes(&[("new", one), ("rest", other), ("a", 2)])).expect("a default"),
                3 => bench.channel.pause(readers[one as usize % 3]),
                4 => bench.channel.resume(readers[one as usize % 3]),
                5..8 => {
                    published += 1;
                    bench.publish(0, topic, event());
                    expected.values_mut().for_each(|list| list.push(published));
                }
                _ => drop(take(&mut bench, &mut got)),
            }
        }
        readers.into_iter().for_each(|reader| bench.channel.resume(reader));
        while take(&mut bench, &mut got) {}
        prop_assert_eq!(got, expected);
    }
}
