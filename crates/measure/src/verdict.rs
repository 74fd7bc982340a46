//! Turns records into words: the runs answer the question of a [`Verdict`].
//!
//! The idea: runs of the two variants are paired by repetition and by all parameters, split by the values of
//! `by`, and compared ([`crate::paired`]). Each comparison becomes one sentence that a reader can check: the
//! ratio, its interval with the level that the number of runs allows, the number of pairs. If a side has two
//! modes, the sentence states both instead of a single ratio.

use crate::bystanders::BystanderTime;
use crate::interval::{Estimate, LEVEL};
use crate::modes::{self, TwoModes};
use crate::paired::{self, Comparison, Finding};
use crate::record::{Better, ExpectedKind, Outcome, RunLine, Verdict};
use crate::selector::{Condition, Selector, conditions, parameter_values, same_value};
use crate::time_to_decide::{self, time_to_decide};
pub use crate::units::number;
use std::collections::BTreeMap;
use std::time::Duration;

impl RunLine {
    /// Returns the value of a figure, if this run measured it.
    pub fn value(&self, figure: &str) -> Option<f64> {
        (self.outcome == Outcome::Measured)
            .then(|| self.figures.iter().find(|f| f.name == figure).map(|f| f.value))
            .flatten()
            .filter(|v| v.is_finite())
    }

    /// Returns the value of a figure, or its quotient by another figure of the run.
    pub fn quotient(&self, figure: &str, divisor: Option<&str>) -> Option<f64> {
        let value = self.value(figure)?;
        let Some(divisor) = divisor else { return Some(value) };
        Some(value / self.value(divisor)?).filter(|quotient| quotient.is_finite())
    }

    /// Returns the curve of a figure over the x axis `x`, if this run measured it.
    pub fn curve(&self, figure: &str, x: &str) -> Option<&[(f64, f64)]> {
        let figure = self.figures.iter().find(|f| f.name == figure && self.outcome == Outcome::Measured)?;
        figure.curve.as_ref().filter(|curve| curve.x == x).map(|curve| curve.points.as_slice())
    }

    /// Returns whether the run's parameters have all these values.
    pub fn has_parameters(&self, only: &BTreeMap<String, serde_json::Value>) -> bool {
        only.iter()
            .all(|(name, wanted)| self.parameters.get(name).is_some_and(|value| same_value(value, wanted)))
    }
}

impl Verdict {
    /// Returns the value of a run that this verdict compares: a figure, or work per processor time obtained.
    pub fn value_of(&self, run: &RunLine) -> Option<f64> {
        run.quotient(&self.figure, self.divisor.as_deref())
    }

    /// Returns the values that this verdict compares at these parameter values.
    pub fn selector(&self, place: &BTreeMap<String, serde_json::Value>) -> Selector {
        Selector {
            variants: vec![self.variant.clone()],
            against: Some(self.against.clone()),
            figure: self.figure.clone(),
            divisor: self.divisor.clone(),
            conditions: conditions(place),
        }
    }

    /// Returns the names of both sides in words; without such names, the variants.
    pub fn side_names(&self) -> [&String; 2] {
        match &self.sides {
            Some(sides) => sides.each_ref(),
            None => [&self.variant, &self.against],
        }
    }

    /// Returns the comparison in words: `gangs against pinned threads, no busy loop`.
    pub fn in_words(&self) -> String {
        if !self.words.is_empty() {
            return self.words.clone();
        }
        let [ours, theirs] = self.side_names();
        let more = self.circumstance.as_ref().map(|more| format!(", {more}")).unwrap_or_default();
        format!("{ours} against {theirs}{more}")
    }
}

impl From<&Selector> for Verdict {
    /// Makes the comparison of the first variant. The parameter with a condition for each value splits it.
    fn from(of: &Selector) -> Self {
        let by = of.conditions.iter().find(|(_, condition)| **condition == Condition::Each);
        let only = of.conditions.iter().filter_map(|(name, condition)| match condition {
            Condition::Is(value) => Some((name.clone(), value.clone())),
            _ => None,
        });
        Self {
            variant: of.variants.first().cloned().unwrap_or_default(),
            against: of.against.clone().unwrap_or_default(),
            figure: of.figure.clone(),
            divisor: of.divisor.clone(),
            by: by.map(|(name, _)| name.clone()),
            only: only.collect(),
            ..Self::default()
        }
    }
}

/// The answer to a [`Verdict`] for one value of its `by` (or for all runs).
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The value of `by`, if the verdict is split.
    pub at: Option<serde_json::Value>,
    /// The parameter values of the runs compared: the values of the verdict, and of `by`.
    pub place: BTreeMap<String, serde_json::Value>,
    /// The comparison, or why there is no comparison.
    pub answer: Answer,
    /// Two modes of the variant's runs, if there are two.
    pub variant_modes: Option<TwoModes>,
    /// Two modes of the runs compared with, if there are two.
    pub against_modes: Option<TwoModes>,
    /// Processor time of bystanders beside each side. `None` if the records do not have it.
    pub bystanders: Option<BystanderTime>,
    /// The further measuring time until the comparison is decided. `None` if it is decided, or if more runs
    /// do not help.
    pub time_to_decide: Option<Duration>,
    pub words: String,
}

impl Judgement {
    pub fn comparison(&self) -> Option<&Comparison> {
        match &self.answer {
            Answer::Compared { comparison, .. } => Some(comparison),
            Answer::Unanswered(_) => None,
        }
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Compared {
        comparison: Comparison,
        finding: Finding,
    },
    /// There is no pair; the text says why (skipped, failed, not run).
    Unanswered(String),
}

/// Judges one study's runs; one judgement per value of `by`, ascending.
pub fn judge(verdict: &Verdict, runs: &[&RunLine]) -> Vec<Judgement> {
    let relevant: Vec<&RunLine> = runs
        .iter()
        .copied()
        .filter(|r| {
            r.has_parameters(&verdict.only) && (r.variant == verdict.variant || r.variant == verdict.against)
        })
        .collect();
    let Some(by) = &verdict.by else { return vec![judge_group(verdict, None, &relevant, &relevant)] };
    let values = parameter_values(&relevant, by);
    if values.is_empty() {
        return vec![judge_group(verdict, None, &relevant, &relevant)];
    }
    values
        .into_iter()
        .map(|value| {
            let here: Vec<&RunLine> = relevant
                .iter()
                .copied()
                .filter(|r| r.parameters.get(by).is_some_and(|v| same_value(v, value)))
                .collect();
            judge_group(verdict, Some(value.clone()), &here, &relevant)
        })
        .collect()
}

/// Judges `runs`, the runs with one value of `by`. `all` are the runs of both variants with any value.
fn judge_group(
    verdict: &Verdict,
    at: Option<serde_json::Value>,
    runs: &[&RunLine],
    all: &[&RunLine],
) -> Judgement {
    let values_of = |variant: &str| -> Vec<f64> {
        runs.iter().filter(|r| r.variant == variant).filter_map(|r| verdict.value_of(r)).collect()
    };
    let (variant_modes, against_modes) = (
        modes::two_modes(&values_of(&verdict.variant)),
        modes::two_modes(&values_of(&verdict.against)),
    );
    let pairs = pairs(&verdict.variant, &verdict.against, |run| verdict.value_of(run), runs);
    let answer = match paired::compare(&pairs, verdict.better, LEVEL) {
        Some(comparison) => Answer::Compared { comparison, finding: comparison.finding(verdict.better) },
        None => Answer::Unanswered(why_unanswered(verdict, runs, all)),
    };
    let bystanders = BystanderTime::from_runs(verdict, runs);
    let comparison = match &answer {
        Answer::Compared { comparison, .. } => Some(comparison),
        Answer::Unanswered(_) => None,
    };
    let time_to_decide = time_to_decide(comparison, verdict.better, pairs.len(), runs);
    let mut place = verdict.only.clone();
    place.extend(verdict.by.clone().zip(at.clone()));
    let mut judgement = Judgement {
        at,
        place,
        answer,
        variant_modes,
        against_modes,
        bystanders,
        time_to_decide,
        words: String::new(),
    };
    judgement.words = sentence(verdict, &judgement);
    judgement
}

/// Returns the pairs (variant, against) of runs of the same repetition with the same parameters. If a
/// repetition has more runs of one side (plain Linux has modes and needs more starts), these are paired with
/// the other side's runs in turn, so that no run is dropped.
pub fn pairs(
    variant: &str,
    against: &str,
    value: impl Fn(&RunLine) -> Option<f64>,
    runs: &[&RunLine],
) -> Vec<(f64, f64)> {
    let mut groups: Vec<(&RunLine, Vec<f64>, Vec<f64>)> = Vec::new();
    for run in runs {
        let Some(value) = value(run) else { continue };
        let is_ours = run.variant == variant;
        if !is_ours && run.variant != against {
            continue;
        }
        let same = |g: &&mut (&RunLine, Vec<f64>, Vec<f64>)| {
            g.0.repetition == run.repetition && g.0.parameters == run.parameters
        };
        let group = match groups.iter_mut().find(same) {
            Some(group) => group,
            None => {
                groups.push((run, Vec::new(), Vec::new()));
                let last = groups.len() - 1;
                &mut groups[last]
            }
        };
        if is_ours { group.1.push(value) } else { group.2.push(value) }
    }
    let of_group = |(_, ours, theirs): (&RunLine, Vec<f64>, Vec<f64>)| -> Vec<(f64, f64)> {
        if ours.is_empty() || theirs.is_empty() {
            return Vec::new();
        }
        let n = ours.len().max(theirs.len());
        (0..n).map(|i| (ours[i % ours.len()], theirs[i % theirs.len()])).collect()
    };
    groups.sort_by_key(|(first, _, _)| first.repetition);
    groups.into_iter().flat_map(of_group).collect()
}

fn why_unanswered(verdict: &Verdict, runs: &[&RunLine], all: &[&RunLine]) -> String {
    fn reason<'a>(runs: &[&'a RunLine], variant: &str) -> Option<&'a str> {
        runs.iter().filter(|r| r.variant == variant).find_map(|r| r.reason.as_deref())
    }
    for variant in [&verdict.variant, &verdict.against] {
        if runs.iter().any(|r| &r.variant == variant && verdict.value_of(r).is_some()) {
            continue;
        }
        // a variant that is skipped as a whole has one record with the reason, not one for each value of `by`
        if let Some(reason) = reason(runs, variant).or_else(|| reason(all, variant)) {
            return format!("{variant}: {reason}");
        }
        return match runs.iter().any(|r| &r.variant == variant) {
            true => format!("{variant}: its runs do not have the figure"),
            false => format!("{variant} was not run; let a study run to its end"),
        };
    }
    let pairs = pairs(&verdict.variant, &verdict.against, |run| verdict.value_of(run), runs);
    if !pairs.is_empty() {
        return match pairs.iter().all(|(ours, _)| *ours == 0.0) {
            true => "there is no ratio: both are 0".to_owned(),
            false => format!("there is no ratio: {} is 0", verdict.against),
        };
    }
    format!(
        "no repetition has both {} and {}; let a study run to its end, or ask for more repetitions by --paper",
        verdict.variant, verdict.against
    )
}

fn sentence(verdict: &Verdict, judgement: &Judgement) -> String {
    let place = match (&verdict.by, &judgement.at) {
        (Some(by), Some(at)) => format!(" at {by} = {}", value_in_words(at)),
        _ => String::new(),
    };
    let subject = format!("{}{place}", verdict.in_words());
    let more =
        judgement.time_to_decide.map(|time| format!("; {} would decide it", time_to_decide::in_words(time)));
    let more = more.unwrap_or_default();
    let (c, finding) = match &judgement.answer {
        Answer::Unanswered(reason) => return format!("{subject}: not answered; {reason}{more}"),
        Answer::Compared { comparison, finding } => (comparison, finding),
    };
    let words = finding_in_words(*finding);
    let mut text = format!(
        "{subject}: {words}, {} ({})",
        factor_in_words(c, *finding),
        confidence(&for_display(c, *finding))
    );
    text += &more;
    let [ours, theirs] = verdict.side_names();
    for (side, modes) in [(theirs, judgement.against_modes), (ours, judgement.variant_modes)] {
        if let Some(modes) = modes {
            text += &format!("; {modes} with {side}");
        }
    }
    if c.undefined > 0 {
        text += &format!(
            "; {} of {} pairs have no ratio because {} delivered nothing",
            c.undefined,
            c.undefined + c.ratio.n,
            verdict.against
        );
    }
    if let Some(paid) = judgement.bystanders.as_ref().and_then(BystanderTime::in_words) {
        text += &format!("; {paid}");
    }
    if let Some((expected, met)) = verdict.expected.zip(meets_expectation(verdict, c)) {
        let from = verdict.expected_from.as_deref().map(|f| format!(" ({f})")).unwrap_or_default();
        let met = match (verdict.expected_kind, met) {
            (ExpectedKind::Bound, true) => "reached",
            (ExpectedKind::Bound, false) => "not reached",
            (ExpectedKind::Value, true) => "the same here",
            (ExpectedKind::Value, false) => "not so here",
        };
        let bound = verdict.bound_in_words();
        text += &format!("; expected {bound}{} times{from}: {met}", format_ratio(expected));
    }
    text
}

/// Tolerance around an expected value, as a share of the effect: a paper's figures have two digits.
const VALUE_TOLERANCE: f64 = 0.1;
/// Lower bound of the tolerance: effects of 1.5 % and 1.7 % count as equal.
const MIN_TOLERANCE: f64 = 0.02;

/// Returns whether the ratio found meets the expected one, in the sense of [`ExpectedKind`]. `None` if no
/// ratio is expected.
pub fn meets_expectation(verdict: &Verdict, c: &Comparison) -> Option<bool> {
    let expected = verdict.expected?;
    Some(match (verdict.expected_kind, verdict.better) {
        (ExpectedKind::Bound, Better::Higher) => c.ratio.value >= expected,
        (ExpectedKind::Bound, Better::Lower) => c.ratio.value <= expected,
        (ExpectedKind::Value, _) => is_as_expected(&c.ratio, expected),
    })
}

/// Returns whether a ratio equals the expected one: its interval contains it, or they differ by at most a
/// tenth of the effect.
pub fn is_as_expected(ratio: &Estimate, expected: f64) -> bool {
    // effects are compared as factors: 2 and 1/2 are equally far from no effect
    let (effect, off) = (expected.ln().abs(), (ratio.value / expected).ln().abs());
    ratio.contains(expected) || off <= (effect * VALUE_TOLERANCE).max(MIN_TOLERANCE)
}

/// Returns the comparison with a ratio of at least one: as it is (`1.25 times as much`), or inverted (`1.25
/// times less`).
pub fn at_least_one(c: &Comparison) -> Comparison {
    let is_less = c.ratio.value > 0.0 && c.ratio.value < 1.0;
    Comparison { ratio: if is_less { c.ratio.inverse() } else { c.ratio }, ..*c }
}

/// Does the same as [`at_least_one`], but returns a comparison without difference unchanged: an interval
/// around one is then easiest to read.
pub fn for_display(c: &Comparison, finding: Finding) -> Comparison {
    if finding == Finding::Same { *c } else { at_least_one(c) }
}

/// Returns the factor in words, for example `3.20 times as much` or `15.0 times less`; without a difference
/// only the ratio.
pub fn factor_in_words(c: &Comparison, finding: Finding) -> String {
    let times = format_ratio(at_least_one(c).ratio.value);
    match (finding, c.ratio.value) {
        (_, 0.0) => "none of it".to_owned(),
        (Finding::Same, _) => format!("{} times", format_ratio(c.ratio.value)),
        (_, value) if value < 1.0 => format!("{times} times less"),
        _ => format!("{times} times as much"),
    }
}

/// Returns a finding in the words of the terminal output.
pub fn finding_in_words(finding: Finding) -> &'static str {
    match finding {
        Finding::Better => "better",
        Finding::Worse => "worse",
        Finding::Same => "no difference",
        Finding::Undecided => "not decided",
    }
}

/// Returns the interval with its honest level and the number of pairs, for example `95 % interval 2.41 to
/// 2.62, n = 10`. Fewer than four pairs make no useful interval. The text then says how many pairs agree and
/// their range, for example `all 3 pairs, 2.41 to 2.62`.
pub fn confidence(c: &Comparison) -> String {
    let agreeing = c.wins.max(c.losses).max(c.ties);
    match c.ratio.n {
        1 => return "one pair, no interval".into(),
        n @ 2..4 => {
            let count = if agreeing == n {
                format!("all {n} pairs")
            } else {
                format!("{agreeing} of {n} pairs agree")
            };
            return format!("{count}, {} to {}", format_ratio(c.ratio.low), format_ratio(c.ratio.high));
        }
        _ => {}
    }
    let level = (c.ratio.honest_level() * 100.0).floor();
    format!(
        "{level} % interval {} to {}, n = {}",
        format_ratio(c.ratio.low),
        format_ratio(c.ratio.high),
        c.ratio.n
    )
}

/// Formats a ratio with three significant digits, with three decimals near one, where they matter, and
/// without exponent.
pub fn format_ratio(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => number(value),
        v if v >= 9.995 => format!("{value:.1}"),
        v if (0.9..1.1).contains(&v) => format!("{value:.3}"),
        v if v >= 0.0995 => format!("{value:.2}"),
        v if v >= 0.00995 => format!("{value:.3}"),
        0.0 => "0".into(),
        _ => format!("1/{}", number(1.0 / value)),
    }
}

pub fn value_in_words(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Figure;

    fn run(variant: &str, repetition: u32, interval: u32, value: f64) -> RunLine {
        RunLine {
            variant: variant.into(),
            repetition,
            parameters: BTreeMap::from([("interval_us".to_owned(), interval.into())]),
            figures: vec![Figure::new("rate", value, "1/s")],
            ..RunLine::default()
        }
    }

    fn verdict(by: Option<&str>) -> Verdict {
        Verdict {
            variant: "gang".into(),
            against: "spread".into(),
            figure: "rate".into(),
            by: by.map(str::to_owned),
            sides: Some(["gangs", "pinned threads"].map(str::to_owned)),
            ..Verdict::default()
        }
    }

    #[test]
    fn runs_are_paired_by_repetition_and_parameters_whatever_their_order() {
        let runs = [
            run("spread", 1, 0, 5.0),
            run("gang", 0, 0, 20.0),
            run("spread", 0, 0, 10.0),
            run("gang", 1, 0, 15.0),
            run("gang", 0, 10, 9.0),
        ];
        assert_eq!(
            pairs("gang", "spread", |run| run.value("rate"), &runs.iter().collect::<Vec<_>>()),
            vec![(20.0, 10.0), (15.0, 5.0)]
        );
    }

    #[test]
    fn every_start_of_a_repetition_is_in_a_pair() {
        let runs = [
            run("spread", 0, 0, 1.0),
            run("gang", 0, 0, 6.0),
            run("spread", 0, 0, 2.0),
            run("spread", 0, 0, 3.0),
        ];
        let found = pairs("gang", "spread", |run| run.value("rate"), &runs.iter().collect::<Vec<_>>());
        assert_eq!(found, vec![(6.0, 1.0), (6.0, 2.0), (6.0, 3.0)]);
    }

    #[test]
    fn a_split_verdict_answers_for_each_value_in_order() {
        let mut runs = Vec::new();
        for repetition in 0..6 {
            let wobble = 1.0 + f64::from(repetition) / 1000.0;
            runs.extend([run("gang", repetition, 10, 25.0 * wobble), run("spread", repetition, 10, 10.0)]);
            runs.extend([run("gang", repetition, 0, 10.0), run("spread", repetition, 0, 10.0)]);
        }
        let judgements = judge(&verdict(Some("interval_us")), &runs.iter().collect::<Vec<_>>());
        assert_eq!(judgements.len(), 2);
        assert_eq!(
            judgements[0].words,
            "gangs against pinned threads at interval_us = 0: no difference, 1.000 times (95 % interval 1.000 to 1.000, n = 6)"
        );
        assert!(judgements[1].words.starts_with("gangs against pinned threads at interval_us = 10: better, 2.51 times as much (95 % interval 2.50 to 2.51, n = 6)"), "{}", judgements[1].words);
    }

    #[test]
    fn a_skipped_variant_is_not_answered_and_says_why() {
        let skipped = RunLine {
            variant: "gang".into(),
            outcome: Outcome::Skipped,
            reason: Some("needs root".into()),
            ..RunLine::default()
        };
        let runs = [skipped, run("spread", 0, 0, 10.0)];
        let judgements = judge(&verdict(None), &runs.iter().collect::<Vec<_>>());
        assert_eq!(judgements[0].words, "gangs against pinned threads: not answered; gang: needs root");
        let judgements = judge(&verdict(Some("interval_us")), &runs.iter().collect::<Vec<_>>());
        assert_eq!(
            judgements[0].words,
            "gangs against pinned threads at interval_us = 0: not answered; gang: needs root",
            "the reason of a variant that was skipped as a whole holds at every interval"
        );
        let judgements = judge(&verdict(Some("interval_us")), &[]);
        assert_eq!(
            judgements[0].words,
            "gangs against pinned threads: not answered; gang was not run; let a study run to its end"
        );
    }

    #[test]
    fn a_value_is_met_neither_below_it_nor_above_it() {
        // the ratio found, the ratio expected, and whether it meets a paper's value and a budget
        for (found, expected, value, bound) in [
            (3.4, 0.985, false, true),
            (0.98, 0.985, true, false),
            (0.995, 0.985, true, true),
            (1.02, 0.985, false, true),
            (10.1, 10.5, true, false),
            (14.0, 10.5, false, true),
            (7.9, 10.5, false, false),
        ] {
            let runs: Vec<RunLine> = (0..3)
                .flat_map(|repetition| [run("gang", repetition, 0, found), run("spread", repetition, 0, 1.0)])
                .collect();
            let runs: Vec<&RunLine> = runs.iter().collect();
            for (expected_kind, wanted) in [(ExpectedKind::Value, value), (ExpectedKind::Bound, bound)] {
                let asked = Verdict { expected: Some(expected), expected_kind, ..verdict(None) };
                let judged = judge(&asked, &runs);
                let Answer::Compared { comparison, .. } = &judged[0].answer else { panic!("compared") };
                assert_eq!(
                    meets_expectation(&asked, comparison),
                    Some(wanted),
                    "{found} {expected} {expected_kind:?}"
                );
            }
        }
    }

    #[test]
    fn two_modes_are_said_and_an_expectation_is_checked() {
        let mut runs = Vec::new();
        for (repetition, slow) in (0..).zip([37e3, 5.5e6, 37e3, 5.5e6, 37e3]) {
            runs.extend([run("gang", repetition, 0, 12e6), run("spread", repetition, 0, slow)]);
        }
        let asked = Verdict { expected: Some(100.0), expected_from: Some("budget".into()), ..verdict(None) };
        let judgement = &judge(&asked, &runs.iter().collect::<Vec<_>>())[0];
        assert!(
            judgement.words.contains("two modes: 37,000 (n = 3) and 5,500,000 (n = 2) with pinned threads"),
            "{}",
            judgement.words
        );
        assert!(
            judgement.words.contains(", n = 5)")
                && judgement.words.ends_with("expected at least 100 times (budget): reached"),
            "{}",
            judgement.words
        );
    }

    #[test]
    fn numbers_read_well() {
        let cases = [
            (0.0, "0"),
            (0.0849, "0.085"),
            (1.5, "1.5"),
            (12.34, "12.3"),
            (12_345_678.0, "12,350,000"),
            (999.6, "1,000"),
            (123.4, "123"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(
            (format_ratio(2.5), format_ratio(324.3), format_ratio(0.0042)),
            ("2.50".into(), "324".into(), "1/238".into())
        );
    }
}
