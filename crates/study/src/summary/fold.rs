//! Verdicts for a terminal: comparisons of one variant with many others become one line for each situation.
//!
//! A user who asks "which barrier is the fastest here?" wants its rank and the distance to the next best, not
//! a comparison with every other barrier. The report and the records have all comparisons. A comparison with
//! an expectation or with an opening question of its own keeps its line.

use std::collections::VecDeque;
use std::fmt::Write;
use unisono_measure::record::{Better, RunLine, StudyLine, Verdict};
use unisono_measure::verdict::{
    Answer, Judgement, confidence, factor_in_words, finding_in_words, for_display, judge,
};

/// The minimum number of comparisons of one variant in one situation that are folded.
const MIN_FOLDED: usize = 3;

type JudgedPair<'a> = (&'a Verdict, Judgement);

/// Returns the lines in the study's order; a folded line has the place of its first verdict. The variants
/// have the names of the table above the lines, which shows `shown`; a line about another figure names it.
pub(super) fn lines(study: &StudyLine, runs: &[&RunLine], shown: &str) -> Vec<String> {
    let asked = study.verdicts.iter().filter(|v| runs.iter().any(|r| r.has_parameters(&v.only)));
    let asked: Vec<Verdict> = asked.map(|verdict| as_in_table(study, verdict, shown)).collect();
    let judged = asked.iter().flat_map(|v| judge(v, runs).into_iter().map(move |judgement| (v, judgement)));
    let mut rest: VecDeque<JudgedPair<'_>> = judged.collect();
    let mut lines = Vec::new();
    while let Some(first) = rest.pop_front() {
        let belongs = |(verdict, judgement): &JudgedPair<'_>| is_same_situation(&first, verdict, judgement);
        if rest.iter().filter(|other| belongs(other)).count() + 1 < MIN_FOLDED {
            lines.push(first.1.words);
            continue;
        }
        let (others, left): (VecDeque<_>, VecDeque<_>) = rest.into_iter().partition(belongs);
        rest = left;
        let group: Vec<JudgedPair<'_>> = std::iter::once(first).chain(others).collect();
        lines.push(fold_group(study, &group, shown));
    }
    lines
}

fn as_in_table(study: &StudyLine, verdict: &Verdict, shown: &str) -> Verdict {
    let [ours, theirs] = verdict.side_names();
    let name = |variant: &String, side: &String| study.labels.get(variant).unwrap_or(side).clone();
    let sides = Some([name(&verdict.variant, ours), name(&verdict.against, theirs)]);
    let mut named = Verdict { sides, ..verdict.clone() };
    let figure = other_figure(study, verdict, shown);
    if !figure.is_empty() {
        named.words = format!("{}{figure}", named.in_words());
    }
    named
}

/// Returns the quantity that a verdict compares, for example `, latency of a call`; empty if it is `shown`.
fn other_figure(study: &StudyLine, verdict: &Verdict, shown: &str) -> String {
    if verdict.figure == shown && verdict.divisor.is_none() {
        return String::new();
    }
    let figure = study.labels.get(&verdict.figure).unwrap_or(&verdict.figure);
    let per = if verdict.divisor.is_some() { " for each processor used" } else { "" };
    format!(", {figure}{per}")
}

fn is_same_situation((known, at): &JudgedPair<'_>, verdict: &Verdict, judgement: &Judgement) -> bool {
    known.variant == verdict.variant
        && known.figure == verdict.figure
        && known.better == verdict.better
        && known.only == verdict.only
        && known.by == verdict.by
        && at.at == judgement.at
        && [known, &verdict].iter().all(|v| v.expected.is_none() && v.answers.is_none())
}

fn fold_group(study: &StudyLine, group: &[JudgedPair<'_>], shown: &str) -> String {
    let label = |name: &str| study.labels.get(name).map_or_else(|| name.to_owned(), Clone::clone);
    let (verdict, first) = &group[0];
    let by = verdict.by.iter().zip(&first.at);
    let place: Vec<String> = by
        .chain(&verdict.only)
        .map(|(name, value)| format!("{} = {}", label(name), super::value_in_words(value)))
        .collect();
    let place = if place.is_empty() { "everywhere".to_owned() } else { place.join(", ") };
    // the other side's lead: above one, it is better than ours
    let lead = |ratio: f64| if verdict.better == Better::Lower { ratio } else { 1.0 / ratio };
    let mut rivals: Vec<_> = group
        .iter()
        .filter_map(|(v, j)| match &j.answer {
            Answer::Compared { comparison, finding } => Some((&v.against, comparison, *finding)),
            Answer::Unanswered(_) => None,
        })
        .collect();
    rivals.sort_by(|a, b| lead(b.1.ratio.value).total_cmp(&lead(a.1.ratio.value)));
    let ahead = rivals.iter().filter(|(_, c, _)| lead(c.ratio.value) > 1.0).count();
    let mut text = match rivals.first() {
        None => format!("{place}: {} could not be compared", label(&verdict.variant)),
        Some((against, comparison, finding)) => format!(
            "{place}: {}{}: {} of {}; against {}, the {}: {}, {} ({})",
            label(&verdict.variant),
            other_figure(study, verdict, shown),
            ordinal(ahead + 1),
            rivals.len() + 1,
            label(against),
            if ahead == 0 { "next best" } else { "best" },
            finding_in_words(*finding),
            factor_in_words(comparison, *finding),
            confidence(&for_display(comparison, *finding)),
        ),
    };
    if let Some(modes) = first.variant_modes {
        // writing to a String cannot fail
        let _infallible = write!(text, "; {modes} with {}", label(&verdict.variant));
    }
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for (v, judgement) in group {
        let Answer::Unanswered(reason) = &judgement.answer else { continue };
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(label(&v.against)),
            None => reasons.push((reason, vec![label(&v.against)])),
        }
    }
    for (reason, names) in reasons {
        let _infallible = write!(text, "; not answered against {}: {reason}", names.join(", "));
    }
    text
}

fn ordinal(n: usize) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use unisono_measure::record::{Figure, Outcome, Question};

    fn run(variant: &str, repetition: u32, value: f64) -> RunLine {
        RunLine {
            variant: variant.into(),
            repetition,
            parameters: BTreeMap::from([("threads".to_owned(), 2.into())]),
            figures: vec![Figure::new("time", value, "ns")],
            ..RunLine::default()
        }
    }

    fn study() -> StudyLine {
        let against = |other: &str| Verdict {
            variant: "ours".into(),
            against: other.into(),
            figure: "time".into(),
            better: Better::Lower,
            by: Some("threads".into()),
            words: format!("ours against {other}"),
            ..Verdict::default()
        };
        StudyLine {
            verdicts: ["a", "b", "c", "absent"].map(against).into(),
            labels: BTreeMap::from([("ours".to_owned(), "Our barrier".to_owned())]),
            ..StudyLine::default()
        }
    }

    fn folded_lines(ours: f64) -> Vec<String> {
        let mut runs: Vec<RunLine> = (0..3)
            .flat_map(|i| [("ours", ours), ("a", 40.0), ("b", 20.0), ("c", 80.0)].map(|(v, t)| run(v, i, t)))
            .collect();
        let mut absent = run("absent", 0, 0.0);
        absent.outcome = Outcome::Skipped;
        absent.reason = Some("no compiler".into());
        runs.push(absent);
        lines(&study(), &runs.iter().collect::<Vec<_>>(), "time")
    }

    #[test]
    fn many_comparisons_become_the_place_and_the_distance_to_the_next_best() {
        let won = "threads = 2: Our barrier: 1st of 4; against b, the next best: better, 2.00 times less";
        let lost = "threads = 2: Our barrier: 3rd of 4; against b, the best: worse, 3.00 times as much";
        for (ours, wanted) in [(10.0, won), (60.0, lost)] {
            let text = folded_lines(ours);
            assert_eq!(text.len(), 1, "{text:?}");
            assert!(text[0].starts_with(wanted), "{text:?}");
            assert!(text[0].contains("not answered against absent: absent: no compiler"), "{text:?}");
        }
    }

    #[test]
    fn an_expectation_and_an_answer_keep_lines_of_their_own() {
        let mut study = study();
        study.verdicts[3].against = "c".into();
        study.verdicts[3].expected = Some(1.0);
        study.verdicts.push(study.verdicts[0].clone());
        study.verdicts[4].answers = Some(Question::Ganging);
        let runs: Vec<RunLine> = ["ours", "a", "b", "c"].map(|v| run(v, 0, 1.0)).into_iter().collect();
        let text = lines(&study, &runs.iter().collect::<Vec<_>>(), "time");
        assert_eq!(text.len(), 3, "{text:?}");
        assert!(text[1].contains("expected") && text[2].starts_with("ours against a"), "{text:?}");
    }

    #[test]
    fn a_line_about_another_figure_names_it_and_the_variants_as_the_table_does() {
        let mut study = study();
        study.verdicts.truncate(1);
        study.verdicts[0].words.clear();
        study.verdicts[0].sides = Some(["another name", "the other side"].map(str::to_owned));
        study.labels.insert("time".to_owned(), "time of a barrier".to_owned());
        let runs: Vec<RunLine> = ["ours", "a"].map(|v| run(v, 0, 1.0)).into_iter().collect();
        let runs: Vec<&RunLine> = runs.iter().collect();
        let said = |study: &StudyLine, shown| lines(study, &runs, shown).remove(0);
        let same = said(&study, "time");
        assert!(same.starts_with("Our barrier against the other side at threads = 2: "), "{same}");
        let other = said(&study, "rate");
        assert!(other.contains("the other side, time of a barrier at threads = 2: "), "{other}");
        study.verdicts[0].divisor = Some("time".to_owned());
        let each = said(&study, "time");
        assert!(each.contains(", time of a barrier for each processor used at threads = 2: "), "{each}");
    }

    #[test]
    fn places_are_counted_as_people_do() {
        assert_eq!(
            [1, 2, 3, 4, 11, 12, 21].map(ordinal),
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "21st"]
        );
    }
}
