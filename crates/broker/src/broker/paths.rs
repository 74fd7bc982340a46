//! Paths: the broker forwards a program's events on a path to an address, at the policy's rate.
//!
//! An event costs credit of its path and waits in the inbox of the path's consumer. When the link is free,
//! the shares of the classes choose the next event; it is sent, and its credit is returned. When a
//! destination takes no more bytes (a connection whose window is full), the path *stalls*: its consumer is
//! paused, and no other path waits for it. Events that it holds count against the credit, so that memory has
//! a bound.

use super::{Addressee, Broker, ConnectedClient, Outlet, answer};
use crate::body::EventBody;
use crate::destination::Destination;
use crate::frame::Frame;
use crate::limits::Limits;
use crate::permissions::RefusalKind;
use crate::spec::PathSpec;
use crate::task::{ClientId, PathId, Sent, Task};
use crate::transport::TransportPeer;
use unisono_eventchannel::{
    ChannelError, ConsumerId, ConsumerSpec, Delivery, EventPayload, InboxCapacity, InboxSpec, Interest,
    NO_DEADLINE, Offer, Publication, SupplierId, TopicId, TopicSpec,
};
use unisono_fairqueue::{ClassId, Order};
use unisono_linux::clock::Nanos;
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
    /// When the program left the path, or when the destination last took bytes since.
    pub(super) alone_since: Nanos,
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

/// The path whose message is being sent.
#[derive(Debug)]
pub(super) struct PathInService {
    path: PathId,
    class: ClassId,
    came: Nanos,
    deadline: Nanos,
    length: u32,
    cost: u32,
}

impl Broker {
    pub(super) fn open(
        &mut self,
        now: Nanos,
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
            Err(reason) => self.answer(client, &Frame::Closed { number, reason: &reason }),
        }
        Ok(())
    }

    fn try_open(
        &mut self,
        now: Nanos,
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
        if self.pace.is_none() {
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
            return Err(format!("a program may have {} topics and paths; close one", self.limits.topics));
        }
        if let Some(refused) = self.refuses_memory(peer, u64::from(self.limits.credit)) {
            return Err(refused);
        }
        self.next_path += 1; // 2^32 paths later the numbers would come again: 4 years at 30 a second
        let id = PathId(self.next_path);
        let told = |error: ChannelError| error.to_string();
        let spec = TopicSpec::new(&format!("$path/{}", id.0)).map_err(|error| error.to_string())?;
        let pattern = spec.name.parse().expect("a name without wildcards is a pattern");
        let (tenant, keeping) = (self.tenant(client), self.terms_of_names(client));
        let topic = self.channel.declare_by((tenant, &keeping), spec).map_err(told)?;
        let inbox = InboxSpec {
            class: Some(class.as_str().into()),
            // the path's credit bounds the inbox
            capacity: InboxCapacity { events: usize::MAX, bytes: usize::MAX },
            ..InboxSpec::default()
        };
        let consumer = ConsumerSpec { tenant, ..ConsumerSpec::new(&destination.to_string()).with(inbox) };
        let ends = self.path_ends(now, topic, consumer, Interest::in_topics(pattern));
        let (supplier, consumer) = ends.map_err(|error| {
            // the topic has no supplier: everything made for the path is removed again
            let _ = self.channel.retire(topic);
            told(error)
        })?;
        self.addressees.insert(consumer, Addressee::Path(id));
        let path = ForwardingPath {
            client: Some(client),
            peer,
            alone_since: Nanos::ZERO,
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
        self.paths.insert(id, path);
        self.ledger.book(peer, self.limits.credit.into());
        self.tasks.push_back(Task::Open { path: id, destination });
        Ok(id)
    }

    /// Makes the two ends of a path in the channel. If one fails, both are removed.
    fn path_ends(
        &mut self,
        now: Nanos,
        topic: TopicId,
        spec: ConsumerSpec,
        interest: Interest,
    ) -> Result<(SupplierId, ConsumerId), ChannelError> {
        let supplier = self.channel.supplier_of(spec.tenant, now, None)?;
        let made = self.channel.offer(supplier, Offer::of(topic)).and_then(|()| {
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
        let Some(path) = self.paths.get_mut(&id) else { return };
        path.stalled = stalled;
        if stalled {
            self.channel.pause(path.consumer);
        }
        if path.state == PathState::Opening {
            path.state = PathState::Open;
            if let Some(client) = path.client {
                let frame = Frame::Opened { number: path.number, credit: self.limits.credit };
                answer(&mut self.tasks, client, &frame);
            }
        }
    }

    pub(super) fn publish_on_path(&mut self, now: Nanos, id: PathId, body: EventBody) -> Result<(), String> {
        let (bytes, largest) = (body.length(), self.limits.path_largest as usize);
        if bytes > largest {
            return Err(format!("a payload of {bytes} bytes on a path; the largest has {largest}"));
        }
        self.end_service(now);
        let path = self.paths.get_mut(&id).ok_or("its path is gone")?;
        let number = path.number;
        match path.state {
            PathState::Open => {}
            PathState::Broken => return Ok(()), // sent before it could know
            PathState::Opening => return Err(format!("an event on path {number} before it was opened")),
            PathState::Draining => return Err(format!("an event on path {number} after it was closed")),
        }
        let cost = Limits::cost(bytes);
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
            self.give_back(id, cost);
        }
        Ok(())
    }

    pub(super) fn close(&mut self, now: Nanos, client: ClientId, number: u32) -> Result<(), String> {
        let theirs = &mut self.clients.get_mut(&client).ok_or("it is gone")?.outlets;
        let known = theirs.remove(&number);
        if let Some(cost) = self.clients.get_mut(&client).and_then(|client| client.costs.remove(&number)) {
            self.let_go_for_client(client, cost);
        }
        match known.ok_or_else(|| format!("number {number} cannot be closed: it was never opened"))? {
            Outlet::Topic { supplier, topic } => {
                self.supplies_no_more(client, number);
                if self.let_go(supplier, topic) {
                    self.channel.withdraw(supplier);
                }
            }
            Outlet::Path(path) => self.leave(now, path),
        }
        Ok(())
    }

    /// Takes a path from its program, which has gone: no more events come on it.
    pub(super) fn leave(&mut self, now: Nanos, id: PathId) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        (path.client, path.alone_since) = (None, now);
        if path.state != PathState::Broken {
            path.state = PathState::Draining;
        }
        self.forget_if_empty(id);
    }

    /// Forgets a path without a program and without events.
    pub(super) fn forget_if_empty(&mut self, id: PathId) {
        let Some(path) = self.paths.get(&id) else { return };
        if path.client.is_none() && path.outstanding == 0 {
            if path.state == PathState::Draining {
                self.tasks.push_back(Task::Release { path: id });
            }
            let (supplier, consumer, topic) = (path.supplier, path.consumer, path.topic);
            self.ledger.release(path.peer, self.limits.credit.into());
            self.paths.remove(&id);
            self.addressees.remove(&consumer);
            self.channel.withdraw(supplier);
            self.channel.disconnect_unseen(Nanos::ZERO, consumer);
            self.channel.retire(topic).expect("its one supplier has been withdrawn on the lines above");
        }
    }

    /// Frees the credit of events that have left a path, sent or lost.
    pub(super) fn give_back(&mut self, id: PathId, cost: u32) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        path.outstanding -= cost.min(path.outstanding);
        path.owed += cost;
        self.pay(id);
        self.forget_if_empty(id);
    }

    /// Returns credit in halves, so that a program that reads seldom has few answers waiting; returns all of
    /// it when the program waits for that.
    fn pay(&mut self, id: PathId) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        let is_empty = path.flushing && path.outstanding == 0;
        let is_due = is_empty || path.owed >= self.limits.credit / 2;
        if is_due
            && path.state != PathState::Broken
            && let Some(client) = path.client
        {
            path.flushing &= !is_empty;
            let frame = Frame::Credit { number: path.number, bytes: std::mem::take(&mut path.owed) };
            answer(&mut self.tasks, client, &frame);
        }
    }

    pub(super) fn flush(&mut self, client: ClientId, number: u32) -> Result<(), String> {
        let known = self.clients.get(&client).and_then(|client| client.outlets.get(&number)).copied();
        let Some(Outlet::Path(id)) = known else {
            return Err(format!("number {number} cannot be flushed: it is no path"));
        };
        if let Some(path) = self.paths.get_mut(&id) {
            path.flushing = true;
        }
        self.pay(id);
        Ok(())
    }

    pub(super) fn lose(&mut self, class: ClassId) {
        self.accounts.entry(class).or_default().lost += 1;
    }

    /// Starts the service of an event on a path; returns the body to send, unless the destination is gone.
    pub(super) fn forward(
        &mut self,
        now: Nanos,
        id: PathId,
        delivery: Delivery<EventBody>,
    ) -> Option<EventBody> {
        let event = delivery.event?.event;
        let cost = Limits::cost(event.payload.length());
        let path = self.paths.get(&id)?;
        let class = path.class;
        let length = path.destination.wire_length(event.payload.length());
        let pace = self.pace.as_mut()?;
        pace.carry(now, length);
        self.on_link = Some(pace.time_of(length));
        let (came, deadline) = (event.published, event.payload.due);
        self.in_service = Some(PathInService { path: id, class, came, deadline, length, cost });
        Some(event.payload.clone())
    }

    /// Charges the class of a message that has left the link. The charge does not come earlier: a message of
    /// another class that arrives during a transmission goes before the next one of the same class.
    pub(super) fn end_service(&mut self, now: Nanos) {
        if self.pace.as_ref().is_some_and(|pace| pace.free_at() <= now)
            && let Some(took) = self.on_link.take()
        {
            self.channel.finish(now, Some(took));
        }
    }

    /// Records the result of sending the message that [`next`](Self::next) chose.
    pub fn transmitted(&mut self, now: Nanos, sent: Sent) {
        let Some(PathInService { path: id, class, came, deadline, length, cost }) = self.in_service.take()
        else {
            return;
        };
        if sent == Sent::Lost {
            self.lose(class);
        } else {
            self.accounts.entry(class).or_default().sent(now, came, deadline, length);
        }
        match self.paths.get_mut(&id) {
            Some(path) if sent == Sent::Kept => {
                path.kept += cost;
                path.stalled = true;
                self.channel.pause(path.consumer);
            }
            _ => self.give_back(id, cost),
        }
    }

    /// Records that the kept bytes of a path's socket have left, and that it takes more.
    pub fn drained(&mut self, now: Nanos, id: PathId) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        (path.stalled, path.alone_since) = (false, now);
        self.channel.resume(path.consumer);
        let kept = std::mem::take(&mut path.kept);
        if kept > 0 {
            self.give_back(id, kept);
        }
    }
}
