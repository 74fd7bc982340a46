//! The terminal's output at the end: for each study one line per variant and situation, and the verdicts in
//! words.
//!
//! The summary is a short form of the report and reads the same records. A variant's figure is its median
//! with the least and the greatest run, never a mean. If the runs have two modes, both are shown.

mod columns;
mod fold;

use columns::align_columns;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use unisono_measure::record::{Chart, Line, Outcome, RunLine, StudyLine};
use unisono_measure::verdict::{number, value_in_words};
use unisono_measure::{Evidence, modes, noise, quantile};
use unisono_text::counted;

/// Returns the summary. The texts in tables that are wider than `width` characters are folded.
pub fn summary_text(lines: &[Line], width: usize) -> String {
    let mut out = String::new();
    for study in lines.iter().filter_map(Line::study) {
        let runs: Vec<&RunLine> =
            lines.iter().filter_map(Line::run).filter(|run| run.study == study.study).collect();
        if !runs.is_empty() {
            out.push_str(&study_summary(study, &runs, width));
        }
    }
    out
}

fn study_summary(study: &StudyLine, runs: &[&RunLine], width: usize) -> String {
    let mut out = format!("\n{}\n  {}\n", study.title, study.question);
    // the first chart that has runs, because a smoke run has few of the parameters
    let has_runs =
        |c: &&Chart| runs.iter().any(|r| r.outcome == Outcome::Measured && r.has_parameters(&c.only));
    let chart = study.charts.iter().find(has_runs).or(study.charts.first());
    let figure = chart.and_then(|c| c.y.first()).map_or("barriers_per_s", String::as_str);
    out.push_str(&table(study, figure, runs, width));
    for line in fold::lines(study, runs, figure) {
        // writing to a String cannot fail
        let _infallible = writeln!(out, "  * {line}");
    }
    let differs = varying(runs);
    let place = |run: &RunLine| circumstances(study, &differs, run);
    for warning in noise::study_warnings(runs, figure, &place) {
        let _infallible = writeln!(out, "  ! {warning}");
    }
    out
}

/// The values of a variant under one set of parameters; its runs differ only in the repetition.
struct SummaryRow<'a> {
    variant: &'a str,
    /// Values of the [`varying`] parameters, in their order.
    at: Vec<String>,
    values: Vec<f64>,
    rounds: BTreeSet<u32>,
    unit: &'a str,
}

/// Returns one row for each variant and each combination of varying parameters, so that a row never mixes
/// different points.
fn summary_rows<'a>(figure: &str, varying: &[String], runs: &[&'a RunLine]) -> Vec<SummaryRow<'a>> {
    let mut rows: Vec<SummaryRow<'_>> = Vec::new();
    for run in runs {
        let Some(value) = run.value(figure) else { continue };
        let at: Vec<String> =
            varying.iter().map(|p| run.parameters.get(p).map_or_else(String::new, value_in_words)).collect();
        match rows.iter_mut().find(|row| row.variant == run.variant && row.at == at) {
            Some(row) => {
                row.values.push(value);
                row.rounds.insert(run.repetition);
            }
            None => {
                let unit = run.figures.iter().find(|f| f.name == figure).map_or("", |f| f.unit.as_str());
                let rounds = BTreeSet::from([run.repetition]);
                rows.push(SummaryRow { variant: &run.variant, at, values: vec![value], rounds, unit });
            }
        }
    }
    // sorted by the varying parameters (as numbers if they are numbers), then in order of appearance
    let place = |row: &SummaryRow<'_>| -> Vec<(f64, String)> {
        row.at.iter().map(|t| (t.parse().unwrap_or(f64::MAX), t.clone())).collect()
    };
    rows.sort_by(|a, b| place(a).partial_cmp(&place(b)).unwrap_or(std::cmp::Ordering::Equal));
    rows
}

fn table(study: &StudyLine, figure: &str, runs: &[&RunLine], width: usize) -> String {
    let label = |name: &str| study.labels.get(name).map_or_else(|| name.to_owned(), Clone::clone);
    let varying = varying(runs);
    let rows = summary_rows(figure, &varying, runs);
    let mut cells: Vec<Vec<String>> = Vec::new();
    if !rows.is_empty() {
        let mut head = vec![String::new()];
        head.extend(varying.iter().map(|p| label(p)));
        head.extend([format!("{}, median", label(figure)), "least".into(), "greatest".into(), "n".into()]);
        head.push(String::new());
        cells.push(head);
    }
    for SummaryRow { variant, at, values, rounds, unit } in rows {
        let quantile = |q| quantile::quantile(&values, q).unwrap_or(f64::NAN);
        let unit = if unit == "1" { String::new() } else { format!(" {unit}") };
        let mut row = vec![label(variant)];
        row.extend(at);
        let modes = modes::two_modes(&values);
        // no run had a value between the two modes
        row.push(modes.map_or_else(|| format!("{}{unit}", number(quantile(0.5))), |_| "two modes".into()));
        row.extend([number(quantile(0.0)), number(quantile(1.0)), values.len().to_string()]);
        row.push(modes.map_or_else(|| few_rounds(rounds.len(), values.len()), |m| m.to_string()));
        cells.push(row);
    }
    let mut out = align_columns(&cells, 1 + varying.len(), width);
    for (what, reason, count) in missing_reasons(study, runs) {
        let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
        let _infallible = writeln!(out, "  - {what}{times}: {reason}");
    }
    out
}

/// Returns the mark of a row with too few rounds for a conclusion, otherwise an empty text. A round may have
/// several runs of a variant, which are neighbors in time.
fn few_rounds(rounds: usize, runs: usize) -> String {
    let seen = Evidence { rounds, spread: None }.too_few_in_words();
    seen.map_or_else(String::new, |seen| match rounds == runs {
        true => seen.to_owned(),
        false => format!("in {}", counted(rounds, "round")),
    })
}

/// Returns the runs that were not measured, with the reason and the number of times.
fn missing_reasons<'a>(study: &StudyLine, runs: &[&'a RunLine]) -> Vec<(String, &'a str, usize)> {
    let mut reasons: Vec<(String, &str, usize)> = Vec::new();
    for run in runs.iter().filter(|r| r.outcome != Outcome::Measured) {
        let label = study.labels.get(&run.variant).unwrap_or(&run.variant);
        let reason = run.reason.as_deref().unwrap_or("no reason given");
        let what = format!("{label} {}", run.outcome.in_words());
        match reasons.iter_mut().find(|(w, r, _)| *w == what && *r == reason) {
            Some(known) => known.2 += 1,
            None => reasons.push((what, reason, 1)),
        }
    }
    reasons
}

/// Returns a run's variant, and the parameters in which it differs from other runs.
fn circumstances(study: &StudyLine, differs: &[String], run: &RunLine) -> String {
    let label = |name: &str| study.labels.get(name).map_or_else(|| name.to_owned(), Clone::clone);
    let values = differs.iter().filter_map(|name| Some((name, run.parameters.get(name)?)));
    let place: Vec<String> =
        values.map(|(name, value)| format!("{} = {}", label(name), value_in_words(value))).collect();
    let at = if place.is_empty() { "" } else { " at " };
    format!("{}{at}{}", label(&run.variant), place.join(", "))
}

/// Returns the parameters with more than one value among the measured runs.
fn varying(runs: &[&RunLine]) -> Vec<String> {
    let mut seen: BTreeMap<&str, Vec<&serde_json::Value>> = BTreeMap::new();
    for run in runs.iter().filter(|r| r.outcome == Outcome::Measured) {
        for (name, value) in &run.parameters {
            let values = seen.entry(name).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    seen.into_iter().filter(|(_, values)| values.len() > 1).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::StudyFile;
    use crate::library;
    use crate::plan::plan;
    use crate::profile::Profile;
    use unisono_measure::record::{Figure, Verdict};
    use unisono_measure::verdict::{self, Answer};

    fn run(variant: &str, repetition: u32, interval: u32, value: f64) -> Line {
        Line::Run(Box::new(RunLine {
            study: "s".into(),
            variant: variant.into(),
            repetition,
            parameters: BTreeMap::from([
                ("interval_us".to_owned(), interval.into()),
                ("threads".to_owned(), 2.into()),
            ]),
            figures: vec![Figure::new("rate", value, "1/s")],
            ..RunLine::default()
        }))
    }

    #[test]
    fn the_summary_says_medians_modes_skips_and_verdicts() {
        let study = StudyLine {
            study: "s".into(),
            title: "Granularity".into(),
            question: "How fine?".into(),
            charts: vec![Chart { y: vec!["rate".into()], ..Chart::default() }],
            verdicts: vec![Verdict {
                variant: "gang".into(),
                against: "linux".into(),
                figure: "rate".into(),
                sides: Some(["gangs", "plain Linux"].map(str::to_owned)),
                only: BTreeMap::from([("interval_us".to_owned(), 0.into())]),
                ..Verdict::default()
            }],
            labels: BTreeMap::from([("linux".to_owned(), "plain Linux".to_owned())]),
            ..StudyLine::default()
        };
        let mut lines = vec![Line::Study(Box::new(study))];
        for (i, slow) in [37e3, 5e6, 38e3, 5e6, 37.5e3].into_iter().enumerate() {
            lines.extend([
                run("linux", i as u32, 0, slow),
                run("gang", i as u32, 0, 12e6),
                run("gang", i as u32, 10, 1e5),
            ]);
        }
        lines.push(Line::Run(Box::new(RunLine {
            study: "s".into(),
            variant: "nice".into(),
            outcome: Outcome::Skipped,
            reason: Some("needs root".into()),
            ..RunLine::default()
        })));
        let text = summary_text(&lines, usize::MAX);
        for part in [
            "plain Linux",
            "two modes: 37,500 (n = 3) and 5,000,000 (n = 2)",
            "12,000,000 1/s",
            "100,000 1/s     100,000     100,000  5\n",
            "nice skipped: needs root",
            "gangs against plain Linux: ",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        assert!(!text.contains("threads"), "what does not vary is no column\n{text}");
        assert!(!text.contains("seen "), "five rounds\n{text}");
        lines.retain(|line| !matches!(line, Line::Run(run) if run.repetition >= 2));
        let few = summary_text(&lines, usize::MAX);
        assert_eq!(few.matches("seen twice").count(), 3, "two rounds of each row\n{few}");
        // a second start in each of the two rounds
        lines.extend([run("gang", 0, 10, 1e5), run("gang", 1, 10, 1e5)]);
        let more = summary_text(&lines, usize::MAX);
        assert!(more.contains("  4  in 2 rounds\n"), "{more}");
        lines.retain(|line| !matches!(line, Line::Run(run) if run.repetition == 1));
        assert!(
            summary_text(&lines, usize::MAX).contains("  1  seen once\n"),
            "{}",
            summary_text(&lines, usize::MAX)
        );
    }

    /// Returns the runs of a plan, with values that depend only on variant and parameters.
    fn as_planned(file: &StudyFile, profile: Profile, figure: &str) -> Vec<RunLine> {
        let plan = plan(file, profile, 1).expect("a built-in study");
        let mut known: Vec<(String, BTreeMap<String, serde_json::Value>)> = Vec::new();
        let mut number = |variant: &str, parameters: &BTreeMap<String, serde_json::Value>| {
            let wanted = (variant.to_owned(), parameters.clone());
            let place = known.iter().position(|k| *k == wanted).unwrap_or_else(|| {
                known.push(wanted);
                known.len() - 1
            });
            (place + 1) as f64
        };
        plan.runs
            .into_iter()
            .map(|planned| RunLine {
                figures: vec![Figure::new(figure, number(&planned.variant, &planned.parameters), "1")],
                study: file.id.clone(),
                variant: planned.variant,
                parameters: planned.parameters,
                repetition: planned.repetition,
                ..RunLine::default()
            })
            .collect()
    }

    #[test]
    fn no_row_of_any_study_takes_different_things_together() {
        for file in library::studies().expect("the built-in studies") {
            for profile in [Profile::Smoke, Profile::Quick, Profile::Paper] {
                let runs = as_planned(&file, profile, "rate");
                let runs: Vec<&RunLine> = runs.iter().collect();
                let rows = summary_rows("rate", &varying(&runs), &runs);
                let mut seen = Vec::new();
                for row in &rows {
                    assert!(row.values.iter().all(|v| *v == row.values[0]), "{}: {:?}", file.id, row.at);
                    assert!(!seen.contains(&row.values[0]), "{}: two rows of {:?}", file.id, row.at);
                    seen.push(row.values[0]);
                }
            }
        }
    }

    #[test]
    fn no_verdict_of_any_study_takes_different_things_together() {
        for file in library::studies().expect("the built-in studies") {
            for profile in [Profile::Smoke, Profile::Quick, Profile::Paper] {
                for verdict in file.line(profile).verdicts {
                    let runs = as_planned(&file, profile, &verdict.figure);
                    for judged in verdict::judge(&verdict, &runs.iter().collect::<Vec<_>>()) {
                        let Answer::Compared { comparison, .. } = judged.answer else { continue };
                        let (low, high) = (comparison.ratio.low, comparison.ratio.high);
                        assert!((low - high).abs() < 1e-12, "{}: {}", file.id, judged.words);
                    }
                }
            }
        }
    }
}
