//! What the broker and programs tell each other of direct rings, in JSON. `PROTOCOL.md` says
//! in which order the messages come, and which topics may use a ring.

use crate::spec::{KeptHistory, SubscriptionSpec, SupplierOrder, WhenFull};
use serde::{Deserialize, Serialize};

/// What the broker tells a program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "ring", rename_all = "kebab-case")]
pub enum RingOrder {
    /// To a supplier: offer your ring over the socket that came beside this, which leads to a consumer.
    Supply {
        link: u32,
        /// The consumer, for messages to people.
        consumer: String,
        /// Whether the supplier waits for this consumer. If not, the consumer loses the oldest events.
        blocks: bool,
        /// How many events, and how many bytes of them, the consumer wants to be able to wait.
        events: usize,
        bytes: usize,
    },
    /// To a consumer: events of a supplier are in the ring that is offered over the socket that came beside
    /// this. They come behind its event `last`.
    Read {
        link: u32,
        topic: u32,
        supplier: u32,
        /// The number of the supplier's last event before those in the ring.
        last: u64,
    },
    /// To a consumer: it has all events before those in the ring.
    Begin { link: u32 },
    /// To a supplier: the number of its last event before those in the ring.
    Numbered { last: u64 },
    /// To a supplier: end the ring, and publish through the broker again.
    Recall {},
}

/// What a program tells the broker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "ring", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RingReport {
    /// Of a supplier: its events are in the ring from now on, and these links lead to it.
    Supplies { links: Vec<u32> },
    /// Of a supplier: its events come through the broker again. So many were in the ring.
    Left {
        events: u64,
        /// Whether it does not want another ring for this topic.
        for_good: bool,
    },
    /// Of a consumer: what it got of a topic from rings since it last said so.
    Counted { topic: u32, counts: DirectCounts },
    /// Of a consumer: what a supplier wrote cannot be read.
    Broken {
        link: u32,
        /// How many events of the ring the consumer has had, or has heard of. 0: an older consumer, which
        /// does not say.
        #[serde(default)]
        taken: u64,
    },
}

/// Events that a consumer took from rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DirectCounts {
    pub delivered: u64,
    pub dropped_full: u64,
    pub dropped_late: u64,
    pub missed: u64,
}

/// A subscription with a shorter queue is served by the broker: a ring rounds up to a power of two, and the
/// consumer would get more old events than it asked for.
const LEAST_EVENTS: usize = 64;
/// A subscription with a longer queue is served by the broker. A ring of so many slots of 256 bytes already
/// takes 4 MiB; a longer one leaves the caches of most processors. Chosen by this argument, not measured.
const MOST_EVENTS: usize = 16_384;

impl SubscriptionSpec {
    /// Whether its events may come from rings: it asks for nothing that only the broker can do.
    pub(crate) fn may_read_rings(&self) -> bool {
        let plain = (&self.group, &self.class, &self.together, &self.reserve) == (&None, &None, &None, &None)
            && (&self.again, &self.every_ns, &self.silence_ns, &self.resume) == (&None, &None, &None, &None)
            && (self.share, self.reliable, self.history) == (None, false, KeptHistory::None);
        self.direct
            && plain
            && self.between == SupplierOrder::Deadlines
            && matches!(self.full, WhenFull::DropOldest | WhenFull::BlockSupplier)
            && (LEAST_EVENTS..=MOST_EVENTS).contains(&self.queue_events)
            && self.interests.iter().all(|interest| interest.filter.is_none())
    }
}
