//! Paths: the broker forwards a program's events on a path to an address, at the policy's rate.
//!
//! An event costs credit of its path and waits in the inbox of the path's consumer. When the link is free,
//! the scheduler chooses the next event by the shares of the classes; the event is sent, and its credit is
//! returned. When a destination takes no more bytes (a connection whose window is full), the path *stalls*:
//! its consumer is paused, and no other path waits for it. Events that it holds count against the credit, so
//! that memory has a bound.

use super::{Addressee, Broker, ConnectedClient, Outlet};
use crate::account::Account;
use crate::body::EventBody;
use crate::permissions::RefusalKind;
use crate::task::{ClientId, PathId, Sent, Task};
use std::collections::HashMap;
use unisono_eventchannel::{
    ChannelError, ClassChange, ConsumerId, ConsumerSpec, Delivery, DispatchOrder, EventPayload,
    InboxCapacity, InboxSpec, Interest, NO_DEADLINE, NumberMap, Offer, Publication, SupplierId, TopicId,
    TopicSpec,
};
use unisono_events_wire::Destination;
use unisono_events_wire::PathSpec;
use unisono_events_wire::frame::Frame;
use unisono_events_wire::transport::TransportPeer;
use unisono_fairqueue::{ClassId, Hierarchy, LinkPace, Order};
use unisono_linux::clock::{Duration, Instant};
use unisono_text::nearest;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PathState {
    /// The path's socket is being opened.
    Opening,
    Open,
    /// The path accepts no more events; the remaining ones are sent.
    Draining,
    /// The destination is gone; the program has been told.
    Broken,
}

#[derive(Debug)]
pub(super) struct ForwardingPath {
    /// The path's program; `None` once it has gone.
    pub(super) client: Option<ClientId>,
    /// The peer of the present or former program.
    pub(super) peer: TransportPeer,
    /// The time when the program left the path, or, if it is later, the last time when the destination took
    /// bytes.
    pub(super) alone_since: Instant,
    pub(super) number: u32,
    pub(super) class: ClassId,
    pub(super) destination: Destination,
    pub(super) state: PathState,
    /// The supplier and the consumer of the path in the channel.
    supplier: SupplierId,
    topic: TopicId,
    pub(super) consumer: ConsumerId,
    /// The credit that events on the path have used.
    pub(super) outstanding: u32,
    /// Free credit that has not been returned to the program.
    owed: u32,
    /// Whether the program waits until all credit is returned.
    flushing: bool,
    pub(super) stalled: bool,
    /// The cost of the events kept at the socket.
    pub(super) kept: u32,
}

/// The link of the paths, and the paths.
#[derive(Debug)]
pub(super) struct PathLink {
    /// `None`: there are no paths.
    pub(super) pace: Option<LinkPace>,
    /// The traffic of the leaf classes, in the order of the policy.
    pub(super) accounts: Vec<(ClassId, Account)>,
    pub(super) paths: NumberMap<PathId, ForwardingPath>,
    last_path: u32,
    in_service: Option<PathInService>,
    /// The transmission time of the message on the link. `None`: the link is free.
    pub(super) on_link: Option<Duration>,
}

impl PathLink {
    pub(super) fn new(leaves: impl Iterator<Item = ClassId>) -> Self {
        Self {
            pace: None,
            accounts: leaves.map(|class| (class, Account::default())).collect(),
            paths: NumberMap::default(),
            last_path: 0,
            in_service: None,
            on_link: None,
        }
    }

    /// Changes to other classes; a class that is still a leaf keeps its account.
    pub(super) fn change_classes(&mut self, before: &Hierarchy, change: &ClassChange) {
        let hierarchy = change.hierarchy();
        let mut former: HashMap<&str, Account> = std::mem::take(&mut self.accounts)
            .into_iter()
            .map(|(class, account)| (before.class(class).name.as_str(), account))
            .collect();
        let leaves = hierarchy.classes().filter(|(id, _)| hierarchy.is_leaf(*id));
        self.accounts =
            leaves.map(|(id, class)| (id, former.remove(class.name.as_str()).unwrap_or_default())).collect();
        for path in self.paths.values_mut() {
            path.class = change.home(path.class).unwrap_or(path.class);
        }
        if let Some(service) = &mut self.in_service {
            service.class = change.home(service.class).unwrap_or(service.class);
        }
    }

    /// Returns when the message on the link will have left, if that is later than now.
    pub(super) fn busy_until(&self, now: Instant) -> Option<Instant> {
        self.pace.as_ref().map(LinkPace::free_at).filter(|free_at| now < *free_at)
    }

    fn account(&mut self, class: ClassId) -> Option<&mut Account> {
        self.accounts.iter_mut().find(|(id, _)| *id == class).map(|(_, account)| account)
    }
}

/// The path whose message is being sent.
#[derive(Debug)]
struct PathInService {
    path: PathId,
    class: ClassId,
    came: Instant,
    deadline: Instant,
    length: u32,
    cost: u32,
}

impl Broker {
    /// Returns whether all events on paths have left.
    pub fn is_empty(&self) -> bool {
        self.link.paths.values().all(|path| path.outstanding == 0)
    }

    pub(super) fn open(
        &mut self,
        now: Instant,
        client: ClientId,
        number: u32,
        spec: PathSpec,
    ) -> Result<(), String> {
        let ConnectedClient { peer, outlets, .. } = self.clients.get(&client).ok_or("it is gone")?;
        if outlets.contains_key(&number) {
            return Err(format!("the number {number} is in use already; close it first"));
        }
        match self.try_open(now, (client, *peer), (number, outlets.len()), spec) {
            Ok(id) => {
                if let Some(connected) = self.clients.get_mut(&client) {
                    connected.outlets.insert(number, Outlet::Path(id));
                }
            }
            Err(reason) => {
                self.access.end_refused();
                self.answer(client, &Frame::Closed { number, reason: &reason });
            }
        }
        Ok(())
    }

    fn try_open(
        &mut self,
        now: Instant,
        (client, peer): (ClientId, TransportPeer),
        (number, outlets): (u32, usize),
        PathSpec { class, destination }: PathSpec,
    ) -> Result<PathId, String> {
        if self.clients.get(&client).is_some_and(|connected| !connected.grant.paths) {
            self.access.count(RefusalKind::Paths);
            return Err(
                "the permissions allow no paths to this client; add `paths = true` to its rule".to_owned()
            );
        }
        if self.link.pace.is_none() {
            self.access.count(RefusalKind::Paths);
            return Err(
                "this broker serves events alone; `unisono queue broker POLICY` serves paths".to_owned()
            );
        }
        let hierarchy = self.channel.hierarchy();
        let found = if class.is_empty() { hierarchy.default_class() } else { hierarchy.find(&class) };
        let class_id = match found {
            None if class.is_empty() => return Err("the policy has no default class; name one".to_owned()),
            None => {
                let names = hierarchy.classes().map(|(_, known)| &*known.name);
                let meant = match nearest(&class, names) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "name one that the broker's policy file has".to_owned(),
                };
                return Err(format!("the policy has no class `{class}`; {meant}"));
            }
            Some(id) if !hierarchy.is_leaf(id) => {
                return Err(format!("the class `{class}` has children; name one of its leaves"));
            }
            Some(id) => id,
        };
        let class = hierarchy.class(class_id).name.clone();
        if outlets >= self.limits.topics {
            self.access.count(RefusalKind::Limit);
            return Err(format!("a program may have {} topics and paths; close one", self.limits.topics));
        }
        self.check_memory_of_peer(peer, u64::from(self.limits.credit))?;
        self.link.last_path += 1; // 2^32 paths later the numbers would come again: 4 years at 30 a second
        let id = PathId(self.link.last_path);
        let told = |error: ChannelError| error.to_string();
        let spec = TopicSpec::new(&format!("$path/{}", id.0)).map_err(|error| error.to_string())?;
        let pattern = spec.name.parse().expect("a name without wildcards is a pattern");
        let (tenant, keeping) = (self.tenant(client), self.terms_of_names(client));
        let topic = self.channel.declare_by((tenant, &keeping), spec).map_err(told)?;
        let inbox = InboxSpec {
            class: Some(class.as_str().into()),
            // the path's credit bounds the inbox
            capacity: InboxCapacity { events: usize::MAX, bytes: usize::MAX },
            order: DispatchOrder::Publication, // the messages may be pieces of a stream
            ..InboxSpec::default()
        };
        let consumer = ConsumerSpec { tenant, ..ConsumerSpec::new(&destination.to_string()).with(inbox) };
        let ends = self.path_ends(now, topic, consumer, Interest::in_topics(pattern));
        let (supplier, consumer) = ends.map_err(|error| {
            // the topic has no supplier: everything made for the path is removed again
            let _ = self.channel.retire(topic);
            told(error)
        })?;
        self.addressees.by_consumer.insert(consumer, Addressee::Path(id));
        let path = ForwardingPath {
            client: Some(client),
            peer,
            alone_since: Instant::ZERO,
            number,
            class: class_id,
            destination: destination.clone(),
            state: PathState::Opening,
            supplier,
            topic,
            consumer,
            outstanding: 0,
            owed: 0,
            flushing: false,
            stalled: false,
            kept: 0,
        };
        self.link.paths.insert(id, path);
        self.ledger.book(peer, self.limits.credit.into());
        self.tasks.push_back(Task::Open { path: id, destination });
        Ok(id)
    }

    /// Makes the two ends of a path in the channel. If one fails, both are removed.
    fn path_ends(
        &mut self,
        now: Instant,
        topic: TopicId,
        spec: ConsumerSpec,
        interest: Interest,
    ) -> Result<(SupplierId, ConsumerId), ChannelError> {
        let supplier = self.channel.supplier_of(spec.tenant, now, None)?;
        let made = self.channel.offer(supplier, Offer::new(topic)).and_then(|()| {
            let consumer = self.channel.connect(now, spec)?;
            match self.channel.subscribe(now, consumer, interest) {
                Ok(_) => Ok((supplier, consumer)),
                Err(error) => {
                    self.channel.disconnect_unseen(now, consumer);
                    Err(error)
                }
            }
        });
        if made.is_err() {
            self.channel.withdraw(supplier);
        }
        made
    }

    /// Records that a path's socket is open; `stalled` if it takes no bytes yet.
    pub fn opened(&mut self, id: PathId, stalled: bool) {
        let Some(path) = self.link.paths.get_mut(&id) else { return };
        path.stalled = stalled;
        if stalled {
            self.channel.pause(path.consumer);
        }
        if path.state == PathState::Opening {
            path.state = PathState::Open;
            if let Some(client) = path.client {
                let frame = Frame::Opened { number: path.number, credit: self.limits.credit };
                self.tasks.answer(client, &frame);
            }
        }
    }

    pub(super) fn publish_on_path(
        &mut self,
        now: Instant,
        id: PathId,
        body: EventBody,
    ) -> Result<(), String> {
        let (bytes, largest) = (body.length(), self.limits.path_largest as usize);
        if bytes > largest {
            return Err(format!("a payload of {bytes} bytes on a path; the largest has {largest}"));
        }
        self.end_service(now);
        let path = self.link.paths.get_mut(&id).ok_or("its path is gone")?;
        let number = path.number;
        match path.state {
            PathState::Open => {}
            PathState::Broken => return Ok(()), // sent before the program could know
            PathState::Opening => return Err(format!("an event on path {number} before it was opened")),
            PathState::Draining => return Err(format!("an event on path {number} after it was closed")),
        }
        let cost = unisono_events_wire::credit_cost(bytes);
        let used = path.outstanding.saturating_add(path.owed).saturating_add(cost);
        if used > self.limits.credit {
            return Err(format!("more on path {number} than its credit of {} bytes", self.limits.credit));
        }
        path.outstanding += cost;
        let (supplier, topic, class) = (path.supplier, path.topic, path.class);
        let orders = self.channel.hierarchy().class(class).order == Order::Deadline;
        // a message past its deadline is still sent, and counted as late
        let deadline = (orders && body.due != NO_DEADLINE).then_some(body.due.max(now));
        let publication = Publication { deadline, ..Publication::new(body) };
        if self.channel.try_publish(now, supplier, topic, publication).is_err() {
            self.lose(class);
            self.return_credit(id, cost);
        }
        Ok(())
    }

    pub(super) fn close(&mut self, now: Instant, client: ClientId, number: u32) -> Result<(), String> {
        let theirs = &mut self.clients.get_mut(&client).ok_or("it is gone")?.outlets;
        let known = theirs.remove(&number);
        match known.ok_or_else(|| format!("number {number} cannot be closed: it was never opened"))? {
            Outlet::Topic { supplier, topic, held } => {
                self.release_for_client(client, held);
                self.remove_direct_supplier(client, number);
                if self.leave_supplier(supplier, topic) {
                    self.channel.withdraw(supplier);
                }
            }
            Outlet::Path(path) => self.leave(now, path),
        }
        Ok(())
    }

    /// Takes a path from its program, which has closed the path or has gone: no more events come on it.
    pub(super) fn leave(&mut self, now: Instant, id: PathId) {
        let Some(path) = self.link.paths.get_mut(&id) else { return };
        (path.client, path.alone_since) = (None, now);
        if path.state != PathState::Broken {
            path.state = PathState::Draining;
        }
        self.forget_if_empty(id);
    }

    /// Forgets a path without a program and without events.
    pub(super) fn forget_if_empty(&mut self, id: PathId) {
        let Some(path) = self.link.paths.get(&id) else { return };
        if path.client.is_none() && path.outstanding == 0 {
            if path.state == PathState::Draining {
                self.tasks.push_back(Task::Release { path: id });
            }
            let (supplier, consumer, topic) = (path.supplier, path.consumer, path.topic);
            self.ledger.release(path.peer, self.limits.credit.into());
            self.link.paths.remove(&id);
            self.addressees.remove(consumer);
            self.channel.withdraw(supplier);
            self.channel.disconnect_unseen(Instant::ZERO, consumer);
            self.channel.retire(topic).expect("its one supplier has been withdrawn on the lines above");
        }
    }

    /// Frees the credit of events that have left a path, sent or lost.
    pub(super) fn return_credit(&mut self, id: PathId, cost: u32) {
        let Some(path) = self.link.paths.get_mut(&id) else { return };
        path.outstanding -= cost.min(path.outstanding);
        path.owed += cost;
        self.pay(id);
        self.forget_if_empty(id);
    }

    /// Returns credit in halves, so that few answers wait for a program that rarely reads; returns all of it
    /// when the program waits for that.
    fn pay(&mut self, id: PathId) {
        let Some(path) = self.link.paths.get_mut(&id) else { return };
        let is_empty = path.flushing && path.outstanding == 0;
        let is_due = is_empty || path.owed >= self.limits.credit / 2;
        if is_due
            && path.state != PathState::Broken
            && let Some(client) = path.client
        {
            path.flushing &= !is_empty;
            let frame = Frame::Credit { number: path.number, bytes: std::mem::take(&mut path.owed) };
            self.tasks.answer(client, &frame);
        }
    }

    pub(super) fn flush(&mut self, client: ClientId, number: u32) -> Result<(), String> {
        let known = self.clients.get(&client).and_then(|client| client.outlets.get(&number)).copied();
        let Some(Outlet::Path(id)) = known else {
            return Err(format!("number {number} cannot be flushed: it is no path"));
        };
        if let Some(path) = self.link.paths.get_mut(&id) {
            path.flushing = true;
        }
        self.pay(id);
        Ok(())
    }

    pub(super) fn lose(&mut self, class: ClassId) {
        if let Some(account) = self.link.account(class) {
            account.lost += 1;
        }
    }

    /// Starts the service of an event on a path; returns the body to send, or `None` if the path is gone.
    pub(super) fn forward(
        &mut self,
        now: Instant,
        id: PathId,
        delivery: Delivery<EventBody>,
    ) -> Option<EventBody> {
        let event = delivery.event?.event;
        let cost = unisono_events_wire::credit_cost(event.payload.length());
        let path = self.link.paths.get(&id)?;
        let class = path.class;
        let length = path.destination.wire_length(event.payload.length());
        let pace = self.link.pace.as_mut()?;
        pace.carry(now, length);
        self.link.on_link = Some(pace.time_of(length));
        let (came, deadline) = (event.published, event.payload.due);
        self.link.in_service = Some(PathInService { path: id, class, came, deadline, length, cost });
        Some(event.payload.clone())
    }

    /// Charges the class of a message that has left the link. The class is not charged earlier, so that a
    /// message of another class that arrives during a transmission goes before the next message of this
    /// class.
    pub(super) fn end_service(&mut self, now: Instant) {
        if self.link.pace.as_ref().is_some_and(|pace| pace.free_at() <= now)
            && let Some(took) = self.link.on_link.take()
        {
            self.channel.finish(now, Some(took));
        }
    }

    /// Records the result of sending the message that [`next`](Self::next) chose.
    pub fn transmitted(&mut self, now: Instant, sent: Sent) {
        let Some(PathInService { path: id, class, came, deadline, length, cost }) =
            self.link.in_service.take()
        else {
            return;
        };
        if sent == Sent::Lost {
            self.lose(class);
        } else {
            if let Some(account) = self.link.account(class) {
                account.sent(now, came, deadline, length);
            }
        }
        match self.link.paths.get_mut(&id) {
            Some(path) if sent == Sent::Kept => {
                path.kept += cost;
                path.stalled = true;
                self.channel.pause(path.consumer);
            }
            _ => self.return_credit(id, cost),
        }
    }

    /// Records that the kept bytes of a path's socket have left, and that it takes more.
    pub fn drained(&mut self, now: Instant, id: PathId) {
        let Some(path) = self.link.paths.get_mut(&id) else { return };
        (path.stalled, path.alone_since) = (false, now);
        self.channel.resume(path.consumer);
        let kept = std::mem::take(&mut path.kept);
        if kept > 0 {
            self.return_credit(id, kept);
        }
    }
}
