//! Connecting again when the connection to the broker has broken, and asking for the same as before.
//!
//! ```text
//!   connected --broken--> away --a try, later and later--> connected: ADVERTISE, SUBSCRIBE again
//!                          |                                          then Reception::Reconnected
//!                          +--the time is over--> the error of the last try
//! ```
//! A subscription that resumes goes on after its last acknowledged position. All others miss what was
//! published meanwhile. What this program published and was not answered about may be lost: the outcome of
//! such an event is [`Error::Unanswered`].
//!
//! Cost: a copy of each advertisement and subscription; while connected, a comparison for each call.

use super::options::ClientOptions;
use super::{Client, Error, ReceivedEvent, Reception, SubscriptionHandle};
use crate::address::BrokerAddress;
use crate::frame::{DeliverHead, Frame};
use crate::spec::{Advertisement, ResumeSpec, SubscriptionSpec};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The pause before the second try; each further one is twice as long. A broker that systemd starts again is
/// there after some tens of milliseconds. Chosen, not measured.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause: a program notices after this time at most that its broker is back, and 1,000 programs
/// without a broker make 1,000 tries in a second. Chosen by this argument, not measured.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a client needs to know to connect again.
#[derive(Debug)]
pub(super) struct Comeback {
    options: ClientOptions,
    address: BrokerAddress,
    /// How long it tries.
    within: Duration,
    advertised: BTreeMap<u32, Advertisement>,
    subscribed: BTreeMap<u32, SubscriptionSpec>,
    /// Of each subscription that resumes: where.
    positions: BTreeMap<u32, FollowedPositions>,
    away: Option<BrokenConnection>,
}

/// What a subscription that resumes has got.
#[derive(Debug, Default)]
struct FollowedPositions {
    /// Handed out, and not acknowledged.
    unacknowledged: BTreeSet<u64>,
    /// The last one that was handed out.
    last: u64,
}

impl FollowedPositions {
    /// Everything up to here is acknowledged. `None`: nothing has come.
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
    pause: Duration,
    /// Becomes readable when the next try is due, for programs that poll.
    timer: OwnedFd,
}

impl Comeback {
    pub(super) fn new(options: ClientOptions, address: BrokerAddress, within: Duration) -> Self {
        Self {
            options,
            address,
            within,
            advertised: BTreeMap::new(),
            subscribed: BTreeMap::new(),
            positions: BTreeMap::new(),
            away: None,
        }
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

    /// An event is done with; whether its number means something in a later connection, too.
    pub(super) fn acknowledged(&mut self, subscription: u32, delivery: u64) -> bool {
        let positions = self.positions.get_mut(&subscription);
        positions.is_some_and(|positions| {
            positions.unacknowledged.remove(&delivery);
            true
        })
    }

    /// Whether the numbers of its deliveries are positions of the log, and what was not acknowledged comes
    /// again.
    fn follows(&self, subscription: SubscriptionHandle) -> bool {
        self.positions.contains_key(&subscription.0)
    }

    /// The subscriptions, as they are to be asked for now.
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

    /// What was not acknowledged comes again.
    fn resumed(&mut self, number: u32) {
        if let Some(positions) = self.positions.get_mut(&number) {
            let last = positions.floor().unwrap_or(0);
            *positions = FollowedPositions { unacknowledged: BTreeSet::new(), last };
        }
    }

    /// Ready when the next try is due. `None`: it is connected.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.away.as_ref().map(|away| away.timer.as_fd())
    }
}

impl BrokenConnection {
    fn begin() -> Result<Self, Error> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(Error::from_errno)?;
        let now = Instant::now();
        Ok(Self { since: now, next_try: now, pause: FIRST_PAUSE, timer })
    }

    /// The last try has failed.
    fn rest(&mut self) {
        self.next_try = Instant::now() + self.pause;
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }

    fn arm(&self) -> Result<(), Error> {
        let left = self.next_try.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: left };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).map_err(Error::from_errno)?;
        Ok(())
    }
}

impl ClientOptions {
    /// Connects to the broker at an address of any kind. With TLS it returns when the handshake is done.
    ///
    /// # Errors
    /// Nobody is there, or something else is; a file cannot be read; one of the two ends does not accept the
    /// other one's certificate or token; the name or the lease cannot be.
    pub fn connect(&self, address: &BrokerAddress) -> Result<Client, Error> {
        let mut client = self.connect_once(address)?;
        if let Some(within) = self.reconnect {
            client.comeback = Some(Box::new(Comeback::new(self.clone(), address.clone(), within)));
        }
        Ok(client)
    }
}

impl Client {
    /// Whether this error means that the connection broke, and the client will connect again.
    pub(super) fn loses(&mut self, error: &Error) -> bool {
        let (Some(comeback), Error::Broken(_)) = (&mut self.comeback, error) else { return false };
        if comeback.away.is_none() {
            comeback.away = BrokenConnection::begin().ok(); // without descriptors it does not come back
        }
        comeback.away.is_some()
    }

    /// Does something at the broker, if necessary after connecting again, as often as the connection breaks.
    pub(super) fn surely<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            self.is_back(None)?;
            match work(self) {
                Err(error) if self.loses(&error) => {}
                done => return done,
            }
        }
    }

    /// Connects again if it has to; false if it has not succeeded by then.
    ///
    /// # Errors
    /// It has tried as long as it may.
    pub(super) fn is_back(&mut self, until: Option<Instant>) -> Result<bool, Error> {
        loop {
            let Some(comeback) = &mut self.comeback else { return Ok(true) };
            let Some(away) = &mut comeback.away else { return Ok(true) };
            let now = Instant::now();
            if now < away.next_try {
                if until.is_some_and(|until| until <= now) {
                    away.arm()?;
                    return Ok(false);
                }
                let wake = until.map_or(away.next_try, |until| until.min(away.next_try));
                std::thread::sleep(wake - now);
                continue;
            }
            let over = away.since.elapsed() >= comeback.within;
            match self.connect_again() {
                Ok(()) => {
                    let away = self.comeback.as_mut().and_then(|comeback| comeback.away.take());
                    let away = away.map(|away| away.since.elapsed()).unwrap_or_default();
                    // who never receives is told once
                    if !matches!(self.received.back(), Some(Reception::Reconnected { .. })) {
                        self.received.push_back(Reception::Reconnected { away });
                    }
                    return Ok(true);
                }
                Err(error) => {
                    if let Some(away) = self.comeback.as_mut().and_then(|comeback| comeback.away.as_mut()) {
                        away.rest();
                    }
                    if over {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn connect_again(&mut self) -> Result<(), Error> {
        let Some(comeback) = &self.comeback else { return Ok(()) };
        let mut fresh = comeback.options.connect_once(&comeback.address)?;
        std::mem::swap(&mut self.transport, &mut fresh.transport);
        std::mem::swap(&mut self.direct, &mut fresh.direct);
        (self.terms, self.lease) = (fresh.terms.clone(), fresh.lease);
        drop(fresh); // with the broken connection
        self.connection += 1;
        // an outcome that came before the connection broke is still true
        self.answers.retain(|(_, token), _| *token > 0);
        (self.topics, self.parts, self.loosely) = Default::default();
        self.statistics = None;
        super::paths::all_closed(&mut self.paths, "the connection to the broker broke; open it again");
        self.end_replies();
        let Some(comeback) = &self.comeback else { return Ok(()) };
        let again = |event: &ReceivedEvent| comeback.follows(event.subscription);
        self.received.retain(|reception| !matches!(reception, Reception::Event(event) if again(event)));
        let (advertised, subscriptions) = (comeback.advertised.clone(), comeback.subscriptions());
        for (number, spec) in advertised {
            if let Some(outlet) = self.outlets.get_mut(&number) {
                (outlet.is_heard, outlet.left_rings) = (false, false);
            }
            self.tell(&Frame::Advertise { number, spec })?;
            self.agreed(number)?;
        }
        for (number, spec) in subscriptions {
            self.direct.subscribed(number, spec.late);
            self.tell(&Frame::Subscribe { number, spec: Box::new(spec) })?;
            self.agreed(number)?;
            if let Some(comeback) = &mut self.comeback {
                comeback.resumed(number);
            }
        }
        Ok(())
    }
}
