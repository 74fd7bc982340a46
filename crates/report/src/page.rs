//! The page around the studies: title, host, notices, contents, and what to do with the records.

use crate::facts::facts;
use crate::said::{self, Tone};
use crate::section::StudySection;
use crate::study::Study;
use crate::{answers, claims, conditions, number, summary};
use askama::Template;
use std::collections::BTreeMap;
use unisono_linux::counted::counted;
use unisono_measure::record::{Outcome, RunLine};

#[derive(Template)]
#[template(path = "page.html")]
struct ReportPage<'a> {
    studies: &'a [Study<'a>],
    facts: Vec<(&'static str, String)>,
    notices: Vec<String>,
    answers: String,
    summary: String,
    conditions: String,
    claims: String,
    sections: Vec<StudySection<'a>>,
    runs: String,
    version: &'static str,
}

/// `cut_off` is the line in the middle of which the records end.
pub(crate) fn html(studies: &[Study<'_>], cut_off: Option<usize>) -> String {
    let runs: Vec<&RunLine> = studies.iter().flat_map(|study| study.runs.iter().copied()).collect();
    let is_about_gangs = studies.is_empty() || !studies.iter().all(summary::has_its_own_answer);
    let page = ReportPage {
        studies,
        facts: facts(&runs),
        notices: notices(&runs, cut_off),
        answers: answers::html(studies),
        summary: summary::html(studies),
        conditions: if is_about_gangs { conditions::html(studies) } else { String::new() },
        claims: claims::html(studies),
        sections: sections(studies),
        runs: number::count(runs.len()),
        version: env!("CARGO_PKG_VERSION"),
    };
    page.to_string()
}

/// So many studies of a topic show their first figure. The others are folded.
const LEADING: usize = 3;

fn sections<'a>(studies: &'a [Study<'a>]) -> Vec<StudySection<'a>> {
    let mut of_topic: BTreeMap<&str, usize> = BTreeMap::new();
    let mut leads = |study: &Study<'a>, topic: &'a str| {
        let seen = of_topic.entry(topic).or_default();
        *seen += usize::from(study.count(Outcome::Measured) > 0);
        *seen <= LEADING && study.count(Outcome::Measured) > 0
    };
    studies.iter().map(|study| StudySection::new(study, leads(study, &study.head.topic))).collect()
}

fn notices(runs: &[&RunLine], cut_off: Option<usize>) -> Vec<String> {
    let mut notices = Vec::new();
    if runs.iter().any(|run| run.outcome == Outcome::Interrupted) {
        notices.push("The study was interrupted. What had been measured until then is shown; comparisons rest on fewer runs than planned.".to_owned());
    }
    if let Some(line) = cut_off {
        notices.push(format!(
            "The records end in the middle of line {line}, as after a crash. That line was left out."
        ));
    }
    let mut disturbed: BTreeMap<&str, usize> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.outcome == Outcome::Disturbed) {
        *disturbed.entry(&run.study).or_default() += 1;
    }
    if !disturbed.is_empty() {
        let of: Vec<String> =
            disturbed.iter().map(|(study, count)| format!("{study} ({})", number::count(*count))).collect();
        notices.push(format!(
            "Somebody else took processors during runs of these studies: {}. Those runs count nowhere; they were made again as far as there was time. Where a comparison lacks runs for this reason, measure it again when the machine is idle.",
            of.join(", ")
        ));
    }
    let disturbed = runs
        .iter()
        .filter(|run| run.host.foreign_load.is_some_and(|load| load >= unisono_measure::noise::FOREIGN_LOAD))
        .count();
    if disturbed * 5 > runs.len() {
        notices.push(format!(
            "Other programs were running during {} of {}. Stop them and measure again before trusting small differences.",
            number::count(disturbed),
            counted(number::count(runs.len()), "run")
        ));
    }
    if runs.is_empty() {
        notices.push("These records contain no runs.".to_owned());
    }
    notices
}

/// `▲ 3 better · = 2 no difference`.
pub(crate) fn tally(study: &Study<'_>) -> String {
    let mut tally: Vec<String> = Vec::new();
    for tone in [Tone::Better, Tone::Worse, Tone::Same, Tone::Undecided, Tone::Unanswered] {
        let n = study.judged.iter().flatten().filter(|judgement| said::tone(judgement) == tone).count();
        if n > 0 {
            tally.push(format!("{} {n} {}", tone.sign(), tone.word()));
        }
    }
    if tally.is_empty() { "figures only".to_owned() } else { tally.join(" \u{b7} ") }
}
