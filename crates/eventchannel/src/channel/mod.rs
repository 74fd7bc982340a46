//! The channel: its topics, suppliers, consumers and subscriptions, and the next delivery.
//!
//! ```text
//!   declare, offer, connect              parties.rs    compared, admitted, or refused with both values
//!   subscribe, unsubscribe               subscribe.rs  likewise, and the kept events for a subscription
//!   try_publish                          publish.rs    checked, matched, put into inboxes, or refused
//!   next, next_to_same, next_in_run      deliver.rs    the class by shares, the inbox by deadline, its event
//!   take_payload                         spare_events.rs   the memory of delivered events
//!   catch_up, read_on                    past.rs       events kept before a subscription, in pieces
//!   acknowledge                          acknowledge.rs   unacknowledged events are delivered again
//!   inboxes, departed                    accounts.rs   counters of each inbox
//!   has_group, group_owes                groups.rs     undelivered events of a group
//!   audience_of, count_direct            direct.rs     events that suppliers send to consumers directly
//!   take_changed_audiences               audience.rs   the consumers of each topic
//!   check_classes, change_classes        classes.rs    other classes and weights while events wait
//!   owner                                departures.rs suppliers that leave, and new owners
//!   next_wake, advance, renew            leases.rs     due alarms: leases, timers, redeliveries
//! ```
//! The caller owns the sockets, the threads and the clock. It passes each operation and the time to the
//! channel; the time never decreases. While the server that the classes share (a processor, a link) is free,
//! the caller asks for the next delivery ([`next`](EventChannel::next)).

mod accounts;
mod acknowledge;
mod audience;
mod classes;
mod correlate;
mod deliver;
mod departures;
mod direct;
mod groups;
mod keep;
mod leases;
mod parties;
mod past;
mod publish;
mod receiver;
mod spare_events;
mod subscribe;

use crate::admission::AdmissionControl;
use crate::alarms::Alarms;
use crate::correlation::{Correlator, Incomplete};
use crate::delivery::ChannelNotice;
use crate::dispatch::Dispatcher;
use crate::error::{ChannelError, KeptBy};
use crate::event::{ChannelEvent, EventPayload};
use crate::history::TopicHistory;
use crate::ids::{
    ConsumerId, CorrelationId, FIRST_FOREIGN, InboxId, SubscriptionId, SupplierId, TimerId, TopicId,
};
use crate::inbox::{IdleInboxes, InboxCounters, SharedSpecs};
use crate::index::{SubscriptionIndex, TopicRoute};
use crate::kept::{KeepingAccount, KeptCharge, NameCharge};
use crate::kept_memory::KeptMemory;
use crate::number_map::{NumberMap, NumberSet};
use crate::quality::{Offer, RateMeter, SupplierOwner};
use crate::tenant::{TenantId, TenantLimits, Tenants};
use crate::topic::TopicSpec;
use acknowledge::Unacknowledged;
use deliver::Underway;
use departures::Departures;
use leases::{Lease, TimerState};
use past::ReadingInboxes;
use publish::ReusableSearch;
use receiver::Receiver;
use spare_events::SpareEvents;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use unisono_fairqueue::{ClassId, Hierarchy, Served};
use unisono_time::Instant;

pub use accounts::{DepartedInboxes, InboxAccount};
pub use acknowledge::Acknowledged;
pub use audience::ChangedAudiences;
pub use classes::{ClassChange, ClassChangeError};
pub use leases::TimerSpec;
pub use parties::{ConsumerSpec, shown_group};
pub use publish::Published;
pub use subscribe::PastEvents;

/// Limits of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelLimits {
    pub topics: usize,
    pub suppliers: usize,
    pub consumers: usize,
    /// Maximum number of subscriptions of all consumers together.
    pub subscriptions: usize,
    /// Maximum payload of one event, in bytes.
    pub payload: usize,
    /// Maximum number of fields of one event.
    pub fields: usize,
    /// Maximum number of events in the history of one topic.
    pub history: usize,
    /// The maximum number of bytes of all kept events, in histories and retained. Each event counts an
    /// additional [`KEPT_ENTRY`](crate::KEPT_ENTRY) bytes.
    pub kept: usize,
    /// Limits of each tenant.
    pub tenant: TenantLimits,
}

impl Default for ChannelLimits {
    /// The default limits stop programs that ask for ever more resources, and are far above the needs of a
    /// host. Chosen, not measured.
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
    /// The supplier whose events are delivered, if ownership is exclusive.
    owner: Option<SupplierId>,
    /// Whether the topic has had an owner: the first owner is not reported as a change.
    heard_before: bool,
    /// Events taken since the topic was declared.
    published: u64,
    /// Whether the topic was made for events of another channel and no caller has declared it since.
    provisional: bool,
    /// The owner of the declaration: the owner of the declaring supplier that came when there was no other
    /// declaring supplier.
    declarer: SupplierOwner,
    /// The tenant whose limits the topic counts against.
    tenant: TenantId,
    charge: NameCharge,
    /// The charge for the bytes that the caller itself keeps for the topic.
    beside: NameCharge,
}

impl<P: EventPayload> Topic<P> {
    /// Returns the number of kept events, and the bytes that they count in a queue.
    fn kept_size(&self) -> (usize, usize) {
        let kept = self.history.charged().chain(&self.retained);
        kept.fold((0, 0), |(events, bytes), (event, _)| (events + 1, bytes + event.weight()))
    }
}

impl<P> Topic<P> {
    /// Returns the charges to release when the topic is removed.
    fn charges(&self) -> impl Iterator<Item = KeptCharge> {
        self.history.charges().chain(self.retained.iter().map(|(_, charge)| *charge))
    }

    /// Returns whether the topic has events for later subscribers.
    fn keeps(&self) -> bool {
        self.retained.is_some() || self.history.events().next().is_some()
    }
}

#[derive(Debug)]
struct OfferState {
    offer: Offer,
    meter: RateMeter,
    /// The arrival number of the offer: of equally strong suppliers, the one with the earliest offer owns the
    /// topic.
    since: u64,
    /// The number of the last event; 0: no event yet.
    sequence: u64,
    /// The inbox that decides the supplier's backlog: among the inboxes that took the last event while
    /// classes competed and that wanted service, the one with the fewest waiting events of this offer.
    foremost: Option<InboxId>,
}

#[derive(Debug)]
struct AttachedConsumer {
    inbox: InboxId,
    tenant: TenantId,
}

#[derive(Debug)]
struct SupplierState {
    tenant: TenantId,
    lease: Option<Lease>,
    offers: BTreeMap<TopicId, OfferState>,
}

/// The destination of the events of a subscription. Packed, because a channel has many.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct Destined {
    inbox: InboxId,
    /// The consumer that made the subscription.
    by: ConsumerId,
    tenant: TenantId,
    /// The value of `audiences` when the subscription was made.
    asked: u64,
}

#[derive(Debug)]
struct CorrelationState<P> {
    inbox: InboxId,
    /// The consumers that made the correlation; in a group, each consumer that asked for the same
    /// correlation.
    by: Vec<ConsumerId>,
    correlator: Correlator<P>,
    parts: Vec<SubscriptionId>,
    incomplete: Incomplete,
    /// When to check whether the correlation has timed out.
    alarm: Option<Instant>,
}

/// The record of a search for unused topics that found none.
#[derive(Clone, Copy, Debug)]
struct FailedSearch {
    at: Instant,
    /// Offers withdrawn since the search.
    withdrawn: usize,
}

/// The event channel.
#[derive(Debug)]
pub struct EventChannel<P> {
    limits: ChannelLimits,
    topics: NumberMap<TopicId, Topic<P>>,
    topic_names: HashMap<Arc<str>, TopicId>,
    suppliers: NumberMap<SupplierId, SupplierState>,
    consumers: NumberMap<ConsumerId, AttachedConsumer>,
    /// The consumers that have had to acknowledge a delivery.
    unacknowledged: NumberMap<ConsumerId, Unacknowledged<P>>,
    /// The consumers that take no deliveries for now.
    paused: NumberSet<ConsumerId>,
    /// The leases of consumers; most have none.
    leases: NumberMap<ConsumerId, Lease>,
    // boxed, because a map has up to twice as many places as entries
    receivers: NumberMap<InboxId, Box<Receiver<P>>>,
    specs: SharedSpecs,
    idle: IdleInboxes,
    groups: HashMap<Arc<str>, InboxId>,
    index: SubscriptionIndex,
    subscriptions: NumberMap<SubscriptionId, Destined>,
    /// For a subscription to a part of a correlation: the correlation and the part. Its events do not go to
    /// the inbox.
    parts: NumberMap<SubscriptionId, (CorrelationId, usize)>,
    correlations: NumberMap<CorrelationId, CorrelationState<P>>,
    timers: NumberMap<TimerId, TimerState>,
    alarms: Alarms,
    admission: AdmissionControl,
    dispatcher: Dispatcher,
    underway: Option<Underway>,
    /// The last number assigned to a topic, a supplier, a consumer, a subscription or another object.
    numbers: u32,
    /// The arrival number that was assigned last, to an event, a gap or an offer.
    arrivals: u64,
    publications: u64,
    kept: KeptMemory<P>,
    tenants: Tenants,
    /// Inboxes whose readers have events to read and room for them.
    reading: ReadingInboxes,
    /// The steps since the last call of `take_work`, beyond one step for each call.
    work: usize,
    /// The number of kept events that were checked for new subscriptions since the last call of `take_work`
    /// or `next`.
    looks: usize,
    /// Number of subscriptions added and removed, and of topics declared with other parameters, so far.
    audiences: u64,
    /// The maximum history depth that any topic has been declared with, in events.
    deepest: usize,
    changes: ChangedAudiences,
    departures: Departures,
    /// The number of leases that expired.
    lapses: u64,
    departed: DepartedInboxes,
    /// The last search for unused topics, if it found none.
    failed_search: Option<FailedSearch>,
    /// The topics that were retired since the last call of `take_retired` and for which the caller keeps
    /// bytes of its own.
    retired: Vec<Arc<str>>,
    /// The latest time that a caller passed.
    clock: Instant,
    spare_events: SpareEvents<P>,
    /// The subscriptions that the last search has found. A buffer, reused to save an allocation.
    found: Vec<SubscriptionId>,
    /// The search that filled `found`, if it need not be repeated for some events.
    reusable_search: Option<ReusableSearch>,
}

impl<P: EventPayload> EventChannel<P> {
    /// Makes a channel whose classes share the service according to `hierarchy`.
    #[must_use]
    pub fn new(hierarchy: Hierarchy, limits: ChannelLimits) -> Self {
        Self {
            limits,
            topics: NumberMap::default(),
            topic_names: HashMap::new(),
            suppliers: NumberMap::default(),
            consumers: NumberMap::default(),
            unacknowledged: NumberMap::default(),
            paused: NumberSet::default(),
            leases: NumberMap::default(),
            receivers: NumberMap::default(),
            specs: SharedSpecs::default(),
            idle: IdleInboxes::default(),
            groups: HashMap::new(),
            index: SubscriptionIndex::default(),
            subscriptions: NumberMap::default(),
            parts: NumberMap::default(),
            correlations: NumberMap::default(),
            timers: NumberMap::default(),
            alarms: Alarms::default(),
            admission: AdmissionControl::default(),
            dispatcher: Dispatcher::new(hierarchy),
            underway: None,
            numbers: 0,
            arrivals: 0,
            audiences: 0,
            deepest: 0,
            changes: ChangedAudiences::default(),
            departures: Departures::default(),
            lapses: 0,
            departed: DepartedInboxes::default(),
            publications: 0,
            kept: KeptMemory::default(),
            tenants: Tenants::new(limits.tenant),
            reading: ReadingInboxes::default(),
            work: 0,
            looks: 0,
            failed_search: None,
            retired: Vec::new(),
            clock: Instant::ZERO,
            spare_events: SpareEvents::new(),
            found: Vec::new(),
            reusable_search: None,
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

    /// Returns the classes that share the service.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        self.dispatcher.hierarchy()
    }

    /// Returns whether consumers of several classes have pending deliveries, so that each delivery to one
    /// class delays the others.
    #[must_use]
    pub fn classes_compete(&self) -> bool {
        self.dispatcher.classes_compete()
    }

    /// Returns the number of a supplier's events on a topic that wait while classes compete. If they wait in
    /// several inboxes, the inbox with the fewest waiting events counts, because a supplier need not wait for
    /// the others. Events that wait for paused consumers do not count.
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

    /// Returns the service that a class has received. In the result, "bytes" are units of 64 ns of service.
    #[must_use]
    pub fn served(&self, class: ClassId) -> Served {
        self.dispatcher.served(class)
    }

    /// Returns the fraction of the whole service that the reservations of a class need.
    #[must_use]
    pub fn utilization(&self, class: ClassId) -> f64 {
        self.admission.utilization(class)
    }

    /// Returns the counters of the inbox of a consumer or its group.
    #[must_use]
    pub fn counters(&self, consumer: ConsumerId) -> Option<InboxCounters> {
        Some(self.receiver(consumer)?.inbox.counters())
    }

    /// Returns the number of events that wait for a consumer or its group.
    #[must_use]
    pub fn waiting(&self, consumer: ConsumerId) -> usize {
        self.receiver(consumer).map_or(0, |receiver| receiver.inbox.len())
    }

    /// Returns the deadlines that a consumer or its group missed, by topic. The misses of retired topics, and
    /// of topics beyond the first 256, are under the number 0.
    pub fn misses(&self, consumer: ConsumerId) -> impl Iterator<Item = (TopicId, u64)> {
        let misses = self.receiver(consumer).map(|receiver| receiver.inbox.misses());
        misses.into_iter().flatten().map(|(topic, missed)| (*topic, *missed))
    }

    /// Returns whether the topic keeps its events for consumers that subscribe later.
    #[must_use]
    pub fn keeps(&self, topic: TopicId) -> bool {
        self.topics.get(&topic).is_some_and(|topic| topic.history.keeps())
    }

    /// Returns the number of steps since the last call of `take_work`, beyond one step for each call of the
    /// channel. A step takes about as long as the publication of an event. A caller that serves several
    /// parties uses this number to end a party's turn.
    pub fn take_work(&mut self) -> usize {
        self.looks = 0;
        self.departures.begin();
        std::mem::take(&mut self.work)
    }

    /// Returns whether a tenant holds any resource of the channel.
    #[must_use]
    pub fn has_tenant(&self, tenant: TenantId) -> bool {
        self.tenants.has_any(tenant)
    }

    /// Returns the bytes of the names of topics, for all accounts together.
    #[must_use]
    pub fn named(&self) -> usize {
        self.kept.names()
    }

    /// Returns the bytes of kept events, for all accounts together.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.all()
    }

    /// Returns the bytes of events and topic names that an account keeps, as a client or as a user.
    #[must_use]
    pub fn kept_of(&self, whose: KeptBy, account: KeepingAccount) -> usize {
        self.kept.used_by(whose, account)
    }

    fn receiver(&self, consumer: ConsumerId) -> Option<&Receiver<P>> {
        self.receivers.get(&self.consumers.get(&consumer)?.inbox).map(|receiver| &**receiver)
    }

    /// Returns the inbox and the tenant of a consumer.
    fn attachment(&self, consumer: ConsumerId) -> Result<(InboxId, TenantId), ChannelError> {
        let known = self.consumers.get(&consumer);
        let known = known.ok_or(ChannelError::Unknown { what: "consumer", number: consumer.0 })?;
        Ok((known.inbox, known.tenant))
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

    /// Updates the position of an inbox in its class after a change of the inbox.
    fn place(&mut self, id: InboxId) {
        let Some(receiver) = self.receivers.get_mut(&id) else { return };
        receiver.drop_unused();
        let becomes_idle = receiver.inbox.becomes_idle();
        let standing = match receiver.free_member(&self.unacknowledged, &self.paused) {
            Some(_) => receiver.standing_now(),
            None => None,
        };
        let before = std::mem::replace(&mut receiver.standing, standing);
        if before != standing {
            self.dispatcher.place(receiver.class, id, (before, standing));
        }
        if becomes_idle {
            self.list_idle(id);
        }
    }

    fn list_idle(&mut self, id: InboxId) {
        let first = self.idle.add(id);
        if let Some(receiver) = first.and_then(|first| self.receivers.get_mut(&first)) {
            receiver.inbox.leave_idle();
        }
    }

    /// Queues a notice for the consumers of an inbox, unless an equal one waits already. `due` is the
    /// notice's own time, or `NO_DEADLINE`.
    fn notify(&mut self, id: InboxId, due: Instant, notice: ChannelNotice) {
        if let Some(receiver) = self.receivers.get_mut(&id) {
            receiver.notify(due, notice);
        }
        self.place(id);
    }
}

/// The number of elementary steps, such as a check of one subscription, that count as one step of
/// [`take_work`](EventChannel::take_work).
const WORK_STEPS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Publication;
    use crate::index::Interest;
    use crate::quality::Offer;
    use unisono_fairqueue::ClassSpec;

    /// Creates a channel with one class, a topic and its supplier.
    pub(super) fn channel_of_one_supplier() -> (EventChannel<Vec<u8>>, TopicId, SupplierId) {
        let classes = Hierarchy::new(ClassSpec::new("all")).and_then(|all| all.with_default("all"));
        let mut channel: EventChannel<Vec<u8>> =
            EventChannel::new(classes.expect("one class"), ChannelLimits::default());
        let topic = channel.declare(TopicSpec::new("t").expect("a name")).expect("room");
        let supplier = channel.supplier(Instant::ZERO, None).expect("room");
        channel.offer(supplier, Offer::new(topic)).expect("no type");
        (channel, topic, supplier)
    }

    #[test]
    fn numbers_that_come_again_are_never_those_in_use_or_of_the_caller() {
        let (mut channel, topic, supplier) = channel_of_one_supplier();
        channel.numbers = FIRST_FOREIGN - 3;
        let mut given = vec![topic.0, supplier.0];
        for at in 0..4 {
            let topic = channel.declare(TopicSpec::new(&format!("t/{at}")).expect("a name")).expect("room");
            given.push(topic.0);
            given.push(channel.supplier(Instant::ZERO, None).expect("room").0);
        }
        assert!(given.iter().all(|number| (1..FIRST_FOREIGN).contains(number)), "{given:?}");
        let different: BTreeSet<_> = given.iter().collect();
        assert_eq!(different.len(), given.len(), "{given:?}");
    }

    #[test]
    fn a_topic_with_the_number_of_a_retired_one_has_its_own_consumers() {
        let classes = Hierarchy::new(ClassSpec::new("all")).and_then(|all| all.with_default("all"));
        let mut channel: EventChannel<Vec<u8>> =
            EventChannel::new(classes.expect("one class"), ChannelLimits::default());
        let consumer = channel.connect(Instant::ZERO, ConsumerSpec::new("c")).expect("admitted");
        let interest = Interest::in_topics("t/0".parse().expect("a pattern"));
        channel.subscribe(Instant::ZERO, consumer, interest).expect("it fits");
        for (name, inboxes) in [("t/0", 1), ("t/1", 0)] {
            channel.numbers = 999;
            let topic = channel.declare(TopicSpec::new(name).expect("a name")).expect("room");
            assert_eq!(topic, TopicId(1000));
            let supplier = channel.supplier(Instant::ZERO, None).expect("room");
            channel.offer(supplier, Offer::new(topic)).expect("no type");
            let done = channel.try_publish(Instant::ZERO, supplier, topic, Publication::new(Vec::new()));
            assert_eq!(done, Ok(Published::Taken { sequence: 1, inboxes }));
            channel.withdraw(supplier);
            channel.retire(topic).expect("nobody offers it");
        }
    }
}
