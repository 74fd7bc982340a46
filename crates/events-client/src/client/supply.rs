//! The supplier's end of a topic's ring: its readers and its size.
//!
//! The ring is made for the first event. A new ring replaces it when an event is larger than its slots or a
//! consumer asks for a longer queue: the old ring is closed, and its readers get the offer of the new one
//! over their sockets. Events are written once, whatever the number of consumers.
//!
//! Cost: a copy of the event into the ring, and a check of each blocking consumer. Memory: the slots of the
//! longest queue, a third more if that consumer drops the oldest event, rounded up to a power of two; and
//! some 70 to 90 further slots for held, lent and retired events, which use no memory before their first use.
//! A slot is a quarter larger than the event for which the ring was made.

use std::io;
use std::os::fd::OwnedFd;
use unisono_events_wire::EventOrder;
use unisono_events_wire::memory::{
    ConsumerNumber, Doorbell, DoorbellState, DoorbellWatch, MemoryGeometry, MemorySupplier, PublishRefused,
    WhenBehind,
};
use unisono_events_wire::transport::PayloadRef;
use unisono_linux::clock::{Duration, Instant};
use unisono_sync::{LentBytes, SpinBudget, Wait};

/// The maximum number of bytes of all rings of a program: a quarter of the broker's default for all queues
/// (`Limits::memory` of the broker), so that rings take no more than queues would.
pub(super) const MAX_RING_BYTES: u64 = 256 << 20;
/// The maximum number of received events that the application has not taken yet while this program waits for
/// an order. Beyond it, the program reads no more frames, and publishes through the broker.
pub(super) const MAX_RECEIVED: usize = 256;
/// The maximum number of fields of one event in a ring, as in the channel (`ChannelLimits::fields`). The
/// broker refuses an event with more.
pub(super) const MAX_FIELDS: usize = 256;
/// The maximum number of readers of a ring; the broker connects no more.
const MAX_LINKS: u32 = 16;
/// Minimum slot size in bytes: a head with a short key, some fields and a small payload. Chosen, not
/// measured.
const MIN_SLOT: usize = 256;
/// The minimum number of events of a ring: with fewer, the two ends would wait for each other at each event.
const MIN_DEPTH: usize = 4;
/// The number of events between two checks that the readers are alive. Each check is a system call, whose
/// cost is negligible for this many events. Chosen by this argument, not measured.
const POLL_EVERY: u32 = 1024;
/// The time for which a supplier waits for room before it polls the broker. The broker's orders are not
/// urgent, and each poll is a system call. Chosen, not measured.
const SLICE: Duration = Duration::from_millis(5);

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
    /// The number of events published in rings since the topic became direct.
    pub(super) events: u64,
    /// The sequence number of the last event before the events in rings; `None` until the broker has sent it.
    pub(super) last: Option<u64>,
    wait: Wait,
    until_look: u32,
    order: EventOrder,
    /// The latest deadline of the events that may wait in the ring.
    latest: Instant,
    /// The deadline of the last event.
    previous: Instant,
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
    pub(super) fn new(wait: Wait, order: EventOrder) -> Self {
        Self {
            ring: None,
            links: Vec::new(),
            events: 0,
            last: None,
            wait,
            until_look: POLL_EVERY,
            order,
            latest: Instant::ZERO,
            previous: Instant::ZERO,
        }
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
        // departed consumers occupy their sockets until this scan
        self.drop_departed();
        self.links.push(SupplyLink { consumer, when_behind, events, bytes, bell, number: None });
    }

    pub(super) fn consumer(&self, number: ConsumerNumber) -> &str {
        let link = self.links.iter().find(|link| link.number == Some(number));
        link.map_or("a consumer", |link| &link.consumer)
    }

    /// Returns the size of the ring's memory in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.geometry().bytes())
    }

    /// Announces the next event if it is due before an event that may still wait at a consumer. A consumer
    /// that has read the whole ring may hold back the last event, to compare it with the events of other
    /// rings.
    fn announce_early(&mut self, deadline: Instant) {
        let Some(ring) = &mut self.ring else { return };
        if self.order == EventOrder::Publication || deadline >= self.latest {
            return;
        }
        if deadline < self.previous || ring.unread() > 0 {
            ring.announce_early();
        } else {
            self.latest = deadline;
        }
    }

    /// Lends the place of a payload after a head of `head` bytes. Returns `None` if no consumer reads the
    /// ring, or if the ring lends no more.
    pub(super) fn lend(&mut self, head: usize, bytes: usize, room: &mut u64) -> Option<LentBytes> {
        let fits = |ring: &MemorySupplier| head + bytes <= ring.geometry().largest() as usize;
        if !self.ring.as_ref().is_some_and(fits) {
            self.make(head + bytes, room).ok()?;
        }
        if self.links.is_empty() {
            return None;
        }
        self.ring.as_mut()?.lend(head, bytes)
    }

    /// Writes an event into the ring, or only its head if its payload is lent memory of the ring. Running
    /// consumers see it at once. The bytes of a new ring are taken from `room`.
    pub(super) fn publish(
        &mut self,
        (head, deadline): (&[u8], Instant),
        (payload, lent): (PayloadRef<'_>, Option<&LentBytes>),
        room: &mut u64,
    ) -> Result<(), NotSupplied> {
        let length = head.len() + payload.length();
        self.until_look = self.until_look.checked_sub(1).unwrap_or(POLL_EVERY);
        if self.until_look == 0 {
            self.drop_departed();
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
        self.announce_early(deadline);
        let Some(ring) = &mut self.ring else { return Err(NotSupplied::NoRing) };
        let refused = |refused| match refused {
            PublishRefused::NoRoom(number) => NotSupplied::Full(number),
            PublishRefused::TooLarge { .. } => NotSupplied::NoRing,
        };
        let tag = head.len() as u32;
        let in_place = lent.map_or(Ok(None), |lent| ring.publish_lent(head, lent, tag)).map_err(refused)?;
        if in_place.is_none() {
            let mut loan = ring.loan(length).map_err(refused)?;
            let (first, rest) = loan.bytes().split_at_mut(head.len());
            first.copy_from_slice(head);
            payload.put(rest);
            loan.publish(tag);
        }
        self.events += 1;
        (self.latest, self.previous) = (self.latest.max(deadline), deadline);
        Ok(())
    }

    /// Offers the ring to new readers, and makes another one for all readers if it is too small. Drops
    /// departed readers, so that there may be none left.
    #[cold]
    fn make(&mut self, length: usize, room: &mut u64) -> Result<(), NotSupplied> {
        let refused = |_| NotSupplied::NoRing;
        self.drop_departed();
        let depth = self.links.iter().map(|link| link.depth(length)).max().unwrap_or_default();
        let depth = depth.next_power_of_two() as u32;
        let is_enough = |ring: &MemorySupplier| {
            length <= ring.geometry().largest() as usize && depth <= ring.geometry().depth()
        };
        if !self.ring.as_ref().is_some_and(is_enough) {
            let slot = (length + length / 4).max(MIN_SLOT).next_multiple_of(64) as u32;
            let free = *room + self.bytes();
            // the ring lends the slots that one more consumer could hold, if there is room for them
            let (geometry, left) = [MAX_LINKS + 1, MAX_LINKS]
                .into_iter()
                .filter_map(|consumers| MemoryGeometry::new(depth, slot, consumers))
                .find_map(|geometry| Some((geometry, free.checked_sub(geometry.bytes())?)))
                .ok_or(NotSupplied::NoRing)?;
            let ring = MemorySupplier::create(geometry, (self.wait, SpinBudget::DEFAULT)).map_err(refused)?;
            if let Some(former) = self.ring.replace(ring).as_mut()
                && self.order == EventOrder::Deadlines
            {
                former.announce_early_end();
            }
            *room = left;
            self.links.iter_mut().for_each(|link| link.number = None);
        }
        let Some(ring) = &mut self.ring else { return Err(NotSupplied::NoRing) };
        for link in self.links.iter_mut().filter(|link| link.number.is_none()) {
            match ring.offer(link.when_behind, &link.bell) {
                Ok(number) => link.number = Some(number),
                // the consumer has left since the scan
                Err(error) if is_gone(&error) => {}
                Err(_) => return Err(NotSupplied::NoRing),
            }
        }
        self.links.retain(|link| link.number.is_some());
        Ok(())
    }

    /// Drops departed consumers, and the ring if there is no reader left. Returns the freed bytes.
    pub(super) fn sweep(&mut self) -> u64 {
        self.drop_departed();
        let bytes = if self.links.is_empty() { self.bytes() } else { 0 };
        if self.links.is_empty() {
            self.ring = None;
        }
        bytes
    }

    /// Drops departed consumers.
    fn drop_departed(&mut self) {
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
    pub(super) fn wake_consumers(&mut self) {
        if let Some(ring) = &mut self.ring {
            ring.wake_consumers();
        }
    }

    /// Waits until this consumer has read an event or may be gone, but no longer than `most` and no longer
    /// than [`SLICE`].
    pub(super) fn wait_for(&mut self, number: ConsumerNumber, most: Duration) {
        let link = self.links.iter().find(|link| link.number == Some(number));
        if let (Some(link), Some(ring)) = (link, &mut self.ring) {
            let until = unisono_linux::clock::now() + SLICE.min(most);
            let _ = ring.wait_for(number, &mut DoorbellWatch::new(&link.bell, Some(until)));
        }
        self.drop_departed();
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl SupplyLink {
    /// Returns the number of ring entries that this consumer's queue limits require.
    fn depth(&self, length: usize) -> usize {
        let most = self.events.min((self.bytes / length.max(1)).max(MIN_DEPTH));
        match self.when_behind {
            WhenBehind::BlocksSupplier => most,
            // a reader that falls behind skips a quarter of the ring, so the ring is a third longer
            WhenBehind::LosesOldest => most + most / 3,
        }
    }
}
