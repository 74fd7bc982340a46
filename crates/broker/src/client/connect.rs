//! Sockets that lead to a broker.

use super::{Error, LARGEST_FRAME};
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

/// Bytes that have come from a broker that is near and that this program has not read: as many as a Unix
/// socket holds. No event that is due earlier can overtake them. The kernel gives a program that was fast
/// once room for megabytes, and they fill when it becomes slow.
const UNREAD: usize = 128 << 10;
/// A broker is near if a round trip takes less: then [`UNREAD`] bytes in each are 1 Gbit/s and more. Over a
/// longer way the kernel adapts the room to what the way holds.
const NEAR: Duration = Duration::from_millis(1);

pub(super) fn tcp(address: SocketAddr) -> Result<Box<dyn FrameTransport>, Error> {
    let socket = connected(address)?;
    Ok(Box::new(StreamTransport::new(socket.into(), LARGEST_FRAME)?))
}

fn connected(address: SocketAddr) -> Result<TcpStream, Error> {
    let nobody = |source| Error::NobodyThere { address, source };
    let socket = TcpStream::connect(address).map_err(nobody)?;
    if tcp::round_trip(&socket).map_err(nobody)? < NEAR {
        socket::bound_unread(&socket, UNREAD).map_err(nobody)?;
    }
    Ok(socket)
}

/// How long the handshake of TLS may take: less than a broker waits for a greeting (`Limits::patience`, 30
/// s), so that the program hears its own reason.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

impl TlsAddress {
    /// Connects; returns when the handshake is done.
    ///
    /// # Errors
    /// Nobody is there, or one of the two ends does not accept the other one's certificate.
    pub fn open(&self) -> Result<StreamTransport, Error> {
        let config = self.config("tls")?;
        let address = self.address;
        let name = self.host.clone().try_into();
        let name =
            name.map_err(|_| Error::Unsecured { address, why: format!("`{}` is no host", self.host) })?;
        let socket = connected(address)?;
        let secured = (&config, name);
        Ok(StreamTransport::connect_tls(socket.into(), LARGEST_FRAME, secured, HANDSHAKE_PATIENCE)?)
    }

    /// The same over UDP.
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
        match DatagramChannel::connect(socket.into(), address, link, HANDSHAKE_PATIENCE) {
            Ok(channel) => Ok(StreamTransport::over_datagrams(channel, LARGEST_FRAME)),
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

/// The token in a file, without the white space around it.
pub(super) fn token_in(path: &Path) -> Result<String, Error> {
    let read = read::text(path, read::HAND_WRITTEN);
    let read = read.map_err(|source| Error::TokenFile { path: path.to_owned(), source })?;
    Ok(read.trim().to_owned())
}

/// A socket that is connected to the one that listens at `path`; `nobody` makes the error if none does.
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

/// Who may connect to a socket that refuses this user, and what to do.
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
