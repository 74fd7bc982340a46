//! The broker's sockets to the destinations of paths. They never block: bytes that a destination does not
//! accept are kept.

use crate::task::Sent;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, connect, sendmsg, socket_with,
    sockopt,
};
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use unisono_events_wire::{Destination, PathTransport};

/// Bytes that the kernel buffers for a connection. Enough to keep 1 Gbit/s busy with a round trip of 2 ms,
/// and small, because the bound on a message's waiting time includes the bytes in this buffer.
const KERNEL_BUFFER: usize = 256 << 10;

/// The part of the kept data that has been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushed {
    Nothing,
    Part,
    All,
}

/// A path's socket.
#[derive(Debug)]
pub(crate) struct OutgoingSocket {
    socket: OwnedFd,
    transport: PathTransport,
    /// For TCP: bytes to be sent before any others.
    kept: Vec<u8>,
    /// For UDP: datagrams to be sent before any others.
    datagrams: Vec<Vec<u8>>,
}

impl OutgoingSocket {
    /// Opens the socket. A TCP connection is still pending then; the socket becomes writable when the
    /// connection is up.
    pub(crate) fn open(destination: &Destination) -> Result<Self, Errno> {
        let family = if destination.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let kind = match destination.transport {
            PathTransport::Udp => SocketType::DGRAM,
            PathTransport::Tcp => SocketType::STREAM,
        };
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        if destination.transport == PathTransport::Tcp {
            sockopt::set_tcp_nodelay(&socket, true)?;
            sockopt::set_socket_send_buffer_size(&socket, KERNEL_BUFFER)?;
            if let Some(name) = &destination.congestion {
                sockopt::set_tcp_congestion(&socket, name)?;
            }
        }
        match connect(&socket, &destination.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {
                Ok(Self { socket, transport: destination.transport, kept: Vec::new(), datagrams: Vec::new() })
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a message, or keeps the part that is not accepted.
    pub(crate) fn send(&mut self, payload: &[u8]) -> Result<Sent, Errno> {
        match self.transport {
            PathTransport::Udp => self.send_datagram(payload),
            PathTransport::Tcp => {
                let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
                let sent =
                    if self.kept.is_empty() { write(self.socket.as_fd(), &length, payload)? } else { 0 };
                if sent == payload.len() + length.len() {
                    return Ok(Sent::Whole);
                }
                self.kept.extend(length.iter().chain(payload).skip(sent));
                Ok(Sent::Kept)
            }
        }
    }

    fn send_datagram(&mut self, payload: &[u8]) -> Result<Sent, Errno> {
        if !self.datagrams.is_empty() {
            self.datagrams.push(payload.to_vec());
            return Ok(Sent::Kept);
        }
        // the error of an earlier datagram is reported with the next one; this one has not been sent yet
        for _ in 0..2 {
            match write(self.socket.as_fd(), &[], payload) {
                Err(Errno::CONNREFUSED) => {}
                Err(
                    Errno::MSGSIZE | Errno::NOBUFS | Errno::PERM | Errno::NETUNREACH | Errno::HOSTUNREACH,
                ) => {
                    return Ok(Sent::Lost);
                }
                Err(error) => return Err(error),
                Ok(0) if !payload.is_empty() => {
                    self.datagrams.push(payload.to_vec());
                    return Ok(Sent::Kept);
                }
                Ok(_) => return Ok(Sent::Whole),
            }
        }
        Ok(Sent::Lost)
    }

    /// Sends kept data, as much as the socket accepts.
    pub(crate) fn flush(&mut self) -> Result<Flushed, Errno> {
        let mut so_far = Flushed::Nothing;
        while !self.datagrams.is_empty() {
            let first = self.datagrams.remove(0);
            let rest = std::mem::take(&mut self.datagrams);
            let sent = self.send_datagram(&first)?;
            self.datagrams.extend(rest);
            if sent == Sent::Kept {
                return Ok(so_far);
            }
            so_far = Flushed::Part;
        }
        while !self.kept.is_empty() {
            match write(self.socket.as_fd(), &[], &self.kept)? {
                0 => return Ok(so_far),
                sent => drop(self.kept.drain(..sent)),
            }
            so_far = Flushed::Part;
        }
        Ok(Flushed::All)
    }

    /// Returns the socket's pending error, if any.
    pub(crate) fn error(&self) -> Option<Errno> {
        sockopt::socket_error(&self.socket).ok().and_then(Result::err)
    }

    pub(crate) fn is_connection(&self) -> bool {
        self.transport == PathTransport::Tcp
    }
}

impl AsFd for OutgoingSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends bytes; returns the number of accepted ones, 0 if the call would block.
fn write(socket: BorrowedFd<'_>, head: &[u8], rest: &[u8]) -> Result<usize, Errno> {
    let pieces = [IoSlice::new(head), IoSlice::new(rest)];
    match sendmsg(
        socket,
        &pieces,
        &mut SendAncillaryBuffer::default(),
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    ) {
        Err(Errno::AGAIN) => Ok(0),
        sent => sent,
    }
}
