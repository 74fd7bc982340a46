//! Direct rings of a client: carries out the broker's orders, publishes into rings, and merges events from
//! rings with events from the broker. The application sees no difference.
//!
//! A supplier polls for orders before each event, so that an event never misses a consumer whose subscription
//! was accepted before the event. It waits for an order that is announced but has not come yet. It carries
//! out orders between two events, because its report has to follow the events that went to the broker.

use super::links::{self, ClientLinks};
use super::reading::{DirectReading, ReadingOf, ReadingTerms};
use super::supply::{DirectSupply, MAX_FIELDS, MAX_RECEIVED, MAX_RING_BYTES, NotSupplied};
use super::{
    BrokerAnswer, Client, Error, EventDraft, PublishedEvent, Reception, SubscriptionHandle, TopicHandle,
};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant as StdInstant;
use unisono_eventchannel::{NO_DEADLINE, PublishError};
use unisono_events_wire::frame::{DeliverHead, DeliverTimes, Frame, PublishFlags, PublishOutcome};
use unisono_events_wire::transport::FrameTransport;
use unisono_events_wire::{EventOrder, SubscriptionSpec};
use unisono_events_wire::{RefusalCounts, RingOrder, RingReport};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_sync::LentBytes;

/// A client's state of direct rings.
#[derive(Debug, Default)]
pub(super) struct ClientRings {
    /// Orders for topics that have not been carried out yet.
    orders: VecDeque<(u32, RingOrder, Option<OwnedFd>)>,
    /// Number of orders for topics received so far.
    came: u32,
    supplies: BTreeMap<u32, DirectSupply>,
    pub(super) links: ClientLinks,
    /// The number of bytes that are left for rings.
    room: u64,
    pub(super) readings: Vec<DirectReading>,
    /// The terms of each subscription.
    terms: BTreeMap<u32, ReadingTerms>,
    /// Whether events were published since the sleeping consumers were last woken.
    untold: bool,
    /// Reports for the broker for which the connection had no room, the oldest first. A reading leaves at
    /// most two of them, when it ends.
    pub(super) reports: VecDeque<Vec<u8>>,
    /// The events that this client has refused itself and not yet reported, by topic.
    pub(super) refused: BTreeMap<u32, RefusalCounts>,
    pub(super) since_frames: u32,
    pub(super) counted_at: Instant,
    /// When frames of the broker were last looked for between events of links.
    pub(super) looked_at: Instant,
    /// Whether the descriptor was made ready because a reading stopped early.
    pub(super) stays_ready: bool,
    /// An epoll descriptor that is ready when the broker's connection or a ring may have an event. `None`:
    /// this client has no rings.
    pub(super) ready: Option<OwnedFd>,
}

impl ClientRings {
    pub(super) fn over(transport: &dyn FrameTransport) -> Result<Self, Error> {
        let mut rings = Self { room: MAX_RING_BYTES, ..Self::default() };
        if transport.passes() {
            let ready = epoll::create(CreateFlags::CLOEXEC).map_err(Error::from_errno)?;
            epoll::add(&ready, transport, EventData::new_u64(0), EventFlags::IN)
                .map_err(Error::from_errno)?;
            rings.ready = Some(ready);
        }
        Ok(rings)
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.ready.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn subscribed(&mut self, number: u32, spec: &SubscriptionSpec) {
        if self.ready.is_some() {
            self.terms.insert(number, spec.into());
        }
    }

    /// Ends the readings of a subscription.
    pub(super) fn unsubscribed(&mut self, number: u32) {
        self.terms.remove(&number);
        self.links.unsubscribed(number);
        let is_theirs = |reading: &mut DirectReading| reading.of.subscription.0 == number;
        for reading in self.readings.extract_if(.., is_theirs).collect::<Vec<_>>() {
            self.unwatch(&reading);
        }
    }

    /// Ends what [`watch`](Client::watch) began. A forked child may have a copy of the descriptor; then the
    /// end of this one would not end it.
    pub(super) fn unwatch(&self, reading: &DirectReading) {
        if let Some(ready) = &self.ready {
            let _ = epoll::delete(ready, reading.descriptor());
        }
    }

    /// Ends all rings that this program supplies. Their readers can still take all events in them.
    pub(super) fn leave_all(&mut self) {
        self.supplies.clear();
        self.links.end_all(self.ready.as_ref().map(AsFd::as_fd));
    }

    /// Ends a topic's ring, and drops its pending orders.
    pub(super) fn withdrawn(&mut self, number: u32) {
        self.end_supply(number);
        self.orders.retain(|(of, ..)| *of != number);
    }

    /// Ends a topic's ring or link. Returns the number of events that were published in it.
    fn end_supply(&mut self, number: u32) -> u64 {
        let Some(supply) = self.supplies.remove(&number) else {
            return self.links.end_supply(number, self.ready.as_ref().map(AsFd::as_fd));
        };
        self.room += supply.bytes();
        supply.events
    }
}

impl Client {
    /// Handles an order of the broker.
    pub(super) fn ordered(&mut self, number: u32, order: RingOrder) -> Result<(), Error> {
        if matches!(order, RingOrder::Supply { .. } | RingOrder::Recall {}) {
            self.direct.came = self.direct.came.wrapping_add(1);
        }
        match order {
            RingOrder::Read { link, topic, supplier, last, in_order } => {
                let is_of_host = self.transport.passes();
                let socket = if is_of_host { self.transport.passed()? } else { None };
                let over_link = self.direct.links.take_accepted(link);
                if !is_of_host && over_link.is_none() {
                    self.report(number, RingReport::Ended { link, taken: 0, broken: false });
                    return Ok(());
                }
                let name = self.topics.name(topic).cloned().unwrap_or_default();
                let Some(mut terms) = self.direct.terms.get(&number).copied() else { return Ok(()) };
                if in_order {
                    terms.order = EventOrder::Publication;
                }
                let (subscription, largest) = (SubscriptionHandle(number), self.transport.largest());
                let event_type = self.topics.event_type(topic).cloned();
                let of =
                    ReadingOf { link, subscription, topic, name, event_type, supplier, last, terms, largest };
                let reading = match over_link {
                    Some(transport) => DirectReading::of_link(of, transport),
                    None => DirectReading::new(of, socket.ok_or_else(no_descriptor)?),
                };
                // the events of a link that has not begun must not end a sleep
                if !reading.is_link() {
                    self.watch(&reading)?;
                }
                self.direct.readings.push(reading);
            }
            RingOrder::Listen { link, keys } => self.listen_for(number, link, keys)?,
            RingOrder::Connect { link, consumer, blocks, address, keys } => {
                self.connect_to(number, (link, keys), (consumer, address), blocks);
            }
            RingOrder::Cut { link } => self.cut(link),
            RingOrder::Begin { link } => {
                self.empty_rings_before(link);
                let at = self.direct.readings.iter().position(|reading| reading.of.link == link);
                if let Some(reading) = at.map(|at| &mut self.direct.readings[at]) {
                    reading.begun = true;
                }
                match at.map(|at| &self.direct.readings[at]) {
                    Some(reading) if reading.is_cut => self.cut(link),
                    Some(reading) if reading.is_link() => self.watch(reading)?,
                    _ => {}
                }
            }
            RingOrder::Supply { .. } => {
                let socket = self.transport.passed()?.ok_or_else(no_descriptor)?;
                // drops orders for departed consumers: they would accumulate in a program that only receives,
                // because it carries out no orders
                self.direct.orders.retain(|(.., socket)| socket.as_ref().is_none_or(is_connected));
                self.direct.orders.push_back((number, order, Some(socket)));
            }
            RingOrder::Numbered { last } => {
                self.direct.links.numbered(number, last);
                if let Some(supply) = self.direct.supplies.get_mut(&number) {
                    supply.last = Some(last);
                }
            }
            RingOrder::Recall {} => self.direct.orders.push_back((number, order, None)),
        }
        Ok(())
    }

    /// Makes this client's descriptor ready when a reading may have an event.
    fn watch(&self, reading: &DirectReading) -> Result<(), Error> {
        let Some(ready) = &self.direct.ready else { return Ok(()) };
        let data = EventData::new_u64(u64::from(reading.of.link));
        epoll::add(ready, reading.descriptor(), data, EventFlags::IN).map_err(Error::from_errno)
    }

    /// Returns whether the broker has announced an order that has not come yet because this connection was
    /// full.
    fn awaits_orders(&self) -> bool {
        // an older broker announces no orders, so this is not a comparison for equality
        self.transport.announced_orders().wrapping_sub(self.direct.came).cast_signed() > 0
    }

    /// Lends a place in the topic's ring for an event's payload of `bytes` bytes. Returns `None` if the topic
    /// has no ring, or if the event does not fit into it.
    pub(super) fn lend_on_ring(
        &mut self,
        number: u32,
        event: &EventDraft<'_>,
        bytes: usize,
    ) -> Result<Option<LentBytes>, Error> {
        let broker_only = event.criticality != 0 || event.fields.len() > MAX_FIELDS;
        if self.direct.ready.is_none() || broker_only {
            return Ok(None);
        }
        self.receive_orders()?;
        let head = DeliverHead { key: event.key, fields: event.fields.clone(), ..DeliverHead::default() };
        self.head.clear();
        head.write(&mut self.head);
        let ClientRings { supplies, room, .. } = &mut self.direct;
        Ok(supplies.get_mut(&number).and_then(|supply| supply.lend(self.head.len(), bytes, room)))
    }

    /// Takes the frames that have come, and carries out the orders among them.
    fn receive_orders(&mut self) -> Result<(), Error> {
        while self.received.len() < MAX_RECEIVED && self.transport.has_come() == Some(true) {
            if !self.take_frame()? {
                break;
            }
        }
        self.apply_orders()
    }

    /// Carries out the broker's orders. It is called between two events.
    pub(super) fn apply_orders(&mut self) -> Result<(), Error> {
        while let Some((number, order, socket)) = self.direct.orders.pop_front() {
            match (order, socket) {
                (RingOrder::Supply { link, consumer, blocks, events, bytes }, Some(socket))
                    if self.outlets.get(&number).is_some_and(|outlet| !outlet.left_rings) =>
                {
                    let way = self.wait.policy();
                    let order = self.outlets.get(&number).map(|outlet| outlet.order).unwrap_or_default();
                    // consumers of topics without new events may have left: this frees the bytes of their
                    // rings
                    let freed: u64 = self.direct.supplies.values_mut().map(DirectSupply::sweep).sum();
                    self.direct.room += freed;
                    let supply =
                        self.direct.supplies.entry(number).or_insert_with(|| DirectSupply::new(way, order));
                    supply.link(socket, (consumer, blocks), (events, bytes));
                    let report = RingReport::Supplies { links: vec![link] };
                    self.send_frame(&Frame::RingReport { number, report })?;
                }
                (RingOrder::Recall {}, _) => self.leave_as(number, (false, !self.transport.passes()))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends a topic's ring: its next events go to the broker.
    pub(super) fn leave(&mut self, number: u32, for_good: bool) -> Result<(), Error> {
        self.leave_as(number, (for_good, false))
    }

    fn leave_as(&mut self, number: u32, (for_good, recalled): (bool, bool)) -> Result<(), Error> {
        let events = self.direct.end_supply(number);
        if let Some(outlet) = self.outlets.get_mut(&number) {
            outlet.left_rings |= for_good;
        }
        let report = RingReport::Left { events, for_good, recalled };
        self.send_frame(&Frame::RingReport { number, report })
    }

    /// Publishes an event through the topic's ring, if there is one. Returns whether it did.
    pub(super) fn publish_on_ring(
        &mut self,
        number: u32,
        event: &EventDraft<'_>,
        (flags, sequence): (PublishFlags, Option<u64>),
        token: u32,
    ) -> Result<bool, Error> {
        if self.direct.ready.is_none() {
            return Ok(false);
        }
        if !self.transport.passes() {
            return self.publish_on_link(number, event, (flags, sequence), token);
        }
        loop {
            self.receive_orders()?;
            if !self.direct.supplies.contains_key(&number) {
                return Ok(false);
            }
            let awaits = self.awaits_orders();
            let blind = awaits && self.received.len() >= MAX_RECEIVED;
            if awaits && !blind {
                // there is room for the order now, and the broker sends it at its next poll
                self.flush_connected()?;
                self.receive_frame(None)?;
                continue;
            }
            let now = clock::now();
            let offered = self.outlets.get(&number).and_then(|outlet| outlet.deadline_ns);
            let deadline = event
                .deadline
                .min(offered.map_or(NO_DEADLINE, |offered| now + Duration::from_nanos(offered)));
            if deadline < now {
                self.refuse(number, token, &PublishError::PastDeadline { by: now - deadline });
                return Ok(true);
            }
            let ClientRings { supplies, room, .. } = &mut self.direct;
            let Some(supply) = supplies.get_mut(&number) else { continue };
            let broker_only = event.criticality != 0 || sequence.is_some();
            if blind || broker_only || event.fields.len() > MAX_FIELDS {
                self.leave(number, true)?;
                return Ok(false);
            }
            let head = DeliverHead {
                sequence: supply.events + 1,
                times: DeliverTimes::At { deadline, published: now },
                key: event.key,
                fields: event.fields.clone(),
                ..DeliverHead::default()
            };
            self.head.clear();
            head.write(&mut self.head);
            match supply.publish((&self.head, deadline), (event.payload, event.lent), room) {
                Ok(()) => {
                    self.direct.untold = true;
                    if flags.answer {
                        self.answer_direct(number, token)?;
                    }
                    return Ok(true);
                }
                Err(NotSupplied::Full(consumer)) if flags.at_once => {
                    let consumer = supply.consumer(consumer).into();
                    self.refuse(number, token, &PublishError::Full { consumer });
                    return Ok(true);
                }
                Err(NotSupplied::Full(_)) if self.received.len() >= MAX_RECEIVED => {
                    self.leave(number, true)?;
                    return Ok(false);
                }
                Err(NotSupplied::Full(consumer)) => {
                    let left =
                        self.room_until.map(|until| until.saturating_duration_since(StdInstant::now()));
                    supply.wait_for(consumer, left.map_or(Duration::MAX, Duration::from));
                    // this program waits for a consumer, and must not make that consumer wait for it in turn
                    while self.received.len() < MAX_RECEIVED
                        && let Some(reception) = self.read_ring()
                    {
                        self.received.push_back(reception);
                    }
                    // other consumers may wait for events that this thread has published on other topics
                    self.flush_connected()?;
                    self.interrupt.poll()?;
                    if self.room_until.is_some_and(|until| until <= StdInstant::now()) {
                        return Err(Error::NoRoom);
                    }
                }
                Err(NotSupplied::NoRing) => {
                    self.leave(number, true)?;
                    return Ok(false);
                }
            }
        }
    }

    /// Refuses an event in place of the broker, and counts it for the next report.
    pub(super) fn refuse(&mut self, number: u32, token: u32, error: &PublishError) {
        // an older broker would end the connection at a report, and each broker at one about a closed topic
        if self.terms.refusal_reports && self.outlets.contains_key(&number) {
            let counts = self.direct.refused.entry(number).or_default();
            match error {
                PublishError::PastDeadline { .. } => counts.deadline += 1,
                PublishError::Full { .. } => counts.full += 1,
                _ => {} // only the broker refuses for other reasons
            }
        }
        let reason = error.to_string();
        if token > 0 {
            self.answers.insert((number, token), BrokerAnswer::Rejected(reason));
        } else {
            self.rejected += 1;
            self.received.push_back(Reception::Rejected { topic: TopicHandle(number), reason });
        }
    }

    /// Produces the broker's answer for an event in a ring or a link.
    pub(super) fn answer_direct(&mut self, number: u32, token: u32) -> Result<(), Error> {
        let answer = loop {
            if let Some((last, events)) = self.direct.links.numbers(number) {
                if let Some(last) = last {
                    break links::published_on_link(last, events);
                }
                self.receive_frame(None)?;
                continue;
            }
            let Some(supply) = self.direct.supplies.get(&number) else { return Ok(()) };
            if let Some(last) = supply.last {
                let outcome = PublishOutcome::Taken(u32::try_from(supply.readers()).unwrap_or(u32::MAX));
                break PublishedEvent { sequence: last.saturating_add(supply.events), outcome };
            }
            self.receive_frame(None)?;
        };
        self.answers.insert((number, token), BrokerAnswer::Published(answer));
        Ok(())
    }

    /// Wakes the consumers that sleep at rings.
    #[inline]
    pub(super) fn wake_consumers(&mut self) {
        if std::mem::take(&mut self.direct.untold) {
            self.direct.supplies.values_mut().for_each(DirectSupply::wake_consumers);
        }
    }
}

/// Returns whether the other end of a socket is open.
fn is_connected(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_err() || !fds[0].revents().contains(PollFlags::HUP)
}

fn no_descriptor() -> Error {
    Error::Strange("an order about a ring came without its descriptor".to_owned())
}
