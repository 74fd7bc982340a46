//! TCP: packets between processes that share nothing but a network, and a key.
//!
//! The idea: each pair of ranks has one connection. It is opened while the job is made ([`ListeningSeat`]),
//! after both have proved to each other that they know the job's key (`handshake`). Packets travel unchanged
//! (`stream`); TCP acknowledges and repeats them. The transport reads only connections that the kernel
//! reports ready (epoll). It sends at once, header and payload in one call, and keeps bytes that the kernel
//! does not take. A waiter first polls for a moment, if polling has paid lately and no other member on this
//! host needs the processor (`patience`); then it sleeps in the kernel. The transport reads the end of a peer
//! from its connection, and sends heartbeats to silent peers (`pulse`).
//!
//! Cost: two system calls for each packet at each side, one more if the receiver slept; 64 KiB for each peer
//! that has sent something, and the bytes that are kept. When not to use: within a host, where memory is
//! shared; or across a network that others can read or change, because nothing is encrypted (see
//! `PROTOCOL.md`). Reference: tcp(7), epoll(7); RFC 9293; `PROTOCOL.md` beside this file.

mod bell;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
mod handshake;
mod meeting;
mod patience;
mod pulse;
mod socket;
mod stream;

pub(super) use bell::Door;
pub use meeting::ListeningSeat;

use super::{Bell, Gone, Transport};
use crate::model::{Error, Rank};
use crate::wire::packet::{HEADER, PacketKind};
use bell::Ready;
use patience::LearntPatience;
use pulse::{POLL_INTERVAL, PeerFinding, Pulse};
use socket::Socket;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use stream::{HEARTBEAT, Incoming, StreamCut, UnsentBytes};
use unisono_linux::clock::{Nanos, now};
use unisono_linux::tcp;

/// The longest wait of a rank that said goodbye until its peers have acknowledged its last packets.
const LINGER: Nanos = Nanos(500_000_000);

#[derive(Debug)]
pub struct Tcp {
    rank: Rank,
    peers: Vec<PeerConnection>,
    door: Arc<Door>,
    /// Peers whose packets may be complete, in the order of service.
    ready: VecDeque<usize>,
    /// Memory for the kernel's events.
    events: Vec<Ready>,
    gone: Vec<Gone>,
    patience: LearntPatience,
    next_look: Nanos,
}

#[derive(Debug, Default)]
struct PeerConnection {
    /// None for this rank itself and for peers that are gone.
    socket: Option<Socket>,
    incoming: Incoming,
    outgoing: UnsentBytes,
    pulse: Pulse,
    /// Whether the peer is in the list `ready`.
    is_ready: bool,
    /// Whether the kernel reports room to send.
    wants_room: bool,
    /// Why the connection has ended; reported when all arrived packets are served.
    lost: Option<String>,
    /// Why sending failed; a read finds the end, but not always the reason.
    broken: Option<String>,
    left: bool,
    told: bool,
}

impl ListeningSeat {
    /// Meets all others at known addresses, in the order of ranks. Collective: waits until all have joined,
    /// at most for `patience`. Fails with [`Error::TimedOut`], which names the missing ranks; [`Error::Job`]
    /// when another process answers at an address, or a rank is taken twice; [`Error::System`].
    pub fn meet(self, addresses: &[SocketAddr], patience: Duration) -> Result<Tcp, Error> {
        let (rank, until) = (self.place().rank, Nanos::from(patience).after(now()));
        Tcp::over(rank, self.meet_at(addresses, until)?)
    }

    /// Meets all others through rank 0, which listens at `root` and distributes the addresses of the others.
    /// Otherwise as [`meet`](Self::meet).
    pub fn gather(self, root: SocketAddr, patience: Duration) -> Result<Tcp, Error> {
        let (rank, until) = (self.place().rank, Nanos::from(patience).after(now()));
        Tcp::over(rank, self.meet_through(root, until)?)
    }
}

impl Tcp {
    fn over(rank: Rank, streams: meeting::Streams) -> Result<Self, Error> {
        let open = || -> io::Result<(Vec<PeerConnection>, Door, usize)> {
            let mut peers = Vec::with_capacity(streams.len());
            for stream in streams {
                let socket = stream.map(Socket::new).transpose()?;
                peers.push(PeerConnection { socket, ..PeerConnection::default() });
            }
            let fellows = |peer: &&PeerConnection| peer.socket.as_ref().is_some_and(Socket::is_local);
            let here = peers.iter().filter(fellows).count() + 1;
            let door = Door::new(here)?;
            for (index, peer) in peers.iter().enumerate() {
                if let Some(socket) = &peer.socket {
                    door.watch(socket, index)?;
                }
            }
            Ok((peers, door, here))
        };
        let (peers, door, here) = open().map_err(Error::system("cannot set up the job's connections"))?;
        Ok(Self {
            rank,
            peers,
            door: Arc::new(door),
            ready: VecDeque::new(),
            events: Vec::new(),
            gone: Vec::new(),
            patience: LearntPatience::new(here),
            next_look: POLL_INTERVAL.after(now()),
        })
    }

    /// The object on which threads wait for all connections.
    pub(super) fn door(&self) -> Arc<Door> {
        Arc::clone(&self.door)
    }

    /// Closes the connection to a peer that another transport reaches. The peer does the same, and may be
    /// reported gone.
    pub(super) fn release(&mut self, rank: Rank) {
        if let Some(socket) = self.peers[rank.index()].socket.take() {
            self.door.forget(&socket);
        }
    }

    /// Handles the kernel's events, and waits for them for at most `timeout`. Returns whether there was any.
    fn attend(&mut self, timeout: Nanos) -> Result<bool, Error> {
        let mut ready = std::mem::take(&mut self.events);
        let happened =
            self.door.attend(timeout, &mut ready).map_err(Error::system("cannot wait for connections"))?;
        for event in ready.drain(..) {
            if event.writable {
                self.pass_on(event.peer);
            }
            if event.readable {
                self.read(event.peer);
            }
        }
        self.events = ready;
        Ok(happened)
    }

    /// Reads once from a peer's connection.
    fn read(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        let Some(socket) = &mut peer.socket else { return };
        if peer.incoming.has_room() {
            self.door.announce();
            match peer.incoming.fill(socket) {
                Ok(0) => {
                    let cut = if peer.incoming.is_empty() { "" } else { " in the middle of a packet" };
                    return self.lose(index, &format!("it closed the connection{cut}"));
                }
                Ok(_) => peer.pulse.heard(),
                Err(error) if is_passing(&error) => return,
                Err(error) => return self.lose(index, &error.to_string()),
            }
        }
        if !std::mem::replace(&mut peer.is_ready, true) {
            self.ready.push_back(index);
        }
    }

    /// Sends kept bytes for a peer. Returns whether none is left.
    fn pass_on(&mut self, index: usize) -> bool {
        let peer = &mut self.peers[index];
        let Some(socket) = &mut peer.socket else { return true };
        let done = peer.outgoing.flush(socket);
        self.sent(index, done)
    }

    /// Records the result of an attempt to send.
    fn sent(&mut self, index: usize, done: io::Result<bool>) -> bool {
        let peer = &mut self.peers[index];
        let Some(socket) = &peer.socket else { return true };
        let wants_room = match done {
            Ok(done) => !done,
            Err(error) => {
                // The peer's earlier packets are read first.
                peer.broken.get_or_insert(error.to_string());
                peer.outgoing.clear();
                false
            }
        };
        if wants_room != std::mem::replace(&mut peer.wants_room, wants_room)
            && let Err(error) = self.door.change(socket, index, wants_room)
        {
            self.lose(index, &format!("its connection cannot be watched: {error}"));
            return true;
        }
        !wants_room
    }

    /// Records that a peer cannot be reached any more. Its packets that have arrived stay.
    fn lose(&mut self, index: usize, why: &str) {
        let peer = &mut self.peers[index];
        if let Some(socket) = peer.socket.take() {
            self.door.forget(&socket);
        }
        peer.outgoing.clear();
        peer.wants_room = false;
        let broken = peer.broken.take();
        let why = broken.as_deref().unwrap_or(why);
        // The packets that have arrived are served first: after a goodbye among them the peer is not lost.
        if peer.is_ready {
            peer.lost = Some(why.to_owned());
        } else if !peer.left {
            self.report(index, why);
        }
    }

    fn report(&mut self, index: usize, why: &str) {
        let rank = Rank::at(index);
        if !self.gone.iter().any(|gone| gone.rank == rank) {
            self.gone.push(Gone { rank, why: why.to_owned() });
        }
    }

    /// Sends heartbeats to silent peers, when the next check is due.
    fn look_around(&mut self) {
        let now = now();
        if now < self.next_look {
            return;
        }
        self.next_look = POLL_INTERVAL.after(now);
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            let Some(socket) = &mut peer.socket else { continue };
            if peer.left || peer.pulse.spare() {
                continue;
            }
            let Ok(silence) = tcp::silence(&*socket) else { continue };
            match peer.pulse.look(silence, !peer.outgoing.is_empty(), now) {
                PeerFinding::Alive => {}
                PeerFinding::Ask => {
                    let sent = peer.outgoing.send(socket, &HEARTBEAT, &[]).map(|()| peer.outgoing.is_empty());
                    self.sent(index, sent);
                }
                PeerFinding::Gone => {
                    self.lose(index, "its host does not answer any more");
                }
            }
        }
    }

    /// Takes the next complete packet from the peers that are ready.
    fn serve(&mut self, packet: &mut Vec<u8>) -> Option<Rank> {
        while let Some(index) = self.ready.pop_front() {
            let peer = &mut self.peers[index];
            match peer.incoming.cut(packet) {
                Ok(StreamCut::WirePacket) => {
                    peer.left |= packet[0] == PacketKind::Goodbye as u8;
                    self.ready.push_back(index);
                    return Some(Rank::at(index));
                }
                Ok(StreamCut::Nothing) => {
                    peer.is_ready = false;
                    if let Some(why) = peer.lost.take().filter(|_| !peer.left) {
                        self.report(index, &why);
                    }
                }
                Err(bad) => self.refuse(Rank::at(index), &format!("it sent what is no packet: {bad}")),
            }
        }
        None
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl Transport for Tcp {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.peers.len()
    }

    fn send(&mut self, to: Rank, header: &[u8; HEADER], payload: &[IoSlice<'_>]) -> Result<(), Error> {
        let Some(peer) = self.peers.get_mut(to.index()) else { return Ok(()) };
        let Some(socket) = &mut peer.socket else { return Ok(()) };
        peer.told |= header[0] == PacketKind::Goodbye as u8;
        let sent = peer.outgoing.send(socket, header, payload).map(|()| peer.outgoing.is_empty());
        self.sent(to.index(), sent);
        Ok(())
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> Result<Option<Rank>, Error> {
        loop {
            if let Some(from) = self.serve(packet) {
                return Ok(Some(from));
            }
            if !self.attend(Nanos::ZERO)? {
                self.look_around();
                return Ok(None);
            }
        }
    }

    fn wait(&mut self, until: Option<Nanos>) -> Result<(), Error> {
        if !self.ready.is_empty() {
            return Ok(());
        }
        self.patience.begin();
        while self.patience.polls() {
            if self.attend(Nanos::ZERO)? {
                self.patience.paid();
                return Ok(());
            }
            if until.is_some_and(|until| now() >= until) {
                return Ok(());
            }
        }
        self.look_around();
        let moment = until.map_or(self.next_look, |until| until.min(self.next_look));
        self.attend(moment.since(now()))?;
        self.patience.ended();
        self.look_around();
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, Error> {
        let waiting: Vec<usize> =
            (0..self.peers.len()).filter(|index| self.peers[*index].wants_room).collect();
        Ok(waiting.into_iter().filter(|index| !self.pass_on(*index)).count() == 0)
    }

    fn gone(&self) -> &[Gone] {
        &self.gone
    }

    fn refuse(&mut self, peer: Rank, why: &str) {
        let index = peer.index();
        let Some(entry) = self.peers.get_mut(index).filter(|_| peer != self.rank) else { return };
        entry.incoming = Incoming::default();
        entry.left = false;
        if let Some(socket) = entry.socket.take() {
            self.door.forget(&socket);
        }
        entry.outgoing.clear();
        entry.wants_room = false;
        entry.lost = None;
        self.report(index, why);
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        let bell: Arc<dyn Bell> = Arc::clone(&self.door) as Arc<dyn Bell>;
        Some(bell)
    }
}

impl Drop for Tcp {
    /// The last packets reach the peers that got this rank's goodbye. The others see its end at once.
    fn drop(&mut self) {
        let limit = LINGER.after(now());
        let mut last: Vec<Socket> = Vec::new();
        for peer in &mut self.peers {
            let Some(mut socket) = peer.socket.take() else { continue };
            // In an orderly end all kept bytes were flushed before. An error means that the peer is gone.
            let _ = peer.outgoing.flush(&mut socket);
            socket.end();
            if !socket.drain() && peer.told {
                last.push(socket);
            }
        }
        let unheard = |socket: &mut Socket| {
            !socket.drain() && tcp::silence(&*socket).is_ok_and(|silence| silence.unacknowledged > 0)
        };
        loop {
            last.retain_mut(unheard);
            if last.is_empty() || now() >= limit {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
