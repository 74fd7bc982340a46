//! Tests that the work of one call and the resources of one tenant are bounded. Work is counted in steps, not
//! measured as time.

use crate::common::{Bench, sized};
use proptest::prelude::*;
use std::collections::BTreeMap;
use unisono_eventchannel::*;
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_time::{Duration, Instant};

/// The maximum number of steps of one call: a few pieces of kept events, and the alarms that one call runs.
const MAX_WORK: usize = 1024;

fn channel(limits: ChannelLimits) -> EventChannel<Vec<u8>> {
    let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
    EventChannel::new(tree.expect("it is sound"), limits)
}

fn interest(pattern: &str) -> Interest {
    Interest::in_topics(pattern.parse().expect("a pattern"))
}

fn retain(channel: &mut EventChannel<Vec<u8>>, supplier: SupplierId, name: &str, payload: &[u8]) -> TopicId {
    let topic = channel.declare(TopicSpec::new(name).expect("a name")).expect("room");
    channel.offer(supplier, Offer::new(topic)).expect("no type");
    let publication = Publication { retention: Retention::Retain, ..Publication::new(payload.to_vec()) };
    channel.try_publish(Instant::from_nanos(1), supplier, topic, publication).expect("it is kept");
    topic
}

fn consumer(channel: &mut EventChannel<Vec<u8>>, events: usize) -> ConsumerId {
    let capacity = InboxCapacity { events, bytes: 1 << 20 };
    let inbox = InboxSpec { capacity, ..InboxSpec::default() };
    channel.connect(Instant::from_nanos(1), ConsumerSpec::new("reader").with(inbox)).expect("room")
}

#[test]
fn a_subscription_to_all_that_is_kept_is_given_it_in_pieces_and_loses_nothing() {
    let mut channel = channel(ChannelLimits::default());
    let supplier = channel.supplier(Instant::from_nanos(1), None).expect("room");
    for number in 0..20_000 {
        retain(&mut channel, supplier, &format!("t/{number}"), &[7]);
    }
    let reader = consumer(&mut channel, 64);
    channel.take_work();
    for _ in 0..100 {
        channel
            .subscribe_with(Instant::from_nanos(2), reader, interest("t/#"), PastEvents::New)
            .expect("room");
        assert!(channel.take_work() < MAX_WORK);
    }
    assert!(channel.waiting(reader) <= 64, "as many as the queue is half of");
    let mut came = 0;
    while let Some(delivery) = channel.next(Instant::from_nanos(3)) {
        assert!(channel.take_work() < MAX_WORK && channel.waiting(reader) <= 64);
        assert!(delivery.notices.is_empty(), "nothing is lost: {:?}", delivery.notices);
        came += usize::from(delivery.event.is_some_and(|event| event.retained));
    }
    assert_eq!(came, 20_000, "each once, although a hundred subscriptions ask for it");
}

#[test]
fn a_consumer_that_takes_nothing_holds_half_a_queue_of_the_past_and_costs_no_more_steps() {
    let mut channel = channel(ChannelLimits::default());
    let supplier = channel.supplier(Instant::from_nanos(1), None).expect("room");
    for number in 0..1000 {
        retain(&mut channel, supplier, &format!("t/{number}"), &[7]);
    }
    let reader = consumer(&mut channel, 64);
    channel.pause(reader);
    channel.subscribe(Instant::from_nanos(2), reader, interest("#")).expect("room");
    assert_eq!(channel.waiting(reader), 32);
    channel.take_work();
    assert!(channel.next(Instant::from_nanos(3)).is_none());
    assert_eq!((channel.take_work(), channel.next_wake()), (0, None), "nobody waits for it in a loop");
    channel.resume(reader);
    let came = std::iter::from_fn(|| channel.next(Instant::from_nanos(4))).count();
    assert_eq!(came, 1000);
}

/// Makes a topic that keeps 100 events, and publishes 100 events on it.
fn with_history(channel: &mut EventChannel<Vec<u8>>) -> (SupplierId, TopicId) {
    let spec = TopicSpec::new("h").expect("a name").keeping(HistoryDepth::Last { events: 100 });
    let topic = channel.declare(spec).expect("room");
    let supplier = channel.supplier(Instant::from_nanos(1), None).expect("room");
    channel.offer(supplier, Offer::new(topic)).expect("no type");
    for _ in 0..100 {
        channel.try_publish(Instant::from_nanos(1), supplier, topic, Publication::new(vec![])).expect("room");
    }
    (supplier, topic)
}

#[test]
fn a_consumer_whose_queue_cannot_hold_what_a_topic_keeps_is_told_when_it_subscribes() {
    for (events, told) in [(64, true), (100, false)] {
        let mut channel = channel(ChannelLimits::default());
        with_history(&mut channel);
        let reader = consumer(&mut channel, events);
        channel.subscribe(Instant::from_nanos(2), reader, interest("#")).expect("room");
        let first = channel.next(Instant::from_nanos(3)).expect("it is kept");
        let mismatches = first.notices.iter().filter_map(|notice| match notice {
            ChannelNotice::Mismatch { mismatch, .. } => Some(mismatch.to_string()),
            _ => None,
        });
        let text = "queue: the topic keeps the last 100 events, and the queue holds 64 events; \
                    ask for a longer queue, or let suppliers wait";
        assert_eq!(mismatches.collect::<Vec<_>>(), if told { vec![text] } else { vec![] });
    }
}

#[test]
fn a_supplier_waits_for_a_blocking_consumer_that_has_not_taken_what_was_kept_before() {
    let mut channel = channel(ChannelLimits::default());
    let (supplier, topic) = with_history(&mut channel);
    let capacity = InboxCapacity { events: 64, bytes: 1 << 20 };
    let inbox = InboxSpec { capacity, full: FullInbox::BlockSupplier, ..InboxSpec::default() };
    let reader =
        channel.connect(Instant::from_nanos(1), ConsumerSpec::new("reader").with(inbox)).expect("room");
    channel.subscribe(Instant::from_nanos(2), reader, interest("#")).expect("room");
    let (mut numbers, mut published) = (Vec::new(), 0);
    while published < 50 || channel.waiting(reader) > 0 {
        let event = Publication::new(vec![]);
        if published < 50 && channel.try_publish(Instant::from_nanos(2), supplier, topic, event).is_ok() {
            published += 1;
            continue;
        }
        let delivery = channel.next(Instant::from_nanos(3)).expect("it waits");
        assert!(delivery.notices.is_empty(), "nothing is lost: {:?}", delivery.notices);
        numbers.extend(delivery.event.map(|it| it.event.sequence));
    }
    // new events displace kept ones while the consumer reads the history of 100, and are delivered as new
    // events
    assert!(numbers.is_sorted() && numbers.len() >= 100 && numbers.last() == Some(&150), "{numbers:?}");
}

/// Makes a channel with a paused consumer of all topics, whose queue holds one event, and with suppliers of
/// `topics` topics.
fn overflowing(topics: u32) -> (EventChannel<Vec<u8>>, ConsumerId) {
    let mut channel = channel(ChannelLimits::default());
    let reader = consumer(&mut channel, 1);
    channel.subscribe(Instant::from_nanos(1), reader, interest("#")).expect("room");
    channel.pause(reader);
    for number in 0..topics {
        let topic = channel.declare(TopicSpec::new(&format!("t/{number}")).expect("a name")).expect("room");
        let supplier = channel.supplier(Instant::from_nanos(1), None).expect("room");
        channel.offer(supplier, Offer::new(topic)).expect("no type");
        let publication =
            Publication { deadline: Some(Instant::from_nanos(1)), ..Publication::new(Vec::new()) };
        channel.try_publish(Instant::from_nanos(1), supplier, topic, publication).expect("taken");
        channel.withdraw(supplier);
        channel.take_work(); // as a broker does after each request; departures are reported in portions
    }
    (channel, reader)
}

#[test]
fn gaps_of_many_topics_and_suppliers_are_few_notices_that_hide_no_loss() {
    let (mut channel, reader) = overflowing(1000);
    channel.resume(reader);
    let notices: Vec<ChannelNotice> = std::iter::from_fn(|| channel.next(Instant::from_nanos(2)))
        .flat_map(|delivery| delivery.notices)
        .collect();
    let lost = notices.iter().map(|notice| match notice {
        ChannelNotice::Gap(gap) => gap.lost,
        ChannelNotice::FurtherGaps { lost } => *lost,
        _ => 0,
    });
    assert_eq!(lost.sum::<u64>(), 999);
    let gaps = notices.iter().filter(|notice| matches!(notice, ChannelNotice::Gap(_))).count();
    assert!((1..=32).contains(&gaps), "{gaps} gaps");
    let gone = notices.iter().filter(|notice| matches!(notice, ChannelNotice::Gone { .. })).count();
    assert!((1..=65).contains(&gone), "{gone} departed suppliers");
}

#[test]
fn missed_deadlines_of_many_topics_have_few_counters_and_count_in_full() {
    let (mut channel, reader) = overflowing(0);
    channel.resume(reader);
    let supplier = channel.supplier(Instant::from_nanos(1), None).expect("room");
    for number in 0..1000 {
        let topic = channel.declare(TopicSpec::new(&format!("t/{number}")).expect("a name")).expect("room");
        channel.offer(supplier, Offer::new(topic)).expect("no type");
        let publication =
            Publication { deadline: Some(Instant::from_nanos(1)), ..Publication::new(Vec::new()) };
        channel.try_publish(Instant::from_nanos(1), supplier, topic, publication).expect("taken");
        assert!(channel.next(Instant::from_nanos(2)).is_some_and(|delivery| delivery.event.is_some()));
    }
    assert_eq!(channel.misses(reader).map(|(_, missed)| missed).sum::<u64>(), 1000);
    assert!(channel.misses(reader).count() <= 257);
}

proptest! {
    /// Kept events of a topic are delivered before its later publications, even while a reader is behind, and
    /// each event is delivered once.
    #[test]
    fn kept_events_precede_new_ones_of_their_topic(
        kept in prop::collection::vec(0..4_usize, 0..60), later in prop::collection::vec(0..4_usize, 0..20),
        queue in 1..8_usize, takes in 0..5_usize,
    ) {
        let mut channel = channel(ChannelLimits::default());
        let supplier = channel.supplier(Instant::from_nanos(1), None).expect("room");
        let topics: Vec<_> = (0..4).map(|number| {
            let spec = TopicSpec::new(&number.to_string()).expect("a name");
            let topic = channel.declare(spec.keeping(HistoryDepth::Last { events: 80 })).expect("room");
            channel.offer(supplier, Offer::new(topic)).expect("no type");
            topic
        }).collect();
        let publish = |channel: &mut EventChannel<Vec<u8>>, topic: usize| {
            let published = channel.try_publish(Instant::from_nanos(2), supplier, topics[topic], Publication::new(vec![]));
            assert!(matches!(published, Ok(Published::Taken { .. })));
        };
        kept.iter().for_each(|topic| publish(&mut channel, *topic));
        // kept events fill at most half of the queue, so that new events always have room
        let reader = consumer(&mut channel, 2 * queue + 100);
        channel.subscribe(Instant::from_nanos(3), reader, interest("+")).expect("room");
        let mut came: BTreeMap<TopicId, Vec<u64>> = BTreeMap::new();
        let mut take = |channel: &mut EventChannel<Vec<u8>>, most: usize| {
            for _ in 0..most {
                let Some(delivery) = channel.next(Instant::from_nanos(4)) else { break };
                assert!(delivery.notices.is_empty(), "{:?}", delivery.notices);
                let event = delivery.event.expect("an event").event;
                came.entry(event.topic).or_default().push(event.sequence);
            }
        };
        for topic in &later {
            take(&mut channel, takes);
            publish(&mut channel, *topic);
        }
        take(&mut channel, usize::MAX);
        for (number, topic) in topics.iter().enumerate() {
            let all = kept.iter().chain(&later).filter(|it| **it == number).count() as u64;
            let expected: Vec<u64> = (1..=all).collect();
            prop_assert_eq!(came.get(topic).cloned().unwrap_or_default(), expected);
        }
    }

    /// No sequence of operations gives a tenant more than its limits, and in the end all its resources are
    /// released.
    #[test]
    fn no_tenant_has_more_than_its_limits(steps in prop::collection::vec((1..3_u32, 0..6_u8, any::<u8>()), 0..80)) {
        let small = TenantLimits { topics: 3, suppliers: 2, consumers: 2, ..TenantLimits::default() };
        let tenant = TenantLimits { subscriptions: 4, operations: 6, rings: 20, ..small };
        let mut channel = channel(ChannelLimits { tenant, ..ChannelLimits::default() });
        let (mut suppliers, mut consumers) = (Vec::new(), Vec::new());
        for (tenant, step, which) in steps {
            let (tenant, now) = (TenantId(tenant), Instant::from_nanos(1));
            match step {
                0 => {
                    let spec = TopicSpec::new(&format!("{}/{}", tenant.0, which % 8)).expect("a name");
                    let declared = channel.declare_by((tenant, &KeepingTerms::default()), spec);
                    // unused topics are retired to make room
                    prop_assert!(declared.is_ok());
                }
                1 => suppliers.extend(channel.supplier_of(tenant, now, None).ok().map(|it| (tenant, it))),
                2 => {
                    let spec = ConsumerSpec { tenant, ..ConsumerSpec::new("c") };
                    consumers.extend(channel.connect(now, spec).ok().map(|it| (tenant, it, [0; 3])));
                }
                3 if !consumers.is_empty() => {
                    let at = usize::from(which) % consumers.len();
                    let filter: ContentFilter = "a in (1, 2)".parse().expect("a filter");
                    let asked = channel.subscribe(now, consumers[at].1, interest("#").filtered(filter));
                    let timer = channel.set_timer(now, consumers[at].1, TimerSpec::Every(Duration::from_millis(100)));
                    consumers[at].2[0] += usize::from(asked.is_ok());
                    consumers[at].2[1] += usize::from(timer.is_ok());
                }
                4 if !suppliers.is_empty() => {
                    let (_, gone) = suppliers.swap_remove(usize::from(which) % suppliers.len());
                    channel.withdraw(gone);
                }
                5 if !consumers.is_empty() => {
                    let (_, gone, _) = consumers.swap_remove(usize::from(which) % consumers.len());
                    channel.disconnect(now, gone);
                }
                _ => {}
            }
            for tenant in [TenantId(1), TenantId(2)] {
                let theirs = || consumers.iter().filter(|(of, ..)| *of == tenant);
                prop_assert!(suppliers.iter().filter(|(of, _)| *of == tenant).count() <= 2);
                prop_assert!(theirs().count() <= 2);
                // two operations each: three subscriptions, and two timers that ring ten times a second
                prop_assert!(theirs().map(|(.., counts)| counts[0]).sum::<usize>() <= 3);
                prop_assert!(theirs().map(|(.., counts)| counts[1]).sum::<usize>() <= 2);
            }
        }
        suppliers.drain(..).for_each(|(_, supplier)| channel.withdraw(supplier));
        consumers.drain(..).for_each(|(_, consumer, _)| channel.disconnect(Instant::from_nanos(1), consumer));
        channel.retire_unused();
        prop_assert_eq!(channel.named(), 0);
        for tenant in [TenantId(1), TenantId(2)] {
            for number in 0..2 {
                prop_assert!(channel.supplier_of(tenant, Instant::from_nanos(1), None).is_ok(), "{} came back", number);
            }
        }
    }

    #[test]
    fn who_asks_for_a_topic_is_found_as_a_look_at_all_subscriptions_finds_it(
        patterns in prop::collection::vec(("(a|b|[+])(/(a|b|[+]))?(/#)?", any::<bool>(), any::<bool>()), 0..30),
        gone in prop::collection::vec(any::<bool>(), 30), name in "(a|b)(/(a|b)){0,2}",
    ) {
        let mut index = SubscriptionIndex::default();
        let mut all = BTreeMap::new();
        for (number, (pattern, typed, filtered)) in (0..).zip(patterns) {
            let mut interest = interest(&pattern);
            if typed {
                interest = interest.typed("T");
            }
            if filtered {
                interest = interest.filtered("x > 1".parse().expect("a filter"));
            }
            index.insert(SubscriptionId(number), interest.clone());
            all.insert(SubscriptionId(number), interest);
        }
        for (number, _) in gone.iter().enumerate().filter(|(_, gone)| **gone) {
            index.remove(SubscriptionId(number as u32));
            all.remove(&SubscriptionId(number as u32));
        }
        for event_type in [None, Some("T"), Some("U")] {
            let mut found: Vec<_> = index.of_topic(&name, event_type).map(|(id, _)| id).collect();
            found.sort_unstable();
            let asks = all.iter().filter(|(_, interest)| interest.asks_for(&name, event_type));
            prop_assert_eq!(found, asks.map(|(id, _)| *id).collect::<Vec<_>>());
        }
    }
}

#[test]
fn timers_of_one_tenant_share_a_rate_and_few_ring_in_one_call() {
    let mut channel = channel(ChannelLimits::default());
    let spec = ConsumerSpec { tenant: TenantId(1), ..ConsumerSpec::new("clock") };
    let shortest = TimerSpec::Every(Duration::from_micros(100));
    let clocks: Vec<_> =
        (0..50).map(|_| channel.connect(Instant::ZERO, spec.clone()).expect("room")).collect();
    let set =
        clocks.iter().filter(|clock| channel.set_timer(Instant::ZERO, **clock, shortest).is_ok()).count();
    assert_eq!(set, 2, "20,000 rings in a second");
    let refused = channel.set_timer(Instant::ZERO, clocks[9], shortest).expect_err("too often").to_string();
    assert!(refused.contains("20000 rings of timers in a second"), "{refused}");
    let other = ConsumerSpec { tenant: TenantId(2), ..spec };
    let other = channel.connect(Instant::ZERO, other).expect("room");
    channel.set_timer(Instant::ZERO, other, shortest).expect("another tenant has its own rate");
    clocks.iter().for_each(|clock| channel.disconnect(Instant::ZERO, *clock));
    let again =
        channel.connect(Instant::ZERO, ConsumerSpec { tenant: TenantId(1), ..ConsumerSpec::new("c") });
    channel.set_timer(Instant::ZERO, again.expect("room"), shortest).expect("the rate came back");
    channel.take_work();
    // a second late
    channel.advance(Instant::from_secs(1));
    assert!(channel.take_work() <= MAX_WORK);
    assert!(
        channel.next_wake().is_some_and(|wake| wake <= Instant::from_secs(1)),
        "the rest rings in later calls"
    );
}

#[test]
fn events_that_wait_for_others_have_the_bound_of_the_queue() {
    for rule in [CorrelationRule::All, CorrelationRule::Sequence] {
        let mut bench = Bench::new(&[("rest", 1)]);
        let topics: Vec<_> = (0..31).map(|at| bench.topic(&at.to_string())).collect();
        let inbox =
            InboxSpec { capacity: InboxCapacity { events: 8, bytes: 10_000 }, ..InboxSpec::default() };
        let consumer =
            bench.channel.connect(Instant::ZERO, ConsumerSpec::new("waits").with(inbox)).expect("room");
        let parts = (0..31).map(|at| interest(&at.to_string())).chain([interest("never")]).collect();
        let incomplete = Incomplete::Report;
        let correlation = Correlation { parts, rule, within: Duration::from_nanos(1 << 62), incomplete };
        bench.channel.correlate(consumer, correlation).expect("room");
        let mut reported = 0;
        for topic in topics {
            bench.publish(1, topic, sized(4000));
            while let Some(delivery) = bench.channel.next(Instant::from_nanos(9)) {
                reported += delivery.notices.len();
            }
        }
        assert!(bench.channel.correlating_bytes(consumer) <= 10_000, "{rule:?}");
        assert!(reported > 0, "{rule:?}: what was given up is told");
    }
}

#[test]
fn fields_count_against_the_bytes_of_a_queue() {
    let mut channel = channel(ChannelLimits::default());
    let supplier = channel.supplier(Instant::from_nanos(1), None).expect("room");
    let topic = channel.declare(TopicSpec::new("t").expect("a name")).expect("room");
    channel.offer(supplier, Offer::new(topic)).expect("no type");
    let capacity = InboxCapacity { events: 1000, bytes: 100_000 };
    let inbox = InboxSpec { capacity, ..InboxSpec::default() };
    let reader =
        channel.connect(Instant::from_nanos(1), ConsumerSpec::new("reader").with(inbox)).expect("room");
    channel.subscribe(Instant::from_nanos(1), reader, interest("t")).expect("room");
    let text = "x".repeat(20_000);
    for _ in 0..100 {
        let fields = FieldSet::new().with("long", text.as_str());
        channel
            .try_publish(
                Instant::from_nanos(2),
                supplier,
                topic,
                Publication::new(vec![]).with_fields(fields),
            )
            .expect("room");
    }
    assert_eq!(
        channel.waiting(reader),
        5,
        "each counts as its text, but for the bytes that any event may have"
    );
}
