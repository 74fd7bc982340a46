//! `cargo xtask test`: the tests that take minutes, the most informative failures first; and the longer ones
//! of `cargo xtask nightly`.

use crate::packages::{self, Install};
use crate::step::{StepOutput, StepVerdict, TimedStep};
use crate::summary::StepSummary;
use crate::test_output;
use std::process::{Command, Stdio};
use std::thread;
use unisono_host_tests::program::{HOST_TESTS, PROGRAMS, cargo, target, workspace};

/// Runs the tests that this machine can run in minutes. Returns whether all passed.
pub(crate) fn run(install: Install) -> anyhow::Result<bool> {
    let mut summary = StepSummary::default();
    summary.step("packages", || packages::provide(install));
    // a second thread builds the program that host tests start
    let program = thread::spawn(build_program);
    // in one command: for a single package, cargo would build its dependencies again with fewer features
    summary.step("unit, property, doc and command line tests", || {
        tests(&["--workspace", "--exclude", "unisono-host-tests"], &[], |_| ())
    });
    // built once, before the time limits of the host tests apply
    summary.step("host tests", || match program.join() {
        Ok(Ok(())) => host_tests(&[], |_| ()),
        Ok(Err(why)) => StepVerdict::failed(why),
        Err(_) => StepVerdict::failed("the thread that builds the program panicked"),
    });
    Ok(summary.conclude())
}

/// The tests of the crates with unsafe code under Miri.
pub(crate) fn miri() -> StepVerdict {
    let there = cargo().args(["miri", "--version"]).stderr(Stdio::null()).output();
    if !there.is_ok_and(|output| output.status.success()) {
        return StepVerdict::skipped("cargo miri is not installed: rustup +nightly component add miri");
    }
    let mut command = cargo();
    command.args(["miri", "test", "--no-fail-fast", "--package", "unisono-sync"]);
    command.args(["--package", "unisono-barrier"]).env("MIRIFLAGS", "-Zmiri-disable-isolation");
    verdict(TimedStep::new("miri", command).testing(test_output::is_test_start)).0
}

/// The models of a crate's protocols. They need another `cfg`, which rebuilds all their dependencies, so they
/// have a target directory of their own.
pub(crate) fn model(name: &str) -> StepVerdict {
    let package = format!("unisono-{name}");
    tests(&["--release", "--package", &package, "--test", "loom"], &[], |command| {
        command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target().join("loom"));
    })
}

/// The tests of this test program whose names contain one of the words, with all their cases.
pub(crate) fn all_cases(program: &str, words: &[&str]) -> StepVerdict {
    let long = |command: &mut Command| {
        command.env(unisono_host_tests::LONG, "1");
    };
    if program != HOST_TESTS {
        return tests(&["--workspace", "--test", program], words, long);
    }
    match build_program() {
        Ok(()) => host_tests(words, long),
        Err(why) => StepVerdict::failed(why),
    }
}

/// The maximum number of failed tests that run again. If more tests fail, the change is to blame and not
/// chance.
const MAX_RETRIED_TESTS: usize = 3;

/// Runs the tests whose names contain one of the words, or all. If only a few fail, runs them once more,
/// without other tests at the same time.
fn tests(arguments: &[&str], words: &[&str], prepare: impl Fn(&mut Command)) -> StepVerdict {
    let run = |names: &[&str]| {
        let mut command = cargo();
        prepare(&mut command);
        verdict(test_step(command, arguments, names).showing(test_output::filter()))
    };
    let (first, _) = run(words);
    let names: Vec<&str> = first.failed_tests.iter().map(String::as_str).collect();
    // a test that hung or a crate that did not build is a failure without a test's name
    if names.is_empty() || names.len() > MAX_RETRIED_TESTS || first.failures.len() > names.len() {
        return first;
    }
    println!("\nonce more: {}", names.join(", "));
    let (_, second) = run(&[&["--exact"], &names[..]].concat());
    test_output::after_retry(first, &second)
}

/// `cargo test ARGUMENTS -- --show-output WORDS`, by a command that begins with cargo.
fn test_step(mut cargo: Command, arguments: &[&str], words: &[&str]) -> TimedStep {
    cargo.args(["test", "--locked", "--no-fail-fast"]).args(arguments).args(["--", "--show-output"]);
    cargo.args(words).current_dir(workspace());
    let step = TimedStep::new(format!("cargo test {}", arguments.join(" ")), cargo);
    step.testing(test_output::is_test_start)
}

/// The verdict, and the output.
fn verdict(step: TimedStep) -> (StepVerdict, Vec<String>) {
    let StepOutput { success, hung, lines } = match step.run() {
        Ok(done) => done,
        Err(error) => return (StepVerdict::failed(error.to_string()), Vec::new()),
    };
    let mut verdict = test_output::read(&lines);
    if let Some(hung) = hung {
        verdict.failed += 1;
        verdict.failures.push(hung);
    } else if !success && verdict.failed == 0 {
        verdict.failed += 1;
        verdict.failures.push("it did not build, or ended without saying which test failed".to_owned());
    }
    (verdict, lines)
}

/// Host tests start the program as a user would.
fn host_tests(words: &[&str], prepare: impl Fn(&mut Command)) -> StepVerdict {
    // of the whole workspace: for one package alone, cargo builds all crates again, with fewer features
    tests(&["--workspace", "--test", HOST_TESTS], words, |command| {
        command.env("UNISONO_PROGRAM", target().join("release/unisono"));
        prepare(command);
    })
}

fn build_program() -> Result<(), String> {
    let mut build = cargo();
    build.args(["build", "--locked", "--release"]).args(PROGRAMS).current_dir(workspace());
    // other tests print at the same time
    let step = TimedStep::new("build the program", build).showing(|_| false);
    match step.run() {
        Ok(StepOutput { success: true, .. }) => Ok(()),
        Ok(StepOutput { hung: Some(hung), .. }) => Err(format!("the program does not build: {hung}")),
        Ok(StepOutput { lines, .. }) => Err(format!("the program does not build:\n{}", lines.join("\n"))),
        Err(error) => Err(format!("the program cannot be built: {error}")),
    }
}
