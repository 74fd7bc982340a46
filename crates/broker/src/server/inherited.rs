//! Sockets that another process has opened: systemd, or the broker that served before.
//!
//! A listener whose address one of these sockets has uses that socket, so that the clients in its queue are
//! served, and none is refused.

use super::Server;
use super::listen::ServeError;
use rustix::net::{SocketAddrAny, SocketAddrUnix, SocketType, getsockname, sockopt};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use unisono_linux::local_socket::SocketName;

/// The process that has opened a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketOrigin {
    /// It keeps the socket and its name.
    ServiceManager,
    /// It leaves the name of the socket to its successor.
    Predecessor,
}

/// Sockets that no listener uses yet.
#[derive(Debug, Default)]
pub(super) struct InheritedSockets {
    sockets: Vec<(OwnedFd, SocketOrigin)>,
    /// Names that this server removes at its end, once it is the only owner.
    names: Vec<SocketName>,
    /// Names whose sockets have no listener any more.
    unused_names: Vec<SocketName>,
}

impl InheritedSockets {
    pub(super) fn unix(&mut self, path: &Path) -> Option<(OwnedFd, SocketOrigin)> {
        let found = self.take(|socket| unix_path(socket).as_deref() == Some(path))?;
        if found.1 == SocketOrigin::Predecessor {
            self.names.push(SocketName::from_path(path));
        }
        Some(found)
    }

    pub(super) fn tcp(&mut self, address: SocketAddr) -> Option<OwnedFd> {
        let is_this = |socket: &OwnedFd| is_listener(socket) && socket_address(socket) == Some(address);
        self.take(is_this).map(|(socket, _)| socket)
    }

    pub(super) fn udp(&mut self, address: SocketAddr) -> Option<OwnedFd> {
        let is_this = |socket: &OwnedFd| {
            sockopt::socket_type(socket) == Ok(SocketType::DGRAM) && socket_address(socket) == Some(address)
        };
        self.take(is_this).map(|(socket, _)| socket)
    }

    fn take(&mut self, is_it: impl Fn(&OwnedFd) -> bool) -> Option<(OwnedFd, SocketOrigin)> {
        let at = self.sockets.iter().position(|(socket, _)| is_it(socket))?;
        Some(self.sockets.swap_remove(at))
    }
}

impl Server {
    /// Adds sockets for the listeners with their addresses. Add the listeners afterwards.
    pub fn inherit(&mut self, sockets: impl IntoIterator<Item = OwnedFd>, origin: SocketOrigin) {
        self.inherited.sockets.extend(sockets.into_iter().map(|socket| (socket, origin)));
    }

    /// Takes an inherited socket that listens at this address, for another server of this process.
    pub fn inherited_tcp(&mut self, address: SocketAddr) -> Option<OwnedFd> {
        self.inherited.tcp(address)
    }

    /// As [`inherited_tcp`](Self::inherited_tcp), at the path of a Unix socket.
    pub fn inherited_unix(&mut self, path: &Path) -> Option<OwnedFd> {
        self.inherited.unix(path).map(|(socket, _)| socket)
    }

    /// Listens at the sockets of the service manager that no listener has used, for programs that speak the
    /// broker's own frames. Closes the sockets of a predecessor; returns their addresses.
    ///
    /// # Errors
    /// A socket of the service manager is not a listening socket, or the kernel refuses to wait for it.
    pub fn listen_at_inherited(&mut self) -> Result<Vec<String>, ServeError> {
        let mut left = Vec::new();
        for (socket, origin) in std::mem::take(&mut self.inherited.sockets) {
            match (origin, unix_path(&socket)) {
                (SocketOrigin::ServiceManager, _) => self.listen_inherited(socket)?,
                (SocketOrigin::Predecessor, Some(path)) => {
                    left.push(path.display().to_string());
                    self.inherited.unused_names.push(SocketName::from_path(&path));
                }
                (SocketOrigin::Predecessor, None) => {
                    left.extend(socket_address(&socket).map(|address| address.to_string()));
                }
            }
        }
        Ok(left)
    }

    /// Makes the names of its predecessor's sockets this server's own: it removes them at its end. Call it
    /// when the predecessor can no longer serve on.
    pub fn own_inherited_names(&mut self) {
        for name in std::mem::take(&mut self.inherited.unused_names) {
            // what cannot be removed stays
            let _ = name.remove();
        }
        self.names.append(&mut self.inherited.names);
    }
}

fn is_listener(socket: &OwnedFd) -> bool {
    sockopt::socket_acceptconn(socket).unwrap_or(false)
}

fn unix_path(socket: &OwnedFd) -> Option<PathBuf> {
    let address = SocketAddrUnix::try_from(getsockname(socket).ok()?).ok()?;
    let path = address.path_bytes().map(|path| PathBuf::from(OsStr::from_bytes(path)))?;
    is_listener(socket).then_some(path)
}

fn socket_address(socket: &impl AsFd) -> Option<SocketAddr> {
    getsockname(socket).and_then(|address: SocketAddrAny| SocketAddr::try_from(address)).ok()
}
