//! The listener for programs that connect over UDP.
//!
//! Each connection has a socket of its own, bound to the listener's address and connected to the program. The
//! kernel lets several sockets share an address with `SO_REUSEADDR` or with `SO_REUSEPORT`. With
//! `SO_REUSEADDR`, every user of the host could bind the port as well and receive the programs' datagrams;
//! with `SO_REUSEPORT`, only sockets of one user share the address (socket(7)). A process that becomes
//! another user can still open such sockets if it gives the listener's socket to that user first
//! ([`TransportListener::change_owner`]).

use super::datagram_channel::DatagramChannel;
use super::{AcceptedTransport, StreamTransport, TransportError, TransportListener, TransportPeer};
use crate::datagram::{DatagramAcceptor, DatagramOutcome};
use crate::tls::TlsCertificates;
use rustix::fs::{Gid, Uid, fchown};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, getsockname, recvfrom,
    sendto, socket_with, sockopt,
};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The maximum number of datagrams from unknown addresses that are handled in a turn.
const TURN: usize = 64;

/// A UDP socket to which programs connect.
#[derive(Debug)]
pub struct DatagramListener {
    socket: OwnedFd,
    address: SocketAddr,
    largest: usize,
    acceptor: DatagramAcceptor,
    /// The addresses that have a connection. Datagrams from them that still arrive at the listener's socket
    /// are ignored, because the programs send them again.
    claimed: HashMap<SocketAddr, Weak<()>>,
}

impl DatagramListener {
    /// Listens at an address. Connections carry frames of up to `largest` bytes. A program that is silent for
    /// `idle`, but at least for 3 s, counts as gone.
    ///
    /// # Errors
    /// The kernel refuses the address, or the certificates are unsuitable.
    pub fn bind(
        address: SocketAddr,
        largest: usize,
        certificates: &TlsCertificates,
        idle: Duration,
    ) -> Result<Self, TransportError> {
        let socket = socket_of(address)?;
        // binds before it sets the option, so that it fails if another broker is at this address
        bind(&socket, &address)?;
        Self::at(socket, largest, certificates, idle)
    }

    /// As [`bind`](Self::bind), at a socket that is bound already.
    ///
    /// # Errors
    /// The certificates are unsuitable.
    pub fn at(
        socket: OwnedFd,
        largest: usize,
        certificates: &TlsCertificates,
        idle: Duration,
    ) -> Result<Self, TransportError> {
        let acceptor = DatagramAcceptor::new(certificates, idle)
            .map_err(|error| TransportError::Tls(error.to_string()))?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        let address = getsockname(&socket)?.try_into()?;
        Ok(Self { socket, address, largest, acceptor, claimed: HashMap::new() })
    }

    /// Returns the listener's address, with the port that the kernel chose if 0 was given.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn answer(&self, remote: SocketAddr, answer: &[u8]) {
        // an answer for which the socket has no room is lost, as it might be in the network
        let _ = sendto(&self.socket, answer, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &remote);
    }

    /// Opens a socket at the same address that receives only this program's datagrams.
    fn socket_for(&self, remote: SocketAddr) -> Result<OwnedFd, Errno> {
        let socket = socket_of(self.address)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        bind(&socket, &self.address)?;
        connect(&socket, &remote)?;
        Ok(socket)
    }
}

fn socket_of(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::DGRAM, flags, None)
}

impl TransportListener for DatagramListener {
    fn accept(&mut self) -> Result<Option<AcceptedTransport>, TransportError> {
        let (mut datagram, mut answer) = ([0; 2048], Vec::new());
        for _ in 0..TURN {
            let (length, remote) = match recvfrom(&self.socket, &mut datagram, RecvFlags::DONTWAIT) {
                Ok((_, length, Some(from))) => match SocketAddr::try_from(from) {
                    Ok(remote) => (length, remote),
                    Err(_) => continue,
                },
                Err(Errno::AGAIN | Errno::INTR) => break,
                Ok(_) => continue,
                Err(error) => return Err(TransportError::Failed(error.into())),
            };
            self.claimed.retain(|_, claim| claim.strong_count() > 0);
            if self.claimed.contains_key(&remote) {
                continue;
            }
            match self.acceptor.handle_datagram(Instant::now(), remote, &datagram[..length], &mut answer) {
                DatagramOutcome::Ignored => {}
                DatagramOutcome::Answered => self.answer(remote, &answer),
                DatagramOutcome::Opened(link) => {
                    let claim = Arc::new(());
                    self.claimed.insert(remote, Arc::downgrade(&claim));
                    // A failure here does not end the listener: the program tries again, or gives up.
                    let channel = self
                        .socket_for(remote)
                        .map_err(TransportError::from)
                        .and_then(|socket| DatagramChannel::new(socket, remote, link, claim));
                    let channel = channel.map_err(|_| TransportError::Closed)?;
                    let transport = StreamTransport::over_datagrams(channel, self.largest);
                    return Ok(Some((Box::new(transport), TransportPeer::Address(remote.ip()))));
                }
            }
        }
        Ok(None)
    }

    fn use_certificates(&mut self, certificates: &TlsCertificates) -> Result<(), TransportError> {
        let used = self.acceptor.use_certificates(certificates);
        used.map_err(|error| TransportError::Tls(error.to_string()))
    }

    fn change_owner(&self, user: u32, group: u32) -> Result<(), TransportError> {
        // the kernel compares the owners of the sockets' inodes
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        Ok(fchown(&self.socket, Some(user), Some(group))?)
    }
}

impl AsFd for DatagramListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
