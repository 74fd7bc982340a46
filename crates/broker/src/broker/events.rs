//! Programs as suppliers and consumers of the channel.

use super::best_effort::DeliveryRoute;
use super::ledger::QueueGrant;
use super::remote_suppliers::RemoteName;
use super::{Addressee, Broker, ConnectedClient, Outlet, structures};
use crate::body::EventBody;
use crate::log::OwnedKind;
use crate::mqtt::{SHARE, split_share};
use crate::permissions::RefusalKind;
use crate::task::{ClientId, Received, Task};
use crate::topic_names::NameAnnouncement;
use std::sync::Arc;
use unisono_eventchannel::{
    BlockedSuppliers, ChannelError, ChannelEvent, ConsumerId, Criticality, DeliveredEvent, Delivery,
    EventPayload, Lateness, NO_DEADLINE, Offer, Publication, PublishError, Published, Retention, SupplierId,
    TimerSpec, TopicId,
};
use unisono_events_wire::NoticeText;
use unisono_events_wire::check_program_name;
use unisono_events_wire::frame::ALL_TOPICS;
use unisono_events_wire::frame::{
    DeliverFlags, DeliverHead, DeliverTimes, Frame, PublishDeadline, PublishHead, PublishOutcome,
};
use unisono_events_wire::transport::{SharedPayload, TransportPeer};
use unisono_events_wire::{Advertisement, InterestSpec, MIN_PERIOD, RefusalCounts, SubscriptionSpec};
use unisono_linux::clock::{Duration, Instant};

impl Broker {
    pub(super) fn advertise(
        &mut self,
        now: Instant,
        client: ClientId,
        number: u32,
        spec: &Advertisement,
    ) -> Result<(), String> {
        let connected = self.clients.get(&client).ok_or("it is gone")?;
        if connected.outlets.contains_key(&number) {
            return Err(format!("the number {number} is in use already; close it first"));
        }
        let (outlets, lease) = (connected.outlets.len(), connected.lease);
        let cost = structures::outlet(spec);
        let made = self.hold_for_client(client, cost).and_then(|()| {
            let made = self.try_advertise(now, (client, lease), spec, outlets);
            made.inspect_err(|_| self.release_for_client(client, cost))
        });
        match made {
            Ok((supplier, topic)) => {
                if let Some(connected) = self.clients.get_mut(&client) {
                    connected.outlets.insert(number, Outlet::Topic { supplier, topic, held: cost });
                }
                self.answer(client, &Frame::Accepted { number });
                self.add_direct_supplier((client, number), (supplier, topic), spec);
            }
            Err(reason) => self.refuse(client, number, &reason),
        }
        Ok(())
    }

    fn refuse(&mut self, client: ClientId, number: u32, reason: &str) {
        self.access.end_refused();
        self.answer(client, &Frame::Refused { number, reason });
    }

    fn try_advertise(
        &mut self,
        now: Instant,
        (client, lease): (ClientId, Option<Duration>),
        spec: &Advertisement,
        outlets: usize,
    ) -> Result<(SupplierId, TopicId), String> {
        if outlets >= self.limits.topics {
            self.access.count(RefusalKind::Limit);
            return Err(format!("a program may have {} topics and paths; close one", self.limits.topics));
        }
        if spec.topic.starts_with('$') {
            self.access.count(RefusalKind::Topic);
            return Err(format!(
                "the topic `{}`: names that begin with `$` are the broker's own",
                spec.topic
            ));
        }
        if !spec.content.is_empty() {
            self.access.count(RefusalKind::Topic);
            return Err("`content` in an advertisement; give each event the fields content_type and schema"
                .to_owned());
        }
        if let Some(refused) = self.refuses_durability(spec) {
            self.access.count(RefusalKind::Log);
            return Err(refused);
        }
        self.check_publish(client, &spec.topic)?;
        self.check_share(client, spec)?;
        self.check_join(client, spec)?;
        self.check_reply_terms(spec)?;
        let user = self.name_user(client)?;
        self.check_log_owner(&user.owner, spec)?;
        let writer = spec.writer.as_deref().filter(|writer| !writer.is_empty());
        let writer = match writer {
            Some(writer) => Some(self.check_writer_name(&user, writer)?),
            None => None,
        };
        let (tenant, keeping) = (self.tenant(client), self.terms_of_names(client));
        let declared = match spec.from_elsewhere {
            Some(_) => self.channel.declare_for_now((tenant, &keeping), &spec.topic),
            None => spec
                .topic_spec()
                .map_err(ChannelError::from)
                .and_then(|it| self.channel.declare_as(user.owner.of_supplier(), (tenant, &keeping), it)),
        };
        let topic = declared.map_err(|error| self.access.refuse(&error))?;
        let who = self.clients.get(&client).map(|connected| &connected.who);
        let remote = spec.from_elsewhere.zip(who).map(|(origin, who)| RemoteName {
            who: who.clone(),
            origin,
            topic: spec.topic.as_str().into(),
        });
        if let Some(supplier) = remote.as_ref().and_then(|name| self.remote_suppliers.join(name, topic)) {
            return Ok((supplier, topic));
        }
        // several programs may publish for one supplier of another broker, so no program's lease applies to
        // it
        let lease = lease.filter(|_| remote.is_none());
        let supplier =
            self.channel.supplier_of(tenant, now, lease).map_err(|error| self.access.refuse(&error))?;
        let mut offer = Offer { owner: user.owner.of_supplier(), ..spec.offer(topic) };
        if remote.is_some() {
            offer.event_type = self.channel.topic_spec(topic).and_then(|spec| spec.event_type.clone());
        }
        let offered = self.channel.offer(supplier, offer).map_err(|error| self.access.refuse(&error));
        let named = offered
            .and_then(|()| match &writer {
                Some(writer) => self.take_name(OwnedKind::Writer, writer, &user),
                None => Ok(()),
            })
            .and_then(|()| {
                self.offer_kept(client, (supplier, topic), &user.owner, (spec, writer.as_deref()))
            });
        match named {
            Ok(()) => {
                if let Some(name) = remote {
                    let last = self.remote_suppliers.begin(name, supplier, topic);
                    self.channel.skip_sequences(supplier, topic, last);
                }
                Ok((supplier, topic))
            }
            Err(refused) => {
                self.channel.withdraw(supplier);
                Err(refused)
            }
        }
    }

    /// Removes a program from a supplier of a topic; returns whether no other program publishes as that
    /// supplier.
    pub(super) fn leave_supplier(&mut self, supplier: SupplierId, topic: TopicId) -> bool {
        let alone = self.remote_suppliers.leave(supplier, || self.channel.last_sequence(supplier, topic));
        if alone {
            self.forget_offer(supplier);
        }
        alone
    }

    pub(super) fn publish(
        &mut self,
        now: Instant,
        client: ClientId,
        head: PublishHead<'_>,
        (payload, shared): (&[u8], Option<SharedPayload>),
    ) -> Result<Received, String> {
        let ConnectedClient { peer, outlets, grant, .. } = self.clients.get(&client).ok_or("it is gone")?;
        let is_limited = grant.rate.is_some() || grant.size < usize::MAX;
        let (topic, token) = (head.topic, head.token);
        let same_clock = matches!(peer, TransportPeer::User(_));
        let outlet = outlets.get(&topic).copied();
        let outlet = outlet.ok_or_else(|| format!("an event on number {topic}, which was never opened"))?;
        let deadline = match head.deadline {
            PublishDeadline::In(remaining) => now + remaining,
            PublishDeadline::At(at) if same_clock || at == NO_DEADLINE => at,
            PublishDeadline::At(_) => return Err("the deadline is a time of the clock of another host than the broker's; give the time that remains instead".to_owned()),
        };
        let length = shared.as_ref().map_or(payload.len(), SharedPayload::length);
        let checked = if is_limited { self.check_event(now, client, length) } else { Ok(()) };
        if let Err(reason) = checked {
            self.access.end_refused();
            match outlet {
                Outlet::Topic { .. } => {
                    self.answer(client, &Frame::Rejected { topic, token, reason: &reason });
                }
                Outlet::Path(_) => return Err(reason),
            }
            return Ok(Received::Done);
        }
        let mut body = EventBody::new(payload, shared);
        let (supplier, topic_id) = match outlet {
            Outlet::Topic { supplier, topic, .. } => (supplier, topic),
            Outlet::Path(path) => {
                body.due = deadline;
                return self.publish_on_path(now, path, body).map(|()| Received::Done);
            }
        };
        let mut head = head;
        let fields = std::mem::take(&mut head.fields);
        let publication = Publication {
            key: (!head.key.is_empty()).then(|| head.key.into()),
            fields,
            payload: body,
            deadline: (deadline != NO_DEADLINE).then_some(deadline),
            criticality: Criticality(head.criticality),
            sequence: head.sequence,
            retention: Retention::AsTopic,
            keeping: self.terms_of_program(client, topic_id),
        };
        if self.is_kept(supplier) {
            let kept = self.publish_kept(now, (client, supplier, topic_id), &head, publication)?;
            if kept == Received::Blocked {
                self.uncheck_event(client);
                return Ok(kept);
            }
            return Ok(self.backpressure(client, supplier, topic_id));
        }
        match self.channel.try_publish(now, supplier, topic_id, publication) {
            Err(PublishError::Full { .. }) if !head.flags.at_once => {
                self.uncheck_event(client);
                return Ok(Received::Blocked);
            }
            Err(error) => {
                let reason = self.access.refuse(&error);
                self.answer(client, &Frame::Rejected { topic, token, reason: &reason });
            }
            Ok(published) if head.flags.answer => {
                let (sequence, outcome) = match published {
                    Published::Taken { sequence, inboxes } => {
                        (sequence, PublishOutcome::Taken(u32::try_from(inboxes).unwrap_or(u32::MAX)))
                    }
                    Published::Standby { sequence } => (sequence, PublishOutcome::Standby),
                    Published::Duplicate { last } => (last, PublishOutcome::Duplicate),
                    _ => (0, PublishOutcome::Standby),
                };
                self.answer(client, &Frame::Published { topic, token, sequence, outcome });
            }
            Ok(_) => {}
        }
        Ok(self.backpressure(client, supplier, topic_id))
    }

    /// Counts the events of a topic that the supplier's own library has refused.
    pub(super) fn count_refused(
        &mut self,
        client: ClientId,
        number: u32,
        counts: RefusalCounts,
    ) -> Result<(), String> {
        let connected = self.clients.get(&client).ok_or("it is gone")?;
        if !matches!(connected.outlets.get(&number), Some(Outlet::Topic { .. })) {
            return Err(format!("refused events on number {number}, which is no topic"));
        }
        let RefusalCounts { deadline, full } = counts.bounded();
        self.access.add(RefusalKind::Deadline, deadline);
        self.access.add(RefusalKind::Full, full);
        Ok(())
    }

    pub(super) fn subscribe(
        &mut self,
        now: Instant,
        client: ClientId,
        number: u32,
        spec: &SubscriptionSpec,
    ) -> Result<(), String> {
        let connected = self.clients.get(&client).ok_or("it is gone")?;
        if connected.consumers.contains_key(&number) {
            return Err(format!("the consumer {number} is there already; unsubscribe first"));
        }
        let (consumers, paused) = (connected.consumers.len(), connected.paused);
        let classed = match (&spec.class, &connected.grant.class) {
            (None, Some(class)) => Some(SubscriptionSpec { class: Some(class.to_string()), ..spec.clone() }),
            _ => None,
        };
        let spec = classed.as_ref().unwrap_or(spec);
        let (lease, peer, name) = (connected.lease, connected.peer, Arc::clone(&connected.name));
        match self.try_subscribe(now, (client, lease, peer, &name), spec, consumers) {
            Ok((consumer, blocks)) => {
                if paused {
                    self.channel.pause(consumer);
                }
                self.addressees.by_consumer.insert(consumer, Addressee::Program { client, number });
                self.add_direct_reader((client, number), (consumer, blocks), spec);
                self.may_be_lost((client, number), consumer, spec);
                if let Some(connected) = self.clients.get_mut(&client) {
                    let grant = QueueGrant::for_spec(spec);
                    connected.consumers.insert(number, (consumer, grant));
                    self.ledger.book(connected.peer, grant.bytes);
                    self.ledger.hold(connected.peer, grant.held);
                }
                self.accept_consumer(client, number);
            }
            Err(reason) => self.refuse(client, number, &reason),
        }
        Ok(())
    }

    fn try_subscribe(
        &mut self,
        now: Instant,
        (client, lease, peer, name): (ClientId, Option<Duration>, TransportPeer, &Arc<str>),
        spec: &SubscriptionSpec,
        consumers: usize,
    ) -> Result<(ConsumerId, BlockedSuppliers), String> {
        if consumers >= self.limits.consumers {
            self.access.count(RefusalKind::Limit);
            return Err(format!("a program may have {} consumers; unsubscribe one", self.limits.consumers));
        }
        let patterns: usize = spec.interests.iter().map(InterestSpec::patterns).sum();
        if !(1..=self.limits.interests).contains(&patterns) {
            let most = self.limits.interests;
            self.access.count(RefusalKind::Limit);
            return Err(format!("{patterns} patterns of topics; a subscription has from 1 to {most}"));
        }
        if let Some((what, asked)) = spec.too_short() {
            self.access.count(RefusalKind::Limit);
            return Err(format!("{what} of {asked} ns; the shortest is {} ns", MIN_PERIOD.as_nanos()));
        }
        if let Some(what) = spec.contradicts_best_effort() {
            return Err(format!(
                "a consumer whose events may be lost on the way cannot {what}; leave out one of the two"
            ));
        }
        let shared = spec.interests.iter().find_map(|interest| {
            Some((&interest.topics, split_share(interest.topics.strip_prefix(SHARE)?)?))
        });
        if let Some((asked, (group, topics))) = shared {
            self.access.count(RefusalKind::Group);
            return Err(format!(
                "`{asked}` is for MQTT clients; subscribe to `{topics}` with the group `{group}`"
            ));
        }
        for interest in &spec.interests {
            self.check_subscribe(client, &interest.topics)?;
        }
        let grant = QueueGrant::for_spec(spec);
        let memory = grant.bytes.saturating_add(grant.held);
        self.check_memory(client, memory)?;
        self.check_memory_of_peer(peer, memory)?;
        check_program_name(&spec.name)?;
        let user = self.name_user(client)?;
        let blocks = self.check_blocking(client, spec)?;
        if spec.resume.is_some() {
            return Ok((self.follow(now, (client, &user, lease, name), spec)?, blocks));
        }
        let patterns: Vec<&str> = spec.interests.iter().map(|interest| &*interest.topics).collect();
        let group = match &spec.group {
            Some(group) => {
                Some(self.check_group(&user, (group, Duration::from_nanos(spec.linger_ns)), &patterns)?)
            }
            None => None,
        };
        let interests = spec.interests().map_err(|error| self.access.refuse(&error))?;
        let mut consumer = spec.consumer();
        (consumer.lease, consumer.inbox.blocks) = (lease, blocks);
        consumer.group = group.as_ref().map(|group| Arc::clone(&group.key));
        consumer.tenant = self.tenant(client);
        if !self.is_operator(peer) {
            consumer.reserver = consumer.tenant;
        }
        if consumer.name.is_empty() {
            consumer.name = Arc::clone(name);
        }
        let id = self.channel.connect(now, consumer).map_err(|error| self.access.refuse(&error))?;
        let asked = match spec.together {
            Some(together) => self.channel.correlate(id, together.correlation(interests)).map(drop),
            None => self.channel.subscribe_all(now, id, interests),
        };
        let timers = [
            spec.every_ns.map(|ns| TimerSpec::Every(Duration::from_nanos(ns))),
            spec.silence_ns.map(|ns| TimerSpec::Silence(Duration::from_nanos(ns))),
        ];
        let asked = asked.and_then(|()| {
            timers
                .into_iter()
                .flatten()
                .try_for_each(|timer| self.channel.set_timer(now, id, timer).map(drop))
        });
        match asked {
            Ok(()) => {
                self.channel.replace_departed(id);
                if let Some(group) = group {
                    self.join_group(id, group, user, &patterns);
                }
                Ok((id, blocks))
            }
            Err(error) => {
                self.channel.disconnect_unseen(now, id);
                Err(self.access.refuse(&error))
            }
        }
    }

    pub(super) fn acknowledge(&mut self, client: ClientId, number: u32, delivery: u64) -> Result<(), String> {
        let known = self.clients.get(&client).and_then(|client| client.consumers.get(&number));
        let (consumer, _) = *known.ok_or_else(|| format!("the consumer {number} was never there"))?;
        if self.acknowledge_position(consumer, delivery) {
            return Ok(());
        }
        // too late: the event is delivered again, so the program learns of the failure
        let _ = self.channel.acknowledge(consumer, delivery);
        Ok(())
    }

    pub(super) fn unsubscribe(&mut self, now: Instant, client: ClientId, number: u32) -> Result<(), String> {
        let connected = self.clients.get_mut(&client).ok_or("it is gone")?;
        let (peer, known) = (connected.peer, connected.consumers.remove(&number));
        let (consumer, granted) = known.ok_or_else(|| format!("the consumer {number} was never there"))?;
        self.ledger.release_queue(now, peer, granted);
        self.addressees.remove(consumer);
        self.best_effort.forget(consumer);
        self.remove_direct_reader(consumer);
        self.unsubscribe_follower(consumer);
        self.leave_group(consumer);
        self.channel.disconnect(now, consumer);
        Ok(())
    }

    /// Makes frames from a delivery: first the notices, then the events, each after the name of its topic if
    /// the program does not know the name.
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        (client, number): (ClientId, u32),
        delivery: Delivery<EventBody>,
    ) {
        let consumer = delivery.consumer;
        for notice in &delivery.notices {
            let Some(notice) = NoticeText::from_channel(notice) else { continue };
            if let NoticeText::Gone { topic, supplier, .. } = &notice {
                self.end_best_effort(consumer, (*topic, *supplier));
            }
            if let Some(topic) = notice.topic() {
                self.name_topic(client, TopicId(topic));
            }
            self.answer(client, &Frame::Notice { consumer: number, notice });
        }
        if let Some(delivered) = delivery.event {
            self.deliver_event(now, (client, number), consumer, delivered);
        }
    }

    pub(super) fn deliver_event(
        &mut self,
        now: Instant,
        (client, number): (ClientId, u32),
        consumer: ConsumerId,
        delivered: DeliveredEvent<EventBody>,
    ) {
        let DeliveredEvent { event, lateness, retained, with, acknowledgement, repeated, .. } = delivered;
        for part in with {
            let flags = DeliverFlags { part: true, ..DeliverFlags::default() };
            let head = DeliverHead { flags, ..DeliverHead::default() };
            self.send_event(now, (client, number, None), part, head);
        }
        let position = event.payload.position;
        let acknowledgement = acknowledgement.map(|number| self.delivered(consumer, position, number));
        let flags = DeliverFlags {
            late: lateness == Lateness::Late,
            retained,
            acknowledge: acknowledgement.is_some(),
            ..DeliverFlags::default()
        };
        let head = DeliverHead {
            flags,
            repeated: u8::try_from(repeated).unwrap_or(u8::MAX),
            delivery: acknowledgement.unwrap_or_default(),
            ..DeliverHead::default()
        };
        let counted = self.best_effort.concerns(consumer) && !retained;
        self.send_event(now, (client, number, counted.then_some(consumer)), event, head);
    }

    fn send_event(
        &mut self,
        now: Instant,
        (client, consumer, best_effort): (ClientId, u32, Option<ConsumerId>),
        event: Arc<ChannelEvent<EventBody>>,
        head: DeliverHead<'_>,
    ) {
        let Some(mut connected) = self.clients.get(&client) else { return };
        if !connected.named.has_all_of(event.topic) {
            self.name_topic(client, event.topic);
            let Some(named) = self.clients.get(&client) else { return };
            connected = named;
        }
        let mut head = head_for((connected.peer, consumer), now, &event, head);
        let mut bytes = self.tasks.written(&head);
        let mut route = DeliveryRoute::Stream;
        if let Some(consumer) = best_effort {
            let of = (head.topic, head.supplier, head.sequence);
            (route, head.delivery) =
                self.best_effort.count(now, consumer, of, bytes.len() + event.payload.length());
            bytes.clear();
            head.write(&mut bytes);
        }
        // the last consumer's delivery takes the payload with it, without another reference to its bytes
        let body = self.channel.take_payload(event);
        self.tasks.push_back(match route {
            DeliveryRoute::Datagram => Task::Unreliable { client, head: bytes, body },
            DeliveryRoute::Stream | DeliveryRoute::First => {
                Task::Answer { client, head: bytes, body: Some(body) }
            }
        });
    }

    pub(super) fn topic_name(&self, topic: TopicId) -> Option<&Arc<str>> {
        let of_log = self.durable.as_ref().and_then(|durable| durable.name(topic));
        of_log.or_else(|| self.channel.topic_spec(topic).map(|spec| &spec.name))
    }

    #[cfg(test)]
    pub(crate) fn names_told(&self, client: ClientId) -> usize {
        self.clients.get(&client).map_or(0, |connected| connected.named.len())
    }

    fn topic_type(&self, topic: TopicId) -> Option<Arc<str>> {
        match self.durable.as_ref().and_then(|durable| durable.type_of(topic)) {
            Some(of_log) => Some(Arc::clone(of_log)),
            None => self.channel.topic_spec(topic)?.event_type.clone(),
        }
    }

    /// Sends a program the name of a topic, if the program does not know the name, and the topic's type, if
    /// the program asks for types and does not know this one.
    pub(super) fn name_topic(&mut self, client: ClientId, topic: TopicId) {
        let Some(connected) = self.clients.get_mut(&client) else { return };
        let (telling, types) = (connected.named.announce(topic), connected.named.asks_for_types());
        if telling == NameAnnouncement::ForgetAndName {
            self.answer(client, &Frame::Topic { number: ALL_TOPICS, name: "" });
        }
        if telling != NameAnnouncement::Nothing {
            let name = self.topic_name(topic).map(Arc::clone).unwrap_or_default();
            self.answer(client, &Frame::Topic { number: topic.0, name: &name });
        }
        // a topic without suppliers may have come back with another type
        if types {
            let event_type = self.topic_type(topic);
            let Some(connected) = self.clients.get_mut(&client) else { return };
            if connected.named.announce_type(topic, event_type.as_ref()) {
                let event_type = event_type.as_deref();
                self.answer(client, &Frame::TopicType { number: topic.0, event_type });
            }
        }
    }
}

/// Completes the head of an event for a consumer of a program at this peer.
pub(super) fn head_for<'a>(
    (peer, consumer): (TransportPeer, u32),
    now: Instant,
    event: &'a ChannelEvent<EventBody>,
    head: DeliverHead<'a>,
) -> DeliverHead<'a> {
    let times = match (peer, event.deadline) {
        (TransportPeer::User(_), deadline) => DeliverTimes::At { deadline, published: event.published },
        (_, NO_DEADLINE) => DeliverTimes::Relative { remaining: Duration::MAX, age: now - event.published },
        (_, deadline) => DeliverTimes::Relative { remaining: deadline - now, age: now - event.published },
    };
    DeliverHead {
        times,
        criticality: event.criticality.0,
        consumer,
        topic: event.topic.0,
        supplier: event.supplier.0,
        sequence: event.sequence,
        key: event.key.as_deref().unwrap_or_default(),
        fields: event.fields.clone(),
        ..head
    }
}
