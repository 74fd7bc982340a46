//! Tests set-up with messages that an adversary repeats, drops and reorders.

use super::*;
use crate::plan::tests::families::network_and_group;
use crate::{BarrierGroup, PlanOptions, Port, Roots, SwitchNetwork, TreePlan, plan};
use proptest::prelude::*;
use std::collections::BTreeMap;

enum Letter {
    Request(SetupRequest),
    Reply(SetupReply),
}

struct World {
    banks: BTreeMap<SwitchId, Bank>,
    agents: Vec<SetupAgent>,
    letters: Vec<Letter>,
    sent: usize,
}

impl World {
    fn new(network: &SwitchNetwork, registers: usize) -> Self {
        let banks = network.switches().map(|switch| (switch, Bank::new(registers))).collect();
        Self { banks, agents: Vec::new(), letters: Vec::new(), sent: 0 }
    }

    fn begin(&mut self, network: &SwitchNetwork, group: &BarrierGroup, options: &PlanOptions, life: u32) {
        for &node in group.members() {
            // every member plans by itself
            let plan = plan(network, group, options).expect("members are connected");
            self.agents.push(SetupAgent::new(network, group, &plan, node, life));
        }
    }

    /// Runs until all agents are done. Each choice selects the next message in transit, and whether it is
    /// lost, delivered, or delivered and repeated.
    fn run(&mut self, mut choices: impl Iterator<Item = (usize, u8)>) {
        while !self.agents.iter().all(SetupAgent::is_done) {
            if self.letters.is_empty() {
                let requests = self.agents.iter().flat_map(SetupAgent::requests);
                self.letters.extend(requests.map(Letter::Request));
                self.sent += self.letters.len();
            }
            let (which, fate) = choices.next().unwrap_or((0, 9));
            let letter = self.letters.swap_remove(which % self.letters.len());
            match fate {
                0 => continue, // lost
                1 => self.letters.push(match &letter {
                    Letter::Request(request) => Letter::Request(request.clone()),
                    Letter::Reply(reply) => Letter::Reply(*reply),
                }),
                _ => {}
            }
            self.deliver(letter);
        }
    }

    fn deliver(&mut self, letter: Letter) {
        match letter {
            Letter::Request(request) => {
                let bank = self.banks.get_mut(&request.switch).expect("every switch has a bank");
                self.letters.push(Letter::Reply(bank.take(&request)));
            }
            Letter::Reply(reply) => self.agents.iter_mut().for_each(|agent| agent.take(&reply)),
        }
    }

    fn deliver_what_is_left(&mut self) {
        while let Some(letter) = self.letters.pop() {
            self.deliver(letter);
        }
    }

    fn in_memory(&self, group: &BarrierGroup) -> BTreeMap<SwitchId, NodeId> {
        let of_group = self.agents.iter().filter(|agent| agent.group() == group.id());
        of_group.flat_map(SetupAgent::in_memory).collect()
    }
}

fn holds(world: &World, group: &BarrierGroup, plan: &TreePlan) {
    for (switch, bank) in &world.banks {
        let register = bank.register(group.id()).map(|(register, _)| register);
        assert_eq!(register, plan.tree.registers.get(switch), "switch {}", switch.0);
    }
}

fn choices() -> impl Strategy<Value = Vec<(usize, u8)>> {
    proptest::collection::vec((any::<usize>(), 0u8..6), 0..400)
}

proptest! {
    #[test]
    fn all_members_together_set_up_the_central_plan_and_release_it(
        (network, group) in network_and_group(),
        first in choices(),
        second in choices(),
        roots in prop_oneof![Just(Roots::Members), Just(Roots::Any)],
    ) {
        let options = PlanOptions { roots, ..PlanOptions::default() };
        let plan = plan(&network, &group, &options).expect("the network is connected");
        let mut world = World::new(&network, 1);
        world.begin(&network, &group, &options, 1);
        world.run(first.into_iter());
        holds(&world, &group, &plan);
        world.agents.iter_mut().for_each(SetupAgent::release);
        world.run(second.into_iter());
        world.deliver_what_is_left();
        for bank in world.banks.values() {
            prop_assert_eq!((bank.free(), bank.register(group.id())), (1, None));
        }
    }

    #[test]
    fn groups_that_want_the_same_registers_all_get_a_place(
        (network, group) in network_and_group(),
        order in choices(),
        registers in 0usize..4,
        groups in 1u8..5,
    ) {
        let groups: Vec<BarrierGroup> = (0..groups)
            .map(|id| BarrierGroup::new(&network, GroupId(id), group.members().to_vec()).expect("as before"))
            .collect();
        let options = PlanOptions::default();
        let plan = plan(&network, &group, &options).expect("the network is connected");
        let mut world = World::new(&network, registers);
        for group in &groups {
            world.begin(&network, group, &options, 1);
        }
        world.run(order.into_iter());
        for group in &groups {
            holds(&world, group, &plan);
            for (switch, node) in world.in_memory(group) {
                prop_assert_eq!(network.switch_of(node), switch);
                prop_assert_eq!(world.banks[&switch].register(group.id()).and_then(|held| held.1), Some(node));
            }
        }
        for (switch, bank) in &world.banks {
            let wanted = if plan.tree.registers.contains_key(switch) { groups.len() } else { 0 };
            prop_assert_eq!(bank.free(), registers.saturating_sub(wanted));
        }
    }
}

proptest! {
    #[test]
    fn groups_that_set_up_in_turn_get_what_is_allotted_to_them(
        (network, group) in network_and_group(),
        registers in 0usize..4,
        groups in 1u8..5,
    ) {
        let groups: Vec<BarrierGroup> = (0..groups)
            .map(|id| BarrierGroup::new(&network, GroupId(id), group.members().to_vec()).expect("as before"))
            .collect();
        let options = PlanOptions::default();
        let plan = plan(&network, &group, &options).expect("the network is connected");
        let mut plans = vec![plan; groups.len()];
        let allotted = allot(&network, registers, groups.iter().zip(&mut plans));
        let mut world = World::new(&network, registers);
        for group in &groups {
            world.begin(&network, group, &options, 1);
            world.run(std::iter::empty());
        }
        let refused = world.agents.iter().find_map(|agent| agent.refused().map(|_| agent.group().0));
        prop_assert_eq!(allotted.err().map(|no_place| no_place.group), refused);
        if refused.is_none() {
            for (group, plan) in groups.iter().zip(&plans) {
                prop_assert_eq!(world.in_memory(group), plan.in_memory.clone());
            }
        }
    }
}

#[test]
fn each_switch_is_asked_for_once() {
    // The members are at switches 0, 3 and 5; switches 1, 2 and 4 are on the way between them.
    let links = [(0, 1), (1, 2), (2, 3), (1, 4), (4, 5)];
    let network = crate::plan::tests::network(6, &links, &[0, 1, 2, 3, 3, 4, 5]);
    let members = [0, 3, 4, 6].map(NodeId).to_vec();
    let group = BarrierGroup::new(&network, GroupId(9), members).expect("all exist");
    let mut world = World::new(&network, 1);
    world.begin(&network, &group, &PlanOptions::default(), 1);
    world.run(std::iter::empty());
    assert_eq!(world.sent, 6);
    let asked: Vec<_> =
        world.agents.iter().map(|agent| agent.duties().map(|switch| switch.0).collect::<Vec<_>>()).collect();
    assert_eq!(asked, [vec![0, 1, 2, 4], vec![3], vec![], vec![5]]);
}

#[test]
fn a_request_that_comes_after_its_release_brings_nothing_back() {
    let register = Register { parent: Some(Port(0)), children: vec![], locals: vec![] };
    let set = RegisterOrder::Set { register, keeper: None };
    let request = |life, order: &RegisterOrder| SetupRequest {
        group: GroupId(1),
        life,
        from: NodeId(0),
        switch: SwitchId(0),
        order: order.clone(),
    };
    let mut bank = Bank::new(1);
    assert_eq!(bank.take(&request(1, &set)).answer, SetupAnswer::InSwitch);
    assert_eq!(bank.take(&request(1, &RegisterOrder::Release)).answer, SetupAnswer::Released);
    assert_eq!(bank.take(&request(1, &set)).answer, SetupAnswer::Released);
    assert_eq!(bank.free(), 1);
    assert_eq!(bank.take(&request(2, &set)).answer, SetupAnswer::InSwitch);
    assert_eq!(bank.take(&request(1, &RegisterOrder::Release)).answer, SetupAnswer::Released);
    assert_eq!(bank.free(), 0, "the second life holds it");
}

#[test]
fn a_switch_without_nodes_and_free_registers_refuses() {
    // Switch 1 has no node. Two groups, both with members at switches 0 and 2, request its only register.
    let network = crate::plan::tests::network(3, &[(0, 1), (1, 2)], &[0, 2]);
    let group =
        |id| BarrierGroup::new(&network, GroupId(id), vec![NodeId(0), NodeId(1)]).expect("both exist");
    let mut world = World::new(&network, 1);
    world.begin(&network, &group(0), &PlanOptions::default(), 1);
    world.run(std::iter::empty());
    world.begin(&network, &group(1), &PlanOptions::default(), 1);
    world.run(std::iter::empty());
    let refused: Vec<_> = world.agents.iter().map(SetupAgent::refused).collect();
    assert_eq!(refused, [None, None, Some(SwitchId(1)), None]);
    assert_eq!(world.in_memory(&group(1)), [(SwitchId(0), NodeId(0)), (SwitchId(2), NodeId(1))].into());
}
