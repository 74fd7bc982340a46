//! Transports carry frames between a program and the broker, in both directions.
//!
//! ```text
//!   program                                             broker
//!   FrameTransport ==== stream.rs: Unix, TCP, TLS ==> FrameTransport   <- TransportListener
//!   MQTT client    ==== websocket.rs below stream.rs => FrameTransport <- TransportListener
//!   FrameTransport ==== datagrams.rs: UDP ==========> FrameTransport   <- TransportListener
//!   FrameTransport ==== memory/:   rings in memfds => FrameTransport   <- TransportListener
//! ```
//! A frame is a head and a payload, both opaque here; `frame/mod.rs` defines their meaning. A transport moves
//! frames between two ends, in both directions. It never blocks, except while a program connects and closes,
//! and starts no thread, except at a program's end of a UDP connection. Each call does the work that is
//! possible now, and a descriptor shows through `poll(2)` when to call again.
//!
//! **Contract.** Every transport is tested with the suite in `tests/conformance/mod.rs`, which checks these
//! points:
//!
//! 1. Frames arrive whole, once and in order, or the connection ends. If an end dies in the middle of a
//!    frame, the other end receives no part of that frame.
//! 2. Memory is bounded. If too many bytes wait for the other end, [`send`](FrameTransport::send) does not
//!    take the frame and returns [`Taken::Full`]. A transport that holds no frame takes a frame of any legal
//!    length.
//! 3. A frame that was taken leaves at the next [`flush`](FrameTransport::flush), or before. Callers send
//!    many frames and flush once (batching).
//! 4. A caller calls [`receive`](FrameTransport::receive) until it returns `None`. Only then does the
//!    descriptor signal the next frame, unless the call [stopped early](FrameTransport::stopped_early). The
//!    descriptor may be ready without a frame.
//! 5. Before a thread sleeps on the descriptor, it calls
//!    [`prepare_to_wait`](FrameTransport::prepare_to_wait), and sleeps only if the result is
//!    [`MayWait::Yes`]. Otherwise, the thread could miss a frame that comes while the other end still
//!    considers the thread awake. When the descriptor was ready, the thread calls
//!    [`woken`](FrameTransport::woken), which consumes the signals that made it ready.
//! 6. After [`close`](FrameTransport::close), or the drop of an end, or the death of its process, the other
//!    end receives the frames that had left, and then [`TransportError::Closed`]. No name in a file system
//!    and no memory is left behind.
//! 7. These rules hold at this end whatever bytes the other end sends, because lengths are checked after they
//!    are copied. If the other end breaks the protocol, this end returns [`TransportError::Broken`], and the
//!    caller closes the connection.
//!
//! **Shared memory.** The frames are in rings in memfds, whose descriptors are passed over a Unix socket. The
//! socket stays open and reports the end of the other process. It is also the descriptor to poll for all
//! events: the other end writes a byte to it if [`prepare_to_wait`](FrameTransport::prepare_to_wait) has
//! announced a sleep. Small payloads are copied out of the ring into a buffer of this process, because the
//! other process can change the ring at any time. Large payloads arrive as [`SharedPayload`]: a handle that
//! keeps the memory until the last clone is dropped, and that can be sent on to other programs without a
//! copy.
//!
//! **Cost.** The module documentation of each transport states the cost of a frame.

mod channel;
mod datagram_channel;
mod datagram_listener;
mod datagrams;
mod foreign;
mod framing;
mod heads;
mod peer;
mod shared_inbox;
mod socket;
mod socket_channel;
mod stream;
mod stream_listener;
mod tls;
mod websocket;

pub use crate::buffers::BufferShare;
pub use datagram_listener::DatagramListener;
pub use foreign::foreign_service;
pub use framing::{Framing, mqtt_packet_length};
pub use peer::PeerWatcher;
pub(crate) use stream::NO_MEMORY;
pub use stream::{MAX_INTAKE, StreamTransport};
pub use stream_listener::StreamListener;
pub(crate) use stream_listener::accept;
pub use websocket::WebOrigins;

use crate::interrupt;
use crate::tls::{CertificateChain, TlsCertificates};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use unisono_linux::clock::Instant;
use unisono_sync::{CountedSleeper, Wait};

/// The reason why a transport failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    #[error("the other end is gone")]
    Closed,
    /// The other end has ended the connection for this reason.
    #[error("{0}")]
    SentAway(String),
    /// The frame was not taken; the transport stays usable.
    #[error("a frame of {bytes} bytes is too large; the largest has {most}")]
    TooLarge { bytes: usize, most: usize },
    /// The other end breaks the protocol of the transport.
    #[error("the other end breaks the protocol: {0}")]
    Broken(String),
    /// The other end has begun a frame that is larger than this end allows.
    #[error(
        "the other end breaks the protocol: a frame of {bytes} bytes is too large; the largest has {most}"
    )]
    Oversized { bytes: usize, most: usize },
    /// The process's check has ended the wait ([`interrupt`]); the transport stays usable.
    #[error("a signal ended the wait")]
    Interrupted,
    /// The other end uses a protocol other than TLS. The last message to it is sent unencrypted.
    #[error("the other end does not speak TLS")]
    NoTls,
    /// The TLS handshake failed, or the encrypted connection broke.
    #[error("TLS: {0}")]
    Tls(String),
    #[error("the transport failed: {0}")]
    Failed(#[from] std::io::Error),
}

impl From<interrupt::WaitInterrupted> for TransportError {
    fn from(_: interrupt::WaitInterrupted) -> Self {
        Self::Interrupted
    }
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

/// The result of sending a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Taken {
    Taken,
    /// Too many bytes wait for the other end, so the frame was not taken.
    Full,
}

/// The result of a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Drained {
    /// All frames have left.
    All,
    /// The other end has to make room first. The descriptor becomes ready when it has.
    Part,
}

/// The events of `poll(2)` that a transport waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PollFor {
    /// No bytes wait to leave: `POLLIN`.
    Frames,
    /// Some bytes wait to leave: `POLLIN | POLLOUT`.
    FramesAndRoom,
    /// The other end rings for frames and for room: `POLLIN`, even while the caller receives no frames.
    Rings,
    /// Datagrams and a timer make the descriptor ready: `POLLIN`, even while the caller receives no frames.
    /// Afterwards there may be room, so the caller flushes.
    Anything,
}

/// The event for which a sleeping thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    FramesAndRoom,
    /// Only room: frames that arrive stay unread.
    Room,
}

/// Whether a thread may sleep on the descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum MayWait {
    Yes,
    /// A frame, room or the end of the connection may have come in the meantime: the caller has to receive,
    /// and to send if frames wait.
    No,
}

/// The result of announcing a sleep on words in shared memory.
#[derive(Debug)]
pub enum Dozing<'a> {
    /// The thread may sleep. The other end wakes the sleeper that is counted here.
    Counted(CountedSleeper<'a>),
    /// A frame or the end has come in the meantime: the caller has to receive again.
    Awake,
    /// The awaited event is reported by the descriptor alone.
    AtDescriptor,
}

/// A payload on its way out.
#[derive(Clone, Copy, Debug)]
pub enum PayloadRef<'a> {
    Bytes(&'a [u8]),
    Shared(&'a SharedPayload),
    Written(PayloadWriter<'a>),
}

/// Writes a payload into its final place, which saves a copy.
#[derive(Clone, Copy)]
pub struct PayloadWriter<'a> {
    pub bytes: usize,
    /// Writes the payload into its place of `bytes` bytes, whose old contents are unspecified.
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

    /// Copies or writes the payload into `into`, which has the payload's length.
    pub fn put(&self, into: &mut [u8]) {
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
    /// The head, followed by the payload unless the payload has come separately.
    pub bytes: &'a [u8],
    /// The payload, if it has come separately from its head. This happens only with shared memory.
    pub shared_payload: Option<SharedPayload>,
}

/// Memory that both ends map and that holds one payload. The drop of the last handle returns it to its owner.
pub trait PayloadMemory: Send + Sync + fmt::Debug {
    fn length(&self) -> usize;
    /// Copies the bytes from `offset` on into `into`. The range must be within the length.
    fn copy(&self, offset: usize, into: &mut [u8]);
    /// Returns the mapped bytes, if this process maps them. Their owner may change them.
    fn in_place(&self) -> Option<&[AtomicU8]> {
        None
    }
    /// Lets the transport that made the memory recognize it, so that it can be sent on without a copy.
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
    /// Returns the bytes of the largest frame, head and payload together. It is the same at both ends.
    fn largest(&self) -> usize;

    /// Takes a frame, or returns [`Taken::Full`] if there is no room.
    ///
    /// # Errors
    /// The frame is too large (the transport stays usable), or the other end is gone.
    fn send(&mut self, head: &[u8], payload: PayloadRef<'_>) -> Result<Taken, TransportError>;

    /// Sends all taken frames, as far as the other end has room.
    ///
    /// # Errors
    /// The other end is gone.
    fn flush(&mut self) -> Result<Drained, TransportError>;

    /// Returns the next frame that has arrived.
    ///
    /// # Errors
    /// The other end is gone and all its frames have been received, or it breaks the protocol.
    fn receive(&mut self) -> Result<Option<IncomingFrame<'_>>, TransportError>;

    /// Watches the other end from now on: the transport detects within about twice this time that the other
    /// end's host, or the path to it, is gone, even if the other end sends nothing. Transports to which the
    /// kernel reports the other end's death at once, or that probe it by themselves, do nothing here.
    fn watch_peer(&mut self, within: std::time::Duration, watcher: PeerWatcher) {
        let _ = (within, watcher);
    }

    /// Returns the time between two calls of [`check_peer`](Self::check_peer). `None`: no call is needed now.
    fn peer_check_interval(&self) -> Option<std::time::Duration> {
        None
    }

    /// Checks whether the other end answers.
    ///
    /// # Errors
    /// The other end is gone.
    fn check_peer(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Returns the number of bytes of taken frames that have not left this process. Transports other than
    /// streams do not count them.
    fn unsent(&self) -> usize {
        0
    }

    /// Returns whether the other end's kernel has acknowledged all frames that were taken. Transports within
    /// a host have nothing to wait for.
    fn is_acknowledged(&self) -> bool {
        true
    }

    /// Returns whether the last [`receive`](Self::receive) returned `None` because it reached its bound on
    /// bytes. More bytes may have come: the caller serves its other connections, and then calls again without
    /// waiting for the descriptor.
    fn stopped_early(&self) -> bool {
        false
    }

    /// Makes the next [`receive`](Self::receive) ask the kernel, even if the last one seemed to have taken
    /// all.
    fn look_again(&mut self) {}

    /// Returns the received bytes that are no whole frame. After an error of [`receive`](Self::receive), they
    /// show the protocol of the other end. Transports other than streams have none.
    fn received_part(&self) -> &[u8] {
        &[]
    }

    /// Returns the events for which to poll the descriptor. Each [`flush`](Self::flush) may change them.
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

    /// Consumes the signals after the descriptor was ready. Transports whose descriptor is ready whenever a
    /// frame waits in the kernel have nothing to do.
    ///
    /// # Errors
    /// The other end breaks the protocol.
    fn woken(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    /// Returns the transport that replaces this one, once the other end has shown its protocol. `None`: this
    /// transport stays, or no bytes have come.
    ///
    /// # Errors
    /// The other end is gone, or the resources for its transport are missing.
    fn settle(&mut self) -> Result<Option<Box<dyn FrameTransport>>, TransportError> {
        Ok(None)
    }

    /// Waits by the method `way`, without the descriptor, until a frame may have come, the other end is gone,
    /// or the time `until` (on the monotonic clock) has come. Returns false if this transport can wait only
    /// at its descriptor.
    ///
    /// # Errors
    /// The other end breaks the protocol.
    fn wait_by(&mut self, way: Wait, until: Option<Instant>) -> Result<bool, TransportError> {
        let _ = (way, until);
        Ok(false)
    }

    /// Counts this end as asleep, before a sleep on words of this connection and of other rings in shared
    /// memory. A frame that comes ends the sleep; the other end's death does not.
    fn doze(&mut self) -> Dozing<'_> {
        Dozing::AtDescriptor
    }

    /// Returns whether a frame has come. `None`: only a system call could show that.
    fn has_come(&self) -> Option<bool> {
        None
    }

    /// Returns whether descriptors can be passed to the other end.
    fn passes(&self) -> bool {
        false
    }

    /// Passes a descriptor to the other end; this end keeps its own copy. Descriptors arrive in order, and
    /// before frames that are sent afterwards.
    ///
    /// # Errors
    /// The other end takes none at the moment or is gone, or this transport cannot pass descriptors. The
    /// transport stays usable.
    fn pass(&mut self, descriptor: BorrowedFd<'_>) -> Result<(), TransportError> {
        let _ = descriptor;
        Err(TransportError::Failed(std::io::ErrorKind::Unsupported.into()))
    }

    /// Returns the next descriptor that the other end passed.
    ///
    /// # Errors
    /// The other end breaks the protocol.
    fn passed(&mut self) -> Result<Option<OwnedFd>, TransportError> {
        Ok(None)
    }

    /// Announces the number of orders about rings given to the other end since the beginning, even if no
    /// frame can be sent now. Only transports that pass descriptors implement this.
    fn announce_orders(&mut self, orders: u32) {
        let _ = orders;
    }

    /// Returns the number of orders that the other end has given since the beginning. Their frames may still
    /// be in transit.
    fn announced_orders(&self) -> u32 {
        0
    }

    /// Compresses heads from the next frame on: a head is sent as its difference from an earlier one, if that
    /// saves bytes. The other end does the same once it has learned that heads are compressed. Only a program
    /// whose broker understands compression calls this; a broker never begins.
    fn compress_heads(&mut self) {}

    /// Returns whether [`send_unreliable`](Self::send_unreliable) can send frames that may be lost.
    fn may_lose(&self) -> bool {
        false
    }

    /// Sends a small frame that may be lost, and that does not wait for earlier frames. The other end
    /// receives it whole, at most once, and in any order. If there is no room, the frame replaces an older
    /// one.
    ///
    /// # Errors
    /// The other end is gone, or this transport is reliable and has no such frames.
    fn send_unreliable(&mut self, head: &[u8], payload: PayloadRef<'_>) -> Result<(), TransportError> {
        let _ = (head, payload);
        Err(TransportError::Failed(std::io::ErrorKind::Unsupported.into()))
    }

    /// Returns the next frame that has come of those that were sent with
    /// [`send_unreliable`](Self::send_unreliable), even if reliable frames wait, which
    /// [`receive`](Self::receive) returns first.
    fn receive_unreliable(&mut self) -> Option<IncomingFrame<'_>> {
        None
    }

    /// Limits incoming frames to `most` bytes from now on, and to at most [`largest`](Self::largest). Memory
    /// for a frame is taken only if the frame is within the limit. Transports without memory for incoming
    /// frames have nothing to do.
    fn limit_incoming(&mut self, most: usize) {
        let _ = most;
    }

    /// Charges the growth of this end's buffers to `share` from now on. If the share cannot grow any more,
    /// the connection ends. Transports whose buffers do not grow have nothing to do.
    fn charge_to(&mut self, share: BufferShare) {
        drop(share);
    }

    /// Returns the certificates that the other end has shown in the TLS handshake, its own first; empty if it
    /// showed none. `None`: the connection has no TLS, or the handshake is not complete.
    fn peer_certificates(&self) -> Option<CertificateChain> {
        None
    }

    /// Ends the connection. Frames that had left still arrive.
    fn close(&mut self);

    /// Does the same after a last frame with this reason. A transport whose end may arrive before that frame,
    /// or without it, tells the other end the reason itself ([`TransportError::SentAway`]).
    fn close_for(&mut self, reason: &str) {
        let _ = reason;
        self.close();
    }
}

/// The process at the other end, as the kernel reports it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransportPeer {
    /// A process of this user on this host; both ends read the same monotonic clock.
    User(u32),
    /// A process at this address; its clock differs.
    Address(IpAddr),
}

impl TransportPeer {
    /// Returns the representative of a group of addresses, whose limits all peers in the group share: a host
    /// that has one address of a group can use the others, too. One group is all loopback addresses, and each
    /// /64 network of IPv6 is another (RFC 6177).
    #[must_use]
    pub fn party(self) -> Self {
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

/// A connection and its peer.
pub type AcceptedTransport = (Box<dyn FrameTransport>, TransportPeer);

/// A source of connections. Its descriptor is readable when a connection waits.
pub trait TransportListener: AsFd + Send + fmt::Debug {
    /// Returns a waiting connection. The connection may still be exchanging descriptors: it receives no
    /// frames until that is done.
    ///
    /// # Errors
    /// The kernel refuses for a reason that the peer has not caused.
    fn accept(&mut self) -> Result<Option<AcceptedTransport>, TransportError>;

    /// Returns the framing of its connections: the broker's own, or MQTT packets.
    fn framing(&self) -> Framing {
        Framing::Length
    }

    /// Uses other certificates for handshakes from now on. Listeners without TLS do nothing.
    ///
    /// # Errors
    /// The certificates are unsuitable; the former ones stay in use.
    fn use_certificates(&mut self, certificates: &TlsCertificates) -> Result<(), TransportError> {
        let _ = certificates;
        Ok(())
    }

    /// Gives the listening sockets to a user, before this process becomes that user. A listener that opens no
    /// further sockets at its address does nothing.
    ///
    /// # Errors
    /// The kernel refuses, because only root may change the owner.
    fn change_owner(&self, user: u32, group: u32) -> Result<(), TransportError> {
        let _ = (user, group);
        Ok(())
    }
}

/// Sleeps until the descriptor is ready or the timeout expires. Returns whether it is ready. The sleep may
/// end early, so that the caller checks the other end.
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
    let timeout = [timeout, transport.peer_check_interval()].into_iter().flatten().min();
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    let descriptor: BorrowedFd<'_> = transport.as_fd();
    match poll(&mut [PollFd::from_borrowed_fd(descriptor, flags)], timeout.as_ref()) {
        Ok(0) => transport.check_peer().map(|()| false),
        Ok(_) => transport.woken().map(|()| true),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
