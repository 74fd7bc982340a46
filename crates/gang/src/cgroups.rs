//! The control groups that gangs live in: in each hierarchy that is needed, one parent group for this
//! scheduler and in it one group per gang.
//!
//! ```text
//!   version 2 (or v1 freezer)   unisono-PID-…/gang-1, gang-2   freeze, list threads, count time
//!   cpu (v1 or v2)              unisono-PID-…/gang-1, gang-2   weight against others, idle for backfill
//!   pids (v1 or v2)             unisono-PID-…/gang-1, gang-2   bound on the number of threads
//! ```
//!
//! If this process runs as root, the parent is at the top of a hierarchy, so that its weight counts against
//! all other programs. If this process's own group or one of its ancestors has a quota, the parent is inside
//! that group instead, so that the quota also limits the gangs.
//!
//! If all controllers are in version 2, these groups of a gang are the same directory. Programs join before
//! their first instruction, so all their threads and children are inside. The journal lists each group before
//! this module makes it.

use crate::error::{Error, GangHint, Result};
use crate::gang::GangId;
use crate::journal::{GangJournal, UndoEntry};
use crate::steering::Steering;
use std::fs::File;
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, ControlGroup, hierarchies};
use unisono_linux::quota;

#[derive(Clone, Debug)]
pub struct GangGroups {
    /// The group that freezes the gang, lists its threads and counts their time.
    pub control: ControlGroup,
    /// The group with the gang's weight, if this process can use the `cpu` controller.
    pub cpu: Option<ControlGroup>,
    /// The group that bounds the gang's number of threads, if this process can use the `pids` controller.
    pub pids: Option<ControlGroup>,
}

impl GangGroups {
    /// Opens the `cgroup.procs` files through which a process joins all of these groups.
    pub fn procs_files(&self) -> Result<Vec<File>> {
        let mut seen: Vec<&ControlGroup> = Vec::new();
        for group in [Some(&self.control), self.cpu.as_ref(), self.pids.as_ref()].into_iter().flatten() {
            if !seen.contains(&group) {
                seen.push(group);
            }
        }
        Ok(seen.into_iter().map(ControlGroup::open_procs).collect::<std::result::Result<_, _>>()?)
    }
}

/// Whether gangs get a weight, and which programs it counts against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weighing {
    /// No `cpu` groups (the real-time classes are refused inside them).
    None,
    /// This fraction of contended processor time for the gangs together, the rest for other programs.
    Share(f64),
}

#[derive(Clone, Copy, Debug)]
pub struct CgroupPlan {
    pub gangs: usize,
    /// The weight of the gangs against other programs.
    pub weighing: Weighing,
    /// Maximum number of threads of a gang.
    pub max_threads: u32,
    pub cores: usize,
}

#[derive(Debug)]
pub struct GangCgroups {
    /// The gangs' groups, by [`GangId`].
    pub gangs: Vec<GangGroups>,
    /// The parent group of all gangs in the hierarchy that freezes them and counts their time.
    pub control: ControlGroup,
    /// The group of all gangs, whose weight counts against other programs.
    pub scale: Option<ControlGroup>,
    /// Features that this host lacks, in words.
    pub missing: Vec<String>,
}

/// The parent group in one hierarchy in use.
struct ServedHierarchy {
    parent: ControlGroup,
}

impl GangCgroups {
    /// Makes the groups. Fails with [`Error::Host`] if no hierarchy lets this process make groups that can be
    /// frozen and listed.
    pub fn build(plan: &CgroupPlan, journal: &mut GangJournal) -> Result<GangCgroups> {
        let all = hierarchies()?;
        let mut missing = Vec::new();
        let control = control_tree(&all, journal)?;
        let weighed = match plan.weighing {
            Weighing::None => None,
            Weighing::Share(share) => {
                let tree = tree_for(&all, "cpu", &control, journal);
                match tree.and_then(|tree| weigh(&tree, share, plan.cores).map(|()| tree)) {
                    Ok(tree) => Some(tree),
                    Err(reason) => {
                        missing.push(format!("no weight against other programs and no backfill: {reason}"));
                        None
                    }
                }
            }
        };
        let bounded = match tree_for(&all, "pids", &control, journal) {
            Ok(tree) => Some(tree),
            Err(reason) => {
                missing.push(format!("no bound on the number of threads: {reason}"));
                None
            }
        };
        let mut gangs = Vec::new();
        for gang in 0..plan.gangs {
            let name = format!("gang-{}", gang + 1);
            let make = |tree: &ServedHierarchy, journal: &mut GangJournal| -> Result<ControlGroup> {
                journal.write(&UndoEntry::group(&tree.parent.path().join(&name), tree.parent.version()))?;
                Ok(tree.parent.create(&name)?)
            };
            let group = make(&control, journal)?;
            // version 2 has one group for all controllers
            let of_tree = |tree: &ServedHierarchy, journal: &mut GangJournal| {
                if tree.parent == control.parent { Ok(group.clone()) } else { make(tree, journal) }
            };
            let groups = GangGroups {
                cpu: weighed.as_ref().map(|tree| of_tree(tree, journal)).transpose()?,
                pids: bounded.as_ref().map(|tree| of_tree(tree, journal)).transpose()?,
                control: group,
            };
            if let Some(pids) = &groups.pids {
                pids.write("pids.max", &plan.max_threads.to_string())?;
            }
            gangs.push(groups);
        }
        Ok(GangCgroups { gangs, control: control.parent, scale: weighed.map(|tree| tree.parent), missing })
    }

    pub fn get(&self, gang: GangId) -> &GangGroups {
        &self.gangs[gang.0]
    }
}

fn parent_in(hierarchy: &CgroupHierarchy, journal: &mut GangJournal) -> Result<ServedHierarchy> {
    // groups of an ordinary user have to be where groups were delegated to the user; root's parent group is a
    // sibling of all other programs
    let base = if unisono_linux::process::is_root() && !limits_time(hierarchy)? {
        hierarchy.top()
    } else {
        hierarchy.group_of(Tid::SELF)?
    };
    let parent = journal.make_group(&base, &format!("unisono-{}", std::process::id()))?;
    Ok(ServedHierarchy { parent })
}

/// Returns whether a group of this hierarchy gives this process a quota. Gangs outside that group could use
/// the time of all processors, more than the quota permits.
fn limits_time(hierarchy: &CgroupHierarchy) -> Result<bool> {
    let limits = quota::limits()
        .map_err(|error| Error::Host(format!("cannot read where this process may run: {error}")))?;
    let is_there = hierarchy.version == CgroupVersion::V2 || hierarchy.controllers.iter().any(|c| c == "cpu");
    Ok(is_there && limits.quota.is_some_and(|quota| quota.version == hierarchy.version))
}

/// Returns the hierarchy in which gangs are frozen: version 2, or the freezer of version 1.
pub(crate) fn freezing(all: &[CgroupHierarchy]) -> Result<&CgroupHierarchy> {
    let second = CgroupHierarchy::of_version(all, CgroupVersion::V2).filter(|h| h.top().has("cgroup.procs"));
    second.or_else(|| CgroupHierarchy::with(all, "freezer")).ok_or_else(|| {
        Error::Host(
            "gangs need control groups that can be frozen, and neither cgroup version 2 nor the version 1 \
             freezer is mounted; try: mount -t cgroup2 none /sys/fs/cgroup"
                .into(),
        )
    })
}

fn control_tree(all: &[CgroupHierarchy], journal: &mut GangJournal) -> Result<ServedHierarchy> {
    parent_in(freezing(all)?, journal).map_err(|error| {
        let error = match error {
            Error::Group(refused) => refused.to_string(), // the text below names the next step
            other => other.to_string(),
        };
        Error::Host(format!(
            "gangs need the right to make control groups: {error}; run as root, or inside a delegated \
             group: systemd-run --user --scope -p Delegate=yes COMMAND"
        ))
        .hinting(GangHint::RunUnprivileged)
    })
}

fn tree_for(
    all: &[CgroupHierarchy],
    controller: &str,
    control: &ServedHierarchy,
    journal: &mut GangJournal,
) -> std::result::Result<ServedHierarchy, String> {
    let hierarchy = CgroupHierarchy::with(all, controller)
        .ok_or_else(|| format!("the {controller} controller is not mounted"))?;
    if hierarchy.version == CgroupVersion::V1 {
        return parent_in(hierarchy, journal).map_err(|error| error.to_string());
    }
    if !control.parent.path().starts_with(&hierarchy.root) {
        return Err(format!("the {controller} controller is in another hierarchy than the freezer"));
    }
    let enabled = control.parent.write("cgroup.subtree_control", &format!("+{controller}"));
    enabled.map_err(|_| {
        format!("the {controller} controller is not handed down to {}", control.parent.path().display())
    })?;
    Ok(ServedHierarchy { parent: control.parent.clone() })
}

fn weigh(tree: &ServedHierarchy, share: f64, cores: usize) -> std::result::Result<(), String> {
    // both versions divide a group's weight among the cores it runs on
    let weight = Steering::new(share).weight() * cores as f64;
    tree.parent.set_weight(weight).map_err(|error| error.to_string())
}
