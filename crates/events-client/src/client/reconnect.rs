//! Reconnects after the connection to the broker has broken, and repeats the advertisements and
//! subscriptions.
//!
//! ```text
//!   connected --broken--> away --a try, later and later--> connected: ADVERTISE, SUBSCRIBE again
//!                          |                                          then Reception::Reconnected
//!                          +--the time is over--> the error of the last try
//! ```
//! A subscription that resumes continues after its last acknowledged position. All others miss the events
//! published in the meantime. Events of this program without an answer may be lost: the outcome of such an
//! event is [`Error::Unanswered`].
//!
//! Cost: a copy of each advertisement and subscription; while connected, a comparison for each call.

use super::options::ClientOptions;
use super::{Client, Error, ReceivedEvent, Reception, SubscriptionHandle};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use unisono_events_wire::BrokerAddress;
use unisono_events_wire::frame::{DeliverHead, Frame};
use unisono_events_wire::interrupt::{self, InterruptPoll};
use unisono_events_wire::{Advertisement, ResumeSpec, SubscriptionSpec};

/// The delay before the second attempt; each further delay is twice as long. A broker that systemd restarts
/// serves again after some tens of milliseconds. Chosen, not measured.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(20);
/// The maximum delay: a program connects within this time after its broker is back, and 1,000 programs
/// without a broker make 1,000 attempts per second. Chosen by this argument, not measured.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A client's state for reconnecting.
#[derive(Debug)]
pub(super) struct ReconnectState {
    options: ClientOptions,
    address: BrokerAddress,
    /// The time limit for reconnecting.
    within: Duration,
    advertised: BTreeMap<u32, Advertisement>,
    subscribed: BTreeMap<u32, SubscriptionSpec>,
    /// The positions of each subscription that resumes.
    positions: BTreeMap<u32, FollowedPositions>,
    away: Option<BrokenConnection>,
    /// Becomes readable when the next attempt is due, for programs that poll. It is made with the first
    /// connection, so that a program without free descriptors can reconnect nevertheless.
    timer: OwnedFd,
}

/// The log positions of the deliveries of a subscription that resumes.
#[derive(Debug, Default)]
struct FollowedPositions {
    /// The positions of the events that have arrived and are not acknowledged.
    unacknowledged: BTreeSet<u64>,
    /// The last position that has arrived.
    last: u64,
}

impl FollowedPositions {
    /// Returns the position up to which all events are acknowledged, or `None` if no event has come.
    fn floor(&self) -> Option<u64> {
        match self.unacknowledged.first() {
            Some(first) => Some(first - 1),
            None => (self.last > 0).then_some(self.last),
        }
    }
}

#[derive(Debug)]
struct BrokenConnection {
    since: Instant,
    next_try: Instant,
    delay: Duration,
}

impl ReconnectState {
    pub(super) fn new(
        options: ClientOptions,
        address: BrokerAddress,
        within: Duration,
    ) -> Result<Self, Error> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(Error::from_errno)?;
        Ok(Self {
            options,
            address,
            within,
            advertised: BTreeMap::new(),
            subscribed: BTreeMap::new(),
            positions: BTreeMap::new(),
            away: None,
            timer,
        })
    }

    pub(super) fn advertised(&mut self, number: u32, spec: &Advertisement) {
        self.advertised.insert(number, spec.clone());
    }

    pub(super) fn withdrawn(&mut self, number: u32) {
        self.advertised.remove(&number);
    }

    pub(super) fn subscribed(&mut self, number: u32, spec: &SubscriptionSpec) {
        if spec.resume.is_some() {
            self.positions.insert(number, FollowedPositions::default());
        }
        self.subscribed.insert(number, spec.clone());
    }

    pub(super) fn unsubscribed(&mut self, number: u32) {
        self.subscribed.remove(&number);
        self.positions.remove(&number);
    }

    pub(super) fn delivered(&mut self, head: &DeliverHead<'_>) {
        if let Some(positions) = self.positions.get_mut(&head.consumer) {
            positions.unacknowledged.insert(head.delivery);
            positions.last = positions.last.max(head.delivery);
        }
    }

    /// Records that an event is acknowledged. Returns whether its number is also valid in a later connection.
    pub(super) fn acknowledged(&mut self, subscription: u32, delivery: u64) -> bool {
        let positions = self.positions.get_mut(&subscription);
        positions.is_some_and(|positions| {
            positions.unacknowledged.remove(&delivery);
            true
        })
    }

    /// Returns whether the subscription's delivery numbers are log positions. If they are, unacknowledged
    /// events come again.
    fn follows(&self, subscription: SubscriptionHandle) -> bool {
        self.positions.contains_key(&subscription.0)
    }

    /// Returns the subscriptions to request now, with the positions at which they resume.
    fn subscriptions(&self) -> Vec<(u32, SubscriptionSpec)> {
        let resumed = |(number, spec): (&u32, &SubscriptionSpec)| {
            let mut spec = spec.clone();
            let floor = self.positions.get(number).and_then(FollowedPositions::floor);
            if let (Some(ResumeSpec { after, .. }), Some(floor)) = (&mut spec.resume, floor) {
                *after = Some(floor);
            }
            (*number, spec)
        };
        self.subscribed.iter().map(resumed).collect()
    }

    /// Forgets unacknowledged deliveries, because the broker repeats them.
    fn resumed(&mut self, number: u32) {
        if let Some(positions) = self.positions.get_mut(&number) {
            let last = positions.floor().unwrap_or(0);
            *positions = FollowedPositions { unacknowledged: BTreeSet::new(), last };
        }
    }

    fn arm(&self, next_try: Instant) -> Result<(), Error> {
        let left = next_try.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: left };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).map_err(Error::from_errno)?;
        Ok(())
    }

    /// Returns the descriptor that is ready when the next attempt is due, or `None` if the client is
    /// connected.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.away.as_ref().map(|_| self.timer.as_fd())
    }
}

impl BrokenConnection {
    fn begin() -> Self {
        let now = Instant::now();
        Self { since: now, next_try: now, delay: FIRST_RETRY_DELAY }
    }

    /// Schedules the next attempt after a failure.
    fn schedule_retry(&mut self) {
        self.next_try = Instant::now() + self.delay;
        self.delay = (2 * self.delay).min(MAX_RETRY_DELAY);
    }
}

impl ClientOptions {
    /// Connects to the broker at an address of any kind. With TLS it returns after the handshake.
    ///
    /// # Errors
    /// No broker listens there, or something else does; a file cannot be read; one end does not accept the
    /// other one's certificate or token; the name or the lease is invalid.
    pub fn connect(&self, address: &BrokerAddress) -> Result<Client, Error> {
        self.retry_absent(|| Ok((self.connect_once(address)?, address.clone())))
    }

    /// Connects with `connect`. A client that reconnects also waits for a broker that does not serve yet.
    pub(super) fn retry_absent(
        &self,
        mut connect: impl FnMut() -> Result<(Client, BrokerAddress), Error>,
    ) -> Result<Client, Error> {
        let mut away = BrokenConnection::begin();
        let mut interrupt = InterruptPoll::default();
        loop {
            let error = match connect() {
                Ok((mut client, address)) => {
                    if let Some(within) = self.reconnect {
                        let state = ReconnectState::new(self.clone(), address, within)?;
                        client.reconnect = Some(Box::new(state));
                    }
                    return Ok(client);
                }
                Err(error) => error,
            };
            let is_absent = matches!(
                error,
                Error::Nobody { .. }
                    | Error::NobodyHere { .. }
                    | Error::NobodyThere { .. }
                    | Error::NobodyServes { .. }
                    | Error::NoGreeting { .. }
                    | Error::SilentServer { .. }
                    | Error::Broken(_)
            );
            let within = self.reconnect.unwrap_or_default();
            if !is_absent || away.since.elapsed() >= within {
                return Err(error);
            }
            away.schedule_retry();
            let end = away.since.checked_add(within).map_or(away.next_try, |end| end.min(away.next_try));
            while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                std::thread::sleep(interrupt::slice(Some(left)).unwrap_or(left));
                interrupt.poll()?;
            }
        }
    }
}

impl Client {
    /// Returns whether this error means that the connection has broken. If so, records it, so that the client
    /// will reconnect.
    pub(super) fn note_disconnect(&mut self, error: &Error) -> bool {
        let (Some(reconnect), Error::Broken(_)) = (&mut self.reconnect, error) else { return false };
        reconnect.away.get_or_insert_with(BrokenConnection::begin);
        true
    }

    /// Runs a request to the broker. Reconnects and repeats the request whenever the connection breaks.
    pub(super) fn retry_on_reconnect<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            if !self.wait_reconnected(self.room_until)? {
                return Err(Error::NoRoom);
            }
            match work(self) {
                Err(error) if self.note_disconnect(&error) => {}
                done => return done,
            }
        }
    }

    /// Reconnects if necessary. Returns false if that has not succeeded by `until`.
    ///
    /// # Errors
    /// The time limit for reconnecting has passed, or this is a forked child.
    pub(super) fn wait_reconnected(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        loop {
            self.check_owner()?;
            let Some(reconnect) = &mut self.reconnect else { return Ok(true) };
            let Some(away) = &mut reconnect.away else { return Ok(true) };
            let now = Instant::now();
            if now < away.next_try {
                if until.is_some_and(|until| until <= now) {
                    let next_try = away.next_try;
                    reconnect.arm(next_try)?;
                    return Ok(false);
                }
                let wake = until.map_or(away.next_try, |until| until.min(away.next_try));
                std::thread::sleep(interrupt::slice(Some(wake - now)).unwrap_or_default());
                self.interrupt.poll()?;
                continue;
            }
            let over = away.since.elapsed() >= reconnect.within;
            match self.reconnect_once() {
                Ok(()) => {
                    let away = self.reconnect.as_mut().and_then(|reconnect| reconnect.away.take());
                    let away = away.map(|away| away.since.elapsed()).unwrap_or_default();
                    // one notice is enough for a program that never receives
                    if !matches!(self.received.back(), Some(Reception::Reconnected { .. })) {
                        self.received.push_back(Reception::Reconnected { away });
                    }
                    return Ok(true);
                }
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => {
                    if let Some(away) = self.reconnect.as_mut().and_then(|reconnect| reconnect.away.as_mut())
                    {
                        away.schedule_retry();
                    }
                    if over {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn reconnect_once(&mut self) -> Result<(), Error> {
        let Some(reconnect) = &self.reconnect else { return Ok(()) };
        let mut fresh = reconnect.options.connect_once(&reconnect.address)?;
        std::mem::swap(&mut self.transport, &mut fresh.transport);
        std::mem::swap(&mut self.direct, &mut fresh.direct);
        (self.terms, self.lease) = (fresh.terms.clone(), fresh.lease);
        drop(fresh); // drops the broken connection with it
        self.connection += 1;
        // keeps outcomes that came before the connection broke: they are still valid
        self.answers.retain(|(_, token), _| *token > 0);
        (self.topics, self.parts, self.best_effort) = Default::default();
        self.late.reconnected();
        self.statistics = None;
        super::paths::all_closed(&mut self.paths, "the connection to the broker broke; open it again");
        self.end_replies();
        let Some(reconnect) = &self.reconnect else { return Ok(()) };
        let again = |event: &ReceivedEvent| reconnect.follows(event.subscription);
        self.received.retain(|reception| !matches!(reception, Reception::Event(event) if again(event)));
        let (advertised, subscriptions) = (reconnect.advertised.clone(), reconnect.subscriptions());
        for (number, spec) in advertised {
            if let Some(outlet) = self.outlets.get_mut(&number) {
                (outlet.is_heard, outlet.left_rings) = (false, false);
            }
            self.send_frame(&Frame::Advertise { number, spec })?;
            self.expect_accepted(number)?;
        }
        for (number, spec) in subscriptions {
            self.direct.subscribed(number, &spec);
            self.send_frame(&Frame::Subscribe { number, spec: Box::new(spec) })?;
            self.expect_accepted(number)?;
            if let Some(reconnect) = &mut self.reconnect {
                reconnect.resumed(number);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChannelWait, EventDraft};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};
    use unisono_broker::{Broker, Limits, OWNER, Server};
    use unisono_events_wire::transport::{
        Awaited, Drained, FrameTransport, IncomingFrame, MayWait, PayloadRef, PollFor, StreamTransport,
        Taken, TransportError,
    };
    use unisono_fairqueue::{ClassSpec, Hierarchy};

    /// The number of calls that a transport answers before its connection breaks. `None`: it does not break.
    type CallsLeft = Arc<Mutex<Option<u32>>>;

    /// A transport whose connection breaks at a chosen call of the client.
    #[derive(Debug)]
    struct BreakingTransport {
        inner: StreamTransport,
        left: CallsLeft,
        how: fn() -> TransportError,
    }

    impl BreakingTransport {
        fn call(&self) -> Result<(), TransportError> {
            match self.left.lock().expect("nobody panics with it").as_mut() {
                Some(0) => Err((self.how)()),
                Some(left) => {
                    *left -= 1;
                    Ok(())
                }
                None => Ok(()),
            }
        }
    }

    impl AsFd for BreakingTransport {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.inner.as_fd()
        }
    }

    impl FrameTransport for BreakingTransport {
        fn largest(&self) -> usize {
            self.inner.largest()
        }

        fn send(&mut self, head: &[u8], payload: PayloadRef<'_>) -> Result<Taken, TransportError> {
            self.call().and_then(|()| self.inner.send(head, payload))
        }

        fn flush(&mut self) -> Result<Drained, TransportError> {
            self.call().and_then(|()| self.inner.flush())
        }

        fn receive(&mut self) -> Result<Option<IncomingFrame<'_>>, TransportError> {
            self.call().and_then(|()| self.inner.receive())
        }

        fn poll_for(&self) -> PollFor {
            self.inner.poll_for()
        }

        fn prepare_to_wait(&mut self, awaited: Awaited) -> Result<MayWait, TransportError> {
            self.call().and_then(|()| self.inner.prepare_to_wait(awaited))
        }

        fn woken(&mut self) -> Result<(), TransportError> {
            self.call().and_then(|()| self.inner.woken())
        }

        fn close(&mut self) {
            self.inner.close();
        }
    }

    /// Makes a client whose connection breaks after `left` calls, and that then reconnects.
    fn breaking(address: &BrokerAddress, left: &CallsLeft, how: fn() -> TransportError) -> Client {
        let BrokerAddress::Unix(path) = address else { unreachable!("the test's address is a path") };
        let socket = std::os::unix::net::UnixStream::connect(path).expect("it listens");
        let inner =
            StreamTransport::new(socket.into(), super::super::MAX_FRAME_BYTES).expect("descriptors are left");
        let transport = BreakingTransport { inner, left: Arc::clone(left), how };
        let greeting = crate::Greeting { name: "breaks".to_owned(), ..Default::default() };
        let mut client = Client::over(Box::new(transport), greeting, ChannelWait::Sleep).expect("a broker");
        let reconnect = ReconnectState::new(ClientOptions::new(), address.clone(), Duration::from_secs(20));
        client.reconnect = Some(Box::new(reconnect.expect("descriptors are left")));
        client
    }

    /// Makes two requests that get no reply, while the connection breaks at each call of the client in turn.
    /// If it breaks before the request has left, the request goes over the next connection, and no reply
    /// comes.
    fn is_unanswered_wherever_the_connection_breaks(address: &BrokerAddress, how: fn() -> TransportError) {
        let draft = EventDraft::new(b"?");
        let (timeout, mut unanswered) = (Duration::from_millis(15), 0);
        for is_first in [true, false] {
            for calls in 0.. {
                let left = CallsLeft::default();
                let mut client = breaking(address, &left, how);
                // the client receives its own request, and never replies
                client.subscribe(&SubscriptionSpec::new("question")).expect("it fits");
                let topic = client.advertise(&Advertisement::new("question")).expect("a topic");
                if !is_first {
                    let silent = client.request(topic, draft.clone(), timeout).expect_err("nobody replies");
                    assert!(matches!(silent, Error::NoReply(_)), "{silent}");
                }
                *left.lock().expect("nobody panics with it") = Some(calls);
                let answer = client.request(topic, draft.clone(), timeout);
                let broke = *left.lock().expect("nobody panics with it") == Some(0);
                match answer.expect_err("nobody replies") {
                    Error::Unanswered => unanswered += 1,
                    Error::NoReply(_) if !broke => break,
                    // the request went over the next connection, and no reply came
                    Error::NoReply(_) => {}
                    other => panic!("it broke after {calls} calls: {other}"),
                }
            }
        }
        assert!(unanswered > 8, "{unanswered}");
    }

    #[test]
    fn a_request_is_unanswered_wherever_the_connection_breaks() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let path = directory.path().join("events");
        let classes = Hierarchy::new(ClassSpec::new("all")).and_then(|all| all.with_default("rest"));
        let broker = Broker::new(classes.expect("two names"), Limits::default());
        let mut server = Server::new(broker, ChannelWait::Sleep).expect("descriptors are left");
        server.listen_unix(&path, OWNER).expect("it listens");
        let (address, stop) = (BrokerAddress::Unix(path), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| server.serve(&|| stop.load(Ordering::Relaxed)));
            let tried = std::panic::catch_unwind(|| {
                is_unanswered_wherever_the_connection_breaks(&address, || TransportError::Closed);
                is_unanswered_wherever_the_connection_breaks(&address, || {
                    TransportError::Failed(std::io::ErrorKind::ConnectionReset.into())
                });
            });
            stop.store(true, Ordering::Relaxed);
            serving.join().expect("it does not panic").expect("it serves");
            if let Err(panic) = tried {
                std::panic::resume_unwind(panic);
            }
        });
    }
}
