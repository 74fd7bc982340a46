//! Offers: a consumer's access to one supplier's ring, and its transfer over a Unix socket.
//!
//! The supplier makes the whole offer, including the consumer's page, so that it is one message and needs no
//! answer: events may be published at once. Two descriptors travel with it (SCM_RIGHTS): the supplier's
//! memory and the consumer's page. The socket that carried an offer is the [`Doorbell`] of that ring from
//! then on. To connect a consumer with a supplier, the broker makes a pair of sockets and passes one to each.

use super::consumer::{MemoryConsumer, RingBacking};
use super::doorbell::{Doorbell, DoorbellMessage, DoorbellState};
use super::page::LINES;
use super::supplier::{ConsumerNumber, MemorySupplier, WhenBehind};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use unisono_linux::shared_memory::SharedMemory;
use unisono_sync::{CacheLine, ForeignWords, Lines, SpinBudget, Wait};

/// The size of the largest memory page, in bytes: the length of a ring's memory is rounded up to whole pages.
const MAX_PAGE: u64 = 64 << 10;

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
    /// Attaches the consumer at the other end of `doorbell`, and sends it the offer. The message is shorter
    /// than any socket's buffer.
    ///
    /// # Errors
    /// No descriptor or memory is left, the supplier's memory has no room for one more consumer, or the
    /// consumer is gone.
    pub fn offer(&mut self, when_behind: WhenBehind, doorbell: &Doorbell) -> io::Result<ConsumerNumber> {
        let page = SharedMemory::create(LINES * size_of::<CacheLine>())?;
        let passed_on = page.as_fd().try_clone_to_owned()?;
        let bell = doorbell.clone();
        let rings: Box<dyn FnMut() + Send> = Box::new(move || bell.ring());
        let lines = Lines::in_region(page);
        let (number, turn) = self.attach(lines, when_behind, Some(rings)).map_err(io::Error::other)?;
        let sent = doorbell.send_offer(turn, self.memory().as_fd(), passed_on.as_fd());
        if sent.is_err() {
            self.detach(number);
        }
        sent.map(|()| number)
    }
}

impl MemoryOffer {
    /// Receives the next offer, or returns `None` if none has come yet.
    ///
    /// # Errors
    /// `InvalidData`: the message is not an offer; `UnexpectedEof`: the other end is closed; otherwise, the
    /// kernel's error.
    pub fn receive(doorbell: &Doorbell) -> io::Result<Option<Self>> {
        loop {
            match doorbell.message() {
                Some(DoorbellMessage::Offer { turn, memory, page }) => {
                    return Ok(Some(Self { memory, page, turn }));
                }
                Some(DoorbellMessage::Descriptor(_)) => {
                    return Err(invalid("an offer of shared memory comes with two descriptors"));
                }
                None => match doorbell.take()? {
                    DoorbellState::Rung => {}
                    DoorbellState::Quiet => return Ok(None),
                    DoorbellState::Gone => return Err(io::ErrorKind::UnexpectedEof.into()),
                },
            }
        }
    }

    /// Checks that the ring's memory has at most `most` bytes.
    ///
    /// # Errors
    /// `InvalidData`: the memory is larger.
    pub(super) fn within(self, most: u64) -> io::Result<Self> {
        let bytes = u64::try_from(rustix::fs::fstat(&self.memory)?.st_size).unwrap_or(u64::MAX);
        match bytes > most.next_multiple_of(MAX_PAGE) {
            true => Err(invalid(format!("a ring of {bytes} bytes; the largest that is taken has {most}"))),
            false => Ok(self),
        }
    }

    /// Maps the offered memory; `doorbell` is the socket that carried the offer. The consumer reads only
    /// memory that the supplier has written, at the cost of a system call for each event: an unwritten page
    /// would be charged to the process that reads it first.
    ///
    /// # Errors
    /// The errors of [`accept`](Self::accept).
    pub(super) fn accept_written(
        self,
        way: (Wait, SpinBudget),
        doorbell: &Doorbell,
    ) -> io::Result<MemoryConsumer> {
        let memory = self.memory.try_clone()?;
        let mut consumer = self.accept(way, doorbell)?;
        consumer.read_through(Box::new(BackingFile(memory)));
        Ok(consumer)
    }

    /// Maps the offered memory; `doorbell` is the socket that carried the offer.
    ///
    /// # Errors
    /// `InvalidData`: the descriptor is not a supplier's memory, or could be shrunk.
    pub fn accept(self, way: (Wait, SpinBudget), doorbell: &Doorbell) -> io::Result<MemoryConsumer> {
        let words = ForeignWords::new(self.memory)?;
        let page = Lines::in_region(SharedMemory::from_descriptor(self.page)?);
        let bell = doorbell.clone();
        let rings: Box<dyn FnMut() + Send> = Box::new(move || bell.ring());
        MemoryConsumer::join(words, page, self.turn, way, Some(rings)).map_err(invalid)
    }
}

/// The memfd of a ring. Its seals prevent truncation, so that written pages stay written.
struct BackingFile(OwnedFd);

impl RingBacking for BackingFile {
    fn is_written(&self, range: &Range<usize>) -> bool {
        let from = u64::try_from(range.start).unwrap_or(u64::MAX);
        let hole = rustix::fs::seek(&self.0, rustix::fs::SeekFrom::Hole(from));
        hole.is_ok_and(|hole| usize::try_from(hole).is_ok_and(|hole| hole >= range.end))
    }

    fn append(&self, range: &Range<usize>, into: &mut Vec<u8>) {
        let before = into.len();
        into.resize(before + range.len(), 0);
        let mut at = 0;
        // a read that fails leaves zeros, as unwritten memory does
        while let Ok(count @ 1..) =
            rustix::io::pread(&self.0, &mut into[before + at..], (range.start + at) as u64)
        {
            at += count;
        }
    }
}
