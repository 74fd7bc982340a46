//! The reader's end of a supplier's ring, or of a link over TCP, whose frames are the entries of a ring.
//!
//! The content of the ring is not trusted. A frame is copied before it is parsed. A large payload may stay in
//! the ring; then only the head is copied. An unreadable entry ends the link, and from then on the broker
//! delivers the supplier's events.
//!
//! While an event in the ring is due before an earlier one, the reader takes all events out of the ring and
//! hands them out by deadline ([`SortedEvents`]). Otherwise, the ring is already in the order of deadlines.
//! Of a link it takes all events that have arrived.

use super::received::ReceivedEvent;
use super::sorted::{SortedEvent, SortedEvents, SortedLimits};
use super::{Reception, SubscriptionHandle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant as StdInstant};
use unisono_eventchannel::NO_DEADLINE;
use unisono_events_wire::DirectCounts;
use unisono_events_wire::EventBytes;
use unisono_events_wire::NoticeText;
use unisono_events_wire::frame::DeliverHead;
use unisono_events_wire::memory::{
    APART, Doorbell, DoorbellState, MemoryConsumer, MemoryOffer, NextEvent, WAY, shared_payload,
};
use unisono_events_wire::transport::{Dozing, FrameTransport, SharedPayload, TransportError};
use unisono_events_wire::{EventOrder, SubscriptionSpec, WhenLate};
use unisono_linux::clock::{self, Instant};

/// The maximum number of late or lost events and of closed rings that one call skips, because the caller may
/// have a timeout. Skipping an item takes only reads of memory, so the call ends soon.
const MAX_SKIPPED: usize = 64;
/// The time without a byte after which a link that its supplier has left is taken to bring no more: a lost
/// packet is sent again sooner on most paths. Chosen by this argument, not measured.
const QUIET_TIMEOUT: StdDuration = StdDuration::from_secs(1);

/// The identity of a reading, as the broker has assigned it.
#[derive(Clone, Debug)]
pub(super) struct ReadingOf {
    pub(super) link: u32,
    pub(super) subscription: SubscriptionHandle,
    pub(super) topic: u32,
    pub(super) name: Arc<str>,
    pub(super) event_type: Option<Arc<str>>,
    pub(super) supplier: u32,
    /// The sequence number of the supplier's last event before those in the ring.
    pub(super) last: u64,
    pub(super) terms: ReadingTerms,
    /// Maximum bytes of a frame.
    pub(super) largest: usize,
}

/// The terms of a subscription that its reader has to keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadingTerms {
    pub(super) late: WhenLate,
    pub(super) order: EventOrder,
    pub(super) limits: SortedLimits,
}

impl From<&SubscriptionSpec> for ReadingTerms {
    fn from(spec: &SubscriptionSpec) -> Self {
        Self { late: spec.late, order: spec.order, limits: spec.into() }
    }
}

/// Where a reading's events come from.
#[derive(Debug)]
enum ReadingSource {
    /// The socket over which rings are offered.
    Rings(Doorbell),
    Link(Box<dyn FrameTransport>),
}

/// A ring or a link that this program reads.
#[derive(Debug)]
pub(super) struct DirectReading {
    pub(super) of: ReadingOf,
    source: ReadingSource,
    ring: Option<MemoryConsumer>,
    copy: Vec<u8>,
    /// The number of the next event in the ring, from 1; `None` before the first event.
    expected: Option<u64>,
    /// The number of recently lost events that have not been reported to the program yet.
    lost_untold: u64,
    /// Whether the broker has reported that all events before those in the ring have been delivered.
    pub(super) begun: bool,
    /// Whether the broker has ended the link before it began: it ends when it has begun.
    pub(super) is_cut: bool,
    /// Whether the supplier was found to be gone.
    gone: bool,
    /// Whether [`take`](Self::take) returned without an event because it had skipped the maximum number of
    /// events.
    pub(super) skipped: bool,
    /// The notices that precede the next event.
    notices: VecDeque<Reception>,
    /// The event after those notices, if it was already taken for a comparison with other rings.
    ahead: Option<SortedEvent>,
    /// The events that were taken out of the ring because an event was due before an earlier event.
    sorted: SortedEvents,
    /// The lowest number of an event that came through the broker after the ring.
    before: Option<u64>,
    /// The reason why no more events come from the ring.
    end: Option<ReadingEnd>,
    pub(super) counts: DirectCounts,
}

/// The reason why no more events come from a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadingEnd {
    /// The supplier is gone, and all its events were taken.
    Ended,
    /// The ring holds an unreadable entry.
    Broken,
}

/// The treatment of the next event if it may be late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LateVerdict {
    Deliver,
    /// The program gets a notice that the event was late.
    Report,
    Drop,
}

impl LateVerdict {
    #[inline]
    pub(super) fn new(when: WhenLate, is_late: bool) -> Self {
        match when {
            WhenLate::Drop if is_late => Self::Drop,
            WhenLate::Report if is_late => Self::Report,
            _ => Self::Deliver,
        }
    }
}

impl DirectReading {
    pub(super) fn new(of: ReadingOf, socket: OwnedFd) -> Self {
        Self::with(of, ReadingSource::Rings(Doorbell::new(socket)))
    }

    /// Reads from a link whose supplier has shown its key.
    pub(super) fn of_link(of: ReadingOf, link: Box<dyn FrameTransport>) -> Self {
        Self::with(of, ReadingSource::Link(link))
    }

    fn with(of: ReadingOf, source: ReadingSource) -> Self {
        let sorted = SortedEvents::new(of.terms.limits);
        Self {
            of,
            source,
            ring: None,
            copy: Vec::new(),
            expected: None,
            lost_untold: 0,
            skipped: false,
            begun: false,
            is_cut: false,
            gone: false,
            notices: VecDeque::new(),
            ahead: None,
            sorted,
            before: None,
            end: None,
            counts: DirectCounts::default(),
        }
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.source {
            ReadingSource::Rings(bell) => bell.as_fd(),
            ReadingSource::Link(link) => link.as_fd(),
        }
    }

    #[inline]
    pub(super) fn is_link(&self) -> bool {
        matches!(self.source, ReadingSource::Link(_))
    }

    /// Takes the next event or notice. Returns `None` if the ring is empty, or if so many events were skipped
    /// that the caller has to check its timeout ([`skipped`](Self::skipped)).
    pub(super) fn take(&mut self) -> Result<Option<Reception>, ReadingEnd> {
        self.skipped = false;
        for _ in 0..MAX_SKIPPED {
            if let Some(notice) = self.notices.pop_front() {
                return Ok(Some(notice));
            }
            self.sort_early();
            // an event is a large value: moving it into a queue and out again would cost two copies
            let next = if self.sorted.is_empty() && self.ahead.is_none() {
                self.next_unsorted()?
            } else {
                self.sorted.take_first().or_else(|| self.ahead.take())
            };
            let Some(mut next) = next else { return Ok(None) };
            // a gap precedes the event that revealed it
            if !self.notices.is_empty() {
                self.ahead = Some(next);
                continue;
            }
            match self.judge_lateness(&mut next) {
                LateVerdict::Deliver => return Ok(Some(Reception::Event(next.event))),
                LateVerdict::Report => return Ok(Some(self.late_notice(&next))),
                LateVerdict::Drop => {}
            }
        }
        self.skipped = true;
        Ok(None)
    }

    /// Returns whether events are handed out in another order than the ring's.
    #[inline]
    pub(super) fn sorts(&self) -> bool {
        !self.sorted.is_empty() || self.has_early()
    }

    #[inline]
    fn has_early(&self) -> bool {
        self.of.terms.order == EventOrder::Deadlines
            && match &self.source {
                ReadingSource::Rings(_) => self.ring.as_ref().is_some_and(MemoryConsumer::has_early),
                ReadingSource::Link(link) => !link.received_part().is_empty(),
            }
    }

    /// Takes all events out of the ring if an event may be due before an earlier event, even if the earlier
    /// event has been taken already.
    #[inline]
    fn sort_early(&mut self) {
        // the first event of a link shows whether others have come with it
        if self.is_link() && self.sorted.is_empty() && self.ahead.is_none() && self.end.is_none() {
            match self.next_in_link() {
                Ok(event) => self.ahead = event,
                Err(end) => self.end = Some(end),
            }
        }
        if !self.sorts() {
            return;
        }
        if let Some(ahead) = self.ahead.take() {
            self.sorted.insert(ahead);
        }
        while self.sorted.has_room() {
            match self.next_in_ring() {
                Ok(Some(event)) => self.sorted.insert(event),
                Ok(None) => break,
                Err(end) => {
                    self.end = Some(end);
                    break;
                }
            }
        }
        if let Some((first, last, lost)) = self.sorted.take_dropped() {
            self.counts.dropped_full = self.counts.dropped_full.saturating_add(lost);
            let notice = self.gap((first, last, lost), "full");
            self.notices.push_back(notice);
        }
    }

    /// Adds an event that came through the broker after some events in the ring.
    pub(super) fn sort_in(&mut self, event: ReceivedEvent) {
        self.before = Some(self.before.map_or(event.sequence, |before| before.min(event.sequence)));
        self.sorted.insert(SortedEvent { event, counted: true });
    }

    /// Returns all notices and events that were taken out of the ring and not handed out.
    pub(super) fn take_rest(&mut self) -> Vec<Reception> {
        let mut rest: Vec<_> = self.notices.drain(..).collect();
        while let Some(mut next) = self.sorted.take_first().or_else(|| self.ahead.take()) {
            match self.judge_lateness(&mut next) {
                LateVerdict::Deliver => rest.push(Reception::Event(next.event)),
                LateVerdict::Report => rest.push(self.late_notice(&next)),
                LateVerdict::Drop => {}
            }
        }
        rest
    }

    /// Takes the next event after [`sort_early`](Self::sort_early) has taken none.
    #[inline(always)]
    fn next_unsorted(&mut self) -> Result<Option<SortedEvent>, ReadingEnd> {
        match self.end {
            Some(end) => Err(end),
            None if self.is_link() => Ok(None),
            None => self.next_in_ring(),
        }
    }

    /// Takes the next event that has arrived over a link.
    fn next_in_link(&mut self) -> Result<Option<SortedEvent>, ReadingEnd> {
        let ReadingSource::Link(link) = &mut self.source else { return Ok(None) };
        match link.receive() {
            Ok(Some(frame)) => {
                self.copy.clear();
                self.copy.extend_from_slice(frame.bytes);
            }
            Ok(None) => return Ok(None),
            Err(TransportError::Closed) => return Err(ReadingEnd::Ended),
            Err(_) => return Err(ReadingEnd::Broken),
        }
        self.copied_event(None).map(Some)
    }

    /// Makes the next call ask the kernel, although the last one has taken all that a link had.
    pub(super) fn look_again(&mut self) {
        if let ReadingSource::Link(link) = &mut self.source {
            link.look_again();
        }
    }

    /// Waits until more of a link may have arrived. Returns false if nothing has within [`QUIET_TIMEOUT`], or
    /// by the time `until`.
    pub(super) fn await_more(&self, until: StdInstant) -> bool {
        let left = until.saturating_duration_since(StdInstant::now()).min(QUIET_TIMEOUT);
        let timeout = Timespec::try_from(left.max(StdDuration::from_millis(1))).ok();
        let descriptor = self.descriptor();
        let came = poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], timeout.as_ref());
        came != Ok(0) && !left.is_zero()
    }

    /// Takes the next event out of the ring. Returns `None` if the ring is empty, or if so many losses and
    /// closed rings were skipped that the caller has to check its timeout.
    #[inline(always)]
    fn next_in_ring(&mut self) -> Result<Option<SortedEvent>, ReadingEnd> {
        if let Some(end) = self.end {
            return Err(end);
        }
        if self.is_link() {
            return self.next_in_link();
        }
        for _ in 0..MAX_SKIPPED {
            let Some(ring) = &mut self.ring else {
                match self.join() {
                    Ok(true) => continue,
                    Ok(false) => return Ok(None),
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(self.ended()),
                    Err(_) => return Err(ReadingEnd::Broken),
                }
            };
            self.copy.clear();
            let (mut held, length) = (None, ring.next_length().unwrap_or_default());
            if length > self.of.largest {
                return Err(ReadingEnd::Broken);
            }
            if length >= APART
                && let Ok(NextEvent::Event(event)) = ring.receive()
            {
                held = Some(event);
            }
            let head = match &held {
                Some(event) => {
                    let head = event.mark().tag as usize;
                    if head > event.length() {
                        return Err(ReadingEnd::Broken);
                    }
                    self.copy.resize(head, 0);
                    event.copy(0, &mut self.copy);
                    head
                }
                None => match ring.receive_copy(&mut self.copy) {
                    Ok(NextEvent::Event(_)) => 0,
                    Ok(NextEvent::Lost(lost)) => {
                        self.lost_untold = self.lost_untold.saturating_add(lost);
                        continue;
                    }
                    // the supplier was already gone before this poll, so no more events can come
                    Ok(NextEvent::Nothing) if self.gone => return Err(self.ended()),
                    Ok(NextEvent::Nothing) => return Ok(None),
                    Ok(NextEvent::Closed) => {
                        self.ring = None;
                        continue;
                    }
                    Err(_) => return Err(ReadingEnd::Broken),
                },
            };
            let shared = held.map(|event| shared_payload(event, head));
            return self.copied_event(shared).map(Some);
        }
        self.skipped = true;
        Ok(None)
    }

    /// Reads the event in the copied frame; `shared` is its payload if that was not copied.
    #[inline(always)]
    fn copied_event(&mut self, shared: Option<SharedPayload>) -> Result<SortedEvent, ReadingEnd> {
        let copy = std::mem::take(&mut self.copy);
        let event = match DeliverHead::read(&copy) {
            Ok((head, payload)) => self.event(head, EventBytes::new(payload, shared)),
            Err(_) => None,
        };
        self.copy = copy;
        event.ok_or(ReadingEnd::Broken)
    }

    /// Returns the number of events of the ring that the program has received or knows to be lost. The broker
    /// counts later losses, because it learns from the supplier how many events there were.
    pub(super) fn taken(&self) -> u64 {
        self.expected.map_or(0, |next| next - 1)
    }

    /// Counts the last losses when the supplier is gone, because no later event will reveal them.
    fn ended(&mut self) -> ReadingEnd {
        let lost = std::mem::take(&mut self.lost_untold);
        self.counts.dropped_full = self.counts.dropped_full.saturating_add(lost);
        ReadingEnd::Ended
    }

    /// Makes the notice that the ring has become unreadable. The number of lost events is not known here.
    pub(super) fn broken_off(&self) -> Reception {
        let ReadingOf { subscription, topic, ref name, supplier, last, .. } = self.of;
        let first = last.saturating_add(self.expected.unwrap_or(1));
        let (lost, cause) = (0, "broken".to_owned());
        let notice = NoticeText::Gap { topic, supplier, first, last: first, lost, cause };
        Reception::Notice { subscription, topic: Some(Arc::clone(name)), notice }
    }

    /// Maps the next ring that was offered. Returns whether there was an offer.
    fn join(&mut self) -> io::Result<bool> {
        let ReadingSource::Rings(bell) = &self.source else { return Ok(false) };
        let Some(offer) = MemoryOffer::receive(bell)? else { return Ok(false) };
        let ring = offer.accept(WAY, bell)?;
        // a slot is a quarter larger than its ring's first event
        if ring.largest() > self.of.largest + self.of.largest / 4 + 64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.ring = Some(ring);
        Ok(true)
    }

    /// Makes the notice of missing events: the first number, the last number, and how many are missing.
    fn gap(&self, (first, last, lost): (u64, u64, u64), cause: &str) -> Reception {
        let ReadingOf { subscription, topic, ref name, supplier, .. } = self.of;
        let notice = NoticeText::Gap { topic, supplier, first, last, lost, cause: cause.to_owned() };
        Reception::Notice { subscription, topic: Some(Arc::clone(name)), notice }
    }

    /// Converts an event, and records the gap before it. Returns `None` if the event's number is impossible.
    #[inline(always)]
    fn event(&mut self, head: DeliverHead<'_>, payload: EventBytes) -> Option<SortedEvent> {
        let ReadingOf { subscription, topic, ref name, ref event_type, supplier, last, .. } = self.of;
        let number = head.sequence;
        let expected = self.expected.unwrap_or_else(|| number.saturating_sub(self.lost_untold));
        let is_after = self.before.is_some_and(|before| last.saturating_add(number) >= before);
        if number < expected || number == u64::MAX || is_after {
            return None;
        }
        (self.expected, self.lost_untold) = (Some(number + 1), 0);
        // the supplier chooses the numbers, so the sum could overflow
        self.counts.dropped_full = self.counts.dropped_full.saturating_add(number - expected);
        let (deadline, published) = head.times.on_clock(clock::now);
        let event = ReceivedEvent {
            subscription,
            topic: Arc::clone(name),
            topic_number: topic,
            event_type: event_type.clone(),
            key: (!head.key.is_empty()).then(|| head.key.to_owned()),
            fields: head.fields,
            payload,
            criticality: head.criticality,
            supplier,
            sequence: last.saturating_add(number),
            published,
            deadline: (deadline != NO_DEADLINE).then_some(deadline),
            late: false,
            retained: false,
            repeated: 0,
            delivery: None,
            connection: 0,
            with: Vec::new(),
        };
        if number > expected {
            let (first, last) = (last.saturating_add(expected), last.saturating_add(number - 1));
            let notice = self.gap((first, last, last - first + 1), "full");
            self.notices.push_back(notice);
        }
        Some(SortedEvent { event, counted: false })
    }

    /// Counts the next event, and returns how its subscription treats it if it is late.
    #[inline]
    fn judge_lateness(&mut self, SortedEvent { event, counted }: &mut SortedEvent) -> LateVerdict {
        if *counted {
            return LateVerdict::Deliver;
        }
        event.late = event.deadline.is_some_and(|deadline| deadline < clock::now());
        self.counts.missed += u64::from(event.late);
        let verdict = LateVerdict::new(self.of.terms.late, event.late);
        match verdict {
            LateVerdict::Deliver => self.counts.delivered += 1,
            LateVerdict::Report | LateVerdict::Drop => self.counts.dropped_late += 1,
        }
        verdict
    }

    fn late_notice(&self, late: &SortedEvent) -> Reception {
        let number = late.event.sequence;
        self.gap((number, number, 1), "late")
    }

    /// Takes the next event for a comparison with other rings. Returns its deadline and its time of
    /// publication.
    pub(super) fn peek(&mut self) -> Result<Option<(Instant, Instant)>, ReadingEnd> {
        self.skipped = false;
        self.sort_early();
        if self.sorted.is_empty() && self.ahead.is_none() && self.notices.is_empty() {
            self.ahead = self.next_unsorted()?;
        }
        // a notice precedes all events
        if !self.notices.is_empty() {
            return Ok(Some((Instant::ZERO, Instant::ZERO)));
        }
        let ahead = self.ahead.as_ref().map(|SortedEvent { event, .. }| event);
        let ahead = ahead.map(|event| (event.deadline.unwrap_or(NO_DEADLINE), event.published));
        Ok(self.sorted.first().or(ahead))
    }

    /// Returns whether events or notices that were taken out of the ring wait to be handed out.
    fn has_taken(&self) -> bool {
        self.ahead.is_some() || !self.sorted.is_empty() || !self.notices.is_empty()
    }

    /// Returns whether an event can be taken, as far as the memory shows without a system call.
    pub(super) fn has_something(&self) -> bool {
        self.begun && (self.has_taken() || self.ring.as_ref().is_some_and(MemoryConsumer::has_something))
    }

    /// Returns whether a ring was offered and mapped.
    pub(super) fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Prepares for a poll of the descriptor. Returns whether the ring is empty.
    pub(super) fn arm(&self) -> bool {
        !self.begun || (!self.has_taken() && self.ring.as_ref().is_none_or(MemoryConsumer::arm))
    }

    /// Prepares for a sleep on the words of rings. The words of a ring whose reading has not begun are left
    /// out: a frame from the broker announces its beginning.
    pub(super) fn doze(&self) -> Dozing<'_> {
        match &self.ring {
            _ if self.has_taken() => Dozing::Awake,
            None => Dozing::AtDescriptor,
            Some(ring) => ring.doze().map_or(Dozing::Awake, Dozing::Counted),
        }
    }

    /// Consumes the wake-ups that made the descriptor ready. Returns whether the supplier is alive.
    pub(super) fn woken(&mut self) -> bool {
        if let ReadingSource::Rings(bell) = &self.source {
            self.gone |= !matches!(bell.take(), Ok(DoorbellState::Quiet | DoorbellState::Rung));
        }
        !self.gone
    }
}

#[cfg(test)]
mod tests;
