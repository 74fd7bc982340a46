//! The programs of the gangs: starting them inside their groups, and ending them if the run fails to start.

use super::options::Options;
use super::resting::BlockedGang;
use super::threads::GangThreads;
use crate::cgroups::GangCgroups;
use crate::error::{Error, Result, system};
use crate::gang::GangId;
use crate::journal::{GangJournal, UndoEntry};
use crate::mechanism::{Mechanism, Standing};
use std::ffi::OsString;
use std::ops::Range;
use std::process::{Child, Command, ExitStatus};
use unisono_linux::affinity::CpuSet;
use unisono_linux::cgroup::NumberFile;
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process::{self, Family, Signal};
use unisono_linux::process_group::ProcessGroup;

/// The program of a gang, and the state of its threads.
pub(crate) struct GangProgram {
    pub(crate) child: Child,
    pub(crate) process: PinnedProcess,
    /// The process group that the program leads; `None`: control groups contain all processes of the gang.
    pub(crate) group: Option<ProcessGroup>,
    pub(crate) status: Option<ExitStatus>,
    /// The program has ended and its group has no processes.
    pub(crate) is_gone: bool,
    pub(crate) cpu: Duration,
    pub(crate) ended: Option<Instant>,
    pub(crate) threads: GangThreads,
    pub(crate) scan: ThreadScan,
    /// The state of a rest, while the gang rests.
    pub(crate) blocked: Option<BlockedGang>,
    /// Number of rests so far.
    pub(crate) rests: u32,
}

/// The last scan of a gang's threads, one by one.
pub(crate) struct ThreadScan {
    /// Number of threads in the group; counting them is cheap.
    pub(crate) count: u64,
    /// The cores of the gang at the last scan.
    pub(crate) home: Option<Range<usize>>,
    pub(crate) at: Instant,
    /// Time from the last scan to the next.
    pub(crate) pause: Duration,
    /// The open file with the number of threads, where the host has one.
    pub(crate) number_file: Option<NumberFile>,
}

/// Starts every gang's program inside its groups and holds it until its first turn, so that no gang runs
/// while others are still being started. The started programs are in `programs`, also after an error.
pub(crate) fn start_all(
    options: &Options,
    cgroups: Option<&GangCgroups>,
    all_cpus: &CpuSet,
    journal: &mut GangJournal,
    mut mechanism: Option<&mut dyn Mechanism>,
    programs: &mut Vec<GangProgram>,
) -> Result<()> {
    for (gang, command) in options.commands.iter().enumerate() {
        let program = start_program(GangId(gang), command, cgroups, all_cpus, journal)?;
        let group = program.group.clone();
        programs.push(program);
        match &mut mechanism {
            Some(mechanism) => mechanism.apply(&[(GangId(gang), Standing::Waiting)])?,
            // fails if the process changed to another user
            None => drop(group.map(|group| group.send_signal(Signal::Stop))),
        }
    }
    Ok(())
}

fn start_program(
    gang: GangId,
    command: &[OsString],
    cgroups: Option<&GangCgroups>,
    all_cpus: &CpuSet,
    journal: &mut GangJournal,
) -> Result<GangProgram> {
    let procs_files = cgroups.map(|cgroups| cgroups.get(gang).procs_files()).transpose()?.unwrap_or_default();
    // without control groups, only a process group can address all processes of a gang
    let family = if cgroups.is_some() { Family::Same } else { Family::OwnGroup };
    let mut builder = Command::new(&command[0]);
    builder.args(&command[1..]);
    let child = process::start(&mut builder, procs_files, family)
        .map_err(|source| Error::Start { program: command[0].to_string_lossy().into_owned(), source })?;
    let process = PinnedProcess::of_child(&child).map_err(system("watch a program"))?;
    let mut group = None;
    if family == Family::OwnGroup {
        let (leader, started) = (process.number().cast_signed(), process.started());
        journal.write(&UndoEntry::Stopped { leader, started })?;
        group = Some(ProcessGroup::of_child(&child).map_err(system("watch a program"))?);
    }
    let threads = GangThreads::new(all_cpus.clone());
    let bound = cgroups.and_then(|cgroups| cgroups.get(gang).pids.as_ref());
    let number_file = bound.and_then(|group| group.number_file("pids.current").ok());
    let scan = ThreadScan { count: 0, home: None, at: clock::now(), pause: Duration::ZERO, number_file };
    let (status, ended) = (None, None);
    let (is_gone, cpu, blocked, rests) = (false, Duration::ZERO, None, 0);
    Ok(GangProgram { child, process, group, status, is_gone, cpu, ended, threads, scan, blocked, rests })
}

/// Ends the programs of a run that failed to start. No freezer may hold them any more, because a process in a
/// frozen version 1 group does not end.
pub(crate) fn end_all(programs: &mut [GangProgram]) {
    for gang in programs {
        let _ = gang.child.kill(); // fails if it has ended by itself
        let _ = gang.child.wait();
    }
}
