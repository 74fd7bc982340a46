//! The messages between the broker and programs about direct rings, and about direct links over TCP, in JSON.
//! `PROTOCOL.md` has the order of the messages, and the conditions for a topic to use a ring or a link.

use crate::spec::{KeptHistory, SubscriptionSpec, SupplierOrder, WhenFull};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// An order of the broker to a program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "ring", rename_all = "kebab-case")]
pub enum RingOrder {
    /// To a supplier: it has to offer the ring over the accompanying socket, which leads to a consumer.
    Supply {
        link: u32,
        /// The consumer's name, for messages to people.
        consumer: String,
        /// Whether the supplier waits for this consumer; otherwise the consumer loses the oldest events.
        blocks: bool,
        /// The number of events that the consumer's queue has to hold.
        events: usize,
        /// The number of bytes of events that the consumer's queue has to hold.
        bytes: usize,
    },
    /// To a consumer: events of a supplier are in the ring that is offered over the accompanying socket. They
    /// follow the supplier's event `last`.
    Read {
        link: u32,
        topic: u32,
        supplier: u32,
        /// Number of the supplier's last event before the events in the ring.
        last: u64,
        /// Whether the supplier asks for the order of publication.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        in_order: bool,
    },
    /// To a consumer: all events before those in the ring have been delivered.
    Begin { link: u32 },
    /// To a supplier: the number of its last event before the events in the ring.
    Numbered { last: u64 },
    /// To a supplier: it has to end the ring or the link, and to publish through the broker again.
    Recall {},
    /// To a consumer: a supplier on another host will connect to it. The consumer reports the port at which
    /// it listens.
    Listen { link: u32, keys: LinkKeys },
    /// To a supplier: it has to connect to a consumer, which listens there, and to publish over that link.
    Connect {
        link: u32,
        /// The consumer's name, for messages to people.
        consumer: String,
        /// Whether the supplier waits for this consumer for a moment before it leaves the link.
        blocks: bool,
        address: SocketAddr,
        keys: LinkKeys,
    },
    /// To a consumer: the link ends now, because its supplier has not left it in time.
    Cut { link: u32 },
}

/// The keys by which the two ends of a link over TCP know each other. Each is sent once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkKeys {
    /// Shown by the supplier first.
    pub supplier: String,
    /// Shown by the consumer in return.
    pub consumer: String,
}

impl LinkKeys {
    /// Returns whether both are 32 hexadecimal digits, as a broker draws them.
    pub fn are_well_formed(&self) -> bool {
        let is_key = |key: &str| key.len() == 32 && key.bytes().all(|it| it.is_ascii_hexdigit());
        is_key(&self.supplier) && is_key(&self.consumer)
    }
}

impl fmt::Debug for LinkKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkKeys")
    }
}

/// A report of a program to the broker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "ring", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RingReport {
    /// From a supplier: its events go into the ring from now on, and these links lead from it to consumers.
    Supplies { links: Vec<u32> },
    /// From a supplier: its events come through the broker again. `events` is the number of events that it
    /// published in the ring.
    Left {
        events: u64,
        /// Whether the supplier will refuse any other ring for this topic.
        for_good: bool,
        /// Whether this answers a recall of a link over TCP. Without it, the supplier has left of its own
        /// accord, and a recall may be on its way to it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        recalled: bool,
    },
    /// From a consumer: the counts of events of a topic that it has taken from rings since its last report.
    Counted { topic: u32, counts: DirectCounts },
    /// From a consumer: the number of events of a topic that the broker or a ring had delivered, and that the
    /// consumer dropped since its last report because their deadlines had passed on the way.
    DroppedLate { topic: u32, events: u64 },
    /// From a supplier: the events of its topic that its own library has refused since its last report.
    Refused { counts: RefusalCounts },
    /// From a consumer: a supplier's ring is unreadable.
    Broken {
        link: u32,
        /// The number of events of the ring that the consumer has received or knows to be lost. 0 may come
        /// from an older consumer, which does not report the number.
        #[serde(default)]
        taken: u64,
    },
    /// From a program that was told `links` in WELCOME: it makes direct links over TCP.
    TakesLinks {},
    /// From a consumer: it listens for the supplier of a link at this port. 0: it cannot listen.
    Listens { link: u32, port: u16 },
    /// From a supplier: it has no connection to the consumer of a link.
    Unreached { link: u32, why: String },
    /// From a consumer: a link over TCP has ended after `taken` events.
    Ended {
        link: u32,
        taken: u64,
        /// Whether the consumer has ended it, because the rest did not come or was invalid.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        broken: bool,
    },
}

/// Counts of the events that a consumer took from rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DirectCounts {
    pub delivered: u64,
    pub dropped_full: u64,
    pub dropped_late: u64,
    pub missed: u64,
}

/// Counts of the events that a supplier's own library refused, by the reason that the broker would give.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RefusalCounts {
    /// The deadline had passed.
    pub deadline: u64,
    /// The ring was full for a consumer that blocks its suppliers, and the event was not to wait.
    pub full: u64,
}

/// The maximum count in a true report: a consumer would reach it if it took 40 million events a second, more
/// than memory delivers, and reported once in 100 s.
pub const MAX_OF_REPORT: u64 = 1 << 32;

impl DirectCounts {
    /// Returns the counts, each limited to [`MAX_OF_REPORT`].
    pub fn bounded(self) -> Self {
        Self {
            delivered: self.delivered.min(MAX_OF_REPORT),
            dropped_full: self.dropped_full.min(MAX_OF_REPORT),
            dropped_late: self.dropped_late.min(MAX_OF_REPORT),
            missed: self.missed.min(MAX_OF_REPORT),
        }
    }
}

impl RefusalCounts {
    /// Returns the counts, each limited to [`MAX_OF_REPORT`].
    pub fn bounded(self) -> Self {
        Self { deadline: self.deadline.min(MAX_OF_REPORT), full: self.full.min(MAX_OF_REPORT) }
    }
}

/// The minimum queue length of a subscription with rings. The broker serves shorter ones, because a ring's
/// length is rounded up to a power of two, and the consumer would get more old events than it asked for.
const MIN_EVENTS: usize = 64;
/// The maximum queue length of a subscription with rings. The broker serves longer ones. A ring of this many
/// slots of 256 bytes takes 4 MiB; a longer ring exceeds the caches of most processors. Chosen by this
/// argument, not measured.
const MAX_EVENTS: usize = 16_384;

impl SubscriptionSpec {
    /// Returns whether the subscription's events may come from rings, because it uses no feature that needs
    /// the broker.
    pub fn may_read_rings(&self) -> bool {
        let plain = (&self.group, &self.class, &self.together, &self.reserve) == (&None, &None, &None, &None)
            && (&self.again, &self.every_ns, &self.silence_ns, &self.resume) == (&None, &None, &None, &None)
            && (self.share, self.reliable, self.history) == (None, false, KeptHistory::None);
        self.direct
            && plain
            && self.between == SupplierOrder::Deadlines
            && matches!(self.full, WhenFull::DropOldest | WhenFull::BlockSupplier)
            && (MIN_EVENTS..=MAX_EVENTS).contains(&self.queue_events)
            && self.interests.iter().all(|interest| interest.filter.is_none())
    }
}
