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
//!   {if a.x apart b.x: yes | no}                           whether the runs show a difference
//!   {headline}                                             a text that the topic computes by a function
//! ```
//! A sentence from too few rounds says so, and so does one with a ratio that the runs leave open: on the
//! card, on the last screen and in the section alike.
//!
//! The study may be followed by the picture of the sentence: a selector of variants and a figure for which
//! less is better: `[queue-decisions; ours|heap.ns_per_packet@classes=most]`. [`unisono_measure::selector`]
//! explains selectors.
//!
//! Formats: a unit (three digits, the most readable magnitude), `+us` (a difference), `.1` (digits after the
//! point), `plain`, `count`, `ratio` (2.50 to 1).

use crate::number;
use crate::study::Study;
use crate::topic_answer::{AnswerPicture, TopicAnswer};
use crate::wording::{self, Tone};
use askama::Template;
use serde_json::Value;
use std::cell::Cell;
use std::time::Duration;
use unisono_measure::Evidence;
use unisono_measure::interval::{LEVEL, median_interval};
use unisono_measure::paired::MIN_PAIRS;
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
    basis: &'a Cell<SentenceBasis>,
}

/// The support of the figures that were looked up for a sentence.
#[derive(Clone, Copy, Default)]
struct SentenceBasis {
    /// The runs behind the weakest figure.
    evidence: Option<Evidence>,
    /// Whether the runs leave a ratio open, though there are enough of them.
    is_open: bool,
    /// The least time of further runs that decides an open ratio.
    time: Option<Duration>,
}

/// A sentence with the study of its figures, and their support.
struct FilledSentence<'s> {
    words: String,
    study: &'s Study<'s>,
    basis: SentenceBasis,
}

impl FilledSentence<'_> {
    /// Returns the sentence after the reason why it is no verdict, if there is one.
    fn qualified(&self) -> String {
        let few = self.basis.evidence.and_then(|few| Some((few.too_few_in_words()?, few)));
        match few.filter(|_| !self.study.is_simulated()) {
            Some((seen, few)) => {
                format!("{} ({}), no verdict: {}", wording::capitalized(seen), few.in_words(), self.words)
            }
            None => self.unless_open(),
        }
    }

    /// Like [`Self::qualified`], where the number of rounds is said elsewhere.
    fn unless_open(&self) -> String {
        match self.is_open() {
            true => wording::not_decided(self.basis.time, &self.words),
            false => self.words.clone(),
        }
    }

    fn is_open(&self) -> bool {
        self.basis.is_open && !self.study.is_simulated()
    }
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
    /// Returns the first headline that the records allow, with its study, or the reason why they do not
    /// answer the question. The page, its cards and the last screen show the same verdict.
    fn verdict<'s>(&self, studies: &'s [Study<'s>]) -> Result<FilledSentence<'s>, String> {
        let headlines: Vec<String> =
            self.paragraphs().skip(1).take_while(|one| study_of(one).is_some()).collect();
        let filled = headlines.iter().find_map(|headline| self.filled_sentence(studies, headline));
        filled.ok_or_else(|| {
            let id = headlines.first().and_then(|headline| study_of(headline)).unwrap_or_default();
            let skipped = studies.iter().find(|study| study.head.study == id).and_then(Study::first_skipped);
            let otherwise = self.paragraphs().nth(1 + headlines.len()).unwrap_or_default();
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
        let [question, rest @ .., hint] = &paragraphs[..] else { return String::new() };
        // behind the headlines, and the sentence in their place
        let sentences = rest.iter().skip_while(|one| study_of(one).is_some()).skip(1);
        TopicSection {
            question: question.clone(),
            headline: self
                .verdict(studies)
                .map_or_else(|otherwise| otherwise, |headline| headline.qualified()),
            sentences: sentences
                .filter_map(|sentence| filled(sentence))
                .map(|one| (one.qualified(), one.study))
                .collect(),
            hint: hint.clone(),
        }
        .to_string()
    }

    /// Returns the verdict, with its picture. Without a verdict, returns the reason, and the first sentence
    /// that these records allow.
    pub(crate) fn topic_answer(&self, studies: &[Study<'_>]) -> Option<TopicAnswer> {
        let (first, is_open) = self.paragraphs().find_map(|paragraph| {
            let filled = self.filled_sentence(studies, &paragraph)?;
            let basis = Cell::default();
            let figures = TopicFigures { question: self, study: filled.study, basis: &basis };
            let picture = figures.picture(&paragraph);
            let answer = TopicAnswer::new(filled.unless_open(), picture).resting_on(filled.basis.evidence);
            Some((answer, filled.is_open()))
        })?;
        Some(match self.verdict(studies) {
            Ok(_) if is_open => first.undecided(),
            Ok(_) => first,
            Err(otherwise) => first.beside(&otherwise),
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
        let basis = Cell::default();
        let words = TopicFigures { question: self, study, basis: &basis }.sentence(text)?;
        Some(FilledSentence { words, study, basis: basis.get() })
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
            let (yes, no) = texts.split_once('|')?;
            let is_so = match values.split_once(" under ") {
                Some((one, other)) => self.value(one)? < self.value(other)?,
                None => {
                    let (one, other) = values.split_once(" apart ")?;
                    self.are_apart(&one.parse().ok()?, &other.parse().ok()?)?
                }
            };
            return Some(if is_so { yes } else { no }.trim().to_owned());
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
            let judged = judge(&asked, runs);
            let first = judged.first()?;
            let ratio = first.comparison()?.ratio;
            if wording::tone(first) == Tone::Undecided && ratio.n >= MIN_PAIRS {
                let mut basis = self.basis.get();
                let times = basis.time.into_iter().chain(first.time_to_decide);
                (basis.is_open, basis.time) = (true, times.min());
                self.basis.set(basis);
            }
            return Some(ratio.value);
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
        let mut basis = self.basis.get();
        basis.evidence = basis.evidence.into_iter().chain(found).reduce(Evidence::weaker);
        self.basis.set(basis);
    }

    /// Returns whether the runs show a difference between two figures: there is more than one round, and the
    /// interval of neither contains the other.
    fn are_apart(self, one: &Selector, other: &Selector) -> Option<bool> {
        let runs = &self.study.runs;
        let of = |of: &Selector| median_interval(&of.values(runs), LEVEL);
        let (few, [a, b]) = (
            [one, other].map(|of| self.study.evidence(of)).into_iter().flatten().reduce(Evidence::weaker)?,
            [of(one)?, of(other)?],
        );
        Some(few.rounds > 1 && !a.contains(b.value) && !b.contains(a.value))
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
    /// Makes the records of one study: the values of each variant, one a round, with a number of classes.
    fn records(study: &str, topic: &str, figure: &str, of: &[(&str, u32, &[f64])]) -> Vec<Line> {
        let head = StudyLine { study: study.into(), topic: topic.into(), ..StudyLine::default() };
        let mut lines = vec![Line::Study(Box::new(head))];
        for (variant, classes, values) in of {
            lines.extend(values.iter().zip(0..).map(|(value, repetition)| {
                Line::Run(Box::new(RunLine {
                    study: study.into(),
                    topic: topic.into(),
                    variant: (*variant).into(),
                    repetition,
                    parameters: [("classes".to_owned(), (*classes).into())].into(),
                    figures: vec![Figure::new(figure, *value, "us")],
                    elapsed_s: 1.0,
                    ..RunLine::default()
                }))
            }));
        }
        lines
    }

    #[test]
    fn a_ratio_that_the_runs_leave_open_is_no_verdict_on_the_card_and_in_the_section() {
        let said = |over_tcp: &[f64]| {
            let runs = [
                ("tcp", 0, &[50.0; 6][..over_tcp.len()]),
                ("channel-tcp", 0, over_tcp),
                ("channel-shm", 0, &[45.0; 6][..over_tcp.len()]),
            ];
            let lines = records("middleware-rpc", "middleware", "response_us", &runs);
            let studies = studies(&lines);
            let answer = crate::events::QUESTION.topic_answer(&studies).expect("it was measured");
            (answer.is_decided, answer.words, crate::events::QUESTION.html(&studies))
        };
        let (is_decided, card, section) = said(&[75.0; 6]);
        let words = "A request takes 1.50 times as long by the event channel over TCP as by a socket, and 0.90 times \
                     through shared memory.";
        assert!(is_decided && card.starts_with(words) && section.contains(words), "{card} {section}");
        let (is_decided, card, section) = said(&[20.0, 90.0, 75.0, 30.0, 80.0, 70.0]);
        assert!(!is_decided && card.starts_with("Not decided, the runs scatter; about "), "{card}");
        assert!(section.contains("<p class=\"headline\">Not decided, the runs scatter"), "{section}");
        let (_, _, section) = said(&[75.0; 2]);
        assert!(section.contains("<p class=\"headline\">Seen twice (n = 2 rounds"), "{section}");
    }

    #[test]
    fn two_figures_that_the_runs_do_not_tell_apart_show_no_difference() {
        let said = |most: &[f64]| {
            let few = &[1.0, 1.2, 0.9][..most.len()];
            let runs = ["saturated-start-time", "saturated-heap", "saturated-round-robin"]
                .map(|variant| [(variant, 10, few), (variant, 100_000, most)]);
            let lines = records("queue-decisions", "queue", "ns_per_packet", &runs.concat());
            crate::queues::QUESTION.html(&studies(&lines))
        };
        let apart = said(&[2.0, 2.2, 2.1]);
        assert!(apart.contains("among 100,000. With a heap"), "{apart}");
        for alike in [said(&[1.1, 0.8, 1.3]), said(&[5.0])] {
            assert!(alike.contains("among 100,000, no difference seen. With a heap"), "{alike}");
        }
    }
}
