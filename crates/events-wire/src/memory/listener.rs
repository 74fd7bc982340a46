//! The listener to which programs of this host connect. The first bytes of a program show whether it
//! communicates through shared memory or by frames over the socket.

use super::MemoryTransport;
use super::doorbell::GREETING;
use crate::transport::{
    AcceptedTransport, Drained, FrameTransport, IncomingFrame, PayloadRef, PollFor, StreamTransport, Taken,
    TransportError, TransportListener, accept,
};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::OwnedFd;

/// Descriptors of both offers of a program.
const MAX_OFFERED_DESCRIPTORS: usize = 4;
/// Descriptors that a program that shares memory needs besides its socket: a second one for the socket, two
/// for each ring, one for a moment, and the descriptors of its offers.
const MAX_DESCRIPTORS: usize = 6 + MAX_OFFERED_DESCRIPTORS;

/// A listening Unix socket to which programs of this host connect.
#[derive(Debug)]
pub struct LocalListener {
    socket: OwnedFd,
    largest: usize,
}

impl LocalListener {
    /// Makes a listener of a listening socket. Its connections carry frames of up to `largest` bytes.
    ///
    /// # Errors
    /// The socket cannot be made non-blocking.
    pub fn new(socket: OwnedFd, largest: usize) -> Result<Self, TransportError> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { socket, largest })
    }
}

impl TransportListener for LocalListener {
    fn accept(&mut self) -> Result<Option<AcceptedTransport>, TransportError> {
        // a program that finds no room waits in the kernel's queue, and is not closed for lack of descriptors
        let reserve: io::Result<_> = (0..MAX_DESCRIPTORS).map(|_| self.socket.try_clone()).collect();
        let reserve = reserve.map_err(TransportError::Failed)?;
        let Some((socket, peer)) = accept(&self.socket)? else { return Ok(None) };
        Ok(Some((Box::new(UnsettledTransport { socket, largest: self.largest, reserve }), peer)))
    }
}

unisono_linux::as_fd!(LocalListener.socket);

/// A connection whose other end has not shown yet how it communicates. It takes no frames and receives none.
#[derive(Debug)]
struct UnsettledTransport {
    socket: OwnedFd,
    largest: usize,
    /// Placeholders for the descriptors that the transport will need.
    reserve: Vec<OwnedFd>,
}

impl FrameTransport for UnsettledTransport {
    fn largest(&self) -> usize {
        self.largest
    }

    fn send(&mut self, _: &[u8], _: PayloadRef<'_>) -> Result<Taken, TransportError> {
        Ok(Taken::Full)
    }

    fn flush(&mut self) -> Result<Drained, TransportError> {
        Ok(Drained::All)
    }

    fn receive(&mut self) -> Result<Option<IncomingFrame<'_>>, TransportError> {
        Ok(None)
    }

    fn poll_for(&self) -> PollFor {
        PollFor::Frames
    }

    fn settle(&mut self) -> Result<Option<Box<dyn FrameTransport>>, TransportError> {
        let mut first = [0; GREETING.len()];
        match recv(&self.socket, &mut first, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return Err(TransportError::Closed),
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let mut reserve = std::mem::take(&mut self.reserve);
        reserve.truncate(MAX_OFFERED_DESCRIPTORS);
        let socket = self.socket.try_clone().map_err(TransportError::Failed)?;
        // a program that shares memory sends these four bytes in one piece
        Ok(Some(match first {
            GREETING => {
                let mut shared = MemoryTransport::new(socket, self.largest)?;
                shared.reserve = reserve;
                Box::new(shared)
            }
            _ => Box::new(StreamTransport::new(socket, self.largest)?),
        }))
    }

    fn close(&mut self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

unisono_linux::as_fd!(UnsettledTransport.socket);
