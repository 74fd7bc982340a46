//! Computes the tree of a group after several failures, one after the other. The tree is repaired as long as
//! its root can be kept, and planned anew otherwise.
//!
//! [`aftermath`], for `tree plan`, continues without members that no repair can reach, and reports them.
//! [`around_links`] is for a network in use (`tree deploy`). There every member computes the tree by itself,
//! so all members must get the same tree, and no member may be missing.

use super::{NetworkFailure, Repair, RepairError, StandingTree};
use crate::reach::Components;
use crate::{BarrierGroup, NodeId, PlanError, PlanOptions, SwitchNetwork, TreePlan, plan};

/// The group and its tree after several failures.
#[derive(Debug)]
#[non_exhaustive]
pub struct Aftermath {
    /// The repair after each failure, in order. `None`: the root had failed by then.
    pub repairs: Vec<Option<Repair>>,
    pub root: RootFate,
    /// The members that a tree can still reach.
    pub group: BarrierGroup,
    pub plan: TreePlan,
    /// The best tree in the remaining network; equal to `plan` if the root could not be kept.
    pub anew: TreePlan,
    /// The remaining network: the same switch and node numbers, but fewer links.
    pub network: SwitchNetwork,
    /// Members that no tree can reach, ascending.
    pub cut_off: Vec<NodeId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RootFate {
    Kept,
    /// The root switch failed, so the tree was planned anew.
    Failed,
    /// No member could reach the root switch any more, so the tree was planned anew.
    CutOff,
}

/// Applies all failures, one after the other, and repairs the planned tree or plans anew. Fails with
/// [`RepairError::NoSuch`] and [`RepairError::NoChild`] as [`StandingTree`] does, or with
/// [`RepairError::NobodyLeft`].
pub fn aftermath(
    network: &SwitchNetwork,
    group: &BarrierGroup,
    planned: &TreePlan,
    failures: &[NetworkFailure],
    options: &PlanOptions,
) -> Result<Aftermath, RepairError> {
    let mut standing = StandingTree::new(network, group, &planned.tree)?;
    let mut repairs = Vec::with_capacity(failures.len());
    for failure in failures {
        repairs.push(match standing.fail(*failure) {
            Ok(repair) => Some(repair),
            Err(RepairError::RootDied { .. } | RepairError::NoTree { .. }) => None,
            Err(error) => return Err(error),
        });
    }
    let mut cut_off: Vec<NodeId> =
        repairs.iter().flatten().flat_map(|repair| repair.cut_off.iter().copied()).collect();
    let root = match repairs.iter().all(Option::is_some) {
        false => RootFate::Failed,
        true if cut_off.len() == group.members().len() => RootFate::CutOff,
        true => RootFate::Kept,
    };
    let now = standing.network();
    let members = |keep: &dyn Fn(&NodeId) -> bool| {
        let kept = group.members().iter().copied().filter(|node| keep(node)).collect();
        BarrierGroup::new(&now, group.id(), kept).map_err(|_| RepairError::NobodyLeft)
    };
    if root != RootFate::Kept {
        let is_dead = |node: &NodeId| failures.contains(&NetworkFailure::Switch(network.switch_of(*node)));
        cut_off = Components::new(&now).cut_off(&now, &members(&|node| !is_dead(node))?);
        cut_off.extend(group.members().iter().filter(|node| is_dead(node)));
    }
    cut_off.sort_unstable();
    let left = members(&|node| cut_off.binary_search(node).is_err())?;
    let anew = plan(&now, &left, options).map_err(RepairError::Plan)?;
    let plan = if root == RootFate::Kept { standing.plan() } else { anew.clone() };
    Ok(Aftermath { repairs, root, group: left, plan, anew, network: now, cut_off })
}

/// Computes the tree of all members in the network without these links, which failed in this order. It plans
/// the tree of the whole network and repairs it around one link after the other, so that the root stays and
/// only the parts that were cut off move. If that would leave out a member, the tree is planned anew. Fails
/// with [`PlanError::CutOff`] if no tree can reach all members.
pub fn around_links(
    network: &SwitchNetwork,
    group: &BarrierGroup,
    failed: &[u32],
) -> Result<TreePlan, PlanError> {
    let whole = plan(network, group, &PlanOptions::default())?;
    let repaired = || {
        let mut standing = StandingTree::new(network, group, &whole.tree).ok()?;
        let all = failed.iter().all(|link| {
            standing.fail(NetworkFailure::Link(*link)).is_ok_and(|repair| repair.cut_off.is_empty())
        });
        all.then(|| standing.plan())
    };
    match repaired() {
        Some(repaired) => Ok(repaired),
        None => plan(&network.without_links(failed), group, &PlanOptions::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{End, GroupId, Port, SwitchId, SwitchLink};

    /// Makes a ring of six switches with a member each; link `at` joins `at` and the next.
    fn ring() -> (SwitchNetwork, BarrierGroup) {
        let end = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
        let links = (0..6).map(|at| SwitchLink { a: end(at, 0), b: end((at + 1) % 6, 1) }).collect();
        let nodes = (0..6).map(|at| end(at, 2)).collect();
        let network = SwitchNetwork::new(vec![3; 6], links, nodes).expect("each port is used once");
        let group =
            BarrierGroup::new(&network, GroupId(0), (0..6).map(NodeId).collect()).expect("they exist");
        (network, group)
    }

    #[test]
    fn the_root_stays_and_only_what_was_cut_off_changes() {
        let (network, group) = ring();
        let whole = around_links(&network, &group, &[]).expect("it is connected");
        assert_eq!((whole.tree.root_switch, whole.height), (SwitchId(0), 3));
        // link 1 is in the branch 0-1-2 (or 0-1-2-3); without it, 2 is a child of 3
        let without = around_links(&network, &group, &[1]).expect("a line is left");
        assert_eq!((without.tree.root_switch, without.height), (SwitchId(0), 4));
        let same =
            |switch| whole.tree.registers[&SwitchId(switch)] == without.tree.registers[&SwitchId(switch)];
        assert!(same(0) && same(5) && !same(1) && !same(2));
        // planning anew would have moved the root to the middle of the line
        let anew = plan(&network.without_links(&[1]), &group, &PlanOptions::default()).expect("connected");
        assert_ne!(anew.tree.root_switch, SwitchId(0));
    }

    #[test]
    fn members_without_any_way_are_an_error() {
        let (network, group) = ring();
        assert!(matches!(around_links(&network, &group, &[1, 4]), Err(PlanError::CutOff { .. })));
    }

    fn after(failures: &[NetworkFailure]) -> Result<Aftermath, RepairError> {
        let (network, group) = ring();
        let whole = plan(&network, &group, &PlanOptions::default()).expect("it is connected");
        aftermath(&network, &group, &whole, failures, &PlanOptions::default())
    }

    #[test]
    fn a_tree_without_its_root_is_planned_anew_for_the_members_that_are_left() {
        let kept = after(&[NetworkFailure::Link(1)]).expect("a line is left");
        assert_eq!((kept.root, kept.plan.height, kept.anew.height), (RootFate::Kept, 4, 3));
        let failed = after(&[NetworkFailure::Link(3), NetworkFailure::Switch(SwitchId(0))])
            .expect("two lines are left");
        assert_eq!((failed.root, failed.repairs.len()), (RootFate::Failed, 2));
        assert!(failed.repairs[0].is_some() && failed.repairs[1].is_none());
        assert_eq!(failed.cut_off, [0, 4, 5].map(NodeId));
        assert_eq!(failed.group.members(), [1, 2, 3].map(NodeId));
        let everything: Vec<NetworkFailure> =
            (0..6).map(|switch| NetworkFailure::Switch(SwitchId(switch))).collect();
        assert_eq!(after(&everything).expect_err("nobody is left"), RepairError::NobodyLeft);
    }
}
