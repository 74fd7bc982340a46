//! For all of `unisono tree plan`: the graph of the switches, as one array of neighbors.
//!
//! A search asks only which switches are adjacent. So ports, parallel links and links from a switch to itself
//! are left out, and the neighbors of all switches are in one array, in order of switch. Cost: four bytes for
//! each switch and for each end of a link. The graph is made once for each plan.

use crate::{Neighbour, SwitchId, SwitchNetwork};

/// The neighbors of each switch, ascending, each once: without ports, parallel links and self loops.
pub(super) struct Graph {
    first: Vec<u32>,
    to: Vec<u32>,
}

impl Graph {
    pub(super) fn new(network: &SwitchNetwork) -> Self {
        let mut first = Vec::with_capacity(network.switch_count() + 1);
        let mut to = Vec::with_capacity(2 * network.links().len());
        let mut near = Vec::new();
        first.push(0);
        for switch in network.switches() {
            near.clear();
            near.extend(network.neighbours(switch).iter().map(|n| n.switch.0).filter(|&n| n != switch.0));
            near.sort_unstable();
            near.dedup();
            to.extend_from_slice(&near);
            first.push(u32::try_from(to.len()).expect("fits because links are counted in 32 bits"));
        }
        Self { first, to }
    }

    pub(super) fn len(&self) -> usize {
        self.first.len() - 1
    }

    pub(super) fn edge_ends(&self) -> usize {
        self.to.len()
    }

    pub(super) fn near(&self, switch: u32) -> &[u32] {
        &self.to[self.first[switch as usize] as usize..self.first[switch as usize + 1] as usize]
    }
}

/// Returns the cable that a tree takes from a parent to a child: among parallel cables, the one at the
/// parent's lowest port.
pub(super) fn cable(network: &SwitchNetwork, parent: SwitchId, child: SwitchId) -> Neighbour {
    let mut near = network.neighbours(parent).iter();
    *near.find(|n| n.switch == child).expect("a search follows links because a graph is made of them")
}
