//! A host's offer to the other hosts of a tree: its node in the network, and the addresses at which it
//! listens.

use super::UNISONO_MPI_TREE_OFFER;
use crate::error::argument;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use unisono_btin::{NetworkFile, NodeId, host_of_label};
use unisono_fabric::served::{GroupSet, HelperOffer};
use unisono_linux::netlink::address::DeviceAddress;
use unisono_rma::Error;
use unisono_text::counted;

/// The maximum number of addresses in an offer, so that the offer fits.
const MAX_ADDRESSES: usize = 32;
/// The maximum number of names of nodes in a message.
const MAX_NAMES: usize = 5;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(in crate::mpi) struct HostOffer {
    pub(super) host: String,
    /// The host's first rank in the communicator.
    pub(super) rank: i32,
    /// The host's node, or the reason why it has none.
    node: Result<u32, String>,
    /// The digest of the network's file and of the options of `unisono mpi`.
    digest: u64,
    port: u16,
    addresses: Vec<Ipv4Addr>,
    /// The ID of the kernel's boot: hosts with the same one are namespaces of one machine. Empty if unknown.
    boot: String,
    /// The offer of the host's helper of the switches, or the reason why it does not serve. `None`: there is
    /// no helper.
    switches: Option<Result<HelperOffer, String>>,
    /// A random number. The first host's number becomes the first episode in the switches.
    episode: u16,
}

/// The switches of all hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OfferedSwitches {
    pub(super) registers: u16,
    /// The groups of which any host is a member.
    pub(super) used: GroupSet,
    pub(super) first_episode: u16,
}

impl HostOffer {
    pub(in crate::mpi) fn new(rank: i32, host: &str, port: u16, addresses: &[DeviceAddress]) -> Self {
        let addresses = addresses.iter().map(|own| own.address).filter(|address| !address.is_loopback());
        Self {
            host: host.to_owned(),
            rank,
            node: Err("no network was read".to_owned()),
            digest: 0,
            port,
            addresses: addresses.take(MAX_ADDRESSES).collect(),
            boot: String::new(),
            switches: None,
            episode: 0,
        }
    }

    /// Returns the offer with the ID of the kernel's boot.
    pub(super) fn of_boot(self, boot: &str) -> Self {
        Self { boot: boot.trim().to_owned(), ..self }
    }

    /// Returns the number of hosts that are namespaces of the same machine as this one, itself included.
    pub(super) fn hosts_of_machine(&self, offers: &[Self]) -> usize {
        let is_known = !self.boot.is_empty();
        offers.iter().filter(|other| is_known && other.boot == self.boot).count().max(1)
    }

    /// Returns the offer with the offer of the host's helper. The helper's network and node have to equal
    /// this offer's. `network` is the digest of this host's network.
    pub(super) fn with_switches(
        mut self,
        helper: Option<Result<HelperOffer, String>>,
        network: Option<u64>,
        episode: u16,
    ) -> Self {
        self.episode = episode;
        let checked = |offer: HelperOffer| {
            if Some(offer.network) != network {
                return Err("the switches are deployed for another network".to_owned());
            }
            match self.node {
                Ok(node) if node != offer.node => Err(format!(
                    "the network calls it node {node}, and the switches call it node {}",
                    offer.node
                )),
                _ => Ok(offer),
            }
        };
        self.switches = helper.map(|helper| helper.and_then(checked));
        self
    }

    /// Returns the offer with this host's node in `network`, whose file is at `path`.
    pub(super) fn in_network(mut self, network: Result<(&NetworkFile, u64), &str>, path: &str) -> Self {
        match network {
            Ok((file, digest)) => {
                self.digest = digest;
                self.node = self.find_node(file).map_err(|why| format!("{path}: {why}"));
            }
            Err(why) => self.node = Err(why.to_owned()),
        }
        self
    }

    fn find_node(&self, file: &NetworkFile) -> Result<u32, String> {
        if file.node_names.is_empty() {
            return Err("it has no names of nodes, by which hosts are found; add node_names".to_owned());
        }
        let names: Vec<&str> = file.node_names.iter().collect();
        let labels = file.node_labels.iter().map(host_of_label);
        let is_named = |name: &str| is_same_host(name, &self.host) || self.has_address(name);
        let numbered = (0_u32..).zip(&names).map(|(node, name)| (node, *name)).chain((0_u32..).zip(labels));
        let mut found: Vec<u32> = numbered.filter(|(_, name)| is_named(name)).map(|(node, _)| node).collect();
        found.sort_unstable();
        found.dedup();
        match found[..] {
            [node] => Ok(node),
            [] => {
                let more = names.len().saturating_sub(MAX_NAMES);
                let more = if more == 0 { String::new() } else { format!(" and {more} more") };
                Err(format!(
                    "host {} is none of its {}: {}{more}; name the host, or one of its addresses, in node_names",
                    self.host,
                    counted(names.len(), "node"),
                    names[..names.len().min(MAX_NAMES)].join(", ")
                ))
            }
            [first, second, ..] => Err(format!(
                "host {} is node {first} ({}) and node {second} ({}); name it once",
                self.host, names[first as usize], names[second as usize]
            )),
        }
    }

    fn has_address(&self, name: &str) -> bool {
        name.parse().is_ok_and(|address: Ipv4Addr| self.addresses.contains(&address))
    }

    /// Returns the address at which a host with the addresses `own` reaches this host: an address in a common
    /// network, or else the first. An address that both hosts have, such as the address of a bridge for
    /// containers, does not lead to this host.
    pub(in crate::mpi) fn address_for(&self, own: &[DeviceAddress]) -> Result<SocketAddr, String> {
        let is_own = |address: &Ipv4Addr| own.iter().any(|own| own.address == *address);
        let others = || self.addresses.iter().copied().filter(|address| !is_own(address));
        let near = others().find(|address| own.iter().any(|own| own.is_in_network(*address)));
        let address = near.or_else(|| others().next()).ok_or_else(|| {
            format!("host {} has no IPv4 address of its own; give it one in the hosts' network", self.host)
        })?;
        Ok(SocketAddr::from((address, self.port)))
    }

    /// Writes the offer to `room`, and zeros after it.
    pub(super) fn encode(&self, room: &mut [u8]) -> Result<(), Error> {
        let mut offer = self.clone();
        if let Err(why) = &mut offer.node {
            // a message may quote a file, and the whole offer has to fit
            why.truncate(why.floor_char_boundary(UNISONO_MPI_TREE_OFFER / 4));
        }
        if let Some(Err(why)) = &mut offer.switches {
            why.truncate(why.floor_char_boundary(UNISONO_MPI_TREE_OFFER / 8));
        }
        let text = serde_json::to_vec(&offer).map_err(|error| argument(error.to_string()))?;
        let place = room.get_mut(..text.len()).filter(|place| place.len() < UNISONO_MPI_TREE_OFFER);
        place.ok_or_else(|| argument("this host's name is too long"))?.copy_from_slice(&text);
        room[text.len()..].fill(0);
        Ok(())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let offer: Result<Self, _> = serde_json::from_slice(text);
        offer.map_err(|error| {
            argument(format!(
                "the offer of a host is not understood ({error}); start all ranks by the same version of \
                 'unisono mpi'"
            ))
        })
    }
}

/// Whether two names are of one host: a name without a domain matches every domain.
fn is_same_host(a: &str, b: &str) -> bool {
    let is_short = |name: &str| !name.contains('.');
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    !a.is_empty() && (a == b || (is_short(a) || is_short(b)) && first(a) == first(b))
}

/// Returns the nodes of the hosts, in order. Fails if any offer has no node, or if the hosts have read
/// different files. Every host gets the same result.
pub(super) fn nodes(offers: &[HostOffer]) -> Result<Vec<NodeId>, String> {
    let nodes: Vec<NodeId> =
        offers.iter().map(|offer| offer.node.clone().map(NodeId)).collect::<Result<_, _>>()?;
    if let Some(other) = offers.iter().find(|offer| offer.digest != offers[0].digest) {
        return Err(format!(
            "hosts {} and {} have different files of the network, or other options or another version of \
             'unisono mpi'; give all ranks the same",
            offers[0].host, other.host
        ));
    }
    Ok(nodes)
}

/// The switches that all hosts can use, or the reason why there are none. The same at all hosts.
pub(super) fn switches(offers: &[HostOffer]) -> Result<OfferedSwitches, String> {
    if offers.iter().all(|offer| offer.switches.is_none()) {
        return Err("no host has a helper of them, which 'unisono tree deploy --serve' starts".to_owned());
    }
    let first_episode = offers.first().map_or(0, |offer| offer.episode);
    let mut all = OfferedSwitches { registers: u16::MAX, used: GroupSet::default(), first_episode };
    for offer in offers {
        match &offer.switches {
            Some(Ok(helper)) => {
                all.registers = all.registers.min(helper.registers);
                all.used.add(&helper.used);
            }
            Some(Err(why)) => return Err(format!("host {}: {why}", offer.host)),
            None => return Err(format!("host {} has no helper of the switches", offer.host)),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_btin::GroupId;

    fn file(names: &str) -> NetworkFile {
        let text = format!(
            r#"{{"format":"btin-topo-1","ports":4,"switches":1,"links":[],"nodes":[[0,0],[0,1]]{names}}}"#
        );
        NetworkFile::from_json(&text).expect("a network")
    }

    fn own(address: [u8; 4], prefix: u8) -> DeviceAddress {
        DeviceAddress { address: address.into(), prefix }
    }

    fn offer(host: &str, names: &str) -> HostOffer {
        let addresses = [own([127, 0, 0, 1], 8), own([172, 17, 0, 1], 16), own([10, 0, 0, 2], 24)];
        HostOffer::new(4, host, 99, &addresses).in_network(Ok((&file(names), 7)), "net.json")
    }

    #[test]
    fn a_host_is_found_by_its_name_with_or_without_domain_or_by_an_address() {
        for (host, names) in [
            ("n1", r#","node_names":["n0","n1"]"#),
            ("n1.cluster", r#","node_names":["n0","n1"]"#),
            ("n1", r#","node_names":["n0.cluster","n1.cluster"]"#),
            ("other", r#","node_names":["10.0.0.1","10.0.0.2"]"#),
            ("gpu2", r#","node_names":["H-7a08","H-7a09"],"node_labels":["gpu1 mlx5_0","gpu2 mlx5_0"]"#),
        ] {
            assert_eq!(offer(host, names).node, Ok(1), "{host} {names}");
        }
        let error = offer("n1.east", r#","node_names":["n1.west","n2.east"]"#).node.expect_err("neither");
        assert_eq!(
            error,
            "net.json: host n1.east is none of its 2 nodes: n1.west, n2.east; name the host, or one of its \
             addresses, in node_names"
        );
        let error = offer("n1", r#","node_names":["n1","n1.x"]"#).node.expect_err("both");
        assert_eq!(error, "net.json: host n1 is node 0 (n1) and node 1 (n1.x); name it once");
        let error = offer("n1", "").node.expect_err("no names");
        assert!(error.contains("add node_names"), "{error}");
    }

    #[test]
    fn an_offer_survives_the_exchange_and_tells_the_same_everywhere() {
        let (good, bad) = (offer("n1", r#","node_names":["n0","n1"]"#), offer("n3", ""));
        for offer in [&good, &bad] {
            let mut bytes = [0; UNISONO_MPI_TREE_OFFER];
            offer.encode(&mut bytes).expect("it fits");
            assert_eq!(HostOffer::decode(&bytes).expect("whole"), *offer);
        }
        assert!(HostOffer::decode(&[0; 8]).is_err());
        assert_eq!(nodes(&[good.clone(), good.clone()]), Ok(vec![NodeId(1); 2]));
        assert!(nodes(&[good.clone(), bad]).is_err_and(|why| why.contains("add node_names")));
        let other = HostOffer { digest: 8, host: "n2".to_owned(), ..good.clone() };
        assert!(nodes(&[good, other]).is_err_and(|why| why.starts_with("hosts n1 and n2 have different")));
    }

    #[test]
    fn hosts_of_one_boot_are_one_machine_and_a_host_of_unknown_boot_is_alone() {
        let of = |boot| offer("n1", "").of_boot(boot);
        let all = [of("a\n"), of("b"), of("a"), of(""), of("")];
        let counts: Vec<usize> = all.iter().map(|own| own.hosts_of_machine(&all)).collect();
        assert_eq!(counts, [2, 1, 2, 1, 1]);
    }

    #[test]
    fn switches_are_used_if_every_host_has_the_same() {
        let helper = |node, group| {
            let mut used = GroupSet::default();
            used.insert(GroupId(group));
            Some(Ok(HelperOffer { node, network: 5, registers: 9, used }))
        };
        let names = r#","node_names":["n0","n1"]"#;
        let with = |host: &str, helper, episode| offer(host, names).with_switches(helper, Some(5), episode);
        let (near, far) = (with("n0", helper(0, 0), 7), with("n1", helper(1, 1), 8));
        let all = switches(&[near.clone(), far]).expect("both have them");
        assert_eq!((all.registers, all.first_episode), (9, 7));
        assert_eq!(all.used.first_free(9), Some(GroupId(2)));
        let none = switches(&[offer("n0", names), offer("n1", names)]);
        assert!(none.is_err_and(|why| why.starts_with("no host has a helper")));
        for (other, said) in [
            (None, "host n1 has no helper"),
            (helper(0, 1), "host n1: the network calls it node 1, and the switches call it node 0"),
            (Some(Err("no".to_owned())), "host n1: no"),
        ] {
            let why = switches(&[near.clone(), with("n1", other, 1)]).expect_err("not the same");
            assert!(why.starts_with(said), "{why}");
        }
        let other = offer("n1", names).with_switches(helper(1, 1), Some(6), 1);
        assert!(switches(&[near, other]).is_err_and(|why| why.contains("another network")));
    }

    #[test]
    fn a_host_is_reached_in_a_common_network_and_never_at_an_address_that_both_have() {
        let offer = offer("n1", "");
        let bridge = own([172, 17, 0, 1], 16);
        let reached = |own: &[DeviceAddress]| offer.address_for(own).map(|address| address.to_string());
        assert_eq!(reached(&[bridge, own([10, 0, 0, 9], 24)]), Ok("10.0.0.2:99".to_owned()));
        assert_eq!(reached(&[own([10, 0, 0, 9], 24)]), Ok("10.0.0.2:99".to_owned()));
        assert_eq!(reached(&[own([192, 168, 0, 9], 24)]), Ok("172.17.0.1:99".to_owned()));
        assert!(reached(&[bridge, own([10, 0, 0, 2], 24)]).is_err());
    }
}
