//! Runs a list of host tests one after another, each in a process of its own.

use crate::groups;
use crate::watchdog::{self, Ended};
use std::any::Any;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use unisono_linux::interrupt;
use unisono_linux::parent_death::die_with_parent;

/// The default deadline of a test.
const DEADLINE_S: u64 = 60;
/// The time that a test's last processes may take to end after it.
const GRACE: Duration = Duration::from_secs(3);
/// The exit status of a test process that skipped its test.
const SKIPPED: i32 = 77;
/// Requests a single test in this process.
const ONE: &str = "--run-one";

/// The reason why a test was not run here, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    reason: String,
}

impl Skipped {
    /// Makes a reason in a single line.
    pub fn because(reason: impl Into<String>) -> Self {
        Self { reason: reason.into().replace('\n', " ") }
    }
}

/// The result of a host test; a failure is a panic.
pub type TestOutcome = Result<(), Skipped>;

/// A host test; made by [`host_tests!`](crate::host_tests).
#[derive(Clone, Copy, Debug)]
pub struct Test {
    name: &'static str,
    run: fn() -> TestOutcome,
    deadline: Duration,
}

impl Test {
    /// A test with a deadline of a minute.
    pub const fn new(name: &'static str, run: fn() -> TestOutcome) -> Self {
        Self { name, run, deadline: Duration::from_secs(DEADLINE_S) }
    }

    /// Sets another deadline.
    #[must_use]
    pub const fn within(mut self, seconds: u64) -> Self {
        self.deadline = Duration::from_secs(seconds);
        self
    }
}

/// Lists the host tests of a file and makes its `main`: `host_tests![first, second within 120]`.
#[macro_export]
macro_rules! host_tests {
    ($($name:ident $(within $seconds:literal)?),* $(,)?) => {
        fn main() -> std::process::ExitCode {
            $crate::main(&[$($crate::Test::new(stringify!($name), $name)$(.within($seconds))?),*])
        }
    };
}

/// How a test ended.
enum TestVerdict {
    Passed,
    Skipped(String),
    Failed(String),
}

/// The options of the command line `cargo test -- ARGS`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    list: bool,
    exact: bool,
    /// Also show the output of tests that passed or were skipped.
    shows: bool,
    filters: Vec<String>,
}

impl Asked {
    /// Parses the arguments that tools pass to a libtest program; ignores flags without a meaning here
    /// (`--test-threads=1`).
    fn parse(arguments: impl Iterator<Item = String>) -> Self {
        let mut asked = Self::default();
        for argument in arguments {
            match argument.as_str() {
                "--list" => asked.list = true,
                "--exact" => asked.exact = true,
                "--nocapture" => asked.shows = true,
                flag if flag.starts_with("--") => {}
                _ => asked.filters.push(argument),
            }
        }
        asked
    }

    fn wants(&self, name: &str) -> bool {
        let fits = |filter: &String| if self.exact { name == filter } else { name.contains(filter.as_str()) };
        self.filters.is_empty() || self.filters.iter().any(fits)
    }
}

/// Runs the tests that the command line selects and prints a line for each.
#[allow(clippy::print_stdout, reason = "a test harness speaks")]
pub fn main(tests: &[Test]) -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.peek().is_some_and(|first| first == ONE) {
        return run_here(tests, arguments.nth(1).as_deref());
    }
    let asked = Asked::parse(arguments);
    let wanted: Vec<&Test> = tests.iter().filter(|test| asked.wants(test.name)).collect();
    if asked.list {
        wanted.iter().for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    if let Err(error) = watchdog::adopt_orphans() {
        println!("processes that tests leave behind could not be found: {error}");
        return ExitCode::FAILURE;
    }
    println!("\nrunning {} host tests", wanted.len());
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for test in &wanted {
        print!("test {} ... ", test.name);
        // print the name before the test runs, because the test may hang
        let _ = std::io::stdout().flush();
        let begun = Instant::now();
        let (verdict, said) = run_apart(test).unwrap_or_else(|error| {
            (TestVerdict::Failed(format!("it could not be started: {error}")), String::new())
        });
        match verdict {
            TestVerdict::Passed => {
                passed += 1;
                // xtask lists the slowest tests
                println!("ok ({:.1} s)", begun.elapsed().as_secs_f64());
            }
            TestVerdict::Skipped(reason) => {
                skipped += 1;
                println!("skipped: {reason}");
            }
            TestVerdict::Failed(report) => {
                failed += 1;
                println!("FAILED\n{report}");
                continue;
            }
        }
        if asked.shows {
            print!("{said}");
        }
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {passed} passed; {failed} failed; {skipped} skipped\n");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

/// The parent's side: runs this test in a process of its own, under the watchdog. Also returns the test's
/// output.
fn run_apart(test: &Test) -> std::io::Result<(TestVerdict, String)> {
    // a file, not a pipe: a process that outlives the test would keep a pipe open for ever
    let mut output = tempfile::tempfile()?;
    let mut child = Command::new(std::env::current_exe()?)
        .args([ONE, test.name])
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .process_group(0)
        .spawn()?;
    let ended = watchdog::wait(&mut child, test.deadline)?;
    let left = watchdog::left_behind(GRACE);
    watchdog::kill_left();
    groups::remove_left_behind();
    let printed = printed(&mut output)?;
    let verdict = match ended {
        Ended::Hung(stacks) => TestVerdict::Failed(format!(
            "{printed}it did not end within {} s:\n{stacks}",
            test.deadline.as_secs()
        )),
        Ended::Exited(status) => match status.code() {
            Some(0) if left => {
                TestVerdict::Failed(format!("{printed}it left processes behind; they were killed"))
            }
            Some(0) => TestVerdict::Passed,
            Some(SKIPPED) => {
                TestVerdict::Skipped(printed.lines().last().unwrap_or("without saying why").trim().to_owned())
            }
            _ => TestVerdict::Failed(format!("{printed}{status}")),
        },
    };
    Ok((verdict, printed))
}

fn printed(output: &mut File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    output.seek(SeekFrom::Start(0))?;
    output.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The child's side: runs a test in this process.
#[allow(clippy::print_stdout, reason = "the reason to skip goes to the parent by standard output")]
fn run_here(tests: &[Test], name: Option<&str>) -> ExitCode {
    let Some(test) = tests.iter().find(|test| Some(test.name) == name) else {
        println!("no test is called {name:?}");
        return ExitCode::FAILURE;
    };
    // a test leads a process group of its own, so Ctrl-C at the harness does not reach it
    if let Err(error) = die_with_parent(None) {
        println!("the harness is gone: {error}");
        return ExitCode::FAILURE;
    }
    // a shell starts background processes with interrupts ignored, and the tests' programs would inherit that
    if let Err(error) = interrupt::usual() {
        println!("the usual answers to signals could not be restored: {error}");
        return ExitCode::FAILURE;
    }
    match std::panic::catch_unwind(test.run) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(Skipped { reason })) => {
            println!("{reason}");
            ExitCode::from(SKIPPED as u8)
        }
        Err(payload) => {
            forget(payload);
            ExitCode::from(101)
        }
    }
}

/// The panic hook has already printed the message.
fn forget(_payload: Box<dyn Any + Send>) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(arguments: &[&str]) -> Asked {
        Asked::parse(arguments.iter().map(ToString::to_string))
    }

    #[test]
    fn a_filter_selects_by_part_of_the_name() {
        assert!(asked(&["--nocapture", "froz"]).wants("a_frozen_gang"));
        assert!(!asked(&["thaw"]).wants("a_frozen_gang"));
        assert!(asked(&[]).wants("a_frozen_gang"));
    }

    #[test]
    fn an_exact_filter_selects_by_the_whole_name() {
        assert!(!asked(&["--exact", "frozen"]).wants("a_frozen_gang"));
        assert!(asked(&["--exact", "a_frozen_gang"]).wants("a_frozen_gang"));
    }

    #[test]
    fn reasons_stay_on_one_line() {
        assert_eq!(Skipped::because("no\nroot").reason, "no root");
    }
}
