//! Control groups, version 1 and version 2: where they are mounted, making and removing groups, moving
//! processes, freezing, processor weights, limits on the number of tasks.
//!
//! A [`CgroupHierarchy`] is one mounted tree; a [`ControlGroup`] is a directory in it. Version 2 has one tree
//! whose `cgroup.controllers` lists what it can do, and every group can be frozen (kernels from 5.2 on);
//! version 1 has a tree for each controller. Cost: a write is about 1.3 us with warm caches and 5 to 20 us
//! after another program ran; freezing walks every task of the group.
//!
//! When not: these calls change the machine for others. Whoever makes a group removes it, also after a
//! crash (see the journal in `unisono-gang`).
//!
//! Reference: cgroups(7); Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.

use crate::affinity::Tid;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

/// What went wrong, and where.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct Error {
    /// What was tried.
    pub action: &'static str,
    /// On which file or directory.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

type Result<T> = std::result::Result<T, Error>;

fn wrong(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error { action, path: path.to_owned(), source }
}

/// Which interface a hierarchy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One tree a controller.
    V1,
    /// One tree for all.
    V2,
}

/// One mounted cgroup tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupHierarchy {
    /// Where it is mounted.
    pub root: PathBuf,
    /// The group that `root` shows: `/`, or in a container without a cgroup namespace the container's own.
    pub base: PathBuf,
    pub version: CgroupVersion,
    /// What it controls: `cpu`, `freezer`, `pids`, ...
    pub controllers: Vec<String>,
}

/// The trees that are mounted for this process.
///
/// # Errors
/// `/proc/self/mountinfo` cannot be read.
pub fn hierarchies() -> Result<Vec<CgroupHierarchy>> {
    hierarchies_below(Path::new("/"))
}

/// The trees that `ROOT/proc/self/mountinfo` names; `ROOT` is `/`, or holds recorded files.
///
/// # Errors
/// `/proc/self/mountinfo` cannot be read.
pub fn hierarchies_below(root: &Path) -> Result<Vec<CgroupHierarchy>> {
    let mounts = root.join("proc/self/mountinfo");
    let text = fs::read_to_string(&mounts).map_err(wrong("read", &mounts))?;
    let mut found = parse_mounts(&text, root);
    for hierarchy in found.iter_mut().filter(|h| h.version == CgroupVersion::V2) {
        let controllers = fs::read_to_string(hierarchy.root.join("cgroup.controllers"));
        hierarchy.controllers =
            controllers.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    }
    Ok(found)
}

/// Lines as `30 23 0:28 BASE ROOT OPTIONS [TAG...] - KIND SOURCE OPTIONS`: proc_pid_mountinfo(5).
fn parse_mounts(text: &str, below: &Path) -> Vec<CgroupHierarchy> {
    let unescaped = |path: &str| path.replace("\\040", " ");
    text.lines()
        .filter_map(|line| {
            let (mount, file_system) = line.split_once(" - ")?;
            let mut mount = mount.split(' ').skip(3).map(unescaped);
            let (base, root) = (mount.next()?.into(), mount.next()?);
            let mut file_system = file_system.split(' ');
            let version = match file_system.next()? {
                "cgroup" => CgroupVersion::V1,
                "cgroup2" => CgroupVersion::V2,
                _ => return None,
            };
            let options = file_system.nth(1)?.split(',').map(str::to_owned);
            let controllers = if version == CgroupVersion::V1 { options.collect() } else { Vec::new() };
            let root = below.join(root.trim_start_matches('/'));
            Some(CgroupHierarchy { root, base, version, controllers })
        })
        .collect()
}

impl CgroupHierarchy {
    /// The first tree of this version, if one is mounted.
    #[must_use]
    pub fn of_version(all: &[CgroupHierarchy], version: CgroupVersion) -> Option<&CgroupHierarchy> {
        all.iter().find(|h| h.version == version)
    }

    /// The tree that has this controller, version 2 first.
    #[must_use]
    pub fn with<'a>(all: &'a [CgroupHierarchy], controller: &str) -> Option<&'a CgroupHierarchy> {
        let has = |h: &&CgroupHierarchy| h.controllers.iter().any(|name| name == controller);
        let second = all.iter().filter(|h| h.version == CgroupVersion::V2).find(has);
        second.or_else(|| all.iter().filter(|h| h.version == CgroupVersion::V1).find(has))
    }

    /// The group in this tree that a process is in now.
    ///
    /// # Errors
    /// `/proc/PID/cgroup` cannot be read or does not name this tree.
    pub fn group_of(&self, process: Tid) -> Result<ControlGroup> {
        let who = if process == Tid::SELF { "self".to_owned() } else { process.to_string() };
        let path = PathBuf::from(format!("/proc/{who}/cgroup"));
        let text = fs::read_to_string(&path).map_err(wrong("read", &path))?;
        match self.path_in(&text) {
            Some(inside) => Ok(self.group_at(inside)),
            None => Err(wrong("find this hierarchy in", &path)(ErrorKind::NotFound.into())),
        }
    }

    /// What a text like `/proc/PID/cgroup` names as the group in this tree.
    pub(crate) fn path_in<'a>(&self, text: &'a str) -> Option<&'a Path> {
        text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
            let here = match self.version {
                CgroupVersion::V2 => number == "0" && names.is_empty(),
                CgroupVersion::V1 => {
                    !names.is_empty() && names.split(',').all(|n| self.controllers.iter().any(|c| c == n))
                }
            };
            here.then(|| Path::new(path))
        })
    }

    /// Whether the mount shows this group: a container may see only its own, and a process may be outside of
    /// the cgroup namespace (`/../..`).
    pub(crate) fn shows(&self, path: &Path) -> bool {
        self.below_base(path).is_some()
    }

    fn below_base<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let inside = path.strip_prefix(&self.base).ok()?;
        inside.components().all(|part| part != Component::ParentDir).then_some(inside)
    }

    /// The group of this path; the topmost that the mount shows where the group itself is not to be seen.
    pub(crate) fn group_at(&self, path: &Path) -> ControlGroup {
        let inside = self.below_base(path).unwrap_or(Path::new(""));
        ControlGroup { dir: self.root.join(inside), version: self.version }
    }

    /// The group at the root of this tree.
    #[must_use]
    pub fn top(&self) -> ControlGroup {
        ControlGroup { dir: self.root.clone(), version: self.version }
    }
}

/// Whether the tasks of a group may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frozen {
    No,
    /// They stop at the next return to their program, and new ones do not start.
    Yes,
}

/// A control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    dir: PathBuf,
    version: CgroupVersion,
}

impl ControlGroup {
    /// The group at a path that was recorded earlier; nothing is checked.
    #[must_use]
    pub fn at(dir: PathBuf, version: CgroupVersion) -> Self {
        Self { dir, version }
    }

    /// The interface of its hierarchy.
    #[must_use]
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Makes a group inside this one, or takes the one that is there.
    ///
    /// # Errors
    /// Not permitted, or the hierarchy's limits.
    pub fn create(&self, name: &str) -> Result<ControlGroup> {
        let dir = self.dir.join(name);
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(wrong("create", &dir)(error)),
            _ => Ok(ControlGroup { dir, version: self.version }),
        }
    }

    /// Removes the group; one that is gone already is no error.
    ///
    /// # Errors
    /// `EBUSY`: processes or groups are still in it.
    pub fn remove(&self) -> Result<()> {
        match fs::remove_dir(&self.dir) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(wrong("remove", &self.dir)(error)),
            _ => Ok(()),
        }
    }

    /// Writes one of its files.
    ///
    /// # Errors
    /// The file is missing (no such controller) or the value is refused.
    pub fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.dir.join(file);
        let written =
            OpenOptions::new().write(true).open(&path).and_then(|mut f| f.write_all(value.as_bytes()));
        written.map_err(wrong("write", &path))
    }

    /// Reads one of its files.
    ///
    /// # Errors
    /// The file is missing (no such controller).
    pub fn read(&self, file: &str) -> Result<String> {
        let path = self.dir.join(file);
        fs::read_to_string(&path).map_err(wrong("read", &path))
    }

    /// Whether it has this file, that is, the controller and the kernel version that bring it.
    #[must_use]
    pub fn has(&self, file: &str) -> bool {
        self.dir.join(file).exists()
    }

    /// The open file whose write of `0` moves the writing process in (see [`crate::process::start`]).
    ///
    /// # Errors
    /// Not permitted.
    pub fn door(&self) -> Result<File> {
        let path = self.dir.join("cgroup.procs");
        OpenOptions::new().write(true).open(&path).map_err(wrong("open", &path))
    }

    /// Moves a process with all its threads into this group.
    ///
    /// # Errors
    /// `ESRCH`: it has ended. `EACCES`/`EPERM`: not permitted.
    pub fn admit(&self, process: Tid) -> Result<()> {
        self.write("cgroup.procs", &process.to_string())
    }

    /// The processes in this group itself (not in groups below it).
    ///
    /// # Errors
    /// The group is gone.
    pub fn processes(&self) -> Result<Vec<Tid>> {
        Ok(numbers(&self.read("cgroup.procs")?))
    }

    /// The threads in this group itself; one read, also for many processes.
    ///
    /// # Errors
    /// The group is gone.
    pub fn threads(&self) -> Result<Vec<Tid>> {
        let file = if self.version == CgroupVersion::V2 { "cgroup.threads" } else { "tasks" };
        Ok(numbers(&self.read(file)?))
    }

    /// Processor time in nanoseconds that the group has used, if its hierarchy counts it.
    ///
    /// # Errors
    /// The group is gone, or this hierarchy does not count processor time.
    pub fn used_ns(&self) -> Result<u64> {
        self.meter()?.used_ns()
    }

    /// A file of this group that holds one number, opened once for many reads.
    ///
    /// # Errors
    /// The file is missing (no such controller).
    pub fn gauge(&self, file: &str) -> Result<Gauge> {
        let path = self.dir.join(file);
        match File::open(&path) {
            Ok(file) => Ok(Gauge { file, path }),
            Err(error) => Err(wrong("open", &path)(error)),
        }
    }

    /// What [`ControlGroup::used_ns`] reads, opened once for many reads.
    ///
    /// # Errors
    /// The group is gone, or this hierarchy does not count processor time.
    pub fn meter(&self) -> Result<GroupMeter> {
        Ok(match self.version {
            CgroupVersion::V2 => GroupMeter::Microseconds(self.gauge("cpu.stat")?),
            CgroupVersion::V1 => GroupMeter::Nanoseconds(self.gauge("cpuacct.usage")?),
        })
    }

    /// Gives the group a weight against its siblings, in units of one default task (1.0).
    ///
    /// # Errors
    /// The hierarchy has no `cpu` controller here.
    pub fn set_weight(&self, weight: f64) -> Result<()> {
        let (file, value) = weight_words(self.version, weight);
        self.write(file, &value)
    }

    /// The file that gives this group a weight, opened once for many writes.
    ///
    /// # Errors
    /// The hierarchy has no `cpu` controller here.
    pub fn dial(&self) -> Result<Dial> {
        let path = self.dir.join(weight_words(self.version, 1.0).0);
        match OpenOptions::new().write(true).open(&path) {
            Ok(file) => Ok(Dial { file, version: self.version, path }),
            Err(error) => Err(wrong("open", &path)(error)),
        }
    }

    /// The file that freezes and thaws this group, opened once for many writes.
    ///
    /// # Errors
    /// The group cannot be frozen: no version 2 hierarchy and no `freezer` controller.
    pub fn valve(&self) -> Result<Valve> {
        let (file, words) = match self.version {
            CgroupVersion::V2 => ("cgroup.freeze", ["0", "1"]),
            CgroupVersion::V1 => ("freezer.state", ["THAWED", "FROZEN"]),
        };
        let path = self.dir.join(file);
        match OpenOptions::new().write(true).open(&path) {
            Ok(file) => Ok(Valve { file, words, path }),
            Err(error) => Err(wrong("open", &path)(error)),
        }
    }
}

fn weight_words(version: CgroupVersion, weight: f64) -> (&'static str, String) {
    match version {
        CgroupVersion::V1 => ("cpu.shares", format!("{:.0}", (weight * 1024.0).clamp(2.0, 262_144.0))),
        CgroupVersion::V2 => ("cpu.weight", format!("{:.0}", (weight * 100.0).clamp(1.0, 10_000.0))),
    }
}

fn numbers(text: &str) -> Vec<Tid> {
    text.split_whitespace().filter_map(|n| n.parse().ok().map(Tid)).collect()
}

/// An open file that freezes and thaws one group.
#[derive(Debug)]
pub struct Valve {
    file: File,
    words: [&'static str; 2],
    path: PathBuf,
}

impl Valve {
    /// Freezes or thaws. Threads that run stop within a few microseconds; those that wait for a processor
    /// stop when they would get one.
    ///
    /// # Errors
    /// The group is gone.
    pub fn set(&self, frozen: Frozen) -> Result<()> {
        let word = self.words[usize::from(frozen == Frozen::Yes)];
        self.file.write_all_at(word.as_bytes(), 0).map_err(wrong("write", &self.path))
    }
}

/// An open file that gives one group its weight.
#[derive(Debug)]
pub struct Dial {
    file: File,
    version: CgroupVersion,
    path: PathBuf,
}

impl Dial {
    /// The weight against its siblings, in units of one default task (1.0); 0 is the least there is.
    ///
    /// # Errors
    /// The group is gone.
    pub fn set(&self, weight: f64) -> Result<()> {
        let (_, value) = weight_words(self.version, weight);
        self.file.write_all_at(value.as_bytes(), 0).map_err(wrong("write", &self.path))
    }
}

/// An open file of a group that holds one number.
#[derive(Debug)]
pub struct Gauge {
    file: File,
    path: PathBuf,
}

impl Gauge {
    /// The number now; 0 when the file says something else (`max`).
    ///
    /// # Errors
    /// The group is gone.
    pub fn read(&self) -> Result<u64> {
        Ok(self.start()?.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0))
    }

    /// The beginning of the file.
    fn start(&self) -> Result<String> {
        let mut bytes = [0u8; 64];
        let read = self.file.read_at(&mut bytes, 0).map_err(wrong("read", &self.path))?;
        Ok(String::from_utf8_lossy(&bytes[..read]).into_owned())
    }
}

/// The open file that says how much processor time a group and those in it have used.
#[derive(Debug)]
pub enum GroupMeter {
    /// Version 1: one number.
    Nanoseconds(Gauge),
    /// Version 2: the first of several lines with names.
    Microseconds(Gauge),
}

impl GroupMeter {
    /// Nanoseconds used so far.
    ///
    /// # Errors
    /// The group is gone.
    pub fn used_ns(&self) -> Result<u64> {
        match self {
            GroupMeter::Nanoseconds(gauge) => gauge.read(),
            GroupMeter::Microseconds(gauge) => {
                let text = gauge.start()?;
                let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
                Ok(usage.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0) * 1000)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        33 31 0:30 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n\
        34 31 0:31 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    fn mixed() -> Vec<CgroupHierarchy> {
        parse_mounts(MIXED, Path::new("/"))
    }

    #[test]
    fn both_versions_are_found_among_the_mounts() {
        let found = mixed();
        assert_eq!(found.len(), 3);
        assert_eq!(
            CgroupHierarchy::with(&found, "cpu").expect("cpu").root,
            Path::new("/sys/fs/cgroup/cpu,cpuacct")
        );
        assert_eq!(
            CgroupHierarchy::of_version(&found, CgroupVersion::V2).expect("v2").root,
            Path::new("/sys/fs/cgroup/unified")
        );
        assert_eq!(CgroupHierarchy::with(&found, "pids"), None);
    }

    #[test]
    fn a_group_outside_of_what_is_mounted_is_the_top_of_the_mount() {
        let mount = "40 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
        let [container] = &parse_mounts(mount, Path::new("/"))[..] else { panic!("one tree") };
        for (path, directory) in [
            ("/docker/abc", "/sys/fs/cgroup/cpu"),
            ("/docker/abc/inner", "/sys/fs/cgroup/cpu/inner"),
            ("/docker/abcd", "/sys/fs/cgroup/cpu"),
            ("/docker/abc/../xyz", "/sys/fs/cgroup/cpu"),
            ("/../..", "/sys/fs/cgroup/cpu"),
        ] {
            assert_eq!(container.group_at(Path::new(path)).path(), Path::new(directory), "{path}");
        }
    }

    #[test]
    fn version_2_is_preferred_where_both_have_a_controller() {
        let mut found = mixed();
        found[2].controllers.push("cpu".to_owned());
        assert_eq!(CgroupHierarchy::with(&found, "cpu").expect("cpu").version, CgroupVersion::V2);
    }

    #[test]
    fn errors_name_the_action_and_the_path() {
        let group = ControlGroup::at("/sys/fs/cgroup/unisono-that-is-not-there".into(), CgroupVersion::V2);
        let error = group.write("cpu.weight", "1").expect_err("no such group").to_string();
        assert!(
            error.starts_with("cannot write /sys/fs/cgroup/unisono-that-is-not-there/cpu.weight: "),
            "{error}"
        );
        assert!(group.remove().is_ok(), "one that is gone is no error");
    }

    #[test]
    fn weights_stay_within_what_each_version_accepts() {
        let words = |version, weight| weight_words(version, weight).1;
        assert_eq!([0.0, 1.0, 1e9].map(|w| words(CgroupVersion::V1, w)), ["2", "1024", "262144"]);
        assert_eq!([0.0, 1.0, 1e9].map(|w| words(CgroupVersion::V2, w)), ["1", "100", "10000"]);
    }

    #[test]
    fn every_process_is_in_some_group_of_a_mounted_tree() {
        for hierarchy in hierarchies().expect("mounts") {
            let Ok(group) = hierarchy.group_of(Tid::SELF) else { continue };
            assert!(group.path().starts_with(&hierarchy.root));
        }
    }
}
