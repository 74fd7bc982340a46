//! `gang run`: starts programs as gangs, schedules them, waits for them, puts everything back.
//!
//! ```text
//!   main thread                          scheduler thread (real-time)          guardian (a process)
//!   undo what killed schedulers left
//!   journal, guardian, groups
//!   start programs, held in their groups
//!   signals, ends, placement   --notices-->  policy -> mechanism -> samples     waits for our end
//!   ends: restore from the journal                                             restores if we were killed
//! ```
//!
//! A gang ends when its program has ended and its group has no processes; when all programs have ended,
//! processes that they left behind are released, and the summary reports them.

use super::guardian;
use super::leftover;
use super::main_loop::MainLoop;
pub use super::options::Options;
use super::options::check;
use super::program::{end_all, start_all};
use super::reserve::Reserve;
pub use super::resting::BlockedGangs;
use super::resting::Resting;
use super::scheduler::{GangScheduler, Notice, SchedulerOutcome, TurnsBy};
pub use super::summary::{GangSummary, Quantiles, RunSummary};
use super::summary::{RunFacts, refused, summarize};
use super::trace::{self, TraceWriter};
use super::turn_status::TurnStatus;
use super::watch::Watcher;
use crate::cgroups::{CgroupPlan, GangCgroups, Weighing};
use crate::error::{Result, system};
use crate::gang::GangId;
use crate::journal::{self, GangJournal};
use crate::mechanism::{
    Freeze, Mechanism, MechanismKind, MechanismRequest, RealTime, SchedExt, Stop, recommended, sched_ext,
};
use crate::policy::Rotation;
use crate::turn_quota::TurnQuota;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::channel;
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::clock;
use unisono_linux::process::{Signal, SignalFd};
use unisono_linux::quota;
use unisono_linux::timer::Sleeper;
use unisono_text::counted;

/// Runs the programs as gangs until all have ended. After [`crate::Error::Input`], nothing was started. After
/// [`crate::Error::Host`], this host cannot run them, and no change is left.
pub fn run(mut options: Options) -> Result<RunSummary> {
    check(&options)?;
    let trace = options.trace.as_deref().map(trace::create).transpose()?;
    let request = MechanismRequest { isolate: options.isolate, unprivileged: options.unprivileged };
    let (kind, reason) = match options.mechanism {
        Some(kind) => (kind, "asked for".to_owned()),
        None => {
            let (kind, why) = recommended(request);
            (kind, why.to_owned())
        }
    };
    let all_cpus = affinity::allowed(Tid::SELF).map_err(system("read which processors may be used"))?;
    let signals = SignalFd::new(&Signal::FROM_OUTSIDE).map_err(system("receive signals"))?;
    let leftover = leftover::restore();
    let mut journal = GangJournal::create()?;
    let path = journal.path().to_owned();
    let guardian = options.guardian.take().map(|command| guardian::post(command, &path)).transpose();
    let result = guardian.map(|guardian| {
        (run_guarded(&options, kind, reason, &all_cpus, &signals, trace, &mut journal), guardian)
    });
    // whatever happened: put everything back, then let the guardian see that nothing is left to do
    let restored = journal::restore(&path);
    let (summary, guardian) = match result {
        Ok((summary, guardian)) => (summary, guardian),
        Err(error) => (Err(error), None),
    };
    if let Some(mut guardian) = guardian {
        // the guardian waits for our end; without a journal there is nothing that it could undo
        let _ = guardian.kill();
        let _ = guardian.wait();
    }
    let mut summary = summary?;
    match restored {
        Ok(restored) => summary.not_restored = restored.unrestored,
        Err(error) => summary.not_restored = vec![error.to_string()],
    }
    if leftover.restored > 0 {
        let who = counted(leftover.restored, "killed scheduler");
        summary.warnings.push(format!("put back before the start what {who} had left"));
    }
    summary.warnings.extend(
        leftover
            .unrestored
            .into_iter()
            .map(|left| format!("left by a killed scheduler and not restored: {left}")),
    );
    Ok(summary)
}

/// Returns the treatment of blocking gangs, as far as this host supports it.
fn blocked(request: BlockedGangs, kind: MechanismKind, cgroups: Option<&GangCgroups>) -> BlockedGangs {
    // without counted times, no thread would notice that a resting gang wants its cores again
    let counted =
        cgroups.is_some_and(|cgroups| cgroups.gangs.iter().all(|groups| groups.control.used_ns().is_ok()));
    if kind == MechanismKind::Freeze && counted { request } else { BlockedGangs::TakeTurns }
}

/// Returns the quota that the turns have to enforce because the kernel does not: the kernel stops only
/// threads of the fair class.
fn quota_of_turns(kind: MechanismKind) -> Result<Option<TurnQuota>> {
    if kind != MechanismKind::SchedExt {
        return Ok(None);
    }
    let limits = quota::limits().map_err(system("read where this process may run"))?;
    Ok(limits.quota.as_ref().map(TurnQuota::from))
}

/// Returns the gangs' names in a trace.
fn names(options: &Options) -> BTreeMap<GangId, String> {
    let names = options.commands.iter().map(|command| command[0].to_string_lossy().into_owned());
    (0..).map(GangId).zip(names).collect()
}

/// Returns the number of threads that each gang may have.
fn max_threads(options: &Options, kind: MechanismKind, cores: usize) -> u32 {
    if kind == MechanismKind::SchedExt {
        options.max_threads.min(sched_ext::max_threads(options.commands.len(), cores))
    } else {
        options.max_threads
    }
}

/// Makes the control groups of the gangs; stop signals need none.
fn make_cgroups(
    options: &Options,
    kind: MechanismKind,
    cores: usize,
    journal: &mut GangJournal,
) -> Result<Option<Arc<GangCgroups>>> {
    // weights count only inside the fair class
    let weighing = match kind {
        MechanismKind::Stop => return Ok(None),
        MechanismKind::Freeze => Weighing::Share(options.share),
        MechanismKind::RealTime | MechanismKind::SchedExt => Weighing::None,
    };
    let max_threads = max_threads(options, kind, cores);
    let plan = CgroupPlan { gangs: options.commands.len(), weighing, max_threads, cores };
    Ok(Some(Arc::new(GangCgroups::build(&plan, journal)?)))
}

/// Makes the mechanism that switches control groups. `None`: the mechanism is stop signals, which need the
/// started programs.
fn make_mechanism(
    kind: MechanismKind,
    cgroups: Option<&GangCgroups>,
    journal: &mut GangJournal,
) -> Result<Option<Box<dyn Mechanism>>> {
    let Some(cgroups) = cgroups else { return Ok(None) };
    Ok(match kind {
        MechanismKind::Freeze => Some(Box::new(Freeze::new(cgroups)?)),
        MechanismKind::RealTime => Some(Box::new(RealTime::new(cgroups, journal)?)),
        MechanismKind::SchedExt => Some(Box::new(SchedExt::new(cgroups, journal)?)),
        MechanismKind::Stop => None,
    })
}

/// Returns the summary's warnings, except those about processes that were left behind.
fn warnings(
    options: &Options,
    kind: MechanismKind,
    cgroups: Option<&GangCgroups>,
    cores: usize,
    outcome: &SchedulerOutcome,
) -> Vec<String> {
    let mut warnings = cgroups.map(|cgroups| cgroups.missing.clone()).unwrap_or_default();
    warnings
        .extend(outcome.unheld.iter().map(|why| format!("cores are switched one after the other: {why}")));
    warnings.extend(outcome.failure.iter().map(|why| format!("scheduling stopped early: {why}")));
    if kind == MechanismKind::Stop {
        warnings.push("stop signals act late: gangs overlap by up to milliseconds; without --unprivileged and as root they do not".into());
    }
    warnings.extend(refused(cgroups, max_threads(options, kind, cores)));
    warnings
}

fn run_guarded(
    options: &Options,
    kind: MechanismKind,
    reason: String,
    all_cpus: &CpuSet,
    signals: &SignalFd,
    trace: Option<File>,
    journal: &mut GangJournal,
) -> Result<RunSummary> {
    let cores = all_cpus.len();
    let quota = quota_of_turns(kind)?;
    let cgroups = make_cgroups(options, kind, cores, journal)?;
    let alarm = Sleeper::new().map_err(system("make an alarm"))?;
    let mut mechanism = make_mechanism(kind, cgroups.as_deref(), journal)?;
    let started = clock::now();
    let mut programs = Vec::new();
    let hold = mechanism.as_deref_mut().map(|mechanism| mechanism as &mut dyn Mechanism);
    if let Err(error) = start_all(options, cgroups.as_deref(), all_cpus, journal, hold, &mut programs) {
        drop(mechanism);
        end_all(&mut programs);
        return Err(error);
    }
    let mechanism = mechanism.unwrap_or_else(|| {
        Box::new(Stop::new(programs.iter().filter_map(|program| program.group.clone()).collect()))
    });
    let (notices, inbox) = channel();
    let turn_status = Arc::new(TurnStatus::default());
    let gangs: Vec<GangId> = (0..programs.len()).map(GangId).collect();
    let slice = options.slice;
    let mut rotation = Rotation::new(cores, slice, options.backfill);
    for gang in &gangs {
        rotation.join(*gang, options.weights[gang.0]);
    }
    let cpus: Vec<usize> = all_cpus.iter().collect();
    let (watcher, unwatched) = match cgroups.as_ref().map(|_| Watcher::new(&cpus)) {
        Some(Ok(watcher)) => (Some(watcher), None),
        Some(Err(why)) => (None, Some(why)),
        None => (None, Some("without groups it is not known which threads belong to a gang".into())),
    };
    let (trace, tracer) = match trace {
        Some(file) => TraceWriter::start(file, names(options), cpus.clone())
            .map(|(writer, tracer)| (Some(writer), Some(tracer)))
            .inspect_err(|_| end_all(&mut programs))?,
        None => (None, None),
    };
    let controls =
        cgroups.iter().flat_map(|cgroups| cgroups.gangs.iter().map(|groups| groups.control.clone()));
    let controls = gangs.iter().copied().zip(controls).collect();
    let scheduler = GangScheduler {
        rotation,
        turns_by: TurnsBy::Waiting,
        mechanism,
        controls,
        cpus,
        watcher,
        notices: inbox,
        alarm: alarm.clone(),
        turn_status: Arc::clone(&turn_status),
        gangs,
        tracer,
        resting: Resting::new(blocked(options.blocked, kind, cgroups.as_deref())),
        quota,
        own: Vec::new(),
    };
    let thread =
        std::thread::Builder::new().name("gang-scheduler".into()).spawn(move || scheduler.run(slice));
    let thread =
        thread.map_err(system("start the scheduler's thread")).inspect_err(|_| end_all(&mut programs))?;
    let main_loop = MainLoop {
        cgroups: cgroups.as_deref(),
        notices: &notices,
        alarm: &alarm,
        turn_status: &turn_status,
        spread: options.spread,
        kind,
    };
    let mut reserve = cgroups
        .as_ref()
        .and_then(|cgroups| Reserve::new(Arc::clone(cgroups), all_cpus.clone(), options.share));
    let stragglers = main_loop.run(&mut programs, signals, journal, reserve.as_mut());
    let others = reserve.as_mut().and_then(Reserve::others);
    // the receiver lives as long as the thread, which ends at this notice
    let _ = notices.send(Notice::Finish);
    alarm.call();
    let mut outcome = thread.join().unwrap_or_else(|_| SchedulerOutcome {
        failure: Some("the scheduler's thread panicked".into()),
        ..SchedulerOutcome::default()
    });
    outcome.samples.refused = unwatched;
    let mut warnings = warnings(options, kind, cgroups.as_deref(), cores, &outcome);
    warnings.extend(trace.map(TraceWriter::finish).unwrap_or_default());
    warnings.extend(stragglers?);
    let run = RunFacts { kind, reason, cores, started, others, weighed: reserve.is_some() };
    Ok(summarize(options, run, &programs, outcome, warnings))
}
