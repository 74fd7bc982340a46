//! Publishes events and subscribes to them.

use super::handles::{SubscriptionHandle, TopicHandle};
use super::{BrokerAnswer, Client, ClientOutlet, Error, ReceivedEvent, Reception};
use std::time::{Duration as StdDuration, Instant as StdInstant};
use unisono_eventchannel::{FieldSet, NO_DEADLINE, PublishError};
use unisono_events_wire::frame::fields;
use unisono_events_wire::frame::{Frame, PublishDeadline, PublishFlags, PublishHead, PublishOutcome};
use unisono_events_wire::transport::{PayloadRef, PayloadWriter};
use unisono_events_wire::{Advertisement, Durability, KeptHistory, SubscriptionSpec};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_sync::LentBytes;

/// An event to publish.
#[derive(Clone, Debug)]
pub struct EventDraft<'a> {
    pub(super) payload: PayloadRef<'a>,
    /// The memory of the payload, if a ring has lent it.
    pub(super) lent: Option<&'a LentBytes>,
    pub(super) key: &'a str,
    pub(super) fields: FieldSet,
    /// The deadline on this host's monotonic clock.
    pub(super) deadline: Instant,
    pub(super) criticality: u8,
}

impl<'a> EventDraft<'a> {
    /// Makes an event without key, fields and deadline, of the lowest criticality.
    #[must_use]
    pub fn new(payload: &'a [u8]) -> Self {
        Self::carrying(PayloadRef::Bytes(payload))
    }

    /// Makes an event whose payload is written in its final place and not copied: in shared memory, if the
    /// client is connected through it. When the event leaves, `write` is called once with `bytes` bytes of
    /// unspecified content.
    ///
    /// ```
    /// # use unisono_events_client::EventDraft;
    /// let frame = |place: &mut [u8]| place.fill(7);
    /// let event = EventDraft::written(1 << 20, &frame);
    /// ```
    #[must_use]
    pub fn written(bytes: usize, write: &'a dyn Fn(&mut [u8])) -> Self {
        Self::carrying(PayloadRef::Written(PayloadWriter { bytes, write }))
    }

    /// Makes an event whose payload may be in shared memory.
    #[must_use]
    pub fn carrying(payload: PayloadRef<'a>) -> Self {
        Self { payload, lent: None, key: "", fields: FieldSet::new(), deadline: NO_DEADLINE, criticality: 0 }
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
    pub fn due_at(mut self, deadline: Instant) -> Self {
        self.deadline = deadline;
        self
    }

    #[must_use]
    pub fn due_in(self, time: impl Into<Duration>) -> Self {
        self.due_at(clock::now() + time.into())
    }

    #[must_use]
    pub fn critical(mut self, criticality: u8) -> Self {
        self.criticality = criticality;
        self
    }
}

/// The result of a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PublishedEvent {
    pub sequence: u64,
    pub outcome: PublishOutcome,
}

/// A published event whose outcome can be fetched later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct PublishReceipt {
    topic: u32,
    token: u32,
    /// The number of reconnections before the event was published.
    connection: u32,
}

impl Client {
    /// Returns a number that identifies the broker's present run, or 0 if the broker is too old to have such
    /// numbers. The broker's numbers of suppliers and topics are valid only within a run.
    #[must_use]
    pub fn broker_run(&self) -> u64 {
        self.terms.run
    }

    /// Announces that this program will publish on a topic, and waits until the broker agrees.
    ///
    /// # Errors
    /// The name or the type is not accepted, there are too many topics, or the broker is gone.
    pub fn advertise(&mut self, spec: &Advertisement) -> Result<TopicHandle, Error> {
        let mut spec = spec.clone();
        let content = std::mem::take(&mut spec.content);
        let number = self.retry_on_reconnect(|client| {
            let number = client.number();
            client.send_frame(&Frame::Advertise { number, spec: spec.clone() })?;
            let accepted = client.expect_accepted(number);
            if let Err(Error::Interrupted) = accepted {
                // after an error, the broker may have made the topic nevertheless
                client.send_unless_away(&Frame::Close { number })?;
            }
            accepted.map(|()| number)
        })?;
        if let Some(reconnect) = &mut self.reconnect {
            reconnect.advertised(number, &spec);
        }
        let outlet = ClientOutlet {
            token: 0,
            deadline_ns: spec.deadline_ns,
            name: spec.topic,
            content,
            order: spec.order,
            keeps: spec.history != KeptHistory::None || spec.durability > Durability::Received,
            is_heard: false,
            left_rings: false,
        };
        self.outlets.insert(number, outlet);
        Ok(TopicHandle(number))
    }

    pub(super) fn expect_accepted(&mut self, number: u32) -> Result<(), Error> {
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
        self.publish_buffered(topic, event)?;
        self.flush()
    }

    /// Publishes as [`publish`](Self::publish) does, but may buffer the event until [`flush`](Self::flush),
    /// so that many events leave with one system call.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    pub fn publish_buffered(&mut self, topic: TopicHandle, event: &EventDraft<'_>) -> Result<(), Error> {
        self.retry_on_reconnect(|client| {
            client.enqueue_event(topic.0, event, (PublishFlags::default(), None), 0)
        })
    }

    /// Publishes an event unless it would have to wait, and returns its outcome.
    ///
    /// # Errors
    /// The event was refused; the error names the reason and the consumer. No consumer got the event.
    pub fn try_publish(
        &mut self,
        topic: TopicHandle,
        event: &EventDraft<'_>,
    ) -> Result<PublishedEvent, Error> {
        let receipt = self.try_publish_with_receipt(topic, event, None)?;
        self.outcome(receipt)
    }

    /// Publishes an event whose outcome is fetched later with [`outcome`](Self::outcome), so that many events
    /// wait for the disk together. `sequence` is the writer's own number of the event, if the writer numbers
    /// its events.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    pub fn publish_with_receipt(
        &mut self,
        topic: TopicHandle,
        event: &EventDraft<'_>,
        sequence: Option<u64>,
    ) -> Result<PublishReceipt, Error> {
        self.publish_for_receipt(
            topic,
            event,
            sequence,
            PublishFlags { answer: true, ..PublishFlags::default() },
        )
    }

    /// Publishes as [`publish_with_receipt`](Self::publish_with_receipt) does, but the event is refused if it
    /// would have to wait for a consumer.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish).
    pub fn try_publish_with_receipt(
        &mut self,
        topic: TopicHandle,
        event: &EventDraft<'_>,
        sequence: Option<u64>,
    ) -> Result<PublishReceipt, Error> {
        self.publish_for_receipt(topic, event, sequence, PublishFlags { answer: true, at_once: true })
    }

    fn publish_for_receipt(
        &mut self,
        topic: TopicHandle,
        event: &EventDraft<'_>,
        sequence: Option<u64>,
        flags: PublishFlags,
    ) -> Result<PublishReceipt, Error> {
        self.retry_on_reconnect(|client| {
            let token = client.token(topic)?;
            client.enqueue_event(topic.0, event, (flags, sequence), token)?;
            Ok(PublishReceipt { topic: topic.0, token, connection: client.connection })
        })
    }

    /// Waits for the outcome of an event that was published with a receipt. Call this once per event.
    ///
    /// # Errors
    /// The event was refused; the error names the reason and the consumer. Or the connection broke, and the
    /// outcome is unknown ([`Error::Unanswered`], if the client connects again).
    pub fn outcome(&mut self, event: PublishReceipt) -> Result<PublishedEvent, Error> {
        loop {
            if let Some(published) = self.outcome_within(event, StdDuration::MAX)? {
                return Ok(published);
            }
        }
    }

    /// Waits as [`outcome`](Self::outcome) does, but no longer than a timeout. Returns `None` if there is no
    /// outcome yet; the caller asks again later.
    ///
    /// # Errors
    /// The errors of [`outcome`](Self::outcome).
    pub fn outcome_within(
        &mut self,
        event: PublishReceipt,
        timeout: StdDuration,
    ) -> Result<Option<PublishedEvent>, Error> {
        self.check_owner()?;
        if event.connection != self.connection {
            let answer = self.answers.remove(&(event.topic, event.token));
            return answer.map_or(Err(Error::Unanswered), |answer| into_published(answer).map(Some));
        }
        match self.await_outcome(event, timeout) {
            Err(error) if self.note_disconnect(&error) => Err(Error::Unanswered),
            outcome => outcome,
        }
    }

    fn await_outcome(
        &mut self,
        event: PublishReceipt,
        timeout: StdDuration,
    ) -> Result<Option<PublishedEvent>, Error> {
        self.flush_connected()?;
        let until = StdInstant::now().checked_add(timeout);
        loop {
            if let Some(answer) = self.answers.remove(&(event.topic, event.token)) {
                return into_published(answer).map(Some);
            }
            let left = until.map(|until| until.saturating_duration_since(StdInstant::now()));
            if !self.receive_frame(left)? {
                return Ok(None);
            }
        }
    }

    pub(super) fn token(&mut self, topic: TopicHandle) -> Result<u32, Error> {
        let token = self.outlets.get_mut(&topic.0).map(|outlet| {
            outlet.token = outlet.token.wrapping_add(1).max(1);
            outlet.token
        });
        token.ok_or_else(closed_topic)
    }

    /// Returns the event with the content type and the schema of its topic added, or `None` if the topic has
    /// neither.
    pub(super) fn described<'a>(&self, number: u32, event: &EventDraft<'a>) -> Option<EventDraft<'a>> {
        let outlet = self.outlets.get(&number).filter(|outlet| !outlet.content.is_empty())?;
        Some(EventDraft { fields: outlet.content.complete(event.fields.clone()), ..event.clone() })
    }

    /// Writes an event into the topic's ring, or passes it as a frame to the transport. Waits for room.
    pub(super) fn enqueue_event(
        &mut self,
        number: u32,
        event: &EventDraft<'_>,
        (flags, sequence): (PublishFlags, Option<u64>),
        token: u32,
    ) -> Result<(), Error> {
        let length = event.payload.length();
        if length > self.largest() {
            return Err(Error::TooLong { length, most: self.largest() });
        }
        let described = self.described(number, event);
        let event = described.as_ref().unwrap_or(event);
        fields::check(event.key, &event.fields).map_err(Error::Rejected)?;
        if self.publish_on_ring(number, event, (flags, sequence), token)? {
            return Ok(());
        }
        let deadline = match event.deadline {
            deadline if self.terms.same_clock || deadline == NO_DEADLINE => PublishDeadline::At(deadline),
            deadline => {
                let now = clock::now();
                // a broker with another clock could not distinguish an overdue event from an event that is
                // due at once
                if deadline < now {
                    self.refuse(number, token, &PublishError::PastDeadline { by: now - deadline });
                    return Ok(());
                }
                PublishDeadline::In(deadline - now)
            }
        };
        let (criticality, key) = (event.criticality, event.key);
        let fields = event.fields.clone();
        let publish =
            PublishHead { flags, criticality, topic: number, deadline, token, sequence, key, fields };
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        publish.write(&mut head);
        let enqueued = self.enqueue(&head, event.payload);
        self.head = head;
        enqueued
    }

    /// Ends a topic. Its subscribers get a notice that this supplier has left.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn withdraw(&mut self, topic: TopicHandle) -> Result<(), Error> {
        self.direct.withdrawn(topic.0);
        if self.outlets.remove(&topic.0).is_none() {
            return Ok(());
        }
        if let Some(reconnect) = &mut self.reconnect {
            reconnect.withdrawn(topic.0);
        }
        self.send_unless_away(&Frame::Close { number: topic.0 })
    }

    /// Sends a frame that would mean nothing to the broker in a later connection. Does nothing while
    /// disconnected.
    pub(super) fn send_unless_away(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        if self.reconnect.as_ref().is_some_and(|reconnect| reconnect.descriptor().is_some()) {
            return Ok(());
        }
        // a forked child that drops its copy must not end the parent's topic or subscription
        if self.is_copy() {
            return Ok(());
        }
        match self.send_frame(frame) {
            Err(error) if self.note_disconnect(&error) => Ok(()),
            sent => sent,
        }
    }

    /// Subscribes to events, and waits until the broker agrees.
    ///
    /// # Errors
    /// A pattern or a filter does not parse, the request does not match the offer, the reservation cannot be
    /// guaranteed, there are too many subscriptions, or the broker is gone.
    pub fn subscribe(&mut self, spec: &SubscriptionSpec) -> Result<SubscriptionHandle, Error> {
        let number = self.retry_on_reconnect(|client| {
            let number = client.number();
            client.direct.subscribed(number, spec);
            client.late.subscribed(number, spec);
            if let Some(reconnect) = &mut client.reconnect {
                // recorded before the request, because the first events may come with the answer and have to
                // be counted
                reconnect.subscribed(number, spec);
            }
            let asked = client
                .send_frame(&Frame::Subscribe { number, spec: Box::new(spec.clone()) })
                .and_then(|()| client.expect_accepted(number));
            if let (Err(_), Some(reconnect)) = (&asked, &mut client.reconnect) {
                reconnect.unsubscribed(number);
            }
            if let Err(Error::Interrupted) = asked {
                // after an error, the broker may have made the subscription nevertheless
                client.send_unless_away(&Frame::Unsubscribe { number })?;
            }
            if asked.is_err() {
                client.late.unsubscribed(number);
            }
            asked.map(|()| number)
        })?;
        Ok(SubscriptionHandle(number))
    }

    /// Ends a subscription. Events that are already in transit may still come.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn unsubscribe(&mut self, subscription: SubscriptionHandle) -> Result<(), Error> {
        if self.is_copy() {
            return Ok(());
        }
        self.count_readings();
        self.report_late();
        self.direct.unsubscribed(subscription.0);
        self.late.unsubscribed(subscription.0);
        self.best_effort.end_all(subscription.0);
        if let Some(reconnect) = &mut self.reconnect {
            reconnect.unsubscribed(subscription.0);
        }
        self.send_unless_away(&Frame::Unsubscribe { number: subscription.0 })
    }

    /// Returns the next event or notice, if one comes within `timeout`. If `timeout` is `None`, waits without
    /// a limit.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn receive(&mut self, timeout: Option<StdDuration>) -> Result<Option<Reception>, Error> {
        self.check_owner()?;
        if self.reconnect.is_none() {
            return self.receive_connected(timeout);
        }
        let until = timeout.and_then(|timeout| StdInstant::now().checked_add(timeout));
        loop {
            if let Some(reception) = self.next_received() {
                return Ok(Some(reception));
            }
            if !self.wait_reconnected(until)? {
                return Ok(None);
            }
            let left = until.map(|until| until.saturating_duration_since(StdInstant::now()));
            match self.receive_connected(left) {
                Err(error) if self.note_disconnect(&error) => {}
                received => return received,
            }
        }
    }

    fn receive_connected(&mut self, timeout: Option<StdDuration>) -> Result<Option<Reception>, Error> {
        // events that come too late must not keep the program here beyond its timeout
        let until = timeout.filter(|_| self.late.may_drop()).map(|timeout| clock::now() + timeout.into());
        loop {
            if let Some(reception) = self.next_received() {
                return Ok(Some(reception));
            }
            let left = until.map(|until| StdDuration::from(until - clock::now())).or(timeout);
            if self.direct.stays_ready {
                self.stays_ready(false)?;
            }
            if !self.direct.readings.is_empty() || self.direct.links.are_active() {
                return self.receive_direct(left);
            }
            if !self.receive_frame(left)? {
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
        self.check_owner()?;
        let consumer = event.subscription.0;
        let position =
            self.reconnect.as_mut().is_some_and(|reconnect| reconnect.acknowledged(consumer, delivery));
        // in a later connection the number may belong to another event
        if !position && event.connection != self.connection {
            return Ok(());
        }
        self.send_unless_away(&Frame::Acknowledge { consumer, delivery })
    }
}

pub(super) fn closed_topic() -> Error {
    Error::Rejected("the topic is closed; advertise it again".to_owned())
}

/// Converts the broker's answer to the result of a publication.
fn into_published(answer: BrokerAnswer) -> Result<PublishedEvent, Error> {
    match answer {
        BrokerAnswer::Published(published) => Ok(published),
        BrokerAnswer::Rejected(reason) => Err(Error::Rejected(reason)),
        other => Err(Error::Strange(format!("it answered {other:?} to an event"))),
    }
}
