//! The channel dependency graph, and the search for cycles in it: the proof that no message deadlocks (paper,
//! 4.2).
//!
//! A message that holds a resource and cannot continue waits for another resource; that is a dependency. If
//! the dependencies that can exist at the same time have no cycle, some message can always move.
//! - A normal message holds a channel and waits for the next channel of its route.
//! - A register waits for the arrivals of its children, then for the channel to its parent; on the way down
//!   it waits for its parent's release, then for the channels to its children. The root's release waits for
//!   its arrivals.
//! - A synchronization message in a channel waits for no resource: the register at its end has room for the
//!   whole message, and no other message is ever stored there. So barriers are harmless, whatever up and down
//!   directions their trees use.
//!
//! The three cases of the paper are three sets of dependencies: one barrier, several at once, and several
//! among normal messages. [`Storage::Channel`] is the counterexample: without room in the switch, messages of
//! several trees, or of one tree among normal messages, can block each other in a cycle, and the search finds
//! it.
//!
//! Cost: at most (ports)^2 dependencies for each switch for normal messages, linear in the tree for a
//! barrier; the search for a cycle is linear in the dependencies.

use super::{Direction, RoutingChannel, UpDown, channel};
use crate::{GroupId, SwitchId, SwitchNetwork, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// A resource that a message can hold or wait for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Resource {
    /// One direction of a link.
    Channel(RoutingChannel),
    /// The register of a group in a switch, while arrivals are combined.
    Reduction(GroupId, SwitchId),
    /// The register of a group in a switch, while the release is replicated.
    Distribution(GroupId, SwitchId),
}

/// Where a synchronization message waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// In the register, as a whole: the paper's scheme.
    Register,
    /// In the channels on its way, as a long message of wormhole routing would.
    Channel,
}

#[derive(Clone, Default, Debug)]
pub struct Dependencies {
    after: BTreeMap<Resource, Vec<Resource>>,
}

impl Dependencies {
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that a message that holds the first resource may wait for the second.
    pub fn add(&mut self, holds: Resource, waits: Resource) {
        self.after.entry(holds).or_default().push(waits);
    }

    pub fn len(&self) -> usize {
        self.after.values().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.after.is_empty()
    }

    /// Returns the number of channels and the number of registers that a message holds or waits for.
    pub fn resources(&self) -> (usize, usize) {
        let all: BTreeSet<Resource> =
            self.after.iter().flat_map(|(holds, waits)| waits.iter().chain([holds])).copied().collect();
        let channels = all.iter().filter(|one| matches!(one, Resource::Channel(_))).count();
        // `Reduction` and `Distribution` are two states of one register
        let register = |one: &Resource| match *one {
            Resource::Reduction(group, switch) | Resource::Distribution(group, switch) => {
                Some((group, switch))
            }
            Resource::Channel(_) => None,
        };
        (channels, all.iter().filter_map(register).collect::<BTreeSet<_>>().len())
    }

    /// Adds the dependencies of normal messages on every legal route: every channel depends on every next
    /// channel, except for a turn from down to up.
    pub fn normal_messages(&mut self, network: &SwitchNetwork, directions: &UpDown) {
        self.turns(network, |before, after| {
            directions.direction(network, before) == Direction::Up
                || directions.direction(network, after) == Direction::Down
        });
    }

    /// Adds the dependencies of normal messages on every turn that `allowed` accepts.
    pub fn turns(
        &mut self,
        network: &SwitchNetwork,
        allowed: impl Fn(RoutingChannel, RoutingChannel) -> bool,
    ) {
        for here in network.switches() {
            for comes in network.neighbours(here).iter().filter(|seen| seen.switch != here) {
                for goes in network.neighbours(here).iter().filter(|seen| seen.switch != here) {
                    let before = channel(network, comes.link, comes.switch);
                    let after = channel(network, goes.link, here);
                    // a message does not leave by the port at which it arrived
                    if comes.link != goes.link && allowed(before, after) {
                        self.add(Resource::Channel(before), Resource::Channel(after));
                    }
                }
            }
        }
    }

    /// Adds the dependencies of a barrier whose tree [`crate::check`] found sound.
    pub fn barrier(&mut self, network: &SwitchNetwork, tree: &Tree, storage: Storage) {
        let group = tree.group;
        for (switch, register) in &tree.registers {
            let by_port = |port| network.neighbour_at(*switch, port);
            let parent = register.parent.filter(|_| *switch != tree.root_switch).and_then(by_port);
            let (up, down) = (Resource::Reduction(group, *switch), Resource::Distribution(group, *switch));
            if parent.is_none() && storage == Storage::Register {
                self.add(down, up);
            }
            for child in register.children.iter().filter_map(|port| by_port(*port)) {
                let rises = Resource::Channel(channel(network, child.link, child.switch));
                let falls = Resource::Channel(channel(network, child.link, *switch));
                match (storage, parent) {
                    (Storage::Register, _) => {
                        let below = Resource::Reduction(group, child.switch);
                        self.add(up, below);
                        self.add(below, rises);
                        self.add(Resource::Distribution(group, child.switch), down);
                        self.add(down, falls);
                    }
                    (Storage::Channel, Some(parent)) => {
                        self.add(rises, Resource::Channel(channel(network, parent.link, *switch)));
                        self.add(Resource::Channel(channel(network, parent.link, parent.switch)), falls);
                    }
                    (Storage::Channel, None) => {}
                }
            }
        }
    }

    /// Searches for a cycle. In a cycle, each resource waits for the next, and the last for the first.
    pub fn cycle(&self) -> Option<Vec<Resource>> {
        // a depth-first search: a resource that is reached while it is on the current path closes a cycle
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            OnPath,
            Done,
        }
        let mut marks: BTreeMap<Resource, Mark> = BTreeMap::new();
        for start in self.after.keys() {
            if marks.contains_key(start) {
                continue;
            }
            let mut path: Vec<(Resource, usize)> = vec![(*start, 0)];
            marks.insert(*start, Mark::OnPath);
            while let Some((here, next)) = path.last_mut() {
                let Some(waits) = self.after.get(here).and_then(|all| all.get(*next)).copied() else {
                    marks.insert(*here, Mark::Done);
                    path.pop();
                    continue;
                };
                *next += 1;
                match marks.get(&waits) {
                    Some(Mark::OnPath) => {
                        let from = path.iter().position(|(on, _)| *on == waits).unwrap_or_default();
                        return Some(path[from..].iter().map(|(on, _)| *on).collect());
                    }
                    Some(Mark::Done) => {}
                    None => {
                        marks.insert(waits, Mark::OnPath);
                        path.push((waits, 0));
                    }
                }
            }
        }
        None
    }
}
