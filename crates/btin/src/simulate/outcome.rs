//! The barriers that a simulation runs, and its results.

use super::wiring::{CableDirection, PortPeer, Wiring};
use super::{Scheme, SimulatedTime};
use crate::{BarrierGroup, End, NodeId, ReductionOperator, SwitchId, SwitchNetwork, Tree, TreePlan};
use std::collections::BTreeMap;

#[derive(Clone, Copy)]
pub struct SimulatedBarrier<'a> {
    pub group: &'a BarrierGroup,
    /// The barrier tree. Unicast and multicast use only its root node.
    pub tree: &'a Tree,
    /// The height of the tree, in links from the root switch.
    pub height: u32,
    /// Switches whose register is kept in a node's memory, because the switch has none free.
    pub in_memory: &'a BTreeMap<SwitchId, NodeId>,
    pub operation: ReductionOperator,
    /// A member's data for an episode (trees only).
    pub data: &'a dyn Fn(NodeId, u16) -> u8,
}

impl<'a> SimulatedBarrier<'a> {
    /// Makes a barrier without data over a planned tree.
    pub fn planned(group: &'a BarrierGroup, plan: &'a TreePlan) -> Self {
        let TreePlan { tree, height, in_memory, .. } = plan;
        Self {
            group,
            tree,
            height: *height,
            in_memory,
            operation: ReductionOperator::default(),
            data: &|_, _| 0,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Course {
    episodes: Vec<EpisodeTimes>,
    members: usize,
    /// The number of messages that nodes sent again.
    pub repetitions: u64,
    pub dropped: u64,
    /// Members that were not released from every episode, ascending.
    pub unreleased: Vec<NodeId>,
    /// Ports from which a switch still waits for an arrival, or for the release from above (trees only).
    pub missing: Vec<End>,
}

/// One barrier of a group, from the first arrival to the last release.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct EpisodeTimes {
    pub first_arrival: SimulatedTime,
    pub last_arrival: SimulatedTime,
    pub first_release: SimulatedTime,
    pub last_release: SimulatedTime,
    pub arrived: usize,
    pub released: usize,
    /// The result that the members received. `None`: not all members received the same result.
    pub result: Option<u8>,
}

impl Course {
    pub(super) fn new(members: usize, episodes: u16) -> Self {
        Self {
            episodes: vec![EpisodeTimes::default(); usize::from(episodes)],
            members,
            repetitions: 0,
            dropped: 0,
            unreleased: Vec::new(),
            missing: Vec::new(),
        }
    }

    pub(super) fn episodes(&self) -> u16 {
        u16::try_from(self.episodes.len()).expect("fits because it was made of 16 bits")
    }

    pub(super) fn arrived(&mut self, episode: u16, now: SimulatedTime) {
        let Some(episode) = self.episodes.get_mut(usize::from(episode)) else { return };
        if episode.arrived == 0 {
            episode.first_arrival = now;
        }
        episode.arrived += 1;
        episode.last_arrival = episode.last_arrival.max(now);
    }

    pub(super) fn released(&mut self, episode: u16, now: SimulatedTime, result: u8) {
        let Some(episode) = self.episodes.get_mut(usize::from(episode)) else { return };
        if episode.released == 0 {
            episode.first_release = now;
            episode.result = Some(result);
        }
        episode.result = episode.result.filter(|first| *first == result);
        episode.released += 1;
        episode.last_release = episode.last_release.max(now);
    }

    /// Returns the times of each barrier, in order.
    pub fn episode_times(&self) -> &[EpisodeTimes] {
        &self.episodes
    }

    /// Returns whether every member was released from every barrier.
    pub fn is_complete(&self) -> bool {
        self.unreleased.is_empty()
    }

    /// Returns the mean time from the last arrival to the last release, over the complete barriers, or `None`
    /// if no barrier is complete.
    pub fn latency(&self) -> Option<SimulatedTime> {
        let complete: Vec<SimulatedTime> = self
            .episodes
            .iter()
            .filter(|episode| episode.released == self.members)
            .map(|episode| episode.last_release.since(episode.last_arrival))
            .collect();
        let n = complete.len() as u64;
        (n > 0).then(|| complete.into_iter().sum::<SimulatedTime>() / n)
    }
}

#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Simulated {
    pub scheme: Scheme,
    /// Each group's course, in the order of the argument `barriers`.
    pub courses: Vec<Course>,
    /// The number of crossings of links, including the links to nodes.
    pub hops: u64,
    pub messages: u64,
    /// Start-ups as in Table 2 of the paper: messages that have to be sent, or received, one after the other.
    /// They are counted for one barrier of the first group, without repetitions.
    pub startups: u64,
    pub lost: u64,
    pub duplicated: u64,
    /// For each link between switches, the crossings from its end `a` and from its end `b`.
    pub links: Vec<(u32, u32)>,
    /// The channel with the most crossings.
    pub busiest: Option<Busiest>,
    pub events: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busiest {
    /// The start of the channel: a port of a switch, or a node.
    pub from: Result<End, NodeId>,
    pub crossings: u32,
}

impl Simulated {
    /// Returns the latency of the slowest group, or `None` if some group has no complete barrier.
    pub fn latency(&self) -> Option<SimulatedTime> {
        self.courses
            .iter()
            .map(Course::latency)
            .try_fold(SimulatedTime::ZERO, |max, one| one.map(|one| max.max(one)))
    }
}

pub(super) fn link_load(network: &SwitchNetwork, wiring: &Wiring, load: &[u32]) -> Vec<(u32, u32)> {
    let of = |end: End| load[wiring.out_of(end.switch, end.port).0 as usize];
    network.links().iter().map(|link| (of(link.a), of(link.b))).collect()
}

pub(super) fn busiest(wiring: &Wiring, load: &[u32]) -> Option<Busiest> {
    let (channel, crossings) = (0..)
        .zip(load)
        .filter(|(_, load)| **load > 0)
        .reduce(|max, one| if one.1 > max.1 { one } else { max })?;
    let from = match wiring.from(CableDirection(channel)) {
        PortPeer::Switch(end) => Ok(end),
        PortPeer::Node(node) => Err(node),
        PortPeer::Open => return None,
    };
    Some(Busiest { from, crossings: *crossings })
}
