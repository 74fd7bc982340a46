//! Links and switches that have failed since a tree was planned (`--without-link`, `--without-switch`).

use crate::exit::Failure;
use std::fmt::Write;
use unisono_btin::reach::Parts;
use unisono_btin::repair::{self, RepairError, Standing};
use unisono_btin::{Group, Network, NodeId, Plan, PlanOptions, SwitchId, Topology, plan};
use unisono_linux::counted::counted;

/// What fails after the tree is planned.
#[derive(clap::Args)]
pub(crate) struct Failures {
    /// Repair the tree after a link between these two switches, by number or name, has failed
    #[arg(long, value_name = "A:B")]
    without_link: Vec<String>,
    /// Repair the tree after this switch, by number or name, has failed
    #[arg(long, value_name = "SWITCH")]
    without_switch: Vec<String>,
}

/// What came of it for one group.
pub(crate) struct Outcome {
    /// The members that are left.
    pub(crate) group: Group,
    /// The tree as it is now.
    pub(crate) plan: Plan,
    /// The network as it is now: the same numbers, fewer links.
    pub(crate) network: Network,
    /// How many members no repair can reach.
    pub(crate) cut_off: usize,
    /// In words, a line each.
    pub(crate) said: String,
}

impl Failures {
    pub(crate) fn any(&self) -> bool {
        !self.without_link.is_empty() || !self.without_switch.is_empty()
    }

    /// Lets everything fail that was named, one after the other, and repairs or plans anew.
    pub(crate) fn repair(
        &self,
        topology: &Topology,
        group: &Group,
        planned: &Plan,
        options: &PlanOptions,
    ) -> anyhow::Result<Outcome> {
        let mut standing = Standing::new(&topology.network, group, &planned.tree)?;
        let mut said = String::new();
        let mut cut_off: Vec<NodeId> = Vec::new();
        let mut is_gone = false;
        for (failure, name) in self.named(topology)? {
            match standing.fail(failure) {
                Ok(repair) => {
                    let _ = writeln!(
                        said,
                        "without {name}: {} to write, {} moved, height {}",
                        counted(repair.changed.len(), "register"),
                        counted(repair.moved, "switch"),
                        repair.height,
                    );
                    cut_off.extend(repair.cut_off);
                }
                Err(RepairError::RootDied { .. } | RepairError::NoTree { .. }) => {
                    let _ = writeln!(said, "without {name}: the root is gone, so the tree is planned anew");
                    is_gone = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if !is_gone && cut_off.len() == group.members().len() {
            said.push_str("the root is cut off from all members, so the tree is planned anew\n");
            is_gone = true;
        }
        let network = standing.network();
        if is_gone {
            let dead: Vec<SwitchId> = self.switches(topology)?;
            let is_dead = |node: &NodeId| dead.contains(&topology.network.nodes()[node.0 as usize].switch);
            let alive = group.members().iter().copied().filter(|node| !is_dead(node));
            let living = Group::new(&network, group.id(), alive.collect()).map_err(|_| {
                Failure::Usage("no member is left: all are at switches that failed".to_owned())
            })?;
            cut_off = Parts::of(&network).cut_off(&network, &living);
            cut_off.extend(group.members().iter().filter(|node| is_dead(node)));
        }
        cut_off.sort_unstable();
        let left = group.members().iter().copied().filter(|node| !cut_off.contains(node)).collect();
        let left = Group::new(&network, group.id(), left)?;
        let anew = plan(&network, &left, options)?;
        let root = topology.switch_shown(anew.tree.root_switch);
        let _ = writeln!(said, "a new plan: root switch {root}, height {}", anew.height);
        if !cut_off.is_empty() {
            let names: Vec<String> = cut_off.iter().map(|node| topology.node_shown(*node)).collect();
            let _ = writeln!(
                said,
                "cut off for good: {} of {}: {}",
                names.len(),
                counted(group.members().len(), "member"),
                names.join(", ")
            );
        }
        let plan = if is_gone { anew } else { standing.plan() };
        Ok(Outcome { group: left, plan, network, cut_off: cut_off.len(), said })
    }

    fn switches(&self, topology: &Topology) -> anyhow::Result<Vec<SwitchId>> {
        self.without_switch.iter().map(|name| switch(topology, "--without-switch", name)).collect()
    }

    fn named(&self, topology: &Topology) -> anyhow::Result<Vec<(repair::Failure, String)>> {
        let mut failures = Vec::new();
        let mut used: Vec<u32> = Vec::new();
        for pair in &self.without_link {
            let (a, b) = pair.split_once(':').ok_or_else(|| {
                Failure::Usage(format!("--without-link {pair}: expected two switches, as 3:7"))
            })?;
            let (a, b) = (switch(topology, "--without-link", a)?, switch(topology, "--without-link", b)?);
            // Named twice, parallel links fail one after the other.
            let link =
                topology.network.neighbours(a).iter().find(|n| n.switch == b && !used.contains(&n.link));
            let link = link.ok_or_else(|| {
                Failure::Usage(format!(
                    "--without-link {pair}: there is no such link, or not as many as named"
                ))
            })?;
            used.push(link.link);
            failures.push((repair::Failure::Link(link.link), format!("link {pair}")));
        }
        for (at, name) in self.switches(topology)?.into_iter().zip(&self.without_switch) {
            failures.push((repair::Failure::Switch(at), format!("switch {name}")));
        }
        Ok(failures)
    }
}

fn switch(topology: &Topology, flag: &str, name: &str) -> anyhow::Result<SwitchId> {
    let found = topology.network.switches().find(|switch| topology.switch_name(*switch) == name);
    let labelled = || Some(SwitchId(u32::try_from(topology.switch_labels.only(name)?).ok()?));
    let number =
        || name.parse().ok().map(SwitchId).filter(|s| (s.0 as usize) < topology.network.switch_count());
    let missing = || Failure::Usage(format!("{flag} {name}: there is no such switch"));
    Ok(found.or_else(labelled).or_else(number).ok_or_else(missing)?)
}
