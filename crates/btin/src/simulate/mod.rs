//! Simulates barriers over a network, event by event: compares a tree in the switches with messages through
//! one root.
//!
//! ```text
//!   node                     switch            switch                    node
//!   | start-up t_s, interface t_r |  t_p  | t_r |  t_p  | t_r |  t_p  | interface t_r |
//!   a message over d links: t_s + d t_p + (d + 1) t_r                      (paper, section 5.1)
//! ```
//!
//! Trees run the same state machines as a data plane ([`crate::Switch`], [`crate::GroupMember`]). Unicast and
//! multicast follow up\*/down\* routes to and from the tree's root node, so that only the scheme differs.
//! [`Conditions`] names every assumption; its defaults are the paper's. Time is simulated and random numbers
//! have a seed: the same input gives the same output everywhere.
//!
//! Cost: in a tree, an event each time a message crosses a cable. Through a root, an event for each message,
//! and one more for each cable that it crosses if messages wait for each other. When not to use it: for the
//! latency of one message or of a tree without faults, [`analytic`] has the closed form.
//!
//! Messages have a head and no body, as in the paper. Each message takes a shared channel for t_r + t_p, and
//! waiting messages are stored (virtual cut-through). So there is no deadlock to simulate.

pub mod analytic;
mod central;
mod conditions;
mod fabric;
#[cfg(test)]
mod fault_tests;
mod outcome;
mod queue;
mod routes;
#[cfg(test)]
mod tests;
mod time;
mod tree;
mod wiring;

pub use conditions::{Channels, Conditions, Costs, Faults, Intake, Routes, Scheme};
pub use outcome::{Busiest, Course, EpisodeTimes, Simulated, SimulatedBarrier};
pub use time::SimulatedTime;

use crate::{SwitchNetwork, TurnPoint};
use fabric::SimulatedFabric;
use wiring::Wiring;

pub struct Simulator<'a> {
    network: &'a SwitchNetwork,
    wiring: Wiring,
}

impl<'a> Simulator<'a> {
    pub fn new(network: &'a SwitchNetwork) -> Self {
        Self { network, wiring: Wiring::new(network) }
    }

    /// Runs the barriers of all the groups at the same time.
    pub fn run(&self, barriers: &[SimulatedBarrier], scheme: Scheme, conditions: &Conditions) -> Simulated {
        self.run_watched(barriers, scheme, conditions, &mut |_| {})
    }

    /// Runs as [`Simulator::run`] does, and calls `watch` with the number of crossings so far.
    pub fn run_watched(
        &self,
        barriers: &[SimulatedBarrier],
        scheme: Scheme,
        conditions: &Conditions,
        watch: &mut dyn FnMut(u64),
    ) -> Simulated {
        let links = self.network.links();
        let mut fabric = SimulatedFabric::new(&self.wiring, links, conditions, watch);
        let sizes = (self.network.switch_count(), self.network.nodes().len());
        let (courses, messages, events) = match scheme {
            Scheme::Unicast | Scheme::Multicast => {
                central::run(barriers, self.network, scheme, conditions, &mut fabric)
            }
            Scheme::Btin => tree::run(barriers, sizes, TurnPoint::AtNode, conditions, &mut fabric),
            Scheme::BtinTurn => tree::run(barriers, sizes, TurnPoint::AtSwitch, conditions, &mut fabric),
        };
        let of = |barrier: &SimulatedBarrier| {
            startups(turned(scheme, barrier), barrier.group.members().len() as u64)
        };
        Simulated {
            scheme,
            courses,
            hops: fabric.hops(),
            messages,
            startups: barriers.iter().map(of).max().unwrap_or(0),
            lost: fabric.lost,
            duplicated: fabric.duplicated,
            links: outcome::link_load(self.network, &self.wiring, &fabric.load),
            busiest: outcome::busiest(&self.wiring, &fabric.load),
            events,
        }
    }

    /// Returns a barrier's latency by the closed form ([`analytic`]). For unicast and multicast this is an
    /// upper bound: it assumes that the message of the member whose route to the root is longest is the last
    /// in line.
    pub fn analytic(
        &self,
        barrier: &SimulatedBarrier,
        scheme: Scheme,
        conditions: &Conditions,
    ) -> SimulatedTime {
        let members = barrier.group.members();
        let distance = match scheme {
            Scheme::Btin | Scheme::BtinTurn => u64::from(barrier.height) + 2,
            Scheme::Unicast | Scheme::Multicast => {
                central::distance(self.network, &self.wiring, barrier, conditions)
            }
        };
        let intake = conditions.intake(self.network);
        let scheme = turned(scheme, barrier);
        analytic::latency(scheme, &conditions.costs, distance, members.len() as u64, intake)
    }

    /// Returns the number of links between every two members, including the links to the nodes. Rows are
    /// senders and columns are receivers, in the order of the group.
    pub fn distances(&self, barrier: &SimulatedBarrier, conditions: &Conditions) -> Vec<u64> {
        central::distances(self.network, &self.wiring, barrier.group.members(), conditions)
    }
}

/// Returns the effective scheme: if the tree has no root node, messages turn around in the root switch in any
/// case.
fn turned(scheme: Scheme, barrier: &SimulatedBarrier) -> Scheme {
    match scheme {
        Scheme::Btin if barrier.tree.root_node.is_none() => Scheme::BtinTurn,
        _ => scheme,
    }
}

/// Returns the number of start-ups that run one after the other. (Table 2 of the paper has 2 n and n + 1,
/// because it also counts the root's message to itself.)
pub fn startups(scheme: Scheme, members: u64) -> u64 {
    match scheme {
        _ if members < 2 => 0,
        Scheme::BtinTurn => 1,
        Scheme::Unicast => 2 * (members - 1),
        Scheme::Multicast => members,
        Scheme::Btin => 2,
    }
}

/// Returns L of [`Intake::ParallelLinks`]: the mean number of a switch's links to other switches, rounded, at
/// least one (in the paper's letters f k - p / q).
pub fn parallel_links(network: &SwitchNetwork) -> u64 {
    let (links, switches) = (network.links().len() as u64, network.switch_count().max(1) as u64);
    ((4 * links + switches) / (2 * switches)).max(1)
}
