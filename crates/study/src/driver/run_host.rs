//! Executes a run in its own thread, which may change its network namespace, with its own files.

use super::{Context, NoResult, RunResult};
use crate::child::{self, StudyChild};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use unisono_linux::affinity::{self, CpuSet};
use unisono_workload::Pin;
use unisono_workload::competitor::Competitors;

/// A party of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeasuredParty {
    /// A server or a publisher.
    Sender,
    /// A client or a subscriber.
    Receiver,
    /// A broker between the two, if any.
    Broker,
}

impl MeasuredParty {
    /// Returns the processor that the party has alone among the parties, if there is one. With two processors
    /// a broker has none of its own, and the kernel chooses each time.
    fn cpu(self, cpus: &[usize]) -> Option<usize> {
        match self {
            Self::Sender => cpus.first(),
            Self::Receiver => cpus.get(1),
            Self::Broker => cpus.get(2),
        }
        .copied()
    }
}

pub struct RunHost<'a> {
    unisono: &'a Path,
    pub files: RunFiles,
    pub cpus: &'a [usize],
}

impl RunHost<'_> {
    pub fn unisono(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.unisono);
        command.args(arguments);
        command
    }

    /// Starts the program of a party, on a processor of its own if parties are `pinned`.
    pub fn start(
        &self,
        party: MeasuredParty,
        pinned: bool,
        command: Command,
    ) -> Result<StudyChild, NoResult> {
        let Some(cpu) = party.cpu(self.cpus).filter(|_| pinned) else {
            return Ok(StudyChild::start(command)?);
        };
        let failed =
            |error: std::io::Error| NoResult::Failed(format!("cannot run on processor {cpu} alone: {error}"));
        // a program begins with the processors of the thread that starts it
        affinity::restrict_own(&CpuSet::single(cpu)).map_err(failed)?;
        let started = StudyChild::start(command);
        affinity::restrict_own(&self.cpus.iter().copied().collect()).map_err(failed)?;
        Ok(started?)
    }

    /// Starts a busy loop on each processor; dropping the result ends them.
    pub fn competitors(&self) -> Result<Competitors, NoResult> {
        Competitors::start(self.unisono, self.cpus.len(), &Pin::Spread)
            .map_err(|error| NoResult::Failed(error.to_string()))
    }
}

/// Does the work in a new thread, and passes an interruption by the user on to that thread.
pub fn run_in_thread(
    context: Context,
    name: &str,
    work: impl FnOnce(&RunHost<'_>, child::Interrupted) -> Result<RunResult, NoResult> + Send,
) -> Result<RunResult, NoResult> {
    // the context's `interrupted` may only be callable from this thread
    let interrupted = &AtomicBool::new(false);
    let host = RunHost {
        unisono: context.unisono,
        files: RunFiles::new(context.directory, name),
        cpus: context.cpus,
    };
    std::thread::scope(|scope| {
        let run = scope.spawn(move || {
            let asked = || interrupted.load(Ordering::Relaxed).then_some("a signal");
            work(&host, &asked)
        });
        let mut signal = None;
        while !run.is_finished() {
            if signal.is_none() {
                signal = (context.interrupted)();
                interrupted.store(signal.is_some(), Ordering::Relaxed);
            }
            std::thread::sleep(child::POLL_INTERVAL);
        }
        match (run.join(), signal) {
            (Ok(Err(NoResult::Interrupted(_))), Some(signal)) => {
                Err(NoResult::Interrupted(format!("stopped by {signal}")))
            }
            (Ok(done), _) => done,
            (Err(_), _) => Err(NoResult::Failed("the run panicked".to_owned())),
        }
    })
}

/// The files of one run; removed when dropped.
pub struct RunFiles(PathBuf);

impl RunFiles {
    fn new(directory: &Path, name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(directory.join(format!("{name}-{number}")))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, NoResult> {
        let path = self.path(name);
        std::fs::create_dir_all(&self.0)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|error| NoResult::Failed(format!("cannot write {}: {error}", path.display())))?;
        Ok(path)
    }

    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, NoResult> {
        let path = self.path(name);
        let failed = |error: String| NoResult::Failed(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        // the enclosing directory is removed with the study in any case
        std::fs::remove_dir_all(&self.0).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_party_that_is_pinned_runs_on_its_processor_and_the_run_goes_on_with_all() {
        let cpus = crate::host::cpus();
        let directory = tempfile::tempdir().expect("a directory");
        let host = RunHost {
            unisono: Path::new("unisono"),
            files: RunFiles::new(directory.path(), "pinned"),
            cpus: &cpus,
        };
        host.files.write("here", "").expect("a directory");
        let on = |party, pinned| {
            let path = host.files.path("allowed");
            let mut command = Command::new("sh");
            let script = "exec grep Cpus_allowed_list /proc/self/status > \"$0\"";
            command.args(["-c", script]).arg(&path);
            let child = host.start(party, pinned, command).expect("started");
            child::wait_all(&mut [child], Duration::from_secs(60), &|| None).expect("it says");
            let text = std::fs::read_to_string(path).expect("said");
            text.split_whitespace().last().and_then(|list| list.parse::<CpuSet>().ok()).expect("a list")
        };
        let all: CpuSet = cpus.iter().copied().collect();
        for (at, party) in
            [MeasuredParty::Sender, MeasuredParty::Receiver, MeasuredParty::Broker].into_iter().enumerate()
        {
            let own = cpus.get(at).map_or_else(|| all.clone(), |cpu| CpuSet::single(*cpu));
            assert_eq!(on(party, true), own, "{party:?}");
            assert_eq!(on(party, false), all, "{party:?}");
        }
    }
}
