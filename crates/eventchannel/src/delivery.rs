//! What a consumer is pushed.

use crate::event::ChannelEvent;
use crate::inbox::Gap;
use crate::index::SubscriptionId;
use crate::quality::Mismatch;
use crate::topic::TopicId;
use std::sync::Arc;

/// A consumer, by the channel's number; never used again for another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConsumerId(pub u32);

/// One push to one consumer: what it should know, then an event, if one is due.
#[derive(Clone, Debug)]
pub struct Delivery<P> {
    pub consumer: ConsumerId,
    pub notices: Vec<ChannelNotice>,
    pub event: Option<DeliveredEvent<P>>,
}

/// An event for a consumer.
#[derive(Clone, Debug)]
pub struct DeliveredEvent<P> {
    pub event: Arc<ChannelEvent<P>>,
    /// One of the consumer's subscriptions that the event matched.
    pub subscription: SubscriptionId,
    pub lateness: Lateness,
    /// Whether it was published before the consumer subscribed.
    pub retained: bool,
}

/// Whether an event's deadline had passed when its turn came.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lateness {
    InTime,
    Late,
}

/// What a consumer should know beside its events.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum ChannelNotice {
    /// Events are missing.
    Gap(Gap),
    /// What the consumer requested is no longer offered on a topic; its events come all the same.
    Mismatch { topic: TopicId, mismatch: Mismatch },
}
