//! A channel with some classes, and helpers to fill it, for all tests of the channel.
#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::Arc;
use unisono_eventchannel::{
    ChannelLimits, ConsumerId, ConsumerSpec, Delivery, EventChannel, InboxSpec, Interest, Offer, Publication,
    SubscriptionId, SupplierId, TopicId, TopicSpec,
};
use unisono_fairqueue::{ClassSpec, Hierarchy};
use unisono_time::Instant;

pub(crate) type Bytes = Arc<[u8]>;

/// Makes leaf classes with these names and weights; the last one is the default class.
pub(crate) fn classes(classes: &[(&str, u32)]) -> Hierarchy {
    let leaf = |(name, weight): &(&str, u32)| {
        ClassSpec::new(*name).weighing(weight.to_string().parse().expect("a weight"))
    };
    let tree = Hierarchy::new(ClassSpec::new("all").with(classes.iter().map(leaf))).expect("unique names");
    tree.with_default(classes.last().expect("a class").0).expect("a leaf")
}

pub(crate) struct Bench {
    pub(crate) channel: EventChannel<Bytes>,
    pub(crate) supplier: SupplierId,
}

impl Bench {
    pub(crate) fn new(of: &[(&str, u32)]) -> Self {
        let mut channel = EventChannel::new(classes(of), ChannelLimits::default());
        let supplier = channel.supplier(Instant::ZERO, None).expect("room");
        Self { channel, supplier }
    }

    /// Declares a topic that the supplier offers.
    pub(crate) fn topic(&mut self, name: &str) -> TopicId {
        let topic = self.channel.declare(TopicSpec::new(name).expect("a name")).expect("room");
        self.channel.offer(self.supplier, Offer::new(topic)).expect("no type");
        topic
    }

    pub(crate) fn consumer(&mut self, name: &str, inbox: InboxSpec) -> ConsumerId {
        self.channel.connect(Instant::ZERO, ConsumerSpec::new(name).with(inbox)).expect("admitted")
    }

    pub(crate) fn subscribe(&mut self, consumer: ConsumerId, pattern: &str) -> SubscriptionId {
        self.channel.subscribe(Instant::ZERO, consumer, all(pattern)).expect("it fits")
    }

    /// Makes a consumer of all events of the topics that match a pattern.
    pub(crate) fn reader(&mut self, pattern: &str, inbox: InboxSpec) -> ConsumerId {
        let consumer = self.consumer(pattern, inbox);
        self.subscribe(consumer, pattern);
        consumer
    }

    pub(crate) fn publish(&mut self, now: u64, topic: TopicId, publication: Publication<Bytes>) {
        self.channel.try_publish(Instant::from_nanos(now), self.supplier, topic, publication).expect("taken");
    }

    pub(crate) fn next(&mut self, now: u64) -> Option<Delivery<Bytes>> {
        self.channel.next(Instant::from_nanos(now))
    }

    /// Takes the next delivery and returns the sequence number of its event.
    pub(crate) fn next_number(&mut self, now: u64) -> Option<u64> {
        Some(self.next(now)?.event?.event.sequence)
    }
}

pub(crate) fn all(pattern: &str) -> Interest {
    Interest::in_topics(pattern.parse().expect("a pattern"))
}

pub(crate) fn event() -> Publication<Bytes> {
    sized(0)
}

pub(crate) fn sized(bytes: usize) -> Publication<Bytes> {
    Publication::new(vec![0; bytes].into())
}

/// A pseudorandom generator; a seed gives the same numbers in every run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(most)) >> 64) as u64
    }
}
