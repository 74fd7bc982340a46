//! Events of one supplier that a program has taken from a ring and not handed out yet, by deadline.
//!
//! A ring keeps the order of publication. While the ring has an event that is due before an earlier one, its
//! reader takes all events out of the ring and hands them out from this queue. The queue limits of the
//! subscription apply here, too: a subscription that drops events drops the oldest, and a subscription that
//! blocks its suppliers takes no more events out of the ring. Events from the broker do not count, because
//! the broker has counted them in its own queue.
//!
//! Cost: logarithmic in the number of events. When not to use it: for events in ascending order of deadlines,
//! which a reader hands out directly.

use super::received::ReceivedEvent;
use std::collections::BTreeMap;
use unisono_eventchannel::NO_DEADLINE;
use unisono_events_wire::{SubscriptionSpec, WhenFull};
use unisono_linux::clock::Instant;

/// The limits of a subscription's queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct SortedLimits {
    pub(super) events: usize,
    pub(super) bytes: usize,
    pub(super) full: WhenFull,
}

impl From<&SubscriptionSpec> for SortedLimits {
    fn from(spec: &SubscriptionSpec) -> Self {
        Self { events: spec.queue_events, bytes: spec.queue_bytes, full: spec.full }
    }
}

/// A waiting event.
#[derive(Debug)]
pub(super) struct SortedEvent {
    pub(super) event: ReceivedEvent,
    /// Whether the broker has checked the event's deadline and counted the event.
    pub(super) counted: bool,
}

/// Dropped events: the first and the last number, and how many.
pub(super) type DroppedEvents = (u64, u64, u64);

#[derive(Debug)]
pub(super) struct SortedEvents {
    limits: SortedLimits,
    /// The waiting events by deadline, and then by number.
    events: BTreeMap<(Instant, u64), SortedEvent>,
    /// The deadline of each event from the ring, by number.
    due: BTreeMap<u64, Instant>,
    /// Bytes of the events from the ring.
    bytes: usize,
    dropped: Option<DroppedEvents>,
}

impl SortedEvents {
    pub(super) fn new(limits: SortedLimits) -> Self {
        Self { limits, events: BTreeMap::new(), due: BTreeMap::new(), bytes: 0, dropped: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns whether an event can be added without a loss.
    pub(super) fn has_room(&self) -> bool {
        self.limits.full != WhenFull::BlockSupplier || !self.is_over(1)
    }

    fn is_over(&self, more: usize) -> bool {
        let events = self.due.len() + more;
        events > 1 && (events > self.limits.events || self.bytes > self.limits.bytes)
    }

    pub(super) fn insert(&mut self, event: SortedEvent) {
        let number = event.event.sequence;
        let due = event.event.deadline.unwrap_or(NO_DEADLINE);
        if !event.counted {
            self.bytes += event.event.payload.as_payload().length();
            self.due.insert(number, due);
        }
        self.events.insert((due, number), event);
        while self.limits.full != WhenFull::BlockSupplier
            && self.is_over(0)
            && let Some((number, due)) = self.due.pop_first()
            && let Some(SortedEvent { event, .. }) = self.events.remove(&(due, number))
        {
            self.bytes = self.bytes.saturating_sub(event.payload.as_payload().length());
            let (first, last, lost) = self.dropped.unwrap_or((number, number, 0));
            self.dropped = Some((first.min(number), last.max(number), lost + 1));
        }
    }

    /// Returns the deadline and the time of publication of the first event.
    pub(super) fn first(&self) -> Option<(Instant, Instant)> {
        self.events.first_key_value().map(|((due, _), first)| (*due, first.event.published))
    }

    pub(super) fn take_first(&mut self) -> Option<SortedEvent> {
        let ((_, number), event) = self.events.pop_first()?;
        if self.due.remove(&number).is_some() {
            self.bytes = self.bytes.saturating_sub(event.event.payload.as_payload().length());
        }
        Some(event)
    }

    /// Returns the events that were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> Option<DroppedEvents> {
        self.dropped.take()
    }
}
