//! The last screen of a study: an answer for each topic in a sentence or two, and the command to type.
//!
//! A terminal shows 24 lines of 80 columns. Answers that are too long for it lose their last sentences, but
//! never their first one or their command. `--text` prints tables and verdicts on a terminal; the report has
//! them, too.

use crate::added::{self, ScreenTopic};
use crate::events;
use crate::fit_lines::fit_lines;
use crate::one_sided;
use crate::open_questions::{self, UNDECIDED};
use crate::queues;
use crate::remedies;
use crate::strongest::strongest_comparison;
use crate::study::{SIMULATED, Study, studies};
use crate::topic_answer::AnswerPicture;
use crate::trees;
use crate::waiting;
use crate::wording;
use std::fmt::Write as _;
use unisono_measure::record::Line;

const COLUMNS: usize = 80;
/// Lines for answers, of the terminal's 24; the other lines name the report and the problems.
const LINES: usize = 18;
/// The column at which answers begin.
const INDENT: usize = 12;
const MAX_ANSWER_LINES: usize = 3;

static TOPICS: [ScreenTopic; 6] = [
    ScreenTopic {
        topic: "barrier",
        name: "Waiting",
        command: "unisono advise -- PROGRAM",
        does: "Says what PROGRAM needs on this machine",
        answer: waiting::waiting_answer,
        long: None,
    },
    ScreenTopic {
        topic: "gang",
        name: "Gangs",
        command: "unisono fit -- A ::: B    unisono gang run -- A ::: B",
        does: "Runs two programs that both make progress",
        answer: remedies::topic_answer,
        long: None,
    },
    ScreenTopic {
        topic: one_sided::TOPIC,
        name: "MPI windows",
        command: "mpiexec -n 4 unisono mpi -- PROGRAM",
        does: "Runs an MPI program as it is, with these windows",
        answer: one_sided::topic_answer,
        long: None,
    },
    ScreenTopic {
        topic: "tree",
        name: "Trees",
        command: "unisono tree plan NETWORK",
        does: "Plans the trees of a network",
        answer: |studies| trees::QUESTION.topic_answer(studies),
        long: None,
    },
    ScreenTopic {
        topic: "queue",
        name: "Shares",
        command: "unisono queue apply POLICY --dev DEV",
        does: "Shares out a device; queue clear undoes it",
        answer: |studies| queues::QUESTION.topic_answer(studies),
        long: None,
    },
    ScreenTopic {
        topic: events::QUESTION.topic,
        name: "Events",
        command: "unisono events serve",
        does: "Serves topics with deadlines and shares",
        answer: |studies| events::QUESTION.topic_answer(studies),
        long: None,
    },
];

/// Finds the topic with this name, in an extension or among the built-in topics.
pub(crate) fn topic(name: &str) -> Option<&'static ScreenTopic> {
    let added = added::added().map_or(&[][..], |extension| extension.topics);
    added.iter().chain(&TOPICS).find(|known| known.topic == name)
}

/// A topic's answer.
pub(crate) struct ScreenBlock {
    pub(crate) name: String,
    pub(crate) answer: String,
    /// Whether the runs answer the topic.
    pub(crate) is_answered: bool,
    /// The runs behind the answer; empty if they are not known.
    pub(crate) evidence: String,
    /// `seen once` or `seen twice`, if the answer's figures come from too few rounds for a conclusion.
    pub(crate) seen: Option<&'static str>,
    /// Whether the answer comes from a simulation, and so is about other machines than this one.
    pub(crate) is_simulated: bool,
    /// The picture for the first sentence.
    pub(crate) picture: Option<AnswerPicture>,
    /// The command to type; alternatives are four spaces apart.
    pub(crate) command: Option<&'static str>,
    pub(crate) does: &'static str,
}

/// Returns the screen for these records: lines of at most 80 columns, each with its end of line, and at most
/// 18 of them if the first sentences and the commands fit.
pub fn screen(lines: &[Line]) -> String {
    let studies = studies(lines);
    let blocks: Vec<ScreenBlock> =
        topics(&studies).iter().map(|topic| block(&studies, topic).for_terminal()).collect();
    let mut most: Vec<usize> = vec![1; blocks.len()];
    let of =
        |(block, most): (&ScreenBlock, &usize)| block.answer_lines(*most).len() + block.command_lines().len();
    let total = |most: &[usize]| blocks.iter().zip(most).map(of).sum::<usize>();
    // each answer in turn gets one more line, as long as there is room
    for round in 2..=MAX_ANSWER_LINES {
        for at in 0..blocks.len() {
            let before = total(&most);
            let had = std::mem::replace(&mut most[at], round);
            if total(&most) > before.max(LINES) {
                most[at] = had;
            }
        }
    }
    let mut out = String::new();
    for (block, most) in blocks.iter().zip(most) {
        let mut shown = block.answer_lines(most);
        shown.extend(block.command_lines());
        for (at, line) in shown.iter().enumerate() {
            let name = if at == 0 { &block.name } else { "" };
            // writing to a String cannot fail
            let _infallible = writeln!(out, "{name:<INDENT$}{line}");
        }
    }
    out
}

/// Returns whether the records answer at least one topic.
pub fn has_answer(lines: &[Line]) -> bool {
    let studies = studies(lines);
    topics(&studies).iter().any(|topic| block(&studies, topic).is_answered)
}

/// Returns the topics of the studies, in the order of the report.
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
    let known = self::topic(topic);
    let name = known.map_or_else(|| wording::capitalized(topic), |known| known.name.to_owned());
    let is_simulated = SIMULATED.contains(&topic);
    let found = match open_questions::no_verdict(&own, topic) {
        Some(why) => Err(why),
        None => known
            .and_then(|known| (known.answer)(&own))
            .or_else(|| strongest_comparison(&own))
            .or_else(|| open_questions::no_gain(&own))
            .ok_or_else(|| open_questions::undecided(&own)),
    };
    match found {
        Ok(found) => {
            let command = found.command.or(known.map(|known| known.command));
            let does = known.map_or("", |known| known.does);
            let evidence = found.evidence.or_else(|| open_questions::evidence_of_all(&own));
            // a simulation measures nothing of this machine, so the number of its rounds does not matter
            let few = evidence.filter(|_| found.is_decided && !is_simulated);
            let few = few.and_then(|few| Some((few.too_few_in_words()?, few)));
            let answer = match few {
                Some((seen, few)) => {
                    format!("{}{}", open_questions::too_few_rounds(&own, seen, few), found.words)
                }
                None => found.words,
            };
            let seen = few.map(|(seen, _)| seen);
            let evidence = evidence.map_or_else(String::new, |evidence| evidence.in_words());
            let (is_answered, picture) = (found.is_decided, found.picture);
            ScreenBlock { name, answer, is_answered, evidence, seen, is_simulated, picture, command, does }
        }
        Err(answer) => ScreenBlock {
            name,
            answer,
            is_answered: false,
            evidence: String::new(),
            seen: None,
            is_simulated,
            picture: None,
            command: None,
            does: "",
        },
    }
}

impl ScreenBlock {
    /// Returns the heading's badge, with its class: the origin of the answer, and whether the question is
    /// answered.
    pub(crate) fn badge(&self) -> (&'static str, &'static str) {
        match (self.is_simulated, self.is_answered, self.seen) {
            (true, ..) => ("undecided", "simulated, not this machine"),
            (_, false, _) => ("unanswered", "no verdict"),
            (_, _, Some(seen)) => ("undecided", seen),
            _ => ("same", "measured here"),
        }
    }

    /// Returns the line of each command: alternatives stand below each other, so that each can be pasted.
    fn command_lines(&self) -> Vec<String> {
        let commands = self.command.into_iter().flat_map(|command| command.split("    "));
        let prompt = |at: usize| if at == 0 { ">" } else { "or >" };
        commands.enumerate().map(|(at, command)| format!("{} {command}", prompt(at))).collect()
    }

    /// Breaks the answer into lines, if possible at most `most`. An answer from too few rounds says so in
    /// fewer words, if its first figures would be cut off otherwise.
    fn answer_lines(&self, most: usize) -> Vec<String> {
        const WIDTH: usize = COLUMNS - INDENT;
        let whole = fit_lines(&self.answer, WIDTH, most);
        let Some((head, words)) = self.answer.split_once(": ").filter(|_| self.seen.is_some()) else {
            return whole;
        };
        let shown = whole.join(" ");
        if shown.chars().count() > head.chars().count() && whole.len() <= most {
            return whole;
        }
        // the number of rounds stays, because each answer says on how many it rests, and so does the time
        // that would decide, if there is more than a line
        let Some((rounds, rest)) = head.split_once(',').filter(|(rounds, _)| rounds.contains('(')) else {
            return whole;
        };
        let rounds = rounds.trim_end_matches(')').trim_end_matches(" rounds").trim_end_matches(" round");
        let time = rest.split_once(';').filter(|_| most > 1).map_or("", |(_, time)| time);
        let time = if time.is_empty() { String::new() } else { format!(";{time}") };
        fit_lines(&format!("{rounds}){time}: {words}"), WIDTH, most)
    }

    /// Shortens the name to the indent, and marks an answer from a simulation.
    fn for_terminal(self) -> Self {
        let name = self.name.chars().take(INDENT - 1).collect();
        let is_open = self.answer.starts_with(UNDECIDED);
        let answer = match (self.is_simulated, self.is_answered, self.seen) {
            (true, is_answered, _) if is_answered || is_open => format!("(simulated) {}", self.answer),
            (false, true, None) => with_evidence(&self.answer, &self.evidence),
            _ => self.answer,
        };
        Self { name, answer, ..self }
    }
}

/// The length (bytes) above which the number of runs is put before the first sentence: with it, a longer one
/// does not fit into the two lines that each of six topics has.
const MAX_FIRST_SENTENCE: usize = 110;

/// Adds the number of runs behind an answer at the end of its first sentence: `Gangs win (n = 6 rounds). They
/// ...`. If the sentence is long, its end may be cut off, so the number is put before it: `n = 6 rounds:
/// Gangs ...`.
fn with_evidence(answer: &str, evidence: &str) -> String {
    let end = answer.find(". ").unwrap_or_else(|| answer.trim_end_matches('.').len());
    let (first, rest) = answer.split_at(end);
    if first.contains("n = ") {
        return answer.to_owned();
    }
    let rounds = evidence.split(',').next().unwrap_or_default();
    if first.len() > MAX_FIRST_SENTENCE && !rounds.is_empty() {
        return format!("{rounds}: {answer}");
    }
    format!("{first} ({rounds}){rest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit_lines::MAX_SENTENCE_LINES;
    use proptest::prelude::*;
    use unisono_measure::record::{Better, Chart, Figure, Outcome, Question, RunLine, StudyLine, Verdict};

    fn study(id: &str, topic: &str) -> Line {
        let verdict = Verdict {
            variant: "fit".into(),
            against: "plain".into(),
            figure: "latency".into(),
            better: Better::Lower,
            sides: Some(["fit", "plain Linux"].map(str::to_owned)),
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
        let shown = screen(&compared("monitor", 0.04));
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            shown.contains("Fit against plain Linux: up to 25.0 times lower latency (n = 6 rounds)."),
            "{shown}"
        );
        assert!(!shown.contains('>'), "no command for a topic that nothing is known about: {shown}");
        let loss = screen(&compared("monitor", 4.0));
        let loss = loss.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            loss.contains("No gain in 1 decided comparison (n = 6 rounds): 1 worse, 0 without a difference"),
            "{loss}"
        );
    }

    /// Makes a study of waiting whose dearest way takes 1,700 times as long, in this many rounds.
    fn waiting(rounds: u32) -> Vec<Line> {
        let chart = Chart { title: "One processor".into(), y: vec!["latency".into()], ..Chart::default() };
        let head = StudyLine {
            study: "s".into(),
            topic: "barrier".into(),
            answers: Some(Question::Waiting),
            charts: vec![chart],
            ..StudyLine::default()
        };
        let runs = (0..rounds).flat_map(|repetition| {
            [("sleep", 1.0), ("spin", 1700.0)]
                .map(|(variant, value)| Line::Run(Box::new(run("s", "barrier", variant, repetition, value))))
        });
        [Line::Study(Box::new(head))].into_iter().chain(runs).collect()
    }

    #[test]
    fn fewer_than_three_rounds_are_said_on_the_screen_the_page_and_in_its_section() {
        for rounds in [1, 2, 3] {
            let lines = waiting(rounds);
            let studies = studies(&lines);
            let said = [
                screen(&lines),
                crate::answer_cards::html(&studies),
                crate::summary::topic_html(&studies, "barrier"),
            ];
            for text in said {
                let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                let [once, twice] = ["Seen once (n = 1", "Seen twice (n = 2"].map(|mark| text.contains(mark));
                assert_eq!((once, twice), (rounds == 1, rounds == 2), "{rounds} rounds: {text}");
                let has_factor = text.contains("1,700 times");
                assert_eq!((has_factor, text.contains("no factor yet")), (rounds == 3, rounds < 3), "{text}");
            }
            let card = block(&studies, "barrier");
            let badge = ["seen once", "seen twice", "measured here"][rounds as usize - 1];
            assert_eq!(card.badge().1, badge);
        }
    }

    #[test]
    fn an_answer_from_two_rounds_keeps_its_figures_on_few_lines() {
        let lines = waiting(2);
        let answer = block(&studies(&lines), "barrier").for_terminal();
        for most in 1..=MAX_ANSWER_LINES {
            let shown = answer.answer_lines(most).join(" ");
            assert!(
                shown.starts_with("Seen twice") && shown.contains("fastest was sleep (latency 1"),
                "{shown}"
            );
        }
        let three = answer.answer_lines(MAX_ANSWER_LINES).join(" ");
        assert!(three.contains("n = 2") && three.contains("no factor yet"), "{three}");
        let head = "Seen once (n = 1 round), no verdict; about 40 s more would decide: ";
        let once = ScreenBlock { answer: format!("{head}{}", "word ".repeat(40)), ..answer };
        assert!(once.answer_lines(1)[0].starts_with("Seen once (n = 1): word"));
        assert!(once.answer_lines(2)[0].starts_with("Seen once (n = 1); about 40 s more would decide: word"));
    }

    #[test]
    fn a_card_says_no_verdict_where_its_section_does() {
        let head = StudyLine { study: "queue-shares".into(), topic: "queue".into(), ..StudyLine::default() };
        let figure = |variant: &str, name: &str, repetition| {
            let figures = vec![Figure { name: name.into(), value: 2.0, ..Figure::default() }];
            Line::Run(Box::new(RunLine { figures, ..run("queue-shares", "queue", variant, repetition, 1.0) }))
        };
        let runs = (0..3).flat_map(|repetition| {
            let sides = ["none", "kernel"].into_iter();
            sides.flat_map(move |side| {
                ["share_off_percent", "goodput_mbit"].map(|name| figure(side, name, repetition))
            })
        });
        let lines: Vec<Line> = [Line::Study(Box::new(head))].into_iter().chain(runs).collect();
        let studies = studies(&lines);
        let (card, section) = (block(&studies, "queue"), crate::summary::topic_html(&studies, "queue"));
        let reason = "Not answered: no run in these records had a program that bypasses the policy.";
        assert!(section.contains(reason), "{section}");
        assert!(
            card.answer.starts_with(reason) && card.answer.contains("60 to 30 to 10"),
            "{}",
            card.answer
        );
        assert_eq!((card.badge().1, card.is_answered), ("no verdict", false));
    }

    #[test]
    fn the_cost_of_a_decision_is_the_verdict_where_no_link_was_shared() {
        let head =
            StudyLine { study: "queue-decisions".into(), topic: "queue".into(), ..StudyLine::default() };
        let of = |variant: &str, repetition| {
            let figures = vec![Figure { name: "ns_per_packet".into(), value: 20.0, ..Figure::default() }];
            let parameters = [("classes".to_owned(), 10.into())].into();
            let run = run("queue-decisions", "queue", variant, repetition, 1.0);
            Line::Run(Box::new(RunLine { figures, parameters, ..run }))
        };
        let variants = ["saturated-start-time", "saturated-heap", "saturated-round-robin"];
        let runs = (0..3).flat_map(|repetition| variants.map(|variant| of(variant, repetition)));
        let lines: Vec<Line> = [Line::Study(Box::new(head))].into_iter().chain(runs).collect();
        let studies = studies(&lines);
        let (card, section) = (block(&studies, "queue"), crate::summary::topic_html(&studies, "queue"));
        let verdict = "choosing it among 10 classes by their shares takes 20";
        assert!(card.answer.contains(verdict) && card.badge().1 != "no verdict", "{:?}", card.badge());
        assert!(section.contains(verdict) && !section.contains("Not answered"), "{section}");
    }

    #[test]
    fn windows_without_messages_are_not_answered_on_the_card_and_in_the_section() {
        let lines = compared("rma", 0.25);
        let studies = studies(&lines);
        let (card, section) = (block(&studies, "rma"), crate::summary::topic_html(&studies, "rma"));
        let reason = "Not answered: no run compared windows with messages.";
        assert!(section.contains(reason), "{section}");
        assert!(
            card.answer.starts_with(reason) && card.answer.contains("4.00 times lower latency"),
            "{}",
            card.answer
        );
        assert_eq!(card.badge().1, "no verdict");
    }

    #[test]
    fn the_ends_beside_a_median_are_called_an_interval_only_where_there_are_runs_for_it() {
        let page = |rounds| crate::answer_cards::html(&studies(&waiting(rounds)));
        let (range, interval) = ("the least and the greatest run", "the 95 % interval of the median");
        let (few, many) = (page(3), page(6));
        assert!(few.contains(range) && !few.contains("95 %"), "{few}");
        assert!(many.contains(interval) && many.contains("95\u{a0}%:") && !many.contains(range), "{many}");
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
            let shown = screen(&[study("s", "gang"), Line::Run(Box::new(one))]);
            let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(shown.contains(words) && !shown.contains('>'), "{shown}");
        }
        assert!(has_answer(&compared("monitor", 0.5)) && !has_answer(&[study("s", "gang")]));
        assert!(screen(&[study("s", "gang")]).contains("ended before"));
        assert_eq!(screen(&[]), "");
    }

    #[test]
    fn an_undecided_topic_says_how_long_it_takes_to_tell() {
        let mut lines = compared("monitor", 1.0);
        let ours = [0.5, 2.0, 1.1, 0.8, 1.3, 0.9];
        let runs = lines.iter_mut().filter_map(|line| match line {
            Line::Run(run) => Some(run),
            Line::Study(_) => None,
        });
        for run in runs {
            run.elapsed_s = 5.0;
            if run.variant == "fit" {
                run.figures[0].value = ours[run.repetition as usize];
            }
        }
        let shown = screen(&lines).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            shown.contains("than the variants differ. About ") && shown.contains(" more would decide it."),
            "{shown}"
        );
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
        let shown = screen(&with_lost(13)).split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = "No verdict, because 13 of 25 runs stayed disturbed: strangers took some; stop them and measure \
                      again (unisono study monitor).";
        assert!(shown.contains(wanted), "{shown}");
        assert!(screen(&with_lost(12)).contains("25.0 times lower"), "half of them are enough");
        let mut again = with_lost(13);
        again.extend((0..13).map(|at| Line::Run(Box::new(run("s", "monitor", "other", at, 1.0)))));
        assert!(screen(&again).contains("25.0 times lower"), "they were made again");
    }

    #[test]
    fn commands_stand_below_each_other() {
        let lines = waiting(3);
        let known = block(&studies(&lines), "barrier");
        assert_eq!(known.command_lines(), ["> unisono advise -- PROGRAM"]);
        let two = ScreenBlock { command: Some("A=b PROGRAM    unisono fit -- A ::: B"), ..known };
        assert_eq!(two.command_lines(), ["> A=b PROGRAM", "or > unisono fit -- A ::: B"]);
    }

    #[test]
    fn what_does_not_fit_loses_its_last_sentences() {
        assert_eq!(fit_lines("One two. Three four.", 20, 1), ["One two. Three four."]);
        assert_eq!(fit_lines("One two. Three four.", 12, 1), ["One two."]);
        assert_eq!(
            fit_lines("One two: three four. Five.", 12, 1),
            ["One two:", "three four."],
            "half a sentence says less"
        );
        assert_eq!(fit_lines("One two three four", 8, 1), ["One two", "three", "four"]);
        let pairs = "Gangs win (n = 6 rounds).";
        for width in 10..25 {
            let lines = fit_lines(pairs, width, 1);
            assert!(lines.iter().any(|line| line.contains("(n = 6")), "{lines:?}");
        }
        let endless = fit_lines(&"word ".repeat(100), 8, 1);
        assert_eq!(endless.len(), MAX_SENTENCE_LINES);
        assert!(endless.concat().ends_with('\u{2026}') && endless.iter().all(|line| line.len() <= 10));
        assert_eq!(fit_lines("Set one (2 times, and 3), or run four.", 30, 1), ["Set one (2 times, and 3)."]);
        let seen_once = "Seen once, no verdict; about 1 min more would decide: one two three four.";
        assert!(fit_lines(seen_once, 30, 2)[1].contains("would decide"), "the time stays with its verdict");
    }

    #[test]
    fn the_number_of_runs_stands_where_it_is_not_cut_off() {
        assert_eq!(
            with_evidence("Gangs win. They wait.", "n = 6 rounds, runs differ by 2 %"),
            "Gangs win (n = 6 rounds). They wait."
        );
        let long = format!("Late rounds are {}none.", "10 % under one, ".repeat(12));
        assert_eq!(with_evidence(&long, "n = 6 rounds"), format!("n = 6 rounds: {long}"));
        assert_eq!(fit_lines("0123456789", 4, 9), ["0123", "4567", "89"]);
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_a_screen_and_no_answer_takes_more_than_its_first_sentence(
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
            let shown = screen(&lines);
            let most = LINES.max(topics.len() * (MAX_SENTENCE_LINES + 2));
            prop_assert!(shown.lines().count() <= most, "{shown}");
            prop_assert!(shown.lines().all(|line| line.chars().count() <= COLUMNS), "{shown}");
        }
    }
}
