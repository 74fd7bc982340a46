//! Events whose deadlines pass on their way: a consumer that drops late events gets none over any transport,
//! and each is counted once.

use crate::common::{Addresses, event, notice, with_broker};
use std::time::Duration as StdDuration;
use unisono_events_client::{
    Advertisement, AgainSpec, Client, ConsumerStatistics, EventDraft, Instant, NoticeText, SubscriptionSpec,
    WhenLate,
};

/// A way from the broker or the supplier to a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Unix,
    Tcp,
    Shared,
    Ring,
}

impl Way {
    const ALL: [Self; 4] = [Self::Unix, Self::Tcp, Self::Shared, Self::Ring];

    fn connect(self, at: &Addresses) -> Client {
        match self {
            Self::Unix => at.client(),
            Self::Tcp => Client::connect_tcp(at.tcp).expect("it listens"),
            Self::Shared | Self::Ring => Client::connect_shared(&at.unix).expect("it listens"),
        }
    }

    /// Waits until the deadline of the event that the broker sent last, the `number`th, has passed.
    fn let_pass(self, consumer: &mut Client, number: u64, deadline: StdDuration) {
        // programs over TCP have another clock: the time that is left counts from when the event is read, as
        // it is before a later answer
        let has_come = |counted: ConsumerStatistics| counted.delivered + counted.lost >= number;
        while self == Self::Tcp && !has_come(counts(consumer)) {}
        std::thread::sleep(2 * deadline);
    }
}

/// Returns the counts of the only consumer.
fn counts(client: &mut Client) -> ConsumerStatistics {
    client.statistics().expect("it answers").consumers.remove(0)
}

#[test]
fn an_event_that_becomes_late_on_its_way_is_dropped_or_reported_on_every_transport() {
    for late in [WhenLate::Deliver, WhenLate::Drop, WhenLate::Report] {
        with_broker(move |at| {
            for way in Way::ALL {
                let (mut consumer, direct) = (way.connect(at), way == Way::Ring);
                let mut supplier = Client::connect_shared(&at.unix).expect("it listens");
                let spec = SubscriptionSpec { late, direct, ..SubscriptionSpec::new("t") };
                let subscription = consumer.subscribe(&spec).expect("it fits");
                let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
                supplier.publish(topic, &EventDraft::new(b"first")).expect("it leaves");
                assert_eq!(event(&mut consumer).sequence, 1);
                // the broker has sent it long before its deadline
                let soon = StdDuration::from_millis(200);
                supplier.publish(topic, &EventDraft::new(b"late").due_in(soon)).expect("it leaves");
                way.let_pass(&mut consumer, 2, soon);
                supplier.publish(topic, &EventDraft::new(b"next")).expect("it leaves");
                match late {
                    WhenLate::Deliver => assert_eq!(event(&mut consumer).sequence, 2),
                    WhenLate::Drop => {}
                    WhenLate::Report => {
                        let told = notice(&mut consumer);
                        let NoticeText::Gap { first: 2, last: 2, lost: 1, ref cause, .. } = told else {
                            panic!("{told:?}")
                        };
                        assert_eq!(cause, "late");
                    }
                }
                assert_eq!(event(&mut consumer).sequence, 3, "{way:?}");
                // while it waits it reports the late event, and after 100 ms the events of rings
                let wait = Some(StdDuration::from_millis(150));
                assert!(consumer.receive(wait).expect("it lives").is_none());
                counts(&mut consumer);
                supplier.publish(topic, &EventDraft::new(b"last")).expect("it leaves");
                assert_eq!(event(&mut consumer).sequence, 4);
                assert!(consumer.receive(wait).expect("it lives").is_none());
                let (counted, dropped) = (counts(&mut consumer), u64::from(late != WhenLate::Deliver));
                assert_eq!((counted.matched, counted.delivered), (4, 4 - dropped), "{counted:?}");
                assert_eq!((counted.dropped_late, counted.lost), (dropped, dropped), "{counted:?}");
                if dropped > 0 {
                    assert_eq!((counted.missed, counted.missed_by_topic.get("t")), (1, Some(&1)));
                }
                consumer.unsubscribe(subscription).expect("the broker is there");
            }
        });
    }
}

#[test]
fn an_event_that_is_late_when_it_is_published_is_counted_as_refused_on_every_transport() {
    with_broker(|at| {
        for (refused, way) in [2, 4, 6, 8].into_iter().zip(Way::ALL) {
            // the consumer of the former topic may still be there
            let (name, direct) = (format!("{way:?}"), way == Way::Ring);
            let mut consumer = Client::connect_shared(&at.unix).expect("it listens");
            let spec = SubscriptionSpec { direct, ..SubscriptionSpec::new(&name) };
            consumer.subscribe(&spec).expect("it fits");
            let mut supplier = way.connect(at);
            let topic = supplier.advertise(&Advertisement::new(&name)).expect("a topic");
            supplier.publish(topic, &EventDraft::new(b"first")).expect("it leaves");
            assert_eq!(event(&mut consumer).sequence, 1);
            let past = EventDraft::new(b"late").due_at(Instant::from_nanos(1));
            supplier.publish(topic, &past).expect("it is refused later");
            assert!(supplier.try_publish(topic, &past).is_err(), "{way:?}");
            let told = supplier.statistics().expect("it answers");
            assert_eq!((told.direct, told.refusals["deadline"]), (u64::from(direct), refused), "{way:?}");
            assert_eq!(told.refused, refused);
        }
    });
}

#[test]
fn an_event_that_is_dropped_as_late_is_not_delivered_again() {
    with_broker(|at| {
        for way in [Way::Unix, Way::Tcp, Way::Shared] {
            let mut consumer = way.connect(at);
            let mut supplier = at.client();
            let again = Some(AgainSpec { after_ns: 600_000_000, attempts: 5, window: 1 });
            let late = WhenLate::Drop;
            let subscription = consumer
                .subscribe(&SubscriptionSpec { late, again, ..SubscriptionSpec::new("t") })
                .expect("it fits");
            let topic = supplier.advertise(&Advertisement::new("t")).expect("a topic");
            let soon = StdDuration::from_millis(200);
            supplier.publish(topic, &EventDraft::new(b"late").due_in(soon)).expect("it leaves");
            supplier.publish(topic, &EventDraft::new(b"next")).expect("it leaves");
            way.let_pass(&mut consumer, 1, soon);
            // the window has room for it only when the first one is acknowledged
            let next = event(&mut consumer);
            assert_eq!(next.sequence, 2, "{way:?}");
            consumer.acknowledge(&next).expect("the broker is there");
            assert!(consumer.receive(Some(3 * soon)).expect("it lives").is_none());
            let counted = counts(&mut consumer);
            assert_eq!((counted.dropped_late, counted.repeated, counted.missed), (1, 0, 1), "{counted:?}");
            consumer.unsubscribe(subscription).expect("the broker is there");
        }
    });
}
