//! Addresses to listen at: sockets in the file system, and TCP.

use crate::log::LogError;
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
    sockopt,
};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use unisono_events_wire::check_owner;
use unisono_events_wire::tls::TlsError;
use unisono_events_wire::transport::{Framing, StreamListener, TransportError};
use unisono_linux::local_socket::set_mode;

/// The reason why a broker cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Another broker serves there.
    #[error("a broker listens at {} already; stop it, or listen at another path", path.display())]
    Taken { path: PathBuf },
    /// The path names a file of another type.
    #[error("{} exists and is no socket; choose another path", path.display())]
    NoSocket { path: PathBuf },
    /// The socket cannot be made.
    #[error("cannot listen at {}: {source}", path.display())]
    Listen { path: PathBuf, source: Errno },
    /// systemd has opened a socket of another kind.
    #[error("a socket of LISTEN_FDS does not listen for connections; write ListenStream= in its unit")]
    NoListener,
    /// Other users could replace the broker's socket with their own.
    #[error("cannot listen at {}: {why}; remove it, or set XDG_RUNTIME_DIR", path.display())]
    Unguarded { path: PathBuf, why: std::io::Error },
    #[error("cannot listen at {address}: {source}")]
    ListenTcp { address: SocketAddr, source: Errno },
    /// Every host in the network could connect.
    #[error(
        "{address} can be reached from other hosts and nothing protects it; listen on a loopback address, or say --insecure"
    )]
    Exposed { address: SocketAddr },
    #[error(
        "{address} can be reached from other hosts and everybody there may connect; give --client-authority or --tokens, or say --insecure"
    )]
    ExposedToAll { address: SocketAddr },
    #[error("cannot listen at udp:{address}: {source}")]
    ListenUdp { address: SocketAddr, source: TransportError },
    #[error("{scheme}:{address} needs a certificate and its key; give --certificate FILE --key FILE")]
    NoCertificate { scheme: &'static str, address: SocketAddr },
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The kernel refused a resource for serving.
    #[error("cannot wait for programs: {0}")]
    Wait(#[from] Errno),
    #[error("cannot serve programs: {0}")]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Log(#[from] LogError),
}

/// The mode of a socket that root and the broker's own user may connect to.
pub const OWNER: u32 = 0o600;

/// Whether a broker may listen at a TCP address that other hosts can reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exposure {
    Loopback,
    /// Any host that reaches the address may publish and subscribe.
    Anybody,
}

/// Connections that wait for the broker: as many as the kernel allows by default (`net.core.somaxconn`). If
/// the queue is full, TCP sends a client's request again after 1 s, then 2 s, 4 s, and so on; a blocking
/// connect(2) to a Unix socket waits.
const BACKLOG: i32 = 4096;
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Listens at `path`; `mode` decides which users may connect. The socket of a killed broker is replaced.
pub(super) fn unix(path: &Path, mode: u32) -> Result<OwnedFd, ServeError> {
    let refused = |source| ServeError::Listen { path: path.to_owned(), source };
    let address = SocketAddrUnix::new(path).map_err(refused)?;
    check_owner(path).map_err(|why| ServeError::Unguarded { path: path.to_owned(), why })?;
    make_room(path, &address)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None).map_err(refused)?;
    // bind(2) gives the socket's file the mode of the socket, so the path is never open to more users than
    // intended
    fchmod(&socket, Mode::from_raw_mode(OWNER)).map_err(refused)?;
    bind(&socket, &address).map_err(refused)?;
    if mode != OWNER {
        set_mode_of(path, mode)?;
    }
    listen(&socket, BACKLOG).map_err(refused)?;
    Ok(socket)
}

/// Decides which users may connect at `path`.
pub(super) fn set_mode_of(path: &Path, mode: u32) -> Result<(), ServeError> {
    set_mode(path, mode).map_err(|why| ServeError::Unguarded { path: path.to_owned(), why })
}

/// Refuses an address that other hosts reach, unless `exposure` allows it.
pub(super) fn check_exposure(address: SocketAddr, exposure: Exposure) -> Result<(), ServeError> {
    match exposure {
        Exposure::Loopback if !address.ip().is_loopback() => Err(ServeError::Exposed { address }),
        _ => Ok(()),
    }
}

/// Listens at a TCP address; returns the address with the port that the kernel chose.
pub(super) fn tcp(
    address: SocketAddr,
    (largest, framing): (usize, Framing),
    inherited: Option<OwnedFd>,
) -> Result<(StreamListener, SocketAddr), ServeError> {
    let refused = |source| ServeError::ListenTcp { address, source };
    let socket = match inherited {
        Some(socket) => socket,
        None => bound_tcp(address).map_err(refused)?,
    };
    let bound = getsockname(&socket).and_then(SocketAddr::try_from).map_err(refused)?;
    Ok((StreamListener::framed(socket, largest, framing)?, bound))
}

fn bound_tcp(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Removes a socket without a listener.
fn make_room(path: &Path, address: &SocketAddrUnix) -> Result<(), ServeError> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(ServeError::NoSocket { path: path.to_owned() });
    }
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    match connect(&probe, address) {
        Err(Errno::CONNREFUSED) => {
            let _ = std::fs::remove_file(path); // if the file is still there, bind(2) fails
            Ok(())
        }
        Err(Errno::PROTOTYPE) => Err(ServeError::NoSocket { path: path.to_owned() }),
        _ => Err(ServeError::Taken { path: path.to_owned() }),
    }
}

/// The kind of an error of accept(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AcceptFailure {
    /// The connection has failed already; the next one may succeed.
    Connection,
    /// The process or the host has no room for another descriptor now.
    Shortage,
    /// The socket does not listen.
    Listener,
}

impl AcceptFailure {
    /// Returns the kind of an error of accept(2). Reference: accept(2), "Error handling" and `EPERM`.
    pub(super) fn from_error(error: &std::io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Self::Shortage,
            Some(
                Errno::CONNABORTED
                | Errno::CONNRESET
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::OPNOTSUPP
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::NONET
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::TIMEDOUT
                | Errno::PERM,
            ) => Self::Connection,
            _ => Self::Listener,
        }
    }
}
