//! The last screen of a study: an answer for each topic in a sentence or two, and the command to type.
//!
//! A terminal shows 24 lines of 80 columns. Answers that are too long for it lose their last sentences, but
//! never their command. Tables and verdicts are shown by `--text` on a terminal, and in the report.

use crate::maps;
use crate::middleware;
use crate::one_sided;
use crate::queues;
use crate::remedies;
use crate::study::{SIMULATED, Study, studies};
use crate::summary;
use crate::topic_answer::{AnswerPicture, TopicAnswer};
use crate::trees;
use crate::wording::{self, Tone};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use unisono_measure::record::{Line, Outcome, RunLine};

const COLUMNS: usize = 80;
/// Lines for answers, of the terminal's 24; the others name the report and the problems.
const LINES: usize = 18;
/// The column at which answers begin.
const INDENT: usize = 12;
const MAX_ANSWER_LINES: usize = 3;

struct ScreenTopic {
    topic: &'static str,
    name: &'static str,
    /// The command that a reader types next.
    command: &'static str,
    /// The effect of the command, before a colon.
    does: &'static str,
    answer: fn(&[Study<'_>]) -> Option<TopicAnswer>,
}

const TOPICS: [ScreenTopic; 8] = [
    ScreenTopic {
        topic: "barrier",
        name: "Waiting",
        command: "unisono advise -- PROGRAM",
        does: "Says what PROGRAM needs on this machine",
        answer: summary::waiting_answer,
    },
    ScreenTopic {
        topic: "gang",
        name: "Gangs",
        command: "unisono fit -- A ::: B    unisono gang run -- A ::: B",
        does: "Runs two programs that both make progress",
        answer: remedies::topic_answer,
    },
    ScreenTopic {
        topic: "gang-map",
        name: "Gangs",
        command: "unisono gang simulate --cores 64 --programs 64x50us,64x0us",
        does: "Predicts your programs on that many cores",
        answer: maps::topic_answer,
    },
    ScreenTopic {
        topic: "monitor",
        name: "Monitor",
        command: "unisono fit -- PROGRAM",
        does: "Starts PROGRAM with the threads that it can really have",
        answer: strongest_comparison,
    },
    ScreenTopic {
        topic: one_sided::TOPIC,
        name: "MPI windows",
        command: "mpiexec -n 4 unisono mpi -- PROGRAM",
        does: "Runs an MPI program as it is, with these windows",
        answer: one_sided::topic_answer,
    },
    ScreenTopic {
        topic: "tree",
        name: "Trees",
        command: "unisono tree plan NETWORK",
        does: "Plans the trees of a network",
        answer: |studies| trees::QUESTION.topic_answer(studies),
    },
    ScreenTopic {
        topic: "queue",
        name: "Shares",
        command: "unisono queue apply POLICY --dev DEV",
        does: "Shares out a device; queue clear undoes it",
        answer: |studies| queues::QUESTION.topic_answer(studies),
    },
    ScreenTopic {
        topic: middleware::TOPIC,
        name: "Events",
        command: "unisono events serve",
        does: "Serves topics with deadlines and shares",
        answer: middleware::topic_answer,
    },
];

const NOTHING_DECIDED: &str = "Undecided: the runs scatter more than the variants differ.";

/// A topic's answer.
pub(crate) struct ScreenBlock {
    pub(crate) name: String,
    pub(crate) answer: String,
    /// Whether the answer comes from a simulation, and so is about other machines than this one.
    pub(crate) is_simulated: bool,
    /// The picture for the first sentence.
    pub(crate) picture: Option<AnswerPicture>,
    /// The command to type; alternatives are four spaces apart.
    pub(crate) command: Option<&'static str>,
    pub(crate) does: &'static str,
}

/// The screen for these records: at most 18 lines of at most 80 columns, each with its end of line.
pub fn screen(lines: &[Line]) -> String {
    let studies = studies(lines);
    let blocks: Vec<ScreenBlock> =
        topics(&studies).iter().map(|topic| block(&studies, topic).for_terminal(topic)).collect();
    let width = COLUMNS - INDENT;
    let mut most = vec![1; blocks.len()];
    let of = |(block, most): (&ScreenBlock, &usize)| {
        fit_lines(&block.answer, width, *most).len() + usize::from(block.command.is_some())
    };
    // the answers in turn get one more line each, as long as there is room
    for round in 2..=MAX_ANSWER_LINES {
        for at in 0..blocks.len() {
            let had = std::mem::replace(&mut most[at], round);
            if blocks.iter().zip(&most).map(of).sum::<usize>() > LINES {
                most[at] = had;
            }
        }
    }
    let mut out = String::new();
    let mut left = LINES;
    for (block, most) in blocks.iter().zip(most) {
        let mut said = fit_lines(&block.answer, width, most);
        said.extend(block.command.map(|command| format!("> {command}")));
        for (at, line) in said.iter().take(left).enumerate() {
            let name = if at == 0 { &block.name } else { "" };
            // writing to a String cannot fail
            let _infallible = writeln!(out, "{name:<INDENT$}{line}");
        }
        left = left.saturating_sub(said.len());
    }
    out
}

/// The topics of the studies, in the order of the report.
pub(crate) fn topics<'a>(studies: &'a [Study<'_>]) -> Vec<&'a str> {
    let mut topics: Vec<&str> = Vec::new();
    for study in studies {
        if !topics.contains(&study.head.topic.as_str()) {
            topics.push(&study.head.topic);
        }
    }
    topics
}

pub(crate) fn block(studies: &[Study<'_>], topic: &str) -> ScreenBlock {
    let own: Vec<Study<'_>> = studies.iter().filter(|study| study.head.topic == topic).cloned().collect();
    let known = TOPICS.iter().find(|known| known.topic == topic);
    let name = known.map_or_else(|| wording::capitalized(topic), |known| known.name.to_owned());
    let is_simulated = SIMULATED.contains(&topic);
    let found = match no_verdict(&own, topic) {
        Some(why) => Err(why),
        None => {
            let found = known.and_then(|known| (known.answer)(&own)).or_else(|| strongest_comparison(&own));
            found.ok_or_else(|| NOTHING_DECIDED.to_owned())
        }
    };
    match found {
        Ok(found) => {
            let command = found.command.or(known.map(|known| known.command));
            let does = known.map_or("", |known| known.does);
            ScreenBlock { name, answer: found.words, is_simulated, picture: found.picture, command, does }
        }
        Err(answer) => ScreenBlock { name, answer, is_simulated, picture: None, command: None, does: "" },
    }
}

impl ScreenBlock {
    /// Shortens the name to the indent, and marks an answer from a simulation.
    fn for_terminal(self, topic: &str) -> Self {
        let name = self.name.chars().take(INDENT - 1).collect();
        let is_answer = self.is_simulated && (self.command.is_some() || self.answer == NOTHING_DECIDED);
        let mut answer = if is_answer { format!("(simulated) {}", self.answer) } else { self.answer };
        if answer.ends_with(NOTHING_DECIDED) {
            // writing to a String cannot fail
            let _infallible = write!(answer, " See the figures: --text {topic}");
        }
        Self { name, answer, ..self }
    }
}

/// The reason why a topic gets no verdict: nothing was measured, or most of its runs stayed disturbed.
fn no_verdict(studies: &[Study<'_>], topic: &str) -> Option<String> {
    let runs = || studies.iter().flat_map(|study| &study.runs);
    let reason = |wanted: Outcome| {
        runs().find(|run| run.outcome == wanted).map(|run| run.reason.as_deref().unwrap_or("no reason given"))
    };
    let (lost, planned) = disturbed_runs(runs().copied());
    if let Some(why) = reason(Outcome::Disturbed).filter(|_| lost * 2 > planned) {
        let how_many =
            if lost == planned { "each run".to_owned() } else { format!("{lost} of {planned} runs") };
        // the reason ends with the remedy: stop them and measure again
        return Some(format!(
            "No verdict, because {how_many} stayed disturbed: {why} (unisono study {topic})."
        ));
    }
    if runs().any(|run| run.outcome == Outcome::Measured) {
        return None;
    }
    Some(match (reason(Outcome::Failed), reason(Outcome::Skipped)) {
        (Some(why), _) => format!("No answer, because each run failed: {why}."),
        (_, Some(why)) => format!("Not measured: {why}."),
        _ => "Not measured: the study ended before.".to_owned(),
    })
}

/// The number of planned runs that were disturbed at every attempt, and the number of all planned runs.
fn disturbed_runs<'r>(runs: impl Iterator<Item = &'r RunLine>) -> (usize, usize) {
    let mut planned: BTreeMap<(&str, &str, u32, String), bool> = BTreeMap::new();
    for run in runs.filter(|run| matches!(run.outcome, Outcome::Measured | Outcome::Disturbed)) {
        let parameters = format!("{:?}", run.parameters);
        let is_measured = planned.entry((&run.study, &run.variant, run.repetition, parameters)).or_default();
        *is_measured |= run.outcome == Outcome::Measured;
    }
    (planned.values().filter(|is_measured| !**is_measured).count(), planned.len())
}

/// The comparison with the largest gain; `None` if nothing was better.
fn strongest_comparison(studies: &[Study<'_>]) -> Option<TopicAnswer> {
    let better = studies.iter().flat_map(|study| {
        let all = study.verdicts().flat_map(|(verdict, judged)| judged.iter().map(move |j| (verdict, j)));
        let better = all.filter(|(_, judgement)| wording::tone(judgement) == Tone::Better);
        better.filter_map(move |(verdict, judgement)| {
            let ratio = wording::comparison(judgement)?.ratio.value;
            let strength = ratio.ln().abs();
            strength.is_finite().then_some((strength, ratio, study, verdict, judgement))
        })
    });
    let (_, ratio, study, verdict, judgement) = better.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let (ours, theirs) = wording::sides(study, verdict);
    let place = wording::place_in_words(study, verdict, judgement);
    let words = format!(
        "{ours} against {theirs}: up to {}{place}.",
        wording::factor_in_words(study, verdict, ratio)
    );
    let picture = AnswerPicture::from_comparison(study, verdict, judgement);
    Some(TopicAnswer::new(wording::capitalized(&words), picture))
}

/// At most `most` lines of `width` columns. A longer text loses its last sentences; a single long sentence,
/// its last words.
fn fit_lines(text: &str, width: usize, most: usize) -> Vec<String> {
    let text = text.replace(['\u{2009}', '\u{a0}', '\u{202f}'], " ");
    let whole = wrap_words(&text, width);
    if whole.len() <= most {
        return whole;
    }
    let ends = text.match_indices([';', '.']).filter(|(at, _)| text[at + 1..].starts_with(' '));
    let ends: Vec<usize> = ends.map(|(at, _)| at).collect();
    let sentence = |end: &usize| wrap_words(&format!("{}.", &text[..*end]), width);
    if let Some(fits) = ends.iter().rev().map(sentence).find(|lines| lines.len() <= most) {
        return fits;
    }
    let mut cut: Vec<String> = whole.into_iter().take(most).collect();
    if let Some(last) = cut.last_mut() {
        while last.chars().count() + 1 > width {
            last.pop();
        }
        last.push('\u{2026}');
    }
    cut
}

fn wrap_words(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        while !word.is_empty() {
            let line = lines.last_mut().expect("there is always one");
            let used = line.chars().count();
            let space = usize::from(used > 0);
            if used + space + word.len() <= width {
                if space == 1 {
                    line.push(' ');
                }
                line.extend(word.drain(..));
            } else if used > 0 {
                lines.push(String::new());
            } else {
                // a path longer than a line
                line.extend(word.drain(..width));
                lines.push(String::new());
            }
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unisono_measure::record::{Better, Figure, StudyLine, Verdict};

    fn study(id: &str, topic: &str) -> Line {
        let verdict = Verdict {
            variant: "fit".into(),
            against: "plain".into(),
            figure: "latency".into(),
            better: Better::Lower,
            words: "fit against plain Linux".into(),
            ..Verdict::default()
        };
        let (study, topic) = (id.to_owned(), topic.to_owned());
        Line::Study(Box::new(StudyLine { study, topic, verdicts: vec![verdict], ..StudyLine::default() }))
    }

    fn run(id: &str, topic: &str, variant: &str, repetition: u32, value: f64) -> RunLine {
        RunLine {
            study: id.into(),
            topic: topic.into(),
            variant: variant.into(),
            repetition,
            figures: vec![Figure { name: "latency".into(), value, ..Figure::default() }],
            ..RunLine::default()
        }
    }

    fn compared(topic: &str, ours: f64) -> Vec<Line> {
        let runs = (0..6).flat_map(|repetition| {
            [("fit", ours), ("plain", 1.0)]
                .map(|(variant, value)| Line::Run(Box::new(run("s", topic, variant, repetition, value))))
        });
        [study("s", topic)].into_iter().chain(runs).collect()
    }

    #[test]
    fn a_gain_is_a_factor_above_one_with_its_sides() {
        let said = screen(&compared("monitor", 0.04));
        assert!(said.contains("Fit against plain Linux: up to 25.0 times lower latency."), "{said}");
        assert!(said.contains("> unisono fit -- PROGRAM"), "{said}");
        assert!(screen(&compared("monitor", 4.0)).contains("Undecided"), "a loss is no gain");
    }

    #[test]
    fn what_is_simulated_says_so() {
        assert!(screen(&compared("gang-map", 0.5)).contains("(simulated) Fit against"));
        assert!(!screen(&compared("monitor", 0.5)).contains("simulated"));
    }

    #[test]
    fn a_topic_without_a_measured_run_says_why_and_gives_no_advice() {
        for (outcome, words) in [
            (Outcome::Disturbed, "each run stayed disturbed: the reason (unisono study gang)."),
            (Outcome::Failed, "each run failed: the reason."),
            (Outcome::Skipped, "Not measured: the reason."),
        ] {
            let mut one = run("s", "gang", "gangs", 0, 1.0);
            (one.outcome, one.reason) = (outcome, Some("the reason".into()));
            let said = screen(&[study("s", "gang"), Line::Run(Box::new(one))]);
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains(words) && !said.contains('>'), "{said}");
        }
        assert!(screen(&[study("s", "gang")]).contains("ended before"));
        assert_eq!(screen(&[]), "");
    }

    #[test]
    fn a_topic_most_of_whose_runs_stay_disturbed_gets_no_verdict() {
        let with_lost = |lost: u32| {
            let mut lines = compared("monitor", 0.04);
            lines.extend((0..lost).map(|repetition| {
                let mut one = run("s", "monitor", "other", repetition, 1.0);
                (one.outcome, one.reason) =
                    (Outcome::Disturbed, Some("strangers took some; stop them and measure again".into()));
                Line::Run(Box::new(one))
            }));
            lines
        };
        let said = screen(&with_lost(13)).split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = "No verdict, because 13 of 25 runs stayed disturbed: strangers took some; stop them and measure \
                      again (unisono study monitor).";
        assert!(said.contains(wanted), "{said}");
        assert!(screen(&with_lost(12)).contains("25.0 times lower"), "half of them are enough");
        let mut again = with_lost(13);
        again.extend((0..13).map(|at| Line::Run(Box::new(run("s", "monitor", "other", at, 1.0)))));
        assert!(screen(&again).contains("25.0 times lower"), "they were made again");
    }

    #[test]
    fn what_does_not_fit_loses_its_last_sentences() {
        assert_eq!(fit_lines("One two. Three four.", 20, 1), ["One two. Three four."]);
        assert_eq!(fit_lines("One two. Three four.", 12, 1), ["One two."]);
        assert_eq!(
            fit_lines("One two: three four.", 12, 1),
            ["One two:\u{2026}"],
            "half a sentence says less"
        );
        assert_eq!(fit_lines("One two three four", 8, 1), ["One two\u{2026}"]);
        assert_eq!(fit_lines("0123456789", 4, 9), ["0123", "4567", "89"]);
    }

    proptest! {
        #[test]
        fn no_records_make_more_than_a_screen(
            topics in prop::collection::vec("[a-z]{1,30}|gang|tree|rma|barrier|queue|middleware", 0..30),
            reason in ".{0,300}",
            value in prop::num::f64::ANY,
        ) {
            let mut lines = Vec::new();
            for topic in &topics {
                lines.extend(compared(topic, value));
                let mut one = run("other", topic, "x", 0, value);
                (one.outcome, one.reason) = (Outcome::Skipped, Some(reason.clone()));
                lines.push(Line::Run(Box::new(one)));
            }
            let said = screen(&lines);
            prop_assert!(said.lines().count() <= LINES, "{said}");
            prop_assert!(said.lines().all(|line| line.chars().count() <= COLUMNS), "{said}");
        }
    }
}
