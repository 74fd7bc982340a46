//! For `unisono tree check --deadlock`: proves case by case that no message deadlocks, or finds a cycle of
//! waiting messages (paper, 4.2).
//!
//! The trees must have been found sound. There are four cases: each barrier by itself; all barriers at the
//! same time; all barriers among normal messages on every legal up\*/down\* route; and the normal messages
//! alone, because the third case relies on them. The routes that [`UpDown`] finds are also judged by the
//! [`RouteJudge`], which shares no code with it.
//!
//! Cost: [`Dependencies`] takes at most (ports)^2 steps for each switch, times a logarithm. The judgment
//! takes one search over the network for each switch from which routes start.

use super::dependencies::{Dependencies, Resource, Storage};
use super::legal::{Illegal, RouteJudge};
use super::{RoutingChannel, UpDown};
use crate::{GroupId, SwitchId, SwitchNetwork, Tree};

/// The messages that travel at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProofTraffic {
    /// Only the barrier of one group.
    Barrier(GroupId),
    /// Normal messages, by every legal route.
    NormalMessages,
    /// This many barriers at once.
    Barriers(usize),
    /// This many barriers at once, among normal messages.
    Mixed(usize),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProofCase {
    pub traffic: ProofTraffic,
    pub channels: usize,
    pub registers: usize,
    /// The number of pairs of a held resource and a resource that is waited for.
    pub dependencies: usize,
    /// Each resource waits for the next, and the last for the first.
    pub cycle: Option<Vec<Resource>>,
}

pub fn prove(
    network: &SwitchNetwork,
    directions: &UpDown,
    trees: &[Tree],
    storage: Storage,
) -> Vec<ProofCase> {
    let case = |traffic, dependencies: &Dependencies| {
        let (channels, registers) = dependencies.resources();
        ProofCase {
            traffic,
            channels,
            registers,
            dependencies: dependencies.len(),
            cycle: dependencies.cycle(),
        }
    };
    let mut cases = Vec::new();
    let mut all = Dependencies::new();
    for tree in trees {
        let mut one = Dependencies::new();
        one.barrier(network, tree, storage);
        cases.push(case(ProofTraffic::Barrier(tree.group), &one));
        all.barrier(network, tree, storage);
    }
    if trees.len() > 1 {
        cases.push(case(ProofTraffic::Barriers(trees.len()), &all));
    }
    let mut normal = Dependencies::new();
    normal.normal_messages(network, directions);
    cases.push(case(ProofTraffic::NormalMessages, &normal));
    all.normal_messages(network, directions);
    cases.push(case(ProofTraffic::Mixed(trees.len()), &all));
    cases
}

/// A route that is not legal, or a missing route.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the route from switch {from} to switch {to} is not legal: {}", .why.as_ref().map_or("there is none".to_owned(), ToString::to_string))]
#[non_exhaustive]
pub struct BadRoute {
    pub from: u32,
    pub to: u32,
    /// `None`: there is no route.
    pub why: Option<Illegal>,
}

/// Finds and judges a route for every ordered pair of these switches. The switches must be connected. Returns
/// the number of routes, and the sum of their lengths in channels.
pub fn judge_routes(
    network: &SwitchNetwork,
    directions: &UpDown,
    switches: &[SwitchId],
) -> Result<(usize, usize), BadRoute> {
    let judge = RouteJudge::new(network, directions.root());
    let (mut routes, mut crossed) = (0, 0);
    for &from in switches {
        let found = directions.routes(network, from);
        for &to in switches.iter().filter(|to| **to != from) {
            let bad = |why| BadRoute { from: from.0, to: to.0, why };
            let route: Vec<RoutingChannel> = found.to(network, to).ok_or_else(|| bad(None))?;
            judge.check(from, to, &route).map_err(|why| bad(Some(why)))?;
            routes += 1;
            crossed += route.len();
        }
    }
    Ok((routes, crossed))
}
