//! The listener for programs that connect over a Unix socket, or over a TCP socket with or without TLS.

use super::channel::ByteChannel;
use super::socket_channel::SocketChannel;
use super::tls::TlsChannel;
use super::websocket::{WebOrigins, WebSocketChannel};
use super::{AcceptedTransport, Framing, StreamTransport, TransportError, TransportListener, TransportPeer};
use crate::tls::TlsCertificates;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, accept_with, sockopt};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use unisono_linux::local_socket;

/// The maximum number of bytes of a TCP connection that the kernel buffers before it can send them
/// (`TCP_NOTSENT_LOWAT`). Bytes in the kernel and in the outbox leave in the order of arrival, so no event
/// with an earlier deadline can overtake them. Without a bound the kernel takes megabytes. At 100 Mbit/s 64
/// KiB take 5 ms.
const UNSENT: u32 = 64 << 10;
/// A listening Unix or TCP socket.
#[derive(Debug)]
pub struct StreamListener {
    socket: OwnedFd,
    framing: Framing,
    largest: usize,
    /// The certificates for TLS. `None`: the connections are not encrypted.
    tls: Option<TlsCertificates>,
    /// The origins whose pages may open WebSockets. `None`: the connections are plain streams, not
    /// WebSockets.
    origins: Option<WebOrigins>,
}

impl StreamListener {
    /// Accepts connections that carry frames of up to `largest` bytes.
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
        Ok(Self { socket, framing, largest, tls: None, origins: None })
    }

    /// Makes this a listener for WebSockets. It accepts programs, and web pages that this host or one of
    /// these origins served.
    #[must_use]
    pub fn for_websockets(mut self, origins: WebOrigins) -> Self {
        self.origins = Some(origins);
        self
    }

    /// Makes this a listener for connections with TLS.
    #[must_use]
    pub fn encrypted(mut self, certificates: TlsCertificates) -> Self {
        self.tls = Some(certificates);
        self
    }
}

/// Accepts a waiting connection and identifies its peer.
pub(crate) fn accept(socket: &OwnedFd) -> Result<Option<(OwnedFd, TransportPeer)>, TransportError> {
    let socket = match accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => socket,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(TransportError::Failed(error.into())),
    };
    if sockopt::socket_domain(&socket)? == AddressFamily::UNIX {
        let user = local_socket::peer(&socket)?.user;
        return Ok(Some((socket, TransportPeer::User(user))));
    }
    bound_unsent(&socket);
    // A peer that has reset the connection has no address, although its bytes can still be read. It must not
    // be taken for a program of this host.
    let peer = rustix::net::getpeername(&socket).ok().flatten().map(SocketAddr::try_from);
    Ok(peer.and_then(Result::ok).map(|address| (socket, TransportPeer::Address(address.ip()))))
}

/// Bounds the number of unsent bytes that the kernel buffers for a connection. Linux before 3.12 has no such
/// bound, so an urgent event waits longer there.
fn bound_unsent(socket: &OwnedFd) {
    let _ = unisono_linux::socket::bound_unsent(socket, UNSENT);
}

impl TransportListener for StreamListener {
    fn accept(&mut self) -> Result<Option<AcceptedTransport>, TransportError> {
        let Some((socket, peer)) = accept(&self.socket)? else { return Ok(None) };
        rustix::io::ioctl_fionbio(&socket, true)?;
        // a Unix socket has no such option
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        let channel = match &self.tls {
            None => SocketChannel::Plain(socket),
            Some(certificates) => {
                SocketChannel::Tls(Box::new(TlsChannel::accept(socket, &certificates.config)?))
            }
        };
        let channel = match &self.origins {
            None => ByteChannel::Socket(channel),
            Some(origins) => {
                ByteChannel::WebSocket(Box::new(WebSocketChannel::accept(channel, origins.clone())))
            }
        };
        let mut transport = StreamTransport::through(channel, self.largest, self.framing);
        transport.recognises_tls = self.tls.is_none()
            && self.framing == Framing::Length
            && matches!(peer, TransportPeer::Address(_));
        Ok(Some((Box::new(transport), peer)))
    }

    fn framing(&self) -> Framing {
        self.framing
    }

    fn use_certificates(&mut self, certificates: &TlsCertificates) -> Result<(), TransportError> {
        self.tls = self.tls.take().map(|_| certificates.clone());
        Ok(())
    }
}

unisono_linux::as_fd!(StreamListener.socket);
