//! Direct rings: suppliers publish straight to consumers, through shared memory. `tcp.rs` has the links that
//! do the same between hosts.
//!
//! A supplier's topic is *direct* while every consumer of the topic may read rings and the links stay within
//! the limits below. The broker introduces the two ends of each *link*. When a consumer that cannot read
//! rings subscribes to the topic, the broker recalls the supplier. An order to introduce or to recall a
//! supplier is announced by a word in shared memory, which the supplier reads before it publishes. The broker
//! writes that word before it answers the consumer. So when a supplier publishes, it knows every consumer
//! that was accepted before, even if the supplier's connection was full and the order itself had to wait.
//!
//! ```text
//!   Brokered --Supply--> Introduced --Supplies--> Introduced --Recall--> Recalled --Left--> Brokered
//! ```
//! The supplier's event numbers keep the order at both changes. `Supplies` follows its last event that came
//! through the broker. The consumer begins to read the ring when it has taken all earlier events from the
//! broker (`Begin`). `Left` precedes the next event through the broker. If the broker delivers an event with
//! a higher number than the last event before the ring, the consumer empties the ring first.

mod audiences;
mod counts;
mod tcp;

use super::{Broker, ConnectedClient};
use crate::sorted_map::SortedMap;
use crate::task::{ClientId, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tcp::{DirectWay, LinkStep, TcpLinks};
use unisono_eventchannel::{
    BlockedSuppliers, ConsumerId, InboxCounters, NumberMap, SupplierId, SupplierOwner, TopicId, give_back,
};
use unisono_events_wire::NoticeText;
use unisono_events_wire::frame::Frame;
use unisono_events_wire::{Advertisement, Durability, EventOrder, KeptHistory, SubscriptionSpec, WhenFull};
use unisono_events_wire::{DirectCounts, MAX_OF_REPORT, RingOrder, RingReport};

/// Maximum number of consumers of one direct supplier; with more, one copy into the broker is cheaper than
/// the sockets and pages of the links.
const MAX_LINKS: usize = 16;

/// All direct rings.
#[derive(Debug, Default)]
pub(super) struct DirectRings {
    suppliers: BTreeMap<(ClientId, u32), DirectSupplier>,
    readers: NumberMap<ConsumerId, DirectReader>,
    /// The suppliers of each topic.
    topics: BTreeMap<TopicId, BTreeSet<(ClientId, u32)>>,
    /// Topics whose suppliers or consumers have changed since the last arrangement.
    changed: BTreeSet<TopicId>,
    last_link: u32,
    /// Topics that wait until suppliers use their announced links.
    short: BTreeSet<TopicId>,
    /// Links whose consumers must first take events from the broker.
    waiting: Vec<WaitingLink>,
    tcp: TcpLinks,
}

/// A topic that a program may supply through rings, or over TCP.
#[derive(Debug)]
struct DirectSupplier {
    way: DirectWay,
    supplier: SupplierId,
    topic: TopicId,
    owner: SupplierOwner,
    /// Whether the supplier asks for the order of publication.
    in_order: bool,
    state: DirectState,
    /// The number of the supplier's last event before the ring.
    last: Option<u64>,
    links: SortedMap<ConsumerId, IntroducedLink>,
    /// Consumers that cannot read the ring, or have stopped reading it, each with the number of ring events
    /// that the consumer got: it has lost the others.
    cut_off: SortedMap<ConsumerId, u64>,
}

#[derive(Clone, Copy, Debug)]
struct IntroducedLink {
    link: u32,
    /// Whether the supplier has reported that it uses the link.
    used: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DirectState {
    Brokered,
    /// The consumer was asked to listen for a link over TCP.
    Asked,
    /// Links were announced to the supplier, which may use them from then on.
    Introduced,
    Recalled,
    /// Recalled because a link could not be made or has failed; the broker does not try again.
    GivenUp,
}

/// A consumer that may read rings, or links over TCP.
#[derive(Debug)]
struct DirectReader {
    way: DirectWay,
    client: ClientId,
    number: u32,
    name: Arc<str>,
    /// The suppliers that a full ring blocks; `None`: it drops events.
    blocks: Option<BlockedSuppliers>,
    events: usize,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct WaitingLink {
    link: u32,
    consumer: ConsumerId,
    supplier: SupplierId,
    topic: TopicId,
}

impl DirectRings {
    /// Returns the topic of a link, and the program that reads from it.
    pub(super) fn parties(&self, link: u32) -> Option<(TopicId, ClientId)> {
        let (of, consumer) = self.find(link)?;
        Some((self.suppliers.get(&of)?.topic, self.readers.get(&consumer)?.client))
    }

    fn add(&mut self, of: (ClientId, u32), supplier: DirectSupplier) {
        self.topics.entry(supplier.topic).or_default().insert(of);
        self.changed.insert(supplier.topic);
        self.suppliers.insert(of, supplier);
    }

    fn remove(&mut self, of: (ClientId, u32)) -> Option<DirectSupplier> {
        let supplier = self.suppliers.remove(&of)?;
        if let Some(suppliers) = self.topics.get_mut(&supplier.topic) {
            suppliers.remove(&of);
            if suppliers.is_empty() {
                self.topics.remove(&supplier.topic);
                self.short.remove(&supplier.topic);
            }
        }
        Some(supplier)
    }

    fn suppliers_of<'a>(
        &'a self,
        topics: &'a BTreeSet<TopicId>,
    ) -> impl Iterator<Item = (ClientId, u32)> + 'a {
        topics.iter().filter_map(|topic| self.topics.get(topic)).flatten().copied()
    }

    fn find(&self, link: u32) -> Option<((ClientId, u32), ConsumerId)> {
        self.suppliers.iter().find_map(|(of, supplier)| {
            let (consumer, _) = supplier.links.iter().find(|(_, it)| it.link == link)?;
            Some((*of, *consumer))
        })
    }
}

impl Broker {
    /// Records that descriptors can be passed to this program.
    pub fn passes_descriptors(&mut self, client: ClientId) {
        if let Some(connected) = self.clients.get_mut(&client) {
            connected.takes_descriptors = true;
        }
    }

    /// Registers a program's new topic for rings, if the program and the topic need no other service of the
    /// broker.
    pub(super) fn add_direct_supplier(
        &mut self,
        (client, number): (ClientId, u32),
        (supplier, topic): (SupplierId, TopicId),
        spec: &Advertisement,
    ) {
        // events for the log have to pass through the broker
        let plain = !self.is_kept(supplier)
            && spec.history == KeptHistory::None
            && (spec.exclusive, spec.durability) == (false, Durability::Received)
            && (&spec.period_ns, &spec.writer) == (&None, &None)
            && spec.from_elsewhere.is_none(); // its events have numbers of their own
        if let Some(connected) = self.clients.get(&client).filter(|_| plain)
            && let Some(way) = connected.direct_way()
        {
            let (state, links) = (DirectState::Brokered, SortedMap::default());
            let (owner, cut_off) = (connected.owner.of_supplier(), SortedMap::default());
            let in_order = spec.order == EventOrder::Publication;
            let last = None;
            let at = DirectSupplier { way, supplier, topic, owner, in_order, state, last, links, cut_off };
            self.direct.add((client, number), at);
        }
    }

    pub(super) fn add_direct_reader(
        &mut self,
        (client, number): (ClientId, u32),
        (consumer, blocked): (ConsumerId, BlockedSuppliers),
        spec: &SubscriptionSpec,
    ) {
        let Some(connected) = self.clients.get(&client) else { return };
        let Some(way) = connected.direct_way() else { return };
        if spec.may_read_rings() {
            let name = match &*spec.name {
                "" => Arc::clone(&connected.name),
                name => name.into(),
            };
            let blocks = (spec.full == WhenFull::BlockSupplier).then_some(blocked);
            let (events, bytes) = (spec.queue_events, spec.queue_bytes);
            let reader = DirectReader { way, client, number, name, blocks, events, bytes };
            self.direct.readers.insert(consumer, reader);
        }
    }

    pub(super) fn remove_direct_supplier(&mut self, client: ClientId, number: u32) {
        if let Some(at) = self.direct.remove((client, number)) {
            self.direct.tcp.end_recall((client, number));
            self.forget(at.links.into_iter().map(|(_, it)| it.link));
            self.idle_links_changed();
        }
    }

    /// Marks the topics that a program supplies to be arranged again, after its rights have changed.
    pub(super) fn rearrange_rings(&mut self, client: ClientId) {
        let theirs = self.direct.suppliers.range((client, 0)..=(client, u32::MAX));
        self.direct.changed.extend(theirs.map(|(_, at)| at.topic));
    }

    /// Marks the topics that waited for idle links to be arranged again.
    fn idle_links_changed(&mut self) {
        let mut short = std::mem::take(&mut self.direct.short);
        self.counters.work += short.len();
        self.direct.changed.append(&mut short);
    }

    pub(super) fn remove_direct_reader(&mut self, consumer: ConsumerId) {
        self.direct.readers.remove(&consumer);
        self.direct.tcp.forget_consumer(consumer);
        give_back(&mut self.direct.readers);
    }

    fn forget(&mut self, links: impl Iterator<Item = u32>) {
        links.for_each(|link| self.tasks.push_back(Task::Forget { link }));
    }

    /// Introduces and recalls suppliers after consumers have come or gone. These orders go out before all
    /// other tasks. Cost: a search of the consumers of each topic that may have changed, and a look at each
    /// link.
    pub(super) fn update_links(&mut self) {
        self.find_changed_audiences();
        if self.direct.changed.is_empty() {
            return;
        }
        let (audiences, mut counts) = self.drop_links();
        let (mut first, now) = (Vec::new(), self.timers.last_call());
        let topics: BTreeSet<TopicId> = audiences.keys().copied().collect();
        let affected: BTreeSet<_> = self.direct.suppliers_of(&topics).collect();
        let (clients, direct) = (&self.clients, &mut self.direct);
        let DirectRings { suppliers, readers, last_link, short, tcp, .. } = direct;
        short.retain(|topic| !topics.contains(topic));
        for (client, number) in &affected {
            let Some(at) = suppliers.get_mut(&(*client, *number)) else { continue };
            // rules that were read since the last arrangement may no longer allow the program rings
            let has_right = clients.get(client).and_then(ConnectedClient::direct_way) == Some(at.way);
            if matches!(at.state, DirectState::Recalled | DirectState::GivenUp) {
                if !has_right {
                    tcp.shorten_recall(now, (*client, *number));
                }
                continue;
            }
            let (way, audience) = (at.way, audiences.get(&at.topic).and_then(Option::as_ref));
            let may = audience.as_ref().is_some_and(|audience| {
                // one thread cannot wait for itself, and a ring cannot drop the events of one supplier and
                // block another one
                let may_read = |reader: &DirectReader| {
                    (reader.way == way && reader.client != *client)
                        && reader.blocks.is_none_or(|blocks| blocks.include(at.owner))
                        && (way == DirectWay::Memory || tcp.may_connect(clients, *client, reader.client))
                };
                has_right
                    && audience.len() <= way.max_links()
                    && audience.iter().all(|reader| readers.get(reader).is_some_and(may_read))
            });
            let audience = audience.map(Vec::as_slice).unwrap_or_default();
            let new = || audience.iter().filter(|it| !at.links.contains_key(it));
            let fits = may && counts.fit(*client, new().filter_map(|it| readers.get(it)));
            if may && !fits {
                short.insert(at.topic);
            }
            if way == DirectWay::Tcp {
                let wanted = audience.first().copied().filter(|_| fits);
                match at.arrange(wanted, last_link) {
                    LinkStep::Stays => {}
                    LinkStep::Recall { link } => {
                        match has_right {
                            true => tcp.begin_recall(now, (*client, *number), link),
                            false => tcp.begin_revocation(now, (*client, *number), link),
                        }
                        first.push(recall(*client, *number));
                    }
                    LinkStep::Ask { link } => {
                        if let Some(reader) = wanted.and_then(|consumer| readers.get(&consumer)) {
                            counts.add(*client, Some(reader), false);
                            let order = tcp.listen(link);
                            first.push(order_task(reader.client, reader.number, order));
                        }
                    }
                }
                continue;
            }
            if !fits {
                if at.state == DirectState::Introduced {
                    at.state = DirectState::Recalled;
                    first.push(recall(*client, *number));
                }
                continue;
            }
            new().for_each(|it| counts.add(*client, readers.get(it), false));
            for consumer in audience {
                let Some(reader) = readers.get(consumer) else { continue };
                at.links.get_or_insert_with(*consumer, || {
                    *last_link = last_link.wrapping_add(1);
                    let link = *last_link;
                    let DirectReader { events, bytes, .. } = *reader;
                    let blocks = reader.blocks.is_some();
                    let order =
                        RingOrder::Supply { link, consumer: reader.name.to_string(), blocks, events, bytes };
                    first.push(Task::Introduce { client: *client, link, head: frame(*number, order) });
                    at.state = DirectState::Introduced;
                    IntroducedLink { link, used: false }
                });
            }
        }
        self.audit_introductions(&first);
        for task in first.into_iter().rev() {
            self.tasks.push_front(task);
        }
    }

    /// Handles a program's [`RingReport`].
    pub(super) fn ring_report(
        &mut self,
        client: ClientId,
        number: u32,
        report: RingReport,
    ) -> Result<(), String> {
        match report {
            RingReport::Supplies { links } => self.supplies((client, number), &links),
            RingReport::Left { events, for_good, recalled } => {
                self.left((client, number), events, (for_good, recalled));
            }
            RingReport::Counted { topic, counts } => {
                if let Some(consumer) = self.counting_consumer(client, number, topic)? {
                    self.count_direct(consumer, TopicId(topic), counts.bounded());
                }
            }
            RingReport::DroppedLate { topic, events } => {
                if let Some(consumer) = self.counting_consumer(client, number, topic)? {
                    self.channel.count_late(consumer, TopicId(topic), events.min(MAX_OF_REPORT));
                }
            }
            RingReport::Refused { counts } => self.count_refused(client, number, counts)?,
            RingReport::TakesLinks {} => self.takes_links(client),
            RingReport::Listens { link, port } => self.listens((client, number), link, port),
            RingReport::Unreached { link, why } => self.unreached((client, number), link, &why),
            RingReport::Ended { link, taken, broken } if self.direct.tcp.has_left(link) => {
                self.settle_link((client, number), link, (taken, broken));
            }
            RingReport::Broken { link, taken } | RingReport::Ended { link, taken, .. } => {
                let reader = self.direct.find(link).and_then(|(_, it)| self.direct.readers.get(&it));
                if reader.is_some_and(|reader| (reader.client, reader.number) == (client, number)) {
                    self.cut_off(link, taken);
                    self.give_up(link);
                }
            }
        }
        Ok(())
    }

    /// Returns the consumer that reports counts of a topic, or `None` if it may not.
    fn counting_consumer(
        &self,
        client: ClientId,
        number: u32,
        topic: u32,
    ) -> Result<Option<ConsumerId>, String> {
        let connected = self.clients.get(&client);
        let known = connected.and_then(|client| client.consumers.get(&number));
        let (consumer, _) = *known.ok_or_else(|| format!("the consumer {number} was never there"))?;
        // A program learns a topic's name with the order to read its ring, or with the first event. If it
        // could count for other topics, the statistics would show it their names.
        Ok(connected.is_some_and(|client| client.named.has(TopicId(topic))).then_some(consumer))
    }

    fn supplies(&mut self, (client, number): (ClientId, u32), links: &[u32]) {
        let Some(at) = self.direct.suppliers.get_mut(&(client, number)) else {
            // the broker offers no more rings for this topic: a link has failed, or the supplier has left its
            // rings for good
            return self.tasks.push_front(recall(client, number));
        };
        let (way, supplier, topic, in_order) = (at.way, at.supplier, at.topic, at.in_order);
        let is_known = way == DirectWay::Memory || at.links.iter().any(|(_, it)| links.contains(&it.link));
        if !is_known && !matches!(at.state, DirectState::Recalled | DirectState::GivenUp) {
            // nobody reads that link
            at.state = DirectState::Recalled;
            let linked = at.links.iter().next().map_or(0, |(_, it)| it.link);
            let last = at.last.unwrap_or_else(|| self.channel.last_sequence(supplier, topic));
            self.direct.tcp.begin_recall(self.timers.last_call(), (client, number), linked);
            self.answer(client, &Frame::Ring { number, order: RingOrder::Numbered { last } });
            return self.tasks.push_front(recall(client, number));
        }
        let last = *at.last.get_or_insert_with(|| self.channel.last_sequence(supplier, topic));
        let mut supplied = Vec::new();
        for (consumer, it) in at.links.iter_mut().filter(|(_, it)| links.contains(&it.link)) {
            it.used = true;
            supplied.push((*consumer, it.link));
        }
        self.idle_links_changed();
        self.answer(client, &Frame::Ring { number, order: RingOrder::Numbered { last } });
        for (consumer, link) in supplied {
            let reader = self.direct.readers.get(&consumer);
            let Some((client, number)) = reader.map(|reader| (reader.client, reader.number)) else {
                continue;
            };
            self.name_topic(client, topic);
            let order = RingOrder::Read { link, topic: topic.0, supplier: supplier.0, last, in_order };
            match way {
                DirectWay::Memory => {
                    self.tasks.push_back(Task::Pass { client, link, head: frame(number, order) });
                }
                DirectWay::Tcp => self.answer(client, &Frame::Ring { number, order }),
            }
            self.direct.waiting.push(WaitingLink { link, consumer, supplier, topic });
        }
        self.grant_rings();
    }

    /// Tells consumers to begin with rings, once they have all earlier events that came through the broker.
    pub(super) fn grant_rings(&mut self) {
        if self.direct.waiting.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.direct.waiting);
        waiting.retain(|&WaitingLink { link, consumer, supplier, topic }| {
            let Some(reader) = self.direct.readers.get(&consumer) else { return false };
            let waits = self.channel.waits_from(consumer, supplier, topic);
            if !waits {
                let (client, number) = (reader.client, reader.number);
                self.answer(client, &Frame::Ring { number, order: RingOrder::Begin { link } });
            }
            waits
        });
        self.direct.waiting = waiting;
    }

    fn left(&mut self, of: (ClientId, u32), events: u64, (for_good, recalled): (bool, bool)) {
        let Some(at) = self.direct.suppliers.get_mut(&of) else { return };
        self.channel.skip_sequences(at.supplier, at.topic, events);
        let ends = for_good || at.state == DirectState::GivenUp;
        // its answer to the recall follows: another link would not outlast that
        let stays = at.way == DirectWay::Tcp && at.state == DirectState::Recalled && !recalled && !ends;
        if !stays {
            at.state = DirectState::Brokered;
        }
        let (supplier, topic, last) = (at.supplier, at.topic, at.last.take().unwrap_or_default());
        let (links, cut_off) = (std::mem::take(&mut at.links), std::mem::take(&mut at.cut_off));
        if at.way == DirectWay::Tcp {
            match stays {
                true => self.direct.tcp.needs_no_recall(of),
                false => self.direct.tcp.end_recall(of),
            }
            let used = links.iter().filter(|(consumer, it)| it.used && !cut_off.contains_key(consumer));
            let used = used.map(|(consumer, it)| (*consumer, it.link));
            self.direct.tcp.note_left(used, (of.0, supplier, topic), (last, events));
        }
        self.forget(links.into_iter().map(|(_, it)| it.link));
        self.direct.changed.insert(topic);
        self.idle_links_changed();
        if ends {
            self.direct.remove(of);
        }
        for (consumer, taken) in cut_off.into_iter().filter(|(_, taken)| *taken < events) {
            let first = last.saturating_add(taken).saturating_add(1);
            self.report_loss(consumer, (supplier, topic), (first, events - taken));
        }
    }

    /// Tells a consumer that it has lost the ring events that it could not read.
    fn report_loss(
        &mut self,
        consumer: ConsumerId,
        (supplier, topic): (SupplierId, TopicId),
        (first, lost): (u64, u64),
    ) {
        let Some(reader) = self.direct.readers.get(&consumer) else { return };
        let (client, number) = (reader.client, reader.number);
        self.name_topic(client, topic);
        let (last, cause) = (first.saturating_add(lost - 1), "not-received".to_owned());
        let notice = NoticeText::Gap { topic: topic.0, supplier: supplier.0, first, last, lost, cause };
        self.answer(client, &Frame::Notice { consumer: number, notice });
        self.count_direct(consumer, topic, DirectCounts { dropped_full: lost, ..Default::default() });
    }

    fn count_direct(&mut self, consumer: ConsumerId, topic: TopicId, counts: DirectCounts) {
        // a topic that never existed would be remembered for ever
        if self.channel.topic_spec(topic).is_none() {
            return;
        }
        let DirectCounts { delivered, dropped_full, dropped_late, missed } = counts;
        let matched = delivered.saturating_add(dropped_full).saturating_add(dropped_late);
        let counted =
            InboxCounters { matched, delivered, dropped_full, dropped_late, missed, ..Default::default() };
        self.channel.count_direct(consumer, topic, counted);
    }

    /// Returns the number of links that suppliers use.
    pub(super) fn direct_links(&self) -> u64 {
        let used = self.direct.suppliers.values().filter(|at| at.last.is_some());
        used.map(|at| at.links.len() as u64).sum()
    }

    /// Returns whether any supplier uses a link.
    pub fn has_direct_links(&self) -> bool {
        self.direct.suppliers.values().any(|at| at.last.is_some() && !at.links.is_empty())
    }

    /// Handles the failure of a link: the supplier's events come through the broker from now on.
    pub fn link_failed(&mut self, link: u32) {
        self.cut_off(link, 0);
        self.give_up(link);
    }

    /// Ends a consumer's use of a ring after `taken` events. The consumer gets the notice of the other events
    /// as lost when the supplier reports its number of events.
    fn cut_off(&mut self, link: u32, taken: u64) {
        if let Some((of, consumer)) = self.direct.find(link)
            && let Some(at) = self.direct.suppliers.get_mut(&of)
            && at.links.get(&consumer).is_some_and(|it| it.used)
        {
            at.cut_off.get_or_insert_with(consumer, || taken);
        }
    }

    fn give_up(&mut self, link: u32) {
        let Some(((client, number), _)) = self.direct.find(link) else { return };
        let Some(at) = self.direct.suppliers.get_mut(&(client, number)) else { return };
        if at.state == DirectState::Introduced {
            at.state = DirectState::GivenUp;
            if at.way == DirectWay::Tcp {
                self.direct.tcp.begin_recall(self.timers.last_call(), (client, number), link);
            }
            self.tasks.push_front(recall(client, number));
        }
    }
}

impl ConnectedClient {
    /// Returns how this program may exchange events without the broker, if it may. A lease is renewed by
    /// frames, not by events in rings; a rate or a size limited by permissions has to be checked by the
    /// broker.
    fn direct_way(&self) -> Option<DirectWay> {
        let free = self.lease.is_none() && self.grant.rate.is_none() && self.grant.size == usize::MAX;
        match free {
            true if self.takes_descriptors && self.understands_rings => Some(DirectWay::Memory),
            true if self.takes_links => Some(DirectWay::Tcp),
            _ => None,
        }
    }
}

fn recall(client: ClientId, number: u32) -> Task {
    order_task(client, number, RingOrder::Recall {})
}

fn order_task(client: ClientId, number: u32, order: RingOrder) -> Task {
    Task::Order { client, head: frame(number, order) }
}

fn frame(number: u32, order: RingOrder) -> Vec<u8> {
    let mut head = Vec::new();
    Frame::Ring { number, order }.write(&mut head);
    head
}
