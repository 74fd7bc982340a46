//! The long answers of topics. This file makes two of them: what waiting at a barrier costs, and whether gang
//! scheduling is worth it, and in which situations.
//!
//! The answer for gang scheduling distinguishes three remedies, because they are often presented as one:
//! *pinning* (a core for each thread, no scheduler needed), *gangs* (the additional gain of running the
//! threads together), and *leaving alone*. Every sentence is based on judgements; without judgements the page
//! says so.

use crate::conditions;
use crate::events;
use crate::number;
use crate::one_sided;
use crate::queues;
use crate::screen;
use crate::situations;
use crate::study::{Study, question};
use crate::trees;
use crate::waiting::{WaitingCost, waiting_costs};
use crate::wording::{self, SweepSegment, Tone};
use askama::Template;
use unisono_measure::modes::TwoModes;
use unisono_measure::record::{Question, Verdict};
use unisono_text::counted;

/// A segment of comparisons with the study that it comes from.
#[derive(Clone)]
struct GangCell<'a> {
    study: &'a Study<'a>,
    verdict: &'a Verdict,
    segment: SweepSegment<'a>,
}

fn gang_cells<'a>(studies: &'a [Study<'a>], wanted: Question) -> Vec<GangCell<'a>> {
    let mut cells = Vec::new();
    for study in studies {
        for (verdict, judged) in study.verdicts() {
            if question(verdict) == Some(wanted) {
                let segments = wording::segments(judged);
                cells.extend(segments.into_iter().map(|segment| GangCell { study, verdict, segment }));
            }
        }
    }
    cells
}

#[derive(Template)]
#[template(path = "summary.html")]
struct SummarySection<'a> {
    answer: TopicSummary<'a>,
}

enum TopicSummary<'a> {
    Waiting(Vec<WaitingCost<'a>>),
    Gangs(Box<GangsAnswer<'a>>),
}

struct GangsAnswer<'a> {
    headline: String,
    reason: String,
    was_compared: bool,
    whom: String,
    remedies: [Remedy<'a>; 3],
    /// Comparisons that these runs cannot decide.
    open: Vec<GangCell<'a>>,
    /// The paper's conditions, as HTML.
    conditions: String,
}

struct Remedy<'a> {
    name: &'static str,
    what: &'static str,
    /// The segments in which the remedy helps, the strongest first.
    found: Vec<GangCell<'a>>,
    /// The text if the remedy helps nowhere.
    nowhere: String,
}

/// Returns the long answer of a topic, as HTML. Empty if the topic has only its sentence on the first screen.
pub(crate) fn topic_html(studies: &[Study<'_>], topic: &str) -> String {
    if let Some(long) = screen::topic(topic).and_then(|known| known.long) {
        return long(studies);
    }
    let answer = match topic {
        "barrier" => TopicSummary::Waiting(waiting_costs(studies)),
        "gang" => TopicSummary::Gangs(Box::new(GangsAnswer::new(studies))),
        one_sided::TOPIC => return one_sided::html(studies),
        _ if topic == trees::QUESTION.topic => return trees::QUESTION.html(studies),
        _ if topic == events::QUESTION.topic => return events::QUESTION.html(studies),
        _ if topic == queues::QUESTION.topic => return queues::QUESTION.html(studies),
        _ => return String::new(),
    };
    SummarySection { answer }.to_string()
}

impl<'a> GangsAnswer<'a> {
    fn new(studies: &'a [Study<'a>]) -> Self {
        let unstacking = gang_cells(studies, Question::Unstacking);
        let ganging = gang_cells(studies, Question::Ganging);
        let (headline, reason) = headline(&ganging, &unstacking);
        let remedies = [
            Remedy::new(
                "Pinning",
                "a core of its own for each thread, by pinning; no privilege, no scheduler",
                &unstacking,
                &[Tone::Better],
                "Pinned threads were nowhere better than plain Linux.",
            ),
            Remedy::new(
                "Gangs",
                "beyond that, the threads of a program scheduled together",
                &ganging,
                &[Tone::Better],
                "Gangs were nowhere better than pinned threads.",
            ),
            Remedy::new(
                "Leaving alone",
                "where gangs change nothing, or cost",
                &ganging,
                &[Tone::Worse, Tone::Same],
                "No comparison showed gangs to be worse than pinned threads, or equal to them.",
            ),
        ];
        Self {
            headline,
            reason,
            was_compared: !(unstacking.is_empty() && ganging.is_empty()),
            whom: situations::html(studies),
            remedies,
            open: strongest_cells(&ganging, &OPEN_TONES),
            conditions: conditions::html(studies),
        }
    }
}

const OPEN_TONES: [Tone; 2] = [Tone::Undecided, Tone::Unanswered];

impl<'a> Remedy<'a> {
    fn new(
        name: &'static str,
        what: &'static str,
        cells: &[GangCell<'a>],
        tones: &[Tone],
        nowhere: &str,
    ) -> Self {
        let count = |is_open: bool| -> usize {
            let cells = cells.iter().filter(|cell| OPEN_TONES.contains(&cell.segment.tone) == is_open);
            cells.map(|cell| cell.segment.judgements.len()).sum()
        };
        let nowhere = match (count(true), count(false)) {
            (_, 0) => "Not answered by these runs.".to_owned(),
            (open, decided) if open > decided => {
                let all = counted(open + decided, "comparison");
                format!("{nowhere} But only {decided} of {all} could be decided.")
            }
            _ => nowhere.to_owned(),
        };
        Self { name, what, found: strongest_cells(cells, tones), nowhere }
    }
}

/// Returns the cells of the given tones, the strongest first.
fn strongest_cells<'a>(cells: &[GangCell<'a>], tones: &[Tone]) -> Vec<GangCell<'a>> {
    let mut chosen: Vec<GangCell<'a>> =
        cells.iter().filter(|cell| tones.contains(&cell.segment.tone)).cloned().collect();
    chosen.sort_by(|a, b| strength(b).total_cmp(&strength(a)));
    chosen
}

fn strength(cell: &GangCell<'_>) -> f64 {
    cell.segment.farthest_comparison().map_or(0.0, |c| {
        let strength = c.ratio.value.abs().ln().abs();
        if strength.is_finite() { strength } else { 0.0 }
    })
}

impl GangCell<'_> {
    /// Describes the cell, for example `up to 2.5 times the barriers/s from interval 10 us on (95 % ...)`.
    fn in_words(&self) -> String {
        let Self { study, verdict, segment } = self;
        let range = segment.parameter_range(study, verdict);
        let fixed = wording::fixed_part(study, verdict);
        let place: Vec<String> =
            std::iter::once(range).chain(fixed).filter(|part| !part.is_empty()).collect();
        let place = if place.is_empty() { String::new() } else { format!(" {}", place.join(", ")) };
        let Some(most) = segment.farthest_comparison() else {
            return format!("{}: {}", place.trim_start(), segment.reason().unwrap_or("no runs"));
        };
        let factor = wording::factor_in_words(study, verdict, most.ratio.value);
        let several = segment.judgements.len() > 1;
        match (several, segment.tone) {
            (true, Tone::Better | Tone::Worse) => {
                format!("up to {factor}{place} ({})", wording::multiple_interval(most))
            }
            (true, _) => {
                let figure = wording::figure_in_words(study, verdict);
                format!("{} the {figure}{place} ({})", segment.ratio_range(), wording::pair_count(most))
            }
            (false, Tone::Better | Tone::Worse) => {
                format!("{factor}{place} ({})", wording::multiple_interval(most))
            }
            (false, _) => {
                let ratio = unisono_measure::verdict::format_ratio(most.ratio.value);
                let figure = wording::figure_in_words(study, verdict);
                format!("{ratio} times the {figure}{place} ({})", wording::interval_in_words(most))
            }
        }
    }
}

/// Returns the answer in a sentence, and its reasons.
fn headline(ganging: &[GangCell<'_>], unstacking: &[GangCell<'_>]) -> (String, String) {
    let count = |tone: Tone| -> usize {
        ganging
            .iter()
            .filter(|cell| cell.segment.tone == tone)
            .map(|cell| cell.segment.judgements.len())
            .sum()
    };
    let (wins, losses, same) = (count(Tone::Better), count(Tone::Worse), count(Tone::Same));
    let open = count(Tone::Undecided) + count(Tone::Unanswered);
    let total = wins + losses + same + open;
    let compared = counted(total, "comparison");
    let tally = format!(
        "Of {compared} of gangs with pinned threads (the same programs, each thread pinned to a core of its own): {wins} better, {losses} worse, {same} without a difference, {open} not decided."
    );
    let headline = if total == 0 {
        let why = "No study in these records compared gangs with pinned threads; unisono study gang does."
            .to_owned();
        return (
            "Not answered: it was not measured.".to_owned(),
            join_sentences(&why, &stacking_answer(unstacking)),
        );
    } else if wins + losses + same == 0 {
        if ganging.iter().all(|cell| cell.segment.tone == Tone::Unanswered) {
            let reason = ganging.iter().find_map(|cell| cell.segment.reason());
            let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("Not answered: gangs could not be measured here{reason}.")
        } else {
            let judgements = ganging.iter().flat_map(|cell| &cell.segment.judgements);
            let first = judgements.filter_map(|judgement| judgement.time_to_decide).min();
            format!(
                "Not decided yet: too few runs, or too much scatter{}.",
                wording::more_would_decide(first)
            )
        }
    } else if wins == 0 && open > losses + same {
        format!(
            "Not decided for most: {open} of {total} comparisons need more runs; in the others gangs were not better than pinned threads."
        )
    } else if wins == 0 && losses == 0 {
        "No: gangs and pinned threads do the same here.".to_owned()
    } else if wins == 0 {
        "No: gangs were never better than pinned threads, and at times worse.".to_owned()
    } else {
        let best = ganging
            .iter()
            .filter(|cell| cell.segment.tone == Tone::Better)
            .max_by(|a, b| strength(a).total_cmp(&strength(b)));
        let best = best.and_then(|cell| {
            let (at, most) = cell.segment.farthest()?;
            let place = wording::place_in_words(cell.study, cell.verdict, at);
            let factor = wording::factor_than(cell.study, cell.verdict, most.ratio.value);
            Some(format!("{factor}{place}"))
        });
        let best = best.unwrap_or_else(|| "gains without a number".to_owned());
        if losses + same + open == 0 {
            format!("Yes, in every comparison made: at best {best}.")
        } else {
            format!("For some programs: at best {best}. It paid in {wins} of {total} comparisons.")
        }
    };
    (headline, join_sentences(&tally, &stacking_answer(unstacking)))
}

fn join_sentences(a: &str, b: &str) -> String {
    if b.is_empty() { a.to_owned() } else { format!("{a} {b}") }
}

/// Describes the two modes of plain Linux with spinning programs, if there are two; of several pairs of
/// modes, the pair that is farthest apart.
fn stacking_answer(unstacking: &[GangCell<'_>]) -> String {
    let seen = unstacking.iter().flat_map(|cell| {
        let judgements = cell.segment.judgements.iter();
        judgements.filter_map(move |j| Some((cell, j.against_modes?, j.variant_modes)))
    });
    let apart = |modes: &TwoModes| modes.high.median / modes.low.median.max(f64::MIN_POSITIVE);
    let Some((cell, modes, ours_modes)) = seen.max_by(|a, b| apart(&a.1).total_cmp(&apart(&b.1))) else {
        return String::new();
    };
    let unit = cell.study.unit(&cell.verdict.figure);
    let (ours, theirs) = wording::sides(cell.study, cell.verdict);
    let ours = if ours_modes.is_none() { format!("; {ours} has one") } else { String::new() };
    let text = format!(
        "{theirs} is no reference to compare with: it has two modes, from one start to the next ({} in {} of {} runs, {} in the others){ours}.",
        number::quantity(modes.low.median, &unit),
        modes.low.n,
        modes.low.n + modes.high.n,
        number::quantity(modes.high.median, &unit),
    );
    wording::capitalized(&text)
}
