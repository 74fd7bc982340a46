//! Waits for a child process for a limited time. If the child has not ended by then, records the stacks of
//! all processes that belong to it, and kills them.
//!
//! These processes are the child and its descendants, or all processes that this process started
//! ([`WatchedProcesses`]). A descendant that loses its parent (a guardian) becomes the child of a process
//! that adopts orphans ([`adopt_orphans`]). Cost: one `waitpid` every 10 ms.

use crate::processes::descendants;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper, wait as reap,
};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// The maximum number of rounds of killing. One round may not be enough, because killed processes may leave
/// children.
const MAX_KILL_ROUNDS: u32 = 300;

/// The processes that belong to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedProcesses {
    /// The child and its descendants, in any process group.
    Descendants,
    /// All processes that this process started, directly or not. For a process that adopts orphans and has a
    /// single child at a time.
    Ours,
}

/// How waiting ended.
#[derive(Debug)]
pub enum Ended {
    /// The child ended by itself.
    Exited(ExitStatus),
    /// The deadline passed, and the child was killed. Has the stacks of its threads as text.
    Hung(String),
}

/// Lets orphaned descendants become children of this process from now on, so that it can find all of them.
///
/// # Errors
/// The error of prctl(2).
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Waits for `child` at most until `deadline` has passed.
///
/// # Errors
/// If waiting for the child fails.
pub fn wait(child: &mut Child, deadline: Duration) -> io::Result<Ended> {
    let start = Instant::now();
    wait_unless(child, WatchedProcesses::Ours, || start.elapsed() >= deadline)
}

/// Waits for `child` until `hung` returns true.
///
/// # Errors
/// If waiting for the child fails.
pub fn wait_unless(
    child: &mut Child,
    reach: WatchedProcesses,
    mut hung: impl FnMut() -> bool,
) -> io::Result<Ended> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::Exited(status));
        }
        if hung() {
            let family = family(child, reach);
            let stacks = stacks(&family);
            family.iter().for_each(|pid| kill(*pid));
            kill_group(child);
            child.wait()?;
            return Ok(Ended::Hung(stacks));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns whether descendants of this process still exist after `grace`.
pub fn has_left_behind(grace: Duration) -> bool {
    let start = Instant::now();
    while !living_descendants().is_empty() {
        if start.elapsed() >= grace {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Kills all descendants of this process, in several rounds, because killed processes may leave children,
/// which this process adopts: a gang's scheduler, for example, leaves its programs to its guardian.
pub fn kill_left_behind() {
    for _ in 0..MAX_KILL_ROUNDS {
        let left = living_descendants();
        if left.is_empty() {
            return;
        }
        left.into_iter().for_each(kill);
        thread::sleep(Duration::from_millis(10));
    }
}

/// Reaps the children that have ended, and returns the descendants of this process that have not.
fn living_descendants() -> BTreeSet<i32> {
    // an error means that there is no child
    while let Ok(Some(_)) = reap(WaitOptions::NOHANG) {}
    descendants(std::process::id())
}

/// Kills all processes of the group that the child leads, if it leads a group.
fn kill_group(child: &Child) {
    // an error means that the group has no process any more, as wanted
    let _ = kill_process_group(group_of(child), Signal::KILL);
}

fn kill(pid: i32) {
    // an error means that the process has ended, as wanted
    let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
}

fn group_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Returns the stacks of all threads of these processes: kernel stacks from `/proc` (for root only), and user
/// stacks from gdb if it is installed.
fn stacks(family: &[i32]) -> String {
    let mut text = String::new();
    for pid in family {
        let process = Path::new("/proc").join(pid.to_string());
        let command = read(&process.join("cmdline")).replace('\0', " ");
        let _ = writeln!(text, "process {pid}: {}", command.trim());
        for thread in entries(&process.join("task")) {
            let name = thread.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let _ = writeln!(
                text,
                "  thread {name} {} state {} in {} (system call {})",
                read(&thread.join("comm")).trim(),
                state(&thread),
                read(&thread.join("wchan")).trim(),
                read(&thread.join("syscall")).split(' ').next().unwrap_or_default().trim(),
            );
            for line in read(&thread.join("stack")).lines() {
                let _ = writeln!(text, "    {line}");
            }
        }
        text.push_str(&user_stacks(&pid.to_string()));
    }
    text
}

fn user_stacks(pid: &str) -> String {
    let gdb = Command::new("timeout")
        .args([
            "--signal=KILL",
            "20",
            "gdb",
            "--batch",
            "--nx",
            "-p",
            pid,
            "-ex",
            "thread apply all backtrace",
        ])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match gdb {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        _ => "  (no user stacks: gdb is not installed or could not attach)\n".to_owned(),
    }
}

/// Returns the child first, and then the other processes that belong to it.
fn family(child: &Child, reach: WatchedProcesses) -> Vec<i32> {
    let root = if reach == WatchedProcesses::Ours { std::process::id() } else { child.id() };
    let first = child.id() as i32;
    std::iter::once(first).chain(descendants(root).into_iter().filter(|pid| *pid != first)).collect()
}

fn state(thread: &Path) -> String {
    let status = read(&thread.join("status"));
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.unwrap_or("unknown").trim().to_owned()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).collect()
}

/// Returns the file's text, or an empty string if it cannot be read, because a process may end meanwhile.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
