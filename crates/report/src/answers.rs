//! The page's first screen: for each topic an answer in a sentence, a small picture, and what to type.
//!
//! It has the same answers as the last screen of a terminal ([`crate::screen`]), unshortened. The picture is
//! the comparison that is farthest from no difference, at the place where it is: the two sides, and what else
//! was measured there.

use crate::number;
use crate::said::{self, Tone};
use crate::screen::{self, ScreenBlock};
use crate::study::Study;
use askama::Template;
use unisono_measure::quantile;
use unisono_measure::record::{Better, Outcome, Verdict};
use unisono_measure::verdict::Judgement;

/// A bar that is shorter is not seen, in per cent of the longest.
const LEAST_LENGTH: f64 = 0.6;
/// Bytes of an answer: five lines of a card.
const MOST_OF_ANSWER: usize = 230;
/// Bars of a picture: the two sides, and two more.
const MOST_BARS: usize = 4;

#[derive(Template)]
#[template(path = "answers.html")]
struct AnswersSection {
    answers: Vec<AnswerCard>,
}

struct AnswerCard {
    block: ScreenBlock,
    picture: Option<AnswerPicture>,
}

/// Bars from zero, linear.
struct AnswerPicture {
    /// What the bars are, and where.
    title: String,
    bars: Vec<AnswerBar>,
}

struct AnswerBar {
    name: String,
    value: String,
    /// Of the longest, in per cent.
    length: f64,
    class: &'static str,
}

pub(crate) fn html(studies: &[Study<'_>]) -> String {
    let topics = screen::topics(studies);
    let answer = |topic: &&str| {
        let own: Vec<&Study<'_>> = studies.iter().filter(|study| study.head.topic == **topic).collect();
        let mut block = screen::block(studies, topic);
        block.answer = first_sentences(&block.answer);
        AnswerCard { block, picture: picture(&own) }
    };
    let mut answers: Vec<AnswerCard> = topics.iter().map(answer).collect();
    answers.sort_by_key(|card| card.picture.is_none());
    AnswersSection { answers }.to_string()
}

/// As many whole sentences as fit into a card; the first one in any case.
fn first_sentences(text: &str) -> String {
    let ends = text.match_indices(". ").map(|(at, _)| at + 1).chain([text.len()]);
    let fits = ends.clone().take_while(|end| *end <= MOST_OF_ANSWER).last();
    text[..fits.or(ends.clone().next()).unwrap_or_default()].to_owned()
}

/// Of the comparison that is farthest from none; gains before losses.
fn picture(studies: &[&Study<'_>]) -> Option<AnswerPicture> {
    let judged = studies.iter().flat_map(|study| {
        let all = study.verdicts().flat_map(|(verdict, judged)| judged.iter().map(move |j| (verdict, j)));
        all.filter_map(|(verdict, judgement)| {
            let is_gain = match said::tone(judgement) {
                Tone::Better => true,
                Tone::Worse => false,
                _ => return None,
            };
            let strength = said::comparison(judgement)?.ratio.value.ln().abs();
            strength.is_finite().then_some((is_gain, strength, *study, verdict, judgement))
        })
    });
    let (.., study, verdict, judgement) = judged.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
    drawn(study, verdict, judgement)
}

fn drawn(study: &Study<'_>, verdict: &Verdict, judgement: &Judgement) -> Option<AnswerPicture> {
    let mut place = verdict.only.clone();
    place.extend(verdict.by.clone().zip(judgement.at.clone()));
    let here = || study.runs.iter().filter(|run| run.outcome == Outcome::Measured && run.has(&place));
    let mut variants = vec![verdict.variant.as_str(), verdict.against.as_str()];
    for run in here() {
        if !variants.contains(&run.variant.as_str()) {
            variants.push(&run.variant);
        }
    }
    let median = |variant: &str| {
        let values: Vec<f64> = here()
            .filter(|run| run.variant == variant)
            .filter_map(|run| run.value(&verdict.figure))
            .collect();
        quantile::median(&values).filter(|value| value.is_finite() && *value >= 0.0)
    };
    let values = variants.into_iter().filter_map(|variant| Some((variant, median(variant)?)));
    let values: Vec<(&str, f64)> = values.take(MOST_BARS).collect();
    let most = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    if values.len() < 2 || most <= 0.0 {
        return None;
    }
    let unit = study.unit(&verdict.figure);
    let bar = |(variant, value): &(&str, f64)| AnswerBar {
        name: study.label(variant),
        value: number::quantity(*value, &unit),
        length: (value / most * 100.0).max(LEAST_LENGTH),
        class: study.looks.look(variant).class,
    };
    let better = if verdict.better == Better::Lower { "less" } else { "more" };
    let title = format!("{}{}", study.label(&verdict.figure), said::place(study, verdict, judgement));
    let title = format!("{} (medians; {better} is better)", said::capital(&title));
    Some(AnswerPicture { title, bars: values.iter().map(bar).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_has_whole_sentences_and_at_least_one() {
        let long = format!("One {}.", "word ".repeat(60));
        assert_eq!(first_sentences("One. Two."), "One. Two.");
        assert_eq!(first_sentences(&format!("One. {long}")), "One.");
        assert_eq!(first_sentences(&format!("{long} Two.")), long);
        assert_eq!(first_sentences(""), "");
    }
}
