//! Adds and removes topics, suppliers and consumers.

use super::receiver::{RareState, Receiver};
use super::{AttachedConsumer, EventChannel, FailedSearch, OfferState, SupplierState, Topic, WORK_STEPS};
use crate::alarms::ChannelAlarm;
use crate::delivery::ChannelNotice;
use crate::dispatch::MAX_CHARGE;
use crate::error::{ChannelError, KeptBy};
use crate::event::{EventPayload, NO_DEADLINE};
use crate::history::TopicHistory;
use crate::ids::{ConsumerId, InboxId, SupplierId, TopicId};
use crate::inbox::{BetweenSuppliers, Inbox, InboxSpec, Parcel};
use crate::index::TopicRoute;
use crate::kept::{KeepingTerms, NameCharge};
use crate::member_list::{MemberList, SmallList};
use crate::number_map::{NumberMap, NumberSet, give_back};
use crate::pattern::check_name;
use crate::quality::{Departed, Mismatch, Offer, OfferStanding, RateMeter, SupplierOwner};
use crate::tenant::{TenantId, TenantResource};
use crate::topic::TopicSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use unisono_fairqueue::ClassId;
use unisono_time::{Duration, Instant};

/// The parameters of a new consumer.
#[derive(Clone, PartialEq, Debug)]
pub struct ConsumerSpec {
    /// The name of the consumer in messages to people.
    pub name: Arc<str>,
    /// Consumers of one group share an inbox, and each event goes to one of them. `None`: the consumer has an
    /// inbox of its own. The caller may put a prefix that ends in a NUL before the name, to distinguish
    /// groups of the same name; people do not see it.
    pub group: Option<Arc<str>>,
    pub inbox: InboxSpec,
    /// The time without a sign of life after which the consumer counts as dead and is disconnected. `None`:
    /// no limit.
    pub lease: Option<Duration>,
    /// The tenant whose limits the consumer counts against.
    pub tenant: TenantId,
    /// The tenant whose bound the consumer's reservation counts against: one tenant reserves at most half of
    /// a class. [`TenantId::NONE`]: no such bound.
    pub reserver: TenantId,
}

impl ConsumerSpec {
    /// Makes the parameters of a consumer without a group, with the default inbox.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            group: None,
            inbox: InboxSpec::default(),
            lease: None,
            tenant: TenantId::NONE,
            reserver: TenantId::NONE,
        }
    }

    #[must_use]
    pub fn grouped(mut self, group: &str) -> Self {
        self.group = Some(group.into());
        self
    }

    #[must_use]
    pub fn with(mut self, inbox: InboxSpec) -> Self {
        self.inbox = inbox;
        self
    }
}

/// Returns the name of a group for people: the part after the last NUL. The part before it distinguishes
/// groups of the same name.
#[must_use]
pub fn shown_group(group: &str) -> &str {
    group.rsplit_once('\0').map_or(group, |(_, name)| name)
}

fn unknown(what: &'static str, number: u32) -> ChannelError {
    ChannelError::Unknown { what, number }
}

impl<P> Topic<P> {
    /// Returns whether any supplier of the topic declares it ([`OfferStanding::Declares`]).
    fn has_declarer(&self, id: TopicId, suppliers: &NumberMap<SupplierId, SupplierState>) -> bool {
        let standing = |supplier| Some(suppliers.get(supplier)?.offers.get(&id)?.offer.standing);
        self.suppliers.iter().any(|supplier| standing(supplier) == Some(OfferStanding::Declares))
    }
}

fn names_full((whose, most): (KeptBy, usize)) -> ChannelError {
    ChannelError::NamesFull { whose, most }
}

impl<P: EventPayload> EventChannel<P> {
    /// Makes a topic, or finds an existing one with equal parameters. A topic without declaring suppliers and
    /// without kept events takes the new parameters. If the limit of topics is reached, unused topics are
    /// retired first.
    ///
    /// # Errors
    /// The name is invalid, the topic is in use and differs, or there are too many topics.
    pub fn declare(&mut self, spec: TopicSpec) -> Result<TopicId, ChannelError> {
        self.declare_by((TenantId::NONE, &KeepingTerms::default()), spec)
    }

    /// Like [`declare`](Self::declare), but a new topic counts against the limits of a tenant, and its name
    /// is kept on these terms.
    ///
    /// # Errors
    /// The errors of [`declare`](Self::declare); or the tenant has reached its limit of topics or of kept
    /// bytes.
    pub fn declare_by(
        &mut self,
        by: (TenantId, &KeepingTerms),
        spec: TopicSpec,
    ) -> Result<TopicId, ChannelError> {
        self.declare_as(SupplierOwner::default(), by, spec)
    }

    /// Like [`declare_by`](Self::declare_by), for an owner of suppliers. This replaces the declaration of
    /// another owner once no declaring supplier is left: the topic takes the new parameters, and keeps the
    /// events that fit.
    ///
    /// # Errors
    /// The errors of [`declare_by`](Self::declare_by).
    pub fn declare_as(
        &mut self,
        owner: SupplierOwner,
        (tenant, keeping): (TenantId, &KeepingTerms),
        spec: TopicSpec,
    ) -> Result<TopicId, ChannelError> {
        check_name(&spec.name)?;
        self.deepest = self.deepest.max(spec.history.max_events().min(self.limits.history));
        if spec.history.max_events() > self.limits.history {
            return Err(ChannelError::History {
                asked: spec.history.max_events(),
                most: self.limits.history,
            });
        }
        let depth = spec.history;
        let pays = (tenant != TenantId::NONE).then_some(keeping);
        let charge = NameCharge::new(pays, &spec.name, spec.event_type.as_deref());
        if let Some(id) = self.topic_names.get(&spec.name).copied()
            && let Some(topic) = self.topics.get_mut(&id)
        {
            if topic.spec == spec {
                topic.provisional = false;
                return Ok(id);
            }
            self.work += topic.suppliers.len() / WORK_STEPS;
            let is_held = topic.has_declarer(id, &self.suppliers) || topic.keeps() && topic.declarer == owner;
            if !topic.provisional && is_held {
                let (declared, asked) = (Box::new(topic.spec.clone()), Box::new(spec));
                return Err(ChannelError::TopicDiffers { declared, asked });
            }
            // the new type may have a longer name, and the new declarer may be another tenant
            if tenant != topic.tenant {
                self.tenants.check(tenant, TenantResource::Topics, 1)?;
            }
            if let Err(full) = self.kept.replace_name(keeping, (topic.charge, charge)) {
                // this recursion ends, because each successful call of `retire_for_room` leaves fewer topics
                return match self.retire_for_room() {
                    true => self.declare_as(owner, (tenant, keeping), spec),
                    false => Err(names_full(full)),
                };
            }
            self.tenants.release(topic.tenant, TenantResource::Topics, 1);
            self.tenants.take(tenant, TenantResource::Topics, 1);
            (topic.tenant, topic.charge) = (tenant, charge);
            // the topic keeps its number, because waiting events and notices refer to it
            let former = std::mem::replace(&mut topic.history, TopicHistory::new(depth));
            let released = match topic.spec.event_type == spec.event_type {
                true => topic.history.take_over(former),
                false => former.charges().collect(),
            };
            released.into_iter().for_each(|charge| self.kept.release(charge));
            // the owner is elected anew among the remaining suppliers
            (topic.declarer, topic.owner, topic.heard_before) = (owner, None, false);
            (topic.spec, topic.route, topic.provisional) = (spec, TopicRoute::default(), false);
            self.elect(id);
            self.audiences += 1;
            self.report_mismatches(id, |request| request.meets_topic(depth));
            return Ok(id);
        }
        if let Err(error) = self.check_new_topic((tenant, keeping), charge) {
            if !self.retire_for_room() {
                return Err(error);
            }
            self.check_new_topic((tenant, keeping), charge)?;
        }
        self.tenants.take(tenant, TenantResource::Topics, 1);
        self.kept.charge_name(charge);
        let id = TopicId(self.number());
        self.topic_names.insert(Arc::clone(&spec.name), id);
        let history = TopicHistory::new(depth);
        let topic = Topic {
            spec,
            history,
            retained: None,
            route: TopicRoute::default(),
            suppliers: BTreeSet::new(),
            owner: None,
            published: 0,
            heard_before: false,
            provisional: false,
            declarer: owner,
            tenant,
            charge,
            beside: NameCharge::default(),
        };
        self.topics.insert(id, topic);
        self.report_mismatches(id, |request| request.meets_topic(depth));
        Ok(id)
    }

    /// Checks that one more topic may be added.
    fn check_new_topic(
        &self,
        (tenant, keeping): (TenantId, &KeepingTerms),
        charge: NameCharge,
    ) -> Result<(), ChannelError> {
        if self.topics.len() >= self.limits.topics {
            return Err(ChannelError::TooMany { what: "topics", most: self.limits.topics });
        }
        self.tenants.check(tenant, TenantResource::Topics, 1)?;
        self.kept.check_name(keeping, charge).map_err(names_full)
    }

    /// Retires the unused topics. Returns whether there were any. After a search that found none, the channel
    /// does not search again within one second, unless many offers are withdrawn in the meantime: otherwise a
    /// tenant that holds all topics could make the channel search all topics and all waiting events for each
    /// refused topic.
    pub fn retire_for_room(&mut self) -> bool {
        if let Some(FailedSearch { at, withdrawn }) = self.failed_search
            && self.clock - at < Duration::SECOND
            && withdrawn <= self.topics.len() / 64
        {
            return false;
        }
        let found = self.retire_unused() > 0;
        self.failed_search = (!found).then_some(FailedSearch { at: self.clock, withdrawn: 0 });
        found
    }

    /// Finds a topic, whatever its parameters, or makes one without type and history. A later declaration
    /// sets the parameters. This is for events from other channels.
    ///
    /// # Errors
    /// The name is invalid, or there are too many topics.
    pub fn declare_for_now(
        &mut self,
        by: (TenantId, &KeepingTerms),
        name: &str,
    ) -> Result<TopicId, ChannelError> {
        if let Some(id) = self.topic_names.get(name) {
            return Ok(*id);
        }
        let id = self.declare_by(by, TopicSpec::new(name)?)?;
        if let Some(topic) = self.topics.get_mut(&id) {
            topic.provisional = true;
        }
        Ok(id)
    }

    /// Removes a topic without offers, and its history. Waiting events of the topic are still delivered.
    ///
    /// # Errors
    /// The topic does not exist, or a supplier offers it.
    pub fn retire(&mut self, topic: TopicId) -> Result<(), ChannelError> {
        let suppliers = self.topics.get(&topic).ok_or(unknown("topic", topic.0))?.suppliers.len();
        if suppliers > 0 {
            return Err(ChannelError::InUse { suppliers });
        }
        self.report_departures_from(topic);
        self.forget_topic(topic);
        for receiver in self.receivers.values_mut() {
            receiver.inbox.forget_topics(|of| of == topic);
        }
        Ok(())
    }

    fn forget_topic(&mut self, topic: TopicId) {
        self.reusable_search = None; // another topic may get the number
        if let Some(topic) = self.topics.remove(&topic) {
            topic.charges().for_each(|charge| self.kept.release(charge));
            self.kept.release_name(topic.charge);
            self.kept.release_name(topic.beside);
            if topic.beside.bytes > 0 {
                self.retired.push(Arc::clone(&topic.spec.name));
            }
            self.tenants.release(topic.tenant, TenantResource::Topics, 1);
            self.topic_names.remove(&topic.spec.name);
        }
    }

    /// Adds a supplier. With a lease, the supplier has to renew the lease or to publish within each period;
    /// otherwise it counts as dead.
    ///
    /// # Errors
    /// There are too many suppliers.
    pub fn supplier(&mut self, now: Instant, lease: Option<Duration>) -> Result<SupplierId, ChannelError> {
        self.supplier_of(TenantId::NONE, now, lease)
    }

    /// Like [`supplier`](Self::supplier), but the supplier counts against the limits of a tenant.
    ///
    /// # Errors
    /// There are too many suppliers, or the tenant has reached its limit.
    pub fn supplier_of(
        &mut self,
        tenant: TenantId,
        now: Instant,
        lease: Option<Duration>,
    ) -> Result<SupplierId, ChannelError> {
        self.tenants.check(tenant, TenantResource::Suppliers, 1)?;
        if self.suppliers.len() >= self.limits.suppliers {
            return Err(ChannelError::TooMany { what: "suppliers", most: self.limits.suppliers });
        }
        let id = SupplierId(self.number());
        let lease = self.lease(now, lease, ChannelAlarm::SupplierLease(id));
        self.tenants.take(tenant, TenantResource::Suppliers, 1);
        self.suppliers.insert(id, SupplierState { tenant, lease, offers: BTreeMap::new() });
        Ok(id)
    }

    /// Adds a supplier's offer for a topic, or replaces it. Consumers whose request it does not meet get a
    /// notice.
    ///
    /// # Errors
    /// The supplier or the topic does not exist, or the types differ.
    pub fn offer(&mut self, supplier: SupplierId, offer: Offer) -> Result<(), ChannelError> {
        let since = self.arrival();
        let topic = self.topics.get_mut(&offer.topic).ok_or(unknown("topic", offer.topic.0))?;
        if !self.suppliers.contains_key(&supplier) {
            return Err(unknown("supplier", supplier.0));
        }
        if topic.spec.event_type.is_some() && topic.spec.event_type != offer.event_type {
            return Err(ChannelError::TypeDiffers {
                topic: Arc::clone(&topic.spec.name),
                declared: topic.spec.event_type.clone(),
                offered: offer.event_type,
            });
        }
        if offer.standing == OfferStanding::Declares && !topic.has_declarer(offer.topic, &self.suppliers) {
            topic.declarer = offer.owner;
        }
        let offers = &mut self.suppliers.get_mut(&supplier).ok_or(unknown("supplier", supplier.0))?.offers;
        topic.suppliers.insert(supplier);
        let (since, sequence) =
            offers.get(&offer.topic).map_or((since, 0), |state| (state.since, state.sequence));
        let state =
            OfferState { offer: offer.clone(), meter: RateMeter::default(), since, sequence, foremost: None };
        offers.insert(offer.topic, state);
        self.report_departures_from(offer.topic);
        if let Some(owner) = self.elect(offer.topic) {
            let inboxes = self.audience(offer.topic);
            self.report_owner(offer.topic, owner, &inboxes);
        }
        self.report_mismatches(offer.topic, |request| request.meets_offer(&offer));
        Ok(())
    }

    /// Removes a supplier. Its waiting events are still delivered; consumers that ask for its topics get a
    /// notice.
    pub fn withdraw(&mut self, supplier: SupplierId) {
        self.depart(supplier, Departed::Left);
    }

    /// Removes a supplier that has died before its lease expired, for example because its connection broke.
    pub fn bury(&mut self, supplier: SupplierId) {
        self.depart(supplier, Departed::Died);
    }

    fn report_mismatches(
        &mut self,
        topic: TopicId,
        meets: impl Fn(&crate::QualityRequest) -> Result<(), Mismatch>,
    ) {
        let inboxes = self.audience(topic);
        self.work += inboxes.len();
        for inbox in inboxes {
            let request = self.receivers.get(&inbox).map(|receiver| receiver.inbox.spec.request);
            if let Some(Err(mismatch)) = request.as_ref().map(&meets) {
                self.notify(inbox, NO_DEADLINE, ChannelNotice::Mismatch { topic, mismatch });
            }
        }
    }

    /// Adds a consumer. Its inbox is admitted to its class, unless the consumer's group has an inbox already.
    ///
    /// # Errors
    /// The class does not exist or is not guaranteed the requested share, the reservation cannot be met, the
    /// group's inbox differs, or there are too many consumers.
    pub fn connect(&mut self, now: Instant, spec: ConsumerSpec) -> Result<ConsumerId, ChannelError> {
        if self.consumers.len() >= self.limits.consumers {
            return Err(ChannelError::TooMany { what: "consumers", most: self.limits.consumers });
        }
        self.tenants.check(spec.tenant, TenantResource::Consumers, 1)?;
        let known = spec.group.as_ref().and_then(|group| self.groups.get(group)).copied();
        let inbox = match known.and_then(|id| Some((id, self.receivers.get(&id)?))) {
            Some((_, receiver)) if *receiver.inbox.spec != spec.inbox => {
                let differences = receiver.inbox.spec.differences(&spec.inbox);
                return Err(ChannelError::GroupDiffers { group: Arc::clone(&receiver.name), differences });
            }
            Some((id, _)) => id,
            None => self.open(&spec)?,
        };
        let id = ConsumerId(self.number());
        if let Some(lease) = self.lease(now, spec.lease, ChannelAlarm::ConsumerLease(id)) {
            self.leases.insert(id, lease);
        }
        self.tenants.take(spec.tenant, TenantResource::Consumers, 1);
        self.consumers.insert(id, AttachedConsumer { inbox, tenant: spec.tenant });
        if let Some(receiver) = self.receivers.get_mut(&inbox) {
            receiver.members.push(id);
        }
        self.place(inbox);
        Ok(id)
    }

    /// Makes an inbox.
    fn open(&mut self, spec: &ConsumerSpec) -> Result<InboxId, ChannelError> {
        if spec.inbox.reservation.is_some() && spec.inbox.between == BetweenSuppliers::Shares {
            return Err(ChannelError::SharedReservation);
        }
        let class = self.leaf(spec.inbox.class.as_ref())?;
        let hierarchy = self.dispatcher.hierarchy();
        spec.inbox.request.meets_share(hierarchy.share(class)).map_err(|mismatch| {
            ChannelError::ShareMismatch { class: hierarchy.class(class).name.clone(), mismatch }
        })?;
        let longest = spec.inbox.longest(self.limits.payload);
        if longest > MAX_CHARGE {
            return Err(ChannelError::TooLong { longest: longest.as_nanos(), most: MAX_CHARGE.as_nanos() });
        }
        let id = InboxId(self.number());
        let (execution, reservation) = (spec.inbox.execution, spec.inbox.reservation);
        let hierarchy = self.dispatcher.hierarchy();
        let of = (id, class, spec.reserver);
        self.admission.admit(hierarchy, of, (execution, longest), reservation)?;
        let mut receiver = Receiver {
            name: spec.group.as_deref().map_or_else(|| Arc::clone(&spec.name), |it| shown_group(it).into()),
            class,
            inbox: Inbox::new(self.specs.share(&spec.inbox), self.tenants.oversize(spec.tenant)),
            members: SmallList::default(),
            subscriptions: MemberList::default(),
            tenant: spec.tenant,
            rare: None,
            standing: None,
            matched: 0,
            last_event: Instant::ZERO,
        };
        if let Some(group) = &spec.group {
            receiver.rare_mut().group = Some(Arc::clone(group));
            self.groups.insert(Arc::clone(group), id);
        }
        self.receivers.insert(id, Box::new(receiver));
        Ok(id)
    }

    fn leaf(&self, name: Option<&Arc<str>>) -> Result<ClassId, ChannelError> {
        let hierarchy = self.dispatcher.hierarchy();
        let Some(name) = name else {
            return hierarchy.default_class().ok_or(ChannelError::NoDefaultClass);
        };
        let class = hierarchy.find(name).filter(|class| hierarchy.is_leaf(*class));
        class.ok_or(ChannelError::Class { name: Arc::clone(name) })
    }

    /// Removes a consumer. Its unacknowledged events return to the inbox. When the last consumer of an inbox
    /// is removed, the inbox and its waiting events are removed, too, at once or after the linger time.
    pub fn disconnect(&mut self, now: Instant, consumer: ConsumerId) {
        let Some(member) = self.consumers.remove(&consumer) else { return };
        give_back(&mut self.consumers);
        self.leases.remove(&consumer);
        self.paused.remove(&consumer);
        let unacknowledged = self.unacknowledged.remove(&consumer);
        give_back(&mut self.unacknowledged);
        self.tenants.release(member.tenant, TenantResource::Consumers, 1);
        let inbox = member.inbox;
        let Some(receiver) = self.receivers.get_mut(&inbox) else { return };
        if let Some(at) = receiver.members.as_slice().iter().position(|other| *other == consumer) {
            receiver.members.remove(at);
        }
        let (empty, linger) = (receiver.members.is_empty(), receiver.inbox.spec.linger);
        let lingers = receiver.group().is_some() && !linger.is_zero();
        if empty && !lingers {
            return self.close(inbox);
        }
        match empty {
            true => {
                receiver.rare_mut().lingers_until = now + linger;
                self.alarms.set(now + linger, ChannelAlarm::Linger(inbox));
            }
            false => self.forget_asked(inbox, |by| by == consumer),
        }
        for (number, (again, parcel)) in unacknowledged.into_iter().flat_map(|those| those.parcels) {
            self.alarms.clear(again, ChannelAlarm::Redelivery(consumer, number));
            self.requeue(now, inbox, parcel);
        }
        self.place(inbox);
    }

    /// Removes an inbox and everything that belongs to it.
    pub(super) fn close(&mut self, inbox: InboxId) {
        let Some(receiver) = self.receivers.remove(&inbox) else { return };
        give_back(&mut self.receivers);
        self.keep_account(&receiver.inbox);
        self.end_readers(receiver.readers());
        self.dispatcher.place(receiver.class, inbox, (receiver.standing, None));
        self.work += receiver.subscriptions.as_slice().len();
        for subscription in receiver.subscriptions.as_slice() {
            self.forget_subscription(*subscription);
        }
        let RareState { group, correlations, timers, .. } =
            receiver.rare.map(|rare| *rare).unwrap_or_default();
        if let Some(group) = group {
            self.groups.remove(&group);
        }
        for correlation in correlations {
            self.correlations.remove(&correlation);
        }
        for timer in timers {
            self.end_timer(timer);
        }
        let longest = receiver.inbox.spec.longest(self.limits.payload);
        self.admission.leave(inbox, receiver.class, longest);
    }

    /// Removes the topics that have no offers and no kept events, and to which no waiting or unacknowledged
    /// event, part of a correlation, notice, gap or unreported departure belongs. Returns their number. Cost:
    /// a search of all topics and of all these events and reports.
    pub fn retire_unused(&mut self) -> usize {
        let inboxes = self.receivers.values().flat_map(|receiver| receiver.inbox.parcels());
        let outstanding = self.unacknowledged.values().flat_map(|those| those.parcels.values());
        let parcels = inboxes.chain(outstanding.map(|(_, parcel)| parcel)).flat_map(Parcel::events);
        let parts = self.correlations.values().flat_map(|state| state.correlator.events());
        let events = parcels.chain(parts).map(|event| event.topic);
        let notices = self.receivers.values().flat_map(|receiver| receiver.notices());
        let notices = notices.filter_map(|(_, notice)| notice.topic());
        let gaps = self.receivers.values().flat_map(|receiver| receiver.inbox.topics_of_gaps());
        let waited_for: NumberSet<TopicId> =
            events.chain(notices).chain(gaps).chain(self.departures.topics()).collect();
        let unused: NumberSet<TopicId> = self
            .topics
            .iter()
            .filter(|(id, topic)| topic.suppliers.is_empty() && !topic.keeps() && !waited_for.contains(id))
            .map(|(id, _)| *id)
            .collect();
        self.work += (self.topics.len() + waited_for.len()) / WORK_STEPS;
        for id in &unused {
            self.forget_topic(*id);
        }
        for receiver in self.receivers.values_mut() {
            receiver.inbox.forget_topics(|topic| unused.contains(&topic));
        }
        unused.len()
    }

    /// Stops deliveries to a consumer, for example when its socket is full. Its events wait in its inbox, or
    /// go to other consumers of its group; the other consumers of its class are not affected.
    pub fn pause(&mut self, consumer: ConsumerId) {
        self.set_paused(consumer, true);
    }

    /// Starts deliveries to a consumer again after [`pause`](Self::pause).
    pub fn resume(&mut self, consumer: ConsumerId) {
        self.set_paused(consumer, false);
    }

    fn set_paused(&mut self, consumer: ConsumerId, paused: bool) {
        let Some(inbox) = self.consumers.get(&consumer).map(|member| member.inbox) else { return };
        if paused {
            self.paused.insert(consumer);
        } else {
            self.paused.remove(&consumer);
        }
        self.place(inbox);
    }
}
