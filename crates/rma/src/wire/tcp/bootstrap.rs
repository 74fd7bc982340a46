//! How the members of a job find each other: every rank listens, the higher rank connects.
//!
//! A rank first connects to all lower ranks, one after the other, and then accepts all higher ranks. Rank 0
//! only accepts, so the last wait of the chain is always served. Where only rank 0's address is known
//! ([`JobListener::connect_through`]), all ranks meet rank 0 first. Each handshake gives rank 0 the address
//! at which the other rank listens, and rank 0 distributes the list when all have connected. A rank that is
//! connected to all others closes its listening socket: afterwards there is nothing to connect to.
//!
//! Cost: one connection for each pair of ranks. A connection is unauthenticated until it has proved the key.
//! A rank keeps at most [`MAX_UNAUTHENTICATED`] of them, each for at most [`HANDSHAKE_TIMEOUT`]. When a rank
//! has this many and another process connects, it drops the oldest one, if that is older than
//! [`MIN_EVICTION_AGE`]. Such a connection costs some time of the accepting rank and 200 bytes, nothing else.
//! A member whose connection was dropped connects again. When not to use: for thousands of ranks, because
//! they have too many pairs for any connection-per-pair design.

use super::handshake::{
    ADDRESS, Acceptor, AcceptorStep, CHALLENGE, Connector, JoinRequest, JoinVerdict, LocalIdentity, Nonce,
    read_address, write_address,
};
use crate::model::{Error, JobMembership, Key};
use rustix::net::{RecvFlags, recv};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use unisono_linux::clock::{Duration, Instant, now};
use unisono_linux::poll::{readable, readable_of};
use unisono_text::counted;

/// The largest number of connections that may be open before they have proved anything: far fewer than the
/// descriptors of a process (1,024).
const MAX_UNAUTHENTICATED: usize = 64;
/// The longest time for a handshake. It takes two round trips, which may last seconds on a busy host.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The age from which an unauthenticated connection may be dropped for another: longer than the round trips
/// of a handshake.
const MIN_EVICTION_AGE: Duration = Duration::from_millis(200);
/// The pause before a refused connection is tried again.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(20);

/// A member that listens, but is not connected to the others yet.
#[derive(Debug)]
pub struct JobListener {
    place: JobMembership,
    listener: TcpListener,
    address: SocketAddr,
}

/// The connections of a member, by rank; none to itself.
pub(super) type Streams = Vec<Option<TcpStream>>;

impl JobListener {
    /// Listens at `address`, and nowhere else; port 0 selects a free port. Fails with [`Error::System`] when
    /// listening there fails; [`Error::Job`] for a rank outside the job.
    pub fn bind(place: JobMembership, address: SocketAddr) -> Result<Self, Error> {
        if place.rank.index() >= place.size {
            return Err(Error::Job(format!(
                "rank {} in a job of {}",
                place.rank,
                counted(place.size, "rank")
            )));
        }
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        };
        let (address, listener) = listen().map_err(Error::system(format!("cannot listen at {address}")))?;
        Ok(Self { place, listener, address })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) const fn place(&self) -> &JobMembership {
        &self.place
    }

    /// Connects to some of the others at known addresses.
    pub(super) fn streams_to(
        self,
        addresses: &[SocketAddr],
        others: &[usize],
        until: Instant,
    ) -> Result<Streams, Error> {
        if addresses.len() != self.place.size {
            return Err(Error::Job(format!(
                "{} for a job of {}; give one a rank",
                counted(addresses.len(), "address"),
                counted(self.place.size, "rank")
            )));
        }
        let own = self.place.rank.index();
        if let Some(other) =
            (0..addresses.len()).find(|rank| *rank != own && addresses[*rank] == self.address)
        {
            return Err(Error::Job(format!(
                "{} is listed for rank {other}, but rank {own} listens there; give one address a rank",
                self.address
            )));
        }
        let mut streams = self.no_streams();
        let (mut lower, higher): (Vec<usize>, Vec<usize>) = others.iter().partition(|other| **other < own);
        lower.sort_unstable();
        for rank in lower {
            streams[rank] = Some(self.connect_to(rank, addresses[rank], until)?);
        }
        self.accept(&mut streams, &higher, until)?;
        Ok(streams)
    }

    /// Connects to all others through rank 0, which listens at `root`.
    pub(super) fn streams_through(self, root: SocketAddr, until: Instant) -> Result<Streams, Error> {
        let (rank, size) = (self.place.rank.index(), self.place.size);
        let mut streams = self.no_streams();
        let higher: Vec<usize> = (rank + 1..size).collect();
        if rank == 0 {
            let addresses = self.accept(&mut streams, &higher, until)?;
            let list: Vec<u8> = addresses.into_iter().flat_map(write_address).collect();
            for (rank, stream) in streams.iter_mut().enumerate() {
                let Some(stream) = stream else { continue };
                stream
                    .set_write_timeout(Some(time_left(until).into()))
                    .and_then(|()| stream.write_all(&list))
                    .map_err(Error::system(format!("cannot tell rank {rank} where the others are")))?;
            }
            return Ok(streams);
        }
        let mut first = self.connect_to(0, root, until)?;
        let mut list = vec![0; size * ADDRESS];
        read_until(&mut first, &mut list, until).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => Error::TimedOut {
                call: "gather",
                waiting_for: format!("rank 0 at {root} to have met all {size} ranks"),
            },
            _ => Error::system(format!("rank 0 at {root} gave up"))(error),
        })?;
        streams[0] = Some(first);
        for (lower, bytes) in list.chunks_exact(ADDRESS).enumerate().take(rank).skip(1) {
            let address = read_address(bytes)
                .ok_or_else(|| Error::Job(format!("rank 0 at {root} sent no address for rank {lower}")))?;
            streams[lower] = Some(self.connect_to(lower, address, until)?);
        }
        self.accept(&mut streams, &higher, until)?;
        Ok(streams)
    }

    fn no_streams(&self) -> Streams {
        std::iter::repeat_with(|| None).take(self.place.size).collect()
    }

    /// Connects to a lower rank, again and again until it listens.
    fn connect_to(&self, rank: usize, address: SocketAddr, until: Instant) -> Result<TcpStream, Error> {
        loop {
            let why = match self.try_connect(rank, address, until)? {
                Ok(stream) => return Ok(stream),
                Err(why) => why,
            };
            if now() >= until {
                return Err(Error::TimedOut {
                    call: "meet",
                    waiting_for: format!("rank {rank} at {address} ({why})"),
                });
            }
            thread::sleep(RECONNECT_INTERVAL.into());
        }
    }

    /// Makes one attempt to connect. The inner error may be temporary, so that another attempt may succeed.
    /// The outer error is final.
    fn try_connect(
        &self,
        rank: usize,
        address: SocketAddr,
        until: Instant,
    ) -> Result<io::Result<TcpStream>, Error> {
        let connector = Connector::new(own(&self.place, nonce()?), rank as u32);
        let mut challenge = [0; CHALLENGE];
        let mut challenged = || -> io::Result<TcpStream> {
            let mut stream = TcpStream::connect_timeout(&address, time_left(until).into())?;
            stream.set_nodelay(true)?;
            stream.write_all(connector.hello())?;
            read_until(&mut stream, &mut challenge, until)?;
            Ok(stream)
        };
        let mut stream = match challenged() {
            Ok(stream) => stream,
            Err(error) => return Ok(Err(error)),
        };
        let final_word = |why: String| Error::Job(format!("{address} is not rank {rank} of this job: {why}"));
        let listens_at = match self.address.ip() {
            // a wildcard names no interface: others can reach this rank at the interface that reached rank 0
            ip if ip.is_unspecified() => match stream.local_addr() {
                Ok(here) => SocketAddr::new(here.ip(), self.address.port()),
                Err(error) => return Ok(Err(error)),
            },
            _ => self.address,
        };
        let proof = connector.prove(&challenge, listens_at).map_err(|why| final_word(why.to_string()))?;
        let mut verdict = [0];
        let judged = stream.write_all(&proof).and_then(|()| read_until(&mut stream, &mut verdict, until));
        if let Err(error) = judged {
            return Ok(Err(error));
        }
        match JoinVerdict::from_code(verdict[0]) {
            Some(JoinVerdict::Welcome) => Ok(Ok(stream)),
            Some(JoinVerdict::Taken) => Err(Error::Job(format!(
                "rank {} is taken: rank {rank} at {address} has met another; give every process its own rank",
                self.place.rank
            ))),
            Some(JoinVerdict::Misplaced) => {
                Err(final_word(format!("it does not expect rank {}", self.place.rank)))
            }
            None => Err(final_word(format!("it answered {}", verdict[0]))),
        }
    }

    /// Accepts the ranks in `expected`, and closes connections of other processes. Returns the addresses at
    /// which they and this rank itself listen.
    fn accept(
        &self,
        streams: &mut Streams,
        expected: &[usize],
        until: Instant,
    ) -> Result<Vec<SocketAddr>, Error> {
        let mut addresses = vec![self.address; self.place.size];
        let mut unauthenticated: Vec<PendingHandshake> = Vec::new();
        loop {
            let missing = || expected.iter().filter(|rank| streams[**rank].is_none());
            if missing().next().is_none() {
                return Ok(addresses);
            }
            if now() >= until {
                let missing: Vec<String> = missing().map(|rank| rank.to_string()).collect();
                return Err(Error::TimedOut {
                    call: "meet",
                    waiting_for: format!("ranks {} to connect to {}", missing.join(", "), self.address),
                });
            }
            let ready = self.poll(&unauthenticated, until)?;
            for index in (0..unauthenticated.len()).rev() {
                let verdict = if ready[index] {
                    unauthenticated[index].advance(&self.place)
                } else {
                    HandshakeProgress::Waiting
                };
                match verdict {
                    HandshakeProgress::Waiting if now() < unauthenticated[index].until => {}
                    HandshakeProgress::Waiting | HandshakeProgress::Failed => {
                        drop(unauthenticated.swap_remove(index));
                    }
                    HandshakeProgress::Proved(request) => {
                        let pending = unauthenticated.swap_remove(index);
                        if let Some(stream) = self.judge(pending.stream, request, expected, streams) {
                            addresses[request.rank as usize] = request.listens_at;
                            streams[request.rank as usize] = Some(stream);
                        }
                    }
                }
            }
            self.accept_connections(&mut unauthenticated)?;
        }
    }

    /// Sleeps until a connection or bytes arrive. Returns for each unauthenticated connection whether bytes
    /// have arrived.
    fn poll(&self, unauthenticated: &[PendingHandshake], until: Instant) -> Result<Vec<bool>, Error> {
        let first = unauthenticated.iter().map(|pending| pending.until).min();
        // with all places taken, accepting is tried again soon, when the oldest connection may be dropped
        let soon = if unauthenticated.len() >= MAX_UNAUTHENTICATED {
            Duration::from_millis(10)
        } else {
            Duration::SECOND
        };
        let end = first.unwrap_or(until).min(until).min(now() + soon);
        let mut polled: Vec<_> = unauthenticated.iter().map(|pending| pending.stream.as_fd()).collect();
        if unauthenticated.len() < MAX_UNAUTHENTICATED {
            polled.push(self.listener.as_fd());
        }
        let timeout = Some((end - now()).into());
        let mut ready = readable_of(&polled, timeout).map_err(Error::system("cannot poll connections"))?;
        ready.truncate(unauthenticated.len());
        Ok(ready)
    }

    fn has_pending_connection(&self) -> bool {
        readable([self.listener.as_fd()], Some(Duration::ZERO.into())).is_ok_and(|[pending]| pending)
    }

    /// Accepts connections as long as there is room for unauthenticated ones.
    fn accept_connections(&self, unauthenticated: &mut Vec<PendingHandshake>) -> Result<(), Error> {
        loop {
            if unauthenticated.len() >= MAX_UNAUTHENTICATED {
                let oldest = (0..unauthenticated.len()).min_by_key(|index| unauthenticated[*index].since);
                let crowded = oldest.filter(|index| now() - unauthenticated[*index].since > MIN_EVICTION_AGE);
                let Some(index) = crowded.filter(|_| self.has_pending_connection()) else { return Ok(()) };
                drop(unauthenticated.swap_remove(index));
            }
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    unauthenticated.push(PendingHandshake::new(stream)?);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if is_transient(&error) => {}
                Err(_) if !unauthenticated.is_empty() => unauthenticated.clear(), // out of descriptors: drop these
                Err(error) => {
                    return Err(Error::system(format!("cannot accept at {}", self.address))(error));
                }
            }
        }
    }

    /// Sends the verdict to a process that has proved the key; returns its connection if it is accepted.
    fn judge(
        &self,
        mut stream: TcpStream,
        request: JoinRequest,
        expected: &[usize],
        streams: &Streams,
    ) -> Option<TcpStream> {
        let (own, rank) = (&self.place, request.rank as usize);
        let fits = request.wanted == (own.rank.0, own.size as u32) && expected.contains(&rank);
        let verdict = match () {
            () if !fits => JoinVerdict::Misplaced,
            () if streams[rank].as_ref().is_some_and(is_open) => JoinVerdict::Taken,
            () => JoinVerdict::Welcome,
        };
        let sent = stream.write(&[verdict as u8]).is_ok_and(|bytes| bytes == 1);
        let stays = verdict == JoinVerdict::Welcome && sent && stream.set_nonblocking(false).is_ok();
        stays.then_some(stream)
    }
}

fn own(place: &JobMembership, nonce: Nonce) -> LocalIdentity<'_> {
    LocalIdentity { rank: place.rank.0, size: place.size as u32, key: &place.key, nonce }
}

/// Makes a random number that was never used before.
fn nonce() -> Result<Nonce, Error> {
    let mut nonce = [0; 32];
    for half in nonce.chunks_exact_mut(16) {
        half.copy_from_slice(Key::random()?.bytes());
    }
    Ok(nonce)
}

/// Whether an error of accept(2) belongs to the connection, not to the listener.
fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionReset, Interrupted, NetworkUnreachable, PermissionDenied,
    };
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted | NetworkUnreachable | PermissionDenied
    )
}

/// Whether a connection on which nothing has arrived is still open. If it has ended, its rank may connect
/// again.
fn is_open(stream: &TcpStream) -> bool {
    let mut byte = [0; 1];
    match recv(stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((bytes, _)) => bytes > 0,
        Err(error) => error == rustix::io::Errno::AGAIN,
    }
}

/// A connection that has proved nothing yet.
#[derive(Debug)]
struct PendingHandshake {
    stream: TcpStream,
    acceptor: Acceptor,
    nonce: Nonce,
    since: Instant,
    until: Instant,
}

enum HandshakeProgress {
    Waiting,
    Failed,
    Proved(JoinRequest),
}

impl PendingHandshake {
    fn new(stream: TcpStream) -> Result<Self, Error> {
        let since = now();
        let (acceptor, nonce) = (Acceptor::new(), nonce()?);
        Ok(Self { stream, acceptor, nonce, since, until: since + HANDSHAKE_TIMEOUT })
    }

    /// Reads the bytes that have arrived on the connection, and answers them.
    fn advance(&mut self, place: &JobMembership) -> HandshakeProgress {
        let own = own(place, self.nonce);
        loop {
            let bytes = match self.stream.read(self.acceptor.room()) {
                Ok(0) => return HandshakeProgress::Failed,
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return HandshakeProgress::Waiting;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return HandshakeProgress::Failed,
            };
            match self.acceptor.took(bytes, &own) {
                Ok(AcceptorStep::Read) => {}
                // a new socket has room for the few bytes, or is not worth waiting for
                Ok(AcceptorStep::Send(challenge)) => {
                    if !self.stream.write(&challenge).is_ok_and(|bytes| bytes == CHALLENGE) {
                        return HandshakeProgress::Failed;
                    }
                }
                Ok(AcceptorStep::Judge(request)) => return HandshakeProgress::Proved(request),
                Err(_) => return HandshakeProgress::Failed,
            }
        }
    }
}

/// Returns the time left until `until`; never zero, because zero would mean for ever.
fn time_left(until: Instant) -> Duration {
    (until - now()).max(Duration::from_millis(1))
}

/// Fills `bytes`, but does not read after `until`, however slowly the bytes arrive.
fn read_until(stream: &mut TcpStream, bytes: &mut [u8], until: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        if now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(time_left(until).into()))?;
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
