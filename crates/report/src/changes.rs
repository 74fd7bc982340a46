//! Compares two records of the same studies (two machines, two kernels, before and after).
//!
//! Runs of two records files are not neighbors in time, so nothing is paired: the comparison uses the medians
//! of a variant at the same parameters. The interval is the widest that the two median intervals allow: its
//! lower end is the lower end of one divided by the upper end of the other. Only figures that the studies
//! judge are compared.

use crate::number::{self, NO_BREAK_SPACE};
use crate::study::Study;
use crate::wording::{self, Tone};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use unisono_measure::interval::{Estimate, LEVEL, median_interval};
use unisono_measure::paired::MIN_PAIRS;
use unisono_measure::record::{Better, Outcome, RunLine};
use unisono_measure::verdict;
use unisono_text::counted;

/// A change of medians below this counts as none if its interval contains 1: two sets of runs could not show
/// it.
const MIN_UNSURE_CHANGE: f64 = 0.05;
/// A change below this does not matter, however sure it is.
const MIN_CHANGE: f64 = 0.02;
/// The maximum number of changes listed for a study.
const MAX_LINES: usize = 8;

/// A figure of a variant in both records.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordsChange {
    pub study: String,
    pub variant: String,
    pub figure: String,
    pub at: BTreeMap<String, Value>,
    pub finding: Tone,
    /// The median in the second records divided by that in the first, with its interval.
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
    /// Runs in the first and in the second records.
    pub runs: [usize; 2],
    pub words: String,
}

type PlaceRuns<'a> = ((&'a str, String), Vec<&'a RunLine>);

/// Returns the changes of each figure that both records have, study by study.
pub(crate) fn changes(first: &[Study<'_>], second: &[Study<'_>]) -> Vec<RecordsChange> {
    let mut changes = Vec::new();
    for study in second {
        let Some(before) = first.iter().find(|before| before.head.study == study.head.study) else {
            continue;
        };
        let mut figures: Vec<(&str, Better)> = Vec::new();
        for verdict in &study.head.verdicts {
            if !figures.iter().any(|(figure, _)| *figure == verdict.figure) {
                figures.push((&verdict.figure, verdict.better));
            }
        }
        let runs_by_place = runs_by_place(before);
        for (place, runs) in self::runs_by_place(study) {
            let Some((_, earlier)) = runs_by_place.iter().find(|(known, _)| *known == place) else {
                continue;
            };
            changes.extend(figures.iter().filter_map(|figure| change(study, *figure, earlier, &runs)));
        }
    }
    changes
}

/// Returns the measured runs, grouped by variant and parameters.
fn runs_by_place<'a>(study: &Study<'a>) -> Vec<PlaceRuns<'a>> {
    let mut runs_by_place: Vec<PlaceRuns<'a>> = Vec::new();
    for run in study.runs.iter().filter(|run| run.outcome == Outcome::Measured) {
        let place = (run.variant.as_str(), format!("{:?}", run.parameters));
        match runs_by_place.iter_mut().find(|(known, _)| *known == place) {
            Some((_, runs)) => runs.push(run),
            None => runs_by_place.push((place, vec![run])),
        }
    }
    runs_by_place
}

fn change(
    study: &Study<'_>,
    (figure, better): (&str, Better),
    earlier: &[&RunLine],
    later: &[&RunLine],
) -> Option<RecordsChange> {
    let median = |runs: &[&RunLine]| {
        let values: Vec<f64> = runs.iter().filter_map(|run| run.value(figure)).collect();
        median_interval(&values, LEVEL)
    };
    let (one, other) = (median(earlier)?, median(later)?);
    let ratio = Estimate {
        value: other.value / one.value,
        low: other.low / one.high,
        high: other.high / one.low,
        n: one.n.min(other.n),
        level: LEVEL,
    };
    if ![ratio.value, ratio.low, ratio.high].iter().all(|ratio| ratio.is_finite() && *ratio > 0.0) {
        return None;
    }
    let finding = finding(&ratio, better);
    let run = later.first()?;
    let is_less = ratio.value < 1.0 && finding != Tone::Same;
    let shown = if is_less { ratio.inverse() } else { ratio };
    let unit = study.unit(figure);
    let words = format!(
        "{}: {} from {} to {}, {} times {} ({} to {}; {} and {} runs): {}",
        study.circumstances(run),
        study.label(figure),
        number::quantity(one.value, &unit),
        number::quantity(other.value, &unit),
        verdict::format_ratio(shown.value),
        if is_less { "lower" } else { "as high" },
        verdict::format_ratio(shown.low),
        verdict::format_ratio(shown.high),
        one.n,
        other.n,
        finding.word()
    );
    Some(RecordsChange {
        study: study.head.study.clone(),
        variant: run.variant.clone(),
        figure: figure.to_owned(),
        at: run.parameters.clone(),
        finding,
        ratio: ratio.value,
        low: ratio.low,
        high: ratio.high,
        runs: [one.n, other.n],
        words,
    })
}

fn finding(ratio: &Estimate, better: Better) -> Tone {
    let (more, less) = match better {
        Better::Higher => (Tone::Better, Tone::Worse),
        Better::Lower => (Tone::Worse, Tone::Better),
    };
    if ratio.n < MIN_PAIRS {
        Tone::Undecided
    } else if (ratio.value - 1.0).abs() < if ratio.contains(1.0) { MIN_UNSURE_CHANGE } else { MIN_CHANGE } {
        Tone::Same
    } else if ratio.low > 1.0 {
        more
    } else if ratio.high < 1.0 {
        less
    } else {
        Tone::Undecided
    }
}

/// Writes for each study the number of changed figures and the largest changes; then the studies that could
/// not be compared.
pub(crate) fn in_words(changes: &[RecordsChange], first: &[Study<'_>], second: &[Study<'_>]) -> String {
    let mut text = String::new();
    for study in second {
        let of: Vec<&RecordsChange> =
            changes.iter().filter(|change| change.study == study.head.study).collect();
        if of.is_empty() {
            continue;
        }
        let tally = [Tone::Better, Tone::Worse, Tone::Same, Tone::Undecided].into_iter().filter_map(|tone| {
            let n = of.iter().filter(|change| change.finding == tone).count();
            (n > 0).then(|| format!("{n} {}", tone.word()))
        });
        let tally: Vec<String> = tally.collect();
        // writing to a String cannot fail
        let _infallible = writeln!(text, "\n{}: {}", study.head.title, tally.join(", "));
        let mut changed: Vec<&&RecordsChange> =
            of.iter().filter(|change| matches!(change.finding, Tone::Better | Tone::Worse)).collect();
        changed.sort_by(|a, b| b.ratio.ln().abs().total_cmp(&a.ratio.ln().abs()));
        for change in changed.iter().take(MAX_LINES) {
            let _infallible = writeln!(text, "  * {}", wording::capitalized(&change.words));
        }
        if changed.len() > MAX_LINES {
            let more = counted(changed.len() - MAX_LINES, "more change");
            let _infallible = writeln!(text, "  and {more}; all of them by --json");
        }
    }
    for (others, which) in [(first, "first"), (second, "second")] {
        let is_known = |study: &&Study<'_>| changes.iter().any(|change| change.study == study.head.study);
        let alone: Vec<&str> =
            others.iter().filter(|study| !is_known(study)).map(|study| study.head.study.as_str()).collect();
        if !alone.is_empty() {
            let studies = counted(alone.len(), "study");
            let _infallible =
                writeln!(text, "\nnot compared, {studies} of the {which}: {}", alone.join(", "));
        }
    }
    if let Some(least) = changes.iter().map(|change| change.runs[0].min(change.runs[1])).min() {
        text += &expected_by_chance(least);
    }
    text.replace(NO_BREAK_SPACE, " ")
}

/// Returns a sentence about the share of unchanged figures that seem to have changed, because by chance all
/// runs of one side exceed all runs of the other. Empty if there are too few runs to tell, or so many that
/// this hardly happens.
fn expected_by_chance(runs: usize) -> String {
    let orders = (1..=runs).fold(1.0, |product, i| product * (runs + i) as f64 / i as f64);
    if runs < MIN_PAIRS || orders > 400.0 {
        return String::new();
    }
    let (one_in, counted) = ((orders / 2.0).round(), counted(runs, "run"));
    format!(
        "\nWith {counted} on each side about one figure in {one_in} seems to have changed by chance; studies with --paper make ten.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::studies;
    use unisono_measure::record::{Figure, Line, StudyLine, Verdict};

    fn records(values: &[(&str, u32, f64)]) -> Vec<Line> {
        let verdict = Verdict {
            variant: "ours".into(),
            against: "theirs".into(),
            figure: "time".into(),
            better: Better::Lower,
            ..Verdict::default()
        };
        let head = StudyLine {
            study: "s".into(),
            title: "The study".into(),
            verdicts: vec![verdict],
            ..StudyLine::default()
        };
        let run = |(variant, threads, value): &(&str, u32, f64)| RunLine {
            study: "s".into(),
            variant: (*variant).into(),
            parameters: BTreeMap::from([("threads".to_owned(), (*threads).into())]),
            figures: vec![Figure::new("time", *value, "us")],
            ..RunLine::default()
        };
        let runs = values.iter().map(|value| Line::Run(Box::new(run(value))));
        std::iter::once(Line::Study(Box::new(head))).chain(runs).collect()
    }

    fn found(first: &[(&str, u32, f64)], second: &[(&str, u32, f64)]) -> Vec<(Tone, String)> {
        let (first, second) = (records(first), records(second));
        let changes = changes(&studies(&first), &studies(&second));
        changes
            .into_iter()
            .map(|change| (change.finding, change.words.replace(NO_BREAK_SPACE, " ")))
            .collect()
    }

    fn thrice(variant: &'static str, threads: u32, value: f64) -> Vec<(&'static str, u32, f64)> {
        [0.99, 1.0, 1.01].map(|wobble| (variant, threads, value * wobble)).into()
    }

    #[test]
    fn less_time_is_better_and_says_so_with_both_counts() {
        let changed = found(&thrice("ours", 2, 30.0), &thrice("ours", 2, 10.0));
        assert_eq!(changed[0].0, Tone::Better);
        assert_eq!(
            changed[0].1,
            "ours: time from 30 us to 10 us, 3.00 times lower (2.94 to 3.06; 3 and 3 runs): better"
        );
        assert_eq!(found(&thrice("ours", 2, 10.0), &thrice("ours", 2, 30.0))[0].0, Tone::Worse);
    }

    #[test]
    fn what_is_the_same_and_what_is_not_decided() {
        assert_eq!(found(&thrice("ours", 2, 10.0), &thrice("ours", 2, 10.1))[0].0, Tone::Same);
        let wide = [("ours", 2, 1.0), ("ours", 2, 20.0), ("ours", 2, 400.0)];
        assert_eq!(found(&wide, &thrice("ours", 2, 10.0))[0].0, Tone::Undecided);
        assert_eq!(found(&[("ours", 2, 1.0)], &[("ours", 2, 10.0)])[0].0, Tone::Undecided, "one run each");
    }

    #[test]
    fn of_three_runs_each_a_tenth_changes_by_chance() {
        assert!(expected_by_chance(3).contains("one figure in 10 "), "{}", expected_by_chance(3));
        assert!(expected_by_chance(4).contains("one figure in 35 "), "{}", expected_by_chance(4));
        assert_eq!((expected_by_chance(2), expected_by_chance(10)), (String::new(), String::new()));
    }

    #[test]
    fn studies_that_only_one_has_are_named() {
        let (both, empty) = (records(&thrice("ours", 2, 10.0)), Vec::new());
        let in_words = |first: &[Line], second: &[Line]| {
            let (first, second) = (studies(first), studies(second));
            in_words(&changes(&first, &second), &first, &second)
        };
        assert!(
            in_words(&both, &empty).contains("not compared, 1 study of the first: s\n"),
            "{}",
            in_words(&both, &empty)
        );
        assert!(in_words(&empty, &both).contains("not compared, 1 study of the second: s\n"));
        assert!(!in_words(&both, &both).contains("not compared"), "{}", in_words(&both, &both));
    }

    #[test]
    fn only_what_both_have_is_compared() {
        assert!(found(&thrice("ours", 2, 10.0), &thrice("ours", 4, 10.0)).is_empty(), "other parameters");
        assert!(found(&thrice("ours", 2, 10.0), &thrice("theirs", 2, 10.0)).is_empty(), "another variant");
        assert!(found(&thrice("ours", 2, 0.0), &thrice("ours", 2, 10.0)).is_empty(), "no ratio");
    }
}
