//! Notices ranks that are gone: the host MPI's messages do not say so.
//!
//! The idea: the ranks of a job form a ring, and each has a TCP connection to its two neighbors in the ring.
//! A process that ends, however it does, closes its connections. The neighbor that notices it tells all
//! others by the host MPI's messages. Silence is no sign: the host MPI may use another network, and survives
//! an outage of this one.
//!
//! Cost: two connections a rank, made with the job; then one system call each [`POLL_INTERVAL`] while the
//! rank or its agent waits. When not to use it: on one host, whose ranks see each other's processes. Limits:
//! a host that loses its power closes nothing; a host without an IPv4 address that the others reach has no
//! watch, and neither has its job.

use super::super::host_tree::offer::HostOffer;
use super::super::membership;
use crate::error::{CallStatus, argument, ffi_call, ffi_call_or};
use std::ffi::c_int;
use std::net::{Ipv4Addr, SocketAddr};
use std::slice;
use std::time::Duration as StdDuration;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::netlink::NetlinkSocket;
use unisono_linux::netlink::address::{self, DeviceAddress};
use unisono_rma::wire::packet::HEADER;
use unisono_rma::wire::tcp::{JobListener, Tcp};
use unisono_rma::wire::{Gone, Transport};
use unisono_rma::{Error, Key, Rank};

/// The bytes of an offer: a port, a number of addresses, and the addresses.
pub const UNISONO_MPI_WATCH_OFFER: usize = 64;
const MAX_ADDRESSES: usize = (UNISONO_MPI_WATCH_OFFER - 4) / 4;
/// The time limit for the ranks to connect: all of them begin at the same collective. A firewall that drops
/// packets is noticed after it, once in a process. Chosen, not measured.
const MEET_TIMEOUT: StdDuration = StdDuration::from_secs(3);
/// The time between two polls of the connections: a rank that is gone has to be named within seconds, and ten
/// polls a second cost nothing.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A rank's part in the ring.
#[derive(Debug)]
pub struct WatchHandle {
    rank: Rank,
    size: usize,
    addresses: Vec<DeviceAddress>,
    /// `None` once it has met its neighbors.
    listener: Option<JobListener>,
    connections: Option<Tcp>,
    next_poll: Instant,
}

/// Makes this rank's part in the ring of a job, and stores its offer for the others in `offer`
/// (UNISONO_MPI_WATCH_OFFER bytes). `key` has the same 16 random bytes at all ranks. Waits for no other rank.
/// NULL after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_watch_new(
    rank: c_int,
    size: c_int,
    key: *const u8,
    offer: *mut u8,
) -> *mut WatchHandle {
    let mut made = std::ptr::null_mut();
    ffi_call(|| {
        // SAFETY: the shim passes 16 readable bytes.
        let key = unsafe { *key.cast::<[u8; 16]>() };
        // SAFETY: the shim passes this many writable bytes.
        let room = unsafe { slice::from_raw_parts_mut(offer, UNISONO_MPI_WATCH_OFFER) };
        let watch = WatchHandle::new(rank, size, Key::from_bytes(key))?;
        watch.offer(room);
        made = Box::into_raw(Box::new(watch));
        Ok(())
    });
    made
}

/// Connects to the two neighbors. `offers` has the offers of all ranks, in order; without an offer of each
/// rank no rank connects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_watch_meet(watch: *mut WatchHandle, offers: *const u8) -> CallStatus {
    ffi_call(|| {
        // SAFETY: the shim passes a live handle.
        let watch = unsafe { &mut *watch };
        // SAFETY: the shim passes an offer of each rank.
        let all = unsafe { slice::from_raw_parts(offers, watch.size * UNISONO_MPI_WATCH_OFFER) };
        watch.meet(all)
    })
}

/// Ends this rank's part; for its neighbors it is gone from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_mpi_watch_free(watch: *mut WatchHandle) {
    ffi_call_or((), || {
        // SAFETY: `unisono_mpi_watch_new` made it, and the shim frees it once.
        drop(unsafe { Box::from_raw(watch) });
        Ok(())
    });
}

/// Where a rank listens; `None` for a rank that takes no part.
fn decode(offer: &[u8]) -> Option<(u16, Vec<Ipv4Addr>)> {
    let port = u16::from_le_bytes([offer[0], offer[1]]);
    let addresses = offer[4..].chunks_exact(4).take(usize::from(offer[2]));
    let address = |bytes: &[u8]| Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]);
    (port != 0).then(|| (port, addresses.map(address).collect()))
}

impl WatchHandle {
    fn new(rank: c_int, size: c_int, key: Key) -> Result<Self, Error> {
        let place = membership(rank, size, key)?;
        let (rank, size) = (place.rank, place.size);
        // any address: the network between the hosts is not known yet, and only ranks know the key
        let listener = JobListener::bind(place, SocketAddr::from(([0, 0, 0, 0], 0)))?;
        let mut socket = NetlinkSocket::open()
            .map_err(|source| Error::System { doing: "open a netlink socket".to_owned(), source })?;
        let mut addresses = address::all(&mut socket).map_err(|why| argument(why.to_string()))?;
        addresses.retain(|own| !own.address.is_loopback());
        addresses.truncate(MAX_ADDRESSES);
        let next_poll = clock::now();
        Ok(Self { rank, size, addresses, listener: Some(listener), connections: None, next_poll })
    }

    fn offer(&self, room: &mut [u8]) {
        let port = self.listener.as_ref().map_or(0, |listener| listener.address().port());
        room.fill(0);
        room[..2].copy_from_slice(&port.to_le_bytes());
        room[2] = self.addresses.len() as u8;
        for (place, own) in room[4..].chunks_exact_mut(4).zip(&self.addresses) {
            place.copy_from_slice(&own.address.octets());
        }
    }

    /// The address of a rank with this offer.
    fn address_of(&self, port: u16, addresses: &[Ipv4Addr]) -> Result<SocketAddr, Error> {
        if self.addresses.iter().map(|own| &own.address).eq(addresses) {
            return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        }
        let theirs: Vec<DeviceAddress> =
            addresses.iter().map(|address| DeviceAddress { address: *address, prefix: 32 }).collect();
        HostOffer::new(0, "", port, &theirs).address_for(&self.addresses).map_err(argument)
    }

    pub(super) fn meet(&mut self, offers: &[u8]) -> Result<(), Error> {
        let offers = offers.chunks_exact(UNISONO_MPI_WATCH_OFFER).map(decode);
        let offers: Option<Vec<_>> = offers.collect();
        let offers = offers.ok_or_else(|| argument("a rank takes no part"))?;
        let (own, size) = (self.rank.index(), self.size);
        let neighbours = [(own + 1) % size, (own + size - 1) % size];
        let mut addresses = vec![SocketAddr::from(([0, 0, 0, 0], 0)); size];
        for neighbour in neighbours.into_iter().filter(|rank| *rank != own) {
            let (port, theirs) = &offers[neighbour];
            addresses[neighbour] = self.address_of(*port, theirs)?;
        }
        let listener = self.listener.take().ok_or_else(|| argument("the ranks have met already"))?;
        let mut ranks: Vec<Rank> = neighbours.map(Rank::at).into();
        ranks.dedup();
        let connections = listener.connect_neighbours(&addresses, &ranks, MEET_TIMEOUT)?;
        self.connections = Some(connections.without_heartbeats());
        Ok(())
    }

    /// Tells a neighbor that this rank leaves in an orderly way; other ranks hear it by the host MPI's
    /// messages.
    pub(super) fn leave(&mut self, to: Rank, goodbye: &[u8; HEADER]) -> Result<(), Error> {
        self.connections.as_mut().map_or(Ok(()), |connections| connections.send(to, goodbye, &[]))
    }

    /// Returns the neighbors that are gone, if a poll is due.
    pub(super) fn poll(&mut self) -> Result<&[Gone], Error> {
        let now = clock::now();
        let Some(connections) = self.connections.as_mut().filter(|_| now >= self.next_poll) else {
            return Ok(&[]);
        };
        self.next_poll = now + POLL_INTERVAL;
        // nothing but goodbyes arrives, which the transport notes
        let mut packet = Vec::new();
        while connections.receive(&mut packet)?.is_some() {}
        Ok(connections.gone())
    }
}
