//! The answer about programs that share processors: the remedy to choose, and the processor time that
//! bystanders lose.
//!
//! If the study tried OpenMP programs with passive waiting, the answer is about them, because most readers
//! have such programs. It names the remedies with their gains over plain Linux; among remedies with similar
//! gains the one with the least effort comes first. Of several programs the answer describes the program that
//! gained least by passive waiting, never the luckiest. Otherwise the answer names the largest gains by
//! pinning and by gangs. All gains are work per processor time obtained, if the studies have it.

use crate::study::{Study, question};
use crate::topic_answer::{AnswerPicture, TopicAnswer};
use crate::wording::{self, Tone};
use unisono_measure::Selector;
use unisono_measure::record::{Question, Verdict};
use unisono_measure::verdict::{self, Judgement};
use unisono_text::counted;

/// Gains that differ by less than this factor are alike; the remedy with less effort is then the better
/// advice.
const MAX_SIMILAR_GAIN_RATIO: f64 = 1.25;

/// The remedies with less effort than gangs. A remedy that was compared with one of them is named only where
/// that comparison is decided in its favor, as the table of situations does.
const SIMPLER_REMEDIES: [&str; 2] = ["passive", "spread"];

/// A comparison with its study.
#[derive(Clone, Copy)]
struct RemedyComparison<'a> {
    study: &'a Study<'a>,
    verdict: &'a Verdict,
    judgement: &'a Judgement,
}

impl RemedyComparison<'_> {
    fn ratio(&self) -> Option<f64> {
        self.judgement.comparison().map(|c| c.ratio.value)
    }

    fn is_better(&self) -> bool {
        wording::tone(self.judgement) == Tone::Better
    }

    /// Returns the distance of the ratio from 1 (its absolute logarithm), in either direction.
    fn strength(&self) -> f64 {
        self.ratio().map_or(0.0, |ratio| ratio.ln().abs()).min(f64::MAX)
    }

    fn gain(&self) -> Option<String> {
        let ratio = self.ratio()?;
        let place = wording::place_in_words(self.study, self.verdict, self.judgement);
        if is_too_few(self.study, &self.verdict.selector(&self.judgement.place)) {
            let (_, theirs) = wording::sides(self.study, self.verdict);
            return Some(format!("seen better than {theirs}{place}; no factor yet"));
        }
        let factor = wording::factor_than(self.study, self.verdict, ratio);
        Some(format!("up to {factor}{place}"))
    }

    fn answers(&self, of: &Selector) -> bool {
        of.is_answered_by(self.verdict, &self.judgement.place)
    }

    fn picture(&self) -> Option<AnswerPicture> {
        AnswerPicture::from_comparison(self.study, self.verdict, self.judgement)
    }
}

/// Whether the figures behind a comparison come from too few rounds for a conclusion.
fn is_too_few(study: &Study<'_>, of: &Selector) -> bool {
    study.evidence(of).is_some_and(|evidence| evidence.too_few_in_words().is_some())
}

fn all_comparisons<'a>(
    studies: &'a [Study<'a>],
    is_wanted: impl Fn(&Verdict) -> bool + 'a,
) -> impl Iterator<Item = RemedyComparison<'a>> {
    studies.iter().flat_map(move |study| {
        let wanted: Vec<_> = study.verdicts().filter(|(verdict, _)| is_wanted(verdict)).collect();
        wanted.into_iter().flat_map(move |(verdict, judged)| {
            judged.iter().map(move |judgement| RemedyComparison { study, verdict, judgement })
        })
    })
}

fn comparisons_for<'a>(studies: &'a [Study<'a>], wanted: Question) -> Vec<RemedyComparison<'a>> {
    all_comparisons(studies, move |verdict| question(verdict) == Some(wanted)).collect()
}

pub(crate) fn topic_answer(studies: &[Study<'_>]) -> Option<TopicAnswer> {
    let gangs_beyond_pinning = gangs_beyond_pinning(studies);
    let open_mp = open_mp_answer(studies).map(|answer| TopicAnswer {
        words: join_sentences(answer.words, gangs_beyond_pinning.clone()),
        ..answer
    });
    open_mp.or_else(|| greatest_gains(studies))
}

/// A remedy in words, and its gain.
struct RemedyGain {
    what: &'static str,
    gain: f64,
    variant: String,
}

/// Names the remedies for OpenMP programs, for example `Two OpenMP programs at once: set
/// OMP_WAIT_POLICY=passive (40 times the work of plain Linux), or ...`
fn open_mp_answer(studies: &[Study<'_>]) -> Option<TopicAnswer> {
    let passive =
        comparisons_for(studies, Question::PassiveWaiting).into_iter().filter(RemedyComparison::is_better);
    let passive = passive.min_by(|a, b| a.strength().total_cmp(&b.strength()))?;
    let here = passive.verdict.selector(&passive.judgement.place);
    let remedies = [("set OMP_WAIT_POLICY=passive", "passive"), ("pin the threads", "spread")];
    let remedies = remedies.into_iter().chain([("run them as gangs", "gang")]);
    let found = remedies.filter_map(|(what, variant)| {
        let of = Selector { variants: vec![variant.to_owned()], ..here.clone() };
        let of_study = all_comparisons(std::slice::from_ref(passive.study), |_| true);
        let mut here = of_study.filter(|asked| asked.is_better() && asked.answers(&of));
        let gain = here.find_map(|asked| asked.ratio())?;
        let simpler = SIMPLER_REMEDIES.into_iter().filter(|simpler| *simpler != variant);
        let simpler: Vec<Selector> =
            simpler.map(|simpler| Selector { against: Some(simpler.to_owned()), ..of.clone() }).collect();
        let mut beside = all_comparisons(std::slice::from_ref(passive.study), |_| true)
            .filter(|asked| simpler.iter().any(|of| asked.answers(of)));
        if beside.any(|asked| !matches!(wording::tone(asked.judgement), Tone::Better | Tone::Unanswered)) {
            return None;
        }
        Some(RemedyGain { what, gain, variant: variant.to_owned() })
    });
    let found = by_gain_and_effort(found.collect());
    let is_too_few = is_too_few(passive.study, &here);
    let named = found.iter().enumerate().map(|(at, remedy)| {
        let unit = if at == 0 { " times the work of plain Linux" } else { "" };
        if is_too_few {
            return remedy.what.to_owned();
        }
        format!("{} ({}{unit})", remedy.what, verdict::format_ratio(remedy.gain))
    });
    let factor = if is_too_few { "; no factor yet" } else { "" };
    let words = format!("Two OpenMP programs at once: {}{factor}.", alternatives(&named.collect::<Vec<_>>()));
    let has_gangs = found.iter().any(|remedy| remedy.variant == "gang");
    let command = match (found.first()?.variant.as_str(), has_gangs) {
        ("gang", _) => "unisono gang run -- A ::: B    OMP_WAIT_POLICY=passive PROGRAM",
        ("spread", _) => "unisono fit -- A ::: B    OMP_WAIT_POLICY=passive PROGRAM",
        (_, true) => "OMP_WAIT_POLICY=passive PROGRAM    unisono gang run -- A ::: B",
        (_, false) => "OMP_WAIT_POLICY=passive PROGRAM    unisono fit -- A ::: B",
    };
    let sides = here.against.clone().into_iter().chain(found.iter().map(|remedy| remedy.variant.clone()));
    let of = Selector { variants: sides.collect(), against: None, ..here };
    let place_in_words = wording::place_in_words(passive.study, passive.verdict, passive.judgement);
    let picture = AnswerPicture::new(passive.study, &of, passive.verdict.better, &place_in_words);
    Some(TopicAnswer { command: Some(command), ..TopicAnswer::new(words, picture) })
}

/// Sorts remedies by gain, but puts those with nearly the largest gain first, in order of effort.
fn by_gain_and_effort(by_effort: Vec<RemedyGain>) -> Vec<RemedyGain> {
    let most = by_effort.iter().map(|remedy| remedy.gain).fold(0.0, f64::max);
    let (mut first, mut rest): (Vec<_>, Vec<_>) =
        by_effort.into_iter().partition(|remedy| remedy.gain * MAX_SIMILAR_GAIN_RATIO >= most);
    rest.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    first.append(&mut rest);
    first
}

/// Joins alternatives, for example `a, b, or c`.
fn alternatives(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [one, other] => format!("{one}, or {other}"),
        [first @ .., last] => format!("{}, or {last}", first.join(", ")),
    }
}

/// Writes in how many comparisons gangs were better than pinned threads, and the most that bystanders lost.
fn gangs_beyond_pinning(studies: &[Study<'_>]) -> Option<String> {
    let ganging = comparisons_for(studies, Question::Ganging);
    let with_tone = |tone| ganging.iter().filter(|asked| wording::tone(asked.judgement) == tone).count();
    let (compared, open) = (ganging.len() - with_tone(Tone::Unanswered), with_tone(Tone::Undecided));
    if compared == open {
        return None;
    }
    let better: Vec<&RemedyComparison<'_>> = ganging.iter().filter(|asked| asked.is_better()).collect();
    let paid: Vec<f64> = better
        .iter()
        .filter_map(|asked| asked.judgement.bystanders.map(|paid| paid.lost().unwrap_or(0.0)))
        .collect();
    let most = paid.iter().copied().fold(0.0, f64::max);
    let paid = match (paid.is_empty(), most > 0.0) {
        (true, _) => String::new(),
        (false, true) => format!("; other programs lost up to {most:.2} processors by that"),
        (false, false) => "; other programs lost nothing by that".to_owned(),
    };
    let open = if open > 0 { format!(" ({open} undecided)") } else { String::new() };
    let all = format!("{}{open}", counted(compared, "comparison"));
    Some(format!("Gangs did more than pinned threads in {} of {all}{paid}.", better.len()))
}

fn greatest_gains(studies: &[Study<'_>]) -> Option<TopicAnswer> {
    let best = |wanted: Question| {
        let better = comparisons_for(studies, wanted).into_iter().filter(RemedyComparison::is_better);
        better.max_by(|a, b| a.strength().total_cmp(&b.strength()))
    };
    let named = |asked: &Option<RemedyComparison<'_>>, remedy: &str| {
        Some(format!("{remedy}: {}.", asked.as_ref()?.gain()?))
    };
    let (unstacking, ganging) = (best(Question::Unstacking), best(Question::Ganging));
    let sentences = [
        named(&unstacking, "A core for each thread"),
        named(&ganging, if unstacking.is_some() { "Gangs beyond that" } else { "Gangs" }),
        gangs_beyond_pinning(studies),
    ];
    let words: Vec<String> = sentences.into_iter().flatten().collect();
    // no command for gangs where only pinning gained
    let command = (unstacking.is_some() && ganging.is_none()).then_some("unisono fit -- A ::: B");
    let picture = unstacking.or(ganging).and_then(|asked| asked.picture());
    (!words.is_empty()).then(|| TopicAnswer { command, ..TopicAnswer::new(words.join(" "), picture) })
}

fn join_sentences(first: String, second: Option<String>) -> String {
    match second {
        Some(second) => format!("{first} {second}"),
        None => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::studies;
    use std::collections::BTreeMap;
    use unisono_measure::record::{Figure, HostFacts, Line, RunLine, StudyLine};

    /// Makes six runs of each variant with each program.
    fn records(of: &[(&str, &str, f64)]) -> Vec<Line> {
        let verdict = |variant: &str, against: &str, answers| Verdict {
            variant: variant.into(),
            against: against.into(),
            figure: "work".into(),
            divisor: Some("processors".into()),
            by: Some("program".into()),
            sides: Some([variant, against].map(str::to_owned)),
            answers,
            ..Verdict::default()
        };
        let passive = ["omp", "stencil"].map(|program| Verdict {
            by: None,
            only: BTreeMap::from([("program".to_owned(), program.into())]),
            ..verdict("passive", "linux", Some(Question::PassiveWaiting))
        });
        let mut verdicts = vec![
            verdict("gang", "spread", Some(Question::Ganging)),
            verdict("gang", "linux", None),
            verdict("spread", "linux", Some(Question::Unstacking)),
        ];
        verdicts.extend(passive);
        let head = StudyLine { study: "s".into(), topic: "gang".into(), verdicts, ..StudyLine::default() };
        let mut lines = vec![Line::Study(Box::new(head))];
        for (repetition, (variant, program, work)) in (0..6).flat_map(|r| of.iter().map(move |of| (r, of))) {
            lines.push(Line::Run(Box::new(RunLine {
                study: "s".into(),
                topic: "gang".into(),
                variant: (*variant).into(),
                repetition,
                parameters: BTreeMap::from([("program".to_owned(), (*program).into())]),
                figures: vec![Figure::new("work", *work, "1/s"), Figure::new("processors", 2.0, "1")],
                host: HostFacts { cpus: 2, foreign_load_during: Some(0.0), ..HostFacts::default() },
                ..RunLine::default()
            })));
        }
        lines
    }

    fn answer_words(records_of: &[(&str, &str, f64)]) -> Option<TopicAnswer> {
        topic_answer(&studies(&records(records_of)))
    }

    #[test]
    fn the_least_effort_comes_first_among_remedies_that_gain_alike() {
        let found = answer_words(&[
            ("linux", "omp", 1.0),
            ("passive", "omp", 1000.0),
            ("linux", "stencil", 1.0),
            ("passive", "stencil", 40.0),
            ("spread", "stencil", 16.0),
            ("gang", "stencil", 42.0),
        ])
        .expect("it was compared");
        assert_eq!(
            found.words,
            "Two OpenMP programs at once: set OMP_WAIT_POLICY=passive (40.0 times the work of plain Linux), run them as \
             gangs (42.0), or pin the threads (16.0). Gangs did more than pinned threads in 1 of 1 comparison; other \
             programs lost nothing by that."
        );
        assert_eq!(found.command, Some("OMP_WAIT_POLICY=passive PROGRAM    unisono gang run -- A ::: B"));
        let picture = found.picture.expect("the same comparison");
        let bars: Vec<(&str, &str)> =
            picture.bars.iter().map(|bar| (bar.name.as_str(), bar.value.as_str())).collect();
        let names: Vec<&str> = bars.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["gang", "passive", "spread", "linux"], "{}", picture.title);
    }

    #[test]
    fn gangs_are_named_only_where_they_are_decidedly_better_than_the_simpler_remedies() {
        let program = |gang: [f64; 6]| {
            let mut lines = records(&[
                ("linux", "omp", 1.0),
                ("passive", "omp", 40.0),
                ("spread", "omp", 2.0),
                ("gang", "omp", 3.0),
            ]);
            let runs = lines.iter_mut().filter_map(|line| match line {
                Line::Run(run) if run.variant == "gang" => Some(run),
                _ => None,
            });
            for (run, work) in runs.zip(gang) {
                run.figures[0].value = work;
            }
            lines
        };
        let named = |lines: &[Line]| {
            let found = topic_answer(&studies(lines)).expect("it was compared");
            (found.words.contains("as gangs"), found.command.is_some_and(|c| c.contains("gang run")))
        };
        let decided = program([3.0; 6]);
        assert_eq!(named(&decided), (true, true), "better than plain Linux and than pinned threads");
        let open = program([1.5, 8.0, 1.6, 9.0, 1.7, 7.0]);
        assert_eq!(named(&open), (false, false), "better than plain Linux, open against pinned threads");
        let mut behind = program([3.0; 6]);
        let Line::Study(head) = &mut behind[0] else { panic!("the head comes first") };
        let against_passive = Verdict { against: "passive".into(), ..head.verdicts[1].clone() };
        head.verdicts.push(against_passive);
        assert_eq!(named(&behind), (false, false), "13 times less than passive waiting");
    }

    #[test]
    fn a_remedy_that_does_much_more_comes_first() {
        let found = answer_words(&[("linux", "omp", 1.0), ("passive", "omp", 10.0), ("gang", "omp", 70.0)]);
        let found = found.expect("it was compared");
        assert!(
            found.words.contains("run them as gangs (70.0 times the work of plain Linux), or set"),
            "{}",
            found.words
        );
        assert!(found.command.is_some_and(|command| command.starts_with("unisono gang run")));
    }

    /// Several starts in each round make enough pairs for a verdict, but a factor needs more rounds.
    #[test]
    fn two_rounds_of_several_starts_have_no_factor() {
        let of = |variants: &[(&str, &str, f64)]| {
            let mut lines = records(variants);
            for line in &mut lines {
                if let Line::Run(run) = line {
                    run.repetition /= 3;
                }
            }
            topic_answer(&studies(&lines)).expect("it was compared").words
        };
        let words = of(&[("linux", "omp", 1.0), ("passive", "omp", 251.0)]);
        assert_eq!(words, "Two OpenMP programs at once: set OMP_WAIT_POLICY=passive; no factor yet.");
        let words = of(&[("linux", "omp", 1.0), ("spread", "omp", 10.0)]);
        assert!(words.starts_with("A core for each thread: seen better than linux"), "{words}");
        assert!(words.contains("; no factor yet") && !words.contains("10.0"), "{words}");
    }

    #[test]
    fn without_passive_waiting_the_greatest_gains_are_named() {
        let found = answer_words(&[("linux", "omp", 1.0), ("spread", "omp", 10.0), ("gang", "omp", 10.0)]);
        let found = found.expect("it was compared");
        assert_eq!(found.command, Some("unisono fit -- A ::: B"), "gangs gained nothing beyond pinning");
        let words = found.words;
        assert!(words.starts_with("A core for each thread: up to 10.0 times the work"), "{words}");
        assert!(words.ends_with("in 0 of 1 comparison."), "nothing was gained, so nobody paid: {words}");
    }
}
