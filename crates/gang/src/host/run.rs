//! `gang run`: starts programs as gangs, schedules them, waits for them, puts everything back.
//!
//! ```text
//!   main thread                          scheduler thread (deadline class)     guardian (a process)
//!   journal, guardian, groups
//!   start programs inside their groups
//!   signals, ends, placement   --notices-->  policy -> mechanism -> samples     waits for our end
//!   ends: restore from the journal                                             restores if we were killed
//! ```
//!
//! A gang ends when its program has ended and nobody is left in its group; when all programs have ended,
//! processes that they left behind are released and the summary says so.

use super::arena::{Arena, Plan, Weighing};
use super::guardian;
use super::journal::{self, Entry, Journal};
use super::placement::{Spread, Thread};
use super::reserve::Reserve;
use super::scheduler::{Notice, Outcome, Places, Scheduler};
use super::watch::Watcher;
use crate::error::{Error, Result, system};
use crate::gang::{GangId, Nanos, Weight};
use crate::mechanism::{Freeze, Kind, Mechanism, RealTime, Stop, Wish, recommended};
use crate::policy::{Backfill, Rotation};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender as Channel, channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use unisono_linux::affinity::{self, CpuSet, Tid};
use unisono_linux::process::{self, Family, PidFd, Sender, Signal, SignalFd};
use unisono_linux::schedstat;
use unisono_linux::timer::Alarm;

/// What to run and how.
#[derive(Debug)]
pub struct Options {
    /// Each gang's program and arguments.
    pub commands: Vec<Vec<OsString>>,
    /// Length of a turn of weight 1.
    pub slice: Duration,
    /// One weight a gang.
    pub weights: Vec<Weight>,
    /// The mechanism, or the recommended one.
    pub mechanism: Option<Kind>,
    /// Keep everything else off the gangs' cores.
    pub isolate: bool,
    /// Do without groups.
    pub unprivileged: bool,
    /// A core for every thread.
    pub spread: bool,
    /// Idle cores for waiting gangs.
    pub backfill: Backfill,
    /// The gangs' part of contended processor time; the rest is for others.
    pub share: f64,
    /// The most threads a gang may have.
    pub max_threads: u32,
    /// The program that becomes the guardian; the journal's path and our process number are added.
    pub guardian: Option<Command>,
}

/// Median and 99th percentile of a number of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half of the samples are below.
    pub median: f64,
    /// 99 in 100 are below.
    pub p99: f64,
    /// How many there were.
    pub n: usize,
}

impl Quantiles {
    fn of(samples: &[f64]) -> Option<Quantiles> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at =
            |part: f64| sorted.get(((sorted.len() as f64 * part) as usize).min(sorted.len() - 1)).copied();
        if sorted.is_empty() {
            return None;
        }
        Some(Quantiles { median: at(0.5)?, p99: at(0.99)?, n: sorted.len() })
    }
}

/// What became of one gang.
#[derive(Clone, Debug, Serialize)]
pub struct GangSummary {
    /// Its command line.
    pub command: String,
    /// Its program's exit code; 128 and the signal's number when a signal ended it.
    pub exit_code: i32,
    /// Processor time of all its processes.
    pub cpu_s: f64,
    /// How many turns it had.
    pub slices: u64,
    /// Its weight.
    pub weight: u32,
    /// From start to end.
    pub elapsed_s: f64,
}

/// What a run was like.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The gangs, in the order of the command line.
    pub gangs: Vec<GangSummary>,
    /// How often the running gang changed.
    pub switches: u64,
    /// From the planned moment until all cores ran the new gang, microseconds; from watched turns.
    pub switch_us: Option<Quantiles>,
    /// From the planned moment until the mechanism had done its part; every switch.
    pub enforced_us: Option<Quantiles>,
    /// Between the first and the last core, microseconds, median.
    pub skew_us: Option<f64>,
    /// Part of the watched processor time that went to waiting gangs, switches included.
    pub leak: Option<f64>,
    /// Why there is no switch time.
    pub not_measured: Option<String>,
    /// The mechanism used.
    pub mechanism: Kind,
    /// Why that one.
    pub reason: String,
    /// Class of the scheduler's own thread.
    pub scheduler_class: &'static str,
    /// Length of a turn of weight 1, milliseconds.
    pub slice_ms: f64,
    /// Cores scheduled.
    pub cores: usize,
    /// From first start to last end.
    pub elapsed_s: f64,
    /// What was not as asked.
    pub warnings: Vec<String>,
}

impl Summary {
    /// The first gang that failed: its place and its exit code.
    #[must_use]
    pub fn first_failure(&self) -> Option<(GangId, i32)> {
        let failed = self.gangs.iter().position(|gang| gang.exit_code != 0)?;
        Some((GangId(failed), self.gangs[failed].exit_code))
    }
}

struct Running {
    child: Child,
    process: PidFd,
    status: Option<ExitStatus>,
    left: bool,
    cpu_ns: u64,
    ended: Option<Instant>,
    spread: Spread,
    threads: usize,
    /// The number of threads that the scheduler knows.
    told: usize,
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

fn check(options: &Options) -> Result<()> {
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
        let (weights, gangs) = (options.weights.len(), options.commands.len());
        return input(format!("{weights} weights for {gangs} gangs; write one weight for each gang"));
    }
    if !(0.05..=0.99).contains(&options.share) {
        return input(format!("a share of {} is out of range; choose 0.05 to 0.99", options.share));
    }
    Ok(())
}

/// Runs the programs as gangs until all have ended.
///
/// # Errors
/// [`Error::Input`]: nothing was started. [`Error::Host`]: this host cannot do it, nothing is left changed.
pub fn run(mut options: Options) -> Result<Summary> {
    check(&options)?;
    let wish = Wish { isolate: options.isolate, unprivileged: options.unprivileged };
    let (kind, reason) = match options.mechanism {
        Some(kind) => (kind, "asked for".to_owned()),
        None => {
            let (kind, why) = recommended(wish);
            (kind, why.to_owned())
        }
    };
    let whole = affinity::allowed(Tid::SELF).map_err(system("read which processors may be used"))?;
    let signals =
        [Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Quit, Signal::User1, Signal::User2];
    let signals = SignalFd::new(&signals).map_err(system("receive signals"))?;
    let mut journal = Journal::create()?;
    let path = journal.path().to_owned();
    let guardian = options.guardian.take().map(|command| guardian::post(command, &path)).transpose();
    let result = guardian
        .map(|guardian| (run_guarded(&options, kind, reason, &whole, &signals, &mut journal), guardian));
    // whatever happened: put everything back, then let the guardian see that nothing is left to do
    let restored = journal::restore(&path);
    let (summary, guardian) = match result {
        Ok((summary, guardian)) => (summary, guardian),
        Err(error) => (Err(error), None),
    };
    if let Some(mut guardian) = guardian {
        // it waits for our end; without a journal there is nothing it could do
        let _ = guardian.kill();
        let _ = guardian.wait();
    }
    let mut summary = summary?;
    match restored {
        Ok(restored) => summary.warnings.extend(
            restored.left.into_iter().map(|left| format!("not restored: {left}; try: unisono gang restore")),
        ),
        Err(error) => summary.warnings.push(format!("not restored: {error}; try: unisono gang restore")),
    }
    Ok(summary)
}

fn run_guarded(
    options: &Options,
    kind: Kind,
    reason: String,
    whole: &CpuSet,
    signals: &SignalFd,
    journal: &mut Journal,
) -> Result<Summary> {
    let cores = whole.len();
    let arena = match kind {
        Kind::Stop => None,
        Kind::Freeze | Kind::RealTime => {
            let weighing =
                if kind == Kind::RealTime { Weighing::None } else { Weighing::Share(options.share) };
            let plan =
                Plan { gangs: options.commands.len(), weighing, max_threads: options.max_threads, cores };
            Some(Arc::new(Arena::build(&plan, journal)?))
        }
    };
    let mut running = start_all(options, arena.as_deref(), whole, journal)?;
    let started = Instant::now();
    let mechanism: Result<Box<dyn Mechanism>> = match (kind, &arena) {
        (Kind::Freeze, Some(arena)) => Freeze::new(arena).map(|m| Box::new(m) as _),
        (Kind::RealTime, Some(arena)) => RealTime::new(arena, journal).map(|m| Box::new(m) as _),
        _ => {
            let leaders: Vec<Tid> = running.iter().map(|gang| Tid(gang.child.id() as i32)).collect();
            Ok(Box::new(Stop::new(&leaders)) as _)
        }
    };
    let mechanism = mechanism.inspect_err(|_| end_all(&mut running))?;
    let (notices, inbox) = channel();
    let alarm = Alarm::new().map_err(system("make an alarm"))?;
    let places = Places::default();
    let gangs: Vec<GangId> = (0..running.len()).map(GangId).collect();
    let slice = Nanos::from(options.slice);
    let mut rotation = Rotation::new(cores, slice, options.backfill);
    for gang in &gangs {
        rotation.join(*gang, options.weights[gang.0]);
    }
    let cpus: Vec<usize> = whole.iter().collect();
    let (watcher, unwatched) = match arena.as_ref().map(|_| Watcher::new(&cpus)) {
        Some(Ok(watcher)) => (Some(watcher), None),
        Some(Err(why)) => (None, Some(why)),
        None => (None, Some("without groups it is not known which threads belong to a gang".into())),
    };
    let scheduler = Scheduler {
        rotation,
        mechanism,
        arena: arena.clone(),
        cpus,
        watcher,
        notices: inbox,
        alarm: alarm.clone(),
        places: Arc::clone(&places),
        gangs,
    };
    let thread =
        std::thread::Builder::new().name("gang-scheduler".into()).spawn(move || scheduler.run(slice));
    let thread =
        thread.map_err(system("start the scheduler's thread")).inspect_err(|_| end_all(&mut running))?;
    let floor = Floor {
        arena: arena.as_deref(),
        whole,
        notices: &notices,
        alarm: &alarm,
        places: &places,
        spread: options.spread,
        kind,
    };
    let mut reserve =
        arena.as_ref().and_then(|arena| Reserve::new(Arc::clone(arena), whole.clone(), options.share));
    let stragglers = floor.attend(&mut running, signals, journal, reserve.as_mut());
    // the receiver lives as long as the thread, which ends at this notice
    let _ = notices.send(Notice::Finish);
    alarm.call();
    let mut outcome = thread.join().unwrap_or_else(|_| Outcome {
        failure: Some("the scheduler's thread panicked".into()),
        ..Outcome::default()
    });
    outcome.samples.refused = unwatched;
    let mut warnings = arena.as_deref().map(|arena| arena.missing.clone()).unwrap_or_default();
    warnings
        .extend(outcome.unheld.iter().map(|why| format!("cores are switched one after the other: {why}")));
    warnings.extend(outcome.failure.iter().map(|why| format!("scheduling stopped early: {why}")));
    warnings.extend(stragglers?);
    if kind == Kind::Stop {
        warnings.push("stop signals act late: gangs overlap by up to milliseconds; without --unprivileged and as root they do not".into());
    }
    warnings.extend(refused(arena.as_deref(), options.max_threads));
    Ok(summarize(options, kind, reason, cores, &running, started, outcome, warnings))
}

fn start_all(
    options: &Options,
    arena: Option<&Arena>,
    whole: &CpuSet,
    journal: &mut Journal,
) -> Result<Vec<Running>> {
    let mut running: Vec<Running> = Vec::new();
    for (gang, command) in options.commands.iter().enumerate() {
        let started = start_one(GangId(gang), command, arena, whole, journal);
        match started {
            Ok(gang) => running.push(gang),
            Err(error) => {
                end_all(&mut running);
                return Err(error);
            }
        }
    }
    Ok(running)
}

fn start_one(
    gang: GangId,
    command: &[OsString],
    arena: Option<&Arena>,
    whole: &CpuSet,
    journal: &mut Journal,
) -> Result<Running> {
    let doors = arena.map(|arena| arena.of(gang).doors()).transpose()?.unwrap_or_default();
    // without groups a process group is all that holds a gang together
    let family = if arena.is_some() { Family::Same } else { Family::OwnGroup };
    let mut builder = Command::new(&command[0]);
    builder.args(&command[1..]);
    let child = process::start(&mut builder, doors, family)
        .map_err(|source| Error::Start { program: command[0].to_string_lossy().into_owned(), source })?;
    let leader = Tid(child.id() as i32);
    if family == Family::OwnGroup {
        let started = journal::start_time(leader).unwrap_or(0);
        journal.write(&Entry::Stopped { leader: leader.0, started })?;
    }
    let process = PidFd::open(leader).map_err(system("watch a program"))?;
    let spread = Spread::new(whole.clone());
    let (cpu_ns, threads, told) = (0, 0, 0);
    Ok(Running { child, process, status: None, left: false, cpu_ns, ended: None, spread, threads, told })
}

/// Ends programs that were started for a run that cannot be.
fn end_all(running: &mut [Running]) {
    for gang in running {
        let _ = gang.child.kill(); // it has ended by itself
        let _ = gang.child.wait();
    }
}

/// What the main thread does while the gangs run.
struct Floor<'a> {
    arena: Option<&'a Arena>,
    whole: &'a CpuSet,
    notices: &'a Channel<Notice>,
    alarm: &'a Alarm,
    places: &'a Places,
    spread: bool,
    kind: Kind,
}

impl Floor<'_> {
    /// Attends to signals, ends and new threads until all programs have ended; answers what to warn of.
    fn attend(
        &self,
        running: &mut [Running],
        signals: &SignalFd,
        journal: &mut Journal,
        mut reserve: Option<&mut Reserve>,
    ) -> Result<Vec<String>> {
        let start = Instant::now();
        while running.iter().any(|gang| gang.status.is_none()) {
            // threads are mostly born early
            let patience = if start.elapsed() < Duration::from_secs(2) { 20 } else { 250 };
            let mut fds = vec![signals.as_fd()];
            fds.extend(running.iter().filter(|gang| gang.status.is_none()).map(|gang| gang.process.as_fd()));
            process::readable(&fds, Some(Duration::from_millis(patience)))
                .map_err(system("wait for the programs"))?;
            while let Some((signal, sender)) = signals.next() {
                self.forward(running, signal, sender);
            }
            if let Some(reserve) = &mut reserve {
                reserve.look();
            }
            for (gang, state) in running.iter_mut().enumerate() {
                self.reap(GangId(gang), state)?;
                if !state.left {
                    self.look_at_threads(GangId(gang), state, start.elapsed(), journal)?;
                }
            }
        }
        let mut warnings = Vec::new();
        for (gang, state) in running.iter().enumerate().filter(|(_, state)| !state.left) {
            let left = self.arena.and_then(|arena| arena.of(GangId(gang)).control.processes().ok());
            let left = left.map_or(0, |processes| processes.len());
            if left > 0 {
                let pid = state.child.id();
                warnings.push(format!(
                    "{} left {left} processes behind (its program was process {pid}); they go on",
                    GangId(gang)
                ));
            }
        }
        Ok(warnings)
    }

    fn forward(&self, running: &[Running], signal: Signal, sender: Sender) {
        // a key reached the programs already, unless they are in groups of their own
        if sender == Sender::Kernel && self.kind != Kind::Stop {
            return;
        }
        for gang in running.iter().filter(|gang| gang.status.is_none()) {
            let _ = gang.process.send(signal); // it has ended
        }
    }

    fn reap(&self, gang: GangId, state: &mut Running) -> Result<()> {
        if state.status.is_none() && state.process.has_ended(Some(Duration::ZERO)).unwrap_or(false) {
            if self.arena.is_none() {
                state.cpu_ns = schedstat::refresh(Tid(state.child.id() as i32)).unwrap_or(0);
            }
            state.status = state.child.try_wait().map_err(system("wait for a program"))?;
            state.ended = Some(Instant::now());
        }
        if state.status.is_some() && !state.left {
            let control = self.arena.map(|arena| &arena.of(gang).control);
            let empty = control.is_none_or(|group| group.processes().map_or(true, |p| p.is_empty()));
            if let Some(used) = control.and_then(|group| group.used_ns().ok()) {
                state.cpu_ns = used;
            }
            if empty {
                state.left = true;
                // the receiver lives until it is told to finish
                let _ = self.notices.send(Notice::Left(gang));
                self.alarm.call();
            }
        }
        Ok(())
    }

    /// Tells the policy how wide the gang is, and gives its threads cores.
    fn look_at_threads(
        &self,
        gang: GangId,
        state: &mut Running,
        age: Duration,
        journal: &mut Journal,
    ) -> Result<()> {
        let Some(arena) = self.arena else { return Ok(()) };
        let control = &arena.of(gang).control;
        let count = control.threads().map_or(0, |threads| threads.len());
        // a program that just started may be about to start its threads; one that grows needs room now
        if count != state.told && (count > state.threads || age > Duration::from_secs(1)) {
            state.told = count;
            let _ = self.notices.send(Notice::Width(gang, count));
            self.alarm.call();
        }
        if !self.spread || self.whole.len() < 2 || count > 4 * self.whole.len() {
            state.threads = count;
            return Ok(());
        }
        state.threads = count;
        if let Some(range) = self.places.lock().unwrap_or_else(PoisonError::into_inner).get(&gang) {
            state.spread.set_home(self.whole.iter().skip(range.start).take(range.len()).collect());
        }
        let mut threads = Vec::new();
        for process in control.processes().unwrap_or_default() {
            for thread in super::watch::threads_of(process) {
                if let Ok(allowed) = affinity::allowed(thread) {
                    threads.push(Thread { thread, process, allowed });
                }
            }
        }
        for change in state.spread.look(&threads) {
            if let Some(entry) = Entry::affinity(change.thread, self.whole, &change.to) {
                journal.write(&entry)?;
                let _ = affinity::restrict(change.thread, &change.to); // it has ended
            }
        }
        Ok(())
    }
}

/// Gangs that ran into the bound on threads, in words.
fn refused(arena: Option<&Arena>, most: u32) -> Vec<String> {
    let Some(arena) = arena else { return Vec::new() };
    let count =
        |text: String| text.lines().find_map(|line| line.strip_prefix("max ")?.trim().parse::<u64>().ok());
    let times = |gang: usize| arena.gangs[gang].pids.as_ref()?.read("pids.events").ok().and_then(count);
    (0..arena.gangs.len())
        .filter_map(|gang| Some((gang, times(gang).filter(|n| *n > 0)?)))
        .map(|(gang, times)| {
            let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
            let gang = GangId(gang);
            format!(
                "{gang} was refused a new thread {times} at its limit of {most}; raise it with --max-threads"
            )
        })
        .collect()
}

#[allow(clippy::too_many_arguments, reason = "the parts of a report, put together once")]
fn summarize(
    options: &Options,
    kind: Kind,
    reason: String,
    cores: usize,
    running: &[Running],
    started: Instant,
    outcome: Outcome,
    warnings: Vec<String>,
) -> Summary {
    let code = |status: Option<ExitStatus>| {
        status.map_or(1, |s| s.code().or_else(|| s.signal().map(|n| 128 + n)).unwrap_or(1))
    };
    let slices: &BTreeMap<GangId, u64> = &outcome.slices;
    let gangs = running
        .iter()
        .enumerate()
        .map(|(gang, state)| GangSummary {
            command: options.commands[gang]
                .iter()
                .map(|part| part.to_string_lossy())
                .collect::<Vec<_>>()
                .join(" "),
            exit_code: code(state.status),
            cpu_s: state.cpu_ns as f64 / 1e9,
            slices: slices.get(&GangId(gang)).copied().unwrap_or(0),
            weight: options.weights[gang].number(),
            elapsed_s: state.ended.map_or(0.0, |end| end.duration_since(started).as_secs_f64()),
        })
        .collect();
    let samples = &outcome.samples;
    Summary {
        gangs,
        switches: outcome.switches,
        switch_us: Quantiles::of(&samples.switch_us),
        enforced_us: Quantiles::of(&samples.enforced_us),
        skew_us: Quantiles::of(&samples.skew_us).map(|s| s.median),
        leak: (samples.watched_ns > 0).then(|| samples.leaked_ns as f64 / samples.watched_ns as f64),
        not_measured: samples.not_measured(),
        mechanism: kind,
        reason,
        scheduler_class: outcome.class,
        slice_ms: options.slice.as_secs_f64() * 1e3,
        cores,
        elapsed_s: started.elapsed().as_secs_f64(),
        warnings,
    }
}
