//! For `unisono tree plan --registers N`: computes which registers find room in their switches, without
//! messages. The result is the same as for groups that set up one after the other.
//!
//! Cost: one look-up for every register. When not to use it: groups that set up at the same time take
//! registers in the order in which their messages arrive; then only the agents know the result.

use super::agent::keeper;
use super::{Bank, RegisterOrder, SetupAnswer, SetupRequest};
use crate::{BarrierGroup, GroupId, SwitchId, SwitchNetwork, TreePlan};
use std::collections::BTreeMap;

/// A register without a place in its switch or in a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "switch {switch} has no register left for group {group}, and no node whose memory could keep it; give switches \
     more registers, or plan fewer groups"
)]
#[non_exhaustive]
pub struct NoPlace {
    pub switch: u32,
    pub group: u8,
}

/// Gives the groups their registers, one group after the other, and records in each plan the registers that
/// are in a node's memory. Each switch has `registers` registers.
pub fn allot<'a>(
    network: &SwitchNetwork,
    registers: usize,
    groups: impl IntoIterator<Item = (&'a BarrierGroup, &'a mut TreePlan)>,
) -> Result<(), NoPlace> {
    let mut banks: BTreeMap<SwitchId, Bank> = BTreeMap::new();
    for (group, plan) in groups {
        plan.in_memory.clear();
        for (&switch, register) in &plan.tree.registers {
            let GroupId(id) = group.id();
            let order =
                RegisterOrder::Set { register: register.clone(), keeper: keeper(network, group, switch) };
            let from = group.members()[0];
            let request = SetupRequest { group: group.id(), life: 1, from, switch, order };
            let bank = banks.entry(switch).or_insert_with(|| Bank::new(registers));
            match bank.take(&request).answer {
                SetupAnswer::InSwitch | SetupAnswer::Released => {}
                SetupAnswer::InMemory(node) => {
                    plan.in_memory.insert(switch, node);
                }
                SetupAnswer::Refused => return Err(NoPlace { switch: switch.0, group: id }),
            }
        }
    }
    Ok(())
}
