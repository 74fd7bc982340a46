//! Advice by situation: a table with a row for each measured situation. A row has the gain of pinning over
//! plain Linux, the further gain of gangs, and the advice.
//!
//! Each situation has two comparisons, and the advice is the simplest remedy that helps. If plain Linux has
//! two modes there is no single ratio, so the cell shows the range. Open answers are short, and their
//! situations are folded below the others.

use crate::escape::Escaped;
use crate::study::{Study, question};
use crate::wording::{self, Tone, tone};
use askama::Template;
use serde_json::Value;
use std::collections::BTreeMap;
use unisono_measure::record::{Question, Verdict};
use unisono_measure::verdict::{self, Judgement};
use unisono_text::counted;

/// Explains the signs in a table.
pub(crate) const LEGEND: &str = "Median of the pairs, and how far they reach. \u{25b2} better, \u{25bc} worse, = no difference, ? not decided. Two modes: a program runs one way or another from start to start, and no one ratio describes that.";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderAdvice {
    Gang,
    Pin,
    LeaveAlone,
    Open,
}

impl ReaderAdvice {
    /// Chooses the simplest remedy that helps; open if the runs cannot decide.
    fn from_tones(pinning: Option<Tone>, ganging: Option<Tone>) -> Self {
        match (pinning, ganging) {
            // gangs are better than pinning, but pinning is worse than plain Linux, with which gangs were not
            // compared
            (Some(Tone::Worse), Some(Tone::Better)) => Self::Open,
            (_, Some(Tone::Better)) => Self::Gang,
            (Some(Tone::Better), _) => Self::Pin,
            (Some(Tone::Same | Tone::Worse) | None, Some(Tone::Same | Tone::Worse)) => Self::LeaveAlone,
            _ => Self::Open,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Gang => "run as gangs",
            Self::Pin => "pin the threads",
            Self::LeaveAlone => "leave alone",
            Self::Open => "open",
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Gang | Self::Pin => "better",
            Self::LeaveAlone => "same",
            Self::Open => "undecided",
        }
    }
}

type JudgedVerdict<'a> = (&'a Verdict, &'a Judgement);

struct Situation<'a> {
    study: &'a Study<'a>,
    /// The parameters of the situation.
    place: &'a BTreeMap<String, Value>,
    pinning: Option<JudgedVerdict<'a>>,
    ganging: Option<JudgedVerdict<'a>>,
}

impl Situation<'_> {
    fn advice(&self) -> ReaderAdvice {
        let tone_of = |judged: &Option<JudgedVerdict<'_>>| judged.map(|(_, judgement)| tone(judgement));
        ReaderAdvice::from_tones(tone_of(&self.pinning), tone_of(&self.ganging))
    }

    fn pinning_cell(&self) -> String {
        ratio_cell(self.pinning)
    }

    fn ganging_cell(&self) -> String {
        ratio_cell(self.ganging)
    }

    /// Writes the processors that bystanders got while gangs ran (without a comparison of gangs: while pinned
    /// threads ran), and while the other side of the comparison ran.
    fn bystanders_cell(&self) -> String {
        let judged = self.ganging.or(self.pinning);
        match judged.map(|(_, judgement)| judgement.bystanders) {
            Some(Some(paid)) => match paid.lost() {
                Some(_) => format!("{:.2} instead of {:.2}", paid.beside_variant, paid.beside_against),
                None => "as before".to_owned(),
            },
            _ => "\u{2013}".to_owned(),
        }
    }

    fn in_words(&self) -> String {
        let words = self.place.iter().map(|(name, value)| self.study.parameter_in_words(name, value));
        let words: Vec<String> = words.collect();
        if words.is_empty() { "all runs".to_owned() } else { words.join(", ") }
    }
}

fn situations<'a>(studies: &'a [Study<'a>]) -> Vec<Situation<'a>> {
    let mut situations: Vec<Situation<'a>> = Vec::new();
    for study in studies {
        let first = situations.len();
        for (verdict, judged) in study.verdicts() {
            let Some(asked @ (Question::Unstacking | Question::Ganging)) = question(verdict) else {
                continue;
            };
            for judgement in judged {
                let place = &judgement.place;
                let known = situations[first..].iter().position(|situation| situation.place == place);
                let at = known.map_or(situations.len(), |known| first + known);
                if at == situations.len() {
                    situations.push(Situation { study, place, pinning: None, ganging: None });
                }
                let situation = &mut situations[at];
                let side =
                    if asked == Question::Ganging { &mut situation.ganging } else { &mut situation.pinning };
                // the first of two verdicts on the same question counts: a study puts the more important one
                // first
                side.get_or_insert((verdict, judgement));
            }
        }
    }
    situations
}

#[derive(Template)]
#[template(path = "situations.html")]
struct SituationTables<'a> {
    all: String,
    gang: usize,
    pin: usize,
    alone: usize,
    clear: Vec<&'a Situation<'a>>,
    open: Vec<&'a Situation<'a>>,
}

fn by_study<'a>(situations: &'a [&'a Situation<'a>]) -> impl Iterator<Item = &'a [&'a Situation<'a>]> {
    situations.chunk_by(|a, b| a.study.head.study == b.study.head.study)
}

/// Returns the table with its summary, as HTML. Empty if there is no situation.
pub(crate) fn html(studies: &[Study<'_>]) -> String {
    let situations = situations(studies);
    if situations.is_empty() {
        return String::new();
    }
    let count = |advice| situations.iter().filter(|s| s.advice() == advice).count();
    let (open, clear) = situations.iter().partition(|s| s.advice() == ReaderAdvice::Open);
    SituationTables {
        all: counted(situations.len(), "situation"),
        gang: count(ReaderAdvice::Gang),
        pin: count(ReaderAdvice::Pin),
        alone: count(ReaderAdvice::LeaveAlone),
        clear,
        open,
    }
    .to_string()
}

/// A smaller ratio is shown inverted in a table: `4,475× less`.
const MIN_DECIMAL_RATIO: f64 = 0.01;

/// Returns a comparison in a table: its sign, its ratio and the interval.
pub(crate) fn ratio_cell(judged: Option<JudgedVerdict<'_>>) -> String {
    let Some((_, judgement)) = judged else { return "<small>not compared</small>".to_owned() };
    let tone = tone(judgement);
    let sign = format!("<i class=\"{}\">{}</i>", tone.class(), tone.sign());
    let Some(c) = judgement.comparison() else {
        return format!("{sign} <small>not measured</small>");
    };
    // a fraction with a large denominator is easier to read as a factor
    let is_tiny = c.ratio.value > 0.0 && c.ratio.value < MIN_DECIMAL_RATIO;
    let (c, less) = if is_tiny { (verdict::at_least_one(c), " less") } else { (*c, "") };
    let reach = format!("{} to {}", verdict::format_ratio(c.ratio.low), verdict::format_ratio(c.ratio.high));
    let modes = judgement.against_modes.or(judgement.variant_modes).is_some();
    let text = if tone == Tone::Undecided {
        // a number in bold would look like an answer
        let modes = if modes { "two modes, " } else { "" };
        format!(
            "<small class=\"open\">{reach}\u{d7}{less}, {modes}{}</small>",
            Escaped(&wording::pair_count(&c))
        )
    } else if modes {
        format!(
            "<b>{reach}\u{d7}{less}</b> <small>two modes, {}</small>",
            Escaped(&wording::pair_count(&c))
        )
    } else {
        format!(
            "<b>{}{less}</b> <small>{reach}, {}</small>",
            Escaped(&wording::times_sign(c.ratio.value)),
            Escaped(&wording::pair_count(&c))
        )
    };
    format!("{sign} {text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::{Figure, RunLine};

    #[test]
    fn a_tiny_ratio_is_a_factor_in_a_table() {
        let cell = |ratio: f64| {
            let asked = Verdict {
                variant: "a".into(),
                against: "b".into(),
                figure: "x".into(),
                ..Verdict::default()
            };
            let run = |variant: &str, repetition, value| RunLine {
                variant: variant.into(),
                repetition,
                figures: vec![Figure::new("x", value, "1")],
                ..RunLine::default()
            };
            let runs: Vec<RunLine> = (0..6).flat_map(|at| [run("a", at, ratio), run("b", at, 1.0)]).collect();
            let judged = verdict::judge(&asked, &runs.iter().collect::<Vec<_>>()).remove(0);
            ratio_cell(Some((&asked, &judged)))
        };
        assert!(cell(0.0002).contains("<b>5,000\u{d7} less</b> <small>5,000 to 5,000"), "{}", cell(0.0002));
        assert!(cell(0.5).contains("<b>0.50\u{d7}</b>"), "{}", cell(0.5));
    }

    #[test]
    fn the_advice_is_the_least_that_helps() {
        use Tone::{Better, Same, Unanswered, Undecided, Worse};
        let cases = [
            (Some(Better), Some(Better), ReaderAdvice::Gang),
            (Some(Better), Some(Undecided), ReaderAdvice::Pin),
            (Some(Better), Some(Worse), ReaderAdvice::Pin),
            (Some(Same), Some(Worse), ReaderAdvice::LeaveAlone),
            (None, Some(Same), ReaderAdvice::LeaveAlone),
            (Some(Undecided), Some(Worse), ReaderAdvice::Open),
            (Some(Same), Some(Unanswered), ReaderAdvice::Open),
            (Some(Worse), None, ReaderAdvice::Open),
            (Some(Worse), Some(Better), ReaderAdvice::Open),
        ];
        for (pinning, ganging, wanted) in cases {
            assert_eq!(ReaderAdvice::from_tones(pinning, ganging), wanted, "{pinning:?} {ganging:?}");
        }
    }
}
