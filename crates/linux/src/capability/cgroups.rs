//! Control groups: the mount points of controllers, and whether this user may make groups.
//!
//! A trial makes a group called `unisono-doctor-PID-TID` below the group of this process (or below the root
//! of the hierarchy), examines it, and removes it.
//!
//! Reference: cgroups(7), Documentation/admin-guide/cgroup-v1, cgroup-v2.rst.

use super::scratch::words;
use super::{OUTSIDE_REMEDY, ProbedHost, TrialFinding};
use crate::affinity::Tid;
use crate::cgroup::MissingCgroup2;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(super) fn v1(host: &ProbedHost, controller: &str) -> TrialFinding {
    if let Some(reason) = hidden(host) {
        return TrialFinding::undecided(reason, OUTSIDE_REMEDY);
    }
    let Some(mount) = mount(host, |fields| fields.kind == "cgroup" && fields.has_option(controller)) else {
        let reason = match known(host, controller) {
            KnownGroups::Unreadable => {
                return TrialFinding::undecided("/proc/cgroups cannot be read", OUTSIDE_REMEDY);
            }
            KnownGroups::Absent => format!("this kernel has no {controller} controller"),
            KnownGroups::Disabled => {
                format!("the {controller} controller is disabled on the kernel's command line")
            }
            KnownGroups::Hierarchy(_) => {
                format!("no v1 hierarchy with the {controller} controller is mounted")
            }
        };
        return TrialFinding::missing(reason, "nothing to do where cgroup v2 is used");
    };
    writable(&mount, own(host, &mount, controller), |_| Ok(format!("at {}", mount.display())))
}

/// Returns the group of this process in a v1 hierarchy, unless it is the root group.
pub(super) fn own_v1(host: &ProbedHost, controller: &str) -> Option<PathBuf> {
    let mount = mount(host, |fields| fields.kind == "cgroup" && fields.has_option(controller))?;
    own(host, &mount, controller).filter(|group| *group != mount)
}

pub(super) fn v2(host: &ProbedHost) -> TrialFinding {
    match v2_mount(host) {
        Some(mount) => {
            let controllers = fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
            let controllers = controllers.trim();
            let controllers = if controllers.is_empty() { "none" } else { controllers };
            TrialFinding::found(format!("at {}, controllers: {controllers}", mount.display()))
        }
        None if let Some(reason) = hidden(host) => TrialFinding::undecided(reason, OUTSIDE_REMEDY),
        None => {
            let MissingCgroup2 { reason, remedy } = MissingCgroup2::below(&host.root);
            TrialFinding::missing(reason, format!("{remedy} (as root); gangs by freezing need it"))
        }
    }
}

/// Makes a group, then freezes and thaws it.
pub(super) fn v2_freeze(host: &ProbedHost) -> TrialFinding {
    let Some(mount) = v2_mount(host) else { return v2(host) };
    writable(&mount, own(host, &mount, ""), |group| {
        let freeze = group.join("cgroup.freeze");
        fs::write(&freeze, "1")
            .and_then(|()| fs::write(&freeze, "0"))
            .map(|()| "a group can be frozen and thawed".to_owned())
            .map_err(|error| format!("groups can be made, but {} refuses: {error}", freeze.display()))
    })
}

pub(super) fn v2_controller(host: &ProbedHost, controller: &str) -> TrialFinding {
    let Some(mount) = v2_mount(host) else { return v2(host) };
    let has = |file: &str| {
        let text = fs::read_to_string(mount.join(file)).unwrap_or_default();
        text.split_ascii_whitespace().any(|name| name == controller)
    };
    if has("cgroup.controllers") {
        let enabled = if has("cgroup.subtree_control") { "handed down" } else { "not handed down to groups" };
        return TrialFinding::found(format!("at {}, {enabled}", mount.display()));
    }
    match known(host, controller) {
        // since Linux 6.15 /proc/cgroups lists the controllers of version 1 only
        KnownGroups::Absent | KnownGroups::Unreadable => TrialFinding::undecided(
            format!(
                "{} does not offer {controller}, and /proc/cgroups does not list it: the kernel lacks it, or a \
                 namespace or container hides it",
                mount.display()
            ),
            "look again outside the container; a kernel that was built with it offers it there",
        ),
        KnownGroups::Disabled => TrialFinding::missing(
            format!("the {controller} controller is disabled on the kernel's command line"),
            "remove cgroup_disable from the kernel's command line",
        ),
        KnownGroups::Hierarchy(0) => TrialFinding::missing(
            format!("{} does not offer it (a namespace or container hides it)", mount.display()),
            "have the controller delegated to this group",
        ),
        KnownGroups::Hierarchy(_) => TrialFinding::missing(
            format!("the {controller} controller is bound to a v1 hierarchy"),
            "boot with cgroup_no_v1=all (systemd: systemd.unified_cgroup_hierarchy=1); v1 is used meanwhile",
        ),
    }
}

/// Tries to make a group below the mount or below `own`; `look` examines the group before it is removed.
fn writable(
    mount: &Path,
    own: Option<PathBuf>,
    look: impl Fn(&Path) -> Result<String, String>,
) -> TrialFinding {
    let name = format!("unisono-doctor-{}-{}", std::process::id(), Tid::current());
    let mut refusal = (mount.to_owned(), io::Error::from_raw_os_error(libc::EACCES));
    for parent in [Some(mount.to_owned()), own].into_iter().flatten() {
        let group = parent.join(&name);
        match fs::create_dir(&group) {
            Ok(()) => {
                let seen = look(&group);
                let removed = fs::remove_dir(&group);
                return match (seen, removed) {
                    (Ok(seen), Ok(())) => {
                        TrialFinding::found(format!("{seen}; groups can be made below {}", parent.display()))
                    }
                    (Ok(seen), Err(error)) => TrialFinding::found(seen).with_hint(format!(
                        "the trial group could not be removed ({error}): rmdir {}",
                        group.display()
                    )),
                    (Err(refusal), _) => TrialFinding::missing(refusal, "use Linux 5.2 or newer"),
                };
            }
            Err(error) => refusal = (parent, error),
        }
    }
    let (parent, error) = refusal;
    let why = error.raw_os_error().map_or_else(|| error.to_string(), words);
    let remedy = match error.raw_os_error() {
        Some(libc::EROFS) => "remount it writable (containers: mount /sys/fs/cgroup read-write)",
        _ => "run as root, or have the group delegated (systemd: Delegate=yes)",
    };
    TrialFinding::missing(
        format!("mounted, but no group can be made below {}: {why}", parent.display()),
        remedy,
    )
}

/// Returns the reason why the mounts are unknown; `None` if they can be read.
fn hidden(host: &ProbedHost) -> Option<&'static str> {
    host.read("proc/self/mounts").is_none().then_some("/proc/self/mounts cannot be read")
}

/// The state of a controller in `/proc/cgroups`.
#[derive(Debug, PartialEq, Eq)]
enum KnownGroups {
    Unreadable,
    Absent,
    Disabled,
    /// The number of the controller's hierarchy; 0 is the v2 hierarchy, or none.
    Hierarchy(u32),
}

fn known(host: &ProbedHost, controller: &str) -> KnownGroups {
    let Some(table) = host.read("proc/cgroups") else { return KnownGroups::Unreadable };
    let Some(line) = table.lines().find(|line| line.split('\t').next() == Some(controller)) else {
        return KnownGroups::Absent;
    };
    let fields: Vec<u32> = line.split('\t').skip(1).filter_map(|field| field.parse().ok()).collect();
    match fields[..] {
        [_, _, 0] => KnownGroups::Disabled,
        [hierarchy, ..] => KnownGroups::Hierarchy(hierarchy),
        [] => KnownGroups::Absent,
    }
}

/// Returns the group of this process in the hierarchy mounted at `mount`.
fn own(host: &ProbedHost, mount: &Path, controller: &str) -> Option<PathBuf> {
    let table = host.read("proc/self/cgroup")?;
    table.lines().find_map(|line| {
        // hierarchy:controllers:path; the v2 line has no controllers
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let path = fields.next()?;
        let matches = controllers.split(',').any(|name| name == controller);
        let below = path.trim_start_matches('/');
        matches.then(|| if below.is_empty() { mount.to_owned() } else { mount.join(below) })
    })
}

fn v2_mount(host: &ProbedHost) -> Option<PathBuf> {
    mount(host, |fields| fields.kind == "cgroup2")
}

struct Mount<'a> {
    kind: &'a str,
    options: &'a str,
}

impl Mount<'_> {
    fn has_option(&self, option: &str) -> bool {
        self.options.split(',').any(|found| found == option)
    }
}

/// Returns the first mount point in `/proc/self/mounts` that satisfies `fits`.
fn mount(host: &ProbedHost, fits: impl Fn(&Mount<'_>) -> bool) -> Option<PathBuf> {
    let table = host.read("proc/self/mounts")?;
    table.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let point = fields.next()?;
        let mount = Mount { kind: fields.next()?, options: fields.next()? };
        fits(&mount).then(|| host.path(&point.replace("\\040", " ")))
    })
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeRoot;
    use super::*;

    const MOUNTS: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
        cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
    const TABLE: &str =
        "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t1\t1\npids\t0\t1\t1\nmemory\t0\t1\t0\n";

    fn mixed(name: &str) -> FakeRoot {
        FakeRoot::with(
            name,
            &[
                ("proc/self/mounts", MOUNTS),
                ("proc/cgroups", TABLE),
                ("proc/self/cgroup", "1:cpu,cpuacct:/jobs\n0::/\n"),
                ("sys/fs/cgroup/cpu/jobs/cpu.shares", "1024"),
                ("sys/fs/cgroup/unified/cgroup.controllers", "io\n"),
            ],
        )
    }

    #[test]
    fn a_controller_that_v1_holds_is_missing_in_v2_for_that_reason() {
        let root = mixed("mixed");
        assert!(v1(&root.0, "cpu").is_found());
        let missing = v2_controller(&root.0, "cpu");
        assert_eq!(missing.reason.as_deref(), Some("the cpu controller is bound to a v1 hierarchy"));
        assert!(v2_controller(&root.0, "io").is_found());
    }

    #[test]
    fn absent_and_disabled_controllers_are_told_apart() {
        let root = mixed("absent");
        let reason = |controller| v1(&root.0, controller).reason.expect("a reason");
        assert_eq!(reason("freezer"), "this kernel has no freezer controller");
        assert_eq!(reason("memory"), "the memory controller is disabled on the kernel's command line");
        assert_eq!(reason("pids"), "no v1 hierarchy with the pids controller is mounted");
    }

    #[test]
    fn a_trial_leaves_no_group_behind() {
        let root = mixed("clean");
        assert!(v1(&root.0, "cpu").is_found());
        let left = fs::read_dir(root.0.path("sys/fs/cgroup/cpu")).expect("directory").count();
        assert_eq!(left, 1, "only the group that was there before");
    }

    #[test]
    fn the_own_group_is_known_unless_it_is_the_root() {
        let root = mixed("own");
        assert_eq!(own_v1(&root.0, "cpu"), Some(root.0.path("sys/fs/cgroup/cpu/jobs")));
        assert_eq!(own_v1(&root.0, "freezer"), None);
    }

    #[test]
    fn without_a_v2_mount_freezing_says_so() {
        let root = FakeRoot::with("no-v2", &[("proc/self/mounts", "proc /proc proc rw 0 0\n")]);
        assert_eq!(v2_freeze(&root.0).reason.as_deref(), Some("no cgroup2 is mounted"));
    }
}
