//! The section of a study: question, verdicts, figures, the paper, doubts, and how it was run.

use crate::study::Study;
use crate::{budgets, chart_figure, number, situations, wording};
use askama::Template;
use unisono_measure::noise;
use unisono_measure::record::{Better, Outcome, PointsAre, RunLine, Verdict};
use unisono_measure::verdict::Judgement;
use unisono_text::counted;

#[derive(Template)]
#[template(path = "study.html")]
pub(crate) struct StudySection<'a> {
    study: &'a Study<'a>,
    /// Whether the study's first figure is visible without unfolding.
    leads: bool,
    budgets: String,
    field: Option<RivalsTable>,
    warnings: Vec<String>,
    /// Further warnings, which the page hides until the reader unfolds them.
    more: Vec<String>,
    missing: Vec<(String, usize)>,
    how: String,
    /// Parameters with the same value in all measured runs, at most 16 of them.
    fixed: String,
}

impl<'a> StudySection<'a> {
    pub(crate) fn new(study: &'a Study<'a>, leads: bool) -> Self {
        let mut warnings = warnings(study);
        let more = warnings.split_off(if warnings.len() > 4 { 3 } else { warnings.len() });
        Self {
            budgets: budgets::html(study),
            field: RivalsTable::new(study),
            warnings,
            more,
            missing: missing(study),
            how: method_in_words(study),
            fixed: fixed_parameters(study).join(", "),
            leads,
            study,
        }
    }

    fn is_judged(&self) -> bool {
        self.study.judged.iter().any(|judged| !judged.is_empty())
    }
}

/// Returns the title of a sweep: `gangs against plain Linux (threads 2), by interval`.
fn comparison_in_words(study: &Study<'_>, verdict: &Verdict) -> String {
    let (ours, theirs) = wording::sides(study, verdict);
    let by = verdict.by.as_deref().unwrap_or_default();
    let fixed = wording::fixed_part(study, verdict);
    let fixed = if fixed.is_empty() { String::new() } else { format!(" ({})", fixed.join(", ")) };
    format!("{ours} against {theirs}{fixed}, by {}", study.label(by))
}

/// Several sweeps over the same points as a table: a row for each rival, a column for each point.
struct RivalsTable {
    places: Vec<String>,
    rows: Vec<RivalRow>,
    /// The place in the paper that gives the ratios in `papers`, if there are any.
    paper: Option<String>,
    papers: Vec<(String, Vec<String>)>,
    figure: String,
    /// A remark if less is better, otherwise empty.
    less: &'static str,
}

struct RivalRow {
    name: String,
    fixed: String,
    cells: Vec<String>,
}

impl RivalsTable {
    fn new(study: &Study<'_>) -> Option<Self> {
        let sweeps: Vec<(&Verdict, &[Judgement])> =
            study.verdicts().filter(|(verdict, judged)| verdict.by.is_some() && judged.len() > 1).collect();
        let (first, places) = sweeps.first()?;
        let alike = |(verdict, judged): &(&Verdict, &[Judgement])| {
            (&verdict.by, &verdict.figure, verdict.better) == (&first.by, &first.figure, first.better)
                && judged.iter().map(|j| &j.at).eq(places.iter().map(|j| &j.at))
        };
        if sweeps.len() < chart_figure::MIN_TABLE_ROWS || !sweeps.iter().all(alike) {
            return None;
        }
        let by = first.by.as_deref()?;
        let row = |(verdict, judged): &(&Verdict, &[Judgement])| {
            let (ours, theirs) = wording::sides(study, verdict);
            let cell = |judgement| situations::ratio_cell(Some((verdict, judgement)));
            RivalRow {
                name: format!("{ours} / {theirs}"),
                fixed: wording::fixed_part(study, verdict).join(", "),
                cells: judged.iter().map(cell).collect(),
            }
        };
        let papers =
            paper_ratios(study, &places.iter().filter_map(|j| j.at.as_ref()?.as_f64()).collect::<Vec<_>>());
        let places = places.iter().filter_map(|judgement| judgement.at.as_ref());
        Some(Self {
            places: places.map(|at| study.parameter_in_words(by, at)).collect(),
            rows: sweeps.iter().map(row).collect(),
            paper: study.head.paper.as_ref().filter(|_| !papers.is_empty()).map(|paper| paper.place.clone()),
            papers,
            figure: study.label(&first.figure),
            less: if first.better == Better::Lower { "; less is better" } else { "" },
        })
    }
}

/// Returns the paper's ratios at the same points: for each series, its name and its ratios.
fn paper_ratios(study: &Study<'_>, places: &[f64]) -> Vec<(String, Vec<String>)> {
    let Some(paper) = study.head.paper.as_ref().filter(|paper| paper.points_are == PointsAre::Ratios) else {
        return Vec::new();
    };
    let mut series: Vec<&str> = paper.points.iter().map(|point| point.series.as_str()).collect();
    series.dedup();
    let at = |name: &str, place: f64| {
        let here = paper.points.iter().find(|point| point.series == name && point.x == place);
        here.map_or_else(|| "\u{2013}".to_owned(), |point| wording::times_sign(point.y))
    };
    let row = |name: &str| (study.label(name), places.iter().map(|place| at(name, *place)).collect());
    series.into_iter().map(row).collect()
}

/// Returns reasons to doubt the figures: noise, and warnings of single runs. Runs without figures are in
/// `missing`.
fn warnings(study: &Study<'_>) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    let mut figures: Vec<&str> = study.head.verdicts.iter().map(|v| v.figure.as_str()).collect();
    if figures.is_empty() {
        figures = study.head.charts.iter().flat_map(|chart| &chart.y).map(String::as_str).collect();
    }
    figures.dedup();
    for figure in figures.into_iter().take(4) {
        for warning in noise::study_warnings(&study.runs, figure, &|run| study.circumstances(run)) {
            let warning = wording::capitalized(&warning);
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    let mut warned: Vec<(&str, usize)> = Vec::new();
    // the warnings above already sum up load and steal over the whole study
    let own = |run: &&RunLine| noise::run_warnings(run.host.foreign_load, run.host.steal);
    let others = study.runs.iter().flat_map(|run| {
        let summed = own(run);
        run.warnings.iter().filter(move |warning| !summed.contains(warning))
    });
    for warning in others {
        match warned.iter_mut().find(|(known, _)| known == warning) {
            Some((_, n)) => *n += 1,
            None => warned.push((warning, 1)),
        }
    }
    for (warning, n) in warned.into_iter().take(12) {
        warnings.push(format!("{}: {warning}", counted(n, "run")));
    }
    warnings
}

fn missing(study: &Study<'_>) -> Vec<(String, usize)> {
    let mut missing: Vec<(String, usize)> = Vec::new();
    for run in study.runs.iter().filter(|run| run.outcome != Outcome::Measured) {
        let reason = run.reason.as_deref().unwrap_or("no reason was recorded");
        let text = wording::capitalized(&format!(
            "{} {}: {reason}",
            study.label(&run.variant),
            run.outcome.in_words()
        ));
        match missing.iter_mut().find(|(known, _)| *known == text) {
            Some((_, n)) => *n += 1,
            None => missing.push((text, 1)),
        }
    }
    missing
}

/// Describes in words how the study was run: the number of runs by outcome, their total time, the
/// repetitions, the seeds.
fn method_in_words(study: &Study<'_>) -> String {
    let measured = study.count(Outcome::Measured);
    let mut parts = vec![format!("{} measured", counted(number::count(measured), "run"))];
    for kind in [Outcome::Disturbed, Outcome::Skipped, Outcome::Failed, Outcome::Interrupted, Outcome::Cut] {
        let n = study.count(kind);
        if n > 0 {
            parts.push(format!("{} {}", number::count(n), kind.in_words()));
        }
    }
    let seconds: f64 = study.runs.iter().map(|run| run.elapsed_s).filter(|s| s.is_finite()).sum();
    parts.push(number::duration(seconds));
    let repetitions = study.runs.iter().map(|run| run.repetition).max().map_or(0, |r| u64::from(r) + 1);
    parts.push(counted(repetitions, "repetition"));
    let seeds: Vec<u64> = study.runs.iter().map(|run| run.seed).collect();
    match (seeds.iter().min(), seeds.iter().max()) {
        (Some(a), Some(b)) if a == b => parts.push(format!("seed {a}")),
        (Some(_), Some(_)) => parts.push("a seed for each run, in the records".to_owned()),
        _ => {}
    }
    parts.join(", ")
}

fn fixed_parameters(study: &Study<'_>) -> Vec<String> {
    let measured: Vec<_> = study.runs.iter().filter(|run| run.outcome == Outcome::Measured).collect();
    let Some(first) = measured.first() else { return Vec::new() };
    first
        .parameters
        .iter()
        .filter(|(name, value)| measured.iter().all(|run| run.parameters.get(*name) == Some(*value)))
        .map(|(name, value)| study.parameter_in_words(name, value))
        .take(16)
        .collect()
}
