//! `cargo xtask fuzz`: runs the fuzz targets of `fuzz/targets`, guided by coverage, for a given time.
//!
//! Stable Rust can instrument code for libFuzzer through code generation flags. There is no sanitizer,
//! because sanitizers need an unstable compiler and the fuzzed code has no unsafe code. Inputs that reach new
//! code stay in `target/fuzz/corpus`, and inputs that fail in `target/fuzz`; to repeat a failure, run the
//! target's program with the path of the failing input.

use crate::step::{StepVerdict, TimedStep};
use crate::summary::StepSummary;
use anyhow::{Context, bail};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use unisono_host_tests::program::{target, workspace};

/// The feature of `fuzz/Cargo.toml` for a crate, its targets, and files to begin with.
const CRATES: [(&str, &[&str], Option<&str>); 9] = [
    ("rma", &["packet", "stream", "handshake"], None),
    (
        "broker",
        &[
            "frame",
            "broker",
            "memory",
            "log",
            "session",
            "mqtt",
            "join",
            "event_stream",
            "datagram",
            "permissions",
        ],
        None,
    ),
    ("eventchannel", &["filter"], None),
    ("enforce", &["ethernet", "nbd"], None),
    ("gang", &["request", "rules"], None),
    (
        "btin",
        &["topology", "tree", "ibnetdiscover", "graphml", "dot", "lldp", "containerlab"],
        Some("examples/networks"),
    ),
    ("fairqueue", &["trace", "policy"], None),
    ("socket-shares", &["share"], None),
    ("examples", &["capture"], None),
];

/// Counts edges and traces comparisons; uses one code generation unit, so that each table is contiguous.
const FLAGS: &str = "--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Fuzzes the named targets, or all of them, for `seconds` seconds each. Returns whether every target ran
/// without a failure.
pub(crate) fn run(seconds: u64, only: &[&str]) -> anyhow::Result<bool> {
    let known = |name: &&&str| CRATES.iter().any(|(_, targets, _)| targets.contains(*name));
    if let Some(name) = only.iter().find(|name| !known(name)) {
        let all: Vec<_> = CRATES.iter().flat_map(|(_, targets, _)| targets.iter().copied()).collect();
        bail!("there is no fuzz target {name}; there are {}", all.join(", "));
    }
    let mut summary = StepSummary::default();
    let compiler = Command::new("c++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !compiler.is_ok_and(|status| status.success()) {
        summary
            .step("fuzz", || StepVerdict::skipped("no c++ to compile libFuzzer with: apt-get install g++"));
        return Ok(summary.conclude());
    }
    let place = target().join("fuzz");
    for (feature, targets, seeds) in CRATES {
        let wanted: Vec<_> =
            targets.iter().copied().filter(|name| only.is_empty() || only.contains(name)).collect();
        if !wanted.is_empty() {
            fuzz(&mut summary, &place, feature, &wanted, seeds, seconds)?;
        }
    }
    Ok(summary.conclude())
}

fn fuzz(
    summary: &mut StepSummary,
    place: &Path,
    feature: &str,
    targets: &[&str],
    seeds: Option<&str>,
    seconds: u64,
) -> anyhow::Result<()> {
    // with an explicit target triple, cargo does not apply the flags to build scripts
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = unisono_host_tests::program::cargo();
    build.args(["build", "--locked", "--release", "--target", &triple, "--features", feature]);
    build.current_dir(workspace().join("fuzz"));
    build.env("RUSTFLAGS", FLAGS).env("CARGO_TARGET_DIR", place);
    if !TimedStep::new(format!("build the targets of {feature}"), build).succeeds() {
        let problem = format!("the fuzz targets of {feature} do not build");
        summary.step("fuzz", || StepVerdict::failed(problem));
        return Ok(());
    }
    for name in targets {
        let corpus = place.join("corpus").join(name);
        fs::create_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
        let mut fuzz = Command::new(place.join(&triple).join("release").join(name));
        fuzz.arg(&corpus);
        fuzz.args(seeds.map(|seeds| workspace().join(seeds)));
        fuzz.args([format!("-max_total_time={seconds}"), "-print_final_stats=1".to_owned()]);
        fuzz.args(["-max_len=8192", "-rss_limit_mb=2048", "-timeout=10"]);
        fuzz.arg(format!("-artifact_prefix={}/{name}-", place.display()));
        let deadline = Duration::from_secs(seconds + 120);
        summary.step(&format!("fuzz {name} for {seconds} s"), || {
            // shows only the findings and the amount of work, not the progress
            let show = |line: &str| {
                line.starts_with("stat::") || line.starts_with("Done") || line.contains("panicked")
            };
            let step = TimedStep::new(*name, fuzz).within(deadline).showing(show);
            if step.succeeds() { StepVerdict::passed(1) } else { StepVerdict::failed(found(name)) }
        });
    }
    Ok(())
}

fn found(name: &str) -> String {
    format!(
        "{name}: bytes that fail are in {}; give them to the target's program",
        target().join("fuzz").display()
    )
}
