//! `--without-link` and `--without-switch`: repairs a tree after links and switches have failed.

use crate::exit::Failure;
use std::fmt::Write;
use unisono_btin::repair::{Aftermath, NetworkFailure, RepairError, RootFate, aftermath};
use unisono_btin::{BarrierGroup, NetworkFile, PlanOptions, SwitchId, TreePlan};
use unisono_text::counted;

/// The links and switches that fail after the tree is planned.
#[derive(clap::Args)]
pub(crate) struct Failures {
    /// Repair the tree after a link between these two switches, by number or name, has failed
    #[arg(long, value_name = "A:B")]
    without_link: Vec<String>,
    /// Repair the tree after this switch, by number or name, has failed
    #[arg(long, value_name = "SWITCH")]
    without_switch: Vec<String>,
}

impl Failures {
    pub(crate) fn any(&self) -> bool {
        !self.without_link.is_empty() || !self.without_switch.is_empty()
    }

    /// Lets the named links and switches fail one after the other. Returns the remaining network and tree,
    /// and remarks about them, one line each.
    pub(crate) fn repair(
        &self,
        topology: &NetworkFile,
        group: &BarrierGroup,
        planned: &TreePlan,
        options: &PlanOptions,
    ) -> anyhow::Result<(Aftermath, String)> {
        let (failures, names): (Vec<_>, Vec<_>) = self.named(topology)?.into_iter().unzip();
        let after =
            aftermath(&topology.network, group, planned, &failures, options).map_err(
                |error| match error {
                    RepairError::NobodyLeft => Failure::Usage(error.to_string()).into(),
                    error => anyhow::Error::from(error),
                },
            )?;
        let mut text = String::new();
        for (repair, name) in after.repairs.iter().zip(names) {
            let _ = match repair {
                Some(repair) => writeln!(
                    text,
                    "without {name}: {} to write, {} moved, height {}",
                    counted(repair.changed.len(), "register"),
                    counted(repair.moved, "switch"),
                    repair.height,
                ),
                None => writeln!(text, "without {name}: the root is gone, so the tree is planned anew"),
            };
        }
        if after.root == RootFate::CutOff {
            text.push_str("the root is cut off from all members, so the tree is planned anew\n");
        }
        let root = topology.switch_shown(after.anew.tree.root_switch);
        let _ = writeln!(text, "a new plan: root switch {root}, height {}", after.anew.height);
        if !after.cut_off.is_empty() {
            let names: Vec<String> = after.cut_off.iter().map(|node| topology.node_shown(*node)).collect();
            let _ = writeln!(
                text,
                "cut off for good: {} of {}: {}",
                names.len(),
                counted(group.members().len(), "member"),
                names.join(", ")
            );
        }
        Ok((after, text))
    }

    fn named(&self, topology: &NetworkFile) -> anyhow::Result<Vec<(NetworkFailure, String)>> {
        let mut failures = Vec::new();
        let mut used: Vec<u32> = Vec::new();
        for pair in &self.without_link {
            let (a, b) = pair.split_once(':').ok_or_else(|| {
                Failure::Usage(format!("--without-link {pair}: expected two switches, as 3:7"))
            })?;
            let (a, b) = (switch(topology, "--without-link", a)?, switch(topology, "--without-link", b)?);
            // if a pair of switches is named twice, its parallel links fail one after the other
            let link =
                topology.network.neighbours(a).iter().find(|n| n.switch == b && !used.contains(&n.link));
            let link = link.ok_or_else(|| {
                Failure::Usage(format!(
                    "--without-link {pair}: there is no such link, or not as many as named"
                ))
            })?;
            used.push(link.link);
            failures.push((NetworkFailure::Link(link.link), format!("link {pair}")));
        }
        for name in &self.without_switch {
            let at = switch(topology, "--without-switch", name)?;
            failures.push((NetworkFailure::Switch(at), format!("switch {name}")));
        }
        Ok(failures)
    }
}

fn switch(topology: &NetworkFile, flag: &str, name: &str) -> anyhow::Result<SwitchId> {
    let found = topology.network.switches().find(|switch| topology.switch_name(*switch) == name);
    let labelled = || Some(SwitchId(u32::try_from(topology.switch_labels.only(name)?).ok()?));
    let number =
        || name.parse().ok().map(SwitchId).filter(|s| (s.0 as usize) < topology.network.switch_count());
    let missing = || Failure::Usage(format!("{flag} {name}: there is no such switch"));
    Ok(found.or_else(labelled).or_else(number).ok_or_else(missing)?)
}
