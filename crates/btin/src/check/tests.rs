//! Tests that the checker reports each rule that is broken on purpose, and that sound trees of random
//! networks pass.

use super::*;
use crate::generate::{NetworkOptions, Sparse, generate};
use crate::{GroupId, PlanOptions, SwitchLink, plan};
use proptest::prelude::*;

fn end(switch: u32, port: u16) -> End {
    End { switch: SwitchId(switch), port: Port(port) }
}

/// Makes five switches in a row, two links between the first two. Nodes 0 to 3 and 5 are members, node 4 is
/// not.
///
/// ```text
///   n0,n4      n1      -     n2,n5     n3
///     0 ======= 1 ----- 2 ----- 3 ----- 4
/// ```
fn network() -> SwitchNetwork {
    let link = |a, b| SwitchLink { a, b };
    let links = vec![
        link(end(0, 2), end(1, 2)),
        link(end(0, 3), end(1, 3)),
        link(end(1, 4), end(2, 4)),
        link(end(2, 5), end(3, 5)),
        link(end(3, 6), end(4, 6)),
    ];
    let nodes = vec![end(0, 0), end(1, 0), end(3, 0), end(4, 0), end(0, 1), end(3, 1)];
    SwitchNetwork::new(vec![8; 5], links, nodes).expect("it is sound")
}

fn group(network: &SwitchNetwork) -> BarrierGroup {
    BarrierGroup::new(network, GroupId(0), [0, 1, 2, 3, 5].map(NodeId).to_vec()).expect("they exist")
}

#[test]
fn what_a_file_says_about_its_tree_is_held_against_the_registers() {
    let options = NetworkOptions { switches: 12, nodes: 20, members: 9, ..NetworkOptions::default() };
    let topology = generate(&options).expect("there is such a network");
    let group = &topology.groups[0];
    let planned = plan(&topology.network, group, &PlanOptions::default()).expect("connected");
    let shape = check(&topology.network, group, &planned.tree, Rules::Optimal).expect("it is the planner's");
    let text = planned.to_json();
    let claiming = |key: &str, value: u32| {
        let text = format!("{},\"{key}\":{value}}}", text.trim_end().trim_end_matches('}').to_owned() + "}}");
        let (tree, claims) = Tree::with_claims(&text).expect("it is right");
        assert_eq!(tree, planned.tree);
        shape
            .is_as_claimed(&claims)
            .map_err(|broken| tree.locate(&text, broken.place, broken.to_string()).element)
    };
    for (key, is) in [("height", shape.height), ("edges", shape.edges), ("leaves", shape.leaves)] {
        assert_eq!((claiming(key, is), claiming(key, is + 77)), (Ok(()), Err(key.to_owned())));
    }
}

fn register(parent: u16, children: &[u16], locals: &[u16]) -> Register {
    let ports = |ports: &[u16]| ports.iter().copied().map(Port).collect();
    Register { parent: Some(Port(parent)), children: ports(children), locals: ports(locals) }
}

/// Makes a sound tree, rooted at switch 1. (A root at switch 3 gives the same height, 3, but switch 1 has the
/// lower number.)
fn sound() -> Tree {
    let registers = [
        (0, register(2, &[], &[0])),
        (1, register(0, &[2, 4], &[])),
        (2, register(4, &[5], &[])),
        (3, register(5, &[6], &[0, 1])),
        (4, register(6, &[], &[0])),
    ];
    let registers = registers.into_iter().map(|(switch, register)| (SwitchId(switch), register)).collect();
    Tree { group: GroupId(0), root_switch: SwitchId(1), root_node: Some(NodeId(1)), registers }
}

fn first_broken(change: impl FnOnce(&mut Tree)) -> (TreeRule, TreeElement) {
    let network = network();
    let mut tree = sound();
    change(&mut tree);
    let broken = check(&network, &group(&network), &tree, Rules::Optimal).expect_err("it was broken");
    (broken.rule, broken.place)
}

fn at(tree: &mut Tree, switch: u32) -> &mut Register {
    tree.registers.get_mut(&SwitchId(switch)).expect("all five have one")
}

#[test]
fn a_sound_tree_passes_and_is_measured() {
    let network = network();
    let shape = check(&network, &group(&network), &sound(), Rules::Optimal);
    assert_eq!(shape, Ok(TreeShape { height: 3, edges: 4, leaves: 2 }));
}

#[test]
fn every_rule_broken_on_purpose_is_the_one_named() {
    use TreeElement as E;
    use TreeRule as R;
    let named = |rule, element, change: &dyn Fn(&mut Tree)| assert_eq!(first_broken(change), (rule, element));
    let s = SwitchId;
    let ports = |ports: &[u16]| ports.iter().copied().map(Port).collect::<Vec<_>>();
    named(R::GroupMatches, E::Group, &|t| t.group = GroupId(1));
    let foreign = |t: &mut Tree| drop(t.registers.insert(s(5), register(0, &[], &[])));
    named(R::SwitchExists, E::Register(s(5)), &foreign);
    named(R::PortExists, E::Local(s(3), 2), &|t| at(t, 3).locals.push(Port(8)));
    named(R::Ascending, E::Child(s(1), 1), &|t| at(t, 1).children = ports(&[4, 2]));
    named(R::Ascending, E::Local(s(3), 1), &|t| at(t, 3).locals = ports(&[0, 0]));
    named(R::PortOnce, E::Local(s(1), 0), &|t| at(t, 1).locals = ports(&[4]));
    named(R::RootHasRegister, E::RootSwitch, &|t| drop(t.registers.remove(&s(1))));
    named(R::RootNodeAtRootPort, E::RootNode, &|t| t.root_node = Some(NodeId(4)));
    named(R::RootNodeAtRootPort, E::RootNode, &|t| t.root_node = Some(NodeId(9)));
    named(R::RootNodeAtRootPort, E::RootNode, &|t| t.root_node = Some(NodeId(0)));
    named(R::RootNodeAtRootPort, E::RootNode, &|t| t.root_node = None);
    named(R::OneRoot, E::Register(s(2)), &|t| at(t, 2).parent = None);
    // first, the port leads to the other one of the two parallel links; then, nothing is plugged into the
    // port
    named(R::ParentLinked, E::Parent(s(0)), &|t| at(t, 0).parent = Some(Port(3)));
    named(R::ParentLinked, E::Parent(s(0)), &|t| at(t, 0).parent = Some(Port(7)));
    named(R::ChildLinked, E::Child(s(1), 2), &|t| at(t, 1).children.push(Port(7)));
    let loose = |t: &mut Tree| at(t, 1).children = ports(&[2, 3, 4]);
    named(R::ChildLinked, E::Child(s(1), 1), &loose);
    named(R::LocalIsNode, E::Local(s(2), 0), &|t| at(t, 2).locals.push(Port(0)));
    named(R::LocalIsMember, E::Local(s(0), 1), &|t| at(t, 0).locals.push(Port(1)));
    named(R::EveryMember, E::Register(s(3)), &|t| at(t, 3).locals = ports(&[0]));
    let higher = |t: &mut Tree| {
        t.root_switch = s(0);
        t.root_node = Some(NodeId(0));
        t.registers.insert(s(0), register(0, &[2], &[]));
        t.registers.insert(s(1), register(2, &[4], &[0]));
    };
    named(R::LeastHeight, E::RootSwitch, &higher);
    let parallel = |t: &mut Tree| {
        at(t, 0).parent = Some(Port(3));
        at(t, 1).children = ports(&[3, 4]);
    };
    named(R::LowestParallel, E::Child(s(1), 0), &parallel);
}

#[test]
fn a_switch_with_neither_members_nor_children_is_named() {
    let network = network();
    let group = BarrierGroup::new(&network, GroupId(0), [0, 1].map(NodeId).to_vec()).expect("they exist");
    let mut tree = sound();
    tree.registers.remove(&SwitchId(3));
    tree.registers.remove(&SwitchId(4));
    at(&mut tree, 2).children.clear();
    let broken = check(&network, &group, &tree, Rules::Sound).expect_err("switch 2 is idle");
    assert_eq!((broken.rule, broken.place), (TreeRule::NoIdleLeaf, TreeElement::Register(SwitchId(2))));
}

#[test]
fn a_root_node_at_a_higher_port_than_need_be_breaks_only_the_optimal_rules() {
    let network = network();
    let group = BarrierGroup::new(&network, GroupId(0), [2, 5].map(NodeId).to_vec()).expect("they exist");
    let registers = [(SwitchId(3), register(1, &[], &[0]))].into_iter().collect();
    let tree = Tree { group: GroupId(0), root_switch: SwitchId(3), root_node: Some(NodeId(5)), registers };
    assert!(check(&network, &group, &tree, Rules::Sound).is_ok());
    let broken = check(&network, &group, &tree, Rules::Optimal).expect_err("port 0 is lower");
    assert_eq!(broken.rule, TreeRule::LowestRootPort);
}

#[test]
fn a_cycle_beside_the_tree_is_named() {
    // a triangle 1-2-3, which is not connected to switch 0
    let link = |a, b| SwitchLink { a, b };
    let links = vec![link(end(1, 0), end(2, 1)), link(end(2, 0), end(3, 1)), link(end(3, 0), end(1, 1))];
    let network = SwitchNetwork::new(vec![4; 4], links, vec![end(0, 0)]).expect("it is sound");
    let group = BarrierGroup::new(&network, GroupId(0), vec![NodeId(0)]).expect("it exists");
    let mut registers: std::collections::BTreeMap<_, _> =
        (1..4).map(|switch| (SwitchId(switch), register(1, &[0], &[]))).collect();
    registers.insert(SwitchId(0), register(0, &[], &[]));
    let tree = Tree { group: GroupId(0), root_switch: SwitchId(0), root_node: Some(NodeId(0)), registers };
    let broken = check(&network, &group, &tree, Rules::Sound).expect_err("it goes round");
    assert_eq!((broken.rule, broken.place), (TreeRule::Acyclic, TreeElement::Register(SwitchId(1))));
}

proptest! {
    #[test]
    fn planned_trees_pass_and_no_change_to_one_port_of_them_does(
        switches in 1..30_u32, members in 1..40_u32, seed: u64, choice: prop::sample::Index, port in 0..8_u16,
    ) {
        let options = NetworkOptions { switches, nodes: 2 * switches, members: members.min(2 * switches), seed, ..NetworkOptions::default() };
        let topology = generate(&NetworkOptions { sparse: Sparse::BareTree, ..options }).expect("it fits");
        let (network, group) = (&topology.network, &topology.groups[0]);
        let planned = plan(network, group, &PlanOptions::default()).expect("it is connected");
        let shape = check(network, group, &planned.tree, Rules::Optimal);
        prop_assert_eq!(shape, Ok(TreeShape { height: planned.height, edges: planned.edges, leaves: planned.leaves }));
        // replacing or dropping any one port breaks some rule
        let mut tree = planned.tree.clone();
        let places: Vec<_> = tree.registers.iter().flat_map(|(s, r)| places(*s, r)).collect();
        let (place, old) = places[choice.index(places.len())];
        let (switch, ports, at) = match place {
            TreeElement::Parent(switch) => (switch, None, 0),
            TreeElement::Child(switch, at) => (switch, Some(true), at),
            TreeElement::Local(switch, at) => (switch, Some(false), at),
            _ => unreachable!("places() makes no others"),
        };
        let register = tree.registers.get_mut(&switch).expect("it is from there");
        match ports {
            None => register.parent = (old != Port(port)).then_some(Port(port)),
            Some(children) => {
                let ports = if children { &mut register.children } else { &mut register.locals };
                if old == Port(port) {
                    ports.remove(at);
                } else {
                    ports[at] = Port(port);
                }
            }
        }
        prop_assert!(check(network, group, &tree, Rules::Sound).is_err(), "{:?} {:?}", place, port);
    }
}
