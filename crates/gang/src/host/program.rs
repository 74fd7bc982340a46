//! The programs of the gangs: starting them inside their groups, and ending those of a run that cannot be.

use super::options::Options;
use super::resting::BlockedGang;
use super::threads::GangThreads;
use crate::arena::Arena;
use crate::error::{Error, Result, system};
use crate::gang::GangId;
use crate::journal::{GangJournal, UndoEntry};
use crate::mechanism::{Mechanism, Standing};
use std::ffi::OsString;
use std::ops::Range;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use unisono_linux::affinity::CpuSet;
use unisono_linux::cgroup::Gauge;
use unisono_linux::clock::Nanos;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process::{self, Family, Signal};
use unisono_linux::process_group::ProcessGroup;

/// The program of a gang, and what is known of its threads.
pub(crate) struct GangProgram {
    pub(crate) child: Child,
    pub(crate) process: PinnedProcess,
    /// The process group that it leads; `None`: control groups hold the gang together.
    pub(crate) group: Option<ProcessGroup>,
    pub(crate) status: Option<ExitStatus>,
    /// It has ended and nobody is left in its group.
    pub(crate) left: bool,
    pub(crate) cpu: Nanos,
    pub(crate) ended: Option<Instant>,
    pub(crate) threads: GangThreads,
    pub(crate) looked: Looked,
    /// While it rests.
    pub(crate) blocked: Option<BlockedGang>,
    /// How often it has rested.
    pub(crate) rests: u32,
}

/// When the threads of a gang were last looked at, one by one.
pub(crate) struct Looked {
    /// How many there were; counting them is cheap.
    pub(crate) count: u64,
    /// Where the gang's place was.
    pub(crate) home: Option<Range<usize>>,
    pub(crate) at: Instant,
    /// How long after it to look again.
    pub(crate) pause: Duration,
    /// Counts them, where the host counts them for us.
    pub(crate) gauge: Option<Gauge>,
}

/// Starts every gang's program inside its groups and holds it until its first turn, so that no gang runs
/// while others are still being started. Those that were started are in `programs`, also after an error.
pub(crate) fn start_all(
    options: &Options,
    arena: Option<&Arena>,
    whole: &CpuSet,
    journal: &mut GangJournal,
    mut mechanism: Option<&mut dyn Mechanism>,
    programs: &mut Vec<GangProgram>,
) -> Result<()> {
    for (gang, command) in options.commands.iter().enumerate() {
        let program = start_one(GangId(gang), command, arena, whole, journal)?;
        let group = program.group.clone();
        programs.push(program);
        match &mut mechanism {
            Some(mechanism) => mechanism.apply(&[(GangId(gang), Standing::Waiting)])?,
            // fails if it changed to another user
            None => drop(group.map(|group| group.tell(Signal::Stop))),
        }
    }
    Ok(())
}

fn start_one(
    gang: GangId,
    command: &[OsString],
    arena: Option<&Arena>,
    whole: &CpuSet,
    journal: &mut GangJournal,
) -> Result<GangProgram> {
    let doors = arena.map(|arena| arena.of(gang).doors()).transpose()?.unwrap_or_default();
    // without groups a process group is all that holds a gang together
    let family = if arena.is_some() { Family::Same } else { Family::OwnGroup };
    let mut builder = Command::new(&command[0]);
    builder.args(&command[1..]);
    let child = process::start(&mut builder, doors, family)
        .map_err(|source| Error::Start { program: command[0].to_string_lossy().into_owned(), source })?;
    let process = PinnedProcess::of_child(&child).map_err(system("watch a program"))?;
    let mut group = None;
    if family == Family::OwnGroup {
        let (leader, started) = (process.number().cast_signed(), process.started());
        journal.write(&UndoEntry::Stopped { leader, started })?;
        group = Some(ProcessGroup::of_child(&child).map_err(system("watch a program"))?);
    }
    let threads = GangThreads::new(whole.clone());
    let bound = arena.and_then(|arena| arena.of(gang).pids.as_ref());
    let gauge = bound.and_then(|group| group.gauge("pids.current").ok());
    let looked = Looked { count: 0, home: None, at: Instant::now(), pause: Duration::ZERO, gauge };
    let (status, ended) = (None, None);
    let (left, cpu, blocked, rests) = (false, Nanos::ZERO, None, 0);
    Ok(GangProgram { child, process, group, status, left, cpu, ended, threads, looked, blocked, rests })
}

/// Ends programs that were started for a run that cannot be; nobody may hold them any more, because a process
/// that a version 1 freezer holds does not end.
pub(crate) fn end_all(programs: &mut [GangProgram]) {
    for gang in programs {
        let _ = gang.child.kill(); // it has ended by itself
        let _ = gang.child.wait();
    }
}
