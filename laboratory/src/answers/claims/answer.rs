//! Decides whether a claim holds in the records of its study.

use super::{ClaimResult, PaperClaim};
use unisono_measure::interval::Estimate;
use unisono_measure::paired::MIN_PAIRS;
use unisono_measure::record::Verdict;
use unisono_measure::units::number;
use unisono_measure::{Selector, quantile, verdict};
use unisono_report::extension::{NO_BREAK_SPACE, Study, multiple, multiple_interval, quantity};

/// A measured value meets a paper's value if they differ by at most a tenth: machines differ by more, and a
/// paper's figures have two digits.
const VALUE_TOLERANCE: f64 = 0.1;

/// A smaller share is written as `1 in 450`.
const MIN_DECIMAL_SHARE: f64 = 0.01;

pub(super) enum ClaimAnswer {
    /// The reason why there is no result; empty if the study has no such runs.
    Missing(String),
    Found {
        result: ClaimResult,
        found: Estimate,
        here: String,
        /// The distance from the paper's number, if the claim has a number.
        distance: Option<String>,
    },
}

/// The measured value that a claim is about.
struct MeasuredFigure {
    found: Estimate,
    words: String,
    is_ratio: bool,
}

impl PaperClaim {
    pub(super) fn evaluate(&self, study: &Study<'_>) -> ClaimAnswer {
        let figure = match self.measured_figure(study) {
            Ok(figure) => figure,
            Err(reason) => return ClaimAnswer::Missing(reason),
        };
        let MeasuredFigure { found, words, is_ratio } = figure;
        let result = if found.n < MIN_PAIRS { ClaimResult::Undecided } else { self.result(&found, is_ratio) };
        let distance = self.near.map(|near| match near {
            1.0 => "The paper found no difference".to_owned(),
            _ => distance_in_words(found.value / near),
        });
        ClaimAnswer::Found { result, found, here: words, distance }
    }

    fn result(&self, found: &Estimate, is_ratio: bool) -> ClaimResult {
        let of_bound = |holds: bool, fails: bool| match (holds, fails) {
            (true, _) => ClaimResult::Reproduced,
            (_, true) => ClaimResult::Differs,
            _ => ClaimResult::Undecided,
        };
        match (self.near, self.least, self.most) {
            (Some(near), ..) => {
                let is_near = if is_ratio {
                    verdict::is_as_expected(found, near)
                } else {
                    found.contains(near) || (found.value / near).ln().abs() <= VALUE_TOLERANCE
                };
                // a confidence interval whose end narrowly misses the number does not refute it either
                let is_near = is_near || (found.low * 0.98 <= near && near <= found.high * 1.02);
                match (is_near, is_wide(found, near)) {
                    (true, true) => ClaimResult::Undecided,
                    (true, false) => ClaimResult::Reproduced,
                    (false, _) => ClaimResult::Differs,
                }
            }
            (_, Some(least), _) => of_bound(found.low >= least, found.high < least),
            (.., Some(most)) => of_bound(found.high <= most, found.low > most),
            _ => ClaimResult::Undecided,
        }
    }

    fn measured_figure(&self, study: &Study<'_>) -> Result<MeasuredFigure, String> {
        let Some(value) = &self.value else { return Err(String::new()) };
        let end = figure_at(study, value)?;
        let Some(from) = &self.from else { return Ok(end) };
        let start = figure_at(study, from)?;
        let (one, other) = (&start.found, &end.found);
        let found = Estimate {
            value: other.value / one.value,
            low: other.low / one.high,
            high: other.high / one.low,
            n: one.n.min(other.n),
            level: one.level,
        };
        if !found.value.is_finite() || found.value <= 0.0 {
            return Err(format!("no growth can be told from {} to {}", start.words, end.words));
        }
        let phrase = |value: f64, of: &Selector| {
            let place = of.place(&study.runs).unwrap_or_default();
            let place = place.iter().map(|(name, at)| (name.as_str(), at));
            format!("{}{}", phrase(study, of, value), study.place_in_words(place))
        };
        let phrase = format!("from {} to {}", phrase(one.value, from), phrase(other.value, value));
        let words = format!("{} ({phrase})", multiple(found.value));
        Ok(MeasuredFigure { found, words, is_ratio: true })
    }
}

fn figure_at(study: &Study<'_>, of: &Selector) -> Result<MeasuredFigure, String> {
    let figure = if of.against.is_some() { ratio_at(study, of) } else { value_at(study, of) };
    figure.ok_or_else(|| {
        let sides = of.variants.iter().chain(&of.against);
        sides.into_iter().find_map(|variant| study.never_measured_reason(variant)).unwrap_or_default()
    })
}

fn ratio_at(study: &Study<'_>, of: &Selector) -> Option<MeasuredFigure> {
    let judgement = verdict::judge(&Verdict::from(of), &study.runs).into_iter().next()?;
    let comparison = judgement.comparison()?;
    let words = format!("{} ({})", multiple(comparison.ratio.value), multiple_interval(comparison));
    Some(MeasuredFigure { found: comparison.ratio, words, is_ratio: true })
}

/// Returns a figure, or the quotient of two figures, over all runs.
fn value_at(study: &Study<'_>, of: &Selector) -> Option<MeasuredFigure> {
    let values = quantile::sorted(&of.values(&study.runs));
    let (low, high, n) = (*values.first()?, *values.last()?, values.len());
    let middle = quantile::median(&values)?;
    let phrase = |value| phrase(study, of, value);
    let words = match n {
        1 => phrase(middle),
        _ => format!(
            "{} ({} to {}, n{NO_BREAK_SPACE}={NO_BREAK_SPACE}{n})",
            phrase(middle),
            phrase(low),
            phrase(high)
        ),
    };
    let found = Estimate { value: middle, low, high, n, level: 1.0 };
    Some(MeasuredFigure { found, words, is_ratio: of.divisor.is_some() })
}

/// Writes a selected value with its unit, or as a ratio.
fn phrase(study: &Study<'_>, of: &Selector, value: f64) -> String {
    match (&of.against, &of.divisor) {
        (Some(_), _) => multiple(value),
        (None, None) => quantity(value, &study.unit(&of.figure)),
        // a quotient of two figures of one run: a share or a multiple, not a gain
        (None, Some(_)) if value > 0.0 && value < MIN_DECIMAL_SHARE => {
            format!("1 in {}", number(1.0 / value))
        }
        (None, Some(_)) => verdict::format_ratio(value),
    }
}

/// Returns whether an interval is too wide for a decision: wider than the effect, and wider than a factor of
/// 1.5.
fn is_wide(found: &Estimate, near: f64) -> bool {
    let width = (found.high / found.low).ln();
    !width.is_finite() || width > near.ln().abs().max(1.5_f64.ln())
}

fn distance_in_words(of_paper: f64) -> String {
    if of_paper.is_nan() || of_paper <= 0.0 {
        return "Nothing of it is here".to_owned();
    }
    let (factor, word) = if of_paper >= 1.0 { (of_paper, "more") } else { (1.0 / of_paper, "less") };
    if factor < 2.0 {
        let percent = (factor - 1.0) * 100.0;
        let percent = if word == "less" { (1.0 - of_paper) * 100.0 } else { percent };
        return format!("{percent:.0}{NO_BREAK_SPACE}% {word} than in the paper");
    }
    format!(
        "{} times {} than in the paper",
        verdict::format_ratio(factor),
        if word == "more" { "as much" } else { "less" }
    )
    .replace("as much than", "as much as")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::claims::ClaimPaper;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use unisono_measure::record::{Figure, Line, RunLine, StudyLine};
    use unisono_report::extension::studies;

    fn value(text: &str) -> Option<Selector> {
        Some(text.parse().expect("a selector"))
    }

    fn claim() -> PaperClaim {
        PaperClaim {
            paper: ClaimPaper::Gangs,
            place: "section 1".into(),
            says: "something".into(),
            open: None,
            study: "s".into(),
            value: value("ours.time_us"),
            from: None,
            profile: None,
            near: None,
            least: None,
            most: None,
            why: "a reason".into(),
        }
    }

    /// Makes records with a run for each value, with the parameter `at`.
    fn records(of: &[(&str, u32, f64)]) -> Vec<Line> {
        let head = StudyLine { study: "s".into(), topic: "t".into(), ..StudyLine::default() };
        let mut counts: BTreeMap<(&str, u32), u32> = BTreeMap::new();
        let mut lines = vec![Line::Study(Box::new(head))];
        for (variant, at, value) in of {
            let repetition = counts.entry((variant, *at)).or_default();
            lines.push(Line::Run(Box::new(RunLine {
                study: "s".into(),
                topic: "t".into(),
                variant: (*variant).into(),
                repetition: *repetition,
                parameters: BTreeMap::from([("at".to_owned(), (*at).into())]),
                figures: vec![Figure::new("time_us", *value, "us")],
                ..RunLine::default()
            })));
            *repetition += 1;
        }
        lines
    }

    fn answered(claim: &PaperClaim, of: &[(&str, u32, f64)]) -> (ClaimResult, String, Option<String>) {
        let lines = records(of);
        match claim.evaluate(&studies(&lines)[0]) {
            ClaimAnswer::Found { result, here, distance, .. } => {
                (result, here.replace(NO_BREAK_SPACE, " "), distance)
            }
            ClaimAnswer::Missing(reason) => panic!("{reason}"),
        }
    }

    #[test]
    fn a_value_is_near_within_a_tenth() {
        let three = |value: f64| [("ours", 0, value), ("ours", 0, value * 1.01), ("ours", 0, value * 0.99)];
        let near = PaperClaim { near: Some(100.0), ..claim() };
        assert_eq!(answered(&near, &three(105.0)).0, ClaimResult::Reproduced);
        let (result, here, distance) = answered(&near, &three(300.0));
        assert_eq!((result, &*here), (ClaimResult::Differs, "300 us (297 us to 303 us, n = 3)"));
        assert_eq!(distance.as_deref(), Some("3.00 times as much as in the paper"));
        assert_eq!(answered(&near, &three(20.0)).2.as_deref(), Some("5.00 times less than in the paper"));
    }

    #[test]
    fn few_runs_and_wide_intervals_decide_nothing() {
        let near = PaperClaim { near: Some(100.0), ..claim() };
        for few in [&[("ours", 0, 100.0)][..], &[("ours", 0, 100.0), ("ours", 0, 100.0)]] {
            assert_eq!(answered(&near, few).0, ClaimResult::Undecided);
            let mut simulated = records(few);
            let Line::Study(head) = &mut simulated[0] else { panic!("the head comes first") };
            head.topic = "tree".into();
            let studies = studies(&simulated);
            assert!(studies[0].is_simulated());
            let answer = near.evaluate(&studies[0]);
            assert!(matches!(answer, ClaimAnswer::Found { result: ClaimResult::Undecided, .. }));
        }
        let wide = [("ours", 0, 1.0), ("ours", 0, 100.0), ("ours", 0, 90_000.0)];
        assert_eq!(answered(&near, &wide).0, ClaimResult::Undecided);
    }

    #[test]
    fn a_ratio_is_of_pairs_and_growth_is_between_places() {
        let runs: Vec<(&str, u32, f64)> = (0..3)
            .flat_map(|_| [("ours", 1, 3.0), ("theirs", 1, 1.0), ("ours", 2, 12.0), ("theirs", 2, 2.0)])
            .collect();
        let ratio = PaperClaim { value: value("ours/theirs.time_us@at=1"), near: Some(3.0), ..claim() };
        assert_eq!(answered(&ratio, &runs).0, ClaimResult::Reproduced);
        let growth = PaperClaim {
            value: value("ours.time_us@at=2"),
            from: value("ours.time_us@at=1"),
            least: Some(3.5),
            ..claim()
        };
        let (result, here, _) = answered(&growth, &runs);
        assert_eq!(
            (result, &*here),
            (ClaimResult::Reproduced, "4.00 times (from 3 us at at 1 to 12 us at at 2)")
        );
        let growth = PaperClaim {
            value: value("ours/theirs.time_us@at=2"),
            from: value("ours/theirs.time_us@at=1"),
            near: Some(2.0),
            ..claim()
        };
        assert_eq!(answered(&growth, &runs).0, ClaimResult::Reproduced);
    }

    #[test]
    fn a_quotient_of_two_figures_of_a_run_is_a_share() {
        let mut lines = records(&[("ours", 0, 2.0), ("ours", 0, 2.0), ("ours", 0, 2.0)]);
        for line in &mut lines {
            if let Line::Run(run) = line {
                run.figures.push(Figure::new("barriers", 90_000.0, "1"));
                run.figures.push(Figure::new("height", 1.0, "1"));
            }
        }
        let said = |of: &str| {
            let claim = PaperClaim { value: value(of), most: Some(3.0), ..claim() };
            let ClaimAnswer::Found { here, .. } = claim.evaluate(&studies(&lines)[0]) else {
                panic!("it was measured")
            };
            here.replace(NO_BREAK_SPACE, " ")
        };
        assert_eq!(said("ours.time_us/barriers"), "1 in 45,000 (1 in 45,000 to 1 in 45,000, n = 3)");
        assert_eq!(said("ours.time_us/height"), "2.00 (2.00 to 2.00, n = 3)");
    }

    proptest! {
        /// For every set of runs, "at least 1" is reproduced if and only if "at most 1" differs, and both are
        /// undecided together.
        #[test]
        fn a_bound_and_its_opposite_do_not_both_hold(values in prop::collection::vec(0.1_f64..10.0, 3..6)) {
            let runs: Vec<_> = values.iter().map(|value| ("ours", 0, *value)).collect();
            let least = answered(&PaperClaim { least: Some(1.0), ..claim() }, &runs).0;
            let most = answered(&PaperClaim { most: Some(1.0), ..claim() }, &runs).0;
            let all_above = values.iter().all(|value| *value > 1.0);
            prop_assert_eq!(least == ClaimResult::Reproduced && most == ClaimResult::Differs, all_above);
            prop_assert_eq!(least == ClaimResult::Undecided, most == ClaimResult::Undecided);
        }

        #[test]
        fn a_multiple_has_no_exponent(ratio in 1e-6_f64..1e6) {
            prop_assert!(multiple(ratio).chars().next().is_some_and(|c| c.is_ascii_digit()));
            prop_assert!(!multiple(ratio).contains("e-"), "{}", multiple(ratio));
        }
    }
}
