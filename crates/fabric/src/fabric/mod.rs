//! The network itself: a namespace for each switch and each node, a pair of devices for each cable, and the
//! switch program at every port of a switch.
//!
//! ```text
//!   namespace of node 3          namespace of switch 0                 namespace of switch 1
//!     node ================ p2 [switch program] ... p5 ================= p0 [switch program] ...
//!     10.0.0.4
//! ```
//!
//! Namespaces have no names unless the user asks for them, so that no namespace outlives the processes that
//! hold it. All devices have the same hardware address and do not use ARP, because a cable has only two ends.
//! IPv6 is off, because its announcements would be the only other frames on the cables.
//!
//! Cost: 0.5 to 1 ms for each namespace and 0.3 ms for each cable. Nearly all of it is the kernel's work, and
//! the kernel does a part of it on several processors at once, so the network is built by one thread for each
//! processor, up to a maximum of four.

mod hook;

pub use hook::ProgramHook;

use crate::error::Error;
use crate::home_processors::HomeProcessors;
use crate::layout::{device, end_of};
use std::fs;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::thread;
use unisono_btin::{End, NodeId, SwitchId, SwitchLink, SwitchNetwork};
use unisono_linux::netlink::link::{self, Carrier, Device, Index, LinkState};
use unisono_linux::netlink::{self, NetlinkRequest, address};
use unisono_linux::network_namespace::{self, NetworkNamespace};
use unisono_linux::resource_limit;

/// The interface index of a node's device in its namespace.
pub const NODE_DEVICE: Index = Index(2);
/// The hardware address of every device. It is locally administered.
pub const HARDWARE: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// The maximum number of threads that build the network; more would only wait for the kernel's single lock of
/// network settings.
const MAX_BUILDERS: usize = 4;

/// A network that is up as long as this value lives.
#[derive(Debug)]
pub struct Fabric {
    switches: Vec<NetworkNamespace>,
    nodes: Vec<NetworkNamespace>,
    /// A netlink socket in the namespace of each switch.
    sockets: Vec<netlink::NetlinkSocket>,
    names: Vec<String>,
    attached: Option<hook::AttachedPorts>,
}

impl Fabric {
    /// Brings a network up. Switches forward no frames until they have a [program](Self::attach). Nodes
    /// receive frames on their home processors.
    pub fn new(network: &SwitchNetwork, homes: &HomeProcessors) -> Result<Self, Error> {
        let count = network.switch_count() + network.nodes().len();
        let wanted = 3 * count as u64 + 256; // namespaces, sockets, and the nodes' lines for orders
        let allowed =
            resource_limit::raise_open_files(wanted).map_err(Error::io("raise the limit of open files"))?;
        if allowed < wanted {
            return Err(Error::Host(format!(
                "{wanted} open files are needed and {allowed} allowed: ulimit -n {wanted}, or a smaller network"
            )));
        }
        build(network, homes)
    }

    pub fn switch(&self, switch: SwitchId) -> &NetworkNamespace {
        &self.switches[switch.0 as usize]
    }

    pub(crate) fn switches(&self) -> &[NetworkNamespace] {
        &self.switches
    }

    /// Asks the kernel for the carrier of each device of each switch.
    pub(crate) fn carriers(&mut self) -> Result<Vec<(End, Carrier)>, Error> {
        let mut carriers = Vec::new();
        for socket in &mut self.sockets {
            let there = link::all(socket)?;
            carriers.extend(there.iter().filter_map(|link| Some((end_of(link.index)?, link.carrier))));
        }
        Ok(carriers)
    }

    pub fn node(&self, node: NodeId) -> &NetworkNamespace {
        &self.nodes[node.0 as usize]
    }

    /// Names the namespaces for `ip netns exec`: `PREFIX-s0` and so on for switches, `PREFIX-n0` and so on
    /// for nodes. The drop of this value removes the names.
    pub fn publish(&mut self, prefix: &str) -> Result<(), Error> {
        let named = |kind: char, namespaces: &[NetworkNamespace], names: &mut Vec<String>| {
            for (number, namespace) in namespaces.iter().enumerate() {
                let name = format!("{prefix}-{kind}{number}");
                namespace.publish(&name).map_err(Error::io(format!("name a namespace {name}")))?;
                names.push(name);
            }
            Ok(())
        };
        named('s', &self.switches, &mut self.names)?;
        named('n', &self.nodes, &mut self.names)
    }

    /// Pulls a cable between two switches, or plugs it in again: both its devices go down or up.
    pub fn set_link(&mut self, link: &SwitchLink, state: LinkState) -> Result<(), Error> {
        for end in [link.a, link.b] {
            self.set_end(end, state)?;
        }
        Ok(())
    }

    fn set_end(&mut self, end: End, state: LinkState) -> Result<(), Error> {
        let socket = &mut self.sockets[end.switch.0 as usize];
        Ok(socket.run(&[link::set(device(end.switch, end.port), state)])?)
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.detach();
        for name in &self.names {
            let _ = network_namespace::remove(name); // another process may have removed it
        }
    }
}

pub fn address_of(node: NodeId) -> Ipv4Addr {
    let [_, a, b, c] = (node.0 + 1).to_be_bytes();
    Ipv4Addr::new(10, a, b, c)
}

/// Assigns the node's address to its device. The calling thread must be in the node's namespace.
pub fn take_address(node: NodeId) -> Result<(), Error> {
    let mut socket = netlink::NetlinkSocket::open().map_err(Error::io("open a netlink socket"))?;
    Ok(socket.run(&[address::add(NODE_DEVICE, address_of(node), 8)])?)
}

fn build(network: &SwitchNetwork, homes: &HomeProcessors) -> Result<Fabric, Error> {
    let count = network.switch_count();
    let make_one = |at: usize| {
        let namespace = namespace()?;
        if let Some(node) = at.checked_sub(count) {
            homes.steer_receive(NodeId(node as u32));
        }
        Ok(namespace)
    };
    let make = |range: Range<usize>| range.map(make_one).collect();
    let mut switches = in_parallel(count + network.nodes().len(), make)?;
    let nodes = switches.split_off(count);
    let sockets = in_parallel(count, |range| {
        let lay = |switch: usize| {
            switches[switch].enter().map_err(Error::io("enter a switch"))?;
            let mut socket = netlink::NetlinkSocket::open().map_err(Error::io("open a netlink socket"))?;
            socket.run(&cables(network, SwitchId(switch as u32), &switches, &nodes))?;
            Ok(socket)
        };
        range.map(lay).collect()
    })?;
    let mut fabric = Fabric { switches, nodes, sockets, names: Vec::new(), attached: None };
    for (switch, socket) in network.switches().zip(&mut fabric.sockets) {
        let up = |device| link::set(device, LinkState::Up);
        socket.run(&ports(network, switch).map(up).collect::<Vec<NetlinkRequest>>())?;
    }
    Ok(fabric)
}

/// Divides `count` pieces of work among threads. Returns their results, in order. A thread may change its
/// namespace.
fn in_parallel<T: Send>(
    count: usize,
    work: impl Fn(Range<usize>) -> Result<Vec<T>, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let threads = thread::available_parallelism().map_or(1, usize::from).clamp(1, MAX_BUILDERS);
    let begin = |part: usize| count * part / threads;
    thread::scope(|scope| {
        let work = &work;
        let parts: Vec<_> =
            (0..threads).map(|part| scope.spawn(move || work(begin(part)..begin(part + 1)))).collect();
        let mut made = Vec::with_capacity(count);
        for part in parts {
            let done = part.join().map_err(|_| Error::Host("a thread that builds panicked".to_owned()))?;
            made.extend(done?);
        }
        Ok(made)
    })
}

fn namespace() -> Result<NetworkNamespace, Error> {
    let namespace = NetworkNamespace::create().map_err(|error| {
        Error::Host(format!(
            "no network namespace can be made ({error}): run as root, on a kernel with CONFIG_NET_NS"
        ))
    })?;
    // this fails on a kernel without IPv6, which has no such file
    let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    Ok(namespace)
}

/// Returns the devices at a switch that have cables.
fn ports(network: &SwitchNetwork, switch: SwitchId) -> impl Iterator<Item = Index> + '_ {
    let links = network.neighbours(switch).iter().map(|neighbour| neighbour.port);
    let nodes = network.locals(switch).iter().map(|(port, _)| *port);
    links.chain(nodes).map(move |port| device(switch, port))
}

/// Returns the cables that begin at a switch: its nodes' cables, and the links whose first end is there.
fn cables(
    network: &SwitchNetwork,
    switch: SwitchId,
    switches: &[NetworkNamespace],
    nodes: &[NetworkNamespace],
) -> Vec<NetlinkRequest> {
    let at = |end: End| Device {
        namespace: switches[end.switch.0 as usize].as_fd(),
        name: format!("p{}", end.port.0),
        index: Some(device(end.switch, end.port)),
        address: HARDWARE,
    };
    let links = network.neighbours(switch).iter().map(|neighbour| &network.links()[neighbour.link as usize]);
    let mut begun: Vec<&SwitchLink> = links.filter(|link| link.a.switch == switch).collect();
    begun.sort_unstable_by_key(|link| link.a.port);
    begun.dedup(); // a self loop occurs at both its ports
    let between = begun.into_iter().map(|link| link::veth(&at(link.a), &at(link.b)));
    let to_nodes = network.locals(switch).iter().map(|(port, node)| {
        let namespace = nodes[node.0 as usize].as_fd();
        let near = Device { namespace, name: "node".to_owned(), index: Some(NODE_DEVICE), address: HARDWARE };
        link::veth(&near, &at(End { switch, port: *port }))
    });
    between.chain(to_nodes).collect()
}
