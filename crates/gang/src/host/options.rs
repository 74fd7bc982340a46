//! The options of a run, and the checks that refuse wrong ones before anything is started.

use super::resting::BlockedGangs;
use crate::error::{Error, Result};
use crate::gang::GangWeight;
use crate::mechanism::MechanismKind;
use crate::policy::Backfill;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use unisono_linux::counted::counted;

#[derive(Debug)]
pub struct Options {
    /// Each gang's program and arguments.
    pub commands: Vec<Vec<OsString>>,
    /// Length of a turn of weight 1.
    pub slice: Duration,
    pub weights: Vec<GangWeight>,
    /// The mechanism, or the recommended one.
    pub mechanism: Option<MechanismKind>,
    /// Keep everything else off the gangs' cores.
    pub isolate: bool,
    /// Do without groups.
    pub unprivileged: bool,
    /// A core for every thread.
    pub spread: bool,
    /// Idle cores for waiting gangs.
    pub backfill: Backfill,
    /// Only with groups that are frozen: real-time gangs would keep others off their cores while they rest.
    pub blocked: BlockedGangs,
    /// The gangs' part of contended processor time; the rest is for others.
    pub share: f64,
    /// The most threads a gang may have.
    pub max_threads: u32,
    /// A file, emptied if it is there, for what ran when; see `trace.rs`.
    pub trace: Option<PathBuf>,
    /// The program that becomes the guardian; the journal's path and our process number are added.
    pub guardian: Option<Command>,
}

/// Refuses what cannot be run. The error says what to write instead.
pub(crate) fn check(options: &Options) -> Result<()> {
    let input = |text: String| Err(Error::Input(text));
    if options.commands.is_empty() || options.commands.iter().any(Vec::is_empty) {
        return input("a gang has no command; write: unisono gang run -- CMD ARGS ::: CMD ARGS".into());
    }
    for command in &options.commands {
        if resolve(&command[0]).is_none() {
            let name = Path::new(&command[0]).display();
            return input(format!("there is no program {name} that can be run; nothing was started"));
        }
    }
    if options.slice < Duration::from_millis(1) || options.slice > Duration::from_secs(10) {
        return input(format!("a slice of {:?} is out of range; choose 1ms to 10s", options.slice));
    }
    if options.weights.len() != options.commands.len() {
        let weights = counted(options.weights.len(), "weight");
        let gangs = counted(options.commands.len(), "gang");
        return input(format!("{weights} for {gangs}; write one weight for each gang"));
    }
    if !(0.05..=0.99).contains(&options.share) {
        return input(format!("a share of {} is out of range; choose 0.05 to 0.99", options.share));
    }
    Ok(())
}

/// Finds the file that a command names, as the shell would.
fn resolve(program: &OsString) -> Option<PathBuf> {
    let runs =
        |path: &Path| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let direct = Path::new(program);
    if direct.components().count() > 1 {
        return runs(direct).then(|| direct.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(direct)).find(|file| runs(file))
}
