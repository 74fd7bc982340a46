//! Frames over a stream: a Unix or a TCP socket, TLS over a TCP socket, or QUIC over UDP. Each frame follows
//! its length in four bytes, little-endian. An end that sends [`COMPRESSED`] in place of a length compresses
//! the heads of all later frames (`heads.rs`), and so declares that it understands compressed heads; the
//! other end then does the same. The first frame is never compressed, so an end without compression never
//! gets one.
//!
//! Cost: frames are collected in a buffer and sent with one system call for each flush; a payload of at least
//! [`DIRECT`] bytes is sent from its own memory. On the receiving side, one system call takes as many frames
//! as have arrived.

use super::channel::ByteChannel;
use super::datagram_channel::DatagramChannel;
use super::framing::{Framing, LENGTH};
use super::heads::{self, HEADROOM, HeadHistory};
use super::peer::{self, PeerWatch, PeerWatcher};
use super::shared_inbox;
use super::socket::Intake;
use super::socket_channel::SocketChannel;
use super::tls::TlsChannel;
use super::{
    Awaited, BufferShare, Drained, FrameTransport, IncomingFrame, MayWait, PayloadRef, PollFor, Taken,
    TransportError,
};
use crate::datagram::DatagramLink;
use crate::tls::{CertificateChain, TlsClient};
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The maximum number of bytes that wait here for the other end, unless a single frame has more: about as
/// many as the kernel holds for a Unix socket in addition (`net.core.wmem_default` is 208 KiB).
const OUTBOX: usize = 256 << 10;
/// The number of bytes after which frames leave without a flush: more than the broker delivers in one turn to
/// a consumer of 1 KB events (64 frames), so that these leave with one system call, which also wakes the
/// consumer only once.
const BATCH: usize = 128 << 10;
/// The minimum batch, for an end that reads slowly: 16 events of 1 KB still share a system call.
const MIN_BATCH: usize = 16 << 10;
/// A payload of at least this many bytes is sent without a copy into the buffer. A copy of 16 KiB takes about
/// 2 us, as much as the system call that it would save. Chosen by this argument, not measured.
const DIRECT: usize = 16 << 10;
/// The number of bytes to read in one system call: [`BATCH`] and the frame that exceeded it, as many as the
/// other end sends in one call. So one call takes all bytes, and shows that no more have come.
const INTAKE: usize = BATCH + DIRECT;
/// The length of an inbox.
const INBOX: usize = HEADROOM + INTAKE;
/// The number of bytes from the kernel after which [`receive`](StreamTransport::receive) returns `None`, even
/// in the middle of a frame, so that neither a flood from one program nor one large frame keeps the reader
/// from its other connections. Copying them takes about 30 us, a system call less than 1 us. Chosen by this
/// argument, not measured.
pub const MAX_INTAKE: usize = 256 << 10;
/// The maximum number of bytes that a receive buffer keeps after it has grown for a large frame. With the
/// default maximum number of clients (256), such buffers take at most 256 MiB.
const KEPT: usize = 1 << 20;

/// The message to a program whose buffers may not grow.
pub(crate) const NO_MEMORY: &str = "the connections of this user hold as much memory as they may; send smaller \
                                    frames, or read what was sent";

/// The number of bytes after which the length of a frame is known with every framing: in MQTT, the length has
/// up to four bytes after the first byte.
const MAX_LENGTH_BYTES: usize = 5;

/// The bytes that an end sends once in place of a length if all its later heads are compressed. No frame has
/// such a length, and random bytes are unlikely to match, so a peer that sends garbage gets an uncompressed
/// answer.
const COMPRESSED: [u8; LENGTH] = [0xff, 0xff, 0xff, 0xfe];

/// The first bytes of a TLS connection. Read as a length, they would belong to a greeting of 65 KiB or more.
const CLIENT_HELLO: [u8; 3] = [0x16, 3, 1];

/// One end of a stream.
#[derive(Debug)]
pub struct StreamTransport {
    channel: ByteChannel,
    framing: Framing,
    largest: usize,
    /// Maximum bytes of an incoming frame.
    most_incoming: usize,
    /// Whether a TLS greeting would be recognized: only at the broker's end, until the first frame has come.
    pub(super) recognises_tls: bool,
    /// The remembered heads, against which the heads of outgoing and incoming frames are compressed. `None`:
    /// heads are not compressed.
    outgoing: Option<HeadHistory>,
    incoming: Option<HeadHistory>,
    /// Whether [`COMPRESSED`] has yet to be sent before the next frame.
    announces: bool,
    /// Lengths and frames to send. The bytes before `sent` have left.
    outbox: Vec<u8>,
    sent: usize,
    /// The number of bytes that remained when the kernel last had no room for all. 0: the kernel has taken
    /// all bytes since. While this number is not 0, no frame is taken: events should wait elsewhere, in the
    /// order of their deadlines, because from here they would leave in the order of arrival.
    refused: usize,
    /// The number of bytes after which frames leave without a flush, from [`MIN_BATCH`] to [`BATCH`]. It is
    /// halved when the kernel has no room for all bytes, and doubled when it has room for all.
    batch: usize,
    /// Received bytes: `inbox[start..end]` is not consumed yet. Before `start` there is room for a
    /// decompressed head. Empty while nothing waits, because the thread's connections share an inbox then.
    inbox: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the other end will send no more.
    ended: bool,
    /// Whether frames were sent since the other end was last checked.
    has_sent: bool,
    /// Whether the kernel gave fewer bytes at the last read than there was room for, because it had no more.
    drained: bool,
    /// The number of bytes that the kernel has given since `receive` last returned `None`.
    taken_in: usize,
    /// Whether `receive` returned `None` because of [`MAX_INTAKE`].
    stopped_early: bool,
    /// The last frame that came in a datagram of its own.
    datagram: Vec<u8>,
    /// The account of buffer bytes beyond the fixed part of every connection.
    share: BufferShare,
    /// The watch of the other end. `None`: the other end is not watched.
    peer: Option<PeerWatch>,
}

impl StreamTransport {
    /// Carries frames of up to `largest` bytes over a connected Unix or TCP socket.
    ///
    /// # Errors
    /// The socket cannot be made non-blocking.
    pub fn new(socket: OwnedFd, largest: usize) -> Result<Self, TransportError> {
        Self::framed(socket, largest, Framing::Length)
    }

    /// Like [`new`](Self::new), with a chosen framing.
    ///
    /// # Errors
    /// The socket cannot be made non-blocking.
    pub fn framed(socket: OwnedFd, largest: usize, framing: Framing) -> Result<Self, TransportError> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        // this fails on a Unix socket, which has no such option
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        Ok(Self::through(ByteChannel::Socket(SocketChannel::Plain(socket)), largest, framing))
    }

    /// Connects a program with TLS over a connected TCP socket. Returns after the handshake.
    ///
    /// # Errors
    /// One end does not accept the other one's certificate, or the broker does not answer in time.
    pub fn connect_tls(
        socket: OwnedFd,
        largest: usize,
        tls: &TlsClient,
        timeout: Duration,
    ) -> Result<Self, TransportError> {
        let name = ServerName::try_from(tls.broker.clone());
        let name = name.map_err(|_| TransportError::Tls(format!("`{}` is no host", tls.broker)))?;
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        let channel = TlsChannel::connect(socket, (&tls.config, name), timeout)?;
        Ok(Self::through(
            ByteChannel::Socket(SocketChannel::Tls(Box::new(channel))),
            largest,
            Framing::Length,
        ))
    }

    /// Connects a program with QUIC over a UDP socket that is connected to `remote`. Returns after the
    /// handshake.
    ///
    /// # Errors
    /// The errors of [`connect_tls`](Self::connect_tls).
    pub fn connect_datagrams(
        (socket, remote): (OwnedFd, SocketAddr),
        largest: usize,
        tls: &TlsClient,
        timeout: Duration,
    ) -> Result<Self, TransportError> {
        let connect = |socket| {
            let link = DatagramLink::connect(Instant::now(), remote, tls);
            let link = link.map_err(|error| TransportError::Tls(error.to_string()))?;
            DatagramChannel::connect(socket, remote, link, timeout)
        };
        let channel = match connect(socket.try_clone().map_err(TransportError::Failed)?) {
            // a broker that has just taken over refuses the cookie of the broker before
            Err(TransportError::Failed(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                connect(socket)
            }
            connected => connected,
        };
        Ok(Self::over_datagrams(channel?, largest))
    }

    pub(super) fn over_datagrams(channel: DatagramChannel, largest: usize) -> Self {
        Self::through(ByteChannel::Datagrams(Box::new(channel)), largest, Framing::Length)
    }

    pub(super) fn through(channel: ByteChannel, largest: usize, framing: Framing) -> Self {
        Self {
            channel,
            framing,
            largest,
            most_incoming: largest,
            recognises_tls: false,
            outgoing: None,
            incoming: None,
            announces: false,
            outbox: Vec::new(),
            sent: 0,
            refused: 0,
            batch: BATCH,
            inbox: Vec::new(),
            start: 0,
            end: 0,
            ended: false,
            has_sent: false,
            drained: false,
            taken_in: 0,
            stopped_early: false,
            datagram: Vec::new(),
            share: BufferShare::default(),
            peer: None,
        }
    }

    fn note_sent(&mut self) {
        if let Some(peer) = &mut self.peer {
            peer.sent();
        }
    }

    fn waiting(&self) -> usize {
        self.outbox.len() - self.sent
    }

    /// Returns the begin and end of the front frame, once its length has arrived.
    fn span(&self) -> Result<Option<(usize, usize)>, TransportError> {
        let bytes = &self.inbox[self.start..self.end];
        match &self.incoming {
            Some(_) => heads::span(bytes).map_err(|what| TransportError::Broken(what.to_owned())),
            None => self.framing.span(bytes),
        }
    }

    /// Returns the begin and end of the front frame in the inbox, once the whole frame has arrived.
    fn whole(&mut self) -> Result<Option<(usize, usize)>, TransportError> {
        let bytes = &self.inbox[self.start..self.end];
        if self.recognises_tls && bytes.starts_with(&CLIENT_HELLO) {
            let what = "it speaks TLS, and this address does not; connect to tcp:HOST:PORT";
            return Err(TransportError::Broken(what.to_owned()));
        }
        if self.framing == Framing::Length && self.incoming.is_none() && bytes.starts_with(&COMPRESSED) {
            self.start += LENGTH;
            self.incoming = Some(HeadHistory::new());
            self.compress_heads();
        }
        let Some((begin, end)) = self.span()? else { return Ok(None) };
        // a compressed head is at most one byte (its form) longer
        let length = end - begin - usize::from(self.incoming.is_some()).min(end - begin);
        if length > self.most_incoming {
            return Err(self.too_long(length));
        }
        Ok((self.end - self.start >= end).then_some((self.start + begin, self.start + end)))
    }

    fn too_long(&self, length: usize) -> TransportError {
        TransportError::Oversized { bytes: length, most: self.most_incoming }
    }

    /// Decompresses the head of a frame in place, and returns the new span of the frame.
    fn decompressed(&mut self, (begin, end): (usize, usize)) -> Result<(usize, usize), TransportError> {
        let Some(incoming) = &mut self.incoming else { return Ok((begin, end)) };
        let broken = |what: &str| TransportError::Broken(what.to_owned());
        let begin = match incoming.read(&self.inbox[begin..end]).map_err(broken)? {
            (_, None) => begin + 1,
            (front, Some(head)) => {
                let payload = begin + front;
                self.inbox[payload - head.len()..payload].copy_from_slice(head);
                payload - head.len()
            }
        };
        if end - begin > self.most_incoming { Err(self.too_long(end - begin)) } else { Ok((begin, end)) }
    }

    /// Appends all bytes of a frame that precede its payload.
    fn put_front(&mut self, head: &[u8], payload: usize, into: &mut Vec<u8>) {
        match &mut self.outgoing {
            Some(outgoing) => {
                if std::mem::take(&mut self.announces) {
                    into.extend_from_slice(&COMPRESSED);
                }
                outgoing.write(head, payload, into);
            }
            None => {
                if self.framing == Framing::Length {
                    let length = u32::try_from(head.len() + payload).unwrap_or(u32::MAX);
                    into.extend_from_slice(&length.to_le_bytes());
                }
                into.extend_from_slice(head);
            }
        }
    }

    /// Gives the inbox back to the thread's other connections, if it is empty and no large frame has made it
    /// grow.
    fn rest(&mut self) {
        if self.start == self.end && self.inbox.len() == INBOX {
            (self.start, self.end) = (0, 0);
            shared_inbox::give_back(std::mem::take(&mut self.inbox));
        }
    }

    /// Charges the buffer bytes beyond the fixed part of every connection.
    fn charge(&mut self, inbox: usize, outbox: usize) -> Result<(), TransportError> {
        let beyond = inbox.saturating_sub(INBOX) + outbox.saturating_sub(OUTBOX + BATCH);
        match self.share.resize(beyond) {
            true => Ok(()),
            false => Err(TransportError::Broken(NO_MEMORY.to_owned())),
        }
    }

    /// Makes room for the rest of the first frame in the inbox, and then reads from the kernel. Returns
    /// whether bytes came.
    fn take_in(&mut self) -> Result<bool, TransportError> {
        if self.start == self.end {
            if self.inbox.len() > KEPT {
                self.inbox = Vec::new();
                self.charge(0, self.outbox.capacity())?;
            }
            if self.inbox.is_empty() {
                self.inbox = shared_inbox::take(INBOX);
            }
            (self.start, self.end) = (HEADROOM, HEADROOM);
        }
        let front = self.span()?;
        let needed = front.map_or(MAX_LENGTH_BYTES, |(_, end)| end);
        if self.inbox.len() - self.start < needed {
            self.inbox.copy_within(self.start..self.end, HEADROOM);
            (self.start, self.end) = (HEADROOM, HEADROOM + self.end - self.start);
            if self.inbox.len() < HEADROOM + needed {
                let grown = HEADROOM + needed.max(INTAKE);
                self.charge(grown, self.outbox.capacity())?;
                self.inbox.resize(grown, 0);
            }
        }
        // If the last read emptied the socket, new bytes will make the descriptor ready, and another read now
        // would be a wasted system call for each event that comes alone.
        if self.taken_in >= MAX_INTAKE {
            self.stopped_early = true;
            return Ok(false);
        }
        if std::mem::take(&mut self.drained) {
            return Ok(false);
        }
        let room = self.inbox.len().min(self.end + MAX_INTAKE);
        match self.channel.read(&mut self.inbox[self.end..room])? {
            Intake::Nothing => Ok(false),
            Intake::Ended => {
                self.ended = true;
                Ok(false)
            }
            Intake::Bytes { count, all } => {
                self.end += count;
                self.taken_in += count;
                self.drained = all;
                Ok(true)
            }
        }
    }
}

impl FrameTransport for StreamTransport {
    fn largest(&self) -> usize {
        self.largest
    }

    fn send(&mut self, head: &[u8], payload: PayloadRef<'_>) -> Result<Taken, TransportError> {
        let bytes = head.len() + payload.length();
        if bytes > self.largest {
            return Err(TransportError::TooLarge { bytes, most: self.largest });
        }
        let is_over = self.waiting() >= self.batch || self.waiting() + LENGTH + bytes > OUTBOX;
        if self.waiting() > 0 && (self.refused > 0 || is_over) && self.flush()? == Drained::Part {
            return Ok(Taken::Full);
        }
        let leaves_from_where_it_is = payload.length() >= DIRECT
            && matches!(payload, PayloadRef::Bytes(_))
            && self.flush()? == Drained::All;
        if self.outbox.len() + HEADROOM + bytes > OUTBOX + BATCH {
            self.charge(self.inbox.len(), self.outbox.len() + HEADROOM + bytes)?;
            self.outbox.reserve_exact(HEADROOM + bytes);
        }
        self.has_sent = true;
        let mut outbox = std::mem::take(&mut self.outbox);
        self.put_front(head, payload.length(), &mut outbox);
        match payload {
            PayloadRef::Bytes(payload) if leaves_from_where_it_is => {
                let sent = self.channel.write(&[&outbox, payload])?;
                self.note_sent();
                let of_payload = sent.saturating_sub(outbox.len());
                outbox.drain(..sent - of_payload);
                outbox.extend_from_slice(&payload[of_payload..]);
            }
            PayloadRef::Bytes(payload) => outbox.extend_from_slice(payload),
            PayloadRef::Shared(_) | PayloadRef::Written(_) => {
                let at = outbox.len();
                outbox.resize(at + payload.length(), 0);
                payload.put(&mut outbox[at..]);
            }
        }
        self.outbox = outbox;
        Ok(Taken::Taken)
    }

    fn flush(&mut self) -> Result<Drained, TransportError> {
        if self.waiting() > 0 {
            self.sent += self.channel.write(&[&self.outbox[self.sent..]])?;
            self.note_sent();
            // the kernel took fewer bytes than offered, so it has no more room; another call would only
            // confirm that
            if self.waiting() > 0 {
                // with this condition each byte is moved at most once on average, and the buffer at most
                // doubles
                if self.sent >= OUTBOX.max(self.waiting()) {
                    self.outbox.drain(..self.sent);
                    self.sent = 0;
                }
                self.refused = self.waiting();
                self.batch = (self.batch / 2).max(MIN_BATCH);
                return Ok(Drained::Part);
            }
            self.batch = (self.batch * 2).min(BATCH);
        }
        self.refused = 0;
        self.outbox.clear();
        if self.outbox.capacity() > OUTBOX + BATCH {
            self.outbox.shrink_to(OUTBOX);
            self.charge(self.inbox.len(), self.outbox.capacity())?;
        }
        self.sent = 0;
        Ok(if self.channel.flush()? { Drained::All } else { Drained::Part })
    }

    fn receive(&mut self) -> Result<Option<IncomingFrame<'_>>, TransportError> {
        self.stopped_early = false;
        let (begin, end) = loop {
            match self.whole()? {
                Some(span) => break span,
                None if self.ended => return Err(TransportError::Closed),
                None => {
                    if self.take_in()? || self.ended {
                        continue;
                    }
                    self.taken_in = 0;
                    self.rest();
                    if self.stopped_early {
                        return Ok(None);
                    }
                    // datagrams outside the stream are returned once the stream has no more frames
                    return Ok(self.receive_unreliable());
                }
            }
        };
        (self.start, self.recognises_tls) = (end, false);
        let (begin, end) = self.decompressed((begin, end))?;
        Ok(Some(IncomingFrame { bytes: &self.inbox[begin..end], shared_payload: None }))
    }

    fn look_again(&mut self) {
        self.drained = false;
    }

    fn received_part(&self) -> &[u8] {
        &self.inbox[self.start..self.end]
    }

    fn compress_heads(&mut self) {
        if self.framing == Framing::Length && self.outgoing.is_none() {
            (self.outgoing, self.announces) = (Some(HeadHistory::new()), true);
        }
    }

    fn may_lose(&self) -> bool {
        matches!(self.channel, ByteChannel::Datagrams(_))
    }

    fn send_unreliable(&mut self, head: &[u8], payload: PayloadRef<'_>) -> Result<(), TransportError> {
        let ByteChannel::Datagrams(channel) = &mut self.channel else {
            return Err(TransportError::Failed(ErrorKind::Unsupported.into()));
        };
        let mut frame = vec![0; head.len() + payload.length()];
        frame[..head.len()].copy_from_slice(head);
        payload.put(&mut frame[head.len()..]);
        channel.end().send_unreliable(frame);
        Ok(())
    }

    fn receive_unreliable(&mut self) -> Option<IncomingFrame<'_>> {
        self.datagram = self.channel.take_unreliable()?;
        Some(IncomingFrame { bytes: &self.datagram, shared_payload: None })
    }

    fn charge_to(&mut self, share: BufferShare) {
        self.share = share;
    }

    fn limit_incoming(&mut self, most: usize) {
        self.most_incoming = most.min(self.largest);
    }

    fn poll_for(&self) -> PollFor {
        self.channel.poll_for(self.waiting() > 0)
    }

    fn prepare_to_wait(&mut self, _awaited: Awaited) -> Result<MayWait, TransportError> {
        let may = !self.stopped_early && self.channel.may_sleep();
        Ok(if may { MayWait::Yes } else { MayWait::No })
    }

    fn stopped_early(&self) -> bool {
        self.stopped_early
    }

    fn watch_peer(&mut self, within: Duration, watcher: PeerWatcher) {
        if !matches!(self.channel, ByteChannel::Datagrams(_)) {
            self.peer = PeerWatch::new(self.channel.as_fd(), within, watcher);
        }
    }

    fn peer_check_interval(&self) -> Option<Duration> {
        self.peer.as_ref().and_then(PeerWatch::interval)
    }

    fn check_peer(&mut self) -> Result<(), TransportError> {
        // the outbox of a consumer that gets no events now is as large as its largest batch
        if !std::mem::take(&mut self.has_sent) && self.waiting() == 0 {
            (self.outbox, self.sent) = (Vec::new(), 0);
        }
        match &mut self.peer {
            Some(peer) => peer.check(self.channel.as_fd()),
            None => Ok(()),
        }
    }

    fn unsent(&self) -> usize {
        self.waiting()
    }

    fn is_acknowledged(&self) -> bool {
        self.waiting() == 0 && peer::is_acknowledged(self.channel.as_fd())
    }

    fn woken(&mut self) -> Result<(), TransportError> {
        self.channel.woken()
    }

    fn close(&mut self) {
        self.close_for("");
    }

    fn close_for(&mut self, reason: &str) {
        // bytes that do not leave now are lost, except over UDP: this end does not wait
        let _ = self.flush();
        self.channel.close(&self.outbox[self.sent..], reason);
    }

    fn peer_certificates(&self) -> Option<CertificateChain> {
        self.channel.peer_certificates()
    }
}

unisono_linux::as_fd!(StreamTransport.channel);
