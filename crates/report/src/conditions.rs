//! The paper's five conditions, each with what was found here.
//!
//! Reference: S. Peter, A. Baumann, Z. Anderson, T. Roscoe, *Gang scheduling isn't worth it... yet*,
//! ETH Zurich, Systems Group, Technical Report 745, 2011, section 3.

use crate::escape::{Escaped, slug};
use crate::said::{self, Tone, stretches};
use crate::study::{Study, question};
use std::fmt::Write as _;
use unisono_measure::record::{Question, Verdict};
use unisono_measure::verdict::Judgement;

struct Condition {
    id: &'static str,
    name: &'static str,
    /// What the paper says, in our words.
    paper: &'static str,
    place: &'static str,
}

const CONDITIONS: [Condition; 5] = [
    Condition {
        id: "fine-grained",
        name: "Synchronization is fine-grained",
        paper: "The gain shrinks from an interval of 40 us on and is gone at the length of a time slice, 15 ms there.",
        place: "section 3.2, Figure 2",
    },
    Condition {
        id: "balanced",
        name: "Work is well balanced",
        paper: "Once threads differ by a few milliseconds of work, gangs lose their effect.",
        place: "section 3.3, Figure 2",
    },
    Condition {
        id: "latency-sensitive",
        name: "Somebody waits for the result",
        paper: "If only throughput matters, running one job after the other does 1.5 % more.",
        place: "section 3.4",
    },
    Condition {
        id: "several-important",
        name: "Several programs matter",
        paper: "If one does, giving it priority and a longer spin is enough.",
        place: "section 3.5, Figure 3",
    },
    Condition {
        id: "changing",
        name: "The load changes",
        paper: "If it does not, and fits, a fixed partition of the cores does at least as well.",
        place: "section 3.6",
    },
];

/// The section, as HTML.
pub(crate) fn html(studies: &[Study<'_>]) -> String {
    if !studies.iter().any(|s| s.head.condition.is_some()) {
        return "<section id=\"conditions\"><h2>The five conditions</h2>\n<p>The paper finds gang scheduling worth it only where five conditions hold together. No study in these records examines one of them; <code>unisono study gang</code> does.</p></section>\n".to_owned();
    }
    let mut html = String::from(
        "<section id=\"conditions\"><h2>The five conditions</h2>\n<p>The paper finds gang scheduling worth it only where five conditions hold together. Each of them, as the paper saw it and as these runs show it:</p>\n<ol class=\"conditions\">\n",
    );
    for condition in &CONDITIONS {
        let here: Vec<&Study<'_>> =
            studies.iter().filter(|s| s.head.condition.as_deref() == Some(condition.id)).collect();
        let _ = write!(
            html,
            "<li><h3>{}</h3>\n<p class=\"paper-says\"><span class=\"smallcap\">Paper</span> {} <cite>{}</cite></p>\n",
            condition.name, condition.paper, condition.place
        );
        if here.is_empty() {
            html.push_str("<p><span class=\"smallcap\">Here</span> <span class=\"badge unanswered\">\u{2013} not measured</span> No study in these records examines it.</p>\n");
        }
        for study in here {
            let (tone, verdict) = examined(study);
            let _ = writeln!(
                html,
                "<p><span class=\"smallcap\">Here</span> <span class=\"badge {}\">{} {}</span> {} <a href=\"#{}\">{}</a></p>",
                tone.class(),
                tone.sign(),
                verdict.0,
                Escaped(&verdict.1),
                slug(&study.head.study),
                Escaped(&study.head.title)
            );
        }
        html.push_str("</li>\n");
    }
    html.push_str("</ol></section>\n");
    html
}

/// What a study says about its condition: a badge, its word, and the words.
fn examined(study: &Study<'_>) -> (Tone, (&'static str, String)) {
    let sweeps: Vec<(&Verdict, &[Judgement])> = study
        .verdicts()
        .filter(|(verdict, judged)| judged.len() > 2 && question(verdict) == Some(Question::Ganging))
        .collect();
    if let Some((verdict, judged)) = sweeps.first() {
        return swept(study, verdict, judged);
    }
    let mut parts: Vec<String> = Vec::new();
    let mut tones: Vec<Tone> = Vec::new();
    for (verdict, judged) in study.verdicts().take(4) {
        tones.extend(judged.iter().map(said::tone));
        let (ours, theirs) = said::sides(study, verdict);
        let words = format!("{ours} against {theirs}: {}.", said::sweep(study, verdict, judged));
        parts.push(said::capital(&words));
    }
    let measured = |tone: &Tone| !matches!(tone, Tone::Unanswered);
    match tones.iter().find(|tone| measured(tone)) {
        None if parts.is_empty() => (
            Tone::Unanswered,
            ("not judged", "The study draws figures but compares nothing.".to_owned()),
        ),
        None => (Tone::Unanswered, ("not measured", parts.join(" "))),
        Some(_) => {
            let all_met = study
                .verdicts()
                .flat_map(|(verdict, judged)| {
                    judged.iter().filter_map(|j| said::met(verdict, said::comparison(j)?))
                })
                .collect::<Vec<bool>>();
            match (all_met.is_empty(), all_met.iter().all(|met| *met)) {
                (true, _) => (tones[0], (tones[0].word(), parts.join(" "))),
                (false, true) => (Tone::Better, ("as expected", parts.join(" "))),
                (false, false) => (Tone::Worse, ("not as expected", parts.join(" "))),
            }
        }
    }
}

/// A condition that a sweep relaxes: gangs should win at its beginning and no longer at its end.
fn swept(study: &Study<'_>, verdict: &Verdict, judged: &[Judgement]) -> (Tone, (&'static str, String)) {
    let stretches = stretches(judged);
    let words = format!("Gangs against spread Linux: {}.", said::sweep(study, verdict, judged));
    let decided = |tone: Tone| !matches!(tone, Tone::Unanswered | Tone::Undecided);
    let wins = stretches.iter().any(|s| s.tone == Tone::Better);
    let end = stretches.iter().rev().find(|s| decided(s.tone)).map(|s| s.tone);
    match (wins, end) {
        (_, None) if stretches.iter().all(|s| s.tone == Tone::Unanswered) => {
            (Tone::Unanswered, ("not measured", words))
        }
        (_, None) => (Tone::Undecided, ("not decided", words)),
        (true, Some(Tone::Better)) => {
            (Tone::Undecided, ("not seen", format!("They still win at the end of the sweep. {words}")))
        }
        (true, Some(_)) => (Tone::Better, ("confirmed", words)),
        (false, Some(_)) => (Tone::Undecided, ("no gain to lose", words)),
    }
}
