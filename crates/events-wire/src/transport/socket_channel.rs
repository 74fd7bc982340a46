//! The bytes of a connected socket, plain or encrypted with TLS.

use super::socket::{self, Intake};
use super::tls::TlsChannel;
use super::{PollFor, TransportError};
use crate::tls::CertificateChain;
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[derive(Debug)]
pub(super) enum SocketChannel {
    Plain(OwnedFd),
    Tls(Box<TlsChannel>),
}

impl SocketChannel {
    /// Writes bytes. Returns the number of accepted bytes, or 0 if the call would block.
    pub(super) fn write(&mut self, pieces: &[&[u8]]) -> Result<usize, TransportError> {
        match self {
            Self::Plain(plain) => socket::write(plain.as_fd(), pieces),
            Self::Tls(tls) => tls.write(pieces),
        }
    }

    /// Sends the accepted bytes. Returns whether all have left.
    pub(super) fn flush(&mut self) -> Result<bool, TransportError> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(tls) => tls.flush(),
        }
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<Intake, TransportError> {
        match self {
            Self::Plain(plain) => socket::read(plain.as_fd(), into),
            Self::Tls(tls) => tls.read(into),
        }
    }

    /// Returns the events for which to poll the socket. `unsent` is whether bytes wait for room in the
    /// socket.
    pub(super) fn poll_for(&self, unsent: bool) -> PollFor {
        let wants_room = match self {
            Self::Plain(_) => unsent,
            Self::Tls(tls) => tls.wants_room(unsent),
        };
        if wants_room { PollFor::FramesAndRoom } else { PollFor::Frames }
    }

    /// Returns the other end's certificates after the handshake, or `None` if the connection has no TLS.
    pub(super) fn peer_certificates(&self) -> Option<CertificateChain> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => tls.peer_certificates(),
        }
    }

    pub(super) fn close(&mut self) {
        if let Self::Tls(tls) = self {
            tls.send_close_notify();
        }
        let _ = shutdown(self.as_fd(), Shutdown::Write);
    }
}

impl AsFd for SocketChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Tls(tls) => tls.as_fd(),
        }
    }
}
