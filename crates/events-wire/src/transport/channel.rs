//! The channel below a stream's frames: a plain socket, TLS over it, or QUIC in datagrams.

use super::datagram_channel::DatagramChannel;
use super::socket::{self, Intake};
use super::{PollFor, TransportError, tls::TlsChannel};
use rustix::net::{Shutdown, shutdown};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[derive(Debug)]
pub(super) enum ByteChannel {
    Plain(OwnedFd),
    Tls(Box<TlsChannel>),
    Datagrams(Box<DatagramChannel>),
}

impl ByteChannel {
    /// Writes bytes. Returns the number of accepted bytes, or 0 if the call would block.
    pub(super) fn write(&mut self, pieces: &[&[u8]]) -> Result<usize, TransportError> {
        match self {
            Self::Plain(plain) => socket::write(plain.as_fd(), pieces),
            Self::Tls(tls) => tls.write(pieces),
            Self::Datagrams(channel) => channel.end().write(pieces),
        }
    }

    /// Sends the accepted bytes. Returns whether all have left.
    pub(super) fn flush(&mut self) -> Result<bool, TransportError> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(tls) => tls.flush(),
            Self::Datagrams(channel) => channel.end().flush(),
        }
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<Intake, TransportError> {
        match self {
            Self::Plain(plain) => socket::read(plain.as_fd(), into),
            Self::Tls(tls) => tls.read(into),
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
            Self::Plain(_) | Self::Tls(_) => None,
            Self::Datagrams(channel) => channel.end().take_unreliable(),
        }
    }

    /// Returns the events for which to poll the channel's descriptor. `unsent` is whether bytes wait for room
    /// in the socket.
    pub(super) fn poll_for(&self, unsent: bool) -> PollFor {
        let wants_room = match self {
            Self::Plain(_) => unsent,
            Self::Tls(tls) => tls.wants_room(unsent),
            Self::Datagrams(_) => return PollFor::Anything,
        };
        if wants_room { PollFor::FramesAndRoom } else { PollFor::Frames }
    }

    /// Returns whether poll(2) on the channel's descriptor reports all received data. If not, the caller must
    /// not sleep, because QUIC may have taken data off the socket already.
    pub(super) fn may_sleep(&mut self) -> bool {
        match self {
            Self::Plain(_) | Self::Tls(_) => true,
            Self::Datagrams(channel) => channel.end().may_sleep(),
        }
    }

    /// Handles the report of poll(2) that the channel's descriptor is ready: QUIC receives datagrams, and
    /// sends those that are due.
    pub(super) fn woken(&mut self) -> Result<(), TransportError> {
        match self {
            Self::Plain(_) | Self::Tls(_) => Ok(()),
            Self::Datagrams(channel) => channel.end().pump(),
        }
    }

    pub(super) fn close(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Tls(tls) => tls.send_close_notify(),
            Self::Datagrams(channel) => return channel.end().close(),
        }
        let _ = shutdown(self.as_fd(), Shutdown::Write);
    }
}

impl AsFd for ByteChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Tls(tls) => tls.as_fd(),
            Self::Datagrams(channel) => channel.as_fd(),
        }
    }
}
