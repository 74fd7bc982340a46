//! Runs a program with a time limit.

use super::TrialFinding;
use crate::private_directory;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};
use tempfile::TempDir;

/// The time limit of a probe; compilers on a loaded machine are slow.
const DEADLINE: Duration = Duration::from_secs(10);

/// The reason why a trial gave no result, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    Failed(String),
    /// The trial could not begin, which says nothing about the capability.
    Impossible(String),
    /// The program was killed before it finished.
    Unfinished(String),
}

impl Trial {
    /// Converts a failed trial to a finding about its capability.
    pub(super) fn finding(self, remedy: &str) -> TrialFinding {
        match self {
            Trial::Failed(reason) => TrialFinding::missing(reason, remedy),
            Trial::Impossible(reason) => {
                TrialFinding::undecided(reason, "mend that, and run unisono doctor again")
            }
            Trial::Unfinished(reason) => TrialFinding::unknown(reason),
        }
    }
}

/// Runs `program` and returns its output (both streams).
pub(super) fn run(program: impl AsRef<Path>, arguments: &[&str]) -> Result<String, Trial> {
    run_within(DEADLINE, program, arguments)
}

fn run_within(deadline: Duration, program: impl AsRef<Path>, arguments: &[&str]) -> Result<String, Trial> {
    let program = program.as_ref();
    let name = program.display();
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .env("OMP_NUM_THREADS", "2")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Trial::Impossible(format!("{name} cannot be started: {error}")))?;
    // both pipes are drained while the program runs, so that it cannot block on a full pipe
    let streams = [child.stdout.take().map(drain), child.stderr.take().map(drain)];
    let success = wait(&mut child, deadline)
        .ok_or_else(|| Trial::Unfinished(format!("{name} did not end within {deadline:?}")))?;
    let printed: String = streams.into_iter().flatten().filter_map(|stream| stream.join().ok()).collect();
    if success {
        return Ok(printed);
    }
    let first = printed.lines().find(|line| !line.trim().is_empty()).unwrap_or("without saying why").trim();
    Err(Trial::Failed(format!("{name} failed: {first}")))
}

fn drain(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // output before a read error is good enough for a probe
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child, deadline: Duration) -> Option<bool> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if start.elapsed() < deadline => thread::sleep(Duration::from_millis(2)),
            _ => {
                // an error means that the program ended in the meantime
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// A directory for trial files, removed when dropped.
pub(super) struct ScratchDirectory(TempDir);

impl ScratchDirectory {
    pub(super) fn new() -> std::io::Result<Self> {
        private_directory::temporary("unisono-doctor-").map(Self)
    }

    pub(super) fn file(&self, name: &str, text: &str) -> std::io::Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_carries_the_programs_first_line() {
        let failure = run("/bin/sh", &["-c", "echo; echo what went wrong >&2; exit 3"]);
        assert_eq!(failure, Err(Trial::Failed("/bin/sh failed: what went wrong".to_owned())));
        let impossible = run("/nonexistent/program", &[]);
        assert!(matches!(impossible, Err(Trial::Impossible(_))), "{impossible:?}");
    }

    #[test]
    fn a_trial_that_does_not_end_says_nothing_about_the_capability() {
        let trial = run_within(Duration::from_millis(20), "/bin/sh", &["-c", "sleep 60"]);
        let finding = trial.expect_err("it sleeps").finding("install it");
        assert_eq!(finding.status, super::super::ProbeStatus::Unknown);
        assert!(finding.reason.is_some_and(|reason| reason.contains("did not end within 20ms")));
        assert!(finding.remedy.is_some_and(|remedy| remedy.contains("busy machine")));
    }

    #[test]
    fn a_program_that_prints_more_than_a_pipe_holds_ends() {
        let printed = run("/bin/sh", &["-c", "yes 0123456789 | head -c 300000"]);
        assert_eq!(printed.map(|text| text.len()), Ok(300_000));
    }

    #[test]
    fn a_scratch_directory_is_gone_afterwards() {
        let scratch = ScratchDirectory::new().expect("directory");
        let file = scratch.file("x", "text").expect("file");
        assert!(file.exists());
        drop(scratch);
        assert!(!file.exists());
    }
}
