//! Direct links over TCP: a supplier's end and a consumer's end, from the broker's orders to the first event.
//!
//! ```text
//!   supplier                                        consumer
//!   Connect --connect, supplier's key-------------> listens since Listen
//!   Supplies <-------------------consumer's key---- accepted
//!   DELIVER, DELIVER ... =========================> Read, Begin: a reading
//! ```
//! The broker has drawn both keys, and each is sent once: who shows the other key is who the broker meant.
//! Nothing here blocks until the link stands; meanwhile, events go through the broker. Then an event counts
//! as published once the kernel has all of it, so nothing of a link that has ended waits in this process.
//!
//! Cost of an event: a system call to send it, and one to see that no order of the broker has come.

use super::connect::{NEAR, UNREAD};
use super::events::EventDraft;
use super::supply::{MAX_FIELDS, MAX_RECEIVED};
use super::{Client, Error, MAX_FRAME_BYTES, PublishedEvent};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketFlags, SocketType, connect, getpeername, getsockname, shutdown,
    socket_with, sockopt,
};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration as StdDuration, Instant as StdInstant};
use unisono_eventchannel::{NO_DEADLINE, PublishError};
use unisono_events_wire::frame::{DeliverHead, DeliverTimes, Frame, PublishFlags, PublishOutcome};
use unisono_events_wire::interrupt::{self, InterruptPoll};
use unisono_events_wire::transport::{
    Drained, FrameTransport, PayloadRef, PeerWatcher, StreamListener, StreamTransport, Taken, TransportError,
    TransportListener,
};
use unisono_events_wire::{LinkKeys, RingReport};
use unisono_linux::clock::{self, Duration};
use unisono_linux::{socket, tcp};

/// The number of the descriptors of unfinished links in epoll. Readings have smaller numbers.
pub(super) const UNFINISHED: u64 = 1 << 32;
/// The time in which a consumer's kernel has to accept a connection: a lost packet is sent again after a
/// second at first (RFC 6298), so that only a path without losses is used. Chosen by this argument, not
/// measured.
const CONNECT_TIMEOUT: StdDuration = StdDuration::from_secs(1);
/// The time in which the other end has to show its key. Both programs do that in a call, and may compute
/// between two calls. Meanwhile, events go through the broker.
const KEY_TIMEOUT: StdDuration = StdDuration::from_secs(60);
/// The time within which a consumer has to take an event, if it blocks the supplier or has taken a part of
/// the event. Then its events go through the broker, which has the consumer's queue and knows its
/// policy. Chosen, not measured.
const STALL_TIMEOUT: StdDuration = StdDuration::from_millis(100);
/// The maximum number of connections that have not shown a key yet.
const MAX_INCOMING: usize = 16;
/// The first bytes of each end.
const MAGIC: [u8; 4] = *b"UEL1";
/// Maximum bytes of the frame with a key.
const MAX_KEY_FRAME: usize = 128;
/// Bytes of a frame beside its payload: a key and fields, as the broker takes them.
const MAX_HEAD: usize = 256 << 10;
/// The unsent bytes that the kernel holds for a consumer: as many as the broker allows for a program.
const UNSENT: u32 = 64 << 10;

/// A link for whose supplier this program listens.
#[derive(Debug)]
struct ExpectedLink {
    /// The number of the subscription.
    number: u32,
    keys: LinkKeys,
    until: StdInstant,
}

/// A connection that has not shown a key yet.
#[derive(Debug)]
struct IncomingLink {
    transport: Box<dyn FrameTransport>,
    until: StdInstant,
}

/// A connection whose events the broker has not had read yet.
#[derive(Debug)]
struct AcceptedLink {
    transport: Box<dyn FrameTransport>,
    /// The number of the subscription.
    number: u32,
    until: StdInstant,
}

/// A link that a supplier makes.
#[derive(Debug)]
struct ConnectingLink {
    link: u32,
    keys: LinkKeys,
    address: SocketAddr,
    consumer: String,
    blocks: bool,
    transport: Box<dyn FrameTransport>,
    is_connected: bool,
    began: StdInstant,
}

/// A link over which a topic's events go.
#[derive(Debug)]
struct LinkSupply {
    transport: Box<dyn FrameTransport>,
    /// Whether the supplier waits for the consumer.
    blocks: bool,
    /// The number of events published over the link.
    events: u64,
    /// The number of the last event before; `None` until the broker has sent it.
    last: Option<u64>,
}

/// The outcome of an attempt to send an event over a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkSent {
    Sent,
    /// The consumer does not take it now, or has not taken it within [`STALL_TIMEOUT`].
    Stalled {
        for_good: bool,
    },
    /// The application ends the wait.
    Interrupted,
    /// The consumer or the way to it is gone.
    Broken,
}

/// A client's direct links over TCP.
#[derive(Debug, Default)]
pub(super) struct ClientLinks {
    /// Whether the broker introduces this program to others.
    is_offered: bool,
    /// Whether a descriptor of an unfinished link was ready.
    pub(super) is_due: bool,
    /// Whether the broker's connection was ready.
    pub(super) has_frame: bool,
    /// `None`: no supplier is awaited.
    listener: Option<StreamListener>,
    expected: BTreeMap<u32, ExpectedLink>,
    incoming: Vec<IncomingLink>,
    /// Links whose suppliers have shown their keys, until the broker has them read.
    accepted: BTreeMap<u32, AcceptedLink>,
    /// By the number of the topic.
    connecting: BTreeMap<u32, ConnectingLink>,
    supplies: BTreeMap<u32, LinkSupply>,
}

impl ClientLinks {
    /// Returns whether links have to be served while the program waits for the broker.
    pub(super) fn are_active(&self) -> bool {
        self.are_unfinished() || !self.supplies.is_empty()
    }

    fn are_unfinished(&self) -> bool {
        self.listener.is_some() || !self.connecting.is_empty() || !self.accepted.is_empty()
    }

    /// Returns the time until a link's time limit should be checked.
    pub(super) fn check_after(&self) -> Option<Duration> {
        let checks = self.supplies.values().filter_map(|supply| supply.transport.peer_check_interval());
        let unfinished = self.are_unfinished().then_some(CONNECT_TIMEOUT);
        checks.chain(unfinished).min().map(Duration::from)
    }

    /// Takes a link whose supplier has shown its key.
    pub(super) fn take_accepted(&mut self, link: u32) -> Option<Box<dyn FrameTransport>> {
        self.accepted.remove(&link).map(|accepted| accepted.transport)
    }

    /// Drops the links of a subscription that are not read yet.
    pub(super) fn unsubscribed(&mut self, number: u32) {
        self.expected.retain(|_, it| it.number != number);
        self.accepted.retain(|_, it| it.number != number);
    }

    pub(super) fn numbered(&mut self, number: u32, last: u64) {
        if let Some(supply) = self.supplies.get_mut(&number) {
            supply.last = Some(last);
        }
    }

    /// Returns the numbers of the last event before the link and of the events in it.
    pub(super) fn numbers(&self, number: u32) -> Option<(Option<u64>, u64)> {
        self.supplies.get(&number).map(|supply| (supply.last, supply.events))
    }

    /// Ends a topic's link. Returns the number of events that were published over it.
    pub(super) fn end_supply(&mut self, number: u32, ready: Option<BorrowedFd<'_>>) -> u64 {
        if let (Some(ready), Some(connecting)) = (ready, self.connecting.remove(&number)) {
            unwatch(ready, connecting.transport.as_fd());
        }
        let Some(supply) = self.supplies.remove(&number) else { return 0 };
        // a forked child may have copies of the descriptor; a frame that has left in part must not be
        // completed
        let _ = shutdown(supply.transport.as_fd(), Shutdown::Write);
        supply.events
    }

    pub(super) fn end_all(&mut self, ready: Option<BorrowedFd<'_>>) {
        for number in self.supplies.keys().copied().collect::<Vec<_>>() {
            self.end_supply(number, ready);
        }
    }

    fn listener(&mut self, broker: BorrowedFd<'_>, ready: BorrowedFd<'_>) -> Result<u16, TransportError> {
        let port = |listener: &StreamListener| local_address(listener.as_fd()).map(|it| it.port());
        if let Some(listener) = &self.listener {
            return port(listener);
        }
        let mut address = local_address(broker)?;
        address.set_port(0);
        let bound = TcpListener::bind(address)?;
        if tcp::round_trip(broker)? < NEAR {
            // connections inherit this bound
            socket::bound_unread(&bound, UNREAD)?;
        }
        let listener = StreamListener::new(bound.into(), MAX_FRAME_BYTES)?;
        epoll::add(ready, &listener, EventData::new_u64(UNFINISHED), EventFlags::IN)?;
        port(&*self.listener.insert(listener))
    }

    /// Accepts the connections that have come, and hears their keys.
    fn accept(&mut self, ready: BorrowedFd<'_>, largest: usize, peer_timeout: StdDuration) {
        let now = StdInstant::now();
        for _ in 0..MAX_INCOMING {
            let came = self.listener.as_mut().map_or(Ok(None), |it| it.accept());
            // without descriptors the listener would stay ready, and this program would only look at it
            if came.is_err() {
                self.expected.clear();
            }
            let Ok(Some((mut transport, _))) = came else { break };
            transport.limit_incoming(MAX_KEY_FRAME);
            if epoll::add(ready, &*transport, EventData::new_u64(UNFINISHED), EventFlags::IN).is_ok() {
                self.incoming.push(IncomingLink { transport, until: now + KEY_TIMEOUT });
            }
        }
        for mut incoming in std::mem::take(&mut self.incoming) {
            let owned = |(link, key): (u32, &[u8])| (link, key.to_vec());
            let came = incoming.transport.receive();
            let came = came.map(|frame| frame.map(|frame| shown_key(frame.bytes).map(owned)));
            let shown = match came {
                Ok(Some(shown)) => shown,
                Ok(None) if now < incoming.until => {
                    self.incoming.push(incoming);
                    continue;
                }
                _ => None,
            };
            unwatch(ready, incoming.transport.as_fd());
            // whoever shows another key is not the supplier: the connection ends here
            let Some((link, key)) = shown else { continue };
            let expected = self.expected.get(&link).filter(|it| it.keys.supplier.as_bytes() == key);
            let Some(ExpectedLink { keys, number, .. }) = expected else { continue };
            let number = *number;
            let answered = show_key(&mut *incoming.transport, link, &keys.consumer);
            self.expected.remove(&link);
            if answered.is_ok() {
                // its events wait in the kernel until the broker has the link read
                let IncomingLink { mut transport, .. } = incoming;
                transport.limit_incoming(largest);
                transport.watch_peer(peer_timeout, PeerWatcher::Program);
                self.accepted.insert(link, AcceptedLink { transport, number, until: now + KEY_TIMEOUT });
            }
        }
        // those that have shown a key are no longer among them
        let excess = self.incoming.len().saturating_sub(MAX_INCOMING);
        for incoming in self.incoming.drain(..excess) {
            unwatch(ready, incoming.transport.as_fd());
        }
        self.expected.retain(|_, it| now < it.until);
        if self.expected.is_empty() {
            self.incoming.drain(..).for_each(|it| unwatch(ready, it.transport.as_fd()));
            if let Some(listener) = self.listener.take() {
                unwatch(ready, listener.as_fd());
            }
        }
    }
}

impl LinkSupply {
    /// Sends an event, and waits for room until `until` at most, or not at all if it is to leave `at_once`.
    /// An event that has left in part is waited for in any case.
    fn send(
        &mut self,
        (head, payload): (&[u8], PayloadRef<'_>),
        (until, at_once): (Option<StdInstant>, bool),
        interrupt: &mut InterruptPoll,
    ) -> LinkSent {
        if self.transport.check_peer().is_err() {
            return LinkSent::Broken;
        }
        match self.transport.send(head, payload) {
            Ok(Taken::Taken) => {}
            Ok(Taken::Full) | Err(TransportError::TooLarge { .. }) => {
                return LinkSent::Stalled { for_good: true };
            }
            Err(_) => return LinkSent::Broken,
        }
        let (bytes, mut stalls) = (head.len() + payload.length(), None);
        loop {
            match self.transport.flush() {
                Ok(Drained::All) => return LinkSent::Sent,
                Ok(Drained::Part) => {}
                Err(_) => return LinkSent::Broken,
            }
            // a consumer that does not block is behind, and loses events in the broker's queue for it
            if (at_once || !self.blocks) && self.transport.unsent() >= bytes {
                return LinkSent::Stalled { for_good: !self.blocks };
            }
            if interrupt.poll().is_err() {
                return LinkSent::Interrupted;
            }
            let now = StdInstant::now();
            let stalls = *stalls.get_or_insert(now + STALL_TIMEOUT);
            let end = until.map_or(stalls, |until| until.min(stalls));
            if now >= end {
                return LinkSent::Stalled { for_good: now >= stalls };
            }
            wait_for_room(self.transport.as_fd(), end - now);
        }
    }
}

impl ConnectingLink {
    fn begin(
        (link, keys): (u32, LinkKeys),
        (consumer, address): (String, SocketAddr),
        blocks: bool,
        ready: BorrowedFd<'_>,
    ) -> Result<Self, TransportError> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket: OwnedFd = socket_with(family, SocketType::STREAM, flags, None)?;
        socket::bound_unsent(&socket, UNSENT)?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(error) => return Err(TransportError::Failed(error.into())),
        }
        let transport = Box::new(StreamTransport::new(socket, MAX_FRAME_BYTES)?);
        epoll::add(ready, &*transport, EventData::new_u64(UNFINISHED), EventFlags::OUT)?;
        let began = StdInstant::now();
        Ok(Self { link, keys, address, consumer, blocks, transport, is_connected: false, began })
    }

    /// Does the next step. Returns whether the link stands.
    fn proceed(&mut self, ready: BorrowedFd<'_>) -> Result<bool, String> {
        let failed = |error: TransportError| match error {
            TransportError::Failed(error) => error.to_string(),
            error => error.to_string(),
        };
        if !self.is_connected && is_connected(self.transport.as_fd())? {
            show_key(&mut *self.transport, self.link, &self.keys.supplier).map_err(failed)?;
            let data = EventData::new_u64(UNFINISHED);
            epoll::modify(ready, &*self.transport, data, EventFlags::IN).map_err(|it| it.to_string())?;
            self.transport.limit_incoming(MAX_KEY_FRAME);
            (self.is_connected, self.began) = (true, StdInstant::now());
        }
        let shown = match self.is_connected {
            true => self.transport.receive().map_err(failed)?,
            false => None,
        };
        if let Some(frame) = shown {
            let is_right = shown_key(frame.bytes) == Some((self.link, self.keys.consumer.as_bytes()));
            return if is_right { Ok(true) } else { Err("another program answers there".to_owned()) };
        }
        let limit = if self.is_connected { KEY_TIMEOUT } else { CONNECT_TIMEOUT };
        if self.began.elapsed() >= limit { Err(format!("no answer in {limit:?}")) } else { Ok(false) }
    }
}

impl Client {
    /// Takes part in direct links, after a broker that offers them has answered the greeting over TCP.
    pub(super) fn take_links(&mut self) -> Result<(), Error> {
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::from_errno)?;
        epoll::add(&ready, &*self.transport, EventData::new_u64(0), EventFlags::IN)
            .map_err(Error::from_errno)?;
        self.direct.ready = Some(ready);
        self.direct.links.is_offered = true;
        self.send_frame(&Frame::RingReport { number: 0, report: RingReport::TakesLinks {} })
    }

    /// Begins to listen for a link's supplier, and tells the broker where.
    pub(super) fn listen_for(&mut self, number: u32, link: u32, keys: LinkKeys) -> Result<(), Error> {
        let may = self.direct.links.is_offered && keys.are_well_formed();
        let Some(ready) = self.direct.ready.as_ref().filter(|_| may) else { return Ok(()) };
        // the broker tells its operator that this program cannot listen
        let port = self.direct.links.listener(self.transport.as_fd(), ready.as_fd()).unwrap_or(0);
        if port != 0 {
            let until = StdInstant::now() + KEY_TIMEOUT;
            self.direct.links.expected.insert(link, ExpectedLink { number, keys, until });
        }
        self.report(number, RingReport::Listens { link, port });
        Ok(())
    }

    /// Begins to connect to a topic's consumer.
    pub(super) fn connect_to(
        &mut self,
        number: u32,
        (link, keys): (u32, LinkKeys),
        (consumer, address): (String, SocketAddr),
        blocks: bool,
    ) {
        let may = self.outlets.get(&number).is_some_and(|outlet| !outlet.left_rings);
        let may = may && self.direct.links.is_offered && keys.are_well_formed();
        let Some(ready) = self.direct.ready.as_ref().filter(|_| may) else { return };
        let broker = getpeername(self.transport.as_fd()).ok().flatten();
        let broker = broker.and_then(|it| SocketAddr::try_from(it).ok());
        let begun = match is_elsewhere(address, broker) {
            true => ConnectingLink::begin((link, keys), (consumer, address), blocks, ready.as_fd())
                .map_err(|error| error.to_string()),
            false => Err("it is an address of this host".to_owned()),
        };
        match begun {
            Ok(connecting) => drop(self.direct.links.connecting.insert(number, connecting)),
            Err(why) => {
                let why = format!("{address}: {why}");
                self.report(number, RingReport::Unreached { link, why });
            }
        }
    }

    /// Does what is due for links that do not stand yet, and ends those whose other end does not answer. It
    /// is called between two events.
    pub(super) fn serve_links(&mut self) -> Result<(), Error> {
        let Some(ready) = self.direct.ready.as_ref().filter(|_| self.direct.links.is_offered) else {
            return Ok(());
        };
        self.direct.links.is_due = false;
        let links = &mut self.direct.links;
        if links.listener.is_some() {
            let largest = self.terms.largest as usize + MAX_HEAD;
            links.accept(ready.as_fd(), largest, StdDuration::from_nanos(self.terms.peer_timeout_ns));
        }
        let now = StdInstant::now();
        // their suppliers were recalled before they used them, or have not told the broker
        links.accepted.retain(|_, it| now < it.until);
        let (mut reports, mut broken) = (Vec::new(), Vec::new());
        links.connecting.retain(|number, connecting| {
            let outcome = connecting.proceed(ready.as_fd());
            if let Err(why) = &outcome {
                let why = format!("{} ({}): {why}", connecting.consumer, connecting.address);
                reports.push((*number, RingReport::Unreached { link: connecting.link, why }));
                unwatch(ready.as_fd(), connecting.transport.as_fd());
            }
            if let Ok(true) = outcome {
                reports.push((*number, RingReport::Supplies { links: vec![connecting.link] }));
            }
            outcome.is_ok()
        });
        for (number, report) in &reports {
            if let RingReport::Supplies { .. } = report
                && let Some(ConnectingLink { mut transport, blocks, .. }) = links.connecting.remove(number)
            {
                let _ = epoll::delete(ready, &*transport);
                transport
                    .watch_peer(StdDuration::from_nanos(self.terms.peer_timeout_ns), PeerWatcher::Program);
                links.supplies.insert(*number, LinkSupply { transport, blocks, events: 0, last: None });
            }
        }
        for (number, supply) in &mut links.supplies {
            if supply.transport.check_peer().is_err() {
                broken.push(*number);
            }
        }
        for (number, report) in reports {
            self.send_frame(&Frame::RingReport { number, report })?;
        }
        broken.into_iter().try_for_each(|number| self.leave(number, false))
    }

    /// Takes all frames that this host's kernel has from the broker, and carries out the orders among them.
    /// Returns false if too many of them wait for the application.
    fn take_orders(&mut self) -> Result<bool, Error> {
        self.transport.look_again();
        while self.received.len() < MAX_RECEIVED && (self.take_frame()? || self.transport.stopped_early()) {}
        self.apply_orders()?;
        Ok(self.received.len() < MAX_RECEIVED)
    }

    /// Publishes an event over the topic's link, if there is one. Returns whether it did.
    pub(super) fn publish_on_link(
        &mut self,
        number: u32,
        event: &EventDraft<'_>,
        (flags, sequence): (PublishFlags, Option<u64>),
        token: u32,
    ) -> Result<bool, Error> {
        if !self.direct.links.is_offered {
            return Ok(false);
        }
        let knows_all = self.take_orders()?;
        if !self.direct.links.connecting.is_empty() {
            self.serve_links()?;
        }
        let Some(supply) = self.direct.links.supplies.get_mut(&number) else { return Ok(false) };
        let broker_only = event.criticality != 0 || sequence.is_some();
        if !knows_all || broker_only || event.fields.len() > MAX_FIELDS {
            self.leave(number, true)?;
            return Ok(false);
        }
        let now = clock::now();
        let offered = self.outlets.get(&number).and_then(|outlet| outlet.deadline_ns);
        let deadline =
            event.deadline.min(offered.map_or(NO_DEADLINE, |offered| now + Duration::from_nanos(offered)));
        if deadline < now {
            let error = PublishError::PastDeadline { by: now - deadline };
            self.refuse(number, token, &error);
            return Ok(true);
        }
        // the clocks of two hosts differ
        let remaining = if deadline == NO_DEADLINE { Duration::MAX } else { deadline - now };
        let head = DeliverHead {
            sequence: supply.events + 1,
            times: DeliverTimes::Relative { remaining, age: Duration::ZERO },
            key: event.key,
            fields: event.fields.clone(),
            ..DeliverHead::default()
        };
        self.head.clear();
        head.write(&mut self.head);
        let terms = (self.room_until, flags.at_once);
        match supply.send((&self.head, event.payload), terms, &mut self.interrupt) {
            LinkSent::Sent => supply.events += 1,
            // the consumer drops the part of the frame that it may have
            sent => {
                self.leave(number, sent == LinkSent::Stalled { for_good: true })?;
                if sent == LinkSent::Interrupted {
                    return Err(Error::Interrupted);
                }
                return Ok(false);
            }
        }
        if flags.answer {
            self.answer_direct(number, token)?;
        }
        Ok(true)
    }
}

/// Makes the outcome of an event that a link's consumer gets.
pub(super) fn published_on_link(last: u64, events: u64) -> PublishedEvent {
    PublishedEvent { sequence: last.saturating_add(events), outcome: PublishOutcome::Taken(1) }
}

/// Ends the wait for a descriptor. A forked child may have a copy of it, so that its end would not end that.
fn unwatch(ready: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) {
    let _ = epoll::delete(ready, descriptor);
}

/// Returns whether an address that a broker names may be a consumer's. A broker on another host must not lead
/// this program to services of this host.
fn is_elsewhere(address: SocketAddr, broker: Option<SocketAddr>) -> bool {
    let is_here = |at: SocketAddr| at.ip().to_canonical().is_loopback() || at.ip().is_unspecified();
    !is_here(address) || broker.is_some_and(is_here)
}

fn local_address(socket: BorrowedFd<'_>) -> Result<SocketAddr, TransportError> {
    Ok(SocketAddr::try_from(getsockname(socket)?)?)
}

fn show_key(transport: &mut dyn FrameTransport, link: u32, key: &str) -> Result<(), TransportError> {
    let mut head = MAGIC.to_vec();
    head.extend(link.to_le_bytes());
    head.extend(key.as_bytes());
    let _ = transport.send(&head, PayloadRef::Bytes(&[]))?;
    // some bytes always fit into the buffer of a new connection
    match transport.flush()? {
        Drained::All => Ok(()),
        Drained::Part => Err(TransportError::Closed),
    }
}

fn shown_key(frame: &[u8]) -> Option<(u32, &[u8])> {
    let (link, key) = frame.strip_prefix(&MAGIC)?.split_first_chunk()?;
    Some((u32::from_le_bytes(*link), key))
}

/// Returns whether a socket is connected, or the reason why it never will be.
fn is_connected(socket: BorrowedFd<'_>) -> Result<bool, String> {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
    let ready = poll(&mut fds, Some(&at_once)).map_err(|error| error.to_string())?;
    match sockopt::socket_error(socket) {
        Ok(Err(error)) | Err(error) => Err(error.to_string()),
        Ok(Ok(())) => Ok(ready > 0),
    }
}

/// Waits until a socket has room, or until the time is over or an interruption should be looked for.
fn wait_for_room(socket: BorrowedFd<'_>, time: StdDuration) {
    let timeout = interrupt::slice(Some(time)).and_then(|time| Timespec::try_from(time).ok());
    let _ = poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::OUT)], timeout.as_ref());
}

#[cfg(test)]
mod tests;
