//! Sockets that lead to a broker.

use super::{Error, LARGEST_FRAME};
use crate::address::TlsAddress;
use crate::datagram::DatagramLink;
use crate::tls::{self, TlsError};
use crate::transport::{DatagramChannel, FrameTransport, StreamTransport, TransportError};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustls::ClientConfig;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
        let config = self.config("tls")?;
        let address = self.address;
        let name = self.host.clone().try_into();
        let name =
            name.map_err(|_| Error::Unsecured { address, why: format!("`{}` is no host", self.host) })?;
        let socket = TcpStream::connect(address).map_err(|source| Error::NobodyThere { address, source })?;
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

/// A socket that is connected to the one that listens at `path`.
pub(super) fn unix(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
