//! The broker over sockets: one thread, one epoll, one timer.
//!
//! Programs connect to a unix socket of packets (`SOCK_SEQPACKET`): the kernel keeps the bounds of frames,
//! and a frame that is too long is seen to be. Whoever cannot be answered at once does not read, and is sent
//! away: a program that does nothing wrong never has more answers waiting than its socket holds, because
//! credit bounds them.
//!
//! Who may connect, the mode of the socket says: [`OWNER`] alone unless told otherwise.
//!
//! Cost: two system calls for a message that comes, one or two for one that goes, and one to set the timer.

use crate::broker::Broker;
use crate::outgoing::{Flushed, OutgoingSocket};
use crate::task::{ChannelId, ClientId, Next, Sent, Task};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{Timespec, epoll as events};
use rustix::fs::{Mode, chmod, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, send, socket_with, sockopt,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use unisono_linux::timer;

/// Why no broker serves.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another one serves there.
    #[error("a broker listens at {} already; stop it, or choose another socket", path.display())]
    Taken { path: PathBuf },
    /// There is something else.
    #[error("{} exists and is no socket; choose another path", path.display())]
    NoSocket { path: PathBuf },
    /// The socket cannot be made.
    #[error("cannot listen at {}: {source}", path.display())]
    Listen { path: PathBuf, source: Errno },
    /// The kernel refused what serving takes.
    #[error("cannot wait for programs: {0}")]
    Wait(#[from] Errno),
}

/// The mode of a socket that root and the broker's own user may connect to.
pub const OWNER: u32 = 0o600;

const LISTENER: u64 = 0;
const TIMER: u64 = 1;
const CLIENT: u64 = 1 << 32;
const CHANNEL: u64 = 2 << 32;
/// Frames taken from one program before others have their turn.
const TURN: usize = 64;
/// How often an idle broker asks whether it shall stop.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A broker that listens.
#[derive(Debug)]
pub struct Server {
    broker: Broker,
    path: PathBuf,
    listener: OwnedFd,
    timer: OwnedFd,
    epoll: OwnedFd,
    clients: HashMap<ClientId, OwnedFd>,
    channels: HashMap<ChannelId, OutgoingSocket>,
    next_client: u32,
    /// What the timer is set to, so that it is not set twice.
    armed: u64,
    buffer: Vec<u8>,
}

impl Server {
    /// Listens at `path`; `mode` says who may connect ([`OWNER`]). A socket that a killed broker has left is
    /// replaced.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn listen(path: &Path, mode: u32, broker: Broker) -> Result<Self, ServeError> {
        let refused = |source| ServeError::Listen { path: path.to_owned(), source };
        let address = SocketAddrUnix::new(path).map_err(refused)?;
        make_room(path, &address)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(refused)?;
        // what bind makes has the mode of the socket: it is open to others at no moment before it is meant to
        // be
        fchmod(&listener, Mode::from_raw_mode(OWNER)).map_err(refused)?;
        bind(&listener, &address).map_err(refused)?;
        if mode != OWNER {
            chmod(path, Mode::from_raw_mode(mode)).map_err(refused)?;
        }
        listen(&listener, 64).map_err(refused)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        let buffer = vec![0; broker.limits().longest_frame()];
        Ok(Self {
            broker,
            path: path.to_owned(),
            listener,
            timer,
            epoll,
            clients: HashMap::new(),
            channels: HashMap::new(),
            next_client: 0,
            armed: 0,
            buffer,
        })
    }

    /// Serves until `stop` says so; it is asked at least ten times a second.
    ///
    /// # Errors
    /// The kernel's refusal to wait; programs and destinations never end it.
    pub fn serve(&mut self, stop: &dyn Fn() -> bool) -> Result<(), ServeError> {
        let mut ready = Vec::with_capacity(64);
        while !stop() {
            self.send()?;
            ready.clear();
            match events::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&GLANCE)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &ready {
                let (about, flags) = (event.data.u64(), event.flags);
                match about {
                    LISTENER => self.accept()?,
                    TIMER => {} // it is set anew before it is waited for again
                    _ if about & CHANNEL != 0 => self.channel(ChannelId(about as u32), flags),
                    _ => self.client(ClientId(about as u32)),
                }
                self.send()?;
            }
        }
        Ok(())
    }

    /// What it has done.
    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Does what the broker wants done, sends what may be sent, and sets the timer for the rest.
    fn send(&mut self) -> Result<(), ServeError> {
        loop {
            self.work();
            let now = timer::now();
            match self.broker.next(now) {
                Next::Transmit { channel, payload } => self.transmit(channel, payload),
                Next::Wait(until) => return Ok(self.arm(until)?),
                Next::Idle => return Ok(()),
            }
        }
    }

    fn transmit(&mut self, id: ChannelId, payload: Vec<u8>) {
        let sent = self.channels.get_mut(&id).map_or(Ok(Sent::Lost), |outgoing| outgoing.send(payload));
        self.broker.transmitted(timer::now(), sent.unwrap_or(Sent::Lost));
        match sent {
            Ok(Sent::Kept) => self.watch(id, EventFlags::OUT),
            Err(error) => self.broken(id, error),
            Ok(_) => {}
        }
    }

    fn broken(&mut self, id: ChannelId, error: Errno) {
        self.broker.broken(timer::now(), id, &std::io::Error::from(error).to_string());
    }

    fn watch(&self, id: ChannelId, flags: EventFlags) {
        if let Some(outgoing) = self.channels.get(&id) {
            let data = EventData::new_u64(CHANNEL | u64::from(id.0));
            // one that is not watched any more is on its way out
            let _ = epoll::modify(&self.epoll, outgoing, data, flags);
        }
    }

    fn arm(&mut self, until: u64) -> Result<(), Errno> {
        if self.armed != until {
            let seconds = i64::try_from(until / 1_000_000_000).unwrap_or(i64::MAX);
            let nanos = i64::try_from(until % 1_000_000_000).unwrap_or_default();
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let at = Itimerspec { it_interval: zero, it_value: Timespec { tv_sec: seconds, tv_nsec: nanos } };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &at)?;
            self.armed = until;
        }
        Ok(())
    }

    fn work(&mut self) {
        while let Some(task) = self.broker.task() {
            match task {
                Task::Answer { client, frame } => self.answer(client, &frame),
                Task::SendAway { client } => drop(self.clients.remove(&client)),
                Task::Release { channel } => drop(self.channels.remove(&channel)),
                Task::Open { channel, destination } => match OutgoingSocket::open(&destination) {
                    Ok(outgoing) => {
                        let stalled = outgoing.is_connection();
                        let data = EventData::new_u64(CHANNEL | u64::from(channel.0));
                        let flags = if stalled { EventFlags::OUT } else { EventFlags::empty() };
                        match epoll::add(&self.epoll, &outgoing, data, flags) {
                            Ok(()) => {
                                self.channels.insert(channel, outgoing);
                                self.broker.opened(channel, stalled);
                            }
                            Err(error) => self.broken(channel, error),
                        }
                    }
                    Err(error) => self.broken(channel, error),
                },
            }
        }
    }

    fn answer(&mut self, client: ClientId, frame: &[u8]) {
        let Some(socket) = self.clients.get(&client) else { return };
        let sent = send(socket, frame, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        if sent.is_err() {
            self.clients.remove(&client);
            self.broker.gone(timer::now(), client);
        }
    }

    fn accept(&mut self) -> Result<(), ServeError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(&self.listener, flags) {
            Ok(socket) => socket,
            // whoever was there has gone again
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
            // nobody can be let in until somebody leaves: they wait in the kernel's queue
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                std::thread::sleep(std::time::Duration::from_millis(1));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        while self.clients.contains_key(&ClientId(self.next_client)) {
            self.next_client = self.next_client.wrapping_add(1);
        }
        let id = ClientId(self.next_client);
        self.next_client = self.next_client.wrapping_add(1);
        let data = EventData::new_u64(CLIENT | u64::from(id.0));
        // one whose user the kernel does not say, one too many, and one that cannot be waited for (each user
        // may have only so many descriptors waited for) are closed here, and the others are served on
        if let Ok(user) = sockopt::socket_peercred(&socket)
            && epoll::add(&self.epoll, &socket, data, EventFlags::IN).is_ok()
            && self.broker.connected(timer::now(), id, user.uid.as_raw())
        {
            self.clients.insert(id, socket);
        }
        Ok(())
    }

    /// A program has sent something, or gone.
    fn client(&mut self, id: ClientId) {
        for _ in 0..TURN {
            let Some(socket) = self.clients.get(&id) else { return };
            let now = timer::now();
            match recv(socket, &mut self.buffer[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) | Ok((_, 0)) => {
                    self.clients.remove(&id);
                    self.broker.gone(now, id);
                    return;
                }
                Ok((_, length)) => match self.buffer.get(..length) {
                    Some(frame) => self.broker.received(now, id, frame),
                    None => {
                        let most = self.buffer.len();
                        let reason = format!("a frame of {length} bytes; the longest has {most}");
                        self.broker.send_away(now, id, &reason);
                    }
                },
            }
            self.work();
        }
    }

    /// A destination takes more, or is gone.
    fn channel(&mut self, id: ChannelId, flags: EventFlags) {
        let Some(outgoing) = self.channels.get_mut(&id) else { return };
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
                    self.watch(id, EventFlags::empty());
                    self.broker.drained(timer::now(), id);
                }
                Ok(Flushed::Part) => self.broker.progressed(timer::now(), id),
                Ok(Flushed::Nothing) => {}
                Err(error) => self.broken(id, error),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // one that is gone needs no removing
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes a socket that nobody listens at.
fn make_room(path: &Path, address: &SocketAddrUnix) -> Result<(), ServeError> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(ServeError::NoSocket { path: path.to_owned() });
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    match connect(&probe, address) {
        Err(Errno::CONNREFUSED) => {
            let _ = std::fs::remove_file(path); // binding says so if it is still there
            Ok(())
        }
        Err(Errno::PROTOTYPE) => Err(ServeError::NoSocket { path: path.to_owned() }),
        _ => Err(ServeError::Taken { path: path.to_owned() }),
    }
}
