//! The agent of one member, which sets up and releases registers of its group.

use super::{RegisterOrder, SetupAnswer, SetupReply, SetupRequest};
use crate::plan::members_at;
use crate::{BarrierGroup, GroupId, NodeId, Register, SwitchId, SwitchNetwork, TreePlan};
use std::collections::BTreeMap;

/// One member's part in the protocol: the registers that it sets up and releases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetupAgent {
    node: NodeId,
    group: GroupId,
    life: u32,
    phase: SetupPhase,
    /// The registers that this member sets up, by switch; empty if this member represents no switch.
    duties: BTreeMap<SwitchId, RegisterDuty>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SetupPhase {
    SettingUp,
    Releasing,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct RegisterDuty {
    register: Register,
    keeper: Option<NodeId>,
    answer: Option<SetupAnswer>,
}

impl SetupAgent {
    pub fn new(
        network: &SwitchNetwork,
        group: &BarrierGroup,
        plan: &TreePlan,
        node: NodeId,
        life: u32,
    ) -> Self {
        let here = network.switch_of(node);
        let mut switches = Vec::new();
        if representative(network, group, here) == Some(node) {
            switches.push(here);
            below(network, group, plan, here, &mut switches);
            let root = plan.tree.root_switch;
            let lowest = plan.tree.registers.keys().find(|switch| has_members(network, group, **switch));
            if !has_members(network, group, root) && lowest == Some(&here) {
                switches.push(root);
                below(network, group, plan, root, &mut switches);
            }
        }
        let duty = |switch: SwitchId| {
            let register = plan.tree.registers[&switch].clone();
            (switch, RegisterDuty { register, keeper: keeper(network, group, switch), answer: None })
        };
        let duties = switches.into_iter().map(duty).collect();
        Self { node, group: group.id(), life, phase: SetupPhase::SettingUp, duties }
    }

    /// Returns the requests that are not answered yet. The caller sends them at the beginning, and again
    /// after each timeout until there are none.
    pub fn requests(&self) -> Vec<SetupRequest> {
        let open = self.duties.iter().filter(|(_, duty)| duty.answer.is_none());
        let request = |(&switch, duty): (&SwitchId, &RegisterDuty)| {
            let order = match self.phase {
                SetupPhase::SettingUp => {
                    RegisterOrder::Set { register: duty.register.clone(), keeper: duty.keeper }
                }
                SetupPhase::Releasing => RegisterOrder::Release,
            };
            SetupRequest { group: self.group, life: self.life, from: self.node, switch, order }
        };
        open.map(request).collect()
    }

    /// Records an answer. Answers to earlier requests are ignored.
    pub fn take(&mut self, reply: &SetupReply) {
        if (reply.group, reply.life, reply.to) != (self.group, self.life, self.node) {
            return;
        }
        let about_release = reply.answer == SetupAnswer::Released;
        let Some(duty) = self.duties.get_mut(&reply.switch) else { return };
        if about_release == (self.phase == SetupPhase::Releasing) {
            duty.answer = Some(reply.answer);
        }
    }

    pub fn is_done(&self) -> bool {
        self.duties.values().all(|duty| duty.answer.is_some())
    }

    /// Returns the first switch that had no place for the register, if any. The group then cannot have its
    /// barrier in the switches, and has to be released.
    pub fn refused(&self) -> Option<SwitchId> {
        let refused = |(_, duty): &(&SwitchId, &RegisterDuty)| duty.answer == Some(SetupAnswer::Refused);
        self.duties.iter().find(refused).map(|(switch, _)| *switch)
    }

    /// Returns the registers of this member's switches that are in a node's memory. The union over all
    /// members is [`TreePlan::in_memory`].
    pub fn in_memory(&self) -> impl Iterator<Item = (SwitchId, NodeId)> + '_ {
        self.duties.iter().filter_map(|(switch, duty)| match duty.answer {
            Some(SetupAnswer::InMemory(node)) => Some((*switch, node)),
            _ => None,
        })
    }

    /// Returns the switches whose registers this member sets up, ascending.
    pub fn duties(&self) -> impl Iterator<Item = SwitchId> + '_ {
        self.duties.keys().copied()
    }

    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Releases registers after the tree has changed: from now on this agent requests the release of its
    /// registers for which `kept` is false.
    pub fn release_unless(&mut self, kept: impl Fn(SwitchId) -> bool) {
        self.duties.retain(|switch, _| !kept(*switch));
        self.release();
    }

    /// Ends the group: from now on, [`requests`](Self::requests) returns requests for release.
    pub fn release(&mut self) {
        if self.phase == SetupPhase::SettingUp {
            self.phase = SetupPhase::Releasing;
            self.duties.values_mut().for_each(|duty| duty.answer = None);
        }
    }
}

fn representative(network: &SwitchNetwork, group: &BarrierGroup, switch: SwitchId) -> Option<NodeId> {
    members_at(network, group, switch).next().map(|(_, node)| node)
}

/// Returns the node that keeps a register if the switch has no room for it.
pub(super) fn keeper(network: &SwitchNetwork, group: &BarrierGroup, switch: SwitchId) -> Option<NodeId> {
    let any = || network.locals(switch).first().map(|(_, node)| *node);
    representative(network, group, switch).or_else(any)
}

fn has_members(network: &SwitchNetwork, group: &BarrierGroup, switch: SwitchId) -> bool {
    representative(network, group, switch).is_some()
}

/// Appends to `found` the switches without members below a switch, down to the next switches with members.
fn below(
    network: &SwitchNetwork,
    group: &BarrierGroup,
    plan: &TreePlan,
    switch: SwitchId,
    found: &mut Vec<SwitchId>,
) {
    let mut open = vec![switch];
    while let Some(switch) = open.pop() {
        for child in plan.children(network, switch) {
            if !has_members(network, group, child) {
                found.push(child);
                open.push(child);
            }
        }
    }
}
