//! The client library: a connection to a broker, topics to publish on, subscriptions, paths.
//!
//! ```no_run
//! use std::time::Duration;
//! use unisono_broker::{Advertisement, Client, EventDraft, Reception, SubscriptionSpec};
//! # fn main() -> Result<(), unisono_broker::Error> {
//! let mut client = Client::connect_shared("/run/unisono/events".as_ref())?;
//! let heat = client.advertise(&Advertisement::of("plant/1/heat"))?;
//! client.subscribe(&SubscriptionSpec::of("plant/+/heat"))?;
//! client.publish(heat, &EventDraft::new(b"81.5").due_in(Duration::from_millis(2)))?;
//! if let Some(Reception::Event(event)) = client.receive(Some(Duration::from_secs(1)))? {
//!     println!("{}: {} bytes", event.topic, event.payload.bytes().len());
//! }
//! # Ok(())
//! # }
//! ```
//! A client belongs to one thread; other threads open their own. It has no background thread: frames are read
//! when a method is called, so a consumer has to call [`Client::receive`] often enough for its queue.

mod collect;
mod connect;
mod direct;
mod error;
mod events;
mod loosely;
mod options;
mod paths;
mod reading;
mod reconnect;
mod requests;
mod supply;

pub use error::Error;
pub use events::{
    EventDraft, HandedIn, PublishedEvent, ReceivedEvent, Reception, SubscriptionHandle, TopicHandle,
};
pub use options::ClientOptions;
pub use paths::PathHandle;

use crate::account::Statistics;
use crate::channel_wait::ChannelWait;
use crate::frame::Frame;
use crate::notice::NoticeText;
use crate::spec::{Greeting, WelcomeTerms};
use crate::topic_names::TopicNames;
use crate::transport::{Awaited, Drained, FrameTransport, MayWait, PayloadRef, Taken, TransportError, wait};
use direct::ClientRings;
use events::CorrelatedParts;
use loosely::LooseReading;
use reconnect::Comeback;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_eventchannel::NumberMap;
use unisono_linux::clock::{self, Nanos};

/// Maximum frame size before the broker has announced its own: more than the broker's default.
const MAX_FRAME_BYTES: usize = 64 << 20;

/// The broker's answer to a request.
#[derive(Debug)]
enum BrokerAnswer {
    Accepted,
    Refused(String),
    Published(PublishedEvent),
    Rejected(String),
}

/// A topic that a client publishes on.
#[derive(Debug)]
struct ClientOutlet {
    /// The last token.
    token: u32,
    /// The default deadline, counted from the publication of an event.
    deadline_ns: Option<u64>,
    name: String,
    /// Whether late subscribers may get its events, too.
    keeps: bool,
    /// Whether a consumer got its last request.
    is_heard: bool,
    /// Whether its events go to the broker for good: later orders for it were sent before the broker knew.
    left_rings: bool,
}

/// A lease: the time for which the broker takes a silent program for alive.
#[derive(Clone, Copy, Debug)]
struct ClientLease {
    period: Nanos,
    /// When the client last renewed the lease while it waited.
    renewed: Nanos,
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
    /// Topics that it publishes on.
    outlets: BTreeMap<u32, ClientOutlet>,
    direct: ClientRings,
    paths: BTreeMap<u32, paths::ClientPath>,
    /// Answers by number and token.
    answers: NumberMap<(u32, u32), BrokerAnswer>,
    /// Names of the broker's topics.
    topics: TopicNames,
    received: VecDeque<Reception>,
    parts: CorrelatedParts,
    loosely: LooseReading,
    /// Number of refused publications that were not waited for.
    rejected: u64,
    replies: requests::ReplyTopics,
    statistics: Option<Statistics>,
    /// State for reconnecting; `None`: the client does not reconnect.
    comeback: Option<Box<Comeback>>,
    /// Number of reconnections so far.
    connection: u32,
    head: Vec<u8>,
}

/// A thread that spins at a socket yields after this many polls without success: about a microsecond. Without
/// yielding, three threads that spin on two processors waited for the kernel's slice, 4 ms per event.
const INITIAL_POLLS: u32 = 64;

/// One poll of a spinning thread.
pub(crate) fn glance(glances: &mut u32) {
    *glances += 1;
    match *glances % INITIAL_POLLS {
        0 => std::thread::yield_now(),
        _ => std::hint::spin_loop(),
    }
}

impl Client {
    /// Greets the broker at the other end of a transport.
    ///
    /// # Errors
    /// The other end is no broker, or refuses this program.
    pub fn over(
        transport: Box<dyn FrameTransport>,
        mut greeting: Greeting,
        wait: ChannelWait,
    ) -> Result<Self, Error> {
        // a leased program has no rings: the broker could not see that it is alive
        greeting.rings = transport.passes();
        let lease =
            greeting.lease_ns.map(|period| ClientLease { period: Nanos(period), renewed: clock::now() });
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
            loosely: LooseReading::default(),
            rejected: 0,
            replies: requests::ReplyTopics::default(),
            statistics: None,
            comeback: None,
            connection: 0,
            head: Vec::new(),
        };
        client.tell(&Frame::Hello(greeting))?;
        client.transport.compress_heads();
        while client.terms.version == 0 {
            client.hear(None)?;
        }
        Ok(client)
    }

    /// Sets how the client waits from now on.
    pub fn set_wait(&mut self, wait: ChannelWait) {
        self.wait = wait;
    }

    /// Maximum payload bytes that the broker takes.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.terms.largest as usize
    }

    /// The name by which the broker knows this program: in tables, metrics and errors.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Renews the program's lease, if it has one. Publishing and waiting renew it, too.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn alive(&mut self) -> Result<(), Error> {
        // a program that only renews its lease must not wait for an absent broker
        if !self.is_back(Some(Instant::now()))? {
            return Ok(());
        }
        match self.tell(&Frame::Alive) {
            Err(error) if self.loses(&error) => Ok(()),
            told => told,
        }
    }

    /// The broker's counters, over all programs.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn statistics(&mut self) -> Result<Statistics, Error> {
        self.surely(|client| {
            client.tell(&Frame::Ask)?;
            loop {
                if let Some(statistics) = client.statistics.take() {
                    return Ok(statistics);
                }
                client.hear(None)?;
            }
        })
    }

    /// Sends all buffered events, and waits until they have left.
    ///
    /// # Errors
    /// The broker is gone.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.surely(Self::let_leave)
    }

    fn let_leave(&mut self) -> Result<(), Error> {
        self.tell_rings();
        while self.transport.flush()? == Drained::Part {
            self.make_room()?;
        }
        Ok(())
    }

    fn number(&mut self) -> u32 {
        self.numbers += 1; // 2^32 topics and subscriptions of one program are out of reach
        self.numbers
    }

    /// Sends a frame at once.
    fn tell(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        frame.write(&mut head);
        let told = self.put(&head, PayloadRef::Bytes(&[])).and_then(|()| self.let_leave());
        self.head = head;
        told
    }

    /// Passes a frame to the transport; waits for room if there is none.
    fn put(&mut self, head: &[u8], payload: PayloadRef<'_>) -> Result<(), Error> {
        loop {
            if !self.send_reports() {
                self.make_room()?;
                continue;
            }
            match self.transport.send(head, payload) {
                Ok(Taken::Taken) => return Ok(()),
                Ok(Taken::Full) => self.make_room()?,
                // the broker's last frames may have the reason
                Err(TransportError::Closed) => loop {
                    self.hear(None)?;
                },
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until the broker takes more frames, and reads its frames meanwhile: the broker must not wait for
    /// this program.
    fn make_room(&mut self) -> Result<(), Error> {
        while self.take()? {}
        match self.wait {
            ChannelWait::Spin => std::thread::yield_now(),
            ChannelWait::Sleep | ChannelWait::Adaptive => drop(wait(&mut *self.transport, None)?),
        }
        Ok(())
    }

    /// Takes one frame, if one comes before the timeout; returns whether one came. `None`: no timeout. A
    /// program that waits here is alive, and renews its lease as often as necessary.
    fn hear(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        let Some(lease) = self.lease else { return self.hear_once(timeout) };
        let until = timeout.map(|timeout| Nanos::from(timeout).after(clock::now()));
        let third = Nanos(lease.period.0 / 3);
        loop {
            let now = clock::now();
            if let Some(lease) = &mut self.lease
                && third.after(lease.renewed) <= now
            {
                lease.renewed = now;
                let mut head = Vec::new();
                Frame::Alive.write(&mut head);
                // a connection that is full or broken shows in the frames that come
                let _ = self.transport.send(&head, PayloadRef::Bytes(&[]));
                let _ = self.transport.flush();
            }
            let left = until.map_or(third, |until| until.since(now).min(third));
            if self.hear_once(Some(left.into()))? {
                return Ok(true);
            }
            if until.is_some_and(|until| until <= clock::now()) {
                return Ok(false);
            }
        }
    }

    fn hear_once(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        // A frame is nearly always there: the clock is read only if not.
        if self.take()? {
            return Ok(true);
        }
        let until = timeout.map(|timeout| Nanos::from(timeout).after(clock::now()));
        let (budget, mut glances) = (self.wait.budget(), 0);
        loop {
            self.send_reports();
            let _ = self.transport.flush()?;
            if self.take()? {
                return Ok(true);
            }
            let left = match until.map(|until| until.since(clock::now())) {
                // after this the descriptor signals the next frame: programs poll it in loops of their own
                Some(Nanos::ZERO) if self.wait == ChannelWait::Spin || self.may_be_polled()? => {
                    return Ok(false);
                }
                left => left.map(Duration::from),
            };
            if self.transport.wait_by(self.wait.policy(), until)? {
                continue;
            }
            if budget.is_left(clock::now) {
                glance(&mut glances);
            } else {
                wait(&mut *self.transport, left)?;
            }
        }
    }

    /// Whether the descriptor signals the next frame from now on; false: a frame has come.
    fn may_be_polled(&mut self) -> Result<bool, Error> {
        self.transport.woken()?;
        Ok(self.transport.prepare_to_wait(Awaited::FramesAndRoom)? == MayWait::Yes)
    }

    /// Takes one frame that has come; returns whether there was one.
    fn take(&mut self) -> Result<bool, Error> {
        let Some(frame) = self.transport.receive()? else { return Ok(false) };
        let read = Frame::read(frame.bytes).map_err(|bad| Error::Strange(bad.to_string()))?;
        if let (Some(comeback), Frame::Deliver { head, .. }) = (&mut self.comeback, &read)
            && head.flags.acknowledge
        {
            comeback.delivered(head);
        }
        match read {
            Frame::Deliver { head, payload } if self.direct.readings.is_empty() => {
                match self.loosely.take(&head, &self.topics) {
                    // it was reported as lost
                    None => return Ok(true),
                    Some(gap) => self.received.extend(gap),
                }
                let (topics, same_clock) = (&self.topics, self.terms.same_clock);
                let terms = (same_clock, self.connection);
                if let Some(event) = self.parts.deliver(topics, terms, head, (payload, frame.apart)) {
                    self.received.push_back(Reception::Event(event));
                }
            }
            Frame::Deliver { head, payload } => {
                let of = (head.consumer, head.topic, head.supplier);
                let (topics, same_clock, number) = (&self.topics, self.terms.same_clock, head.sequence);
                let terms = (same_clock, self.connection);
                let whole = self.parts.deliver(topics, terms, head, (payload, frame.apart));
                // a correlation has no rings
                self.empty_rings(of, Some(number));
                self.received.extend(whole.map(Reception::Event));
            }
            Frame::Notice { consumer, notice } => {
                if let NoticeText::Gone { topic, supplier, .. } = notice {
                    self.empty_rings((consumer, topic, supplier), None);
                    self.loosely.end((consumer, topic, supplier));
                }
                let topic = notice.topic().and_then(|topic| self.topics.name(topic)).map(Arc::clone);
                self.received.push_back(Reception::Notice {
                    subscription: SubscriptionHandle(consumer),
                    topic,
                    notice,
                });
            }
            Frame::Sent { consumer, topic, supplier, count, last } => {
                let gap = self.loosely.sent((consumer, topic, supplier), (count, last), &self.topics);
                self.received.extend(gap);
            }
            Frame::Topic { number, name } => self.topics.told(number, name),
            Frame::TopicType { number, event_type } => self.topics.told_type(number, event_type),
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
            Frame::Welcome(terms) if terms.version > 0 => self.terms = terms,
            Frame::Opened { number, credit } => paths::opened(&mut self.paths, number, credit),
            Frame::Credit { number, bytes } => paths::credited(&mut self.paths, number, bytes),
            Frame::Closed { number, reason } => paths::closed(&mut self.paths, number, reason),
            Frame::Statistics { json } => {
                let read = serde_json::from_str(json).map_err(|error| Error::Strange(error.to_string()))?;
                self.statistics = Some(read);
            }
            Frame::Ring { number, order } => self.ordered(number, order)?,
            Frame::Bye { reason } => return Err(Error::SentAway(reason.to_owned())),
            _ => return Err(Error::Strange("it sent a program's frame".to_owned())),
        }
        Ok(true)
    }

    /// Waits for an answer.
    fn answer(&mut self, number: u32, token: u32) -> Result<BrokerAnswer, Error> {
        loop {
            if let Some(answer) = self.answers.remove(&(number, token)) {
                return Ok(answer);
            }
            self.hear(None)?;
        }
    }
}

impl Drop for Client {
    /// Announces the departure, so that consumers get a notice that the supplier left, and not that it died.
    fn drop(&mut self) {
        self.count_readings();
        self.direct.leave_all();
        for number in std::mem::take(&mut self.outlets).into_keys() {
            let mut head = Vec::new();
            Frame::Close { number }.write(&mut head);
            // a broker that is gone, or takes no more frames, notices the end of the connection
            let _ = self.transport.send(&head, PayloadRef::Bytes(&[]));
        }
        self.transport.close();
    }
}

/// For polling in an external loop, after [`Client::receive`] with a zero timeout has returned no item:
/// earlier items may already wait in this process. Get the descriptor anew before each poll if the client
/// reconnects: another connection has another descriptor.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let away = self.comeback.as_ref().and_then(|comeback| comeback.descriptor());
        away.or(self.direct.descriptor()).unwrap_or_else(|| self.transport.as_fd())
    }
}
