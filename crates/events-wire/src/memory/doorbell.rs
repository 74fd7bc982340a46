//! A doorbell: a connected Unix socket through which two processes with a shared ring wake each other; it
//! also signals the death of the peer.
//!
//! A process writes a byte only if the peer has marked in the ring's page that it sleeps at its descriptor.
//! An eventfd is not suitable: each holder can fill its counter and make it blocking for all holders, so that
//! the peer blocks in its next write. A peer's epoll descriptor is not suitable either, because it can lead
//! to files that answer late. A socket's end, in contrast, belongs to this process alone, sending a byte
//! never blocks, and the same descriptor shows that the peer has ended.
//!
//! The socket also carries descriptors. Each message with descriptors begins with a byte other than the byte
//! of a ring. The kernel never delivers the descriptors of two messages together.
//!
//! ```text
//!   1                          a ring
//!   2                          one descriptor, for the other end to use
//!   "UEM1" 4 zeros  turn (8)   two descriptors: the offer of a ring in memory
//! ```
//! A program that connects to a broker rings four times at once: [`GREETING`].
//!
//! Cost: one system call to ring, and one to consume all pending rings. Reference: unix(7), send(2) on
//! `MSG_DONTWAIT`.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, send, sendmsg,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use unisono_linux::clock::{Instant, now};
use unisono_sync::{SparseChecks, Watch, WatchVerdict};

/// The maximum number of rings that one read consumes: enough for the rings of a busy peer, and small enough
/// for the stack.
const RINGS: usize = 256;

const RING: u8 = 1;
const DESCRIPTOR: u8 = 2;
/// The first bytes of a program that uses shared memory, sent in one piece. Read as the length of a frame
/// they would mean more than 16 MiB, and no greeting is that long.
pub(super) const GREETING: [u8; 4] = [RING; 4];
/// The first bytes of an offer.
const OFFER: [u8; 8] = *b"UEM1\0\0\0\0";
const OFFER_BYTES: usize = 16;
/// Maximum number of descriptors of one message.
const MAX_DESCRIPTORS: usize = 2;
/// The maximum number of messages with descriptors that wait in this process. An honest peer stays far below
/// it, and a hostile one must not exhaust this process's descriptors.
const MAX_WAITING: usize = 64;

/// One end of a doorbell; clones share the end.
#[derive(Clone, Debug)]
pub struct Doorbell(Arc<DoorbellEnd>);

#[derive(Debug)]
struct DoorbellEnd {
    socket: OwnedFd,
    inbox: Mutex<DoorbellInbox>,
}

/// The received messages other than rings.
#[derive(Debug, Default)]
struct DoorbellInbox {
    /// The beginning of an incomplete message.
    partial: Vec<u8>,
    /// Descriptors, grouped by message.
    descriptors: VecDeque<Vec<OwnedFd>>,
    messages: VecDeque<DoorbellMessage>,
}

/// A message with descriptors.
#[derive(Debug)]
pub(super) enum DoorbellMessage {
    Descriptor(OwnedFd),
    Offer { turn: u64, memory: OwnedFd, page: OwnedFd },
}

impl DoorbellInbox {
    fn push(&mut self, bytes: &[u8], descriptors: Vec<OwnedFd>) -> Result<(), &'static str> {
        if !descriptors.is_empty() {
            self.descriptors.push_back(descriptors);
        }
        for byte in bytes {
            if self.partial.is_empty() && *byte == RING {
                continue;
            }
            self.partial.push(*byte);
            if let Some(message) = self.message()? {
                self.messages.push_back(message);
            }
        }
        // Descriptors arrive with their message's first byte. A second set of descriptors during an
        // incomplete message belongs to no message, and would stay here forever.
        if self.descriptors.len() > usize::from(!self.partial.is_empty()) {
            return Err("descriptors came without a message");
        }
        if self.messages.len() > MAX_WAITING {
            Err("more descriptors than this process takes")
        } else {
            Ok(())
        }
    }

    /// Returns the message that has just been completed, if any.
    fn message(&mut self) -> Result<Option<DoorbellMessage>, &'static str> {
        const OTHER: &str = "an offer of shared memory of another version";
        match *self.partial {
            [DESCRIPTOR] => {
                self.partial.clear();
                let [one] = self.descriptors_of()?;
                Ok(Some(DoorbellMessage::Descriptor(one)))
            }
            ref bytes if bytes.len() == OFFER_BYTES => {
                let turn = u64::from_le_bytes(std::array::from_fn(|at| bytes[8 + at]));
                self.partial.clear();
                let [memory, page] = self.descriptors_of()?;
                Ok(Some(DoorbellMessage::Offer { turn, memory, page }))
            }
            ref bytes => {
                let begun = bytes.len().min(OFFER.len());
                if bytes[..begun] == OFFER[..begun] { Ok(None) } else { Err(OTHER) }
            }
        }
    }

    fn descriptors_of<const N: usize>(&mut self) -> Result<[OwnedFd; N], &'static str> {
        let descriptors = self.descriptors.pop_front().unwrap_or_default();
        descriptors.try_into().map_err(|_| match N {
            1 => "a descriptor was announced, and did not come alone",
            _ => "an offer of shared memory comes with two descriptors",
        })
    }
}

/// The state of a doorbell at a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellState {
    Quiet,
    Rung,
    /// The other end is closed.
    Gone,
}

impl Doorbell {
    /// Makes a doorbell of this process's end of a connected Unix socket.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        Self(Arc::new(DoorbellEnd { socket, inbox: Mutex::default() }))
    }

    /// Makes the other end readable. Does nothing if the socket is full of rings, because the other end is
    /// then readable already, or if the peer is gone.
    pub fn ring(&self) {
        let _ = send(&self.0.socket, &[RING], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Tells a listener that this end uses shared memory. A peer that is a doorbell already sees four rings.
    ///
    /// # Errors
    /// The other end is gone.
    pub(super) fn greet(&self) -> io::Result<()> {
        let sent = send(&self.0.socket, &GREETING, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        if sent == GREETING.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Passes a descriptor to the other end; this end keeps its copy.
    ///
    /// # Errors
    /// The other end is gone, or its socket is full at the moment.
    pub(super) fn pass(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.send_with(&[DESCRIPTOR], &[descriptor])
    }

    /// Offers a ring in memory to the other end. The ring's first event for the other end has the turn
    /// `turn`.
    pub(super) fn send_offer(
        &self,
        turn: u64,
        memory: BorrowedFd<'_>,
        page: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let mut bytes = [0; OFFER_BYTES];
        bytes[..8].copy_from_slice(&OFFER);
        bytes[8..].copy_from_slice(&turn.to_le_bytes());
        self.send_with(&bytes, &[memory, page])
    }

    fn send_with(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("no room for so many descriptors"));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let sent = sendmsg(&self.0.socket, &[IoSlice::new(bytes)], &mut control, flags)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Returns the next message with descriptors that [`take`](Self::take) has received.
    pub(super) fn message(&self) -> Option<DoorbellMessage> {
        self.inbox().messages.pop_front()
    }

    fn inbox(&self) -> std::sync::MutexGuard<'_, DoorbellInbox> {
        // no code that holds the lock can panic in the middle of a change
        self.0.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Consumes the pending rings, and queues received messages with descriptors in this process.
    ///
    /// # Errors
    /// `InvalidData`: the bytes are neither a ring nor a message with descriptors.
    pub fn take(&self) -> io::Result<DoorbellState> {
        let mut bytes = [0; RINGS];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let pieces = &mut [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let came = match recvmsg(&self.0.socket, pieces, &mut control, flags) {
            Ok(came) => came.bytes,
            Err(Errno::CONNRESET) => return Ok(DoorbellState::Gone),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(DoorbellState::Quiet),
            Err(error) => return Err(error.into()),
        };
        let descriptors = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptors: Vec<OwnedFd> = descriptors.flatten().collect();
        if came == 0 {
            return Ok(DoorbellState::Gone);
        }
        // Rings alone need no lock: they do not touch the inbox.
        if !descriptors.is_empty() || bytes[..came].iter().any(|byte| *byte != RING) {
            let pushed = self.inbox().push(&bytes[..came], descriptors);
            pushed.map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, reason))?;
        }
        Ok(DoorbellState::Rung)
    }

    /// Ends the connection for both ends.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(&self.0.socket, rustix::net::Shutdown::Both);
    }
}

/// Ends a wait at the ring when the other end is gone or a time has come. A thread that polls the doorbell
/// does not need it: poll(2) reports both.
#[derive(Debug)]
pub struct DoorbellWatch<'a> {
    doorbell: &'a Doorbell,
    until: Option<Instant>,
    /// Makes the system call only in one of 64 checks: a polling thread checks about once a microsecond, and
    /// the call takes a third of a microsecond, so it costs half a percent of the polling.
    checks: SparseChecks<64>,
}

impl<'a> DoorbellWatch<'a> {
    #[must_use]
    pub fn new(doorbell: &'a Doorbell, until: Option<Instant>) -> Self {
        Self { doorbell, until, checks: SparseChecks::default() }
    }
}

impl Watch for DoorbellWatch<'_> {
    fn check(&mut self) -> WatchVerdict {
        if !self.checks.is_due() {
            return WatchVerdict::Continue;
        }
        let over = self.until.is_some_and(|until| now() >= until);
        let gone = || !matches!(self.doorbell.take(), Ok(DoorbellState::Quiet | DoorbellState::Rung));
        if over || gone() { WatchVerdict::Stop } else { WatchVerdict::Continue }
    }

    fn sleep_until(&mut self) -> Option<Instant> {
        Some(self.checks.sleep_until(now(), self.until))
    }
}

unisono_linux::as_fd!(Doorbell.0.socket);

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;
    use unisono_linux::poll::readable;

    #[test]
    fn a_ring_is_seen_at_the_descriptor_until_it_is_taken_and_the_end_for_ever() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (one, other) = (Doorbell::new(one.into()), Doorbell::new(other.into()));
        let is_readable = || readable([other.as_fd()], Some(Duration::ZERO)).expect("poll")[0];
        for _ in 0..3 {
            assert!(!is_readable() && other.take().expect("connected") == DoorbellState::Quiet);
            one.ring();
            one.ring();
            assert!(is_readable() && other.take().expect("connected") == DoorbellState::Rung);
        }
        drop(one);
        assert!(is_readable() && other.take().expect("a socket") == DoorbellState::Gone);
        other.ring();
    }

    #[test]
    fn descriptors_arrive_in_order_between_rings_and_what_is_neither_is_refused() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let (one, other) = (Doorbell::new(one.into()), Doorbell::new(other.into()));
        let files: Vec<_> = (0..3).map(|_| tempfile::tempfile().expect("a file")).collect();
        for file in &files {
            one.ring();
            one.pass(file.as_fd()).expect("there is room");
        }
        one.send_offer(7, files[0].as_fd(), files[1].as_fd()).expect("there is room");
        while other.take().expect("all of it is known") == DoorbellState::Rung {}
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).expect("open").st_ino;
        for file in &files {
            let Some(DoorbellMessage::Descriptor(came)) = other.message() else { panic!("a descriptor") };
            assert_eq!(inode(came.as_fd()), inode(file.as_fd()));
        }
        let Some(DoorbellMessage::Offer { turn: 7, memory, page }) = other.message() else {
            panic!("an offer")
        };
        assert_eq!(inode(memory.as_fd()), inode(files[0].as_fd()));
        assert_eq!(inode(page.as_fd()), inode(files[1].as_fd()));
        assert!(other.message().is_none());
        for bytes in [&[2][..], &[3], b"UEM2", &[1, 1, 9]] {
            let (raw, end) = UnixStream::pair().expect("a pair");
            rustix::io::write(&raw, bytes).expect("there is room");
            let end = Doorbell::new(end.into());
            assert_eq!(end.take().expect_err("no message").kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
        for bytes in [&[RING][..], &[RING, RING], &OFFER[..1]] {
            let (raw, end) = UnixStream::pair().expect("a pair");
            let (raw, end) = (Doorbell::new(raw.into()), Doorbell::new(end.into()));
            // an incomplete offer may have the descriptors that came with its first byte, and no more
            let refused = (0..2).try_for_each(|_| {
                raw.send_with(bytes, &[files[0].as_fd(), files[1].as_fd()])?;
                end.take().map(drop)
            });
            assert_eq!(refused.expect_err("of no message").kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
        let more = (0..=MAX_WAITING).try_for_each(|_| {
            one.pass(files[0].as_fd())?;
            other.take().map(drop)
        });
        assert_eq!(more.expect_err("too many").kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn nobody_waits_for_a_peer_that_never_takes_its_rings() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let one = Doorbell::new(one.into());
        (0..100_000).for_each(|_| one.ring());
    }
}
