//! Answers the question of one topic: a headline, and sentences with a link to the study of each.
//!
//! The sentences are in `templates/`, as paragraphs: the question; the headline after its study; the headline
//! if that study is missing; sentences, each after its study; the command to type next, as HTML. Figures are
//! in braces. A sentence is left out if one of its figures is missing:
//!
//! ```text
//!   {cable.delay_us us}                                    the median of a selector's values, and its format
//!   {channel/tcp.delay_us .2}                              the ratio of two variants, pair by pair
//!   {@members=most count}                                  the parameter's greatest value itself
//!   {fair.rate per fifo.rate .2}   {a.x less b.x +us}      a ratio, a difference
//!   {saving a.x of b.x .0}         {change a.x of b.x .1}  by how many percent a value is less, or more
//!   {places *.delay_us us}                                 a list: the value for each place, with its name
//!   {if a.x under b.x: yes | no}                           one of two texts
//!   {headline}                                             a text that the topic computes by a function
//! ```
//! The study may be followed by the picture of the sentence: a selector of variants and a figure for which
//! less is better: `[queue-decisions; ours|heap.ns_per_packet@classes=most]`. [`unisono_measure::selector`]
//! explains selectors.
//!
//! Formats: a unit (three digits, the most readable magnitude), `+us` (a difference), `.1` (digits after the
//! point), `plain`, `count`, `ratio` (2.50 to 1).

use crate::number;
use crate::study::Study;
use crate::topic_answer::{AnswerPicture, TopicAnswer};
use askama::Template;
use serde_json::Value;
use std::cell::Cell;
use unisono_measure::Evidence;
use unisono_measure::quantile;
use unisono_measure::record::{Better, Verdict};
use unisono_measure::selector::{Condition, Selector, parameter_values};
use unisono_measure::verdict::judge;

/// The value that represents several runs of a variant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Average {
    Median,
    Mean,
}

/// The question about a topic, and its sentences.
pub(crate) struct TopicQuestion {
    pub(crate) topic: &'static str,
    pub(crate) average: Average,
    /// Variants for a list of places, each with its name in a sentence.
    pub(crate) places: &'static [(&'static str, &'static str)],
    pub(crate) sentences: &'static str,
    /// Texts that the grammar cannot express, by name.
    pub(crate) computed: fn(TopicFigures<'_>, &str) -> Option<String>,
}

/// The source of the figures in sentences: a study.
#[derive(Clone, Copy)]
pub(crate) struct TopicFigures<'a> {
    pub(crate) question: &'a TopicQuestion,
    study: &'a Study<'a>,
    /// The weakest of the figures that were looked up.
    evidence: &'a Cell<Option<Evidence>>,
}

/// A sentence with the study of its figures, and the runs behind the weakest of them.
struct FilledSentence<'s> {
    words: String,
    study: &'s Study<'s>,
    evidence: Option<Evidence>,
}

#[derive(Template)]
#[template(path = "topic_section.html")]
struct TopicSection<'a> {
    question: String,
    headline: String,
    sentences: Vec<(String, &'a Study<'a>)>,
    hint: String,
}

impl TopicQuestion {
    /// Returns the headline with its study, or the reason why the records do not answer the question. The
    /// page, its cards and the last screen show the same verdict.
    fn verdict<'s>(&self, studies: &'s [Study<'s>]) -> Result<FilledSentence<'s>, String> {
        let mut paragraphs = self.paragraphs().skip(1);
        let (headline, otherwise) =
            (paragraphs.next().unwrap_or_default(), paragraphs.next().unwrap_or_default());
        self.filled_sentence(studies, &headline).ok_or_else(|| {
            let id = study_of(&headline).unwrap_or_default();
            let skipped = studies.iter().find(|study| study.head.study == id).and_then(Study::first_skipped);
            match skipped {
                Some(reason) => format!("Not answered: {reason}."),
                None => format!("{} unisono study {id} makes such runs.", otherwise.trim_end()),
            }
        })
    }

    /// Returns the answer as HTML. Empty if no study is about the topic.
    pub(crate) fn html(&self, studies: &[Study<'_>]) -> String {
        if !studies.iter().any(|study| study.head.topic == self.topic) {
            return String::new();
        }
        let filled = |paragraph: &str| self.filled_sentence(studies, paragraph);
        let paragraphs: Vec<String> = self.paragraphs().collect();
        let [question, _, _, sentences @ .., hint] = &paragraphs[..] else {
            return String::new();
        };
        TopicSection {
            question: question.clone(),
            headline: self.verdict(studies).map_or_else(|otherwise| otherwise, |headline| headline.words),
            sentences: sentences
                .iter()
                .filter_map(|sentence| filled(sentence))
                .map(|one| (one.words, one.study))
                .collect(),
            hint: hint.clone(),
        }
        .to_string()
    }

    /// Returns the verdict, with its picture. Without a verdict, returns the reason, and the first sentence
    /// that these records allow.
    pub(crate) fn topic_answer(&self, studies: &[Study<'_>]) -> Option<TopicAnswer> {
        let first = self.paragraphs().find_map(|paragraph| {
            let filled = self.filled_sentence(studies, &paragraph)?;
            let evidence = Cell::new(None);
            let figures = TopicFigures { question: self, study: filled.study, evidence: &evidence };
            let picture = figures.picture(&paragraph);
            Some(TopicAnswer::new(filled.words, picture).resting_on(filled.evidence))
        })?;
        Some(match self.verdict(studies) {
            Ok(_) => first,
            Err(otherwise) => {
                let words = format!("{otherwise} Beside that: {}", first.words);
                TopicAnswer { words, ..first }.undecided()
            }
        })
    }

    fn paragraphs(&self) -> impl Iterator<Item = String> {
        self.sentences.split("\n\n").map(|lines| lines.trim_end().replace('\n', " "))
    }

    fn filled_sentence<'s>(&self, studies: &'s [Study<'s>], paragraph: &str) -> Option<FilledSentence<'s>> {
        let (_, text) = paragraph.strip_prefix('[')?.split_once("] ")?;
        let id = study_of(paragraph)?;
        let is_meant = |study: &&Study<'_>| study.head.topic == self.topic && study.head.study == id;
        let study = studies.iter().find(is_meant)?;
        let evidence = Cell::new(None);
        let words = TopicFigures { question: self, study, evidence: &evidence }.sentence(text)?;
        Some(FilledSentence { words, study, evidence: evidence.get() })
    }

    /// Returns the sentences about one study.
    pub(crate) fn sentences_about(&self, studies: &[Study<'_>], id: &str) -> Vec<String> {
        let of_study = self.paragraphs().filter(|paragraph| paragraph.starts_with(&format!("[{id}")));
        of_study
            .filter_map(|paragraph| self.filled_sentence(studies, &paragraph).map(|filled| filled.words))
            .collect()
    }
}

/// Returns the study named at the beginning of a paragraph.
fn study_of(paragraph: &str) -> Option<&str> {
    let (head, _) = paragraph.strip_prefix('[')?.split_once("] ")?;
    head.split("; ").next()
}

impl TopicFigures<'_> {
    /// Returns the picture that the head of a paragraph asks for.
    fn picture(self, paragraph: &str) -> Option<AnswerPicture> {
        let (head, _) = paragraph.strip_prefix('[')?.split_once("] ")?;
        let of: Selector = head.split_once("; ")?.1.parse().ok()?;
        let place = of.place(&self.study.runs)?;
        let words = self.study.place_in_words(place.iter().map(|(name, value)| (name.as_str(), value)));
        AnswerPicture::new(self.study, &of, Better::Lower, &words)
    }

    fn sentence(self, text: &str) -> Option<String> {
        let mut parts = text.split('{');
        let mut sentence = parts.next()?.to_owned();
        for part in parts {
            let (figure, rest) = part.split_once('}')?;
            sentence += &self.figure_text(figure)?;
            sentence += rest;
        }
        Some(sentence)
    }

    fn figure_text(self, figure: &str) -> Option<String> {
        if let Some(choice) = figure.strip_prefix("if ") {
            let (values, texts) = choice.split_once(": ")?;
            let ((one, other), (yes, no)) = (values.split_once(" under ")?, texts.split_once(" | ")?);
            return Some(if self.value(one)? < self.value(other)? { yes } else { no }.to_owned());
        }
        let Some((value, format)) = figure.rsplit_once(' ') else {
            return (self.question.computed)(self, figure);
        };
        let Some(each) = value.strip_prefix("places ") else { return formatted(self.value(value)?, format) };
        let place = |(variant, name): &(&str, &str)| {
            Some(format!("{} under {name}", formatted(self.value(&each.replace('*', variant))?, format)?))
        };
        list(&self.question.places.iter().filter_map(place).collect::<Vec<_>>())
    }

    /// Computes the value of an expression in braces.
    pub(crate) fn value(self, text: &str) -> Option<f64> {
        match text.split_once(' ') {
            Some((word @ ("saving" | "change"), both)) => {
                let (one, other) = both.split_once(" of ")?;
                let change = (self.term(one)? / self.term(other)? - 1.0) * 100.0;
                Some(if word == "saving" { -change } else { change })
            }
            Some((one, rest)) => {
                let (word, other) = rest.split_once(' ')?;
                let (one, other) = (self.term(one)?, self.term(other)?);
                Some(if word == "per" { one / other } else { one - other })
            }
            None => self.term(text),
        }
    }

    /// Computes a term: a number, the value of a parameter, the ratio of two variants, or the average of the
    /// values of a selector.
    fn term(self, text: &str) -> Option<f64> {
        let runs = &self.study.runs;
        if let Some((parameter, which)) = text.strip_prefix('@').and_then(|text| text.split_once('=')) {
            return which.parse::<Condition>().ok()?.value(parameter, runs)?.as_f64();
        }
        if let Ok(of) = text.parse::<Selector>() {
            self.note_evidence(&of);
        }
        if let Some(of) = text.parse::<Selector>().ok().filter(|of| of.against.is_some()) {
            let asked = Verdict { only: of.place(runs)?, ..Verdict::from(&of) };
            return Some(judge(&asked, runs).first()?.comparison()?.ratio.value);
        }
        let values = || Some(text.parse::<Selector>().ok()?.values(runs));
        text.parse().ok().or_else(|| match self.question.average {
            Average::Median => quantile::median(&values()?),
            Average::Mean => values()
                .filter(|values| !values.is_empty())
                .map(|values| values.iter().sum::<f64>() / values.len() as f64),
        })
    }

    fn note_evidence(self, of: &Selector) {
        let found = self.study.evidence(of);
        self.evidence.set(self.evidence.get().into_iter().chain(found).reduce(Evidence::weaker));
    }

    /// Returns the numeric values of a parameter in the runs of the study, ascending.
    pub(crate) fn parameters(self, parameter: &str) -> Vec<f64> {
        parameter_values(&self.study.runs, parameter).into_iter().filter_map(Value::as_f64).collect()
    }
}

fn formatted(value: f64, format: &str) -> Option<String> {
    let digits = |text: &str| text.strip_prefix('.')?.parse::<usize>().ok();
    Some(match format {
        "plain" => number::plain(value),
        "count" => number::count(value as usize),
        "ratio" => format!("{value:.2} to 1"),
        "+us" => format!("{value:+.1} us"),
        format => match (digits(format), digits(format.trim_start_matches('+'))) {
            (Some(digits), _) => format!("{value:.digits$}"),
            (None, Some(digits)) => format!("{value:+.digits$}"),
            (None, None) => number::quantity(value, format),
        },
    })
}

/// Joins the parts of a list, for example `a, b and c`. `None` for an empty list.
pub fn list(parts: &[String]) -> Option<String> {
    match parts {
        [] => None,
        [one] => Some(one.clone()),
        [first @ .., last] => Some(format!("{} and {last}", first.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Condition, Selector};
    use crate::study::studies;
    use unisono_measure::record::{Figure, Line, RunLine, StudyLine};

    /// Runs for every figure that a sentence names, each with the value 7.
    fn runs(study: &str, text: &str) -> Vec<Line> {
        let mut lines = Vec::new();
        for term in text.split(['{', '}', ' ']).map(|term| term.trim_end_matches(':')) {
            let written = if term.starts_with('@') { format!("any.x{term}") } else { term.to_owned() };
            let Ok(of) = written.parse::<Selector>() else { continue };
            let (name, condition) = of.conditions.iter().next().unzip();
            let values = match condition {
                Some(Condition::Is(value)) => vec![value.clone()],
                _ => vec![10.into(), 2000.into()],
            };
            let sides = of.variants.iter().take(1).chain(&of.against).map(|name| name.replace('*', "kernel"));
            for (variant, value) in
                sides.flat_map(|side| values.iter().map(move |value| (side.clone(), value.clone())))
            {
                let parameters = name.map(|name| (name.clone(), value));
                lines.push(Line::Run(Box::new(RunLine {
                    study: study.into(),
                    variant,
                    parameters: parameters.into_iter().collect(),
                    figures: vec![Figure { name: of.figure.clone(), value: 7.0, ..Figure::default() }],
                    ..RunLine::default()
                })));
            }
        }
        lines
    }

    #[test]
    fn every_sentence_can_be_said() {
        for question in [crate::events::QUESTION, crate::queues::QUESTION, crate::trees::QUESTION] {
            for paragraph in question.sentences.split("\n\n").filter(|text| text.starts_with('[')) {
                let paragraph = paragraph.replace('\n', " ");
                let (study, text) = paragraph[1..].split_once("] ").expect("a study");
                let study = study.split("; ").next().expect("the study comes first");
                if text == "{headline}" || text == "{roots}" {
                    continue;
                }
                let head =
                    StudyLine { study: study.into(), topic: question.topic.into(), ..StudyLine::default() };
                let lines = [vec![Line::Study(Box::new(head))], runs(study, text)].concat();
                let page = question.html(&studies(&lines));
                let begin = text.split('{').next().unwrap_or_default();
                assert!(page.contains(begin), "{begin:?} {page}");
            }
        }
    }
}
