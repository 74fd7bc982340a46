//! up\*/down\* routing: legal routes that cannot deadlock in an irregular network (paper, section 2.1).
//!
//! The idea: a breadth-first spanning tree gives every link a direction. *Up* is towards the end that is
//! nearer to the root, or, at the same distance, towards the end with the lower number. A legal route first
//! goes up, for any number of links, and then down; it never goes up again. A cycle of waiting messages would
//! need a turn from down to up, so there is none.
//!
//! Three parts are independent of each other: [`UpDown`] finds routes, [`legal`] judges any route, and
//! [`dependencies`] looks for cycles among channels that wait for each other: the proof for barriers among
//! messages. [`proof`] applies them to given trees, for `unisono tree check --deadlock`. The simulator's
//! unicast and multicast take the same routes.
//!
//! Cost: one breadth-first search for the directions; for all routes from a switch, one search over two
//! states of every switch. When not to use it: for barriers. Legal routes can be detours, and many of them
//! pass near the root; a barrier has its own tree.

pub mod dependencies;
pub mod legal;
pub mod proof;

use crate::{End, Port, SwitchId, SwitchLink, SwitchNetwork};
use std::collections::VecDeque;

/// One direction of a link: the resource that a message holds while it waits for the next channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RoutingChannel {
    pub link: u32,
    /// Along the link from its end a to its end b, or back.
    pub way: LinkDirection,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkDirection {
    /// From end a to end b.
    There,
    /// From end b to end a.
    Back,
}

impl RoutingChannel {
    /// Returns the ports at the start and at the end of the channel.
    pub fn ports(self, network: &SwitchNetwork) -> (End, End) {
        let SwitchLink { a, b } = network.links()[self.link as usize];
        match self.way {
            LinkDirection::There => (a, b),
            LinkDirection::Back => (b, a),
        }
    }

    /// Returns the switches at the start and at the end of the channel.
    pub fn ends(self, network: &SwitchNetwork) -> (SwitchId, SwitchId) {
        let (from, to) = self.ports(network);
        (from.switch, to.switch)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Towards the root of the spanning tree.
    Up,
    /// Away from the root.
    Down,
}

/// The up or down direction of every link.
///
/// ```
/// use unisono_btin::SwitchId;
/// use unisono_btin::generate::{NetworkOptions, generate};
/// use unisono_btin::routing::UpDown;
///
/// let options = NetworkOptions { switches: 16, nodes: 16, members: 16, ..NetworkOptions::default() };
/// let network = generate(&options)?.network;
/// let directions = UpDown::new(&network, SwitchId(0));
/// assert!(network.switches().all(|switch| switch == SwitchId(0) || directions.parent(switch).is_some()));
/// # Ok::<(), unisono_btin::generate::GenerateError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpDown {
    root: SwitchId,
    /// Distance from the root; `u32::MAX` for unreachable switches.
    level: Vec<u32>,
    /// The channel to the parent in the spanning tree.
    parent: Vec<Option<RoutingChannel>>,
}

impl UpDown {
    /// Computes the directions from the breadth-first tree of a root. The search visits switches first in,
    /// first out, and the neighbors of a switch in order of port.
    ///
    /// Components that the root cannot reach get trees of their own, from their lowest switch.
    pub fn new(network: &SwitchNetwork, root: SwitchId) -> Self {
        let count = network.switch_count();
        let mut directions = Self { root, level: vec![u32::MAX; count], parent: vec![None; count] };
        let mut queue = VecDeque::new();
        for start in std::iter::once(root).chain(network.switches()) {
            if directions.level[start.0 as usize] != u32::MAX {
                continue;
            }
            directions.level[start.0 as usize] = 0;
            queue.push_back(start);
            while let Some(here) = queue.pop_front() {
                for seen in network.neighbours(here) {
                    if directions.level[seen.switch.0 as usize] != u32::MAX {
                        continue;
                    }
                    directions.level[seen.switch.0 as usize] = directions.level[here.0 as usize] + 1;
                    let up = channel(network, seen.link, seen.switch);
                    directions.parent[seen.switch.0 as usize] = Some(up);
                    queue.push_back(seen.switch);
                }
            }
        }
        directions
    }

    pub fn root(&self) -> SwitchId {
        self.root
    }

    /// Returns the channel from a switch to its parent in the spanning tree; `None` at a root.
    pub fn parent(&self, switch: SwitchId) -> Option<RoutingChannel> {
        self.parent[switch.0 as usize]
    }

    /// Returns whether a channel leads up or down. A link from a switch to itself leads down, because no
    /// route uses it.
    pub fn direction(&self, network: &SwitchNetwork, channel: RoutingChannel) -> Direction {
        let (from, to) = channel.ends(network);
        let height = |switch: SwitchId| (self.level[switch.0 as usize], switch);
        if height(to) < height(from) { Direction::Up } else { Direction::Down }
    }

    /// Finds the shortest legal routes from a switch to all others.
    pub fn routes(&self, network: &SwitchNetwork, from: SwitchId) -> RouteTree {
        RouteTree::new(network, from, |channel| self.direction(network, channel))
    }
}

/// Shortest routes from one switch to all others. Among routes of the same length the route by lower ports is
/// chosen.
///
/// A route that has turned downwards cannot go up again, so the search has two states for each switch:
/// reached on the way up, and reached on the way down. A legal route read backwards is a legal route. Routes
/// branch but never meet again, as a multicast needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteTree {
    from: SwitchId,
    /// By switch and state (reached on the way up, or on the way down): the last channel of its route, and
    /// the state of the switch at that channel's start.
    came: Vec<[Option<(Direction, RoutingChannel)>; 2]>,
    /// By switch: the state in which its route ends. `None`: there is no route.
    first: Vec<Option<Direction>>,
}

impl RouteTree {
    /// Finds the shortest routes among all routes, legal or not.
    pub fn shortest(network: &SwitchNetwork, from: SwitchId) -> Self {
        Self::new(network, from, |_| Direction::Up)
    }

    fn new(network: &SwitchNetwork, from: SwitchId, direction: impl Fn(RoutingChannel) -> Direction) -> Self {
        let count = network.switch_count();
        let mut routes = Self { from, came: vec![[None; 2]; count], first: vec![None; count] };
        routes.first[from.0 as usize] = Some(Direction::Up);
        let mut queue = VecDeque::from([(from, Direction::Up)]);
        while let Some((here, so_far)) = queue.pop_front() {
            for seen in network.neighbours(here).iter().filter(|seen| seen.switch != here) {
                let out = channel(network, seen.link, here);
                let way = direction(out);
                let there = seen.switch.0 as usize;
                let is_start = (seen.switch, way) == (from, Direction::Up);
                let is_illegal = (so_far, way) == (Direction::Down, Direction::Up);
                if is_start || is_illegal || routes.came[there][way as usize].is_some() {
                    continue;
                }
                routes.came[there][way as usize] = Some((so_far, out));
                routes.first[there].get_or_insert(way);
                queue.push_back((seen.switch, way));
            }
        }
        routes
    }

    /// Returns the route to a switch, as channels in order, or `None` if there is no route. The route to the
    /// start itself is empty.
    pub fn to(&self, network: &SwitchNetwork, to: SwitchId) -> Option<Vec<RoutingChannel>> {
        let (mut here, mut way) = (to, self.first[to.0 as usize]?);
        let mut route = Vec::new();
        while let Some((before, channel)) = self.came[here.0 as usize][way as usize] {
            route.push(channel);
            (here, way) = (channel.ends(network).0, before);
        }
        route.reverse();
        Some(route)
    }

    /// Returns the port of `switch` at which the route to it arrives. The route back leaves by this port.
    pub fn port_back(&self, network: &SwitchNetwork, switch: SwitchId) -> Option<Port> {
        let way = self.first[switch.0 as usize]?;
        let (_, channel) = self.came[switch.0 as usize][way as usize]?;
        Some(channel.ports(network).1.port)
    }
}

/// Returns the channel of a link that leads away from a switch.
fn channel(network: &SwitchNetwork, link: u32, from: SwitchId) -> RoutingChannel {
    let way = if network.links()[link as usize].a.switch == from {
        LinkDirection::There
    } else {
        LinkDirection::Back
    };
    RoutingChannel { link, way }
}

#[cfg(test)]
mod tests;
