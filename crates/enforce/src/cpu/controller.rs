//! The kernel's cpu controller: writes the weights of control groups and restores them.

use super::groups::below;
use crate::error::Error;
use crate::journal::Phase;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use unisono_fairqueue::{CpuShare, Policy};
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, hierarchies};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct GroupWeight {
    pub(crate) file: PathBuf,
    pub(crate) before: String,
    /// The value that this program wrote. Any other value is from another program and stays.
    pub(crate) ours: String,
}

/// The weights that the policy asks for, each with its present value.
pub(crate) fn weights(policy: &Policy) -> Result<Vec<GroupWeight>, Error> {
    let Some(cpu) = &policy.cpu else { return Ok(Vec::new()) };
    let all = hierarchies()?;
    let Some(hierarchy) = CgroupHierarchy::with(&all, "cpu") else {
        return Err(Error::Lacks {
            what: "the policy shares processor time, and no control groups here have the controller `cpu`"
                .to_owned(),
            remedy:
                "have the core keep the shares (--cpu-shares core); see `unisono doctor`, cgroup-v1-cpu and \
                     cgroup-v2-cpu; or take [cpu] out"
                    .to_owned(),
        });
    };
    let weight = |share: &CpuShare| {
        let weight = share.weight.to_f64();
        let (file, ours) = match hierarchy.version {
            CgroupVersion::V1 => ("cpu.shares", (weight * 1024.0).round().clamp(2.0, 262_144.0)),
            CgroupVersion::V2 => ("cpu.weight", (weight * 100.0).round().clamp(1.0, 10_000.0)),
        };
        let file = below(&hierarchy.root, &share.cgroup).join(file);
        match fs::read_to_string(&file) {
            Ok(before) => Ok(GroupWeight { file, before: before.trim().to_owned(), ours: ours.to_string() }),
            Err(_) => {
                let what = format!(
                    "{} has no weight for processor time ({} is not there); start what runs in it first",
                    share.cgroup,
                    file.display()
                );
                Err(Error::NotHere { at: super::place_of(policy, &share.cgroup), what })
            }
        }
    };
    cpu.shares.iter().map(weight).collect()
}

pub(crate) fn set(weight: &GroupWeight) -> Result<(), Error> {
    write(&weight.file, &weight.ours)
}

/// Restores a weight. Returns false if another program has changed it since the policy came into force; that
/// change stays.
pub(crate) fn restore(weight: &GroupWeight, phase: Phase) -> Result<bool, Error> {
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
