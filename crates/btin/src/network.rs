//! A network of switches: ports, the links between switches, and the nodes at ports (paper, section 2.1).
//!
//! The layout makes walks fast: the neighbors of a switch are adjacent in memory, in order of port, so that
//! a breadth-first search that visits them in that order takes the lowest of parallel links.

use std::fmt;
use std::ops::Range;
use unisono_text::counted;

/// A switch, by its number from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SwitchId(pub u32);

/// A node, by its number from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

/// A port of a switch, by its number from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Port(pub u16);

/// A port of a particular switch: the end of a cable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct End {
    pub switch: SwitchId,
    pub port: Port,
}

/// A cable between two ports of switches. Both may belong to one switch (a self loop).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchLink {
    pub a: End,
    pub b: End,
}

/// The other end of a switch's link to a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// The port on this switch.
    pub port: Port,
    pub switch: SwitchId,
    /// The port on the other switch.
    pub far: Port,
    pub link: u32,
}

/// Switches, links and nodes; immutable.
///
/// ```
/// use unisono_btin::{End, Port, SwitchId, SwitchLink, SwitchNetwork};
///
/// let end = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
/// // two switches of four ports, a cable between them, a node at each
/// let cable = SwitchLink { a: end(0, 3), b: end(1, 3) };
/// let network = SwitchNetwork::new(vec![4, 4], vec![cable], vec![end(0, 0), end(1, 0)])?;
/// assert_eq!(network.neighbours(SwitchId(0))[0].switch, SwitchId(1));
/// # Ok::<(), unisono_btin::SwitchNetworkError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchNetwork {
    ports: Vec<u16>,
    links: Vec<SwitchLink>,
    nodes: Vec<End>,
    /// For each switch, the index of its first neighbor in `neighbours`. The vector has one element more than
    /// there are switches.
    first_neighbour: Vec<u32>,
    neighbours: Vec<Neighbour>,
    first_local: Vec<u32>,
    locals: Vec<(Port, NodeId)>,
}

/// Why the ports, links and nodes are not a network.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchNetworkError {
    #[error("{what} is at switch {switch}, but the network has {} (0 to {})", counted(switches, "switch"), switches.saturating_sub(1))]
    NoSuchSwitch { what: NetworkElement, switch: u32, switches: usize },
    #[error(
        "{what} is at port {port} of switch {switch}, which has {} (counted from 0)",
        counted(ports, "port")
    )]
    NoSuchPort { what: NetworkElement, switch: u32, port: u16, ports: u16 },
    #[error("port {port} of switch {switch} is used twice: by {first} and by {second}")]
    PortTwice { switch: u32, port: u16, first: NetworkElement, second: NetworkElement },
}

/// The subject of an error. Numbers are positions in the input, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NetworkElement {
    Link(usize),
    Node(usize),
}

impl SwitchNetworkError {
    /// Returns the link or node at fault. If two links or nodes use the same port, the later one in the input
    /// is at fault.
    pub fn element(&self) -> NetworkElement {
        match self {
            Self::NoSuchSwitch { what, .. } | Self::NoSuchPort { what, .. } => *what,
            Self::PortTwice { second, .. } => *second,
        }
    }
}

impl fmt::Display for NetworkElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(number) => write!(f, "link {number}"),
            Self::Node(number) => write!(f, "node {number}"),
        }
    }
}

impl SwitchNetwork {
    /// Makes a network of switches with these numbers of ports, links between them, and nodes at ports.
    pub fn new(ports: Vec<u16>, links: Vec<SwitchLink>, nodes: Vec<End>) -> Result<Self, SwitchNetworkError> {
        let of = |link: &SwitchLink| [link.a, link.b];
        for (number, link) in links.iter().enumerate() {
            of(link).into_iter().try_for_each(|end| check_end(&ports, NetworkElement::Link(number), end))?;
        }
        for (number, end) in nodes.iter().enumerate() {
            check_end(&ports, NetworkElement::Node(number), *end)?;
        }
        // A counting sort in place: sorting a temporary list of all ends would take twice the network's
        // memory.
        let first_neighbour = stretches(ports.len(), links.iter().flat_map(of).map(|end| end.switch));
        let nowhere = Neighbour { port: Port(0), switch: SwitchId(0), far: Port(0), link: 0 };
        let mut neighbours = vec![nowhere; 2 * links.len()];
        let mut next = first_neighbour.clone();
        for (number, link) in (0..).zip(&links) {
            for (here, far) in [(link.a, link.b), (link.b, link.a)] {
                let place = &mut next[here.switch.0 as usize];
                neighbours[*place as usize] =
                    Neighbour { port: here.port, switch: far.switch, far: far.port, link: number };
                *place += 1;
            }
        }
        let first_local = stretches(ports.len(), nodes.iter().map(|end| end.switch));
        let mut locals = vec![(Port(0), NodeId(0)); nodes.len()];
        next.copy_from_slice(&first_local);
        for (id, end) in (0..).zip(&nodes) {
            let place = &mut next[end.switch.0 as usize];
            locals[*place as usize] = (end.port, NodeId(id));
            *place += 1;
        }
        drop(next);
        let mut network = Self { ports, links, nodes, first_neighbour, neighbours, first_local, locals };
        for switch in network.switches() {
            let (neighbours, locals) = network.stretches(switch);
            // in order of port, then of link: if a port is used twice, the first link in the input comes
            // first here
            network.neighbours[neighbours].sort_unstable_by_key(|seen| (seen.port, seen.link));
            network.locals[locals].sort_unstable();
            network.once(switch)?;
        }
        Ok(network)
    }

    /// Checks that each port of a switch is used at most once. The neighbors and the nodes of the switch must
    /// be in order of port.
    fn once(&self, switch: SwitchId) -> Result<(), SwitchNetworkError> {
        let (neighbours, locals) = (self.neighbours(switch), self.locals(switch));
        let twice = |pair: &[(Port, NetworkElement)]| (pair[0].0 == pair[1].0).then(|| (pair[0], pair[1].1));
        let link = |seen: &Neighbour| (seen.port, NetworkElement::Link(seen.link as usize));
        let node = |local: &(Port, NodeId)| (local.0, NetworkElement::Node(local.1.0 as usize));
        let among_links = neighbours.windows(2).find_map(|pair| twice(&[link(&pair[0]), link(&pair[1])]));
        let among_nodes = locals.windows(2).find_map(|pair| twice(&[node(&pair[0]), node(&pair[1])]));
        let between = neighbours.iter().find_map(|seen| {
            let at = locals.binary_search_by_key(&seen.port, |local| local.0).ok()?;
            twice(&[link(seen), node(&locals[at])])
        });
        // reports the lowest port that is used twice; at the same port, links come before nodes
        let all = [among_links, between, among_nodes];
        match all.into_iter().flatten().min_by_key(|((port, _), _)| *port) {
            None => Ok(()),
            Some(((port, first), second)) => {
                Err(SwitchNetworkError::PortTwice { switch: switch.0, port: port.0, first, second })
            }
        }
    }

    /// Returns the ranges of a switch's neighbors in `neighbours` and of its nodes in `locals`.
    fn stretches(&self, SwitchId(switch): SwitchId) -> (Range<usize>, Range<usize>) {
        let of = |first: &[u32]| first[switch as usize] as usize..first[switch as usize + 1] as usize;
        (of(&self.first_neighbour), of(&self.first_local))
    }

    pub fn switch_count(&self) -> usize {
        self.ports.len()
    }

    pub fn switches(&self) -> impl ExactSizeIterator<Item = SwitchId> + use<> {
        (0..u32::try_from(self.ports.len()).expect("fits because ids are 32 bits")).map(SwitchId)
    }

    pub fn ports(&self, switch: SwitchId) -> u16 {
        self.ports[switch.0 as usize]
    }

    pub fn links(&self) -> &[SwitchLink] {
        &self.links
    }

    /// Returns a copy without the links of these numbers. The other links are renumbered.
    pub fn without_links(&self, without: &[u32]) -> Self {
        let ports = self.switches().map(|switch| self.ports(switch)).collect();
        let links = (0..).zip(&self.links).filter(|(number, _)| !without.contains(number));
        let links = links.map(|(_, link)| *link).collect();
        Self::new(ports, links, self.nodes.clone()).expect("sound because each port has at most what it had")
    }

    pub fn nodes(&self) -> &[End] {
        &self.nodes
    }

    /// Returns the neighbors of a switch, in order of port. A self loop occurs twice.
    pub fn neighbours(&self, switch: SwitchId) -> &[Neighbour] {
        &self.neighbours[self.stretches(switch).0]
    }

    /// Returns the neighbor at a port, or `None` if no link is plugged in there.
    pub fn neighbour_at(&self, switch: SwitchId, port: Port) -> Option<&Neighbour> {
        let near = self.neighbours(switch);
        near.binary_search_by_key(&port, |seen| seen.port).ok().map(|at| &near[at])
    }

    /// Returns the switch that a node is plugged into.
    pub fn switch_of(&self, node: NodeId) -> SwitchId {
        self.nodes[node.0 as usize].switch
    }

    /// Returns the nodes at a switch, in order of port.
    pub fn locals(&self, switch: SwitchId) -> &[(Port, NodeId)] {
        &self.locals[self.stretches(switch).1]
    }
}

fn check_end(ports: &[u16], what: NetworkElement, end: End) -> Result<(), SwitchNetworkError> {
    let End { switch: SwitchId(switch), port: Port(port) } = end;
    match ports.get(switch as usize) {
        None => Err(SwitchNetworkError::NoSuchSwitch { what, switch, switches: ports.len() }),
        Some(&has) if port >= has => Err(SwitchNetworkError::NoSuchPort { what, switch, port, ports: has }),
        Some(_) => Ok(()),
    }
}

/// Returns, for each switch, the index of its first entry in a list that is sorted by switch; the last
/// element is the length of that list. `entries` are the switches of all entries, in any order.
fn stretches(switches: usize, entries: impl Iterator<Item = SwitchId>) -> Vec<u32> {
    let mut first = vec![0; switches + 1];
    for switch in entries {
        first[switch.0 as usize + 1] += 1;
    }
    for at in 0..switches {
        first[at + 1] += first[at];
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(switch: u32, port: u16) -> End {
        End { switch: SwitchId(switch), port: Port(port) }
    }

    fn link(a: End, b: End) -> SwitchLink {
        SwitchLink { a, b }
    }

    #[test]
    fn neighbours_and_nodes_come_in_order_of_port() {
        let links = vec![link(end(0, 3), end(1, 0)), link(end(2, 1), end(0, 1)), link(end(0, 0), end(1, 2))];
        let network = SwitchNetwork::new(vec![4; 3], links, vec![end(1, 3), end(1, 1)]).expect("it is sound");
        let seen: Vec<_> =
            network.neighbours(SwitchId(0)).iter().map(|n| (n.port.0, n.switch.0, n.far.0, n.link)).collect();
        assert_eq!(seen, [(0, 1, 2, 2), (1, 2, 1, 1), (3, 1, 0, 0)]);
        assert_eq!(network.locals(SwitchId(1)), [(Port(1), NodeId(1)), (Port(3), NodeId(0))]);
        assert_eq!(network.locals(SwitchId(0)), []);
    }

    #[test]
    fn a_self_loop_is_seen_from_both_its_ports() {
        let network =
            SwitchNetwork::new(vec![2], vec![link(end(0, 0), end(0, 1))], vec![]).expect("it is sound");
        assert_eq!(network.neighbours(SwitchId(0)).len(), 2);
    }

    #[test]
    fn a_port_used_twice_is_refused_and_both_users_named() {
        let refused = SwitchNetwork::new(vec![2; 2], vec![link(end(0, 0), end(1, 1))], vec![end(1, 1)]);
        let error = refused.expect_err("port 1 of switch 1 is taken").to_string();
        assert_eq!(error, "port 1 of switch 1 is used twice: by link 0 and by node 0");
        let looped = SwitchNetwork::new(vec![2], vec![link(end(0, 0), end(0, 0))], vec![]);
        assert!(matches!(looped, Err(SwitchNetworkError::PortTwice { .. })));
    }

    #[test]
    fn a_switch_or_port_that_is_not_there_is_refused() {
        let far = SwitchNetwork::new(vec![2; 2], vec![], vec![end(2, 0)]).expect_err("there is no switch 2");
        assert_eq!(far.to_string(), "node 0 is at switch 2, but the network has 2 switches (0 to 1)");
        let beyond = SwitchNetwork::new(vec![2; 2], vec![], vec![end(1, 2)]).expect_err("there is no port 2");
        assert_eq!(beyond.to_string(), "node 0 is at port 2 of switch 1, which has 2 ports (counted from 0)");
    }
}
