//! The control groups that share processor time: finds, freezes, thaws and measures them.

use super::place_of;
use crate::error::Error;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unisono_fairqueue::{ClassId, ClassSpec, GroupShare, Hierarchy, Policy, Weight};
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::{self, CgroupVersion, ControlGroup, FreezeFile, Frozen, GroupMeter, hierarchies};
use unisono_linux::schedstat;

/// The most threads of a group whose state is read. Reading takes 2 us a thread, so 64 us for a group whose
/// threads all sleep. With twice as many, the check of a large sleeping group would cost as much as a switch
/// of groups.
const MAX_ASKED: usize = 32;

pub(crate) fn below(root: &Path, cgroup: &str) -> PathBuf {
    root.join(cgroup.trim_start_matches('/'))
}

/// Returns whether a control group is Unisono's own, made for `unisono queue run`.
pub(crate) fn is_ours(cgroup: &str) -> bool {
    cgroup.strip_prefix("/unisono/").is_some_and(|below| !below.is_empty())
}

/// The directories of a control group. In cgroup version 1, freezing and measuring are in two hierarchies, so
/// in two directories.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FoundGroup {
    pub(super) stop: ControlGroup,
    time: ControlGroup,
}

#[derive(Debug)]
pub(super) struct HeldGroup {
    found: FoundGroup,
    /// The open files, or `None` while the group does not exist: a service that restarts removes its group
    /// and makes another.
    open: Option<(FreezeFile, GroupMeter)>,
    stopped: Frozen,
    used_ns: u64,
}

impl FoundGroup {
    /// Looks for a group in a hierarchy that can freeze it, version 2 first.
    fn find(all: &[cgroup::CgroupHierarchy], path: &str) -> Option<Self> {
        let at = |tree: &cgroup::CgroupHierarchy| ControlGroup::at(below(&tree.root, path), tree.version);
        let second = cgroup::CgroupHierarchy::of_version(all, CgroupVersion::V2).map(at);
        if let Some(group) = second.filter(|group| group.has("cgroup.freeze")) {
            return Some(Self { stop: group.clone(), time: group });
        }
        let with = |name| {
            all.iter().find(|tree| tree.controllers.iter().any(|controller| controller == name)).map(at)
        };
        let (stop, time) = (with("freezer")?, with("cpuacct")?);
        (stop.has("freezer.state") && time.has("cpuacct.usage")).then_some(Self { stop, time })
    }

    fn open(&self) -> Result<(FreezeFile, GroupMeter), cgroup::Error> {
        Ok((self.stop.freeze_file()?, self.time.meter()?))
    }

    fn is_stopped(&self) -> bool {
        let (file, free) = self.freezer_file();
        self.stop.read(file).is_ok_and(|text| text.trim() != free)
    }

    /// Returns the name of the file that freezes the group, and the text in it while the group may run.
    fn freezer_file(&self) -> (&'static str, &'static str) {
        match self.stop.version() {
            CgroupVersion::V1 => ("freezer.state", "THAWED"),
            CgroupVersion::V2 => ("cgroup.freeze", "0"),
        }
    }
}

impl HeldGroup {
    pub(super) fn open(found: FoundGroup) -> Result<Self, Error> {
        let open = found.open()?;
        let used_ns = open.1.used_ns()?;
        Ok(Self { found, open: Some(open), stopped: Frozen::No, used_ns })
    }

    pub(super) fn set(&mut self, stopped: Frozen) {
        if self.stopped != stopped {
            self.stopped = stopped;
            self.write(stopped);
        }
    }

    /// Lets the group run, whether it was frozen or not.
    pub(super) fn release(&mut self) {
        self.stopped = Frozen::No;
        self.write(Frozen::No);
    }

    fn write(&mut self, stopped: Frozen) {
        if self.open.as_ref().is_some_and(|(freeze_file, _)| freeze_file.set(stopped).is_err()) {
            self.open = None; // the group was removed
        }
    }

    /// Returns the microseconds of processor time that the group has used since the last call.
    pub(super) fn used(&mut self) -> u64 {
        let now = match self.open.as_ref().map(|(_, meter)| meter.used_ns()) {
            Some(Ok(now)) => now,
            Some(Err(_)) => {
                self.open = None;
                return 0;
            }
            None => return 0,
        };
        let used_us = now.saturating_sub(self.used_ns) / 1000;
        // a fraction of a microsecond is counted at the next call
        self.used_ns = if now < self.used_ns { now } else { self.used_ns + used_us * 1000 };
        used_us
    }

    /// Returns whether any of the first [`MAX_ASKED`] threads is runnable.
    pub(super) fn wants(&self) -> bool {
        let threads = self.found.stop.threads().unwrap_or_default();
        threads.into_iter().take(MAX_ASKED).any(schedstat::is_runnable)
    }

    /// Opens the group's files again if the group was removed and made anew.
    pub(super) fn reopen(&mut self) {
        if self.open.is_some() && self.found.stop.path().exists() {
            return;
        }
        self.open = self.found.open().ok();
        if let Some((freeze_file, meter)) = &self.open {
            self.used_ns = meter.used_ns().unwrap_or(0);
            let _ = freeze_file.set(self.stopped); // gone again: the next call will notice
        }
    }
}

/// The control groups of a policy, and a tree of classes in which they share as in the kernel's controller.
pub(super) struct Shares {
    pub(super) hierarchy: Hierarchy,
    pub(super) leaves: Vec<(ClassId, FoundGroup)>,
}

impl Shares {
    pub(super) fn from_policy(policy: &Policy) -> Result<Self, Error> {
        let Some(cpu) = &policy.cpu else {
            let what =
                "the policy shares no processor time: write, say, [cpu] and below it video = 3".to_owned();
            return Err(Error::BackendUnsupported { what });
        };
        let hierarchy = tree(&cpu.shares);
        let all = hierarchies()?;
        let mut leaves = Vec::new();
        for (id, class) in hierarchy.classes().skip(1) {
            if hierarchy.is_leaf(id) {
                leaves.push((id, find(&all, policy, &class.name)?));
            }
        }
        Ok(Self { hierarchy, leaves })
    }

    /// Fails if another program has frozen a group: at the end it would be unknown whether to thaw the group.
    pub(super) fn all_run(&self, policy: &Policy) -> Result<(), Error> {
        let Some((class, found)) = self.leaves.iter().find(|(_, found)| found.is_stopped()) else {
            return Ok(());
        };
        let path = &self.hierarchy.class(*class).name;
        let (file, thawed) = found.freezer_file();
        let what = format!(
            "{path} is frozen by somebody else; let it run first: echo {thawed} > {}",
            found.stop.path().join(file).display()
        );
        Err(Error::NotHere { at: place_of(policy, path), what })
    }
}

fn find(all: &[cgroup::CgroupHierarchy], policy: &Policy, path: &str) -> Result<FoundGroup, Error> {
    let wrong = |what: String| Error::NotHere { at: place_of(policy, path), what };
    let Some(found) = FoundGroup::find(all, path) else {
        // `queue run` would make the group, but only once a policy is in force
        let second = cgroup::CgroupHierarchy::of_version(all, CgroupVersion::V2).filter(|_| is_ours(path));
        let next = second.map_or_else(
            || "start what runs in it first".to_owned(),
            |tree| format!("make it first: sudo mkdir -p {}", below(&tree.root, path).display()),
        );
        return Err(wrong(format!(
            "there is no control group {path} whose processes can be stopped (a cgroup2 of Linux 5.2 or later, or freezer \
             and cpuacct of version 1); {next}"
        )));
    };
    let here = all.iter().filter_map(|tree| tree.group_of(Tid::SELF).ok());
    if here.into_iter().any(|group| group.path().starts_with(found.stop.path())) {
        return Err(wrong(format!(
            "this command runs in {path} itself and would stop itself; run it elsewhere, say by systemd-run --scope"
        )));
    }
    Ok(found)
}

/// Makes a tree of classes from the groups. A directory above them that has no weight of its own gets weight
/// 1, as in the kernel.
fn tree(shares: &[GroupShare]) -> Hierarchy {
    #[derive(Default)]
    struct Node(Option<Weight>, BTreeMap<String, Node>);
    fn class(path: &str, node: Node) -> ClassSpec {
        let Node(weight, children) = node;
        let children = children.into_iter().map(|(name, child)| class(&format!("{path}/{name}"), child));
        ClassSpec::new(path).weighing(weight.unwrap_or(Weight::ONE)).with(children.collect::<Vec<_>>())
    }
    let mut top = Node::default();
    for share in shares {
        let mut node = &mut top;
        for name in share.cgroup.split('/').filter(|name| !name.is_empty()) {
            node = node.1.entry(name.to_owned()).or_default();
        }
        node.0 = Some(share.weight);
    }
    Hierarchy::new(class("", top)).expect("sound because every path is there once")
}

/// Thaws groups that may have been frozen. Skips groups that do not exist.
pub(super) fn thaw_all(groups: &[(PathBuf, u8)]) {
    for (path, version) in groups {
        let version = if *version == 1 { CgroupVersion::V1 } else { CgroupVersion::V2 };
        if let Ok(freeze_file) = ControlGroup::at(path.clone(), version).freeze_file() {
            let _ = freeze_file.set(Frozen::No);
        }
    }
}

pub(super) fn journal_entry(found: &FoundGroup) -> (PathBuf, u8) {
    let version = if found.stop.version() == CgroupVersion::V1 { 1 } else { 2 };
    (found.stop.path().to_owned(), version)
}

/// Returns the nanoseconds of processor time that each control group of a policy has used, or `None` for a
/// group that does not exist.
pub fn used(policy: &Policy) -> Result<Vec<(GroupShare, Option<u64>)>, Error> {
    let all = hierarchies()?;
    let shares = policy.cpu.iter().flat_map(|cpu| &cpu.shares);
    let of = |share: &GroupShare| {
        FoundGroup::find(&all, &share.cgroup).and_then(|found| found.time.used_ns().ok())
    };
    Ok(shares.map(|share| (share.clone(), of(share))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_share_as_their_directories_do() {
        let text = "rate = \"1mbit\"\n[class.a]\nmatch = [{ cgroup = \"/top/a\" }]\n[class.b]\nmatch = [{ cgroup = \
                    \"/top/b\" }]\n[class.c]\nmatch = [{ cgroup = \"/c\" }]\n[cpu]\na = 3\nb = 1\nc = 2\n";
        let policy = Policy::parse(text).expect("it is sound");
        let tree = tree(&policy.cpu.expect("it is there").shares);
        let share = |name: &str| tree.share(tree.find(name).expect("it is there"));
        assert!((share("/top") - 1.0 / 3.0).abs() < 1e-9);
        assert!((share("/top/a") - 0.25).abs() < 1e-9);
        assert!((share("/c") - 2.0 / 3.0).abs() < 1e-9);
    }
}
