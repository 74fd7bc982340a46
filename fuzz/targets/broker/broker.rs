//! Any frames of a program: the broker keeps its bounds, and has no state of the program after it has
//! disconnected. The bytes are frames, each after its length in a byte.
#![no_main]

use unisono_events_wire::transport::TransportPeer;
use unisono_broker::{Broker, ClientId, Limits, Next, Sent, Task};
use unisono_events_wire::{Greeting, Instant};
use unisono_events_wire::Frame;
use unisono_fairqueue::{ClassSpec, Hierarchy, LinkPace, Rate};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let tree = ClassSpec::new("link").with([ClassSpec::new("a"), ClassSpec::new("b")]);
    let tree = Hierarchy::new(tree).and_then(|tree| tree.with_default("b")).expect("it is sound");
    let limits =
        Limits { clients: 2, topics: 3, credit: 2000, memory: 6000, path_largest: 200, ..Limits::default() };
    let mut broker = Broker::new(tree, limits)
        .with_paths(LinkPace::new(Rate::new(8_000_000_000).expect("a positive rate"), Limits::MAX_LATENESS));
    let (client, mut now, mut rest) = (ClientId(1), Instant::ZERO, bytes);
    assert!(broker.connected(Instant::ZERO, client, TransportPeer::User(0)));
    let mut hello = Vec::new();
    Frame::Hello(Greeting::default()).write(&mut hello);
    let _ = broker.received(Instant::ZERO, client, &hello, None);
    while let Some((length, after)) = rest.split_first() {
        let (frame, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        let _ = broker.received(now, client, frame, None);
        work(&mut broker);
        send(&mut broker, &mut now, 1);
        assert!(broker.statistics(now).paths * 2000 <= limits.memory);
    }
    broker.gone(now, client);
    send(&mut broker, &mut now, usize::MAX);
    assert!(broker.is_empty());
    assert_eq!(broker.statistics(now).paths, 0);
});

fn work(broker: &mut Broker) {
    while let Some(task) = broker.task() {
        if let Task::Open { path, .. } = task {
            broker.opened(path, false);
        }
    }
}

fn send(broker: &mut Broker, now: &mut Instant, most: usize) {
    for _ in 0..most {
        work(broker);
        match broker.next(*now) {
            Next::Transmit { .. } => broker.transmitted(*now, Sent::Whole),
            Next::Wait(until) => *now = until,
            Next::Delivered => {}
            Next::Idle => return,
        }
    }
}
