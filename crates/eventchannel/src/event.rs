//! Events as suppliers publish them and as the channel passes them on.
//!
//! Events follow CORBA's Event Service, with the additions of TAO's real-time event service (the paper's
//! section 2.3.2): a deadline, a criticality, and named fields that filters read. The payload is opaque. The
//! channel never copies a payload; it holds an event behind an [`Arc`], and drops its last reference when no
//! consumer can need the event any more. A payload may therefore be a handle to shared memory whose `Drop`
//! releases the memory.

use crate::ids::SupplierId;
use crate::ids::TopicId;
use crate::kept::{KeepingTerms, cost};
use crate::quality::{DispatchOrder, EventOrigin};
use crate::value::FieldSet;
use std::sync::Arc;
pub use unisono_fairqueue::NO_DEADLINE;
use unisono_time::Instant;

/// The payload of an event.
pub trait EventPayload {
    /// Returns the bytes of payload that a consumer receives. Queues count them, and the charge of a delivery
    /// depends on them.
    fn length(&self) -> usize;

    /// Returns the approximate bytes of memory that the payload takes while it is kept.
    fn memory(&self) -> usize {
        self.length()
    }
}

impl EventPayload for Arc<[u8]> {
    fn length(&self) -> usize {
        self.len()
    }
}

impl EventPayload for Vec<u8> {
    fn length(&self) -> usize {
        self.len()
    }
}

/// The bytes of an event's key, fields and fixed parts that do not count against a queue. If an event has
/// more such bytes, those beyond this number count in addition to its payload.
pub const EVENT_ENTRY: usize = 128;

/// The severity of losing an event. A full queue drops the least critical events first. Criticality never
/// changes the order of dispatch, which follows deadlines alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Criticality(pub u8);

/// Whether an event is kept for later subscribers in addition to the topic's history.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Retention {
    /// The topic's history alone decides.
    #[default]
    AsTopic,
    /// The event replaces the topic's retained event. It stays until another one replaces it, until it is
    /// removed, or until its deadline (MQTT: RETAIN).
    Retain,
    /// The topic's retained event is removed; this event is delivered like any other.
    Remove,
}

/// An event as a supplier publishes it.
#[derive(Clone, Debug)]
pub struct Publication<P> {
    /// The subject of the event within its topic; the topic keeps the last value of each key.
    pub key: Option<Arc<str>>,
    pub fields: FieldSet,
    pub payload: P,
    /// The time by which consumers should have the event. `None`: the deadline of the supplier's offer
    /// applies, counted from the publication.
    pub deadline: Option<Instant>,
    pub criticality: Criticality,
    /// The supplier's own number of the event on this topic. `None`: the channel assigns the number. If a
    /// number exceeds the last one by more than one, consumers get a gap. A number that does not exceed the
    /// last one is a duplicate, and no consumer gets the event.
    pub sequence: Option<u64>,
    pub retention: Retention,
    /// The accounts that pay if the topic keeps the event.
    pub keeping: KeepingTerms,
}

impl<P> Publication<P> {
    /// Makes an event without key, fields and deadline, of the least criticality, numbered by the channel.
    pub fn new(payload: P) -> Self {
        Self {
            key: None,
            fields: FieldSet::new(),
            payload,
            deadline: None,
            criticality: Criticality::default(),
            sequence: None,
            retention: Retention::AsTopic,
            keeping: KeepingTerms::default(),
        }
    }

    #[must_use]
    pub fn keyed(mut self, key: impl Into<Arc<str>>) -> Self {
        self.key = Some(key.into());
        self
    }

    #[must_use]
    pub fn due(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    #[must_use]
    pub fn with_fields(mut self, fields: FieldSet) -> Self {
        self.fields = fields;
        self
    }

    #[must_use]
    pub fn critical(mut self, criticality: Criticality) -> Self {
        self.criticality = criticality;
        self
    }

    #[must_use]
    pub fn numbered(mut self, sequence: u64) -> Self {
        self.sequence = Some(sequence);
        self
    }
}

/// An event on its way through the channel.
#[derive(Clone, Debug)]
pub struct ChannelEvent<P> {
    pub topic: TopicId,
    pub key: Option<Arc<str>>,
    pub fields: FieldSet,
    pub payload: P,
    pub supplier: SupplierId,
    pub origin: EventOrigin,
    /// The share of the supplier; see [`BetweenSuppliers::Shares`](crate::BetweenSuppliers).
    pub share: u32,
    /// The order that the supplier asks for.
    pub order: DispatchOrder,
    /// The number of the event. Numbers ascend for each supplier on each topic, from 1 if the channel assigns
    /// them.
    pub sequence: u64,
    pub published: Instant,
    /// [`NO_DEADLINE`] if the event has none.
    pub deadline: Instant,
    pub criticality: Criticality,
}

impl<P: EventPayload> ChannelEvent<P> {
    /// Returns the approximate bytes of memory that the event takes while it is kept.
    pub(crate) fn memory(&self) -> usize {
        cost(self.payload.memory(), self.key.as_deref(), self.fields.memory())
    }

    /// Returns the bytes that the event counts in a queue: its payload, and its other bytes beyond the first
    /// [`EVENT_ENTRY`].
    #[inline]
    #[must_use]
    pub fn weight(&self) -> usize {
        let (length, memory) = (self.payload.length(), self.payload.memory());
        if memory == length && self.key.is_none() && self.fields.is_empty() {
            return length;
        }
        let beside = (memory - length) + self.key.as_deref().map_or(0, str::len) + self.fields.memory();
        length.saturating_add(beside.saturating_sub(EVENT_ENTRY))
    }
}
