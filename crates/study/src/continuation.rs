//! More runs for the comparisons that the records leave undecided.
//!
//! The idea: a further repetition runs only the variants and the parameter points of undecided comparisons.
//! So the time goes where an interval is still too wide, and new runs pair with one another as the old ones
//! do.
//!
//! Cost: as [`unisono_measure::verdict::judge`] for each comparison.

use crate::file::StudyFile;
use crate::plan::{self, PlannedRun, RunPlan};
use crate::profile::Profile;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use unisono_measure::record::{Line, RunLine, StudyLine, Verdict};
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
        let has_side = |side: &String| {
            // a run with parts is recorded under its own name and the part's
            side.strip_prefix(&run.variant).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let line = RunLine { parameters: run.parameters.clone(), ..RunLine::default() };
        let known = self.place.iter().filter(|(name, _)| run.parameters.contains_key(*name));
        self.sides.iter().any(has_side)
            && line.has_parameters(&known.map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

/// The undecided comparisons of these records, and the number of all comparisons that have an answer or would
/// have one.
pub fn undecided(lines: &[Line]) -> (Vec<UndecidedComparison>, usize) {
    let (mut undecided, mut all) = (Vec::new(), 0);
    for study in heads(lines) {
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

/// The studies of these records.
pub fn heads(lines: &[Line]) -> impl Iterator<Item = &StudyLine> {
    lines.iter().filter_map(|line| match line {
        Line::Study(study) => Some(&**study),
        Line::Run(_) => None,
    })
}

fn runs(lines: &[Line]) -> impl Iterator<Item = &RunLine> {
    lines.iter().filter_map(|line| match line {
        Line::Run(run) => Some(&**run),
        Line::Study(_) => None,
    })
}

/// The next repetition of a study, of the runs that its undecided comparisons need.
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
    plan.runs.retain(|run| own().any(|one| one.takes(run)));
    plan.estimate = plan.runs.iter().map(|run| run.estimate).sum();
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::{Figure, Outcome};

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

    /// Records in which gangs are clearly better at 0 us, and undecided at 10 us.
    fn records(file: &StudyFile) -> Vec<Line> {
        let runs = [0.5, 2.0, 1.1, 0.8].into_iter().enumerate().flat_map(|(repetition, at_ten)| {
            let repetition = repetition as u32;
            [(0, "gang", 9.0), (0, "linux", 1.0), (10, "gang", at_ten), (10, "linux", 1.0)]
                .map(|(interval, variant, value)| run(variant, repetition, interval, value))
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
        // twenty alike decide
        for repetition in 4..24 {
            lines.extend([run("gang", repetition, 10, 1.5), run("linux", repetition, 10, 1.0)]);
        }
        assert_eq!(undecided(&lines), (Vec::new(), 2));
    }
}
