//! Tests events that come from another channel: which consumers get them, and which properties their topics
//! have.

use crate::common::{Bench, all, event};
use unisono_eventchannel::{
    AcceptedOrigins, ChannelError, ChannelNotice, EventOrigin, GapCause, HistoryDepth, InboxSpec,
    KeepingTerms, Offer, Ownership, Publication, Retention, SupplierId, TenantId, TopicId, TopicSpec,
};
use unisono_time::Instant;

/// Makes a supplier that forwards events of a topic from another channel.
fn passing_on(bench: &mut Bench, topic: TopicId) -> SupplierId {
    let supplier = bench.channel.supplier(Instant::ZERO, None).expect("room");
    let offer = Offer { origin: EventOrigin::Remote, ..Offer::new(topic) };
    bench.channel.offer(supplier, offer).expect("no type");
    supplier
}

fn numbered(sequence: u64) -> Publication<crate::common::Bytes> {
    event().numbered(sequence)
}

#[test]
fn a_consumer_of_events_from_here_is_given_none_from_elsewhere_and_blocks_none() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.topic("t");
    let passed = passing_on(&mut bench, topic);
    let full = unisono_eventchannel::FullInbox::BlockSupplier;
    let capacity = unisono_eventchannel::InboxCapacity { events: 1, bytes: 100 };
    let here = InboxSpec { origins: AcceptedOrigins::Local, full, capacity, ..InboxSpec::default() };
    let here = bench.reader("t", here);
    let all = bench.reader("#", InboxSpec::default());
    bench.publish(1, topic, event());
    for number in [7, 8] {
        bench
            .channel
            .try_publish(Instant::from_nanos(2), passed, topic, numbered(number))
            .expect("nobody blocks");
    }
    let mut got = Vec::new();
    while let Some(delivery) = bench.next(3) {
        got.extend(delivery.event.map(|event| (delivery.consumer, event.event.sequence)));
    }
    got.sort_unstable();
    let mut expected = vec![(here, 1), (all, 1), (all, 7), (all, 8)];
    expected.sort_unstable();
    assert_eq!(got, expected);
}

#[test]
fn a_consumer_of_events_from_here_is_given_none_from_elsewhere_of_the_past_either() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let spec = TopicSpec::new("t").expect("a name").keeping(HistoryDepth::Last { events: 9 });
    let topic = bench.channel.declare(spec).expect("room");
    bench.channel.offer(bench.supplier, Offer::new(topic)).expect("no type");
    let (passed, plain) = (passing_on(&mut bench, topic), bench.topic("plain"));
    let passed_plain = passing_on(&mut bench, plain);
    bench.publish(1, topic, event());
    bench.channel.try_publish(Instant::from_nanos(2), passed, topic, numbered(7)).expect("taken");
    let retained = Publication { retention: Retention::Retain, ..numbered(8) };
    bench.channel.try_publish(Instant::from_nanos(3), passed_plain, plain, retained).expect("taken");
    bench.reader("#", InboxSpec { origins: AcceptedOrigins::Local, ..InboxSpec::default() });
    assert_eq!([bench.next_number(3), bench.next_number(3)], [Some(1), None]);
    bench.reader("#", InboxSpec::default());
    assert_eq!([(); 4].map(|()| bench.next_number(3)), [Some(1), Some(7), Some(8), None]);
}

#[test]
fn numbers_that_did_not_come_from_elsewhere_are_a_gap() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.channel.declare_for_now((TenantId::NONE, &KeepingTerms::default()), "t").expect("room");
    let passed = passing_on(&mut bench, topic);
    bench.reader("t", InboxSpec::default());
    bench.reader("t", InboxSpec { origins: AcceptedOrigins::Local, ..InboxSpec::default() });
    for number in [5, 9] {
        bench.channel.try_publish(Instant::from_nanos(2), passed, topic, numbered(number)).expect("taken");
    }
    let mut gaps = Vec::new();
    while let Some(delivery) = bench.next(3) {
        gaps.extend(delivery.notices);
    }
    let [ChannelNotice::Gap(gap)] = &gaps[..] else { panic!("{gaps:?}") };
    assert_eq!((gap.first, gap.last, gap.lost, gap.cause), (6, 8, 3, GapCause::NotReceived));
}

#[test]
fn a_topic_made_for_events_from_elsewhere_becomes_what_the_first_program_declares() {
    let mut bench = Bench::new(&[("rest", 1)]);
    let topic = bench.channel.declare_for_now((TenantId::NONE, &KeepingTerms::default()), "t").expect("room");
    let passed = passing_on(&mut bench, topic);
    bench.channel.try_publish(Instant::from_nanos(1), passed, topic, numbered(1)).expect("taken");
    let spec = TopicSpec::new("t").expect("a name").typed("heat").keeping(HistoryDepth::Last { events: 2 });
    assert_eq!(bench.channel.declare(spec.clone()), Ok(topic));
    assert_eq!(
        bench.channel.declare_for_now((TenantId::NONE, &KeepingTerms::default()), "t"),
        Ok(topic),
        "as it is"
    );
    for number in [2, 3, 4] {
        bench.channel.try_publish(Instant::from_nanos(1), passed, topic, numbered(number)).expect("taken");
    }
    let late = bench.consumer("late", InboxSpec::default());
    bench.channel.subscribe(Instant::from_nanos(2), late, all("t").typed("heat")).expect("it fits");
    assert_eq!(
        [bench.next_number(2), bench.next_number(2), bench.next_number(2)],
        [Some(3), Some(4), None]
    );
    let other = spec.owned(Ownership::Exclusive);
    let refused = bench.channel.declare(other).expect_err("it is declared now");
    assert!(matches!(refused, ChannelError::TopicDiffers { .. }), "{refused}");
}
