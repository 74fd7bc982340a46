//! The registers of one switch: their number, and the groups that they belong to.

use super::{RegisterOrder, SetupAnswer, SetupReply, SetupRequest};
use crate::{GroupId, NodeId, Register};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bank {
    free: usize,
    held: BTreeMap<GroupId, RegisterRecord>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct RegisterRecord {
    life: u32,
    place: RegisterHome,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum RegisterHome {
    Switch(Register),
    Memory(NodeId, Register),
    /// Released, or refused: remembered so that a late request is recognized as late.
    Nowhere(SetupAnswer),
}

impl Bank {
    pub fn new(registers: usize) -> Self {
        Self { free: registers, held: BTreeMap::new() }
    }

    pub fn free(&self) -> usize {
        self.free
    }

    /// Returns a group's register, and the node that keeps it if it is not in the switch.
    pub fn register(&self, group: GroupId) -> Option<(&Register, Option<NodeId>)> {
        match &self.held.get(&group)?.place {
            RegisterHome::Switch(register) => Some((register, None)),
            RegisterHome::Memory(node, register) => Some((register, Some(*node))),
            RegisterHome::Nowhere(_) => None,
        }
    }

    /// Executes a request once. A repeated request gets the same answer. The answer to a request of an
    /// earlier life of the group is `Released`.
    pub fn take(&mut self, request: &SetupRequest) -> SetupReply {
        let SetupRequest { group, life, from, switch, ref order } = *request;
        let (known, answer) = match self.held.get(&group) {
            Some(held) if held.life > life => (true, SetupAnswer::Released),
            Some(held) if held.life == life => match (&held.place, order) {
                (RegisterHome::Nowhere(answer @ SetupAnswer::Released), _) => (true, *answer),
                (RegisterHome::Nowhere(answer), RegisterOrder::Set { .. }) => (true, *answer),
                (RegisterHome::Switch(_), RegisterOrder::Set { .. }) => (true, SetupAnswer::InSwitch),
                (RegisterHome::Memory(node, _), RegisterOrder::Set { .. }) => {
                    (true, SetupAnswer::InMemory(*node))
                }
                (_, RegisterOrder::Release) => (false, SetupAnswer::Released),
            },
            _ => (false, SetupAnswer::Released),
        };
        let answer = if known { answer } else { self.obey(group, life, order) };
        SetupReply { group, life, to: from, switch, answer }
    }

    fn obey(&mut self, group: GroupId, life: u32, order: &RegisterOrder) -> SetupAnswer {
        if let Some(RegisterRecord { place: RegisterHome::Switch(_), .. }) = self.held.remove(&group) {
            self.free += 1;
        }
        let (place, answer) = match order {
            RegisterOrder::Release => (RegisterHome::Nowhere(SetupAnswer::Released), SetupAnswer::Released),
            RegisterOrder::Set { register, .. } if self.free > 0 => {
                self.free -= 1;
                (RegisterHome::Switch(register.clone()), SetupAnswer::InSwitch)
            }
            RegisterOrder::Set { register, keeper: Some(node) } => {
                (RegisterHome::Memory(*node, register.clone()), SetupAnswer::InMemory(*node))
            }
            RegisterOrder::Set { keeper: None, .. } => {
                (RegisterHome::Nowhere(SetupAnswer::Refused), SetupAnswer::Refused)
            }
        };
        self.held.insert(group, RegisterRecord { life, place });
        answer
    }
}
