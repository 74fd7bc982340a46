//! Deadlines and shares of events as the broker serves them: the guarantees of a policy for classes of
//! consumers under floods, and the order of waiting events.
//!
//! Where a test says so, the broker is the bottleneck: its suppliers always have the next event, and its
//! consumers take all events. The tests compare counts and orders, never times.

use crate::common::watchdog::within_a_minute;
use crate::common::{event, with_this_broker};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as StdDuration;
use unisono_broker::{Broker, ClientId, Limits, Next, Received, Server, Task};
use unisono_events_client::{
    Advertisement, ChannelWait, Client, EventDraft, Greeting, Reception, ReservedTime, SubscriptionSpec,
    WhenFull,
};
use unisono_events_wire::frame::{DeliverTimes, Frame, PublishHead};
use unisono_events_wire::transport::{
    AcceptedTransport, Drained, FrameTransport, IncomingFrame, PayloadRef, PollFor, Taken, TransportError,
    TransportListener, TransportPeer,
};
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_linux::clock::{Duration, Instant};

/// Makes a broker in which `control` is guaranteed three quarters, and `rest` one quarter.
fn three_to_one() -> Broker {
    let control = ClassSpec::new("control").weighing("3".parse().expect("a weight"));
    let tree = ClassSpec::new("all").with([control, ClassSpec::new("rest")]);
    let tree = Hierarchy::new(tree).and_then(|tree| tree.with_default("rest"));
    Broker::new(tree.expect("it is sound"), Limits::default())
}

const CLASSES: [&str; 2] = ["control", "rest"];

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    bytes
}

fn in_class(class: &str, topics: &str) -> SubscriptionSpec {
    SubscriptionSpec { class: Some(class.to_owned()), ..SubscriptionSpec::new(topics) }
}

/// For each delivery in order, the index of the program that got it.
type Deliveries = Arc<Mutex<Vec<usize>>>;

/// A program without a socket: it always has a frame to send, and takes all frames at once.
#[derive(Debug)]
struct TirelessProgram {
    place: usize,
    /// Always ready.
    ready: OwnedFd,
    says: VecDeque<Vec<u8>>,
    /// The frame that it repeats for ever after `says`.
    for_ever: Option<Vec<u8>>,
    saying: Vec<u8>,
    sent: Deliveries,
}

impl TirelessProgram {
    fn new(place: usize, first: &[Frame<'_>], for_ever: Option<Frame<'_>>, sent: &Deliveries) -> Self {
        Self {
            place,
            ready: eventfd(1, EventfdFlags::CLOEXEC).expect("descriptors are left"),
            says: first.iter().map(bytes).collect(),
            for_ever: for_ever.as_ref().map(bytes),
            saying: Vec::new(),
            sent: Arc::clone(sent),
        }
    }
}

impl FrameTransport for TirelessProgram {
    fn largest(&self) -> usize {
        1 << 20
    }

    fn send(&mut self, head: &[u8], _: PayloadRef<'_>) -> Result<Taken, TransportError> {
        if matches!(Frame::read(head), Ok(Frame::Deliver { .. })) {
            self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(self.place);
        }
        Ok(Taken::Taken)
    }

    fn flush(&mut self) -> Result<Drained, TransportError> {
        Ok(Drained::All)
    }

    fn receive(&mut self) -> Result<Option<IncomingFrame<'_>>, TransportError> {
        let Some(next) = self.says.pop_front().or_else(|| self.for_ever.clone()) else { return Ok(None) };
        self.saying = next;
        Ok(Some(IncomingFrame { bytes: &self.saying, shared_payload: None }))
    }

    fn poll_for(&self) -> PollFor {
        PollFor::Frames
    }

    fn close(&mut self) {}
}

impl AsFd for TirelessProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

/// Connects these programs one after the other.
#[derive(Debug)]
struct TirelessPrograms {
    ready: OwnedFd,
    waiting: VecDeque<TirelessProgram>,
}

impl TransportListener for TirelessPrograms {
    fn accept(&mut self) -> Result<Option<AcceptedTransport>, TransportError> {
        let next = self.waiting.pop_front();
        Ok(next.map(|program| (Box::new(program) as _, TransportPeer::Address(Ipv4Addr::LOCALHOST.into()))))
    }
}

impl AsFd for TirelessPrograms {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

/// Returns the deliveries of an overloaded broker. Each class has one consumer with a topic of its own, and
/// each topic has as many suppliers as `suppliers` says. The first deliveries, while programs still connect,
/// are left out.
fn deliveries_under_floods(suppliers: [usize; 2], consumer: &SubscriptionSpec) -> Vec<usize> {
    const LEFT_OUT: usize = 4000;
    const COUNTED: usize = 8000;
    let sent = Deliveries::default();
    let hello = || Frame::Hello(Greeting::default());
    let mut waiting = VecDeque::new();
    for (place, class) in CLASSES.into_iter().enumerate() {
        let spec = SubscriptionSpec { class: Some(class.to_owned()), ..consumer.clone() };
        let spec = SubscriptionSpec { interests: SubscriptionSpec::new(class).interests, ..spec };
        waiting.push_back(TirelessProgram::new(
            place,
            &[hello(), Frame::Subscribe { number: 0, spec: Box::new(spec) }],
            None,
            &sent,
        ));
    }
    for (class, count) in CLASSES.into_iter().zip(suppliers) {
        for _ in 0..count {
            let spec = Advertisement::new(class);
            let head = PublishHead { ..PublishHead::default() };
            let publish = Frame::Publish { head, payload: b"one of many" };
            let first = [hello(), Frame::Advertise { number: 0, spec }];
            waiting.push_back(TirelessProgram::new(usize::MAX, &first, Some(publish), &sent));
        }
    }
    let programs =
        TirelessPrograms { ready: eventfd(1, EventfdFlags::CLOEXEC).expect("descriptors are left"), waiting };
    let mut server = Server::new(three_to_one(), ChannelWait::Sleep).expect("descriptors are left");
    server.add(Box::new(programs)).expect("it listens");
    let count = || sent.lock().unwrap_or_else(PoisonError::into_inner).len();
    server.serve(&|| count() >= LEFT_OUT + COUNTED).expect("it serves");
    let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner).split_off(LEFT_OUT);
    sent.truncate(COUNTED);
    sent
}

fn part_of_control(sent: &[usize]) -> f64 {
    sent.iter().filter(|place| **place == 0).count() as f64 / sent.len() as f64
}

#[test]
fn classes_share_a_flooded_broker_by_their_weights_whoever_publishes_more() {
    within_a_minute(|| {
        for full in [WhenFull::DropOldest, WhenFull::BlockSupplier] {
            for suppliers in [[1, 1], [1, 5], [5, 1]] {
                let consumer = SubscriptionSpec { full, ..SubscriptionSpec::default() };
                let part = part_of_control(&deliveries_under_floods(suppliers, &consumer));
                assert!(
                    (0.745..0.755).contains(&part),
                    "{part} of the deliveries with {suppliers:?}, {full:?}"
                );
            }
        }
    });
}

/// Programs of the simulated broker: the publisher, and the consumers, each with its execution time per
/// event.
const PUBLISHER: ClientId = ClientId(0);
const RESERVED: ClientId = ClientId(1);
const FLOODED: [(ClientId, &str, Duration); 2] =
    [(ClientId(2), "control", Duration::from_micros(25)), (ClientId(3), "rest", Duration::from_micros(50))];
const EXECUTION: Duration = Duration::from_micros(50);

/// Makes a broker with these programs; the first topic belongs to the reserved consumer, whose reservation is
/// optional.
fn simulated(reserve: Option<ReservedTime>) -> Broker {
    let mut broker = three_to_one();
    let say = |broker: &mut Broker, program: ClientId, frame: &Frame<'_>| {
        assert_eq!(broker.received(Instant::ZERO, program, &bytes(frame), None), Received::Done);
    };
    let mut consumers = vec![(RESERVED, "control", "sensor", EXECUTION, reserve)];
    consumers.extend(FLOODED.map(|(program, class, took)| (program, class, class, took, None)));
    for program in [PUBLISHER, RESERVED, FLOODED[0].0, FLOODED[1].0] {
        assert!(broker.connected(Instant::ZERO, program, TransportPeer::User(0)));
        say(&mut broker, program, &Frame::Hello(Greeting::default()));
    }
    for (program, class, topic, took, reserve) in consumers {
        let spec = SubscriptionSpec { reserve, execution_ns: took.as_nanos(), ..in_class(class, topic) };
        say(&mut broker, program, &Frame::Subscribe { number: 0, spec: Box::new(spec) });
    }
    for (number, topic) in (0..).zip(["sensor", "control", "rest"]) {
        say(&mut broker, PUBLISHER, &Frame::Advertise { number, spec: Advertisement::new(topic) });
    }
    while let Some(task) = broker.task() {
        let Task::Answer { head, .. } = task else { continue };
        assert!(!matches!(Frame::read(&head), Ok(Frame::Refused { .. })), "{:?}", Frame::read(&head));
    }
    broker
}

/// Publishes an event of a sensor each millisecond, due half a millisecond later, and with it 40 events due
/// at once for each of the other two consumers, which overloads the broker. Returns, for the sensor's
/// consumer and for the other two, the events delivered in time and late, by the simulated clock.
fn in_time_and_late(broker: &mut Broker) -> [[u32; 2]; 2] {
    const MILLISECONDS: u64 = 200;
    let (mut counts, mut now) = ([[0; 2]; 2], Instant::ZERO);
    for next in 0..MILLISECONDS {
        let comes = Instant::from_millis(next);
        while now < comes {
            if !matches!(broker.next(now), Next::Delivered) {
                now = comes;
            }
            while let Some(task) = broker.task() {
                let Task::Answer { client, head, .. } = task else { continue };
                let Ok(Frame::Deliver { head, .. }) = Frame::read(&head) else { continue };
                let flooded = FLOODED.iter().find(|(program, ..)| *program == client);
                now += flooded.map_or(EXECUTION, |(.., took)| *took);
                let DeliverTimes::At { deadline, .. } = head.times else { panic!("both read one clock") };
                counts[usize::from(flooded.is_some())][usize::from(now > deadline)] += 1;
            }
        }
        let mut publish = |topic: u32, due: Duration| {
            let head = PublishHead { topic, deadline: (now + due).into(), ..PublishHead::default() };
            let frame = bytes(&Frame::Publish { head, payload: b"" });
            let _ = broker.received(now, PUBLISHER, &frame, None);
        };
        for _ in 0..40 {
            publish(1, Duration::from_nanos(1));
            publish(2, Duration::from_nanos(1));
        }
        publish(0, Duration::from_micros(500));
    }
    counts
}

#[test]
fn a_consumer_with_a_reservation_beside_floods_misses_no_deadline() {
    let reserve = ReservedTime { period_ns: 1_000_000, deadline_ns: 500_000, largest: 1024 };
    let [[in_time, late], [_, flood_late]] = in_time_and_late(&mut simulated(Some(reserve)));
    assert_eq!((in_time, late), (199, 0), "the last one is still to come");
    assert!(flood_late > 1000, "{flood_late}: no flood");
    // without the reservation it waits behind events with earlier deadlines
    let [[_, late], _] = in_time_and_late(&mut simulated(None));
    assert!(late > 100, "{late}: the flood harms nobody");
}

/// Index of the transport with a ring, which holds a few MB.
const SHARED: usize = 1;

/// Connects a client over the transport with this index; through each of them the broker itself delivers.
fn connected(addresses: &crate::common::Addresses, transport: usize) -> Client {
    let mut clients = addresses.clients();
    clients.swap(0, transport);
    let [client, ..] = clients;
    client
}

#[test]
fn classes_share_a_connection_by_their_weights() {
    /// More than the connection holds, and less than waits in each queue.
    const COUNTED: usize = 1500;
    with_this_broker(three_to_one(), |addresses| {
        for transport in 0..3 {
            let mut consumer = connected(addresses, transport);
            let [control, _] = CLASSES.map(|class| {
                let spec = SubscriptionSpec { queue_events: 4000, ..in_class(class, class) };
                consumer.subscribe(&spec).expect("the class is there")
            });
            let mut supplier = connected(addresses, transport);
            let topics =
                CLASSES.map(|class| supplier.advertise(&Advertisement::new(class)).expect("a topic"));
            // no consumer reads meanwhile, so that both queues are full in the end
            for _ in 0..5000 {
                for topic in topics {
                    supplier.publish_buffered(topic, &EventDraft::new(&[0; 1000])).expect("it leaves");
                }
            }
            let waiting = supplier.statistics().expect("an answer").consumers;
            assert!(waiting.iter().all(|consumer| consumer.waiting == 4000), "{waiting:?}");
            let mut of_control = || {
                let mut came = 0;
                let mut control_came = 0;
                while came < COUNTED {
                    // gaps are reported as well
                    let told = consumer.receive(Some(StdDuration::from_secs(20))).expect("it goes on");
                    let Some(Reception::Event(event)) = told else { continue };
                    came += 1;
                    control_came += usize::from(event.subscription == control);
                }
                control_came
            };
            of_control(); // these had left the broker before
            let part = of_control() as f64 / COUNTED as f64;
            assert!((0.74..0.76).contains(&part), "{part} over transport {transport}");
        }
    });
}

#[test]
fn what_is_due_soon_overtakes_what_waits_for_a_consumer_that_reads_no_more() {
    with_this_broker(three_to_one(), |addresses| {
        for transport in 0..3 {
            let mut consumer = connected(addresses, transport);
            consumer
                .subscribe(&SubscriptionSpec {
                    queue_bytes: 32 << 20,
                    direct: false,
                    ..SubscriptionSpec::new("#")
                })
                .expect("it fits");
            let [mut late, mut soon] = [connected(addresses, transport), connected(addresses, transport)];
            let publish = |client: &mut Client, topic: &str, count: u32, due: StdDuration| {
                let topic = client.advertise(&Advertisement::new(topic)).expect("a topic");
                let payload = vec![0; 10_000];
                for _ in 0..count {
                    client.publish(topic, &EventDraft::new(&payload).due_in(due)).expect("it leaves");
                }
                client.statistics().expect("all of it has come");
            };
            // the kernel would enlarge the window of a fast receiver
            for _ in 0..20 {
                publish(&mut soon, "before", 50, StdDuration::from_secs(1000));
                (0..50).for_each(|_| drop(event(&mut consumer)));
            }
            publish(&mut late, "late", 900, StdDuration::from_secs(3000));
            publish(&mut soon, "soon", 9, StdDuration::from_secs(1000));
            let got: Vec<_> = (0..909).map(|_| event(&mut consumer)).collect();
            let first = got.iter().position(|event| &*event.topic == "soon").expect("they came");
            // some hundred KB of the events with later deadlines have left before
            let most = if transport == SHARED { 900 } else { 100 };
            assert!(first < most, "{first} of 900 came before over transport {transport}");
            assert!(got[first..first + 9].iter().all(|event| &*event.topic == "soon"), "together");
            for at in [0..first, first..909] {
                let due: Vec<_> = got[at].iter().map(|event| event.deadline.expect("each has one")).collect();
                // over TCP the remaining time is transmitted, so that a deadline shifts with each hop
                let sorted =
                    due.windows(2).all(|pair| pair[0].as_nanos() <= pair[1].as_nanos() + 1_000_000_000);
                assert!(sorted, "by deadline over transport {transport}");
            }
        }
    });
}

#[test]
fn a_consumer_with_a_reservation_beside_a_flood_gets_every_event() {
    with_this_broker(three_to_one(), |addresses| {
        for transport in 0..3 {
            let reserve = Some(ReservedTime { period_ns: 1_000_000, deadline_ns: 1_000_000, largest: 1024 });
            let mut sensor = connected(addresses, transport);
            let spec = SubscriptionSpec { reserve, queue_events: 4, ..in_class("control", "sensor") };
            sensor.subscribe(&spec).expect("it is admitted");
            let mut flooded = connected(addresses, transport);
            let spec = SubscriptionSpec { queue_events: 4, ..in_class("control", "flood") };
            flooded.subscribe(&spec).expect("it fits");
            let [mut supplier, mut flood] =
                [connected(addresses, transport), connected(addresses, transport)];
            let topic = supplier.advertise(&Advertisement::new("sensor")).expect("a topic");
            let (comes, stops) = (AtomicBool::new(false), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let topic = flood.advertise(&Advertisement::new("flood")).expect("a topic");
                    let payload = [0; 1000];
                    let mut published = 0_u32;
                    while !stops.load(Ordering::Relaxed) {
                        flood
                            .publish_buffered(topic, &EventDraft::new(&payload))
                            .expect("the broker is there");
                        published += 1;
                        // more than the client buffers before it sends
                        comes.fetch_or(published > 1000, Ordering::Relaxed);
                    }
                });
                while !comes.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                for sequence in 1..=300 {
                    supplier.publish(topic, &EventDraft::new(b"20 C")).expect("it leaves");
                    assert_eq!(event(&mut sensor).sequence, sequence);
                }
                stops.store(true, Ordering::Relaxed);
            });
            let lost = supplier.statistics().expect("an answer").consumers;
            let of = |wanted: u64| lost.iter().filter(|consumer| consumer.dropped_full == wanted).count();
            assert_eq!((lost.len(), of(0)), (2, 1), "the one without a promise loses: {lost:?}");
        }
    });
}

#[test]
fn a_program_that_is_not_heard_because_it_is_ahead_keeps_its_lease() {
    const LEASE: Duration = Duration::SECOND;
    let mut broker = simulated(None);
    let leased = ClientId(9);
    assert!(broker.connected(Instant::ZERO, leased, TransportPeer::User(0)));
    let greeting = Greeting { lease_ns: Some(LEASE.as_nanos()), ..Greeting::default() };
    assert_eq!(
        broker.received(Instant::ZERO, leased, &bytes(&Frame::Hello(greeting)), None),
        Received::Done
    );
    let mut told = Received::Done;
    for (number, topic) in (0..).zip(CLASSES) {
        let spec = Advertisement::new(topic);
        let _ = broker.received(Instant::ZERO, leased, &bytes(&Frame::Advertise { number, spec }), None);
        for _ in 0..100 {
            let head = PublishHead { topic: number, ..PublishHead::default() };
            let frame = bytes(&Frame::Publish { head, payload: b"" });
            told = broker.received(Instant::ZERO, leased, &frame, None);
        }
    }
    assert_eq!(told, Received::Ahead);
    for half in 1..10 {
        let now = Instant::ZERO + LEASE / 2 * half;
        assert!(broker.is_ahead(now, leased));
        let _ = broker.next(now);
        while let Some(task) = broker.task() {
            assert!(!matches!(task, Task::SendAway { .. }), "{half} halves of its lease");
        }
    }
}
