//! Checks every sentence that the grammar of answers can produce. Records of each study are made up for every
//! situation; the sentences of the last screen, of the cards of the HTML report and of the verdicts are then
//! checked.
//!
//! A sentence must have a noun for each unit and name no variable of a study; a verdict must have its number
//! of runs; and an answer without a verdict must say why, or how much more time would decide it. With
//! `UNISONO_SENTENCES=FILE` the test writes all sentences to FILE, for a person to read.

use std::collections::BTreeSet;
use unisono_measure::record::{FORMAT, Figure, HostFacts, Line, Outcome, RunLine};
use unisono_study::file::StudyFile;
use unisono_study::plan::plan;
use unisono_study::profile::Profile;

/// What the made-up runs of a study look like, or why there are none.
#[derive(Clone, Copy, Debug)]
enum Situation {
    /// Later variants have greater values.
    Rising,
    /// Later variants have smaller values.
    Falling,
    Alike,
    Scattered,
    /// The values of the first variant have two modes: some runs are fast, others slow.
    TwoModes,
    Nothing,
    Lost(Outcome),
    /// Only the first variant was measured before the study ended.
    Ended,
}

const SITUATIONS: [Situation; 11] = [
    Situation::Rising,
    Situation::Falling,
    Situation::Alike,
    Situation::Scattered,
    Situation::TwoModes,
    Situation::Nothing,
    Situation::Lost(Outcome::Disturbed),
    Situation::Lost(Outcome::Skipped),
    Situation::Lost(Outcome::Failed),
    Situation::Lost(Outcome::Interrupted),
    Situation::Ended,
];

impl Situation {
    fn value(self, variant: usize, repetition: u32) -> f64 {
        let variant = variant as f64;
        let scatter = [0.2, 3.0, 0.5, 6.0, 1.1, 0.1, 2.0][(repetition as usize * 3 + variant as usize) % 7];
        match self {
            Self::Rising => 10.0 * 3.0_f64.powf(variant),
            Self::Falling => 1e6 / 3.0_f64.powf(variant),
            Self::Scattered => 100.0 * scatter,
            Self::TwoModes if variant == 0.0 && repetition % 2 == 1 => 1e5,
            Self::Nothing => 0.0,
            _ => 20.0,
        }
    }
}

/// Returns the unit that the end of a figure's name stands for.
fn unit(figure: &str) -> &'static str {
    let units = [("_ns", "ns"), ("_us", "us"), ("_ms", "ms"), ("_per_s", "1/s"), ("_percent", "%")];
    let known = units.into_iter().find(|(end, _)| figure.ends_with(end));
    known.map_or(if figure.contains("ns_per") { "ns" } else { "1" }, |(_, unit)| unit)
}

/// Returns the records of one study in a situation, with this number of rounds.
fn records(file: &StudyFile, situation: Situation, rounds: u32) -> Vec<Line> {
    let head = file.line(Profile::Quick);
    let mut figures: BTreeSet<&str> =
        head.charts.iter().flat_map(|chart| &chart.y).map(String::as_str).collect();
    figures.extend(
        head.verdicts
            .iter()
            .flat_map(|verdict| [&verdict.figure].into_iter().chain(&verdict.divisor))
            .map(String::as_str),
    );
    let planned = plan(file, Profile::Smoke, 1).expect("a good plan").runs;
    // the parts of a run are recorded as variants with the parts' names, which the comparisons use
    let mut variants: Vec<&str> = head.verdicts.iter().flat_map(|v| [&*v.variant, &*v.against]).collect();
    variants.extend(planned.iter().map(|run| &*run.variant));
    let mut names: Vec<&str> = Vec::new();
    for name in variants {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut lines = vec![Line::Study(Box::new(head.clone()))];
    let mut sequence = 0;
    for repetition in 0..rounds {
        for run in &planned {
            let is_recorded = |name: &&str| {
                name.strip_prefix(&*run.variant).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            for (at, variant) in names.iter().enumerate().filter(|(_, name)| is_recorded(name)) {
                let value = situation.value(at, repetition);
                let (outcome, reason) = match situation {
                    Situation::Lost(outcome) => (outcome, Some("the program is not installed".to_owned())),
                    Situation::Ended if at > 0 => continue,
                    _ => (Outcome::Measured, None),
                };
                let figure = |name: &&str| Figure::new(*name, value, unit(name));
                let is_measured = outcome == Outcome::Measured;
                lines.push(Line::Run(Box::new(RunLine {
                    format: FORMAT.into(),
                    study: file.id.clone(),
                    topic: file.topic.clone(),
                    variant: (*variant).to_owned(),
                    parameters: run.parameters.clone(),
                    repetition,
                    sequence,
                    outcome,
                    reason,
                    figures: if is_measured { figures.iter().map(figure).collect() } else { Vec::new() },
                    elapsed_s: 5.0,
                    host: HostFacts { cpus: 2, foreign_load_during: Some(0.0), ..HostFacts::default() },
                    ..RunLine::default()
                })));
                sequence += 1;
            }
        }
    }
    lines
}

/// An answer on the last screen: the name of its topic, and its sentences.
#[derive(Debug)]
struct ShownAnswer {
    name: String,
    words: String,
}

/// Parses the answers of the last screen. The name of a topic begins in the first column, and the lines of
/// its answer are indented.
fn shown(screen: &str) -> Vec<ShownAnswer> {
    let mut answers: Vec<ShownAnswer> = Vec::new();
    for line in screen.lines() {
        let (name, words) = line.split_at_checked(12).unwrap_or((line, ""));
        if !name.trim().is_empty() {
            answers.push(ShownAnswer { name: name.trim().to_owned(), words: String::new() });
        }
        let is_command = words.starts_with('>') || words.starts_with("or >");
        let Some(answer) = answers.last_mut().filter(|_| !is_command) else { continue };
        answer.words = format!("{} {words}", answer.words).trim().to_owned();
    }
    answers
}

/// Returns the texts between these starts and ends of an element, without tags inside.
fn texts_of(page: &str, start: &str, end: &str) -> Vec<String> {
    let parts = page.split(start).skip(1);
    let text = |part: &str| {
        let part = part.split(end).next().unwrap_or_default();
        let mut text = String::new();
        let mut is_tag = false;
        for c in part.chars() {
            match c {
                '<' => is_tag = true,
                '>' if is_tag => is_tag = false,
                _ if is_tag => {}
                c => text.push(c),
            }
        }
        text.replace("&#39;", "'").replace("&#38;", "&").replace("&amp;", "&").replace("&quot;", "\"")
    };
    parts.map(text).collect()
}

const UNITS: [&str; 14] =
    ["ns", "us", "ms", "s", "1/s", "/s", "k/s", "M/s", "%", "Mbit/s", "Gbit/s", "KiB", "MiB/s", "x"];

/// Returns what is wrong with a sentence, if anything is.
fn fault(text: &str) -> Option<String> {
    let text = text.replace('\u{a0}', " ");
    let marks = [
        "of the program varied",
        "NaN",
        " inf",
        "no number",
        "{",
        "}",
        "  ",
        "()",
        " ,",
        " .",
        "..",
        " 1 comparisons",
        " 1 runs",
        "runses",
        " 1 times",
        " 1 rounds",
    ];
    if let Some(mark) = marks.into_iter().find(|mark| text.contains(mark)) {
        return Some(format!("has {mark:?}"));
    }
    let words: Vec<&str> = text.split(' ').collect();
    let is_number = |word: &str| {
        let digits = word.trim_matches(|c: char| "()+-~,;:\u{2212}\u{d7}".contains(c)).replace(',', "");
        digits.parse::<f64>().is_ok()
    };
    for pair in words.windows(2) {
        let unit = pair[1].trim_matches(|c: char| "().,;:".contains(c));
        if UNITS.contains(&unit) && !is_number(pair[0]) {
            return Some(format!("has the unit {unit:?} without a number: {:?}", pair.join(" ")));
        }
    }
    for three in words.windows(3) {
        let noun = three[2].trim_matches(|c: char| "().,;:".contains(c));
        let is_factor = three[0] == "times" && ["the", "lower", "less"].contains(&three[1]);
        let is_noun = noun.chars().next().is_some_and(char::is_alphabetic) || noun == "99";
        if is_factor && (UNITS.contains(&noun) || !is_noun) {
            return Some(format!("multiplies no noun: {:?}", three.join(" ")));
        }
    }
    None
}

/// Returns what is wrong with an answer: with one of its sentences, a verdict without the number of its runs,
/// or a missing verdict without a reason or a time.
fn fault_of_answer(text: &str, is_simulated: bool) -> Option<String> {
    if let Some(fault) = fault(text) {
        return Some(fault);
    }
    let has_reason = ["No verdict, because", "No answer, because", "Not measured: ", "Not answered: "];
    if has_reason.iter().any(|start| text.starts_with(start)) || is_simulated {
        return None;
    }
    let is_open =
        ["Undecided", "Seen once", "Seen twice", "Not decided"].iter().any(|start| text.starts_with(start));
    match (
        is_open,
        text.contains("would decide") || text.ends_with('\u{2026}'),
        text.contains("n = "),
    ) {
        (true, false, _) => Some("says neither a verdict nor the time to one".to_owned()),
        (false, _, false) => Some("is a verdict without its number of runs".to_owned()),
        _ => None,
    }
}

/// Reads what the records of each study say in each situation; returns the faults.
pub(crate) fn read_all(files: &[StudyFile]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut read = BTreeSet::new();
    let directory = tempfile::tempdir().expect("a directory");
    for file in files {
        for (situation, rounds) in SITUATIONS.iter().flat_map(|one| [1, 2, 6].map(|rounds| (*one, rounds))) {
            let lines = records(file, situation, rounds);
            let place = format!("{} {situation:?} {rounds}", file.id);
            let mut check = |kind: &str, text: &str, fault: Option<String>| {
                read.insert(format!("{kind}: {text}"));
                faults.extend(fault.map(|fault| format!("{place}: {kind} {fault}: {text}")));
            };
            let screen = unisono_report::screen(&lines);
            for ShownAnswer { name, words } in shown(&screen) {
                assert!(!name.is_empty());
                let is_simulated = words.starts_with("(simulated)") || file.driver.is_simulated;
                check("screen", &words, fault_of_answer(&words, is_simulated));
            }
            let page = unisono_report::html(&lines);
            for card in page.split("<div class=\"topic").skip(1) {
                let words = texts_of(card, "<p>", "</p>").into_iter().next().unwrap_or_default();
                check("card", &words, fault(&words));
            }
            for headline in texts_of(&page, "<p class=\"headline\">", "</p>") {
                check("headline", &headline, fault(&headline));
            }
            let path = directory.path().join("records.jsonl");
            let text: Vec<String> =
                lines.iter().map(|line| serde_json::to_string(line).expect("JSON")).collect();
            std::fs::write(&path, text.join("\n") + "\n").expect("a file");
            for verdict in unisono_report::summarize(&path).expect("good records").verdicts {
                let is_verdict =
                    ["better.", "worse.", "no difference."].iter().any(|end| verdict.words.contains(end));
                let words = verdict.words.replace('\u{a0}', " ");
                let has_count = words.contains("n = ") || words.contains(" pairs");
                let uncounted =
                    (is_verdict && !has_count).then(|| "is a verdict without its number of runs".to_owned());
                let is_open = words.contains("not decided") || words.contains("too few for a verdict");
                let untimed = (is_open && !words.contains("would decide"))
                    .then(|| "says no time to a verdict".to_owned());
                check("verdict", &words, fault(&words).or(uncounted).or(untimed));
            }
        }
    }
    if let Some(path) = std::env::var_os("UNISONO_SENTENCES") {
        std::fs::write(path, read.into_iter().collect::<Vec<_>>().join("\n")).expect("a file");
    }
    faults
}
