//! MQTT clients in the broker: their connections, sessions and the ends of sessions.
//!
//! ```text
//!   mod.rs         CONNECT, DISCONNECT, wills, keep-alive, the end of sessions
//!   publish.rs     PUBLISH of a client -> the channel        PUBREL
//!   subscribe.rs   SUBSCRIBE, UNSUBSCRIBE -> consumers of the channel
//!   deliver.rs     deliveries of the channel -> PUBLISH      PUBACK, PUBREC, PUBCOMP
//!   saved.rs       the logged part of a session            record.rs: the same in memory
//! ```
//! A client is one supplier of the channel, and one consumer for each QoS of its subscriptions. Its session
//! outlives the connection for the time that the client requested: meanwhile its consumers are paused, and
//! its messages wait in their inboxes, bounded like the inboxes of any consumer.
//!
//! The key of a session is the client's identity and its client identifier. So two identities may use one
//! client identifier, each with a session of its own, and neither blocks the identifier for the other.
//!
//! Cost: a scan of all sessions once a second.

mod deliver;
mod publish;
mod record;
mod saved;
mod session;
mod subscribe;

pub(super) use session::MqttSessionId;

use super::places::may_take_one_more;
use super::{Broker, ClientProtocol, ConnectedClient, structures};
use crate::log::SessionLine;
use crate::mqtt::{
    AnswerTerms, ConnectRequest, Connected, LastWill, MqttFault, MqttPacket, MqttReason, MqttVersion,
    connect_refused, connected, disconnect, packet, ping_answer, version_of_connect,
};
use crate::name_owner::NameOwner;
use crate::permissions::{ClientGrant, ClientIdentity, RateBudget, RefusalKind};
use crate::task::{ClientId, Received, Task};
use session::MqttSession;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use unisono_eventchannel::{ConsumerId, NumberMap, SubscriptionId, TenantId, TopicId};
use unisono_events_wire::transport::TransportPeer;
use unisono_linux::clock::{Duration, Instant};

/// Maximum number of topic aliases of one client. Each is a name of up to 64 KiB, so that the aliases of one
/// client take at most 4 MiB.
const MAX_ALIASES: u16 = 64;

/// The sessions of MQTT clients.
#[derive(Debug, Default)]
pub(super) struct MqttSessions {
    sessions: HashMap<MqttSessionId, MqttSession>,
    /// By owner and client identifier ([`NameOwner::key_of`]).
    by_key: HashMap<Arc<str>, MqttSessionId>,
    /// The last session number assigned.
    last: u32,
    /// Sessions with messages to resend.
    resending: BTreeSet<MqttSessionId>,
    /// The subscriptions of QoS 1 and 2 of kept sessions, with the QoS.
    waiters: NumberMap<SubscriptionId, (MqttSessionId, u8)>,
    /// Kept sessions with lines that are not written yet.
    unwritten: BTreeSet<MqttSessionId>,
    /// The rates of wills by tenant: a will has no connection, and a tenant may let many clients die.
    wills: NumberMap<TenantId, RateBudget>,
}

impl MqttSessions {
    /// Returns the number of bytes granted to the queues of all sessions.
    pub(super) fn memory(&self) -> u64 {
        self.sessions.values().map(MqttSession::granted).sum()
    }

    /// Returns the number of bytes of the structures of all sessions.
    pub(super) fn held(&self) -> u64 {
        self.sessions.values().map(|session| session.held).sum()
    }

    pub(super) fn hold(&mut self, id: MqttSessionId, bytes: u64) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.held += bytes;
        }
    }

    pub(super) fn release_held(&mut self, id: MqttSessionId, bytes: u64) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.held = session.held.saturating_sub(bytes);
        }
    }

    /// Returns the identity and peer of a session, and the bytes of its memory limit that its queues leave.
    pub(super) fn account(&self, id: MqttSessionId) -> Option<(ClientIdentity, u64, TransportPeer)> {
        let session = self.sessions.get(&id)?;
        let theirs = session.granted().saturating_add(session.held);
        let left = session.grant.memory.saturating_add(structures::NAMES).saturating_sub(theirs);
        Some((session.owner.clone(), left, session.peer))
    }

    /// Returns the identity, the client identifier and the peer of a session.
    pub(super) fn whose(&self, id: MqttSessionId) -> Option<(&ClientIdentity, &str, TransportPeer)> {
        self.sessions.get(&id).map(|session| (&session.owner, &*session.name, session.peer))
    }

    /// Returns the owner of a session and its rule.
    pub(super) fn owner(&self, id: MqttSessionId) -> Option<(&NameOwner, &Arc<ClientGrant>)> {
        self.sessions.get(&id).map(|session| (&session.name_owner, &session.grant))
    }

    /// Returns the connection of the session that an owner has with a client identifier.
    pub(super) fn client_of(&self, owner: &NameOwner, name: &str) -> Option<ClientId> {
        self.sessions.get(self.by_key.get(&owner.key_of(name))?)?.client
    }

    /// Returns all sessions, in the order of their making.
    pub(super) fn ids(&self) -> Vec<MqttSessionId> {
        let mut ids: Vec<_> = self.sessions.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the connection of a session, if it has one now.
    pub(super) fn connection(&self, id: MqttSessionId) -> Option<ClientId> {
        self.sessions.get(&id)?.client
    }

    /// Returns the topics that a session's client publishes on.
    pub(super) fn offered(&self, id: MqttSessionId) -> impl Iterator<Item = TopicId> {
        self.sessions.get(&id).into_iter().flat_map(|session| &session.offered).copied()
    }

    /// Returns the patterns of a session's subscriptions, each with the consumer that is its member of a
    /// group, if it is shared.
    pub(super) fn patterns(&self, id: MqttSessionId) -> impl Iterator<Item = (String, Option<ConsumerId>)> {
        let all = self.sessions.get(&id).into_iter().flat_map(|session| session.subscriptions.values());
        all.map(|subscription| (subscription.pattern.to_string(), subscription.shared))
    }

    /// Replaces the rule of a session's client; returns the session's consumers.
    pub(super) fn set_grant(&mut self, id: MqttSessionId, grant: &Arc<ClientGrant>) -> Vec<ConsumerId> {
        let Some(session) = self.sessions.get_mut(&id) else { return Vec::new() };
        session.grant = Arc::clone(grant);
        session.all_consumers().map(|(consumer, _)| consumer).collect()
    }

    /// Returns the number of a session's messages that wait for the disk before they are confirmed.
    pub(super) fn unconfirmed(&mut self, id: MqttSessionId) -> Option<&mut usize> {
        self.sessions.get_mut(&id).map(|session| &mut session.unconfirmed)
    }

    /// Forgets a message of QoS 2, as if it had never come.
    pub(super) fn forget_unreleased(&mut self, id: MqttSessionId, number: u16) {
        if let Some(session) = self.sessions.get_mut(&id)
            && session.unreleased.remove(&number)
        {
            self.note(id, &SessionLine::Released { id: number });
        }
    }

    /// Returns the client's identifier, and whether it takes no messages for now.
    pub(super) fn standing(&self, id: MqttSessionId) -> Option<(&str, bool)> {
        self.sessions.get(&id).map(|session| (&*session.name, session.client.is_none() || session.stalled))
    }
}

impl Broker {
    /// Handles a new connection that speaks MQTT; returns whether it may stay.
    pub fn connected_by_mqtt(&mut self, now: Instant, client: ClientId, peer: TransportPeer) -> bool {
        let may = self.connected(now, client, peer);
        if let Some(connected) = self.clients.get_mut(&client) {
            connected.protocol = ClientProtocol::Mqtt(None);
        }
        may
    }

    /// Handles a packet from a client.
    pub(super) fn mqtt_received(
        &mut self,
        now: Instant,
        client: ClientId,
        session: Option<MqttSessionId>,
        bytes: &[u8],
    ) -> Received {
        let known = session.and_then(|id| Some((id, self.mqtt.sessions.get_mut(&id)?)));
        let version = known.map(|(_, session)| {
            session.last_packet = now;
            session.terms.version
        });
        let done = match (packet(bytes, version), session, version) {
            (Err(fault), None, _) => {
                self.counters.sent_away += 1;
                self.mqtt_refuse(now, client, version_of_connect(bytes).map(AnswerTerms::new), &fault);
                Ok(Received::Done)
            }
            (Err(fault), ..) => Err(fault),
            (Ok(MqttPacket::Connect(request)), ..) => {
                let terms = request.terms;
                if let Err(fault) = self.mqtt_connect(now, client, *request) {
                    self.access.end_refused();
                    self.mqtt_refuse(now, client, Some(terms), &fault);
                }
                Ok(Received::Done)
            }
            (Ok(packet), Some(id), Some(version)) => self.mqtt_packet(now, (client, id, version), packet),
            (Ok(_), ..) => Err(MqttFault::new(0x82, "the first packet has to be CONNECT")),
        };
        done.unwrap_or_else(|fault| {
            self.mqtt_send_away(now, client, &fault);
            Received::Done
        })
    }

    /// Ends a connection that has no session yet.
    fn mqtt_refuse(&mut self, now: Instant, client: ClientId, terms: Option<AnswerTerms>, fault: &MqttFault) {
        self.audit_end(client, &fault.text);
        if let Some(answer) = connect_refused(terms, fault) {
            self.mqtt_answer(client, answer);
        }
        self.tasks.push_back(Task::SendAway { client, reason: String::new() });
        self.gone(now, client);
    }

    fn mqtt_packet(
        &mut self,
        now: Instant,
        (client, id, version): (ClientId, MqttSessionId, MqttVersion),
        packet: MqttPacket<'_>,
    ) -> Result<Received, MqttFault> {
        match packet {
            MqttPacket::Publish(message) => return self.mqtt_publish(now, client, id, message),
            MqttPacket::Acknowledged(number) => self.mqtt_done(now, id, number),
            MqttPacket::Received { id: number, refused } => {
                self.mqtt_arrived(now, (client, id), number, refused);
            }
            MqttPacket::Release(number) => self.mqtt_release(client, id, number),
            MqttPacket::Complete(number) => self.mqtt_done(now, id, number),
            MqttPacket::Subscribe { id: number, identifier, filters } => {
                self.mqtt_subscribe(now, (client, id), number, identifier, filters);
            }
            MqttPacket::Unsubscribe { id: number, filters } => {
                self.mqtt_unsubscribe(now, (client, id), number, &filters);
            }
            MqttPacket::Ping => self.mqtt_answer(client, ping_answer()),
            MqttPacket::Disconnect { with_will, expiry } => {
                if let Some(session) = self.mqtt.sessions.get_mut(&id) {
                    match (session.expiry, expiry) {
                        (0, Some(more)) if more > 0 => {
                            return Err(MqttFault::new(
                                0x82,
                                "a session that ended with its connection cannot be prolonged",
                            ));
                        }
                        (_, Some(expiry)) => session.expiry = expiry,
                        _ => {}
                    }
                    if !with_will {
                        session.will = None;
                    }
                }
                self.tasks.push_back(Task::SendAway { client, reason: String::new() });
                self.gone(now, client);
            }
            MqttPacket::Connect(_) => {
                return Err(MqttFault::new(0x82, format!("a second CONNECT of {version:?}")));
            }
        }
        Ok(Received::Done)
    }

    fn mqtt_connect(
        &mut self,
        now: Instant,
        client: ClientId,
        request: ConnectRequest,
    ) -> Result<(), MqttFault> {
        let login = request.user.as_deref().zip(request.password.as_deref());
        let login = login.map(|(user, password)| (Some(user), password));
        // a password without a user name is a token
        let login = login.or(request.password.as_deref().map(|password| (None, password)));
        let code = if login.is_some() { 0x86 } else { 0x87 };
        self.identify(now, client, login, Some(&request.client))
            .map_err(|reason| MqttFault::new(code, reason))?;
        let known = self.clients.get(&client).ok_or_else(|| MqttFault::new(0x80, "it is gone"))?;
        let owner = known.owner.clone();
        let whose = (known.peer, known.who.clone(), Arc::clone(&known.grant));
        let outlives = self.may_leave_something(&owner);
        if !outlives && request.expiry > 0 && request.terms.version == MqttVersion::V311 {
            self.access.count(RefusalKind::Name);
            let text = "a client without an identity has no session that outlives its connection; connect with \
                        clean session, or with a user and a password";
            return Err(MqttFault::new(code, text));
        }
        // MQTT 5.0, section 3.2.2.3.2: the broker tells the client that the session ends with the connection
        let expiry = if outlives { request.expiry } else { 0 };
        let assigned = request.client.is_empty().then(|| self.mqtt_free_name(client, &owner));
        if assigned.is_some() && request.terms.version == MqttVersion::V311 && !request.clean {
            return Err(MqttFault::new(
                0x85,
                "a session that outlives its connection needs a client identifier",
            ));
        }
        let name: Arc<str> = assigned.as_deref().unwrap_or(&request.client).into();
        let largest = u32::try_from(self.limits.largest_frame()).unwrap_or(u32::MAX);
        let mut terms = Connected {
            session_present: false,
            assigned: assigned.as_deref(),
            largest,
            aliases: MAX_ALIASES,
            expiry: (expiry != request.expiry).then_some(expiry),
        };
        let answer = connected(request.terms.version, &terms).len();
        if answer > request.terms.largest {
            let most = request.terms.largest;
            let text = format!("packets of at most {most} bytes, and CONNACK has {answer}");
            return Err(MqttFault::new(MqttReason::TooLarge as u8, text));
        }
        let key = owner.key_of(&name);
        if let Some(former) = self.mqtt.by_key.get(&key).copied() {
            let clean = request.clean || self.holds_too_much(former, &whose.2);
            self.mqtt_take_over(now, former, clean);
        }
        let present = self.mqtt.by_key.get(&key).copied();
        let grant = Arc::clone(&whose.2);
        let id = match present {
            Some(id) => id,
            None => self.mqtt_open((Arc::clone(&name), key), whose, request.terms.version)?,
        };
        if let Some(connected) = self.clients.get_mut(&client) {
            connected.greeted = true;
            connected.name = name.to_string().into();
            connected.protocol = ClientProtocol::Mqtt(Some(id));
        }
        if let Err(refused) = self.mqtt_charge_will(id, request.will.as_ref()) {
            if present.is_none() {
                self.mqtt_end(now, id);
            }
            return Err(MqttFault::new(MqttReason::TooMuch as u8, refused));
        }
        self.audit_connected(client);
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return Ok(()) };
        session.grant = grant;
        session.terms = request.terms;
        (session.client, session.stalled) = (Some(client), false);
        (session.expiry, session.ends) = (expiry, Instant::NEVER);
        (session.will, session.will_at) = (request.will, Instant::NEVER);
        // MQTT 5.0, section 3.1.2.10: one and a half times the keep-alive
        session.keep_alive = Duration::from_millis(1500) * request.keep_alive.into();
        session.last_packet = now;
        session.receive_maximum = request.receive_maximum.into();
        terms.session_present = present.is_some();
        session.begin_anew();
        self.mqtt_keep(id);
        self.mqtt_answer(client, connected(request.terms.version, &terms));
        self.mqtt_send_again(now, id);
        self.mqtt_place(id);
        Ok(())
    }

    /// Charges a client's will; the will of its last connection is released.
    fn mqtt_charge_will(&mut self, id: MqttSessionId, will: Option<&LastWill>) -> Result<(), String> {
        let cost = will.map_or(0, structures::will);
        let former = self.mqtt.sessions.get_mut(&id).map(|session| std::mem::take(&mut session.will_cost));
        self.release_for_session(id, former.unwrap_or(0));
        self.hold_for_session(id, cost)?;
        if let Some(session) = self.mqtt.sessions.get_mut(&id) {
            session.will_cost = cost;
        }
        Ok(())
    }

    /// Returns an unused identifier for a client that sent none.
    fn mqtt_free_name(&self, client: ClientId, owner: &NameOwner) -> String {
        let mut name = format!("unisono-{}", client.0);
        while self.mqtt.by_key.contains_key(&owner.key_of(&name)) {
            name.push('+');
        }
        name
    }

    /// Returns whether a session has subscriptions that this rule does not allow: its client may have used
    /// another login of the same identity before.
    fn holds_too_much(&self, id: MqttSessionId, grant: &Arc<ClientGrant>) -> bool {
        let Some(session) = self.mqtt.sessions.get(&id) else { return false };
        let mut patterns =
            session.subscriptions.values().map(|subscription| subscription.pattern.to_string());
        !Arc::ptr_eq(&session.grant, grant) && patterns.any(|pattern| !grant.may_subscribe(&pattern))
    }

    /// Ends the former connection of a session whose identifier a new connection uses.
    fn mqtt_take_over(&mut self, now: Instant, id: MqttSessionId, clean: bool) {
        let Some(session) = self.mqtt.sessions.get(&id) else { return };
        if let Some(client) = session.client {
            let fault =
                MqttFault::new(MqttReason::TakenOver as u8, "another client connected with this identifier");
            self.mqtt_send_away(now, client, &fault);
        }
        if clean {
            self.mqtt_end(now, id);
        }
    }

    /// Opens a session. An identity may have half of all sessions; so may a peer whose clients have no
    /// identity. The last eighth is for identities that have few.
    fn mqtt_open(
        &mut self,
        (name, key): (Arc<str>, Arc<str>),
        whose: (TransportPeer, ClientIdentity, Arc<ClientGrant>),
        version: MqttVersion,
    ) -> Result<MqttSessionId, MqttFault> {
        let (peer, owner) = (whose.0, NameOwner::from(&whose.1));
        let most = whose.2.sessions.unwrap_or_else(|| self.connections_of(&whose.1, &whose.2));
        let is_theirs = |session: &&MqttSession| {
            session.name_owner == owner && (owner != NameOwner::Anonymous || session.peer == peer)
        };
        let theirs = self.mqtt.sessions.values().filter(is_theirs).count();
        let all = self.limits.sessions;
        // the reserve does not apply if the client's rule has a number: that is the operator's decision
        let leaves_some = whose.2.sessions.is_some_and(|sessions| sessions != usize::MAX)
            || may_take_one_more(theirs, self.mqtt.sessions.len(), all);
        let text = if theirs >= most.min(all.div_ceil(2)) || !leaves_some {
            format!(
                "{owner} has {theirs} sessions, connected or away, as many as it may; end one: connect with its \
                 client identifier, clean, and without a session expiry"
            )
        } else if self.mqtt.sessions.len() >= all {
            "there are as many sessions as may be; end one".to_owned()
        } else {
            self.mqtt.last += 1;
            let id = MqttSessionId(self.mqtt.last);
            let cost = structures::session(&name);
            self.mqtt.by_key.insert(Arc::clone(&key), id);
            let terms = (version, self.limits.mqtt_queue);
            self.mqtt.sessions.insert(id, MqttSession::new((name, Arc::clone(&key)), whose, terms));
            if let Err(refused) = self.hold_for_session(id, cost) {
                self.mqtt.by_key.remove(&key);
                self.mqtt.sessions.remove(&id);
                return Err(MqttFault::new(MqttReason::TooMuch as u8, refused));
            }
            return Ok(id);
        };
        self.access.count(RefusalKind::Limit);
        Err(MqttFault::new(MqttReason::TooMuch as u8, text))
    }

    pub(super) fn mqtt_answer(&mut self, client: ClientId, head: Vec<u8>) {
        self.tasks.push_back(Task::Answer { client, head, body: None });
    }

    /// Ends a connection whose client broke a rule.
    pub(in crate::broker) fn mqtt_send_away(&mut self, now: Instant, client: ClientId, fault: &MqttFault) {
        self.audit_end(client, &fault.text);
        let Some(ConnectedClient { protocol, .. }) = self.clients.get(&client) else { return };
        self.counters.sent_away += 1;
        let terms = match protocol {
            ClientProtocol::Mqtt(Some(id)) => self.mqtt.sessions.get(id).map(|session| session.terms),
            _ => None,
        };
        let last_word = match terms {
            Some(terms) => disconnect(terms, fault),
            None => connect_refused(None, fault),
        };
        if let Some(last_word) = last_word {
            self.mqtt_answer(client, last_word);
        }
        self.tasks.push_back(Task::SendAway { client, reason: String::new() });
        self.gone(now, client);
    }

    /// Handles the end of a connection: the session continues for the time that the client requested.
    pub(super) fn mqtt_gone(&mut self, now: Instant, id: MqttSessionId) {
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return };
        (session.client, session.stalled) = (None, false);
        session.aliases.clear();
        let aliases = std::mem::take(&mut session.alias_cost);
        session.ends = match session.expiry {
            u32::MAX => Instant::NEVER,
            seconds => now + Duration::from_secs(seconds.into()),
        };
        let died = session.will.is_some();
        session.will_at = match &session.will {
            Some(will) => (now + Duration::from_secs(will.delay.into())).min(session.ends),
            None => Instant::NEVER,
        };
        let (will_at, ends) = (session.will_at, session.ends);
        self.release_for_session(id, aliases);
        if will_at <= now {
            self.mqtt_publish_will(now, id);
        }
        self.mqtt_withdraw(id, died);
        if ends <= now {
            return self.mqtt_end(now, id);
        }
        let (_, at) = self.log_place(now);
        self.mqtt_away(id, at);
        self.mqtt_place(id);
    }

    /// Withdraws the client as a supplier; its retained messages stay.
    pub(super) fn mqtt_withdraw(&mut self, id: MqttSessionId, died: bool) {
        let Some(session) = self.mqtt.sessions.get_mut(&id) else { return };
        let offered = structures::OFFERED * session.offered.len() as u64;
        session.offered.clear();
        match session.supplier.take() {
            Some(supplier) if died => self.channel.bury(supplier),
            Some(supplier) => self.channel.withdraw(supplier),
            None => {}
        }
        self.release_for_session(id, offered);
    }

    /// Ends a session and drops its waiting messages.
    pub(super) fn mqtt_end(&mut self, now: Instant, id: MqttSessionId) {
        if self.mqtt.sessions.get(&id).is_some_and(|session| session.will_at != Instant::NEVER) {
            self.mqtt_publish_will(now, id);
        }
        self.mqtt_withdraw(id, false);
        self.mqtt_forget(id);
        let Some(session) = self.mqtt.sessions.remove(&id) else { return };
        self.mqtt.by_key.remove(&session.key);
        let consumers: Vec<_> = session.all_consumers().collect();
        self.ledger.release(session.peer, session.granted());
        self.ledger.release_held(session.peer, session.held);
        for (consumer, _) in consumers {
            self.mqtt_disconnect(now, consumer);
        }
    }

    /// Records whether a connection takes packets.
    pub(super) fn mqtt_stalled(&mut self, id: MqttSessionId, stalled: bool) {
        if let Some(session) = self.mqtt.sessions.get_mut(&id) {
            session.stalled = stalled;
            if !stalled && !session.unsent.is_empty() {
                self.mqtt.resending.insert(id);
            }
            self.mqtt_place(id);
        }
    }

    /// Resumes the consumers of a session whose messages can be sent now, and pauses the others.
    fn mqtt_place(&mut self, id: MqttSessionId) {
        let Some(session) = self.mqtt.sessions.get(&id) else { return };
        let (takes, full) = (session.client.is_some() && !session.stalled, session.is_full());
        for (consumer, acknowledges) in session.all_consumers() {
            match takes && !(full && acknowledges) {
                true => self.channel.resume(consumer),
                false => self.channel.pause(consumer),
            }
        }
    }

    /// Extends the time until each client's next packet by a pause of the broker.
    pub(super) fn mqtt_extend_keep_alive(&mut self, pause: Duration) {
        self.mqtt.sessions.values_mut().for_each(|session| session.last_packet += pause);
    }

    /// Ends expired sessions and connections; called once a second.
    pub(super) fn mqtt_run_timers(&mut self, now: Instant) {
        self.mqtt.wills.retain(|_, budget| !budget.is_whole(now));
        let mut over: Vec<_> = self
            .mqtt
            .sessions
            .iter()
            .filter(|(_, session)| match session.client {
                Some(_) => {
                    session.keep_alive > Duration::ZERO && now - session.last_packet > session.keep_alive
                }
                None => session.ends <= now || session.will_at <= now,
            })
            .map(|(id, session)| (*id, session.client))
            .collect();
        over.sort_unstable();
        for (id, client) in over {
            if let Some(client) = client {
                let fault = MqttFault::new(
                    MqttReason::KeepAliveOver as u8,
                    "nothing came for one and a half keep-alive times",
                );
                self.mqtt_send_away(now, client, &fault);
                continue;
            }
            let Some(session) = self.mqtt.sessions.get(&id) else { continue };
            let (will_at, ends) = (session.will_at, session.ends);
            if will_at <= now {
                self.mqtt_publish_will(now, id);
                self.mqtt_withdraw(id, true);
            }
            if ends <= now {
                self.mqtt_end(now, id);
            }
        }
    }
}
