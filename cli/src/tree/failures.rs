//! `--without-link` and `--without-switch`: repairs a tree after links and switches have failed.

use crate::exit::Failure;
use std::fmt::Write;
use unisono_btin::repair::{Aftermath, NetworkFailure, RepairError, RootFate, aftermath};
use unisono_btin::{BarrierGroup, NetworkFile, PlanOptions, SwitchId, TreePlan};
use unisono_text::counted;

/// The links and switches that fail after the tree is planned.
#[derive(clap::Args)]
pub(crate) struct Failures {
    /// Repair the tree after a link between the switches A and B, by number or name, has failed: 3:7 or
    /// leaf1:spine1. Ports are not named: of parallel links the one at A's lowest port fails, and another one
    /// each time that the pair is repeated. Names may contain colons
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

    /// Lets the named links and switches fail one after the other. Returns the network and the tree that
    /// remain, and remarks about them, one line each.
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
            let (a, b) = link_ends(topology, pair)?;
            // if a pair of switches is named twice, its parallel links fail one after the other
            let link =
                topology.network.neighbours(a).iter().find(|n| n.switch == b && !used.contains(&n.link));
            let link = link.ok_or_else(|| {
                let [here, there] = [a, b].map(|switch| topology.switch_shown(switch));
                let problem = match parallel_links(topology, a, b) {
                    0 => format!("switch {here} has no link to switch {there}"),
                    n => format!("switch {here} has only {} to switch {there}", counted(n, "link")),
                };
                Failure::Usage(format!("--without-link {pair}: {problem}; {}", links_at(topology, a)))
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

/// Finds the two switches of `A:B`. Names may contain colons, as InfiniBand labels do: the text is split at
/// the only colon that has the name of a switch on both sides.
fn link_ends(topology: &NetworkFile, pair: &str) -> anyhow::Result<(SwitchId, SwitchId)> {
    let flag = "--without-link";
    let colons: Vec<(&str, &str)> =
        pair.match_indices(':').map(|(at, _)| (&pair[..at], &pair[at + 1..])).collect();
    let ends =
        |(a, b): &(&str, &str)| Some((switch(topology, flag, a).ok()?, switch(topology, flag, b).ok()?));
    let found: Vec<(SwitchId, SwitchId)> = colons.iter().filter_map(ends).collect();
    match (&colons[..], &found[..]) {
        (_, [ends]) => Ok(*ends),
        ([], _) => {
            let links = switch(topology, flag, pair).map(|at| format!("; {}", links_at(topology, at)));
            let what = format!("{flag} {pair}: expected two switches, as 3:7 or leaf1:spine1");
            Err(Failure::Usage(what + &links.unwrap_or_default()).into())
        }
        ([(a, b)], _) => Ok((switch(topology, flag, a)?, switch(topology, flag, b)?)),
        (_, []) => {
            let what = format!("{flag} {pair}: no colon in it is between the names of two switches");
            Err(Failure::Usage(what).into())
        }
        (..) => {
            let what = format!(
                "{flag} {pair}: several colons are between names of switches; use the switches' numbers"
            );
            Err(Failure::Usage(what).into())
        }
    }
}

/// Returns the number of parallel links between two switches.
fn parallel_links(topology: &NetworkFile, a: SwitchId, b: SwitchId) -> usize {
    topology.network.neighbours(a).iter().filter(|n| n.switch == b).count()
}

/// Lists the links of a switch as `--without-link` takes them, for example `links of switch 0: 0:1, 0:2 (3
/// parallel links)`.
fn links_at(topology: &NetworkFile, at: SwitchId) -> String {
    const MAX_NAMED: usize = 12;
    let here = topology.switch_name(at);
    let mut far: Vec<SwitchId> = topology.network.neighbours(at).iter().map(|n| n.switch).collect();
    if far.is_empty() {
        return format!("switch {here} has no links");
    }
    far.sort_unstable();
    far.dedup();
    let named = far.iter().take(MAX_NAMED).map(|there| {
        let pair = format!("{here}:{}", topology.switch_name(*there));
        match parallel_links(topology, at, *there) {
            1 => pair,
            n => format!("{pair} ({n} parallel links)"),
        }
    });
    let named: Vec<String> = named.collect();
    let more = far.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("links of switch {here}: {}{more}", named.join(", "))
}

fn switch(topology: &NetworkFile, flag: &str, name: &str) -> anyhow::Result<SwitchId> {
    let found = topology.network.switches().find(|switch| topology.switch_name(*switch) == name);
    let labelled = || Some(SwitchId(u32::try_from(topology.switch_labels.only(name)?).ok()?));
    let number =
        || name.parse().ok().map(SwitchId).filter(|s| (s.0 as usize) < topology.network.switch_count());
    let missing = || {
        Failure::Usage(format!(
            "{flag} {name}: there is no such switch; the network has {} (counted from 0)",
            counted(topology.network.switch_count(), "switch")
        ))
    };
    Ok(found.or_else(labelled).or_else(number).ok_or_else(missing)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_btin::read::{Assume, read};

    #[test]
    fn names_with_colons_are_told_apart_by_the_switches_that_there_are() {
        let dot = "graph { \"ib:1\" -- \"ib:1:2\"; \"2\" -- \"ib:1\"; \"2:ib:1\" -- \"ib\" }";
        let (topology, _) = read(dot, None, &Assume::default()).expect("it is right");
        let named = |pair: &str| {
            link_ends(&topology, pair)
                .map(|(a, b)| [a, b].map(|switch| topology.switch_name(switch).to_owned()))
                .map_err(|error| error.to_string())
        };
        let names = |a: &str, b: &str| Ok([a.to_owned(), b.to_owned()]);
        assert_eq!(named("ib:1:ib:1:2"), names("ib:1", "ib:1:2"));
        assert_eq!(named("2:ib:1:ib"), names("2:ib:1", "ib"));
        assert!(named("x:y:z").is_err_and(|why| why.contains("no colon in it")));
        assert!(named("ib:x").is_err_and(|why| why.contains("x: there is no such switch")));
        assert!(named("ib").is_err_and(|why| why.contains("as 3:7") && why.contains("ib:2:ib:1")));
    }

    #[test]
    fn a_link_that_is_not_there_is_answered_with_the_links_of_the_switch() {
        let dot = "graph { leaf1 -- spine1; leaf1 -- spine1; leaf1 -- spine2; leaf2 -- spine2 }";
        let (topology, _) = read(dot, None, &Assume::default()).expect("it is right");
        let named = |pairs: &[&str]| {
            let without_link = pairs.iter().map(|pair| (*pair).to_owned()).collect();
            let failures = Failures { without_link, without_switch: Vec::new() }.named(&topology);
            failures.map(|failures| failures.len()).map_err(|error| error.to_string())
        };
        let links = "links of switch leaf1: leaf1:spine1 (2 parallel links), leaf1:spine2";
        let missing = |problem: &str| Err(format!("{problem}; {links}"));
        assert_eq!(named(&["leaf1:spine1", "leaf1:spine1", "spine2:leaf1"]), Ok(3));
        assert_eq!(
            named(&["leaf1:leaf2"]),
            missing("--without-link leaf1:leaf2: switch leaf1 has no link to switch leaf2")
        );
        assert_eq!(
            named(&["leaf1:spine1"; 3]),
            missing("--without-link leaf1:spine1: switch leaf1 has only 2 links to switch spine1")
        );
        assert_eq!(
            named(&["leaf1"]),
            missing("--without-link leaf1: expected two switches, as 3:7 or leaf1:spine1")
        );
    }
}
