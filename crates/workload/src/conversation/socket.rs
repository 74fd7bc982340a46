//! The common parts of conversations over TCP and over UDP.

use super::{ConversationScene, NextMessage};
use crate::Error;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// A blocked read returns after this time, so that the end of the waiting time is noticed.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The longest message that is accepted.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 << 20;

pub(super) fn address(scene: &ConversationScene, number: u16) -> SocketAddr {
    SocketAddr::new(scene.server, scene.port + number)
}

/// Returns the wildcard address of this host, of the family of `of`.
pub(super) fn any(of: IpAddr, port: u16) -> SocketAddr {
    let any: IpAddr = if of.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, port)
}

pub(super) fn failed(address: SocketAddr, error: &io::Error) -> Error {
    Error::Exchange(format!("{address}: {error}"))
}

/// Interprets a failed read: no data yet, the other end has gone, or an error.
pub(super) fn outcome(error: io::Error) -> io::Result<NextMessage> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(NextMessage::Nothing),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused | ErrorKind::BrokenPipe => {
            Ok(NextMessage::Gone)
        }
        _ => Err(error),
    }
}

/// Connects with this congestion control from the start, because the first congestion control of a connection
/// may leave state behind, such as the timers of bbr: the kernel then paces the connection by this state
/// under any later congestion control.
pub fn connect(to: SocketAddr, congestion: Option<&str>) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if let Some(name) = congestion {
        sockopt::set_tcp_congestion(&socket, name)
            .map_err(|error| io::Error::other(format!("congestion control {name}: {error}")))?;
    }
    net::connect(&socket, &to)?;
    Ok(socket.into())
}
