//! One connection as a state machine: its inputs are datagrams, bytes and times, and its outputs are
//! datagrams and bytes.

use super::{client, endpoint};
use crate::tls::{self, CertificateChain, TlsClient, TlsError};
use bytes::BytesMut;
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event,
    ReadError, ServerConfig, StreamEvent, StreamId, VarInt,
};
use rustls::AlertDescription;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// The number of bytes at the end of a write that are taken only if they may leave at once: two datagrams.
const LAST: usize = 2800;
/// A datagram with less room than this cannot take another piece of the stream: up to 25 bytes precede the
/// piece, and 16 bytes of TLS follow it.
const SPARE: usize = 48;
/// Maximum bytes of a datagram that probes a silent end (RFC 9000, section 14).
const PROBE: usize = 1200;

/// The application's code of an end with a reason.
const SENT_AWAY: u32 = 1;

/// The reason why a link ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEnd {
    /// The other end has closed the link, or has vanished.
    Gone,
    /// The two ends do not accept each other.
    Refused(String),
    /// The broker has closed the link, for this reason.
    SentAway(String),
}

/// Whether written bytes have not left yet, as far as this is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unsent {
    Nothing,
    Something,
    /// The last datagram was full, so more bytes may wait.
    Unknown,
}

/// The result of a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LinkRead {
    Bytes(usize),
    Nothing,
    End(LinkEnd),
}

/// One end of a connection.
#[derive(Debug)]
pub struct DatagramLink {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    /// The stream that carries the frames. `None`: the program has not begun it yet.
    stream: Option<StreamId>,
    end: Option<LinkEnd>,
    /// Whether the other end has acknowledged all written bytes and the end of the stream.
    finished: bool,
    unsent: Unsent,
}

impl DatagramLink {
    /// Makes a program's end.
    ///
    /// # Errors
    /// The name or the address is not valid for a broker.
    pub fn connect(now: Instant, remote: SocketAddr, tls: &TlsClient) -> Result<Self, TlsError> {
        let mut endpoint = Endpoint::new(endpoint(), None, true, None);
        let connected = endpoint.connect(now, client(&tls.config)?, remote, &tls.broker);
        let (handle, connection) = connected.map_err(|error| TlsError::Datagrams(error.to_string()))?;
        Ok(Self::new(endpoint, handle, connection))
    }

    /// Makes a broker's end for a program that has proved its address. Returns `None` if the program's
    /// datagram begins no connection.
    pub(super) fn accept(
        now: Instant,
        remote: SocketAddr,
        (endpoint, server): (&Arc<EndpointConfig>, &Arc<ServerConfig>),
        first: &[u8],
    ) -> Option<Self> {
        let mut endpoint = Endpoint::new(Arc::clone(endpoint), Some(Arc::clone(server)), true, None);
        let mut answer = Vec::new();
        match endpoint.handle(now, remote, None, None, BytesMut::from(first), &mut answer) {
            Some(DatagramEvent::NewConnection(incoming)) => {
                let (handle, connection) = endpoint.accept(incoming, now, &mut answer, None).ok()?;
                Some(Self::new(endpoint, handle, connection))
            }
            _ => None,
        }
    }

    fn new(endpoint: Endpoint, handle: ConnectionHandle, connection: Connection) -> Self {
        Self {
            endpoint,
            handle,
            connection,
            stream: None,
            end: None,
            finished: false,
            unsent: Unsent::Nothing,
        }
    }

    /// Handles a datagram from the other end.
    pub fn take(&mut self, now: Instant, datagram: &[u8]) {
        let remote = self.connection.remote_address();
        let mut answer = Vec::new();
        let event = self.endpoint.handle(now, remote, None, None, BytesMut::from(datagram), &mut answer);
        match event {
            Some(DatagramEvent::ConnectionEvent(_, event)) => self.connection.handle_event(event),
            // a second connection from the same address waits until the first one has ended
            Some(DatagramEvent::NewConnection(incoming)) => self.endpoint.ignore(incoming),
            Some(DatagramEvent::Response(_)) | None => {}
        }
        self.attend();
    }

    /// Handles the timers that are due at `now`.
    pub fn pass(&mut self, now: Instant) {
        if self.wake_at().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
            self.attend();
        }
    }

    /// Returns the time by which [`pass`](Self::pass) has to be called next.
    pub fn wake_at(&mut self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    /// Writes the next datagram for the other end into `into`. Returns whether there is one now.
    pub fn next_datagram(&mut self, now: Instant, into: &mut Vec<u8>) -> bool {
        let mut given = self.offer(now, into);
        if !given && self.unsent == Unsent::Unknown {
            // the datagram of a ping also carries bytes of the stream that may leave; the datagram itself may
            // be held back
            self.connection.ping();
            given = self.offer(now, into);
            if !given {
                self.unsent = Unsent::Something;
            }
        }
        self.attend();
        given
    }

    fn offer(&mut self, now: Instant, into: &mut Vec<u8>) -> bool {
        into.clear();
        let before = self.sent_frames();
        let given = self.connection.poll_transmit(now, 1, into).is_some();
        // before there is a stream, nothing is written and no ping is needed. The handshake pads its
        // datagrams to the full size, and a ping for each of them would fill the congestion window
        if given && self.stream.is_some() && self.sent_frames() > before {
            let ends = [usize::from(self.connection.current_mtu()), PROBE];
            let is_full = ends.into_iter().any(|end| (end - SPARE..=end).contains(&into.len()));
            self.unsent = if is_full { Unsent::Unknown } else { Unsent::Nothing };
        }
        given
    }

    /// Returns the number of stream pieces and pings that have left. A datagram with either of them would
    /// also have taken more of the stream, if more could leave. A datagram with acknowledgements alone proves
    /// nothing, because acknowledgements always leave. The ping of a probe of the path's MTU leaves alone.
    fn sent_frames(&self) -> u64 {
        let stats = self.connection.stats();
        let sent = stats.frame_tx.stream + stats.frame_tx.ping;
        sent.saturating_sub(stats.path.sent_plpmtud_probes)
    }

    /// Passes events between the endpoint and the connection, and handles the connection's events.
    fn attend(&mut self) {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(answer);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                // the program begins the stream
                Event::Connected if self.connection.side().is_client() => {
                    self.stream = self.connection.streams().open(Dir::Bi);
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                    self.stream = self.connection.streams().accept(Dir::Bi);
                }
                Event::Stream(StreamEvent::Finished { .. }) => self.finished = true,
                // a broker that has refused a program and forgotten the link resets it, too: the first
                // reason counts
                Event::ConnectionLost { reason } => {
                    let is_program = self.connection.side().is_client();
                    self.end.get_or_insert_with(|| ended(&reason, is_program));
                }
                _ => {}
            }
        }
    }

    /// Returns whether the handshake is complete.
    #[must_use]
    pub fn is_established(&self) -> bool {
        !self.connection.is_handshaking()
    }

    /// Returns the reason why the link ended.
    #[must_use]
    pub fn end(&self) -> Option<&LinkEnd> {
        self.end.as_ref()
    }

    /// Records the other host's report that no process listens there any more.
    pub(crate) fn is_deserted(&mut self) {
        self.end.get_or_insert(LinkEnd::Gone);
    }

    /// Accepts bytes to send to the other end. Returns the number of bytes accepted.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, LinkEnd> {
        if let Some(end) = &self.end {
            return Err(end.clone());
        }
        let window = self.connection.congestion_state().window();
        let (bulk, last) = bytes.split_at(bytes.len().saturating_sub(LAST));
        // takes more bytes than may leave now, because a congestion window that is not filled does not grow
        let taken = self.write_within(window.saturating_add(LAST as u64), bulk)?;
        if taken < bulk.len() {
            return Ok(taken);
        }
        // the last bytes are taken only if they may leave at once, because the caller may make no further
        // call for a long time
        Ok(taken + self.write_within(window - window / 8, last)?)
    }

    /// Queues bytes to be sent in a separate datagram, which may be lost. The datagram is dropped at once if
    /// it is too large or if the other end accepts none; if too many datagrams wait, the oldest is dropped.
    pub fn send_datagram(&mut self, bytes: Vec<u8>) {
        let _ = self.connection.datagrams().send(bytes.into(), true);
    }

    /// Returns the bytes of the next datagram that the other end sent with
    /// [`send_datagram`](Self::send_datagram).
    pub fn take_datagram(&mut self) -> Option<Vec<u8>> {
        self.connection.datagrams().recv().map(|bytes| bytes.to_vec())
    }

    /// Takes bytes while fewer than `most` are in flight.
    fn write_within(&mut self, most: u64, bytes: &[u8]) -> Result<usize, LinkEnd> {
        let Some(stream) = self.stream else { return Ok(0) };
        if bytes.is_empty() {
            return Ok(0);
        }
        self.connection.set_send_window(most);
        match self.connection.send_stream(stream).write(bytes) {
            Ok(count) => {
                self.unsent = Unsent::Something;
                Ok(count)
            }
            Err(quinn_proto::WriteError::Blocked) => Ok(0),
            Err(_) => Err(LinkEnd::Gone),
        }
    }

    /// Returns whether written bytes may still be held back after [`next_datagram`](Self::next_datagram) had
    /// no more datagrams: pacing delays them for a moment, or they wait for acknowledgements. The QUIC
    /// library does not report this; a datagram with unused room shows that no bytes are left.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.unsent != Unsent::Nothing
    }

    /// Reads as `read` does, but does not report the end of the link. Returns the number of bytes, if any.
    pub fn read_some(&mut self, into: &mut [u8]) -> Option<usize> {
        match self.read(into) {
            LinkRead::Bytes(count) => Some(count),
            LinkRead::Nothing | LinkRead::End(_) => None,
        }
    }

    /// Fills `into` with received bytes, as far as there are any.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> LinkRead {
        let mut count = 0;
        let mut ended = false;
        if let Some(stream) = self.stream {
            match self.connection.recv_stream(stream).read(true) {
                Ok(mut chunks) => {
                    while count < into.len() {
                        match chunks.next(into.len() - count) {
                            Ok(Some(chunk)) => {
                                into[count..][..chunk.bytes.len()].copy_from_slice(&chunk.bytes);
                                count += chunk.bytes.len();
                            }
                            Err(ReadError::Blocked) => break,
                            Ok(None) | Err(ReadError::Reset(_)) => {
                                ended = true;
                                break;
                            }
                        }
                    }
                    let _ = chunks.finalize();
                }
                // the stream has been read to its end already
                Err(_) => ended = true,
            }
        }
        match (count, &self.end) {
            (0, Some(end)) => LinkRead::End(end.clone()),
            (0, None) if ended => LinkRead::End(LinkEnd::Gone),
            (0, None) => LinkRead::Nothing,
            (count, _) => LinkRead::Bytes(count),
        }
    }

    /// Tells the other end that no more bytes follow.
    pub fn finish(&mut self) {
        if let Some(stream) = self.stream {
            // an error means that the other end has stopped the stream, which then needs no end
            let _ = self.connection.send_stream(stream).finish();
        }
    }

    /// Returns whether the other end has acknowledged all bytes written before [`finish`](Self::finish), or
    /// no acknowledgement can come any more.
    pub(crate) fn has_arrived(&self) -> bool {
        self.stream.is_none() || self.finished || self.end.is_some()
    }

    /// Ends the link; bytes that have not left are lost. A program also reads a broker's `reason`, unless it
    /// is empty, because the end may come before the broker's last bytes, or without them.
    pub fn close(&mut self, now: Instant, reason: &str) {
        let code = if reason.is_empty() { 0 } else { SENT_AWAY };
        let reason = bytes::Bytes::copy_from_slice(reason.as_bytes());
        self.connection.close(now, VarInt::from_u32(code), reason);
        self.end.get_or_insert(LinkEnd::Gone);
    }

    /// Returns the other end's certificates after the handshake, or `None` before it or if the other end
    /// showed none.
    pub fn peer_certificates(&self) -> Option<CertificateChain> {
        if !self.is_established() {
            return None;
        }
        let identity = self.connection.crypto_session().peer_identity();
        let chain = identity.and_then(|chain| chain.downcast::<CertificateChain>().ok());
        Some(chain.map(|chain| *chain).unwrap_or_default())
    }
}

fn ended(reason: &ConnectionError, is_program: bool) -> LinkEnd {
    // RFC 9001, section 4.8: the code of a TLS alert is 0x100 plus the alert's number
    let is_alert = |code: quinn_proto::TransportErrorCode| (0x100..0x200).contains(&u64::from(code));
    match reason {
        ConnectionError::TransportError(error) if is_alert(error.code) => {
            LinkEnd::Refused(error.reason.clone())
        }
        ConnectionError::ConnectionClosed(close) if is_alert(close.error_code) => {
            let alert = AlertDescription::from(u64::from(close.error_code) as u8);
            LinkEnd::Refused(tls::in_words(&rustls::Error::AlertReceived(alert)))
        }
        ConnectionError::ApplicationClosed(close)
            if is_program && close.error_code == VarInt::from_u32(SENT_AWAY) =>
        {
            LinkEnd::SentAway(String::from_utf8_lossy(&close.reason).into_owned())
        }
        _ => LinkEnd::Gone,
    }
}
