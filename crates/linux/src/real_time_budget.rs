//! The real-time budget of control groups of version 1: `cpu.rt_runtime_us`.
//!
//! A kernel with `CONFIG_RT_GROUP_SCHED` refuses real-time priorities, to root too, in a group whose budget
//! is 0, and new groups have 0. Version 2 has no budgets.
//!
//! Cost: a read for each group around this process. Reference: Documentation/scheduler/sched-rt-group.rst.

use crate::affinity::Tid;
use crate::cgroup::{CgroupHierarchy, CgroupVersion, hierarchies};
use std::fs;
use std::path::{Path, PathBuf};

/// The file of a group's budget, in microseconds of each period.
const BUDGET: &str = "cpu.rt_runtime_us";

/// A budget of a tenth of a second in each second, the default period.
const ENOUGH_US: u32 = 100_000;

/// Returns the groups around this process without a real-time budget, the outermost first. Empty if the
/// kernel has no budgets.
pub fn groups_without() -> Vec<PathBuf> {
    let all = hierarchies().unwrap_or_default();
    let first = all.iter().filter(|one| one.version == CgroupVersion::V1);
    let mut cpu = first.filter(|one| one.controllers.iter().any(|name| name == "cpu"));
    let Some(hierarchy) = cpu.next() else { return Vec::new() };
    hierarchy.group_of(Tid::SELF).map_or_else(|_| Vec::new(), |own| groups_below(hierarchy, own.path()))
}

fn groups_below(hierarchy: &CgroupHierarchy, own: &Path) -> Vec<PathBuf> {
    let has_none =
        |group: &&Path| fs::read_to_string(group.join(BUDGET)).is_ok_and(|text| text.trim() == "0");
    let around = own.ancestors().take_while(|group| group.starts_with(&hierarchy.root));
    let mut without: Vec<PathBuf> = around.filter(has_none).map(Path::to_owned).collect();
    without.reverse();
    without
}

/// Returns the reason why real-time priorities are refused to this process, with the remedy.
pub fn why_refused() -> String {
    refusal(&groups_without())
}

fn refusal(without: &[PathBuf]) -> String {
    let Some(own) = without.last() else {
        return "real-time priorities are refused; they need CAP_SYS_NICE".to_owned();
    };
    let give = |group: &PathBuf| format!("echo {ENOUGH_US} > {}", group.join(BUDGET).display());
    let commands: Vec<String> = without.iter().map(give).collect();
    format!(
        "real-time priorities are refused in the control group {}, whose real-time budget is 0; as root: {}",
        own.display(),
        commands.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_without_a_budget_are_given_one_from_the_outside() {
        let root = tempfile::tempdir().expect("a directory");
        let (outer, inner) = (root.path().join("outer"), root.path().join("outer/inner"));
        fs::create_dir_all(&inner).expect("made");
        for (group, budget) in [(root.path(), "950000\n"), (&outer, "0\n"), (&inner, "0\n")] {
            fs::write(group.join(BUDGET), budget).expect("written");
        }
        let hierarchy = CgroupHierarchy {
            root: root.path().to_owned(),
            base: "/".into(),
            version: CgroupVersion::V1,
            controllers: vec!["cpu".into()],
        };
        let without = groups_below(&hierarchy, &inner);
        assert_eq!(without, [outer.clone(), inner.clone()]);
        let why = refusal(&without);
        let (first, second) = (outer.join(BUDGET), inner.join(BUDGET));
        let commands = format!("echo 100000 > {}; echo 100000 > {}", first.display(), second.display());
        assert!(why.ends_with(&commands) && !why.contains("CAP_SYS_NICE"), "{why}");
        fs::write(&second, "100000\n").expect("written");
        fs::write(&first, "100000\n").expect("written");
        assert!(refusal(&groups_below(&hierarchy, &inner)).contains("CAP_SYS_NICE"));
    }
}
