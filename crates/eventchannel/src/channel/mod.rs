//! The channel: its parties, what they publish, and what is delivered next.
//!
//! ```text
//!   declare, offer, connect              parties.rs    compared, admitted, or refused with both values
//!   subscribe, unsubscribe               subscribe.rs  the same, and what is kept of the past
//!   try_publish                          publish.rs    checked, matched, into inboxes, or refused by whom
//!   next, next_to_same, finish           deliver.rs    the class by shares, the inbox by deadline, its event
//!   catch_up, read_on                    past.rs       what topics kept before a subscription, in pieces
//!   acknowledge                          acknowledge.rs   what is not acknowledged is delivered again
//!   inboxes, departed                    accounts.rs   what each inbox has done
//!   has_group, group_owes                groups.rs     what one who joins a group might be given
//!   audience_of, count_direct            direct.rs     events that suppliers hand over themselves
//!   next_wake, advance, renew            leases.rs     what happens by itself: leases, timers, redeliveries
//! ```
//! The caller owns the sockets, the threads and the clock. It tells the channel what happens and when; the
//! time never decreases. While the server that the policy divides (a processor, a link) is free, the caller
//! asks for the next delivery ([`next`](EventChannel::next)).

mod accounts;
mod acknowledge;
mod correlate;
mod deliver;
mod direct;
mod groups;
mod keep;
mod leases;
mod parties;
mod past;
mod publish;
mod subscribe;

use crate::admission::AdmissionControl;
use crate::alarms::Alarms;
use crate::correlation::{Correlator, Incomplete};
use crate::delivery::ChannelNotice;
use crate::dispatch::{ClassStanding, Dispatcher};
use crate::error::KeptBy;
use crate::event::{ChannelEvent, EventPayload};
use crate::history::TopicHistory;
use crate::ids::{
    ConsumerId, CorrelationId, FIRST_FOREIGN, InboxId, SubscriptionId, SupplierId, TimerId, TopicId,
};
use crate::inbox::{Inbox, InboxCounters, Parcel};
use crate::index::{SubscriptionIndex, TopicRoute};
use crate::kept::{KeepingAccount, KeptCharge, NameCharge};
use crate::kept_memory::KeptMemory;
use crate::number_map::NumberMap;
use crate::oversize::OversizeShare;
use crate::quality::{Offer, RateMeter};
use crate::tenant::{TenantId, TenantLimits, Tenants};
use crate::topic::TopicSpec;
use deliver::Underway;
use leases::{Lease, TimerState};
use past::{PastReader, ReadingInboxes};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use unisono_fairqueue::{ClassId, Hierarchy, Served};
use unisono_linux::clock::Nanos;

pub use accounts::{DepartedInboxes, InboxAccount};
pub use acknowledge::Acknowledged;
pub use leases::TimerSpec;
pub use parties::ConsumerSpec;
pub use publish::Published;
pub use subscribe::PastEvents;

/// How much a channel takes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelLimits {
    pub topics: usize,
    pub suppliers: usize,
    pub consumers: usize,
    /// Of all consumers together.
    pub subscriptions: usize,
    /// Of one event, in bytes.
    pub payload: usize,
    /// Of one event.
    pub fields: usize,
    /// Events that one topic may keep.
    pub history: usize,
    /// Bytes of all that topics keep, history and retained events; each counts as
    /// [`KEPT_ENTRY`](crate::KEPT_ENTRY) more.
    pub kept: usize,
    /// The same of one tenant.
    pub tenant: TenantLimits,
}

impl Default for ChannelLimits {
    /// Bounds against programs that ask for ever more, far above what a host has of them. Chosen, not
    /// measured.
    fn default() -> Self {
        Self {
            topics: 65_536,
            suppliers: 4096,
            consumers: 4096,
            subscriptions: 65_536,
            payload: 16 << 20,
            fields: 256,
            history: 65_536,
            kept: 1 << 30,
            tenant: TenantLimits::default(),
        }
    }
}

#[derive(Debug)]
struct Topic<P> {
    spec: TopicSpec,
    history: TopicHistory<P>,
    retained: Option<(Arc<ChannelEvent<P>>, KeptCharge)>,
    route: TopicRoute,
    suppliers: BTreeSet<SupplierId>,
    /// Who is heard, if ownership is exclusive.
    owner: Option<SupplierId>,
    /// Whether anybody has been: the first owner is no change.
    heard_before: bool,
    /// Whether it was made for events from elsewhere, and nobody has declared it.
    provisional: bool,
    /// Whose topic it is, and what its name costs.
    tenant: TenantId,
    charge: NameCharge,
}

impl<P> Topic<P> {
    /// What is released when it goes.
    fn charges(&self) -> impl Iterator<Item = KeptCharge> {
        self.history.charges().chain(self.retained.iter().map(|(_, charge)| *charge))
    }

    /// Whether it has events for those who subscribe later.
    fn keeps(&self) -> bool {
        self.retained.is_some() || self.history.events().next().is_some()
    }
}

#[derive(Debug)]
struct OfferState {
    offer: Offer,
    meter: RateMeter,
    /// When it came, by the count of arrivals: of equal strength the first is heard.
    since: u64,
    /// The last event's number; 0: none yet.
    sequence: u64,
    /// Of the inboxes that took the last event while classes competed, and that wanted service: the one in
    /// which the fewest of its events waited.
    foremost: Option<InboxId>,
}

/// An inbox with its consumers.
#[derive(Debug)]
struct Receiver<P> {
    /// The group's name, or the consumer's.
    name: Arc<str>,
    group: Option<Arc<str>>,
    class: ClassId,
    inbox: Inbox<P>,
    /// Each with the time it is due.
    notices: VecDeque<(Nanos, ChannelNotice)>,
    /// Its consumers, the one to be served next first.
    members: VecDeque<ConsumerId>,
    subscriptions: BTreeSet<SubscriptionId>,
    timers: Vec<TimerId>,
    correlations: Vec<CorrelationId>,
    tenant: TenantId,
    /// Subscriptions that are still given what topics kept before they came, the first one first.
    readers: VecDeque<PastReader>,
    /// Topics that were read ahead of the readers, for those that came before this count of changes of
    /// subscriptions.
    caught_up: NumberMap<TopicId, u64>,
    /// Whether its readers wait for their turn.
    reads: bool,
    /// How long it stays without a consumer. An alarm that was set for an earlier time means nothing.
    lingers_until: Nanos,
    /// Where it stands in its class, while it wants service and may have it.
    standing: Option<ClassStanding>,
    /// The count of publications when it last matched, so that an event enters once.
    matched: u64,
    /// When an event last matched.
    heard: Nanos,
}

#[derive(Debug)]
struct AttachedConsumer<P> {
    inbox: InboxId,
    tenant: TenantId,
    /// Whether it takes nothing for now.
    paused: bool,
    lease: Option<Lease>,
    /// Delivered and not acknowledged, by number, with when they will be delivered again.
    outstanding: BTreeMap<u64, (Nanos, Parcel<P>)>,
    /// About how many bytes these take.
    outstanding_bytes: usize,
    /// The one of them that is larger than the queue.
    oversize: OversizeShare,
    /// The last number of a delivery.
    delivered: u64,
}

#[derive(Debug)]
struct SupplierState {
    tenant: TenantId,
    lease: Option<Lease>,
    offers: BTreeMap<TopicId, OfferState>,
}

/// Where the events of a subscription go.
#[derive(Clone, Copy, Debug)]
struct Destined {
    inbox: InboxId,
    /// The consumer that asked for it.
    by: ConsumerId,
    tenant: TenantId,
    /// The count of changes of subscriptions when it came.
    asked: u64,
    /// To a part of a correlation.
    part: Option<(CorrelationId, usize)>,
}

#[derive(Debug)]
struct CorrelationState<P> {
    inbox: InboxId,
    /// The consumers that asked for it: of a group, each that asked for the same.
    by: Vec<ConsumerId>,
    correlator: Correlator<P>,
    parts: Vec<SubscriptionId>,
    incomplete: Incomplete,
    /// When to look whether it has run out.
    alarm: Option<Nanos>,
}

/// A look for topics that are not used, which found none.
#[derive(Clone, Copy, Debug)]
struct BarrenLook {
    at: Nanos,
    /// Offers that were withdrawn since.
    withdrawn: usize,
}

/// The event channel.
#[derive(Debug)]
pub struct EventChannel<P> {
    limits: ChannelLimits,
    topics: NumberMap<TopicId, Topic<P>>,
    topic_names: HashMap<Arc<str>, TopicId>,
    suppliers: NumberMap<SupplierId, SupplierState>,
    consumers: NumberMap<ConsumerId, AttachedConsumer<P>>,
    receivers: NumberMap<InboxId, Receiver<P>>,
    groups: HashMap<Arc<str>, InboxId>,
    index: SubscriptionIndex,
    subscriptions: NumberMap<SubscriptionId, Destined>,
    correlations: NumberMap<CorrelationId, CorrelationState<P>>,
    timers: NumberMap<TimerId, TimerState>,
    alarms: Alarms,
    admission: AdmissionControl,
    dispatcher: Dispatcher,
    underway: Option<Underway>,
    /// The last number given to a topic, a party or a subscription.
    numbers: u32,
    /// Events and gaps that have entered inboxes.
    arrivals: u64,
    publications: u64,
    kept: KeptMemory<P>,
    tenants: Tenants,
    /// Inboxes with readers that have something to read and room for it.
    reading: ReadingInboxes,
    /// Steps that were taken since the caller last asked, beyond one for each call.
    work: usize,
    /// Kept events that were looked at for subscriptions when they came, since then.
    looks: usize,
    /// How often subscriptions came and went.
    audiences: u64,
    /// Leases that ran out.
    lapses: u64,
    departed: DepartedInboxes,
    /// The last look for topics that are not used found none.
    barren: Option<BarrenLook>,
    /// The latest time that was given.
    clock: Nanos,
    /// Kept for its memory.
    found: Vec<SubscriptionId>,
}

impl<P: EventPayload> EventChannel<P> {
    /// A channel whose deliveries share what there is as the classes say.
    #[must_use]
    pub fn new(hierarchy: Hierarchy, limits: ChannelLimits) -> Self {
        Self {
            limits,
            topics: NumberMap::default(),
            topic_names: HashMap::new(),
            suppliers: NumberMap::default(),
            consumers: NumberMap::default(),
            receivers: NumberMap::default(),
            groups: HashMap::new(),
            index: SubscriptionIndex::default(),
            subscriptions: NumberMap::default(),
            correlations: NumberMap::default(),
            timers: NumberMap::default(),
            alarms: Alarms::default(),
            admission: AdmissionControl::default(),
            dispatcher: Dispatcher::new(hierarchy),
            underway: None,
            numbers: 0,
            arrivals: 0,
            audiences: 0,
            lapses: 0,
            departed: DepartedInboxes::default(),
            publications: 0,
            kept: KeptMemory::default(),
            tenants: Tenants::new(limits.tenant),
            reading: ReadingInboxes::default(),
            work: 0,
            looks: 0,
            barren: None,
            clock: Nanos::ZERO,
            found: Vec::new(),
        }
    }

    #[must_use]
    pub fn topic(&self, name: &str) -> Option<TopicId> {
        self.topic_names.get(name).copied()
    }

    #[must_use]
    pub fn topic_spec(&self, topic: TopicId) -> Option<&TopicSpec> {
        self.topics.get(&topic).map(|topic| &topic.spec)
    }

    /// The classes that share.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        self.dispatcher.hierarchy()
    }

    /// Whether consumers of several classes have something to get, so that each delivery to one class delays
    /// the others.
    #[must_use]
    pub fn classes_compete(&self) -> bool {
        self.dispatcher.classes_compete()
    }

    /// How many events of a supplier on a topic wait for their turn among classes that compete. Of several
    /// inboxes the one counts in which the fewest wait: a supplier need not wait for the others. Events of
    /// consumers that take nothing for now do not count.
    #[must_use]
    pub fn backlog(&self, supplier: SupplierId, topic: TopicId) -> usize {
        if !self.dispatcher.classes_compete() {
            return 0;
        }
        let offer = self.suppliers.get(&supplier).and_then(|state| state.offers.get(&topic));
        let receiver = offer.and_then(|offer| self.receivers.get(&offer.foremost?));
        let wants = receiver.filter(|receiver| receiver.standing.is_some());
        wants.map_or(0, |receiver| receiver.inbox.waiting_of(topic, supplier))
    }

    /// What a class has got; its bytes are units of 64 ns of service.
    #[must_use]
    pub fn served(&self, class: ClassId) -> Served {
        self.dispatcher.served(class)
    }

    /// The part of the whole that the reservations of a class need.
    #[must_use]
    pub fn utilization(&self, class: ClassId) -> f64 {
        self.admission.utilization(class)
    }

    /// What a consumer's inbox, or that of its group, has done.
    #[must_use]
    pub fn counters(&self, consumer: ConsumerId) -> Option<InboxCounters> {
        Some(self.receiver(consumer)?.inbox.counters)
    }

    /// How many events wait for a consumer or its group.
    #[must_use]
    pub fn waiting(&self, consumer: ConsumerId) -> usize {
        self.receiver(consumer).map_or(0, |receiver| receiver.inbox.len())
    }

    /// Deadlines that a consumer or its group missed, by topic; those of retired topics under the number 0.
    pub fn misses(&self, consumer: ConsumerId) -> impl Iterator<Item = (TopicId, u64)> {
        let misses = self.receiver(consumer).map(|receiver| &receiver.inbox.misses);
        misses.into_iter().flatten().map(|(topic, missed)| (*topic, *missed))
    }

    /// Whether the topic keeps the events that come, for consumers that subscribe late.
    #[must_use]
    pub fn keeps(&self, topic: TopicId) -> bool {
        self.topics.get(&topic).is_some_and(|topic| topic.history.keeps())
    }

    /// Steps that were taken since this was asked last, beyond one for each call, each of about as long as it
    /// takes to publish an event. A caller that serves several parties ends a party's turn by it.
    pub fn take_work(&mut self) -> usize {
        self.looks = 0;
        std::mem::take(&mut self.work)
    }

    /// Whether a tenant has anything here.
    #[must_use]
    pub fn has_tenant(&self, tenant: TenantId) -> bool {
        self.tenants.has_any(tenant)
    }

    /// Bytes of the names of topics, of all accounts.
    #[must_use]
    pub fn named(&self) -> usize {
        self.kept.names()
    }

    /// Bytes that topics keep, of all accounts.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.all()
    }

    /// Bytes that topics keep of an account, as client or as user, and those of their names.
    #[must_use]
    pub fn kept_of(&self, whose: KeptBy, account: KeepingAccount) -> usize {
        self.kept.of(whose, account)
    }

    fn receiver(&self, consumer: ConsumerId) -> Option<&Receiver<P>> {
        self.receivers.get(&self.consumers.get(&consumer)?.inbox)
    }

    fn number(&mut self) -> u32 {
        loop {
            self.numbers = if self.numbers + 1 < FIRST_FOREIGN { self.numbers + 1 } else { 1 };
            if !self.is_in_use(self.numbers) {
                return self.numbers;
            }
        }
    }

    fn is_in_use(&self, number: u32) -> bool {
        self.topics.contains_key(&TopicId(number))
            || self.suppliers.contains_key(&SupplierId(number))
            || self.consumers.contains_key(&ConsumerId(number))
            || self.receivers.contains_key(&InboxId(number))
            || self.subscriptions.contains_key(&SubscriptionId(number))
            || self.correlations.contains_key(&CorrelationId(number))
            || self.timers.contains_key(&TimerId(number))
    }

    fn arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// Puts an inbox where it belongs in its class, after something about it changed.
    fn place(&mut self, id: InboxId) {
        let Some(receiver) = self.receivers.get_mut(&id) else { return };
        let standing = match receiver.free_member(&self.consumers) {
            Some(_) => receiver.standing_now(),
            None => None,
        };
        let before = std::mem::replace(&mut receiver.standing, standing);
        if before != standing {
            self.dispatcher.place(receiver.class, id, (before, standing));
        }
    }

    /// A consumer is to be told something; only what happens at a time of its own is due at a time.
    fn tell(&mut self, id: InboxId, due: Nanos, notice: ChannelNotice) {
        if let Some(receiver) = self.receivers.get_mut(&id) {
            receiver.tell(due, notice);
        }
        self.place(id);
    }

    /// The inboxes with a subscription that asks for the topic, each once.
    fn audience(&self, topic: TopicId) -> BTreeSet<InboxId> {
        let Some(topic) = self.topics.get(&topic) else { return BTreeSet::new() };
        let asking = self.index.of_topic(&topic.spec.name, topic.spec.event_type.as_deref());
        asking.filter_map(|(id, _)| Some(self.subscriptions.get(&id)?.inbox)).collect()
    }
}

/// So many steps of the shortest kind, such as a look at one subscription, count as one of
/// [`take_work`](EventChannel::take_work).
const WORK_STEPS: usize = 16;

/// Notices that wait for one inbox, at most; beyond, the oldest goes. A notice is small, and a consumer that
/// reads has few. Chosen, not measured.
const MAX_NOTICES: usize = 256;

impl<P: EventPayload> Receiver<P> {
    /// The place among its consumers of the first one that may be pushed something now.
    fn free_member(&self, consumers: &NumberMap<ConsumerId, AttachedConsumer<P>>) -> Option<usize> {
        let window = self.inbox.spec.redelivery.map_or(usize::MAX, |redelivery| redelivery.window.max(1));
        let most = self.inbox.spec.capacity.bytes;
        let is_free = |consumer: &AttachedConsumer<P>| {
            let waits = consumer.outstanding.len();
            !consumer.paused && waits < window && (waits == 0 || consumer.outstanding_bytes < most)
        };
        self.members.iter().position(|member| consumers.get(member).is_some_and(is_free))
    }

    fn tell(&mut self, due: Nanos, notice: ChannelNotice) {
        if !self.notices.iter().any(|(_, other)| *other == notice) {
            self.notices.push_back((due, notice));
        }
        if self.notices.len() > MAX_NOTICES {
            self.notices.pop_front();
        }
    }

    fn standing_now(&self) -> Option<ClassStanding> {
        let (events, reserved) = (self.inbox.len() > 0, self.inbox.spec.reservation.is_some());
        let notice = self.notices.iter().map(|(due, _)| (*due, 0)).min();
        let turn = match (self.inbox.turn(), notice) {
            // what is no event was promised no time: it goes with the next event
            (Some(turn), _) if events && reserved => turn,
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other)?,
        };
        let behind = !reserved || !events;
        Some(ClassStanding { behind, turn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quality::Offer;
    use unisono_fairqueue::ClassSpec;

    #[test]
    fn numbers_that_come_again_are_never_those_in_use_or_of_the_caller() {
        let classes = Hierarchy::new(ClassSpec::new("all")).and_then(|all| all.with_default("all"));
        let mut channel: EventChannel<Vec<u8>> =
            EventChannel::new(classes.expect("one class"), ChannelLimits::default());
        let topic = channel.declare(TopicSpec::new("t").expect("a name")).expect("room");
        let supplier = channel.supplier(Nanos(0), None).expect("room");
        channel.offer(supplier, Offer::of(topic)).expect("no type");
        channel.numbers = FIRST_FOREIGN - 3;
        let mut given = vec![topic.0, supplier.0];
        for at in 0..4 {
            let topic = channel.declare(TopicSpec::new(&format!("t/{at}")).expect("a name")).expect("room");
            given.push(topic.0);
            given.push(channel.supplier(Nanos(0), None).expect("room").0);
        }
        assert!(given.iter().all(|number| (1..FIRST_FOREIGN).contains(number)), "{given:?}");
        let different: BTreeSet<_> = given.iter().collect();
        assert_eq!(different.len(), given.len(), "{given:?}");
    }
}
