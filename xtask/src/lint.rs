//! `cargo xtask lint`: what a machine can check of this project's rules.
//!
//! The checks of this project are functions from the sources to problems; each problem names file and
//! line. CONTRIBUTING.md says why each rule exists.

mod c_format;
mod layers;
mod length;
mod links;
mod sources;
mod sync_pairs;
mod unsafe_code;

use crate::packages::Install;
use crate::step::{Step, Verdict};
use crate::summary::Summary;
use crate::workspace;
use anyhow::Context;
use sources::Sources;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A check: what is wrong, one line each.
type Check = fn(&Sources) -> Vec<String>;

const CHECKS: &[(&str, Check)] = &[
    ("both sides of every SYNC pair", sync_pairs::check),
    ("unsafe code only where it belongs", unsafe_code::check),
    ("dependencies point down", layers::check),
    ("no file too long", length::check),
    ("links in documents resolve", links::check),
];

/// Runs all lints; answers whether none failed.
pub(crate) fn run(install: Install) -> anyhow::Result<bool> {
    let sources = Sources::read(&workspace()).context("the sources cannot be read")?;
    let mut summary = Summary::default();
    summary.step("formatting", || cargo(&["fmt", "--all", "--check"]));
    summary.step("clippy", || {
        cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"])
    });
    for (name, check) in CHECKS {
        summary.step(name, || {
            let problems = check(&sources);
            match problems.len() as u64 {
                0 => Verdict::passed(1),
                count => Verdict { failed: count, failures: problems, ..Verdict::default() },
            }
        });
    }
    summary.step("format of C sources", || c_format::check(&sources));
    summary.step("licences, bans and sources of dependencies", || deny(install));
    Ok(summary.conclude())
}

fn cargo(arguments: &[&str]) -> Verdict {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(workspace());
    let name = format!("cargo {}", arguments.join(" "));
    if Step::new(&name, command).succeeds() { Verdict::passed(1) } else { Verdict::failed(name) }
}

/// Works without a network: the advisory database, which would need one, is not asked.
fn deny(install: Install) -> Verdict {
    let there = || {
        let mut version = Command::new("cargo");
        version.args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    };
    if !there() && install == Install::IfAllowed {
        println!("installing cargo-deny: a few minutes");
        let mut command = Command::new("cargo");
        // a debug build takes half the time, and it runs for a second
        command.args(["install", "--locked", "--debug", "--quiet", "cargo-deny"]);
        Step::new("cargo install cargo-deny", command).within(Duration::from_secs(15 * 60)).succeeds();
    }
    if !there() {
        return Verdict::skipped("cargo-deny is not installed: cargo install --locked cargo-deny");
    }
    // crates for other systems are looked at too, so all of Cargo.lock must be on this machine
    let quietly = |arguments: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(workspace());
        Step::new("cargo", command).showing(|_| false).run().is_ok_and(|done| done.success)
    };
    if !quietly(&["fetch", "--locked"])
        && !quietly(&["metadata", "--locked", "--offline", "--format-version=1"])
    {
        return Verdict::skipped("not all crates of Cargo.lock are on this machine, and there is no network");
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
