//! Deliveries: an event and the notices for one consumer.

use crate::event::ChannelEvent;
use crate::ids::ConsumerId;
use crate::ids::{CorrelationId, SubscriptionId, SupplierId, TimerId, TopicId};
use crate::inbox::Gap;
use crate::quality::{Departed, Mismatch};
use std::sync::Arc;
use unisono_time::Instant;

/// One delivery to one consumer: its pending notices, and then an event, if there is one for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery<P> {
    pub consumer: ConsumerId,
    pub notices: Vec<ChannelNotice>,
    pub event: Option<DeliveredEvent<P>>,
}

/// An event for a consumer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeliveredEvent<P> {
    pub event: Arc<ChannelEvent<P>>,
    /// A subscription of the consumer that the event matched.
    pub subscription: SubscriptionId,
    pub lateness: Lateness,
    /// Whether the event was published before the consumer subscribed.
    pub retained: bool,
    /// The other events of a correlation that this event completes, in the order of the correlation's parts.
    pub with: Vec<Arc<ChannelEvent<P>>>,
    /// The number to pass to [`acknowledge`](crate::EventChannel::acknowledge). `None`: the consumer need not
    /// acknowledge.
    pub acknowledgement: Option<u64>,
    /// The number of earlier deliveries of this event without an acknowledgement, to this consumer or to
    /// another consumer of its group.
    pub repeated: u32,
}

/// Whether an event's deadline had passed when its turn came.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lateness {
    InTime,
    Late,
}

/// Notices to a consumer, which are delivered together with its events.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum ChannelNotice {
    /// Events are missing.
    Gap(Gap),
    /// More topics and suppliers have missing events than a delivery can list gaps. `lost` is the number of
    /// missing events that are in none of its gaps.
    FurtherGaps { lost: u64 },
    /// A topic no longer offers the quality that the consumer requested; the topic's events are still
    /// delivered.
    Mismatch { topic: TopicId, mismatch: Mismatch },
    /// A supplier of a topic has left and publishes no more.
    Gone { topic: TopicId, supplier: SupplierId, why: Departed },
    /// On a topic with exclusive ownership another supplier is now the owner.
    Owner { topic: TopicId, supplier: SupplierId },
    /// A periodic timer has expired.
    Tick { timer: TimerId, at: Instant },
    /// No event has come within the period of a silence timer.
    Silence { timer: TimerId, since: Instant },
    /// A correlation began and was not completed in time.
    Incomplete { correlation: CorrelationId },
}

impl ChannelNotice {
    /// Returns the topic of the notice, if it has one.
    pub(crate) fn topic(&self) -> Option<TopicId> {
        match self {
            Self::Gap(gap) => Some(gap.topic),
            Self::Mismatch { topic, .. } | Self::Gone { topic, .. } | Self::Owner { topic, .. } => {
                Some(*topic)
            }
            Self::FurtherGaps { .. } | Self::Tick { .. } | Self::Silence { .. } | Self::Incomplete { .. } => {
                None
            }
        }
    }
}
