//! Opens the sockets that connect to a broker.

use super::{Error, MAX_FRAME_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use unisono_events_wire::interrupt::{self, InterruptPoll};
use unisono_events_wire::transport::{FrameTransport, StreamTransport, TransportError};
use unisono_events_wire::{TlsAddress, check_owner};
use unisono_linux::{read, socket, tcp};

/// The size of the receive buffer for a near broker: as large as a Unix socket's buffer. An event with an
/// earlier deadline cannot overtake the unread bytes in it. By default, the kernel enlarges the buffer of a
/// program that reads fast to megabytes, and these fill when the program becomes slow.
pub(super) const UNREAD: usize = 128 << 10;
/// A broker is near if a round trip takes less than this: [`UNREAD`] bytes per round trip are then at least 1
/// Gbit/s. For longer round trips the kernel adapts the buffer to the bandwidth-delay product.
pub(super) const NEAR: Duration = Duration::from_millis(1);

pub(super) fn tcp(address: SocketAddr) -> Result<Box<dyn FrameTransport>, Error> {
    let socket = connected(address)?;
    Ok(Box::new(StreamTransport::new(socket.into(), MAX_FRAME_BYTES)?))
}

fn connected(address: SocketAddr) -> Result<TcpStream, Error> {
    let nobody = |source| Error::NobodyThere { address, source };
    let socket = match connect_in_slices(address) {
        Ok(socket) => TcpStream::from(socket),
        Err(Connecting::Interrupted) => return Err(Error::Interrupted),
        Err(Connecting::Refused(error)) => return Err(nobody(error.into())),
    };
    if tcp::round_trip(&socket).map_err(nobody)? < NEAR {
        socket::bound_unread(&socket, UNREAD).map_err(nobody)?;
    }
    Ok(socket)
}

/// The reason why a connection is not established.
enum Connecting {
    Refused(Errno),
    Interrupted,
}

impl From<Errno> for Connecting {
    fn from(error: Errno) -> Self {
        Self::Refused(error)
    }
}

/// Connects over TCP. Waits as long as the kernel tries to connect; the process's interrupt check may end the
/// wait earlier.
fn connect_in_slices(address: SocketAddr) -> Result<OwnedFd, Connecting> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) => return Ok(socket),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut interrupt = InterruptPoll::default();
    loop {
        let slice = interrupt::slice(None).and_then(|slice| Timespec::try_from(slice).ok());
        match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], slice.as_ref()) {
            Ok(0) | Err(Errno::INTR) => interrupt.poll().map_err(|_| Connecting::Interrupted)?,
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    sockopt::socket_error(&socket)??;
    Ok(socket)
}

/// Connects with TLS. Returns after the handshake, which takes at most as long as `timeout`.
pub(super) fn tls(to: &TlsAddress, timeout: Duration) -> Result<StreamTransport, Error> {
    let certificates = to.program("tls")?;
    let socket = connected(to.address)?;
    Ok(StreamTransport::connect_tls(socket.into(), MAX_FRAME_BYTES, &certificates, timeout)?)
}

/// Connects with QUIC over UDP. Returns after the handshake, which takes at most as long as `timeout`.
pub(super) fn udp(to: &TlsAddress, timeout: Duration) -> Result<StreamTransport, Error> {
    let certificates = to.program("udp")?;
    let address = to.address;
    let nobody = |source| Error::NobodyServes { address, source };
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).map_err(nobody)?;
    socket.connect(address).map_err(nobody)?;
    let socket = (socket.into(), address);
    StreamTransport::connect_datagrams(socket, MAX_FRAME_BYTES, &certificates, timeout).map_err(|error| {
        match error {
            TransportError::Failed(source) => nobody(source),
            error => error.into(),
        }
    })
}

/// Reads the token in a file, without surrounding white space.
pub(super) fn token_in(path: &Path) -> Result<String, Error> {
    let read = read::text(path, read::HAND_WRITTEN);
    let read = read.map_err(|source| Error::TokenFile { path: path.to_owned(), source })?;
    Ok(read.trim().to_owned())
}

/// Connects a socket to the listener at `path`. The closure `nobody` makes the error if there is no listener.
pub(super) fn unix(path: &Path, nobody: impl FnOnce(io::Error) -> Error) -> Result<OwnedFd, Error> {
    let not_for_us = |why| Error::NotForUs { path: path.to_owned(), why };
    check_owner(path).map_err(|error| not_for_us(format!("{error}; remove it, or set XDG_RUNTIME_DIR")))?;
    let connected = || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(socket)
    };
    connected().map_err(|error: Errno| match error {
        Errno::ACCESS => not_for_us(format!("{}: {}", io::Error::from(error), whose(path))),
        other => nobody(other.into()),
    })
}

/// Returns the error text for a socket that refuses this user: the users that may connect, and the remedy.
fn whose(path: &Path) -> String {
    let Ok(found) = std::fs::metadata(path) else {
        return "a directory on the way is closed to this user; ask its owner, or name another socket"
            .to_owned();
    };
    let group = group_name(found.gid()).unwrap_or_else(|| found.gid().to_string());
    let mode = found.mode() & 0o777;
    match (mode & 0o020, found.gid()) {
        (_, 0) => {
            format!(
                "root alone may connect (mode {mode:o}); ask for another group: SocketGroup= of the socket's unit"
            )
        }
        (0, _) => {
            format!("its owner alone may connect (mode {mode:o}); ask for `unisono events serve --mode 660`")
        }
        _ => format!(
            "its group `{group}` may connect (mode {mode:o}); join it: sudo usermod -aG {group} $USER, then log in again"
        ),
    }
}

fn group_name(number: u32) -> Option<String> {
    let groups = read::text("/etc/group".as_ref(), read::HAND_WRITTEN).ok()?;
    groups.lines().find_map(|line| {
        let mut parts = line.split(':');
        let name = parts.next()?;
        (parts.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    })
}
