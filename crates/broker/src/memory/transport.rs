//! Frames between a program and the broker through shared memory: one ring in each direction.
//!
//! Each end is the supplier of one ring and the only consumer of the other's, which blocks it: nothing is
//! lost. Each end sends an offer of its ring over the Unix socket at once and needs no answer, so it may send
//! frames before the other end has seen it. The socket is then the doorbell of both rings, and the descriptor
//! to poll.
//!
//! ```text
//!   slot of a frame:  head | payload      tag of its entry: how long the head is
//! ```
//! A payload of [`APART`] bytes or more stays in its slot until its handle is dropped, unless as many handles
//! are out as may be; all others are copied.
//!
//! Cost: a copy into the ring, and one out of it for short frames; a system call only to wake somebody who
//! sleeps at the descriptor. When not to use: between hosts.

use super::doorbell::{Doorbell, DoorbellState};
use super::offer::MemoryOffer;
use super::{HeldEvent, MemoryConsumer, MemoryGeometry, MemorySupplier, NextEvent, WhenBehind};
use crate::transport::{
    AcceptedTransport, Drained, FrameTransport, IncomingFrame, MayWait, PayloadMemory, PayloadRef, PollFor,
    SharedPayload, Taken, TransportError, TransportListener, accept,
};
use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use unisono_sync::{SpinBudget, Wait};

/// Frames that each direction holds. With the smallest frames a ring is read in quarters of this.
const DEPTH: u32 = 256;
/// A payload of so many bytes costs more to copy (about 2 us) than a handle and a hold.
const APART: usize = 16 << 10;
/// Sends and receptions without a look whether the other process still lives: each look is a system call.
const LOOK_EVERY: u32 = 1024;
/// Nobody waits here by a [`Wait`]: waiting is done at the descriptor.
const WAY: (Wait, SpinBudget) = (Wait::Block, SpinBudget::DEFAULT);

/// One end of a connection over shared memory.
#[derive(Debug)]
pub struct MemoryTransport {
    doorbell: Doorbell,
    outgoing: MemorySupplier,
    /// The other end's ring, once its offer is here.
    incoming: Option<MemoryConsumer>,
    /// The last frame that came, if it was copied.
    copy: Vec<u8>,
    /// Whether the last frame found no room.
    full: bool,
    /// Whether the other end is closed.
    gone: bool,
    until_look: u32,
}

impl MemoryTransport {
    /// A connected Unix socket carries frames of up to `largest` bytes, if the other end does the same.
    ///
    /// # Errors
    /// No memory or descriptor is left; `largest` is beyond what a ring can have.
    pub fn new(socket: OwnedFd, largest: usize) -> Result<Self, TransportError> {
        let geometry = u32::try_from(largest).ok().and_then(|largest| MemoryGeometry::new(DEPTH, largest, 1));
        let geometry = geometry.ok_or_else(|| {
            let reason = format!("frames of {largest} bytes are beyond shared memory");
            std::io::Error::new(std::io::ErrorKind::InvalidInput, reason)
        })?;
        let mut outgoing = MemorySupplier::create(geometry, WAY)?;
        let doorbell = Doorbell::new(socket);
        outgoing.offer(WhenBehind::BlocksSupplier, 0, &doorbell)?;
        let (copy, full, gone) = (Vec::new(), false, false);
        Ok(Self { doorbell, outgoing, incoming: None, copy, full, gone, until_look: 0 })
    }

    /// Looks at the socket: the other end's offer, rings, or its end.
    fn look(&mut self) -> Result<(), TransportError> {
        self.until_look = LOOK_EVERY;
        if self.incoming.is_some() {
            self.gone = self.gone || self.doorbell.take()? == DoorbellState::Gone;
            return Ok(());
        }
        match MemoryOffer::receive(&self.doorbell) {
            Ok(Some(offer)) => self.incoming = Some(offer.accept(WAY, &self.doorbell).map_err(broken)?),
            Ok(None) => {}
            Err(error) => match error.kind() {
                std::io::ErrorKind::UnexpectedEof => self.gone = true,
                std::io::ErrorKind::InvalidData => return Err(broken(error)),
                _ => return Err(TransportError::Failed(error)),
            },
        }
        Ok(())
    }

    /// Looks at the socket now and then.
    #[inline]
    fn look_in_time(&mut self) -> Result<(), TransportError> {
        match self.until_look.checked_sub(1) {
            Some(left) => {
                self.until_look = left;
                Ok(())
            }
            None => self.look(),
        }
    }

    /// What to say when nothing has come: whether anything may come still.
    fn nothing(&mut self) -> Result<Option<IncomingFrame<'_>>, TransportError> {
        self.look_in_time()?;
        let waits = self.incoming.as_ref().is_some_and(MemoryConsumer::has_something);
        if self.gone && !waits { Err(TransportError::Closed) } else { Ok(None) }
    }
}

/// How a frame that came is to be handed on.
enum Came {
    Copy,
    Apart(usize, HeldEvent),
    Nothing,
}

fn broken(reason: impl ToString) -> TransportError {
    TransportError::Broken(reason.to_string())
}

/// Takes the next frame: held if its payload is long and a hold is free, else copied.
fn take(consumer: &mut MemoryConsumer, copy: &mut Vec<u8>) -> Result<Came, TransportError> {
    copy.clear();
    if consumer.next_length().is_some_and(|length| length >= APART)
        && let Ok(NextEvent::Event(held)) = consumer.receive()
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
    match consumer.receive_copy(copy).map_err(broken)? {
        NextEvent::Event(_) => Ok(Came::Copy),
        NextEvent::Lost(_) => Err(broken("it overwrites what was not read")),
        NextEvent::Nothing => Ok(Came::Nothing),
        NextEvent::Closed => Err(TransportError::Closed),
    }
}

impl FrameTransport for MemoryTransport {
    fn largest(&self) -> usize {
        self.outgoing.geometry().largest() as usize
    }

    fn send(&mut self, head: &[u8], payload: PayloadRef<'_>) -> Result<Taken, TransportError> {
        let (length, most) = (head.len() + payload.length(), self.largest());
        if length > most {
            return Err(TransportError::TooLarge { bytes: length, most });
        }
        self.look_in_time()?;
        if self.gone {
            return Err(TransportError::Closed);
        }
        if self.outgoing.who_has_no_room().is_some() {
            self.full = true;
            self.look()?;
            return if self.gone { Err(TransportError::Closed) } else { Ok(Taken::Full) };
        }
        let mut loan = self.outgoing.loan(length).map_err(broken)?;
        let (first, rest) = loan.bytes().split_at_mut(head.len());
        first.copy_from_slice(head);
        match payload {
            PayloadRef::Bytes(bytes) => rest.copy_from_slice(bytes),
            PayloadRef::Shared(shared) => shared.0.copy(0, rest),
        }
        loan.publish(head.len() as u32);
        self.full = false;
        Ok(Taken::Taken)
    }

    fn flush(&mut self) -> Result<Drained, TransportError> {
        self.outgoing.tell();
        self.look_in_time()?;
        if self.gone { Err(TransportError::Closed) } else { Ok(Drained::All) }
    }

    fn receive(&mut self) -> Result<Option<IncomingFrame<'_>>, TransportError> {
        if self.incoming.is_none() {
            self.look()?;
        }
        let Some(consumer) = &mut self.incoming else { return self.nothing() };
        match take(consumer, &mut self.copy)? {
            Came::Copy => Ok(Some(IncomingFrame { bytes: &self.copy, apart: None })),
            Came::Apart(head, held) => {
                let apart = Some(SharedPayload(Arc::new(HeldPayload { held, head })));
                Ok(Some(IncomingFrame { bytes: &self.copy, apart }))
            }
            Came::Nothing => self.nothing(),
        }
    }

    fn poll_for(&self) -> PollFor {
        PollFor::Frames
    }

    fn prepare_to_wait(&mut self) -> Result<MayWait, TransportError> {
        self.outgoing.tell();
        self.look()?;
        let may = match &self.incoming {
            // Nothing is sent or received before its offer, which makes the descriptor readable.
            None => true,
            Some(consumer) => consumer.arm(),
        };
        let stays_full = !self.full || self.outgoing.polls_for_room();
        Ok(if may && stays_full && !self.gone { MayWait::Yes } else { MayWait::No })
    }

    fn close(&mut self) {
        self.outgoing.close();
        self.gone = true;
        self.doorbell.close();
    }
}

impl AsFd for MemoryTransport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}

/// Where ends of shared memory connect: a Unix socket that listens.
#[derive(Debug)]
pub struct MemoryListener {
    socket: OwnedFd,
    largest: usize,
}

impl MemoryListener {
    /// A listening socket accepts ends that carry frames of up to `largest` bytes.
    ///
    /// # Errors
    /// The socket cannot be made non-blocking.
    pub fn new(socket: OwnedFd, largest: usize) -> Result<Self, TransportError> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { socket, largest })
    }
}

impl TransportListener for MemoryListener {
    fn accept(&mut self) -> Result<Option<AcceptedTransport>, TransportError> {
        let Some((socket, peer)) = accept(&self.socket)? else { return Ok(None) };
        Ok(Some((Box::new(MemoryTransport::new(socket, self.largest)?), peer)))
    }
}

impl AsFd for MemoryListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
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

    fn as_any(&self) -> &dyn Any {
        self
    }
}
