//! Direct rings of a client: it obeys the broker's orders, publishes into rings, and takes events from rings
//! and from the broker in the right order. Programs notice nothing of this.
//!
//! A supplier looks for orders before each event, so that an event never misses a consumer whose subscription
//! was accepted before. It obeys them between two events, because what it answers has to follow the events
//! that went to the broker.

use super::reading::{DirectReading, ReadingEnd, ReadingOf};
use super::supply::{DirectSupply, MOST_RING_BYTES, NotSupplied};
use super::{BrokerAnswer, Client, EventDraft, PublishedEvent, Reception, SubscriptionHandle, TopicHandle};
use super::{ClientWait, Error, glance};
use crate::frame::{DeliverHead, Frame, MOST_KEY, PublishFlags, PublishOutcome};
use crate::ring::{RingOrder, RingReport};
use crate::spec::WhenLate;
use crate::transport::{Awaited, FrameTransport, MayWait};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use unisono_eventchannel::{NO_DEADLINE, PublishError};
use unisono_linux::clock::{Nanos, now};
use unisono_sync::SpinBudget;

/// Events of this program that it has not received yet, from which on it does not look for orders: a supplier
/// that cannot look publishes through the broker.
const MOST_RECEIVED: usize = 256;
/// Fields of one event, at most; the broker says so for more.
const MOST_FIELDS: usize = 256;
/// How often a consumer tells the broker what it took from rings.
const COUNTED_EVERY: Nanos = Nanos(100_000_000);
/// Events from rings before a look for the broker's frames.
const TURN: u32 = 64;
/// Events taken from a ring that its supplier has left, at most: two of the longest rings.
const MOST_EMPTIED: usize = 1 << 16;
/// Looks of a consumer that spins, until it looks for what only a system call shows: about 0.1 ms.
const THOROUGH: u32 = 4096;

/// What a client has of direct rings.
#[derive(Debug, Default)]
pub(super) struct ClientRings {
    /// Orders for topics that were not obeyed yet.
    orders: VecDeque<(u32, RingOrder, Option<OwnedFd>)>,
    supplies: BTreeMap<u32, DirectSupply>,
    /// Bytes that are left for rings.
    room: u64,
    pub(super) readings: Vec<DirectReading>,
    /// What each subscription wants of late events.
    late: BTreeMap<u32, WhenLate>,
    /// Whether consumers that sleep were not told of the last events.
    untold: bool,
    since_frames: u32,
    counted_at: Nanos,
    /// Ready when the broker's frames or a ring may have something. None: this client has no rings.
    ready: Option<OwnedFd>,
}

impl ClientRings {
    pub(super) fn over(transport: &dyn FrameTransport) -> Result<Self, Error> {
        let mut rings = Self { room: MOST_RING_BYTES, ..Self::default() };
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

    pub(super) fn subscribed(&mut self, number: u32, late: WhenLate) {
        if self.ready.is_some() {
            self.late.insert(number, late);
        }
    }

    /// Ends the readings of a subscription.
    pub(super) fn unsubscribed(&mut self, number: u32) {
        self.late.remove(&number);
        self.readings.retain(|reading| reading.of.subscription.0 != number);
    }

    /// Ends all rings that this program supplies: their readers have all that is in them.
    pub(super) fn leave_all(&mut self) {
        self.supplies.clear();
    }

    /// Ends a topic's ring.
    pub(super) fn withdrawn(&mut self, number: u32) {
        self.end_supply(number);
        self.orders.retain(|(of, ..)| *of != number);
    }

    /// Ends a topic's ring; how many events it had.
    fn end_supply(&mut self, number: u32) -> u64 {
        let Some(supply) = self.supplies.remove(&number) else { return 0 };
        self.room += supply.bytes();
        supply.events
    }
}

impl Client {
    /// The broker has sent an order.
    pub(super) fn ordered(&mut self, number: u32, order: RingOrder) -> Result<(), Error> {
        match order {
            RingOrder::Read { link, topic, supplier, last } => {
                let socket = self.transport.passed()?.ok_or_else(no_descriptor)?;
                let name = self.topics.get(&topic).cloned().unwrap_or_default();
                let Some(late) = self.direct.late.get(&number).copied() else { return Ok(()) };
                let (subscription, largest) = (SubscriptionHandle(number), self.transport.largest());
                let of = ReadingOf { link, subscription, topic, name, supplier, last, late, largest };
                let reading = DirectReading::new(of, socket);
                if let Some(ready) = &self.direct.ready {
                    let data = EventData::new_u64(u64::from(link));
                    epoll::add(ready, reading.descriptor(), data, EventFlags::IN)
                        .map_err(Error::from_errno)?;
                }
                self.direct.readings.push(reading);
            }
            RingOrder::Begin { link } => {
                for reading in self.direct.readings.iter_mut().filter(|reading| reading.of.link == link) {
                    reading.begun = true;
                }
            }
            RingOrder::Supply { .. } => {
                let socket = self.transport.passed()?.ok_or_else(no_descriptor)?;
                // a program that only listens obeys no order: those of consumers that are gone would pile up
                self.direct.orders.retain(|(.., socket)| socket.as_ref().is_none_or(is_connected));
                self.direct.orders.push_back((number, order, Some(socket)));
            }
            RingOrder::Numbered { last } => {
                if let Some(supply) = self.direct.supplies.get_mut(&number) {
                    supply.last = Some(last);
                }
            }
            RingOrder::Recall {} => self.direct.orders.push_back((number, order, None)),
        }
        Ok(())
    }

    /// Does what the broker has ordered; between two events.
    fn obey(&mut self) -> Result<(), Error> {
        while let Some((number, order, socket)) = self.direct.orders.pop_front() {
            match (order, socket) {
                (RingOrder::Supply { link, consumer, blocks, events, bytes }, Some(socket))
                    if self.outlets.get(&number).is_some_and(|outlet| !outlet.left_rings) =>
                {
                    let way = self.wait.way();
                    let supply = self.direct.supplies.entry(number).or_insert_with(|| DirectSupply::new(way));
                    supply.link(socket, (consumer, blocks), (events, bytes));
                    let report = RingReport::Supplies { links: vec![link] };
                    self.tell(&Frame::RingReport { number, report })?;
                }
                (RingOrder::Recall {}, _) => self.leave(number, false)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends a topic's ring: its next events go to the broker.
    fn leave(&mut self, number: u32, for_good: bool) -> Result<(), Error> {
        let events = self.direct.end_supply(number);
        if let Some(outlet) = self.outlets.get_mut(&number) {
            outlet.left_rings |= for_good;
        }
        self.tell(&Frame::RingReport { number, report: RingReport::Left { events, for_good } })
    }

    /// Publishes an event through the topic's ring, if it has one; whether it did.
    pub(super) fn put_direct(
        &mut self,
        number: u32,
        event: &EventDraft<'_>,
        (flags, sequence): (PublishFlags, Option<u64>),
        token: u32,
    ) -> Result<bool, Error> {
        if self.direct.ready.is_none() {
            return Ok(false);
        }
        loop {
            while self.received.len() < MOST_RECEIVED && self.transport.has_come() == Some(true) {
                if !self.take()? {
                    break;
                }
            }
            let blind = self.received.len() >= MOST_RECEIVED && self.transport.has_come() == Some(true);
            self.obey()?;
            if !self.direct.supplies.contains_key(&number) {
                return Ok(false);
            }
            let broker_only = event.criticality != 0 || sequence.is_some();
            if blind || broker_only || event.fields.len() > MOST_FIELDS || event.key.len() > MOST_KEY {
                self.leave(number, true)?;
                return Ok(false);
            }
            let now = now();
            let offered = self.outlets.get(&number).and_then(|outlet| outlet.deadline_ns);
            let deadline =
                event.deadline.min(offered.map_or(NO_DEADLINE, |offered| Nanos(offered).after(now)));
            if deadline < now {
                let error = PublishError::PastDeadline { by: now.since(deadline) };
                self.refuse(number, token, error.to_string());
                return Ok(true);
            }
            let ClientRings { supplies, room, .. } = &mut self.direct;
            let Some(supply) = supplies.get_mut(&number) else { continue };
            let head = DeliverHead {
                sequence: supply.events + 1,
                deadline,
                published: now,
                key: event.key,
                fields: event.fields.clone(),
                ..DeliverHead::default()
            };
            self.head.clear();
            head.write(&mut self.head);
            match supply.publish(&self.head, event.payload, room) {
                Ok(()) => {
                    self.direct.untold = true;
                    if flags.answer {
                        self.answer_direct(number, token)?;
                    }
                    return Ok(true);
                }
                Err(NotSupplied::Full(consumer)) if flags.at_once => {
                    let consumer = supply.consumer(consumer).into();
                    self.refuse(number, token, PublishError::Full { consumer }.to_string());
                    return Ok(true);
                }
                Err(NotSupplied::Full(_)) if self.received.len() >= MOST_RECEIVED => {
                    self.leave(number, true)?;
                    return Ok(false);
                }
                Err(NotSupplied::Full(consumer)) => {
                    supply.wait_for(consumer);
                    // this program waits for a consumer; it must not make that consumer wait for it
                    while self.received.len() < MOST_RECEIVED
                        && let Some(reception) = self.read_ring()
                    {
                        self.received.push_back(reception);
                    }
                    // others may wait for what this thread published elsewhere
                    self.flush()?;
                }
                Err(NotSupplied::NoRing) => {
                    self.leave(number, true)?;
                    return Ok(false);
                }
            }
        }
    }

    fn refuse(&mut self, number: u32, token: u32, reason: String) {
        if token > 0 {
            self.answers.insert((number, token), BrokerAnswer::Rejected(reason));
        } else {
            self.rejected += 1;
            self.received.push_back(Reception::Rejected { topic: TopicHandle(number), reason });
        }
    }

    /// Answers an event that is in the ring, as the broker would.
    fn answer_direct(&mut self, number: u32, token: u32) -> Result<(), Error> {
        let answer = loop {
            let Some(supply) = self.direct.supplies.get(&number) else { return Ok(()) };
            if let Some(last) = supply.last {
                let outcome = PublishOutcome::Taken(u32::try_from(supply.readers()).unwrap_or(u32::MAX));
                break PublishedEvent { sequence: last.saturating_add(supply.events), outcome };
            }
            self.hear(None)?;
        };
        self.answers.insert((number, token), BrokerAnswer::Published(answer));
        Ok(())
    }

    /// Wakes the consumers that sleep at rings.
    #[inline]
    pub(super) fn tell_rings(&mut self) {
        if std::mem::take(&mut self.direct.untold) {
            self.direct.supplies.values_mut().for_each(DirectSupply::tell);
        }
    }

    /// Takes all that rings have of a supplier before something of the broker's is handed on, which came
    /// later: everything (`None`), or what comes before an event of this number.
    pub(super) fn empty_rings(
        &mut self,
        (subscription, topic, supplier): (u32, u32, u32),
        before: Option<u64>,
    ) {
        let (mut at, mut taken) = (0, 0);
        while let Some(reading) = self.direct.readings.get_mut(at) {
            let of = &reading.of;
            let is_theirs = (of.subscription.0, of.topic, of.supplier) == (subscription, topic, supplier);
            if !is_theirs || before.is_some_and(|number| number <= of.last) {
                at += 1;
                continue;
            }
            reading.begun = true;
            match reading.take() {
                // it said that it had left the ring, and writes on
                Ok(Some(reception)) if taken == MOST_EMPTIED || !is_before(&reception, before) => {
                    self.end_reading(at, ReadingEnd::Broken);
                }
                Ok(Some(reception)) => {
                    taken += 1;
                    self.received.push_back(reception);
                }
                Ok(None) => at += 1,
                Err(end) => self.end_reading(at, end),
            }
        }
    }

    fn end_reading(&mut self, at: usize, end: ReadingEnd) {
        let reading = self.direct.readings.remove(at);
        self.count(&reading);
        if end == ReadingEnd::Broken {
            let report = RingReport::Broken { link: reading.of.link };
            self.report(reading.of.subscription.0, report);
        }
    }

    /// Tells the broker something that can wait, and is lost with the connection.
    fn report(&mut self, number: u32, report: RingReport) {
        let mut head = Vec::new();
        Frame::RingReport { number, report }.write(&mut head);
        let _ = self.transport.send(&head, crate::transport::PayloadRef::Bytes(&[]));
    }

    fn count(&mut self, reading: &DirectReading) {
        if reading.counts != Default::default() {
            let report = RingReport::Counted { topic: reading.of.topic, counts: reading.counts };
            self.report(reading.of.subscription.0, report);
        }
    }

    /// Tells the broker what was taken from rings.
    pub(super) fn count_readings(&mut self) {
        let mut readings = std::mem::take(&mut self.direct.readings);
        for reading in &mut readings {
            self.count(reading);
            reading.counts = Default::default();
        }
        self.direct.readings = readings;
    }

    /// The next event or notice of a client that reads rings, if one comes in time.
    pub(super) fn receive_direct(&mut self, timeout: Option<Duration>) -> Result<Option<Reception>, Error> {
        let mut until = None;
        loop {
            if let Some(reception) = self.received.pop_front() {
                return Ok(Some(reception));
            }
            self.direct.since_frames += 1;
            let frames = self.direct.since_frames >= TURN;
            if !frames && let Some(reception) = self.read_ring() {
                return Ok(Some(reception));
            }
            self.direct.since_frames = 0;
            if self.take()? || frames {
                continue;
            }
            self.obey()?;
            self.flush()?;
            let until =
                *until.get_or_insert_with(|| timeout.map(|timeout| Nanos::from(timeout).after(now())));
            if !self.wait_direct(until)? {
                return Ok(None);
            }
        }
    }

    /// The event of all rings that is due first.
    fn read_ring(&mut self) -> Option<Reception> {
        loop {
            let at = match self.direct.readings.len() {
                0 => return None,
                1 if self.direct.readings[0].begun => 0,
                _ => self.due_first()?,
            };
            match self.direct.readings.get_mut(at)?.take() {
                Ok(next) => return next,
                Err(end) => self.end_reading(at, end),
            }
        }
    }

    fn due_first(&mut self) -> Option<usize> {
        let (mut at, mut first) = (0, None);
        while let Some(reading) = self.direct.readings.get_mut(at) {
            if !reading.begun {
                at += 1;
                continue;
            }
            match reading.peek() {
                Ok(due) => {
                    let due = due.map(|due| (due, at));
                    first = [first, due].into_iter().flatten().min();
                    at += 1;
                }
                Err(end) => {
                    self.end_reading(at, end);
                    first = None;
                    at = 0;
                }
            }
        }
        first.map(|(_, at)| at)
    }

    fn ring_has_something(&self) -> bool {
        self.direct.readings.iter().any(DirectReading::has_something)
            || self.transport.has_come() == Some(true)
    }

    /// Waits until a ring or the broker may have something; false: the time is over, and the descriptor
    /// becomes ready with the next event.
    fn wait_direct(&mut self, until: Option<Nanos>) -> Result<bool, Error> {
        let awake_until = SpinBudget::DEFAULT.nanos().after(now());
        let mut glances = 0;
        loop {
            if self.ring_has_something() {
                return Ok(true);
            }
            let now = now();
            let over = until.is_some_and(|until| until <= now);
            let looks = match self.wait {
                ClientWait::Spin => true,
                ClientWait::Adaptive => now < awake_until,
                ClientWait::Sleep => false,
            };
            if looks && !over {
                for _ in 0..16 {
                    glance(&mut glances);
                    if self.ring_has_something() {
                        return Ok(true);
                    }
                }
                if glances % THOROUGH == 0 {
                    self.transport.woken()?;
                    if !self.direct.readings.iter_mut().all(|reading| reading.woken() && reading.has_ring()) {
                        return Ok(true);
                    }
                }
                continue;
            }
            let is_counted = now.since(self.direct.counted_at) < COUNTED_EVERY;
            let uncounted = self.direct.readings.iter().any(|reading| reading.counts != Default::default());
            if uncounted && !is_counted {
                self.direct.counted_at = now;
                self.count_readings();
                self.flush()?;
            }
            let armed = self.direct.readings.iter().all(DirectReading::arm);
            if self.transport.prepare_to_wait(Awaited::FramesAndRoom)? == MayWait::No || !armed {
                return Ok(true);
            }
            if over {
                return Ok(false);
            }
            let wake = if uncounted { Some(COUNTED_EVERY.after(self.direct.counted_at)) } else { None };
            let wake = [until, wake].into_iter().flatten().min();
            self.sleep(wake.map(|wake| wake.since(now)))?;
            // the next look says what has come
            self.transport.woken()?;
            for reading in &mut self.direct.readings {
                reading.woken();
            }
            return Ok(true);
        }
    }

    fn sleep(&self, time: Option<Nanos>) -> Result<(), Error> {
        let Some(ready) = &self.direct.ready else { return Ok(()) };
        let timeout = time.map(|Nanos(nanos)| rustix::event::Timespec {
            tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (nanos % 1_000_000_000) as i64,
        });
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 8];
        match epoll::wait(ready, &mut events[..], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::from_errno(error)),
        }
    }
}

/// Whether somebody has the other end of a socket.
fn is_connected(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_err() || !fds[0].revents().contains(PollFlags::HUP)
}

/// Whether what came from a ring has a lower number than an event that came through the broker.
fn is_before(reception: &Reception, before: Option<u64>) -> bool {
    let number = match reception {
        Reception::Event(event) => event.sequence,
        Reception::Notice { notice: crate::notice::NoticeText::Gap { last, .. }, .. } => *last,
        _ => return true,
    };
    before.is_none_or(|before| number < before)
}

fn no_descriptor() -> Error {
    Error::Strange("an order about a ring came without its descriptor".to_owned())
}
