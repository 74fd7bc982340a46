//! A path's destination, and the size, in part an estimate, of its events on the link.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// The cost of an event in addition to its payload, so that empty events are not free: about the size of the
/// broker's structures for an event.
pub const EVENT_COST: u32 = 128;

/// Returns the cost of an event in its path's credit.
#[must_use]
pub fn credit_cost(payload: usize) -> u32 {
    u32::try_from(payload).unwrap_or(u32::MAX).saturating_add(EVENT_COST)
}

/// The transport protocol of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathTransport {
    /// Each event is one datagram.
    Udp,
    /// There is one connection per path. Each event follows its length in four bytes, big-endian.
    Tcp,
}

/// The destination of a path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// The transport protocol.
    pub transport: PathTransport,
    pub address: SocketAddr,
    /// The congestion control of a TCP connection; `None`: the host's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
}

impl Destination {
    #[must_use]
    pub fn udp(address: SocketAddr) -> Self {
        Self { transport: PathTransport::Udp, address, congestion: None }
    }

    /// Makes a destination over TCP.
    #[must_use]
    pub fn tcp(address: SocketAddr) -> Self {
        Self { transport: PathTransport::Tcp, address, congestion: None }
    }

    /// Returns the bytes that an event with this payload takes on an Ethernet link of 1500-byte packets,
    /// headers included, as the kernel's queueing disciplines count them. For TCP this is an estimate,
    /// because the kernel decides where segments begin. The result is also an estimate for a UDP datagram
    /// over IPv6 that has to be fragmented: the fragments are counted with the size that they have over IPv4,
    /// and without their fragment headers.
    #[must_use]
    pub fn wire_length(&self, payload: usize) -> u32 {
        const ETHERNET: usize = 14;
        let network = if self.address.is_ipv4() { 20 } else { 40 };
        let length = match self.transport {
            PathTransport::Udp => {
                let fragments = (payload + 8).div_ceil(1480).max(1);
                payload + 8 + fragments * (ETHERNET + network)
            }
            PathTransport::Tcp => {
                const HEADER: usize = 32; // a TCP header with time stamps
                let segments = (payload + 4).div_ceil(1448);
                payload + 4 + segments * (ETHERNET + network + HEADER)
            }
        };
        u32::try_from(length).unwrap_or(u32::MAX)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            PathTransport::Udp => "udp",
            PathTransport::Tcp => "tcp",
        };
        write!(f, "{transport}:{}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_count_as_on_the_link() {
        let address = "10.0.0.1:9".parse().expect("an address");
        assert_eq!(Destination::udp(address).wire_length(1472), 1514);
        assert_eq!(Destination::udp(address).wire_length(0), 42);
        assert_eq!(Destination::udp(address).wire_length(1473), 1473 + 8 + 2 * 34);
        assert_eq!(Destination::tcp(address).wire_length(1444), 1514);
    }
}
