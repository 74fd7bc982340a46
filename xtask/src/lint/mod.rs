//! `cargo xtask lint`: checks the rules of this project that a machine can check.
//!
//! Each check is a function from the sources to problems; each problem names a file and a line.
//! CONTRIBUTING.md gives the reason for each rule.

mod c_format;
mod code;
mod commands;
mod cycles;
mod documents;
mod layers;
mod length;
mod links;
mod locks;
mod numbers;
mod promises;
mod sources;
mod style;
mod sync_pairs;
mod tests_run;
mod times;
mod types;
mod unsafe_code;
mod words;

use crate::packages::Install;
use crate::step::{StepOutput, StepVerdict, TimedStep};
use crate::summary::StepSummary;
use anyhow::Context;
use sources::Sources;
use std::process::Stdio;
use std::time::Duration;
use unisono_host_tests::program::workspace;

/// A check: returns a line for each problem.
type Check = fn(&Sources) -> Vec<String>;

const CHECKS: &[(&str, Check)] = &[
    ("both sides of every SYNC pair", sync_pairs::check),
    ("unsafe code only where it belongs", unsafe_code::check),
    ("no bare process numbers", numbers::check),
    ("dependencies point down", layers::check),
    ("lock files know the crates' dependencies", locks::check),
    ("every file of tests runs", tests_run::check),
    ("no file too long", length::check),
    ("times are Instants or Durations", times::check),
    ("libraries name no command of the program", commands::check),
    ("links in documents resolve", links::check),
    ("modules form no cycle", cycles::check),
    ("a type's name means one thing", types::check),
    ("names use the field's words", words::check),
    ("promises of security name their tests", promises::check),
    ("one style of modules", style::modules),
    ("comments as wide as code", style::width),
    ("documents have one width", style::prose),
    ("documents say something", documents::check),
];

/// Runs all checks. Returns whether all passed.
pub(crate) fn run() -> anyhow::Result<bool> {
    let mut summary = StepSummary::default();
    summary.step("formatting", || cargo(&["fmt", "--all", "--check"]));
    summary.step("clippy", || {
        cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"])
    });
    summary.step("documentation", || {
        let mut command = unisono_host_tests::program::cargo();
        command.args(["doc", "--locked", "--workspace", "--no-deps", "--quiet"]).current_dir(workspace());
        command.env("RUSTDOCFLAGS", "--deny warnings");
        TimedStep::new("cargo doc", command).verdict("cargo doc")
    });
    run_project_checks(&mut summary)?;
    summary.step("licences, sources and advisories of dependencies", || dependencies(Install::Never));
    Ok(summary.conclude())
}

/// Runs only this project's own checks.
pub(crate) fn own() -> anyhow::Result<bool> {
    let mut summary = StepSummary::default();
    run_project_checks(&mut summary)?;
    Ok(summary.conclude())
}

fn run_project_checks(summary: &mut StepSummary) -> anyhow::Result<()> {
    let sources = Sources::read(&workspace()).context("the sources cannot be read")?;
    for (name, check) in CHECKS {
        summary.step(name, || verdict(check(&sources)));
    }
    summary.step("format of C sources", || c_format::check(&sources));
    Ok(())
}

fn verdict(problems: Vec<String>) -> StepVerdict {
    match problems.len() as u64 {
        0 => StepVerdict::passed(1),
        count => StepVerdict { failed: count, failures: problems, ..StepVerdict::default() },
    }
}

fn cargo(arguments: &[&str]) -> StepVerdict {
    let mut command = unisono_host_tests::program::cargo();
    command.args(arguments).current_dir(workspace());
    let name = format!("cargo {}", arguments.join(" "));
    TimedStep::new(&name, command).verdict(&name)
}

/// Checks licences, bans, sources and advisories with cargo-deny; installs cargo-deny first if `install`
/// allows it.
pub(crate) fn dependencies(install: Install) -> StepVerdict {
    if !has_deny() && install == Install::IfAllowed {
        println!("installing cargo-deny: a few minutes");
        let mut command = unisono_host_tests::program::cargo();
        // a debug build takes half the time to compile, and the program runs for only a second
        command.args(["install", "--locked", "--debug", "--quiet", "cargo-deny"]);
        TimedStep::new("cargo install cargo-deny", command).within(Duration::from_secs(15 * 60)).succeeds();
    }
    if !has_deny() {
        return StepVerdict::skipped("cargo-deny is not installed: cargo xtask nightly dependencies");
    }
    let mut verdict = deny();
    verdict.add(advisories());
    verdict
}

fn has_deny() -> bool {
    let mut version = unisono_host_tests::program::cargo();
    version.args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// Checks the dependencies against the RustSec database, which cargo-deny fetches. Without a network the
/// check is skipped with cargo-deny's own message.
fn advisories() -> StepVerdict {
    let mut command = unisono_host_tests::program::cargo();
    command.args(["deny", "--workspace", "check", "--hide-inclusion-graph", "advisories"]);
    command.current_dir(workspace());
    let step = TimedStep::new("cargo deny", command).within(Duration::from_secs(120)).showing(|_| false);
    match step.run() {
        Ok(done) if done.success => StepVerdict::passed(1),
        Ok(StepOutput { hung: Some(hung), .. }) => {
            StepVerdict::skipped(format!("the advisory database is out of reach: {hung}"))
        }
        Ok(done) => match database_out_of_reach(&done.lines) {
            Some(line) => StepVerdict::skipped(format!("the advisory database is out of reach: {line}")),
            None => {
                println!("{}", done.lines.join("\n"));
                StepVerdict::failed("cargo deny check advisories")
            }
        },
        Err(error) => StepVerdict::failed(error.to_string()),
    }
}

/// Returns the line of cargo-deny's output that reports a failure to fetch the database.
fn database_out_of_reach(lines: &[String]) -> Option<&str> {
    let about = |line: &&String| line.contains("advisory database") && line.contains("fail");
    Some(lines.iter().find(about)?.trim())
}

/// Checks licences, bans and sources.
fn deny() -> StepVerdict {
    // cargo-deny also checks crates for other systems, so all crates of Cargo.lock are fetched first
    let quietly = |arguments: &[&str]| {
        let mut command = unisono_host_tests::program::cargo();
        command.args(arguments).current_dir(workspace());
        TimedStep::new("cargo", command).showing(|_| false).run().is_ok_and(|done| done.success)
    };
    if !quietly(&["fetch", "--locked"])
        && !quietly(&["metadata", "--locked", "--offline", "--format-version=1"])
    {
        return StepVerdict::skipped(
            "not all crates of Cargo.lock are on this machine, and there is no network",
        );
    }
    cargo(&[
        "deny",
        "--offline",
        "--workspace",
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ])
}
