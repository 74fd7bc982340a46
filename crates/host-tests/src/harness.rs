//! Runs a list of host tests, each in a process of its own, and several at a time if their needs allow it.

use crate::needs::{Needs, TestQueue};
use crate::supervisor::{self, Supervisor, TestVerdict};
use crate::test::Test;
use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of tests at the same time for each processor. Tests that need nothing spend most of their
/// time waiting; four tests keep two processors busy. Chosen, not measured.
const MAX_RUNNING_PER_PROCESSOR: usize = 2;

/// The options of the command line `cargo test -- ARGS`.
#[derive(Debug, Default, PartialEq, Eq)]
struct HarnessOptions {
    list: bool,
    exact: bool,
    /// Also show the output of tests that passed or were skipped.
    shows_output: bool,
    /// Maximum number of tests at the same time; `None`: according to [`MAX_RUNNING_PER_PROCESSOR`].
    threads: Option<usize>,
    filters: Vec<String>,
}

impl HarnessOptions {
    /// Parses the arguments that tools pass to a libtest program. Ignores flags that have no meaning here.
    fn parse(arguments: impl Iterator<Item = String>) -> Self {
        let mut options = Self::default();
        for argument in arguments {
            match argument.as_str() {
                "--list" => options.list = true,
                "--exact" => options.exact = true,
                "--nocapture" => options.shows_output = true,
                flag if flag.starts_with("--") => {
                    let threads = flag.strip_prefix("--test-threads=").and_then(|number| number.parse().ok());
                    options.threads = threads.or(options.threads);
                }
                _ => options.filters.push(argument),
            }
        }
        options
    }

    fn selects(&self, name: &str) -> bool {
        let fits = |filter: &String| if self.exact { name == filter } else { name.contains(filter.as_str()) };
        self.filters.is_empty() || self.filters.iter().any(fits)
    }

    fn max_running(&self) -> usize {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or(processors * MAX_RUNNING_PER_PROCESSOR)
    }
}

/// The number of tests by verdict.
#[derive(Debug, Default)]
struct TestCounts {
    passed: u32,
    failed: u32,
    skipped: u32,
}

/// Runs those tests of the named `modules` that the command line asks for, and prints a line for each. A
/// test's whole name is `module::test`.
#[allow(clippy::print_stdout, reason = "a test harness speaks")]
pub fn main(modules: &[(&str, &[Test])]) -> ExitCode {
    let all = || modules.iter().flat_map(|(module, tests)| tests.iter().map(move |test| (*module, test)));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let find =
        |name: &str| all().find(|(module, test)| qualified_name(module, test) == name).map(|(_, test)| test);
    if let Some(code) = supervisor::run_role(&arguments, find) {
        return code;
    }
    let options = HarnessOptions::parse(arguments.into_iter());
    let shares_state = !supervisor::gives_own_state();
    let needs = |test: &Test| match test.needs() {
        Needs::OwnQueues if shares_state => Needs::Queues,
        needs => needs,
    };
    let named = all().map(|(module, test)| (needs(test), qualified_name(module, test)));
    let wanted: Vec<(Needs, String)> = named.filter(|(_, name)| options.selects(name)).collect();
    if options.list {
        wanted.iter().for_each(|(_, name)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} host tests", wanted.len());
    let TestCounts { passed, failed, skipped } = run_all(wanted, &options);
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {passed} passed; {failed} failed; {skipped} skipped\n");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

fn qualified_name(module: &str, test: &Test) -> String {
    format!("{module}::{}", test.name())
}

/// Runs all tests; starts each as soon as it may run beside the running ones.
fn run_all(wanted: Vec<(Needs, String)>, options: &HarnessOptions) -> TestCounts {
    let mut queue = TestQueue::new(wanted, options.max_running());
    let mut counts = TestCounts::default();
    let (ended, ends) = mpsc::channel();
    while !queue.is_done() {
        while let Some((needs, name)) = queue.start() {
            let ended = ended.clone();
            thread::spawn(move || {
                let begun = Instant::now();
                let (verdict, printed) = match Supervisor::start(&name) {
                    Ok(supervisor) => supervisor.wait(),
                    Err(error) => {
                        (TestVerdict::Failed(format!("it could not be started: {error}")), String::new())
                    }
                };
                let _ = ended.send((needs, name, begun.elapsed(), verdict, printed)); // the harness waits for it
            });
        }
        let Ok((needs, name, took, verdict, printed)) = ends.recv() else { break };
        queue.ended(needs);
        report(&mut counts, (&name, took), verdict, options.shows_output.then_some(&printed));
    }
    counts
}

/// Prints the verdict of a test after its end. A line at its start would mix with the lines of other tests
/// that run at the same time; if a test hangs, its supervisor ends it and names it.
#[allow(clippy::print_stdout, reason = "a test harness speaks")]
fn report(
    counts: &mut TestCounts,
    (name, took): (&str, Duration),
    verdict: TestVerdict,
    printed: Option<&String>,
) {
    match verdict {
        TestVerdict::Passed => {
            counts.passed += 1;
            // with the time, because the summary of all tests lists the slowest ones
            println!("test {name} ... ok ({:.1} s)", took.as_secs_f64());
        }
        TestVerdict::Skipped(reason) => {
            counts.skipped += 1;
            println!("test {name} ... skipped: {reason}");
        }
        TestVerdict::Failed(report) => {
            counts.failed += 1;
            println!("test {name} ... FAILED\n{report}");
            return;
        }
    }
    if let Some(printed) = printed {
        print!("{printed}");
    }
    let _ = std::io::stdout().flush(); // if the reader is gone, the next line ends the harness
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> HarnessOptions {
        HarnessOptions::parse(arguments.iter().map(ToString::to_string))
    }

    #[test]
    fn a_filter_selects_by_part_of_the_name() {
        assert!(options(&["--nocapture", "froz"]).selects("gang::a_frozen_gang"));
        assert!(!options(&["thaw"]).selects("gang::a_frozen_gang"));
        assert!(options(&[]).selects("gang::a_frozen_gang"));
    }

    #[test]
    fn an_exact_filter_selects_by_the_whole_name() {
        assert!(!options(&["--exact", "a_frozen_gang"]).selects("gang::a_frozen_gang"));
        assert!(options(&["--exact", "gang::a_frozen_gang"]).selects("gang::a_frozen_gang"));
    }

    #[test]
    fn the_number_of_tests_at_a_time_can_be_asked_for() {
        assert_eq!(options(&["--test-threads=3", "--show-output"]).max_running(), 3);
    }
}
