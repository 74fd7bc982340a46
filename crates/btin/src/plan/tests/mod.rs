//! Compares plans with trees that were found by hand.

pub(crate) mod families;
mod oracle;
mod shapes;

use super::*;
use crate::GroupId;
pub(crate) use shapes::network;

pub(crate) fn everybody(network: &SwitchNetwork) -> BarrierGroup {
    let members = (0..).map(NodeId).take(network.nodes().len()).collect();
    BarrierGroup::new(network, GroupId(0), members).expect("all nodes exist")
}

fn planned(network: &SwitchNetwork, group: &BarrierGroup, scan: Scan) -> TreePlan {
    plan(network, group, &PlanOptions { scan, ..PlanOptions::default() }).expect("members are connected")
}

fn parents(network: &SwitchNetwork, plan: &TreePlan) -> Vec<(u32, u32)> {
    let mut parents = Vec::new();
    for (&switch, register) in &plan.tree.registers {
        let up = register.parent.and_then(|port| network.neighbour_at(switch, port));
        parents.extend(up.map(|up| (switch.0, up.switch.0)));
    }
    parents
}

#[test]
fn a_path_is_rooted_in_its_middle() {
    let network = network(5, &[(0, 1), (1, 2), (2, 3), (3, 4)], &[0, 1, 2, 3, 4]);
    let plan = planned(&network, &everybody(&network), Scan::Queue);
    assert_eq!((plan.tree.root_switch, plan.height, plan.edges, plan.leaves), (SwitchId(2), 2, 4, 2));
    assert_eq!(plan.tree.root_node, Some(NodeId(2)));
    assert_eq!(parents(&network, &plan), [(0, 1), (1, 2), (3, 2), (4, 3)]);
}

#[test]
fn a_switch_without_members_stays_only_where_it_is_on_the_way() {
    // Switch 1 joins the members at 0 and 2; the arm 3-4 has no member.
    let network = network(5, &[(0, 1), (1, 2), (1, 3), (3, 4)], &[0, 2, 4]);
    let group = BarrierGroup::new(&network, GroupId(3), vec![NodeId(0), NodeId(1)]).expect("both exist");
    let plan = planned(&network, &group, Scan::Queue);
    let kept: Vec<_> = plan.tree.registers.keys().map(|switch| switch.0).collect();
    assert_eq!((kept, plan.height, plan.leaves), (vec![0, 1, 2], 2, 1));
}

#[test]
fn the_two_scans_differ_in_who_is_whose_parent() {
    // By queue, the parent of switch 5 is switch 3, which is reached (from 1) before switch 2 is reached
    // (from 4). By level order, the parent is switch 2, which has the lower id.
    let links = [(0, 1), (0, 4), (1, 3), (4, 2), (3, 5), (2, 5)];
    let network = network(6, &links, &[0]);
    let graph = Graph::new(&network);
    let mut search = Search::new(&graph);
    let mut parent_of_5 = |scan| {
        search.run(&graph, 0, scan);
        search.kept_links(&[true; 6]).find(|&(_, child)| child == 5).expect("5 is reached").0
    };
    assert_eq!(parent_of_5(Scan::Queue), 3);
    assert_eq!(parent_of_5(Scan::Level), 2);
}

#[test]
fn of_parallel_links_the_parents_lowest_port_is_taken() {
    let at = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
    let links = vec![SwitchLink { a: at(0, 3), b: at(1, 0) }, SwitchLink { a: at(0, 1), b: at(1, 2) }];
    let network =
        SwitchNetwork::new(vec![4; 2], links, vec![at(0, 0), at(1, 3), at(0, 2)]).expect("it is sound");
    let plan = planned(&network, &everybody(&network), Scan::Queue);
    assert_eq!(plan.tree.root_node, Some(NodeId(0)));
    let root = &plan.tree.registers[&SwitchId(0)];
    assert_eq!(
        (root.parent, &root.children[..], &root.locals[..]),
        (Some(Port(0)), &[Port(1)][..], &[Port(2)][..])
    );
    let leaf = &plan.tree.registers[&SwitchId(1)];
    assert_eq!((leaf.parent, &leaf.locals[..]), (Some(Port(2)), &[Port(3)][..]));
}

#[test]
fn members_that_are_cut_off_are_an_error_that_names_the_first() {
    let network = network(3, &[(1, 2)], &[1, 0, 2]);
    let error = plan(&network, &everybody(&network), &PlanOptions::default()).expect_err("0 is by itself");
    assert_eq!(
        error.to_string(),
        "member 1 (switch 0) cannot be reached from member 0 (switch 1): cut off: 1 of 3 \
         members; connect the parts or leave those members out"
    );
}

#[test]
fn a_root_without_members_is_taken_only_where_it_is_allowed_and_better() {
    let star = network(4, &[(0, 3), (1, 3), (2, 3)], &[0, 1, 2]);
    let group = everybody(&star);
    assert_eq!(planned(&star, &group, Scan::Queue).height, 2);
    let any = PlanOptions { roots: Roots::Any, ..PlanOptions::default() };
    let best = plan(&star, &group, &any).expect("members are connected");
    assert_eq!((best.tree.root_switch, best.height), (SwitchId(3), 1));
    assert_eq!((best.tree.root_node, best.tree.registers[&SwitchId(3)].parent), (None, None));
}
