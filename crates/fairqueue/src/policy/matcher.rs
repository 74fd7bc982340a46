//! Matchers: conditions that select the packets of a class.
//!
//! Addresses and a port in one match belong to the same *end* of a packet, the sender or the receiver. So `{
//! address = "10.0.0.5", port = 80 }` matches the traffic of the server 10.0.0.5:80, in both directions. A
//! control group includes all groups below it.

use super::dscp::Dscp;
use super::mac::MacAddress;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Facts<'a> {
    /// The sender's address; frames that are not IP have none.
    pub source: Option<IpAddr>,
    pub destination: Option<IpAddr>,
    /// The sender's address in the frame; devices without Ethernet have none.
    pub source_mac: Option<MacAddress>,
    pub destination_mac: Option<MacAddress>,
    /// The sender's port; later fragments and protocols without ports have none.
    pub source_port: Option<u16>,
    pub destination_port: Option<u16>,
    pub protocol: Option<IpProtocol>,
    /// `SO_PRIORITY` of the socket, if the backend knows it.
    pub priority: Option<u32>,
    /// The mark of the packet (`SO_MARK`, nftables, iptables), if the backend knows it.
    pub mark: Option<u32>,
    /// The differentiated services code point; packets that are not IP have none.
    pub dscp: Option<Dscp>,
    /// The number of the outermost VLAN tag; frames without a tag have none.
    pub vlan: Option<u16>,
    /// The control group of the sender, as a path from the root of its hierarchy, if the backend knows it.
    pub cgroup: Option<&'a str>,
}

/// The conditions of one match. A packet must meet all that are given.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Matcher {
    /// The sender is in this control group or below it.
    pub cgroup: Option<String>,
    /// The address of one end is in this network.
    pub address: Option<Network>,
    /// The address of one end in the frame; the same end as for `address` if both are given.
    pub mac: Option<MacAddress>,
    /// The port of one end is in this range; the same end as for `address` and `mac` if they are given.
    pub ports: Option<RangeInclusive<u16>>,
    pub protocol: Option<IpProtocol>,
    /// `SO_PRIORITY` of the socket.
    pub priority: Option<u32>,
    /// The packet's mark in this host (fwmark).
    pub mark: Option<u32>,
    /// The differentiated services code point in the IP header.
    pub dscp: Option<Dscp>,
    /// The number of the outermost VLAN tag.
    pub vlan: Option<u16>,
}

impl Matcher {
    pub fn matches(&self, facts: &Facts<'_>) -> bool {
        let end = |address: Option<IpAddr>, mac: Option<MacAddress>, port: Option<u16>| {
            self.address.is_none_or(|network| address.is_some_and(|address| network.contains(address)))
                && self.mac.is_none_or(|wanted| mac == Some(wanted))
                && self.ports.as_ref().is_none_or(|ports| port.is_some_and(|port| ports.contains(&port)))
        };
        self.cgroup.as_deref().is_none_or(|path| facts.cgroup.is_some_and(|cgroup| is_within(cgroup, path)))
            && self.protocol.is_none_or(|protocol| facts.protocol == Some(protocol))
            && self.priority.is_none_or(|priority| facts.priority == Some(priority))
            && self.mark.is_none_or(|mark| facts.mark == Some(mark))
            && self.dscp.is_none_or(|dscp| facts.dscp == Some(dscp))
            && self.vlan.is_none_or(|vlan| facts.vlan == Some(vlan))
            && (end(facts.source, facts.source_mac, facts.source_port)
                || end(facts.destination, facts.destination_mac, facts.destination_port))
    }

    /// Returns whether this matcher, condition by condition, matches every packet that `other` matches.
    pub fn contains(&self, other: &Self) -> bool {
        fn part<T>(ours: Option<&T>, theirs: Option<&T>, contains: impl Fn(&T, &T) -> bool) -> bool {
            ours.is_none_or(|ours| theirs.is_some_and(|theirs| contains(ours, theirs)))
        }
        part(self.cgroup.as_ref(), other.cgroup.as_ref(), |ours, theirs| is_within(theirs, ours))
            && part(self.address.as_ref(), other.address.as_ref(), |ours, theirs| ours.contains_all(*theirs))
            && part(self.mac.as_ref(), other.mac.as_ref(), PartialEq::eq)
            && part(self.ports.as_ref(), other.ports.as_ref(), |ours, theirs| {
                ours.contains(theirs.start()) && ours.contains(theirs.end())
            })
            && part(self.protocol.as_ref(), other.protocol.as_ref(), PartialEq::eq)
            && part(self.priority.as_ref(), other.priority.as_ref(), PartialEq::eq)
            && part(self.mark.as_ref(), other.mark.as_ref(), PartialEq::eq)
            && part(self.dscp.as_ref(), other.dscp.as_ref(), PartialEq::eq)
            && part(self.vlan.as_ref(), other.vlan.as_ref(), PartialEq::eq)
    }

    /// Returns whether the matcher has no condition, so that it matches every packet.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns whether a control group is `path` or is below it.
fn is_within(cgroup: &str, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    cgroup.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Addresses that have the same first bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    #[error(
        "`{text}` is no address; write one as in \"10.0.0.5\" or a network as in \"10.0.0.0/8\" or \"fd00::/8\""
    )]
    Form { text: String },
    /// The address has bits beyond its prefix.
    #[error(
        "`{text}` says more than its prefix; write \"{network}\" for the network, \"{address}\" for the one address"
    )]
    TooLong { text: String, network: Network, address: IpAddr },
}

impl Network {
    /// Returns the network of all addresses that share their first `prefix` bits with `address`. The other
    /// bits are cleared.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(address) if prefix <= 32 => {
                IpAddr::V4((u32::from(address) & high_bits(prefix + 96) as u32).into())
            }
            IpAddr::V6(address) if prefix <= 128 => {
                IpAddr::V6((u128::from(address) & high_bits(prefix)).into())
            }
            _ => return None,
        };
        Some(Self { address, prefix })
    }

    pub fn address(self) -> IpAddr {
        self.address
    }

    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// Returns whether the network contains an address.
    pub fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Self::new(address, self.prefix).is_some_and(|network| network.address == self.address)
    }

    pub fn contains_all(self, other: Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    /// Returns the first address after the network.
    pub(super) fn next(self) -> Option<IpAddr> {
        match self.address {
            IpAddr::V4(address) => {
                let size = 1_u64 << (32 - self.prefix);
                let next = u64::from(u32::from(address)) + size;
                u32::try_from(next).ok().map(|next| IpAddr::V4(next.into()))
            }
            IpAddr::V6(address) => {
                let last = u128::from(address) | !high_bits(self.prefix);
                last.checked_add(1).map(|next| IpAddr::V6(next.into()))
            }
        }
    }
}

fn high_bits(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let form = || NetworkError::Form { text: text.to_owned() };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| form())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                digits.parse().map_err(|_| form())?
            }
            Some(_) => return Err(form()),
            None => whole,
        };
        let network = Self::new(address, prefix).ok_or_else(form)?;
        if network.address == address {
            Ok(network)
        } else {
            Err(NetworkError::TooLong { text: text.to_owned(), network, address })
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// The protocol number of an IP packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IpProtocol(pub u8);

/// The protocols that a policy can name.
const PROTOCOLS: [(&str, IpProtocol); 8] = [
    ("icmp", IpProtocol(1)),
    ("tcp", IpProtocol::TCP),
    ("udp", IpProtocol::UDP),
    ("dccp", IpProtocol(33)),
    ("esp", IpProtocol(50)),
    ("icmpv6", IpProtocol(58)),
    ("sctp", IpProtocol(132)),
    ("udplite", IpProtocol(136)),
];

impl IpProtocol {
    pub const TCP: Self = Self(6);
    pub const UDP: Self = Self(17);
    /// The protocols whose header begins with the ports of the sender and of the receiver, two bytes each.
    pub const WITH_PORTS: [Self; 5] = [Self::TCP, Self::UDP, Self(33), Self(132), Self(136)];

    pub fn has_ports(self) -> bool {
        Self::WITH_PORTS.contains(&self)
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, protocol)| *protocol)
    }

    pub(super) fn names() -> [&'static str; PROTOCOLS.len()] {
        PROTOCOLS.map(|(name, _)| name)
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PROTOCOLS.iter().find(|(_, protocol)| protocol == self) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for Matcher {
    /// Writes the matcher as a policy does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.ports.as_ref().map(|ports| match (ports.start(), ports.end()) {
            (first, last) if first == last => format!("port = {first}"),
            (first, last) => format!("port = [{first}, {last}]"),
        });
        let is_named = |protocol: IpProtocol| PROTOCOLS.iter().any(|(_, known)| *known == protocol);
        let protocol = self.protocol.map(|protocol| match is_named(protocol) {
            true => format!("protocol = \"{protocol}\""),
            false => format!("protocol = {protocol}"),
        });
        let parts = [
            self.cgroup.as_ref().map(|cgroup| format!("cgroup = {cgroup:?}")),
            self.address.map(|address| format!("address = \"{address}\"")),
            self.mac.map(|mac| format!("mac = \"{mac}\"")),
            port,
            protocol,
            self.priority.map(|priority| format!("priority = {priority}")),
            self.mark.map(|mark| format!("mark = {mark}")),
            self.dscp.map(|dscp| format!("dscp = {dscp}")),
            self.vlan.map(|vlan| format!("vlan = {vlan}")),
        ];
        write!(f, "{{ {} }}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().expect("it is a network")
    }

    #[test]
    fn networks_are_compared_bit_by_bit() {
        let ten = network("10.0.0.0/8");
        assert!(ten.contains("10.255.0.1".parse().expect("an address")));
        assert!(!ten.contains("11.0.0.0".parse().expect("an address")));
        assert!(!ten.contains("::10.0.0.1".parse().expect("an address")), "another family");
        assert!(network("0.0.0.0/0").contains_all(ten) && !ten.contains_all(network("0.0.0.0/0")));
        assert!(network("fd00::/8").contains("fdff::1".parse().expect("an address")));
        assert_eq!(ten.next(), Some("11.0.0.0".parse().expect("an address")));
        assert_eq!(network("ff00::/8").next(), None);
        assert_eq!(network("0.0.0.0/0").next(), None);
        assert_eq!(network("::/0").next(), None);
        assert_eq!(network("10.0.0.5").prefix(), 32);
    }

    #[test]
    fn a_network_with_too_many_bits_names_both_that_it_may_mean() {
        let error = "10.1.2.3/8".parse::<Network>().expect_err("bits beyond the prefix").to_string();
        assert!(error.contains("\"10.0.0.0/8\"") && error.contains("\"10.1.2.3\""), "{error}");
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/+8", "host"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn address_and_port_are_of_the_same_end() {
        let server =
            Matcher { address: Some(network("10.0.0.5")), ports: Some(80..=80), ..Matcher::default() };
        let (us, them) = ("10.0.0.5".parse().ok(), "10.0.0.9".parse().ok());
        let facts = Facts { source: us, destination: them, source_port: Some(80), ..Facts::default() };
        assert!(server.matches(&facts));
        assert!(server.matches(&Facts {
            source: them,
            destination: us,
            source_port: None,
            destination_port: Some(80),
            ..facts
        }));
        assert!(!server.matches(&Facts { source: them, destination: us, ..facts }));
    }

    #[test]
    fn a_control_group_means_all_below_it_and_not_its_namesakes() {
        assert!(
            is_within("/a/b", "/a") && is_within("/a", "/a") && is_within("/a", "/") && is_within("/", "/")
        );
        assert!(!is_within("/ab", "/a") && !is_within("/", "/a"));
    }
}
