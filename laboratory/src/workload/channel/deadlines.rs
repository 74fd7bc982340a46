//! Measures, by the clock, the deadlines missed when every class has a load of 95 % of its share.
//!
//! ```text
//!   arrivals, drawn before --> EventChannel: deadline or arrival, shares between classes --> spin 100 us
//! ```
//! There are three classes, each with a sensor (an event every 10 ms), updates (20 events every 50 ms) and
//! video in rounds (all frames of half a second at once, section 3.5 of Shenoy et al.). An event is due when
//! the next event or round of its kind arrives. `crates/eventchannel/tests/deadlines.rs` simulates the same
//! load.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use std::hint::spin_loop;
use std::sync::Arc;
use unisono_eventchannel::{
    ChannelLimits, ConsumerSpec, EventChannel, ExecutionTime, FieldSet, FieldValue, InboxCapacity, InboxSpec,
    Interest, Offer, Publication, TopicId, TopicSpec,
};
use unisono_fairqueue::{ClassSpec, Hierarchy, Weight};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::timer;

/// A consumer's execution time for an event.
pub(super) const EXECUTION_TIME: Duration = Duration::from_micros(100);
/// The name and the weight of each class.
pub(super) const CLASSES: [(&str, u32); 3] = [("control", 1), ("video", 2), ("bulk", 1)];
const MILLISECOND: Duration = Duration::from_millis(1);

/// The order in which events of a class are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServedBy {
    #[default]
    Deadline,
    /// First in, first out: the channel does not get the deadlines.
    Arrival,
}

/// The events of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineCount {
    pub events: u64,
    pub missed: u64,
    /// The time from the first arrival to the end of the last delivery.
    pub took: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct EventArrival {
    /// The time of arrival. Like `due`, it counts from the start.
    pub(super) at: Duration,
    pub(super) topic: usize,
    pub(super) due: Duration,
}

/// Returns the period in ms and the number of simultaneous events of each stream of a class. Together they
/// are 95 % of the class's share.
pub(super) fn streams(class: usize) -> [(u64, u64); 3] {
    // in 4 s, a quarter of the time is enough for 10,000 events of 100 us, and half of it for 20,000
    [(10, 1), (50, 20), (500, if class == 1 { 2125 } else { 937 })]
}

pub(super) fn arrivals(length: Duration, seed: u64) -> Vec<EventArrival> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut coming = Vec::new();
    for (topic, (period, at_once)) in (0..CLASSES.len()).flat_map(streams).enumerate() {
        let period = MILLISECOND * period;
        let mut at = Duration::from_nanos(random.random_range(0..period.as_nanos()));
        while at < length {
            coming.extend((0..at_once).map(|_| EventArrival { at, topic, due: at + period }));
            at += period + Duration::from_nanos(random.random_range(0..period.as_nanos() / 100));
        }
    }
    coming.sort_by_key(|event| event.at);
    coming
}

type LoadedChannel = EventChannel<Arc<[u8]>>;

/// Makes the classes with their weights.
pub(super) fn shares() -> Result<Hierarchy, String> {
    let leaf = |(name, weight): (&str, u32)| {
        let weight = std::num::NonZeroU32::new(weight).map_or(Weight::ONE, Weight::from_integer);
        ClassSpec::new(name).weighing(weight)
    };
    let tree =
        Hierarchy::new(ClassSpec::new("all").with(CLASSES.map(leaf))).and_then(|t| t.with_default("bulk"));
    tree.map_err(|error| error.to_string())
}

/// Makes a channel with a topic and a consumer for each stream.
fn channel() -> Result<(LoadedChannel, unisono_eventchannel::SupplierId, Vec<TopicId>), String> {
    let mut channel = EventChannel::new(shares()?, ChannelLimits::default());
    let said = |error: unisono_eventchannel::ChannelError| error.to_string();
    let supplier = channel.supplier(Instant::ZERO, None).map_err(said)?;
    let mut topics = Vec::new();
    for number in 0..CLASSES.len() * streams(0).len() {
        let name = number.to_string();
        let topic = TopicSpec::new(&name).map_err(|error| error.to_string())?;
        let topic = channel.declare(topic).map_err(said)?;
        channel.offer(supplier, Offer::new(topic)).map_err(said)?;
        let inbox = InboxSpec {
            class: Some(CLASSES[number / streams(0).len()].0.into()),
            capacity: InboxCapacity { events: 1 << 20, bytes: usize::MAX },
            execution: ExecutionTime::constant(EXECUTION_TIME),
            ..InboxSpec::default()
        };
        let consumer = channel.connect(Instant::ZERO, ConsumerSpec::new(&name).with(inbox)).map_err(said)?;
        let pattern = name.parse().map_err(|error: unisono_eventchannel::NameError| error.to_string())?;
        channel.subscribe(Instant::ZERO, consumer, Interest::in_topics(pattern)).map_err(said)?;
        topics.push(topic);
    }
    Ok((channel, supplier, topics))
}

/// Publishes events for `length`, and serves until all have been delivered.
///
/// # Errors
/// The channel refuses a request of this program.
pub fn measure(by: ServedBy, length: Duration, seed: u64) -> Result<DeadlineCount, String> {
    let (mut channel, supplier, topics) = channel()?;
    let coming = arrivals(length, seed);
    let payload: Arc<[u8]> = vec![0; 64].into();
    let start = clock::now();
    let mut done = DeadlineCount { events: coming.len() as u64, missed: 0, took: Duration::ZERO };
    let mut next = 0;
    loop {
        let now = clock::now() - start;
        while let Some(arrived) = coming.get(next).filter(|arrived| arrived.at <= now) {
            next += 1;
            if arrived.due <= now {
                // this process has slept in between; the channel does not accept an event that is already
                // late
                done.missed += 1;
                continue;
            }
            let fields = FieldSet::new().with("due", arrived.due.as_nanos() as i64);
            let mut event = Publication::new(Arc::clone(&payload)).with_fields(fields);
            event.deadline = (by == ServedBy::Deadline).then(|| in_channel(arrived.due));
            channel
                .try_publish(in_channel(now), supplier, topics[arrived.topic], event)
                .map_err(|error| error.to_string())?;
        }
        if let Some(delivery) = channel.next(in_channel(now)) {
            let until = clock::now() + EXECUTION_TIME;
            while clock::now() < until {
                spin_loop();
            }
            let now = clock::now() - start;
            channel.finish(in_channel(now), Some(EXECUTION_TIME));
            let due = delivery.event.as_ref().and_then(|event| due(&event.event.fields));
            done.missed += u64::from(due.is_none_or(|due| now > due));
        } else if let Some(arriving) = coming.get(next) {
            timer::sleep_until(start + arriving.at);
        } else {
            done.took = clock::now() - start;
            return Ok(done);
        }
    }
}

/// Converts a time since the start of the run to a time of the channel, whose clock begins with the run.
fn in_channel(since_start: Duration) -> Instant {
    Instant::ZERO + since_start
}

pub(super) fn due(fields: &FieldSet) -> Option<Duration> {
    match fields.field("due") {
        Some(FieldValue::Number(number)) => Some(Duration::from_nanos(number.to_f64() as u64)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_loaded_with_95_percent_of_its_share() {
        let weights: u32 = CLASSES.iter().map(|(_, weight)| weight).sum();
        for (class, (name, weight)) in CLASSES.into_iter().enumerate() {
            let a_second: u64 =
                streams(class).iter().map(|(period, at_once)| at_once * 1000 / period).sum::<u64>()
                    * EXECUTION_TIME.as_nanos();
            let share = 1e9 * f64::from(weight) / f64::from(weights);
            let load = a_second as f64 / share;
            assert!((0.945..0.955).contains(&load), "{name}: {load}");
        }
    }

    #[test]
    fn every_event_is_delivered_once_and_by_the_clock() {
        let length = Duration::from_millis(20);
        for by in [ServedBy::Deadline, ServedBy::Arrival] {
            let seed = 3;
            let done = measure(by, length, seed).expect("measured");
            assert_eq!(done.events, arrivals(length, seed).len() as u64);
            assert!(done.events > 0 && done.took >= EXECUTION_TIME * (done.events - done.missed), "{done:?}");
        }
    }
}
