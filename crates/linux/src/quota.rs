//! The processors that a process may use and its share of their time: its affinity, its cpuset, and the
//! quotas of its control group and of all groups above it.
//!
//! The affinity does not show a quota: a process with the time of one processor may run on all of them, and
//! when the time of a period is used up, every thread stops until the next period. Programs that count
//! processors then start too many threads. A process gets the smallest quota of all groups above it, so all
//! of them are read, in version 1 (`cpu.cfs_quota_us` / `cpu.cfs_period_us`) and version 2 (`cpu.max`).
//!
//! Cost: two or three small files per level. When not to use: groups that a container's mount does not show
//! may have quotas too, but the container cannot read them; and a quota can change while the program runs.
//!
//! Reference: Documentation/scheduler/sched-bwc.rst; cgroups(7), cpuset(7), cgroup_namespaces(7).

use crate::affinity::{self, CpuSet, Tid};
use crate::cgroup::{self, CgroupHierarchy, CgroupVersion, ControlGroup};
use std::cmp::Ordering;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessorLimits {
    /// The processors that the process may run on; the kernel has removed processors outside of the cpuset.
    pub affinity: CpuSet,
    /// The processors of the process's cpuset, if it is in one.
    pub cpuset: Option<CpuSet>,
    /// The smallest quota of the process's group and of the groups above, if there is one.
    pub quota: Option<Quota>,
    /// The number of online processors of the machine, whether this process may use them or not.
    pub online: usize,
    /// Files with contents that no kernel writes; their limits are ignored.
    pub unread: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Microseconds of processor time.
    pub time_us: u64,
    /// Microseconds of a period, never 0.
    pub period_us: u64,
    /// The group with this quota.
    pub group: PathBuf,
    pub of: GroupRelation,
    /// The version of the group's hierarchy: old language runtimes read only version 1.
    pub version: CgroupVersion,
}

/// The position of a group relative to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRelation {
    /// The group that the process is in.
    Own,
    /// A group above the process's own. Some runtimes (Go 1.25, Java before 24) read only their own group.
    Ancestor,
}

impl Quota {
    /// Returns the equivalent number of processors, possibly a fraction.
    pub fn processors(&self) -> f64 {
        self.time_us as f64 / self.period_us as f64
    }

    /// Returns the number of periods in which its group had runnable threads, and the number of throttled
    /// periods: the kernel stopped the group because its time was used up. Both only grow.
    pub fn periods(&self) -> Option<QuotaPeriods> {
        periods(&fs::read_to_string(self.group.join("cpu.stat")).ok()?)
    }

    fn compare(&self, other: &Self) -> Ordering {
        let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
        product(self.time_us, other.period_us).cmp(&product(other.time_us, self.period_us))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaPeriods {
    pub all: u64,
    pub throttled: u64,
}

impl QuotaPeriods {
    /// Returns the periods from `start` until `self`.
    #[must_use]
    pub fn since(self, start: Self) -> Self {
        Self {
            all: self.all.saturating_sub(start.all),
            throttled: self.throttled.saturating_sub(start.throttled),
        }
    }
}

/// Parses a group's `cpu.stat`, where both versions of control groups write the same two lines.
fn periods(text: &str) -> Option<QuotaPeriods> {
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    };
    Some(QuotaPeriods { all: number("nr_periods")?, throttled: number("nr_throttled")? })
}

/// Returns the limits of this process. A missing file means no limit: a host need not have control groups.
pub fn limits() -> io::Result<ProcessorLimits> {
    limits_of(Tid::SELF)
}

/// Returns the limits of a process; its first thread determines the affinity.
pub fn limits_of(process: Tid) -> io::Result<ProcessorLimits> {
    Ok(limits_below(Path::new("/"), process, affinity::allowed(process)?))
}

/// Returns the limits in the files below `root` for a process that may run on `affinity`.
fn limits_below(root: &Path, process: Tid, affinity: CpuSet) -> ProcessorLimits {
    let online = fs::read_to_string(root.join("sys/devices/system/cpu/online")).ok();
    let online = online.and_then(|list| list.parse().ok()).map_or(0, |list: CpuSet| list.len());
    let mut limits =
        ProcessorLimits { online: online.max(affinity.len()), affinity, ..ProcessorLimits::default() };
    let directory = if process == Tid::SELF { "self".to_owned() } else { process.0.to_string() };
    let groups = root.join("proc").join(directory).join("cgroup");
    let text = fs::read_to_string(groups).unwrap_or_default();
    let trees = cgroup::hierarchies_below(root).unwrap_or_default();
    for tree in views(&trees, &text) {
        limits.read(tree, &text);
    }
    limits
}

/// Chooses the mounts to read. A hierarchy may be mounted several times: a mount that shows the process's own
/// group is preferred, and among these the mount that shows the most groups above it.
fn views<'a>(trees: &'a [CgroupHierarchy], text: &str) -> Vec<&'a CgroupHierarchy> {
    let mut views: Vec<&CgroupHierarchy> = Vec::new();
    for tree in trees {
        let Some(path) = tree.path_in(text) else { continue };
        let worth = |tree: &CgroupHierarchy| (tree.shows(path), usize::MAX - tree.base.components().count());
        let same = |other: &&mut &CgroupHierarchy| {
            other.version == tree.version
                && (tree.version == CgroupVersion::V2 || other.controllers == tree.controllers)
        };
        match views.iter_mut().find(same) {
            Some(before) if worth(tree) > worth(before) => *before = tree,
            Some(_) => {}
            None => views.push(tree),
        }
    }
    views
}

impl ProcessorLimits {
    fn read(&mut self, tree: &CgroupHierarchy, text: &str) {
        let Some(path) = tree.path_in(text) else { return };
        let own = tree.group_at(path);
        let around = own.path().ancestors().take_while(|directory| directory.starts_with(&tree.root));
        let mut whose = if tree.shows(path) { GroupRelation::Own } else { GroupRelation::Ancestor };
        let mut cpuset = None;
        for directory in around {
            let group = ControlGroup::at(directory.to_owned(), tree.version);
            if let Some(quota) = self.quota_of(&group, whose)
                && self.quota.as_ref().is_none_or(|smallest| quota.compare(smallest) == Ordering::Less)
            {
                self.quota = Some(quota);
            }
            cpuset = cpuset.or_else(|| self.cpuset_of(&group));
            whose = GroupRelation::Ancestor;
        }
        self.cpuset = self.cpuset.take().or(cpuset);
    }

    fn quota_of(&mut self, group: &ControlGroup, of: GroupRelation) -> Option<Quota> {
        let (file, text) = match group.version() {
            CgroupVersion::V2 => ("cpu.max", group.read("cpu.max").ok()?),
            CgroupVersion::V1 => {
                let (time, period) = (group.read("cpu.cfs_quota_us"), group.read("cpu.cfs_period_us"));
                ("cpu.cfs_quota_us", format!("{} {}", time.ok()?.trim(), period.ok()?.trim()))
            }
        };
        match quota(&text) {
            Ok(quota) => quota.map(|(time_us, period_us)| Quota {
                time_us,
                period_us,
                group: group.path().to_owned(),
                of,
                version: group.version(),
            }),
            Err(NoQuota) => {
                self.unread.push(format!("{}: {:?}", group.path().join(file).display(), text.trim()));
                None
            }
        }
    }

    fn cpuset_of(&mut self, group: &ControlGroup) -> Option<CpuSet> {
        // version 2; version 1; version 1 of kernels that do not report effective processors
        let files = ["cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"];
        let (file, text) = files.iter().find_map(|file| Some((file, group.read(file).ok()?)))?;
        match text.parse::<CpuSet>() {
            // a group whose processors were never set has an empty list; then its parent's list counts
            Ok(cpus) => (!cpus.is_empty()).then_some(cpus),
            Err(_) => {
                self.unread.push(format!("{}: {:?}", group.path().join(file).display(), text.trim()));
                None
            }
        }
    }
}

/// The error for a text that no kernel writes.
struct NoQuota;

/// Parses `max 100000`, `50000 100000`, and version 1's `-1 100000`.
fn quota(text: &str) -> Result<Option<(u64, u64)>, NoQuota> {
    let mut fields = text.split_whitespace();
    let (Some(time), Some(period), None) = (fields.next(), fields.next(), fields.next()) else {
        return Err(NoQuota);
    };
    let number = |text: &str| text.parse().ok().filter(|number: &u64| *number > 0).ok_or(NoQuota);
    let period = number(period)?;
    if time == "max" || time == "-1" { Ok(None) } else { Ok(Some((number(time)?, period))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the limits of this process on a host with these files and eight processors.
    fn with(files: &[(&str, &str)]) -> ProcessorLimits {
        let root = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        let mut limits = limits_below(root.path(), Tid::SELF, (0..8).collect());
        if let Some(quota) = &mut limits.quota {
            quota.group = Path::new("/").join(quota.group.strip_prefix(root.path()).expect("below"));
        }
        limits
    }

    fn quota_with(files: &[(&str, &str)]) -> Option<(f64, String, GroupRelation)> {
        let limits = with(files);
        assert_eq!(limits.unread, Vec::<String>::new());
        limits.quota.map(|quota| (quota.processors(), quota.group.display().to_string(), quota.of))
    }

    const V2: (&str, &str) =
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n");
    const V1: (&str, &str) = (
        "proc/self/mountinfo",
        "31 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
         32 30 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
    );

    #[test]
    fn version_2_the_smallest_quota_of_all_groups_around_decides() {
        let found = quota_with(&[
            V2,
            ("proc/self/cgroup", "0::/slurm/job/step\n"),
            ("sys/fs/cgroup/slurm/job/step/cpu.max", "400000 100000\n"),
            ("sys/fs/cgroup/slurm/job/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/slurm/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(found, Some((1.5, "/sys/fs/cgroup/slurm/job".into(), GroupRelation::Ancestor)));
    }

    #[test]
    fn periods_are_read_from_what_both_versions_write() {
        let v2 = "usage_usec 7\nnr_periods 20\nnr_throttled 19\nthrottled_usec 5\n";
        assert_eq!(periods(v2), Some(QuotaPeriods { all: 20, throttled: 19 }));
        assert_eq!(periods("nr_periods 20\nnr_throttled 19\nthrottled_time 5\n"), periods(v2));
        assert_eq!(periods("usage_usec 7\n"), None);
    }

    #[test]
    fn version_2_max_is_no_quota_and_a_group_without_the_controller_neither() {
        let files = [V2, ("proc/self/cgroup", "0::/a/b\n"), ("sys/fs/cgroup/a/cpu.max", "max 100000\n")];
        assert_eq!(quota_with(&files), None);
    }

    #[test]
    fn version_1_has_quota_and_cpuset_in_trees_of_their_own() {
        let files = [
            V1,
            ("proc/self/cgroup", "5:cpu,cpuacct:/job\n3:cpuset:/set/inner\n0::/\n"),
            ("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpuset/set/inner/cpuset.cpus", "\n"),
            ("sys/fs/cgroup/cpuset/set/cpuset.cpus", "2-3\n"),
        ];
        assert_eq!(
            quota_with(&files),
            Some((0.5, "/sys/fs/cgroup/cpu,cpuacct/job".into(), GroupRelation::Own))
        );
        assert_eq!(with(&files).cpuset, Some(CpuSet::from_iter([2, 3])));
    }

    #[test]
    fn a_container_of_version_1_sees_its_own_group_as_the_root_of_the_mount() {
        let found = quota_with(&[
            (
                "proc/self/mountinfo",
                "31 30 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n",
            ),
            ("proc/self/cgroup", "5:cpu:/docker/abc\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(found, Some((2.0, "/sys/fs/cgroup/cpu".into(), GroupRelation::Own)));
    }

    #[test]
    fn a_process_outside_of_its_cgroup_namespace_has_the_limits_of_what_is_mounted() {
        let found = quota_with(&[
            V2,
            ("proc/self/cgroup", "0::/../..\n"),
            ("sys/fs/cgroup/cpu.max", "300000 100000\n"),
        ]);
        assert_eq!(found, Some((3.0, "/sys/fs/cgroup".into(), GroupRelation::Ancestor)));
    }

    #[test]
    fn a_mount_from_the_namespace_around_names_its_root_relative_to_ours() {
        let found = quota_with(&[
            ("proc/self/mountinfo", "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("proc/self/cgroup", "0::/../../pod\n"),
            ("sys/fs/cgroup/pod/cpu.max", "100000 100000\n"),
        ]);
        assert_eq!(found, Some((1.0, "/sys/fs/cgroup/pod".into(), GroupRelation::Own)));
    }

    #[test]
    fn another_containers_groups_mounted_here_are_not_ours() {
        let found = quota_with(&[
            (
                "proc/self/mountinfo",
                "40 23 0:26 /other /mnt/other rw - cgroup2 cgroup2 rw\n\
                 30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            ),
            ("proc/self/cgroup", "0::/mine\n"),
            ("mnt/other/cpu.max", "10000 100000\n"),
            ("sys/fs/cgroup/mine/cpu.max", "200000 100000\n"),
        ]);
        assert_eq!(found, Some((2.0, "/sys/fs/cgroup/mine".into(), GroupRelation::Own)));
    }

    #[test]
    fn both_versions_at_a_time_the_smaller_counts() {
        let found = quota_with(&[
            (
                "proc/self/mountinfo",
                "31 30 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                 32 30 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("proc/self/cgroup", "1:cpu:/a\n0::/b\n"),
            ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "90000"),
            ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "30000"),
            ("sys/fs/cgroup/unified/b/cpu.max", "250000 100000"),
        ]);
        assert_eq!(found, Some((2.5, "/sys/fs/cgroup/unified/b".into(), GroupRelation::Own)));
    }

    #[test]
    fn what_no_kernel_writes_is_named_and_counts_as_no_limit() {
        for text in ["", "nonsense", "50000", "50000 0", "0 100000", "-2 100000", "1 2 3", "1e5 100000"] {
            let limits = with(&[V2, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/cpu.max", text)]);
            assert_eq!((limits.quota, limits.unread.len()), (None, 1), "{text:?}");
        }
        let files = [V1, ("proc/self/cgroup", "3:cpuset:/\n"), ("sys/fs/cgroup/cpuset/cpuset.cpus", "3-1\n")];
        assert_eq!(with(&files).unread.len(), 1);
    }

    #[test]
    fn a_host_without_control_groups_has_its_affinity_alone() {
        let expected =
            ProcessorLimits { affinity: (0..8).collect(), online: 8, ..ProcessorLimits::default() };
        assert_eq!(with(&[]), expected);
        let broken = [("proc/self/mountinfo", "x - \n\n1 2 3 - cgroup"), ("proc/self/cgroup", "::\n:")];
        assert_eq!(with(&broken), expected);
    }

    #[test]
    fn this_process_has_processors_to_run_on() {
        let limits = limits().expect("own affinity");
        assert!(!limits.affinity.is_empty() && limits.online >= limits.affinity.len());
        assert_eq!(limits.unread, Vec::<String>::new());
    }
}
