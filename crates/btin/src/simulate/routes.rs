//! The routes of unicast and multicast messages between a root and all others, as cables of the simulator.

use super::Routes;
use super::wiring::{CableDirection, Wiring};
use crate::routing::{RouteTree, UpDown};
use crate::{SwitchId, SwitchNetwork};

/// The routes from one switch to all others, and back.
pub(super) struct SwitchRoutes {
    first: Vec<u32>,
    out: Vec<CableDirection>,
    back: Vec<CableDirection>,
    reached: Vec<bool>,
}

impl SwitchRoutes {
    /// Finds the shortest routes from a switch. Up\*/down\* directions come from the spanning tree around
    /// switch 0.
    pub(super) fn new(network: &SwitchNetwork, wiring: &Wiring, root: SwitchId, routes: Routes) -> Self {
        let tree = match routes {
            Routes::UpDown => UpDown::new(network, SwitchId(0)).routes(network, root),
            Routes::Shortest => RouteTree::shortest(network, root),
        };
        let mut all = Self { first: vec![0], out: Vec::new(), back: Vec::new(), reached: Vec::new() };
        for switch in network.switches() {
            let route = tree.to(network, switch);
            all.reached.push(route.is_some());
            let begin = all.back.len();
            for channel in route.into_iter().flatten() {
                let (from, to) = channel.ports(network);
                all.out.push(wiring.out_of(from.switch, from.port));
                all.back.push(wiring.out_of(to.switch, to.port));
            }
            all.back[begin..].reverse();
            all.first.push(u32::try_from(all.out.len()).expect("fits because ways are short"));
        }
        all
    }

    fn at(&self, switch: SwitchId) -> std::ops::Range<usize> {
        let at = switch.0 as usize;
        self.first[at] as usize..self.first[at + 1] as usize
    }

    pub(super) fn out(&self, switch: SwitchId) -> &[CableDirection] {
        &self.out[self.at(switch)]
    }

    pub(super) fn back(&self, switch: SwitchId) -> &[CableDirection] {
        &self.back[self.at(switch)]
    }

    pub(super) fn reaches(&self, switch: SwitchId) -> bool {
        self.reached[switch.0 as usize]
    }
}
