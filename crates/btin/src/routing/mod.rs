//! up\*/down\* routing: legal routes that cannot deadlock in an irregular network (paper, section 2.1).
//!
//! The idea: a breadth-first spanning tree gives every link a direction, *up* towards the root: to the end
//! nearer to the root, or, at the same distance, to the end with the lower number. A route is legal if it
//! goes up as long as it likes and then down as long as it likes, never up again. A cycle of waiting messages
//! would need a turn from down to up somewhere, so there is none.
//!
//! Three parts, each without knowledge of the others: [`UpDown`] finds routes, [`legal`] judges any route,
//! and [`dependencies`] looks for cycles among channels that wait for each other, the proof for barriers
//! among messages. [`proof`] puts them together for given trees.
//!
//! Cost: a breadth-first search for the directions; a route is another search over twice the switches. When
//! not to use it: the root attracts traffic and detours are needed, which is why a barrier has a tree of its
//! own.

pub mod dependencies;
pub mod legal;
pub mod proof;

use crate::{Link, Network, SwitchId};
use std::collections::VecDeque;

/// One direction of a link: what a message holds on to while it waits for the next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RoutingChannel {
    /// The link, by its number in the network.
    pub link: u32,
    /// Along the link from its end a to its end b, or back.
    pub way: LinkDirection,
}

/// Which way along a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkDirection {
    /// From end a to end b.
    There,
    /// From end b to end a.
    Back,
}

impl RoutingChannel {
    /// The switches that it leads from and to.
    #[must_use]
    pub fn ends(self, network: &Network) -> (SwitchId, SwitchId) {
        let Link { a, b } = network.links()[self.link as usize];
        match self.way {
            LinkDirection::There => (a.switch, b.switch),
            LinkDirection::Back => (b.switch, a.switch),
        }
    }
}

/// Whether a channel leads up or down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Towards the root of the spanning tree.
    Up,
    /// Away from it.
    Down,
}

/// The directions of all links, and routes along them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpDown {
    root: SwitchId,
    /// Distance from the root; the greatest number where it cannot be reached.
    level: Vec<u32>,
    /// The channel to the parent in the spanning tree.
    parent: Vec<Option<RoutingChannel>>,
}

impl UpDown {
    /// Directions by the breadth-first tree from a switch; neighbours in order of port, first in, first out.
    ///
    /// Parts of the network that the root cannot reach get trees of their own, from their lowest switch.
    #[must_use]
    pub fn new(network: &Network, root: SwitchId) -> Self {
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

    /// The root of the spanning tree.
    #[must_use]
    pub fn root(&self) -> SwitchId {
        self.root
    }

    /// The channel from a switch to its parent in the spanning tree; none at a root.
    #[must_use]
    pub fn parent(&self, switch: SwitchId) -> Option<RoutingChannel> {
        self.parent[switch.0 as usize]
    }

    /// Whether a channel leads up or down. A link from a switch to itself leads down: it is of no use to a
    /// route.
    #[must_use]
    pub fn direction(&self, network: &Network, channel: RoutingChannel) -> Direction {
        let (from, to) = channel.ends(network);
        let height = |switch: SwitchId| (self.level[switch.0 as usize], switch);
        if height(to) < height(from) { Direction::Up } else { Direction::Down }
    }

    /// A shortest legal route, as channels in order; none if there is no way at all.
    ///
    /// Among equals the one by lower ports. It is empty from a switch to itself.
    #[must_use]
    pub fn route(&self, network: &Network, from: SwitchId, to: SwitchId) -> Option<Vec<RoutingChannel>> {
        // a switch before and after the turn downwards is two places
        let place = |switch: SwitchId, turned: bool| 2 * switch.0 as usize + usize::from(turned);
        let mut came: Vec<Option<(usize, RoutingChannel)>> = vec![None; 2 * network.switch_count()];
        let mut queue = VecDeque::from([(from, false)]);
        let start = place(from, false);
        while let Some((here, turned)) = queue.pop_front() {
            if here == to {
                let mut route = Vec::new();
                let mut at = place(here, turned);
                while at != start
                    && let Some((before, channel)) = came[at]
                {
                    route.push(channel);
                    at = before;
                }
                route.reverse();
                return Some(route);
            }
            for seen in network.neighbours(here).iter().filter(|seen| seen.switch != here) {
                let out = channel(network, seen.link, here);
                let down = self.direction(network, out) == Direction::Down;
                let next = place(seen.switch, down);
                if (down || !turned) && came[next].is_none() && next != start {
                    came[next] = Some((place(here, turned), out));
                    queue.push_back((seen.switch, down));
                }
            }
        }
        None
    }
}

/// The channel of a link that leads away from a switch.
fn channel(network: &Network, link: u32, from: SwitchId) -> RoutingChannel {
    let way = if network.links()[link as usize].a.switch == from {
        LinkDirection::There
    } else {
        LinkDirection::Back
    };
    RoutingChannel { link, way }
}

#[cfg(test)]
mod tests;
