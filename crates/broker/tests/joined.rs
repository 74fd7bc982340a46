//! A join as a client of the broker: the events that it brings, and the events that it gets.

use crate::common::{event, notice, with_broker};
use std::time::Duration;
use unisono_broker::join::JoinSettings;
use unisono_events_client::{
    Advertisement, Client, Error, EventDraft, KeptHistory, NoticeText, PublishOutcome, Reception,
    RemoteSupplier, SubscriptionSpec, TopicHandle, WhenFull,
};

fn brought(topic: &str) -> Advertisement {
    let from_elsewhere = Some(RemoteSupplier { run: 4711, supplier: 3 });
    Advertisement { from_elsewhere, reliable: true, ..Advertisement::new(topic) }
}

/// Publishes a remote event under a given number.
fn bring(join: &mut Client, topic: TopicHandle, number: u64) -> PublishOutcome {
    let handed =
        join.try_publish_with_receipt(topic, &EventDraft::new(b"far"), Some(number)).expect("it goes on");
    join.outcome(handed).expect("taken").outcome
}

/// Returns the next event's payload, if an event has come.
fn waiting(client: &mut Client) -> Option<Vec<u8>> {
    match client.receive(Some(Duration::from_millis(300))).expect("it goes on") {
        Some(Reception::Event(event)) => Some(event.payload.bytes().to_vec()),
        Some(other) => panic!("{other:?}"),
        None => None,
    }
}

#[test]
fn what_a_join_brings_it_is_not_given_back_and_programs_are_told_what_is_missing() {
    with_broker(|addresses| {
        let [mut join, mut reader, mut writer] = addresses.clients();
        assert_ne!(join.broker_run(), 0);
        assert_eq!(join.broker_run(), reader.broker_run());
        let local = SubscriptionSpec {
            local_only: true,
            full: WhenFull::BlockSupplier,
            ..SubscriptionSpec::new("#")
        };
        join.subscribe(&local).expect("it fits");
        reader.subscribe(&SubscriptionSpec::new("plant/#")).expect("it fits");
        let topic = join.advertise(&brought("plant/heat")).expect("a topic");
        let outcomes = [41, 42, 42, 45].map(|number| bring(&mut join, topic, number));
        let taken = PublishOutcome::Taken(1);
        assert_eq!(outcomes, [taken, taken, PublishOutcome::Duplicate, taken]);
        assert_eq!([event(&mut reader).sequence, event(&mut reader).sequence], [41, 42]);
        let NoticeText::Gap { first: 43, last: 44, lost: 2, cause, .. } = notice(&mut reader) else {
            panic!()
        };
        assert_eq!((cause.as_str(), event(&mut reader).sequence), ("not-received", 45));

        let here = writer.advertise(&Advertisement::new("plant/heat")).expect("the topic is like that");
        writer.publish(here, &EventDraft::new(b"near")).expect("it goes on");
        assert_eq!(waiting(&mut join), Some(b"near".to_vec()));
        assert_eq!(waiting(&mut join), None);
    });
}

#[test]
fn a_program_says_what_a_topic_is_like_that_a_join_brought() {
    with_broker(|addresses| {
        let [mut join, mut writer, mut reader] = addresses.clients();
        join.advertise(&brought("plant/heat")).expect("a topic");
        let kept =
            |events| Advertisement { history: KeptHistory::Last(events), ..Advertisement::new("plant/heat") };
        let topic = writer.advertise(&kept(2)).expect("nobody declared it before");
        join.advertise(&brought("plant/heat")).expect("as it is");
        let differs = reader.advertise(&kept(3));
        assert!(matches!(&differs, Err(Error::Refused(_))), "{differs:?}");
        writer.publish(topic, &EventDraft::new(b"kept")).expect("it goes on");
        writer.statistics().expect("it goes on");
        let request =
            SubscriptionSpec { history: KeptHistory::Last(2), reliable: false, ..SubscriptionSpec::new("#") };
        reader.subscribe(&request).expect("it fits");
        assert_eq!(waiting(&mut reader), Some(b"kept".to_vec()));
    });
}

#[test]
fn an_event_that_would_have_to_wait_for_a_consumer_is_refused_to_a_join() {
    with_broker(|addresses| {
        let [mut join, mut reader, _] = addresses.clients();
        let full =
            SubscriptionSpec { full: WhenFull::BlockSupplier, queue_events: 1, ..SubscriptionSpec::new("#") };
        reader.subscribe(&full).expect("it fits");
        let topic = join.advertise(&brought("plant/heat")).expect("a topic");
        let payload = vec![0; 1 << 20]; // the reader reads nothing: soon its connection is full
        let refused = (1..100).find_map(|number| {
            let handed = join
                .try_publish_with_receipt(topic, &EventDraft::new(&payload), Some(number))
                .expect("it goes on");
            join.outcome(handed).err()
        });
        assert!(
            matches!(&refused, Some(Error::Rejected(reason)) if reason.contains("full")),
            "{refused:?}"
        );
    });
}

#[test]
fn events_of_another_class_take_no_room_in_the_queue_of_a_class() {
    const CLASSES: &str = "[[class]]\nname = \"control\"\ntopics = [\"control/#\"]\nexcept = [\"control/test\"]\n\
                           [[class]]\nname = \"rest\"\ntopics = [\"#\"]\nqueue_events = 4\nexcept = [\"private\"]";
    with_broker(|addresses| {
        let [mut join, mut writer, _] = addresses.clients();
        let settings = JoinSettings::parse(CLASSES).expect("it is sound");
        join.subscribe(&settings.subscription(1).expect("it is there")).expect("it fits");
        let mut outlet = |topic| writer.advertise(&Advertisement::new(topic)).expect("a topic");
        let [control, private, test, rest] =
            ["control/1", "private", "control/test", "rest"].map(&mut outlet);
        writer.publish(rest, &EventDraft::new(b"first")).expect("it goes on");
        for _ in 0..100 {
            writer.publish(control, &EventDraft::new(b"flood")).expect("it goes on");
            writer.publish(private, &EventDraft::new(b"flood")).expect("it goes on");
        }
        writer.publish(test, &EventDraft::new(b"second")).expect("it goes on");
        let came = [waiting(&mut join), waiting(&mut join), waiting(&mut join)];
        assert_eq!(came, [Some(b"first".to_vec()), Some(b"second".to_vec()), None]);
        let consumers = writer.statistics().expect("it goes on").consumers;
        assert_eq!(consumers.iter().map(|it| (it.matched, it.dropped_full)).collect::<Vec<_>>(), [(2, 0)]);
    });
}

/// Checks that numbers and gaps ascend, each number once, with none left out after the first; returns the
/// numbers that came.
fn told_of_all(reader: &mut Client, last: u64) -> Vec<u64> {
    let (mut came, mut known) = (Vec::new(), 0);
    while known < last {
        match reader.receive(Some(Duration::from_secs(30))).expect("it goes on") {
            Some(Reception::Event(event)) => {
                assert!(known == 0 || event.sequence == known + 1, "{} after {known}", event.sequence);
                known = event.sequence;
                came.push(known);
            }
            Some(Reception::Notice { notice: NoticeText::Gap { first, last, .. }, .. }) => {
                assert_eq!(first, known + 1);
                known = last;
            }
            Some(Reception::Notice { notice: NoticeText::Gone { .. }, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    came
}

#[test]
fn what_two_joins_bring_is_delivered_once_and_one_is_enough() {
    with_broker(|addresses| {
        let [mut one, mut reader, _] = addresses.clients();
        let mut other = addresses.client();
        reader.subscribe(&SubscriptionSpec::new("#")).expect("it fits");
        let [of_one, of_other] =
            [&mut one, &mut other].map(|it| it.advertise(&brought("t")).expect("a topic"));
        let taken = PublishOutcome::Taken(1);
        assert_eq!([1, 2].map(|number| bring(&mut one, of_one, number)), [taken; 2]);
        let outcomes = [1, 2, 3].map(|number| bring(&mut other, of_other, number));
        assert_eq!(outcomes, [PublishOutcome::Duplicate, PublishOutcome::Duplicate, taken]);
        drop(one);
        assert_eq!(
            [3, 4].map(|number| bring(&mut other, of_other, number)),
            [PublishOutcome::Duplicate, taken]
        );
        assert_eq!(told_of_all(&mut reader, 4), [1, 2, 3, 4]);
        other.withdraw(of_other).expect("it goes on");
        assert!(matches!(notice(&mut reader), NoticeText::Gone { died: false, .. }), "now it has gone");
    });
}

#[test]
fn what_a_join_missed_while_it_was_away_is_told_as_a_gap_and_nothing_comes_twice() {
    with_broker(|addresses| {
        let mut reader = addresses.client();
        reader.subscribe(&SubscriptionSpec::new("#")).expect("it fits");
        // new events and repeated ones, each time by a join without memory of the previous one
        for numbers in [[5, 6], [6, 9], [30, 31]] {
            let mut join = addresses.client();
            let topic = join.advertise(&brought("t")).expect("a topic");
            for number in numbers {
                bring(&mut join, topic, number);
            }
        }
        assert_eq!(told_of_all(&mut reader, 31), [5, 6, 9, 30, 31]);
    });
}
