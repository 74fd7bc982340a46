//! Where a channel's messages go, and what they take on the link.

use std::fmt;
use std::net::SocketAddr;

/// How messages travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Each message is a datagram, as it is.
    Udp,
    /// One connection a channel; each message after its length in four bytes, the most significant first.
    Tcp,
}

/// Where a channel leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// How messages travel.
    pub transport: Transport,
    pub address: SocketAddr,
    /// The congestion control of a TCP connection; the host's own if absent.
    pub congestion: Option<String>,
}

impl Destination {
    #[must_use]
    pub fn udp(address: SocketAddr) -> Self {
        Self { transport: Transport::Udp, address, congestion: None }
    }

    /// By a connection.
    #[must_use]
    pub fn tcp(address: SocketAddr) -> Self {
        Self { transport: Transport::Tcp, address, congestion: None }
    }

    /// What a message of so many bytes takes on an Ethernet link, its headers included, as the kernel's
    /// queueing disciplines count. Of TCP it is an estimate: where segments begin is the kernel's decision.
    #[must_use]
    pub fn wire_length(&self, payload: usize) -> u32 {
        const ETHERNET: usize = 14;
        let network = if self.address.is_ipv4() { 20 } else { 40 };
        let length = match self.transport {
            Transport::Udp => {
                let fragments = (payload + 8).div_ceil(1480).max(1);
                payload + 8 + fragments * (ETHERNET + network)
            }
            Transport::Tcp => {
                const HEADER: usize = 32; // with time stamps
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
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
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
