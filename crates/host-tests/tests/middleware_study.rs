//! Runs the studies of `unisono study middleware --smoke` from beginning to end, as root and as an ordinary
//! user. Each variant is measured, or skipped with the reason; the report has the paper's figures and
//! lessons; nothing is left behind. The studies that `unisono study queue` has, too, are run by
//! `queue_study`.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use unisono_host_tests::{TestOutcome, host_tests, program, require};

/// The number of the user nobody.
const ORDINARY: u32 = 65534;
const LESSONS: [&str; 5] =
    ["Overhead", "Effectiveness", "Isolation", "Programming effort", "The same scheduler in each place"];

fn study(program: &Path, directory: &Path, user: Option<u32>) -> Output {
    let temporary = directory.join("temporary");
    std::fs::create_dir(&temporary).expect("a directory");
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o1777)).expect("ours");
    let list =
        Command::new(program).args(["study", "middleware", "--list", "--json"]).output().expect("a list");
    let list = String::from_utf8(list.stdout).expect("text");
    let list = list.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object a line"));
    let own: Vec<String> = list
        .filter(|study| study["topic"] == "middleware")
        .filter_map(|study| study["study"].as_str().map(str::to_owned))
        .collect();
    assert!(own.len() >= 15, "{own:?}");
    let mut command = Command::new(program);
    command.arg("study").args(own).args(["--smoke", "--tables", "--out"]).arg(directory.join("study"));
    // an empty cache, so that peers are compiled anew, and not taken from another user
    command.env("XDG_CACHE_HOME", directory.join("cache")).env("TMPDIR", &temporary).stdin(Stdio::null());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let output = command.output().expect("unisono starts");
    let left: Vec<_> =
        std::fs::read_dir(&temporary).expect("there").flatten().map(|left| left.path()).collect();
    assert!(left.is_empty(), "{left:?}");
    output
}

/// Returns the runs of each study.
fn runs(directory: &Path) -> BTreeMap<String, Vec<Value>> {
    let text = std::fs::read_to_string(directory.join("study/records.jsonl")).expect("records");
    let mut runs: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in text.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object a line")) {
        let study = line["study"].as_str().expect("a name").to_owned();
        let of_study = runs.entry(study).or_default();
        if line["kind"] == "run" {
            of_study.push(line);
        }
    }
    runs
}

/// Checks what must hold for every run.
fn check(runs: &BTreeMap<String, Vec<Value>>, output: &Output) {
    for run in runs.values().flatten() {
        match run["outcome"].as_str() {
            Some("measured") => assert!(!run["figures"].as_array().expect("figures").is_empty(), "{run}"),
            Some("skipped") => {
                eprintln!("skipped: {} {}: {}", run["study"], run["variant"], run["reason"]);
                assert!(!run["reason"].as_str().expect("a reason").is_empty(), "{run}");
            }
            _ => panic!("{run}\n{}", String::from_utf8_lossy(&output.stderr)),
        }
    }
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for lesson in LESSONS {
        assert!(said.contains(&format!("\n{lesson}:")), "no lesson {lesson:?} in {said}");
    }
}

fn is_measured(runs: &[Value], variant: &str) -> bool {
    runs.iter().any(|run| run["variant"] == variant && run["outcome"] == "measured")
}

/// Returns the number of points of a figure's curve, for every run that has one.
fn curves(runs: &[Value], figure: &str) -> Vec<usize> {
    let figures = runs.iter().filter_map(|run| run["figures"].as_array()).flatten();
    let curves = figures
        .filter(|found| found["name"] == figure)
        .filter_map(|found| found["curve"]["points"].as_array());
    curves.map(Vec::len).collect()
}

/// Returns the named network namespaces and the journals of policies that exist.
fn left_behind() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for directory in ["/run/netns", "/run/unisono/queue"] {
        let Ok(entries) = std::fs::read_dir(directory) else { continue };
        found.extend(entries.flatten().map(|entry| entry.path().display().to_string()));
    }
    found
}

fn by_root_every_workload_is_measured_on_the_link_too_and_nothing_is_left() -> TestOutcome {
    require::nightly("laboratory")?;
    require::root()?;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let before = left_behind();
    let output = study(&program::unisono(), scratch.path(), None);
    let runs = runs(scratch.path());
    check(&runs, &output);
    // other variants may be skipped: nginx and wrk are not installed everywhere, and the kernel's queue may
    // be missing
    for (study, variant) in [
        ("middleware-rpc", "channel-tcp"),
        ("middleware-rpc", "channel-link"),
        ("middleware-remote", "reply-thread"),
        ("middleware-remote", "channel-link"),
        ("middleware-requests", "file-channel-thread"),
        ("middleware-download", "remote-channel"),
        ("middleware-streaming", "channel"),
        ("middleware-control", "channel"),
        ("middleware-rivals", "channel"),
    ] {
        assert!(is_measured(&runs[study], variant), "{study}: {variant}");
    }
    let downloads = curves(&runs["middleware-download"], "received_mb");
    assert!(downloads.len() >= 4 && downloads.iter().all(|points| *points > 20), "{downloads:?}");
    assert!(curves(&runs["middleware-streaming"], "arrivals_percent").iter().all(|points| *points > 20));
    let report = std::fs::read_to_string(scratch.path().join("study/report.html")).expect("a report");
    for figure in
        ["Figure 5 today", "Figure 6 (a) today", "Figure 7 today", "Figure 7 (b, c) today", "Figure 8 today"]
    {
        assert!(report.contains(figure), "{figure}");
    }
    let left: Vec<String> = left_behind().difference(&before).cloned().collect();
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}

fn by_an_ordinary_user_a_link_is_in_a_user_namespace_or_skipped_and_the_rest_is_measured() -> TestOutcome {
    require::nightly("laboratory")?;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let output = if require::root().is_ok() {
        // an ordinary user has to reach the program and write its records; the directory is sticky, because
        // otherwise no cache is kept in a directory that others may write
        let mode = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(scratch.path(), mode).expect("ours");
        let copy = program::copied_into(scratch.path());
        study(&copy, scratch.path(), Some(ORDINARY))
    } else {
        study(&program::unisono(), scratch.path(), None)
    };
    let runs = runs(scratch.path());
    check(&runs, &output);
    let has_namespace = !String::from_utf8_lossy(&output.stderr).contains("no user namespace here");
    for study in ["middleware-remote", "middleware-streaming", "middleware-control", "middleware-web"] {
        let is_measured = runs[study].iter().any(|run| run["outcome"] == "measured");
        assert_eq!(is_measured, has_namespace, "{study}: {:?}", runs[study]);
        if !has_namespace {
            let reason = runs[study][0]["reason"].as_str().expect("a reason");
            assert!(reason.contains("root"), "{study}: {reason}");
        }
    }
    for (study, variant) in [("middleware-rpc", "channel"), ("middleware-download", "local-channel")] {
        assert!(is_measured(&runs[study], variant), "{study}: {variant}");
    }
    Ok(())
}

host_tests![needs Machine;
    by_root_every_workload_is_measured_on_the_link_too_and_nothing_is_left within 600,
    by_an_ordinary_user_a_link_is_in_a_user_namespace_or_skipped_and_the_rest_is_measured within 600,
];
