//! The answer of a topic without a gain: the reason why there is no verdict, and the time that would decide
//! it.
//!
//! Every topic of the page and of the last screen gets a verdict, or a reason with the time of further runs
//! (`unisono study --continue DIR`) where these would help.

use crate::study::Study;
use crate::topic_answer::TopicAnswer;
use crate::wording::{self, Tone};
use std::collections::BTreeMap;
use std::time::Duration;
use unisono_measure::Evidence;
use unisono_measure::paired::MIN_PAIRS;
use unisono_measure::record::{Outcome, RunLine};
use unisono_measure::time_to_decide;
use unisono_measure::verdict::Judgement;
use unisono_text::counted;

/// The first word of an answer whose comparisons are open.
pub(crate) const UNDECIDED: &str = "Undecided";

/// Returns a sentence about the time that would decide, for example ` About 6 min more would decide it.`;
/// empty if more runs do not help.
pub(crate) fn more_would_decide(studies: &[Study<'_>]) -> String {
    let in_words =
        |time| wording::capitalized(&format!("{} would decide it.", time_to_decide::in_words(time)));
    time_of_first(studies).map_or_else(String::new, |time| format!(" {}", in_words(time)))
}

/// Returns the least time that decides a comparison; without an open comparison, the time until every figure
/// has enough rounds.
fn time_of_first(studies: &[Study<'_>]) -> Option<Duration> {
    judgements(studies)
        .filter_map(|judgement| judgement.time_to_decide)
        .min()
        .or_else(|| time_of_rounds(studies))
}

fn time_of_rounds(studies: &[Study<'_>]) -> Option<Duration> {
    let timed = studies.iter().filter(|study| !study.is_simulated());
    time_to_decide::time_to_see_again(&timed.flat_map(|study| study.runs.iter().copied()).collect::<Vec<_>>())
}

/// Returns the words before an answer that too few rounds support, for example `Seen once (n = 1 round), no
/// verdict; about 40 s more would decide it: `. `seen` is from [`Evidence::too_few_in_words`].
pub(crate) fn too_few_rounds(studies: &[Study<'_>], seen: &str, evidence: Evidence) -> String {
    let more = wording::more_would_decide(time_of_rounds(studies));
    format!("{} ({}), no verdict{more}: ", wording::capitalized(seen), evidence.in_words())
}

/// Returns the runs behind all figures of these studies.
pub(crate) fn evidence_of_all(studies: &[Study<'_>]) -> Option<Evidence> {
    let of_study = |study: &Study<'_>| {
        Evidence::from_runs(&study.runs, |run| (run.outcome == Outcome::Measured).then_some(0.0))
    };
    studies.iter().filter_map(of_study).reduce(Evidence::weaker)
}

fn judgements<'s>(studies: &'s [Study<'_>]) -> impl Iterator<Item = &'s Judgement> {
    studies.iter().flat_map(|study| study.judged.iter().flatten())
}

/// Returns the answer where no comparison shows a gain, but some are decided: the number of decided
/// comparisons. `None` if none is decided.
pub(crate) fn no_gain(studies: &[Study<'_>]) -> Option<TopicAnswer> {
    let count = |tone| judgements(studies).filter(|judgement| wording::tone(judgement) == tone).count();
    let (worse, same, open) = (count(Tone::Worse), count(Tone::Same), count(Tone::Undecided));
    if worse + same == 0 || count(Tone::Better) > 0 {
        return None;
    }
    let decided =
        judgements(studies).filter(|judgement| matches!(wording::tone(judgement), Tone::Worse | Tone::Same));
    let rounds = decided.filter_map(|judgement| Some(judgement.comparison()?.ratio.n)).min()?;
    let evidence = Evidence { rounds, spread: None };
    let words = format!(
        "No gain in {} ({}): {worse} worse, {same} without a difference.",
        counted(worse + same, "decided comparison"),
        evidence.in_words()
    );
    let is_open = open > 0;
    let rest = is_open
        .then(|| format!(" Undecided: {}.{}", counted(open, "comparison"), more_would_decide(studies)));
    let answer = TopicAnswer::new(words + &rest.unwrap_or_default(), None).resting_on(Some(evidence));
    Some(if is_open { answer.undecided() } else { answer })
}

/// Returns the reason why no comparison of these studies is decided, and the time that would decide the
/// first.
pub(crate) fn undecided(studies: &[Study<'_>]) -> String {
    let measured =
        || studies.iter().flat_map(|study| &study.runs).filter(|run| run.outcome == Outcome::Measured);
    let pairs = judgements(studies)
        .filter(|judgement| wording::tone(judgement) == Tone::Undecided)
        .filter_map(|judgement| Some(judgement.comparison()?.ratio.n))
        .max();
    let reason = match pairs {
        Some(MIN_PAIRS..) => {
            let runs = counted(measured().count(), "run");
            format!("{UNDECIDED} after {runs}: they scatter more than the variants differ.")
        }
        Some(few) => {
            format!("{UNDECIDED} after {} of runs: a verdict needs {MIN_PAIRS}.", counted(few, "pair"))
        }
        None => match studies.iter().find_map(|study| study.first_reason()) {
            Some(reason) => format!("Not answered: {reason}."),
            None => "Not answered: these studies draw figures, but compare nothing.".to_owned(),
        },
    };
    format!("{reason}{}", more_would_decide(studies))
}

/// Returns the reason why a topic gets no verdict: nothing was measured, or most of its runs stayed
/// disturbed.
pub(crate) fn no_verdict(studies: &[Study<'_>], topic: &str) -> Option<String> {
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
            "No verdict, because {how_many} stayed disturbed: {why} (unisono study {topic}).{}",
            more_would_decide(studies)
        ));
    }
    if runs().any(|run| run.outcome == Outcome::Measured) {
        return None;
    }
    Some(match (reason(Outcome::Failed), reason(Outcome::Skipped)) {
        (Some(why), _) => format!("No answer, because each run failed: {why}."),
        (_, Some(why)) => format!("Not measured: {why}."),
        _ => format!("Not measured: the study ended before (unisono study {topic})."),
    })
}

/// Returns the number of planned runs that were disturbed at every attempt, and the number of all planned
/// runs.
fn disturbed_runs<'r>(runs: impl Iterator<Item = &'r RunLine>) -> (usize, usize) {
    let mut planned: BTreeMap<(&str, &str, u32, String), bool> = BTreeMap::new();
    for run in runs.filter(|run| matches!(run.outcome, Outcome::Measured | Outcome::Disturbed)) {
        let parameters = format!("{:?}", run.parameters);
        let is_measured = planned.entry((&run.study, &run.variant, run.repetition, parameters)).or_default();
        *is_measured |= run.outcome == Outcome::Measured;
    }
    (planned.values().filter(|is_measured| !**is_measured).count(), planned.len())
}
