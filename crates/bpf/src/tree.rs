//! The tree of a group in a network in which links have failed: what the members and the deployment each find out by
//! themselves and have to agree on.
//!
//! The tree of the whole network is repaired around one failed link after the other
//! ([`repair`](unisono_btin::repair)): the root stays, and only what was cut off hangs elsewhere. Where that
//! leaves members without a way to the root, it is planned anew, and if that is impossible too, members are cut off.

use crate::deployment::leave_out;
use unisono_btin::repair::{Failure, Standing};
use unisono_btin::{Group, Network, Plan, PlanError, PlanOptions, plan};

/// The tree without these links, which failed in this order.
pub(crate) fn standing(network: &Network, group: &Group, without: &[u32]) -> Result<Plan, PlanError> {
    let whole = plan(network, group, &PlanOptions::default())?;
    if without.is_empty() {
        return Ok(whole);
    }
    if let Some(repaired) = repaired(network, group, &whole, without) {
        return Ok(repaired);
    }
    plan(&leave_out(network, without), group, &PlanOptions::default())
}

/// The same tree hung on again; none if members have no way to its root.
fn repaired(network: &Network, group: &Group, whole: &Plan, without: &[u32]) -> Option<Plan> {
    let mut standing = Standing::new(network, group, &whole.tree).ok()?;
    for link in without {
        if !standing.fail(Failure::Link(*link)).ok()?.cut_off.is_empty() {
            return None;
        }
    }
    Some(standing.plan())
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_btin::{End, GroupId, Link, NodeId, Port, SwitchId};

    /// A ring of six switches with a member each; link `at` joins `at` and the next.
    fn ring() -> (Network, Group) {
        let end = |switch, port| End { switch: SwitchId(switch), port: Port(port) };
        let links = (0..6).map(|at| Link { a: end(at, 0), b: end((at + 1) % 6, 1) }).collect();
        let nodes = (0..6).map(|at| end(at, 2)).collect();
        let network = Network::new(vec![3; 6], links, nodes).expect("each port is used once");
        let group = Group::new(&network, GroupId(0), (0..6).map(NodeId).collect()).expect("they exist");
        (network, group)
    }

    #[test]
    fn the_root_stays_and_only_what_was_cut_off_changes() {
        let (network, group) = ring();
        let whole = standing(&network, &group, &[]).expect("it is connected");
        assert_eq!((whole.tree.root_switch, whole.height), (SwitchId(0), 3));
        // 1 to 2 carries the branch that is two long (or three): 2 hangs below 3 now
        let without = standing(&network, &group, &[1]).expect("a line is left");
        assert_eq!((without.tree.root_switch, without.height), (SwitchId(0), 4));
        let same =
            |switch| whole.tree.registers[&SwitchId(switch)] == without.tree.registers[&SwitchId(switch)];
        assert!(same(0) && same(5) && !same(1) && !same(2));
        // planning anew would have moved the root to the middle of the line
        let anew = plan(&leave_out(&network, &[1]), &group, &PlanOptions::default()).expect("connected");
        assert_ne!(anew.tree.root_switch, SwitchId(0));
    }

    #[test]
    fn members_without_any_way_are_an_error() {
        let (network, group) = ring();
        assert!(matches!(standing(&network, &group, &[1, 4]), Err(PlanError::CutOff { .. })));
    }
}
