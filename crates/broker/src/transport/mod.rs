//! Transports: how frames get from a program to the broker and back.
//!
//! ```text
//!   program                                             broker
//!   FrameTransport ==== stream.rs: Unix, TCP, TLS ==> FrameTransport   <- TransportListener
//!   FrameTransport ==== datagrams.rs: UDP ==========> FrameTransport   <- TransportListener
//!   FrameTransport ==== memory/:   rings in memfds => FrameTransport   <- TransportListener
//! ```
//! A frame is a head and a payload, both opaque here; `frame.rs` gives them their meaning. A transport moves
//! frames between two ends, in both directions. It never blocks (but that of a program while it connects and
//! closes) and starts no thread: each call does what can be done now, and one descriptor tells `poll(2)` when
//! to call again.
//!
//! **Contract.** Every transport mounts the suite in `tests/conformance/mod.rs`, which checks these points:
//!
//! 1. Frames arrive whole, once and in order, or the connection ends. An end that dies in the middle of a
//!    frame leaves no part of it to the other end.
//! 2. Memory is bounded. [`send`](FrameTransport::send) answers [`Taken::Full`] when too much waits for the
//!    other end, and does not take the frame then. A transport that holds nothing takes a frame of any legal
//!    length.
//! 3. A frame that was taken leaves at the next [`flush`](FrameTransport::flush), or before. Callers send
//!    many frames and flush once: that is what batching means here.
//! 4. [`receive`](FrameTransport::receive) is called until it answers `None`; only then does the descriptor
//!    tell of the next frame. The descriptor may be ready without a frame.
//! 5. Before a thread sleeps on the descriptor it calls
//!    [`prepare_to_wait`](FrameTransport::prepare_to_wait), and sleeps only if that says so. This closes the
//!    gap in which the other end believes the thread is awake. When the descriptor was ready it calls
//!    [`woken`](FrameTransport::woken), which takes the rings away that made it ready.
//! 6. After [`close`](FrameTransport::close), or the drop of an end, or the kill of its process, the other
//!    end receives what had left, and then [`TransportError::Closed`]. No name and no memory is left behind.
//! 7. Nothing that the other end writes breaks these rules for this end: lengths are checked after they were
//!    copied, and an end that breaks the protocol gets [`TransportError::Broken`] here and is closed by the
//!    caller.
//!
//! **What shared memory provides.** Rings in memfds whose descriptors cross a Unix socket; the socket stays
//! open and says when the other process ends. It is the pollable descriptor of all that can happen: the
//! other end writes a byte to it when [`prepare_to_wait`](FrameTransport::prepare_to_wait) announced a
//! sleep. Small payloads are copied out of the ring into a buffer of this process, because the other process
//! can change the ring at any time. Large payloads arrive as [`SharedPayload`]: a handle that keeps the
//! memory until the last clone is dropped, and that is sent on to others without a copy.
//!
//! **Cost.** Each transport says in its own first lines what a frame costs.

mod channel;
mod datagram_listener;
mod datagrams;
mod heads;
mod socket;
mod stream;
mod tls;

pub use crate::buffers::BufferShare;
pub use datagram_listener::DatagramListener;
pub(crate) use datagrams::DatagramChannel;
pub use stream::{Framing, StreamListener, StreamTransport};
pub(crate) use stream::{NO_MEMORY, accept};

use crate::tls::CertificateChain;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use unisono_linux::clock::Nanos;
use unisono_sync::{CountedSleeper, Wait};

/// Why a transport is of no more use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    #[error("the other end is gone")]
    Closed,
    /// The frame was not taken; the transport goes on.
    #[error("a frame of {bytes} bytes is too large; the largest has {most}")]
    TooLarge { bytes: usize, most: usize },
    /// The other end breaks the protocol of the transport.
    #[error("the other end breaks the protocol: {0}")]
    Broken(String),
    /// The other end speaks, but no TLS; the last words to it go out unencrypted.
    #[error("the other end does not speak TLS")]
    NoTls,
    /// No encrypted connection comes about, or it breaks.
    #[error("TLS: {0}")]
    Tls(String),
    #[error("the transport failed: {0}")]
    Failed(#[from] std::io::Error),
}

impl From<rustix::io::Errno> for TransportError {
    fn from(error: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        match error {
            Errno::PIPE | Errno::CONNRESET | Errno::CONNABORTED | Errno::NOTCONN | Errno::TIMEDOUT => {
                Self::Closed
            }
            other => Self::Failed(other.into()),
        }
    }
}

/// Whether a frame is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Taken {
    Taken,
    /// Too much waits for the other end; the frame was not taken.
    Full,
}

/// What a flush leaves behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Drained {
    /// All has left.
    All,
    /// The other end has to make room; the descriptor becomes ready when it has.
    Part,
}

/// The events of `poll(2)` that a transport waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollFor {
    /// Nothing waits to leave: `POLLIN`.
    Frames,
    /// Something does: `POLLIN | POLLOUT`.
    FramesAndRoom,
    /// The other end rings for frames and for room: `POLLIN`, also while frames are not received.
    Rings,
    /// Datagrams and a timer make it ready: `POLLIN`, also while frames are not received. There may be room
    /// then, so flush.
    Anything,
}

/// What a thread that sleeps on the descriptor wants to be woken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    FramesAndRoom,
    /// Frames that come stay where they are.
    Room,
}

/// Whether a thread may sleep on the descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum MayWait {
    Yes,
    /// Something came meanwhile: receive again.
    No,
}

/// What came of announcing a sleep at words in memory.
#[derive(Debug)]
pub enum Dozing<'a> {
    /// The other end wakes who sleeps there.
    Counted(CountedSleeper<'a>),
    /// Something came meanwhile: receive again.
    Awake,
    /// What is awaited shows itself at the descriptor alone.
    AtDescriptor,
}

/// A payload on its way out.
#[derive(Clone, Copy, Debug)]
pub enum PayloadRef<'a> {
    Bytes(&'a [u8]),
    Shared(&'a SharedPayload),
    Written(PayloadWriter<'a>),
}

/// Writes a payload where it is to lie, so that it is not copied.
#[derive(Clone, Copy)]
pub struct PayloadWriter<'a> {
    pub bytes: usize,
    /// Gets the place, of that many bytes, which hold whatever was there before.
    pub write: &'a dyn Fn(&mut [u8]),
}

impl fmt::Debug for PayloadWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PayloadWriter").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl PayloadRef<'_> {
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Shared(shared) => shared.length(),
            Self::Written(writer) => writer.bytes,
        }
    }

    /// Puts the payload where it is to lie, a place of its length.
    pub(crate) fn put(&self, into: &mut [u8]) {
        match self {
            Self::Bytes(bytes) => into.copy_from_slice(bytes),
            Self::Shared(shared) => shared.0.copy(0, into),
            Self::Written(writer) => (writer.write)(into),
        }
    }
}

/// A frame that has arrived; its bytes are valid until the next call of the transport.
#[derive(Debug)]
pub struct IncomingFrame<'a> {
    /// The head, and the payload behind it unless that travels apart.
    pub bytes: &'a [u8],
    /// The payload, if it came apart from its head. Transports without shared memory never do this.
    pub apart: Option<SharedPayload>,
}

/// Memory that both ends map and that holds one payload. The last drop gives it back to its owner.
pub trait PayloadMemory: Send + Sync + fmt::Debug {
    fn length(&self) -> usize;
    /// Copies from `offset` on into `into`, which lies within the length.
    fn copy(&self, offset: usize, into: &mut [u8]);
    /// The bytes where they lie, if this process maps them; the owner may change them.
    fn in_place(&self) -> Option<&[AtomicU8]> {
        None
    }
    /// For the transport that made it: finds the memory again, to send it on without a copy.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// A payload in shared memory. Clones are handles of the same memory.
#[derive(Clone, Debug)]
pub struct SharedPayload(pub Arc<dyn PayloadMemory>);

impl SharedPayload {
    #[must_use]
    pub fn length(&self) -> usize {
        self.0.length()
    }

    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length()];
        self.0.copy(0, &mut bytes);
        bytes
    }
}

/// One end of a connection that carries frames. The contract is in the module's documentation.
pub trait FrameTransport: AsFd + Send + fmt::Debug {
    /// Bytes of the largest frame, head and payload together; the same at both ends.
    fn largest(&self) -> usize;

    /// Takes a frame, or says that it is full.
    ///
    /// # Errors
    /// The frame is too large (the transport goes on), or the other end is gone.
    fn send(&mut self, head: &[u8], payload: PayloadRef<'_>) -> Result<Taken, TransportError>;

    /// Lets all leave that was taken, as far as the other end has room.
    ///
    /// # Errors
    /// The other end is gone.
    fn flush(&mut self) -> Result<Drained, TransportError>;

    /// The next frame that has arrived.
    ///
    /// # Errors
    /// The other end is gone and all that had left it has been received, or it breaks the protocol.
    fn receive(&mut self) -> Result<Option<IncomingFrame<'_>>, TransportError>;

    /// What to poll the descriptor for: after each [`flush`](Self::flush) this may have changed.
    fn poll_for(&self) -> PollFor;

    /// Announces that a thread is about to sleep on the descriptor. Transports whose descriptor is ready
    /// whenever a frame waits in the kernel have nothing to announce.
    ///
    /// # Errors
    /// The other end is gone.
    fn prepare_to_wait(&mut self, awaited: Awaited) -> Result<MayWait, TransportError> {
        let _ = awaited;
        Ok(MayWait::Yes)
    }

    /// The descriptor was ready. Transports whose descriptor is ready whenever a frame waits in the kernel
    /// have nothing to do.
    ///
    /// # Errors
    /// The other end breaks the protocol.
    fn woken(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// The transport that this connection turns out to be, once the other end has said how it speaks. It
    /// takes the place of this one. `None`: it is known, or nothing has come.
    ///
    /// # Errors
    /// The other end is gone, or cannot be given what its transport needs.
    fn settle(&mut self) -> Result<Option<Box<dyn FrameTransport>>, TransportError> {
        Ok(None)
    }

    /// Waits in this way, without the descriptor, until a frame may have come, the other end is gone or the
    /// time is over (on the monotonic clock). `false`: this transport waits at its descriptor alone.
    ///
    /// # Errors
    /// The other end breaks the protocol.
    fn wait_by(&mut self, way: Wait, until: Option<Nanos>) -> Result<bool, TransportError> {
        let _ = (way, until);
        Ok(false)
    }

    /// Before a sleep at the words of this connection and of rings in memory: counts this end as asleep. A
    /// frame that comes ends the sleep; the other end's death does not.
    fn doze(&mut self) -> Dozing<'_> {
        Dozing::AtDescriptor
    }

    /// Whether a frame has come. `None`: only a system call could say that.
    fn has_come(&self) -> Option<bool> {
        None
    }

    /// Whether descriptors can be passed on to the other end.
    fn passes(&self) -> bool {
        false
    }

    /// Passes a descriptor on; a copy of it stays here. Descriptors arrive in order, and before frames that
    /// are sent afterwards.
    ///
    /// # Errors
    /// The other end takes none for now or is gone, or this transport passes none. The transport goes on.
    fn pass(&mut self, descriptor: BorrowedFd<'_>) -> Result<(), TransportError> {
        let _ = descriptor;
        Err(TransportError::Failed(std::io::ErrorKind::Unsupported.into()))
    }

    /// The next descriptor that was passed on to this end.
    ///
    /// # Errors
    /// The other end breaks the protocol.
    fn passed(&mut self) -> Result<Option<OwnedFd>, TransportError> {
        Ok(None)
    }

    /// Says how many orders about rings were given to the other end since the beginning, also if no frame can
    /// be sent now. Only transports that pass descriptors on have to.
    fn announce_orders(&mut self, orders: u32) {
        let _ = orders;
    }

    /// How many orders the other end has given since the beginning; their frames may still be on their way.
    fn announced_orders(&self) -> u32 {
        0
    }

    /// From the next frame on, heads leave as what has changed since an earlier one, if this transport saves
    /// anything by that. The other end does the same when it has seen the first. For programs whose broker
    /// understands it; a broker never begins.
    fn compress_heads(&mut self) {}

    /// Whether [`send_loosely`](Self::send_loosely) sends what may be lost on the way.
    fn may_lose(&self) -> bool {
        false
    }

    /// Lets a small frame leave that need not arrive, and waits for no frame before it. The other
    /// end receives it whole, at most once, in any order. A frame that finds no room goes in place of
    /// an older one.
    ///
    /// # Errors
    /// The other end is gone, or this transport loses nothing.
    fn send_loosely(&mut self, head: &[u8], payload: PayloadRef<'_>) -> Result<(), TransportError> {
        let _ = (head, payload);
        Err(TransportError::Failed(std::io::ErrorKind::Unsupported.into()))
    }

    /// Frames that come have at most so many bytes from now on, and no more than [`largest`](Self::largest).
    /// Memory for a frame is taken only if it is no longer. Transports that take no memory for frames that
    /// come have nothing to do.
    fn limit_incoming(&mut self, most: usize) {
        let _ = most;
    }

    /// Buffers of this end that grow are charged from now on, and grow no further than that allows: then the
    /// connection ends. Transports whose buffers do not grow have nothing to do.
    fn charge_to(&mut self, share: BufferShare) {
        drop(share);
    }

    /// The certificates that the other end has shown, its own first, once the handshake of TLS is done; empty
    /// if it showed none. `None`: there is no TLS.
    fn peer_certificates(&self) -> Option<CertificateChain> {
        None
    }

    /// Ends the connection. What had left still arrives.
    fn close(&mut self);
}

/// Who is at the other end, as the kernel says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransportPeer {
    /// A process of this user on this host; both ends read the same monotonic clock.
    User(u32),
    /// A process at this address; its clock is another one.
    Address(IpAddr),
}

impl TransportPeer {
    /// Whose limits it shares: whoever has one of these addresses has the others, too. That is all of
    /// loopback, and of IPv6 a /64 (RFC 6177).
    #[must_use]
    pub(crate) fn party(self) -> Self {
        match self {
            Self::User(_) => self,
            Self::Address(address) => Self::Address(match address.to_canonical() {
                address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V4(address) => address.into(),
                IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            }),
        }
    }
}

/// A connection, and who is at its other end.
pub type AcceptedTransport = (Box<dyn FrameTransport>, TransportPeer);

/// Where connections come in. Its descriptor is ready for reading when one waits.
pub trait TransportListener: AsFd + Send + fmt::Debug {
    /// A connection that waits. It may still be exchanging descriptors: it receives nothing until that is
    /// done.
    ///
    /// # Errors
    /// The kernel refuses for a reason that is not the one who connects.
    fn accept(&mut self) -> Result<Option<AcceptedTransport>, TransportError>;

    /// What the frames of its connections are: the broker's own, or packets of MQTT.
    fn framing(&self) -> Framing {
        Framing::Length
    }

    /// Gives what it listens with to a user, before this process becomes that user. Listeners that open no
    /// sockets at their address later have nothing to give.
    ///
    /// # Errors
    /// The kernel's refusal: only root gives.
    fn give(&self, user: u32, group: u32) -> Result<(), TransportError> {
        let _ = (user, group);
        Ok(())
    }
}

/// Sleeps until the descriptor is ready or the time is over; whether it is ready.
///
/// # Errors
/// The other end is gone, or the kernel refuses to wait.
pub fn wait(
    transport: &mut dyn FrameTransport,
    timeout: Option<std::time::Duration>,
) -> Result<bool, TransportError> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    if transport.prepare_to_wait(Awaited::FramesAndRoom)? == MayWait::No {
        return Ok(true);
    }
    let flags = match transport.poll_for() {
        PollFor::Frames | PollFor::Rings | PollFor::Anything => PollFlags::IN,
        PollFor::FramesAndRoom => PollFlags::IN | PollFlags::OUT,
    };
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    let descriptor: BorrowedFd<'_> = transport.as_fd();
    match poll(&mut [PollFd::from_borrowed_fd(descriptor, flags)], timeout.as_ref()) {
        Ok(0) => Ok(false),
        Ok(_) => transport.woken().map(|()| true),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
