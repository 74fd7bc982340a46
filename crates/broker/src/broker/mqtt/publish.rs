//! Publications of MQTT clients into the channel.

use super::super::{Broker, structures};
use super::{MAX_ALIASES, MqttSessionId};
use crate::audit::{AuditAction, AuditOutcome};
use crate::body::EventBody;
use crate::log::SessionLine;
use crate::mqtt::{
    DeadlineUnit, IncomingMessage, MessageOrigin, MqttFault, MqttQos, MqttReason, MqttVersion, check_topic,
    published,
};
use crate::permissions::RefusalKind;
use crate::task::{ClientId, Received};
use std::sync::Arc;
use unisono_eventchannel::{
    ChannelError, FieldSet, Offer, OfferStanding, Publication, PublishError, Published, Reliability,
    Retention, SupplierId, SupplierOwner, TopicId, TopicSpec,
};
use unisono_linux::clock::Instant;

/// The reason why a client's message reaches no consumer.
#[derive(Debug)]
pub(super) enum MqttRefusal {
    /// The queue of a consumer is full, and its policy blocks suppliers.
    Blocked,
    Refused(MqttReason, String),
    /// The message is not valid for any broker.
    Broken(MqttFault),
    /// The message is too large, or the log does not accept it.
    NotTaken(String),
}

impl Broker {
    /// Handles a PUBLISH of a client.
    ///
    /// # Errors
    /// The client breaks the protocol.
    pub(super) fn mqtt_publish(
        &mut self,
        now: Instant,
        client: ClientId,
        id: MqttSessionId,
        message: IncomingMessage<'_>,
    ) -> Result<Received, MqttFault> {
        if message.origin.qos > MqttQos::AtMostOnce && self.waits_for_disk(id) {
            return Ok(Received::Blocked);
        }
        let Some(session) = self.mqtt.sessions.get(&id) else { return Ok(Received::Done) };
        let terms = session.terms;
        let topic: Arc<str>;
        let name = match message.alias {
            None => message.topic,
            Some(alias) if (1..=MAX_ALIASES).contains(&alias) => {
                if !message.topic.is_empty() {
                    self.mqtt_alias(id, alias, message.topic)?;
                }
                let Some(session) = self.mqtt.sessions.get(&id) else { return Ok(Received::Done) };
                let known = session.aliases.get(&alias).map(Arc::clone);
                topic = known.ok_or_else(|| {
                    MqttFault::new(0x82, format!("the topic alias {alias}, which stands for nothing"))
                })?;
                &*topic
            }
            Some(alias) => {
                let code = MqttReason::BadAlias as u8;
                return Err(MqttFault::new(code, format!("the topic alias {alias}; at most {MAX_ALIASES}")));
            }
        };
        let (qos, number) = (message.origin.qos, message.id.unwrap_or(0));
        let unreleased = self.mqtt.sessions.get(&id).map(|session| &session.unreleased);
        let is_again = unreleased.is_some_and(|unreleased| unreleased.contains(&number));
        if qos == MqttQos::ExactlyOnce && !is_again {
            self.mqtt_charge_unreleased(id)?;
        }
        let done = match qos == MqttQos::ExactlyOnce && is_again {
            true => Ok((1, None)), // the message was published when it first came
            false if !self.has_budget(now, client) => {
                let text = "more events in a second than the permissions allow; try later".to_owned();
                Err(MqttRefusal::Refused(MqttReason::TooMuch, text))
            }
            false => self.mqtt_put(now, id, name, &message),
        };
        let mut position = None;
        let (reason, text) = match done {
            Err(MqttRefusal::Blocked) => {
                self.uncheck_event(client);
                return Ok(Received::Blocked);
            }
            Err(MqttRefusal::Refused(reason, text)) => {
                self.access.end_refused();
                self.audit_publish_refused(client, name, &text);
                (reason, Some(text))
            }
            Err(MqttRefusal::Broken(fault)) => return Err(fault),
            Err(MqttRefusal::NotTaken(text)) => {
                self.access.end_refused();
                self.audit_publish_refused(client, name, &text);
                // in MQTT 3.1.1, which has no reason codes, each PUBACK and PUBREC is a confirmation
                if terms.version == MqttVersion::V311 && qos > MqttQos::AtMostOnce {
                    return Err(MqttFault::new(MqttReason::Refused as u8, text));
                }
                (MqttReason::TooMuch, Some(text))
            }
            Ok((0, at)) => {
                position = at;
                (MqttReason::NoSubscribers, None)
            }
            Ok((_, at)) => {
                position = at;
                (MqttReason::Success, None)
            }
        };
        let kind = match qos {
            MqttQos::AtMostOnce => return Ok(Received::Done),
            MqttQos::AtLeastOnce => 4,
            MqttQos::ExactlyOnce => 5,
        };
        if qos == MqttQos::ExactlyOnce
            && !reason.is_error()
            && let Some(session) = self.mqtt.sessions.get_mut(&id)
            && session.unreleased.insert(number)
            && position.is_none()
        {
            self.mqtt.note(id, &SessionLine::Arrived { id: number, position: 0 });
        }
        let exactly_once = (qos == MqttQos::ExactlyOnce).then_some(number);
        let packet = published(terms, kind, number, (reason, text.as_deref()));
        match (exactly_once, position) {
            (Some(_), None) => self.confirm_change(client, id, packet),
            _ => self.confirm_message(client, (id, exactly_once), position, packet),
        }
        Ok(Received::Done)
    }

    /// Assigns an alias to a topic.
    fn mqtt_alias(&mut self, id: MqttSessionId, alias: u16, topic: &str) -> Result<(), MqttFault> {
        let cost = |name: &str| structures::ALIAS + name.len() as u64;
        let session = self.mqtt.sessions.get(&id);
        let former = session.and_then(|session| session.aliases.get(&alias)).map_or(0, |name| cost(name));
        self.hold_for_session(id, cost(topic))
            .map_err(|text| MqttFault::new(MqttReason::TooMuch as u8, text))?;
        self.release_for_session(id, former);
        if let Some(session) = self.mqtt.sessions.get_mut(&id) {
            session.aliases.insert(alias, topic.into());
            session.alias_cost = session.alias_cost + cost(topic) - former;
        }
        Ok(())
    }

    /// Charges the memory of a message of QoS 2 that stays recorded until it is released; many are charged
    /// together. The charge stays with the session, as the memory does.
    pub(super) fn mqtt_charge_unreleased(&mut self, id: MqttSessionId) -> Result<(), MqttFault> {
        let Some(session) = self.mqtt.sessions.get(&id) else { return Ok(()) };
        if session.unreleased.len() < session.unreleased_paid {
            return Ok(());
        }
        let cost = structures::UNRELEASED_ENTRY * structures::UNRELEASED as u64;
        let held = self.hold_for_session(id, cost);
        held.map_err(|text| MqttFault::new(MqttReason::TooMuch as u8, text))?;
        if let Some(session) = self.mqtt.sessions.get_mut(&id) {
            session.unreleased_paid += structures::UNRELEASED;
        }
        Ok(())
    }

    /// Releases a message of QoS 2: the client will not send it again.
    pub(super) fn mqtt_release(&mut self, client: ClientId, id: MqttSessionId, number: u16) {
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return };
        let reason = match session.unreleased.remove(&number) {
            true => MqttReason::Success,
            false => MqttReason::UnknownId,
        };
        let answer = published(session.terms, 7, number, (reason, None));
        if reason == MqttReason::Success {
            self.mqtt.note(id, &SessionLine::Released { id: number });
        }
        self.confirm_change(client, id, answer);
    }

    /// Publishes the will of a client that is gone.
    pub(super) fn mqtt_publish_will(&mut self, now: Instant, id: MqttSessionId) {
        self.access.begin_request();
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return };
        session.will_at = Instant::NEVER;
        let Some(will) = session.will.take() else { return };
        let mut message = IncomingMessage {
            topic: &will.topic,
            alias: None,
            id: None,
            retain: will.retain,
            due_in: None,
            fields: FieldSet::new(),
            origin: MessageOrigin {
                qos: will.qos,
                retain: will.retain,
                deadline: DeadlineUnit::Seconds,
                ..MessageOrigin::default()
            },
            payload: &will.payload,
        };
        let refused = match message.take(&will.properties) {
            Err(fault) => Some(fault.text),
            Ok(()) if !self.mqtt_has_will_budget(now, id) => {
                Some("more wills in a second than the permissions allow events".to_owned())
            }
            Ok(()) => match self.mqtt_put(now, id, &will.topic, &message) {
                Ok(_) => None,
                // a consumer whose queue is full does not block a dead client's will
                Err(MqttRefusal::Blocked) => Some("the queue of a consumer is full".to_owned()),
                Err(MqttRefusal::Refused(_, text) | MqttRefusal::NotTaken(text)) => Some(text),
                Err(MqttRefusal::Broken(fault)) => Some(fault.text),
            },
        };
        if let Some(why) = refused {
            self.access.end_refused();
            let entry = (AuditAction::Publish, AuditOutcome::Refused);
            self.audit_of_session(id, entry, &will.topic, Some(&why));
        }
    }

    /// Returns whether a tenant may publish one more will in this second.
    fn mqtt_has_will_budget(&mut self, now: Instant, id: MqttSessionId) -> bool {
        let Some((_, grant)) = self.mqtt.owner(id) else { return false };
        let Some(rate) = grant.rate else { return true };
        let tenant = self.tenant_of_session(id);
        let may = self.mqtt.wills.entry(tenant).or_default().take(now, rate).is_ok();
        if !may {
            self.access.count(RefusalKind::Rate);
        }
        may
    }

    /// Puts a message into the channel; returns the number of inboxes that took it, and its position if it is
    /// in the log.
    fn mqtt_put(
        &mut self,
        now: Instant,
        id: MqttSessionId,
        name: &str,
        message: &IncomingMessage<'_>,
    ) -> Result<(usize, Option<u64>), MqttRefusal> {
        let (supplier, topic) = self.mqtt_offer(now, id, name)?;
        if let Some(session) = self.mqtt.sessions.get(&id)
            && message.payload.len() > session.grant.size
        {
            let text = format!(
                "a payload of {} bytes; the permissions allow {}",
                message.payload.len(),
                session.grant.size
            );
            self.access.count(RefusalKind::Size);
            return Err(MqttRefusal::NotTaken(text));
        }
        let mut body = EventBody::new(message.payload, None);
        body.origin = message.origin.clone();
        body.origin.publisher = self.mqtt.sessions.get(&id).map(|session| Arc::clone(&session.key));
        let mut publication = Publication::new(body).with_fields(message.fields.clone());
        publication.deadline = message.due_in.map(|due| now + due);
        publication.retention = match (message.retain, message.payload.is_empty()) {
            (false, _) => Retention::AsTopic,
            (true, false) => Retention::Retain,
            (true, true) => Retention::Remove,
        };
        if publication.retention == Retention::Retain || self.channel.keeps(topic) {
            publication.keeping = self.terms_of_session(id);
        }
        match self.publish_message(now, (id, supplier, topic), (message.origin.qos, message.id), publication)
        {
            Ok((Published::Taken { inboxes, .. }, position)) => Ok((inboxes, position)),
            Ok((_, position)) => Ok((1, position)),
            Err(PublishError::Full { .. }) => Err(MqttRefusal::Blocked),
            Err(PublishError::NotKept { reason }) => {
                self.access.count(RefusalKind::Log);
                Err(MqttRefusal::NotTaken(reason))
            }
            Err(error) => {
                self.access.count(RefusalKind::from(&error));
                let reason = match error {
                    // MQTT 5 has no code 0x95 in PUBACK and PUBREC
                    PublishError::TooLarge { .. } => return Err(MqttRefusal::NotTaken(error.to_string())),
                    PublishError::KeptFull { .. } | PublishError::TooFast { .. } => MqttReason::TooMuch,
                    _ => MqttReason::Refused,
                };
                Err(MqttRefusal::Refused(reason, error.to_string()))
            }
        }
    }

    /// Declares a topic for a client. The names of its topics count as its memory; when that is used up, the
    /// client begins anew, as a supplier without topics.
    fn mqtt_declare(&mut self, id: MqttSessionId, spec: TopicSpec) -> Result<TopicId, ChannelError> {
        let (tenant, keeping) = (self.tenant_of_session(id), self.terms_of_session(id));
        match self.channel.declare_by((tenant, &keeping), spec.clone()) {
            Err(ChannelError::NamesFull { .. } | ChannelError::TenantLimit { .. }) => {
                self.mqtt_withdraw(id, false);
                self.channel.declare_by((tenant, &keeping), spec)
            }
            declared => declared,
        }
    }

    /// Offers a topic for the client as its supplier.
    fn mqtt_offer(
        &mut self,
        now: Instant,
        id: MqttSessionId,
        name: &str,
    ) -> Result<(SupplierId, TopicId), MqttRefusal> {
        let refused = |reason, text: String| MqttRefusal::Refused(reason, text);
        let session =
            self.mqtt.sessions.get(&id).ok_or_else(|| refused(MqttReason::Refused, String::new()))?;
        let known = self.channel.topic(name);
        if let (Some(supplier), Some(topic)) = (session.supplier, known)
            && session.offered.contains(&topic)
        {
            return Ok((supplier, topic));
        }
        check_topic(name).map_err(MqttRefusal::Broken)?;
        if name.starts_with('$') {
            let text = format!("the topic `{name}`: names that begin with `$` are the broker's own");
            self.access.count(RefusalKind::Topic);
            return Err(refused(MqttReason::BadTopic, text));
        }
        if !session.grant.may_publish(name) && !self.replies.may_publish(name) {
            self.access.count(RefusalKind::Publish);
            let text = format!("{} may not publish `{name}`", session.owner);
            return Err(refused(MqttReason::NotAllowed, text));
        }
        if session.offered.len() >= self.limits.topics {
            self.mqtt_withdraw(id, false); // the client begins anew, as a supplier without topics
        }
        // this comes before the look-up of the topic, because the channel retires topics without suppliers to
        // make room
        self.hold_for_session(id, structures::OFFERED).map_err(|text| refused(MqttReason::TooMuch, text))?;
        let (supplier, topic) = self
            .mqtt_supply(now, id, name)
            .inspect_err(|_| self.release_for_session(id, structures::OFFERED))?;
        let mut owner = SupplierOwner::default();
        if let Some(session) = self.mqtt.sessions.get_mut(&id) {
            session.supplier = Some(supplier);
            session.offered.insert(topic);
            owner = session.name_owner.of_supplier();
        }
        let event_type = self.channel.topic_spec(topic).and_then(|spec| spec.event_type.clone());
        let (reliability, standing) = (Reliability::AtLeastOnce, OfferStanding::Conforms);
        let offer = Offer { event_type, reliability, owner, standing, ..Offer::new(topic) };
        match self.channel.offer(supplier, offer) {
            Ok(()) => {
                let entry = (AuditAction::Advertise, AuditOutcome::Done);
                self.audit_of_session(id, entry, name, None);
                Ok((supplier, topic))
            }
            Err(error) => Err(refused(MqttReason::Refused, self.access.refuse(&error))),
        }
    }

    /// Returns the topic of this name, which is made if it is missing, and the client's supplier.
    fn mqtt_supply(
        &mut self,
        now: Instant,
        id: MqttSessionId,
        name: &str,
    ) -> Result<(SupplierId, TopicId), MqttRefusal> {
        let refused = |reason, text: String| MqttRefusal::Refused(reason, text);
        let topic = match self.channel.topic(name) {
            Some(topic) => topic,
            None => {
                let spec =
                    TopicSpec::new(name).map_err(|error| refused(MqttReason::BadTopic, error.to_string()))?;
                self.mqtt_declare(id, spec)
                    .map_err(|error| refused(MqttReason::TooMuch, self.access.refuse(&error)))?
            }
        };
        let supplier = match self.mqtt.sessions.get(&id).and_then(|session| session.supplier) {
            Some(supplier) => supplier,
            None => {
                let tenant = self.tenant_of_session(id);
                let supplier = self.channel.supplier_of(tenant, now, None);
                supplier.map_err(|error| refused(MqttReason::TooMuch, self.access.refuse(&error)))?
            }
        };
        Ok((supplier, topic))
    }
}
