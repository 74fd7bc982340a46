//! Helpers for the daemon under test, and for the programs that become its gangs.

use super::{end, gangs, journal_of, kill, unisono};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use unisono_host_tests::processes::{descendants, until};
use unisono_host_tests::{Skipped, TestOutcome};
use unisono_linux::affinity::{self, Tid};
use unisono_linux::cgroup::{CgroupHierarchy, CgroupVersion, ControlGroup, hierarchies};
use unisono_linux::process::Signal;
use unisono_linux::schedstat;

/// A script of two processes that spin, as many as two cores can run.
pub(crate) const SPIN: &str = "while :; do :; done & while :; do :; done";

pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) directory: tempfile::TempDir,
}

impl Served {
    pub(crate) fn start(options: &[&str]) -> Served {
        Served::with(&[&["--slice", "5ms"], options].concat())
    }

    /// Starts a daemon with these options and no others.
    pub(crate) fn with(options: &[&str]) -> Served {
        let directory = tempfile::tempdir().expect("a directory");
        let child = daemon(&directory.path().join("socket"), options);
        let served = Served { child, directory };
        served.wait();
        served
    }

    pub(crate) fn wait(&self) {
        until("an answer of the daemon", || self.ask(&["list"]).status.success());
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = unisono(&["gang"]);
        command.args(words).arg("--socket").arg(self.socket());
        command
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("unisono starts")
    }

    pub(crate) fn told(&self, words: &[&str]) {
        let output = self.ask(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
    }

    pub(crate) fn list(&self) -> Value {
        let output = self.ask(&["list", "--json"]);
        if output.status.success() {
            crate::schema::formats_of(&String::from_utf8_lossy(&output.stdout));
        }
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    pub(crate) fn gang(&self, name: &str) -> Value {
        let list = self.list();
        let gangs = list["gangs"].as_array().expect("gangs");
        gangs.iter().find(|gang| gang["name"] == name).cloned().unwrap_or(Value::Null)
    }

    /// Ends the daemon by SIGTERM. Asserts that nothing of it is left.
    pub(crate) fn end(mut self) {
        kill(self.child.id().cast_signed(), Signal::Terminate);
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
        assert!(!journal_of(self.child.id()).exists() && !self.socket().exists());
        assert_eq!(homes_of(self.child.id()), Vec::<PathBuf>::new());
    }
}

pub(crate) fn daemon(socket: &Path, options: &[&str]) -> Child {
    let mut command = unisono(&["gang", "daemon", "--socket"]);
    command.arg(socket).args(options).stdout(Stdio::null()).stderr(Stdio::inherit());
    command.spawn().expect("unisono starts")
}

/// Returns the control groups that a daemon has made to freeze gangs in.
pub(crate) fn homes_of(daemon: u32) -> Vec<PathBuf> {
    let begins = format!("unisono-{daemon}-gang-");
    let entries = fs::read_dir(top().path()).expect("a hierarchy").flatten();
    let names = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&begins));
    names.map(|entry| entry.path()).collect()
}

pub(crate) fn top() -> ControlGroup {
    let all = hierarchies().expect("mounts");
    let second = CgroupHierarchy::of_version(&all, CgroupVersion::V2);
    let hierarchy = second.or_else(|| CgroupHierarchy::with(&all, "freezer")).expect("gangs() has looked");
    hierarchy.group_of(Tid::SELF).expect("own group")
}

pub(crate) fn second_version() -> TestOutcome {
    gangs()?;
    let all = hierarchies().expect("mounts");
    let second = CgroupHierarchy::of_version(&all, CgroupVersion::V2);
    if second.is_some() { Ok(()) } else { Err(Skipped::because("it needs cgroup version 2; mount cgroup2")) }
}

/// A shell that runs a script, and all processes that it has started.
pub(crate) struct Program {
    pub(crate) shell: Child,
    pub(crate) all: BTreeSet<i32>,
}

impl Program {
    pub(crate) fn start(script: &str, processes: usize) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Program::of(command, processes)
    }

    pub(crate) fn of(mut command: Command, processes: usize) -> Program {
        let shell = command.spawn().expect("sh starts");
        let mut all = BTreeSet::new();
        until("its processes", || {
            all = descendants(shell.id());
            all.insert(shell.id().cast_signed());
            all.len() == processes
        });
        Program { shell, all }
    }

    /// Moves all its processes into a group.
    pub(crate) fn move_to(&self, group: &ControlGroup) {
        for pid in &self.all {
            // as root, so also into a group that is delegated to a user
            group.write("cgroup.procs", &pid.to_string()).expect("it runs");
        }
    }

    pub(crate) fn pid(&self) -> String {
        self.shell.id().to_string()
    }

    pub(crate) fn used(&self) -> u64 {
        self.all.iter().map(|pid| schedstat::refresh(Tid(*pid)).unwrap_or(0)).sum()
    }

    pub(crate) fn wait_for_progress(&self) {
        let before = self.used();
        until("progress", || self.used() > before + 20_000_000);
    }

    /// Asserts that the program runs as it did before it became a gang, and is in no group except those that
    /// tests have made for it.
    pub(crate) fn assert_free(&self) {
        for pid in &self.all {
            let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it runs");
            let ours = groups.replace("/unisono-test-", "/test-");
            assert!(!ours.contains("unisono-"), "{pid} is in {groups}");
            let allowed = affinity::allowed(Tid(*pid)).expect("it runs");
            assert_eq!(allowed, affinity::allowed(Tid::SELF).expect("own"), "{pid}");
        }
        self.wait_for_progress();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.all.iter().for_each(|pid| kill(*pid, Signal::Kill));
        let _ = self.shell.wait();
        end(&self.all);
    }
}
