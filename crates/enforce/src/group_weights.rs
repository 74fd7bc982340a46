//! The kernel's controllers of processor time and of disks: writes the weights of control groups and restores
//! them.

use crate::cpu::{below, is_ours};
use crate::error::Error;
use crate::journal::Phase;
use serde::{Deserialize, Serialize};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use unisono_fairqueue::{GroupShare, Policy};
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, hierarchies};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct GroupWeight {
    pub(crate) file: PathBuf,
    pub(crate) before: String,
    /// The value that this program wrote. Any other value is from another program and stays.
    pub(crate) ours: String,
}

/// Returns the weights that the policy asks for, each with its present value, and a note if no disk of this
/// host obeys the weights in `[io]`.
pub(crate) fn weights(policy: &Policy) -> Result<(Vec<GroupWeight>, Option<String>), Error> {
    if policy.cpu.is_none() && policy.io.is_none() {
        return Ok((Vec::new(), None));
    }
    let all = hierarchies()?;
    let mut weights = Vec::new();
    for (table, shares) in [(&CPU, &policy.cpu), (&IO, &policy.io)] {
        let Some(shares) = shares else { continue };
        let hierarchy = table.hierarchy(&all)?;
        for share in &shares.shares {
            weights.extend(table.weights_of(hierarchy, policy, share)?);
        }
    }
    Ok((weights, policy.io.as_ref().and_then(|_| io_note(&all))))
}

fn io_note(all: &[CgroupHierarchy]) -> Option<String> {
    let obeyed = schedulers().any(|scheduler| scheduler.contains("[bfq]")) || has_io_cost(all);
    (!obeyed).then(|| {
        "[io]: no disk here obeys weights, because none has the scheduler BFQ; say, for vda: \
         echo bfq > /sys/block/vda/queue/scheduler"
            .to_owned()
    })
}

/// Returns the text of each block device's scheduler file; the chosen scheduler is in brackets.
fn schedulers() -> impl Iterator<Item = String> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices.filter_map(|device| fs::read_to_string(device.path().join("queue/scheduler")).ok())
}

/// Returns whether the kernel divides a disk's time by the weights in `io.weight` (iocost of version 2).
fn has_io_cost(all: &[CgroupHierarchy]) -> bool {
    let root = CgroupHierarchy::of_version(all, CgroupVersion::V2).map(|tree| tree.root.join("io.cost.qos"));
    root.and_then(|file| fs::read_to_string(file).ok()).is_some_and(|text| text.contains("enable=1"))
}

/// The kernel's controller for one table of a policy (`[cpu]` or `[io]`).
struct WeightController {
    /// The resource that the table shares, for messages.
    resource: &'static str,
    /// The controller's name in version 1 and version 2.
    names: [&'static str; 2],
    /// The files of a weight, for version 1 and for version 2: each with its name, its value for a weight of
    /// 1, and its range.
    files: [&'static [(&'static str, f64, RangeInclusive<f64>)]; 2],
    /// What to do where the host lacks the controller.
    remedy: &'static str,
}

const CPU: WeightController = WeightController {
    resource: "processor time",
    names: ["cpu", "cpu"],
    files: [&[("cpu.shares", 1024.0, 2.0..=262_144.0)], &[("cpu.weight", 100.0, 1.0..=10_000.0)]],
    remedy: "have the core keep the shares (--cpu-shares core); see `unisono doctor`, cgroup-v1-cpu and cgroup-v2-cpu; \
             or take [cpu] out",
};

const IO: WeightController = WeightController {
    resource: "disks",
    names: ["blkio", "io"],
    files: [
        &[("blkio.bfq.weight", 100.0, 1.0..=1000.0), ("blkio.weight", 500.0, 10.0..=1000.0)],
        &[("io.bfq.weight", 100.0, 1.0..=1000.0), ("io.weight", 100.0, 1.0..=10_000.0)],
    ],
    remedy: "enable it: echo +io > /sys/fs/cgroup/cgroup.subtree_control (version 2), or mount blkio (version 1); \
             or take [io] out",
};

impl WeightController {
    fn hierarchy<'a>(&self, all: &'a [CgroupHierarchy]) -> Result<&'a CgroupHierarchy, Error> {
        let found = self.names.iter().find_map(|name| CgroupHierarchy::with(all, name));
        found.ok_or_else(|| Error::Lacks {
            what: format!(
                "the policy shares {}, and no control groups here have the controller `{}`",
                self.resource, self.names[1]
            ),
            remedy: self.remedy.to_owned(),
        })
    }

    /// Returns every file with the weight of one control group; for disks there is one for each scheduler.
    fn weights_of(
        &self,
        hierarchy: &CgroupHierarchy,
        policy: &Policy,
        share: &GroupShare,
    ) -> Result<Vec<GroupWeight>, Error> {
        let group = below(&hierarchy.root, &share.cgroup);
        let files = self.files[usize::from(hierarchy.version == CgroupVersion::V2)];
        let weight = |(name, one, range): &(&str, f64, RangeInclusive<f64>)| {
            let file = group.join(name);
            let before = value(&fs::read_to_string(&file).ok()?).to_owned();
            let ours = (share.weight.to_f64() * one).round().clamp(*range.start(), *range.end()).to_string();
            Some(GroupWeight { file, before, ours })
        };
        let weights: Vec<_> = files.iter().filter_map(weight).collect();
        if weights.is_empty() {
            let (file, resource) = (group.join(files[0].0), self.resource);
            let next = self.next_step(hierarchy, &share.cgroup, group.is_dir());
            let what = format!(
                "{} has no weight for {resource} ({} is not there); {next}",
                share.cgroup,
                file.display()
            );
            let rule = crate::cpu::place_of(policy, &share.cgroup);
            return Err(Error::NotHere { at: rule, what });
        }
        Ok(weights)
    }

    /// Returns what to do about a control group that has no weight. A group below `/unisono` cannot wait for
    /// `unisono queue run`, which needs a policy in force and enables no controller.
    fn next_step(&self, hierarchy: &CgroupHierarchy, cgroup: &str, exists: bool) -> String {
        let group = below(&hierarchy.root, cgroup);
        let make = format!("make the group first: sudo mkdir -p {}", group.display());
        match hierarchy.version {
            CgroupVersion::V2 if exists || is_ours(cgroup) => {
                let above = group.ancestors().skip(1).take_while(|one| one.starts_with(&hierarchy.root));
                let mut files: Vec<String> =
                    above.map(|one| one.join("cgroup.subtree_control").display().to_string()).collect();
                files.reverse();
                let enable = format!("echo +{} | sudo tee {}", self.names[1], files.join(" "));
                if exists {
                    format!("the groups above it do not pass the controller on: {enable}")
                } else {
                    format!("{make} && {enable}")
                }
            }
            CgroupVersion::V1 if !exists && is_ours(cgroup) => format!(
                "{make}; its processes have to be put there, too, because `queue run` knows only groups of \
                 version 2"
            ),
            CgroupVersion::V1 | CgroupVersion::V2 => "start what runs in it first".to_owned(),
        }
    }
}

/// Returns the weight in a file: its only word, or the word after `default` in a file in which devices can
/// have weights of their own.
fn value(text: &str) -> &str {
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("default ").unwrap_or(first).trim()
}

/// Returns the bytes that each control group in `[io]` has read from disks and written to them, or `None` for
/// a group that does not exist.
pub fn disk_bytes(policy: &Policy) -> Result<Vec<(GroupShare, Option<u64>)>, Error> {
    let Some(io) = &policy.io else { return Ok(Vec::new()) };
    let all = hierarchies()?;
    let hierarchy = IO.hierarchy(&all)?;
    let bytes = |share: &GroupShare| {
        let group = below(&hierarchy.root, &share.cgroup);
        let read = |file| fs::read_to_string(group.join(file)).ok();
        match hierarchy.version {
            // since Linux 6.10 the second file counts only while a throttle is set, so the greater number is
            // the right one
            CgroupVersion::V1 => {
                ["blkio.bfq.io_service_bytes_recursive", "blkio.throttle.io_service_bytes_recursive"]
                    .into_iter()
                    .filter_map(|file| Some(total_of_blkio(&read(file)?)))
                    .max()
            }
            CgroupVersion::V2 => read("io.stat").map(|text| total_of_io_stat(&text)),
        }
    };
    Ok(io.shares.iter().map(|share| (share.clone(), bytes(share))).collect())
}

/// Returns the sum over all devices: the last `Total` line of a file of version 1.
fn total_of_blkio(text: &str) -> u64 {
    let total = text.lines().filter_map(|line| line.strip_prefix("Total ")).next_back();
    total.and_then(|total| total.trim().parse().ok()).unwrap_or(0)
}

/// Returns the sum over all devices of an `io.stat` file. Each line has a device, and fields such as
/// `rbytes=4096`.
fn total_of_io_stat(text: &str) -> u64 {
    let bytes = text.split_whitespace().filter_map(|field| {
        let (name, number) = field.split_once('=')?;
        matches!(name, "rbytes" | "wbytes").then(|| number.parse::<u64>().ok()).flatten()
    });
    bytes.sum()
}

pub(crate) fn set(weight: &GroupWeight) -> Result<(), Error> {
    write(&weight.file, &weight.ours)
}

/// Restores a weight. Returns false if another program has changed it since the policy came into force; that
/// change stays.
pub(crate) fn restore(weight: &GroupWeight, phase: Phase) -> Result<bool, Error> {
    match fs::read_to_string(&weight.file) {
        Ok(now) if value(&now) == weight.before => Ok(true),
        Ok(now) if value(&now) == weight.ours || phase == Phase::Changing => {
            write(&weight.file, &weight.before).map(|()| true)
        }
        Ok(_) => Ok(false),
        Err(_) => Ok(true),
    }
}

fn write(file: &Path, value: &str) -> Result<(), Error> {
    fs::write(file, value).map_err(|source| Error::File { what: "write", path: file.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_queue_run_would_make_is_made_first_and_does_not_wait_for_queue_run() {
        let next = |version, cgroup: &str, exists| {
            let (root, base) = ("/sys/fs/cgroup".into(), "/".into());
            let tree = CgroupHierarchy { root, base, version, controllers: Vec::new() };
            CPU.next_step(&tree, cgroup, exists)
        };
        let enable = "echo +cpu | sudo tee /sys/fs/cgroup/cgroup.subtree_control /sys/fs/cgroup/unisono/cgroup.subtree_control";
        let make = "make the group first: sudo mkdir -p /sys/fs/cgroup/unisono/video";
        assert_eq!(next(CgroupVersion::V2, "/unisono/video", false), format!("{make} && {enable}"));
        assert!(next(CgroupVersion::V2, "/unisono/video", true).ends_with(enable));
        let first = next(CgroupVersion::V1, "/unisono/video", false);
        assert!(first.starts_with(make) && first.contains("only groups of version 2"), "{first}");
        for version in [CgroupVersion::V1, CgroupVersion::V2] {
            assert_eq!(next(version, "/system.slice/nginx.service", false), "start what runs in it first");
        }
    }

    #[test]
    fn the_weight_of_a_group_is_read_in_every_form_that_the_kernel_writes() {
        for (text, weight) in [("100\n", "100"), ("default 200\n8:16 50\n", "200"), ("", "")] {
            assert_eq!(value(text), weight, "{text:?}");
        }
    }

    #[test]
    fn bytes_of_all_devices_are_counted() {
        let blkio = "8:0 Read 4096\n8:0 Write 8192\n8:0 Total 12288\n8:16 Total 4096\nTotal 16384\n";
        assert_eq!((total_of_blkio(blkio), total_of_blkio("Total 0\n"), total_of_blkio("")), (16384, 0, 0));
        let stat = "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=7 dios=1\n8:16 rbytes=1 wbytes=0 rios=1 wios=0\n";
        assert_eq!((total_of_io_stat(stat), total_of_io_stat("")), (12289, 0));
    }
}
