//! The broker over transports: one thread, one epoll.
//!
//! In each turn the thread delivers due events, flushes all connections, sleeps until a descriptor is ready
//! or a timer is due, and then takes at most [`TURN`] frames from each program. `turn.rs` bounds the time
//! that one tenant gets in a turn, and so the length of a turn. A program that does not read is *paused*: its
//! events wait in its inboxes, under its own policy for full inboxes. The broker does not read from a program
//! whose event would block on a full inbox until there is room. Neither program makes another one wait.
//!
//! Cost: in each turn one system call to wait, one to read from each program that has sent frames, and one to
//! write to each program that gets some, whatever the number of frames.

mod accept;
mod add;
mod audit;
mod disk;
mod ending;
mod inherited;
mod introduce;
mod linger;
mod listen;
mod paths;
mod poll_budget;
mod reload;
mod runs;
mod served;
mod take_over;
mod turn;
mod window;

pub use add::WebEncryption;
pub use inherited::SocketOrigin;
pub use listen::{Exposure, OWNER, ServeError};
pub use reload::{ReloadTrigger, SettingsReader};
pub use take_over::ServeEnd;
pub use window::StatisticsWindow;

use crate::body::EventBody;
use crate::broker::{Broker, ReloadAsker};
use crate::outgoing::OutgoingSocket;
use crate::task::{ClientId, Next, PathId, Task};
use add::{EncryptedService, LISTENER};
use audit::AuditSink;
use disk::DiskThread;
use inherited::InheritedSockets;
use linger::{LINGERING, LingeringSockets};
use poll_budget::{EventsPass, FramePollBudget};
use reload::ServerSettings;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{Timespec, epoll as events};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use served::{ClientReceived, ServedClient};
use std::collections::{BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use take_over::HandOver;
use turn::{ClientTurn, DeliveryStop, DeliveryTurn, MAX_ALONE_TIME, TurnSlices};
use unisono_eventchannel::NumberMap;
use unisono_events_wire::ChannelWait;
use unisono_events_wire::transport::{PollFor, TransportListener};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::local_socket::{SocketName, own_user};

const CLIENT: u64 = 2 << 32;
const PATH: u64 = 4 << 32;
const DISK: u64 = 8 << 32;
/// Frames taken from one program before others have their turn. More frames would let a program that floods
/// the broker delay the others; fewer would need more calls of epoll per frame. Chosen by this argument, not
/// measured.
const TURN: usize = 64;
/// The interval at which an idle broker checks whether it has to stop. A person does not notice 100 ms, and
/// ten wake-ups a second cost next to nothing. Chosen, not measured.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time between two calls of the broker, unless the process is stopped or the host is suspended. A
/// process that is preempted on a busy host comes 60 ms late. Chosen, not measured.
const MAX_CALL_INTERVAL: Duration = Duration::from_millis(250);

/// Whether a turn has received from all programs that are due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReceivePhase {
    Done,
    Stopped,
}

/// A broker that serves programs over its listeners.
#[derive(Debug)]
pub struct Server {
    broker: Broker,
    /// The time that the thread polls for the next frame before it sleeps.
    budget: FramePollBudget,
    listeners: Vec<Box<dyn TransportListener>>,
    /// Names in the file system that are removed at the end.
    names: Vec<SocketName>,
    epoll: OwnedFd,
    clients: NumberMap<ClientId, ServedClient>,
    lingering: LingeringSockets,
    paths: NumberMap<PathId, OutgoingSocket>,
    next_client: u32,
    /// Programs whose frames may come without making their descriptors ready, in shared memory or in QUIC's
    /// buffers. Only these are visited in every turn.
    beyond_epoll: BTreeSet<ClientId>,
    /// Programs with frames that have arrived but have not been taken.
    unfinished: BTreeSet<ClientId>,
    /// Programs whose tenant has used its part of this turn. The front program is served first in the next
    /// turn.
    deferred: VecDeque<ClientId>,
    slices: TurnSlices,
    /// Frames taken from one program before others have their turn.
    frames: usize,
    /// Programs with frames to flush.
    unflushed_clients: BTreeSet<ClientId>,
    /// The second sockets of pairs, until they are passed on; each supplier holds the first socket of its
    /// pair.
    links: NumberMap<u32, OwnedFd>,
    /// When the other ends of connections are checked next.
    next_peer_check: Instant,
    /// Programs whose last event waits for room in an inbox.
    blocked: BTreeSet<ClientId>,
    /// `None`: the broker keeps no log, or does not serve yet.
    disk: Option<DiskThread>,
    window: Arc<StatisticsWindow>,
    /// Gets each line for the log of the broker's operator.
    note: fn(&str),
    /// `None`: the broker cannot listen with TLS.
    tls: Option<EncryptedService>,
    /// `None`: no audit log is kept.
    audit: Option<AuditSink>,
    settings: ServerSettings,
    inherited: InheritedSockets,
    hand_over: HandOver,
}

impl Server {
    /// Makes a broker that listens nowhere yet.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(mut broker: Broker, wait: ChannelWait) -> Result<Self, ServeError> {
        let drawn = |what: &str| RandomState::new().hash_one((what, clock::now()));
        let mut link_secret = [0; 32];
        getrandom(&mut link_secret, GetRandomFlags::empty())?;
        broker.begin(drawn("run").max(1), drawn("secret"), link_secret);
        broker.expect_calls_within(MAX_CALL_INTERVAL);
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self {
            broker,
            budget: FramePollBudget::new(wait),
            listeners: Vec::new(),
            names: Vec::new(),
            epoll,
            disk: None,
            window: Arc::default(),
            note: |_| {},
            tls: None,
            audit: None,
            settings: ServerSettings::default(),
            inherited: InheritedSockets::default(),
            hand_over: HandOver::default(),
            clients: NumberMap::default(),
            lingering: LingeringSockets::default(),
            paths: NumberMap::default(),
            next_client: 0,
            beyond_epoll: BTreeSet::new(),
            unfinished: BTreeSet::new(),
            deferred: VecDeque::new(),
            slices: TurnSlices::default(),
            frames: TURN,
            unflushed_clients: BTreeSet::new(),
            links: NumberMap::default(),
            next_peer_check: Instant::ZERO,
            blocked: BTreeSet::new(),
        })
    }

    /// Sets the function that gets each line for the log of the broker's operator.
    pub fn set_note_handler(&mut self, note: fn(&str)) {
        self.note = note;
    }

    /// Returns the window in which other threads ask for the statistics of a serving broker.
    pub fn window(&self) -> Arc<StatisticsWindow> {
        Arc::clone(&self.window)
    }

    /// Returns whether rules limit the actions and the view of each client.
    pub fn has_permissions(&self) -> bool {
        self.broker.has_permissions()
    }

    /// Returns the names that this server has made in the file system.
    pub fn names(&self) -> Vec<PathBuf> {
        self.names.iter().map(|name| name.path().to_owned()).collect()
    }

    /// Returns the broker's state machine, before it serves.
    pub fn broker_mut(&mut self) -> &mut Broker {
        &mut self.broker
    }

    /// Returns the broker's state machine.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Serves until `stop` returns true or another process has taken over. `stop` is called at least ten
    /// times a second, also within a long turn.
    ///
    /// # Errors
    /// The kernel refuses to wait. Programs and destinations never cause an error here.
    pub fn serve(&mut self, stop: &dyn Fn() -> bool) -> Result<ServeEnd, ServeError> {
        let mut ready = Vec::with_capacity(256);
        self.broker.run_by(own_user());
        // the thread starts only here: the process may have become another user, and a thread started earlier
        // would keep some of the former user's rights
        self.start_disk()?;
        let mut end = ServeEnd::Stopped;
        while !stop() {
            self.reload_if_asked();
            if let Some(ends) = self.hand_over(stop)? {
                end = ends;
                break;
            }
            let mut deliveries = DeliveryTurn::after(self.slices.begin() + self.broker.take_work());
            let mut due = self.deliver(&mut deliveries);
            // a program that was paused and takes events again may have events due
            while self.flush() {
                due = self.deliver(&mut deliveries);
                if due == Instant::ZERO {
                    break;
                }
            }
            if let Some(disk) = &self.disk
                && let Some(job) = self.broker.sync()
            {
                disk.sync(job);
            }
            self.write_audit();
            self.check_peers();
            self.note_arrivals();
            self.lingering.drain(clock::now());
            self.window.answer(|| self.broker.statistics(clock::now()));
            let timeout = self.timeout(due);
            ready.clear();
            match events::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.stay_awake(!ready.is_empty());
            if self.receive_frames(&ready, stop)? == ReceivePhase::Stopped {
                break;
            }
            if self.polls() {
                if ready.is_empty() {
                    std::thread::yield_now(); // the program that is awaited may need this processor
                }
                // programs whose transports cannot tell whether a frame has come are reported by epoll
                let polled = || self.beyond_epoll.iter().filter_map(|id| Some((*id, self.clients.get(id)?)));
                let came = polled().filter(|(id, client)| {
                    client.transport.has_come() == Some(true) && !self.blocked.contains(id)
                });
                let came: Vec<ClientId> = came.map(|(id, _)| id).collect();
                self.stay_awake(!came.is_empty());
                came.into_iter().for_each(|id| self.client(id, EventFlags::IN));
                // A full ring signals room only to a broker that sleeps, so rings are flushed here; epoll
                // reports sockets.
                let kept = self.beyond_epoll.iter().filter(|id| {
                    self.clients
                        .get(id)
                        .is_some_and(|client| client.keeps_frames() && client.transport.has_come().is_some())
                });
                self.unflushed_clients.extend(kept);
            }
        }
        // the log belongs to the process that has taken over
        if end == ServeEnd::Stopped {
            self.broker.set_idle();
        }
        self.broker.finish_audit(clock::now());
        self.write_audit();
        Ok(end)
    }

    fn disk_ended(&mut self) {
        while let Some((job, result)) = self.disk.as_ref().and_then(DiskThread::ended) {
            self.broker.synced(clock::now(), &job, result);
        }
    }

    /// Returns whether the thread polls for the next frame instead of sleeping.
    fn polls(&self) -> bool {
        self.budget.is_left(|| events_pass(&self.broker), clock::now)
    }

    /// Renews the time for polling after a frame or an event has come.
    fn stay_awake(&mut self, something_came: bool) {
        if something_came {
            let broker = &self.broker;
            self.budget.renew(|| events_pass(broker), clock::now);
        }
    }

    /// Returns the time to sleep, or zero if a frame has come since.
    fn timeout(&mut self, due: Instant) -> Timespec {
        let sleeps = !self.polls() && self.unfinished.is_empty() && self.deferred.is_empty();
        let mut may = sleeps;
        if sleeps {
            // every transport must learn of the sleep, also those after a transport that may not wait
            for id in &self.beyond_epoll {
                if self.clients.get_mut(id).is_some_and(|client| !client.may_wait()) {
                    may = false;
                    self.unfinished.insert(*id);
                }
            }
        }
        let time = if may { (due - clock::now()).min(STOP_POLL_INTERVAL) } else { Duration::ZERO };
        Timespec { tv_sec: 0, tv_nsec: i64::try_from(time.as_nanos()).unwrap_or_default() }
    }

    /// Delivers due events and retries blocked ones. Returns when to call again; zero means at once. While
    /// classes compete it delivers at most [`TURN`] events, so that events wait in the inboxes of a class
    /// with a small share, and not on the connections of all publishers.
    fn deliver(&mut self, turn: &mut DeliveryTurn) -> Instant {
        let mut delivered = 0;
        self.frames = TURN;
        loop {
            let until = loop {
                self.work();
                if delivered >= TURN && self.broker.classes_compete() {
                    break Instant::ZERO;
                }
                let now = clock::now();
                if let Err(stop) = turn.goes_on(now) {
                    // published events wait: the programs are still read, but few frames are taken
                    self.frames = if stop == DeliveryStop::TookLong { 1 } else { TURN };
                    break Instant::ZERO;
                }
                match self.broker.next(now) {
                    Next::Delivered => delivered += 1 + self.deliver_run(turn),
                    Next::Transmit { path, body } => self.transmit(path, &body),
                    Next::Wait(until) => break until,
                    Next::Idle => break Instant::NEVER,
                }
            };
            let blocked = std::mem::take(&mut self.blocked);
            let mut progress = false;
            for id in blocked {
                let Some(client) = self.clients.get_mut(&id) else { continue };
                if client.try_again(&mut self.broker, id) {
                    progress = true;
                    self.unfinished.insert(id);
                    self.watch(id);
                } else {
                    self.blocked.insert(id);
                }
            }
            if !progress {
                return until;
            }
        }
    }

    /// Sends all queued frames and pauses the programs that take no more. Returns whether any program was
    /// resumed.
    fn flush(&mut self) -> bool {
        let mut resumed = false;
        for id in std::mem::take(&mut self.unflushed_clients) {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            match client.send_on(&mut self.broker, id) {
                Ok(again) => {
                    resumed |= again;
                    self.watch(id);
                }
                Err(error) => self.fail(id, &error),
            }
        }
        resumed
    }

    /// Registers the events that a program's transport needs now.
    fn watch(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let wanted = client.interest();
        if std::mem::replace(&mut client.watched, wanted) != wanted {
            let data = EventData::new_u64(CLIENT | u64::from(id.0));
            // a client that is not registered any more is about to be removed
            let _ = epoll::modify(&self.epoll, &*client.transport, data, wanted);
        }
    }

    fn work(&mut self) {
        while let Some(task) = self.broker.task() {
            match task {
                Task::Answer { client, head, body } => self.send(client, (head, body)),
                Task::Unreliable { client: id, head, body } => {
                    let Some(client) = self.clients.get_mut(&id) else { continue };
                    let sent = client.transport.send_unreliable(&head, body.as_payload());
                    self.note_sent(id, &sent);
                }
                Task::Order { client, head } => self.order(client, head),
                Task::Introduce { client, link, head } => self.introduce(client, link, head),
                Task::Pass { client, link, head } => {
                    let end = self.links.remove(&link);
                    if self.pass(client, (link, end)) {
                        self.send(client, (head, None));
                    }
                }
                Task::Note { text } => (self.note)(&text),
                Task::Reload { client } => drop(self.reload(ReloadAsker::Client(client))),
                Task::TakeOver { client, step } => self.take_over(client, step),
                Task::Forget { link } => drop(self.links.remove(&link)),
                Task::SendAway { client: id, reason } => {
                    self.beyond_epoll.remove(&id);
                    if let Some(mut client) = self.clients.remove(&id) {
                        client.transport.close_for(&reason);
                        self.lingering.keep(clock::now(), self.epoll.as_fd(), client.transport.as_fd());
                    }
                }
                Task::Release { path } => drop(self.paths.remove(&path)),
                Task::Open { path, destination } => self.open_path(path, &destination),
            }
        }
    }

    fn send(&mut self, id: ClientId, (head, body): (Vec<u8>, Option<EventBody>)) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let sent = client.send(&mut self.broker, id, (head, body));
        self.note_sent(id, &sent);
    }

    /// Receives the frames that have come, first from the programs that were deferred. Once that has taken
    /// [`STOP_POLL_INTERVAL`], it asks `stop` before each program.
    fn receive_frames(
        &mut self,
        ready: &[Event],
        stop: &dyn Fn() -> bool,
    ) -> Result<ReceivePhase, ServeError> {
        let began = clock::now();
        // a shorter turn receives from all programs: their last frames may have come before the signal
        let ends = || clock::now() - began > STOP_POLL_INTERVAL && stop();
        let unfinished = std::mem::take(&mut self.unfinished);
        for id in self.take_deferred() {
            if ends() {
                return Ok(ReceivePhase::Stopped);
            }
            self.client(id, EventFlags::IN);
        }
        for event in ready {
            if ends() {
                return Ok(ReceivePhase::Stopped);
            }
            let (about, flags) = (event.data.u64(), event.flags);
            match about >> 32 << 32 {
                LISTENER => self.accept(about as u32 as usize)?,
                DISK => self.disk_ended(),
                PATH => self.path(PathId(about as u32), flags),
                LINGERING => {} // each turn drops what has come
                _ => self.wake(ClientId(about as u32), flags),
            }
        }
        for id in unfinished {
            if ends() {
                return Ok(ReceivePhase::Stopped);
            }
            self.client(id, EventFlags::IN);
        }
        self.receive_deferred(&ends);
        Ok(ReceivePhase::Done)
    }

    /// Returns the deferred programs, the longest deferred first.
    fn take_deferred(&mut self) -> VecDeque<ClientId> {
        let deferred = std::mem::take(&mut self.deferred);
        for id in &deferred {
            if let Some(client) = self.clients.get_mut(id) {
                client.is_deferred = false;
            }
        }
        deferred
    }

    /// Serves the programs that were deferred in this turn, unless another tenant waits for the turn to end.
    fn receive_deferred(&mut self, ends: &dyn Fn() -> bool) {
        if self.deferred.is_empty() || !self.slices.may_renew() {
            return;
        }
        let until = clock::now() + MAX_ALONE_TIME;
        for id in self.take_deferred() {
            if ends() {
                return;
            }
            if clock::now() < until {
                self.slices.renew();
            }
            self.client(id, EventFlags::IN);
        }
    }

    /// Notes whether epoll reports all frames of a program's transport.
    fn note_transport(&mut self, id: ClientId) {
        let poll_for = self.clients.get(&id).map(|client| client.transport.poll_for());
        match poll_for {
            Some(PollFor::Rings | PollFor::Anything) => drop(self.beyond_epoll.insert(id)),
            _ => drop(self.beyond_epoll.remove(&id)),
        }
    }

    /// Handles readiness of a program's descriptor.
    fn wake(&mut self, id: ClientId, flags: EventFlags) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        match client.transport.settle() {
            Ok(None) => {}
            Ok(Some(settled)) => {
                let _ = epoll::delete(&self.epoll, &*client.transport); // it ends with its descriptor anyway
                let data = EventData::new_u64(CLIENT | u64::from(id.0));
                if epoll::add(&self.epoll, &*settled, data, client.watched).is_err() {
                    return self.drop_client(id);
                }
                client.settle(settled);
                if client.transport.passes() {
                    self.broker.passes_descriptors(id);
                }
                self.note_transport(id);
            }
            Err(error) => return self.lose(id, &error),
        }
        let Some(client) = self.clients.get_mut(&id) else { return };
        match client.transport.woken() {
            Ok(()) => self.client(id, flags),
            Err(error) => {
                self.broker.send_away(clock::now(), id, &error.to_string());
            }
        }
    }

    /// Handles a program that has sent frames, takes more, or has gone.
    fn client(&mut self, id: ClientId, flags: EventFlags) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if flags.contains(EventFlags::OUT) || client.keeps_frames() {
            self.unflushed_clients.insert(id);
        }
        let (tenant, now) = (self.broker.tenant(id), clock::now());
        if !self.slices.may_receive(now, tenant) {
            if !std::mem::replace(&mut client.is_deferred, true) {
                self.deferred.push_back(id);
            }
            return;
        }
        let mut turn = ClientTurn::begin(now, self.frames);
        let received = client.receive_frames(&mut self.broker, id, &mut turn);
        self.slices.spend_turn(tenant, &turn);
        match received {
            ClientReceived::All if client.has_ended() => {
                if client.is_read_out(&turn) {
                    return self.drop_client(id);
                }
                self.unfinished.insert(id);
            }
            ClientReceived::All => {}
            ClientReceived::Part => drop(self.unfinished.insert(id)),
            ClientReceived::Blocked => {
                self.blocked.insert(id);
                if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                    self.end_connection(id);
                }
                self.watch(id);
            }
            ClientReceived::Gone(error) => return self.lose(id, &error),
        }
        // TLS may have found no room for an answer before, or acknowledgements may have made room
        let polls_for = self.clients.get(&id).map(|client| client.transport.poll_for());
        if matches!(polls_for, Some(PollFor::FramesAndRoom | PollFor::Anything)) {
            self.unflushed_clients.insert(id);
        }
    }
}

fn events_pass(broker: &Broker) -> EventsPass {
    if broker.has_direct_links() { EventsPass::Rings } else { EventsPass::Broker }
}

impl Drop for Server {
    fn drop(&mut self) {
        for name in &self.names {
            // what cannot be removed stays
            let _ = name.remove();
        }
    }
}
