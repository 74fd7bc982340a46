//! Subscriptions of MQTT clients: consumers of the channel.

use super::super::{Addressee, Broker, structures};
use super::MqttSessionId;
use super::session::{MqttSubscription, queue_grant};
use crate::log::SessionLine;
use crate::mqtt::{
    FilterRequest, MqttQos, MqttReason, PastPolicy, SHARE, split_share, subscribed, unsubscribed,
};
use crate::permissions::RefusalKind;
use crate::task::ClientId;
use std::sync::Arc;
use unisono_eventchannel::{
    ChannelError, ConsumerId, ConsumerSpec, DispatchOrder, InboxCapacity, InboxSpec, Interest, LateEvents,
    PastEvents, Redelivery, TopicPattern,
};
use unisono_linux::clock::{Duration, Instant};

/// Maximum number of unconfirmed messages of a member of a group, whatever its receive maximum. With a larger
/// window one member would hold messages that another member could take at once. Chosen by this argument, not
/// measured.
const GROUP_WINDOW: usize = 32;

impl Broker {
    pub(super) fn mqtt_subscribe(
        &mut self,
        now: Instant,
        (client, id): (ClientId, MqttSessionId),
        number: u16,
        identifier: Option<u32>,
        filters: Vec<FilterRequest>,
    ) {
        let (mut codes, mut first) = (Vec::with_capacity(filters.len()), None);
        for (at, request) in filters.into_iter().enumerate() {
            let qos = request.qos as u8;
            let filter = self.audit.is_some().then(|| request.filter.clone());
            self.access.begin_request();
            let done = self.mqtt_subscribe_one(now, id, identifier, (at, request));
            let refused = done.as_ref().err().map(|(_, text)| text.as_str());
            if let Some(filter) = &filter {
                self.audit_filter(client, filter, refused);
            }
            codes.push(match done {
                Ok(()) => qos,
                Err((reason, text)) => {
                    self.access.end_refused();
                    first.get_or_insert(text);
                    reason as u8
                }
            });
        }
        let Some(session) = self.mqtt.sessions.get(&id) else { return };
        let packet = subscribed(session.terms, number, &codes, first.as_deref());
        self.accept_filters(client, id, packet);
        self.mqtt_place(id);
    }

    pub(super) fn mqtt_subscribe_one(
        &mut self,
        now: Instant,
        id: MqttSessionId,
        identifier: Option<u32>,
        (at, request): (usize, FilterRequest),
    ) -> Result<(), (MqttReason, String)> {
        let Some(session) = self.mqtt.sessions.get(&id) else { return Ok(()) };
        if at >= self.limits.interests {
            let most = self.limits.interests;
            let text = format!("a packet may have {most} filters; ask for more in another one");
            return Err((MqttReason::TooMuch, text));
        }
        let bad = |text: String| (MqttReason::BadFilter, text);
        let (group, filter) = match request.filter.strip_prefix(SHARE) {
            None => (None, &*request.filter),
            Some(shared) => {
                let none = || bad(format!("`{}`: write $share/NAME/FILTER", request.filter));
                (Some(request.filter.clone()), split_share(shared).ok_or_else(none)?.1)
            }
        };
        let pattern: TopicPattern =
            filter.parse().map_err(|error: unisono_eventchannel::NameError| bad(error.to_string()))?;
        if !session.grant.may_subscribe(filter) {
            self.access.count(RefusalKind::Subscribe);
            return Err((
                MqttReason::NotAllowed,
                format!("{} may not subscribe to `{filter}`", session.owner),
            ));
        }
        let former = session.subscriptions.get(&request.filter);
        let is_new = former.is_none();
        if is_new && session.subscriptions.len() >= self.limits.interests {
            let most = self.limits.interests;
            return Err((
                MqttReason::TooMuch,
                format!("a client may have {most} subscriptions; unsubscribe one"),
            ));
        }
        let cost = if is_new { structures::pattern(&request.filter) } else { 0 };
        let past = match request.past {
            _ if group.is_some() => false,
            PastPolicy::Send => true,
            PastPolicy::SendIfNew => is_new,
            PastPolicy::Skip => false,
        };
        let own = session.consumers[request.qos as usize];
        let known = match (&group, former) {
            (None, _) => own,
            (Some(_), former) => former.and_then(|former| former.shared),
        };
        let joins = match (&group, known) {
            (Some(group), None) => {
                let Some(user) = self.name_user_of_session(id) else { return Ok(()) };
                let admitted = self.check_group(&user, (group, Duration::ZERO), &[filter]);
                Some((user, admitted.map_err(|refused| (MqttReason::NotAllowed, refused))?))
            }
            _ => None,
        };
        self.hold_for_session(id, cost).map_err(|refused| (MqttReason::TooMuch, refused))?;
        let consumer = match known {
            Some(consumer) => consumer,
            None => {
                let key = joins.as_ref().map(|(_, group)| Arc::clone(&group.key));
                let made = self.mqtt_consumer(now, id, request.qos, key);
                made.inspect_err(|_| self.release_for_session(id, cost))?
            }
        };
        let interest = Interest::in_topics(pattern.clone());
        let past = if past { PastEvents::All } else { PastEvents::None };
        let subscription = match self.channel.subscribe_with(now, consumer, interest, past) {
            Ok(subscription) => subscription,
            Err(error) => {
                self.release_for_session(id, cost);
                if group.is_some() && known.is_none() {
                    self.mqtt_leave_group(now, id, consumer);
                }
                let reason = match error {
                    ChannelError::TenantLimit { .. } | ChannelError::TooMany { .. } => MqttReason::TooMuch,
                    _ => MqttReason::Refused,
                };
                return Err((reason, self.access.refuse(&error)));
            }
        };
        if let Some((user, group)) = joins {
            self.join_group(consumer, group, user, &[filter]);
        }
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return Ok(()) };
        let filter = request.filter.clone();
        let noted = filter.clone();
        session.filters.insert(subscription, filter.clone());
        let shared = group.is_some().then_some(consumer);
        let entry = MqttSubscription { request, pattern, identifier, subscription, shared };
        session.identified += usize::from(identifier.is_some());
        if let Some(former) = session.subscriptions.insert(filter, entry) {
            session.identified -= usize::from(former.identifier.is_some());
            session.filters.remove(&former.subscription);
            self.mqtt.waiters.remove(&former.subscription);
            self.channel.unsubscribe(former.subscription);
        }
        let (from, _) = self.log_place(now);
        self.mqtt.note_subscription(id, &noted, from);
        Ok(())
    }

    /// Makes a consumer of a session: for a QoS, or as the member of a group.
    fn mqtt_consumer(
        &mut self,
        now: Instant,
        id: MqttSessionId,
        qos: MqttQos,
        group: Option<Arc<str>>,
    ) -> Result<ConsumerId, (MqttReason, String)> {
        let Some(session) = self.mqtt.sessions.get(&id) else {
            return Err((MqttReason::Refused, String::new()));
        };
        let (name, peer, most) = (Arc::clone(&session.name), session.peer, session.grant.memory);
        let class = session.grant.class.clone();
        let acknowledges = group.is_some() || qos != MqttQos::AtMostOnce;
        let (queue, events) = (session.queue, session.queue_events());
        let more = queue_grant(queue, acknowledges);
        let (queues, with_names) =
            (session.granted() + session.held + more, most.saturating_add(structures::NAMES));
        let mut all = queues + self.kept_of_session(id);
        if all > with_names && self.retire_for_room() {
            all = queues + self.kept_of_session(id);
        }
        if all > with_names {
            self.access.count(RefusalKind::Memory);
            let text = format!(
                "the permissions allow queues and retained messages of {most} bytes, and these would be {all}"
            );
            return Err((MqttReason::TooMuch, text));
        }
        self.check_memory_of_peer(peer, more).map_err(|refused| (MqttReason::TooMuch, refused))?;
        // messages in flight belong to the session: they are resent when the client reconnects, not before
        let redelivery = Redelivery {
            after: Duration::MAX,
            attempts: u32::MAX,
            window: if group.is_some() { GROUP_WINDOW } else { usize::MAX },
        };
        let inbox = InboxSpec {
            class,
            capacity: InboxCapacity { events, bytes: queue },
            late: LateEvents::Drop,
            order: DispatchOrder::Publication, // MQTT 5, section 4.6
            redelivery: acknowledges.then_some(redelivery),
            ..InboxSpec::default()
        };
        let is_alone = group.is_none();
        let positions = match is_alone && acknowledges && self.keeps_sessions() {
            true => structures::WAITING_POSITION * events as u64,
            false => 0,
        };
        self.hold_for_session(id, positions).map_err(|refused| (MqttReason::TooMuch, refused))?;
        let tenant = self.tenant_of_session(id);
        let spec = ConsumerSpec { group, tenant, ..ConsumerSpec::new(&name).with(inbox) };
        let made = self.channel.connect(now, spec);
        let consumer = made.map_err(|error| {
            self.release_for_session(id, positions);
            (MqttReason::TooMuch, self.access.refuse(&error))
        })?;
        self.addressees.by_consumer.insert(consumer, Addressee::Mqtt(id));
        self.ledger.book(peer, more);
        if is_alone && let Some(session) = self.mqtt.sessions.get_mut(&id) {
            session.consumers[qos as usize] = Some(consumer);
        }
        Ok(consumer)
    }

    pub(super) fn mqtt_unsubscribe(
        &mut self,
        now: Instant,
        (client, id): (ClientId, MqttSessionId),
        number: u16,
        filters: &[String],
    ) {
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return };
        let (version, mut codes, mut left) = (session.terms.version, Vec::new(), Vec::new());
        for filter in filters {
            let entry = session.subscriptions.remove(filter);
            codes.push(if entry.is_some() { MqttReason::Success } else { MqttReason::NoSubscription });
            if let Some(entry) = entry {
                session.identified -= usize::from(entry.identifier.is_some());
                session.filters.remove(&entry.subscription);
                left.push(entry);
            }
        }
        for entry in left {
            self.release_for_session(id, structures::pattern(&entry.request.filter));
            self.mqtt.waiters.remove(&entry.subscription);
            self.mqtt.note(id, &SessionLine::Unsubscribed { filter: entry.request.filter });
            self.channel.unsubscribe(entry.subscription);
            if let Some(consumer) = entry.shared {
                self.mqtt_leave_group(now, id, consumer);
            }
        }
        self.confirm_change(client, id, unsubscribed(version, number, &codes));
    }

    fn mqtt_leave_group(&mut self, now: Instant, id: MqttSessionId, consumer: ConsumerId) {
        if let Some(session) = self.mqtt.sessions.get(&id) {
            self.ledger.release(session.peer, queue_grant(session.queue, true));
        }
        self.mqtt_disconnect(now, consumer);
    }

    /// Ends a consumer; its unconfirmed messages go to the other members of its group.
    pub(super) fn mqtt_disconnect(&mut self, now: Instant, consumer: ConsumerId) {
        self.addressees.remove(consumer);
        self.leave_group(consumer);
        self.channel.disconnect(now, consumer);
    }
}
