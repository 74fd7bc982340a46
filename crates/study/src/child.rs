//! Child programs of a run. Each has its own process group and a deadline, and no process is left behind.
//!
//! A [`StudyChild`] owns its group; dropping it kills the group. At the deadline, or after Ctrl-C, the group
//! first gets SIGTERM, so that a gang scheduler restores its changes, and SIGKILL after [`KILL_AFTER`]. The
//! program's standard error is kept as the reason of a failed run.
//!
//! Cost: a waiting runner sleeps in steps of [`POLL_INTERVAL`], because polling more often would disturb the
//! measurement. If this process is killed, the kernel kills programs that support `--die-with-parent`. When
//! not to use it: for programs that leave their group on purpose.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process_group::ProcessGroup;
use unisono_linux::signal::Signal;

/// Time between two polls of a waiting runner for the end of a program.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Time that a program has to end after SIGTERM.
pub const KILL_AFTER: Duration = Duration::from_secs(3);

/// Polled while waiting; `Some` holds the name of the signal that stops the study.
pub type Interrupted<'a> = &'a dyn Fn() -> Option<&'static str>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("{program} {how}{last_line}")]
    Failed {
        program: String,
        /// Exit code or signal.
        how: String,
        /// Its last line on standard error, after a separator.
        last_line: String,
        /// Exit code, if it ended by itself.
        code: Option<i32>,
    },
    #[error("{program} did not end within {deadline:?} and was killed{last_line}")]
    Deadline {
        program: String,
        deadline: Duration,
        /// Its last line on standard error, after a separator.
        last_line: String,
    },
    #[error("stopped by {0}")]
    Interrupted(&'static str),
}

#[derive(Debug)]
pub struct StudyChild {
    program: String,
    process: std::process::Child,
    pinned: PinnedProcess,
    group: ProcessGroup,
    stderr: Option<File>,
    ended: bool,
}

impl StudyChild {
    /// Starts a program without standard input; its output is discarded, the end of its standard error is
    /// kept. Call this from a thread that outlives the program: the kernel may end the program with the
    /// thread.
    pub fn start(mut command: Command) -> Result<Self, ChildError> {
        let program =
            command.get_program().to_string_lossy().rsplit('/').next().unwrap_or("program").to_owned();
        let failed = |source| ChildError::Start { program: program.clone(), source };
        // a pipe could fill up and block the program
        let file = tempfile::Builder::new().append(true).tempfile();
        let stderr = file.map_err(failed)?.into_file();
        let theirs = stderr.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(theirs).process_group(0);
        let process = command.spawn().map_err(failed)?;
        let pinned = PinnedProcess::of_child(&process).map_err(failed)?;
        let group = ProcessGroup::of_child(&process).map_err(failed)?;
        Ok(Self { program, process, pinned, group, stderr: Some(stderr), ended: false })
    }

    pub fn process(&self) -> &PinnedProcess {
        &self.pinned
    }

    pub fn group(&self) -> &ProcessGroup {
        &self.group
    }

    /// Returns how the program ended, if it has ended although it should still run.
    pub fn failure(&mut self) -> Option<ChildError> {
        let status = self.poll_end()?;
        Some(ChildError::Failed {
            program: self.program.clone(),
            how: status_in_words(status),
            last_line: self.last_error_line(),
            code: status.code(),
        })
    }

    fn poll_end(&mut self) -> Option<ExitStatus> {
        let status = self.process.try_wait().ok().flatten()?;
        self.ended = true;
        Some(status)
    }

    /// Ends the group: with SIGTERM, and after [`KILL_AFTER`] with SIGKILL.
    fn terminate(&mut self) {
        if !self.ended {
            let _already_gone = self.group.send_signal(Signal::Terminate);
            let until = Instant::now() + KILL_AFTER;
            while self.poll_end().is_none() && Instant::now() < until {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        self.kill();
    }

    fn kill(&mut self) {
        let _already_gone = self.group.send_signal(Signal::Kill);
        if !self.ended {
            let _already_gone = self.process.kill();
            let _reaped = self.process.wait();
            self.ended = true;
        }
    }

    /// Returns the last line of standard error, after a separator; empty if there was none.
    fn last_error_line(&mut self) -> String {
        let mut text = Vec::new();
        if let Some(mut file) = self.stderr.take() {
            let from = file.metadata().map_or(0, |m| m.len().saturating_sub(4096));
            let read = file.seek(io::SeekFrom::Start(from)).and_then(|_| file.read_to_end(&mut text));
            if read.is_err() {
                return String::new();
            }
        }
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().map(str::trim).rfind(|l| !l.is_empty()).unwrap_or("");
        if line.is_empty() {
            String::new()
        } else {
            format!(": {}", line.chars().take(300).collect::<String>())
        }
    }
}

impl Drop for StudyChild {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until all programs have ended with success, then kills other processes left in their groups. If one
/// program fails, the others are ended before this returns.
pub fn wait_all(
    children: &mut [StudyChild],
    deadline: Duration,
    interrupted: Interrupted,
) -> Result<(), ChildError> {
    let start = Instant::now();
    let result = loop {
        if let Some(signal) = interrupted() {
            break Err(ChildError::Interrupted(signal));
        }
        let mut running = 0;
        let mut failed = None;
        for child in children.iter_mut().filter(|c| !c.ended) {
            match child.poll_end() {
                None => running += 1,
                Some(status) if status.success() => {}
                Some(_) => {
                    failed = child.failure();
                    break;
                }
            }
        }
        match failed {
            Some(error) => break Err(error),
            None if running == 0 => break Ok(()),
            None if start.elapsed() > deadline => {
                let late = children.iter_mut().find(|c| !c.ended);
                let (program, last_line) =
                    late.map_or_else(Default::default, |c| (c.program.clone(), c.last_error_line()));
                break Err(ChildError::Deadline { program, deadline, last_line });
            }
            None => std::thread::sleep(POLL_INTERVAL),
        }
    };
    for child in children.iter_mut() {
        if child.ended { child.kill() } else { child.terminate() }
    }
    result
}

fn status_in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Interrupted = &|| None;

    fn shell(script: &str) -> StudyChild {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        StudyChild::start(command).expect("sh starts")
    }

    fn gone(group: ProcessGroup) -> bool {
        // the process that adopts orphans needs a moment to reap them
        (0..300).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !group.is_alive()
        })
    }

    #[test]
    fn a_failed_program_is_named_with_its_code_and_its_last_words() {
        let error =
            wait_all(&mut [shell("echo first >&2; echo no such luck >&2; exit 7")], KILL_AFTER, NEVER);
        let last_line = error.expect_err("it failed").to_string();
        assert_eq!(last_line, "sh ended with code 7: no such luck");
    }

    #[test]
    fn a_program_that_hangs_is_killed_at_its_deadline_with_its_children() {
        let child = shell("sleep 1000 & sleep 1000");
        let group = child.group().clone();
        let error = wait_all(&mut [child], Duration::from_millis(50), NEVER).expect_err("too late");
        assert!(matches!(error, ChildError::Deadline { .. }), "{error}");
        assert!(gone(group), "something was left running");
    }

    #[test]
    fn when_one_fails_the_others_are_ended() {
        let (long, bad) = (shell("sleep 1000"), shell("exit 3"));
        let group = long.group().clone();
        let error = wait_all(&mut [long, bad], Duration::from_secs(60), NEVER).expect_err("one failed");
        assert!(error.to_string().contains("code 3"), "{error}");
        assert!(gone(group));
    }

    #[test]
    fn an_interruption_ends_what_runs() {
        let child = shell("sleep 1000");
        let group = child.group().clone();
        let error = wait_all(&mut [child], Duration::from_secs(60), &|| Some("SIGINT (Ctrl-C)"))
            .expect_err("stopped");
        assert_eq!(error.to_string(), "stopped by SIGINT (Ctrl-C)");
        assert!(gone(group));
    }

    #[test]
    fn what_a_program_left_in_its_group_is_swept() {
        let child = shell("sleep 1000 & exit 0");
        let group = child.group().clone();
        wait_all(&mut [child], Duration::from_secs(60), NEVER).expect("it ended well");
        assert!(gone(group));
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let error = StudyChild::start(Command::new("/nowhere/program")).expect_err("not there").to_string();
        assert!(error.starts_with("cannot start program: "), "{error}");
    }
}
