//! The client library: a connection to a broker, topics to publish on, subscriptions, paths.
//!
//! ```no_run
//! use std::time::Duration;
//! use unisono_events_client::{Advertisement, Client, EventDraft, Reception, SubscriptionSpec};
//! # fn main() -> Result<(), unisono_events_client::Error> {
//! let mut client = Client::connect_shared("/run/unisono/events".as_ref())?;
//! let heat = client.advertise(&Advertisement::new("plant/1/heat"))?;
//! client.subscribe(&SubscriptionSpec::new("plant/+/heat"))?;
//! client.publish(heat, &EventDraft::new(b"81.5").due_in(Duration::from_millis(2)))?;
//! if let Some(Reception::Event(event)) = client.receive(Some(Duration::from_secs(1)))? {
//!     println!("{}: {} bytes", event.topic, event.payload.bytes().len());
//! }
//! # Ok(())
//! # }
//! ```
//! A client belongs to one thread; other threads open their own clients. Except over UDP, a client has no
//! background thread: frames are read when a method is called, so a consumer has to call [`Client::receive`]
//! often enough for its queue.

mod best_effort;
mod collect;
mod connect;
mod direct;
mod error;
mod events;
mod greet;
mod handles;
mod late;
mod links;
mod loan;
mod options;
mod paths;
mod reading;
mod received;
mod reconnect;
mod requests;
mod sorted;
mod supply;
mod take_over;
mod tasks;
mod within;

pub use error::Error;
pub use events::{EventDraft, PublishReceipt, PublishedEvent};
pub use handles::{SubscriptionHandle, TopicHandle};
pub use loan::EventLoan;
pub use options::ClientOptions;
pub use paths::PathHandle;
pub use received::{ReceivedEvent, Reception};
pub use take_over::Predecessor;
pub use tasks::AsyncClient;
pub use within::PublishProgress;

use best_effort::BestEffortReading;
use direct::ClientRings;
use late::LateChecks;
use received::CorrelatedParts;
use reconnect::ReconnectState;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant as StdInstant};
use unisono_eventchannel::NumberMap;
use unisono_events_wire::BrokerAddress;
use unisono_events_wire::TopicNames;
use unisono_events_wire::frame::{Bad, DeliverHead, Frame};
use unisono_events_wire::interrupt::{self, InterruptPoll};
use unisono_events_wire::transport::{
    Awaited, Drained, FrameTransport, MayWait, PayloadRef, PeerWatcher, Taken, TransportError, wait,
};
use unisono_events_wire::{ChannelWait, spin_once};
use unisono_events_wire::{EventOrder, NoticeText, PayloadForm};
use unisono_events_wire::{Greeting, WelcomeTerms};
use unisono_events_wire::{ReloadReport, Statistics, TakeOverReport};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::fork;

/// The maximum frame size until the broker has announced its own: more than the broker's default.
const MAX_FRAME_BYTES: usize = 64 << 20;

/// The broker's answer to a request.
#[derive(Debug)]
enum BrokerAnswer {
    Accepted,
    Refused(String),
    Published(PublishedEvent),
    Rejected(String),
}

/// A topic on which a client publishes.
#[derive(Debug)]
struct ClientOutlet {
    /// The last token.
    token: u32,
    /// The default deadline, counted from the publication of an event.
    deadline_ns: Option<u64>,
    name: String,
    /// The content type and the schema of its payloads, for events that do not have their own.
    content: PayloadForm,
    order: EventOrder,
    /// Whether the topic's events may be kept for later subscribers.
    keeps: bool,
    /// Whether a consumer got the last request on the topic.
    is_heard: bool,
    /// Whether the topic's events permanently go to the broker. The broker sent any later orders for the
    /// topic before it learned this.
    left_rings: bool,
}

/// A lease: the time for which the broker considers a silent program alive.
#[derive(Clone, Copy, Debug)]
struct ClientLease {
    period: Duration,
    /// When the client last renewed the lease while it waited.
    renewed: Instant,
}

/// A connection to a broker.
#[derive(Debug)]
pub struct Client {
    transport: Box<dyn FrameTransport>,
    wait: ChannelWait,
    name: String,
    lease: Option<ClientLease>,
    terms: WelcomeTerms,
    /// The last number assigned to a topic, a path, a subscription or a request.
    numbers: u32,
    /// The topics on which the client publishes.
    outlets: BTreeMap<u32, ClientOutlet>,
    direct: ClientRings,
    paths: BTreeMap<u32, paths::ClientPath>,
    /// Answers by number and token.
    answers: NumberMap<(u32, u32), BrokerAnswer>,
    /// Names of the broker's topics.
    topics: TopicNames,
    received: VecDeque<Reception>,
    parts: CorrelatedParts,
    best_effort: BestEffortReading,
    late: LateChecks,
    /// The number of refused publications for whose outcome the program did not wait.
    rejected: u64,
    replies: requests::ReplyTopics,
    statistics: Option<Statistics>,
    reload: Option<ReloadReport>,
    taken_over: Option<TakeOverReport>,
    /// State for reconnecting; `None`: the client does not reconnect.
    reconnect: Option<Box<ReconnectState>>,
    /// Number of reconnections so far.
    connection: u32,
    head: Vec<u8>,
    interrupt: InterruptPoll,
    /// The time until which the event that is being published may wait for room.
    room_until: Option<StdInstant>,
    /// The generation of the process that connected. Its forked children have copies of the connection.
    generation: u64,
}

impl Client {
    /// Greets the broker at the other end of a transport.
    ///
    /// # Errors
    /// The other end is not a broker, or refuses this program.
    pub fn over(
        transport: Box<dyn FrameTransport>,
        greeting: Greeting,
        wait: ChannelWait,
    ) -> Result<Self, Error> {
        Self::greeted(transport, greeting, wait, None)
    }

    /// Like [`over`](Self::over). With an address, errors name it, and the broker has to answer in the time
    /// beside it.
    fn greeted(
        transport: Box<dyn FrameTransport>,
        mut greeting: Greeting,
        wait: ChannelWait,
        at: Option<(&BrokerAddress, StdDuration)>,
    ) -> Result<Self, Error> {
        // rings need a transport that passes descriptors; the broker gives none to a program with a lease,
        // because events in rings would not renew the lease
        greeting.rings = transport.passes();
        let lease = greeting
            .lease_ns
            .map(|period| ClientLease { period: Duration::from_nanos(period), renewed: clock::now() });
        let mut client = Self {
            direct: ClientRings::over(&*transport)?,
            transport,
            wait,
            name: greeting.name.clone(),
            lease,
            terms: WelcomeTerms::default(),
            numbers: 0,
            outlets: BTreeMap::new(),
            paths: BTreeMap::new(),
            answers: NumberMap::default(),
            topics: TopicNames::default(),
            received: VecDeque::new(),
            parts: CorrelatedParts::default(),
            best_effort: BestEffortReading::default(),
            late: LateChecks::default(),
            rejected: 0,
            replies: requests::ReplyTopics::default(),
            statistics: None,
            reload: None,
            taken_over: None,
            reconnect: None,
            connection: 0,
            head: Vec::new(),
            interrupt: InterruptPoll::default(),
            room_until: None,
            generation: fork::generation(),
        };
        let address = match at {
            Some((BrokerAddress::Tcp(address), _)) => Some(*address),
            Some((BrokerAddress::Tls(place), _)) => Some(place.address),
            // only brokers know the protocol over UDP
            _ => None,
        };
        match (client.greet(greeting, at), address) {
            (Ok(()), _) => Ok(client),
            (Err(error), Some(address)) => Err(client.greeting_error(address, error)),
            (Err(error), None) => Err(error),
        }
    }

    /// Sets how the client waits from now on.
    pub fn set_wait(&mut self, wait: ChannelWait) {
        self.wait = wait;
    }

    /// Returns the maximum number of payload bytes that the broker takes.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.terms.largest as usize
    }

    /// Returns the name by which the broker knows this program in tables, metrics and errors.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of refused events of this program that were published without waiting for the
    /// outcome.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Renews the program's lease, if it has one. Publishing and waiting renew it, too.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn alive(&mut self) -> Result<(), Error> {
        // does not wait for an absent broker: there is no lease to renew
        if !self.wait_reconnected(Some(StdInstant::now()))? {
            return Ok(());
        }
        match self.send_frame(&Frame::Alive) {
            Err(error) if self.note_disconnect(&error) => Ok(()),
            sent => sent,
        }
    }

    /// Returns the broker's counters. If the broker has permissions, programs of users other than root and
    /// the broker's own see only their own consumers, and the names of topics that they may use.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn statistics(&mut self) -> Result<Statistics, Error> {
        self.retry_on_reconnect(|client| {
            client.send_frame(&Frame::Ask)?;
            loop {
                if let Some(statistics) = client.statistics.take() {
                    return Ok(statistics);
                }
                client.receive_frame(None)?;
            }
        })
    }

    /// Makes the broker read its files again: policy, permissions, tokens and certificates. Only root and the
    /// broker's own user may request that, and only over the broker's Unix socket.
    ///
    /// # Errors
    /// The broker is gone, or has ended this program's connection, because the new files do not allow it. An
    /// invalid file is not an error here, but is in the report.
    pub fn reload(&mut self) -> Result<ReloadReport, Error> {
        self.retry_on_reconnect(|client| {
            client.send_frame(&Frame::Reload)?;
            loop {
                if let Some(report) = client.reload.take() {
                    return Ok(report);
                }
                client.receive_frame(None)?;
            }
        })
    }

    /// Sends all buffered events, and waits until they have left.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.is_copy() {
            return Ok(()); // the parent sends what it has buffered
        }
        self.retry_on_reconnect(Self::flush_connected)
    }

    fn flush_connected(&mut self) -> Result<(), Error> {
        self.wake_consumers();
        self.send_reports();
        loop {
            match self.transport.flush() {
                Ok(Drained::Part) => self.make_room(self.room_until)?,
                Ok(Drained::All) => return Ok(()),
                Err(TransportError::Closed) => return self.last_words(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads the frames that came before the broker closed the connection, because the last one may have the
    /// reason.
    fn last_words(&mut self) -> Result<(), Error> {
        loop {
            self.receive_frame(None)?;
        }
    }

    /// Returns whether this is the copy in a forked child: the connection belongs to the parent.
    fn is_copy(&self) -> bool {
        fork::generation() != self.generation
    }

    /// Fails in a forked child, where each call would take frames from the parent or mix frames into its own.
    fn check_owner(&self) -> Result<(), Error> {
        if self.is_copy() { Err(Error::Forked) } else { Ok(()) }
    }

    fn number(&mut self) -> u32 {
        self.numbers += 1; // 2^32 topics and subscriptions of one program are out of reach
        self.numbers
    }

    /// Sends a frame at once.
    fn send_frame(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        self.check_owner()?;
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        frame.write(&mut head);
        // an event's time limit for room does not apply to a request
        let room_until = self.room_until.take();
        let sent = self.enqueue(&head, PayloadRef::Bytes(&[])).and_then(|()| self.flush_connected());
        (self.head, self.room_until) = (head, room_until);
        sent
    }

    /// Passes a frame to the transport. Waits for room if there is none.
    fn enqueue(&mut self, head: &[u8], payload: PayloadRef<'_>) -> Result<(), Error> {
        loop {
            if !self.send_reports() {
                self.make_room(self.room_until)?;
                continue;
            }
            match self.transport.send(head, payload) {
                Ok(Taken::Taken) => return Ok(()),
                Ok(Taken::Full) => self.make_room(self.room_until)?,
                Err(TransportError::Closed) => return self.last_words(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until the broker takes more frames. Reads the broker's frames while it waits, because the broker
    /// must not wait for this program in turn. Fails with [`Error::NoRoom`] if there is no room by the time
    /// `until`.
    fn make_room(&mut self, until: Option<StdInstant>) -> Result<(), Error> {
        while self.take_frame()? {}
        let left = until.map(|until| until.saturating_duration_since(StdInstant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Error::NoRoom);
        }
        match self.wait {
            ChannelWait::Spin => std::thread::yield_now(),
            ChannelWait::Sleep | ChannelWait::Adaptive => {
                wait(&mut *self.transport, interrupt::slice(left))?;
            }
        }
        Ok(self.interrupt.poll()?)
    }

    /// Waits for one frame for at most `timeout` (`None`: without a limit), and handles it. Returns whether a
    /// frame came. A program that waits here is alive, so this method renews the program's lease as often as
    /// necessary.
    fn receive_frame(&mut self, timeout: Option<StdDuration>) -> Result<bool, Error> {
        let Some(lease) = self.lease else { return self.wait_for_frame(timeout) };
        let until = timeout.map(|timeout| clock::now() + Duration::from(timeout));
        let third = lease.period / 3;
        loop {
            let now = clock::now();
            if let Some(lease) = &mut self.lease
                && lease.renewed + third <= now
            {
                lease.renewed = now;
                let mut head = Vec::new();
                Frame::Alive.write(&mut head);
                // errors are ignored here: the reception of frames reports a broken connection
                let _ = self.transport.send(&head, PayloadRef::Bytes(&[]));
                let _ = self.transport.flush();
            }
            let left = until.map_or(third, |until| (until - now).min(third));
            if self.wait_for_frame(Some(left.into()))? {
                return Ok(true);
            }
            if until.is_some_and(|until| until <= clock::now()) {
                return Ok(false);
            }
        }
    }

    fn wait_for_frame(&mut self, timeout: Option<StdDuration>) -> Result<bool, Error> {
        // There is nearly always a frame already, so the clock is read only if there is none.
        if self.take_frame()? {
            return Ok(true);
        }
        let until = timeout.map(|timeout| clock::now() + Duration::from(timeout));
        let (budget, mut polls) = (self.wait.budget(), 0);
        loop {
            self.report_late();
            self.send_reports();
            let _ = self.transport.flush()?;
            if self.take_frame()? {
                return Ok(true);
            }
            self.interrupt.poll()?;
            let left = match until.map(|until| until - clock::now()) {
                // after this call the descriptor signals the next frame, which programs that poll it in their
                // own loops rely on
                Some(Duration::ZERO) if self.wait == ChannelWait::Spin || self.may_be_polled()? => {
                    return Ok(false);
                }
                left => left.map(StdDuration::from),
            };
            let sliced = interrupt::slice(left);
            let awake = if sliced == left { until } else { sliced.map(|slice| clock::now() + slice.into()) };
            if self.transport.wait_by(self.wait.policy(), awake)? {
                continue;
            }
            if budget.is_left(clock::now) {
                spin_once(&mut polls);
            } else {
                wait(&mut *self.transport, sliced)?;
            }
        }
    }

    /// Prepares a poll of the descriptor. Returns true if the descriptor signals the next frame from now on,
    /// or false if a frame has come already.
    fn may_be_polled(&mut self) -> Result<bool, Error> {
        self.transport.woken()?;
        Ok(self.transport.prepare_to_wait(Awaited::FramesAndRoom)? == MayWait::Yes)
    }

    /// Handles one frame that has come. Returns whether there was one.
    fn take_frame(&mut self) -> Result<bool, Error> {
        let (waits, mut early) = (self.best_effort.takes_datagrams(), Vec::new());
        let Some(frame) = self.best_effort.next_frame(&mut *self.transport, &mut early)? else {
            let stopped_early = self.transport.stopped_early();
            self.received.extend(self.best_effort.took_datagrams(stopped_early, &self.topics));
            return Ok(waits);
        };
        let strange = |bad: Bad| Error::Strange(bad.to_string());
        if DeliverHead::begins(frame.bytes) {
            let (head, payload) = DeliverHead::read(frame.bytes).map_err(strange)?;
            if let (true, Some(reconnect)) = (head.flags.acknowledge, &mut self.reconnect) {
                reconnect.delivered(&head);
            }
            let (of, number) = ((head.consumer, head.topic, head.supplier), head.sequence);
            let is_direct = !self.direct.readings.is_empty();
            if !is_direct {
                // the event may have been reported as lost already, or its supplier is not known yet
                let gap = self.best_effort.take(&head, frame.bytes, &self.topics);
                let Some(gap) = gap else { return Ok(true) };
                self.received.extend(gap);
            }
            let payload = (payload, frame.shared_payload);
            let event = self.parts.deliver(&self.topics, self.connection, head, payload);
            // events of correlations never come from rings
            let sort = |event| if is_direct { self.sort_with_ring(of, event) } else { Some(event) };
            if let Some(event) = event.and_then(sort) {
                if is_direct {
                    self.empty_rings(of, Some(number));
                }
                self.received.push_back(Reception::Event(event));
            }
            return Ok(true);
        }
        match Frame::read(frame.bytes).map_err(strange)? {
            Frame::Notice { consumer, notice } => {
                if let NoticeText::Gone { topic, supplier, .. } = notice {
                    self.empty_rings((consumer, topic, supplier), None);
                    self.best_effort.end((consumer, topic, supplier));
                }
                let topic = notice.topic().and_then(|topic| self.topics.name(topic)).map(Arc::clone);
                self.received.push_back(Reception::Notice {
                    subscription: SubscriptionHandle(consumer),
                    topic,
                    notice,
                });
            }
            Frame::Sent { consumer, topic, supplier, count, last } => {
                self.best_effort.sent((consumer, topic, supplier), (count, last));
            }
            Frame::Topic { number, name } => self.topics.learn(number, name),
            Frame::TopicType { number, event_type } => self.topics.learn_type(number, event_type),
            Frame::Published { topic, token, sequence, outcome } => {
                self.answers
                    .insert((topic, token), BrokerAnswer::Published(PublishedEvent { sequence, outcome }));
            }
            Frame::Rejected { topic, token, reason } if token > 0 => {
                self.answers.insert((topic, token), BrokerAnswer::Rejected(reason.to_owned()));
            }
            Frame::Rejected { topic, reason, .. } => {
                self.rejected += 1;
                let (topic, reason) = (TopicHandle(topic), reason.to_owned());
                self.received.push_back(Reception::Rejected { topic, reason });
            }
            Frame::Accepted { number } => drop(self.answers.insert((number, 0), BrokerAnswer::Accepted)),
            Frame::Refused { number, reason } => {
                self.answers.insert((number, 0), BrokerAnswer::Refused(reason.to_owned()));
            }
            Frame::Welcome(terms) if terms.version > 0 => {
                self.terms = terms;
                if self.terms.peer_timeout_ns > 0 {
                    let within = StdDuration::from_nanos(self.terms.peer_timeout_ns);
                    self.transport.watch_peer(within, PeerWatcher::Program);
                }
            }
            Frame::Opened { number, credit } => paths::opened(&mut self.paths, number, credit),
            Frame::Credit { number, bytes } => paths::credited(&mut self.paths, number, bytes),
            Frame::Closed { number, reason } => paths::closed(&mut self.paths, number, reason),
            Frame::Statistics { json } => {
                let read = serde_json::from_str(json).map_err(|error| Error::Strange(error.to_string()))?;
                self.statistics = Some(read);
            }
            Frame::Reloaded(report) => self.reload = Some(report),
            Frame::TakenOver(report) => self.taken_over = Some(report),
            Frame::Ring { number, order } => self.ordered(number, order)?,
            Frame::Bye { reason } => return Err(Error::SentAway(reason.to_owned())),
            _ => return Err(Error::Strange("it sent a program's frame".to_owned())),
        }
        Ok(true)
    }

    /// Waits for the broker's answer with this number and token.
    fn answer(&mut self, number: u32, token: u32) -> Result<BrokerAnswer, Error> {
        loop {
            if let Some(answer) = self.answers.remove(&(number, token)) {
                return Ok(answer);
            }
            self.receive_frame(None)?;
        }
    }
}

impl Drop for Client {
    /// Announces the end of the program, so that consumers get a notice that the supplier has left, and not
    /// that it has died.
    fn drop(&mut self) {
        if self.is_copy() {
            return; // only this process's copies of the descriptors are closed
        }
        self.count_readings();
        self.report_late();
        self.direct.leave_all();
        for number in std::mem::take(&mut self.outlets).into_keys() {
            let mut head = Vec::new();
            Frame::Close { number }.write(&mut head);
            // if the broker is gone or has no room for a frame, it learns of the end only from the closed
            // connection
            let _ = self.transport.send(&head, PayloadRef::Bytes(&[]));
        }
        self.transport.close();
    }
}

/// The descriptor is for programs that poll it in a loop of their own. They poll it only after
/// [`Client::receive`] with a zero timeout has returned no item, because earlier items may already wait in
/// this process. If the client reconnects, they get the descriptor anew before each poll, because each
/// connection has another descriptor.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let away = self.reconnect.as_ref().and_then(|reconnect| reconnect.descriptor());
        away.or(self.direct.descriptor()).unwrap_or_else(|| self.transport.as_fd())
    }
}
