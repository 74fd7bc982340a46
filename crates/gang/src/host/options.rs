//! The options of a run, and the checks that refuse invalid options before any program is started.

use super::resting::BlockedGangs;
use crate::error::{Error, GangHint, Result};
use crate::gang::GangWeight;
use crate::mechanism::MechanismKind;
use crate::policy::Backfill;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_linux::clock::Duration;
use unisono_text::counted;

#[derive(Debug)]
pub struct Options {
    /// The program and arguments of each gang.
    pub commands: Vec<Vec<OsString>>,
    /// Length of a turn of weight 1.
    pub slice: Duration,
    pub weights: Vec<GangWeight>,
    /// The mechanism; `None`: the recommended one.
    pub mechanism: Option<MechanismKind>,
    /// Whether to keep all other programs off the gangs' cores.
    pub isolate: bool,
    /// Whether to run without control groups.
    pub unprivileged: bool,
    /// Whether to give every thread a core of its own.
    pub spread: bool,
    /// Whether waiting gangs may use idle cores.
    pub backfill: Backfill,
    /// Whether a gang that blocks is to rest. Gangs can rest only with the freezer: a resting real-time gang
    /// would keep the other gangs off their cores.
    pub blocked: BlockedGangs,
    /// The gangs' part of contended processor time; the rest is for other programs.
    pub share: f64,
    /// Maximum number of threads per gang.
    pub max_threads: u32,
    /// The trace file of the run; an existing file is emptied. See `trace.rs`.
    pub trace: Option<PathBuf>,
    /// The program that becomes the guardian; the journal's path and this process's number are appended as
    /// arguments.
    pub guardian: Option<Command>,
}

/// Refuses options with which no run is possible. The error says what to write instead.
pub(crate) fn check(options: &Options) -> Result<()> {
    let input = |text: String| Err(Error::Input(text));
    if options.commands.is_empty() || options.commands.iter().any(Vec::is_empty) {
        return Err(Error::Input("a gang has no command".into()).hinting(GangHint::NameCommands));
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

/// Finds the file of a command, as the shell would.
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
