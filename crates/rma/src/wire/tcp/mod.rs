//! TCP: packets between processes that share nothing but a network, and a key.
//!
//! The idea: each pair of ranks has one connection. It is opened while the job is made ([`JobListener`]),
//! after both have proved to each other that they know the job's key (`handshake`). Packets travel unchanged
//! (`stream`); TCP acknowledges and retransmits them. The transport reads only connections that the kernel
//! reports ready (epoll). It sends at once, header and payload in one call, and keeps bytes that the kernel
//! does not take. A waiter first polls for a moment, if polling has paid lately and no other member on this
//! host needs the processor (`poll_budget`); then it sleeps in the kernel. The transport reads the end of a
//! peer from its connection, and sends heartbeats to silent peers (`liveness`).
//!
//! Cost: two system calls for each packet at each side, one more if the receiver slept; 64 KiB for each peer
//! that has sent something, and the bytes that are kept. When not to use: within a host, where memory is
//! shared; or across a network that others can read or change, because nothing is encrypted (see
//! `PROTOCOL.md`). Reference: tcp(7), epoll(7); RFC 9293; `PROTOCOL.md` beside this file.

mod bootstrap;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
mod handshake;
mod liveness;
mod poll_budget;
mod poller;
mod socket;
mod stream;

pub use bootstrap::JobListener;
pub(super) use poller::Poller;

use super::{Bell, Gone, Transport};
use crate::model::{Error, Rank};
use crate::wire::packet::{HEADER, PacketKind};
use liveness::{POLL_INTERVAL, PeerFinding, PeerLiveness};
use poll_budget::AdaptivePollBudget;
use poller::Ready;
use socket::Socket;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration as StdDuration;
use stream::{HEARTBEAT, Incoming, StreamCut, UnsentBytes};
use unisono_linux::clock::{Duration, Instant, now};
use unisono_linux::tcp;

/// The longest time for which a rank that said goodbye waits until its peers have acknowledged its last
/// packets.
const LINGER: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Tcp {
    rank: Rank,
    peers: Vec<PeerConnection>,
    poller: Arc<Poller>,
    /// Peers whose packets may be complete, in the order of service.
    ready: VecDeque<usize>,
    /// Memory for the kernel's events.
    events: Vec<Ready>,
    gone: Vec<Gone>,
    poll_budget: AdaptivePollBudget,
    next_liveness_check: Instant,
}

#[derive(Debug, Default)]
struct PeerConnection {
    /// `None` for this rank itself and for peers that are gone.
    socket: Option<Socket>,
    incoming: Incoming,
    outgoing: UnsentBytes,
    liveness: PeerLiveness,
    /// Whether the peer is in the list `ready`.
    is_ready: bool,
    /// Whether the kernel reports room to send.
    wants_room: bool,
    /// Why the connection has ended; reported when all arrived packets are served.
    lost: Option<String>,
    /// Why sending failed; a read finds the end, but not always the reason.
    broken: Option<String>,
    left: bool,
    goodbye_sent: bool,
}

impl JobListener {
    /// Connects to all others at known addresses, in the order of ranks. Collective: waits until all have
    /// joined, for at most `timeout`. Fails with [`Error::TimedOut`], which names the missing ranks;
    /// [`Error::Job`] when another process answers at an address, or a rank is taken twice;
    /// [`Error::System`].
    pub fn connect(self, addresses: &[SocketAddr], timeout: StdDuration) -> Result<Tcp, Error> {
        let all: Vec<Rank> = (0..self.place().size).map(Rank::at).collect();
        self.connect_neighbours(addresses, &all, timeout)
    }

    /// Connects to some of the others, which expect this rank; otherwise as [`connect`](Self::connect). The
    /// transport reaches no other rank.
    pub fn connect_neighbours(
        self,
        addresses: &[SocketAddr],
        neighbours: &[Rank],
        timeout: StdDuration,
    ) -> Result<Tcp, Error> {
        let (rank, until) = (self.place().rank, now() + timeout.into());
        let others = neighbours.iter().filter(|other| **other != rank).map(|other| other.index());
        let others: Vec<usize> = others.collect();
        Tcp::over(rank, self.streams_to(addresses, &others, until)?)
    }

    /// Connects to all others through rank 0, which listens at `root` and distributes the addresses of the
    /// others. Otherwise as [`connect`](Self::connect).
    pub fn connect_through(self, root: SocketAddr, timeout: StdDuration) -> Result<Tcp, Error> {
        let (rank, until) = (self.place().rank, now() + timeout.into());
        Tcp::over(rank, self.streams_through(root, until)?)
    }
}

impl Tcp {
    fn over(rank: Rank, streams: bootstrap::Streams) -> Result<Self, Error> {
        let open = || -> io::Result<(Vec<PeerConnection>, Poller, usize)> {
            let mut peers = Vec::with_capacity(streams.len());
            for stream in streams {
                let socket = stream.map(Socket::new).transpose()?;
                peers.push(PeerConnection { socket, ..PeerConnection::default() });
            }
            let is_local = |peer: &&PeerConnection| peer.socket.as_ref().is_some_and(Socket::is_local);
            let here = peers.iter().filter(is_local).count() + 1;
            let poller = Poller::new(here)?;
            for (index, peer) in peers.iter().enumerate() {
                if let Some(socket) = &peer.socket {
                    poller.add(socket, index)?;
                }
            }
            Ok((peers, poller, here))
        };
        let (peers, poller, here) = open().map_err(Error::system("cannot set up the job's connections"))?;
        Ok(Self {
            rank,
            peers,
            poller: Arc::new(poller),
            ready: VecDeque::new(),
            events: Vec::new(),
            gone: Vec::new(),
            poll_budget: AdaptivePollBudget::new(here),
            next_liveness_check: now() + POLL_INTERVAL,
        })
    }

    /// Leaves silent peers alone: only a peer whose connection ends is gone from now on. For members that use
    /// the connections for nothing else, and that have another network whose outages count.
    #[must_use]
    pub fn without_heartbeats(mut self) -> Self {
        self.next_liveness_check = Instant::from_nanos(u64::MAX);
        self
    }

    /// Returns the object on which threads wait for all connections.
    pub(super) fn poller(&self) -> Arc<Poller> {
        Arc::clone(&self.poller)
    }

    /// Closes the connection to a peer that another transport reaches. The peer does the same, and may be
    /// reported gone.
    pub(super) fn release(&mut self, rank: Rank) {
        if let Some(socket) = self.peers[rank.index()].socket.take() {
            self.poller.remove(&socket);
        }
    }

    /// Handles the kernel's events, and waits for them for at most `timeout`. Returns whether there was any.
    fn poll_events(&mut self, timeout: Duration) -> Result<bool, Error> {
        let mut ready = std::mem::take(&mut self.events);
        let happened =
            self.poller.poll(timeout, &mut ready).map_err(Error::system("cannot wait for connections"))?;
        for event in ready.drain(..) {
            if event.writable {
                self.flush_peer(event.peer);
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
            self.poller.notify_listeners();
            match peer.incoming.fill(socket) {
                Ok(0) => {
                    let cut = if peer.incoming.is_empty() { "" } else { " in the middle of a packet" };
                    return self.disconnect(index, &format!("it closed the connection{cut}"));
                }
                Ok(_) => peer.liveness.record_received(),
                Err(error) if is_transient(&error) => return,
                Err(error) => return self.disconnect(index, &error.to_string()),
            }
        }
        if !std::mem::replace(&mut peer.is_ready, true) {
            self.ready.push_back(index);
        }
    }

    /// Sends kept bytes for a peer. Returns whether none is left.
    fn flush_peer(&mut self, index: usize) -> bool {
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
                // The peer is reported gone only after its earlier packets were read.
                peer.broken.get_or_insert(error.to_string());
                peer.outgoing.clear();
                false
            }
        };
        if wants_room != std::mem::replace(&mut peer.wants_room, wants_room)
            && let Err(error) = self.poller.modify(socket, index, wants_room)
        {
            self.disconnect(index, &format!("its connection cannot be watched: {error}"));
            return true;
        }
        !wants_room
    }

    /// Records that a peer cannot be reached any more. Its packets that have arrived are still delivered.
    fn disconnect(&mut self, index: usize, why: &str) {
        let peer = &mut self.peers[index];
        if let Some(socket) = peer.socket.take() {
            self.poller.remove(&socket);
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
    fn check_liveness(&mut self) {
        let now = now();
        if now < self.next_liveness_check {
            return;
        }
        self.next_liveness_check = now + POLL_INTERVAL;
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            let Some(socket) = &mut peer.socket else { continue };
            if peer.left || peer.liveness.take_received() {
                continue;
            }
            let Ok(silence) = tcp::silence(&*socket) else { continue };
            match peer.liveness.check(silence, !peer.outgoing.is_empty(), now) {
                PeerFinding::Alive => {}
                PeerFinding::Probe => {
                    let sent = peer.outgoing.send(socket, &HEARTBEAT, &[]).map(|()| peer.outgoing.is_empty());
                    self.sent(index, sent);
                }
                PeerFinding::Gone => {
                    self.disconnect(index, "its host does not answer any more");
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

fn is_transient(error: &io::Error) -> bool {
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
        peer.goodbye_sent |= header[0] == PacketKind::Goodbye as u8;
        let sent = peer.outgoing.send(socket, header, payload).map(|()| peer.outgoing.is_empty());
        self.sent(to.index(), sent);
        Ok(())
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> Result<Option<Rank>, Error> {
        loop {
            if let Some(from) = self.serve(packet) {
                return Ok(Some(from));
            }
            if !self.poll_events(Duration::ZERO)? {
                self.check_liveness();
                return Ok(None);
            }
        }
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), Error> {
        if !self.ready.is_empty() {
            return Ok(());
        }
        self.poll_budget.start_wait();
        while self.poll_budget.is_left() {
            if self.poll_events(Duration::ZERO)? {
                self.poll_budget.poll_succeeded();
                return Ok(());
            }
            if until.is_some_and(|until| now() >= until) {
                return Ok(());
            }
        }
        self.check_liveness();
        let moment = until.map_or(self.next_liveness_check, |until| until.min(self.next_liveness_check));
        self.poll_events(moment - now())?;
        self.poll_budget.slept();
        self.check_liveness();
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, Error> {
        let blocked: Vec<usize> =
            (0..self.peers.len()).filter(|index| self.peers[*index].wants_room).collect();
        Ok(blocked.into_iter().filter(|index| !self.flush_peer(*index)).count() == 0)
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
            self.poller.remove(&socket);
        }
        entry.outgoing.clear();
        entry.wants_room = false;
        entry.lost = None;
        self.report(index, why);
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        let bell: Arc<dyn Bell> = Arc::clone(&self.poller) as Arc<dyn Bell>;
        Some(bell)
    }
}

impl Drop for Tcp {
    /// Ends all connections. Waits, for at most `LINGER`, until the peers that got this rank's goodbye have
    /// its last packets. All other peers see the end of their connection at once.
    fn drop(&mut self) {
        let limit = now() + LINGER;
        let mut last: Vec<Socket> = Vec::new();
        for peer in &mut self.peers {
            let Some(mut socket) = peer.socket.take() else { continue };
            // In an orderly end all kept bytes were flushed before. An error means that the peer is gone.
            let _ = peer.outgoing.flush(&mut socket);
            socket.end();
            if !socket.drain() && peer.goodbye_sent {
                last.push(socket);
            }
        }
        let unacknowledged = |socket: &mut Socket| {
            !socket.drain() && tcp::silence(&*socket).is_ok_and(|silence| silence.unacknowledged > 0)
        };
        loop {
            last.retain_mut(unacknowledged);
            if last.is_empty() || now() >= limit {
                return;
            }
            std::thread::sleep(StdDuration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
