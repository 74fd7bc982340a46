//! Helpers of the tests of `unisono gang run`: they start it, find its groups and programs, and read its
//! summary.

pub(crate) mod served;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use unisono_host_tests::processes::{descendants, is_gone, until};
use unisono_host_tests::{Skipped, TestOutcome, program, require};
use unisono_linux::affinity::Tid;
use unisono_linux::cgroup::{CgroupVersion, hierarchies};
use unisono_linux::process::{PidFd, Signal};

pub(crate) fn gangs() -> TestOutcome {
    require::root()?;
    require::cpus(2)?;
    let all = hierarchies().expect("mounts");
    let freezes =
        all.iter().any(|h| h.version == CgroupVersion::V2 || h.controllers.iter().any(|c| c == "freezer"));
    if freezes { Ok(()) } else { Err(Skipped::because("it needs a cgroup freezer; mount cgroup2")) }
}

pub(crate) fn unisono(arguments: &[&str]) -> Command {
    let mut command = Command::new(program::unisono());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the control groups of a scheduler that exist in any hierarchy.
pub(crate) fn groups_of(scheduler: u32) -> Vec<PathBuf> {
    let begins = format!("unisono-{scheduler}-");
    let all = hierarchies().expect("mounts");
    let entries = all.iter().flat_map(|h| fs::read_dir(&h.root).into_iter().flatten().flatten());
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&begins));
    ours.map(|entry| entry.path()).collect()
}

pub(crate) fn journal_of(scheduler: u32) -> PathBuf {
    format!("/run/unisono/gang/gang-{scheduler}.journal").into()
}

/// Waits until both gangs of a scheduler have two processes in its groups, and returns these processes.
pub(crate) fn programs(scheduler: u32) -> BTreeSet<i32> {
    let mut inside = BTreeSet::new();
    until("four processes in the gangs", || {
        inside = descendants(scheduler);
        let here = format!("/unisono-{scheduler}-");
        inside.retain(|pid| {
            fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default().contains(&here)
        });
        inside.len() == 4
    });
    inside
}

pub(crate) fn kill(pid: i32, signal: Signal) {
    if let Ok(process) = PidFd::open(Tid(pid)) {
        let _ = process.send(signal); // fails if the process has just ended
    }
}

pub(crate) fn end(programs: &BTreeSet<i32>) {
    for pid in programs {
        kill(*pid, Signal::Kill);
    }
    until("the programs' end", || programs.iter().all(|pid| is_gone(*pid)));
}

pub(crate) fn assert_nothing_is_left(scheduler: u32) {
    until("the removal of its groups", || groups_of(scheduler).is_empty());
    until("the removal of its journal", || !journal_of(scheduler).exists());
}

pub(crate) fn summary(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    if last.starts_with('{') {
        assert_eq!(crate::schema::formats_of(last), ["unisono-gang-run-1"]);
    }
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// Returns how many turns each gang has in a trace. Checks that no two turns on one processor overlap.
pub(crate) fn turns_in(trace: &str) -> BTreeMap<String, usize> {
    let events: Vec<Value> =
        serde_json::from_str(&format!("{}]", trace.trim_end().trim_end_matches(','))).expect("an array");
    let mut bars: Vec<(u64, f64, f64, &str)> = events
        .iter()
        .filter(|event| event["ph"] == "X")
        .map(|bar| {
            let time = |key: &str| bar[key].as_f64().expect("a time");
            let cpu = bar["tid"].as_u64().expect("a processor");
            (cpu, time("ts"), time("dur"), bar["name"].as_str().expect("a gang"))
        })
        .collect();
    bars.sort_by(|one, other| (one.0, one.1).partial_cmp(&(other.0, other.1)).expect("numbers"));
    for pair in bars.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
        assert!(pair[0].1 + pair[0].2 <= pair[1].1 + 0.01, "{pair:?} overlap");
    }
    let mut turns = BTreeMap::new();
    for (.., gang) in bars {
        *turns.entry(gang.to_owned()).or_default() += 1;
    }
    turns
}
