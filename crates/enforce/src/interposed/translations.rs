//! Finds the host behind an address translation: the connections whose sender's address this host replaces in
//! the packets that it sends.
//!
//! ```text
//!   the connection, as it is sent:  10.0.0.7:40000 ---> this host ---> 192.0.2.1:1025 ---> 198.51.100.9:443
//!   ipv4 2 tcp 6 431999 ESTABLISHED src=10.0.0.7 dst=198.51.100.9 sport=40000 dport=443 \
//!            src=198.51.100.9 dst=192.0.2.1 sport=443 dport=1025 [ASSURED] mark=0 use=2
//! ```
//! The guard reads the kernel's list of connections every second while hosts take turns in a class, and sends
//! it to the worker if it has changed. Until then, and for protocols without ports, the packets of a new
//! connection count as packets of the address that they carry. A kernel that tracks no connections translates
//! no addresses. A kernel that does not list its connections (`CONFIG_NF_CONNTRACK_PROCFS`) gives the same
//! result as if it translated no addresses.
//!
//! Cost: about a microsecond a connection, every second, in the guard. Reference:
//! Documentation/networking/nf_conntrack-sysctl.rst; net/netfilter/nf_conntrack_standalone.c.

use super::parse::ParsedPacket;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use unisono_linux::read;

const CONNECTIONS: &str = "/proc/thread-self/net/nf_conntrack";
/// A setting that is there if the kernel tracks connections in this thread's network namespace.
const TRACKING: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
/// The longest list that is read: some 200 bytes for each of 300,000 connections.
const MAX_LIST_BYTES: u64 = 64 << 20;

/// A connection, as its packets are sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
struct SentFlow {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ports: (u16, u16),
}

/// The senders of connections with another source address in their packets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(SentFlow, IpAddr)>", into = "Vec<(SentFlow, IpAddr)>")]
pub(super) struct Translations(HashMap<SentFlow, IpAddr>);

impl From<Vec<(SentFlow, IpAddr)>> for Translations {
    fn from(all: Vec<(SentFlow, IpAddr)>) -> Self {
        Self(all.into_iter().collect())
    }
}

impl From<Translations> for Vec<(SentFlow, IpAddr)> {
    fn from(Translations(all): Translations) -> Self {
        all.into_iter().collect()
    }
}

impl Translations {
    /// Reads the connections of this thread's network namespace.
    pub(super) fn read() -> io::Result<Self> {
        match read::text(Path::new(CONNECTIONS), MAX_LIST_BYTES) {
            Ok(list) => Ok(Self::parse(&list)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Returns a note if the kernel tracks connections and does not list them.
    pub(super) fn unlisted_note() -> Option<String> {
        unlisted_note(Path::new(TRACKING), Path::new(CONNECTIONS))
    }

    fn parse(list: &str) -> Self {
        Self(
            list.lines()
                .filter_map(TranslatedConnection::parse)
                .flat_map(TranslatedConnection::translated)
                .collect(),
        )
    }

    /// Returns the host that sent a packet: the sender before the translation of its address.
    pub(super) fn sender(&self, packet: &ParsedPacket) -> IpAddr {
        let &ParsedPacket { source, destination, protocol, ports, .. } = packet;
        let of = |ports| self.0.get(&SentFlow { source, destination, protocol, ports }).copied();
        ports.filter(|_| !self.0.is_empty()).and_then(of).unwrap_or(source)
    }
}

fn unlisted_note(tracking: &Path, list: &Path) -> Option<String> {
    (tracking.exists() && !list.exists()).then(|| {
        "fair: this kernel does not list its connections (CONFIG_NF_CONNTRACK_PROCFS), so all hosts whose addresses \
         this host translates (NAT) count as one; match them before the translation, at the device towards them"
            .to_owned()
    })
}

/// A line of the list: the two directions of a connection, each as its packets arrive at this host.
#[derive(Clone, Copy)]
struct TranslatedConnection {
    original: SentFlow,
    reply: SentFlow,
}

impl TranslatedConnection {
    /// Parses a line. Returns `None` for a protocol without ports.
    fn parse(line: &str) -> Option<Self> {
        let protocol = line.split_ascii_whitespace().nth(3)?.parse().ok()?;
        let values =
            |key: &'static str| line.split_ascii_whitespace().filter_map(move |word| word.strip_prefix(key));
        let (mut sources, mut destinations) = (values("src="), values("dst="));
        let (mut from, mut to) = (values("sport="), values("dport="));
        let mut direction = || {
            Some(SentFlow {
                source: sources.next()?.parse().ok()?,
                destination: destinations.next()?.parse().ok()?,
                protocol,
                ports: (from.next()?.parse().ok()?, to.next()?.parse().ok()?),
            })
        };
        Some(Self { original: direction()?, reply: direction()? })
    }

    /// Returns the directions whose packets leave with another source address than the sender's, each with
    /// its sender. A direction leaves as the other one arrives, with both ends exchanged.
    fn translated(self) -> impl Iterator<Item = (SentFlow, IpAddr)> {
        let Self { original, reply } = self;
        [(original, reply), (reply, original)].into_iter().filter_map(|(arrives, other)| {
            let SentFlow { source, destination, protocol, ports: (from, to) } = other;
            let leaves = SentFlow { source: destination, destination: source, protocol, ports: (to, from) };
            (leaves.source != arrives.source).then_some((leaves, arrives.source))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
ipv4     2 tcp      6 431999 ESTABLISHED src=10.0.0.7 dst=198.51.100.9 sport=40000 dport=443 src=198.51.100.9 dst=192.0.2.1 sport=443 dport=1025 [ASSURED] mark=0 use=2
ipv4     2 udp      17 27 src=10.0.0.8 dst=198.51.100.9 sport=5000 dport=53 [UNREPLIED] src=198.51.100.9 dst=192.0.2.1 sport=53 dport=5000 mark=0 use=2
ipv4     2 tcp      6 100 ESTABLISHED src=203.0.113.5 dst=192.0.2.1 sport=999 dport=80 src=10.0.0.9 dst=203.0.113.5 sport=8080 dport=999 [ASSURED] mark=0 use=2
ipv4     2 tcp      6 100 ESTABLISHED src=192.0.2.1 dst=198.51.100.9 sport=7 dport=8 src=198.51.100.9 dst=192.0.2.1 sport=8 dport=7 mark=0 use=2
ipv4     2 icmp     1 29 src=10.0.0.7 dst=198.51.100.9 type=8 code=0 id=5 src=198.51.100.9 dst=192.0.2.1 type=0 code=0 id=5 mark=0 use=2
ipv6     10 tcp      6 9 ESTABLISHED src=fd00::7 dst=2001:db8::1 sport=1 dport=2 src=2001:db8::1 dst=2001:db8::9 sport=2 dport=1 [ASSURED] use=2
half a line src=10.0.0.7 dst=
";

    fn packet(source: &str, destination: &str, protocol: u8, ports: Option<(u16, u16)>) -> ParsedPacket {
        let address = |text: &str| text.parse().expect("an address");
        let (source, destination) = (address(source), address(destination));
        ParsedPacket { source, destination, protocol, service: 0, ports, fragment: None }
    }

    #[test]
    fn a_kernel_that_tracks_connections_and_does_not_list_them_is_noted() {
        let (there, missing) = (Path::new("/proc/self/stat"), Path::new("/proc/self/nothing"));
        assert_eq!([(there, there), (missing, missing)].map(|(a, b)| unlisted_note(a, b)), [None, None]);
        assert!(unlisted_note(there, missing).is_some_and(|note| note.contains("NAT")));
    }

    #[test]
    fn a_packet_with_a_translated_address_belongs_to_the_host_behind_it() {
        let all = Translations::parse(LIST);
        for (packet, sender) in [
            (packet("192.0.2.1", "198.51.100.9", 6, Some((1025, 443))), "10.0.0.7"),
            (packet("192.0.2.1", "198.51.100.9", 17, Some((5000, 53))), "10.0.0.8"),
            // the answer of a server behind this host
            (packet("192.0.2.1", "203.0.113.5", 6, Some((80, 999))), "10.0.0.9"),
            (packet("2001:db8::9", "2001:db8::1", 6, Some((1, 2))), "fd00::7"),
            // this host's own connection, another protocol, another port, no ports
            (packet("192.0.2.1", "198.51.100.9", 6, Some((7, 8))), "192.0.2.1"),
            (packet("192.0.2.1", "198.51.100.9", 17, Some((1025, 443))), "192.0.2.1"),
            (packet("192.0.2.1", "198.51.100.9", 6, Some((1026, 443))), "192.0.2.1"),
            (packet("192.0.2.1", "198.51.100.9", 1, None), "192.0.2.1"),
        ] {
            assert_eq!(all.sender(&packet).to_string(), sender, "{packet:?}");
        }
        assert_eq!(all.0.len(), 4, "{all:?}");
        let sent = serde_json::to_string(&all).expect("pairs");
        assert_eq!(serde_json::from_str::<Translations>(&sent).expect("as it was written"), all);
    }
}
