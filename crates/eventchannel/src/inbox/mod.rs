//! A consumer's queue: bounded and ordered by deadline, with a policy for a full queue ([`FullInbox`]).
//!
//! A consumer has an inbox of its own; the consumers of a group share one. Events leave an inbox by deadline;
//! equal deadlines by arrival. Where a supplier or the consumer asks for the order of publication
//! ([`DispatchOrder`]), an event's deadline counts as no earlier than the deadlines of the waiting events
//! that it must not overtake. Dropped events are recorded as a [`Gap`], and reported with the next delivery.
//!
//! Kept events have no deadline, and precede the new events of their supplier and topic. So when a new event
//! comes, the kept events that wait before it become due no later than it is.
//!
//! Cost: constant to insert and to remove an event while turns ascend in order of arrival, also with
//! `DropOldest`; otherwise logarithmic in the number of waiting events. The capacity bounds the memory of
//! events. The numbers of gaps, of counters of missed deadlines and of departed suppliers have fixed bounds,
//! so that a supplier cannot make the inbox grow by publishing on many topics.

mod ascending;
mod flow;
mod history;
mod idle;
mod parcel;
mod shares;
mod spec;
mod waiting;

use crate::event::{ChannelEvent, EventPayload, NO_DEADLINE};
use crate::ids::{SupplierId, TopicId};
use crate::number_map::NumberMap;
use crate::oversize::{OversizeAccount, OversizeShare};
use crate::quality::{Departed, DispatchOrder, SupplierOwner};
use flow::{AscendingTurns, WaitingFlow, WaitingFlows, advance_kept};
pub use history::InboxCounters;
use history::InboxHistory;
pub(crate) use idle::{IdleInboxes, SharedSpecs};
pub(crate) use parcel::Parcel;
use shares::SharedParcels;
pub use spec::{InboxCapacity, InboxSpec, Redelivery};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use unisono_time::Instant;
use waiting::WaitingParcels;

/// What happens when an event comes while an inbox is full. Of the events that a policy may drop, the least
/// critical ones go first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FullInbox {
    /// The event that arrived first is dropped.
    #[default]
    DropOldest,
    /// If events are late, the late event with the earliest deadline is dropped; otherwise, the event with
    /// the latest deadline.
    DropByDeadline,
    /// The new event is refused to its supplier, and no consumer gets it.
    BlockSupplier,
}

/// What happens to an event whose deadline has passed when its turn comes. Each policy counts it as missed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LateEvents {
    /// The consumer gets it, marked as late.
    #[default]
    Deliver,
    /// The consumer does not get the event; only the counters show it.
    Drop,
    /// The consumer gets a gap in its place.
    Report,
}

/// The order between suppliers in an inbox, and whose event a full inbox drops.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum BetweenSuppliers {
    /// The event with the earliest deadline is first, whichever supplier it is from.
    #[default]
    Deadlines,
    /// Each supplier gets the consumer's time in proportion to its [share](crate::Offer::share). A full inbox
    /// drops an event of the supplier that holds the most relative to its share. Among the events of one
    /// supplier the deadline decides.
    Shares,
}

/// Why events are missing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum GapCause {
    /// The inbox was full.
    Full,
    /// Their deadline had passed, and the consumer chose [`LateEvents::Report`].
    Late,
    /// They were larger than the events that the consumer's reservation covers.
    TooLarge,
    /// They were delivered the maximum number of times and never acknowledged.
    GivenUp,
    /// They never reached the channel, as the supplier's sequence numbers show. Whether the consumer's
    /// filters would have passed them is unknown.
    NotReceived,
}

/// Missing events: events of a supplier on a topic that matched the consumer's subscriptions and are not
/// delivered. A gap may be reported before events that precede it are delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    pub topic: TopicId,
    pub supplier: SupplierId,
    /// The first and the last sequence number of the missing events, both inclusive.
    pub first: u64,
    pub last: u64,
    /// The number of missing events.
    pub lost: u64,
    pub cause: GapCause,
}

/// The key by which events leave an inbox: the time by which the event is due, and then the channel's arrival
/// number.
pub(crate) type DueTurn = (Instant, u64);

/// The waiting events, in a queue for each order between suppliers.
#[derive(Debug)]
enum InboxQueue<P> {
    Deadlines(WaitingParcels<P>),
    Shares(SharedParcels<P>),
}

impl<P: EventPayload> InboxQueue<P> {
    fn new(between: BetweenSuppliers) -> Self {
        match between {
            BetweenSuppliers::Deadlines => Self::Deadlines(WaitingParcels::new()),
            BetweenSuppliers::Shares => Self::Shares(SharedParcels::new()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Deadlines(queue) => queue.len(),
            Self::Shares(queue) => queue.len(),
        }
    }

    fn first(&self) -> Option<DueTurn> {
        match self {
            Self::Deadlines(queue) => queue.first(),
            Self::Shares(queue) => queue.first(),
        }
    }

    fn insert(&mut self, turn: DueTurn, parcel: Parcel<P>) {
        match self {
            Self::Deadlines(queue) => queue.insert(turn, parcel),
            Self::Shares(queue) => queue.insert(turn, parcel),
        }
    }

    /// Makes a waiting event due earlier.
    fn advance(&mut self, supplier: SupplierId, turn: DueTurn, due: Instant) {
        match self {
            Self::Deadlines(queue) => queue.advance(turn, due),
            Self::Shares(queue) => queue.advance(supplier, turn, due),
        }
    }

    fn take_first(&mut self) -> Option<(DueTurn, Parcel<P>)> {
        match self {
            Self::Deadlines(queue) => {
                let turn = queue.first()?;
                Some((turn, queue.remove(turn)?))
            }
            Self::Shares(queue) => queue.take_first(),
        }
    }

    /// Removes the event that a full inbox drops.
    fn take_victim(&mut self, now: Instant, full: FullInbox) -> Option<(DueTurn, Parcel<P>)> {
        match self {
            Self::Deadlines(queue) => {
                let turn = queue.victim(now, full)?;
                Some((turn, queue.remove(turn)?))
            }
            Self::Shares(queue) => queue.take_victim(now, full),
        }
    }

    fn iter(&self) -> Box<dyn Iterator<Item = &Parcel<P>> + '_> {
        match self {
            Self::Deadlines(queue) => Box::new(queue.iter()),
            Self::Shares(queue) => Box::new(queue.iter()),
        }
    }
}

/// An inbox. While no event has come, it has none of its boxes; while none waits, it needs no `waiting`.
#[derive(Debug)]
pub(crate) struct Inbox<P> {
    pub(crate) spec: Arc<InboxSpec>,
    /// `None`: no event and no gap waits.
    waiting: Option<Box<WaitingEvents<P>>>,
    /// `None`: no event has come so far.
    history: Option<Box<InboxHistory>>,
    oversize: OversizeAccount,
}

/// The waiting events of an inbox, and the reports that precede them or follow them.
#[derive(Debug)]
struct WaitingEvents<P> {
    /// Whether [`IdleInboxes`] lists the inbox.
    is_listed: bool,
    queue: InboxQueue<P>,
    bytes: usize,
    /// The waiting event that is larger than the inbox's capacity, if any; it waits alone.
    oversize: OversizeShare,
    flows: WaitingFlows,
    /// The buffer of a flow that has ended, reused to save an allocation.
    spare: AscendingTurns,
    /// The turns of all waiting events, if all leave in order of arrival.
    arrivals: AscendingTurns,
    /// The suppliers that have left while events of theirs wait.
    departing: NumberMap<(TopicId, SupplierId), Departed>,
    /// The suppliers from `departing` whose last event has left the inbox and whose departure is not reported
    /// yet.
    departed: VecDeque<(TopicId, SupplierId, Departed)>,
    gaps: BTreeMap<(TopicId, SupplierId, GapCause), Gap>,
    /// Missing events without an entry in `gaps`, which was full.
    lost_beside: u64,
    /// The arrival number of the first pending gap.
    gap_since: u64,
}

/// An inbox in which this many events wait takes no more kept events: as many as a server delivers in a few
/// turns.
const MAX_PAST: usize = 256;

/// The maximum number of gaps between two deliveries, one for each topic, supplier and cause; an entry takes
/// up to 120 bytes. A consumer that reads has few. Chosen, not measured.
const MAX_GAPS: usize = 32;
/// The maximum number of departed suppliers that wait to be reported; beyond it, the oldest is dropped.
/// Chosen, not measured.
const MAX_DEPARTED: usize = 64;

impl<P: EventPayload> WaitingEvents<P> {
    fn new(spec: &InboxSpec, oversize: &OversizeAccount) -> Self {
        Self {
            is_listed: false,
            queue: InboxQueue::new(spec.between),
            oversize: OversizeShare::new(oversize.clone()),
            bytes: 0,
            flows: WaitingFlows::default(),
            spare: AscendingTurns::default(),
            arrivals: AscendingTurns::default(),
            departing: NumberMap::default(),
            departed: VecDeque::new(),
            gaps: BTreeMap::new(),
            lost_beside: 0,
            gap_since: 0,
        }
    }

    /// Returns whether the queue would exceed its capacity with `events` more events of `bytes` bytes. One
    /// event always fits.
    fn is_over(&self, capacity: InboxCapacity, events: usize, bytes: usize) -> bool {
        let events = self.queue.len() + events;
        events > 1 && (events > capacity.events || self.bytes.saturating_add(bytes) > capacity.bytes)
    }

    /// Counts a parcel in its flow. Returns the time by which it is due in this order.
    fn due_in_order(
        &mut self,
        order: DispatchOrder,
        due: Instant,
        arrival: u64,
        parcel: &Parcel<P>,
    ) -> Instant {
        let ChannelEvent { topic, supplier, .. } = *parcel.event;
        let new_flow = || WaitingFlow { events: 0, ordered: std::mem::take(&mut self.spare) };
        let flow = self.flows.get_or_insert_with((topic, supplier), new_flow);
        flow.events += 1;
        let before = match order {
            DispatchOrder::Arrival => &mut self.arrivals,
            DispatchOrder::Deadlines if !parcel.retained => {
                advance_kept(&mut self.queue, supplier, &mut flow.ordered, due);
                return due;
            }
            _ => &mut flow.ordered,
        };
        let due = before.last().map_or(due, |((latest, _), ())| due.max(*latest));
        before.push((due, arrival), ());
        due
    }

    /// Updates the counts after a parcel has left the queue.
    fn took(&mut self, turn: DueTurn, parcel: &Parcel<P>) {
        self.bytes -= parcel.weight();
        if self.oversize.holds(Some(Arc::as_ptr(&parcel.event).addr())) {
            self.oversize.release();
        }
        let flow = (parcel.event.topic, parcel.event.supplier);
        self.arrivals.remove(&turn);
        if let Some(waiting) = self.flows.get_mut(flow) {
            waiting.events -= 1;
            waiting.ordered.remove(&turn);
            if waiting.events == 0
                && let Some(emptied) = self.flows.remove(flow)
            {
                self.spare = emptied.ordered;
                if let Some(why) = self.departing.remove(&flow) {
                    self.departed.push_back((flow.0, flow.1, why));
                    if self.departed.len() > MAX_DEPARTED {
                        self.departed.pop_front();
                    }
                }
            }
        }
    }
}

impl<P: EventPayload> Inbox<P> {
    pub(crate) fn new(spec: Arc<InboxSpec>, oversize: OversizeAccount) -> Self {
        Self { spec, waiting: None, history: None, oversize }
    }

    fn waiting_mut(&mut self) -> &mut WaitingEvents<P> {
        self.waiting.get_or_insert_with(|| Box::new(WaitingEvents::new(&self.spec, &self.oversize)))
    }

    /// Returns whether a supplier has to wait until this inbox has room for an event of `bytes` bytes.
    pub(crate) fn blocks(&mut self, owner: SupplierOwner, bytes: usize) -> bool {
        self.blocks_behind(owner, (0, 0), bytes)
    }

    /// Returns whether a supplier has to wait until the consumer has taken more events. It has to if a new
    /// event of `bytes` bytes, together with the `kept` kept events of `kept_bytes` bytes that precede it,
    /// would not fit.
    pub(crate) fn blocks_behind(
        &mut self,
        owner: SupplierOwner,
        (kept, kept_bytes): (usize, usize),
        bytes: usize,
    ) -> bool {
        let full = self.spec.full == FullInbox::BlockSupplier
            && self.is_over(kept + 1, kept_bytes.saturating_add(bytes))
            && self.spec.blocks.include(owner);
        if full {
            self.counters_mut().blocked += 1;
        }
        full
    }

    fn is_over(&self, events: usize, bytes: usize) -> bool {
        let capacity = self.spec.capacity;
        match &self.waiting {
            Some(waiting) => waiting.is_over(capacity, events, bytes),
            None => events > 1 && (events > capacity.events || bytes > capacity.bytes),
        }
    }

    pub(crate) fn push(&mut self, now: Instant, arrival: u64, parcel: Parcel<P>) {
        self.counters_mut().matched += 1;
        let bytes = parcel.bytes();
        if self.spec.reservation.is_some_and(|reservation| bytes > reservation.largest) {
            self.counters_mut().dropped_large += 1;
            return self.lose(arrival, &parcel.event, GapCause::TooLarge);
        }
        self.enter(now, arrival, parcel);
    }

    /// Returns whether the inbox takes more kept events. It does so while it is less than half full, so that
    /// new events have room, and while it holds fewer than [`MAX_PAST`] events, so that other consumers' kept
    /// events need not wait long.
    pub(crate) fn has_room_for_past(&self) -> bool {
        let InboxCapacity { events, bytes } = self.spec.capacity;
        self.len() < (events / 2).clamp(1, MAX_PAST)
            && self.waiting.as_ref().is_none_or(|waiting| waiting.bytes < (bytes / 2).max(1))
    }

    /// Puts an event that was delivered and not acknowledged back into the queue, or gives it up after the
    /// last attempt.
    pub(crate) fn push_again(&mut self, now: Instant, arrival: u64, mut parcel: Parcel<P>) {
        parcel.repeated += 1;
        if self.spec.redelivery.is_none_or(|redelivery| parcel.repeated >= redelivery.attempts) {
            self.counters_mut().given_up += 1;
            return self.lose(arrival, &parcel.event, GapCause::GivenUp);
        }
        self.counters_mut().repeated += 1;
        self.enter(now, arrival, parcel);
    }

    fn enter(&mut self, now: Instant, arrival: u64, parcel: Parcel<P>) {
        let bytes = parcel.weight();
        let mut due = if parcel.retained { NO_DEADLINE } else { parcel.event.deadline };
        if let Some(reservation) = self.spec.reservation {
            // an event that comes too early counts as if it came at its time, so that it does not delay other
            // consumers
            let history = self.history_mut();
            let comes = now.max(history.expected);
            history.expected = comes + reservation.period;
            let promised = comes + reservation.deadline;
            due = if due == NO_DEADLINE { promised } else { due.max(promised) };
        }
        let (capacity, full, order) = (self.spec.capacity, self.spec.full, self.spec.order);
        let waiting = self.waiting_mut();
        let turn = (waiting.due_in_order(order.max(parcel.event.order), due, arrival, &parcel), arrival);
        waiting.bytes += bytes;
        let weighed = (Arc::as_ptr(&parcel.event).addr(), bytes);
        waiting.queue.insert(turn, parcel);
        while let waiting = self.waiting_mut()
            && waiting.is_over(capacity, 0, 0)
            && let Some((turn, parcel)) = waiting.queue.take_victim(now, full)
        {
            waiting.took(turn, &parcel);
            self.lose_full(arrival, &parcel);
        }
        let waiting = self.waiting_mut();
        if waiting.bytes > capacity.bytes
            && !waiting.oversize.holds(None)
            && !waiting.oversize.hold(weighed)
            && let Some((turn, parcel)) = waiting.queue.take_first()
        {
            waiting.took(turn, &parcel);
            self.lose_full(arrival, &parcel);
        }
    }

    fn lose_full(&mut self, arrival: u64, parcel: &Parcel<P>) {
        self.counters_mut().dropped_full += 1;
        self.lose(arrival, &parcel.event, GapCause::Full);
    }

    pub(crate) fn lose(&mut self, arrival: u64, event: &ChannelEvent<P>, cause: GapCause) {
        let ChannelEvent { topic, supplier, sequence, .. } = *event;
        self.report_gap(arrival, Gap { topic, supplier, first: sequence, last: sequence, lost: 1, cause });
    }

    /// Records missing events.
    pub(crate) fn report_gap(&mut self, arrival: u64, more: Gap) {
        let waiting = self.waiting_mut();
        if waiting.gaps.is_empty() {
            waiting.gap_since = arrival;
        }
        let key = (more.topic, more.supplier, more.cause);
        if waiting.gaps.len() >= MAX_GAPS && !waiting.gaps.contains_key(&key) {
            waiting.lost_beside = waiting.lost_beside.saturating_add(more.lost);
            return;
        }
        waiting
            .gaps
            .entry(key)
            .and_modify(|gap| {
                gap.first = gap.first.min(more.first);
                gap.last = gap.last.max(more.last);
                gap.lost = gap.lost.saturating_add(more.lost);
            })
            .or_insert(more);
    }

    /// Returns the turn of the inbox among the inboxes of its class: the turn of its next event, or else of
    /// its first gap. `None`: the inbox has neither.
    pub(crate) fn turn(&self) -> Option<DueTurn> {
        let waiting = self.waiting.as_ref()?;
        let gap = (!waiting.gaps.is_empty()).then_some((NO_DEADLINE, waiting.gap_since));
        waiting.queue.first().or(gap)
    }

    /// Removes and returns the next event; the flag is true if the event is late. Late events that the policy
    /// does not deliver are removed first.
    pub(crate) fn pop(&mut self, now: Instant, arrival: u64) -> Option<(Parcel<P>, bool)> {
        loop {
            let waiting = self.waiting.as_mut()?;
            let (turn, parcel) = waiting.queue.take_first()?;
            waiting.took(turn, &parcel);
            let late = !parcel.retained && parcel.event.deadline < now;
            if late {
                self.counters_mut().missed += 1;
                self.count_misses(parcel.event.topic, 1);
            }
            match self.spec.late {
                LateEvents::Deliver => {}
                _ if !late => {}
                how => {
                    self.counters_mut().dropped_late += 1;
                    if how == LateEvents::Report {
                        self.lose(arrival, &parcel.event, GapCause::Late);
                    }
                    continue;
                }
            }
            self.history_mut().count_delivered(1);
            let execution = self.spec.execution;
            if let Some(InboxQueue::Shares(queue)) = self.waiting.as_mut().map(|waiting| &mut waiting.queue) {
                let took = execution.for_bytes(parcel.bytes());
                queue.charge(parcel.event.supplier, parcel.event.share, took);
            }
            return Some((parcel, late));
        }
    }

    /// Returns whether the next event has no deadline and completes no correlation. False if suppliers share
    /// the consumer's time.
    pub(crate) fn has_plain_first(&self) -> bool {
        let queue = self.waiting.as_ref().map(|waiting| &waiting.queue);
        let Some(InboxQueue::Deadlines(queue)) = queue else { return false };
        let first = queue.front().map(|(_, parcel)| parcel);
        first.is_some_and(|parcel| parcel.event.deadline == NO_DEADLINE && parcel.with.is_empty())
    }

    /// Returns whether the next delivery reports missing events.
    pub(crate) fn has_gaps(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| !waiting.gaps.is_empty())
    }

    /// Removes and returns the gaps, and the number of missing events that are in none of them.
    pub(crate) fn take_gaps(&mut self) -> (Vec<Gap>, u64) {
        match self.waiting.as_mut().filter(|waiting| !waiting.gaps.is_empty()) {
            None => (Vec::new(), 0),
            Some(waiting) => {
                let gaps = std::mem::take(&mut waiting.gaps).into_values().collect();
                (gaps, std::mem::take(&mut waiting.lost_beside))
            }
        }
    }

    pub(crate) fn topics_of_gaps(&self) -> impl Iterator<Item = TopicId> {
        self.waiting.iter().flat_map(|waiting| waiting.gaps.keys().map(|(topic, ..)| *topic))
    }

    pub(crate) fn holds(&self, topic: TopicId, supplier: SupplierId) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.flows.get((topic, supplier)).is_some())
    }

    /// Returns the number of waiting events of a supplier on a topic.
    pub(crate) fn waiting_of(&self, topic: TopicId, supplier: SupplierId) -> usize {
        let flow = self.waiting.as_ref().and_then(|waiting| waiting.flows.get((topic, supplier)));
        flow.map_or(0, |flow| flow.events)
    }

    /// Records the departure of a supplier if events of the supplier wait, so that
    /// [`departed`](Self::departed) returns it after them. Returns whether it did so.
    pub(crate) fn departs(&mut self, topic: TopicId, supplier: SupplierId, why: Departed) -> bool {
        let Some(waiting) = &mut self.waiting else { return false };
        let waits = waiting.flows.get((topic, supplier)).is_some();
        if waits {
            waiting.departing.insert((topic, supplier), why);
        }
        waits
    }

    /// Returns whether [`departed`](Self::departed) would return a supplier.
    pub(crate) fn has_departed(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| !waiting.departed.is_empty())
    }

    /// Removes and returns the suppliers that have departed and whose last event has left the inbox since.
    pub(crate) fn departed(&mut self) -> impl Iterator<Item = (TopicId, SupplierId, Departed)> {
        self.waiting.iter_mut().flat_map(|waiting| waiting.departed.drain(..))
    }

    pub(crate) fn parcels(&self) -> impl Iterator<Item = &Parcel<P>> {
        self.waiting.iter().flat_map(|waiting| waiting.queue.iter())
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.queue.len())
    }
}
