//! Sockets that lead to a broker.

use super::{Error, LARGEST_FRAME};
use crate::address::TlsAddress;
use crate::tls::{self, TlsError};
use crate::transport::{FrameTransport, StreamTransport};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

pub(super) fn tcp(address: SocketAddr) -> Result<Box<dyn FrameTransport>, Error> {
    let socket = TcpStream::connect(address).map_err(|source| Error::NobodyThere { address, source })?;
    Ok(Box::new(StreamTransport::new(socket.into(), LARGEST_FRAME)?))
}

/// How long the handshake of TLS may take: less than a broker waits for a greeting.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

impl TlsAddress {
    /// Connects; returns when the handshake is done.
    ///
    /// # Errors
    /// Nobody is there, or one of the two ends does not accept the other one's certificate.
    pub fn open(&self) -> Result<StreamTransport, Error> {
        let authority = self.authority.as_deref();
        let authority = authority.ok_or_else(|| TlsError::NoAuthority { address: self.to_string() })?;
        let config = tls::client(authority, self.own.as_ref())?;
        let address = self.address;
        let name = self.host.clone().try_into();
        let name =
            name.map_err(|_| Error::Unsecured { address, why: format!("`{}` is no host", self.host) })?;
        let socket = TcpStream::connect(address).map_err(|source| Error::NobodyThere { address, source })?;
        let secured = (&config, name);
        Ok(StreamTransport::connect_tls(socket.into(), LARGEST_FRAME, secured, HANDSHAKE_PATIENCE)?)
    }
}

/// A socket that is connected to the one that listens at `path`.
pub(super) fn unix(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
