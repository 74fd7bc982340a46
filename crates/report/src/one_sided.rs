//! The report's answer about windows: is one-sided communication faster than messages here, in which
//! implementation, and with which synchronization?
//!
//! Uses the comparisons with messages in studies of topic `rma`. Each implementation has one claim.

use crate::strongest::strongest_comparison;
use crate::study::Study;
use crate::topic_answer::{AnswerPicture, TopicAnswer};
use crate::wording::{self, Tone};
use askama::Template;
use unisono_measure::record::Verdict;
use unisono_measure::verdict::Judgement;
use unisono_text::counted;

pub(crate) const TOPIC: &str = "rma";

fn is_about_windows(study: &Study<'_>) -> bool {
    study.head.topic == TOPIC
}

/// One implementation's comparisons with messages.
struct Claim<'a> {
    who: String,
    study: &'a Study<'a>,
    better: usize,
    total: usize,
    /// The number of comparisons in which messages are faster, or equally fast.
    refuted: usize,
    /// The comparisons that do not show the implementation faster, in words.
    not: Vec<String>,
    compared: Vec<(&'a Verdict, &'a Judgement)>,
}

#[derive(Template)]
#[template(path = "windows.html")]
struct WindowsAnswer<'a> {
    claims: Vec<Claim<'a>>,
    /// The reason why there is no answer, if there is no claim.
    unanswered: String,
}

/// Writes the answer as HTML. Empty if no study is about windows.
pub(crate) fn html(studies: &[Study<'_>]) -> String {
    if !studies.iter().any(is_about_windows) {
        return String::new();
    }
    WindowsAnswer { claims: claims(studies), unanswered: unanswered(studies) }.to_string()
}

/// Returns the reason why windows were not compared with messages.
fn unanswered(studies: &[Study<'_>]) -> String {
    let about = || studies.iter().filter(|study| is_about_windows(study));
    let reason = about().find_map(Study::first_skipped).map(|reason| format!(", because {reason}"));
    format!("Not answered: no run compared windows with messages{}.", reason.unwrap_or_default())
}

/// Returns the claims in words, the preload's first, because programs can use the preload unchanged. If
/// nothing was compared with messages, the reason comes before the strongest of the other comparisons.
pub(crate) fn topic_answer(studies: &[Study<'_>]) -> Option<TopicAnswer> {
    let mut claims = claims(studies);
    if claims.is_empty() && studies.iter().any(is_about_windows) {
        let reason = unanswered(studies);
        return Some(match strongest_comparison(studies) {
            Some(other) => other.beside(&reason),
            None => TopicAnswer::new(reason, None).undecided(),
        });
    }
    claims.sort_by_key(|claim| !claim.who.starts_with("unisono mpi"));
    let typical = claims.first()?.typical();
    let sentence = |(at, claim): (usize, &Claim<'_>)| {
        let typical =
            typical.as_ref().filter(|_| at == 0).map(|(words, _)| format!(". A typical one: {words}"));
        wording::capitalized(&format!("{}{}.", claim.sentence(), typical.unwrap_or_default()))
    };
    let words: Vec<String> = claims.iter().enumerate().map(sentence).collect();
    let is_open = claims.iter().all(|claim| claim.holds().0 == Tone::Undecided);
    let answer = TopicAnswer::new(words.join(" "), typical.and_then(|(_, picture)| picture));
    Some(if is_open { answer.undecided() } else { answer })
}

impl Claim<'_> {
    /// Returns the verdict on a claim about every point. One point where messages are faster or equally fast
    /// refutes it. If the runs cannot decide, it stays open.
    fn holds(&self) -> (Tone, &'static str) {
        match (self.better == self.total, self.refuted) {
            (true, _) => (Tone::Better, "\u{25b2} holds"),
            (false, 0) => (Tone::Undecided, "? not decided"),
            (false, _) => (Tone::Worse, "\u{25bc} does not hold"),
        }
    }

    /// Returns the first twelve points where the implementation is not faster.
    fn not_faster(&self) -> String {
        let shown = self.not.len().min(12);
        let more = self.not.len() - shown;
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        format!("{}{more}", self.not[..shown].join("; "))
    }

    /// Returns the comparison with the median ratio, in words and as a picture.
    fn typical(&self) -> Option<(String, Option<AnswerPicture>)> {
        let ratio = |judgement: &Judgement| judgement.comparison().map(|c| c.ratio.value);
        let is_decided = |judgement: &Judgement| wording::tone(judgement) != Tone::Undecided;
        let decided = self.compared.iter().filter(|(_, judgement)| is_decided(judgement));
        let mut ratios: Vec<_> = decided.filter_map(|c| Some((ratio(c.1)?, *c))).collect();
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, (verdict, judgement)) = *ratios.get(ratios.len() / 2)?;
        let (ours, theirs) = wording::sides(self.study, verdict);
        let place = wording::place_in_words(self.study, verdict, judgement);
        let factor = wording::factor_in_words(self.study, verdict, ratio);
        let words = format!("{ours} against {theirs}{place}: {factor}");
        Some((words, AnswerPicture::from_comparison(self.study, verdict, judgement)))
    }

    fn sentence(&self) -> String {
        let Self { who, better, total, .. } = self;
        if *better == 0 && self.holds().0 == Tone::Undecided {
            let first = self.compared.iter().filter_map(|(_, judgement)| judgement.time_to_decide).min();
            format!(
                "not decided whether windows by {who} are faster than messages, in any of {}{}",
                counted(*total, "comparison"),
                wording::more_would_decide(first)
            )
        } else if better == total {
            format!(
                "windows by {who} are faster than messages at every size and with every synchronization ({total} of {total})"
            )
        } else {
            format!(
                "windows by {who} are faster than messages at {better} of {total} sizes and synchronizations"
            )
        }
    }
}

fn claims<'a>(studies: &'a [Study<'a>]) -> Vec<Claim<'a>> {
    let mut claims: Vec<Claim<'a>> = Vec::new();
    for study in studies.iter().filter(|study| is_about_windows(study)) {
        for (verdict, judged) in study.verdicts().filter(|(v, _)| v.against.ends_with("-messages")) {
            // a label has the form `implementation, synchronization`
            let label = study.label(&verdict.variant);
            let (who, how) = label.split_once(", ").unwrap_or((&label, ""));
            let known = claims
                .iter()
                .position(|c| c.who == who && std::ptr::eq(c.study, study))
                .unwrap_or(claims.len());
            if known == claims.len() {
                claims.push(Claim {
                    who: who.to_owned(),
                    study,
                    better: 0,
                    total: 0,
                    refuted: 0,
                    not: Vec::new(),
                    compared: Vec::new(),
                });
            }
            let claim = &mut claims[known];
            for judgement in judged {
                let tone = wording::tone(judgement);
                if tone == Tone::Unanswered {
                    continue;
                }
                claim.total += 1;
                claim.compared.push((verdict, judgement));
                if tone == Tone::Better {
                    claim.better += 1;
                } else {
                    claim.refuted += usize::from(matches!(tone, Tone::Worse | Tone::Same));
                    let ratio = judgement.comparison().map(|c| c.ratio.value);
                    let times = ratio
                        .map(|ratio| wording::factor_in_words(study, verdict, ratio))
                        .unwrap_or_default();
                    let place = wording::place_in_words(study, verdict, judgement);
                    let (_, theirs) = wording::sides(study, verdict);
                    claim.not.push(format!("{how} against {theirs}{place}: {times}, {}", tone.word()));
                }
            }
        }
    }
    claims.retain(|claim| claim.total > 0);
    claims
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::{Figure, Line, RunLine, StudyLine};

    /// Makes a study of three sizes with six repetitions each; `shares` are the times of windows over those
    /// of messages.
    fn page(shares: [&[f64]; 3]) -> String {
        let verdict = Verdict {
            variant: "engine-fence".into(),
            against: "mpich-messages".into(),
            figure: "step_ns".into(),
            better: unisono_measure::record::Better::Lower,
            by: Some("bytes".into()),
            sides: Some(["the engine's fence", "MPICH's messages"].map(str::to_owned)),
            ..Verdict::default()
        };
        let mut lines = vec![Line::Study(Box::new(StudyLine {
            study: "ghost".into(),
            topic: TOPIC.into(),
            labels: [("engine-fence".to_owned(), "the engine, fence".to_owned())].into(),
            verdicts: vec![verdict],
            ..StudyLine::default()
        }))];
        for (bytes, shares) in [16, 64, 256].into_iter().zip(shares) {
            for repetition in 0..6_u32 {
                let share = shares[repetition as usize % shares.len()];
                for (variant, value) in [("engine-fence", share), ("mpich-messages", 1.0)] {
                    lines.push(Line::Run(Box::new(RunLine {
                        study: "ghost".into(),
                        variant: variant.into(),
                        repetition,
                        parameters: [("bytes".to_owned(), bytes.into())].into(),
                        figures: vec![Figure { name: "step_ns".into(), value, ..Figure::default() }],
                        ..RunLine::default()
                    })));
                }
            }
        }
        html(&crate::study::studies(&lines))
    }

    #[test]
    fn a_claim_holds_at_every_place_falls_with_one_and_stays_open_where_runs_cannot_tell() {
        let holds = page([&[0.5], &[0.4], &[0.3]]);
        assert!(holds.contains("holds</span>") && holds.contains("(3 of 3)"), "{holds}");
        let falls = page([&[0.5], &[2.0], &[0.3]]);
        assert!(falls.contains("does not hold") && falls.contains("at 2 of 3"), "{falls}");
        let open = page([&[0.5], &[0.2, 5.0], &[0.3]]);
        assert!(open.contains("? not decided") && !open.contains("does not hold"), "{open}");
    }

    #[test]
    fn no_study_about_windows_no_question_about_them() {
        assert_eq!(html(&[]), "");
    }
}
