//! Control groups: where they are for the classifier, and their weights for processor time.

use super::program::{MOST_DEPTHS, Place};
use super::saved::Weight;
use crate::error::Error;
use crate::journal::Phase;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use unisono_fairqueue::{Policy, Rule};
use unisono_linux::cgroup::{Hierarchy, Version, hierarchies};

/// Where the control groups are that rules name.
pub(super) fn places(policy: &Policy) -> Result<BTreeMap<String, Place>, Error> {
    let mut places = BTreeMap::new();
    let named: Vec<(&Rule, &String)> =
        policy.rules.iter().filter_map(|rule| Some((rule, rule.matcher.cgroup.as_ref()?))).collect();
    if named.is_empty() {
        return Ok(places);
    }
    let all = hierarchies()?;
    let Some(hierarchy) = Hierarchy::of_version(&all, Version::V2) else {
        return Err(Error::Lacks {
            what: "the policy matches by control group, and no cgroup2 is mounted, whose numbers the kernel can compare".to_owned(),
            remedy: "mount it (mount -t cgroup2 none /sys/fs/cgroup/unified), or match by port, address or priority".to_owned(),
        });
    };
    for (rule, cgroup) in named {
        let directory = below(&hierarchy.root, cgroup);
        let Ok(facts) = fs::metadata(&directory) else {
            let what = format!(
                "there is no control group {cgroup} ({} is not there); start what runs in it first",
                directory.display()
            );
            return Err(Error::NotHere { at: rule.at, what });
        };
        let depth = u32::try_from(cgroup.split('/').skip(1).count()).unwrap_or(u32::MAX);
        places.insert(cgroup.clone(), Place { depth, number: facts.ino() });
        if places.values().map(|place| place.depth).collect::<std::collections::BTreeSet<_>>().len()
            > MOST_DEPTHS
        {
            let what = format!("control groups of more than {MOST_DEPTHS} different depths");
            return Err(Error::NotHere { at: rule.at, what });
        }
    }
    Ok(places)
}

fn below(root: &Path, cgroup: &str) -> PathBuf {
    root.join(cgroup.trim_start_matches('/'))
}

/// The weights that control groups are to have, and those that they have.
pub(super) fn weights(policy: &Policy) -> Result<Vec<Weight>, Error> {
    let Some(cpu) = &policy.cpu else { return Ok(Vec::new()) };
    let all = hierarchies()?;
    let Some(hierarchy) = Hierarchy::with(&all, "cpu") else {
        return Err(Error::Lacks {
            what: "the policy shares processor time, and no control groups here have the controller `cpu`"
                .to_owned(),
            remedy: "see `unisono doctor`, cgroup-v1-cpu and cgroup-v2-cpu; or take [cpu] out".to_owned(),
        });
    };
    let weight = |share: &unisono_fairqueue::CpuShare| {
        let weight = share.weight.to_f64();
        let (file, ours) = match hierarchy.version {
            Version::V1 => ("cpu.shares", (weight * 1024.0).round().clamp(2.0, 262_144.0)),
            Version::V2 => ("cpu.weight", (weight * 100.0).round().clamp(1.0, 10_000.0)),
        };
        let file = below(&hierarchy.root, &share.cgroup).join(file);
        match fs::read_to_string(&file) {
            Ok(before) => Ok(Weight { file, before: before.trim().to_owned(), ours: ours.to_string() }),
            Err(_) => {
                let rule =
                    policy.rules.iter().find(|rule| rule.matcher.cgroup.as_deref() == Some(&share.cgroup));
                let at = rule.map(|rule| rule.at).expect("present because shares are of rules");
                let what = format!(
                    "{} has no weight for processor time ({} is not there); start what runs in it first",
                    share.cgroup,
                    file.display()
                );
                Err(Error::NotHere { at, what })
            }
        }
    };
    cpu.shares.iter().map(weight).collect()
}

/// Sets one.
pub(super) fn set(weight: &Weight) -> Result<(), Error> {
    write(&weight.file, &weight.ours)
}

/// Puts one back, unless somebody else has changed it since a policy held, or the group is gone. Whether it is as it was.
pub(super) fn put_back(weight: &Weight, phase: Phase) -> Result<bool, Error> {
    match fs::read_to_string(&weight.file) {
        Ok(now) if now.trim() == weight.before => Ok(true),
        Ok(now) if now.trim() == weight.ours || phase == Phase::Changing => {
            write(&weight.file, &weight.before).map(|()| true)
        }
        Ok(_) => Ok(false),
        Err(_) => Ok(true),
    }
}

fn write(file: &Path, value: &str) -> Result<(), Error> {
    fs::write(file, value).map_err(|source| Error::File { what: "write", path: file.to_owned(), source })
}
