//! The registers of one switch: how many there are, and whose they are.

use super::{Answer, Order, Reply, Request};
use crate::{GroupId, NodeId, Register};
use std::collections::BTreeMap;

/// The registers of one switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bank {
    free: usize,
    held: BTreeMap<GroupId, Held>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Held {
    life: u32,
    place: Place,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    Switch(Register),
    Memory(NodeId, Register),
    /// Released, or refused: remembered so that a request that comes late is known to be late.
    Nowhere(Answer),
}

impl Bank {
    /// A switch with so many registers, all free.
    #[must_use]
    pub fn new(registers: usize) -> Self {
        Self { free: registers, held: BTreeMap::new() }
    }

    /// How many registers are free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free
    }

    /// A group's register, and the node that keeps it if it is not in the switch.
    #[must_use]
    pub fn register(&self, group: GroupId) -> Option<(&Register, Option<NodeId>)> {
        match &self.held.get(&group)?.place {
            Place::Switch(register) => Some((register, None)),
            Place::Memory(node, register) => Some((register, Some(*node))),
            Place::Nowhere(_) => None,
        }
    }

    /// Does as asked, once: asked again, it answers the same. A request of an earlier life than the switch
    /// has seen of that group is answered as released.
    pub fn take(&mut self, request: &Request) -> Reply {
        let Request { group, life, from, switch, ref order } = *request;
        let (known, answer) = match self.held.get(&group) {
            Some(held) if held.life > life => (true, Answer::Released),
            Some(held) if held.life == life => match (&held.place, order) {
                (Place::Nowhere(answer @ Answer::Released), _) => (true, *answer),
                (Place::Nowhere(answer), Order::Set { .. }) => (true, *answer),
                (Place::Switch(_), Order::Set { .. }) => (true, Answer::InSwitch),
                (Place::Memory(node, _), Order::Set { .. }) => (true, Answer::InMemory(*node)),
                (_, Order::Release) => (false, Answer::Released),
            },
            _ => (false, Answer::Released),
        };
        let answer = if known { answer } else { self.obey(group, life, order) };
        Reply { group, life, to: from, switch, answer }
    }

    fn obey(&mut self, group: GroupId, life: u32, order: &Order) -> Answer {
        if let Some(Held { place: Place::Switch(_), .. }) = self.held.remove(&group) {
            self.free += 1;
        }
        let (place, answer) = match order {
            Order::Release => (Place::Nowhere(Answer::Released), Answer::Released),
            Order::Set { register, .. } if self.free > 0 => {
                self.free -= 1;
                (Place::Switch(register.clone()), Answer::InSwitch)
            }
            Order::Set { register, keeper: Some(node) } => {
                (Place::Memory(*node, register.clone()), Answer::InMemory(*node))
            }
            Order::Set { keeper: None, .. } => (Place::Nowhere(Answer::Refused), Answer::Refused),
        };
        self.held.insert(group, Held { life, place });
        answer
    }
}
