//! Publishing and subscribing.

use super::{BrokerAnswer, Client, ClientOutlet, Error};
use crate::body::EventBody;
use crate::frame::fields;
use crate::frame::{DeliverHead, Frame, PublishFlags, PublishHead, PublishOutcome};
use crate::notice::NoticeText;
use crate::spec::{Advertisement, Durability, KeptHistory, SubscriptionSpec};
use crate::topic_names::TopicNames;
use crate::transport::{PayloadRef, PayloadWriter, SharedPayload};
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_eventchannel::{FieldSet, NO_DEADLINE};
use unisono_linux::clock::{self, Nanos};

/// A topic that a client publishes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicHandle(pub(super) u32);

/// A subscription of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SubscriptionHandle(pub(super) u32);

/// An event to publish.
#[derive(Clone, Debug)]
pub struct EventDraft<'a> {
    pub(super) payload: PayloadRef<'a>,
    pub(super) key: &'a str,
    pub(super) fields: FieldSet,
    /// On this host's monotonic clock.
    pub(super) deadline: Nanos,
    pub(super) criticality: u8,
}

impl<'a> EventDraft<'a> {
    /// An event without key, fields and deadline, of the lowest criticality.
    #[must_use]
    pub fn new(payload: &'a [u8]) -> Self {
        Self::carrying(PayloadRef::Bytes(payload))
    }

    /// An event whose payload is written in place and not copied: in shared memory if the client is connected
    /// through it. `write` is called once when the event leaves, with `bytes` bytes of undefined content.
    ///
    /// ```
    /// # use unisono_broker::EventDraft;
    /// let frame = |place: &mut [u8]| place.fill(7);
    /// let event = EventDraft::written(1 << 20, &frame);
    /// ```
    #[must_use]
    pub fn written(bytes: usize, write: &'a dyn Fn(&mut [u8])) -> Self {
        Self::carrying(PayloadRef::Written(PayloadWriter { bytes, write }))
    }

    /// An event whose payload may be in shared memory.
    #[must_use]
    pub fn carrying(payload: PayloadRef<'a>) -> Self {
        Self { payload, key: "", fields: FieldSet::new(), deadline: NO_DEADLINE, criticality: 0 }
    }

    pub(super) fn fields(&self) -> &FieldSet {
        &self.fields
    }

    #[must_use]
    pub fn keyed(mut self, key: &'a str) -> Self {
        self.key = key;
        self
    }

    #[must_use]
    pub fn with_fields(mut self, fields: FieldSet) -> Self {
        self.fields = fields;
        self
    }

    /// Sets the deadline, a time of the monotonic clock.
    #[must_use]
    pub fn due_at(mut self, deadline: Nanos) -> Self {
        self.deadline = deadline;
        self
    }

    #[must_use]
    pub fn due_in(self, time: Duration) -> Self {
        self.due_at(Nanos::from(time).after(clock::now()))
    }

    #[must_use]
    pub fn critical(mut self, criticality: u8) -> Self {
        self.criticality = criticality;
        self
    }
}

/// The result of a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublishedEvent {
    pub sequence: u64,
    pub outcome: PublishOutcome,
}

/// A published event whose outcome is still to be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct HandedIn {
    topic: u32,
    token: u32,
    /// The number of reconnections before its publication.
    connection: u32,
}

/// A received event.
#[derive(Clone, Debug)]
pub struct ReceivedEvent {
    pub subscription: SubscriptionHandle,
    pub topic: Arc<str>,
    /// The type of its topic, if the client [asked for types](super::ClientOptions::told_types).
    pub event_type: Option<Arc<str>>,
    pub key: Option<String>,
    pub fields: FieldSet,
    pub payload: EventBody,
    pub criticality: u8,
    /// The broker's number of the event's supplier.
    pub supplier: u32,
    pub sequence: u64,
    /// On this host's monotonic clock, as are all times here.
    pub published: Nanos,
    pub deadline: Option<Nanos>,
    pub late: bool,
    /// Whether the event was published before the subscription.
    pub retained: bool,
    pub repeated: u8,
    /// The delivery number for [`Client::acknowledge`]. `None`: the event need not be acknowledged.
    pub delivery: Option<u64>,
    /// The number of reconnections before its delivery.
    pub(crate) connection: u32,
    /// The other events of a correlation.
    pub with: Vec<Self>,
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
    /// published meanwhile, and events of this program without an answer may be lost.
    Reconnected {
        away: Duration,
    },
}

/// The parts of correlations that have come before their last event.
#[derive(Debug, Default)]
pub(super) struct CorrelatedParts(Vec<ReceivedEvent>);

impl CorrelatedParts {
    /// Takes a delivery; returns the event if it is complete.
    pub(super) fn deliver(
        &mut self,
        topics: &TopicNames,
        (same_clock, connection): (bool, u32),
        head: DeliverHead<'_>,
        (payload, apart): (&[u8], Option<SharedPayload>),
    ) -> Option<ReceivedEvent> {
        let (deadline, published) = match same_clock {
            true => (head.deadline, head.published),
            false => {
                let now = clock::now();
                (head.deadline.after(now), now.since(head.published))
            }
        };
        let event = ReceivedEvent {
            subscription: SubscriptionHandle(head.consumer),
            topic: topics.name(head.topic).map(Arc::clone).unwrap_or_default(),
            event_type: topics.event_type(head.topic).map(Arc::clone),
            key: (!head.key.is_empty()).then(|| head.key.to_owned()),
            fields: head.fields,
            payload: EventBody::new(payload, apart),
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
        Some(ReceivedEvent { with: std::mem::take(&mut self.0), ..event })
    }
}

impl Client {
    /// A number of the broker's present run; 0: the broker is too old to have such numbers. The broker's
    /// numbers of suppliers and topics are valid only within a run.
    #[must_use]
    pub fn broker_run(&self) -> u64 {
        self.terms.run
    }

    /// Announces that this program will publish on a topic, and waits until the broker agrees.
    ///
    /// # Errors
    /// The name or the type does not fit, there are too many, or the broker is gone.
    pub fn advertise(&mut self, spec: &Advertisement) -> Result<TopicHandle, Error> {
        let number = self.surely(|client| {
            let number = client.number();
            client.tell(&Frame::Advertise { number, spec: spec.clone() })?;
            client.agreed(number).map(|()| number)
        })?;
        if let Some(comeback) = &mut self.comeback {
            comeback.advertised(number, spec);
        }
        let outlet = ClientOutlet {
            token: 0,
            deadline_ns: spec.deadline_ns,
            name: spec.topic.clone(),
            keeps: spec.history != KeptHistory::None || spec.durability > Durability::Received,
            is_heard: false,
            left_rings: false,
        };
        self.outlets.insert(number, outlet);
        Ok(TopicHandle(number))
    }

    pub(super) fn agreed(&mut self, number: u32) -> Result<(), Error> {
        match self.answer(number, 0)? {
            BrokerAnswer::Refused(reason) => Err(Error::Refused(reason)),
            BrokerAnswer::Accepted => Ok(()),
            other => Err(Error::Strange(format!("it answered {other:?} where it had to agree"))),
        }
    }

    /// Publishes an event without waiting for the outcome. [`receive`](Self::receive) reports a refused
    /// event. Blocks while a consumer whose policy blocks suppliers has no room.
    ///
    /// # Errors
    /// The payload is too large, or the broker is gone.
    pub fn publish(&mut self, topic: TopicHandle, event: &EventDraft<'_>) -> Result<(), Error> {
        self.publish_later(topic, event)?;
        self.flush()
    }

    /// As [`publish`](Self::publish), but the event may be buffered until [`flush`](Self::flush): many events
    /// leave with one system call.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn publish_later(&mut self, topic: TopicHandle, event: &EventDraft<'_>) -> Result<(), Error> {
        self.surely(|client| client.put_event(topic.0, event, PublishFlags::default(), 0))
    }

    /// Publishes an event unless it would have to wait, and returns its outcome.
    ///
    /// # Errors
    /// The event was refused, with the reason and the consumer; no consumer got it.
    pub fn try_publish(
        &mut self,
        topic: TopicHandle,
        event: &EventDraft<'_>,
    ) -> Result<PublishedEvent, Error> {
        let handed = self.hand_in_at_once(topic, event, None)?;
        self.outcome(handed)
    }

    /// Publishes an event whose outcome is fetched later by [`outcome`](Self::outcome): many events wait for
    /// the disk together. `sequence` is the writer's own number of the event, if it has numbers.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn hand_in(
        &mut self,
        topic: TopicHandle,
        event: &EventDraft<'_>,
        sequence: Option<u64>,
    ) -> Result<HandedIn, Error> {
        self.hand(topic, event, sequence, PublishFlags { answer: true, ..PublishFlags::default() })
    }

    /// As [`hand_in`](Self::hand_in), but the event is refused if it would have to wait for a consumer.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn hand_in_at_once(
        &mut self,
        topic: TopicHandle,
        event: &EventDraft<'_>,
        sequence: Option<u64>,
    ) -> Result<HandedIn, Error> {
        self.hand(topic, event, sequence, PublishFlags { answer: true, at_once: true, remaining: false })
    }

    fn hand(
        &mut self,
        topic: TopicHandle,
        event: &EventDraft<'_>,
        sequence: Option<u64>,
        flags: PublishFlags,
    ) -> Result<HandedIn, Error> {
        self.surely(|client| {
            let token = client.token(topic)?;
            client.put_numbered(topic.0, event, (flags, sequence), token)?;
            Ok(HandedIn { topic: topic.0, token, connection: client.connection })
        })
    }

    /// Waits for the outcome of an event that was handed in. Call this once per event.
    ///
    /// # Errors
    /// The event was refused, with the reason and the consumer; or the connection broke and the outcome is
    /// unknown ([`Error::Unanswered`], if the client connects again).
    pub fn outcome(&mut self, event: HandedIn) -> Result<PublishedEvent, Error> {
        loop {
            if let Some(published) = self.outcome_within(event, Duration::MAX)? {
                return Ok(published);
            }
        }
    }

    /// As [`outcome`](Self::outcome), within a timeout. `None`: no outcome yet; ask again later.
    ///
    /// # Errors
    /// As [`outcome`](Self::outcome).
    pub fn outcome_within(
        &mut self,
        event: HandedIn,
        timeout: Duration,
    ) -> Result<Option<PublishedEvent>, Error> {
        if event.connection != self.connection {
            let answer = self.answers.remove(&(event.topic, event.token));
            return answer.map_or(Err(Error::Unanswered), |answer| became(answer).map(Some));
        }
        match self.outcome_of(event, timeout) {
            Err(error) if self.loses(&error) => Err(Error::Unanswered),
            outcome => outcome,
        }
    }

    fn outcome_of(&mut self, event: HandedIn, timeout: Duration) -> Result<Option<PublishedEvent>, Error> {
        self.let_leave()?;
        let until = Instant::now().checked_add(timeout);
        loop {
            if let Some(answer) = self.answers.remove(&(event.topic, event.token)) {
                return became(answer).map(Some);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if !self.hear(left)? {
                return Ok(None);
            }
        }
    }

    pub(super) fn token(&mut self, topic: TopicHandle) -> Result<u32, Error> {
        let token = self.outlets.get_mut(&topic.0).map(|outlet| {
            outlet.token = outlet.token.wrapping_add(1).max(1);
            outlet.token
        });
        token.ok_or_else(|| Error::Rejected("the topic is closed; advertise it again".to_owned()))
    }

    pub(super) fn put_event(
        &mut self,
        number: u32,
        event: &EventDraft<'_>,
        flags: PublishFlags,
        token: u32,
    ) -> Result<(), Error> {
        self.put_numbered(number, event, (flags, None), token)
    }

    fn put_numbered(
        &mut self,
        number: u32,
        event: &EventDraft<'_>,
        (mut flags, sequence): (PublishFlags, Option<u64>),
        token: u32,
    ) -> Result<(), Error> {
        let length = event.payload.length();
        if length > self.largest() {
            return Err(Error::TooLong { length, most: self.largest() });
        }
        fields::check(event.key, &event.fields).map_err(Error::Rejected)?;
        if self.put_direct(number, event, (flags, sequence), token)? {
            return Ok(());
        }
        flags.remaining = !self.terms.same_clock;
        let deadline = match event.deadline {
            NO_DEADLINE => NO_DEADLINE,
            at if flags.remaining => at.since(clock::now()),
            at => at,
        };
        let (criticality, key) = (event.criticality, event.key);
        let fields = event.fields.clone();
        let publish =
            PublishHead { flags, criticality, topic: number, deadline, token, sequence, key, fields };
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        publish.write(&mut head);
        let put = self.put(&head, event.payload);
        self.head = head;
        put
    }

    /// Ends a topic; its subscribers get a notice that this supplier left.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn withdraw(&mut self, topic: TopicHandle) -> Result<(), Error> {
        self.direct.withdrawn(topic.0);
        if self.outlets.remove(&topic.0).is_none() {
            return Ok(());
        }
        if let Some(comeback) = &mut self.comeback {
            comeback.withdrawn(topic.0);
        }
        self.tell_unless_away(&Frame::Close { number: topic.0 })
    }

    /// Sends a frame that has no meaning for the broker in another connection; does nothing while
    /// disconnected.
    fn tell_unless_away(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        if self.comeback.as_ref().is_some_and(|comeback| comeback.descriptor().is_some()) {
            return Ok(());
        }
        match self.tell(frame) {
            Err(error) if self.loses(&error) => Ok(()),
            told => told,
        }
    }

    /// Subscribes to events, and waits until the broker agrees.
    ///
    /// # Errors
    /// A pattern or a filter does not parse, the request does not match the offer, the reservation cannot be
    /// guaranteed, there are too many subscriptions, or the broker is gone.
    pub fn subscribe(&mut self, spec: &SubscriptionSpec) -> Result<SubscriptionHandle, Error> {
        let number = self.surely(|client| {
            let number = client.number();
            client.direct.subscribed(number, spec.late);
            if let Some(comeback) = &mut client.comeback {
                // its first events come with the answer, and have to be counted by then
                comeback.subscribed(number, spec);
            }
            let asked = client
                .tell(&Frame::Subscribe { number, spec: Box::new(spec.clone()) })
                .and_then(|()| client.agreed(number));
            if let (Err(_), Some(comeback)) = (&asked, &mut client.comeback) {
                comeback.unsubscribed(number);
            }
            asked.map(|()| number)
        })?;
        Ok(SubscriptionHandle(number))
    }

    /// Ends a subscription. Events already on their way may still come.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn unsubscribe(&mut self, subscription: SubscriptionHandle) -> Result<(), Error> {
        self.count_readings();
        self.direct.unsubscribed(subscription.0);
        self.loosely.end_all(subscription.0);
        if let Some(comeback) = &mut self.comeback {
            comeback.unsubscribed(subscription.0);
        }
        self.tell_unless_away(&Frame::Unsubscribe { number: subscription.0 })
    }

    /// The next event or notice, if one comes in time. `None`: no timeout.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn receive(&mut self, timeout: Option<Duration>) -> Result<Option<Reception>, Error> {
        if self.comeback.is_none() {
            return self.receive_connected(timeout);
        }
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(reception) = self.received.pop_front() {
                return Ok(Some(reception));
            }
            if !self.is_back(until)? {
                return Ok(None);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match self.receive_connected(left) {
                Err(error) if self.loses(&error) => {}
                received => return received,
            }
        }
    }

    fn receive_connected(&mut self, timeout: Option<Duration>) -> Result<Option<Reception>, Error> {
        loop {
            if let Some(reception) = self.received.pop_front() {
                return Ok(Some(reception));
            }
            if self.direct.stays_ready {
                self.stays_ready(false)?;
            }
            if !self.direct.readings.is_empty() {
                return self.receive_direct(timeout);
            }
            if !self.hear(timeout)? {
                return Ok(None);
            }
        }
    }

    /// Acknowledges an event. Does nothing for an event that need not be acknowledged.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn acknowledge(&mut self, event: &ReceivedEvent) -> Result<(), Error> {
        let Some(delivery) = event.delivery else { return Ok(()) };
        let consumer = event.subscription.0;
        let position =
            self.comeback.as_mut().is_some_and(|comeback| comeback.acknowledged(consumer, delivery));
        // in another connection the number may belong to another event
        if !position && event.connection != self.connection {
            return Ok(());
        }
        self.tell_unless_away(&Frame::Acknowledge { consumer, delivery })
    }

    /// Number of refused events of this program that were published without waiting.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected
    }
}

/// Converts the broker's answer to the result of a publication.
fn became(answer: BrokerAnswer) -> Result<PublishedEvent, Error> {
    match answer {
        BrokerAnswer::Published(published) => Ok(published),
        BrokerAnswer::Rejected(reason) => Err(Error::Rejected(reason)),
        other => Err(Error::Strange(format!("it answered {other:?} to an event"))),
    }
}
