//! The supplier's end of a topic's ring: its readers and its size.
//!
//! The ring is made for the first event, and made anew when an event is larger than its slots or a consumer
//! asks for a longer queue: the old ring is closed, and its readers find the offer of the next one at their
//! sockets. Events are written once, whatever the number of consumers.
//!
//! Cost: a copy of the event into the ring, and a check of each blocking consumer. Memory: the slots of the
//! longest queue, a third more if that consumer drops the oldest event, rounded up to a power of two. A slot
//! is a quarter larger than the event for which the ring was made.

use crate::memory::{
    ConsumerNumber, Doorbell, DoorbellState, DoorbellWatch, MemoryGeometry, MemorySupplier, PublishRefused,
    WhenBehind,
};
use crate::transport::PayloadRef;
use std::io;
use std::os::fd::OwnedFd;
use unisono_linux::clock::Nanos;
use unisono_sync::{SpinBudget, Wait};

/// Maximum bytes of all rings of a program: a quarter of the broker's default for all queues
/// ([`Limits::memory`](crate::Limits)), so that rings take no more than queues would.
pub(super) const MAX_RING_BYTES: u64 = 256 << 20;
/// Maximum readers of a ring; the broker introduces no more.
const MAX_LINKS: u32 = 16;
/// Minimum slot size in bytes: a head with a short key, some fields and a small payload. Chosen, not
/// measured.
const MIN_SLOT: usize = 256;
/// Minimum number of events of a ring: with fewer, the two ends wait for each other at each event.
const MIN_DEPTH: usize = 4;
/// Number of events between two checks that the readers are alive. Each check is a system call; over this
/// many events its cost vanishes. Chosen by this argument, not measured.
const POLL_EVERY: u32 = 1024;
/// Maximum events in a ring that an event with an earlier deadline may have to wait for. Through the broker
/// it may be more: up to 256 events that have left for the consumer. Chosen as the number that the broker
/// takes from a program at a time.
const NOT_OVERTAKEN: u64 = 64;
/// How long a supplier waits for room before it polls the broker. The broker's orders are not urgent, and
/// each poll is a system call. Chosen, not measured.
const SLICE: Nanos = Nanos(5_000_000);

/// The link from a ring to one consumer.
#[derive(Debug)]
struct SupplyLink {
    consumer: String,
    when_behind: WhenBehind,
    events: usize,
    bytes: usize,
    bell: Doorbell,
    /// The consumer's number in the ring; `None` before the first event.
    number: Option<ConsumerNumber>,
}

/// A topic whose events go to its consumers directly.
#[derive(Debug)]
pub(super) struct DirectSupply {
    ring: Option<MemorySupplier>,
    links: Vec<SupplyLink>,
    /// Number of events in rings since the topic became direct.
    pub(super) events: u64,
    /// Number of the last event before those; `None` until the broker has sent it.
    pub(super) last: Option<u64>,
    wait: Wait,
    until_look: u32,
    /// The latest deadline of the events that may wait in the ring.
    latest: Nanos,
}

/// The reason why an event is not in the ring.
#[derive(Debug)]
pub(super) enum NotSupplied {
    /// A blocking consumer has no room.
    Full(ConsumerNumber),
    /// The ring cannot be made or offered.
    NoRing,
}

impl DirectSupply {
    pub(super) fn new(wait: Wait) -> Self {
        let latest = Nanos::ZERO;
        Self { ring: None, links: Vec::new(), events: 0, last: None, wait, until_look: POLL_EVERY, latest }
    }

    pub(super) fn readers(&self) -> usize {
        self.links.len()
    }

    /// Adds a consumer, at the other end of a socket.
    pub(super) fn link(
        &mut self,
        socket: OwnedFd,
        (consumer, blocks): (String, bool),
        (events, bytes): (usize, usize),
    ) {
        let when_behind = if blocks { WhenBehind::BlocksSupplier } else { WhenBehind::LosesOldest };
        let bell = Doorbell::new(socket);
        // departed consumers keep their sockets until this scan
        self.look();
        self.links.push(SupplyLink { consumer, when_behind, events, bytes, bell, number: None });
    }

    pub(super) fn consumer(&self, number: ConsumerNumber) -> &str {
        let link = self.links.iter().find(|link| link.number == Some(number));
        link.map_or("a consumer", |link| &link.consumer)
    }

    /// Bytes of its ring.
    pub(super) fn bytes(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.geometry().bytes())
    }

    /// Whether an event with this deadline may go into the ring, which keeps the order of arrival. If many
    /// events wait there, and one of them has a later deadline, the broker has to order them.
    pub(super) fn is_in_turn(&mut self, deadline: Nanos) -> bool {
        if deadline < self.latest
            && let Some(ring) = &mut self.ring
        {
            let unread = ring.unread();
            if unread > 0 {
                return unread <= NOT_OVERTAKEN;
            }
        }
        self.latest = deadline;
        true
    }

    /// Writes an event into the ring; running consumers see it. A new ring takes its bytes from `room`.
    pub(super) fn publish(
        &mut self,
        head: &[u8],
        payload: PayloadRef<'_>,
        room: &mut u64,
    ) -> Result<(), NotSupplied> {
        let length = head.len() + payload.length();
        self.until_look = self.until_look.checked_sub(1).unwrap_or(POLL_EVERY);
        if self.until_look == 0 {
            self.look();
        }
        if self.links.is_empty() {
            self.events += 1;
            return Ok(());
        }
        let fits = self.ring.as_ref().is_some_and(|ring| length <= ring.geometry().largest() as usize);
        if !fits || self.links.iter().any(|link| link.number.is_none()) {
            self.make(length, room)?;
            if self.links.is_empty() {
                self.events += 1;
                return Ok(());
            }
        }
        let Some(ring) = &mut self.ring else { return Err(NotSupplied::NoRing) };
        let mut loan = match ring.loan(length) {
            Ok(loan) => loan,
            Err(PublishRefused::NoRoom(number)) => return Err(NotSupplied::Full(number)),
            Err(_) => return Err(NotSupplied::NoRing),
        };
        let (first, rest) = loan.bytes().split_at_mut(head.len());
        first.copy_from_slice(head);
        payload.put(rest);
        loan.publish(head.len() as u32);
        self.events += 1;
        Ok(())
    }

    /// Offers the ring to new readers; makes another one for all readers if it is too small. Drops departed
    /// readers; there may be none left.
    #[cold]
    fn make(&mut self, length: usize, room: &mut u64) -> Result<(), NotSupplied> {
        let refused = |_| NotSupplied::NoRing;
        self.look();
        let depth = self.links.iter().map(|link| link.depth(length)).max().unwrap_or_default();
        let depth = depth.next_power_of_two() as u32;
        let is_enough = |ring: &MemorySupplier| {
            length <= ring.geometry().largest() as usize && depth <= ring.geometry().depth()
        };
        if !self.ring.as_ref().is_some_and(is_enough) {
            let slot = (length + length / 4).max(MIN_SLOT).next_multiple_of(64) as u32;
            let geometry = MemoryGeometry::new(depth, slot, MAX_LINKS).ok_or(NotSupplied::NoRing)?;
            let free = *room + self.bytes();
            let left = free.checked_sub(geometry.bytes()).ok_or(NotSupplied::NoRing)?;
            let ring = MemorySupplier::create(geometry, (self.wait, SpinBudget::DEFAULT)).map_err(refused)?;
            self.ring = Some(ring);
            *room = left;
            self.links.iter_mut().for_each(|link| link.number = None);
        }
        let Some(ring) = &mut self.ring else { return Err(NotSupplied::NoRing) };
        for link in self.links.iter_mut().filter(|link| link.number.is_none()) {
            match ring.offer(link.when_behind, &link.bell) {
                Ok(number) => link.number = Some(number),
                // the consumer left after the scan
                Err(error) if is_gone(&error) => {}
                Err(_) => return Err(NotSupplied::NoRing),
            }
        }
        self.links.retain(|link| link.number.is_some());
        Ok(())
    }

    /// Drops departed consumers, and the ring if there is no reader left; returns the freed bytes.
    pub(super) fn sweep(&mut self) -> u64 {
        self.look();
        let bytes = if self.links.is_empty() { self.bytes() } else { 0 };
        if self.links.is_empty() {
            self.ring = None;
        }
        bytes
    }

    /// Drops departed consumers.
    fn look(&mut self) {
        let ring = &mut self.ring;
        self.links.retain(|link| {
            let gone = !matches!(link.bell.take(), Ok(DoorbellState::Quiet | DoorbellState::Rung));
            if gone && let (Some(ring), Some(number)) = (ring.as_mut(), link.number) {
                ring.detach(number);
            }
            !gone
        });
    }

    /// Wakes the sleeping consumers.
    pub(super) fn tell(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.tell();
        }
    }

    /// Waits until this consumer has read an event, or may be gone, or [`SLICE`] has passed.
    pub(super) fn wait_for(&mut self, number: ConsumerNumber) {
        let link = self.links.iter().find(|link| link.number == Some(number));
        if let (Some(link), Some(ring)) = (link, &mut self.ring) {
            let until = SLICE.after(unisono_linux::clock::now());
            let _ = ring.wait_for(number, &mut DoorbellWatch::new(&link.bell, Some(until)));
        }
        self.look();
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl SupplyLink {
    /// Number of ring entries that this consumer's queue limits require.
    fn depth(&self, length: usize) -> usize {
        let most = self.events.min((self.bytes / length.max(1)).max(MIN_DEPTH));
        match self.when_behind {
            WhenBehind::BlocksSupplier => most,
            // a reader that falls behind continues a quarter of the ring after the oldest event
            WhenBehind::LosesOldest => most + most / 3,
        }
    }
}
