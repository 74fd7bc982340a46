//! More runs for the comparisons that the records leave undecided, and for figures with too few rounds for a
//! conclusion.
//!
//! The idea: a further repetition runs only the variants and the parameter points of undecided comparisons,
//! and of comparisons with fewer rounds than a conclusion needs, because the study ended early or its runs
//! stayed disturbed. So the time is spent where an interval is still too wide, and new runs are paired with
//! one another as the old runs are.
//!
//! Cost: one call of [`unisono_measure::verdict::judge`] for each comparison.

use crate::file::StudyFile;
use crate::plan::{self, PlannedRun, RunPlan};
use crate::profile::Profile;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use unisono_measure::evidence::MIN_ROUNDS;
use unisono_measure::record::{Line, Outcome, RunLine, Verdict};
use unisono_measure::time_to_decide;
use unisono_measure::verdict::judge;

/// A comparison at one place that more runs would decide.
#[derive(Clone, Debug, PartialEq)]
pub struct UndecidedComparison {
    pub study: String,
    /// The variants of both sides.
    pub sides: [String; 2],
    /// The parameter values of the runs compared.
    pub place: BTreeMap<String, Value>,
    /// The time until it is decided, if further runs are like those so far.
    pub needs: Duration,
}

impl UndecidedComparison {
    /// Whether a planned run gives a value to this comparison.
    fn takes(&self, run: &PlannedRun) -> bool {
        let has_side = |side: &String| is_recorded_as(side, &run.variant);
        let line = RunLine { parameters: run.parameters.clone(), ..RunLine::default() };
        let known = self.place.iter().filter(|(name, _)| run.parameters.contains_key(*name));
        self.sides.iter().any(has_side)
            && line.has_parameters(&known.map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

/// Returns the undecided comparisons of these records, and the number of all comparisons that have an answer
/// or would have one.
pub fn undecided(lines: &[Line]) -> (Vec<UndecidedComparison>, usize) {
    let (mut undecided, mut all) = (Vec::new(), 0);
    for study in lines.iter().filter_map(Line::study) {
        let runs: Vec<&RunLine> = runs(lines).filter(|run| run.study == study.study).collect();
        let judged = study
            .verdicts
            .iter()
            .flat_map(|verdict| judge(verdict, &runs).into_iter().map(move |j| (verdict, j)));
        for (verdict, judgement) in judged {
            all += usize::from(judgement.comparison().is_some() || judgement.time_to_decide.is_some());
            let Some(needs) = judgement.time_to_decide else { continue };
            let Verdict { variant, against, .. } = verdict;
            undecided.push(UndecidedComparison {
                study: study.study.clone(),
                sides: [variant.clone(), against.clone()],
                place: judgement.place,
                needs,
            });
        }
    }
    (undecided, all)
}

/// Whether a planned run was made in fewer rounds than a conclusion needs, and can be made here.
fn is_seen_once(file: &StudyFile, run: &PlannedRun, recorded: &[&RunLine]) -> bool {
    let is_other =
        |name: &String| file.variants.iter().any(|other| other.name == *name && *name != run.variant);
    let is_own = |name: &String| is_recorded_as(name, &run.variant) && !is_other(name);
    let of_variant: Vec<&&RunLine> = recorded.iter().filter(|line| is_own(&line.variant)).collect();
    let here = || of_variant.iter().filter(|line| line.has_parameters(&run.parameters));
    let rounds: BTreeSet<u32> =
        here().filter(|line| line.outcome == Outcome::Measured).map(|line| line.repetition).collect();
    // a variant that this host cannot run has one record for all parameters
    let is_impossible = of_variant.iter().any(|line| line.outcome == Outcome::Skipped)
        || here().any(|line| line.outcome == Outcome::Failed);
    rounds.len() < MIN_ROUNDS && !is_impossible
}

/// Whether the runs of a variant are recorded under this name: a run with parts is recorded under its own
/// name and the part's.
fn is_recorded_as(name: &str, variant: &str) -> bool {
    name.strip_prefix(variant).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Returns the time until each figure of these studies has the rounds that a conclusion needs; `None` if each
/// has.
pub fn time_to_see_again<'f>(lines: &[Line], files: impl Iterator<Item = &'f StudyFile>) -> Option<Duration> {
    let timed: Vec<&str> = files.filter(|file| !file.driver.is_simulated).map(|file| &*file.id).collect();
    let of_timed = runs(lines).filter(|run| timed.contains(&run.study.as_str()));
    time_to_decide::time_to_see_again(&of_timed.collect::<Vec<_>>())
}

fn runs(lines: &[Line]) -> impl Iterator<Item = &RunLine> {
    lines.iter().filter_map(Line::run)
}

/// Plans the next repetition of a study: only the runs that its undecided comparisons need.
pub fn next_repetition(
    file: &StudyFile,
    profile: Profile,
    seed: u64,
    lines: &[Line],
    undecided: &[UndecidedComparison],
) -> Result<RunPlan, String> {
    let recorded = runs(lines).filter(|run| run.study == file.id).map(|run| run.repetition + 1);
    let next = recorded.max().unwrap_or(0);
    let mut plan = plan::plan_repetitions(file, profile, seed, next..next + 1)?;
    let own = || undecided.iter().filter(|one| one.study == file.id);
    let recorded: Vec<&RunLine> = runs(lines).filter(|run| run.study == file.id).collect();
    plan.runs.retain(|run| {
        own().any(|one| one.takes(run)) || !file.driver.is_simulated && is_seen_once(file, run, &recorded)
    });
    plan.estimate = plan.runs.iter().map(|run| run.estimate).sum();
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::Figure;

    const FILE: &str = r#"
id = "example"
topic = "gang"
title = "t"
question = "q"
method = "m"
driver = "pair"
repetitions = { smoke = 1, quick = 4, paper = 10 }
seconds = { smoke = 0.01, quick = 0.1, paper = 1.0 }
settings = { threads = 2 }
[[variant]]
name = "linux"
settings = { regime = "linux" }
[[variant]]
name = "gang"
settings = { regime = "gang" }
[[variant]]
name = "spread"
settings = { regime = "spread" }
[[sweep]]
parameter = "interval_us"
values = { smoke = [0], quick = [0, 10], paper = [0, 10, 100] }
[[verdict]]
compare = "gang/linux.work@interval_us=each"
"#;

    fn run(variant: &str, repetition: u32, interval: u32, value: f64) -> Line {
        Line::Run(Box::new(RunLine {
            study: "example".into(),
            variant: variant.into(),
            repetition,
            parameters: BTreeMap::from([
                ("interval_us".to_owned(), interval.into()),
                ("threads".to_owned(), 2.into()),
            ]),
            figures: vec![Figure::new("work", value, "1/s")],
            elapsed_s: 1.0,
            outcome: Outcome::Measured,
            ..RunLine::default()
        }))
    }

    /// Records in which gangs are clearly better at 0 us, and undecided at 10 us. Pinned threads have no
    /// verdict.
    fn records(file: &StudyFile) -> Vec<Line> {
        let runs = [0.5, 2.0, 1.1, 0.8].into_iter().enumerate().flat_map(|(repetition, at_ten)| {
            let repetition = repetition as u32;
            let compared = [(0, "gang", 9.0), (0, "linux", 1.0), (10, "gang", at_ten), (10, "linux", 1.0)];
            let all = compared.into_iter().chain([(0, "spread", 5.0), (10, "spread", 1.0)]);
            all.map(move |(interval, variant, value)| run(variant, repetition, interval, value))
        });
        std::iter::once(Line::Study(Box::new(file.line(Profile::Quick)))).chain(runs).collect()
    }

    #[test]
    fn the_next_repetition_has_only_the_runs_of_undecided_comparisons() {
        let file = StudyFile::parse("f", FILE).expect("a good file");
        let mut lines = records(&file);
        let (open, all) = undecided(&lines);
        assert_eq!((open.len(), all), (1, 2), "{open:?}");
        assert_eq!(open[0].place["interval_us"], 10);
        assert!(open[0].needs > Duration::from_secs(2), "more than one pair of two seconds: {open:?}");
        let next = next_repetition(&file, Profile::Quick, 1, &lines, &open).expect("planned");
        let mut planned: Vec<(&str, u32)> =
            next.runs.iter().map(|run| (&*run.variant, run.repetition)).collect();
        planned.sort_unstable();
        assert_eq!(planned, [("gang", 4), ("linux", 4)], "no spread, and nothing at 0 us");
        assert!(next.runs.iter().all(|run| run.parameters["interval_us"] == 10));
        // twenty pairs with similar ratios decide the comparison
        for repetition in 4..24 {
            lines.extend([run("gang", repetition, 10, 1.5), run("linux", repetition, 10, 1.0)]);
        }
        assert_eq!(undecided(&lines), (Vec::new(), 2));
        let next = next_repetition(&file, Profile::Quick, 1, &lines, &[]).expect("planned");
        assert!(next.runs.is_empty(), "{next:?}");
    }

    #[test]
    fn a_study_that_ended_early_is_continued_where_it_ended() {
        let file = StudyFile::parse("f", FILE).expect("a good file");
        let head = Line::Study(Box::new(file.line(Profile::Quick)));
        let failed = |variant: &str, outcome| match run(variant, 0, 0, 0.0) {
            Line::Run(run) => Line::Run(Box::new(RunLine { outcome, ..*run })),
            head => head,
        };
        let ended = [head, run("linux", 0, 0, 1.0), failed("spread", Outcome::Skipped)];
        let next = next_repetition(&file, Profile::Quick, 1, &ended, &[]).expect("planned");
        let mut planned: Vec<(&str, u64)> = next
            .runs
            .iter()
            .map(|run| (&*run.variant, run.parameters["interval_us"].as_u64().expect("a number")))
            .collect();
        planned.sort_unstable();
        assert_eq!(
            planned,
            [("gang", 0), ("gang", 10), ("linux", 0), ("linux", 10)],
            "spread cannot run here"
        );
        let needs = time_to_see_again(&ended, std::iter::once(&file));
        assert_eq!(needs, Some(Duration::from_secs(2)), "two rounds more of the run that was made");
    }
}
