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

mod add;
mod audit;
mod disk;
mod hear;
mod introduce;
mod listen;
mod look_budget;
mod served;
mod trust;
mod turn;
mod window;

pub use listen::{Exposure, OWNER, ServeError};
pub use window::StatisticsWindow;

use crate::body::EventBody;
use crate::broker::Broker;
use crate::channel_wait::ChannelWait;
use crate::limits::Limits;
use crate::outgoing::{Flushed, OutgoingSocket};
use crate::task::{ClientId, Next, PathId, Sent, Task};
use crate::transport::{FrameTransport, Framing, PollFor, TransportError, TransportListener};
use add::EncryptedService;
use audit::AuditSink;
use disk::DiskThread;
use hear::Hearing;
use listen::AcceptFailure;
use look_budget::{EventsPass, LookBudget};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{Timespec, epoll as events};
use rustix::io::Errno;
use served::{HeardFrom, ServedClient};
use std::collections::{BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use turn::{ClientTurn, DeliveryStop, DeliveryTurn, TurnSlices};
use unisono_eventchannel::NumberMap;
use unisono_linux::clock::{self, Nanos};
use unisono_linux::local_socket::own_user;

const CLIENT: u64 = 2 << 32;
const PATH: u64 = 4 << 32;
const DISK: u64 = 8 << 32;
/// Frames taken from one program before others have their turn. More frames would let a program that floods
/// the broker delay the others; fewer would need more calls of epoll per frame. Chosen by this argument, not
/// measured.
const TURN: usize = 64;
/// The interval at which an idle broker checks whether it shall stop. A person does not notice 100 ms, and
/// ten wake-ups a second cost next to nothing. Chosen, not measured.
const STOP_POLL_INTERVAL: Nanos = Nanos(100_000_000);

/// A broker that serves programs over its listeners.
#[derive(Debug)]
pub struct Server {
    broker: Broker,
    /// The time that the thread polls for the next frame before it sleeps.
    budget: LookBudget,
    listeners: Vec<Box<dyn TransportListener>>,
    /// Names in the file system that are removed at the end.
    names: Vec<PathBuf>,
    epoll: OwnedFd,
    clients: NumberMap<ClientId, ServedClient>,
    paths: NumberMap<PathId, OutgoingSocket>,
    next_client: u32,
    /// Programs with frames that have arrived but have not been taken.
    unfinished: BTreeSet<ClientId>,
    /// Programs whose tenant has used its part of this turn. The front program is served first in the next
    /// turn.
    deferred: VecDeque<ClientId>,
    slices: TurnSlices,
    /// Frames taken from one program before others have their turn.
    frames: usize,
    /// Programs with frames to flush.
    spoken_to: BTreeSet<ClientId>,
    /// The second sockets of pairs, until they are passed on; each supplier holds the first socket of its
    /// pair.
    links: NumberMap<u32, OwnedFd>,
    /// Programs whose last event waits for room in an inbox.
    blocked: BTreeSet<ClientId>,
    /// None: the broker keeps no log, or does not serve yet.
    disk: Option<DiskThread>,
    window: Arc<StatisticsWindow>,
    /// Gets each line for the log of the broker's operator.
    note: fn(&str),
    /// None: the broker cannot listen with TLS.
    tls: Option<EncryptedService>,
    /// None: no audit log is kept.
    audit: Option<AuditSink>,
}

impl Server {
    /// A broker that listens nowhere yet.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(mut broker: Broker, wait: ChannelWait) -> Result<Self, ServeError> {
        let drawn = |what: &str| RandomState::new().hash_one((what, clock::now().0));
        broker.begin(drawn("run").max(1), drawn("secret"));
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self {
            broker,
            budget: LookBudget::new(wait),
            listeners: Vec::new(),
            names: Vec::new(),
            epoll,
            disk: None,
            window: Arc::default(),
            note: |_| {},
            tls: None,
            audit: None,
            clients: NumberMap::default(),
            paths: NumberMap::default(),
            next_client: 0,
            unfinished: BTreeSet::new(),
            deferred: VecDeque::new(),
            slices: TurnSlices::default(),
            frames: TURN,
            spoken_to: BTreeSet::new(),
            links: NumberMap::default(),
            blocked: BTreeSet::new(),
        })
    }

    /// Sets the function that gets each line for the log of the broker's operator.
    pub fn tell_notes(&mut self, note: fn(&str)) {
        self.note = note;
    }

    /// The window in which other threads ask for the statistics of a serving broker.
    #[must_use]
    pub fn window(&self) -> Arc<StatisticsWindow> {
        Arc::clone(&self.window)
    }

    /// Whether rules say what each client may do and see.
    #[must_use]
    pub fn has_permissions(&self) -> bool {
        self.broker.has_permissions()
    }

    /// The names that this server has made in the file system.
    #[must_use]
    pub fn names(&self) -> &[PathBuf] {
        &self.names
    }

    /// The broker's state machine.
    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Serves until `stop` says so; it is asked at least ten times a second, also within a long turn.
    ///
    /// # Errors
    /// The kernel's refusal to wait; programs and destinations never end it.
    pub fn serve(&mut self, stop: &dyn Fn() -> bool) -> Result<(), ServeError> {
        let mut ready = Vec::with_capacity(256);
        self.broker.run_by(own_user());
        // not before: the process may have become another user, and earlier threads would not follow in full
        if self.disk.is_none() && self.broker.keeps_log() {
            let disk = self.disk.insert(DiskThread::start()?);
            epoll::add(&self.epoll, &*disk, EventData::new_u64(DISK), EventFlags::IN)?;
        }
        while !stop() {
            self.end_revoked();
            let mut deliveries = DeliveryTurn::after(self.slices.begin() + self.broker.take_work());
            let mut due = self.deliver(&mut deliveries);
            // a program that was paused and takes events again may have events due
            while self.flush() {
                due = self.deliver(&mut deliveries);
                if due == Nanos::ZERO {
                    break;
                }
            }
            if let Some(disk) = &self.disk
                && let Some(job) = self.broker.sync()
            {
                disk.sync(job);
            }
            self.write_audit();
            self.window.answer(|| self.broker.statistics(clock::now()));
            let timeout = self.timeout(due);
            ready.clear();
            match events::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.stay_awake(!ready.is_empty());
            if self.hear(&ready, stop)? == Hearing::Stopped {
                break;
            }
            if self.looks() {
                if ready.is_empty() {
                    std::thread::yield_now(); // the program that is awaited may need this processor
                }
                // epoll reports the programs whose transports cannot tell
                let came = self.clients.iter().filter(|(id, client)| {
                    client.transport.has_come() == Some(true) && !self.blocked.contains(id)
                });
                let came: Vec<ClientId> = came.map(|(id, _)| *id).collect();
                self.stay_awake(!came.is_empty());
                came.into_iter().for_each(|id| self.client(id, EventFlags::IN));
                // A full ring signals room only to a broker that sleeps; epoll reports sockets.
                let kept = self
                    .clients
                    .iter()
                    .filter(|(_, client)| client.keeps_frames() && client.transport.has_come().is_some());
                self.spoken_to.extend(kept.map(|(id, _)| *id));
            }
        }
        self.broker.rest();
        self.broker.finish_audit(clock::now());
        self.write_audit();
        Ok(())
    }

    fn disk_ended(&mut self) {
        while let Some((job, result)) = self.disk.as_ref().and_then(DiskThread::ended) {
            self.broker.synced(clock::now(), &job, result);
        }
    }

    /// Whether the thread polls for the next frame instead of sleeping.
    fn looks(&self) -> bool {
        self.budget.is_left(|| events_pass(&self.broker), clock::now)
    }

    /// Renews the time for polling after a frame or an event has come.
    fn stay_awake(&mut self, something_came: bool) {
        if something_came {
            let broker = &self.broker;
            self.budget.renew(|| events_pass(broker), clock::now);
        }
    }

    /// The time to sleep; zero if a frame has come since.
    fn timeout(&mut self, due: Nanos) -> Timespec {
        let sleeps = !self.looks() && self.unfinished.is_empty() && self.deferred.is_empty();
        let mut may = sleeps;
        if sleeps {
            // every transport must learn of the sleep, also those after a transport that may not wait
            for (id, client) in &mut self.clients {
                if !client.may_wait() {
                    may = false;
                    self.unfinished.insert(*id);
                }
            }
        }
        let nanos = if may { due.since(clock::now()).min(STOP_POLL_INTERVAL) } else { Nanos::ZERO };
        Timespec { tv_sec: 0, tv_nsec: i64::try_from(nanos.0).unwrap_or_default() }
    }

    /// Delivers due events and retries blocked ones. Returns when to call again; zero means at once. While
    /// classes compete it delivers at most [`TURN`] events, so that events wait in the inboxes of a class
    /// with a small share, and not on the connections of all publishers.
    fn deliver(&mut self, turn: &mut DeliveryTurn) -> Nanos {
        let mut delivered = 0;
        self.frames = TURN;
        loop {
            let until = loop {
                self.work();
                if delivered >= TURN && self.broker.classes_compete() {
                    break Nanos::ZERO;
                }
                let now = clock::now();
                if let Err(stop) = turn.goes_on(now) {
                    // published events wait: the programs are still read, but few frames are taken
                    self.frames = if stop == DeliveryStop::TookLong { 1 } else { TURN };
                    break Nanos::ZERO;
                }
                match self.broker.next(now) {
                    Next::Delivered => delivered += 1,
                    Next::Transmit { path, body } => self.transmit(path, &body),
                    Next::Wait(until) => break until,
                    Next::Idle => break Nanos::NEVER,
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
        for id in std::mem::take(&mut self.spoken_to) {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            match client.send_on(&mut self.broker, id) {
                Ok(again) => {
                    resumed |= again;
                    self.watch(id);
                }
                Err(error) => self.lose(id, &error),
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

    fn transmit(&mut self, id: PathId, body: &EventBody) {
        let sent = self.paths.get_mut(&id).map_or(Ok(Sent::Lost), |outgoing| outgoing.send(&body.bytes()));
        self.broker.transmitted(clock::now(), sent.unwrap_or(Sent::Lost));
        match sent {
            Ok(Sent::Kept) => self.watch_path(id, EventFlags::OUT),
            Err(error) => self.broken(id, error),
            Ok(_) => {}
        }
    }

    fn broken(&mut self, id: PathId, error: Errno) {
        self.broker.broken(clock::now(), id, &std::io::Error::from(error).to_string());
    }

    fn watch_path(&self, id: PathId, flags: EventFlags) {
        if let Some(outgoing) = self.paths.get(&id) {
            let data = EventData::new_u64(PATH | u64::from(id.0));
            // a path that is not registered any more is about to be removed
            let _ = epoll::modify(&self.epoll, outgoing, data, flags);
        }
    }

    fn work(&mut self) {
        while let Some(task) = self.broker.task() {
            match task {
                Task::Answer { client, head, body } => self.say(client, (head, body)),
                Task::Loosely { client: id, head, body } => {
                    let Some(client) = self.clients.get_mut(&id) else { continue };
                    let said = client.transport.send_loosely(&head, body.as_payload());
                    self.said(id, &said);
                }
                Task::Order { client, head } => self.order(client, head),
                Task::Introduce { client, link, head } => self.introduce(client, link, head),
                Task::Pass { client, link, head } => {
                    let end = self.links.remove(&link);
                    if self.pass(client, (link, end)) {
                        self.say(client, (head, None));
                    }
                }
                Task::Note { text } => (self.note)(&text),
                Task::Forget { link } => drop(self.links.remove(&link)),
                Task::SendAway { client: id } => {
                    if let Some(mut client) = self.clients.remove(&id) {
                        client.transport.close();
                    }
                }
                Task::Release { path } => drop(self.paths.remove(&path)),
                Task::Open { path, destination } => match OutgoingSocket::open(&destination) {
                    Ok(outgoing) => {
                        let stalled = outgoing.is_connection();
                        let data = EventData::new_u64(PATH | u64::from(path.0));
                        let flags = if stalled { EventFlags::OUT } else { EventFlags::empty() };
                        match epoll::add(&self.epoll, &outgoing, data, flags) {
                            Ok(()) => {
                                self.paths.insert(path, outgoing);
                                self.broker.opened(path, stalled);
                            }
                            Err(error) => self.broken(path, error),
                        }
                    }
                    Err(error) => self.broken(path, error),
                },
            }
        }
    }

    fn say(&mut self, id: ClientId, (head, body): (Vec<u8>, Option<EventBody>)) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let said = client.say(&mut self.broker, id, (head, body));
        self.said(id, &said);
    }

    fn said(&mut self, id: ClientId, said: &Result<(), TransportError>) {
        match said {
            Ok(()) => drop(self.spoken_to.insert(id)),
            Err(_) => self.drop_client(id),
        }
    }

    /// Handles the end of a program's connection.
    fn lose(&mut self, id: ClientId, error: &TransportError) {
        if let TransportError::Tls(_) = error {
            self.broker.count_tls_failure();
            self.broker.audit_end(id, &error.to_string());
        }
        self.drop_client(id);
    }

    fn drop_client(&mut self, id: ClientId) {
        if self.clients.remove(&id).is_some() {
            let tenant = self.broker.tenant(id);
            self.broker.gone(clock::now(), id);
            self.slices.spend(tenant, self.broker.take_work());
        }
    }

    fn accept(&mut self, listener: usize) -> Result<(), ServeError> {
        let Some(listener) = self.listeners.get_mut(listener) else { return Ok(()) };
        let framing = listener.framing();
        let (transport, peer): (Box<dyn FrameTransport>, _) = match listener.accept() {
            Ok(Some(accepted)) => accepted,
            Ok(None) => return Ok(()),
            Err(TransportError::Failed(error)) => match AcceptFailure::of(&error) {
                AcceptFailure::Connection => return Ok(()),
                // no connection fits until another one ends: new ones wait in the kernel's queue
                AcceptFailure::Shortage => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    return Ok(());
                }
                AcceptFailure::Listener => return Err(TransportError::Failed(error).into()),
            },
            // the peer has gone again, never spoke the protocol, or could not be given its rings
            Err(_) => return Ok(()),
        };
        while self.clients.contains_key(&ClientId(self.next_client)) {
            self.next_client = self.next_client.wrapping_add(1);
        }
        let id = ClientId(self.next_client);
        self.next_client = self.next_client.wrapping_add(1);
        let data = EventData::new_u64(CLIENT | u64::from(id.0));
        // a connection beyond the limit, or beyond the user's limit on watched descriptors, is closed here;
        // the others are served on
        if epoll::add(&self.epoll, &*transport, data, EventFlags::IN).is_ok()
            && match framing {
                Framing::Length => self.broker.connected(clock::now(), id, peer),
                Framing::Mqtt => self.broker.connected_by_mqtt(clock::now(), id, peer),
            }
        {
            if transport.may_lose() {
                self.broker.may_lose(id);
            }
            let greeting = match framing {
                Framing::Length => Limits::GREETING,
                Framing::Mqtt => Limits::CONNECT,
            };
            self.clients.insert(id, ServedClient::new(transport, greeting, self.broker.buffer_share(id)));
        }
        Ok(())
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
            }
            Err(error) => return self.lose(id, &error),
        }
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
            self.spoken_to.insert(id);
        }
        let (tenant, now) = (self.broker.tenant(id), clock::now());
        if !self.slices.hears(now, tenant) {
            if !self.deferred.contains(&id) {
                self.deferred.push_back(id);
            }
            return;
        }
        let mut turn = ClientTurn::begin(now, self.frames);
        let heard = client.hear(&mut self.broker, id, &mut turn);
        self.slices.spend(tenant, turn.work());
        match heard {
            HeardFrom::All => {}
            HeardFrom::Part => drop(self.unfinished.insert(id)),
            HeardFrom::Blocked if flags.intersects(EventFlags::HUP | EventFlags::ERR) => self.drop_client(id),
            HeardFrom::Blocked => {
                self.blocked.insert(id);
                self.watch(id);
            }
            HeardFrom::Gone(error) => return self.lose(id, &error),
        }
        // TLS may have found no room for an answer before, or acknowledgements may have made room
        let polls_for = self.clients.get(&id).map(|client| client.transport.poll_for());
        if matches!(polls_for, Some(PollFor::FramesAndRoom | PollFor::Anything)) {
            self.spoken_to.insert(id);
        }
    }

    /// Handles a destination that takes more, or is gone.
    fn path(&mut self, id: PathId, flags: EventFlags) {
        let Some(outgoing) = self.paths.get_mut(&id) else { return };
        if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            let error = outgoing.error();
            if outgoing.is_connection() {
                self.broken(id, error.unwrap_or(Errno::PIPE));
                return;
            }
        }
        if flags.contains(EventFlags::OUT) {
            match outgoing.flush() {
                Ok(Flushed::All) => {
                    self.watch_path(id, EventFlags::empty());
                    self.broker.drained(clock::now(), id);
                }
                Ok(Flushed::Part) => self.broker.progressed(clock::now(), id),
                Ok(Flushed::Nothing) => {}
                Err(error) => self.broken(id, error),
            }
        }
    }
}

fn events_pass(broker: &Broker) -> EventsPass {
    if broker.has_direct_links() { EventsPass::Rings } else { EventsPass::Broker }
}

impl Drop for Server {
    fn drop(&mut self) {
        for name in &self.names {
            // a name that is already gone needs no removal
            let _ = std::fs::remove_file(name);
        }
    }
}
