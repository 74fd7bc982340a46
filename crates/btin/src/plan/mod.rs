//! For `unisono tree plan` and everything that needs a tree: chooses the tree and its root (paper, section
//! 3.1).
//!
//! A breadth-first tree over the whole network is grown from every member switch. Leaves without members are
//! removed until none are left. The tree with the least height is chosen; ties are broken by the fewest
//! edges, then by the fewest leaves, then by the lowest id of the root. The member at the lowest port of the
//! root switch is the root node.
//!
//! The paper says that switches are scanned in order of id. It does not say whether this order applies to all
//! switches of a level, or only to the neighbors of one switch. [`Scan`] offers both readings. Every switch
//! has the same depth by both, so heights are equal; but parents can differ, and so can the numbers of edges
//! and leaves.
//!
//! Read the files in this order: `search` grows one tree; `choose` finds the root; `fast` finds it with fewer
//! proofs; `registers` writes the result down. The other files make `choose` fast in networks with many tied
//! roots.
//!
//! Cost: see [`plan`]. Every member can plan by itself and gets the same tree, because no choice is random.

mod bits;
mod branches;
mod choose;
mod farthest;
mod fast;
mod graph;
mod lanes;
mod lean;
mod load;
mod registers;
mod search;
mod symmetry;
mod walk;
mod workers;

use crate::{BarrierGroup, NodeId, SwitchId, SwitchNetwork, Tree};
#[cfg(test)]
use crate::{End, Port, SwitchLink};
use choose::choose;
use graph::Graph;
pub use load::Loads;
pub(crate) use registers::members_at;
use search::{Search, TreeMeasure};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use unisono_text::counted;
use workers::{PlanWatch, Workers};

/// The order in which the breadth-first search visits switches. It decides the parent of a switch that has
/// several possible parents.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Scan {
    /// First in, first out; a switch's neighbors enter in order of id. The parent is the candidate that was
    /// reached first.
    #[default]
    Queue,
    /// Level by level, each level in order of id. The parent is the candidate with the lowest id.
    Level,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Roots {
    /// The member switches, as in the paper.
    #[default]
    Members,
    /// Every switch: beyond the paper. A root without members has no root node, so messages turn around in
    /// the switch. Between equal trees a root with members is preferred, because messages can then turn
    /// around at either place.
    Any,
}

/// The rule that decides between roots whose trees have the same height and the same number of links.
///
/// The comparison itself is the derived order of `RootChoice` (`choose.rs`) and of `TreeMeasure` in it
/// (`search.rs`). The shortcuts in the other files, which drop candidates unmeasured, rely on that order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ties {
    /// Fewest leaves, then member switches ([`Roots::Any`]), then the lowest number, as in the paper. In a
    /// regular network this takes searches from a large fraction of the switches.
    #[default]
    Exact,
    /// Member switches first, then the lowest number. This takes as long as a few dozen searches;
    /// [`Certainty`] states the gaps of the proof.
    Fast,
}

impl Ties {
    /// For a network with at least this many switches or [`MANY_LINKS`](Self::MANY_LINKS) links,
    /// [`usual`](Self::usual) returns [`Fast`](Self::Fast). In larger networks, the exact rule can take tens
    /// of seconds: 21 s for a 3-D torus of 97,000 switches, 24 s for a random 8-regular network of 100,000.
    /// Networks of 10,000 switches took 0.2 s. The limit between these sizes is an estimate.
    pub const MANY_SWITCHES: usize = 20_000;
    /// The same limit as [`MANY_SWITCHES`](Self::MANY_SWITCHES), for the number of links.
    pub const MANY_LINKS: usize = 200_000;

    pub fn usual(network: &SwitchNetwork) -> Self {
        let is_large =
            network.switch_count() >= Self::MANY_SWITCHES || network.links().len() >= Self::MANY_LINKS;
        if is_large { Self::Fast } else { Self::Exact }
    }
}

/// To which extent it is proved that no candidate has a better tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Certainty {
    /// A lower bound of all candidates' heights: the plan's height if that is proved to be the least.
    pub min_height: u32,
    /// The number of candidates whose trees may be lower, or as low with fewer links. 0: it is proved that no
    /// tree has a better height and number of links.
    pub open: usize,
    /// The caller stopped the search; the tree is the best of the trees measured by then.
    pub stopped: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct PlanOptions {
    pub scan: Scan,
    pub roots: Roots,
    /// The rule for roots whose trees have equal height and links.
    pub ties: Ties,
    /// The maximum number of threads. `None`: as many as the host can run at once. The tree is the same with
    /// any number. Small networks are planned on the caller's thread alone.
    pub threads: Option<NonZeroUsize>,
}

/// A tree, and the measures by which it was chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TreePlan {
    pub tree: Tree,
    /// The number of links from the root switch to the switch furthest from it.
    pub height: u32,
    pub edges: u32,
    /// The number of switches of the tree without a child switch; a root alone counts as one.
    pub leaves: u32,
    /// Switches without a free register, each with the local node whose memory holds the register instead.
    /// Each message that such a switch combines or replicates goes through that node.
    pub in_memory: BTreeMap<SwitchId, NodeId>,
}

impl TreePlan {
    /// Returns the child switches of a switch of the tree, in order of port.
    pub fn children<'a>(
        &'a self,
        network: &'a SwitchNetwork,
        switch: SwitchId,
    ) -> impl Iterator<Item = SwitchId> + use<'a> {
        let ports = self.tree.registers.get(&switch).map_or(&[][..], |register| &register.children);
        ports.iter().filter_map(move |port| Some(network.neighbour_at(switch, *port)?.switch))
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    #[error(
        "member {member} (switch {switch}) cannot be reached from member {from} (switch {from_switch}): \
         cut off: {cut_off} of {}; connect the parts or leave those members out",
        counted(members, "member")
    )]
    CutOff { member: u32, switch: u32, from: u32, from_switch: u32, cut_off: usize, members: usize },
}

/// Plans the best tree for a group.
///
/// Cost: near-linear in irregular networks. If very many roots are tied in height, planning takes one search
/// for each class of roots that symmetries distinguish (a few hundred in a regularly numbered torus or fat
/// tree), or, without symmetries, a few hundredths of a search for each root; by queue it also takes up to 2
/// GiB of memory, from 130,000 switches on. In this case, a group without members at some switches takes one
/// search for each root. Fails with [`PlanError::CutOff`] if the group's members are not connected.
pub fn plan(
    network: &SwitchNetwork,
    group: &BarrierGroup,
    options: &PlanOptions,
) -> Result<TreePlan, PlanError> {
    plan_watched(network, group, options, &mut |_, _| ControlFlow::Continue(())).map(|(plan, _)| plan)
}

/// Plans as [`plan`] does, and calls `watch` with the number of measured candidates and the number of all
/// candidates. This is for networks in which planning takes long: large, random, and nearly the same around
/// every switch. The numbers restart when the method of measuring changes. After `Break` the plan is the best
/// of the trees measured by then.
pub fn plan_watched(
    network: &SwitchNetwork,
    group: &BarrierGroup,
    options: &PlanOptions,
    watch: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<(TreePlan, Certainty), PlanError> {
    let graph = Graph::new(network);
    let members = MemberSwitches::new(network, group);
    let mut search = Search::new(&graph);
    search.run(&graph, members.switches[0], options.scan);
    reachable(network, group, &search)?;

    let candidates = match options.roots {
        Roots::Members => &members.switches[..],
        Roots::Any => search.reached(),
    };
    let workers = Workers::new(options.threads);
    let rule = (options.scan, options.ties);
    let (best, proof) = choose(
        &graph,
        &members,
        candidates,
        rule,
        (search.reached(), workers),
        &mut PlanWatch::new(watch),
    );
    search.run(&graph, best.root, options.scan);
    let TreeMeasure { height, edges, leaves } = search.shape(&members.is_member);
    let tree = registers::fill(network, group, &mut search, &members.is_member);
    Ok((TreePlan { tree, height, edges, leaves, in_memory: BTreeMap::new() }, proof))
}

struct MemberSwitches {
    switches: Vec<u32>,
    is_member: Vec<bool>,
}

impl MemberSwitches {
    fn new(network: &SwitchNetwork, group: &BarrierGroup) -> Self {
        let mut is_member = vec![false; network.switch_count()];
        let switches: Vec<u32> = group.member_switches(network).into_iter().map(|switch| switch.0).collect();
        for &switch in &switches {
            is_member[switch as usize] = true;
        }
        Self { switches, is_member }
    }
}

fn reachable(network: &SwitchNetwork, group: &BarrierGroup, search: &Search) -> Result<(), PlanError> {
    let place = |node: NodeId| network.switch_of(node);
    // The search began at the lowest member switch, and that need not be the switch of the lowest member.
    let here = search.has_reached(place(group.members()[0]).0);
    let other_side = |node: &&NodeId| search.has_reached(place(**node).0) != here;
    let Some(&member) = group.members().iter().find(other_side) else { return Ok(()) };
    let from = group.members()[0];
    Err(PlanError::CutOff {
        member: member.0,
        switch: place(member).0,
        from: from.0,
        from_switch: place(from).0,
        cut_off: group.members().iter().filter(other_side).count(),
        members: group.members().len(),
    })
}

#[cfg(test)]
pub(crate) mod tests;
