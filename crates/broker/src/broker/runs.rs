//! Runs: events in a row that go from the queue of one consumer to its program's connection, without a task
//! and a reading of the clock for each.
//!
//! ```text
//!   next:         timers, links, the log -> choose -> task -> server -> look up the program -> send
//!   next_of_run:                            choose ------------------------------------------> send
//! ```
//! The channel chooses each event as it does otherwise, so a run ends when another consumer, another class, a
//! notice or an alarm is due. The events of a run have no deadlines, so the time does not matter to them;
//! only the ages in their heads are too small, by as long as the run takes. Whatever [`Broker::next`] does
//! beside deliveries waits until the end of the run. A follower of the log needs its events between the
//! deliveries to others, so there is no run while one reads.
//!
//! When not to use it: for events that may be lost on the way or wait for an acknowledgement.

use super::Broker;
use super::events::head_for;
use crate::body::EventBody;
use crate::task::ClientId;
use unisono_eventchannel::{ConsumerId, DeliveredEvent, TopicId};
use unisono_events_wire::frame::{DeliverFlags, DeliverHead};
use unisono_events_wire::transport::TransportPeer;
use unisono_linux::clock::Instant;

/// Deliveries to one consumer that follow one another.
#[derive(Debug)]
pub(crate) struct DeliveryRun {
    pub(crate) client: ClientId,
    /// The program's own number of the consumer.
    number: u32,
    consumer: ConsumerId,
    peer: TransportPeer,
    /// A topic whose name the program has been sent.
    named: Option<TopicId>,
}

impl Broker {
    /// Begins a run after a delivery. `None`: the next delivery takes another way.
    pub(crate) fn begin_run(&self) -> Option<DeliveryRun> {
        let ((client, number), consumer) = self.addressees.last?;
        if self.tasks.len() > 0 || !self.log_is_read() || self.best_effort.concerns(consumer) {
            return None;
        }
        let peer = self.clients.get(&client)?.peer;
        Some(DeliveryRun { client, number, consumer, peer, named: None })
    }

    /// Returns the frame of the next event of a run, as [`next`](Self::next) would choose it. `None`: the run
    /// is over; a last event of it may be among the tasks.
    pub(crate) fn next_of_run(
        &mut self,
        now: Instant,
        run: &mut DeliveryRun,
    ) -> Option<(Vec<u8>, EventBody)> {
        let delivered = self.channel.next_in_run(now, run.consumer)?;
        let topic = delivered.event.topic;
        if run.named != Some(topic) {
            let has_name = self.clients.get(&run.client).is_some_and(|it| it.named.has_all_of(topic));
            if !has_name {
                self.deliver_event(now, (run.client, run.number), run.consumer, delivered);
                return None;
            }
            run.named = Some(topic);
        }
        let DeliveredEvent { event, retained, repeated, .. } = delivered;
        let head = DeliverHead {
            flags: DeliverFlags { retained, ..DeliverFlags::default() },
            repeated: u8::try_from(repeated).unwrap_or(u8::MAX),
            ..DeliverHead::default()
        };
        let head = self.tasks.written(&head_for((run.peer, run.number), now, &event, head));
        Some((head, self.channel.take_payload(event)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::task::{Next, Task};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;
    use unisono_events_wire::frame::{Frame, PublishDeadline, PublishHead};
    use unisono_events_wire::{Advertisement, Greeting, SubscriptionSpec};
    use unisono_fairqueue::{ClassSpec, Hierarchy};
    use unisono_linux::clock::Duration;

    const READERS: [ClientId; 2] = [ClientId(1), ClientId(2)];
    const WRITER: ClientId = ClientId(3);
    const TOPICS: [&str; 2] = ["t/a", "t/b"];

    #[derive(Clone, Debug)]
    enum Step {
        /// A topic and the time until the deadline.
        Publish(usize, Option<u64>),
        Deliver,
        Pass(u64),
        Pause(usize),
        Resume(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            30 => (0..TOPICS.len(), prop::option::weighted(0.1, 0..40_u64))
                .prop_map(|(topic, due)| Step::Publish(topic, due)),
            3 => Just(Step::Deliver),
            2 => (1..30_u64).prop_map(Step::Pass),
            1 => (0..READERS.len()).prop_map(Step::Pause),
            2 => (0..READERS.len()).prop_map(Step::Resume),
        ]
    }

    /// A consumer's program, whether it asks for one topic only, its class, and the length of its queue.
    type Wish = (usize, bool, bool, usize);

    fn send(broker: &mut Broker, now: Instant, client: ClientId, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        let _ = broker.received(now, client, &bytes, None);
    }

    fn broker(wishes: &[Wish]) -> Broker {
        let classes = ["few", "rest"].map(ClassSpec::new);
        let tree = Hierarchy::new(ClassSpec::new("all").with(classes));
        let tree = tree.and_then(|tree| tree.with_default("rest")).expect("it is sound");
        let (mut broker, now) = (Broker::new(tree, Limits::default()), Instant::from_nanos(1));
        for client in READERS.into_iter().chain([WRITER]) {
            assert!(broker.connected(now, client, TransportPeer::Address(Ipv4Addr::LOCALHOST.into())));
            send(&mut broker, now, client, &Frame::Hello(Greeting::default()));
        }
        for (number, topic) in (1..).zip(TOPICS) {
            send(&mut broker, now, WRITER, &Frame::Advertise { number, spec: Advertisement::new(topic) });
        }
        for (number, (reader, one_topic, few, queue_events)) in (1..).zip(wishes.iter().copied()) {
            let class = few.then(|| "few".to_owned());
            let topics = if one_topic { "t/a" } else { "t/+" };
            let spec = SubscriptionSpec { class, queue_events, ..SubscriptionSpec::new(topics) };
            send(&mut broker, now, READERS[reader], &Frame::Subscribe { number, spec: Box::new(spec) });
        }
        while broker.task().is_some() {}
        assert_eq!(broker.channel.inboxes().count(), wishes.len(), "a subscription is refused");
        broker
    }

    /// A frame with its payload and the program that gets it.
    type SentFrame = (ClientId, Vec<u8>, Vec<u8>);

    fn payload(body: &EventBody) -> Vec<u8> {
        body.payload.bytes().into_owned()
    }

    fn take_tasks(broker: &mut Broker, sent: &mut Vec<SentFrame>) {
        while let Some(task) = broker.task() {
            if let Task::Answer { client, head, body } = task {
                sent.push((client, head, body.as_ref().map(payload).unwrap_or_default()));
            }
        }
    }

    /// Takes all deliveries, in runs or one by one.
    fn deliver(broker: &mut Broker, now: Instant, in_runs: bool) -> Vec<SentFrame> {
        let mut sent = Vec::new();
        take_tasks(broker, &mut sent);
        while matches!(broker.next(now), Next::Delivered) {
            take_tasks(broker, &mut sent);
            let Some(mut run) = broker.begin_run().filter(|_| in_runs) else { continue };
            while let Some((head, body)) = broker.next_of_run(now, &mut run) {
                sent.push((run.client, head, payload(&body)));
            }
            take_tasks(broker, &mut sent);
        }
        sent
    }

    #[test]
    fn a_run_has_the_waiting_events_of_a_consumer_until_one_has_a_deadline() {
        let (mut broker, now) = (broker(&[(0, true, false, 40)]), Instant::from_nanos(2));
        let publish = |broker: &mut Broker, number: u32, deadline: PublishDeadline| {
            let head = PublishHead { topic: 1, deadline, ..PublishHead::default() };
            send(broker, now, WRITER, &Frame::Publish { head, payload: &number.to_le_bytes() });
        };
        (0..3).for_each(|number| publish(&mut broker, number, PublishDeadline::default()));
        assert!(matches!(broker.next(now), Next::Delivered));
        take_tasks(&mut broker, &mut Vec::new());
        let mut run = broker.begin_run().expect("nothing else is due");
        for number in 1..3_u32 {
            let (_, body) = broker.next_of_run(now, &mut run).expect("it waits");
            assert_eq!(payload(&body), number.to_le_bytes());
        }
        assert!(broker.next_of_run(now, &mut run).is_none(), "none waits");
        publish(&mut broker, 3, PublishDeadline::default());
        publish(&mut broker, 4, PublishDeadline::In(Duration::from_nanos(9)));
        assert!(broker.next_of_run(now, &mut run).is_none(), "the next event has a deadline");
        assert!(matches!(broker.next(now), Next::Delivered));
        take_tasks(&mut broker, &mut Vec::new());
        assert!(broker.next_of_run(now, &mut run).is_none(), "the last event has a deadline");
        assert_eq!(deliver(&mut broker, now, true).len(), 1, "the event without a deadline is left");
    }

    proptest! {
        #[test]
        fn deliveries_in_runs_are_those_one_by_one(
            wishes in prop::collection::vec((0..READERS.len(), any::<bool>(), any::<bool>(), 1..40_usize), 1..4),
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let (mut slow, mut fast, mut now) = (broker(&wishes), broker(&wishes), Instant::from_nanos(2));
            for (number, step) in (0_u32..).zip(steps.into_iter().chain([Step::Resume(0), Step::Resume(1), Step::Deliver])) {
                match step {
                    Step::Pass(by) => now += Duration::from_nanos(by),
                    Step::Publish(topic, due) => {
                        let deadline = due.map_or(PublishDeadline::default(), |due| PublishDeadline::In(Duration::from_nanos(due)));
                        let topic = u32::try_from(topic + 1).expect("small");
                        for broker in [&mut slow, &mut fast] {
                            let head = PublishHead { topic, deadline, ..PublishHead::default() };
                            send(broker, now, WRITER, &Frame::Publish { head, payload: &number.to_le_bytes() });
                        }
                    }
                    Step::Deliver => {
                        prop_assert_eq!(deliver(&mut slow, now, false), deliver(&mut fast, now, true));
                    }
                    Step::Pause(reader) => {
                        [&mut slow, &mut fast].into_iter().for_each(|it| it.paused(READERS[reader]));
                    }
                    Step::Resume(reader) => {
                        let again = [&mut slow, &mut fast].map(|it| it.resumed(READERS[reader]));
                        prop_assert_eq!(again[0], again[1]);
                    }
                }
            }
            let inboxes = |broker: &Broker| -> BTreeMap<_, _> {
                broker.channel.inboxes().map(|it| (it.inbox, (it.counters, it.waiting))).collect()
            };
            prop_assert_eq!(inboxes(&slow), inboxes(&fast));
            for (class, _) in slow.channel.hierarchy().classes() {
                prop_assert_eq!(slow.channel.served(class), fast.channel.served(class));
            }
        }
    }
}
