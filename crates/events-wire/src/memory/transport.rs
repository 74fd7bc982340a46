//! Frames between a program and the broker through shared memory: two rings in each direction.
//!
//! Each end supplies two rings and is the only consumer of the other end's two. A supplier waits while its
//! ring is full, so no frame is lost. Each end sends the offers of its rings over the Unix socket at once and
//! needs no answer, so it may send frames before the other end has received the offers. The socket is then
//! the doorbell of all rings, and the descriptor to poll.
//!
//! ```text
//!   short ring:  256 frames of up to 4 KiB: head | payload    tag of its entry: length of the head
//!   long ring:     8 frames of any legal length               announced in the short ring by an empty entry
//!                                                             whose tag is LONG
//! ```
//! The short ring determines the order of frames. There are two rings because a slot's pages stay allocated
//! once they are touched: a single ring with 256 slots for the largest frame could grow to 256 such frames (1
//! GiB if the largest frame has 4 MiB).
//!
//! A payload of [`APART`] bytes or more stays in its slot until its handle is dropped, unless the number of
//! handles has reached its limit. All other payloads are copied.
//!
//! Cost: one copy into the ring, and one out of it for short frames; a system call only to wake a sleeping
//! end. In memory, 2 MiB for both directions once frames have passed, and 14 times the largest frame for each
//! direction in which long frames have passed. When not to use it: between hosts.

use super::doorbell::{Doorbell, DoorbellMessage, DoorbellState, DoorbellWatch};
use super::offer::MemoryOffer;
use super::{
    HeldEvent, MemoryConsumer, MemoryGeometry, MemorySupplier, NextEvent, PublishRefused, ReceiveRefused,
    WhenBehind,
};
use crate::interrupt::{self, InterruptPoll};
use crate::transport::{
    Awaited, BufferShare, Dozing, Drained, FrameTransport, IncomingFrame, MayWait, NO_MEMORY, PayloadMemory,
    PayloadRef, PollFor, SharedPayload, Taken, TransportError,
};
use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::{Duration, Instant as StdInstant};
use unisono_linux::clock::Instant;
use unisono_linux::poll::readable;
use unisono_sync::{SpinBudget, Wait, Watch, WatchVerdict};

/// The number of frames in the short ring: as many as the broker handles in four turns (of 64 frames each).
/// The other end reports its position after every quarter of the ring.
const DEPTH: u32 = 256;
/// The maximum number of bytes of a frame in the short ring: a page of payload, and its head.
const SHORT: u32 = 4096 + 256;
/// The number of frames in the long ring: enough for one end to write a frame while the other reads the
/// previous one.
const LONG_DEPTH: u32 = 8;
/// The tag of an entry whose frame is in the long ring. Any head is far shorter than this.
const LONG: u32 = 1 << 31;
/// The minimum size of a payload that stays in its slot, in bytes: a copy of this many costs more (about 2
/// us) than a handle and a hold.
pub const APART: usize = 16 << 10;
/// The number of sends and receptions between two checks that the other process is alive. A check is a system
/// call, and its cost is negligible compared with this many frames. Chosen by this argument, not measured.
const POLL_EVERY: u32 = 1024;
/// The default way of waiting: at the descriptor.
pub const WAY: (Wait, SpinBudget) = (Wait::Block, SpinBudget::DEFAULT);

/// The rings of one direction, for writing.
#[derive(Debug)]
struct OutgoingRings {
    short: MemorySupplier,
    long: MemorySupplier,
    /// The ring that had no room for the last frame.
    full: Option<FullRing>,
    /// An upper bound of the number of bytes of the long ring that no frame has used yet.
    untouched: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FullRing {
    Short,
    Long,
}

/// The role of an end in a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// The end that listens. It accepts no descriptors except descriptors of the other end's rings.
    Listens,
    Connects,
}

/// The rings of one direction, for reading.
#[derive(Debug)]
struct IncomingRings {
    short: MemoryConsumer,
    long: MemoryConsumer,
}

/// One end of a connection over shared memory.
#[derive(Debug)]
pub struct MemoryTransport {
    doorbell: Doorbell,
    role: Role,
    outgoing: OutgoingRings,
    /// The other end's short ring, until the offer of its long ring arrives.
    offered: Option<MemoryConsumer>,
    /// The other end's rings, once both offers have arrived.
    incoming: Option<IncomingRings>,
    /// Placeholders for the descriptors of the other end's offers: the kernel discards passed descriptors for
    /// which the process has no room.
    pub(super) reserve: Vec<OwnedFd>,
    /// The last incoming frame, if it was copied.
    copy: Vec<u8>,
    /// Whether the other end is closed.
    gone: bool,
    until_poll: u32,
    /// Maximum bytes of an incoming frame.
    most_incoming: usize,
    share: BufferShare,
    /// The number of bytes of the rings with which this end is charged: bytes that it may have written, or
    /// has been the first to read.
    touched: usize,
}

impl OutgoingRings {
    fn offer(largest: usize, doorbell: &Doorbell) -> Result<Self, TransportError> {
        let geometry = |depth: u32, largest: u32| MemoryGeometry::new(depth, largest, 1);
        let sizes = u32::try_from(largest)
            .ok()
            .and_then(|largest| Some((geometry(DEPTH, SHORT.min(largest))?, geometry(LONG_DEPTH, largest)?)));
        let (short, long) = sizes.ok_or_else(|| {
            let reason = format!("frames of {largest} bytes are beyond shared memory");
            io::Error::new(io::ErrorKind::InvalidInput, reason)
        })?;
        let ring = |geometry| -> io::Result<MemorySupplier> {
            let mut ring = MemorySupplier::create(geometry, WAY)?;
            ring.offer(WhenBehind::BlocksSupplier, doorbell)?;
            Ok(ring)
        };
        let untouched = usize::try_from(long.bytes()).unwrap_or(usize::MAX);
        let (short, long) = (ring(short).map_err(failed)?, ring(long).map_err(failed)?);
        Ok(Self { short, long, full: None, untouched })
    }

    fn is_long(&self, length: usize) -> bool {
        length > self.short.geometry().largest() as usize
    }

    /// Returns the ring that has no room for a frame of `length` bytes, if any.
    fn who_is_full(&mut self, length: usize) -> Option<FullRing> {
        if self.short.who_has_no_room().is_some() {
            return Some(FullRing::Short);
        }
        (self.is_long(length) && self.long.who_has_no_room().is_some()).then_some(FullRing::Long)
    }

    /// Writes a frame. Consumers that are awake see it at once.
    fn write(&mut self, head: &[u8], payload: PayloadRef<'_>) -> Result<(), PublishRefused> {
        let length = head.len() + payload.length();
        let is_long = self.is_long(length);
        let ring = if is_long { &mut self.long } else { &mut self.short };
        let mut loan = ring.loan(length)?;
        let (first, rest) = loan.bytes().split_at_mut(head.len());
        first.copy_from_slice(head);
        payload.put(rest);
        loan.publish(head.len() as u32);
        if is_long {
            self.short.publish(LONG, &[])?;
        }
        Ok(())
    }

    /// Prepares a sleep at the descriptor: returns whether the full ring is still full. If it is, the
    /// descriptor becomes readable once that ring has room.
    fn stays_full(&mut self) -> bool {
        match self.full {
            None => true,
            Some(FullRing::Short) => self.short.polls_for_room(),
            Some(FullRing::Long) => self.long.polls_for_room(),
        }
    }
}

impl IncomingRings {
    /// Takes the next frame: holds it if its payload is long and a hold is free, or else copies it.
    fn take(&mut self, copy: &mut Vec<u8>, most: usize) -> Result<Came, TransportError> {
        copy.clear();
        let mark = match self.short.receive_copy(copy).map_err(broken)? {
            NextEvent::Event(mark) => mark,
            NextEvent::Lost(_) => return Err(broken("it overwrites what was not read")),
            NextEvent::Nothing => return Ok(Came::Nothing),
            NextEvent::Closed => return Err(TransportError::Closed),
        };
        if mark.tag != LONG {
            return if copy.len() > most { Err(too_long(copy.len(), most)) } else { Ok(Came::Copy) };
        }
        copy.clear();
        let long = &mut self.long;
        if let Some(length) = long.next_length().filter(|length| *length > most) {
            return Err(too_long(length, most));
        }
        if long.next_length().is_some_and(|length| length >= APART)
            && let Some(held) = held(long)?
        {
            let head = held.mark().tag as usize;
            if head > held.length() {
                return Err(broken("a frame's head is longer than the frame"));
            }
            if held.length() - head >= APART {
                copy.resize(head, 0);
                held.copy(0, copy);
                return Ok(Came::Apart(head, held));
            }
            held.append_to(copy);
            return Ok(Came::Copy);
        }
        match long.receive_copy(copy).map_err(broken)? {
            NextEvent::Event(_) => Ok(Came::Copy),
            _ => Err(broken("it announces a long frame that is not there")),
        }
    }
}

impl MemoryTransport {
    /// Makes the listening end. Frames have up to `largest` bytes, in both directions.
    ///
    /// # Errors
    /// No memory or descriptor is left; `largest` exceeds the limit of a ring.
    pub fn new(socket: OwnedFd, largest: usize) -> Result<Self, TransportError> {
        let doorbell = Doorbell::new(socket);
        let outgoing = OutgoingRings::offer(largest, &doorbell)?;
        Ok(Self::over((doorbell, Role::Listens), outgoing, None))
    }

    /// Makes the connecting end, whose frames are as large as the other end allows. Waits for the other end's
    /// two offers, at most as long as `timeout`.
    ///
    /// # Errors
    /// No offer comes (an I/O error of the kind `TimedOut`), or another message comes instead; or no memory
    /// or descriptor is left.
    pub fn join(socket: OwnedFd, timeout: Duration) -> Result<Self, TransportError> {
        let doorbell = Doorbell::new(socket);
        doorbell.greet().map_err(failed)?;
        let (until, mut interrupt) = (StdInstant::now().checked_add(timeout), InterruptPoll::default());
        let mut ring = || -> Result<MemoryConsumer, TransportError> {
            loop {
                if let Some(offer) = MemoryOffer::receive(&doorbell).map_err(failed)? {
                    return offer.accept(WAY, &doorbell).map_err(broken);
                }
                interrupt.poll()?;
                let left = until.map(|until| until.saturating_duration_since(StdInstant::now()));
                if left.is_some_and(|left| left.is_zero()) {
                    return Err(TransportError::Failed(io::ErrorKind::TimedOut.into()));
                }
                readable([doorbell.as_fd()], interrupt::slice(left))?;
            }
        };
        let incoming = IncomingRings { short: ring()?, long: ring()? };
        let outgoing = OutgoingRings::offer(incoming.long.largest(), &doorbell)?;
        Ok(Self::over((doorbell, Role::Connects), outgoing, Some(incoming)))
    }

    fn over(
        (doorbell, role): (Doorbell, Role),
        outgoing: OutgoingRings,
        incoming: Option<IncomingRings>,
    ) -> Self {
        let (offered, copy, most_incoming) = (None, Vec::new(), usize::MAX);
        let (share, touched) = (BufferShare::default(), 0);
        Self {
            doorbell,
            role,
            outgoing,
            offered,
            incoming,
            reserve: Vec::new(),
            copy,
            gone: false,
            until_poll: 0,
            most_incoming,
            share,
            touched,
        }
    }

    /// Reads from the socket: the other end's offers, its wake-ups, or the end of the connection.
    fn poll_socket(&mut self) -> Result<(), TransportError> {
        self.until_poll = POLL_EVERY;
        if !self.reserve.is_empty() {
            if !readable([self.doorbell.as_fd()], Some(Duration::ZERO))?[0] {
                return Ok(());
            }
            self.reserve.clear();
        }
        while self.incoming.is_none() {
            match MemoryOffer::receive(&self.doorbell).map_err(failed) {
                Ok(Some(offer)) => self.accept(offer)?,
                Ok(None) => return Ok(()),
                Err(TransportError::Closed) => {
                    self.gone = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.gone = self.gone || self.doorbell.take().map_err(failed)? == DoorbellState::Gone;
        // The broker takes no descriptors from a program, because they would use up its own.
        if self.role == Role::Listens && self.doorbell.message().is_some() {
            return Err(broken("it passes descriptors on that nobody asked for"));
        }
        Ok(())
    }

    fn accept(&mut self, offer: MemoryOffer) -> Result<(), TransportError> {
        // a program's ring must be no larger than the broker's own, because the kernel charges the broker for
        // unwritten memory that the broker is the first to read
        let (short, long) = (self.outgoing.short.geometry(), self.outgoing.long.geometry());
        let ring = match (self.role, &self.offered) {
            (Role::Connects, _) => offer.accept(WAY, &self.doorbell),
            (Role::Listens, None) => {
                offer.within(short.bytes()).and_then(|offer| offer.accept(WAY, &self.doorbell))
            }
            (Role::Listens, Some(_)) => {
                offer.within(long.bytes()).and_then(|offer| offer.accept_written(WAY, &self.doorbell))
            }
        };
        let ring = ring.map_err(broken)?;
        if ring.largest() > self.largest() {
            return Err(broken(format!("it offers frames of {} bytes", ring.largest())));
        }
        match self.offered.take() {
            None => {
                // charges the short rings of both directions to the program
                let short = usize::try_from(short.bytes()).unwrap_or(usize::MAX);
                self.touch(short.saturating_mul(2))?;
                self.offered = Some(ring);
            }
            Some(short) => self.incoming = Some(IncomingRings { short, long: ring }),
        }
        Ok(())
    }

    /// Charges memory of rings that this end is about to write, or to be the first to read.
    fn touch(&mut self, more: usize) -> Result<(), TransportError> {
        let touched = self.touched.saturating_add(more);
        if !self.share.resize(touched) {
            return Err(broken(NO_MEMORY));
        }
        self.touched = touched;
        Ok(())
    }

    /// Reads from the socket once every [`POLL_EVERY`] calls.
    #[inline]
    fn poll_socket_rarely(&mut self) -> Result<(), TransportError> {
        match self.until_poll.checked_sub(1) {
            Some(left) => {
                self.until_poll = left;
                Ok(())
            }
            None => self.poll_socket(),
        }
    }

    /// Returns the result of `receive` when no frame has come: `None` while a frame may still come, or the
    /// error that the connection is closed.
    fn nothing(&mut self) -> Result<Option<IncomingFrame<'_>>, TransportError> {
        self.poll_socket_rarely()?;
        let waits = self.has_come() == Some(true);
        if self.gone && !waits { Err(TransportError::Closed) } else { Ok(None) }
    }
}

/// The form in which the next frame has come.
enum Came {
    Copy,
    Apart(usize, HeldEvent),
    Nothing,
}

/// Returns the next frame of the long ring, held in its slot, if a hold is free.
fn held(long: &mut MemoryConsumer) -> Result<Option<HeldEvent>, TransportError> {
    match long.receive() {
        Ok(NextEvent::Event(held)) => Ok(Some(held)),
        Ok(_) | Err(ReceiveRefused::AllHeld | ReceiveRefused::NeverWritten) => Ok(None),
        Err(lie) => Err(broken(lie)),
    }
}

fn too_long(length: usize, most: usize) -> TransportError {
    broken(format!("a frame of {length} bytes is too large; the largest has {most}"))
}

fn broken(reason: impl ToString) -> TransportError {
    TransportError::Broken(reason.to_string())
}

fn failed(error: io::Error) -> TransportError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            TransportError::Closed
        }
        io::ErrorKind::InvalidData => broken(error),
        _ => TransportError::Failed(error),
    }
}

/// Ends a wait in the ring when the other end is gone or the timeout has expired. It yields the processor at
/// each check: otherwise, three spinning threads on two processors would wait for the end of a time slice of
/// the kernel, 4 ms per event.
struct YieldingWait<'a>(DoorbellWatch<'a>);

impl Watch for YieldingWait<'_> {
    fn check(&mut self) -> WatchVerdict {
        std::thread::yield_now();
        self.0.check()
    }

    fn sleep_until(&mut self) -> Option<Instant> {
        self.0.sleep_until()
    }
}

impl FrameTransport for MemoryTransport {
    fn largest(&self) -> usize {
        self.outgoing.long.geometry().largest() as usize
    }

    fn send(&mut self, head: &[u8], payload: PayloadRef<'_>) -> Result<Taken, TransportError> {
        let (length, most) = (head.len() + payload.length(), self.largest());
        if length > most {
            return Err(TransportError::TooLarge { bytes: length, most });
        }
        self.poll_socket_rarely()?;
        if self.gone {
            return Err(TransportError::Closed);
        }
        self.outgoing.full = self.outgoing.who_is_full(length);
        if self.outgoing.full.is_some() {
            self.poll_socket()?;
            return if self.gone { Err(TransportError::Closed) } else { Ok(Taken::Full) };
        }
        // charges the pages that the frame may touch for the first time; they stay allocated from then on
        if self.outgoing.is_long(length) && self.outgoing.untouched > 0 {
            let more = length.min(self.outgoing.untouched);
            self.touch(more)?;
            self.outgoing.untouched -= more;
        }
        self.outgoing.write(head, payload).map_err(broken)?;
        Ok(Taken::Taken)
    }

    fn flush(&mut self) -> Result<Drained, TransportError> {
        self.outgoing.short.wake_consumers();
        self.poll_socket_rarely()?;
        if self.gone { Err(TransportError::Closed) } else { Ok(Drained::All) }
    }

    fn receive(&mut self) -> Result<Option<IncomingFrame<'_>>, TransportError> {
        if self.incoming.is_none() {
            self.poll_socket()?;
        }
        let Some(incoming) = &mut self.incoming else { return self.nothing() };
        match incoming.take(&mut self.copy, self.most_incoming)? {
            Came::Copy => Ok(Some(IncomingFrame { bytes: &self.copy, shared_payload: None })),
            Came::Apart(head, held) => {
                let shared = Some(shared_payload(held, head));
                Ok(Some(IncomingFrame { bytes: &self.copy, shared_payload: shared }))
            }
            Came::Nothing => self.nothing(),
        }
    }

    fn charge_to(&mut self, share: BufferShare) {
        self.share = share;
    }

    fn limit_incoming(&mut self, most: usize) {
        self.most_incoming = most;
    }

    fn has_come(&self) -> Option<bool> {
        Some(self.incoming.as_ref().is_some_and(|incoming| incoming.short.has_something()))
    }

    fn poll_for(&self) -> PollFor {
        PollFor::Rings
    }

    fn prepare_to_wait(&mut self, awaited: Awaited) -> Result<MayWait, TransportError> {
        self.outgoing.short.wake_consumers();
        let may = match &self.incoming {
            // No frame comes before the other end's offers, and these make the descriptor readable.
            None => true,
            Some(incoming) => awaited == Awaited::Room || incoming.short.arm(),
        };
        let stays_full = self.outgoing.stays_full();
        Ok(if may && stays_full && !self.gone { MayWait::Yes } else { MayWait::No })
    }

    fn woken(&mut self) -> Result<(), TransportError> {
        self.poll_socket()
    }

    fn wait_by(&mut self, way: Wait, until: Option<Instant>) -> Result<bool, TransportError> {
        self.outgoing.short.wake_consumers();
        let Some(incoming) = &mut self.incoming else { return Ok(false) };
        incoming.short.wait_by((way, SpinBudget::DEFAULT));
        let watch = DoorbellWatch::new(&self.doorbell, until);
        let verdict = match way {
            Wait::Spin => incoming.short.wait(&mut YieldingWait(watch)),
            _ => incoming.short.wait(&mut { watch }),
        };
        if verdict == WatchVerdict::Stop {
            self.poll_socket()?;
        }
        Ok(true)
    }

    fn doze(&mut self) -> Dozing<'_> {
        self.outgoing.short.wake_consumers();
        match &self.incoming {
            // room, the offers and the other end's death are reported by the descriptor alone
            Some(incoming) if self.outgoing.full.is_none() && !self.gone => {
                incoming.short.doze().map_or(Dozing::Awake, Dozing::Counted)
            }
            _ => Dozing::AtDescriptor,
        }
    }

    fn passes(&self) -> bool {
        true
    }

    fn pass(&mut self, descriptor: BorrowedFd<'_>) -> Result<(), TransportError> {
        self.doorbell.pass(descriptor).map_err(failed)
    }

    fn passed(&mut self) -> Result<Option<OwnedFd>, TransportError> {
        loop {
            match self.doorbell.message() {
                Some(DoorbellMessage::Descriptor(descriptor)) => return Ok(Some(descriptor)),
                Some(DoorbellMessage::Offer { .. }) => return Err(broken("it offers a third ring")),
                None => match self.doorbell.take().map_err(failed)? {
                    DoorbellState::Rung => {}
                    DoorbellState::Quiet | DoorbellState::Gone => return Ok(None),
                },
            }
        }
    }

    fn announce_orders(&mut self, orders: u32) {
        self.outgoing.short.announce_orders(orders);
    }

    fn announced_orders(&self) -> u32 {
        self.incoming.as_ref().map_or(0, |incoming| incoming.short.orders())
    }

    fn close(&mut self) {
        self.outgoing.short.close();
        self.outgoing.long.close();
        self.gone = true;
        self.doorbell.close();
    }
}

unisono_linux::as_fd!(MemoryTransport.doorbell);

/// Makes a payload of a held event that stays in its slot, after a head of `head` bytes.
pub fn shared_payload(held: HeldEvent, head: usize) -> SharedPayload {
    SharedPayload(Arc::new(HeldPayload { held, head }))
}

/// A payload in the other process's memory.
#[derive(Debug)]
struct HeldPayload {
    held: HeldEvent,
    head: usize,
}

impl PayloadMemory for HeldPayload {
    fn length(&self) -> usize {
        self.held.length() - self.head
    }

    fn copy(&self, offset: usize, into: &mut [u8]) {
        self.held.copy(self.head + offset, into);
    }

    fn in_place(&self) -> Option<&[AtomicU8]> {
        Some(&self.held.bytes()[self.head..])
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
