//! The report's first screen: what waiting costs here, whether gang scheduling is worth it, and for whom.
//!
//! Three remedies are told apart, because they are often sold as one: *unstacking* (a core for each thread,
//! no scheduler needed), *ganging* (what running the threads together adds to that), *leaving alone*.
//! Every sentence rests on judgements; where there are none the page says so instead of guessing.

use crate::escape::{Escaped, slug};
use crate::number;
use crate::one_sided;
use crate::queues;
use crate::said::{self, Tone, ToneRun};
use crate::study::{Study, question};
use crate::trees;
use crate::whom;
use std::fmt::Write as _;
use unisono_linux::counted::counted;
use unisono_measure::modes::TwoModes;
use unisono_measure::quantile;
use unisono_measure::record::{Question, Verdict};

/// A stretch of comparisons with the study it comes from.
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

/// The whole summary as HTML.
pub(crate) fn html(studies: &[Study<'_>]) -> String {
    let unstacking = cells(studies, Question::Unstacking);
    let ganging = cells(studies, Question::Ganging);
    let mut html = String::from("<section class=\"summary\" aria-label=\"Summary\">\n");
    let windows = one_sided::html(studies);
    let windows = windows + &trees::html(studies) + &queues::html(studies);
    let elsewhere = |study: &Study<'_>| {
        one_sided::is_about_windows(study) || trees::is_about_trees(study) || queues::is_about_queues(study)
    };
    if !windows.is_empty() && studies.iter().all(elsewhere) {
        return html + &windows + "</section>\n";
    }
    html.push_str("<h2>What does waiting cost on this machine?</h2>\n");
    html.push_str(&waiting(studies));
    html.push_str("<h2>Is gang scheduling worth it here?</h2>\n");
    let (headline, reason) = headline(&ganging, &unstacking);
    let _ = writeln!(html, "<p class=\"headline\">{}</p>", Escaped(&headline));
    if !reason.is_empty() {
        let _ = writeln!(html, "<p>{}</p>", Escaped(&reason));
    }
    if unstacking.is_empty() && ganging.is_empty() {
        html.push_str(&windows);
        html.push_str("</section>\n");
        return html;
    }
    html.push_str("<h3>For whom</h3>\n");
    html.push_str(&whom::html(studies));
    html.push_str("<details><summary>In words, the strongest first</summary>\n<dl class=\"whom\">\n");
    let best = |cells: &[Cell<'_>], tones: &[Tone]| -> String { list(cells, tones) };
    remedy(
        &mut html,
        "Unstacking",
        "a core of its own for each thread, by pinning; no privilege, no scheduler",
        &unstacking,
        &best(&unstacking, &[Tone::Better]),
        "Spread Linux was nowhere better than plain Linux.",
    );
    remedy(
        &mut html,
        "Ganging",
        "beyond that, the threads of a program scheduled together",
        &ganging,
        &best(&ganging, &[Tone::Better]),
        "Gangs were nowhere better than spread Linux.",
    );
    remedy(
        &mut html,
        "Leaving alone",
        "where gangs change nothing, or cost",
        &ganging,
        &best(&ganging, &[Tone::Worse, Tone::Same]),
        "No comparison showed gangs to be worse than spread Linux, or equal to it.",
    );
    let open = list(&ganging, &[Tone::Undecided, Tone::Unanswered]);
    if !open.is_empty() {
        let _ = writeln!(html, "<dt>Open <span>these runs cannot tell</span></dt><dd><ul>{open}</ul></dd>");
    }
    html.push_str("</dl></details>\n");
    html.push_str(&windows);
    html.push_str("</section>\n");
    html
}

fn remedy(html: &mut String, name: &str, what: &str, cells: &[Cell<'_>], found: &str, nowhere: &str) {
    let _ = write!(html, "<dt>{name} <span>{what}</span></dt><dd>");
    let count = |wanted: &dyn Fn(Tone) -> bool| -> usize {
        let cells = cells.iter().filter(|cell| wanted(cell.stretch.tone));
        cells.map(|cell| cell.stretch.judgements.len()).sum()
    };
    let open = count(&|tone| matches!(tone, Tone::Unanswered | Tone::Undecided));
    let decided = count(&|tone| !matches!(tone, Tone::Unanswered | Tone::Undecided));
    if !found.is_empty() {
        let _ = write!(html, "<ul>{found}</ul>");
    } else if decided > 0 && open > decided {
        let _ = write!(
            html,
            "<p>{nowhere} But only {decided} of {} could be decided.</p>",
            counted(open + decided, "comparison")
        );
    } else if decided > 0 {
        let _ = write!(html, "<p>{nowhere}</p>");
    } else {
        html.push_str("<p>Not answered by these runs.</p>");
    }
    html.push_str("</dd>\n");
}

/// Cells of the given tones as list items, the strongest first.
fn list(cells: &[Cell<'_>], tones: &[Tone]) -> String {
    let mut chosen: Vec<&Cell<'_>> = cells.iter().filter(|cell| tones.contains(&cell.stretch.tone)).collect();
    chosen.sort_by(|a, b| strength(b).total_cmp(&strength(a)));
    let mut html = String::new();
    for cell in chosen.iter().take(6) {
        let _ = write!(
            html,
            "<li><span class=\"badge {}\">{} {}</span> <a href=\"#{}\">{}</a>: {}</li>",
            cell.stretch.tone.class(),
            cell.stretch.tone.sign(),
            cell.stretch.tone.word(),
            slug(&cell.study.head.study),
            Escaped(&cell.study.head.title),
            Escaped(&in_words(cell))
        );
    }
    if chosen.len() > 6 {
        let _ = write!(html, "<li>and {} more below</li>", chosen.len() - 6);
    }
    html
}

fn strength(cell: &Cell<'_>) -> f64 {
    cell.stretch.extreme().map_or(0.0, |c| {
        let strength = c.ratio.value.abs().ln().abs();
        if strength.is_finite() { strength } else { 0.0 }
    })
}

/// `2.5× the barriers per second at interval 10 us (95 % ...)`.
fn in_words(cell: &Cell<'_>) -> String {
    let (study, verdict, stretch) = (cell.study, cell.verdict, &cell.stretch);
    let range = stretch.range(study, verdict);
    let fixed = said::fixed(study, verdict);
    let place: Vec<String> = std::iter::once(range).chain(fixed).filter(|part| !part.is_empty()).collect();
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

/// The answer in a sentence, and what it rests on.
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

/// What plain Linux does with spinning programs, if it was seen to have two modes: the widest apart.
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

/// The studies that answer what waiting costs, or else the first that timed a barrier.
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

/// The cost of waiting, as tiles and a sentence.
fn waiting(studies: &[Study<'_>]) -> String {
    let mut html = String::new();
    for study in about_waiting(studies) {
        let Some(chart) = study.head.charts.first() else { continue };
        let Some(figure) = chart.y.first() else { continue };
        let unit = study.unit(figure);
        let rows = study.rows(chart, None);
        let mut costs: Vec<(String, f64, f64, f64)> = rows
            .iter()
            .filter_map(|row| {
                let d = quantile::distribution(&row.values(figure))?;
                Some((row.name.clone(), d.median, d.min, d.max))
            })
            .collect();
        costs.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (Some(least), Some(most)) = (costs.first().cloned(), costs.last().cloned()) else { continue };
        if costs.len() > 1 && least.1 > 0.0 {
            let _ = writeln!(
                html,
                "<p class=\"headline\">{}</p>",
                Escaped(&format!(
                    "{} from {} ({}) to {} ({}): a factor of {}.",
                    said::capital(&study.label(figure)),
                    number::quantity(least.1, &unit),
                    least.0,
                    number::quantity(most.1, &unit),
                    most.0,
                    number::plain((most.1 / least.1).round())
                ))
            );
        }
        html.push_str("<ul class=\"tiles\">");
        for (name, median, min, max) in costs.iter().take(8) {
            let _ = write!(
                html,
                "<li><b>{}</b> {} <small>{} to {}</small></li>",
                Escaped(&number::quantity(*median, &unit)),
                Escaped(name),
                Escaped(&number::quantity(*min, &unit)),
                Escaped(&number::quantity(*max, &unit))
            );
        }
        html.push_str("</ul>\n");
        let paper = study.head.paper.as_ref().map(|paper| format!(" The paper: {}", paper.statement));
        let _ = writeln!(
            html,
            "<p class=\"key\">{}: median, and least to greatest run; <a href=\"#{}\">{}</a>.{}</p>",
            Escaped(&said::capital(&chart.title)),
            slug(&study.head.study),
            Escaped(&study.head.title),
            Escaped(&paper.unwrap_or_default())
        );
    }
    if html.is_empty() {
        html.push_str("<p class=\"headline\">Not answered: no run in these records measured it.</p>\n");
    }
    html
}
