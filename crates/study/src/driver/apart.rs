//! Makes a run in a thread of its own, which may change its network namespace, with files of its own.

use super::{Context, NoResult, RunResult};
use crate::child;
use crate::workload::Pin;
use crate::workload::competitor::Competitors;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(super) struct RunHost<'a> {
    unisono: &'a Path,
    pub(super) files: RunFiles,
    pub(super) cpus: &'a [usize],
}

impl RunHost<'_> {
    pub(super) fn unisono(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.unisono);
        command.args(arguments);
        command
    }

    /// A busy loop on each processor; dropping them ends them.
    pub(super) fn competitors(&self) -> Result<Competitors, NoResult> {
        Competitors::start(self.unisono, self.cpus.len(), &Pin::Spread)
            .map_err(|error| NoResult::Failed(error.to_string()))
    }
}

/// Does the work in a new thread. That the user wants to stop is passed on to it.
pub(super) fn run_apart(
    context: Context,
    name: &str,
    work: impl FnOnce(&RunHost<'_>, child::Interrupted) -> Result<RunResult, NoResult> + Send,
) -> Result<RunResult, NoResult> {
    // the context's question may belong to this thread alone
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
            std::thread::sleep(child::STEP);
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

/// The files of one run; removed when this is dropped.
pub(super) struct RunFiles(PathBuf);

impl RunFiles {
    fn new(directory: &Path, name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(directory.join(format!("{name}-{number}")))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, NoResult> {
        let path = self.path(name);
        std::fs::create_dir_all(&self.0)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|error| NoResult::Failed(format!("cannot write {}: {error}", path.display())))?;
        Ok(path)
    }

    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, NoResult> {
        let path = self.path(name);
        let failed = |error: String| NoResult::Failed(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| failed(error.to_string()))
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        // the directory that it lies in goes with the study in any case
        std::fs::remove_dir_all(&self.0).ok();
    }
}
