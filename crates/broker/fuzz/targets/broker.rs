//! Whatever a program sends, frame after frame, the broker keeps its bounds, and when the program has gone
//! nothing of it is left. The bytes are frames, each after its length in a byte.
#![no_main]

use unisono_broker::{Broker, ClientId, Frame, Limits, Next, Pace, Sent, Task};
use unisono_fairqueue::{ClassSpec, Hierarchy};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let tree = ClassSpec::new("link").with([ClassSpec::new("a"), ClassSpec::new("b")]);
    let tree = Hierarchy::new(tree).and_then(|tree| tree.with_default("b")).expect("it is sound");
    let limits =
        Limits { clients: 2, channels: 3, credit: 2000, memory: 6000, largest: 200, ..Limits::default() };
    let mut broker = Broker::new(tree, Pace::new(8_000_000_000), limits);
    let (client, mut now, mut rest) = (ClientId(1), 0, bytes);
    assert!(broker.connected(0, client, 0));
    let mut hello = Vec::new();
    Frame::Hello.write(&mut hello);
    broker.received(0, client, &hello);
    while let Some((length, after)) = rest.split_first() {
        let (frame, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        broker.received(now, client, frame);
        work(&mut broker);
        send(&mut broker, &mut now, 1);
        assert!(broker.statistics(now).channels * 2000 <= limits.memory);
    }
    broker.gone(now, client);
    send(&mut broker, &mut now, usize::MAX);
    assert!(broker.is_empty());
    assert_eq!(broker.statistics(now).channels, 0);
});

fn work(broker: &mut Broker) {
    while let Some(task) = broker.task() {
        if let Task::Open { channel, .. } = task {
            broker.opened(channel, false);
        }
    }
}

fn send(broker: &mut Broker, now: &mut u64, most: usize) {
    for _ in 0..most {
        work(broker);
        match broker.next(*now) {
            Next::Transmit { .. } => broker.transmitted(*now, Sent::Whole),
            Next::Wait(until) => *now = until,
            Next::Idle => return,
        }
    }
}
