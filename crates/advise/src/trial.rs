//! Runs the programs with each remedy, in turns, and watches every run.
//!
//! In the first round, a run that takes ten times as long as the best run so far, and at least two seconds,
//! is stopped: its remedy cannot win, and plain Linux can be a thousand times slower. Such a run counts as
//! "at least this long", and its remedy leaves the trial. The programs read nothing from standard input.
//! Their output is discarded, except the last line of standard error of a program that fails.
//!
//! A program is stopped by SIGTERM to its process group and two seconds later by SIGKILL, together with all
//! processes that it started. If this process is killed, the kernel kills the programs that it started. If
//! one of these is `unisono gang run`, its guardian undoes its changes.

use crate::remedy::{Programs, StartedTogether, TriedRemedy};
use crate::switches::SwitchWatch;
use crate::tree;
use crate::watch::{Observation, RunTotals, RunWatch};
use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use unisono_linux::clock::{self, Duration, Instant};
use unisono_linux::parent_death::end_with_starter;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process::{self, Family, Signal};
use unisono_linux::process_group::ProcessGroup;
use unisono_linux::quota::{self, QuotaPeriods};
use unisono_linux::usage;
use unisono_measure::paired::MIN_PAIRS;

/// Reading `/proc` takes at most 1/100 of a run's time. That is less than the difference that
/// `SIMPLICITY_TOLERANCE` (judge/mod.rs) ignores, even if the reader takes a core from the program.
const READ_COST_DIVISOR: u64 = 100;
/// Minimum time between two readings: the kernel counts processor time in ticks of 10 ms, so that ten ticks
/// lie between two readings.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(100);
/// Time from the start to the first reading: short, so that short runs are observed.
const FIRST_READ_DELAY: Duration = Duration::from_millis(10);
/// Time between SIGTERM and SIGKILL, in which a program may write its results. Chosen, not measured.
const KILL_AFTER: Duration = Duration::from_secs(2);
/// In the first round, a remedy is stopped when it takes this many times as long as the best so far. It
/// cannot win any more, and a remedy that never ends (threads that spin on one core) would take the whole
/// limit. With 3, a remedy whose first run includes compilation or a cold disk could lose by accident.
/// Chosen, not measured.
const STOP_RATIO: u64 = 10;
/// Gangs with other slices are tried if gangs took at most this many times as long as the best remedy.
const MAX_SWEEP_RATIO: f64 = 1.25;
/// The limit that the first round derives from the best run is at least this long: if it were ten times a run
/// of 10 ms, a pause of the host would decide. [`TrialBudget::run`] still applies where it is shorter.
const MIN_RUN: Duration = Duration::from_secs(2);
/// Number of rounds between two checks whether the trial can be decided. If nine of nine rounds agree, chance
/// is excluded even for the best of ten remedies (two-sided sign test: 0.4 %). Fewer rounds may agree by
/// chance; twice as many take twice the time.
const ROUNDS_PER_CHECK: usize = 9;
/// Maximum number of rounds of a trial that cannot be decided earlier.
pub const MAX_ROUNDS: usize = 3 * ROUNDS_PER_CHECK;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot start {program}: {error}{}", start_hint(error))]
    Start { program: String, error: io::Error },
    #[error("cannot watch the programs: {0}")]
    Watch(#[from] io::Error),
    #[error("{0} came; the trial ended before anything could be compared")]
    Interrupted(&'static str),
}

fn start_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; check its name, or give its path",
        io::ErrorKind::PermissionDenied => "; it may not be executed",
        _ => "",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    Succeeded,
    /// A program failed: its exit code (128 plus the number if a signal killed it), and its last line of
    /// error output.
    Failed {
        code: i32,
        last_line: String,
    },
    /// The run was stopped because it took too long.
    Stopped,
    /// The programs were running before they were watched, and continue to run.
    Watched,
}

#[derive(Clone, Debug)]
pub struct TrialRun {
    pub remedy: TriedRemedy,
    /// Number of the round, from 0.
    pub round: usize,
    pub ended: RunEnd,
    /// Time until the last program ended; if the run was stopped, its time limit.
    pub seconds: f64,
    pub observation: Observation,
}

#[derive(Clone, Debug, Default)]
pub struct TrialRuns {
    pub runs: Vec<TrialRun>,
    pub runtimes: BTreeSet<String>,
    /// Why context switches were not recorded.
    pub unrecorded: Option<String>,
    /// Periods of the quota during the runs of plain Linux.
    pub periods: Option<QuotaPeriods>,
    /// Why the trial ended before it was decided or complete.
    pub stopped_early: Option<String>,
}

impl TrialRuns {
    /// Makes a trial of a single run: programs that were already running were watched, so there is no run to
    /// compare with.
    pub fn of_running(seen: Observation, runtimes: BTreeSet<String>, periods: Option<QuotaPeriods>) -> Self {
        let run = TrialRun {
            remedy: TriedRemedy::Plain,
            round: 0,
            ended: RunEnd::Watched,
            seconds: seen.seconds,
            observation: seen,
        };
        Self { runs: vec![run], runtimes, periods, ..Self::default() }
    }

    /// Returns the seconds for which programs that were already running were watched; `None` if the trial
    /// started the programs.
    pub fn watched_seconds(&self) -> Option<f64> {
        let watched = self.runs.iter().find(|run| run.ended == RunEnd::Watched)?;
        Some(watched.seconds)
    }
}

/// Limits of a trial's time.
#[derive(Clone, Copy, Debug)]
pub struct TrialBudget {
    /// Limit for all runs together; the first round of all remedies, and three rounds of plain Linux and the
    /// best remedy, are always completed.
    pub total: Duration,
    /// Limit for one run.
    pub run: Duration,
}

/// Tries the remedies in rounds. Calls `on_run` with the round and the remedy before each run. After every
/// `ROUNDS_PER_CHECK` rounds it calls `is_decided`; if the runs decide, the trial ends.
pub fn run(
    programs: &Programs,
    remedies: &[TriedRemedy],
    budget: TrialBudget,
    on_run: &mut dyn FnMut(usize, TriedRemedy),
    is_decided: &dyn Fn(&TrialRuns) -> bool,
    stopped: &dyn Fn() -> Option<&'static str>,
) -> Result<TrialRuns, Error> {
    let begin = clock::now();
    let mut trials = TrialRuns::default();
    // `fit` runs first: its time shows how long the programs take at best, so that plain Linux, which may be
    // extremely slow, gets a limit of ten times that.
    let (others, mut left): (Vec<TriedRemedy>, Vec<TriedRemedy>) =
        remedies.iter().partition(|remedy| remedy.is_other_slice());
    left.sort_by_key(|remedy| (*remedy != TriedRemedy::Fit, *remedy));
    for round in 0..MAX_ROUNDS {
        let round_begins = clock::now();
        let mut order = left.clone();
        if round % 2 == 1 {
            order.reverse();
        }
        for remedy in order {
            on_run(round, remedy);
            let limit = run_limit(&trials.runs, round, budget);
            let before = (remedy == TriedRemedy::Plain).then(quota_periods);
            let run = run_once(programs, remedy, round, limit, &mut trials, stopped)?;
            let Some(run) = run else {
                let signal = stopped().unwrap_or("a signal");
                if trials.runs.iter().all(|run| run.round == 0 && run.remedy != TriedRemedy::Plain) {
                    return Err(Error::Interrupted(signal));
                }
                trials.stopped_early = Some(format!("{signal} came"));
                return Ok(trials);
            };
            if let (Some(before), Some(after)) = (before.flatten(), quota_periods()) {
                let sum = trials.periods.get_or_insert_default();
                let run = after.since(before);
                sum.all += run.all;
                sum.throttled += run.throttled;
            }
            trials.runs.push(run);
        }
        // a remedy that failed or was stopped is not run again
        left.retain(|remedy| {
            trials.runs.iter().filter(|run| run.remedy == *remedy).all(|run| run.ended == RunEnd::Succeeded)
        });
        if round == 0 && gangs_do_well(&trials.runs) {
            left.extend(&others);
        }
        if round == 0 {
            let remaining = budget.total.as_secs_f64() - (clock::now() - begin).as_secs_f64();
            keep_what_fits(&mut left, &trials.runs, remaining);
        }
        let has_advisable_rounds = round + 1 >= MIN_PAIRS;
        let is_alone = left.len() == 1 && (has_advisable_rounds || left[0] == TriedRemedy::Plain);
        if left.is_empty() || is_alone {
            trials.stopped_early = Some("fewer than two ways were left to compare".into());
            return Ok(trials);
        }
        if (round + 1).is_multiple_of(ROUNDS_PER_CHECK) && is_decided(&trials) {
            return Ok(trials);
        }
        let is_late = clock::now() - begin + (clock::now() - round_begins) > budget.total;
        if has_advisable_rounds && round + 1 < MAX_ROUNDS && is_late {
            trials.stopped_early = Some("the time was used up".into());
            return Ok(trials);
        }
    }
    Ok(trials)
}

fn gangs_do_well(runs: &[TrialRun]) -> bool {
    let ended = || runs.iter().filter(|run| run.ended == RunEnd::Succeeded);
    let best = ended().map(|run| run.seconds).fold(f64::INFINITY, f64::min);
    ended().any(|run| run.remedy == TriedRemedy::Gangs && run.seconds <= best * MAX_SWEEP_RATIO)
}

/// Leaves out the slowest remedies if the remaining seconds are too few for [`MIN_PAIRS`] rounds of all,
/// because three runs of the best remedies decide more than one run of each. Plain Linux and the best remedy
/// always stay. A remedy that was never run is taken to last as long as gangs.
fn keep_what_fits(left: &mut Vec<TriedRemedy>, runs: &[TrialRun], remaining: f64) {
    let of = |remedy: TriedRemedy| runs.iter().find(|run| run.remedy == remedy).map(|run| run.seconds);
    let seconds =
        |remedy: &TriedRemedy| of(*remedy).or_else(|| of(TriedRemedy::Gangs)).unwrap_or(f64::INFINITY);
    let mut by_time = left.clone();
    by_time.sort_by(|one, other| {
        let key = |remedy: &TriedRemedy| (*remedy != TriedRemedy::Plain, seconds(remedy));
        let ((one_later, one_takes), (other_later, other_takes)) = (key(one), key(other));
        one_later.cmp(&other_later).then(one_takes.total_cmp(&other_takes))
    });
    let rounds = (MIN_PAIRS - 1) as f64;
    let mut planned = 0.0;
    let mut kept = Vec::new();
    for remedy in by_time {
        planned += rounds * seconds(&remedy);
        if kept.len() < 2 || planned <= remaining {
            kept.push(remedy);
        }
    }
    left.retain(|remedy| kept.contains(remedy));
}

fn run_limit(runs: &[TrialRun], round: usize, budget: TrialBudget) -> Duration {
    let best =
        runs.iter().filter(|run| run.ended == RunEnd::Succeeded).map(|run| run.seconds).reduce(f64::min);
    match best {
        // Only the first round has this limit. A remedy that it stops is not run again; gangs with other
        // slices join after the first round, and only if gangs did well in it.
        Some(best) if round == 0 => {
            (Duration::from_nanos((best * 1e9) as u64) * STOP_RATIO).max(MIN_RUN).min(budget.run)
        }
        _ => budget.run,
    }
}

fn quota_periods() -> Option<QuotaPeriods> {
    quota::limits().ok()?.quota?.periods()
}

/// A running process. Dropping it kills its process group.
struct TrialProcess {
    child: Child,
    process: PinnedProcess,
    group: ProcessGroup,
    ended: bool,
}

impl TrialProcess {
    fn signal(&self, signal: Signal) {
        let _ = self.group.send_signal(signal); // fails only if every process belongs to another user now
    }
}

impl Drop for TrialProcess {
    fn drop(&mut self) {
        // also kills processes that it left behind
        self.signal(Signal::Kill);
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs the programs once; `None` if a signal asked for the trial to stop.
fn run_once(
    programs: &Programs,
    remedy: TriedRemedy,
    round: usize,
    limit: Duration,
    trials: &mut TrialRuns,
    stopped: &dyn Fn() -> Option<&'static str>,
) -> Result<Option<TrialRun>, Error> {
    let begin = clock::now();
    let machine_time = || tree::machine_time().unwrap_or_default();
    let (used_before, machine_before) = (usage::of_collected_children(), machine_time());
    let mut watch = RunWatch::default();
    let mut switches = SwitchWatch::start();
    let mut ended = RunEnd::Succeeded;
    for stage in programs.stages(remedy) {
        let mut running = RunningStage::start(&stage)?;
        let found = (round == 0).then_some(&mut trials.runtimes);
        let watch = (&mut watch, &mut switches);
        match running.wait(begin + limit, watch, found, stopped)? {
            StageEnd::Ended(None) => {}
            StageEnd::Ended(Some((code, last_line))) => {
                ended = RunEnd::Failed { code, last_line };
                break;
            }
            StageEnd::TimedOut => {
                ended = RunEnd::Stopped;
                break;
            }
            StageEnd::Interrupted => return Ok(None),
        }
    }
    trials.unrecorded = switches.problem().map(str::to_owned);
    let seconds = (clock::now() - begin).as_secs_f64();
    let seconds = if ended == RunEnd::Stopped { limit.as_secs_f64() } else { seconds };
    let used = usage::of_collected_children().since(used_before);
    let observation = watch.observation(RunTotals {
        seconds: (clock::now() - begin).as_secs_f64(),
        ran_s: used.cpu.as_secs_f64(),
        sleeps: used.voluntary_switches,
        machine_s: (machine_time() - machine_before).as_secs_f64(),
    });
    Ok(Some(TrialRun { remedy, round, ended, seconds, observation }))
}

enum StageEnd {
    /// All programs ended; the exit code and last line of the first failed program, if any.
    Ended(Option<(i32, String)>),
    TimedOut,
    Interrupted,
}

struct RunningStage {
    started: Vec<TrialProcess>,
    /// The processes' standard error.
    errors: std::fs::File,
}

impl RunningStage {
    fn start(stage: &StartedTogether) -> Result<Self, Error> {
        let errors = tempfile::tempfile()?;
        let mut started = Vec::new();
        for (words, variables) in stage {
            let Some((name, arguments)) = words.split_first() else { continue };
            let failed = |error| Error::Start { program: name.to_string_lossy().into_owned(), error };
            let mut command = Command::new(name);
            command.args(arguments);
            for (name, value) in variables {
                // a variable that the user has set stays as it is
                if std::env::var_os(name).is_none() {
                    command.env(name, value);
                }
            }
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.try_clone()?);
            end_with_starter(&mut command);
            let child = process::start(&mut command, Vec::new(), Family::OwnGroup).map_err(failed)?;
            let process = PinnedProcess::of_child(&child)?;
            let group = ProcessGroup::of_child(&child)?;
            started.push(TrialProcess { child, process, group, ended: false });
        }
        Ok(Self { started, errors })
    }

    fn wait(
        &mut self,
        end: Instant,
        (watch, switches): (&mut RunWatch, &mut SwitchWatch),
        mut runtimes: Option<&mut BTreeSet<String>>,
        stopped: &dyn Fn() -> Option<&'static str>,
    ) -> Result<StageEnd, Error> {
        let leaders: Vec<i32> = self.started.iter().map(|one| one.child.id().cast_signed()).collect();
        let mut failed = None;
        let mut next = clock::now() + FIRST_READ_DELAY;
        while self.started.iter().any(|one| !one.ended) {
            let now = clock::now();
            if stopped().is_some() {
                self.stop()?;
                return Ok(StageEnd::Interrupted);
            }
            if now >= end {
                take_reading(&leaders, watch, switches);
                self.stop()?;
                return Ok(StageEnd::TimedOut);
            }
            if now >= next {
                let before = clock::now();
                take_reading(&leaders, watch, switches);
                if let Some(runtimes) = runtimes.take_if(|_| before > next) {
                    runtimes.extend(tree::loaded_runtimes(&leaders));
                }
                let after = clock::now();
                next = after + ((after - before) * READ_COST_DIVISOR).max(MIN_READ_INTERVAL);
            }
            self.poll(next.min(end) - clock::now())?;
            for at in 0..self.started.len() {
                let one = &mut self.started[at];
                if one.ended {
                    continue;
                }
                // `wait` removes the process from /proc. Its processor time since the last reading counts
                // only in the totals of the collected children.
                if one.process.has_ended(Some(Duration::ZERO.into()))? {
                    let status = one.child.wait()?;
                    one.ended = true;
                    let code = exit_code(status);
                    if code != 0 && failed.is_none() {
                        failed = Some((code, self.last_error_line()));
                    }
                }
            }
        }
        Ok(StageEnd::Ended(failed))
    }

    fn poll(&self, timeout: Duration) -> io::Result<()> {
        let running: Vec<_> =
            self.started.iter().filter(|one| !one.ended).map(|one| one.process.as_fd()).collect();
        unisono_linux::poll::readable_of(&running, Some(timeout.into())).map(|_| ())
    }

    /// Sends SIGTERM to all processes, and SIGKILL to processes that still run after `KILL_AFTER`.
    fn stop(&mut self) -> io::Result<()> {
        self.started.iter().for_each(|one| one.signal(Signal::Terminate));
        // a process that is stopped (SIGSTOP) handles SIGTERM only after SIGCONT
        self.started.iter().for_each(|one| one.signal(Signal::Continue));
        let end = clock::now() + KILL_AFTER;
        for one in self.started.iter_mut().filter(|one| !one.ended) {
            let timeout = end - clock::now();
            if !one.process.has_ended(Some(timeout.into()))? {
                one.signal(Signal::Kill);
            }
            one.child.wait()?;
            one.ended = true;
        }
        Ok(())
    }

    /// Returns the last nonempty line that the programs wrote to standard error.
    fn last_error_line(&self) -> String {
        let mut text = Vec::new();
        let mut file = &self.errors;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(2_000)));
        let _ = file.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().to_owned()
    }
}

/// Reads the programs' threads and adds the reading to `watch`.
pub fn take_reading(leaders: &[i32], watch: &mut RunWatch, switches: &mut SwitchWatch) {
    let reading = tree::read(leaders, clock::now());
    watch.add_work(switches.work_since_last(&reading));
    watch.add(reading);
}

fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_with_little_time_goes_on_with_plain_linux_and_the_best_remedies() {
        let of = |(remedy, seconds): (TriedRemedy, f64)| TrialRun {
            remedy,
            round: 0,
            ended: RunEnd::Succeeded,
            seconds,
            observation: Observation::default(),
        };
        use TriedRemedy::{Fit, Gangs, GangsShort, InTurn, Pin, Plain};
        let runs = [(Plain, 6.0), (Fit, 3.0), (Pin, 5.0), (InTurn, 7.0), (Gangs, 4.0)].map(of);
        let kept = |remaining| {
            let mut left = vec![Plain, Fit, Pin, InTurn, Gangs, GangsShort];
            keep_what_fits(&mut left, &runs, remaining);
            left
        };
        assert_eq!(kept(1_000.0), [Plain, Fit, Pin, InTurn, Gangs, GangsShort]);
        assert_eq!(kept(26.0), [Plain, Fit, Gangs]);
        assert_eq!(kept(1.0), [Plain, Fit], "never fewer than two");
    }
}
