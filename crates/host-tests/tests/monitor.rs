//! Tests `unisono study monitor` on a real host: the monitor of the paper's section 4 runs under each regime,
//! and its records and report have what Figure 4 needs.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use unisono_host_tests::{TestOutcome, host_tests, program, require};
use unisono_linux::process::is_root;

fn lines(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join("records.jsonl")).expect("records");
    text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

fn figure(run: &Value, name: &str) -> f64 {
    let figures = run["figures"].as_array().expect("figures");
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {run}"))["value"].as_f64().expect("a number")
}

fn a_monitor_of_packets_in_bursts_is_measured_under_each_regime() -> TestOutcome {
    require::nightly("laboratory")?;
    require::cpus(2)?;
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let out = scratch.path().join("study");
    let mut command = Command::new(program::unisono());
    command.args(["study", "monitor", "--smoke", "--out"]).arg(&out).stdin(Stdio::null());
    let output = command.output().expect("unisono starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = lines(&out);
    let runs: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "run").collect();
    let mut measured = BTreeSet::new();
    for run in &runs {
        if run["outcome"] == "skipped" {
            let reason = run["reason"].as_str().expect("a reason");
            eprintln!("skipped: {}: {reason}", run["variant"]);
            assert!(!is_root(), "root may do all that the monitor needs: {run}");
            continue;
        }
        assert_eq!(run["outcome"], "measured", "{run}");
        measured.insert((run["study"].as_str().expect("a study"), run["variant"].as_str().expect("a name")));
        for name in ["barriers_per_s", "processing_us", "updates"] {
            assert!(figure(run, name) > 0.0, "{name}: {run}");
        }
        assert!(figure(run, "waiting_us") >= 0.0, "{run}");
        assert!(figure(run, "latency_max_ms") >= figure(run, "latency_ms"), "{run}");
        // in bursts there are twice as many threads as processors; the study of barriers runs one program
        // alone
        let alone = run["study"] == "monitor-barriers";
        assert_eq!(figure(run, "streams") >= 2.0, !alone, "{run}");
    }
    let mut needed = vec!["linux", "linux-pthread", "fit", "partition"];
    needed.extend(if is_root() { &["gang", "nice"][..] } else { &[] });
    for variant in needed {
        assert!(
            measured.contains(&("monitor-bursts", variant)),
            "{variant} was not measured: {measured:?}"
        );
    }
    assert!(measured.iter().any(|(study, _)| *study == "monitor-barriers"), "{measured:?}");
    let report = std::fs::read_to_string(out.join("report.html")).expect("a report");
    for part in ["Latency over burstiness", "Figure 4", "16,200 barriers", "81 us"] {
        assert!(report.contains(part), "the report lacks {part:?}");
    }
    Ok(())
}

host_tests![needs Machine;
    a_monitor_of_packets_in_bursts_is_measured_under_each_regime within 600,
];
