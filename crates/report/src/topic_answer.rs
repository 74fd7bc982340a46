//! The answer of a topic: its sentences, the picture for the first sentence, and the command to type.
//!
//! The picture draws the comparison of the first sentence at the same parameter values: its two sides first,
//! then other variants measured there.

use crate::number;
use crate::study::Study;
use crate::wording;
use serde_json::Value;
use std::collections::BTreeMap;
use unisono_measure::quantile;
use unisono_measure::record::{Better, Outcome, Verdict};
use unisono_measure::verdict::Judgement;

/// The least length of a bar, in per cent of the longest bar: a shorter bar would be invisible.
const MIN_LENGTH: f64 = 0.6;
/// The most bars of a picture: the two sides, and as many others as fit into a card.
const MAX_BARS: usize = 4;

pub(crate) struct TopicAnswer {
    pub(crate) words: String,
    pub(crate) picture: Option<AnswerPicture>,
    /// Replaces the topic's usual command.
    pub(crate) command: Option<&'static str>,
}

impl TopicAnswer {
    pub(crate) fn new(words: String, picture: Option<AnswerPicture>) -> Self {
        Self { words, picture, command: None }
    }
}

/// Bars from zero on a linear scale.
pub(crate) struct AnswerPicture {
    /// The quantity of the bars, and the parameter values.
    pub(crate) title: String,
    pub(crate) bars: Vec<AnswerBar>,
}

pub(crate) struct AnswerBar {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Length in per cent of the longest bar.
    pub(crate) length: f64,
    pub(crate) class: &'static str,
}

impl AnswerPicture {
    /// Both sides of a comparison, and the other variants measured at its parameter values.
    pub(crate) fn from_comparison(
        study: &Study<'_>,
        verdict: &Verdict,
        judgement: &Judgement,
    ) -> Option<Self> {
        let mut place = verdict.only.clone();
        place.extend(verdict.by.clone().zip(judgement.at.clone()));
        let sides = [verdict.variant.as_str(), verdict.against.as_str()];
        Self::from_variants(
            study,
            verdict,
            &place,
            &sides,
            &wording::place_in_words(study, verdict, judgement),
        )
    }

    /// The figure of `asked` at a place (parameter values): first these variants, then others measured there.
    pub(crate) fn from_variants(
        study: &Study<'_>,
        asked: &Verdict,
        place: &BTreeMap<String, Value>,
        first: &[&str],
        place_in_words: &str,
    ) -> Option<Self> {
        let here =
            || study.runs.iter().filter(|run| run.outcome == Outcome::Measured && run.has_parameters(place));
        let mut variants = first.to_vec();
        for run in here() {
            if !variants.contains(&run.variant.as_str()) {
                variants.push(&run.variant);
            }
        }
        let median = |variant: &str| {
            let values = here().filter(|run| run.variant == variant).filter_map(|run| asked.value_of(run));
            quantile::median(&values.collect::<Vec<f64>>()).filter(|value| value.is_finite() && *value >= 0.0)
        };
        let values = variants.into_iter().filter_map(|variant| Some((variant, median(variant)?)));
        let values: Vec<(&str, f64)> = values.take(MAX_BARS.max(first.len())).collect();
        let most = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        if values.len() < 2 || most <= 0.0 {
            return None;
        }
        let unit = study.unit(&asked.figure);
        let bar = |(variant, value): &(&str, f64)| AnswerBar {
            name: study.label(variant),
            value: number::quantity(*value, &unit),
            length: (value / most * 100.0).max(MIN_LENGTH),
            class: study.styles.style(variant).class,
        };
        let better = if asked.better == Better::Lower { "less" } else { "more" };
        let title =
            wording::capitalized(&format!("{}{place_in_words}", wording::figure_in_words(study, asked)));
        let title = format!("{title} (medians; {better} is better)");
        Some(Self { title, bars: values.iter().map(bar).collect() })
    }
}
