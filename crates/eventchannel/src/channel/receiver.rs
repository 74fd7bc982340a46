//! An inbox with its consumers, and its place among the inboxes of its class.

use super::acknowledge::Unacknowledged;
use super::past::PastReader;
use crate::delivery::ChannelNotice;
use crate::dispatch::ClassStanding;
use crate::event::EventPayload;
use crate::ids::{ConsumerId, CorrelationId, SubscriptionId, TimerId, TopicId};
use crate::inbox::Inbox;
use crate::member_list::{MemberList, SmallList};
use crate::number_map::{NumberMap, NumberSet};
use crate::tenant::TenantId;
use std::collections::VecDeque;
use std::sync::Arc;
use unisono_fairqueue::ClassId;
use unisono_time::Instant;

/// The maximum number of notices that wait for one inbox; beyond it, the oldest is dropped. A notice takes
/// some 80 bytes, and few notices wait for a consumer that reads. Chosen, not measured.
pub(super) const MAX_NOTICES: usize = 256;

/// An inbox with its consumers.
#[derive(Debug)]
pub(super) struct Receiver<P> {
    /// The name of the group, or of the consumer if it has no group.
    pub(super) name: Arc<str>,
    pub(super) class: ClassId,
    pub(super) inbox: Inbox<P>,
    /// The consumers of the inbox in the order of service, the next one first.
    pub(super) members: SmallList<ConsumerId>,
    pub(super) subscriptions: MemberList<SubscriptionId>,
    pub(super) tenant: TenantId,
    /// State that most inboxes do not have. `None`: all of it is empty.
    pub(super) rare: Option<Box<RareState>>,
    /// The position of the inbox in its class, if it wants service and a consumer can take it.
    pub(super) standing: Option<ClassStanding>,
    /// The count of publications when an event last matched this inbox, so that an event enters the inbox
    /// only once.
    pub(super) matched: u64,
    /// When an event last matched a subscription of the inbox.
    pub(super) last_event: Instant,
}

/// State of an inbox that most inboxes do not have at a time.
#[derive(Debug, Default)]
pub(super) struct RareState {
    pub(super) group: Option<Arc<str>>,
    /// Pending notices, each with the time it is due.
    pub(super) notices: VecDeque<(Instant, ChannelNotice)>,
    pub(super) timers: Vec<TimerId>,
    pub(super) correlations: Vec<CorrelationId>,
    /// The readers of subscriptions that still get events kept before they were made, the first subscription
    /// first.
    pub(super) readers: VecDeque<PastReader>,
    /// Whether the inbox is queued for a turn of its readers.
    pub(super) reads: bool,
    /// The topics that were caught up ahead of the readers, each with the value of `audiences` at that time.
    /// The catch-up covers the subscriptions made before that value.
    pub(super) caught_up: NumberMap<TopicId, u64>,
    /// The time until which the inbox may stay without a consumer. An alarm that was set for an earlier time
    /// is ignored.
    pub(super) lingers_until: Instant,
}

impl RareState {
    fn is_empty(&self) -> bool {
        self.group.is_none()
            && self.notices.is_empty()
            && self.timers.is_empty()
            && self.correlations.is_empty()
            && self.readers.is_empty()
            && !self.reads
    }
}

impl<P: EventPayload> Receiver<P> {
    /// Returns the index of the first consumer that may get a delivery now.
    pub(super) fn free_member(
        &self,
        unacknowledged: &NumberMap<ConsumerId, Unacknowledged<P>>,
        paused: &NumberSet<ConsumerId>,
    ) -> Option<usize> {
        let window = self.inbox.spec.redelivery.map_or(usize::MAX, |redelivery| redelivery.window.max(1));
        let most = self.inbox.spec.capacity.bytes;
        let is_free = |those: &Unacknowledged<P>| {
            let waits = those.parcels.len();
            waits < window && (waits == 0 || those.bytes < most)
        };
        self.members.as_slice().iter().position(|member| {
            let is_paused = !paused.is_empty() && paused.contains(member);
            !is_paused && unacknowledged.get(member).is_none_or(is_free)
        })
    }

    pub(super) fn notify(&mut self, due: Instant, notice: ChannelNotice) {
        let notices = &mut self.rare_mut().notices;
        if !notices.iter().any(|(_, other)| *other == notice) {
            notices.push_back((due, notice));
        }
        if notices.len() > MAX_NOTICES {
            notices.pop_front();
        }
    }

    pub(super) fn rare_mut(&mut self) -> &mut RareState {
        self.rare.get_or_insert_default()
    }

    pub(super) fn drop_unused(&mut self) {
        if self.rare.as_ref().is_some_and(|rare| rare.is_empty()) {
            self.rare = None;
        }
    }

    pub(super) fn group(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.group.as_ref()
    }

    pub(super) fn notices(&self) -> impl Iterator<Item = &(Instant, ChannelNotice)> {
        self.rare.iter().flat_map(|rare| &rare.notices)
    }

    pub(super) fn has_notices(&self) -> bool {
        self.notices().next().is_some()
    }

    pub(super) fn correlations(&self) -> &[CorrelationId] {
        self.rare.as_ref().map_or(&[], |rare| &rare.correlations)
    }

    /// Returns the time until which the inbox may stay without a consumer.
    pub(super) fn lingers_until(&self) -> Instant {
        self.rare.as_ref().map_or(Instant::ZERO, |rare| rare.lingers_until)
    }

    /// Returns the number of readers.
    pub(super) fn readers(&self) -> usize {
        self.rare.as_ref().map_or(0, |rare| rare.readers.len())
    }

    /// Returns the value of `audiences` when a topic was caught up ahead of the readers.
    pub(super) fn caught_up(&self, topic: TopicId) -> Option<u64> {
        self.rare.as_ref()?.caught_up.get(&topic).copied()
    }

    pub(super) fn standing_now(&self) -> Option<ClassStanding> {
        let (events, reserved) = (self.inbox.len() > 0, self.inbox.spec.reservation.is_some());
        let notice = self.notices().map(|(due, _)| (*due, 0)).min();
        let turn = match (self.inbox.turn(), notice) {
            // a reservation is for events only: a notice is delivered with the next event
            (Some(turn), _) if events && reserved => turn,
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other)?,
        };
        let behind = !reserved || !events;
        Some(ClassStanding { behind, turn })
    }

    /// Returns whether the readers of the inbox can continue but are not queued for a turn.
    pub(super) fn may_read_on(&self) -> bool {
        let waits = self.rare.as_ref().is_some_and(|rare| !rare.readers.is_empty() && !rare.reads);
        waits && self.inbox.has_room_for_past()
    }
}
