//! A step: a command under a watchdog. Its output is shown while it runs, and kept.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use unisono_host_tests::watchdog::{self, Ended, WatchedProcesses};

/// The number of similar cases that a test runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cases {
    /// A fraction of the cases: a run takes about twenty minutes on two processors.
    Some,
    All,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepVerdict {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// A line for each skip: the test and the reason.
    pub(crate) skipped: Vec<String>,
    /// A line for each failure.
    pub(crate) failures: Vec<String>,
    /// The names of failed tests.
    pub(crate) failed_tests: Vec<String>,
    /// A line for each test that failed at first and passed when it ran again.
    pub(crate) flaky: Vec<String>,
    /// The duration of each test, if the harness reports it.
    pub(crate) times_ms: Vec<(u64, String)>,
}

impl StepVerdict {
    pub(crate) fn passed(count: u64) -> Self {
        Self { passed: count, ..Self::default() }
    }

    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self { skipped: vec![reason.into()], ..Self::default() }
    }

    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self { failed: 1, failures: vec![reason.into()], ..Self::default() }
    }

    /// Prints the line of a result; an error becomes a failure.
    pub(crate) fn from_result(result: anyhow::Result<String>) -> Self {
        match result {
            Ok(found) => {
                println!("{found}");
                Self::passed(1)
            }
            Err(error) => Self::failed(format!("{error:#}")),
        }
    }

    /// Adds the verdict on another part of the same step.
    pub(crate) fn add(&mut self, other: Self) {
        let Self { passed, failed, skipped, failures, failed_tests, flaky, times_ms } = other;
        self.passed += passed;
        self.failed += failed;
        self.skipped.extend(skipped);
        self.failures.extend(failures);
        self.failed_tests.extend(failed_tests);
        self.flaky.extend(flaky);
        self.times_ms.extend(times_ms);
    }
}

pub(crate) struct StepOutput {
    /// Whether the command exited with code 0.
    pub(crate) success: bool,
    /// The reason why the watchdog killed the command, if it did.
    pub(crate) hung: Option<String>,
    /// The lines of both output streams.
    pub(crate) lines: Vec<String>,
}

pub(crate) struct TimedStep {
    name: String,
    command: Command,
    deadline: Duration,
    tests: Option<TestLimits>,
    show: Box<dyn FnMut(&str) -> bool>,
}

/// Limits that apply from the first line for which `has_started` returns true.
struct TestLimits {
    has_started: fn(&str) -> bool,
    deadline: Duration,
    silence: Duration,
}

impl TimedStep {
    /// Creates a step that may take at most an hour, silent or not, because a compiler on a slow machine is
    /// silent for many minutes.
    pub(crate) fn new(name: impl Into<String>, command: Command) -> Self {
        Self {
            name: name.into(),
            command,
            deadline: Duration::from_secs(60 * 60),
            tests: None,
            show: Box::new(|_| true),
        }
    }

    /// Sets another deadline for the whole step.
    pub(crate) fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets limits for tests: forty minutes in all, ten without a line of output. They are generous, because
    /// only a test that hangs should reach them. They apply from the first line for which `has_started`
    /// returns true, so compiling the tests does not count.
    pub(crate) fn testing(self, has_started: fn(&str) -> bool) -> Self {
        self.testing_within(has_started, Duration::from_secs(40 * 60), Duration::from_secs(10 * 60))
    }

    pub(crate) fn testing_within(
        mut self,
        has_started: fn(&str) -> bool,
        deadline: Duration,
        silence: Duration,
    ) -> Self {
        self.tests = Some(TestLimits { has_started, deadline, silence });
        self
    }

    /// Filters the lines that are shown; all lines are kept.
    pub(crate) fn showing(mut self, show: impl FnMut(&str) -> bool + 'static) -> Self {
        self.show = Box::new(show);
        self
    }

    /// Runs the step. Success counts as one passed test, and a failure as one failed test with this reason.
    pub(crate) fn verdict(self, failure: impl Into<String>) -> StepVerdict {
        if self.succeeds() { StepVerdict::passed(1) } else { StepVerdict::failed(failure) }
    }

    /// Runs the step and returns whether it succeeded. Reports a failure.
    pub(crate) fn succeeds(self) -> bool {
        let name = self.name.clone();
        match self.run() {
            Ok(StepOutput { success, hung, .. }) => {
                if let Some(hung) = hung {
                    println!("{name}: {hung}");
                }
                success
            }
            Err(error) => {
                println!("{name}: {error}");
                false
            }
        }
    }

    pub(crate) fn run(mut self) -> std::io::Result<StepOutput> {
        let (reader, writer) = std::io::pipe()?;
        // the command stays in the terminal's process group, so that Ctrl-C ends it, too
        let mut child = self
            .command
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .env("CARGO_TERM_PROGRESS_WHEN", "never")
            .spawn()
            .map_err(|error| {
                let program = self.command.get_program().to_string_lossy().into_owned();
                std::io::Error::new(error.kind(), format!("{program} cannot be started: {error}"))
            })?;
        // The command holds a copy of the pipe's writing end. It is dropped here; otherwise the pipe would
        // never close.
        drop(std::mem::replace(&mut self.command, Command::new("true")));
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                line.clear();
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
        let start = Instant::now();
        let mut last_line = Instant::now();
        let mut tests_begun = None;
        let mut lines = Vec::new();
        let mut hung = None;
        let ended = watchdog::wait_unless(&mut child, WatchedProcesses::Descendants, || {
            while let Ok(line) = receiver.try_recv() {
                last_line = Instant::now();
                if let Some(tests) = &self.tests
                    && tests_begun.is_none()
                    && (tests.has_started)(&line)
                {
                    tests_begun = Some(last_line);
                }
                keep(&mut lines, &mut self.show, line);
            }
            if start.elapsed() >= self.deadline {
                hung = Some(format!("it did not end within {} s", self.deadline.as_secs()));
            } else if let (Some(tests), Some(has_started)) = (&self.tests, tests_begun) {
                if has_started.elapsed() >= tests.deadline {
                    hung = Some(format!("its tests did not end within {} s", tests.deadline.as_secs()));
                } else if last_line.elapsed() >= tests.silence {
                    hung = Some(format!("a test was silent for {} s", tests.silence.as_secs()));
                }
            }
            hung.is_some()
        })?;
        // reads the rest of the pipe; a process that the command left behind may keep it open forever
        loop {
            match receiver.recv_timeout(Duration::from_secs(2)) {
                Ok(line) => keep(&mut lines, &mut self.show, line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    println!("warning: {} left a process behind that holds its output", self.name);
                    break;
                }
            }
        }
        let success = match &ended {
            Ended::Exited(status) => status.success(),
            Ended::Hung(stacks) => {
                println!("{stacks}");
                false
            }
        };
        Ok(StepOutput { success, hung, lines })
    }
}

fn keep(lines: &mut Vec<String>, show: &mut dyn FnMut(&str) -> bool, line: String) {
    if show(&line) {
        println!("{line}");
    }
    lines.push(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> TimedStep {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        TimedStep::new("a step", command)
    }

    #[test]
    fn both_streams_are_kept_in_order() {
        let done = shell("echo one; echo two >&2; echo three").run().expect("it starts");
        assert!(done.success);
        assert_eq!(done.lines, ["one", "two", "three"]);
    }

    #[test]
    fn a_step_that_hangs_is_killed_with_its_children() {
        let done = shell("echo begun; sleep 3600; echo never").within(Duration::from_secs(1)).run();
        let done = done.expect("it starts");
        assert!(!done.success);
        assert_eq!(done.hung.as_deref(), Some("it did not end within 1 s"));
        assert_eq!(done.lines, ["begun"]);
    }

    #[test]
    fn silence_counts_only_while_tests_run() {
        let second = Duration::from_secs(1);
        let has_started = |line: &str| line == "running";
        let compiling = shell("echo compiling; sleep 3; echo running; echo ok");
        let done = compiling.testing_within(has_started, 60 * second, second).run().expect("it starts");
        assert_eq!(done.hung, None);
        let hanging = shell("echo compiling; echo running; sleep 3600");
        let done = hanging.testing_within(has_started, 60 * second, second).run().expect("it starts");
        assert_eq!(done.hung.as_deref(), Some("a test was silent for 1 s"));
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let error =
            TimedStep::new("none", Command::new("unisono-no-such-program")).run().err().expect("an error");
        assert!(error.to_string().contains("unisono-no-such-program"), "{error}");
    }
}
