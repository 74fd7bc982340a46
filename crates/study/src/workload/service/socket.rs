//! The common parts of conversations over TCP and over UDP.

use super::{NextMessage, ServiceScene};
use crate::workload::Error;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// A blocked read returns after this time, so that the end of the waiting time is noticed.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The longest message that is accepted.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 << 20;

pub(super) fn address(scene: &ServiceScene, number: u16) -> SocketAddr {
    SocketAddr::new(scene.server, scene.port + number)
}

/// The wildcard address of this host, of the family of `of`.
pub(super) fn any(of: IpAddr, port: u16) -> SocketAddr {
    let any: IpAddr = if of.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, port)
}

pub(super) fn failed(address: SocketAddr, error: &io::Error) -> Error {
    Error::Exchange(format!("{address}: {error}"))
}

/// The meaning of a failed read: no data yet, the other end has gone, or an error.
pub(super) fn outcome(error: io::Error) -> io::Result<NextMessage> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(NextMessage::Nothing),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused | ErrorKind::BrokenPipe => {
            Ok(NextMessage::Gone)
        }
        _ => Err(error),
    }
}
