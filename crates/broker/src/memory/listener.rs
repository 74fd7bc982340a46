//! Where ends of shared memory connect.

use super::MemoryTransport;
use crate::transport::{AcceptedTransport, TransportError, TransportListener, accept};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Where ends of shared memory connect: a Unix socket that listens.
#[derive(Debug)]
pub struct MemoryListener {
    socket: OwnedFd,
    largest: usize,
}

impl MemoryListener {
    /// A listening socket accepts ends that carry frames of up to `largest` bytes.
    ///
    /// # Errors
    /// The socket cannot be made non-blocking.
    pub fn new(socket: OwnedFd, largest: usize) -> Result<Self, TransportError> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { socket, largest })
    }
}

impl TransportListener for MemoryListener {
    fn accept(&mut self) -> Result<Option<AcceptedTransport>, TransportError> {
        let Some((socket, peer)) = accept(&self.socket)? else { return Ok(None) };
        // The kernel may refuse memory or descriptors for many reasons. None ends the listener: this
        // connection is closed, and those that come later may get theirs.
        let transport = MemoryTransport::new(socket, self.largest).map_err(|_| TransportError::Closed)?;
        Ok(Some((Box::new(transport), peer)))
    }
}

impl AsFd for MemoryListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
