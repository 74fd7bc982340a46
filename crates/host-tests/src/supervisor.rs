//! The supervisor of one host test: a process between the harness and the test's own process.
//!
//! ```text
//!   harness --> supervisor (adopts orphans, watches the deadline) --> the test, a process group of its own
//! ```
//! The supervisor adopts each process of the test that loses its parent. So a process that is left behind is
//! attributed to the test that started it, even while other tests run. The supervisor answers on its standard
//! output: with a line that has the verdict, and then the test's output.

use crate::groups;
use crate::needs::Needs;
use crate::require;
use crate::test::{Skipped, Test};
use crate::watchdog::{self, Ended};
use std::any::Any;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use unisono_linux::interrupt;
use unisono_linux::parent_death::die_with_parent;

/// Maximum time for the last processes of a test to end after the test itself.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// The exit status of a test's process that means "skipped", as in Automake.
const SKIPPED: u8 = 77;
/// The first argument of a supervisor; the test's name follows.
const SUPERVISE: &str = "--supervise";
/// The first argument of a test's own process; the test's name follows.
const RUN: &str = "--run-one";

/// How one test ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TestVerdict {
    Passed,
    Skipped(String),
    Failed(String),
}

impl TestVerdict {
    /// Returns the answer of a supervisor: a line with the verdict, and the output of the test.
    fn write(&self, printed: &str) -> String {
        match self {
            Self::Passed => format!("passed\n{printed}"),
            Self::Skipped(reason) => format!("skipped: {reason}\n{printed}"),
            Self::Failed(report) => format!("failed\n{report}"),
        }
    }

    /// Parses an answer. Returns the verdict and the output.
    fn read(answer: &str) -> (Self, String) {
        let (line, text) = answer.split_once('\n').unwrap_or((answer, ""));
        let verdict = match line {
            "passed" => Self::Passed,
            "failed" => Self::Failed(text.to_owned()),
            _ => match line.strip_prefix("skipped: ") {
                Some(reason) => Self::Skipped(reason.to_owned()),
                None => Self::Failed(format!("its supervisor ended without a verdict; it said: {answer}")),
            },
        };
        (verdict, text.to_owned())
    }
}

/// A running supervisor, as the harness sees it.
#[derive(Debug)]
pub(crate) struct Supervisor {
    child: Child,
}

impl Supervisor {
    /// Starts a supervisor for the test of this name.
    ///
    /// # Errors
    /// The kernel refused to start a process.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([SUPERVISE, name]).stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(Self { child: command.spawn()? })
    }

    /// Waits for the end of the supervisor. Returns the verdict and the output of the test.
    pub(crate) fn wait(self) -> (TestVerdict, String) {
        match self.child.wait_with_output() {
            Ok(output) => TestVerdict::read(&String::from_utf8_lossy(&output.stdout)),
            Err(error) => (
                TestVerdict::Failed(format!("its supervisor cannot be waited for: {error}")),
                String::new(),
            ),
        }
    }
}

/// Runs the role that the arguments name, if this process was started as a supervisor or as a test's own
/// process. `find` returns the test with a given name.
pub(crate) fn run_role<'a>(
    arguments: &[String],
    find: impl Fn(&str) -> Option<&'a Test>,
) -> Option<ExitCode> {
    let [part, name] = arguments else { return None };
    if ![SUPERVISE, RUN].contains(&part.as_str()) {
        return None;
    }
    let Some(test) = find(name) else { return Some(print_and_exit(&format!("no test is called {name}"), 1)) };
    // if the harness is killed, the kernel kills its supervisors, and with each of these its test
    if let Err(error) = die_with_parent(None) {
        return Some(print_and_exit(&format!("the harness is gone: {error}"), 1));
    }
    Some(if part == SUPERVISE { supervise(name, test) } else { run_here(test) })
}

#[allow(clippy::print_stdout, reason = "supervisors and tests answer by standard output")]
fn print_and_exit(text: &str, code: u8) -> ExitCode {
    println!("{text}");
    ExitCode::from(code)
}

fn supervise(name: &str, test: &Test) -> ExitCode {
    let watched = watchdog::adopt_orphans().and_then(|()| run_watched(name, test));
    let (verdict, printed) = watched.unwrap_or_else(|error| {
        (TestVerdict::Failed(format!("it could not be started: {error}")), String::new())
    });
    print_and_exit(&verdict.write(&printed), 0)
}

/// Starts a program with an empty `/run/unisono` that no other process sees. Each step replaces the process,
/// so its number stays. `slave`: namespaces of network that others make later are seen here, but not the
/// reverse.
const WITH_OWN_STATE: [&str; 6] = [
    "unshare",
    "--mount",
    "--propagation=slave",
    "sh",
    "-c",
    "mkdir -p /run/unisono && mount -t tmpfs -o mode=755 tmpfs /run/unisono && exec \"$0\" \"$@\"",
];

/// Returns whether this machine can give a test a `/run/unisono` of its own: only root can mount, and a small
/// virtual machine has no `unshare`.
pub(crate) fn gives_own_state() -> bool {
    require::root().is_ok()
        && with_own_state(Path::new("true")).output().is_ok_and(|output| output.status.success())
}

fn with_own_state(program: &Path) -> Command {
    let [first, rest @ ..] = WITH_OWN_STATE;
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}

/// Returns the command that starts a test's program with the state that the test needs. Where the machine
/// gives a test no state of its own, the harness runs the test beside no other test of queues.
fn with_needs(needs: Needs, program: &Path) -> Command {
    if needs == Needs::OwnQueues && gives_own_state() {
        with_own_state(program)
    } else {
        Command::new(program)
    }
}

/// Starts the test's process and watches it. Returns the verdict and the output of the test.
fn run_watched(name: &str, test: &Test) -> io::Result<(TestVerdict, String)> {
    let deadline = test.deadline();
    // a file, not a pipe: a process that outlives the test would keep a pipe open for ever
    let mut output = tempfile::tempfile()?;
    let mut child = with_needs(test.needs(), &std::env::current_exe()?)
        .args([RUN, name])
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .process_group(0)
        .spawn()?;
    let ended = watchdog::wait(&mut child, deadline)?;
    let left = watchdog::has_left_behind(EXIT_TIMEOUT);
    watchdog::kill_left_behind();
    groups::remove_left_behind();
    let printed = read_output(&mut output)?;
    let verdict = match ended {
        Ended::Hung(stacks) => {
            TestVerdict::Failed(format!("{printed}it did not end within {} s:\n{stacks}", deadline.as_secs()))
        }
        Ended::Exited(status) => match status.code() {
            Some(0) if left => {
                TestVerdict::Failed(format!("{printed}it left processes behind; they were killed"))
            }
            Some(0) => TestVerdict::Passed,
            Some(code) if code == i32::from(SKIPPED) => {
                TestVerdict::Skipped(printed.lines().last().unwrap_or("without saying why").trim().to_owned())
            }
            _ => TestVerdict::Failed(format!("{printed}{status}")),
        },
    };
    Ok((verdict, printed))
}

fn read_output(output: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    output.seek(SeekFrom::Start(0))?;
    output.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs one test in this process.
fn run_here(test: &Test) -> ExitCode {
    // a shell starts its background commands with SIGINT ignored, and the tests' programs would inherit that
    if let Err(error) = interrupt::usual() {
        return print_and_exit(&format!("the usual answers to signals could not be restored: {error}"), 1);
    }
    match std::panic::catch_unwind(|| test.run()) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(Skipped { reason })) => print_and_exit(&reason, SKIPPED),
        Err(payload) => {
            drop_payload(payload);
            ExitCode::from(101)
        }
    }
}

/// Drops the payload of a panic, because the panic hook has printed the message already.
fn drop_payload(_payload: Box<dyn Any + Send>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_read_as_it_was_written() {
        for verdict in [
            TestVerdict::Passed,
            TestVerdict::Skipped("no root".to_owned()),
            TestVerdict::Failed("two\nlines".to_owned()),
        ] {
            let (read, text) = TestVerdict::read(&verdict.write("said\nthis"));
            assert_eq!(read, verdict);
            assert!(matches!(read, TestVerdict::Failed(_)) || text == "said\nthis", "{text}");
        }
    }

    #[test]
    fn a_supervisor_that_answers_nothing_is_a_failure() {
        assert!(matches!(TestVerdict::read(""), (TestVerdict::Failed(_), _)));
    }
}
