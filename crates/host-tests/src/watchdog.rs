//! Waits for a child process, but not for ever: past its deadline the stacks of all its processes
//! are written down and the whole process group is killed.
//!
//! The child must lead a process group (`process_group(0)`), so that what it started ends with it.
//! Processes that leave the group (a guardian calls `setsid`) are not found.
//! Cost: one `waitpid` every 10 ms.

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// How waiting ended.
#[derive(Debug)]
pub enum Ended {
    /// The child ended by itself.
    Exited(ExitStatus),
    /// The deadline passed; the child was killed. What its threads were doing, in text.
    Hung(String),
}

/// Waits for `child`, which leads a process group, at most until `deadline` has passed.
///
/// # Errors
/// When the child cannot be waited for.
pub fn wait(child: &mut Child, deadline: Duration) -> io::Result<Ended> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::Exited(status));
        }
        if start.elapsed() >= deadline {
            let stacks = stacks(group_of(child));
            kill_group(child);
            child.wait()?;
            return Ok(Ended::Hung(stacks));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Whether processes of the child's group are still there after `grace`, although the child ended.
pub fn left_behind(child: &Child, grace: Duration) -> bool {
    let start = Instant::now();
    while test_kill_process_group(group_of(child)).is_ok() {
        if start.elapsed() >= grace {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Kills all processes of the child's group.
pub fn kill_group(child: &Child) {
    // an error means that there is no such process any more: what was wanted
    let _ = kill_process_group(group_of(child), Signal::KILL);
}

fn group_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// What every thread of the process group is doing: kernel stacks from `/proc` (root only), user
/// stacks from gdb where it is installed.
fn stacks(group: Pid) -> String {
    let mut text = String::new();
    for process in processes_of(group) {
        let pid = process.file_name().unwrap_or_default().to_string_lossy().into_owned();
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
        text.push_str(&user_stacks(&pid));
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

fn processes_of(group: Pid) -> Vec<PathBuf> {
    let group = group.as_raw_nonzero().to_string();
    let of_group = |process: &PathBuf| {
        // pid (comm) state ppid pgrp ...; comm may hold spaces and parentheses
        read(&process.join("stat"))
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(2).map(|found| found == group))
            .unwrap_or(false)
    };
    entries(Path::new("/proc")).into_iter().filter(of_group).collect()
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

/// The file's text, or nothing: a process may end while it is looked at.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
