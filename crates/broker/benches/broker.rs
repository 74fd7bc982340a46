//! Measures the cost of an event in the broker itself: no socket, no other process.
//!
//! ```text
//! cargo bench -p unisono-broker --bench broker -- [samples=7] [events=200000]
//! ```
//! A frame of 1 KB goes in, and the frame for the single consumer comes out, as in the server: in batches of
//! 1 and of 64. Printed: the minimum, the median and the maximum time of an event, in nanoseconds.

#![cfg(not(loom))]
#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::time::Instant;
use unisono_broker::{Broker, ClientId, Limits, Next, Task};
use unisono_events_client::{Advertisement, Greeting, SubscriptionSpec, now};
use unisono_events_wire::Frame;
use unisono_events_wire::transport::TransportPeer;
use unisono_fairqueue::{ClassSpec, Hierarchy};

const SUPPLIER: ClientId = ClientId(1);
const CONSUMER: ClientId = ClientId(2);

/// A broker with a supplier and a consumer, and the supplier's frame.
struct Served {
    broker: Broker,
    publish: Vec<u8>,
    sent: usize,
}

impl Served {
    fn new(bytes: usize) -> Self {
        let tree = Hierarchy::new(ClassSpec::new("all")).and_then(|tree| tree.with_default("rest"));
        let mut broker = Broker::new(tree.expect("it is sound"), Limits::default());
        let spec = Advertisement::new("topic");
        let subscription = Box::new(SubscriptionSpec::new("topic"));
        for client in [SUPPLIER, CONSUMER] {
            assert!(broker.connected(now(), client, TransportPeer::User(0)));
            send(&mut broker, client, &Frame::Hello(Greeting::default()));
        }
        send(&mut broker, SUPPLIER, &Frame::Advertise { number: 1, spec });
        send(&mut broker, CONSUMER, &Frame::Subscribe { number: 1, spec: subscription });
        while broker.task().is_some() {}
        let head = unisono_events_wire::frame::PublishHead { topic: 1, ..Default::default() };
        let mut publish = Vec::new();
        head.write(&mut publish);
        publish.resize(publish.len() + bytes, 7);
        Self { broker, publish, sent: 0 }
    }

    fn batch(&mut self, events: usize) {
        for _ in 0..events {
            let _ = self.broker.received(now(), SUPPLIER, &self.publish, None);
        }
        loop {
            while let Some(task) = self.broker.task() {
                if let Task::Answer { body: Some(body), head, .. } = task {
                    self.sent += head.len() + body.as_payload().length();
                }
            }
            if !matches!(self.broker.next(now()), Next::Delivered) {
                return;
            }
        }
    }
}

fn send(broker: &mut Broker, client: ClientId, frame: &Frame<'_>) {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    let _ = broker.received(now(), client, &bytes, None);
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: usize| {
        let found = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.map_or(default, |number| number.parse().expect("a number"))
    };
    let (samples, events) = (number("samples", 7), number("events", 200_000));
    let mut runs = [(1, Vec::new()), (64, Vec::new())];
    for sample in 0..samples {
        let mut order = [0, 1];
        if sample % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let (batch, figures) = &mut runs[at];
            let mut served = Served::new(1024);
            served.batch(*batch);
            let start = Instant::now();
            (0..events / *batch).for_each(|_| served.batch(*batch));
            figures.push(start.elapsed().as_nanos() as f64 / events as f64);
            assert!(served.sent > events * 1024);
        }
    }
    for (batch, mut figures) in runs {
        figures.sort_by(f64::total_cmp);
        let (least, median, most) = (figures[0], figures[figures.len() / 2], figures[figures.len() - 1]);
        let n = figures.len();
        println!("batches of {batch:<3} n={n} {least:>8.0} {median:>8.0} {most:>8.0} ns an event");
    }
}
