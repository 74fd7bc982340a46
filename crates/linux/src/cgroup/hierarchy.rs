//! The mount points of control groups: proc_pid_mountinfo(5).

use super::{ControlGroup, Error, wrong};
use crate::affinity::Tid;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    V1,
    V2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupHierarchy {
    pub root: PathBuf,
    /// The group that `root` shows: `/`, or the container's own group in a container without a cgroup
    /// namespace.
    pub base: PathBuf,
    pub version: CgroupVersion,
    /// The hierarchy's controllers: `cpu`, `freezer`, `pids`, ...
    pub controllers: Vec<String>,
}

/// Returns the hierarchies that are mounted for this process.
pub fn hierarchies() -> Result<Vec<CgroupHierarchy>, Error> {
    hierarchies_below(Path::new("/"))
}

/// Returns the hierarchies in `ROOT/proc/self/mountinfo`; `ROOT` is `/`, or holds recorded files.
pub fn hierarchies_below(root: &Path) -> Result<Vec<CgroupHierarchy>, Error> {
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

/// Parses lines `30 23 0:28 BASE ROOT OPTIONS [TAG...] - KIND SOURCE OPTIONS`: proc_pid_mountinfo(5).
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
    /// Returns the first hierarchy of this version, if any is mounted.
    pub fn of_version(all: &[CgroupHierarchy], version: CgroupVersion) -> Option<&CgroupHierarchy> {
        all.iter().find(|h| h.version == version)
    }

    /// Returns the hierarchy with this controller, version 2 first.
    pub fn with<'a>(all: &'a [CgroupHierarchy], controller: &str) -> Option<&'a CgroupHierarchy> {
        let has = |h: &&CgroupHierarchy| h.controllers.iter().any(|name| name == controller);
        let second = all.iter().filter(|h| h.version == CgroupVersion::V2).find(has);
        second.or_else(|| all.iter().filter(|h| h.version == CgroupVersion::V1).find(has))
    }

    /// Returns the group in this hierarchy that a process is in now. Fails if `/proc/PID/cgroup` does not
    /// name this hierarchy.
    pub fn group_of(&self, process: Tid) -> Result<ControlGroup, Error> {
        let who = if process == Tid::SELF { "self".to_owned() } else { process.to_string() };
        let path = PathBuf::from(format!("/proc/{who}/cgroup"));
        let text = fs::read_to_string(&path).map_err(wrong("read", &path))?;
        match self.path_in(&text) {
            Some(inside) => Ok(self.group_at(inside)),
            None => Err(wrong("find this hierarchy in", &path)(ErrorKind::NotFound.into())),
        }
    }

    /// Returns the path of the group in this hierarchy, from a text like `/proc/PID/cgroup`.
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

    /// Returns whether the mount shows this group: a container may see only its own groups, and a process may
    /// be outside of the cgroup namespace (`/../..`).
    pub(crate) fn shows(&self, path: &Path) -> bool {
        self.below_base(path).is_some()
    }

    fn below_base<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        let inside = path.strip_prefix(&self.base).ok()?;
        inside.components().all(|part| part != Component::ParentDir).then_some(inside)
    }

    /// Returns the group with this path; if the mount does not show the group, the topmost group that it
    /// shows.
    pub(crate) fn group_at(&self, path: &Path) -> ControlGroup {
        let inside = self.below_base(path).unwrap_or(Path::new(""));
        ControlGroup { dir: self.root.join(inside), version: self.version }
    }

    /// Opens the directory of a group by its path below the root. The lookup never leaves this mount and
    /// follows no links, so that no path can lead to a file system that does not answer. Fails with `EXDEV`
    /// or `ELOOP` if the path leaves the mount or contains a link, and with `ENOENT` if there is no such
    /// group.
    pub fn open(&self, inside: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let root = rustix::fs::open(&self.root, flags, Mode::empty())?;
        let inside_alone = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        Ok(openat2(root, inside, flags, Mode::empty(), inside_alone)?)
    }

    /// Returns the group at the root of this tree.
    pub fn top(&self) -> ControlGroup {
        ControlGroup { dir: self.root.clone(), version: self.version }
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
    fn a_path_leads_to_groups_of_its_mount_and_nowhere_else() {
        let inside = tempfile::tempdir().expect("a directory");
        fs::create_dir(inside.path().join("group")).expect("room");
        std::os::unix::fs::symlink("/proc", inside.path().join("link")).expect("room");
        let tree = |root: &Path| CgroupHierarchy { root: root.to_owned(), ..mixed().remove(2) };
        let opened = |root: &Path, path: &str| tree(root).open(Path::new(path)).map(drop);
        assert!(opened(inside.path(), "group").is_ok());
        for (path, errno) in [
            ("link/self", libc::ELOOP),
            ("../group", libc::EXDEV),
            ("/proc", libc::EXDEV),
            ("none", libc::ENOENT),
        ] {
            let refused = opened(inside.path(), path).map_err(|error| error.raw_os_error());
            assert_eq!(refused, Err(Some(errno)), "{path}");
        }
        let other = opened(Path::new("/"), "proc/self").map_err(|error| error.raw_os_error());
        assert_eq!(other, Err(Some(libc::EXDEV)), "another file system");
    }

    #[test]
    fn version_2_is_preferred_where_both_have_a_controller() {
        let mut found = mixed();
        found[2].controllers.push("cpu".to_owned());
        assert_eq!(CgroupHierarchy::with(&found, "cpu").expect("cpu").version, CgroupVersion::V2);
    }

    #[test]
    fn every_process_is_in_some_group_of_a_mounted_tree() {
        for hierarchy in hierarchies().expect("mounts") {
            let Ok(group) = hierarchy.group_of(Tid::SELF) else { continue };
            assert!(group.path().starts_with(&hierarchy.root));
        }
    }
}
