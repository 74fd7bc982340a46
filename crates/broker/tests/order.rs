//! Messages leave a broker's paths in the order of the scheduler, whatever the order and the times of
//! sending.
//!
//! The reference is the packet scheduler with a link of its own, which knows nothing of the event channel.
//! The link takes 64 ns per byte, so that the channel, which counts service in units of 64 ns, rounds
//! nothing.

use proptest::prelude::*;
use std::collections::BTreeMap;
use unisono_broker::{Broker, ClientId, Limits, Next, Sent, Task};
use unisono_events_client::{Destination, Greeting, NO_DEADLINE, PathSpec};
use unisono_events_wire::{Frame, frame::PublishHead, transport::TransportPeer};
use unisono_fairqueue::{ClassSpec, Discipline, Hierarchy, LinkPace, Order, Packet, Rate, Scheduler};
use unisono_linux::clock::{Duration, Instant};

/// The class of each path: two paths share the class with deadlines.
const PATHS: [&str; 5] = ["live", "live", "stored", "web", "rest"];
const PROGRAM: ClientId = ClientId(7);
const BYTE: Duration = Duration::from_nanos(64);

/// Makes a hierarchy of three levels, with one leaf ordered by deadline, and weights that are not round
/// numbers.
fn hierarchy() -> Hierarchy {
    let leaf = |name: &str, weight: &str| ClassSpec::new(name).weighing(weight.parse().expect("a weight"));
    let mut live = leaf("live", "1.5");
    live.order = Order::Deadline;
    let video = leaf("video", "3").with([live, leaf("stored", "2")]);
    let all = ClassSpec::new("link").with([video, leaf("web", "1")]);
    Hierarchy::new(all).and_then(|all| all.with_default("rest")).expect("names are unique")
}

fn destination() -> Destination {
    Destination::udp("10.0.0.1:9".parse().expect("an address"))
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    bytes
}

/// Makes a broker with one program, and a path for each of [`PATHS`].
fn connected() -> Broker {
    let link =
        LinkPace::new(Rate::new(8_000_000_000 / BYTE.as_nanos()).expect("a positive rate"), Duration::ZERO);
    let roomy = Limits { credit: 1 << 24, memory_of_user: 128 << 20, ..Limits::default() };
    let mut broker = Broker::new(hierarchy(), roomy).with_paths(link);
    assert!(broker.connected(Instant::ZERO, PROGRAM, TransportPeer::User(0)));
    let _ = broker.received(Instant::ZERO, PROGRAM, &bytes(&Frame::Hello(Greeting::default())), None);
    for (number, class) in (0..).zip(PATHS) {
        let path = PathSpec { class: class.to_owned(), destination: destination() };
        let _ = broker.received(Instant::ZERO, PROGRAM, &bytes(&Frame::Open { number, path }), None);
    }
    while let Some(task) = broker.task() {
        if let Task::Open { path, .. } = task {
            broker.opened(path, false);
        }
    }
    broker
}

/// Messages by arrival time: path, length, deadline.
type Arrivals = BTreeMap<Instant, Vec<(usize, usize, Instant)>>;

fn arrivals() -> impl Strategy<Value = Arrivals> {
    // some arrive exactly when a message ends, and many at once
    let after = prop_oneof![Just(0_u64), 0_u64..600, Just(1400)];
    let deadline =
        prop_oneof![Just(NO_DEADLINE), (0_u64..40_000).prop_map(|bytes| Instant::ZERO + BYTE * bytes)];
    let arrival = (after, 0..PATHS.len(), 4_usize..1400, deadline);
    proptest::collection::vec(arrival, 1..120).prop_map(|all| {
        let (mut now, mut arrivals) = (Instant::ZERO, Arrivals::new());
        for (after, path, length, deadline) in all {
            now += BYTE * after;
            arrivals.entry(now).or_default().push((path, length, deadline));
        }
        arrivals
    })
}

/// Computes the reference: for each message, its time of departure and its number in order of arrival.
fn of_the_scheduler(arrivals: &Arrivals) -> Vec<(Instant, u32)> {
    let hierarchy = hierarchy();
    let mut scheduler = Scheduler::new(hierarchy.clone());
    let (mut order, mut number, mut now) = (Vec::new(), 0, Instant::ZERO);
    let mut end: Option<Instant> = None;
    let mut arrivals = arrivals.iter().peekable();
    loop {
        if end.is_some_and(|end| end <= now) {
            scheduler.finish(now);
            end = None;
        }
        while let Some((_, together)) = arrivals.next_if(|(at, _)| **at == now) {
            for (path, length, deadline) in together {
                let class = hierarchy.find(PATHS[*path]).expect("it is there");
                let length = destination().wire_length(*length);
                // a late message is no more urgent than one that is due now
                let deadline = (*deadline).max(now);
                let packet = Packet { length, flow: *path as u32, deadline, item: number };
                scheduler.enqueue(now, class, packet).expect("a leaf");
                number += 1;
            }
        }
        if end.is_none()
            && let Some((_, packet)) = scheduler.dequeue(now)
        {
            order.push((now, packet.item));
            end = Some(now + BYTE * u64::from(packet.length));
        }
        now = match (end, arrivals.peek()) {
            (Some(end), Some((at, _))) => end.min(**at),
            (Some(end), None) => end,
            (None, Some((at, _))) => **at,
            (None, None) => return order,
        };
    }
}

fn of_the_broker(arrivals: &Arrivals) -> Vec<(Instant, u32)> {
    let (mut broker, mut order, mut number) = (connected(), Vec::new(), 0_u32);
    let mut send = |broker: &mut Broker, now: Instant| loop {
        match broker.next(now) {
            Next::Transmit { body, .. } => {
                let number = body.payload.bytes()[..4].try_into().expect("four bytes");
                order.push((now, u32::from_le_bytes(number)));
                broker.transmitted(now, Sent::Whole);
            }
            Next::Wait(until) => return Some(until),
            Next::Idle => return None,
            Next::Delivered => {}
        }
    };
    let mut until = None;
    for (at, together) in arrivals {
        while let Some(now) = until.filter(|until| until < at) {
            until = send(&mut broker, now);
        }
        for (path, length, deadline) in together {
            let mut payload = vec![0; *length];
            payload[..4].copy_from_slice(&number.to_le_bytes());
            number += 1;
            let head =
                PublishHead { topic: *path as u32, deadline: (*deadline).into(), ..PublishHead::default() };
            let _ = broker.received(*at, PROGRAM, &bytes(&Frame::Publish { head, payload: &payload }), None);
        }
        until = send(&mut broker, *at);
    }
    while let Some(now) = until {
        until = send(&mut broker, now);
    }
    assert!(broker.is_empty());
    order
}

proptest! {
    #[test]
    fn messages_leave_in_the_order_and_at_the_times_of_the_scheduler(arrivals in arrivals()) {
        prop_assert_eq!(of_the_broker(&arrivals), of_the_scheduler(&arrivals));
    }
}
