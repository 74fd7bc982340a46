//! Opens the sockets that connect to a broker.

use super::{Error, MAX_FRAME_BYTES};
use crate::address::{TlsAddress, check_owner};
use crate::datagram::DatagramLink;
use crate::tls::{self, TlsError};
use crate::transport::{DatagramChannel, FrameTransport, StreamTransport, TransportError};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustls::ClientConfig;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_linux::{read, socket, tcp};

/// Receive buffer for a near broker: the size of a Unix socket's buffer. An event with an earlier deadline
/// cannot overtake the unread bytes in it. The kernel grows the buffer of a program that was fast once to
/// megabytes, and these fill when the program becomes slow.
const UNREAD: usize = 128 << 10;
/// A broker is near if a round trip takes less than this: then [`UNREAD`] bytes per round trip are 1 Gbit/s
/// and more. For longer round trips the kernel adapts the buffer to the bandwidth-delay product.
const NEAR: Duration = Duration::from_millis(1);

pub(super) fn tcp(address: SocketAddr) -> Result<Box<dyn FrameTransport>, Error> {
    let socket = connected(address)?;
    Ok(Box::new(StreamTransport::new(socket.into(), MAX_FRAME_BYTES)?))
}

fn connected(address: SocketAddr) -> Result<TcpStream, Error> {
    let nobody = |source| Error::NobodyThere { address, source };
    let socket = TcpStream::connect(address).map_err(nobody)?;
    if tcp::round_trip(&socket).map_err(nobody)? < NEAR {
        socket::bound_unread(&socket, UNREAD).map_err(nobody)?;
    }
    Ok(socket)
}

/// Timeout of the TLS handshake: less than a broker waits for a greeting (`Limits::patience`, 30 s), so that
/// the program gets its own reason.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

impl TlsAddress {
    /// Connects; returns after the handshake.
    ///
    /// # Errors
    /// No broker listens there, or one end does not accept the other one's certificate.
    pub fn open(&self) -> Result<StreamTransport, Error> {
        let config = self.config("tls")?;
        let address = self.address;
        let name = self.host.clone().try_into();
        let name =
            name.map_err(|_| Error::Unsecured { address, why: format!("`{}` is no host", self.host) })?;
        let socket = connected(address)?;
        let secured = (&config, name);
        Ok(StreamTransport::connect_tls(socket.into(), MAX_FRAME_BYTES, secured, HANDSHAKE_TIMEOUT)?)
    }

    /// As [`open`](Self::open), over UDP.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_datagrams(&self) -> Result<StreamTransport, Error> {
        let config = self.config("udp")?;
        let address = self.address;
        let nobody = |source| Error::NobodyServes { address, source };
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).map_err(nobody)?;
        socket.connect(address).map_err(nobody)?;
        let link = DatagramLink::connect(Instant::now(), address, (&config, &self.host))?;
        match DatagramChannel::connect(socket.into(), address, link, HANDSHAKE_TIMEOUT) {
            Ok(channel) => Ok(StreamTransport::over_datagrams(channel, MAX_FRAME_BYTES)),
            Err(TransportError::Failed(source)) => Err(nobody(source)),
            Err(error) => Err(error.into()),
        }
    }

    fn config(&self, scheme: &str) -> Result<Arc<ClientConfig>, Error> {
        let authority = self.authority.as_deref();
        let address = || format!("{scheme}:{self}");
        let authority = authority.ok_or_else(|| TlsError::NoAuthority { address: address() })?;
        Ok(tls::client(authority, self.own.as_ref())?)
    }
}

/// The token in a file, without surrounding white space.
pub(super) fn token_in(path: &Path) -> Result<String, Error> {
    let read = read::text(path, read::HAND_WRITTEN);
    let read = read.map_err(|source| Error::TokenFile { path: path.to_owned(), source })?;
    Ok(read.trim().to_owned())
}

/// Connects a socket to the listener at `path`; the closure makes the error if there is no listener.
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

/// The error text for a socket that refuses this user: the users that may connect, and the remedy.
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
