//! The items that a program receives: events and notices.

use super::handles::{SubscriptionHandle, TopicHandle};
use std::sync::Arc;
use std::time::Duration as StdDuration;
use unisono_eventchannel::{FieldSet, FieldValue, NO_DEADLINE};
use unisono_events_wire::frame::DeliverHead;
use unisono_events_wire::transport::SharedPayload;
use unisono_events_wire::{CONTENT_TYPE, EventBytes, NoticeText, SCHEMA, TopicNames};
use unisono_linux::clock::{self, Instant};

/// A received event.
#[derive(Clone, Debug)]
pub struct ReceivedEvent {
    pub subscription: SubscriptionHandle,
    pub topic: Arc<str>,
    /// The type of the topic, if the client [asked for types](super::ClientOptions::with_types).
    pub event_type: Option<Arc<str>>,
    pub key: Option<String>,
    pub fields: FieldSet,
    pub payload: EventBytes,
    pub criticality: u8,
    /// The broker's number of the event's supplier.
    pub supplier: u32,
    pub sequence: u64,
    /// The time of publication. All times here are on this host's monotonic clock.
    pub published: Instant,
    pub deadline: Option<Instant>,
    pub late: bool,
    /// Whether the event was published before the subscription.
    pub retained: bool,
    pub repeated: u8,
    /// The delivery number for [`Client::acknowledge`](super::Client::acknowledge). `None`: the event need
    /// not be acknowledged.
    pub delivery: Option<u64>,
    /// The number of reconnections before the delivery.
    pub(super) connection: u32,
    /// The broker's number of the topic.
    pub(super) topic_number: u32,
    /// The other events of a correlation.
    pub with: Vec<Self>,
}

impl ReceivedEvent {
    /// Returns the content type of the payload, if the supplier has set one.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.text(CONTENT_TYPE)
    }

    /// Returns the name of the payload's schema, if the supplier has set one.
    #[must_use]
    pub fn schema(&self) -> Option<&str> {
        self.text(SCHEMA)
    }

    fn text(&self, name: &str) -> Option<&str> {
        match self.fields.field(name) {
            Some(FieldValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Makes an event without a broker, for the tests of a program that handles events.
    ///
    /// ```
    /// use unisono_events_client::ReceivedEvent;
    ///
    /// let mut event = ReceivedEvent::new("plant/1/heat", b"81.5");
    /// event.late = true;
    /// assert_eq!(&*event.payload.bytes(), b"81.5");
    /// ```
    #[must_use]
    pub fn new(topic: &str, payload: &[u8]) -> Self {
        Self {
            subscription: SubscriptionHandle::default(),
            topic: topic.into(),
            event_type: None,
            key: None,
            fields: FieldSet::new(),
            payload: EventBytes::new(payload, None),
            criticality: 0,
            supplier: 0,
            sequence: 0,
            published: Instant::ZERO,
            deadline: None,
            late: false,
            retained: false,
            repeated: 0,
            delivery: None,
            connection: 0,
            topic_number: 0,
            with: Vec::new(),
        }
    }
}

/// A received item.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reception {
    Event(ReceivedEvent),
    /// A notice to a subscription.
    Notice {
        subscription: SubscriptionHandle,
        topic: Option<Arc<str>>,
        notice: NoticeText,
    },
    /// The broker refused an event of this program that was published without waiting.
    Rejected {
        topic: TopicHandle,
        reason: String,
    },
    /// The connection was broken for this time. Subscriptions that do not resume have missed the events
    /// published in the meantime, and events of this program without an answer may be lost.
    Reconnected {
        away: StdDuration,
    },
}

/// The parts of correlations whose last event has not come yet.
#[derive(Debug, Default)]
pub(super) struct CorrelatedParts(Vec<ReceivedEvent>);

impl CorrelatedParts {
    /// Adds a delivery. Returns the event once all its parts have come.
    pub(super) fn deliver(
        &mut self,
        topics: &TopicNames,
        connection: u32,
        head: DeliverHead<'_>,
        (payload, shared): (&[u8], Option<SharedPayload>),
    ) -> Option<ReceivedEvent> {
        let (deadline, published) = head.times.on_clock(clock::now);
        let mut event = ReceivedEvent {
            subscription: SubscriptionHandle(head.consumer),
            topic: topics.name(head.topic).map(Arc::clone).unwrap_or_default(),
            topic_number: head.topic,
            event_type: topics.event_type(head.topic).map(Arc::clone),
            key: (!head.key.is_empty()).then(|| head.key.to_owned()),
            fields: head.fields,
            payload: EventBytes::new(payload, shared),
            criticality: head.criticality,
            supplier: head.supplier,
            sequence: head.sequence,
            published,
            deadline: (deadline != NO_DEADLINE).then_some(deadline),
            late: head.flags.late,
            retained: head.flags.retained,
            repeated: head.repeated,
            delivery: head.flags.acknowledge.then_some(head.delivery),
            connection,
            with: Vec::new(),
        };
        if head.flags.part {
            self.0.push(event);
            return None;
        }
        event.with = std::mem::take(&mut self.0);
        Some(event)
    }
}
