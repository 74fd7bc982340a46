//! Runs the programs in each way, by turns, and watches every run.
//!
//! In the first round, a run that takes ten times as long as the best so far is stopped: its way is not what
//! the user looks for, and plain Linux can be a thousand times slower. Such a run counts as "at least so
//! long", and its way leaves the trial. The programs read
//! nothing and their output is thrown away, except what a failing program says last.
//!
//! A program is stopped by SIGTERM to its process group, two seconds later by SIGKILL, together with all that
//! it started. If this process is killed, the kernel kills the programs that it started. If one of these is
//! `unisono gang run`, its guardian undoes its changes.

use crate::remedy::{Programs, StartedTogether, TriedRemedy};
use crate::switches::SwitchWatch;
use crate::tree;
use crate::watch::{Observation, RunTotals, RunWatch};
use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unisono_linux::clock;
use unisono_linux::parent_death::end_with_starter;
use unisono_linux::pinned::PinnedProcess;
use unisono_linux::process::{self, Family, Signal};
use unisono_linux::process_group::ProcessGroup;
use unisono_linux::quota::{self, QuotaPeriods};
use unisono_linux::usage;

/// Reading `/proc` takes at most one part in this many of the time: so much is below what `AS_GOOD`
/// (judge.rs) ignores, also if the reader takes a core from the program.
const WATCHED: u32 = 100;
/// No reading comes sooner after another: times are counted in hundredths of a second, so that ten of these
/// fit in between.
const OFTEN: Duration = Duration::from_millis(100);
/// The first reading comes early, so that short runs are seen.
const EARLY: Duration = Duration::from_millis(10);
/// How long programs that are told to end may take, before they are killed: time to write what they have.
/// Chosen, not measured.
const GRACE: Duration = Duration::from_secs(2);
/// A way is stopped in its first run when it takes this many times as long as the best so far. It cannot win
/// then, and a way that never ends (threads that spin on one core) would take the whole limit. With 3, a
/// first run that includes compilation or a cold disk could lose by accident. Chosen, not measured.
const FAR: u32 = 10;
/// Gangs are tried with other slices if they took at most this many times as long as the best way.
const WORTH_A_SWEEP: f64 = 1.25;
/// No run is stopped earlier: at ten times a run of 10 ms, a pause of the host would decide.
const LEAST: Duration = Duration::from_secs(2);
/// Rounds after which a trial ends if it can tell. Where nine of nine agree, that is no chance, even for the
/// best of ten ways (two-sided sign test: 0.4 %). With fewer it may be; with twice as many a trial takes
/// twice as long.
const ROUNDS: usize = 9;
/// Rounds at most: as often as this, it goes on for as many rounds if it cannot tell.
pub const MOST_ROUNDS: usize = 3 * ROUNDS;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot start {program}: {error}{}", remedy(error))]
    Start { program: String, error: io::Error },
    #[error("cannot watch the programs: {0}")]
    Watch(#[from] io::Error),
    #[error("{0} came; the trial ended before anything could be compared")]
    Interrupted(&'static str),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; check its name, or give its path",
        io::ErrorKind::PermissionDenied => "; it may not be executed",
        _ => "",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    Well,
    /// A program failed: its exit code (128 and the signal's number if one ended it), and what it said last.
    Badly {
        code: i32,
        said: String,
    },
    /// It took too long.
    Stopped,
}

#[derive(Clone, Debug)]
pub struct TrialRun {
    pub way: TriedRemedy,
    /// Counts from 0.
    pub round: usize,
    pub ended: RunEnd,
    /// Until the last program ended.
    pub seconds: f64,
    pub observation: Observation,
}

#[derive(Clone, Debug, Default)]
pub struct TrialRuns {
    pub runs: Vec<TrialRun>,
    pub runtimes: BTreeSet<String>,
    /// Why context switches were not recorded.
    pub unrecorded: Option<String>,
    /// Periods of the quota while the programs ran as they are.
    pub periods: Option<QuotaPeriods>,
    /// Why no further round was made, if the runs could not tell before.
    pub stopped_early: Option<String>,
}

/// How long a trial may take.
#[derive(Clone, Copy, Debug)]
pub struct TrialBudget {
    /// For all runs together; the first round is always completed.
    pub total: Duration,
    /// For one run.
    pub run: Duration,
}

/// Tries the ways. Before each run it calls `say` with the round and the way. Every few rounds it asks
/// `can_tell` whether more are needed.
pub fn run(
    programs: &Programs,
    ways: &[TriedRemedy],
    budget: TrialBudget,
    say: &mut dyn FnMut(usize, TriedRemedy),
    can_tell: &dyn Fn(&TrialRuns) -> bool,
    stopped: &dyn Fn() -> Option<&'static str>,
) -> Result<TrialRuns, Error> {
    let begin = Instant::now();
    let mut trials = TrialRuns::default();
    // `fit` first: it tells how long the programs take where nothing is in their way, before plain Linux,
    // which may crawl, is given ten times that
    let (others, mut left): (Vec<TriedRemedy>, Vec<TriedRemedy>) =
        ways.iter().partition(|way| way.is_other_slice());
    left.sort_by_key(|way| (*way != TriedRemedy::Fit, *way));
    for round in 0..MOST_ROUNDS {
        let round_begins = Instant::now();
        let mut order = left.clone();
        if round % 2 == 1 {
            order.reverse();
        }
        for way in order {
            say(round, way);
            let limit = limit(&trials.runs, round, budget);
            let before = (way == TriedRemedy::Plain).then(throttling);
            let run = one(programs, way, round, limit, &mut trials, stopped)?;
            let Some(run) = run else {
                let signal = stopped().unwrap_or("a signal");
                if trials.runs.iter().all(|run| run.round == 0 && run.way != TriedRemedy::Plain) {
                    return Err(Error::Interrupted(signal));
                }
                trials.stopped_early = Some(format!("{signal} came"));
                return Ok(trials);
            };
            if let (Some(before), Some(after)) = (before.flatten(), throttling()) {
                let sum = trials.periods.get_or_insert_default();
                let run = after.since(before);
                sum.all += run.all;
                sum.throttled += run.throttled;
            }
            trials.runs.push(run);
        }
        // what failed or crawled once is not run again
        left.retain(|way| {
            trials.runs.iter().filter(|run| run.way == *way).all(|run| run.ended == RunEnd::Well)
        });
        if round == 0 && gangs_do_well(&trials.runs) {
            left.extend(&others);
        }
        if left.len() < 2 {
            trials.stopped_early = Some("fewer than two ways were left to compare".into());
            return Ok(trials);
        }
        if (round + 1).is_multiple_of(ROUNDS) && can_tell(&trials) {
            return Ok(trials);
        }
        if round + 1 < MOST_ROUNDS && begin.elapsed() + round_begins.elapsed() > budget.total {
            trials.stopped_early = Some("the time was used up".into());
            return Ok(trials);
        }
    }
    Ok(trials)
}

fn gangs_do_well(runs: &[TrialRun]) -> bool {
    let ended = || runs.iter().filter(|run| run.ended == RunEnd::Well);
    let best = ended().map(|run| run.seconds).fold(f64::INFINITY, f64::min);
    ended().any(|run| run.way == TriedRemedy::Gangs && run.seconds <= best * WORTH_A_SWEEP)
}

fn limit(runs: &[TrialRun], round: usize, budget: TrialBudget) -> Duration {
    let best = runs.iter().filter(|run| run.ended == RunEnd::Well).map(|run| run.seconds).reduce(f64::min);
    match best {
        // later rounds repeat what has ended once
        Some(best) if round == 0 => (Duration::from_secs_f64(best) * FAR).max(LEAST).min(budget.run),
        _ => budget.run,
    }
}

fn throttling() -> Option<QuotaPeriods> {
    quota::limits().ok()?.quota?.periods()
}

/// A process that runs. Dropped, it is killed with its group.
struct Started {
    child: Child,
    process: PinnedProcess,
    group: ProcessGroup,
    ended: bool,
}

impl Started {
    fn tell(&self, signal: Signal) {
        let _ = self.group.tell(signal); // everybody in it belongs to another user now
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // also what it left behind
        self.tell(Signal::Kill);
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// One run; `None` if a signal asked to stop.
fn one(
    programs: &Programs,
    way: TriedRemedy,
    round: usize,
    limit: Duration,
    trials: &mut TrialRuns,
    stopped: &dyn Fn() -> Option<&'static str>,
) -> Result<Option<TrialRun>, Error> {
    let begin = Instant::now();
    let machine = || tree::machine().unwrap_or_default();
    let (used_before, machine_before) = (usage::of_collected_children(), machine());
    let mut watch = RunWatch::default();
    let mut switches = SwitchWatch::start();
    let mut ended = RunEnd::Well;
    for stage in programs.stages(way) {
        let mut running = RunningStage::start(&stage)?;
        let found = (round == 0).then_some(&mut trials.runtimes);
        let watch = (&mut watch, &mut switches);
        match running.wait(begin + limit, watch, found, stopped)? {
            StageEnd::Ended(None) => {}
            StageEnd::Ended(Some((code, said))) => {
                ended = RunEnd::Badly { code, said };
                break;
            }
            StageEnd::TooLong => {
                ended = RunEnd::Stopped;
                break;
            }
            StageEnd::Asked => return Ok(None),
        }
    }
    trials.unrecorded = switches.problem().map(str::to_owned);
    let seconds = begin.elapsed().as_secs_f64();
    let seconds = if ended == RunEnd::Stopped { limit.as_secs_f64() } else { seconds };
    let used = usage::of_collected_children().since(used_before);
    let observation = watch.observation(RunTotals {
        seconds: begin.elapsed().as_secs_f64(),
        ran_s: used.cpu.as_secs_f64(),
        sleeps: used.voluntary_switches,
        machine_s: machine().saturating_sub(machine_before).as_secs_f64(),
    });
    Ok(Some(TrialRun { way, round, ended, seconds, observation }))
}

enum StageEnd {
    /// All ended; the first that failed.
    Ended(Option<(i32, String)>),
    TooLong,
    Asked,
}

struct RunningStage {
    started: Vec<Started>,
    /// What the processes write to standard error.
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
                // what the user set stays
                if std::env::var_os(name).is_none() {
                    command.env(name, value);
                }
            }
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.try_clone()?);
            end_with_starter(&mut command);
            let child = process::start(&mut command, Vec::new(), Family::OwnGroup).map_err(failed)?;
            let process = PinnedProcess::of_child(&child)?;
            let group = ProcessGroup::of_child(&child)?;
            started.push(Started { child, process, group, ended: false });
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
        let mut next = Instant::now() + EARLY;
        while self.started.iter().any(|one| !one.ended) {
            let now = Instant::now();
            if stopped().is_some() {
                self.stop()?;
                return Ok(StageEnd::Asked);
            }
            if now >= end {
                look(&leaders, watch, switches);
                self.stop()?;
                return Ok(StageEnd::TooLong);
            }
            if now >= next {
                let before = Instant::now();
                look(&leaders, watch, switches);
                if let Some(runtimes) = runtimes.take_if(|_| before > next) {
                    runtimes.extend(tree::runtimes(&leaders));
                }
                next = Instant::now() + (before.elapsed() * WATCHED).max(OFTEN);
            }
            self.poll(next.min(end).saturating_duration_since(Instant::now()))?;
            for at in 0..self.started.len() {
                let one = &mut self.started[at];
                if one.ended {
                    continue;
                }
                // the last reading of a process that has ended but was not waited for
                if one.process.has_ended(Some(Duration::ZERO))? {
                    let status = one.child.wait()?;
                    one.ended = true;
                    let code = code(status);
                    if code != 0 && failed.is_none() {
                        failed = Some((code, self.last_words()));
                    }
                }
            }
        }
        Ok(StageEnd::Ended(failed))
    }

    fn poll(&self, patience: Duration) -> io::Result<()> {
        let running: Vec<_> =
            self.started.iter().filter(|one| !one.ended).map(|one| one.process.as_fd()).collect();
        unisono_linux::poll::readable_of(&running, Some(patience)).map(|_| ())
    }

    /// Tells all to end, and kills what has not ended after the grace.
    fn stop(&mut self) -> io::Result<()> {
        self.started.iter().for_each(|one| one.tell(Signal::Terminate));
        // a stopped process hears nothing before it goes on
        self.started.iter().for_each(|one| one.tell(Signal::Continue));
        let end = Instant::now() + GRACE;
        for one in self.started.iter_mut().filter(|one| !one.ended) {
            let patience = end.saturating_duration_since(Instant::now());
            if !one.process.has_ended(Some(patience))? {
                one.tell(Signal::Kill);
            }
            one.child.wait()?;
            one.ended = true;
        }
        Ok(())
    }

    /// The last line that a program wrote to standard error.
    fn last_words(&self) -> String {
        let mut text = Vec::new();
        let mut file = &self.errors;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(2_000)));
        let _ = file.read_to_end(&mut text);
        let text = String::from_utf8_lossy(&text);
        text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().to_owned()
    }
}

/// Adds what the programs have done to what is known of them.
pub fn look(leaders: &[i32], watch: &mut RunWatch, switches: &mut SwitchWatch) {
    let reading = tree::read(leaders, clock::now());
    watch.add_work(&switches.look(&reading));
    watch.add(reading);
}

fn code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
