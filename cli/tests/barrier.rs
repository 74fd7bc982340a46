//! `unisono barrier` as users see it: answers, refusals, and no process left behind.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use unisono_linux::process_stat::{ProcessStat, is_gone};

const UNISONO: &str = env!("CARGO_BIN_EXE_unisono");

fn barrier(arguments: &[&str]) -> Output {
    Command::new(UNISONO).arg("barrier").args(arguments).output().expect("unisono starts")
}

fn refused(arguments: &[&str]) -> String {
    let output = barrier(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    said
}

#[test]
fn bad_input_is_refused_with_the_value_and_what_was_expected() {
    let cases: [(&[&str], &str); 14] = [
        (&["--threads", "0"], "at least one thread"),
        (&["--threads", "100000"], "at most 1024"),
        (&["--threads", "two"], "two"),
        (&["--wait", "spin-blok"], "did you mean spin-block?"),
        (&["--algorithm", "desemination"], "did you mean dissemination?"),
        (&["--implementation", "libgom"], "did you mean libgomp?"),
        (&["--spin-budget", "2s"], "is too long"),
        (&["--spin-budget", "50"], "50us"),
        (&["--interval", "5 minutes"], "5 minutes"),
        (&["--seconds", "0"], "0 seconds"),
        (&["--pin", "9999"], "9999"),
        (&["--pin", "near"], "none, spread"),
        (&["--competitors", "5000"], "5000"),
        (&["--runs", "0"], "0 runs"),
    ];
    for (arguments, expected) in cases {
        let said = refused(arguments);
        assert!(said.contains(expected), "{arguments:?} was answered by {said}");
    }
}

#[test]
fn one_run_answers_with_the_keys_that_others_read() {
    let output = barrier(&["--json", "--seconds", "0.05", "--threads", "3", "--variance", "10us"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    for key in ["min", "median", "max"] {
        assert!(value["ns_per_barrier"][key].as_f64().is_some_and(|ns| ns > 0.0), "{value}");
    }
    assert!(value["barriers_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
    assert!(value["blocks_per_s"].is_number() && value["algorithm"].is_string() && value["wait"].is_string());
    assert_eq!(value["threads"], 3);
    let counts = value["iterations"].as_array().expect("counts");
    assert!(counts.len() == 3 && counts.iter().all(|count| *count == counts[0]), "{value}");
}

#[test]
fn a_comparison_answers_with_one_object_a_variant_and_keeps_every_run() {
    let output = barrier(&["--json", "--seconds", "0.03", "--runs", "3", "--implementation", "std,unisono"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let values: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let names: Vec<&str> = values.iter().filter_map(|value| value["implementation"].as_str()).collect();
    assert_eq!(names, ["std", "unisono"]);
    assert!(values.iter().all(|value| value["runs"].as_array().is_some_and(|runs| runs.len() == 3)));
}

#[test]
fn the_result_file_holds_what_json_prints() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = directory.join(format!("barrier-{}.json", std::process::id()));
    let path = file.to_str().expect("a path");
    let output = barrier(&["--json", "--seconds", "0.03", "--result", path]);
    let written = std::fs::read(&file).expect("a result");
    std::fs::remove_file(&file).expect("a result");
    assert_eq!(written, output.stdout);
}

#[test]
fn kernels_and_requests_write_measurements() {
    for (name, figure) in [("stencil", "checksum"), ("clustering", "checksum"), ("bursts", "latency_us")] {
        let output = Command::new(UNISONO)
            .args(["workload", name, "--seconds", "0.2", "--size", "50", "--warm-up", "1ms"])
            .output()
            .expect("unisono starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {said}");
        let value: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert!(!value[figure].is_null() && value["iterations_per_s"].is_number(), "{value}");
    }
}

fn is_alive(process: u32) -> bool {
    !is_gone(process)
}

fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited a minute for {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn killing_the_measurement_leaves_no_competitor_and_no_measured_program() {
    let mut parent = Command::new(UNISONO)
        .args(["barrier", "--competitors", "2", "--implementation", "std", "--runs", "2", "--seconds", "600"])
        .args(["--interval", "1ms"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("unisono starts");
    wait_until("two competitors and one measured program", || children(parent.id()).len() == 3);
    let started = children(parent.id());
    // a child that has not run its own code yet has not asked the kernel to end it with its parent
    let under_way = |child: &u32| ProcessStat::read(child).is_some_and(|stat| stat.user_ticks > 0);
    wait_until("the children to be under way", || started.iter().all(under_way));
    parent.kill().expect("it is there");
    parent.wait().expect("it is there");
    wait_until("the children to end", || !started.iter().any(|child| is_alive(*child)));
}
