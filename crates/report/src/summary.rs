//! The report's first screen: what waiting costs here, whether gang scheduling is worth it, and for whom.
//!
//! It tells three remedies apart, because they are often presented as one: *unstacking* (a core for each
//! thread, no scheduler needed), *ganging* (what running the threads together adds to that), and *leaving
//! alone*. Every sentence is based on judgements; where there are none, the page says so.

use crate::middleware;
use crate::number;
use crate::one_sided;
use crate::queues;
use crate::said::{self, Tone, ToneRun};
use crate::study::{Study, question};
use crate::trees;
use crate::whom;
use askama::Template;
use unisono_linux::counted::counted;
use unisono_measure::modes::TwoModes;
use unisono_measure::quantile;
use unisono_measure::record::{Distribution, Question, Verdict};

/// A stretch of comparisons with the study it comes from.
#[derive(Clone)]
struct Cell<'a> {
    study: &'a Study<'a>,
    verdict: &'a Verdict,
    stretch: ToneRun<'a>,
}

fn cells<'a>(studies: &'a [Study<'a>], wanted: Question) -> Vec<Cell<'a>> {
    let mut cells = Vec::new();
    for study in studies {
        for (verdict, judged) in study.verdicts() {
            if question(verdict) == Some(wanted) {
                let stretches = said::stretches(judged);
                cells.extend(stretches.into_iter().map(|stretch| Cell { study, verdict, stretch }));
            }
        }
    }
    cells
}

#[derive(Template)]
#[template(path = "summary.html")]
struct SummarySection<'a> {
    /// `None`: all records are about other topics.
    gangs: Option<GangsAnswer<'a>>,
    /// Of other topics, as HTML.
    answers: String,
}

struct GangsAnswer<'a> {
    waiting: Vec<WaitingCost<'a>>,
    headline: String,
    reason: String,
    was_compared: bool,
    whom: String,
    remedies: [Remedy<'a>; 3],
    /// What these runs cannot tell.
    open: Vec<Cell<'a>>,
}

struct Remedy<'a> {
    name: &'static str,
    what: &'static str,
    /// Where it helps, the strongest first.
    found: Vec<Cell<'a>>,
    /// The text if it helps nowhere.
    nowhere: String,
}

/// Whether a study's topic has an answer of its own.
pub(crate) fn has_its_own_answer(study: &Study<'_>) -> bool {
    [one_sided::TOPIC, trees::QUESTION.topic, queues::QUESTION.topic, middleware::TOPIC]
        .contains(&study.head.topic.as_str())
}

pub(crate) fn html(studies: &[Study<'_>]) -> String {
    let answers = one_sided::html(studies)
        + &trees::QUESTION.html(studies)
        + &queues::QUESTION.html(studies)
        + &middleware::html(studies);
    let is_about_gangs = answers.is_empty() || !studies.iter().all(has_its_own_answer);
    SummarySection { gangs: is_about_gangs.then(|| GangsAnswer::new(studies)), answers }.to_string()
}

impl<'a> GangsAnswer<'a> {
    fn new(studies: &'a [Study<'a>]) -> Self {
        let unstacking = cells(studies, Question::Unstacking);
        let ganging = cells(studies, Question::Ganging);
        let (headline, reason) = headline(&ganging, &unstacking);
        let remedies = [
            Remedy::new(
                "Unstacking",
                "a core of its own for each thread, by pinning; no privilege, no scheduler",
                &unstacking,
                &[Tone::Better],
                "Spread Linux was nowhere better than plain Linux.",
            ),
            Remedy::new(
                "Ganging",
                "beyond that, the threads of a program scheduled together",
                &ganging,
                &[Tone::Better],
                "Gangs were nowhere better than spread Linux.",
            ),
            Remedy::new(
                "Leaving alone",
                "where gangs change nothing, or cost",
                &ganging,
                &[Tone::Worse, Tone::Same],
                "No comparison showed gangs to be worse than spread Linux, or equal to it.",
            ),
        ];
        Self {
            waiting: waiting(studies),
            headline,
            reason,
            was_compared: !(unstacking.is_empty() && ganging.is_empty()),
            whom: whom::html(studies),
            remedies,
            open: strongest(&ganging, &OPEN),
        }
    }
}

/// What the cheapest and the dearest way to wait cost.
pub(crate) fn waiting_in_words(studies: &[Study<'_>]) -> Option<String> {
    waiting(studies).into_iter().find_map(|cost| cost.headline)
}

/// The greatest gain by pinning alone, by passive waiting, and by gangs.
pub(crate) fn gangs_in_words(studies: &[Study<'_>]) -> Option<String> {
    let best = |wanted: Question, remedy: &str| {
        let cells = cells(studies, wanted);
        let better = |cell: &&Cell<'_>| cell.stretch.tone == Tone::Better;
        let won: usize = cells.iter().filter(better).map(|cell| cell.stretch.judgements.len()).sum();
        let all: usize = cells.iter().map(|cell| cell.stretch.judgements.len()).sum();
        let best = strongest(&cells, &[Tone::Better]).first()?.gain()?;
        Some(format!("{remedy}: {best} (better in {won} of {}).", counted(all, "comparison")))
    };
    let unstacking = best(Question::Unstacking, "A core for each thread");
    let ganging = best(Question::Ganging, "Gangs beyond that");
    let passive = best(Question::PassiveWaiting, "OMP_WAIT_POLICY=passive, which fit sets");
    let nowhere = || "Gangs were nowhere better than threads with a core each.".to_owned();
    let gangs = ganging.or_else(|| (!cells(studies, Question::Ganging).is_empty()).then(nowhere));
    let said: Vec<String> = [unstacking, passive, gangs].into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join(" "))
}

const OPEN: [Tone; 2] = [Tone::Undecided, Tone::Unanswered];

impl<'a> Remedy<'a> {
    fn new(
        name: &'static str,
        what: &'static str,
        cells: &[Cell<'a>],
        tones: &[Tone],
        nowhere: &str,
    ) -> Self {
        let count = |is_open: bool| -> usize {
            let cells = cells.iter().filter(|cell| OPEN.contains(&cell.stretch.tone) == is_open);
            cells.map(|cell| cell.stretch.judgements.len()).sum()
        };
        let nowhere = match (count(true), count(false)) {
            (_, 0) => "Not answered by these runs.".to_owned(),
            (open, decided) if open > decided => {
                let all = counted(open + decided, "comparison");
                format!("{nowhere} But only {decided} of {all} could be decided.")
            }
            _ => nowhere.to_owned(),
        };
        Self { name, what, found: strongest(cells, tones), nowhere }
    }
}

/// Cells of the given tones, the strongest first.
fn strongest<'a>(cells: &[Cell<'a>], tones: &[Tone]) -> Vec<Cell<'a>> {
    let mut chosen: Vec<Cell<'a>> =
        cells.iter().filter(|cell| tones.contains(&cell.stretch.tone)).cloned().collect();
    chosen.sort_by(|a, b| strength(b).total_cmp(&strength(a)));
    chosen
}

fn strength(cell: &Cell<'_>) -> f64 {
    cell.stretch.extreme().map_or(0.0, |c| {
        let strength = c.ratio.value.abs().ln().abs();
        if strength.is_finite() { strength } else { 0.0 }
    })
}

impl Cell<'_> {
    /// `up to 2.5 times the barriers/s at interval 10 us`.
    fn gain(&self) -> Option<String> {
        let (at, most) = self.stretch.farthest()?;
        let factor = said::factor(self.study, self.verdict, most.ratio.value);
        Some(format!("up to {factor}{}", said::place(self.study, self.verdict, at)))
    }

    /// `2.5× the barriers per second at interval 10 us (95 % ...)`.
    fn in_words(&self) -> String {
        let Self { study, verdict, stretch } = self;
        let range = stretch.range(study, verdict);
        let fixed = said::fixed(study, verdict);
        let place: Vec<String> =
            std::iter::once(range).chain(fixed).filter(|part| !part.is_empty()).collect();
        let place = if place.is_empty() { String::new() } else { format!(" {}", place.join(", ")) };
        let Some(most) = stretch.extreme() else {
            return format!("{}: {}", place.trim_start(), stretch.reason().unwrap_or("no runs"));
        };
        let figure = study.label(&verdict.figure);
        let several = stretch.judgements.len() > 1;
        match (several, stretch.tone, most.ratio.value >= 1.0) {
            (true, Tone::Better | Tone::Worse, up) => {
                let most_words = if up { "up to" } else { "down to" };
                format!(
                    "{most_words} {} the {figure}{place} ({})",
                    said::times(most.ratio.value),
                    said::sureness(most)
                )
            }
            (true, ..) => format!("{} the {figure}{place} ({})", stretch.ratios(), said::pairs(most)),
            (false, ..) => {
                format!("{} the {figure}{place} ({})", said::times(most.ratio.value), said::sureness(most))
            }
        }
    }
}

/// The answer in a sentence, and its reasons.
fn headline(ganging: &[Cell<'_>], unstacking: &[Cell<'_>]) -> (String, String) {
    let count = |tone: Tone| -> usize {
        ganging
            .iter()
            .filter(|cell| cell.stretch.tone == tone)
            .map(|cell| cell.stretch.judgements.len())
            .sum()
    };
    let (wins, losses, same) = (count(Tone::Better), count(Tone::Worse), count(Tone::Same));
    let open = count(Tone::Undecided) + count(Tone::Unanswered);
    let total = wins + losses + same + open;
    let compared = counted(total, "comparison");
    let tally = format!(
        "Of {compared} of gangs with spread Linux (the same programs, each thread pinned to a core of its own): {wins} better, {losses} worse, {same} without a difference, {open} not decided."
    );
    let headline = if total == 0 {
        let why =
            "No study in these records compared gangs with spread Linux; unisono study gang does.".to_owned();
        return ("Not answered: it was not measured.".to_owned(), join(&why, &stacking(unstacking)));
    } else if wins + losses + same == 0 {
        if ganging.iter().all(|cell| cell.stretch.tone == Tone::Unanswered) {
            let reason = ganging.iter().find_map(|cell| cell.stretch.reason());
            let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("Not answered: gangs could not be measured here{reason}.")
        } else {
            "Not decided yet: too few runs, or too much scatter.".to_owned()
        }
    } else if wins == 0 && open > losses + same {
        format!(
            "Not decided for most: {open} of {total} comparisons need more runs; in the others gangs were not better than spread Linux."
        )
    } else if wins == 0 && losses == 0 {
        "No: gangs and spread Linux do the same here.".to_owned()
    } else if wins == 0 {
        "No: gangs were never better than spread Linux, and at times worse.".to_owned()
    } else {
        let best = ganging
            .iter()
            .filter(|cell| cell.stretch.tone == Tone::Better)
            .max_by(|a, b| strength(a).total_cmp(&strength(b)));
        let best = best.and_then(|cell| {
            let (at, most) = cell.stretch.farthest()?;
            let (_, theirs) = said::sides(cell.study, cell.verdict);
            let place = said::place(cell.study, cell.verdict, at);
            let figure = cell.study.label(&cell.verdict.figure);
            Some(format!("{} the {figure} of {theirs}{place}", said::times(most.ratio.value)))
        });
        let best = best.unwrap_or_else(|| "gains without a number".to_owned());
        if losses + same + open == 0 {
            format!("Yes, in every comparison made: at best {best}.")
        } else {
            format!("For some programs: at best {best}. It paid in {wins} of {total} comparisons.")
        }
    };
    (headline, join(&tally, &stacking(unstacking)))
}

fn join(a: &str, b: &str) -> String {
    if b.is_empty() { a.to_owned() } else { format!("{a} {b}") }
}

/// The two modes of plain Linux with spinning programs, if there are two: the widest apart.
fn stacking(unstacking: &[Cell<'_>]) -> String {
    let seen = unstacking.iter().flat_map(|cell| {
        let judgements = cell.stretch.judgements.iter();
        judgements.filter_map(move |j| Some((cell, j.against_modes?, j.variant_modes)))
    });
    let apart = |modes: &TwoModes| modes.high.median / modes.low.median.max(f64::MIN_POSITIVE);
    let Some((cell, modes, ours_modes)) = seen.max_by(|a, b| apart(&a.1).total_cmp(&apart(&b.1))) else {
        return String::new();
    };
    let unit = cell.study.unit(&cell.verdict.figure);
    let (ours, theirs) = said::sides(cell.study, cell.verdict);
    let ours = if ours_modes.is_none() { format!("; {ours} has one") } else { String::new() };
    let text = format!(
        "{theirs} is no yardstick: it has two modes, from one start to the next ({} in {} of {} runs, {} in the others){ours}.",
        number::quantity(modes.low.median, &unit),
        modes.low.n,
        modes.low.n + modes.high.n,
        number::quantity(modes.high.median, &unit),
    );
    said::capital(&text)
}

/// The studies that answer what waiting costs, otherwise the first that timed a barrier.
fn about_waiting<'a>(studies: &'a [Study<'a>]) -> Vec<&'a Study<'a>> {
    let named: Vec<_> = studies.iter().filter(|study| study.is_about_waiting()).collect();
    if !named.is_empty() {
        return named;
    }
    let times = |study: &&Study<'_>| {
        let figure = study.head.charts.first().and_then(|chart| chart.y.first());
        study.head.topic == "barrier" && figure.is_some_and(|f| matches!(study.unit(f).as_str(), "ns" | "us"))
    };
    studies.iter().find(times).into_iter().collect()
}

struct WaitingCost<'a> {
    study: &'a Study<'a>,
    title: &'a str,
    headline: Option<String>,
    tiles: Vec<CostTile>,
}

struct CostTile {
    name: String,
    median: String,
    least: String,
    greatest: String,
}

fn waiting<'a>(studies: &'a [Study<'a>]) -> Vec<WaitingCost<'a>> {
    about_waiting(studies).into_iter().filter_map(WaitingCost::new).collect()
}

impl<'a> WaitingCost<'a> {
    fn new(study: &'a Study<'a>) -> Option<Self> {
        let chart = study.head.charts.first()?;
        let figure = chart.y.first()?;
        let unit = study.unit(figure);
        let says = |value: f64| number::quantity(value, &unit);
        let rows = study.rows(chart, None);
        let costs =
            rows.iter().filter_map(|row| Some((&row.name, quantile::distribution(&row.values(figure))?)));
        let mut costs: Vec<_> = costs.collect();
        costs.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
        let ((best, least), (worst, most)) = (costs.first()?, costs.last()?);
        let headline = (costs.len() > 1 && least.median > 0.0).then(|| {
            format!(
                "{} from {} ({best}) to {} ({worst}): a factor of {}.",
                said::capital(&study.label(figure)),
                says(least.median),
                says(most.median),
                number::plain((most.median / least.median).round())
            )
        });
        let tile = |(name, cost): &(&String, Distribution)| CostTile {
            name: (*name).clone(),
            median: says(cost.median),
            least: says(cost.min),
            greatest: says(cost.max),
        };
        let tiles = costs.iter().take(8).map(tile).collect();
        Some(Self { study, title: &chart.title, headline, tiles })
    }
}
