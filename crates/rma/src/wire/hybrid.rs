//! Several hosts: packets between ranks of one host through rings in shared memory, between hosts over TCP.
//!
//! The idea: all ranks first meet over TCP, because only rank 0's address is known. Then the ranks of each
//! host meet in a segment of their own, and close the connections between them. Afterwards a packet's
//! receiver decides whether rings or TCP carry the packet. All packets of a pair use the same transport,
//! which keeps their order.
//!
//! A rank can sleep on one object only: the bell of its host's segment. The bell is a futex, and poll(2)
//! cannot wait for a futex. So a thread, the *relay*, sleeps on the connections in the rank's place, and
//! rings the bell when there is something to read:
//!
//! ```text
//!   rank of this host --- ring, bell ------------------------+
//!                                                            v
//!   rank of another host --- TCP --> relay (poll) --bell--> rank: reads rings, then connections
//! ```
//! After it has rung the bell, the relay waits until the rank has read the connections; otherwise it would
//! ring all the time while the rank computes. The rank notes the bell's count before it reads anything, so it
//! misses no later ring of the bell.
//!
//! Cost: both transports' costs; one thread a rank, and its wake-up for each packet of another host that
//! finds the rank asleep. A rank alone on its host has no such thread. When not to use: where all ranks share
//! a host ([`super::ring`]).

use super::ring::RingTransport;
use super::tcp::{JobListener, Poller, Tcp};
use super::{Bell, Transport};
use crate::host::HostMembers;
use crate::model::{Bootstrap, Error, Gone, JobMembership, Rank};
use crate::wire::packet::HEADER;
use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use unisono_linux::clock::{Instant, now};

#[derive(Debug)]
pub struct Hybrid {
    // Declared before the connections that its thread polls, so that it is dropped first.
    relay: Option<Relay>,
    tcp: Tcp,
    ring: Option<RingTransport>,
    /// The ranks of this host, in the order of the ring's own numbers.
    here: Vec<Rank>,
    /// The number of each rank in the ring, or `None` for a rank of another host.
    local: Vec<Option<Rank>>,
    /// Whether the last packet came through the ring, so that the connections are read next.
    ring_served: bool,
    gone: Vec<Gone>,
}

impl Hybrid {
    /// Connects to all others: first over TCP through rank 0, then to the ranks of this host in shared
    /// memory. Collective: waits until all have joined, for at most `timeout`. Fails with [`Error::Job`] for
    /// an impossible bootstrap; otherwise fails as [`JobListener::connect_through`] and
    /// [`RingTransport::connect`].
    pub fn connect(place: &JobMembership, bootstrap: &Bootstrap, timeout: Duration) -> Result<Self, Error> {
        let limit = now() + timeout.into();
        let root = address_of(&bootstrap.root)?;
        let anywhere: IpAddr =
            if root.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let own = if place.rank == Rank(0) { root } else { SocketAddr::new(anywhere, 0) };
        let listener = JobListener::bind(place.clone(), own).map_err(|error| match error {
            Error::System { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
                Error::Job(format!(
                    "cannot listen at {own}: the port is in use; give another one (the launcher's --port)"
                ))
            }
            error => error,
        })?;
        let mut tcp = listener.connect_through(root, timeout)?;
        let here = bootstrap.here.clone();
        let mut local = vec![None; place.size];
        let mut ring = None;
        if here.len() > 1 {
            here.iter().enumerate().for_each(|(index, rank)| local[rank.index()] = Some(Rank::at(index)));
            here.iter().filter(|rank| **rank != place.rank).for_each(|rank| tcp.release(*rank));
            // Jobs of several groups may share one host: each group meets under a key of its own.
            let rank = local[place.rank.index()].unwrap_or_default();
            let group = JobMembership { rank, size: here.len(), key: place.key.of_group(here[0]) };
            ring = Some(RingTransport::connect(&group, (limit - now()).into())?);
        }
        let relay = match &ring {
            Some(ring) => Some(Relay::start(tcp.poller(), Arc::clone(ring.host()))?),
            None => None,
        };
        Ok(Self { relay, tcp, ring, here, local, ring_served: false, gone: Vec::new() })
    }

    fn note_gone(&mut self) {
        let ring = self.ring.iter().flat_map(|ring| ring.gone());
        let ring = ring.map(|gone| Gone { rank: self.here[gone.rank.index()], why: gone.why.clone() });
        // The connections within the host were closed on purpose.
        let tcp = self.tcp.gone().iter().filter(|gone| self.local[gone.rank.index()].is_none()).cloned();
        for gone in ring.chain(tcp) {
            if !self.gone.iter().any(|known| known.rank == gone.rank) {
                self.gone.push(gone);
            }
        }
    }
}

/// Resolves the address at which rank 0 listens. A name may have several addresses, and the first may be
/// unreachable from other hosts: Debian gives a host's own name the address 127.0.1.1.
fn address_of(root: &str) -> Result<SocketAddr, Error> {
    let resolved = root.to_socket_addrs();
    let addresses: Vec<SocketAddr> =
        resolved.map_err(Error::system(format!("cannot find rank 0's address {root}")))?.collect();
    let reachable = addresses.iter().find(|address| !address.ip().is_loopback());
    reachable.or(addresses.first()).copied().ok_or_else(|| Error::Job(format!("{root} has no address")))
}

impl Transport for Hybrid {
    fn rank(&self) -> Rank {
        self.tcp.rank()
    }

    fn size(&self) -> usize {
        self.tcp.size()
    }

    fn send(&mut self, to: Rank, header: &[u8; HEADER], payload: &[IoSlice<'_>]) -> Result<(), Error> {
        match (self.local.get(to.index()).copied().flatten(), &mut self.ring) {
            (Some(local), Some(ring)) => ring.send(local, header, payload),
            _ => self.tcp.send(to, header, payload),
        }
    }

    fn receive(&mut self, packet: &mut Vec<u8>) -> Result<Option<Rank>, Error> {
        if std::mem::take(&mut self.ring_served)
            && let Some(from) = self.tcp.receive(packet)?
        {
            return Ok(Some(from));
        }
        // The ring is read before the connections, because it notes the bell's count. So a later ring of the
        // bell by the relay is not lost.
        if let Some(ring) = &mut self.ring
            && let Some(from) = ring.receive(packet)?
        {
            self.ring_served = true;
            return Ok(Some(self.here[from.index()]));
        }
        let from = self.tcp.receive(packet)?;
        if from.is_none() {
            if let Some(relay) = &self.relay {
                relay.read();
            }
            self.note_gone();
        }
        Ok(from)
    }

    fn wait(&mut self, until: Option<Instant>) -> Result<(), Error> {
        match &mut self.ring {
            Some(ring) => ring.wait(until)?,
            None => self.tcp.wait(until)?,
        }
        self.note_gone();
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, Error> {
        let ring = self.ring.as_mut().map_or(Ok(true), Transport::flush)?;
        Ok(self.tcp.flush()? && ring)
    }

    fn gone(&self) -> &[Gone] {
        &self.gone
    }

    fn refuse(&mut self, peer: Rank, why: &str) {
        match (self.local.get(peer.index()).copied().flatten(), &mut self.ring) {
            (Some(local), Some(ring)) => ring.refuse(local, why),
            _ => self.tcp.refuse(peer, why),
        }
        self.note_gone();
    }

    fn bell(&self) -> Option<Arc<dyn Bell>> {
        self.ring.as_ref().map_or_else(|| self.tcp.bell(), Transport::bell)
    }
}

/// The thread that sleeps on the connections.
#[derive(Debug)]
struct Relay {
    state: Arc<(Mutex<RelayState>, Condvar)>,
    poller: Arc<Poller>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct RelayState {
    /// Whether the bell was rung and the rank has not read its connections since.
    rung: bool,
    ended: bool,
}

fn lock(state: &Mutex<RelayState>) -> MutexGuard<'_, RelayState> {
    // No code panics with the lock held.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    fn start(poller: Arc<Poller>, host: Arc<HostMembers>) -> Result<Self, Error> {
        let state = Arc::new((Mutex::new(RelayState::default()), Condvar::new()));
        let (watched, shared) = (Arc::clone(&poller), Arc::clone(&state));
        let run = move || {
            let (state, changed) = &*shared;
            loop {
                watched.wait_ready();
                let mut state = lock(state);
                if state.ended {
                    return;
                }
                state.rung = true;
                host.ring(host.rank);
                drop(changed.wait_while(state, |state| state.rung && !state.ended));
            }
        };
        let thread = thread::Builder::new().name("unisono-relay".to_owned()).spawn(run);
        let thread = Some(thread.map_err(Error::system("cannot start a thread for the connections"))?);
        Ok(Self { state, poller, thread })
    }

    /// Lets the relay poll again. Called when the rank has read all bytes of its connections.
    fn read(&self) {
        let mut state = lock(&self.state.0);
        if std::mem::take(&mut state.rung) {
            self.state.1.notify_one();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        lock(&self.state.0).ended = true;
        self.state.1.notify_one();
        self.poller.ring();
        if let Some(thread) = self.thread.take() {
            // The thread itself has printed its panic, if any.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Key;
    use crate::wire::tests::conformance;

    /// Creates the transports of a job of threads; ranks 0 and 1 share a host, 2 and 3, and so on.
    fn ends(size: usize) -> conformance::Transports {
        let key = Key::random().expect("the kernel has random bytes");
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let root = free.expect("a free port").to_string();
        let joining: Vec<_> = (0..size)
            .map(|rank| {
                let here = (rank / 2 * 2..size.min(rank / 2 * 2 + 2)).map(Rank::at).collect();
                let (place, bootstrap) = (
                    JobMembership { rank: Rank::at(rank), size, key },
                    Bootstrap { root: root.clone(), here },
                );
                thread::spawn(move || {
                    Hybrid::connect(&place, &bootstrap, Duration::from_secs(60)).expect("all come")
                })
            })
            .collect();
        let joined = joining.into_iter().map(|thread| thread.join().expect("joining does not panic"));
        joined.map(|end| Box::new(end) as Box<dyn Transport>).collect()
    }

    #[test]
    fn rings_within_a_host_and_connections_between_hosts_keep_the_contract() {
        conformance::check(ends);
    }

    #[test]
    fn a_port_that_is_in_use_is_named_with_the_remedy() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let root = taken.local_addr().expect("it has an address").to_string();
        let place = JobMembership { rank: Rank(0), size: 2, key: Key::from_bytes([7; 16]) };
        let bootstrap = Bootstrap { root: root.clone(), here: vec![Rank(0)] };
        let error = Hybrid::connect(&place, &bootstrap, Duration::from_secs(5)).expect_err("it is taken");
        assert!(error.to_string().contains(&root) && error.to_string().contains("--port"), "{error}");
    }
}
