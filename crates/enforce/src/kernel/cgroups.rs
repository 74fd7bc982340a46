//! Finds the control groups that a policy's rules name, for the classifier.

use super::classifier::{GroupPosition, MAX_DEPTHS};
use crate::cpu::{below, is_ours};
use crate::error::Error;
use crate::journal::SenderNumbers;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use unisono_fairqueue::{Policy, Rule};
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, MissingCgroup2, hierarchies};

/// The kernel's numbers of control groups, by path.
pub(super) type GroupNumbers = BTreeMap<String, u64>;

/// Returns the numbers of those control groups of a policy that exist.
pub(super) fn present_numbers(policy: &Policy) -> GroupNumbers {
    let mut paths = policy.rules.iter().filter_map(|rule| rule.matcher.cgroup.as_ref()).peekable();
    if paths.peek().is_none() {
        return GroupNumbers::new();
    }
    let all = hierarchies().unwrap_or_default();
    let Some(hierarchy) = CgroupHierarchy::of_version(&all, CgroupVersion::V2) else {
        return GroupNumbers::new();
    };
    let number = |path: &String| Some((path.clone(), fs::metadata(below(&hierarchy.root, path)).ok()?.ino()));
    paths.filter_map(number).collect()
}

/// The number of no control group.
const NO_GROUP: u64 = 0;

/// Makes the control groups below `/unisono` that a policy names, for programs that start in them later
/// (`unisono queue run`). Without version 2, [`group_positions`] says why they cannot be there.
pub(super) fn make_own(policy: &Policy) -> Result<(), Error> {
    let named = policy.rules.iter().filter_map(|rule| rule.matcher.cgroup.as_ref());
    let mut ours = named.filter(|cgroup| is_ours(cgroup)).peekable();
    if ours.peek().is_none() {
        return Ok(());
    }
    let all = hierarchies()?;
    let Some(hierarchy) = CgroupHierarchy::of_version(&all, CgroupVersion::V2) else { return Ok(()) };
    ours.try_for_each(|cgroup| {
        let path = below(&hierarchy.root, cgroup);
        fs::create_dir_all(&path).map_err(|source| Error::File {
            what: "make the control group",
            path,
            source,
        })
    })
}

/// Returns the positions of the control groups of a policy. Fails if a group does not exist, unless `known`
/// has its last number, or the group is one of ours, because Unisono makes its own groups when the policy is
/// applied.
pub(super) fn group_positions(
    policy: &Policy,
    senders: &SenderNumbers,
    known: &GroupNumbers,
) -> Result<BTreeMap<String, GroupPosition>, Error> {
    let mut places = BTreeMap::new();
    let named: Vec<(&Rule, &String)> =
        policy.rules.iter().filter_map(|rule| Some((rule, rule.matcher.cgroup.as_ref()?))).collect();
    if named.is_empty() {
        return Ok(places);
    }
    let all = hierarchies()?;
    let Some(hierarchy) = CgroupHierarchy::of_version(&all, CgroupVersion::V2) else {
        let MissingCgroup2 { reason, remedy } = MissingCgroup2::here();
        return Err(Error::Lacks {
            what: format!(
                "the policy matches by control group, and {reason} (a packet does not say which groups of version 1 its sender \
                 is in)"
            ),
            remedy: format!(
                "{remedy}; and start the programs in a group there, or match by port, address or priority"
            ),
        });
    };
    for (rule, cgroup) in named {
        let directory = below(&hierarchy.root, cgroup);
        let present = fs::metadata(&directory).ok().map(|facts| facts.ino());
        let ours = is_ours(cgroup).then_some(NO_GROUP);
        let Some(number) = present.or_else(|| known.get(cgroup).copied()).or(ours) else {
            let first = all.iter().find(|tree| {
                tree.version == CgroupVersion::V1 && below(&tree.root, cgroup).join("cgroup.procs").exists()
            });
            if let Some(first) = first {
                return Err(Error::Lacks {
                    what: format!(
                        "{cgroup} is a control group of version 1 alone (in {}), which a packet does not tell of; there is no {}",
                        first.root.display(),
                        directory.display()
                    ),
                    remedy: "make it there, too, and put its processes into both; or match by port, address or priority"
                        .to_owned(),
                });
            }
            let what = format!(
                "there is no control group {cgroup} ({} is not there); start what runs in it first",
                directory.display()
            );
            return Err(Error::NotHere { at: rule.at, what });
        };
        let depth = u32::try_from(cgroup.split('/').skip(1).count()).unwrap_or(u32::MAX);
        let senders = senders.at_or_below(cgroup);
        places.insert(cgroup.clone(), GroupPosition { depth, number, senders });
        if places.values().map(|place| place.depth).collect::<std::collections::BTreeSet<_>>().len()
            > MAX_DEPTHS
        {
            let what = format!("control groups of more than {MAX_DEPTHS} different depths");
            return Err(Error::NotHere { at: rule.at, what });
        }
    }
    Ok(places)
}
