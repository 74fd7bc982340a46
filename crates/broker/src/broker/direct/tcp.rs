//! Direct links over TCP: a supplier on another host connects to the consumer of its topic, and publishes
//! there. The operator allows them, because the consumers' programs then listen at ports of their own.
//!
//! ```text
//!   Brokered --Listen--> Asked --Listens, Connect--> Introduced --Supplies--> Introduced --Recall--+
//!      ^                                                 | Unreached                               v
//!      +-------------------------------------------------+--------------------------- Left --- Recalled
//! ```
//! A link has one consumer: with more, one copy to the broker is cheaper than a copy to each. So any change
//! of the topic's consumers recalls the supplier.
//!
//! No word in shared memory announces a recall. Instead, a supplier reads all that its kernel has from the
//! broker before each event, and the broker accepts another consumer only once that kernel has acknowledged
//! the recall. So an event never misses a consumer that was accepted before it, and a supplier that computes
//! makes nobody wait. If the kernel does not answer, or the supplier does not leave its link, the consumer
//! ends the link after [`CHANGE_TIMEOUT`], or after [`REVOKE_TIMEOUT`] if a right of the supplier has ended.
//! The links of a program whose connection the broker ends are cut at once.

use super::{DirectRings, DirectState, DirectSupplier, IntroducedLink, order_task};
use crate::broker::mqtt::MqttSessionId;
use crate::broker::{Addressee, Broker, ConnectedClient};
use crate::sorted_map::SortedMap;
use crate::task::{ClientId, Task};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use unisono_eventchannel::{ConsumerId, NumberMap, SupplierId, TopicId};
use unisono_events_wire::frame::Frame;
use unisono_events_wire::transport::TransportPeer;
use unisono_events_wire::{LinkKeys, MAX_OF_REPORT, RingOrder};
use unisono_linux::clock::{Duration, Instant};

/// The time within which a supplier has to leave its link after the consumers of its topic have changed:
/// afterwards, the consumer ends the link, and another consumer is accepted without the answer of the
/// supplier's kernel. So it is longer than a round trip on a slow line.
const CHANGE_TIMEOUT: Duration = Duration::SECOND;
/// The same after a right of the supplier has ended. No consumer waits for the answer, so a slower line costs
/// at most the events in flight, and the consumer is told how many. With the 0.2 s for which the consumer
/// takes what has come, the right ends within a second. Chosen, not measured.
const REVOKE_TIMEOUT: Duration = Duration::from_millis(500);
/// The time between two questions whether a kernel has acknowledged a recall, while a consumer waits for the
/// answer. No descriptor reports an acknowledgement. Chosen, not measured.
const ACKNOWLEDGED_POLL: Duration = Duration::from_millis(5);
/// The maximum number of ended links whose consumers have not reported yet what they got.
const MAX_LEFT: usize = 1024;
/// Maximum characters of a program's reason in the operator's log.
const MAX_REASON: usize = 200;

/// How a program exchanges events without the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DirectWay {
    Memory,
    Tcp,
}

impl DirectWay {
    /// Returns the maximum number of consumers of a direct supplier.
    pub(super) fn max_links(self) -> usize {
        match self {
            Self::Memory => super::MAX_LINKS,
            Self::Tcp => 1,
        }
    }
}

/// The state of all direct links over TCP beyond their state as rings.
#[derive(Debug, Default)]
pub(super) struct TcpLinks {
    /// Whether the operator allows such links.
    is_allowed: bool,
    secret: [u8; 32],
    /// Suppliers that were recalled and have not left their links yet.
    recalled: Vec<RecalledLink>,
    held: Vec<HeldAnswer>,
    /// Ended links whose consumers have not reported yet what they got.
    left: BTreeMap<u32, LeftLink>,
    /// The suppliers' and the consumers' programs between which no connection could be made.
    unreached: BTreeSet<(ClientId, ClientId)>,
}

#[derive(Debug)]
struct RecalledLink {
    of: (ClientId, u32),
    link: u32,
    /// Whether the supplier's kernel has the order, or the supplier has left the link without it.
    has_arrived: bool,
    until: Instant,
}

/// A subscription that is accepted once these links' suppliers have been told.
#[derive(Debug)]
struct HeldAnswer {
    client: ClientId,
    subscription: HeldSubscription,
    links: Vec<u32>,
}

/// The answer to a subscription.
#[derive(Debug)]
enum HeldSubscription {
    Program { number: u32 },
    Mqtt { session: MqttSessionId, packet: Vec<u8> },
}

#[derive(Clone, Copy, Debug)]
struct LeftLink {
    consumer: ConsumerId,
    /// The supplier's program.
    client: ClientId,
    supplier: SupplierId,
    topic: TopicId,
    last: u64,
    events: u64,
}

/// What the broker has to do about a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LinkStep {
    Stays,
    /// Ask the consumer to listen.
    Ask {
        link: u32,
    },
    Recall {
        link: u32,
    },
}

impl DirectSupplier {
    /// Arranges the link for the topic's present consumer. `None`: the events have to go through the broker.
    pub(super) fn arrange(&mut self, wanted: Option<ConsumerId>, last_link: &mut u32) -> LinkStep {
        let linked = self.links.iter().next().map(|(consumer, it)| (*consumer, it.link));
        if wanted.is_some() && wanted == linked.map(|(consumer, _)| consumer) {
            return LinkStep::Stays;
        }
        if self.state == DirectState::Introduced {
            self.state = DirectState::Recalled;
            return LinkStep::Recall { link: linked.map_or(0, |(_, link)| link) };
        }
        (self.links, self.state) = (SortedMap::default(), DirectState::Brokered);
        let Some(consumer) = wanted else { return LinkStep::Stays };
        *last_link = last_link.wrapping_add(1);
        let link = *last_link;
        self.links.insert(consumer, IntroducedLink { link, used: false });
        self.state = DirectState::Asked;
        LinkStep::Ask { link }
    }
}

impl DirectRings {
    /// Sets the secret from which the keys of links are made.
    pub(in crate::broker) fn draw_keys_from(&mut self, secret: [u8; 32]) {
        self.tcp.secret = secret;
    }
}

impl TcpLinks {
    /// Returns whether a supplier's program may try to connect to a consumer's.
    pub(super) fn may_connect(
        &self,
        clients: &NumberMap<ClientId, ConnectedClient>,
        supplier: ClientId,
        consumer: ClientId,
    ) -> bool {
        let is_loopback = |client| match clients.get(&client).map(|connected| connected.peer) {
            Some(TransportPeer::Address(address)) => address.to_canonical().is_loopback(),
            _ => false,
        };
        // the address of a program on the broker's own host means another host elsewhere
        !self.unreached.contains(&(supplier, consumer)) && (!is_loopback(consumer) || is_loopback(supplier))
    }

    /// Returns the keys of a link, which only its two ends get.
    fn keys(&self, link: u32) -> LinkKeys {
        let key = |end: &[u8]| {
            let mut hash = Sha256::new();
            hash.update(self.secret);
            hash.update(link.to_le_bytes());
            hash.update(end);
            hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
        };
        LinkKeys { supplier: key(b"supplier"), consumer: key(b"consumer") }
    }

    pub(super) fn listen(&self, link: u32) -> RingOrder {
        RingOrder::Listen { link, keys: self.keys(link) }
    }

    /// Begins to wait until a supplier has left its link, because the consumers have changed.
    pub(super) fn begin_recall(&mut self, now: Instant, of: (ClientId, u32), link: u32) {
        self.recalled.push(RecalledLink { of, link, has_arrived: false, until: now + CHANGE_TIMEOUT });
    }

    /// Does the same because the supplier no longer has the right to direct links.
    pub(super) fn begin_revocation(&mut self, now: Instant, of: (ClientId, u32), link: u32) {
        self.recalled.push(RecalledLink { of, link, has_arrived: false, until: now + REVOKE_TIMEOUT });
    }

    /// Shortens the wait for a supplier that was recalled before its right ended.
    pub(super) fn shorten_recall(&mut self, now: Instant, of: (ClientId, u32)) {
        let theirs = self.recalled.iter_mut().filter(|it| it.of == of);
        theirs.for_each(|it| it.until = it.until.min(now + REVOKE_TIMEOUT));
    }

    /// Records that a recalled supplier has left its link, or is gone.
    pub(super) fn end_recall(&mut self, of: (ClientId, u32)) {
        self.recalled.retain(|it| it.of != of);
    }

    /// Records that nobody has to wait until a supplier has its recall, because it has left its link before.
    pub(super) fn needs_no_recall(&mut self, of: (ClientId, u32)) {
        let theirs = self.recalled.iter_mut().filter(|it| it.of == of);
        theirs.for_each(|it| it.has_arrived = true);
    }

    pub(super) fn forget_consumer(&mut self, consumer: ConsumerId) {
        self.left.retain(|_, it| it.consumer != consumer);
    }

    /// Records the links that a supplier has left after `events` events. If a consumer reports fewer, the
    /// others are lost.
    pub(super) fn note_left(
        &mut self,
        links: impl Iterator<Item = (ConsumerId, u32)>,
        (client, supplier, topic): (ClientId, SupplierId, TopicId),
        (last, events): (u64, u64),
    ) {
        for (consumer, link) in links {
            self.left.insert(link, LeftLink { consumer, client, supplier, topic, last, events });
        }
        while self.left.len() > MAX_LEFT {
            self.left.pop_first();
        }
    }

    pub(super) fn has_left(&self, link: u32) -> bool {
        self.left.contains_key(&link)
    }
}

impl Broker {
    /// Allows programs that are connected over TCP without TLS to exchange events without the broker.
    #[must_use]
    pub fn with_direct_tcp(mut self) -> Self {
        self.direct.tcp.is_allowed = true;
        self
    }

    /// Returns whether a program may make direct links over TCP, if it understands them.
    pub(in crate::broker) fn offers_links(&self, client: ClientId) -> bool {
        let is_plain = |client: &ConnectedClient| {
            matches!(client.peer, TransportPeer::Address(_)) && client.secured.is_none()
        };
        self.direct.tcp.is_allowed && self.clients.get(&client).is_some_and(is_plain)
    }

    pub(super) fn takes_links(&mut self, client: ClientId) {
        let offered = self.offers_links(client);
        if let Some(connected) = self.clients.get_mut(&client) {
            connected.takes_links = offered;
        }
    }

    /// Tells a supplier where the consumer of its topic listens. Port 0: it cannot listen.
    pub(super) fn listens(&mut self, reader: (ClientId, u32), link: u32, port: u16) {
        let Some((of, name, blocks)) = self.asked(reader, link) else { return };
        let peer = self.clients.get(&reader.0).map(|connected| connected.peer);
        let Some(TransportPeer::Address(address)) = peer else { return };
        if port == 0 {
            return self.go_through_broker(link, "it cannot listen");
        }
        let Some(at) = self.direct.suppliers.get_mut(&of) else { return };
        at.state = DirectState::Introduced;
        let address = SocketAddr::new(address.to_canonical(), port);
        let keys = self.direct.tcp.keys(link);
        let order = RingOrder::Connect { link, consumer: name, blocks, address, keys };
        self.tasks.push_back(order_task(of.0, of.1, order));
        self.audit_link(of.0, link);
    }

    /// Returns the supplier of a link whose consumer was asked to listen, the consumer's name, and whether it
    /// blocks the supplier.
    fn asked(&self, reader: (ClientId, u32), link: u32) -> Option<((ClientId, u32), String, bool)> {
        let (of, consumer) = self.direct.find(link)?;
        let known = self.direct.readers.get(&consumer)?;
        let is_asked = self.direct.suppliers.get(&of)?.state == DirectState::Asked;
        let is_theirs = (known.client, known.number) == reader && is_asked;
        is_theirs.then(|| (of, known.name.to_string(), known.blocks.is_some()))
    }

    /// Handles a supplier's report that it has no connection to the consumer of a link.
    pub(super) fn unreached(&mut self, supplier: (ClientId, u32), link: u32, why: &str) {
        let is_tcp = self.direct.suppliers.get(&supplier).is_some_and(|at| at.way == DirectWay::Tcp);
        // a ring's socket waits in the server until its consumer reads it
        if is_tcp && self.direct.find(link).is_some_and(|(of, _)| of == supplier) {
            self.go_through_broker(link, why);
        }
    }

    /// Gives up a link that is not in use, and tells the operator once for each pair of programs.
    fn go_through_broker(&mut self, link: u32, why: &str) {
        let Some((of, consumer)) = self.direct.find(link) else { return };
        self.note_unreached(of.0, consumer, why);
        if let Some(at) = self.direct.suppliers.get_mut(&of)
            && matches!(at.state, DirectState::Asked | DirectState::Introduced)
            && at.last.is_none()
        {
            (at.state, at.links) = (DirectState::Brokered, SortedMap::default());
            self.direct.changed.insert(at.topic);
        }
    }

    /// Introduces these two programs no more.
    fn note_unreached(&mut self, client: ClientId, consumer: ConsumerId, why: &str) {
        let Some(reader) = self.direct.readers.get(&consumer) else { return };
        if self.direct.tcp.unreached.insert((client, reader.client)) {
            let supplier = self.clients.get(&client).map(|connected| &*connected.name).unwrap_or_default();
            let why: String = why.chars().filter(|it| !it.is_control()).take(MAX_REASON).collect();
            let text = format!(
                "events of {supplier} for {} go through the broker, without a direct connection: {why}",
                reader.name
            );
            self.tasks.push_back(Task::Note { text });
        }
    }

    /// Compares what a consumer got by a link with the number of events that the supplier has reported.
    /// Events that did not come make the consumer wait for them, so such a supplier is not introduced to it
    /// again.
    pub(super) fn settle_link(&mut self, reader: (ClientId, u32), link: u32, (taken, broken): (u64, bool)) {
        let Some(left) = self.direct.tcp.left.get(&link).copied() else { return };
        let known = self.direct.readers.get(&left.consumer);
        if known.is_none_or(|known| (known.client, known.number) != reader) {
            return;
        }
        self.direct.tcp.left.remove(&link);
        let lost = left.events.saturating_sub(taken).min(MAX_OF_REPORT);
        if lost > 0 {
            let first = left.last.saturating_add(taken).saturating_add(1);
            self.report_loss(left.consumer, (left.supplier, left.topic), (first, lost));
        }
        if lost > 0 || broken {
            self.note_unreached(left.client, left.consumer, "not all of a link's events came");
            self.direct.changed.insert(left.topic);
        }
    }

    /// Accepts a subscription, once the suppliers that it recalls have been told.
    pub(in crate::broker) fn accept_consumer(&mut self, client: ClientId, number: u32) {
        self.accept_subscription(client, HeldSubscription::Program { number });
    }

    /// Does the same for the subscriptions of an MQTT client; `packet` is the answer.
    pub(in crate::broker) fn accept_filters(
        &mut self,
        client: ClientId,
        session: MqttSessionId,
        packet: Vec<u8>,
    ) {
        self.accept_subscription(client, HeldSubscription::Mqtt { session, packet });
    }

    fn accept_subscription(&mut self, client: ClientId, subscription: HeldSubscription) {
        let links = self.links_before(client, &subscription);
        if links.is_empty() {
            self.answer_subscription(client, subscription);
        } else {
            self.direct.tcp.held.push(HeldAnswer { client, subscription, links });
        }
    }

    fn answer_subscription(&mut self, client: ClientId, subscription: HeldSubscription) {
        match subscription {
            HeldSubscription::Program { number } => self.answer(client, &Frame::Accepted { number }),
            HeldSubscription::Mqtt { session, packet } => self.confirm_change(client, session, packet),
        }
    }

    /// Returns the links whose suppliers may not know yet of a subscription of this program.
    fn links_before(&mut self, client: ClientId, subscription: &HeldSubscription) -> Vec<u32> {
        if !self.direct.tcp.is_allowed {
            return Vec::new();
        }
        self.counters.work += self.direct.suppliers.len() / 64;
        let uses_links = |at: &DirectSupplier| at.way == DirectWay::Tcp && at.state != DirectState::Brokered;
        if !self.direct.suppliers.values().any(uses_links) {
            return Vec::new();
        }
        self.update_links();
        let is_theirs = |addressee: Option<&Addressee>| match (addressee, subscription) {
            (Some(Addressee::Mqtt(it)), HeldSubscription::Mqtt { session, .. }) => it == session,
            (Some(Addressee::Program { client: of, number: it }), HeldSubscription::Program { number }) => {
                (*of, it) == (client, number)
            }
            _ => false,
        };
        // a program's own recall is before the answer in its connection
        let others = self.direct.tcp.recalled.iter().filter(|it| !it.has_arrived && it.of.0 != client);
        let mut links = Vec::new();
        for RecalledLink { of, link, .. } in others {
            let Some(topic) = self.direct.suppliers.get(of).map(|at| at.topic) else { continue };
            // `None`: a group is among the consumers
            let audience = self.channel.audience_of(topic);
            let gets = |it: &ConsumerId| is_theirs(self.addressees.by_consumer.get(it));
            if audience.is_none_or(|audience| audience.iter().any(gets)) {
                links.push(*link);
            }
        }
        links
    }

    /// Returns the suppliers' programs whose kernels have to acknowledge a recall before a subscription is
    /// accepted. The caller asks after it has sent all tasks.
    pub fn awaited_suppliers(&self) -> Vec<ClientId> {
        let TcpLinks { held, recalled, .. } = &self.direct.tcp;
        let awaited = recalled.iter().filter(|_| !held.is_empty()).filter(|it| !it.has_arrived);
        awaited.map(|it| it.of.0).collect()
    }

    /// Records that a program's kernel has all frames that were sent to the program.
    pub fn frames_arrived(&mut self, client: ClientId) {
        let theirs = self.direct.tcp.recalled.iter_mut().filter(|it| it.of.0 == client);
        theirs.for_each(|it| it.has_arrived = true);
    }

    /// Ends links whose suppliers have not left them in time, and accepts the subscriptions that waited for
    /// suppliers. Returns whether there were any.
    pub(in crate::broker) fn run_links(&mut self, now: Instant) -> bool {
        let tcp = &mut self.direct.tcp;
        if tcp.recalled.is_empty() && tcp.held.is_empty() {
            return false;
        }
        let over: Vec<RecalledLink> = tcp.recalled.extract_if(.., |it| it.until <= now).collect();
        let TcpLinks { recalled, held, .. } = tcp;
        let waits = |it: &RecalledLink, links: &[u32]| !it.has_arrived && links.contains(&it.link);
        let due = held.extract_if(.., |it| !recalled.iter().any(|recalled| waits(recalled, &it.links)));
        let due: Vec<HeldAnswer> = due.collect();
        let is_any = !over.is_empty() || !due.is_empty();
        for RecalledLink { link, .. } in over {
            let reader = self.direct.find(link).and_then(|(_, it)| self.direct.readers.get(&it));
            if let Some((client, number)) = reader.map(|reader| (reader.client, reader.number)) {
                self.answer(client, &Frame::Ring { number, order: RingOrder::Cut { link } });
            }
        }
        for HeldAnswer { client, subscription, .. } in due {
            self.answer_subscription(client, subscription);
        }
        is_any
    }

    /// Returns when [`run_links`](Self::run_links) is due next.
    pub(in crate::broker) fn links_due(&self) -> Option<Instant> {
        let TcpLinks { recalled, held, .. } = &self.direct.tcp;
        let asks = (!held.is_empty()).then(|| self.timers.last_call() + ACKNOWLEDGED_POLL);
        recalled.iter().map(|it| it.until).chain(asks).min()
    }

    /// Ends the links of a supplying program whose connection the broker ends. Otherwise, their consumers
    /// would take events for as long as the program goes on sending, up to the time limit for the rest of a
    /// link.
    pub(in crate::broker) fn cut_links_of(&mut self, client: ClientId) {
        let theirs = self.direct.suppliers.range((client, 0)..=(client, u32::MAX));
        let links = theirs.filter(|(_, at)| at.way == DirectWay::Tcp).flat_map(|(_, at)| at.links.iter());
        let cuts = links.filter_map(|(consumer, it)| {
            let reader = self.direct.readers.get(consumer)?;
            Some((reader.client, reader.number, it.link))
        });
        let cuts: Vec<_> = cuts.collect();
        for (client, number, link) in cuts {
            self.answer(client, &Frame::Ring { number, order: RingOrder::Cut { link } });
        }
    }

    /// Forgets what is known about the links of a program that is gone.
    pub(in crate::broker) fn forget_links_of(&mut self, client: ClientId) {
        let tcp = &mut self.direct.tcp;
        tcp.unreached.retain(|(supplier, consumer)| *supplier != client && *consumer != client);
        tcp.held.retain(|it| it.client != client);
    }
}
