//! A table of the far end of each port. Each direction of each cable has its own number.

use crate::{End, NodeId, Port, SwitchId, SwitchNetwork};

/// One direction of a cable: out of a port of a switch, or out of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct CableDirection(pub(super) u32);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PortPeer {
    Open,
    Switch(End),
    Node(NodeId),
}

#[derive(Clone, Debug)]
pub(super) struct Wiring {
    first: Vec<u32>,
    far: Vec<PortPeer>,
    nodes: Vec<End>,
}

impl Wiring {
    pub(super) fn new(network: &SwitchNetwork) -> Self {
        let mut first = Vec::with_capacity(network.switch_count() + 1);
        let mut ports = 0;
        for switch in network.switches() {
            first.push(ports);
            ports += u32::from(network.ports(switch));
        }
        first.push(ports);
        let mut far = vec![PortPeer::Open; ports as usize];
        for link in network.links() {
            for (here, there) in [(link.a, link.b), (link.b, link.a)] {
                far[(first[here.switch.0 as usize] + u32::from(here.port.0)) as usize] =
                    PortPeer::Switch(there);
            }
        }
        for (id, end) in (0..).zip(network.nodes()) {
            far[(first[end.switch.0 as usize] + u32::from(end.port.0)) as usize] = PortPeer::Node(NodeId(id));
        }
        Self { first, far, nodes: network.nodes().to_vec() }
    }

    pub(super) fn channels(&self) -> usize {
        self.far.len() + self.nodes.len()
    }

    /// Returns the channel out of a port of a switch.
    pub(super) fn out_of(&self, switch: SwitchId, port: Port) -> CableDirection {
        CableDirection(self.first[switch.0 as usize] + u32::from(port.0))
    }

    pub(super) fn out_of_node(&self, node: NodeId) -> CableDirection {
        CableDirection(
            u32::try_from(self.far.len()).expect("fits because ports are counted in 32 bits") + node.0,
        )
    }

    pub(super) fn towards_node(&self, node: NodeId) -> CableDirection {
        let end = self.nodes[node.0 as usize];
        self.out_of(end.switch, end.port)
    }

    pub(super) fn far(&self, channel: CableDirection) -> PortPeer {
        let at = channel.0 as usize;
        match at.checked_sub(self.far.len()) {
            None => self.far[at],
            Some(node) => PortPeer::Switch(self.nodes[node]),
        }
    }

    /// Returns the start of a channel: a port of a switch, or a node.
    pub(super) fn from(&self, channel: CableDirection) -> PortPeer {
        let at = channel.0 as usize;
        if let Some(node) = at.checked_sub(self.far.len()) {
            return PortPeer::Node(NodeId(
                u32::try_from(node).expect("fits because node numbers are 32 bits"),
            ));
        }
        let switch = self.first.partition_point(|first| *first <= channel.0) - 1;
        let number = u32::try_from(switch).expect("fits because switch numbers are 32 bits");
        let port = u16::try_from(channel.0 - self.first[switch]).expect("fits because ports are 16 bits");
        PortPeer::Switch(End { switch: SwitchId(number), port: Port(port) })
    }
}
