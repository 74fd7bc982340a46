//! Measures the cost of an event from `try_publish` to `finish`, and the additional cost when 10,000
//! consumers wait for other events.
//!
//! ```text
//! cargo bench -p unisono-eventchannel --bench dispatch -- [samples=12] [events=100000]
//! cargo bench -p unisono-eventchannel --bench dispatch -- only=VARIANT [events=100000]      under callgrind
//! ```
//! The variants run interleaved (A B C C B A): `alone` has one supplier and one consumer; `backlog` adds 1000
//! waiting events, each with its own deadline; `crowd` adds 10,000 subscriptions of 1,000 consumers, none of
//! which matches; `stopped` adds a consumer that takes no events and whose inbox overflows. Output:
//! nanoseconds per event, and the ratio to `alone`, with the range of the middle 80 % of the samples.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant as StdInstant;
use unisono_eventchannel::{
    ChannelLimits, ConsumerSpec, EventChannel, FieldSet, Interest, Offer, Publication, SupplierId, TopicId,
    TopicSpec,
};
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_time::Instant;

const VARIANTS: [&str; 4] = ["alone", "backlog", "crowd", "stopped"];

struct Setting {
    channel: EventChannel<Arc<[u8]>>,
    supplier: SupplierId,
    topic: TopicId,
    payload: Arc<[u8]>,
    now: u64,
}

impl Setting {
    fn new(variant: &str) -> Self {
        let tree =
            Hierarchy::new(ClassSpec::new("all").with([ClassSpec::new("other")])).expect("unique names");
        let tree = tree.with_default("rest").expect("a new leaf");
        let mut channel = EventChannel::new(tree, ChannelLimits::default());
        let supplier = channel.supplier(Instant::ZERO, None).expect("room");
        let topic = channel.declare(TopicSpec::new("plant/7/hot").expect("a name")).expect("room");
        channel.offer(supplier, Offer::new(topic)).expect("no type");
        let mut subscribe = |name: &str, filters: &[String]| {
            let consumer = channel.connect(Instant::ZERO, ConsumerSpec::new(name)).expect("admitted");
            for filter in filters {
                let interest = Interest::in_topics("plant/+/hot".parse().expect("a pattern"));
                let interest = interest.filtered(filter.parse().expect("a filter"));
                channel.subscribe(Instant::ZERO, consumer, interest).expect("it fits");
            }
            consumer
        };
        subscribe("reader", &["level > 3".to_owned()]);
        if variant == "crowd" {
            for number in 0..1000 {
                let filter = |at: u32| format!("sensor == {} and level > 3", 100 + number * 10 + at);
                subscribe(&number.to_string(), &(0..10).map(filter).collect::<Vec<_>>());
            }
        }
        let stopped = (variant == "stopped").then(|| subscribe("stopped", &["level > 3".to_owned()]));
        if let Some(stopped) = stopped {
            channel.pause(stopped);
        }
        let mut this = Self { channel, supplier, topic, payload: vec![0; 1024].into(), now: 0 };
        if variant == "backlog" {
            (0..1000).for_each(|_| this.publish());
        }
        this
    }

    fn publish(&mut self) {
        self.now += 100;
        let fields = FieldSet::new().with("level", 5).with("sensor", 17);
        let event = Publication::new(Arc::clone(&self.payload))
            .with_fields(fields)
            .due(Instant::from_nanos(self.now + 1_000_000));
        let done = self.channel.try_publish(Instant::from_nanos(self.now), self.supplier, self.topic, event);
        black_box(done.expect("nobody blocks"));
    }

    fn run(&mut self, events: u32) -> f64 {
        let start = StdInstant::now();
        for _ in 0..events {
            self.publish();
            black_box(self.channel.next(Instant::from_nanos(self.now)).expect("an event waits"));
            self.channel.finish(Instant::from_nanos(self.now), None);
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(events)
    }
}

fn argument(name: &str) -> Option<String> {
    std::env::args().find_map(|argument| Some(argument.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

fn main() {
    let count =
        |name: &str, default: u32| argument(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (samples, events) = (count("samples", 12), count("events", 100_000));
    if let Some(only) = argument("only") {
        Setting::new(&only).run(events);
        return;
    }
    let mut settings = VARIANTS.map(Setting::new);
    let mut times = VARIANTS.map(|_| Vec::new());
    for _ in 0..samples {
        let mut sums = [0.0; VARIANTS.len()];
        for at in (0..VARIANTS.len()).chain((0..VARIANTS.len()).rev()) {
            sums[at] += settings[at].run(events) / 2.0;
        }
        times.iter_mut().zip(sums).for_each(|(times, sum)| times.push(sum));
    }
    println!("{:<8} {:>9} {:>7}   [10 % .. 90 %]", "variant", "ns", "ratio");
    for (variant, of) in VARIANTS.iter().zip(&times) {
        let mut ratios: Vec<f64> = of.iter().zip(&times[0]).map(|(time, alone)| time / alone).collect();
        ratios.sort_by(f64::total_cmp);
        let mut of = of.clone();
        of.sort_by(f64::total_cmp);
        let (low, high) = (ratios[ratios.len() / 10], ratios[ratios.len() - 1 - ratios.len() / 10]);
        let ratio = ratios[ratios.len() / 2];
        println!("{variant:<8} {:>9.1} {ratio:>7.2}   [{low:.2} .. {high:.2}]", of[of.len() / 2]);
    }
}
