//! The records of one study: names, units, the runs of a chart's rows, the verdicts.

use crate::draw::style::{ReportStyles, VariantStyles};
use crate::escape::{Escaped, slug};
use crate::number;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use unisono_measure::record::{
    Better, Chart, ChartKind, Line, Outcome, Question, RunLine, StudyLine, Verdict,
};
use unisono_measure::verdict::{Answer, Judgement, judge};
use unisono_measure::{Comparison, Evidence, Selector, quantile};

/// Topics whose answers come from a simulation and are about other machines.
pub(crate) const SIMULATED: [&str; 2] = ["gang-map", "tree"];

#[derive(Clone)]
pub struct Study<'a> {
    pub head: Cow<'a, StudyLine>,
    pub runs: Vec<&'a RunLine>,
    pub(crate) styles: VariantStyles,
    /// One entry for each verdict of the head.
    pub(crate) judged: Vec<Vec<Judgement>>,
}

/// Sorts lines into studies, in the order of the report.
pub fn studies(lines: &[Line]) -> Vec<Study<'_>> {
    let mut order: Vec<&str> = Vec::new();
    let mut heads: BTreeMap<&str, &StudyLine> = BTreeMap::new();
    let mut runs: BTreeMap<&str, Vec<&RunLine>> = BTreeMap::new();
    for line in lines {
        let id = match line {
            Line::Study(head) => {
                // a resumed study writes its head again; the last head counts
                heads.insert(&head.study, head);
                head.study.as_str()
            }
            Line::Run(run) => {
                runs.entry(&run.study).or_default().push(run);
                run.study.as_str()
            }
        };
        if !order.contains(&id) {
            order.push(id);
        }
    }
    let mut studies: Vec<Study<'_>> = order
        .into_iter()
        .map(|id| Study::new(heads.get(id).copied(), id, runs.remove(id).unwrap_or_default()))
        .collect();
    studies.sort_by_key(|study| study.head.order);
    let mut styles = ReportStyles::default();
    for study in &mut studies {
        let charts: Vec<&[String]> =
            study.head.charts.iter().map(|chart| chart.variants.as_slice()).collect();
        study.styles = styles.assign_study(&study.head.topic, &study.variants(), &charts);
    }
    studies
}

impl<'a> Study<'a> {
    fn new(head: Option<&'a StudyLine>, id: &str, runs: Vec<&'a RunLine>) -> Self {
        let head = head.map_or_else(|| Cow::Owned(default_head(id, &runs)), Cow::Borrowed);
        let judged = head.verdicts.iter().map(|verdict| judge(verdict, &runs)).collect();
        let mut study = Self { head, runs, styles: VariantStyles::default(), judged };
        study.explain_missing();
        study
    }

    /// Returns the variants in order of appearance, each with its readable name.
    fn variants(&self) -> Vec<(&'a str, String)> {
        let mut variants: Vec<&'a str> = Vec::new();
        for run in &self.runs {
            if !variants.contains(&run.variant.as_str()) {
                variants.push(&run.variant);
            }
        }
        variants.into_iter().map(|variant| (variant, self.label(variant))).collect()
    }

    /// Gives judgements without an answer the reason why a side was never measured. If this host cannot run a
    /// variant, one record says so, without the parameters that split the judgements.
    fn explain_missing(&mut self) {
        let why = |verdict: &Verdict| {
            [&verdict.variant, &verdict.against]
                .into_iter()
                .find_map(|variant| self.never_measured_reason(variant))
        };
        let reasons: Vec<Option<String>> = self.head.verdicts.iter().map(why).collect();
        for (judged, reason) in self.judged.iter_mut().zip(reasons) {
            let Some(reason) = reason else { continue };
            for judgement in judged {
                if let Answer::Unanswered(text) = &mut judgement.answer {
                    text.clone_from(&reason);
                }
            }
        }
    }

    /// Returns the reason why this host cannot run a variant, if there is one.
    pub(crate) fn first_skipped(&self) -> Option<&str> {
        self.runs.iter().find(|run| run.outcome == Outcome::Skipped)?.reason.as_deref()
    }

    /// Returns the recorded reason why a variant has no measured run.
    pub fn never_measured_reason(&self, variant: &str) -> Option<String> {
        let mut of_variant = self.runs.iter().filter(|run| run.variant == variant);
        if of_variant.clone().any(|run| run.outcome == Outcome::Measured) {
            return None;
        }
        let run = of_variant.find(|run| run.reason.is_some())?;
        let reason = run.reason.as_deref()?;
        Some(format!("{} {}: {reason}", self.label(variant), run.outcome.in_words()))
    }

    /// Returns the reason why the first comparison without an answer has none.
    pub(crate) fn first_reason(&self) -> Option<String> {
        self.verdicts().find_map(|(verdict, judged)| {
            let reason = judged.iter().find_map(|judgement| match &judgement.answer {
                Answer::Unanswered(reason) => Some(reason),
                Answer::Compared { .. } => None,
            })?;
            let was_run = |variant: &&&String| self.runs.iter().any(|run| run.variant == ***variant);
            let never = [&verdict.variant, &verdict.against].into_iter().find(|variant| !was_run(&variant));
            Some(match never {
                Some(variant) => {
                    let label = self.label(variant);
                    format!("the study ended before it ran {label}; unisono study --continue DIR does")
                }
                None => reason.clone(),
            })
        })
    }

    /// Returns the readable name of a variant, a figure or a parameter.
    pub(crate) fn label(&self, name: &str) -> String {
        let given = self.head.labels.get(name).map(|label| number::without_unit(label).to_owned());
        given.unwrap_or_else(|| number::words(name))
    }

    /// Returns the unit of a figure as recorded, otherwise from the figure's name.
    pub fn unit(&self, figure: &str) -> String {
        let recorded = self.runs.iter().flat_map(|run| &run.figures).find(|f| f.name == figure);
        recorded.map_or_else(|| number::unit_in_name(figure).to_owned(), |f| f.unit.clone())
    }

    /// Returns the better side of a figure: as its verdicts say; otherwise less is better for a time, and
    /// more for anything else.
    pub(crate) fn better(&self, figure: &str) -> Better {
        let judged = self.head.verdicts.iter().find(|verdict| verdict.figure == figure);
        let of_unit = || if number::is_time(&self.unit(figure)) { Better::Lower } else { Better::Higher };
        judged.map_or_else(of_unit, |verdict| verdict.better)
    }

    pub(crate) fn parameter(&self, name: &str, value: &Value) -> String {
        match (value.as_f64(), value.as_str()) {
            (Some(0.0), _) => "0".to_owned(),
            (Some(v), _) => number::quantity(v, number::unit_in_name(name)),
            (None, Some(text)) => self.value_label(name, text).unwrap_or(text).to_owned(),
            (None, None) => value.to_string(),
        }
    }

    /// Returns the readable name that the study gives to a value of a parameter.
    fn value_label(&self, name: &str, value: &str) -> Option<&str> {
        self.head.labels.get(&format!("{name}={value}")).map(String::as_str)
    }

    /// Returns the name of a parameter before its values; empty if the study names the value itself.
    pub(crate) fn parameter_label(&self, name: &str, value: &Value) -> String {
        let is_named = value.as_str().is_some_and(|text| self.value_label(name, text).is_some());
        if is_named { String::new() } else { self.label(name) }
    }

    /// Names a value of a parameter, for example `interval 10 us`, or `2 threads` for a count.
    pub(crate) fn parameter_in_words(&self, name: &str, value: &Value) -> String {
        let (label, value_text) = (self.parameter_label(name, value), self.parameter(name, value));
        if label.is_empty() {
            value_text
        } else if is_count(&label, name, value) {
            format!("{value_text} {label}")
        } else {
            format!("{label} {value_text}")
        }
    }

    /// Names a place, for example ` at interval 10 us, with 2 threads`: "with" before counts and names, "at"
    /// before quantities, "for" before values that the study names.
    pub fn place_in_words<'v>(&self, place: impl Iterator<Item = (&'v str, &'v Value)>) -> String {
        let part = |(name, value): (&str, &Value)| {
            let label = self.parameter_label(name, value);
            let is_with = is_count(&label, name, value) || value.is_string();
            let before = if label.is_empty() { "for" } else { ["at", "with"][usize::from(is_with)] };
            format!(" {before} {}", self.parameter_in_words(name, value))
        };
        place.map(part).collect::<Vec<_>>().join(",")
    }

    /// Returns a run's variant, and the parameters in which it differs from other runs.
    pub fn circumstances(&self, run: &RunLine) -> String {
        let measured: Vec<&RunLine> =
            self.runs.iter().filter(|run| run.outcome == Outcome::Measured).copied().collect();
        let differs = varying(&measured, None);
        let place = differs.iter().filter_map(|name| Some((*name, run.parameters.get(*name)?)));
        format!("{}{}", self.label(&run.variant), self.place_in_words(place))
    }

    pub fn verdicts(&self) -> impl Iterator<Item = (&Verdict, &[Judgement])> {
        self.head.verdicts.iter().zip(self.judged.iter().map(Vec::as_slice))
    }

    /// Returns the study's own comparison that answers a selector.
    pub fn comparison(&self, of: &Selector) -> Option<&Comparison> {
        let judged =
            self.verdicts().flat_map(|(verdict, judged)| judged.iter().map(move |one| (verdict, one)));
        let mut answers = judged.filter(|(verdict, judgement)| of.is_answered_by(verdict, &judgement.place));
        answers.next()?.1.comparison()
    }

    /// Returns the rounds behind the values of a selector, of its first variant that has any and of the other
    /// side.
    pub(crate) fn evidence(&self, of: &Selector) -> Option<Evidence> {
        let place = of.place(&self.runs)?;
        let has_values = |variant: &&String| !of.of_variant(variant).values(&self.runs).is_empty();
        let sides: Vec<&String> =
            of.variants.iter().find(has_values).into_iter().chain(&of.against).collect();
        let behind = self.runs.iter().copied();
        let behind = behind.filter(|run| sides.contains(&&run.variant) && run.has_parameters(&place));
        Evidence::from_runs(&behind.collect::<Vec<_>>(), |run| of.value_of(run))
    }

    /// Returns the median of the values that a written selector selects.
    pub fn median(&self, written: &str) -> Option<f64> {
        written.parse::<Selector>().ok()?.median(&self.runs)
    }

    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        self.runs.iter().filter(|run| run.outcome == outcome).count()
    }

    pub fn id(&self) -> String {
        slug(&self.head.study)
    }

    pub(crate) fn link(&self) -> String {
        format!("<a href=\"#{}\">{}</a>", self.id(), Escaped(&self.head.title))
    }

    /// Whether the study simulates other machines.
    pub fn is_simulated(&self) -> bool {
        SIMULATED.contains(&self.head.topic.as_str())
    }

    pub(crate) fn is_about_waiting(&self) -> bool {
        self.head.answers == Some(Question::Waiting)
    }
}

/// Whether a parameter counts things: `threads`, `switches`, more than one of them.
fn is_count(label: &str, name: &str, value: &Value) -> bool {
    let word = label.split(' ').next().unwrap_or_default();
    let is_plural = word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("us");
    is_plural && number::unit_in_name(name) == "1" && value.as_f64().is_some_and(|value| value != 1.0)
}

/// Returns the opening question that a verdict answers: the one given in its study, otherwise the one derived
/// from the two sides.
pub(crate) fn question(verdict: &Verdict) -> Option<Question> {
    if verdict.answers.is_some() {
        return verdict.answers;
    }
    let is = |name: &str, word: &str| name == word || name.starts_with(&format!("{word}-"));
    let (variant, against) = (verdict.variant.as_str(), verdict.against.as_str());
    if matches!(variant, "gang" | "gangs") && is(against, "spread") {
        Some(Question::Ganging)
    } else if is(variant, "spread") && (is(against, "linux") || is(against, "plain")) {
        Some(Question::Unstacking)
    } else {
        None
    }
}

/// Makes a head for runs without one: all figures are shown, nothing is judged.
fn default_head(id: &str, runs: &[&RunLine]) -> StudyLine {
    let mut figures: Vec<&str> = Vec::new();
    for figure in runs.iter().flat_map(|run| &run.figures) {
        if !figures.contains(&figure.name.as_str()) && figures.len() < 12 {
            figures.push(&figure.name);
        }
    }
    let chart = |name: &str| Chart {
        title: number::words(name),
        kind: ChartKind::Strip,
        y: vec![name.to_owned()],
        ..Chart::default()
    };
    StudyLine {
        study: id.to_owned(),
        title: id.to_owned(),
        question: "This study did not announce what it asks; its figures are shown, nothing is judged."
            .into(),
        charts: figures.into_iter().map(chart).collect(),
        order: u32::MAX,
        ..StudyLine::default()
    }
}

/// The runs of one row, line or group of bars: one variant and, if they vary, one set of parameters.
pub(crate) struct ChartRow<'a> {
    pub(crate) variant: &'a str,
    pub(crate) name: String,
    pub(crate) runs: Vec<&'a RunLine>,
}

impl ChartRow<'_> {
    /// Returns one value for each measured run.
    pub(crate) fn values(&self, figure: &str) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.value(figure)).collect()
    }

    /// Returns the reason why there are no values.
    pub(crate) fn note(&self) -> Option<String> {
        let run = self.runs.iter().find(|run| run.outcome != Outcome::Measured)?;
        let how = run.outcome.in_words();
        Some(run.reason.as_deref().map_or_else(|| how.to_owned(), |reason| format!("{how}: {reason}")))
    }
}

impl<'a> Study<'a> {
    /// Returns the rows of a chart, in its order of variants. The parameter `without` does not split rows.
    pub(crate) fn rows(&'a self, chart: &Chart, without: Option<&str>) -> Vec<ChartRow<'a>> {
        let drawn = |run: &&&RunLine| {
            // a run that was not made has no parameters and cannot be filtered by them
            run.has_parameters(&chart.only) || (run.outcome != Outcome::Measured && run.parameters.is_empty())
        };
        let mut variants: Vec<&str> = chart.variants.iter().map(String::as_str).collect();
        if variants.is_empty() {
            for run in self.runs.iter().filter(drawn) {
                if !variants.contains(&run.variant.as_str()) {
                    variants.push(&run.variant);
                }
            }
        }
        let mut rows = Vec::new();
        for variant in variants {
            // names must outlive the chart, so they are taken from the runs
            let runs: Vec<&'a RunLine> =
                self.runs.iter().filter(drawn).filter(|run| run.variant == variant).copied().collect();
            let Some(variant) = runs.first().map(|run| run.variant.as_str()) else { continue };
            let measured: Vec<&RunLine> =
                runs.iter().filter(|run| run.outcome == Outcome::Measured).copied().collect();
            if measured.is_empty() {
                rows.push(ChartRow { variant, name: self.label(variant), runs });
                continue;
            }
            let splitting = varying(&measured, without);
            let mut groups: Vec<(Vec<String>, Vec<&'a RunLine>)> = Vec::new();
            for run in runs {
                let words = |name: &&&str| Some(self.parameter_in_words(name, run.parameters.get(**name)?));
                let key: Vec<String> = splitting.iter().filter_map(|name| words(&name)).collect();
                match groups.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, group)) => group.push(run),
                    None => groups.push((key, vec![run])),
                }
            }
            rows.extend(groups.into_iter().map(|(key, runs)| {
                let name = std::iter::once(self.label(variant)).chain(key).collect::<Vec<_>>().join(", ");
                ChartRow { variant, name, runs }
            }));
        }
        rows
    }
}

impl Study<'_> {
    /// Sorts the rows by the chart's first figure, the best first; rows without runs come last. Rows of one
    /// variant under several parameters keep their order, because readers follow the parameter.
    pub(crate) fn rank(&self, rows: &mut [ChartRow<'_>], chart: &Chart) {
        let mut earlier: Vec<&str> = Vec::new();
        let is_split = rows.iter().any(|row| {
            earlier.contains(&row.variant) || {
                earlier.push(row.variant);
                false
            }
        });
        let Some(figure) = chart.y.first().filter(|_| !is_split) else { return };
        let better = self.better(figure);
        let key = |row: &ChartRow<'_>| match (quantile::median(&row.values(figure)), better) {
            (None, _) => f64::INFINITY,
            (Some(median), Better::Lower) => median,
            (Some(median), Better::Higher) => -median,
        };
        rows.sort_by(|a, b| key(a).total_cmp(&key(b)));
    }
}

/// Returns the parameters with more than one value in these runs at one value of the parameter `without`.
fn varying<'r>(runs: &[&'r RunLine], without: Option<&str>) -> Vec<&'r str> {
    let place = |run: &'r RunLine| without.and_then(|name| run.parameters.get(name));
    let mut first: BTreeMap<&str, Vec<(Option<&Value>, &Value)>> = BTreeMap::new();
    let mut varying: Vec<&str> = Vec::new();
    for run in runs {
        for (name, value) in &run.parameters {
            let seen = first.entry(name).or_default();
            match seen.iter().find(|(known, _)| *known == place(run)) {
                Some((_, known)) if *known != value && !varying.contains(&name.as_str()) => {
                    varying.push(name);
                }
                Some(_) => {}
                None => seen.push((place(run), value)),
            }
        }
    }
    varying.sort_unstable();
    varying
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::Figure;

    #[test]
    fn rows_are_sorted_with_the_best_first_unless_a_parameter_splits_them() {
        let run = |variant: &str, threads: u32, value: f64| {
            Line::Run(Box::new(RunLine {
                study: "s".into(),
                variant: variant.into(),
                parameters: [("threads".to_owned(), threads.into())].into(),
                figures: vec![Figure::new("time_ns", value, "ns"), Figure::new("rate", 1.0 / value, "1/s")],
                ..RunLine::default()
            }))
        };
        let order = |lines: &[Line], figure: &str| {
            let studies = studies(lines);
            let chart = Chart { y: vec![figure.to_owned()], ..Chart::default() };
            let mut rows = studies[0].rows(&chart, None);
            studies[0].rank(&mut rows, &chart);
            rows.into_iter().map(|row| row.name).collect::<Vec<_>>()
        };
        let skipped = RunLine {
            study: "s".into(),
            variant: "absent".into(),
            outcome: Outcome::Skipped,
            ..RunLine::default()
        };
        let once = [Line::Run(Box::new(skipped)), run("slow", 2, 9.0), run("fast", 2, 3.0)];
        assert_eq!(order(&once, "time_ns"), ["fast", "slow", "absent"], "less time is better");
        assert_eq!(order(&once, "rate"), ["fast", "slow", "absent"], "a higher rate is better");
        let split = [run("slow", 2, 9.0), run("slow", 4, 5.0), run("fast", 2, 3.0)];
        assert_eq!(order(&split, "time_ns"), ["slow, 2 threads", "slow, 4 threads", "fast"]);
    }

    #[test]
    fn a_parameter_that_follows_the_one_on_the_axis_splits_no_line() {
        let run = |switches: u32, members: u32, ports: u32| RunLine {
            study: "s".into(),
            variant: "tree".into(),
            parameters: [("switches", switches), ("members", members), ("ports", ports)]
                .map(|(name, value)| (name.to_owned(), value.into()))
                .into(),
            ..RunLine::default()
        };
        let runs = [run(75, 256, 4), run(300, 1_024, 4), run(75, 256, 8), run(300, 1_024, 8)];
        let lines: Vec<Line> = runs.into_iter().map(|run| Line::Run(Box::new(run))).collect();
        let studies = studies(&lines);
        let names = |x: Option<&str>| {
            studies[0].rows(&Chart::default(), x).into_iter().map(|row| row.name).collect::<Vec<_>>()
        };
        assert_eq!(names(Some("switches")), ["tree, 4 ports", "tree, 8 ports"]);
        assert_eq!(names(None).len(), 4);
    }
}
