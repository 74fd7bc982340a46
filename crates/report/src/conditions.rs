//! The paper's five conditions, each with the result of these records.
//!
//! Reference: S. Peter, A. Baumann, Z. Anderson, T. Roscoe, *Gang scheduling isn't worth it... yet*,
//! ETH Zurich, Systems Group, Technical Report 745, 2011, section 3.

use crate::study::{Study, question};
use crate::wording::{self, SweepSegment, Tone, segments};
use askama::Template;
use unisono_measure::record::{Question, Verdict};
use unisono_measure::verdict::{self, Judgement};

struct PaperCondition {
    id: &'static str,
    name: &'static str,
    /// The paper's statement, in this project's words.
    paper: &'static str,
    place: &'static str,
}

static CONDITIONS: [PaperCondition; 5] = [
    PaperCondition {
        id: "fine-grained",
        name: "Synchronization is fine-grained",
        paper: "The gain shrinks from an interval of 40 us on and is gone at the length of a time slice, 15 ms there.",
        place: "section 3.2, Figure 2",
    },
    PaperCondition {
        id: "balanced",
        name: "Work is well balanced",
        paper: "Once threads differ by a few milliseconds of work, gangs lose their effect.",
        place: "section 3.3, Figure 2",
    },
    PaperCondition {
        id: "latency-sensitive",
        name: "Somebody waits for the result",
        paper: "If only throughput matters, running one job after the other does 1.5 % more.",
        place: "section 3.4",
    },
    PaperCondition {
        id: "several-important",
        name: "Several programs matter",
        paper: "If one does, giving it priority and a longer spin is enough.",
        place: "section 3.5, Figure 3",
    },
    PaperCondition {
        id: "changing",
        name: "The load changes",
        paper: "If it does not, and fits, a fixed partition of the cores does at least as well.",
        place: "section 3.6",
    },
];

#[derive(Template)]
#[template(path = "conditions.html")]
struct ConditionsSection<'a> {
    is_examined: bool,
    /// The number of conditions that agree with the paper.
    tally: String,
    conditions: Vec<(&'static PaperCondition, Vec<ExaminedCondition<'a>>)>,
}

/// The study, the tone and the word of its badge, and the sentence.
type ExaminedCondition<'a> = (&'a Study<'a>, Tone, &'static str, String);

pub(crate) fn html(studies: &[Study<'_>]) -> String {
    let examined = |condition: &'static PaperCondition| {
        let here = studies.iter().filter(|s| s.head.condition.as_deref() == Some(condition.id));
        let examined = here.map(|study| {
            let (tone, (word, text)) = judge_sweeps(study);
            (study, tone, word, text)
        });
        (condition, examined.collect())
    };
    let conditions: Vec<(&'static PaperCondition, Vec<ExaminedCondition<'_>>)> =
        CONDITIONS.iter().map(examined).collect();
    let words: Vec<&'static str> =
        conditions.iter().flat_map(|(_, all)| all.iter().map(|(_, _, word, _)| *word)).collect();
    let mut counts: Vec<(&'static str, usize)> = Vec::new();
    for word in words {
        match counts.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    let tally: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    let is_examined = studies.iter().any(|s| s.head.condition.is_some());
    ConditionsSection { is_examined, tally: tally.join(", "), conditions }.to_string()
}

/// Judges a study by its sweeps. Returns the tone and the word of its badge, and the sentence.
fn judge_sweeps(study: &Study<'_>) -> (Tone, (&'static str, String)) {
    let sweeps: Vec<VerdictSweep<'_>> = study
        .verdicts()
        .filter(|(_, judged)| judged.len() > 2)
        .map(|(v, judged)| VerdictSweep::new(study, v, judged))
        .collect();
    // the paper compares with plain Linux; the comparison with pinning alone is an addition of this project
    let plain = sweeps.iter().find(|s| s.is_of_gangs() && !s.is_beyond_pinning());
    let pinned = sweeps.iter().find(|s| s.is_beyond_pinning());
    match (plain, pinned) {
        (Some(plain), pinned) => {
            let (tone, (badge, words)) = plain.against_paper();
            let beyond = pinned.map(|pinned| format!(" {}", pinned.beyond_pinning())).unwrap_or_default();
            (tone, (badge, format!("{words}{beyond}")))
        }
        (None, Some(pinned)) => pinned.against_paper(),
        (None, None) => judge_comparisons(study),
    }
}

/// Judges a study without a sweep: its first comparisons, and whether they agree with the paper.
fn judge_comparisons(study: &Study<'_>) -> (Tone, (&'static str, String)) {
    let mut parts: Vec<String> = Vec::new();
    let mut tones: Vec<Tone> = Vec::new();
    let of_paper = |verdict: &Verdict| {
        verdict.expected_from.as_deref().is_some_and(|from| from.starts_with("the paper"))
    };
    // first the comparisons that decide the badge
    let mut verdicts: Vec<_> = study.verdicts().collect();
    verdicts.sort_by_key(|(verdict, _)| !of_paper(verdict));
    for (verdict, judged) in verdicts.iter().take(4) {
        tones.extend(judged.iter().map(wording::tone));
        let (ours, theirs) = wording::sides(study, verdict);
        let words = format!("{ours} against {theirs}: {}.", wording::sweep_in_words(study, verdict, judged));
        parts.push(wording::capitalized(&words));
    }
    if parts.is_empty() {
        return (
            Tone::Unanswered,
            ("not judged", "The study draws figures but compares nothing.".to_owned()),
        );
    }
    let Some(first) = tones.iter().find(|tone| !matches!(tone, Tone::Unanswered)) else {
        return (Tone::Unanswered, ("not measured", parts.join(" ")));
    };
    let met: Vec<bool> = verdicts
        .iter()
        .filter(|(verdict, _)| of_paper(verdict))
        .flat_map(|(verdict, judged)| {
            judged.iter().filter_map(move |j| {
                let c = j.comparison()?;
                verdict::meets_expectation(verdict, c)
                    .map(|met| met || verdict.expected.is_some_and(|e| c.ratio.contains(e)))
            })
        })
        .collect();
    let badge = match (met.iter().any(|met| *met), met.iter().any(|met| !*met)) {
        (false, false) => (*first, first.word()),
        (true, false) => (Tone::Better, "as in the paper"),
        (true, true) => (Tone::Undecided, "partly as in the paper"),
        (false, true) => (Tone::Worse, "unlike the paper"),
    };
    (badge.0, (badge.1, parts.join(" ")))
}

/// A sweep that relaxes one condition: gangs should win at its start and not at its end.
struct VerdictSweep<'a> {
    study: &'a Study<'a>,
    verdict: &'a Verdict,
    segments: Vec<SweepSegment<'a>>,
}

impl<'a> VerdictSweep<'a> {
    fn new(study: &'a Study<'a>, verdict: &'a Verdict, judged: &'a [Judgement]) -> Self {
        Self { study, verdict, segments: segments(judged) }
    }

    fn is_beyond_pinning(&self) -> bool {
        question(self.verdict) == Some(Question::Ganging)
    }

    fn is_of_gangs(&self) -> bool {
        self.verdict.variant.starts_with("gang")
    }

    /// Returns the segments with these tones, each with its ratio farthest from one: `at interval 0, from
    /// interval 1 ms on`.
    fn places(&self, wanted: &[Tone]) -> Option<String> {
        let words: Vec<String> = self
            .segments
            .iter()
            .filter(|segment| wanted.contains(&segment.tone))
            .map(|segment| {
                let most =
                    segment.farthest_comparison().map(|c| format!(" ({})", wording::multiple(c.ratio.value)));
                format!("{}{}", segment.parameter_range(self.study, self.verdict), most.unwrap_or_default())
            })
            .collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    fn against_paper(&self) -> (Tone, (&'static str, String)) {
        let (_, theirs) = wording::sides(self.study, self.verdict);
        let decided = |tone: Tone| !matches!(tone, Tone::Unanswered | Tone::Undecided);
        let end = self.segments.iter().rev().find(|s| decided(s.tone)).map(|s| s.tone);
        let open = self.places(&[Tone::Undecided, Tone::Unanswered]);
        let open = open.map(|open| format!("; not decided {open}")).unwrap_or_default();
        match (self.places(&[Tone::Better]), end) {
            (_, None) if self.segments.iter().all(|s| s.tone == Tone::Unanswered) => {
                let reason = self.segments.iter().find_map(SweepSegment::reason).unwrap_or("no runs");
                (Tone::Unanswered, ("not measured", format!("Gangs against {theirs}: {reason}.")))
            }
            (_, None) => (Tone::Undecided, ("not decided", format!("Gangs against {theirs}{open}."))),
            // a sweep with an undecided end does not show where the gain ends
            (Some(wins), Some(Tone::Better)) if self.segments.last().is_some_and(|s| !decided(s.tone)) => (
                Tone::Undecided,
                ("end not decided", format!("Gangs beat {theirs} {wins}; where that ends is open{open}.")),
            ),
            (Some(wins), Some(Tone::Better)) => (
                Tone::Worse,
                ("unlike the paper", format!("Gangs beat {theirs} {wins}, to the end of the sweep{open}.")),
            ),
            (Some(wins), Some(_)) => {
                let after = self.places(&[Tone::Same, Tone::Worse]).unwrap_or_default();
                (
                    Tone::Better,
                    ("as in the paper", format!("Gangs beat {theirs} {wins}, and not {after}{open}.")),
                )
            }
            (None, Some(_)) => {
                let all = self.places(&[Tone::Same, Tone::Worse]).unwrap_or_default();
                (
                    Tone::Worse,
                    (
                        "unlike the paper",
                        format!("Gangs nowhere beat {theirs}, so there is no gain to lose: not {all}{open}."),
                    ),
                )
            }
        }
    }

    fn beyond_pinning(&self) -> String {
        let (_, theirs) = wording::sides(self.study, self.verdict);
        let wins = self.places(&[Tone::Better]);
        let same = self.places(&[Tone::Same]).map(|places| format!("no difference {places}"));
        let losses = self.places(&[Tone::Worse]).map(|places| format!("worse {places}"));
        let open =
            self.places(&[Tone::Undecided, Tone::Unanswered]).map(|places| format!("not decided {places}"));
        let rest: Vec<String> = [same, losses, open].into_iter().flatten().collect();
        let rest = if rest.is_empty() { String::new() } else { format!("; {}", rest.join("; ")) };
        match wins {
            Some(wins) => format!("Against {theirs}, they win {wins}{rest}."),
            None => format!("Against {theirs}, they win nowhere{rest}."),
        }
    }
}
