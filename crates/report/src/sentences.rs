//! Answers the question of one topic: a headline, and sentences with a link to the study of each.
//!
//! The sentences are in `templates/`, as paragraphs: the question; the headline after its study; the headline
//! if that study is missing; sentences, each after its study; the command to type next, as HTML. Figures are
//! in braces. A sentence is left out if one of its figures is missing:
//!
//! ```text
//!   {cable.delay_us us}                                    the average of a variant's figure, and its format
//!   {tree.latency_us@members=256 us}                       if `members` is 256 (or `least`, `most`)
//!   {tree@members=most count}                              the parameter's greatest value itself
//!   {tun-spin|tun.delay_us us}                             the first of these variants that was measured
//!   {fair.rate per fifo.rate .2}   {a.x less b.x +us}      a ratio, a difference
//!   {saving a.x of b.x .0}         {change a.x of b.x .1}  by how many percent a value is less, or more
//!   {places *.delay_us us}                                 a list: the value for each place, with its name
//!   {if a.x under b.x: yes | no}                           one of two texts
//!   {headline}                                             a text that the topic computes by a function
//! ```
//! The study may be followed by the picture of the sentence: variants, a figure for which less is better, and
//! a parameter value: `[queue-decisions; ours heap.ns_per_packet@classes=most]`.
//!
//! Formats: a unit (three digits, the most readable magnitude), `+us` (a difference), `.1` (digits after the
//! point), `plain`, `count`, `ratio` (2.50 to 1).

use crate::number;
use crate::study::Study;
use crate::topic_answer::{AnswerPicture, TopicAnswer};
use askama::Template;
use std::collections::BTreeMap;
use unisono_measure::quantile;
use unisono_measure::record::{Better, RunLine, Verdict};

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

/// The figures of a study, for sentences.
#[derive(Clone, Copy)]
pub(crate) struct TopicFigures<'a> {
    pub(crate) question: &'a TopicQuestion,
    study: &'a Study<'a>,
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
    /// The answer as HTML. Empty if no study is about the topic.
    pub(crate) fn html(&self, studies: &[Study<'_>]) -> String {
        if !studies.iter().any(|study| study.head.topic == self.topic) {
            return String::new();
        }
        let filled = |paragraph: &str| self.filled_sentence(studies, paragraph);
        let paragraphs: Vec<String> = self.paragraphs().collect();
        let [question, headline, otherwise, sentences @ .., hint] = &paragraphs[..] else {
            return String::new();
        };
        TopicSection {
            question: question.clone(),
            headline: filled(headline).map_or_else(|| otherwise.clone(), |(text, _)| text),
            sentences: sentences.iter().filter_map(|sentence| filled(sentence)).collect(),
            hint: hint.clone(),
        }
        .to_string()
    }

    /// The first sentence that these records allow, with its picture.
    pub(crate) fn topic_answer(&self, studies: &[Study<'_>]) -> Option<TopicAnswer> {
        self.paragraphs().find_map(|paragraph| {
            let (words, study) = self.filled_sentence(studies, &paragraph)?;
            let picture = TopicFigures { question: self, study }.picture(&paragraph);
            Some(TopicAnswer::new(words, picture))
        })
    }

    fn paragraphs(&self) -> impl Iterator<Item = String> {
        self.sentences.split("\n\n").map(|lines| lines.trim_end().replace('\n', " "))
    }

    fn filled_sentence<'s>(
        &self,
        studies: &'s [Study<'s>],
        paragraph: &str,
    ) -> Option<(String, &'s Study<'s>)> {
        let (head, text) = paragraph.strip_prefix('[')?.split_once("] ")?;
        let id = head.split("; ").next()?;
        let is_meant = |study: &&Study<'_>| study.head.topic == self.topic && study.head.study == id;
        let study = studies.iter().find(is_meant)?;
        Some((TopicFigures { question: self, study }.sentence(text)?, study))
    }

    /// The sentences about one study.
    pub(crate) fn sentences_about(&self, studies: &[Study<'_>], id: &str) -> Vec<String> {
        let of_study = self.paragraphs().filter(|paragraph| paragraph.starts_with(&format!("[{id}")));
        of_study
            .filter_map(|paragraph| self.filled_sentence(studies, &paragraph).map(|(text, _)| text))
            .collect()
    }
}

impl TopicFigures<'_> {
    /// The picture that the head of a paragraph asks for: variants, a figure, and a parameter with its value.
    fn picture(self, paragraph: &str) -> Option<AnswerPicture> {
        let (head, _) = paragraph.strip_prefix('[')?.split_once("] ")?;
        let (_, picture) = head.split_once("; ")?;
        let (names, which) = picture.rsplit_once('@')?;
        let (variants, figure) = names.rsplit_once('.')?;
        let (parameter, which) = which.split_once('=')?;
        let all = self.parameters(parameter);
        let at = if which == "most" { *all.last()? } else { *all.first()? };
        let is_there = |run: &&&RunLine| number_of(run, parameter) == Some(at);
        let value = self.study.runs.iter().find(is_there)?.parameters.get(parameter)?;
        let place = BTreeMap::from([(parameter.to_owned(), value.clone())]);
        let words = self.study.place_in_words(std::iter::once((parameter, value)));
        let of = Verdict { figure: figure.to_owned(), better: Better::Lower, ..Verdict::default() };
        let variants: Vec<&str> = variants.split(' ').collect();
        AnswerPicture::from_variants(self.study, &of, &place, &variants, &words)
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

    /// The value of an expression in braces.
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

    fn term(self, text: &str) -> Option<f64> {
        let (name, place) = text.split_once('@').map_or((text, None), |(name, place)| (name, Some(place)));
        let (variant, figure) =
            name.split_once('.').map_or((name, None), |(variant, figure)| (variant, Some(figure)));
        let Some((parameter, which)) = place.and_then(|place| place.split_once('=')) else {
            return text.parse().ok().or_else(|| self.average(variant, figure?, |_| true));
        };
        let all = self.parameters(parameter);
        let at = match which {
            "least" => *all.first()?,
            "most" => *all.last()?,
            number => number.parse().ok()?,
        };
        let is_there = |run: &RunLine| number_of(run, parameter) == Some(at);
        figure.map_or(Some(at), |figure| self.average(variant, figure, is_there))
    }

    /// The parameter's values in the runs of the study, ascending.
    pub(crate) fn parameters(self, parameter: &str) -> Vec<f64> {
        let values: Vec<f64> = self.study.runs.iter().filter_map(|run| number_of(run, parameter)).collect();
        let mut all = quantile::sorted(&values);
        all.dedup();
        all
    }

    /// The middle over the runs of the first of these variants that has the figure.
    fn average(self, variants: &str, figure: &str, is_meant: impl Fn(&RunLine) -> bool) -> Option<f64> {
        variants.split('|').find_map(|variant| self.average_of(variant, figure, &is_meant))
    }

    fn average_of(self, variant: &str, figure: &str, is_meant: impl Fn(&RunLine) -> bool) -> Option<f64> {
        let runs = self.study.runs.iter().filter(|run| run.variant == variant && is_meant(run));
        let values = runs.filter_map(|run| run.value(figure)).filter(|value| value.is_finite());
        let values: Vec<f64> = values.collect();
        match self.question.average {
            Average::Median => quantile::median(&values),
            Average::Mean => (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64),
        }
    }
}

fn number_of(run: &RunLine, parameter: &str) -> Option<f64> {
    run.parameters.get(parameter)?.as_f64()
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

/// For example `a, b and c`. `None` for an empty list.
pub(crate) fn list(parts: &[String]) -> Option<String> {
    match parts {
        [] => None,
        [one] => Some(one.clone()),
        [first @ .., last] => Some(format!("{} and {last}", first.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use crate::study::studies;
    use std::collections::BTreeMap;
    use unisono_measure::record::{Figure, Line, RunLine, StudyLine};

    /// Runs for every figure that a sentence names, each with the value 7.
    fn runs(study: &str, text: &str) -> Vec<Line> {
        let mut lines = Vec::new();
        for term in text.split(['{', '}', ' ']).filter(|term| term.contains('.') || term.contains('@')) {
            let (name, place) = term.split_once('@').unwrap_or((term, ""));
            let Some((variant, figure)) = name.split_once('.').or((!place.is_empty()).then_some((name, "x")))
            else {
                continue;
            };
            let (parameter, at) = place.split_once('=').unwrap_or(("", ""));
            for value in at.parse::<u32>().map_or(vec![10, 2000], |at| vec![at]) {
                lines.push(Line::Run(Box::new(RunLine {
                    study: study.into(),
                    variant: variant.split('|').next().unwrap_or_default().replace('*', "kernel"),
                    parameters: BTreeMap::from([(parameter.trim_end_matches(':').to_owned(), value.into())]),
                    figures: vec![Figure { name: figure.into(), value: 7.0, ..Figure::default() }],
                    ..RunLine::default()
                })));
            }
        }
        lines
    }

    #[test]
    fn every_sentence_can_be_said() {
        for question in [crate::queues::QUESTION, crate::trees::QUESTION] {
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
