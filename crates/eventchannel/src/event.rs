//! Events: what suppliers publish and consumers get.
//!
//! An event of CORBA's Event Service with what TAO's real-time event service adds to it (the paper's section
//! 2.3.2): a deadline, a criticality, and named fields that filters look at. The payload is opaque. The
//! channel never copies a payload; it holds events behind an [`Arc`](std::sync::Arc) and drops the last one
//! when no consumer can need it any more. A payload may therefore be a handle to shared memory whose `Drop`
//! gives the memory back.

use crate::ids::SupplierId;
use crate::ids::TopicId;
use crate::kept::{KeepingTerms, cost};
use crate::quality::EventOrigin;
use crate::value::FieldSet;
use std::sync::Arc;
pub use unisono_fairqueue::NO_DEADLINE;
use unisono_linux::clock::Nanos;

/// What an event carries.
pub trait EventPayload {
    /// How many bytes a consumer is given; what queues count and what delivery is charged by.
    fn length(&self) -> usize;

    /// About how many bytes it takes while it is kept.
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

/// Bytes of keys, fields and the like that an event in a queue may have beside its payload before they count
/// against the queue's bytes.
pub const EVENT_ENTRY: usize = 128;

/// How bad it is if an event is lost. A full queue drops the least critical events first. Criticality never
/// changes the order of dispatch: the deadline does that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Criticality(pub u8);

/// Whether an event stays for consumers that subscribe later, beside what the topic keeps as its history.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Retention {
    /// The topic's history alone decides.
    #[default]
    AsTopic,
    /// The event replaces the topic's retained event. It stays until another one replaces it, until it is
    /// removed, or until its deadline (MQTT: RETAIN).
    Retain,
    /// The topic's retained event is removed; this event is delivered as any other.
    Remove,
}

/// What a supplier pushes.
#[derive(Clone, Debug)]
pub struct Publication<P> {
    /// Which of the things that the topic is about; the last value is kept for each key.
    pub key: Option<Arc<str>>,
    pub fields: FieldSet,
    pub payload: P,
    /// By when consumers should have it. None: the deadline that the supplier offered for the topic, counted
    /// from now.
    pub deadline: Option<Nanos>,
    pub criticality: Criticality,
    /// The supplier's own number of the event on this topic. None: the channel numbers. A number that is more
    /// than one above the last tells consumers of a gap; one that is not above the last is a duplicate and
    /// goes to nobody.
    pub sequence: Option<u64>,
    pub retention: Retention,
    /// Who pays if the topic keeps the event.
    pub keeping: KeepingTerms,
}

impl<P> Publication<P> {
    /// An event without key, fields and deadline, of the least criticality, numbered by the channel.
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
    pub fn due(mut self, deadline: Nanos) -> Self {
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
    /// Its supplier's share beside others; see [`BetweenSuppliers::Shares`](crate::BetweenSuppliers).
    pub share: u32,
    /// Ascending for each supplier on each topic, from 1 if the channel numbers.
    pub sequence: u64,
    pub published: Nanos,
    /// [`NO_DEADLINE`] if it has none.
    pub deadline: Nanos,
    pub criticality: Criticality,
}

impl<P: EventPayload> ChannelEvent<P> {
    /// About how many bytes it takes while it is kept.
    pub(crate) fn memory(&self) -> usize {
        cost(self.payload.memory(), self.key.as_deref(), self.fields.memory())
    }

    /// What it counts for in a queue: its payload, and what it has beside that beyond [`EVENT_ENTRY`].
    #[inline]
    pub(crate) fn weight(&self) -> usize {
        let (length, memory) = (self.payload.length(), self.payload.memory());
        if memory == length && self.key.is_none() && self.fields.is_empty() {
            return length;
        }
        let beside = (memory - length) + self.key.as_deref().map_or(0, str::len) + self.fields.memory();
        length.saturating_add(beside.saturating_sub(EVENT_ENTRY))
    }
}
