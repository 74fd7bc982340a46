//! The counters of an inbox, which stay when no event waits any more.

use super::{Inbox, LateEvents};
use crate::event::EventPayload;
use crate::ids::TopicId;
use std::collections::BTreeMap;
use unisono_time::Instant;

/// The maximum number of topics with a separate counter of missed deadlines; an entry takes up to 25 bytes.
/// Chosen, not measured.
const MAX_MISS_TOPICS: usize = 256;
/// The number that stands for all retired topics and for those without a separate counter; no topic has this
/// number.
const FORMER_TOPICS: TopicId = TopicId(0);

static NO_MISSES: BTreeMap<TopicId, u64> = BTreeMap::new();

/// Counters of an inbox since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InboxCounters {
    /// Events that matched.
    pub matched: u64,
    pub delivered: u64,
    /// Dropped because the inbox was full.
    pub dropped_full: u64,
    /// Not delivered because their deadline had passed.
    pub dropped_late: u64,
    /// Not delivered because they were larger than the events that the reservation covers.
    pub dropped_large: u64,
    /// Deadlines that had passed when the event's turn came, or passed while it was delivered.
    pub missed: u64,
    /// Deliveries repeated for lack of an acknowledgement.
    pub repeated: u64,
    /// Events given up after the last attempt.
    pub given_up: u64,
    /// Publications refused to a supplier because the inbox was full.
    pub blocked: u64,
}

impl InboxCounters {
    /// Returns the number of matched events that the consumer will never get.
    #[must_use]
    pub fn lost(&self) -> u64 {
        [self.dropped_full, self.dropped_late, self.dropped_large, self.given_up]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Adds the counters of another inbox.
    pub fn add(&mut self, other: &Self) {
        for (counter, more) in [
            (&mut self.matched, other.matched),
            (&mut self.delivered, other.delivered),
            (&mut self.dropped_full, other.dropped_full),
            (&mut self.dropped_late, other.dropped_late),
            (&mut self.dropped_large, other.dropped_large),
            (&mut self.missed, other.missed),
            (&mut self.repeated, other.repeated),
            (&mut self.given_up, other.given_up),
            (&mut self.blocked, other.blocked),
        ] {
            *counter = counter.saturating_add(more);
        }
    }
}

/// The part of an inbox that stays when no event waits any more.
#[derive(Debug, Default)]
pub(super) struct InboxHistory {
    pub(super) counters: InboxCounters,
    /// Missed deadlines by topic; all retired topics, and topics beyond [`MAX_MISS_TOPICS`], share one entry.
    pub(super) misses: BTreeMap<TopicId, u64>,
    /// The earliest time at which the next event may arrive under the reservation.
    pub(super) expected: Instant,
    /// Events that the consumer dropped after they had been counted as delivered. As many of the next
    /// deliveries are not counted, because counters do not fall.
    pub(super) uncounted: u64,
    /// Events that the consumer will drop because their deadlines passed while they were delivered; they are
    /// counted as missed already.
    pub(super) missed_in_service: u64,
}

impl InboxHistory {
    pub(super) fn count_delivered(&mut self, events: u64) {
        let uncounted = self.uncounted.min(events);
        self.uncounted -= uncounted;
        self.counters.delivered = self.counters.delivered.saturating_add(events - uncounted);
    }
}

impl<P: EventPayload> Inbox<P> {
    pub(super) fn history_mut(&mut self) -> &mut InboxHistory {
        self.history.get_or_insert_default()
    }

    pub(crate) fn counters(&self) -> InboxCounters {
        self.history.as_ref().map_or_else(InboxCounters::default, |history| history.counters)
    }

    pub(crate) fn counters_mut(&mut self) -> &mut InboxCounters {
        &mut self.history_mut().counters
    }

    /// Returns the missed deadlines by topic.
    pub(crate) fn misses(&self) -> &BTreeMap<TopicId, u64> {
        self.history.as_ref().map_or(&NO_MISSES, |history| &history.misses)
    }

    /// Adds the counts of events of a topic that did not pass through the inbox.
    pub(crate) fn count_direct(&mut self, topic: TopicId, mut counted: InboxCounters) {
        let delivered = std::mem::take(&mut counted.delivered);
        self.counters_mut().add(&counted);
        self.history_mut().count_delivered(delivered);
        if counted.missed > 0 {
            self.count_misses(topic, counted.missed);
        }
    }

    /// Counts a deadline that has passed while the event was delivered.
    pub(crate) fn count_missed_in_service(&mut self, topic: TopicId) {
        let is_dropped = self.spec.late != LateEvents::Deliver;
        let history = self.history_mut();
        history.counters.missed += 1;
        history.missed_in_service += u64::from(is_dropped);
        self.count_misses(topic, 1);
    }

    /// Counts events of a topic that the consumer dropped because their deadlines had passed on the way.
    pub(crate) fn count_late(&mut self, topic: TopicId, events: u64) {
        let history = self.history_mut();
        let known = history.missed_in_service.min(events);
        let missed = events - known;
        history.missed_in_service -= known;
        history.uncounted = history.uncounted.saturating_add(events);
        let late = InboxCounters { dropped_late: events, missed, ..InboxCounters::default() };
        history.counters.add(&late);
        if missed > 0 {
            self.count_misses(topic, missed);
        }
    }

    /// Counts missed deadlines under their topic. The caller has added them to the counters.
    pub(crate) fn count_misses(&mut self, topic: TopicId, missed: u64) {
        let misses = &mut self.history_mut().misses;
        let has_place = misses.len() < MAX_MISS_TOPICS || misses.contains_key(&topic);
        let total = misses.entry(if has_place { topic } else { FORMER_TOPICS }).or_default();
        *total = total.saturating_add(missed);
    }

    /// Counts the missed deadlines of retired topics together, under [`FORMER_TOPICS`].
    pub(crate) fn forget_topics(&mut self, retired: impl Fn(TopicId) -> bool) {
        let Some(history) = &mut self.history else { return };
        let mut former = 0_u64;
        history.misses.retain(|topic, missed| {
            let goes = retired(*topic);
            former = former.saturating_add(if goes { *missed } else { 0 });
            !goes
        });
        if former > 0 {
            let missed = history.misses.entry(FORMER_TOPICS).or_default();
            *missed = missed.saturating_add(former);
        }
    }
}
