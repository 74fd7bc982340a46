//! A connection of the transport: it never waits, never raises SIGPIPE, and does not lose its last bytes when
//! it ends.

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg, sockopt};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// The idle time after which the kernel itself probes a peer; the transport probes more often while it
/// waits ([`super::liveness`]).
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// A connected socket that never waits.
#[derive(Debug)]
pub(super) struct Socket(TcpStream);

impl Socket {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // A packet is complete when it is sent: waiting for more bytes for its segment would only delay it.
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEP_ALIVE)?;
        sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(1))?;
        sockopt::set_tcp_keepcnt(&stream, 5)?;
        Ok(Self(stream))
    }

    /// Whether both ends are on this host.
    pub(super) fn is_local(&self) -> bool {
        match (self.0.local_addr(), self.0.peer_addr()) {
            (Ok(here), Ok(there)) => here.ip() == there.ip(),
            _ => false,
        }
    }

    /// Ends the sending direction: the peer reads the end of the connection.
    pub(super) fn end(&self) {
        // an error means that the connection has ended already
        let _ = self.0.shutdown(Shutdown::Write);
    }

    /// Reads and drops arrived bytes. A socket that is closed with unread bytes resets its connection, and a
    /// reset discards bytes that are still on their way to the peer. Returns whether the peer has ended, too.
    pub(super) fn drain(&mut self) -> bool {
        let mut waste = [0; 4096];
        loop {
            match self.0.read(&mut waste) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }
}

unisono_linux::as_fd!(Socket.0);

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    /// Uses sendmsg(2), because writev(2) would raise SIGPIPE, and a program in C may not ignore it.
    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        Ok(sendmsg(&self.0, pieces, &mut nothing, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
