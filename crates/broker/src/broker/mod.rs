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

mod access;
mod arrivals;
mod audit;
mod best_effort;
mod clients;
mod direct;
mod durable;
mod events;
mod ledger;
mod mqtt;
mod names;
mod paths;
mod places;
mod reload;
mod remote_suppliers;
mod replies;
mod runs;
mod statistics;
mod structures;
mod tasks;
mod tenants;
mod timeouts;

use crate::audit::AuditTrail;
use crate::body::EventBody;
use crate::limits::Limits;
use crate::mqtt::{MqttFault, MqttReason};
use crate::name_owner::NameOwner;
use crate::permissions::{
    AccessControl, ClientGrant, ClientIdentity, Permissions, RateBudget, RefusalKind, TokenHash, Tokens,
};
use crate::sorted_map::SortedMap;
use crate::task::{ClientId, Next, PathId, Received, Task};
use crate::topic_names::AnnouncedTopics;
pub use reload::{BrokerSettings, CheckedSettings, ReloadAsker, ReloadedFiles};

use best_effort::BestEffortDeliveries;
use direct::DirectRings;
use durable::DurableEvents;
use ledger::{MemoryLedger, QueueGrant};
use mqtt::{MqttSessionId, MqttSessions};
use names::GroupNames;
use paths::PathLink;
use remote_suppliers::RemoteSuppliers;
use replies::GrantedReplies;
use std::sync::Arc;
use tasks::TaskQueue;
use tenants::TenantNumbers;
use timeouts::BrokerTimers;
use unisono_eventchannel::{ConsumerId, EventChannel, NumberMap, SupplierId, TenantId, TopicId, give_back};
use unisono_events_wire::frame::{Frame, PublishHead};
use unisono_events_wire::transport::{SharedPayload, TransportPeer};
use unisono_fairqueue::{Hierarchy, LinkPace};
use unisono_linux::clock::{Duration, Instant};

/// MQTT 5, section 3.14.2.1: quota exceeded.
const TOO_MUCH: u8 = 0x97;
/// Maximum number of turns of followers in one call of [`Broker::next`], while their interests match none of
/// the log's events.
const MAX_LOG_FILLS: usize = 16;

/// The target of a program's publications: a topic or a path, under the program's own number.
#[derive(Clone, Copy, Debug)]
enum Outlet {
    Topic {
        supplier: SupplierId,
        topic: TopicId,
        /// Bytes of the structures that were made for it.
        held: u64,
    },
    Path(PathId),
}

#[derive(Debug)]
struct ConnectedClient {
    peer: TransportPeer,
    tenant: TenantId,
    /// Bytes of the structures made for the client, without the structures of its consumers.
    held: u64,
    /// The names in its certificate, if its connection is encrypted.
    secured: Option<Vec<Arc<str>>>,
    /// When it connected.
    since: Instant,
    greeted: bool,
    name: Arc<str>,
    lease: Option<Duration>,
    outlets: SortedMap<u32, Outlet>,
    consumers: SortedMap<u32, (ConsumerId, QueueGrant)>,
    /// Topics whose names the client has been sent.
    named: AnnouncedTopics,
    /// Whether the client takes no events for now.
    paused: bool,
    takes_descriptors: bool,
    understands_rings: bool,
    /// Whether the program makes direct links over TCP.
    takes_links: bool,
    /// Whether the connection carries datagrams, which can be lost.
    may_lose: bool,
    protocol: ClientProtocol,
    who: ClientIdentity,
    /// The owner of the names that the client uses: the same for all its ways to authenticate.
    owner: NameOwner,
    grant: Arc<ClientGrant>,
    /// The token that the client has shown.
    token: Option<TokenHash>,
    /// When the client's token expires and its connection is ended.
    expires: Option<Instant>,
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

/// The receivers of all consumers' deliveries.
#[derive(Debug, Default)]
struct Addressees {
    by_consumer: NumberMap<ConsumerId, Addressee>,
    /// The program's consumer that got the last delivery. `None`: a path or an MQTT client got it, or there
    /// was none.
    last: Option<((ClientId, u32), ConsumerId)>,
}

impl Addressees {
    fn remove(&mut self, consumer: ConsumerId) {
        self.by_consumer.remove(&consumer);
        give_back(&mut self.by_consumer);
    }
}

/// The run of the broker's process.
#[derive(Debug, Default)]
struct BrokerRun {
    /// The number that [`WelcomeTerms::run`](unisono_events_wire::WelcomeTerms::run) reports.
    number: u64,
    /// The user of the broker's process. `None`: the broker is not served yet, and no places are kept.
    own_user: Option<u32>,
}

#[derive(Debug, Default)]
struct BrokerCounters {
    /// Programs that were disconnected because of the data that they sent.
    sent_away: u64,
    /// Steps since the server last asked, without the steps of the channel.
    work: usize,
}

#[derive(Debug)]
pub struct Broker {
    limits: Limits,
    run: BrokerRun,
    channel: EventChannel<EventBody>,
    // the clients and their rights
    clients: NumberMap<ClientId, ConnectedClient>,
    tenants: TenantNumbers,
    access: AccessControl,
    names: GroupNames,
    replies: GrantedReplies,
    // the receivers of deliveries
    addressees: Addressees,
    link: PathLink,
    mqtt: MqttSessions,
    direct: DirectRings,
    remote_suppliers: RemoteSuppliers,
    best_effort: BestEffortDeliveries,
    /// `None`: the broker keeps no log.
    durable: Option<DurableEvents>,
    // memory and counters
    ledger: MemoryLedger,
    counters: BrokerCounters,
    /// `None`: no audit log is kept.
    audit: Option<Box<AuditTrail>>,
    timers: BrokerTimers,
    tasks: TaskQueue,
}

impl Broker {
    /// Makes a broker whose deliveries share the capacity by the hierarchy of classes.
    #[must_use]
    pub fn new(hierarchy: Hierarchy, mut limits: Limits) -> Self {
        // half of the credit must suffice for one event: the other half may not have been returned yet
        limits.credit = limits.credit.max(2 * unisono_events_wire::credit_cost(limits.path_largest as usize));
        let leaves = hierarchy.classes().filter(|(id, _)| hierarchy.is_leaf(*id));
        let link = PathLink::new(leaves.map(|(id, _)| id));
        Self {
            limits,
            run: BrokerRun::default(),
            channel: EventChannel::new(hierarchy, limits.of_channel()),
            clients: NumberMap::default(),
            tenants: TenantNumbers::default(),
            access: AccessControl::default(),
            names: GroupNames::default(),
            replies: GrantedReplies::default(),
            addressees: Addressees::default(),
            link,
            mqtt: MqttSessions::default(),
            direct: DirectRings::default(),
            remote_suppliers: RemoteSuppliers::default(),
            best_effort: BestEffortDeliveries::default(),
            durable: None,
            ledger: MemoryLedger::default(),
            counters: BrokerCounters::default(),
            audit: None,
            timers: BrokerTimers::default(),
            tasks: TaskQueue::default(),
        }
    }

    /// Adds paths, which forward events to addresses no faster than the link's rate.
    #[must_use]
    pub fn with_paths(mut self, pace: LinkPace) -> Self {
        self.link.pace = Some(pace);
        self
    }

    /// Adds permissions: a client may then do only what a rule for it allows.
    #[must_use]
    pub fn with_permissions(mut self, permissions: Permissions) -> Self {
        self.access.permissions = Some(permissions);
        self
    }

    /// Requires a token or a certificate from programs over TCP.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Tokens) -> Self {
        self.access.tokens = Some(tokens);
        self
    }

    /// Starts a run of the broker. Programs distinguish runs by the number; the secrets must stay in this
    /// process.
    pub(crate) fn begin(&mut self, run: u64, secret: u64, link_secret: [u8; 32]) {
        self.run.number = run;
        self.direct.draw_keys_from(link_secret);
        self.replies = GrantedReplies::new(secret);
    }

    /// Returns the limits that the broker was given.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the next task for the server, in order, or `None` once all are done.
    pub fn task(&mut self) -> Option<Task> {
        self.update_links();
        self.write_sessions();
        self.tasks.pop_front()
    }

    /// Takes back the memory of a head that has been sent, for the next head.
    pub(crate) fn recycle_head(&mut self, head: Vec<u8>) {
        self.tasks.recycle(head);
    }

    /// Handles a frame from a program; `shared` is the payload if it did not come with the head.
    pub fn received(
        &mut self,
        now: Instant,
        client: ClientId,
        bytes: &[u8],
        shared: Option<SharedPayload>,
    ) -> Received {
        self.run_timers(now);
        self.access.begin_request();
        let Some(connected) = self.clients.get(&client) else { return Received::Done };
        let ConnectedClient { greeted, peer, protocol, .. } = *connected;
        let (is_leased, same_clock) = (connected.lease.is_some(), matches!(peer, TransportPeer::User(_)));
        let is_publication = match protocol {
            ClientProtocol::Mqtt(_) => bytes.first().is_some_and(|first| first >> 4 == 3),
            ClientProtocol::Frames => PublishHead::begins(bytes),
        };
        if !is_publication {
            // a request takes about two steps more than an event, and one per 256 bytes to read it
            self.counters.work += 2 + bytes.len().min(Limits::REQUEST) / 256;
            if bytes.len() > Limits::REQUEST {
                let (most, bytes) = (Limits::REQUEST, bytes.len());
                let what = format!("a request of {bytes} bytes; the largest has {most}: ask in several");
                self.end(now, client, &MqttFault::new(TOO_MUCH, what));
                return Received::Done;
            }
        }
        if let ClientProtocol::Mqtt(session) = protocol {
            let received = self.mqtt_received(now, client, session, bytes);
            self.find_changed_audiences();
            return received;
        }
        if is_leased {
            self.renew(now, client);
        }
        if is_publication && greeted {
            let published = match PublishHead::read(bytes) {
                Ok((head, payload)) => self.publish(now, client, head, (payload, shared)),
                Err(bad) => Err(bad.to_string()),
            };
            return published.unwrap_or_else(|reason| {
                self.send_away(now, client, &reason);
                self.find_changed_audiences();
                Received::Done
            });
        }
        let frame = Frame::read(bytes);
        if let Ok(frame) = &frame {
            self.audit_request(client, frame);
        }
        let done = match frame {
            Err(bad) => Err(bad.to_string()),
            Ok(Frame::Hello(greeting)) if !greeted => self.greet(now, client, greeting, same_clock),
            Ok(_) if !greeted => Err("the first frame has to be a greeting".to_owned()),
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
                self.counters.work += work;
                self.answer(client, &Frame::Statistics { json: &json });
                Ok(())
            }
            Ok(Frame::Reload) => {
                self.ask_for_reload(client);
                Ok(())
            }
            Ok(Frame::TakeOver { step }) => {
                self.ask_to_take_over(client, step);
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

    /// Chooses the next delivery or transmission.
    pub fn next(&mut self, now: Instant) -> Next {
        self.run_timers(now);
        if let Some(free_at) = self.link.busy_until(now) {
            return Next::Wait(free_at);
        }
        self.grant_rings();
        if self.run_links(now) || self.send_counts(now) || self.mqtt_resend(now) {
            return Next::Delivered;
        }
        self.end_service(now);
        for _ in 0..MAX_LOG_FILLS {
            let more = self.fill_from_log(now);
            if let Some(next) = self.deliver_next(now) {
                return next;
            }
            if !more {
                self.set_idle();
                let wakes = [self.channel.next_wake(), self.best_effort.due(), self.links_due()];
                let wake = wakes.into_iter().flatten().min();
                return wake.map_or(Next::Idle, Next::Wait);
            }
        }
        Next::Wait(now)
    }

    /// Delivers or transmits the channel's next event; `None`: the channel has none for now.
    fn deliver_next(&mut self, now: Instant) -> Option<Next> {
        // the consumer of the last delivery is cheaper to find than the next one of all consumers
        if let Some((to, consumer)) = self.addressees.last.take()
            && let Some(delivered) = self.channel.next_to_same(now, consumer)
        {
            self.deliver_event(now, to, consumer, delivered);
            self.addressees.last = Some((to, consumer));
            return Some(Next::Delivered);
        }
        while let Some(delivery) = self.channel.next(now) {
            match self.addressees.by_consumer.get(&delivery.consumer).copied() {
                Some(Addressee::Program { client, number }) => {
                    self.addressees.last = Some(((client, number), delivery.consumer));
                    self.deliver(now, (client, number), delivery);
                    return Some(Next::Delivered);
                }
                Some(Addressee::Path(path)) => {
                    if let Some(body) = self.forward(now, path, delivery) {
                        return Some(Next::Transmit { path, body });
                    }
                }
                Some(Addressee::Mqtt(session)) => {
                    self.mqtt_deliver(now, session, delivery);
                    return Some(Next::Delivered);
                }
                None => {} // its program has just gone
            }
        }
        self.end_leases(now).then_some(Next::Delivered)
    }

    /// Handles the end of a program's connection, also if the program did not read its frames. Its published
    /// events are still delivered; consumers of its topics are told of its death.
    pub fn gone(&mut self, now: Instant, client: ClientId) {
        self.run_timers(now);
        self.audit_gone(client);
        let Some(connected) = self.clients.remove(&client) else { return };
        self.replies.withdraw(client);
        self.forget_links_of(client);
        self.ledger.release_held(connected.peer, connected.held);
        for (number, outlet) in connected.outlets {
            match outlet {
                Outlet::Topic { supplier, topic, .. } => {
                    self.remove_direct_supplier(client, number);
                    if self.leave_supplier(supplier, topic) {
                        self.channel.bury(supplier);
                    }
                }
                Outlet::Path(path) => self.leave(now, path),
            }
        }
        for (consumer, granted) in connected.consumers.into_iter().map(|(_, consumer)| consumer) {
            self.ledger.release_queue(now, connected.peer, granted);
            self.addressees.remove(consumer);
            self.best_effort.forget(consumer);
            self.remove_direct_reader(consumer);
            self.unfollow(consumer);
            self.leave_group(consumer);
            self.channel.disconnect(now, consumer);
        }
        if let ClientProtocol::Mqtt(Some(session)) = connected.protocol {
            self.mqtt_gone(now, session);
        }
    }

    /// Ends a program's connection because the program broke a rule.
    pub fn send_away(&mut self, now: Instant, client: ClientId, reason: &str) {
        self.end(now, client, &MqttFault::malformed(reason));
    }

    /// Ends the connection of a client that has begun a frame of `bytes` bytes, and may send `most`.
    pub fn send_away_oversized(&mut self, now: Instant, client: ClientId, (bytes, most): (usize, usize)) {
        let text = format!("a frame of {bytes} bytes is too large; the largest has {most}");
        if let Some(connected) = self.clients.get(&client).filter(|client| client.greeted) {
            let (who, name) = (&connected.who, &connected.name);
            let note = format!("{who} ({name}) is sent away: {text}");
            self.tasks.push_back(Task::Note { text: note });
        }
        self.access.count(RefusalKind::Size);
        self.end(now, client, &MqttFault::new(MqttReason::TooLarge as u8, text));
    }

    /// Ends a connection and sends the reason; the code is for MQTT clients.
    fn end(&mut self, now: Instant, client: ClientId, why: &MqttFault) {
        let Some(connected) = self.clients.get(&client) else { return };
        if let ClientProtocol::Mqtt(_) = connected.protocol {
            self.mqtt_send_away(now, client, why);
        } else {
            let reason = &why.text;
            self.counters.sent_away += 1;
            self.answer(client, &Frame::Bye { reason });
            self.tasks.push_back(Task::SendAway { client, reason: reason.clone() });
            self.cut_links_of(client);
            self.gone(now, client);
        }
    }

    /// Returns whether events wait for consumers of several classes.
    pub fn classes_compete(&self) -> bool {
        self.channel.classes_compete()
    }

    fn answer(&mut self, client: ClientId, frame: &Frame<'_>) {
        self.audit_answer(client, frame);
        self.tasks.answer(client, frame);
    }
}
