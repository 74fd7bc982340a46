//! The channel below a stream's frames: a socket, a WebSocket over it, or QUIC in datagrams.

use super::datagram_channel::DatagramChannel;
use super::socket::Intake;
use super::socket_channel::SocketChannel;
use super::websocket::WebSocketChannel;
use super::{PollFor, TransportError};
use crate::tls::CertificateChain;
use std::os::fd::{AsFd, BorrowedFd};

#[derive(Debug)]
pub(super) enum ByteChannel {
    Socket(SocketChannel),
    WebSocket(Box<WebSocketChannel>),
    Datagrams(Box<DatagramChannel>),
}

impl ByteChannel {
    /// Writes bytes. Returns the number of accepted bytes, or 0 if the call would block.
    pub(super) fn write(&mut self, pieces: &[&[u8]]) -> Result<usize, TransportError> {
        match self {
            Self::Socket(socket) => socket.write(pieces),
            Self::WebSocket(socket) => socket.write(pieces),
            Self::Datagrams(channel) => channel.end().write(pieces),
        }
    }

    /// Sends the accepted bytes. Returns whether all have left.
    pub(super) fn flush(&mut self) -> Result<bool, TransportError> {
        match self {
            Self::Socket(socket) => socket.flush(),
            Self::WebSocket(socket) => socket.flush(),
            Self::Datagrams(channel) => channel.end().flush(),
        }
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<Intake, TransportError> {
        match self {
            Self::Socket(socket) => socket.read(into),
            Self::WebSocket(socket) => socket.read(into),
            Self::Datagrams(channel) => match channel.end().read(into) {
                Ok(Some(count)) => Ok(Intake::Bytes { count, all: false }),
                Ok(None) => Ok(Intake::Nothing),
                Err(TransportError::Closed) => Ok(Intake::Ended),
                Err(error) => Err(error),
            },
        }
    }

    /// Returns the next message that came outside the stream, if any.
    pub(super) fn take_unreliable(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Socket(_) | Self::WebSocket(_) => None,
            Self::Datagrams(channel) => channel.end().take_unreliable(),
        }
    }

    /// Returns the events for which to poll the channel's descriptor. `unsent` is whether bytes wait for room
    /// in the socket.
    pub(super) fn poll_for(&self, unsent: bool) -> PollFor {
        match self {
            Self::Socket(socket) => socket.poll_for(unsent),
            Self::WebSocket(socket) => socket.poll_for(unsent),
            Self::Datagrams(_) => PollFor::Anything,
        }
    }

    /// Returns whether poll(2) on the channel's descriptor reports all received data. If not, the caller must
    /// not sleep, because QUIC may have taken data off the socket already.
    pub(super) fn may_sleep(&mut self) -> bool {
        match self {
            Self::Socket(_) | Self::WebSocket(_) => true,
            Self::Datagrams(channel) => channel.end().may_sleep(),
        }
    }

    /// Handles the report of poll(2) that the channel's descriptor is ready: QUIC receives datagrams, and
    /// sends due datagrams.
    pub(super) fn woken(&mut self) -> Result<(), TransportError> {
        match self {
            Self::Socket(_) | Self::WebSocket(_) => Ok(()),
            Self::Datagrams(channel) => channel.end().pump(),
        }
    }

    /// Returns the other end's certificates after the handshake, or `None` if the connection has no TLS.
    pub(super) fn peer_certificates(&self) -> Option<CertificateChain> {
        match self {
            Self::Socket(socket) => socket.peer_certificates(),
            Self::WebSocket(socket) => socket.peer_certificates(),
            Self::Datagrams(channel) => channel.peer_certificates(),
        }
    }

    /// Ends the channel. `rest` are bytes that it did not accept; they are lost in a socket.
    pub(super) fn close(&mut self, rest: &[u8], reason: &str) {
        match self {
            Self::Socket(socket) => socket.close(),
            Self::WebSocket(socket) => socket.close(),
            Self::Datagrams(channel) => channel.end().close(rest, reason),
        }
    }
}

impl AsFd for ByteChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket(socket) => socket.as_fd(),
            Self::WebSocket(socket) => socket.as_fd(),
            Self::Datagrams(channel) => channel.as_fd(),
        }
    }
}
