//! What a consumer needs for one supplier's ring, and how it crosses a Unix socket.
//!
//! The supplier makes all of it, so that an offer is one message and needs no answer: events may be published
//! at once. Two descriptors travel with it (SCM_RIGHTS): the supplier's memory and the consumer's page. The
//! socket that an offer came by is the [`Doorbell`] of that ring from then on. So whoever introduces a
//! consumer to a supplier, such as the broker, makes a pair of sockets and gives each of them one.
//!
//! ```text
//!   bytes 0..4 "UEM1"   4..8 zero   8..16 the turn to begin with, least significant byte first
//! ```

use super::consumer::MemoryConsumer;
use super::doorbell::Doorbell;
use super::page::LINES;
use super::supplier::{ConsumerNumber, MemorySupplier, WhenBehind};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use unisono_linux::shared_memory::SharedMemory;
use unisono_sync::{CacheLine, ForeignWords, Lines, SpinBudget, Wait};

const MAGIC: [u8; 8] = *b"UEM1\0\0\0\0";
const BYTES: usize = 16;
const DESCRIPTORS: usize = 2;

/// One consumer's access to one supplier's ring.
#[derive(Debug)]
pub struct MemoryOffer {
    memory: OwnedFd,
    page: OwnedFd,
    turn: u64,
}

fn invalid(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

impl MemorySupplier {
    /// Attaches the consumer at the other end of `doorbell`, which begins `history` events back, and sends it
    /// the offer. The message is shorter than any socket's buffer.
    ///
    /// # Errors
    /// No descriptor or memory is left, the supplier's memory has no room for one more consumer, or the
    /// consumer is gone.
    pub fn offer(
        &mut self,
        when_behind: WhenBehind,
        history: u32,
        doorbell: &Doorbell,
    ) -> io::Result<ConsumerNumber> {
        let page = SharedMemory::create(LINES * size_of::<CacheLine>())?;
        let passed_on = page.as_fd().try_clone_to_owned()?;
        let bell = doorbell.clone();
        let rings: Box<dyn FnMut() + Send> = Box::new(move || bell.ring());
        let lines = Lines::in_region(page);
        let (number, turn) =
            self.attach(lines, when_behind, history, Some(rings)).map_err(io::Error::other)?;
        let sent = self.memory().as_fd().try_clone_to_owned().and_then(|memory| {
            let offer = MemoryOffer { memory, page: passed_on, turn };
            offer.send(doorbell)
        });
        if sent.is_err() {
            self.detach(number);
        }
        sent.map(|()| number)
    }
}

impl MemoryOffer {
    fn send(&self, doorbell: &Doorbell) -> io::Result<()> {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..].copy_from_slice(&self.turn.to_le_bytes());
        let descriptors = [self.memory.as_fd(), self.page.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::other("no room for two descriptors"));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(doorbell, &[IoSlice::new(&bytes)], &mut control, flags)?;
        if sent == BYTES { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// The offer that has come. `None`: not yet.
    ///
    /// # Errors
    /// `InvalidData`: what came is no offer; `UnexpectedEof`: the other end is closed; else the kernel's
    /// reason.
    pub fn receive(doorbell: &Doorbell) -> io::Result<Option<Self>> {
        let mut bytes = [0; BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let pieces = &mut [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let came = match recvmsg(doorbell, pieces, &mut control, flags) {
            Ok(came) => came.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(Errno::CONNRESET) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => return Err(error.into()),
        };
        let descriptors: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        if came == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Ok([memory, page]) = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors) else {
            return Err(invalid("an offer of shared memory comes with two descriptors"));
        };
        if came != BYTES || bytes[..8] != MAGIC {
            return Err(invalid("an offer of shared memory of another version"));
        }
        let turn = u64::from_le_bytes(std::array::from_fn(|at| bytes[8 + at]));
        Ok(Some(Self { memory, page, turn }))
    }

    /// Maps what was offered by `doorbell`.
    ///
    /// # Errors
    /// `InvalidData`: what was offered is not a supplier's memory, or could be shrunk.
    pub fn accept(self, way: (Wait, SpinBudget), doorbell: &Doorbell) -> io::Result<MemoryConsumer> {
        let words = ForeignWords::new(self.memory)?;
        let page = Lines::in_region(SharedMemory::from_descriptor(self.page)?);
        let bell = doorbell.clone();
        let rings: Box<dyn FnMut() + Send> = Box::new(move || bell.ring());
        MemoryConsumer::join(words, page, self.turn, way, Some(rings)).map_err(invalid)
    }
}
