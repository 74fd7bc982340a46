//! Executes the runs one after the other, and records each before the next begins.
//!
//! If a program hangs, the host lacks something, the user presses Ctrl-C or the disk is full, earlier
//! measurements are kept and no process keeps running. A variant that the host cannot run is recorded once
//! with the reason and then left out.
//!
//! A run is no data if other programs or the hypervisor took processors during it. It is recorded as
//! disturbed and repeated, up to [`MAX_REPEATS`] times, as far as there is time. A study with a time limit
//! leaves out runs that would exceed it, and records each as cut (`time_table.rs` chooses them).
//!
//! Cost: see [`crate::host`] and [`crate::record_file`]; only between runs.

use crate::driver::{Context, NoResult};
use crate::file::StudyFile;
use crate::foreign_load::ForeignLoadWatch;
use crate::host::LoadWatch;
use crate::plan::{PlannedRun, RunPlan};
use crate::profile::Profile;
use crate::record_file::{RecordError, RecordFile};
use crate::time_table::TimeTable;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use unisono_measure::noise;
use unisono_measure::record::{FORMAT, Figure, HostFacts, Line, Outcome, RunLine};

pub trait Observer {
    /// `left` is the estimated time for this and all later runs, corrected by the runs so far.
    fn run_begins(&mut self, file: &StudyFile, run: &PlannedRun, left: Duration);
    fn line_recorded(&mut self, line: &Line, json: &str);
    /// A run was disturbed and is repeated.
    fn run_repeats(&mut self, _file: &StudyFile, _run: &PlannedRun, _why: &str) {}
}

/// The most repetitions of a disturbed run.
pub const MAX_REPEATS: u32 = 3;

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

pub const SMOKE_WARNING: &str =
    "a smoke run shows that the study works; no basis for conclusions, use --quick or --paper";

/// Executes all runs of all studies, in order. Their time counts from `began`.
pub fn run(
    studies: &[(StudyFile, RunPlan)],
    profile: Profile,
    began: Instant,
    context: Context,
    records: &mut RecordFile,
    observer: &mut dyn Observer,
) -> Result<StudyOutcome, RecordError> {
    let mut left: Duration = studies.iter().map(|(_, plan)| plan.estimate).sum();
    let mut runner = Runner {
        host: crate::host::facts(),
        load: LoadWatch::default(),
        ran: StudyOutcome::default(),
        skipped: HashSet::new(),
        sequence: 0,
        correction: EstimateCorrection::default(),
        time: TimeTable::until(deadline(profile, began, left)),
        profile,
        context,
        records,
        observer,
    };
    for (file, plan) in studies {
        runner.record(Line::Study(Box::new(file.line(profile))))?;
        runner.time.study_begins(Instant::now(), plan.estimate, left);
        for planned in &plan.runs {
            runner.observer.run_begins(file, planned, runner.correction.correct(left));
            left = left.saturating_sub(planned.estimate);
            if planned.repetition > 0 && !runner.has_time_for(planned) {
                runner.record_cut(file, planned)?;
                continue;
            }
            let began = Instant::now();
            runner.run_with_repeats(file, planned)?;
            if runner.ran.stopped_by.is_some() {
                return Ok(runner.ran);
            }
            runner.correction.add(planned.estimate, began.elapsed());
        }
    }
    Ok(runner.ran)
}

/// The moment by which all runs should be finished, for runs with this total estimate. `None`: no limit.
fn deadline(profile: Profile, began: Instant, estimate: Duration) -> Option<Instant> {
    let time = (QUICK_LIMIT - RESERVE).max(estimate + estimate / 10);
    (profile != Profile::Paper).then(|| began + time)
}

/// Ratio of the runs' time on this host to their estimates.
#[derive(Debug, Default)]
struct EstimateCorrection {
    estimated: Duration,
    taken: Duration,
}

impl EstimateCorrection {
    /// Weight of the prior: as if runs of this total estimate had taken exactly their estimates.
    const PRIOR: Duration = Duration::from_secs(5);

    /// A run counts at most this multiple of its estimate, because a hang says nothing about other runs.
    const MAX_ESTIMATE_FACTOR: u32 = 4;

    fn add(&mut self, estimate: Duration, taken: Duration) {
        self.estimated += estimate;
        self.taken += taken.min(estimate * Self::MAX_ESTIMATE_FACTOR);
    }

    fn correct(&self, left: Duration) -> Duration {
        let taken = (self.taken + Self::PRIOR).as_secs_f64();
        left.mul_f64(taken / (self.estimated + Self::PRIOR).as_secs_f64())
    }
}

struct Runner<'a> {
    host: HostFacts,
    load: LoadWatch,
    ran: StudyOutcome,
    skipped: HashSet<(String, String, String)>,
    sequence: u32,
    correction: EstimateCorrection,
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

    /// Executes a run, and repeats it if it was disturbed, as far as there is time.
    fn run_with_repeats(&mut self, file: &StudyFile, planned: &PlannedRun) -> Result<(), RecordError> {
        for _ in 0..MAX_REPEATS {
            let Some(why) = self.attempt(file, planned)? else { return Ok(()) };
            if !self.has_time_for(planned) {
                return Ok(());
            }
            self.observer.run_repeats(file, planned, &why);
        }
        self.attempt(file, planned).map(|_| ())
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

    /// The facts of a run that are known before it begins.
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
        let share = |ticks: u64| during.map(|during| ticks as f64 / during.all() as f64);
        let steal = share(during.and_then(|during| during.steal).unwrap_or(0));
        let foreign_load_during = foreign_load_during.and_then(|watch| share(watch.used_ticks()));
        // a smoke run shows that the study works, even on a busy machine
        let disturbance =
            noise::disturbance(foreign_load_during, steal).filter(|_| self.profile != Profile::Smoke);
        line.host = HostFacts { foreign_load, foreign_load_during, steal, ..self.host.clone() };
        let names = || planned.driver.record_names(&planned.variant);
        match result {
            Ok(measured) => {
                let chosen = planned.driver.chosen_parameter(self.context);
                line.parameters.extend(chosen.map(|(name, value)| (name.to_owned(), value)));
                line.warnings = measured.warnings;
                line.warnings.extend(noise::run_warnings(foreign_load, steal));
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

/// The share of the processor time not taken by others that the run's programs obtained (1: all of it);
/// `None` if the run has no figure for its processors. Never above 1: a tick of 10 ms that began before the
/// run must not count as a gain.
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

    #[test]
    fn the_time_left_follows_the_runs_and_forgives_one_that_hangs() {
        let (second, left) = (Duration::from_secs(1), Duration::from_secs(100));
        let mut correction = EstimateCorrection::default();
        assert_eq!(correction.correct(left), left);
        for _ in 0..15 {
            correction.add(second, second * 2);
        }
        assert_eq!(correction.correct(left), Duration::from_secs(175), "30 + 5 seconds instead of 15 + 5");
        let mut hung = EstimateCorrection::default();
        hung.add(second, second * 20);
        assert_eq!(hung.correct(left), Duration::from_secs(150), "4 + 5 seconds instead of 1 + 5");
    }

    /// Reports the given duration as its estimate, and takes that long.
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

    /// The outcomes of three repetitions in each of two studies. `late`: how long ago the study began.
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
        let context = Context {
            bench: &crate::peer::PeerBench::default(),
            unisono: std::path::Path::new("unisono"),
            directory: directory.path(),
            cpus: &[0],
            interrupted: &|| None,
        };
        let began = Instant::now().checked_sub(late).expect("this machine runs for some minutes");
        let studies = [study("first"), study("second")];
        let ran = run(&studies, Profile::Quick, began, context, &mut records, &mut Unobserved).expect("ran");
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
}
