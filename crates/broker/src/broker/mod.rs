//! The broker as a state machine: connected clients, their topics and subscriptions, and the choice of the
//! next frame to send.
//!
//! ```text
//!   connected, received, gone            --->  Broker  --->  Task  (answer, open a socket, close one)
//!   paused, resumed, opened, transmitted --->          --->  Next  (send this now; wait until then)
//! ```
//! It has no socket and no clock: the caller reports each event with its time. Times never decrease.
//!
//! It serves one [`EventChannel`]. A program's topics are suppliers of the channel, its subscriptions are
//! consumers. A *path* (`paths.rs`) is both: a supplier whose events a consumer of the broker's own sends on
//! to an address, no faster than the rate of the policy.

mod abandoned;
mod access;
mod arrivals;
mod audit;
mod direct;
mod durable;
mod elsewhere;
mod events;
mod ledger;
mod loosely;
mod mqtt;
mod names;
mod paths;
mod places;
mod replies;
mod statistics;
mod structures;
mod tenants;

use crate::account::Account;
use crate::audit::AuditTrail;
use crate::body::EventBody;
use crate::frame::Frame;
use crate::limits::Limits;
use crate::mqtt::MqttFault;
use crate::name_owner::NameOwner;
use crate::permissions::{AccessControl, ClientGrant, ClientIdentity, Permissions, RateBudget, Tokens};
use crate::task::{ClientId, Next, PathId, Received, Task};
use crate::topic_names::ToldTopics;
use crate::transport::{SharedPayload, TransportPeer};
use direct::DirectRings;
use durable::DurableEvents;
use elsewhere::FarSuppliers;
use ledger::{MemoryLedger, QueueGrant};
use loosely::LooseDeliveries;
use mqtt::{MqttSessionId, MqttSessions};
use names::GroupNames;
use paths::{ForwardingPath, PathInService};
use replies::GrantedReplies;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tenants::TenantNumbers;
use unisono_eventchannel::{
    ChannelLimits, ConsumerId, EventChannel, NumberMap, SupplierId, TenantId, TopicId,
};
use unisono_fairqueue::{ClassId, Hierarchy, LinkPace};
use unisono_linux::clock::Nanos;

/// Most events of a program on one topic that wait while classes compete; the server does not read a program
/// with as many. The server delivers as many in a turn (64), so a class whose suppliers have that many
/// waiting has enough to deliver until they are read again, whatever its share.
const MAX_AHEAD: usize = 64;

/// MQTT 5, section 3.14.2.1: quota exceeded.
const TOO_MUCH: u8 = 0x97;

/// The target of a program's publications: a topic or a path, under the program's own number.
#[derive(Clone, Copy, Debug)]
enum Outlet {
    Topic { supplier: SupplierId, topic: TopicId },
    Path(PathId),
}

#[derive(Debug)]
struct ConnectedClient {
    peer: TransportPeer,
    tenant: TenantId,
    /// Bytes of the structures made for the client, without those of its consumers.
    held: u64,
    /// Bytes of the structures made for each topic that the client publishes on.
    costs: NumberMap<u32, u64>,
    /// The names in its certificate, if its connection is encrypted.
    secured: Option<Vec<Arc<str>>>,
    /// When it connected.
    since: Nanos,
    greeted: bool,
    name: String,
    lease: Option<Nanos>,
    outlets: BTreeMap<u32, Outlet>,
    consumers: BTreeMap<u32, (ConsumerId, QueueGrant)>,
    /// Topics whose names the client has been sent.
    named: ToldTopics,
    /// Whether the client takes no events for now.
    paused: bool,
    takes_descriptors: bool,
    understands_rings: bool,
    /// Whether the connection carries datagrams, which can be lost.
    may_lose: bool,
    protocol: ClientProtocol,
    who: ClientIdentity,
    /// The owner of the names that the client uses: the same for all its ways to authenticate.
    owner: NameOwner,
    grant: Arc<ClientGrant>,
    /// When the client's token expires and its connection is ended.
    expires: Option<Nanos>,
    budget: RateBudget,
    /// The last supplier and topic that made the client [`Received::Ahead`].
    ahead: Option<(SupplierId, TopicId)>,
}

/// The protocol that a client speaks.
#[derive(Clone, Copy, Debug)]
enum ClientProtocol {
    Frames,
    /// The session that the client has by its CONNECT.
    Mqtt(Option<MqttSessionId>),
}

/// The receiver of a consumer's deliveries.
#[derive(Clone, Copy, Debug)]
enum Addressee {
    Program { client: ClientId, number: u32 },
    Path(PathId),
    Mqtt(MqttSessionId),
}

/// Turns of followers in one call of [`Broker::next`] while their interests match none of the log's events.
const MAX_FEEDS: usize = 16;

#[derive(Debug)]
pub struct Broker {
    limits: Limits,
    /// The run number that [`WelcomeTerms::run`] reports.
    run: u64,
    /// The user of the broker's process. None: the broker is not served yet, and no places are kept.
    own_user: Option<u32>,
    replies: GrantedReplies,
    channel: EventChannel<EventBody>,
    /// The link of the paths. None: there are no paths.
    pace: Option<LinkPace>,
    accounts: BTreeMap<ClassId, Account>,
    clients: NumberMap<ClientId, ConnectedClient>,
    addressees: NumberMap<ConsumerId, Addressee>,
    paths: NumberMap<PathId, ForwardingPath>,
    next_path: u32,
    mqtt: MqttSessions,
    direct: DirectRings,
    far: FarSuppliers,
    ledger: MemoryLedger,
    tenants: TenantNumbers,
    /// Steps since the server last asked, without those of the channel.
    work: usize,
    loose: LooseDeliveries,
    access: AccessControl,
    names: GroupNames,
    /// None: no audit log is kept.
    audit: Option<Box<AuditTrail>>,
    sent_away: u64,
    refused: u64,
    /// The last result of [`EventChannel::lapses`].
    lapses: u64,
    /// Messages not sent to an MQTT client because they exceed its largest packet.
    mqtt_too_large: u64,
    /// When to check next for idle programs and destinations.
    next_look: Nanos,
    in_service: Option<PathInService>,
    /// The transmission time of the message on the link of the paths. None: the link is free.
    on_link: Option<Nanos>,
    /// None: the broker keeps no log.
    durable: Option<DurableEvents>,
    tasks: VecDeque<Task>,
    /// The program's consumer that got the last delivery. `None`: a path or an MQTT client did.
    last_heard: Option<((ClientId, u32), ConsumerId)>,
    /// The memory of the last head that was sent; the next head reuses it.
    spare_head: Vec<u8>,
}

impl Broker {
    /// A broker whose deliveries share the capacity by the hierarchy of classes.
    #[must_use]
    pub fn new(hierarchy: Hierarchy, mut limits: Limits) -> Self {
        // half of the credit must suffice for one event: the other half may not have been returned yet
        limits.credit = limits.credit.max(2 * Limits::cost(limits.path_largest as usize));
        let leaves = hierarchy.classes().filter(|(id, _)| hierarchy.is_leaf(*id));
        let accounts = leaves.map(|(id, _)| (id, Account::default())).collect();
        let channel = ChannelLimits { payload: limits.largest as usize, ..ChannelLimits::default() };
        Self {
            limits,
            run: 0,
            own_user: None,
            replies: GrantedReplies::default(),
            channel: EventChannel::new(hierarchy, channel),
            pace: None,
            accounts,
            clients: NumberMap::default(),
            addressees: NumberMap::default(),
            paths: NumberMap::default(),
            next_path: 0,
            mqtt: MqttSessions::default(),
            direct: DirectRings::default(),
            far: FarSuppliers::default(),
            ledger: MemoryLedger::default(),
            tenants: TenantNumbers::default(),
            work: 0,
            loose: LooseDeliveries::default(),
            access: AccessControl::default(),
            names: GroupNames::default(),
            audit: None,
            sent_away: 0,
            refused: 0,
            lapses: 0,
            mqtt_too_large: 0,
            next_look: Nanos::ZERO,
            in_service: None,
            on_link: None,
            durable: None,
            tasks: VecDeque::new(),
            last_heard: None,
            spare_head: Vec::new(),
        }
    }

    /// Adds paths, which forward events to addresses no faster than the link's rate.
    #[must_use]
    pub fn with_paths(mut self, pace: LinkPace) -> Self {
        self.pace = Some(pace);
        self
    }

    /// Adds permissions: a client may then do only what a rule for it allows.
    #[must_use]
    pub fn with_permissions(mut self, permissions: Permissions) -> Self {
        self.access.permissions = Some(permissions);
        self
    }

    /// Whether consumers can be of this class.
    #[must_use]
    pub fn has_class(&self, name: &str) -> bool {
        let hierarchy = self.channel.hierarchy();
        hierarchy.find(name).is_some_and(|class| hierarchy.is_leaf(class))
    }

    /// Requires a token or a certificate from programs over TCP.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Tokens) -> Self {
        self.access.tokens = Some(tokens);
        self
    }

    /// Starts a run of the broker. Programs tell runs apart by the number; the secret must stay in this
    /// process.
    pub(crate) fn begin(&mut self, run: u64, secret: u64) {
        self.run = run;
        self.replies = GrantedReplies::new(secret);
    }

    /// The limits that the broker was given.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The next task for the server, in order; `None` once all are done.
    pub fn task(&mut self) -> Option<Task> {
        self.arrange();
        self.tasks.pop_front()
    }

    /// Returns the memory of a head that has been sent, for the next head.
    pub(crate) fn take_back(&mut self, head: Vec<u8>) {
        self.spare_head = head;
    }

    /// Handles a frame from a program; `apart` is the payload if it did not come with the head.
    pub fn received(
        &mut self,
        now: Nanos,
        client: ClientId,
        bytes: &[u8],
        apart: Option<SharedPayload>,
    ) -> Received {
        self.look(now);
        let Some(ConnectedClient { protocol, .. }) = self.clients.get(&client) else {
            return Received::Done;
        };
        let is_publication = match protocol {
            ClientProtocol::Mqtt(_) => bytes.first().is_some_and(|first| first >> 4 == 3),
            ClientProtocol::Frames => bytes.first() == Some(&3),
        };
        if !is_publication {
            // a request takes about two steps more than an event, and one per 256 bytes to read it
            self.work += 2 + bytes.len().min(Limits::REQUEST) / 256;
            if bytes.len() > Limits::REQUEST {
                let (most, bytes) = (Limits::REQUEST, bytes.len());
                let what = format!("a request of {bytes} bytes; the largest has {most}: ask in several");
                self.end(now, client, &MqttFault::new(TOO_MUCH, what));
                return Received::Done;
            }
        }
        let Some(ConnectedClient { greeted, peer, lease, protocol, .. }) = self.clients.get(&client) else {
            return Received::Done;
        };
        if let ClientProtocol::Mqtt(session) = *protocol {
            let received = self.mqtt_received(now, client, session, bytes);
            self.find_changed_audiences();
            return received;
        }
        let (greeted, same_clock) = (*greeted, matches!(peer, TransportPeer::User(_)));
        if lease.is_some() {
            self.renew(now, client);
        }
        let frame = Frame::read(bytes);
        if let Ok(frame) = &frame {
            self.audit_request(client, frame);
        }
        let done = match frame {
            Err(bad) => Err(bad.to_string()),
            Ok(Frame::Hello(greeting)) if !greeted => self.greet(now, client, greeting, same_clock),
            Ok(_) if !greeted => Err("the first frame has to be a greeting".to_owned()),
            Ok(Frame::Publish { head, payload }) => match self.publish(now, client, head, (payload, apart)) {
                Ok(received) => return received,
                Err(reason) => Err(reason),
            },
            Ok(Frame::Advertise { number, spec }) => self.advertise(now, client, number, &spec),
            Ok(Frame::Subscribe { number, spec }) => self.subscribe(now, client, number, &spec),
            Ok(Frame::Acknowledge { consumer, delivery }) => self.acknowledge(client, consumer, delivery),
            Ok(Frame::Unsubscribe { number }) => self.unsubscribe(now, client, number),
            Ok(Frame::Open { number, path }) => {
                let opened = self.open(now, client, number, path);
                self.audit_granted(client);
                opened
            }
            Ok(Frame::Close { number }) => self.close(now, client, number),
            Ok(Frame::Flush { number }) => self.flush(client, number),
            Ok(Frame::Ask) => {
                let (json, work) = self.statistics_as_json(now, client);
                self.work += work;
                self.answer(client, &Frame::Statistics { json: &json });
                Ok(())
            }
            Ok(Frame::Alive) => Ok(()),
            Ok(Frame::RingReport { number, report }) => self.ring_report(client, number, report),
            Ok(_) => Err("a frame that only a broker sends, or a second greeting".to_owned()),
        };
        if let Err(reason) = done {
            self.send_away(now, client, &reason);
        }
        self.find_changed_audiences();
        Received::Done
    }

    /// Handles the end of a program's connection, also if the program did not read its frames. Its published
    /// events are still delivered; consumers of its topics are told of its death.
    pub fn gone(&mut self, now: Nanos, client: ClientId) {
        self.look(now);
        self.audit_gone(client);
        let Some(connected) = self.clients.remove(&client) else { return };
        self.replies.withdraw(client);
        self.ledger.let_go(connected.peer, connected.held);
        for (number, outlet) in connected.outlets {
            match outlet {
                Outlet::Topic { supplier, topic } => {
                    self.supplies_no_more(client, number);
                    if self.let_go(supplier, topic) {
                        self.channel.bury(supplier);
                    }
                }
                Outlet::Path(path) => self.leave(now, path),
            }
        }
        for (consumer, granted) in connected.consumers.into_values() {
            self.ledger.release_queue(now, connected.peer, granted);
            self.addressees.remove(&consumer);
            self.loose.forget(consumer);
            self.reads_no_more(consumer);
            self.unfollow(consumer);
            self.leave_group(consumer);
            self.channel.disconnect(now, consumer);
        }
        if let ClientProtocol::Mqtt(Some(session)) = connected.protocol {
            self.mqtt_gone(now, session);
        }
    }

    /// Ends a program's connection because the program broke a rule.
    pub fn send_away(&mut self, now: Nanos, client: ClientId, reason: &str) {
        self.end(now, client, &MqttFault::malformed(reason));
    }

    /// Ends a connection and sends the reason; the code is for MQTT clients.
    fn end(&mut self, now: Nanos, client: ClientId, why: &MqttFault) {
        let Some(connected) = self.clients.get(&client) else { return };
        if let ClientProtocol::Mqtt(_) = connected.protocol {
            self.mqtt_send_away(now, client, why);
        } else {
            let reason = &why.text;
            self.sent_away += 1;
            self.answer(client, &Frame::Bye { reason });
            self.tasks.push_back(Task::SendAway { client });
            self.gone(now, client);
        }
    }

    /// The program's connection takes no frames for now: its events wait in its inboxes.
    pub fn paused(&mut self, client: ClientId) {
        self.set_paused(client, true);
    }

    /// Ends a [`paused`](Self::paused) state; returns whether the program was paused. Events may be due to
    /// the program then: call [`next`](Self::next).
    pub fn resumed(&mut self, client: ClientId) -> bool {
        self.set_paused(client, false)
    }

    /// Returns whether the state has changed.
    fn set_paused(&mut self, client: ClientId, paused: bool) -> bool {
        let Some(connected) = self.clients.get_mut(&client) else { return false };
        if std::mem::replace(&mut connected.paused, paused) == paused {
            return false;
        }
        for (consumer, _) in connected.consumers.values() {
            match paused {
                true => self.channel.pause(*consumer),
                false => self.channel.resume(*consumer),
            }
        }
        if let ClientProtocol::Mqtt(Some(session)) = connected.protocol {
            self.mqtt_stalled(session, paused);
        }
        true
    }

    /// Whether consumers of several classes have events to get.
    #[must_use]
    pub fn classes_compete(&self) -> bool {
        self.channel.classes_compete()
    }

    /// Whether a program that was [`Received::Ahead`] still is. If so, some delivery is due. The program's
    /// lease is renewed meanwhile, because the server does not read the program's frames.
    pub fn is_ahead(&mut self, now: Nanos, client: ClientId) -> bool {
        let Some(connected) = self.clients.get_mut(&client) else { return false };
        let Some((supplier, topic)) = connected.ahead else { return false };
        let is_ahead = self.channel.backlog(supplier, topic) >= MAX_AHEAD;
        if is_ahead {
            self.renew(now, client);
        } else {
            connected.ahead = None;
        }
        is_ahead
    }

    /// The result for a program once an event of it was taken.
    fn heard(&mut self, client: ClientId, supplier: SupplierId, topic: TopicId) -> Received {
        if self.channel.backlog(supplier, topic) < MAX_AHEAD {
            return Received::Done;
        }
        if let Some(connected) = self.clients.get_mut(&client) {
            connected.ahead = Some((supplier, topic));
        }
        Received::Ahead
    }

    fn renew(&mut self, now: Nanos, client: ClientId) {
        let Some(connected) = self.clients.get(&client) else { return };
        self.work += (connected.outlets.len() + connected.consumers.len()) / 64;
        for outlet in connected.outlets.values() {
            if let Outlet::Topic { supplier, .. } = outlet {
                self.channel.renew_supplier(now, *supplier);
            }
        }
        for (consumer, _) in connected.consumers.values() {
            self.channel.renew_consumer(now, *consumer);
        }
    }

    /// Chooses the next delivery or transmission.
    pub fn next(&mut self, now: Nanos) -> Next {
        self.look(now);
        if let Some(pace) = &self.pace
            && now < pace.free_at()
        {
            return Next::Wait(pace.free_at());
        }
        self.let_read();
        if self.tell_counts(now) {
            return Next::Delivered;
        }
        if let Some(session) = self.mqtt.resends() {
            self.mqtt_send_again(now, session);
            return Next::Delivered;
        }
        self.end_service(now);
        let (mut more, mut feeds) = (self.feed(now), 1);
        if let Some((to, consumer)) = self.last_heard.take()
            && let Some(delivered) = self.channel.next_to_same(now, consumer)
        {
            self.deliver_event(now, to, consumer, delivered);
            self.last_heard = Some((to, consumer));
            return Next::Delivered;
        }
        loop {
            let Some(delivery) = self.channel.next(now) else {
                if self.end_leases(now) {
                    return Next::Delivered;
                }
                if more && feeds >= MAX_FEEDS {
                    return Next::Wait(now);
                }
                if more {
                    (more, feeds) = (self.feed(now), feeds + 1);
                    continue;
                }
                self.rest();
                let wake = [self.channel.next_wake(), self.loose.due()].into_iter().flatten().min();
                return wake.map_or(Next::Idle, Next::Wait);
            };
            match self.addressees.get(&delivery.consumer).copied() {
                Some(Addressee::Program { client, number }) => {
                    self.last_heard = Some(((client, number), delivery.consumer));
                    self.deliver(now, (client, number), delivery);
                    return Next::Delivered;
                }
                Some(Addressee::Path(path)) => {
                    if let Some(body) = self.forward(now, path, delivery) {
                        return Next::Transmit { path, body };
                    }
                }
                Some(Addressee::Mqtt(session)) => {
                    self.mqtt_deliver(now, session, delivery);
                    return Next::Delivered;
                }
                None => {} // its program has just gone
            }
        }
    }

    fn answer(&mut self, client: ClientId, frame: &Frame<'_>) {
        self.audit_answer(client, frame);
        answer(&mut self.tasks, client, frame);
    }

    /// Whether all events that paths were given have left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.values().all(|path| path.outstanding == 0)
    }
}

fn answer(tasks: &mut VecDeque<Task>, client: ClientId, frame: &Frame<'_>) {
    let mut head = Vec::new();
    frame.write(&mut head);
    tasks.push_back(Task::Answer { client, head, body: None });
}
