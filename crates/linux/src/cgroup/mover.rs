//! Moves processes between groups, without harm to a process that takes the number of a process that has
//! ended.
//!
//! The kernel moves whatever process has the number that is written to `cgroup.procs`. The process that was
//! meant may have ended a moment before, and the number may be another user's process by then. No check
//! before the write can exclude that, and after it a user to whom the group was delegated may have killed all
//! processes of the group. So the kernel itself checks: the files of a delegated group are opened and written
//! with that user's rights alone. The kernel then refuses every process outside the delegated subtree:
//! exactly the processes that this user could not have moved, or killed, before.
//!
//! ```text
//!   group of    rights used  a process of another user is              who could harm it meanwhile
//!   root        root's       moved, noticed by its pidfd, sent back    root alone
//!   a user      the user's   refused by the kernel                     nobody
//! ```
//! Version 1 has no `cgroup.kill`, and there root's rights are used: a process that was moved by mistake is
//! sent back.
//!
//! Cost: a write for each process (5 to 20 us), three system calls to take other rights and return to the own
//! ones, two poll(2).
//!
//! Reference: Documentation/admin-guide/cgroup-v2.rst, "Delegation Containment"; credentials(7), seteuid(2).

use super::{ControlGroup, Error, hierarchies, wrong};
use crate::affinity::Tid;
use crate::cgroup::CgroupVersion;
use crate::pidfd::start_time;
use crate::pinned::PinnedProcess;
use crate::process_stat::ProcessStat;
use rustix::fs::Uid;
use rustix::io::Errno;
use rustix::thread::set_thread_res_uid;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

const PROCS: &str = "cgroup.procs";

/// Whether a process was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovedProcess {
    Yes,
    /// The process has ended, and no other process was moved in its place.
    Ended,
}

/// An open group that processes are moved into.
#[derive(Debug)]
pub struct ProcessMover {
    group: ControlGroup,
    path: PathBuf,
    procs: File,
    /// The user whose rights are used for each move; `None`: this process's own rights.
    user: Option<Uid>,
    /// Whether that user owns `cgroup.procs` only for the lifetime of this value.
    lent: bool,
}

impl ControlGroup {
    /// Returns the user to whom the group was handed, who may move processes into it: the owner of its
    /// `cgroup.procs`.
    pub fn owner(&self) -> Result<u32, Error> {
        let path = self.path().join(PROCS);
        fs::metadata(&path).map(|file| file.uid()).map_err(wrong("look at", &path))
    }

    /// Moves this process into the group with its own rights. The kernel reads 0 as the number of the writer,
    /// so no other process can be moved by mistake.
    pub fn enter(&self) -> Result<(), Error> {
        self.write(PROCS, "0")
    }

    /// Opens this group for processes that are moved into it from `around` (a group around this one, or this
    /// one itself) or from a group below `around`.
    pub fn mover(&self, around: &ControlGroup) -> Result<ProcessMover, Error> {
        let path = self.path().join(PROCS);
        let owner = Uid::from_raw(around.owner()?);
        let is_handed = self.version() == CgroupVersion::V2 && !owner.is_root();
        let user = (is_handed && rustix::process::geteuid().is_root()).then_some(owner);
        let open = || OpenOptions::new().write(true).open(&path);
        let Some(user) = user else {
            let procs = open().map_err(wrong("open", &path))?;
            return Ok(ProcessMover { group: self.clone(), path, procs, user: None, lent: false });
        };
        let lent = Uid::from_raw(self.owner()?) != user;
        if lent {
            chown(&path, Some(user.as_raw()), None).map_err(wrong("hand over", &path))?;
        }
        let procs = with_the_rights_of(user, open);
        match procs {
            Ok(procs) => Ok(ProcessMover { group: self.clone(), path, procs, user: Some(user), lent }),
            Err(error) => {
                if lent {
                    revoke(&path);
                }
                Err(wrong("open", &path)(error))
            }
        }
    }
}

impl ProcessMover {
    /// Moves a process with all its threads into the group. Fails if the process lives and the kernel
    /// refuses.
    pub fn add(&self, process: &PinnedProcess) -> Result<MovedProcess, Error> {
        if !process.lives() {
            return Ok(MovedProcess::Ended);
        }
        let number = process.number().to_string();
        let write = || (&self.procs).write_all(number.as_bytes());
        let written = match self.user {
            Some(user) => with_the_rights_of(user, write),
            None => write(),
        };
        match written {
            Ok(()) if process.lives() => Ok(MovedProcess::Yes),
            Ok(()) => {
                self.send_back(process);
                Ok(MovedProcess::Ended)
            }
            Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Ok(MovedProcess::Ended),
            Err(_) if !process.lives() => Ok(MovedProcess::Ended),
            Err(error) => Err(wrong("write", &self.path)(error)),
        }
    }

    /// Undoes a move of the wrong process: a process that took the number of `meant` goes back to the group
    /// that it came from. It has only just started, so that is the group of its parent.
    fn send_back(&self, meant: &PinnedProcess) {
        let number = meant.number();
        if start_time(number).is_none_or(|now| now == meant.started()) {
            return; // the process that was meant is still a zombie, or nobody has the number
        }
        let Ok(stranger) = PinnedProcess::now(number) else { return };
        let Some(origin) = self.group_of_parent(&stranger) else { return };
        if origin.path() == self.path.parent().unwrap_or(&self.path) {
            return; // the process was started inside this group
        }
        // a process that ends meanwhile need not be sent back
        let _ = stranger.read(|number| {
            OpenOptions::new()
                .write(true)
                .open(origin.path().join(PROCS))?
                .write_all(number.to_string().as_bytes())
        });
    }

    fn group_of_parent(&self, stranger: &PinnedProcess) -> Option<ControlGroup> {
        let all = hierarchies().ok()?;
        let here = all.iter().filter(|tree| tree.version == self.group.version());
        let tree = here
            .filter(|tree| self.path.starts_with(&tree.root))
            .max_by_key(|tree| tree.root.as_os_str().len())?;
        if tree.group_of(stranger.thread()).ok()?.path() != self.group.path() {
            return None; // it was not moved into this group
        }
        let ProcessStat { parent, .. } = stranger.stat().ok()?;
        tree.group_of(Tid(parent)).ok()
    }
}

impl Drop for ProcessMover {
    fn drop(&mut self) {
        if self.lent {
            revoke(&self.path);
        }
    }
}

fn revoke(procs: &Path) {
    let _ = chown(procs, Some(rustix::process::geteuid().as_raw()), None); // fails if the group is gone
}

/// Makes a call with the rights of another user and no others. Only root can do that. It changes the calling
/// thread alone, and the user cannot signal the thread, because its real user stays root.
fn with_the_rights_of<T>(user: Uid, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let own = rustix::process::geteuid();
    // a thread whose effective user is no longer 0 loses its effective capabilities, and gets them back with
    // user 0
    set_thread_res_uid(None, user, None)?;
    let done = call();
    let back = set_thread_res_uid(None, own, None);
    back.expect("the real user is root because only root has come this far, and it may become itself again");
    done
}

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "a skipped test says why")]
mod tests {
    use super::super::{CgroupHierarchy, unguessable};
    use super::*;
    use crate::privilege::NOBODY;
    use std::process::{Child, Command};

    /// A group below this process's group, and a group inside it; dropping the value removes both.
    struct Groups {
        around: ControlGroup,
        home: ControlGroup,
        children: Vec<Child>,
    }

    impl Groups {
        fn make() -> Option<Self> {
            let all = hierarchies().expect("mounts can be read");
            let second = CgroupHierarchy::of_version(&all, CgroupVersion::V2);
            let (true, Some(tree)) = (crate::process::is_root(), second) else {
                eprintln!("skipped: it needs root and cgroup version 2");
                return None;
            };
            let name = unguessable("unisono-test").expect("random bytes");
            let around = tree.group_of(Tid::SELF).expect("own group").create(&name).expect("root may");
            let home = around.create("home").expect("root may");
            Some(Self { around, home, children: Vec::new() })
        }

        /// Starts a child in the group of this process.
        fn start(&mut self) -> PinnedProcess {
            let child = Command::new("sleep").arg("100").spawn().expect("sleep is on every Linux");
            let pinned = PinnedProcess::of_child(&child).expect("our child");
            self.children.push(child);
            pinned
        }

        fn hand_over(&self, user: u32) {
            for file in ["", PROCS] {
                chown(self.around.path().join(file), Some(user), None).expect("root may");
            }
        }

        fn holds(group: &ControlGroup, number: u32) -> bool {
            group.processes().expect("it is there").contains(&Tid(number.cast_signed()))
        }
    }

    impl Drop for Groups {
        fn drop(&mut self) {
            for child in &mut self.children {
                child.kill().expect("our child");
                child.wait().expect("our child");
            }
            for group in [&self.home, &self.around] {
                while group.remove().is_err() {
                    std::thread::yield_now(); // a process that has just ended
                }
            }
        }
    }

    #[test]
    fn into_a_group_of_a_user_the_kernel_moves_only_what_that_user_could_have_moved() {
        let Some(mut groups) = Groups::make() else { return };
        let (own, stranger) = (groups.start(), groups.start());
        groups.around.add(&own).expect("root may");
        groups.hand_over(NOBODY);
        let mover = groups.home.mover(&groups.around).expect("it is there");
        assert_eq!(mover.add(&own).expect("it is in the group around"), MovedProcess::Yes);
        let number = stranger.number();
        // as if another process had taken the number of the user's own process after every check
        let refused = mover.add(&own.with_number(number)).expect_err("it is somewhere else");
        assert_eq!(refused.source.kind(), io::ErrorKind::PermissionDenied, "{refused}");
        assert!(!Groups::holds(&groups.home, number));
        // the opposite direction: only processes inside the delegated subtree can be moved
        let back = groups.around.mover(&groups.around).expect("it is there");
        assert!(back.add(&stranger).is_err() && !Groups::holds(&groups.around, number));
        let own = groups.children[0].id();
        drop((mover, back));
        assert_eq!(groups.home.owner().expect("it is there"), 0, "the file was only lent");
        assert!(Groups::holds(&groups.home, own));
        assert!(rustix::process::geteuid().is_root());
    }

    #[test]
    fn a_process_that_was_moved_by_mistake_goes_back_to_where_its_parent_is() {
        let Some(mut groups) = Groups::make() else { return };
        let stranger = groups.start();
        let (number, mover) = (stranger.number(), groups.home.mover(&groups.around).expect("it is there"));
        assert_eq!(mover.add(&stranger).expect("root may"), MovedProcess::Yes);
        assert!(Groups::holds(&groups.home, number));
        // the process that was meant had this number and started at another time
        let mut ended = Command::new("sleep").arg("100").spawn().expect("sleep is on every Linux");
        let meant = PinnedProcess::of_child(&ended).expect("our child").with_number(number);
        mover.send_back(&meant);
        ended.kill().expect("our child");
        ended.wait().expect("our child");
        assert!(!Groups::holds(&groups.home, number) || meant.started() == stranger.started());
        assert_eq!(mover.add(&meant).expect("it has ended"), MovedProcess::Ended);
    }
}
