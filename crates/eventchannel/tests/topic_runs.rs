//! Compares the number of inboxes that an event reaches with the number of consumers whose interests match,
//! while subscriptions come and go between events of one topic.

use crate::common::{Bench, event};
use proptest::prelude::*;
use unisono_eventchannel::*;
use unisono_time::Instant;

const PATTERNS: [&str; 3] = ["x/a", "x/+", "#"];
const TOPICS: [&str; 2] = ["x/a", "x/b"];

#[derive(Clone, Debug)]
enum Step {
    /// A pattern, the least value that its filter passes, and whether the consumer takes events of other
    /// channels.
    Subscribe(usize, Option<i64>, bool),
    /// A subscription, counted from the oldest.
    Unsubscribe(usize),
    /// A topic, a value, and whether the event comes from another channel.
    Publish(usize, i64, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..PATTERNS.len(), prop::option::weighted(0.3, 0..3_i64), any::<bool>())
            .prop_map(|(pattern, least, all)| Step::Subscribe(pattern, least, all)),
        1 => any::<usize>().prop_map(Step::Unsubscribe),
        12 => (prop::sample::select(vec![0, 0, 0, 1_usize]), 0..3_i64, prop::bool::weighted(0.1))
            .prop_map(|(topic, value, remote)| Step::Publish(topic, value, remote)),
    ]
}

proptest! {
    #[test]
    fn each_event_reaches_the_consumers_whose_interests_match(steps in prop::collection::vec(step(), 1..120)) {
        let mut bench = Bench::new(&[("rest", 1)]);
        let topics = TOPICS.map(|name| bench.topic(name));
        let remote = bench.channel.supplier(Instant::ZERO, None).expect("room");
        for topic in topics {
            let offer = Offer { origin: EventOrigin::Remote, ..Offer::new(topic) };
            bench.channel.offer(remote, offer).expect("no type");
        }
        let mut subscriptions: Vec<(SubscriptionId, Interest, bool)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Subscribe(pattern, least, all) => {
                    let mut interest = crate::common::all(PATTERNS[pattern]);
                    if let Some(least) = least {
                        interest = interest.filtered(format!("value >= {least}").parse().expect("a filter"));
                    }
                    let origins = if all { AcceptedOrigins::All } else { AcceptedOrigins::Local };
                    let consumer = bench.consumer(&number.to_string(), InboxSpec { origins, ..InboxSpec::default() });
                    let id = bench.channel.subscribe(Instant::ZERO, consumer, interest.clone()).expect("it fits");
                    subscriptions.push((id, interest, all));
                }
                Step::Unsubscribe(which) => {
                    if !subscriptions.is_empty() {
                        let (id, ..) = subscriptions.remove(which % subscriptions.len());
                        bench.channel.unsubscribe(id);
                    }
                }
                Step::Publish(topic, value, is_remote) => {
                    let fields = FieldSet::new().with("value", value);
                    let supplier = if is_remote { remote } else { bench.supplier };
                    let matching = subscriptions.iter().filter(|(_, interest, all)| {
                        interest.matches(TOPICS[topic], None, &fields) && (*all || !is_remote)
                    });
                    let expected = matching.count();
                    let event = event().with_fields(fields.clone());
                    let done = bench.channel.try_publish(Instant::ZERO, supplier, topics[topic], event);
                    let Ok(Published::Taken { inboxes, .. }) = done else { panic!("{done:?}") };
                    prop_assert_eq!(inboxes, expected);
                }
            }
        }
    }
}

#[test]
fn a_topic_of_another_type_reaches_the_consumers_of_that_type() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let consumer = bench.consumer("c", InboxSpec::default());
    let heat = crate::common::all("t").typed("heat");
    bench.channel.subscribe(Instant::ZERO, consumer, heat).expect("it may come");
    let reached = |bench: &mut Bench| {
        let done = bench.channel.try_publish(Instant::ZERO, bench.supplier, topic, event());
        let Ok(Published::Taken { inboxes, .. }) = done else { panic!("{done:?}") };
        inboxes
    };
    assert_eq!(reached(&mut bench), 0);
    bench.channel.withdraw(bench.supplier);
    let typed = TopicSpec::new("t").expect("a name").typed("heat");
    assert_eq!(bench.channel.declare(typed).expect("nobody declares it"), topic);
    bench.supplier = bench.channel.supplier(Instant::ZERO, None).expect("room");
    let offer = Offer { event_type: Some("heat".into()), ..Offer::new(topic) };
    bench.channel.offer(bench.supplier, offer).expect("its type");
    assert_eq!(reached(&mut bench), 1);
}
