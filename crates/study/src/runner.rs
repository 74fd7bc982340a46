//! Executes the runs one after the other, and records each before the next begins.
//!
//! If a program hangs, the host lacks something, the user presses Ctrl-C or the disk is full, earlier
//! measurements are kept and no process keeps running. A variant that the host cannot run is recorded once
//! with the reason and then left out.
//!
//! A run is no data if other programs or the hypervisor took more of the processors during it than is normal
//! here ([`unisono_measure::disturbance`]). It is recorded as disturbed and repeated, up to `MAX_REPEATS`
//! times, as far as there is time. A study with a time limit leaves out runs that would exceed it, and
//! records each as cut (`time_table.rs` chooses them).
//!
//! Cost: see [`crate::host`] and [`crate::record_file`]; only between runs.

use crate::driver::{Context, NoResult};
use crate::file::StudyFile;
use crate::foreign_load::ForeignLoadWatch;
use crate::host::LoadWatch;
use crate::plan::{PlannedRun, RunPlan};
use crate::profile::Profile;
use crate::record_file::{RecordError, RecordFile};
use crate::time_left::TimeLeft;
use crate::time_table::TimeTable;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use unisono_linux::processor_ticks::ProcessorTicks;
use unisono_measure::background::{BackgroundLoad, LoadPattern};
use unisono_measure::disturbance::NormalLoad;
use unisono_measure::noise;
use unisono_measure::record::{FORMAT, Figure, HostFacts, Line, Outcome, RunLine};
use unisono_measure::tick_share::TickShare;

pub trait Observer {
    /// Reports that a run begins. `left` is the estimated time for this and all later runs, corrected by the
    /// runs so far.
    fn run_begins(&mut self, file: &StudyFile, run: &PlannedRun, left: Duration);
    fn line_recorded(&mut self, line: &Line, json: &str);
    /// Reports that a run was disturbed. `culprit` is the foreign process that used most processor time, for
    /// example `rustc (process 41)`.
    fn run_disturbed(&mut self, _why: &str, _culprit: Option<&str>) {}
    /// Reports that a run was disturbed and is repeated.
    fn run_repeats(&mut self, _file: &StudyFile, _run: &PlannedRun, _why: &str, _left: Duration) {}
}

/// The maximum number of further attempts at a disturbed run.
pub(crate) const MAX_REPEATS: u32 = 3;

/// The time limit of `--quick` for the default studies, from the start of the program to its last output.
const QUICK_LIMIT: Duration = Duration::from_secs(120);

/// The part of [`QUICK_LIMIT`] for the last run, which may take longer than estimated, and for the report.
const RESERVE: Duration = Duration::from_secs(4);

#[derive(Debug, Default)]
pub struct StudyOutcome {
    pub lines: Vec<Line>,
    /// The signal that stopped the study.
    pub stopped_by: Option<String>,
}

pub(crate) const SMOKE_WARNING: &str =
    "a smoke run shows that the study works; no basis for conclusions, use --quick or --paper";

/// The situation in which the runs begin.
#[derive(Debug)]
pub struct Start {
    /// The moment from which the time of the runs counts.
    pub began: Instant,
    /// The load of others before the first run ([`crate::host::watch_background`]).
    pub background: Option<BackgroundLoad>,
    /// Lines that the records file has already; the runs are appended to them.
    pub recorded: Vec<Line>,
}

/// Executes all runs of all studies, in order.
pub fn run(
    studies: &[(StudyFile, RunPlan)],
    profile: Profile,
    start: Start,
    context: Context,
    records: &mut RecordFile,
    observer: &mut dyn Observer,
) -> Result<StudyOutcome, RecordError> {
    let all = || studies.iter().flat_map(|(_, plan)| &plan.runs);
    let left: Duration = studies.iter().map(|(_, plan)| plan.estimate).sum();
    let Start { began, background, recorded } = start;
    let sequence = recorded.iter().filter_map(Line::run).map(|run| run.sequence + 1).max().unwrap_or(0);
    let end = deadline(profile, began, left);
    let mut runner = Runner {
        host: HostFacts { background, ..crate::host::facts() },
        normal: NormalLoad::new(background),
        load: LoadWatch::default(),
        ran: StudyOutcome { lines: recorded, stopped_by: None },
        skipped: HashSet::new(),
        sequence,
        left,
        left_of_first: all().filter(|run| run.repetition == 0).map(|run| run.estimate).sum(),
        time_left: TimeLeft::until(end),
        time: TimeTable::until(end),
        profile,
        context,
        records,
        observer,
    };
    for (file, plan) in studies {
        if !runner.is_recorded(&file.id) {
            runner.record(Line::Study(Box::new(file.line(profile))))?;
        }
        runner.time.study_begins(Instant::now(), plan.estimate, runner.left);
        for planned in &plan.runs {
            runner.observer.run_begins(file, planned, runner.time_left());
            runner.left = runner.left.saturating_sub(planned.estimate);
            if planned.repetition == 0 {
                runner.left_of_first = runner.left_of_first.saturating_sub(planned.estimate);
            }
            if planned.repetition > 0 && !runner.has_time_for(planned) {
                runner.record_cut(file, planned)?;
                continue;
            }
            runner.run_with_repeats(file, planned)?;
            if runner.ran.stopped_by.is_some() {
                return Ok(runner.ran);
            }
        }
    }
    Ok(runner.ran)
}

/// Returns the moment by which all runs should be finished, for runs with this total estimate. `None`: no
/// limit.
fn deadline(profile: Profile, began: Instant, estimate: Duration) -> Option<Instant> {
    longest(profile, estimate).map(|longest| began + longest)
}

/// Returns the time after which only first repetitions are made, for runs with this total estimate. It bounds
/// how far a study is prolonged by disturbed runs, which are repeated. `None`: no limit.
#[must_use]
pub fn longest(profile: Profile, estimate: Duration) -> Option<Duration> {
    (profile != Profile::Paper).then(|| (QUICK_LIMIT - RESERVE).max(estimate + estimate / 10))
}

struct Runner<'a> {
    host: HostFacts,
    normal: NormalLoad,
    load: LoadWatch,
    ran: StudyOutcome,
    skipped: HashSet<(String, String, String)>,
    sequence: u32,
    /// Estimate of the runs that have not begun, and of the first repetitions among them.
    left: Duration,
    left_of_first: Duration,
    time_left: TimeLeft,
    time: TimeTable,
    profile: Profile,
    context: Context<'a>,
    records: &'a mut RecordFile,
    observer: &'a mut dyn Observer,
}

impl Runner<'_> {
    fn record(&mut self, line: Line) -> Result<(), RecordError> {
        let json = self.records.append(&line)?;
        self.observer.line_recorded(&line, &json);
        self.ran.lines.push(line);
        Ok(())
    }

    fn is_recorded(&self, id: &str) -> bool {
        self.ran.lines.iter().any(|line| matches!(line, Line::Study(study) if study.study == id))
    }

    /// Executes a run, and repeats it if it was disturbed, as far as there is time.
    fn run_with_repeats(&mut self, file: &StudyFile, planned: &PlannedRun) -> Result<(), RecordError> {
        self.time_left.add_run(planned.estimate);
        for repeats in 0..=MAX_REPEATS {
            let began = Instant::now();
            let disturbance = self.attempt(file, planned)?;
            self.time_left.add_attempt(planned.estimate, began.elapsed());
            let Some(why) = disturbance else { return Ok(()) };
            if repeats == MAX_REPEATS || !self.has_time_for(planned) {
                return Ok(());
            }
            self.observer.run_repeats(file, planned, &why, self.time_left());
        }
        Ok(())
    }

    fn time_left(&self) -> Duration {
        self.time_left.after(Instant::now(), self.left, self.left_of_first)
    }

    fn has_time_for(&self, planned: &PlannedRun) -> bool {
        self.time.has_time_for(Instant::now(), planned.estimate)
    }

    /// Records that a run was left out, unless this host cannot run it anyway.
    fn record_cut(&mut self, file: &StudyFile, planned: &PlannedRun) -> Result<(), RecordError> {
        if self.skipped.iter().any(|(study, variant, _)| *study == file.id && *variant == planned.variant) {
            return Ok(());
        }
        let reason =
            format!("the time of the whole study was over; measure it alone: unisono study {}", file.id);
        let names = planned.driver.record_names(&planned.variant);
        let line = RunLine { host: self.host.clone(), ..self.run_line(file, planned) };
        self.record_unmeasured(line, Outcome::Cut, names.into_iter().map(|name| (name, reason.clone())))
    }

    /// Returns the facts of a run that are known before it begins.
    fn run_line(&self, file: &StudyFile, planned: &PlannedRun) -> RunLine {
        RunLine {
            format: FORMAT.to_owned(),
            study: file.id.clone(),
            topic: file.topic.clone(),
            variant: planned.variant.clone(),
            parameters: planned.parameters.clone(),
            repetition: planned.repetition,
            seed: planned.seed,
            started: jiff::Timestamp::now().to_string(),
            commit: crate::COMMIT.to_owned(),
            ..RunLine::default()
        }
    }

    /// Executes a run and records it. Returns why it is no data, if it was disturbed.
    fn attempt(&mut self, file: &StudyFile, planned: &PlannedRun) -> Result<Option<String>, RecordError> {
        let timed = !file.driver.is_simulated;
        let foreign_load_during = (timed && self.profile != Profile::Smoke).then(ForeignLoadWatch::start);
        let foreign_load = if timed { self.load.before_run() } else { None };
        let mut line = self.run_line(file, planned);
        let clock = Instant::now();
        let result = planned.driver.run(self.context, planned.seconds, planned.seed);
        line.elapsed_s = clock.elapsed().as_secs_f64();
        let during = if timed { self.load.during_run() } else { None };
        let of_all = |taken: u64| TickShare { taken, all: during.map_or(0, ProcessorTicks::all) };
        let stolen = of_all(during.and_then(|during| during.steal).unwrap_or(0));
        let foreign_use = foreign_load_during.map(|watch| watch.used());
        let foreign = foreign_use.as_ref().map(|used| of_all(used.ticks));
        let (steal, foreign_load_during) = (stolen.share(), foreign.and_then(TickShare::share));
        let figures = result.as_ref().map_or(&[][..], |measured| &measured.figures);
        let is_foreign = self.normal.is_foreign(foreign.unwrap_or_default());
        let disturbance = self.judge(foreign.unwrap_or_default(), stolen, figures);
        if let Some(why) = &disturbance {
            let culprit = foreign_use.filter(|_| is_foreign).and_then(|used| used.most);
            self.observer.run_disturbed(why, culprit.as_deref());
        }
        line.host = HostFacts { foreign_load, foreign_load_during, steal, ..self.host.clone() };
        let names = || planned.driver.record_names(&planned.variant);
        match result {
            Ok(measured) => {
                let chosen = planned.driver.chosen_parameter(self.context);
                line.parameters.extend(chosen.map(|(name, value)| (name.to_owned(), value)));
                line.warnings = measured.warnings;
                let unsteady = foreign_load.filter(|_| !self.is_steady());
                let significant = steal.filter(|_| stolen.exceeds(noise::STEAL_LIMIT));
                line.warnings.extend(noise::run_warnings(unsteady, significant));
                if self.profile == Profile::Smoke {
                    line.warnings.push(SMOKE_WARNING.to_owned());
                }
                if let Some(why) = &disturbance {
                    (line.outcome, line.reason) = (Outcome::Disturbed, Some(why.clone()));
                }
                if measured.parts.is_empty() && measured.missing.is_empty() {
                    line.figures = measured.figures;
                    let taken = foreign_load_during.unwrap_or(0.0) + steal.unwrap_or(0.0);
                    line.figures.extend(obtained_share(&line.figures, taken, line.host.cpus));
                    self.record_run(line)?;
                    return Ok(disturbance);
                }
                line.elapsed_s /= measured.parts.len().max(1) as f64;
                for part in measured.parts {
                    let mut line = line.clone();
                    line.variant = format!("{}-{}", planned.variant, part.name);
                    line.parameters.extend(part.parameters);
                    line.figures = part.figures;
                    self.record_run(line)?;
                }
                line.elapsed_s = 0.0;
                self.record_unmeasured(
                    line,
                    if disturbance.is_some() { Outcome::Disturbed } else { Outcome::Failed },
                    measured
                        .missing
                        .into_iter()
                        .map(|(part, reason)| (format!("{}-{part}", planned.variant), reason)),
                )?;
                Ok(disturbance)
            }
            Err(NoResult::Skipped(reason)) => {
                let key = (file.id.clone(), planned.variant.clone(), reason.clone());
                if !self.skipped.insert(key) {
                    return Ok(None);
                }
                let lost = names().into_iter().map(|name| (name, reason.clone()));
                self.record_unmeasured(line, Outcome::Skipped, lost).map(|()| None)
            }
            Err(NoResult::Failed(reason)) => {
                let lost = names().into_iter().map(|name| (name, reason.clone()));
                self.record_unmeasured(line, Outcome::Failed, lost).map(|()| None)
            }
            Err(NoResult::Interrupted(reason)) => {
                self.ran.stopped_by = Some(reason.clone());
                let lost = [(planned.variant.clone(), reason)].into_iter();
                self.record_unmeasured(line, Outcome::Interrupted, lost).map(|()| None)
            }
        }
    }

    /// Returns the reason why a run is no data. A smoke run is always data: it shows that the study works,
    /// even on a busy machine.
    fn judge(&mut self, foreign: TickShare, steal: TickShare, figures: &[Figure]) -> Option<String> {
        let disturbance = self.normal.disturbance(foreign, steal, figures);
        self.normal.add_steal(steal);
        disturbance.filter(|_| self.profile != Profile::Smoke)
    }

    fn is_steady(&self) -> bool {
        self.host.background.is_some_and(|load| load.pattern == LoadPattern::Steady)
    }

    /// Records each part that was not measured, with the reason.
    fn record_unmeasured(
        &mut self,
        line: RunLine,
        outcome: Outcome,
        parts: impl Iterator<Item = (String, String)>,
    ) -> Result<(), RecordError> {
        for (variant, reason) in parts {
            self.record_run(RunLine { variant, outcome, reason: Some(reason), ..line.clone() })?;
        }
        Ok(())
    }

    fn record_run(&mut self, mut line: RunLine) -> Result<(), RecordError> {
        line.sequence = self.sequence;
        self.sequence += 1;
        self.record(Line::Run(Box::new(line)))
    }
}

/// Computes the share that the run's programs obtained of the processor time that others did not take (1: all
/// of it); `None` if the run has no figure for its processors. Never above 1: a tick of 10 ms that began
/// before the run must not count as a gain.
fn obtained_share(figures: &[Figure], taken: f64, cpus: u32) -> Option<Figure> {
    let processors = figures.iter().find(|figure| figure.name == "processors")?.value;
    let free = f64::from(cpus) * (1.0 - taken.clamp(0.0, 1.0));
    (free > 0.0).then(|| Figure::new("obtained", (processors / free).min(1.0), "1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_from_others_is_not_obtained_twice() {
        let of = |processors, taken| {
            let figures = [Figure::new("processors", processors, "1")];
            obtained_share(&figures, taken, 2).map(|figure| figure.value)
        };
        assert_eq!(of(1.5, 0.0), Some(0.75));
        assert_eq!(of(1.5, 0.25), Some(1.0), "all that a stranger left");
        assert_eq!(of(1.6, 0.25), Some(1.0), "never more than all");
        assert_eq!(of(1.0, 1.0), None, "nothing was left");
        assert_eq!(obtained_share(&[], 0.0, 2), None);
    }

    fn context<'a>(bench: &'a crate::peer::PeerBench, directory: &'a std::path::Path) -> Context<'a> {
        let unisono = std::path::Path::new("unisono");
        Context { bench, unisono, directory, cpus: &[0], interrupted: &|| None }
    }

    /// A driver that reports the given duration as its estimate, and takes that long.
    #[derive(Debug)]
    struct Slow(Duration);

    impl crate::driver::Driver for Slow {
        fn estimated_overhead(&self, _: f64) -> Duration {
            self.0
        }

        fn run(&self, _: Context, _: f64, _: u64) -> Result<crate::driver::RunResult, NoResult> {
            std::thread::sleep(self.0);
            let figures = vec![Figure::new("time", 1.0, "s")];
            Ok(crate::driver::RunResult { figures, ..Default::default() })
        }
    }

    struct Unobserved;

    impl Observer for Unobserved {
        fn run_begins(&mut self, _: &StudyFile, _: &PlannedRun, _: Duration) {}
        fn line_recorded(&mut self, _: &Line, _: &str) {}
    }

    /// Returns the outcomes of three repetitions in each of two studies. `late` is the time since the study
    /// began.
    fn outcomes(late: Duration) -> Vec<(String, u32, Outcome)> {
        let planned = |repetition| PlannedRun {
            variant: "slow".into(),
            parameters: Default::default(),
            driver: Box::new(Slow(Duration::from_millis(1))),
            estimate: Duration::from_millis(1),
            repetition,
            start: 0,
            seed: 1,
            seconds: 0.0,
        };
        let study = |id: &str| {
            let text = crate::library::study_text("tree-scale").expect("a built-in study");
            let file = StudyFile { id: id.to_owned(), ..StudyFile::parse("f", text).expect("a good file") };
            (file, RunPlan { runs: (0..3).map(planned).collect(), estimate: Duration::from_millis(3) })
        };
        let directory = tempfile::tempdir().expect("a directory");
        let mut records = RecordFile::create(&directory.path().join("out")).expect("a file");
        let bench = crate::peer::PeerBench::default();
        let context = context(&bench, directory.path());
        let began = Instant::now().checked_sub(late).expect("this machine runs for some minutes");
        let studies = [study("first"), study("second")];
        let start = Start { began, background: None, recorded: Vec::new() };
        let ran = run(&studies, Profile::Quick, start, context, &mut records, &mut Unobserved).expect("ran");
        let of = |line: Line| match line {
            Line::Run(run) => {
                assert_eq!(run.outcome == Outcome::Cut, run.reason.is_some() && run.figures.is_empty());
                Some((run.study, run.repetition, run.outcome))
            }
            Line::Study(_) => None,
        };
        ran.lines.into_iter().filter_map(of).collect()
    }

    #[test]
    fn when_the_time_is_over_each_study_still_has_its_first_repetition_and_says_what_was_cut() {
        let in_time = outcomes(Duration::ZERO);
        assert!(in_time.iter().all(|(_, _, outcome)| *outcome == Outcome::Measured), "{in_time:?}");
        let late = outcomes(QUICK_LIMIT);
        assert_eq!(late.len(), 6, "{late:?}");
        for (study, repetition, outcome) in late {
            let wanted = if repetition == 0 { Outcome::Measured } else { Outcome::Cut };
            assert_eq!(outcome, wanted, "{study}, repetition {repetition}");
        }
    }

    /// Returns the outcomes of one run of 300 ms beside a loop that keeps a processor busy.
    fn outcomes_beside_a_loop(background: BackgroundLoad) -> Vec<RunLine> {
        // the shell ends at once, so the loop is no descendant of this process
        let script = "(while :; do :; done) >/dev/null 2>&1 & echo $!";
        let started =
            std::process::Command::new("sh").args(["-c", script]).output().expect("sh is everywhere");
        let stranger = String::from_utf8_lossy(&started.stdout).trim().to_owned();
        let text = crate::library::study_text("barriers").expect("a built-in study");
        let file = StudyFile::parse("f", text).expect("a good file");
        let planned = PlannedRun {
            variant: "slow".into(),
            parameters: Default::default(),
            driver: Box::new(Slow(Duration::from_millis(300))),
            estimate: Duration::from_millis(300),
            repetition: 0,
            start: 0,
            seed: 1,
            seconds: 0.0,
        };
        let plan = RunPlan { estimate: planned.estimate, runs: vec![planned] };
        let directory = tempfile::tempdir().expect("a directory");
        let mut records = RecordFile::create(&directory.path().join("out")).expect("a file");
        let bench = crate::peer::PeerBench::default();
        let context = context(&bench, directory.path());
        let start = Start { began: Instant::now(), background: Some(background), recorded: Vec::new() };
        let ran = run(&[(file, plan)], Profile::Quick, start, context, &mut records, &mut Unobserved);
        let killed = std::process::Command::new("kill").args(["-KILL", &stranger]).status().expect("kill");
        assert!(killed.success());
        let runs = ran.expect("ran").lines.into_iter().filter_map(|line| match line {
            Line::Run(run) => Some(*run),
            Line::Study(_) => None,
        });
        runs.collect()
    }

    #[test]
    fn steady_load_spoils_no_run_and_a_stranger_on_a_quiet_machine_spoils_each() {
        let steady = BackgroundLoad { pattern: LoadPattern::Steady, share: 1.0, steal: 0.0 };
        let runs = outcomes_beside_a_loop(steady);
        assert_eq!(runs.iter().map(|run| run.outcome).collect::<Vec<_>>(), [Outcome::Measured]);
        assert_eq!(runs[0].host.background, Some(steady), "the record says which");
        let quiet = BackgroundLoad { pattern: LoadPattern::Quiet, share: 0.0, steal: 0.0 };
        let runs = outcomes_beside_a_loop(quiet);
        assert_eq!(runs.len(), 1 + MAX_REPEATS as usize);
        assert!(runs.iter().all(|run| run.outcome == Outcome::Disturbed), "{runs:?}");
    }
}
