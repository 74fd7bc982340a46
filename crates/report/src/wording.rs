//! Puts verdicts into words that a reader can check: the two sides, the ratio, the figure, the place, the
//! interval.
//!
//! [`unisono_measure::verdict`] computes the numbers and their finding. This module adds units and readable
//! names. Losses are stated in the same words as wins.

use crate::number::{self, NO_BREAK_SPACE};
use crate::study::Study;
use serde::Serialize;
use std::time::Duration;
use unisono_measure::modes::TwoModes;
use unisono_measure::paired::{Comparison, Finding, MIN_PAIRS};
use unisono_measure::record::{Better, ExpectedKind, Verdict};
use unisono_measure::time_to_decide;
use unisono_measure::verdict::{self, Answer, Judgement};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tone {
    Better,
    Worse,
    /// No notable difference.
    Same,
    /// Measured, but the runs cannot decide.
    Undecided,
    Unanswered,
}

impl Tone {
    /// Returns the word, the sign and the class.
    fn marks(self) -> [&'static str; 3] {
        match self {
            Tone::Better => ["better", "\u{25b2}", "better"],
            Tone::Worse => ["worse", "\u{25bc}", "worse"],
            Tone::Same => ["no difference", "=", "same"],
            Tone::Undecided => ["not decided", "?", "undecided"],
            Tone::Unanswered => ["not measured", "\u{2013}", "unanswered"],
        }
    }

    pub(crate) fn word(self) -> &'static str {
        self.marks()[0]
    }

    pub(crate) fn badge(self) -> String {
        let [word, sign, class] = self.marks();
        format!("<span class=\"badge {class}\">{sign} {word}</span>")
    }

    /// Returns a sign that is understood without color.
    pub(crate) fn sign(self) -> &'static str {
        self.marks()[1]
    }

    /// Returns the class in the style sheet.
    pub(crate) fn class(self) -> &'static str {
        self.marks()[2]
    }
}

pub(crate) fn tone(judgement: &Judgement) -> Tone {
    match &judgement.answer {
        Answer::Unanswered(_) => Tone::Unanswered,
        Answer::Compared { finding, .. } => match finding {
            Finding::Better => Tone::Better,
            Finding::Worse => Tone::Worse,
            Finding::Same => Tone::Same,
            Finding::Undecided => Tone::Undecided,
        },
    }
}

/// Returns the names of the two sides.
pub(crate) fn sides(study: &Study<'_>, verdict: &Verdict) -> (String, String) {
    match &verdict.sides {
        Some([ours, theirs]) => (ours.clone(), theirs.clone()),
        None => (study.label(&verdict.variant), study.label(&verdict.against)),
    }
}

/// Formats a ratio for a cell of a table, for example `2.45×`, with as many digits as the ends of its
/// interval; with fewer digits the ratio could seem to lie outside the interval.
pub fn times_sign(ratio: f64) -> String {
    format!("{}\u{d7}", verdict::format_ratio(ratio))
}

/// A ratio below this is stated as `N times less`. Closer to one, `0.95 times` is easier to compare.
pub(crate) const LESS_BELOW: f64 = 0.9;

/// Returns a ratio in a sentence: `2.45 times`, `12.0 times less`.
pub fn multiple(ratio: f64) -> String {
    if ratio > 0.0 && ratio < LESS_BELOW {
        return format!("{} times less", verdict::format_ratio(1.0 / ratio));
    }
    format!("{} times", verdict::format_ratio(ratio))
}

/// Formats a ratio of times, for example `81 times as long`; below ten, with digits after the point.
pub(crate) fn times_as_long(ratio: f64) -> String {
    let ratio = if ratio < 10.0 { verdict::format_ratio(ratio) } else { number::plain(ratio.round()) };
    format!("{ratio} times as long")
}

/// Returns the quantity that a verdict compares: `work done for each processor used`.
pub(crate) fn figure_in_words(study: &Study<'_>, verdict: &Verdict) -> String {
    let per = if verdict.divisor.is_some() { " for each processor used" } else { "" };
    format!("{}{per}", study.label(&verdict.figure))
}

/// Returns the ratio in words, for example `21 times lower latency`, `3.2 times the barriers/s`: a factor is
/// never below 1.
pub(crate) fn factor_in_words(study: &Study<'_>, of: &Verdict, ratio: f64) -> String {
    let figure = figure_in_words(study, of);
    if ratio == 0.0 {
        return format!("none of the {figure}");
    }
    if ratio >= 1.0 {
        return format!("{} times the {figure}", verdict::format_ratio(ratio));
    }
    format!("{} times {} {figure}", verdict::format_ratio(1.0 / ratio), lower_or_less(of))
}

/// Like [`factor_in_words`], with the other side: `21 times lower latency than plain Linux`.
pub(crate) fn factor_than(study: &Study<'_>, of: &Verdict, ratio: f64) -> String {
    let (_, theirs) = sides(study, of);
    let figure = figure_in_words(study, of);
    let joined = match ratio >= 1.0 || ratio == 0.0 {
        false => " than",
        // `barriers/s of the first program of plain Linux` would be ambiguous
        true if figure.contains(" of ") || figure.contains(" for ") => ", compared with",
        true => " of",
    };
    format!("{}{joined} {theirs}", factor_in_words(study, of, ratio))
}

/// Returns the word for a smaller value of a figure: a latency is lower, work is less.
fn lower_or_less(of: &Verdict) -> &'static str {
    if of.better == Better::Lower { "lower" } else { "less" }
}

/// Returns the number of pairs: `n = 10`.
pub(crate) fn pair_count(c: &Comparison) -> String {
    format!("n{NO_BREAK_SPACE}={NO_BREAK_SPACE}{}", c.ratio.n)
}

/// Returns the interval in words, for example `95 % interval 2.41 to 2.62, n = 10`, or how many of a few
/// pairs agree, in the words of the terminal output.
pub fn interval_in_words(c: &Comparison) -> String {
    // no line break between a number and its unit
    verdict::confidence(c)
        .replace(" %", &format!("{NO_BREAK_SPACE}%"))
        .replace(" = ", &format!("{NO_BREAK_SPACE}={NO_BREAK_SPACE}"))
}

/// Like [`interval_in_words`], for the factor that [`multiple`] shows.
pub fn multiple_interval(c: &Comparison) -> String {
    let is_less = c.ratio.value > 0.0 && c.ratio.value < LESS_BELOW;
    interval_in_words(&if is_less { verdict::at_least_one(c) } else { *c })
}

/// Names the place of a judgement, for example ` at interval 10 us, threads 2`; may be empty.
pub(crate) fn place_in_words(study: &Study<'_>, verdict: &Verdict, judgement: &Judgement) -> String {
    let split = verdict.by.as_deref().zip(judgement.at.as_ref());
    match (split, verdict.circumstance.as_deref()) {
        (None, Some(more)) => format!(", {more}"),
        (Some(split), Some(more)) => format!("{}, {more}", study.place_in_words(std::iter::once(split))),
        (split, None) => {
            let fixed = verdict.only.iter().map(|(name, value)| (name.as_str(), value));
            study.place_in_words(split.into_iter().chain(fixed))
        }
    }
}

pub(crate) fn sentence(study: &Study<'_>, verdict: &Verdict, judgement: &Judgement) -> String {
    capitalized(&in_words(study, verdict, judgement))
}

/// Capitalizes the first word, unless it is the name of a program (`libgomp`, `pthread_barrier`).
pub fn capitalized(text: &str) -> String {
    let word = text.split(' ').next().unwrap_or_default();
    if word.starts_with("lib") || !word.trim_end_matches(':').chars().all(|c| c.is_alphabetic() || c == '-') {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn in_words(study: &Study<'_>, asked: &Verdict, judgement: &Judgement) -> String {
    let (ours, theirs) = sides(study, asked);
    let place = place_in_words(study, asked, judgement);
    let figure = figure_in_words(study, asked);
    let c = match &judgement.answer {
        Answer::Unanswered(reason) => {
            let more = more_would_decide(judgement.time_to_decide);
            return format!("{ours} against {theirs}{place}: not measured ({reason}){more}.");
        }
        Answer::Compared { comparison, .. } => comparison,
    };
    let (many, sure) = match tone(judgement) {
        Tone::Better | Tone::Worse => {
            (factor_in_words(study, asked, c.ratio.value), interval_in_words(&verdict::at_least_one(c)))
        }
        _ => (
            format!("{} times the {figure}", verdict::format_ratio(c.ratio.value)),
            interval_in_words(c),
        ),
    };
    let claim = format!("{ours} against {theirs}{place}: {many}");
    let mut text = match tone(judgement) {
        Tone::Better => format!("{claim} ({sure}): better."),
        Tone::Worse => format!("{claim} ({sure}): worse."),
        Tone::Same => format!("{claim} ({sure}): no difference."),
        _ if c.ratio.n < MIN_PAIRS => {
            let pairs = if c.ratio.n == 1 { "one pair of runs is" } else { "two pairs of runs are" };
            format!(
                "{claim} (n{NO_BREAK_SPACE}={NO_BREAK_SPACE}{}), but {pairs} too few for a verdict{}.",
                c.ratio.n,
                more_would_decide(judgement.time_to_decide)
            )
        }
        _ => format!("{claim} ({sure}): not decided{}.", more_would_decide(judgement.time_to_decide)),
    };
    for (side, modes) in [(&theirs, judgement.against_modes), (&ours, judgement.variant_modes)] {
        if let Some(modes) = modes {
            text += &format!(" {}", capitalized(&two_modes(study, asked, side, &modes)));
        }
    }
    if c.undefined > 0 {
        text += &format!(" {} more pairs have no ratio: {theirs} delivered nothing.", c.undefined);
    }
    if let Some(paid) = judgement.bystanders.and_then(|paid| paid.in_words()) {
        text += &format!(" {}.", capitalized(&paid));
    }
    if let Some(expectation) = expectation(asked, c) {
        text += &format!(" {expectation}");
    }
    text
}

/// Returns the time that would decide, for example `; about 6 min more would decide it`; empty if more runs
/// do not help.
pub(crate) fn more_would_decide(time: Option<Duration>) -> String {
    time.map_or_else(String::new, |time| format!("; {} would decide it", time_to_decide::in_words(time)))
}

/// Puts the reason why a sentence is no verdict before it, with the time that would decide.
pub(crate) fn not_decided(time: Option<Duration>, words: &str) -> String {
    format!("Not decided, the runs scatter{}: {words}", more_would_decide(time))
}

fn two_modes(study: &Study<'_>, verdict: &Verdict, side: &str, modes: &TwoModes) -> String {
    let unit = study.unit(&verdict.figure);
    format!(
        "{side} has two modes: {} in {} of {} runs, {} in the others.",
        number::quantity(modes.low.median, &unit),
        modes.low.n,
        modes.low.n + modes.high.n,
        number::quantity(modes.high.median, &unit)
    )
}

/// Writes whether an expectation was met, with both numbers.
pub(crate) fn expectation(verdict: &Verdict, c: &Comparison) -> Option<String> {
    let expected = verdict.expected?;
    let from = verdict.expected_from.as_deref().map(|from| format!(" ({from})")).unwrap_or_default();
    let is_met = verdict::meets_expectation(verdict, c)?;
    let met = match (verdict.expected_kind, is_met) {
        (ExpectedKind::Bound, true) if c.ratio.contains(expected) => "met, within the interval",
        (ExpectedKind::Bound, true) => "met",
        (ExpectedKind::Bound, false) if c.ratio.contains(expected) => "not met, but within the interval",
        (ExpectedKind::Bound, false) => "not met",
        (ExpectedKind::Value, true) => "the same here",
        (ExpectedKind::Value, false) => "not so here",
    };
    let bound = verdict.bound_in_words();
    Some(format!(
        "Expected {bound}{}{from}, found {}: {met}.",
        multiple(expected),
        multiple(c.ratio.value)
    ))
}

/// A segment of a sweep with one tone.
#[derive(Clone)]
pub(crate) struct SweepSegment<'j> {
    pub(crate) tone: Tone,
    pub(crate) judgements: Vec<&'j Judgement>,
    /// Whether the segment contains the start of the sweep; `last`: its end.
    first: bool,
    last: bool,
}

pub(crate) fn segments(judgements: &[Judgement]) -> Vec<SweepSegment<'_>> {
    let mut segments: Vec<SweepSegment<'_>> = Vec::new();
    for (i, judgement) in judgements.iter().enumerate() {
        let tone = tone(judgement);
        let last = i + 1 == judgements.len();
        match segments.last_mut() {
            Some(segment) if segment.tone == tone => {
                segment.judgements.push(judgement);
                segment.last = last;
            }
            _ => segments.push(SweepSegment { tone, judgements: vec![judgement], first: i == 0, last }),
        }
    }
    segments
}

impl<'j> SweepSegment<'j> {
    /// Returns the judgement with the ratio farthest from one.
    pub(crate) fn farthest(&self) -> Option<(&'j Judgement, &'j Comparison)> {
        let distance = |c: &Comparison| {
            let d = c.ratio.value.abs().ln().abs();
            if d.is_nan() { 0.0 } else { d }
        };
        let compared = self.judgements.iter().filter_map(|j| Some((*j, j.comparison()?)));
        compared.max_by(|a, b| distance(a.1).total_cmp(&distance(b.1)))
    }

    pub(crate) fn reason(&self) -> Option<&'j str> {
        self.judgements.iter().find_map(|j| match &j.answer {
            Answer::Unanswered(reason) => Some(reason.as_str()),
            Answer::Compared { .. } => None,
        })
    }

    /// Returns the range of ratios: `0.98 to 1.02 times`, or `3.00 to 15.0 times less` if all are below one.
    pub(crate) fn ratio_range(&self) -> String {
        let ratios = || self.judgements.iter().filter_map(|j| j.comparison()).map(|c| c.ratio.value);
        let (least, greatest) = (ratios().fold(f64::INFINITY, f64::min), ratios().fold(0.0, f64::max));
        let format = verdict::format_ratio;
        match (format(least) == format(greatest), least > 0.0 && greatest < LESS_BELOW) {
            (true, _) => multiple(least),
            (false, true) => format!("{} to {} times less", format(1.0 / greatest), format(1.0 / least)),
            (false, false) => format!("{} to {} times", format(least), format(greatest)),
        }
    }

    /// Returns the range of ratios with the figure and the other side: `3.00 to 15.0 times lower latency than
    /// plain Linux`.
    fn ratios_compared(&self, study: &Study<'_>, verdict: &Verdict) -> String {
        let (_, theirs) = sides(study, verdict);
        let figure = figure_in_words(study, verdict);
        let ratios = self.ratio_range();
        match ratios.strip_suffix(" less") {
            Some(times) => format!("{times} {} {figure} than {theirs}", lower_or_less(verdict)),
            None => format!("{ratios} the {figure} of {theirs}"),
        }
    }

    pub(crate) fn farthest_comparison(&self) -> Option<&'j Comparison> {
        self.farthest().map(|(_, comparison)| comparison)
    }

    /// Names the range of the parameter, for example `at interval 10 us`, `up to interval 10 us`, `from
    /// interval 100 us on`.
    pub(crate) fn parameter_range(&self, study: &Study<'_>, verdict: &Verdict) -> String {
        let Some(by) = &verdict.by else { return String::new() };
        let value = |j: Option<&&Judgement>| {
            j.and_then(|j| j.at.as_ref()).map(|at| study.parameter(by, at)).unwrap_or_default()
        };
        let name = study.label(by);
        if self.judgements.iter().any(|j| j.at.as_ref().is_some_and(|at| !at.is_number())) {
            // values that are no numbers have no order, so "up to" would make no sense
            let kinds = self.judgements.iter().map(|j| value(Some(j))).collect::<Vec<_>>().join(", ");
            let named = self.judgements.first().and_then(|j| j.at.as_ref());
            let is_named = named.is_some_and(|at| study.parameter_label(by, at).is_empty());
            return if is_named { format!("for {kinds}") } else { format!("at {name} {kinds}") };
        }
        let (from, to) = (value(self.judgements.first()), value(self.judgements.last()));
        match (self.first, self.last, self.judgements.len()) {
            (true, true, 2..) => format!("at every {name} from {from} to {to}"),
            (_, _, 1) => format!("at {name} {from}"),
            (true, false, _) => format!("up to {name} {to}"),
            (false, true, _) => format!("from {name} {from} on"),
            _ => format!("from {name} {from} to {to}"),
        }
    }

    /// Summarizes the segment, for example `2.5× at interval 10 us (95 % ...)`.
    pub(crate) fn summary(&self, study: &Study<'_>, verdict: &Verdict) -> String {
        let range = self.parameter_range(study, verdict);
        let range = if range.is_empty() { range } else { format!(" {range}") };
        match (self.tone, self.farthest_comparison()) {
            (Tone::Unanswered, _) | (_, None) => format!("not measured{range}"),
            (tone, Some(c)) if self.judgements.len() > 1 => {
                format!("{}{range} ({}; farthest: {})", tone.word(), self.ratio_range(), multiple_interval(c))
            }
            (tone, Some(c)) => {
                format!("{}{range} ({}, {})", tone.word(), multiple(c.ratio.value), multiple_interval(c))
            }
        }
    }
}

/// Describes the segments of a sweep in one line.
pub(crate) fn sweep_in_words(study: &Study<'_>, verdict: &Verdict, judgements: &[Judgement]) -> String {
    let parts: Vec<String> = segments(judgements).iter().map(|s| s.summary(study, verdict)).collect();
    parts.join("; ")
}

pub(crate) fn segment_sentence(study: &Study<'_>, verdict: &Verdict, segment: &SweepSegment<'_>) -> String {
    capitalized(&segment_in_words(study, verdict, segment))
}

fn segment_in_words(study: &Study<'_>, verdict: &Verdict, segment: &SweepSegment<'_>) -> String {
    if let [one] = segment.judgements.as_slice() {
        return sentence(study, verdict, one);
    }
    let (ours, _) = sides(study, verdict);
    let range = segment.parameter_range(study, verdict);
    let Some(most) = segment.farthest_comparison() else {
        let reason = segment.reason();
        return format!("Not measured {range}: {}.", reason.unwrap_or("no runs"));
    };
    let compared = segment.ratios_compared(study, verdict);
    let farthest = format!("farthest: {}, {}", multiple(most.ratio.value), multiple_interval(most));
    match segment.tone {
        Tone::Better => format!("{ours} {range}: {compared} ({farthest}): better."),
        Tone::Worse => format!("{ours} {range}: {compared} ({farthest}): worse."),
        Tone::Same => {
            format!(
                "{ours} {range}: no difference in {}, {}.",
                figure_in_words(study, verdict),
                segment.ratio_range()
            )
        }
        _ => {
            let first = segment.judgements.iter().filter_map(|judgement| judgement.time_to_decide).min();
            format!("{ours} {range}: not decided, {compared} ({farthest}){}.", more_would_decide(first))
        }
    }
}

/// Returns the fixed part of a comparison: the circumstance in its words, otherwise its fixed parameters.
pub(crate) fn fixed_part(study: &Study<'_>, verdict: &Verdict) -> Vec<String> {
    match &verdict.circumstance {
        Some(more) => vec![more.to_owned()],
        None => verdict.only.iter().map(|(name, value)| study.parameter_in_words(name, value)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::studies;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;
    use unisono_measure::record::{Figure, Line, RunLine, StudyLine};

    /// Returns the segments, in words, of a sweep over these values; the variant wins twofold at each.
    fn ranges(parameter: &str, values: &[Value]) -> Vec<String> {
        let verdict = Verdict {
            variant: "gang".into(),
            against: "spread".into(),
            figure: "rate".into(),
            by: Some(parameter.to_owned()),
            ..Verdict::default()
        };
        let labels = BTreeMap::from([("program=stencil-c".to_owned(), "stencils in C".to_owned())]);
        let head = StudyLine { study: "s".into(), verdicts: vec![verdict], labels, ..StudyLine::default() };
        let mut lines = vec![Line::Study(Box::new(head))];
        for (value, repetition) in values.iter().flat_map(|value| (0..3).map(move |i| (value, i))) {
            lines.extend([("gang", 2.0), ("spread", 1.0)].map(|(variant, rate)| {
                Line::Run(Box::new(RunLine {
                    study: "s".into(),
                    variant: variant.into(),
                    repetition,
                    parameters: BTreeMap::from([(parameter.to_owned(), value.clone())]),
                    figures: vec![Figure::new("rate", rate, "1/s")],
                    ..RunLine::default()
                }))
            }));
        }
        let studies = studies(&lines);
        let (verdict, judged) = studies[0].verdicts().next().expect("one verdict");
        segments(judged)
            .iter()
            .map(|s| s.parameter_range(&studies[0], verdict).replace(NO_BREAK_SPACE, " "))
            .collect()
    }

    #[test]
    fn a_stretch_of_numbers_has_ends_and_one_of_kinds_names_each() {
        assert_eq!(
            ranges("interval_us", &[json!(0), json!(10), json!(100)]),
            ["at every interval from 0 to 100 us"]
        );
        assert_eq!(ranges("interval_us", &[json!(10)]), ["at interval 10 us"]);
        let kinds = [json!("libgomp"), json!("stencil-rayon")];
        assert_eq!(ranges("program", &kinds), ["at program libgomp, stencil-rayon"]);
        assert_eq!(ranges("program", &[json!("stencil-c")]), ["for stencils in C"]);
    }

    /// Makes a sweep over two values with these results of the variant and 1.0 for the other side; five runs
    /// each.
    fn swept(ours: [f64; 2], better: Better, per: bool) -> Vec<Line> {
        let verdict = Verdict {
            variant: "gang".into(),
            against: "spread".into(),
            figure: "latency".into(),
            divisor: per.then(|| "processors".to_owned()),
            better,
            by: Some("interval_us".into()),
            sides: Some(["gangs", "pinned threads"].map(str::to_owned)),
            ..Verdict::default()
        };
        let head = StudyLine { study: "s".into(), verdicts: vec![verdict], ..StudyLine::default() };
        let mut lines = vec![Line::Study(Box::new(head))];
        for (at, repetition) in (0..2_usize).flat_map(|at| (0..5).map(move |i| (at, i))) {
            lines.extend([("gang", ours[at]), ("spread", 1.0)].map(|(variant, value)| {
                let figures = vec![Figure::new("latency", value, "1"), Figure::new("processors", 1.0, "1")];
                Line::Run(Box::new(RunLine {
                    study: "s".into(),
                    variant: variant.into(),
                    repetition,
                    parameters: BTreeMap::from([("interval_us".to_owned(), (10 + at).into())]),
                    figures,
                    ..RunLine::default()
                }))
            }));
        }
        lines
    }

    fn sentences(lines: &[Line]) -> Vec<String> {
        let studies = studies(lines);
        let (verdict, judged) = studies[0].verdicts().next().expect("one verdict");
        let of_stretches = segments(judged).into_iter().map(|s| segment_sentence(&studies[0], verdict, &s));
        let each = judged.iter().map(|judgement| sentence(&studies[0], verdict, judgement));
        of_stretches.chain(each).map(|sentence| sentence.replace(NO_BREAK_SPACE, " ")).collect()
    }

    #[test]
    fn a_stretch_says_how_much_of_what_than_whose() {
        let found = sentences(&swept([0.1, 0.05], Better::Lower, false));
        assert_eq!(
            found[0],
            "Gangs at every interval from 10 us to 11 us: 10.0 to 20.0 times lower latency than pinned threads (farthest: 20.0 \
             times less, 93 % interval 20.0 to 20.0, n = 5): better."
        );
        let found = sentences(&swept([3.0, 4.0], Better::Higher, true));
        assert!(
            found[0].contains("3.00 to 4.00 times the latency for each processor used of pinned threads"),
            "{found:?}"
        );
    }

    proptest! {
        /// Sentences have words instead of signs, and no factor below one for a gain or a loss.
        #[test]
        fn no_sentence_has_a_sign_an_exponent_or_a_factor_below_one(
            ours in [1e-5_f64..1e5, 1e-5_f64..1e5],
            is_lower: bool,
            per: bool,
        ) {
            let better = if is_lower { Better::Lower } else { Better::Higher };
            for sentence in sentences(&swept(ours, better, per)) {
                prop_assert!(!sentence.contains('\u{d7}') && !sentence.contains("e-") && !sentence.contains("e5"), "{sentence}");
                let is_decided = sentence.ends_with("better.") || sentence.ends_with("worse.");
                let factor = sentence.split(": ").nth(1).and_then(|rest| rest.split(' ').next());
                let factor = factor.and_then(|factor| factor.replace(',', "").parse::<f64>().ok());
                prop_assert!(!is_decided || factor.is_some_and(|factor| factor >= 1.0), "{sentence}");
            }
        }
    }
}
