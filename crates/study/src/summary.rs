//! What a terminal shows at the end: per study one line a variant, and the verdicts in words.
//!
//! The idea: the summary is the report's short form and reads the same records. A variant's figure is its
//! median with least and greatest run, never a mean; where runs fall into two modes, both are said.

use std::collections::BTreeMap;
use std::fmt::Write;
use unisono_measure::record::{Chart, Line, Outcome, RunLine, StudyLine};
use unisono_measure::verdict::{self, number};
use unisono_measure::{modes, noise, quantile};

/// The summary of these records, as text for a terminal.
#[must_use]
pub fn text(lines: &[Line]) -> String {
    let mut out = String::new();
    for line in lines {
        let Line::Study(study) = line else { continue };
        let runs: Vec<&RunLine> = lines
            .iter()
            .filter_map(|l| match l {
                Line::Run(run) if run.study == study.study => Some(&**run),
                _ => None,
            })
            .collect();
        if !runs.is_empty() {
            out.push_str(&of_study(study, &runs));
        }
    }
    out
}

fn of_study(study: &StudyLine, runs: &[&RunLine]) -> String {
    let mut out = format!("\n{}\n  {}\n", study.title, study.question);
    // the first chart that these runs have something for: a smoke run has few of the parameters
    let has_runs = |c: &&Chart| runs.iter().any(|r| r.outcome == Outcome::Measured && r.has(&c.only));
    let chart = study.charts.iter().find(has_runs).or(study.charts.first());
    let figure = chart.and_then(|c| c.y.first()).map_or("barriers_per_s", String::as_str);
    let drawn: Vec<&RunLine> = runs
        .iter()
        .copied()
        .filter(|r| chart.is_none_or(|c| r.outcome != Outcome::Measured || r.has(&c.only)))
        .collect();
    out.push_str(&table(study, figure, &drawn));
    for verdict in study.verdicts.iter().filter(|v| runs.iter().any(|r| r.has(&v.only))) {
        for judged in verdict::judge(verdict, runs) {
            // writing to a String cannot fail
            let _infallible = writeln!(out, "  * {}", judged.words);
        }
    }
    for warning in noise::warnings(runs, figure) {
        let _infallible = writeln!(out, "  ! {warning}");
    }
    out
}

/// One row a variant and value of what varies.
fn table(study: &StudyLine, figure: &str, runs: &[&RunLine]) -> String {
    let varying = varying(runs);
    let mut rows: Vec<(Vec<String>, Vec<f64>, String)> = Vec::new();
    let mut reasons: Vec<(String, &str, usize)> = Vec::new();
    for run in runs {
        let label = study.labels.get(&run.variant).unwrap_or(&run.variant).clone();
        if run.outcome != Outcome::Measured {
            let reason = run.reason.as_deref().unwrap_or("no reason given");
            let what = format!("{label} {}", name_of(run.outcome));
            match reasons.iter_mut().find(|(w, r, _)| *w == what && *r == reason) {
                Some(known) => known.2 += 1,
                None => reasons.push((what, reason, 1)),
            }
            continue;
        }
        let Some(value) = run.value(figure) else { continue };
        let unit = run.figures.iter().find(|f| f.name == figure).map_or("", |f| f.unit.as_str());
        let mut key = vec![label];
        key.extend(varying.iter().map(|p| run.parameters.get(p).map_or_else(String::new, plain)));
        match rows.iter_mut().find(|(k, _, _)| *k == key) {
            Some(row) => row.1.push(value),
            None => rows.push((key, vec![value], unit.to_owned())),
        }
    }
    sort(&mut rows);
    let mut cells: Vec<Vec<String>> = Vec::new();
    if !rows.is_empty() {
        let mut head = vec![String::new()];
        head.extend(varying.iter().map(|p| study.labels.get(p).unwrap_or(p).clone()));
        let figure = study.labels.get(figure).map_or(figure, String::as_str);
        head.extend([
            format!("{figure}, median"),
            "least".into(),
            "greatest".into(),
            "n".into(),
            String::new(),
        ]);
        cells.push(head);
    }
    for (mut key, values, unit) in rows {
        let at = |q| quantile::quantile(&values, q).unwrap_or(f64::NAN);
        let unit = if unit == "1" { String::new() } else { format!(" {unit}") };
        key.push(format!("{}{unit}", number(at(0.5))));
        key.extend([number(at(0.0)), number(at(1.0)), values.len().to_string()]);
        key.push(modes::two_modes(&values).map_or_else(String::new, |m| m.to_string()));
        cells.push(key);
    }
    let mut out = columns(&cells, 1 + varying.len());
    for (what, reason, count) in reasons {
        let times = if count > 1 { format!(" ({count} times)") } else { String::new() };
        let _infallible = writeln!(out, "  - {what}{times}: {reason}");
    }
    out
}

/// Parameters with more than one value among the measured runs.
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

/// By the varying parameters (as numbers where they are), then in order of appearance.
fn sort(rows: &mut [(Vec<String>, Vec<f64>, String)]) {
    rows.sort_by(|a, b| {
        let of = |row: &(Vec<String>, Vec<f64>, String)| -> Vec<(f64, String)> {
            row.0[1..].iter().map(|t| (t.parse().unwrap_or(f64::MAX), t.clone())).collect()
        };
        of(a).partial_cmp(&of(b)).unwrap_or(std::cmp::Ordering::Equal)
    });
}

/// Cells in columns; the first `left` ones to the left, the others to the right, the last as it comes.
fn columns(cells: &[Vec<String>], left: usize) -> String {
    let count = cells.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |c: usize| cells.iter().filter_map(|row| row.get(c)).map(|t| t.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut out = String::new();
    for row in cells {
        let mut line = String::from("   ");
        for (c, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[c].saturating_sub(cell.chars().count()));
            let text =
                if c < left || c + 1 == count { format!(" {cell}{pad}") } else { format!(" {pad}{cell}") };
            line.push_str(&text);
            line.push(' ');
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn name_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Measured => "measured",
        Outcome::Skipped => "skipped",
        Outcome::Failed => "failed",
        Outcome::Interrupted => "interrupted",
    }
}

fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::{Figure, Verdict};

    fn run(variant: &str, repetition: u32, interval: u32, value: f64) -> Line {
        Line::Run(Box::new(RunLine {
            study: "s".into(),
            variant: variant.into(),
            repetition,
            parameters: BTreeMap::from([
                ("interval_us".to_owned(), interval.into()),
                ("threads".to_owned(), 2.into()),
            ]),
            figures: vec![Figure { name: "rate".into(), value, unit: "1/s".into(), distribution: None }],
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
                words: "gangs against plain Linux".into(),
                only: BTreeMap::from([("interval_us".to_owned(), 0.into())]),
                ..Verdict::default()
            }],
            labels: BTreeMap::from([("linux".to_owned(), "plain Linux".to_owned())]),
            ..StudyLine::default()
        };
        let mut lines = vec![Line::Study(Box::new(study))];
        for (i, slow) in [37e3, 5e6, 38e3].into_iter().enumerate() {
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
        let said = text(&lines);
        for part in [
            "plain Linux",
            "two modes: 37,500 (n = 2) and 5,000,000 (n = 1)",
            "12,000,000 1/s",
            "nice skipped: needs root",
            "gangs against plain Linux: ",
        ] {
            assert!(said.contains(part), "{part:?} is missing in\n{said}");
        }
        assert!(!said.contains("threads"), "what does not vary is no column\n{said}");
    }
}
