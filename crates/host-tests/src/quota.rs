//! Control groups with a quota, for tests of programs inside such a group.

use crate::{Skipped, groups, require};
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, ControlGroup, hierarchies};

/// Makes a control group with a quota of one processor, on a machine with at least two. Dropping it does not
/// remove the group; the harness does.
///
/// # Errors
/// [`Skipped`] if no such group can be made, or if there is only one processor.
pub fn one_processor(what: &str) -> Result<ControlGroup, Skipped> {
    require::root()?;
    require::cpus(2)?;
    let all = hierarchies().expect("mounts can be read");
    let tree = CgroupHierarchy::with(&all, "cpu")
        .ok_or_else(|| Skipped::because("no cgroup tree has the cpu controller here; mount one"))?;
    let refused = |error| Skipped::because(format!("no group with a quota can be made here: {error}"));
    let group = tree.top().create(&groups::name(what)).map_err(refused)?;
    let (file, value) = match tree.version {
        CgroupVersion::V1 => ("cpu.cfs_quota_us", "100000"),
        CgroupVersion::V2 => ("cpu.max", "100000 100000"),
    };
    group.write(file, value).map_err(refused)?;
    Ok(group)
}
