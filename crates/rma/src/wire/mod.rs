//! Transport of packets from rank to rank: the trait, its contract, and one file for each transport.
//!
//! The engine above is a state machine that knows neither sockets nor threads. It sends packets
//! ([`crate::wire::packet`]) and polls for arrived packets. The contract of a transport:
//!
//! 1. *Order.* Packets from one rank to another arrive in the order sent, each exactly once and unchanged,
//!    or the peer is reported gone. Nothing is promised about packets of different senders.
//! 2. *Sending never waits.* [`Transport::send`] keeps packets that it cannot pass on yet, and passes them on
//!    in later calls of any method; before it returns it has copied its arguments. (Two ranks that both wait
//!    for room in each other's queues would wait for ever.)
//! 3. *Sending to oneself* is not done by the engine, and need not work.
//! 4. *[`Transport::wait`] may return early*, for any reason, but not late: when a packet has arrived, when
//!    there is room for kept packets, when a peer is gone, when the given moment comes, when the bell
//!    ([`Transport::bell`]) rings. Between polling and waiting nothing is lost: a packet that arrives in
//!    between makes `wait` return at once. A transport chooses how to wait by the policies of `unisono-sync`.
//! 5. *Death.* A peer that cannot be reached any more (its process ended, its connection broke, it broke the
//!    protocol) is reported by [`Transport::gone`] within a second of waiting or polling, for ever after.
//!    Packets that arrived before are still delivered. Packets sent to it are dropped silently. A transport
//!    does not report the end of a peer that said goodbye first
//!    ([`crate::wire::packet::PacketKind::Goodbye`]): the engine knows.
//! 6. *Bytes are untrusted*: a transport that frames a stream checks lengths (with
//!    [`crate::wire::packet::announced`]); the engine parses, and calls [`Transport::refuse`] for a peer
//!    whose packet was malformed or impossible. The peer is then cut off and reported gone with that reason.
//!
//! A transport belongs to one rank and is used by one thread at a time. The suite that every transport has to
//! pass is `tests::conformance`.
//!
//! | transport | reaches | file |
//! |---|---|---|
//! | loopback | threads of this process | [`loopback`] |
//! | rings in shared memory | processes of this host | [`ring`] |
//! | TCP | processes of any hosts | [`tcp`] |
//! | hybrid | ranks of one host through rings, others over TCP | [`hybrid`] |
//!
//! `tests::fault` wraps any transport and injects the faults that the contract allows.

pub(crate) mod descriptions;
pub mod hybrid;
pub mod loopback;
pub mod packet;
pub mod ring;
pub mod tcp;
#[cfg(any(test, feature = "testing"))]
pub mod tests;

pub use crate::model::Gone;
use crate::model::{Error, Rank};
use crate::wire::packet::{HEADER, MAX_PAYLOAD};
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;
use unisono_linux::clock::{Duration, Instant};

/// A rank's connection to all others. The contract is in the module's documentation.
pub trait Transport: Send + fmt::Debug {
    fn rank(&self) -> Rank;

    fn size(&self) -> usize;

    /// Returns the longest payload of one packet (bytes), at least 4096 and at most [`MAX_PAYLOAD`].
    fn max_payload(&self) -> usize {
        MAX_PAYLOAD
    }

    /// Sends a packet: its encoded header, then its payload, gathered from pieces. Fails only if this rank
    /// itself cannot communicate any more ([`Error::System`]), not at the death of a peer.
    fn send(&mut self, to: Rank, header: &[u8; HEADER], payload: &[IoSlice<'_>]) -> Result<(), Error>;

    /// Takes the next packet that has arrived, without waiting. Its bytes (header and payload) replace the
    /// contents of `packet`, whose memory may be swapped for another. Returns `None` if no packet has
    /// arrived.
    fn receive(&mut self, packet: &mut Vec<u8>) -> Result<Option<Rank>, Error>;

    /// Waits until another call of [`receive`](Self::receive) may succeed, but no longer than until the
    /// moment `until` (of [`unisono_linux::clock::now`]). May return early.
    fn wait(&mut self, until: Option<Instant>) -> Result<(), Error>;

    /// Sends kept packets. Returns whether none is left. (Only the peer knows whether the packets have
    /// arrived.)
    fn flush(&mut self) -> Result<bool, Error>;

    /// Returns the peers that are gone, in the order of their detection.
    fn gone(&self) -> &[Gone];

    /// Cuts off a peer that broke the protocol; it is then reported gone with this reason.
    fn refuse(&mut self, peer: Rank, why: &str);

    /// Returns the transport's bell. Another thread uses the bell to make [`wait`](Self::wait) return, or to
    /// wait for packets without holding the transport. Returns `None` if the transport has no bell; other
    /// threads then poll the transport periodically.
    fn bell(&self) -> Option<Arc<dyn Bell>> {
        None
    }
}

/// A transport's bell: see [`Transport::bell`].
pub trait Bell: Send + Sync + fmt::Debug {
    /// Makes the transport's `wait`, and [`listen`](Self::listen), return.
    fn ring(&self);

    /// Returns the number of rings and arrivals so far, which wraps around. A caller reads the number before
    /// it polls, and passes it to [`listen`](Self::listen) after polling, so that no event in between is
    /// missed.
    fn events(&self) -> u32;

    /// Waits until a packet has arrived since [`events`](Self::events) was `last_events` (another thread may
    /// have received it since) or the bell was rung, at most until the moment `until`. May return early.
    /// Returns the time that it slept.
    fn listen(&self, last_events: u32, until: Option<Instant>) -> Duration;
}
