//! The options of `tree plan` and `tree simulate` that decide how trees are planned, and the planned trees.

use super::failures::Failures;
use super::input::Input;
use super::slow::Slow;
use crate::exit::Failure;
use crate::flags::one_of;
use std::collections::HashSet;
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::process::ExitCode;
use unisono_btin::setup::allot;
use unisono_btin::{
    BarrierGroup, Certainty, End, Loads, NetworkFile, PlanOptions, Roots, Scan, SwitchNetwork, Ties,
    TreePlan, plan, plan_watched,
};
use unisono_linux::interrupt;
use unisono_text::counted;

const SCAN: [(Scan, &str, &str); 2] = [
    (Scan::Queue, "queue", "Switches in the order in which the search reached them"),
    (Scan::Level, "level", "Switches of one level in the order of their numbers"),
];
const TIES: [(Ties, &str, &str); 2] = [
    (
        Ties::Fast,
        "fast",
        "At most a few dozen searches of the network; the output says what they do not prove",
    ),
    (
        Ties::Exact,
        "exact",
        "The paper's rule. In a regular network it searches from nearly every switch; Ctrl-C ends with the best tree so far",
    ),
];

#[derive(clap::Args)]
pub(crate) struct Planning {
    /// Choice of the parent among several switches: the first switch that the search reached (queue), or the
    /// switch with the lowest number (level)
    #[arg(long, value_parser = one_of(&SCAN), default_value = "queue")]
    scan: Scan,
    /// Not in the paper: let a switch without members be the root. Messages then turn around in the switch
    #[arg(long)]
    any_root: bool,
    /// Not in the paper: if there are several parents, take the one whose link carries the fewest trees. The
    /// file's groups are planned in their order
    #[arg(long)]
    share_links: bool,
    /// Number of registers of a switch. The file's groups take them in their order. When a switch has none
    /// left, the memory of a node at that switch holds the register [default: enough for all]
    #[arg(long, value_name = "N")]
    registers: Option<u16>,
    /// How to choose between roots whose trees have the same height and the same number of links: by the
    /// fewest leaves, then by the lowest number (exact), or by the lowest number alone (fast) [default:
    /// exact; fast from 20000 switches or 200000 links on]
    #[arg(long, value_parser = one_of(&TIES))]
    ties: Option<Ties>,
    /// The most threads to plan with. The tree is the same with any number [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    failures: Failures,
}

/// The groups for which trees are planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AskedGroups {
    One,
    /// All groups of the file.
    All,
}

/// A group and its tree.
pub(crate) struct PlannedGroup {
    pub(crate) group: BarrierGroup,
    pub(crate) plan: TreePlan,
    /// The rule that chose the root, and whether that choice is proved to be the best. `None` if links are
    /// shared or have failed.
    pub(crate) chosen: Option<(Ties, Certainty)>,
    /// The gain of `--any-root`, and the changes by failures: one line each.
    notes: String,
}

/// The trees, and the network that remains after the failures.
pub(crate) struct Trees {
    pub(crate) topology: NetworkFile,
    /// The number in the file of each remaining link.
    pub(crate) links: Vec<u32>,
    pub(crate) planned: Vec<PlannedGroup>,
    /// Number of members that no tree can reach after the failures.
    pub(crate) cut_off: usize,
    /// The effects of the options: one line each.
    pub(crate) notes: String,
}

impl Trees {
    /// Returns the exit code: 1 if failures cut off members, because the barrier is then not the one asked
    /// for.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::from(self.cut_off > 0))
    }
}

impl Planning {
    /// Plans the trees. It consumes the input, so that the text of a large network does not stay in memory
    /// beside the network.
    pub(crate) fn trees(&self, input: Input, asked: AskedGroups) -> anyhow::Result<Trees> {
        let one = input.group()?.clone();
        let wrong = |problem: String| Failure::Usage(format!("{}: {problem}", input.name));
        let options = self.options(&input.topology.network);
        // the other groups of the file matter only if they use links or registers, too
        let matter = asked == AskedGroups::All || self.share_links || self.registers.is_some();
        let groups: Vec<BarrierGroup> = if matter { input.groups()?.to_vec() } else { vec![one.clone()] };
        let groups: Vec<&BarrierGroup> = groups.iter().collect();
        let mut topology = input.topology;
        let whole = self.failures.any().then(|| topology.clone());

        let mut notes = String::new();
        let plans = if self.share_links {
            let plans = self.shared(&topology, &groups, &mut notes).map_err(wrong)?;
            plans.into_iter().map(|plan| (plan, None)).collect()
        } else {
            let each = groups.iter().map(|group| {
                let (plan, sure) = planned(&topology.network, group, &options)?;
                Ok((plan, Some((options.ties, sure))))
            });
            each.collect::<Result<Vec<_>, _>>().map_err(wrong)?
        };
        let planned = groups.into_iter().zip(plans);
        let mut planned: Vec<PlannedGroup> = planned
            .map(|(group, (plan, chosen))| {
                let notes = chosen.map_or_else(String::new, |(ties, sure)| choice(ties, sure, plan.height));
                PlannedGroup { group: group.clone(), plan, chosen, notes }
            })
            .collect();
        if self.any_root {
            for PlannedGroup { group, plan, notes, .. } in &mut planned {
                notes.push_str(&self.against_members(&topology, group, plan).map_err(wrong)?);
            }
        }
        let mut links: Vec<u32> = (0..).take(topology.network.links().len()).collect();
        let mut cut_off = 0;
        if let Some(whole) = &whole {
            for planned in &mut planned {
                let group = &planned.group;
                let (after, notes) = self.failures.repair(whole, group, &planned.plan, &options)?;
                let notes = format!("{}{notes}", planned.notes);
                cut_off += after.cut_off.len();
                *planned = PlannedGroup { group: after.group, plan: after.plan, chosen: None, notes };
                topology.network = after.network;
            }
            let left: HashSet<End> = topology.network.links().iter().map(|link| link.a).collect();
            links.retain(|link| left.contains(&whole.network.links()[*link as usize].a));
        }
        if let Some(registers) = self.registers {
            let groups = planned.iter_mut().map(|planned| (&planned.group, &mut planned.plan));
            allot(&topology.network, registers.into(), groups).map_err(|error| wrong(error.to_string()))?;
        }
        topology.groups = planned.iter().map(|planned| planned.group.clone()).collect();
        if asked == AskedGroups::One {
            planned.retain(|planned| planned.group.id() == one.id());
        }
        let several = planned.len() > 1;
        for PlannedGroup { group, plan, notes: repair, .. } in &planned {
            let whose = if several { format!("group {}: ", group.id().0) } else { String::new() };
            for line in repair.lines() {
                let _ = writeln!(notes, "{whose}{line}");
            }
            if !plan.in_memory.is_empty() {
                let _ = writeln!(notes, "{whose}{}", in_memory(&topology, plan));
            }
        }
        Ok(Trees { topology, links, planned, cut_off, notes })
    }

    fn options(&self, network: &SwitchNetwork) -> PlanOptions {
        let mut options = PlanOptions::default();
        options.scan = self.scan;
        options.ties = self.ties.unwrap_or_else(|| Ties::usual(network));
        options.threads = self.threads;
        options.roots = if self.any_root { Roots::Any } else { Roots::Members };
        options
    }

    /// Compares the tree with the best tree whose root switch has members, and describes the gain.
    fn against_members(
        &self,
        topology: &NetworkFile,
        group: &BarrierGroup,
        any: &TreePlan,
    ) -> Result<String, String> {
        let mut options = self.options(&topology.network);
        options.roots = Roots::Members;
        let (paper, _) = planned(&topology.network, group, &options)?;
        let root = |plan: &TreePlan| format!("switch {}", topology.switch_shown(plan.tree.root_switch));
        Ok(format!(
            "any root: height {} and {} from {}; without --any-root height {} and {} from {}\n",
            any.height,
            counted(any.edges, "link"),
            root(any),
            paper.height,
            counted(paper.edges, "link"),
            root(&paper),
        ))
    }

    /// Plans each group over the links that carry the fewest trees. Appends to `notes` by how much the load
    /// of the busiest link is reduced.
    fn shared(
        &self,
        topology: &NetworkFile,
        groups: &[&BarrierGroup],
        notes: &mut String,
    ) -> Result<Vec<TreePlan>, String> {
        let (network, options) = (&topology.network, self.options(&topology.network));
        let (mut shared, mut plain) = (Loads::new(network), Loads::new(network));
        let mut plans = Vec::with_capacity(groups.len());
        for group in groups {
            let wrong = |error| format!("group {}: {error}", group.id().0);
            plans.push(shared.plan(network, group, &options).map_err(wrong)?);
            plain.add(network, &plan(network, group, &options).map_err(wrong)?.tree);
        }
        let busiest = |loads: &Loads| loads.links().iter().max().copied().unwrap_or(0);
        let _ = writeln!(
            notes,
            "busiest link: {} of {}, without --share-links {}",
            busiest(&shared),
            counted(groups.len(), "tree"),
            busiest(&plain)
        );
        Ok(plans)
    }
}

/// Plans one group. If that takes long, it shows progress, and from then on Ctrl-C stops the search, which
/// returns the best tree so far.
fn planned(
    network: &SwitchNetwork,
    group: &BarrierGroup,
    options: &PlanOptions,
) -> Result<(TreePlan, Certainty), String> {
    let mut slow = Slow::new();
    let planned = plan_watched(network, group, options, &mut |done, all| {
        if slow.planning(done, all) {
            // if no handler can be installed, Ctrl-C ends the program, as elsewhere
            let _ = interrupt::catch();
        }
        if interrupt::caught().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    if slow.end() {
        // restores the default action, because later code does not check for signals
        let _ = interrupt::usual();
    }
    planned.map_err(|error| error.to_string())
}

/// Returns the reasons for the choice of the root, one line each; empty if the paper's rule chooses that
/// root.
fn choice(ties: Ties, sure: Certainty, height: u32) -> String {
    let mut notes = String::new();
    if ties == Ties::Fast {
        notes.push_str(
            "ties: fast: of the roots with the same height and number of links, the one with the lowest number was taken; \
             --ties exact takes the one with the fewest leaves\n",
        );
    }
    let open = counted(sure.open, "root") + if sure.open == 1 { " was" } else { " were" };
    if sure.stopped {
        let _ = writeln!(notes, "stopped: the best so far; {open} not measured");
    }
    if sure.min_height < height {
        let min_height = sure.min_height;
        let _ = writeln!(
            notes,
            "the height may not be the least: {open} not measured; no tree is lower than {min_height}"
        );
    } else if sure.open > 0 && !sure.stopped {
        let _ = writeln!(notes, "the height is the least; links may not be the fewest: {open} not measured");
    }
    notes
}

/// Lists the registers that are in the memory of a node instead of their switch.
fn in_memory(topology: &NetworkFile, plan: &TreePlan) -> String {
    const NAMED: usize = 8;
    let place = |(switch, node): (&_, &_)| {
        format!("switch {} in node {}", topology.switch_shown(*switch), topology.node_shown(*node))
    };
    let places: Vec<String> = plan.in_memory.iter().take(NAMED).map(place).collect();
    let more = plan.in_memory.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!(
        "{} of {} kept in nodes' memory: {}{more}",
        plan.in_memory.len(),
        counted(plan.tree.registers.len(), "register"),
        places.join(", ")
    )
}
