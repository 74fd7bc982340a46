//! The answer of a topic: its sentences, the picture for the first sentence, and the command to type.
//!
//! The picture draws the comparison of the first sentence at the same parameter values: its two sides, and
//! other variants measured there, the best first. Bars begin at zero; values that span more than twenty times
//! are dots on a logarithmic axis, because a short bar would vanish.

use crate::draw::style;
use crate::number;
use crate::study::Study;
use crate::wording;
use unisono_measure::interval::{Estimate, LEVEL, median_interval};
use unisono_measure::record::{Better, Outcome, Verdict};
use unisono_measure::verdict::Judgement;
use unisono_measure::{Evidence, Selector, verdict};

/// The least length of a bar, in per cent of the longest bar: a shorter bar would be invisible.
const MIN_LENGTH: f64 = 0.6;
/// Values that span more than this are drawn on a logarithmic axis.
const MAX_LINEAR_SPAN: f64 = 20.0;
/// The maximum number of bars of a picture: the two sides, and as many others as fit into a card.
const MAX_BARS: usize = 4;

pub struct TopicAnswer {
    pub words: String,
    pub(crate) picture: Option<AnswerPicture>,
    /// Replaces the topic's usual command.
    pub(crate) command: Option<&'static str>,
    /// The runs behind the figures of the first sentence, if they are known.
    pub(crate) evidence: Option<Evidence>,
    /// Whether the words answer the topic's question; otherwise the words give the reason why there is no
    /// answer.
    pub(crate) is_decided: bool,
}

impl TopicAnswer {
    pub fn new(words: String, picture: Option<AnswerPicture>) -> Self {
        let evidence = picture.as_ref().and_then(|picture| picture.evidence);
        Self { words, picture, command: None, evidence, is_decided: true }
    }

    /// Adds the runs behind the answer's figures; those behind the picture count, too.
    pub(crate) fn resting_on(self, evidence: Option<Evidence>) -> Self {
        let evidence = self.evidence.into_iter().chain(evidence).reduce(Evidence::weaker);
        Self { evidence, ..self }
    }

    /// Puts the reason why the topic's question is not answered before the words, which are about something
    /// else.
    pub(crate) fn beside(self, reason: &str) -> Self {
        let words = format!("{reason} These runs answer something else: {}", self.words);
        Self { words, ..self }.undecided()
    }

    /// Marks the words as no answer to the topic's question.
    pub(crate) fn undecided(self) -> Self {
        Self { is_decided: false, ..self }
    }
}

/// Bars or dots, the best first.
pub struct AnswerPicture {
    /// The quantity of the bars, and the parameter values.
    pub(crate) title: String,
    pub(crate) bars: Vec<AnswerBar>,
    /// Whether the bars are dots on a logarithmic axis.
    pub(crate) is_logarithmic: bool,
    /// The runs behind the bars of the selector.
    evidence: Option<Evidence>,
}

pub(crate) struct AnswerBar {
    pub(crate) name: String,
    pub(crate) value: String,
    /// The value as a multiple of the best: `1.4 x`; empty for the best.
    pub(crate) factor: String,
    /// The interval and the number of runs.
    pub(crate) spread: String,
    /// The end of the bar, or the place of the dot, in per cent of the axis.
    pub(crate) length: f64,
    /// The ends of the interval, in per cent of the axis.
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Whether `low` and `high` are the least and the greatest run, because an interval needs more runs.
    pub(crate) is_range: bool,
    pub(crate) class: &'static str,
}

impl AnswerPicture {
    /// Draws both sides of a comparison, and the other variants measured at its parameter values.
    pub(crate) fn from_comparison(
        study: &Study<'_>,
        verdict: &Verdict,
        judgement: &Judgement,
    ) -> Option<Self> {
        let words = wording::place_in_words(study, verdict, judgement);
        Self::new(study, &verdict.selector(&judgement.place), verdict.better, &words)
    }

    /// Draws a figure at the place that a selector names: first the selector's variants, then others measured
    /// there. `None` if fewer than two were measured.
    pub fn new(study: &Study<'_>, of: &Selector, better: Better, place_in_words: &str) -> Option<Self> {
        let place = of.place(&study.runs)?;
        let here =
            study.runs.iter().filter(|run| run.outcome == Outcome::Measured && run.has_parameters(&place));
        let named = of.variants.iter().chain(&of.against).map(String::as_str);
        let count = of.variants.len() + usize::from(of.against.is_some());
        let mut variants: Vec<(&str, &'static str)> = Vec::new();
        for (at, variant) in named.chain(here.map(|run| run.variant.as_str())).enumerate() {
            if variants.iter().all(|(known, _)| *known != variant) {
                let used: Vec<&str> = variants.iter().map(|(_, class)| *class).collect();
                let class = study.styles.style(variant).class;
                // in a picture each color stands for one variant, because there are no markers to tell two
                // variants of a color apart
                let class = match (used.contains(&class), at < count) {
                    (false, _) => class,
                    (true, true) => style::unused_class(&used),
                    (true, false) => continue,
                };
                variants.push((variant, class));
            }
        }
        let median = |variant: &str| {
            let estimate = median_interval(&of.of_variant(variant).values(&study.runs), LEVEL)?;
            Some(estimate).filter(|estimate| estimate.value.is_finite() && estimate.value >= 0.0)
        };
        let values =
            variants.into_iter().filter_map(|(variant, class)| Some((variant, class, median(variant)?)));
        let mut values: Vec<(&str, &'static str, Estimate)> = values.take(MAX_BARS.max(count)).collect();
        values.sort_by(|(_, _, one), (_, _, other)| match better {
            Better::Lower => one.value.total_cmp(&other.value),
            _ => other.value.total_cmp(&one.value),
        });
        let axis = AnswerAxis::new(&values.iter().map(|(_, _, estimate)| *estimate).collect::<Vec<_>>())?;
        let named: Vec<&str> = of.variants.iter().chain(&of.against).map(String::as_str).collect();
        let behind = study
            .runs
            .iter()
            .copied()
            .filter(|run| named.contains(&run.variant.as_str()) && run.has_parameters(&place));
        let evidence = Evidence::from_runs(&behind.collect::<Vec<_>>(), |run| of.value_of(run));
        let unit = study.unit(&of.figure);
        let best = values[0].2.value;
        let bar = |(variant, class, estimate): &(&str, &'static str, Estimate)| AnswerBar {
            name: study.label(variant),
            value: number::quantity(estimate.value, &unit),
            factor: factor(estimate.value, best),
            spread: spread(estimate, &unit),
            length: axis.place(estimate.value).max(MIN_LENGTH),
            low: axis.place(estimate.low),
            high: axis.place(estimate.high),
            is_range: estimate.is_range(),
            class,
        };
        let better = if better == Better::Lower { "less" } else { "more" };
        let figure = wording::figure_in_words(study, &Verdict::from(of));
        let title = wording::capitalized(&format!("{figure}{place_in_words}"));
        let title = format!("{title} (medians; {better} is better)");
        let is_logarithmic = axis.min > 0.0;
        Some(Self { title, bars: values.iter().map(bar).collect(), is_logarithmic, evidence })
    }
}

/// The axis of a picture: from zero, or logarithmic from `min`.
struct AnswerAxis {
    /// Zero on a linear axis.
    min: f64,
    max: f64,
}

impl AnswerAxis {
    /// Chooses the axis. `None` if fewer than two values were measured, or none is above zero.
    fn new(values: &[Estimate]) -> Option<Self> {
        let least = values.iter().map(|estimate| estimate.low).fold(f64::INFINITY, f64::min);
        let medians = values.iter().map(|estimate| estimate.value);
        let (low, most) =
            medians.fold((f64::INFINITY, 0.0_f64), |(low, most), value| (low.min(value), most.max(value)));
        if values.len() < 2 || most <= 0.0 {
            return None;
        }
        let max = values.iter().map(|estimate| estimate.high).fold(most, f64::max);
        let is_logarithmic = least > 0.0 && most > low * MAX_LINEAR_SPAN;
        // a dot at the end of the axis would be cut
        Some(if is_logarithmic { Self { min: least / 1.5, max: max * 1.2 } } else { Self { min: 0.0, max } })
    }

    /// Returns the place of a value in per cent of the axis.
    fn place(&self, value: f64) -> f64 {
        match self.min > 0.0 {
            true => (value / self.min).ln() / (self.max / self.min).ln() * 100.0,
            false => value / self.max * 100.0,
        }
    }
}

/// Formats a value as a multiple of the best; empty for the best.
fn factor(value: f64, best: f64) -> String {
    let factor = value / best;
    if best <= 0.0 || factor == 1.0 {
        return String::new();
    }
    format!("{}{}×", verdict::format_ratio(factor), number::NO_BREAK_SPACE)
}

/// Formats the spread: `n = 3, 102 to 110 ns`, `n = 10, 95 %: 102 to 110 ns`; of one run only the number.
fn spread(estimate: &Estimate, unit: &str) -> String {
    let Estimate { low, high, n, .. } = *estimate;
    let count = format!("n{0}={0}{n}", number::NO_BREAK_SPACE);
    if n < 2 {
        return count;
    }
    let level = match estimate.is_range() {
        true => String::new(),
        false => format!(" {:.0}{}%:", estimate.level * 100.0, number::NO_BREAK_SPACE),
    };
    format!("{count},{level} {} to {}", number::quantity(low, unit), number::quantity(high, unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::{Figure, Line, RunLine};

    fn estimate(value: f64) -> Estimate {
        Estimate { value, low: value * 0.9, high: value * 1.1, n: 3, level: LEVEL }
    }

    #[test]
    fn values_that_span_more_than_twenty_times_have_a_logarithmic_axis() {
        let near = AnswerAxis::new(&[1.0, 19.0].map(estimate)).expect("an axis");
        assert!((near.min, near.place(0.0)) == (0.0, 0.0) && near.place(19.0) < 100.0);
        let far = AnswerAxis::new(&[1.0, 10.0, 100.0].map(estimate));
        let far = far.expect("an axis");
        let [a, b, c] = [1.0, 10.0, 100.0].map(|value| far.place(value));
        assert!(a > 0.0 && c < 100.0 && ((b - a) - (c - b)).abs() < 1e-9, "{a} {b} {c}");
        assert!(AnswerAxis::new(&[estimate(1.0)]).is_none());
    }

    #[test]
    fn each_value_has_its_factor_its_interval_or_range_and_its_runs() {
        let plain = |text: String| text.replace(number::NO_BREAK_SPACE, " ");
        assert_eq!((plain(factor(14.0, 10.0)), factor(10.0, 10.0)), ("1.40 ×".to_owned(), String::new()));
        assert_eq!(plain(spread(&estimate(100.0), "ns")), "n = 3, 90 ns to 110 ns");
        assert_eq!(plain(spread(&Estimate { n: 1, ..estimate(100.0) }, "ns")), "n = 1");
        let ten = Estimate { n: 10, ..estimate(100.0) };
        assert_eq!(plain(spread(&ten, "ns")), "n = 10, 95 %: 90 ns to 110 ns");
    }

    #[test]
    fn a_colour_means_one_variant_in_a_picture() {
        let variants: Vec<String> = (0..12).map(|i| format!("v{i}")).collect();
        let run = |variant: &String| RunLine {
            study: "s".into(),
            variant: variant.clone(),
            figures: vec![Figure { name: "step_ns".into(), value: 5.0, ..Figure::default() }],
            ..RunLine::default()
        };
        let lines: Vec<Line> = variants.iter().map(|variant| Line::Run(Box::new(run(variant)))).collect();
        let studies = crate::study::studies(&lines);
        let class = |variant: &str| studies[0].styles.style(variant).class;
        assert_eq!(class("v0"), class("v8"), "eight colors for twelve variants");
        for named in [["v0", "v8"], ["v9", "v3"]] {
            let of = Selector {
                variants: named.map(str::to_owned).to_vec(),
                figure: "step_ns".into(),
                ..Selector::default()
            };
            let picture = AnswerPicture::new(&studies[0], &of, Better::Lower, "").expect("twelve variants");
            let mut classes: Vec<&str> = picture.bars.iter().map(|bar| bar.class).collect();
            classes.sort_unstable();
            classes.dedup();
            assert_eq!((picture.bars.len(), classes.len()), (MAX_BARS, MAX_BARS), "{named:?}");
            assert!(named.iter().all(|name| picture.bars.iter().any(|bar| bar.name == *name)));
        }
    }
}
