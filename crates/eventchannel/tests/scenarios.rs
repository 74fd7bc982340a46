//! Tests the channel's guarantees, one in each test.

use crate::common::{Bench, Bytes, all, classes, event, sized};
use std::sync::Arc;
use unisono_eventchannel::*;
use unisono_time::{Duration, Instant};

fn gaps(delivery: &Delivery<Bytes>) -> Vec<(u64, u64, u64, GapCause)> {
    let gap = |notice: &ChannelNotice| match notice {
        ChannelNotice::Gap(gap) => Some((gap.first, gap.last, gap.lost, gap.cause)),
        _ => None,
    };
    delivery.notices.iter().filter_map(gap).collect()
}

fn small(events: usize, full: FullInbox) -> InboxSpec {
    InboxSpec { capacity: InboxCapacity { events, bytes: 1 << 20 }, full, ..InboxSpec::default() }
}

#[test]
fn an_event_reaches_those_who_asked_for_it_once() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("plant/1/hot");
    let twice = bench.consumer("twice", InboxSpec::default());
    let first = bench.subscribe(twice, "plant/#");
    bench.subscribe(twice, "plant/+/hot");
    let other = bench.consumer("other", InboxSpec::default());
    let filter = "level > 3".parse().expect("a filter");
    bench.channel.subscribe(Instant::ZERO, other, all("plant/#").filtered(filter)).expect("it fits");
    bench.publish(5, topic, event().with_fields(FieldSet::new().with("level", 3)));
    let delivery = bench.next(6).expect("an event waits");
    let got = delivery.event.expect("an event");
    assert_eq!((delivery.consumer, got.subscription, got.event.sequence), (twice, first, 1));
    assert_eq!(
        (got.event.published, got.lateness, got.retained),
        (Instant::from_nanos(5), Lateness::InTime, false)
    );
    assert!(bench.next(7).is_none());
    bench.publish(8, topic, event().with_fields(FieldSet::new().with("level", 4)));
    assert_eq!(
        [bench.next(9).map(|it| it.consumer), bench.next(9).map(|it| it.consumer)],
        [Some(twice), Some(other)]
    );
    bench.channel.unsubscribe(first);
    bench.channel.disconnect(Instant::ZERO, other);
    bench.publish(10, topic, event().with_fields(FieldSet::new().with("level", 4)));
    assert_eq!(bench.next(11).map(|it| it.consumer), Some(twice));
    assert!(bench.next(12).is_none());
}

#[test]
fn inside_a_class_the_earliest_deadline_comes_first_unless_a_supplier_or_a_consumer_wants_another_order() {
    let order_of = |asked: DispatchOrder, offered: DispatchOrder| {
        let mut bench = Bench::new(&[("rest", 1)]);
        let (calm, urgent) = (bench.topic("calm"), bench.topic("urgent"));
        bench.channel.offer(bench.supplier, Offer { order: offered, ..Offer::new(calm) }).expect("no type");
        bench.reader("#", InboxSpec { order: asked, ..InboxSpec::default() });
        bench.publish(0, calm, event().due(Instant::from_nanos(900)));
        bench.publish(0, calm, event().due(Instant::from_nanos(100)));
        bench.publish(0, urgent, event().due(Instant::from_nanos(500)));
        let delivered = std::iter::from_fn(|| bench.next(1)?.event);
        delivered.map(|it| (it.event.topic == calm, it.event.sequence)).collect::<Vec<_>>()
    };
    use DispatchOrder::{Arrival, Deadlines, Publication};
    assert_eq!(order_of(Deadlines, Deadlines), [(true, 2), (false, 1), (true, 1)]);
    for (asked, offered) in [(Publication, Deadlines), (Deadlines, Publication)] {
        assert_eq!(order_of(asked, offered), [(false, 1), (true, 1), (true, 2)]);
    }
    for offered in [Deadlines, Publication] {
        assert_eq!(order_of(Arrival, offered), [(true, 1), (true, 2), (false, 1)]);
    }
}

#[test]
fn a_new_event_takes_the_kept_events_before_it_along() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let (other, supplier) = (bench.topic("other"), bench.supplier);
    let kept = TopicSpec::new("kept").expect("a name").keeping(HistoryDepth::Last { events: 3 });
    let kept = bench.channel.declare(kept).expect("room");
    bench.channel.offer(supplier, Offer::new(kept)).expect("no type");
    for _ in 0..3 {
        bench.publish(0, kept, event());
    }
    bench.reader("#", InboxSpec { full: FullInbox::DropByDeadline, ..InboxSpec::default() });
    bench.publish(1, other, event().due(Instant::from_nanos(500)));
    bench.publish(1, kept, event().due(Instant::from_nanos(900)));
    bench.publish(1, kept, event().due(Instant::from_nanos(400)));
    bench.publish(1, other, event());
    let delivered = std::iter::from_fn(|| bench.next(2)?.event);
    let order: Vec<_> =
        delivered.map(|it| (it.event.topic == kept, it.event.sequence, it.retained)).collect();
    let kept_first = [(true, 1, true), (true, 2, true), (true, 3, true), (true, 5, false)];
    let then = [(false, 1, false), (true, 4, false), (false, 2, false)];
    assert_eq!(order, [&kept_first[..], &then[..]].concat());
}

#[test]
fn between_classes_shares_decide_whatever_the_deadlines() {
    let mut bench = Bench::new(&[("video", 3), ("web", 1)]);
    let topic = bench.topic("t");
    let inbox = |class: &str| InboxSpec { class: Some(class.into()), ..small(1000, FullInbox::DropOldest) };
    let (video, web) = (bench.reader("t", inbox("video")), bench.reader("+", inbox("web")));
    for at in 0..400 {
        bench.publish(at, topic, event());
    }
    // from here on, all events of `web` are more urgent than the events of `video`
    let mut got = [0, 0];
    for at in 0..200 {
        let consumer = bench.next(1000 + at).expect("events wait").consumer;
        got[usize::from(consumer == web)] += 1;
    }
    assert_eq!(got, [150, 50]);
    let class = |name: &str| bench.channel.hierarchy().find(name).expect("it is there");
    let (video_class, web_class) = (class("video"), class("web"));
    assert_eq!(bench.channel.waiting(video), 250);
    let served = [video_class, web_class].map(|class| bench.channel.served(class).packets);
    assert_eq!(served, [150, 50]);
}

#[test]
fn a_class_is_charged_what_a_delivery_took() {
    let mut bench = Bench::new(&[("slow", 1), ("fast", 1)]);
    let topic = bench.topic("t");
    let inbox = |class: &str| InboxSpec { class: Some(class.into()), ..InboxSpec::default() };
    let slow = bench.reader("t", inbox("slow"));
    bench.reader("+", inbox("fast"));
    for at in 0..400 {
        bench.publish(at, topic, event());
    }
    let mut got = [0, 0];
    for at in 0..200 {
        let consumer = bench.next(at).expect("events wait").consumer;
        got[usize::from(consumer == slow)] += 1;
        let took = if consumer == slow { 6400 } else { 1280 };
        bench.channel.finish(Instant::from_nanos(at), Some(Duration::from_nanos(took)));
    }
    // events of `slow` take five times as long, so it gets a fifth as many deliveries as `fast`; the
    // tolerance is one delivery of each
    assert!(got[0] >= 164 && got[0] <= 168, "{got:?}");
}

#[test]
fn a_paused_consumer_holds_up_nobody_and_loses_only_its_own() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let stopped = bench.reader("t", small(2, FullInbox::DropOldest));
    let fast = bench.reader("+", small(2, FullInbox::DropOldest));
    bench.channel.pause(stopped);
    for at in 0..50 {
        bench.publish(at, topic, event());
        let delivery = bench.next(at).expect("the fast one is free");
        assert_eq!((delivery.consumer, delivery.notices.len()), (fast, 0));
    }
    assert!(bench.next(60).is_none());
    assert_eq!(bench.channel.waiting(stopped), 2);
    bench.channel.resume(stopped);
    let delivery = bench.next(61).expect("it is free again");
    assert_eq!(gaps(&delivery), [(1, 48, 48, GapCause::Full)]);
    assert_eq!(delivery.event.expect("an event").event.sequence, 49);
    assert_eq!(bench.channel.counters(stopped).expect("it is there").dropped_full, 48);
}

#[test]
fn a_full_inbox_drops_as_the_consumer_chose() {
    let left = |full: FullInbox, now: u64, more: &[(u64, u8)]| {
        let mut bench = Bench::new(&[("rest", 1)]);
        let topics: Vec<_> = (0..more.len()).map(|at| bench.topic(&format!("t{at}"))).collect();
        let reader = bench.reader("#", small(2, full));
        bench.channel.pause(reader);
        for (topic, (deadline, criticality)) in topics.iter().zip(more) {
            // all but the last are published before their deadlines
            let at = if topic == topics.last().expect("some") { now } else { 0 };
            bench.publish(
                at,
                *topic,
                event().due(Instant::from_nanos(*deadline)).critical(Criticality(*criticality)),
            );
        }
        bench.channel.resume(reader);
        let deliveries = std::iter::from_fn(|| bench.next(0)?.event);
        let mut left: Vec<u64> = deliveries.map(|it| it.event.deadline.as_nanos()).collect();
        left.sort_unstable();
        left
    };
    assert_eq!(left(FullInbox::DropOldest, 0, &[(10, 0), (30, 0), (20, 0)]), [20, 30]);
    assert_eq!(left(FullInbox::DropByDeadline, 0, &[(10, 0), (30, 0), (20, 0)]), [10, 20]);
    // 10 is late already and is dropped first
    assert_eq!(left(FullInbox::DropByDeadline, 15, &[(10, 0), (30, 0), (20, 0)]), [20, 30]);
    // the least critical event is dropped before any other
    assert_eq!(left(FullInbox::DropByDeadline, 15, &[(10, 1), (30, 1), (20, 0)]), [10, 30]);
    assert_eq!(left(FullInbox::DropOldest, 0, &[(10, 1), (30, 0), (20, 0)]), [10, 20]);
}

#[test]
fn an_inbox_that_blocks_refuses_the_event_for_everybody_and_says_who_it_was() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let free = bench.reader("+", InboxSpec::default());
    let strict = bench.consumer("archive", small(1, FullInbox::BlockSupplier));
    bench.subscribe(strict, "t");
    bench.channel.pause(strict);
    bench.publish(0, topic, event());
    let refused = bench
        .channel
        .try_publish(Instant::from_nanos(1), bench.supplier, topic, event())
        .expect_err("it is full");
    assert_eq!(refused, PublishError::Full { consumer: "archive".into() });
    assert_eq!(
        refused.to_string(),
        "the queue of the consumer `archive` is full; try again when it has taken something"
    );
    assert_eq!(bench.channel.waiting(free), 1);
    assert_eq!(bench.channel.counters(strict).expect("it is there").blocked, 1);
    bench.channel.resume(strict);
    while bench.next(2).is_some() {}
    bench.publish(3, topic, event());
    // a sequence number is used only for an accepted event
    assert_eq!(bench.next_number(4), Some(2));
}

#[test]
fn late_events_are_delivered_dropped_or_reported_and_counted_each() {
    for (late, expected) in [
        (LateEvents::Deliver, (Some((1, Lateness::Late)), vec![])),
        (LateEvents::Drop, (Some((2, Lateness::InTime)), vec![])),
        (LateEvents::Report, (Some((2, Lateness::InTime)), vec![(1, 1, 1, GapCause::Late)])),
    ] {
        let mut bench = Bench::new(&[("rest", 1)]);
        let topic = bench.topic("t");
        let reader = bench.reader("t", InboxSpec { late, ..InboxSpec::default() });
        bench.publish(0, topic, event().due(Instant::from_nanos(10)));
        bench.publish(0, topic, event().due(Instant::from_nanos(30)));
        let delivery = bench.next(20).expect("something is due");
        let got = delivery.event.as_ref().map(|it| (it.event.sequence, it.lateness));
        assert_eq!((got, gaps(&delivery)), expected, "{late:?}");
        assert_eq!(bench.channel.misses(reader).collect::<Vec<_>>(), [(topic, 1)]);
    }
}

#[test]
fn a_deadline_that_passes_during_the_delivery_is_missed_too() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let reader = bench.reader("t", InboxSpec::default());
    for deadline in [10, 30] {
        bench.publish(0, topic, event().due(Instant::from_nanos(deadline)));
    }
    bench.next(5);
    bench.channel.finish(Instant::from_nanos(11), None);
    assert_eq!(bench.channel.counters(reader).expect("it is there").missed, 1);
    bench.next(11);
    bench.channel.finish(Instant::from_nanos(30), None);
    assert_eq!(bench.channel.counters(reader).expect("it is there").missed, 1);
}

#[test]
fn who_subscribes_late_gets_what_the_topic_keeps() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let spec = TopicSpec::new("t").expect("a name").keeping(HistoryDepth::LastValue { keys: 8 });
    let topic = bench.channel.declare(spec).expect("room");
    bench.channel.offer(bench.supplier, Offer::new(topic)).expect("no type");
    for (key, level) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
        let fields = FieldSet::new().with("level", level);
        bench.publish(0, topic, event().keyed(key).with_fields(fields).due(Instant::from_nanos(10)));
    }
    let reader = bench.consumer("reader", InboxSpec::default());
    let filter = "level != 4".parse().expect("a filter");
    bench.channel.subscribe(Instant::from_nanos(100), reader, all("t").filtered(filter)).expect("it fits");
    let got: Vec<_> = std::iter::from_fn(|| bench.next(100)?.event).collect();
    let told: Vec<_> = got.iter().map(|it| (it.event.sequence, it.retained, it.lateness)).collect();
    // the deadlines no longer count: they applied to consumers that were subscribed at the time of
    // publication
    assert_eq!(told, [(2, true, Lateness::InTime), (3, true, Lateness::InTime)]);
}

#[test]
fn a_request_that_is_not_offered_is_refused_with_both_values() {
    let mut bench = Bench::new(&[("video", 3), ("web", 1)]);
    let topic = bench.topic("t");
    let refused = |bench: &mut Bench, request: QualityRequest| {
        let reader = bench.consumer("reader", InboxSpec { request, ..InboxSpec::default() });
        bench.channel.subscribe(Instant::ZERO, reader, all("t")).expect_err("it is not offered").to_string()
    };
    let request = QualityRequest { deadline: Some(Duration::from_nanos(1000)), ..QualityRequest::default() };
    assert_eq!(
        refused(&mut bench, request),
        "topic `t`: deadline: offered none, requested 1000 ns after publication"
    );
    let request = QualityRequest { history: HistoryDepth::Last { events: 3 }, ..QualityRequest::default() };
    assert_eq!(
        refused(&mut bench, request),
        "topic `t`: history: offered none, requested the last 3 events"
    );
    let request = QualityRequest { share: Some(0.3), ..QualityRequest::default() };
    let spec = ConsumerSpec::new("reader").with(InboxSpec { request, ..InboxSpec::default() });
    let said =
        bench.channel.connect(Instant::ZERO, spec).expect_err("the default class has a quarter").to_string();
    assert_eq!(said, "class `web`: share: offered 0.2500, requested 0.3000");
    // a later mismatch leads to a notice, not to a refusal
    let request = QualityRequest { reliability: Reliability::AtLeastOnce, ..QualityRequest::default() };
    bench.reader("later/#", InboxSpec { request, ..InboxSpec::default() });
    let later = bench.topic("later/x");
    let mismatch =
        Mismatch::Reliability { offered: Reliability::BestEffort, requested: Reliability::AtLeastOnce };
    let told = bench.next(0).expect("a notice waits").notices;
    assert_eq!(told, [ChannelNotice::Mismatch { topic: later, mismatch }]);
    assert!(bench.channel.retire(topic).expect_err("it is offered").to_string().contains("by 1 suppliers"));
}

#[test]
fn one_offer_keeps_no_consumer_with_a_request_out_of_a_pattern_nor_of_a_topic_that_others_offer() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let weak = bench.topic("plant/odd");
    let request = QualityRequest { reliability: Reliability::AtLeastOnce, ..QualityRequest::default() };
    let inbox = || InboxSpec { request, ..InboxSpec::default() };
    let mismatch =
        Mismatch::Reliability { offered: Reliability::BestEffort, requested: Reliability::AtLeastOnce };
    bench.reader("plant/#", inbox());
    let told = bench.next(0).expect("a notice waits").notices;
    assert_eq!(told, [ChannelNotice::Mismatch { topic: weak, mismatch }]);
    // the weak offer is the only one, so a consumer that names the topic would get only its events
    let reader = bench.consumer("reader", inbox());
    bench.channel.subscribe(Instant::ZERO, reader, all("plant/odd")).expect_err("it is not offered");
    let strong = bench.channel.supplier(Instant::ZERO, None).expect("room");
    let reliability = Reliability::AtLeastOnce;
    bench.channel.offer(strong, Offer { reliability, ..Offer::new(weak) }).expect("no type");
    bench.channel.subscribe(Instant::ZERO, reader, all("plant/odd")).expect("another supplier offers it");
    let told = bench.next(0).expect("a notice waits").notices;
    assert_eq!(told, [ChannelNotice::Mismatch { topic: weak, mismatch }]);
    // a pattern over many topics leads to few notices
    for number in 0..500 {
        bench.topic(&format!("many/{number}"));
    }
    bench.reader("many/#", inbox());
    assert_eq!(bench.next(0).expect("notices wait").notices.len(), 64);
}

#[test]
fn an_event_that_may_not_be_published_is_refused_with_the_reason() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let other = bench.channel.declare(TopicSpec::new("other").expect("a name")).expect("room");
    let mut said = |now: u64, topic: TopicId, publication: Publication<Bytes>| {
        bench
            .channel
            .try_publish(Instant::from_nanos(now), bench.supplier, topic, publication)
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(
        said(0, other, event()),
        "the supplier has not offered the topic, or is gone; offer it first"
    );
    assert_eq!(
        said(0, topic, sized((16 << 20) + 1)),
        "a payload of 16777217 bytes; the largest has 16777216"
    );
    assert_eq!(said(50, topic, event().due(Instant::from_nanos(20))), "the deadline passed 30.0ns ago");
    let many = (0..257).fold(FieldSet::new(), |fields, at| fields.with(at.to_string(), at));
    assert_eq!(said(0, topic, event().with_fields(many)), "an event with 257 fields; at most 256");
    let rate = Some(SupplyRate { period: Duration::from_nanos(100), burst: 1 });
    bench.channel.offer(bench.supplier, Offer { rate, ..Offer::new(topic) }).expect("no type");
    bench.publish(1000, topic, event());
    let refused = bench
        .channel
        .try_publish(Instant::from_nanos(1001), bench.supplier, topic, event())
        .expect_err("too fast");
    assert_eq!(refused.to_string(), "more than the rate offered; try again in 99.0ns");
    bench.channel.withdraw(bench.supplier);
    let refused = bench.channel.try_publish(Instant::from_nanos(2000), bench.supplier, topic, event());
    assert_eq!(refused, Err(PublishError::NotOffered));
}

#[test]
fn the_numbers_of_a_supplier_show_duplicates_and_gaps() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    bench.reader("t", InboxSpec::default());
    let push = |bench: &mut Bench, number: u64| {
        bench
            .channel
            .try_publish(Instant::ZERO, bench.supplier, topic, event().numbered(number))
            .expect("taken")
    };
    assert_eq!(push(&mut bench, 7), Published::Taken { sequence: 7, inboxes: 1 });
    assert_eq!(push(&mut bench, 7), Published::Duplicate { last: 7 });
    assert_eq!(push(&mut bench, 10), Published::Taken { sequence: 10, inboxes: 1 });
    let first = bench.next(1).expect("two wait");
    assert_eq!(gaps(&first), [(8, 9, 2, GapCause::NotReceived)]);
    assert_eq!((first.event.expect("an event").event.sequence, bench.next_number(1)), (7, Some(10)));
}

#[test]
fn each_event_of_a_group_goes_to_one_of_its_consumers_in_turns() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let spec = ConsumerSpec::new("worker").grouped("workers");
    let [one, other] = [0, 1].map(|_| bench.channel.connect(Instant::ZERO, spec.clone()).expect("room"));
    let differs = spec.clone().with(small(1, FullInbox::DropOldest));
    assert!(
        bench
            .channel
            .connect(Instant::ZERO, differs)
            .expect_err("another inbox")
            .to_string()
            .contains("`workers` has another inbox")
    );
    bench.subscribe(one, "t");
    for at in 0..6 {
        bench.publish(at, topic, event());
    }
    let who = |bench: &mut Bench| bench.next(10).map(|it| it.consumer);
    assert_eq!([who(&mut bench), who(&mut bench)], [Some(one), Some(other)]);
    bench.channel.pause(one);
    assert_eq!([who(&mut bench), who(&mut bench)], [Some(other), Some(other)]);
    // the subscription belongs to the group
    bench.channel.disconnect(Instant::ZERO, one);
    assert_eq!([who(&mut bench), who(&mut bench), who(&mut bench)], [Some(other), Some(other), None]);
}

#[test]
fn a_reservation_holds_beside_others_of_its_class_and_beside_itself() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let (own, others) = (bench.topic("own"), bench.topic("others"));
    let reservation =
        Reservation { period: Duration::from_micros(10), deadline: Duration::from_nanos(9000), largest: 100 };
    let steady = bench.reader("own", InboxSpec { reservation: Some(reservation), ..InboxSpec::default() });
    bench.reader("others", InboxSpec::default());
    let other =
        bench.consumer("too many", InboxSpec { reservation: Some(reservation), ..InboxSpec::default() });
    bench.subscribe(other, "others");
    bench.publish(0, others, event().due(Instant::from_nanos(1)));
    bench.publish(0, own, event().due(Instant::from_micros(50)));
    // 101 bytes exceed the reservation's largest payload
    bench.publish(0, own, sized(101));
    let first = bench.next(0).expect("three wait");
    // the order is: the consumer of `others` with a reservation, due at 9000; then `own`; then the consumer
    // without a reservation, however urgent its event is
    assert_eq!(first.consumer, other);
    let second = bench.next(0).expect("two wait");
    assert_eq!((second.consumer, gaps(&second)), (steady, vec![(2, 2, 1, GapCause::TooLarge)]));
    assert!(bench.next(0).is_some_and(|it| it.consumer != steady && it.consumer != other));
    // a consumer that gets more events than it stated delays only its own events: its third event counts as
    // if it came two periods later
    for _ in 0..3 {
        bench.publish(0, others, event());
    }
    bench.publish(15_000, own, event());
    let order: Vec<_> = std::iter::from_fn(|| bench.next(15_000))
        .map(|it| it.consumer)
        .filter(|it| *it == other || *it == steady)
        .collect();
    assert_eq!(order, [other, steady, other, other]);
}

#[test]
fn types_meet_or_are_refused() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let spec = TopicSpec::new("t").expect("a name").typed("temperature");
    let topic = bench.channel.declare(spec.clone()).expect("room");
    assert_eq!(bench.channel.declare(spec), Ok(topic));
    let said = bench.channel.offer(bench.supplier, Offer::new(topic)).expect_err("no type").to_string();
    assert_eq!(said, "the topic `t` is of type `temperature`, and the offer is of no type");
    let event_type: Option<Arc<str>> = Some("temperature".into());
    bench.channel.offer(bench.supplier, Offer { event_type, ..Offer::new(topic) }).expect("the same type");
    let untyped = TopicSpec::new("t").expect("a name");
    let said = bench.channel.declare(untyped).expect_err("another type").to_string();
    assert!(said.contains("of type `temperature`; asked: keeps none, shared, of any type"), "{said}");
    let reader = bench.consumer("reader", InboxSpec::default());
    bench.channel.subscribe(Instant::ZERO, reader, all("#").typed("pressure")).expect("it may come");
    bench.publish(0, topic, event());
    assert!(bench.next(0).is_none());
    bench.channel.subscribe(Instant::ZERO, reader, all("#").typed("temperature")).expect("it is there");
    bench.publish(0, topic, event());
    assert_eq!(bench.next_number(0), Some(2));
}

#[test]
fn a_retained_event_reaches_late_consumers_until_it_is_replaced_removed_or_past_its_deadline() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("lamp");
    let past = |bench: &mut Bench, now: u64| {
        let late = bench.consumer("late", InboxSpec::default());
        bench.channel.subscribe(Instant::from_nanos(now), late, all("lamp")).expect("it fits");
        let got = bench.next(now).and_then(|it| it.event);
        bench.channel.disconnect(Instant::from_nanos(now), late);
        got.map(|it| (it.event.sequence, it.retained))
    };
    let retained = |retention| Publication { retention, ..event() };
    bench.publish(0, topic, event());
    assert_eq!(past(&mut bench, 1), None, "the topic keeps no history");
    bench.publish(2, topic, retained(Retention::Retain));
    bench.publish(3, topic, event());
    assert_eq!(past(&mut bench, 4), Some((2, true)), "an ordinary event replaces nothing");
    bench.publish(5, topic, retained(Retention::Retain).due(Instant::from_nanos(20)));
    assert_eq!(past(&mut bench, 20), Some((4, true)));
    assert_eq!(past(&mut bench, 21), None, "its deadline has passed");
    bench.publish(22, topic, retained(Retention::Retain));
    let afresh = bench.consumer("afresh", InboxSpec::default());
    bench
        .channel
        .subscribe_with(Instant::from_nanos(23), afresh, all("lamp"), PastEvents::None)
        .expect("it fits");
    assert!(bench.next(23).is_none(), "it asked for nothing of the past");
    bench.publish(24, topic, retained(Retention::Remove));
    assert!(bench.next(24).is_some(), "the event that removes is delivered as any other");
    assert_eq!(past(&mut bench, 25), None);
}

#[test]
fn retained_events_have_a_bound_and_what_replaces_one_is_not_counted_twice() {
    let classes = classes(&[("rest", 1)]);
    let limits = ChannelLimits { kept: 2 * KEPT_ENTRY + 10, ..ChannelLimits::default() };
    let mut channel: EventChannel<Bytes> = EventChannel::new(classes, limits);
    let supplier = channel.supplier(Instant::ZERO, None).expect("there is room");
    let topics = ["a", "b"].map(|name| {
        let topic = channel.declare(TopicSpec::new(name).expect("a name")).expect("there is room");
        channel.offer(supplier, Offer::new(topic)).expect("it is there");
        topic
    });
    let mut retain = |topic, bytes, retention| {
        let publication = Publication { retention, ..sized(bytes) };
        channel.try_publish(Instant::ZERO, supplier, topic, publication).map(drop)
    };
    for _ in 0..3 {
        retain(topics[0], 10, Retention::Retain).expect("it replaces the one before");
    }
    let refused = retain(topics[1], 1, Retention::Retain).expect_err("one byte too many");
    assert!(refused.to_string().contains("remove retained events"), "{refused}");
    retain(topics[0], 0, Retention::Remove).expect("it removes");
    retain(topics[1], 10, Retention::Retain).expect("there is room again");
}

#[test]
fn a_supplier_that_has_used_the_last_number_is_refused_and_nobody_is_told_of_a_gap() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let (supplier, topic) = (bench.supplier, bench.topic("t"));
    bench.reader("t", InboxSpec::default());
    bench.publish(1, topic, event());
    let last = Publication { sequence: Some(u64::MAX), ..event() };
    let taken = bench.channel.try_publish(Instant::from_nanos(2), supplier, topic, last);
    assert_eq!(taken, Ok(Published::Taken { sequence: u64::MAX, inboxes: 1 }));
    let next = bench.channel.try_publish(Instant::from_nanos(3), supplier, topic, event());
    assert_eq!(next, Err(PublishError::NumbersUsedUp));
}
