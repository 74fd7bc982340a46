//! What the channel delivers to a consumer.

use crate::event::ChannelEvent;
use crate::ids::ConsumerId;
use crate::ids::{CorrelationId, SubscriptionId, SupplierId, TimerId, TopicId};
use crate::inbox::Gap;
use crate::quality::{Departed, Mismatch};
use std::sync::Arc;
use unisono_linux::clock::Nanos;

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
    /// The other events of a correlation that this one completes, in the order of its parts.
    pub with: Vec<Arc<ChannelEvent<P>>>,
    /// What [`acknowledge`](crate::EventChannel::acknowledge) wants to hear. None: the consumer need not
    /// acknowledge.
    pub acknowledgement: Option<u64>,
    /// How often it was delivered before without being acknowledged, to this consumer or to another one of
    /// its group.
    pub repeated: u32,
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
    /// A supplier of a topic will push no more.
    Gone { topic: TopicId, supplier: SupplierId, why: Departed },
    /// Another supplier is heard now on a topic with exclusive ownership.
    Owner { topic: TopicId, supplier: SupplierId },
    /// A periodic timer.
    Tick { timer: TimerId, at: Nanos },
    /// No event has come for the time of a timer of silence.
    Silence { timer: TimerId, since: Nanos },
    /// A correlation began and was not completed in time.
    Incomplete { correlation: CorrelationId },
}

impl ChannelNotice {
    /// The topic that it is about.
    pub(crate) fn topic(&self) -> Option<TopicId> {
        match self {
            Self::Gap(gap) => Some(gap.topic),
            Self::Mismatch { topic, .. } | Self::Gone { topic, .. } | Self::Owner { topic, .. } => {
                Some(*topic)
            }
            Self::Tick { .. } | Self::Silence { .. } | Self::Incomplete { .. } => None,
        }
    }
}
