//! `cargo xtask test`: runs every test, the most informative failures first.

use crate::packages::{self, Install};
use crate::step::{Cases, StepOutput, StepVerdict, TimedStep};
use crate::summary::StepSummary;
use crate::{test_output, vm};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;
use unisono_host_tests::program::{HOST_TESTS, PROGRAMS, target, workspace};
use unisono_linux::scheduling::{self, Children, SchedulingPolicy};

/// Runs every test that this machine can run. Returns whether all passed.
pub(crate) fn run(install: Install, cases: Cases) -> anyhow::Result<bool> {
    let mut summary = StepSummary::default();
    summary.step("packages", || packages::provide(install));
    // A second thread builds the program that host tests start. Many host tests spend their time waiting; in
    // that idle time the thread then runs the models, which take minutes of a processor. Their output is
    // printed afterwards.
    let (built, program) = mpsc::channel();
    let models = thread::spawn(|| build_and_run_models(built));
    // in one command: for a single package, cargo would build its dependencies again with fewer features
    summary.step("unit, property, doc and command line tests", || {
        tests(&["--workspace", "--exclude", "unisono-host-tests"], |_| ())
    });
    summary.step("host tests", || host_tests(cases, &program));
    summary.step("a newer kernel, in a virtual machine", || vm::step(&[], cases));
    summary.step("models of the protocols (loom)", || match models.join() {
        Ok((verdict, lines)) => {
            lines.iter().for_each(|line| println!("{line}"));
            verdict
        }
        Err(_) => StepVerdict::failed("the thread that runs them panicked"),
    });
    Ok(summary.conclude())
}

/// Runs the tests of the crates with unsafe code under Miri.
pub(crate) fn miri() -> anyhow::Result<bool> {
    let mut summary = StepSummary::default();
    summary.step("miri", || {
        let there =
            unisono_host_tests::program::cargo().args(["miri", "--version"]).stderr(Stdio::null()).output();
        if !there.is_ok_and(|output| output.status.success()) {
            return StepVerdict::skipped("cargo miri is not installed: rustup +nightly component add miri");
        }
        let mut command = unisono_host_tests::program::cargo();
        command.args([
            "miri",
            "test",
            "--no-fail-fast",
            "--package",
            "unisono-sync",
            "--package",
            "unisono-barrier",
        ]);
        command.env("MIRIFLAGS", "-Zmiri-disable-isolation");
        verdict(TimedStep::new("miri", command).testing(test_output::is_test_start)).0
    });
    Ok(summary.conclude())
}

/// The maximum number of failed tests that run again. If more tests fail, the change is to blame and not
/// chance.
const MAX_RETRIED_TESTS: usize = 3;

/// Runs tests. If only a few fail, runs them once more, without other tests at the same time.
fn tests(arguments: &[&str], prepare: impl Fn(&mut Command)) -> StepVerdict {
    let run = |names: &[&str]| {
        let mut command = unisono_host_tests::program::cargo();
        prepare(&mut command);
        verdict(test_step(command, arguments, names).showing(test_output::filter()))
    };
    let (first, _) = run(&[]);
    let names: Vec<&str> = first.failed_tests.iter().map(String::as_str).collect();
    // a test that hung or a crate that did not build is a failure without a test's name
    if names.is_empty() || names.len() > MAX_RETRIED_TESTS || first.failures.len() > names.len() {
        return first;
    }
    println!("\nonce more: {}", names.join(", "));
    let (_, second) = run(&names);
    test_output::after_retry(first, &second)
}

/// `cargo test ARGUMENTS`, by a command that begins with cargo: runs all tests, or the tests with exactly
/// these names.
fn test_step(mut cargo: Command, arguments: &[&str], names: &[&str]) -> TimedStep {
    cargo.args(["test", "--locked", "--no-fail-fast"]).args(arguments).args(["--", "--show-output"]);
    if !names.is_empty() {
        cargo.arg("--exact").args(names);
    }
    cargo.current_dir(workspace());
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

/// Host tests start the program as a user would. It is built once, before their time limits apply.
fn host_tests(cases: Cases, program: &Receiver<Result<(), String>>) -> StepVerdict {
    match program.recv() {
        Ok(Ok(())) => {}
        Ok(Err(why)) => return StepVerdict::failed(why),
        Err(_) => return StepVerdict::failed("the thread that builds the program panicked"),
    }
    // of the whole workspace: for one package alone, cargo builds all crates again, with fewer features
    tests(&["--workspace", "--test", HOST_TESTS], |command| {
        command.env("UNISONO_PROGRAM", target().join("release/unisono"));
        if cases == Cases::All {
            command.env(unisono_host_tests::LONG, "1");
        }
    })
}

/// Builds the program, reports to `built`, and runs the models in idle time. Returns the result of [`loom`].
/// The build has the priority of the tests, because host tests wait for it.
fn build_and_run_models(built: Sender<Result<(), String>>) -> (StepVerdict, Vec<String>) {
    let _ = built.send(build_program()); // the receiver is gone if earlier tests panicked
    drop(built);
    // what this thread starts is of its class
    if let Err(error) = scheduling::set_own(SchedulingPolicy::Idle, Children::Inherit) {
        let why = format!("this thread cannot be given idle time: {error}");
        return (StepVerdict::failed(why), Vec::new());
    }
    loom()
}

fn build_program() -> Result<(), String> {
    let mut build = unisono_host_tests::program::cargo();
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

/// Runs the models. They need another `cfg`, which rebuilds all their dependencies, so they have a target
/// directory of their own. Prints nothing; returns the lines that are worth showing.
fn loom() -> (StepVerdict, Vec<String>) {
    const CRATES: [&str; 4] = ["sync", "barrier", "rma", "broker"];
    let mut arguments = vec!["--release".to_owned()];
    let mut models = 0;
    for name in CRATES {
        let found = loom_models(&workspace().join("crates").join(name).join("tests"));
        if !found.is_empty() {
            arguments.extend(["--package".to_owned(), format!("unisono-{name}")]);
        }
        models += found.len();
        arguments.extend(found.into_iter().flat_map(|model| ["--test".to_owned(), model]));
    }
    if models == 0 {
        return (StepVerdict::skipped("no crate has a model (tests/loom*.rs)"), Vec::new());
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = unisono_host_tests::program::cargo();
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target().join("loom"));
    // they may have to wait for the end of the host tests
    let hour = Duration::from_secs(60 * 60);
    let step = test_step(command, &arguments, &[]).testing_within(test_output::is_test_start, hour, hour);
    let (verdict, mut lines) = verdict(step.within(2 * hour).showing(|_| false));
    let mut is_shown = test_output::filter();
    lines.retain(|line| is_shown(line));
    (verdict, lines)
}

fn loom_models(tests: &Path) -> Vec<String> {
    let mut models = tests_in(tests).unwrap_or_default();
    models.retain(|name| name.starts_with("loom"));
    models
}

/// The names of the tests in a crate's tests folder, sorted.
fn tests_in(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".rs")).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}
