//! `cargo xtask test`: runs the tests that take minutes, the most informative ones first; also the longer
//! tests of `cargo xtask nightly`.

use crate::packages::{self, Install};
use crate::step::{StepOutput, StepVerdict, TimedStep};
use crate::summary::StepSummary;
use crate::test_output;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use unisono_host_tests::program::{self, HOST_TESTS, cargo, target, workspace};

/// Runs the tests that this machine can run in minutes. Returns whether all passed.
pub(crate) fn run(install: Install) -> anyhow::Result<bool> {
    let mut summary = StepSummary::default();
    summary.step("packages", || packages::provide(install));
    // the whole workspace, because for a single package cargo would build its dependencies again with fewer
    // features
    summary.step("unit, property, doc and command line tests", || {
        tests(&["--workspace", "--exclude", "unisono-host-tests"], &[], |command| {
            command.env(PROPERTY_CASES, "32");
        })
    });
    summary.step("host tests", || host_tests(&[], |_| ()));
    Ok(summary.conclude())
}

/// Runs the tests of `unisono-sync` and `unisono-barrier` under Miri.
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

/// Runs the loom models of a crate's protocols. They need another `cfg`, which rebuilds all their
/// dependencies, so they have a target directory of their own.
pub(crate) fn model(name: &str) -> StepVerdict {
    let package = format!("unisono-{name}");
    tests(&["--release", "--package", &package, "--test", "loom"], &[], |command| {
        command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target().join("loom"));
    })
}

/// The variable with the number of cases of each property test that sets no number itself (proptest).
const PROPERTY_CASES: &str = "PROPTEST_CASES";

/// Runs the unit tests, and the property tests with 1,024 cases each, 32 times as many as in `cargo xtask
/// test`.
pub(crate) fn property_cases() -> StepVerdict {
    let packages = ["--workspace", "--exclude", "unisono-host-tests", "--lib", "--tests"];
    tests(&packages, &[], |command| {
        command.env(PROPERTY_CASES, "1024");
    })
}

/// Runs the tests of this test program whose names contain one of the words, with all their cases.
pub(crate) fn all_cases(program: &str, words: &[&str]) -> StepVerdict {
    let long = |command: &mut Command| {
        command.env(unisono_host_tests::LONG, "1").env(PROPERTY_CASES, "4000");
    };
    if program != HOST_TESTS {
        return tests(&["--workspace", "--test", program], words, long);
    }
    host_tests(words, long)
}

/// The maximum number of failed tests that are run again. If more tests fail, chance is an unlikely cause,
/// and the failures count.
const MAX_RETRIED_TESTS: usize = 3;

/// Runs the tests whose names contain one of the words, or all. If only a few fail, it runs these once more,
/// without other tests at the same time.
fn tests(arguments: &[&str], words: &[&str], prepare: impl Fn(&mut Command)) -> StepVerdict {
    let run = |names: &[&str]| {
        let mut command = cargo();
        prepare(&mut command);
        verdict(test_step(command, arguments, names).showing(test_output::filter()))
    };
    let (first, _) = run(words);
    let names: Vec<&str> = first.failed_tests.iter().map(String::as_str).collect();
    // a test that hung, or a crate that did not build, is a failure without the name of a test
    if names.is_empty() || names.len() > MAX_RETRIED_TESTS || first.failures.len() > names.len() {
        return first;
    }
    println!("\nonce more: {}", names.join(", "));
    let (_, second) = run(&[&["--exact"], &names[..]].concat());
    test_output::after_retry(first, &second)
}

/// Returns the step `cargo test ARGUMENTS -- --show-output WORDS`; `cargo` is the start of its command.
fn test_step(mut cargo: Command, arguments: &[&str], words: &[&str]) -> TimedStep {
    cargo.args(["test", "--locked", "--no-fail-fast"]).args(arguments).args(["--", "--show-output"]);
    // the quick test, plain `cargo test`, omits tests that take seconds of processor time
    cargo.arg("--include-ignored").args(words).current_dir(workspace());
    let step = TimedStep::new(format!("cargo test {}", arguments.join(" ")), cargo);
    step.testing(test_output::is_test_start)
}

/// Runs a step of tests. Returns the verdict and the output.
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

/// Runs host tests, which start the program as a user would. The program is built first, so that the tests'
/// time limits do not include the build.
fn host_tests(words: &[&str], prepare: impl Fn(&mut Command)) -> StepVerdict {
    let program = match build_programs() {
        Ok(program) => program,
        Err(why) => return StepVerdict::failed(why),
    };
    // the whole workspace: for one package alone, cargo builds all crates again, with fewer features
    tests(&["--workspace", "--test", HOST_TESTS], words, |command| {
        command.env("UNISONO_PROGRAM", &program);
        prepare(command);
    })
}

/// Builds the programs of the workspace. Returns the path of `unisono`, or why they do not build.
pub(crate) fn build_programs() -> Result<PathBuf, String> {
    let mut build = cargo();
    build.args(["build", "--locked"]).args(program::BUILD).current_dir(workspace());
    let step = TimedStep::new("build the programs", build);
    match step.run() {
        Ok(StepOutput { success: true, .. }) => Ok(target().join("debug/unisono")),
        Ok(StepOutput { hung, .. }) => Err(format!(
            "the programs do not build{}",
            hung.map_or(String::new(), |hung| format!(": {hung}"))
        )),
        Err(error) => Err(format!("the programs cannot be built: {error}")),
    }
}
