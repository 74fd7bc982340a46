//! One section a study: the question, the verdicts, the figures, the paper, what to doubt, how it was run.

use crate::escape::{Escaped, escape, slug};
use crate::figure;
use crate::number;
use crate::said::{self, Tone};
use crate::study::{Study, outcome};
use crate::whom;
use std::fmt::Write as _;
use unisono_linux::counted::counted;
use unisono_measure::noise;
use unisono_measure::record::{Better, Outcome, PointsAre, RunLine, Verdict};
use unisono_measure::verdict::Judgement;

/// The section as HTML.
pub(crate) fn html(study: &Study<'_>) -> String {
    let head = &study.head;
    let mut html = String::new();
    let _ = write!(
        html,
        "<section class=\"study\" id=\"{}\">\n<h2>{}</h2>\n<p class=\"question\">{}</p>\n",
        slug(&head.study),
        Escaped(&head.title),
        Escaped(&head.question)
    );
    html.push_str(&crate::budgets::html(study));
    html.push_str(&verdicts(study));
    html.push_str(&figure::ratios(study));
    for (i, chart) in head.charts.iter().enumerate() {
        html.push_str(&figure::figure(study, chart, i));
    }
    if let Some(paper) = &head.paper {
        let _ = writeln!(
            html,
            "<blockquote class=\"paper-says\"><p><span class=\"smallcap\">Paper</span> {}</p><cite>{}</cite></blockquote>",
            Escaped(&paper.statement),
            Escaped(&paper.place)
        );
    }
    html.push_str(&doubts(study));
    html.push_str(&how(study));
    html.push_str("</section>\n");
    html
}

/// The badge of a tone.
pub(crate) fn badge(tone: Tone) -> String {
    format!("<span class=\"badge {}\">{} {}</span>", tone.class(), tone.sign(), tone.word())
}

fn verdicts(study: &Study<'_>) -> String {
    let mut html = String::new();
    for (verdict, judged) in study.verdicts() {
        match judged {
            [] => {}
            [one] => {
                let _ = writeln!(
                    html,
                    "<li>{} {}</li>",
                    badge(said::tone(one)),
                    Escaped(&said::sentence(study, verdict, one))
                );
            }
            many => html.push_str(&swept(study, verdict, many)),
        }
    }
    if html.is_empty() {
        return html;
    }
    let words = format!("<ul class=\"verdicts\">\n{html}</ul>\n");
    match field(study) {
        Some(table) => {
            format!("{table}<details><summary>Each comparison in words</summary>\n{words}</details>\n")
        }
        None => words,
    }
}

/// Comparisons of the same kind from which on a table says more than as many paragraphs.
pub(crate) const MANY: usize = 6;

/// Many sweeps over the same places as a table: a row a rival, a column a place.
fn field(study: &Study<'_>) -> Option<String> {
    let sweeps: Vec<(&Verdict, &[Judgement])> =
        study.verdicts().filter(|(verdict, judged)| verdict.by.is_some() && judged.len() > 1).collect();
    let (first, places) = sweeps.first()?;
    let alike = |(verdict, judged): &(&Verdict, &[Judgement])| {
        (&verdict.by, &verdict.figure, verdict.better) == (&first.by, &first.figure, first.better)
            && judged.iter().map(|j| &j.at).eq(places.iter().map(|j| &j.at))
    };
    if sweeps.len() < MANY || !sweeps.iter().all(alike) {
        return None;
    }
    let by = first.by.as_deref()?;
    let mut html =
        String::from("<div class=\"scroll\"><table class=\"advice\">\n<thead><tr><th>Compared</th>");
    for at in places.iter().filter_map(|judgement| judgement.at.as_ref()) {
        let _ = write!(html, "<th>{}</th>", Escaped(&study.parameter_in_words(by, at)));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (verdict, judged) in &sweeps {
        let (ours, theirs) = said::sides(study, verdict);
        let fixed = said::fixed(study, verdict).join(", ");
        let _ = write!(
            html,
            "<tr><th scope=\"row\">{} <small>{}</small></th>",
            Escaped(&format!("{ours} / {theirs}")),
            Escaped(&fixed)
        );
        for judgement in *judged {
            let _ = write!(html, "<td>{}</td>", whom::cell(study, Some((verdict, judgement))));
        }
        html.push_str("</tr>\n");
    }
    html.push_str(&papers(study, &places.iter().filter_map(|j| j.at.as_ref()?.as_f64()).collect::<Vec<_>>()));
    let less = if first.better == Better::Lower { "; less is better" } else { "" };
    let _ = write!(
        html,
        "</tbody></table></div>\n<p class=\"key\">\u{d7}: ratio of {}{less}. {}</p>\n",
        Escaped(&study.label(&first.figure)),
        whom::SIGNS
    );
    Some(html)
}

/// The paper's own ratios as rows below ours, where it gives them for the same places.
fn papers(study: &Study<'_>, places: &[f64]) -> String {
    let mut html = String::new();
    let Some(paper) = study.head.paper.as_ref().filter(|paper| paper.points_are == PointsAre::Ratios) else {
        return html;
    };
    let mut series: Vec<&str> = paper.points.iter().map(|point| point.series.as_str()).collect();
    series.dedup();
    if !series.is_empty() {
        let _ = writeln!(
            html,
            "<tr class=\"group\"><th colspan=\"{}\">The paper: {}</th></tr>",
            places.len() + 1,
            Escaped(&paper.place)
        );
    }
    for name in series {
        let _ = write!(html, "<tr><th scope=\"row\">{}</th>", Escaped(&study.label(name)));
        for place in places {
            let here = paper.points.iter().find(|point| point.series == name && point.x == *place);
            let text = here.map_or_else(|| "\u{2013}".to_owned(), |point| said::times(point.y));
            let _ = write!(html, "<td>{}</td>", Escaped(&text));
        }
        html.push_str("</tr>\n");
    }
    html
}

/// A sweep: its stretches in words, every place in a table.
fn swept(study: &Study<'_>, verdict: &Verdict, judged: &[Judgement]) -> String {
    let (ours, theirs) = said::sides(study, verdict);
    let by = verdict.by.as_deref().unwrap_or_default();
    let fixed = said::fixed(study, verdict);
    let fixed = if fixed.is_empty() { String::new() } else { format!(" ({})", fixed.join(", ")) };
    let mut html = format!(
        "<li><b>{}</b>",
        escape(&format!("{ours} against {theirs}{fixed}, by {}", study.label(by)))
    );
    html.push_str("<ul class=\"stretches\">");
    for stretch in said::stretches(judged) {
        let _ = write!(
            html,
            "<li>{} {}</li>",
            badge(stretch.tone),
            Escaped(&said::stretch_sentence(study, verdict, &stretch))
        );
    }
    html.push_str("</ul><details><summary>Each place in words</summary><ul>");
    for judgement in judged {
        let _ = write!(
            html,
            "<li>{} {}</li>",
            badge(said::tone(judgement)),
            Escaped(&said::sentence(study, verdict, judgement))
        );
    }
    html.push_str("</ul></details></li>\n");
    html
}

/// What makes the figures doubtful: noise, warnings of single runs, what was skipped or failed.
fn doubts(study: &Study<'_>) -> String {
    let mut doubts: Vec<String> = Vec::new();
    let mut figures: Vec<&str> = study.head.verdicts.iter().map(|v| v.figure.as_str()).collect();
    if figures.is_empty() {
        figures = study.head.charts.iter().flat_map(|chart| &chart.y).map(String::as_str).collect();
    }
    figures.dedup();
    for figure in figures.into_iter().take(4) {
        for doubt in noise::warnings(&study.runs, figure, &|run| study.circumstances(run)) {
            let doubt = said::capital(&doubt);
            if !doubts.contains(&doubt) {
                doubts.push(doubt);
            }
        }
    }
    let mut warned: Vec<(&str, usize)> = Vec::new();
    // load and steal are summed up above, over the whole study
    let own = |run: &&RunLine| noise::of_run(run.host.foreign_load, run.host.steal);
    let others = study.runs.iter().flat_map(|run| {
        let summed = own(run);
        run.warnings.iter().filter(move |warning| !summed.contains(warning))
    });
    for warning in others {
        match warned.iter_mut().find(|(known, _)| known == warning) {
            Some((_, n)) => *n += 1,
            None => warned.push((warning, 1)),
        }
    }
    for (warning, n) in warned.into_iter().take(12) {
        doubts.push(format!("{}: {warning}", counted(n, "run")));
    }
    let mut html = String::new();
    if !doubts.is_empty() {
        html.push_str("<div class=\"doubts\"><h3>To be taken with care</h3><ul>");
        let (first, rest) = doubts.split_at(doubts.len().min(if doubts.len() > 4 { 3 } else { 4 }));
        for doubt in first {
            let _ = write!(html, "<li>{}</li>", Escaped(doubt));
        }
        html.push_str("</ul>");
        if !rest.is_empty() {
            let _ = write!(html, "<details><summary>{} more</summary><ul>", rest.len());
            for doubt in rest.iter().take(60) {
                let _ = write!(html, "<li>{}</li>", Escaped(doubt));
            }
            html.push_str("</ul></details>");
        }
        html.push_str("</div>\n");
    }
    html.push_str(&absent(study));
    html
}

fn absent(study: &Study<'_>) -> String {
    let mut absent: Vec<(String, usize)> = Vec::new();
    for run in study.runs.iter().filter(|run| run.outcome != Outcome::Measured) {
        let reason = run.reason.as_deref().unwrap_or("no reason was recorded");
        let text =
            said::capital(&format!("{} {}: {reason}", study.label(&run.variant), outcome(run.outcome)));
        match absent.iter_mut().find(|(known, _)| *known == text) {
            Some((_, n)) => *n += 1,
            None => absent.push((text, 1)),
        }
    }
    if absent.is_empty() {
        return String::new();
    }
    let mut html = String::from("<div class=\"absent\"><h3>What is missing</h3><ul>");
    for (text, n) in absent.iter().take(24) {
        let times = if *n > 1 { format!(" ({n} runs)") } else { String::new() };
        let _ = write!(html, "<li>{}{times}</li>", Escaped(text));
    }
    if absent.len() > 24 {
        let _ = write!(html, "<li>and {} more, in the records</li>", absent.len() - 24);
    }
    html.push_str("</ul></div>\n");
    html
}

/// Method, number of runs, time, seeds, parameters that never change.
fn how(study: &Study<'_>) -> String {
    let measured = study.count(Outcome::Measured);
    let mut parts = vec![format!("{} measured", counted(number::count(measured), "run"))];
    for (kind, word) in
        [(Outcome::Skipped, "skipped"), (Outcome::Failed, "failed"), (Outcome::Interrupted, "interrupted")]
    {
        let n = study.count(kind);
        if n > 0 {
            parts.push(format!("{} {word}", number::count(n)));
        }
    }
    let seconds: f64 = study.runs.iter().map(|run| run.elapsed_s).filter(|s| s.is_finite()).sum();
    parts.push(number::duration(seconds));
    let repetitions = study.runs.iter().map(|run| run.repetition).max().map_or(0, |r| u64::from(r) + 1);
    parts.push(counted(repetitions, "repetition"));
    let seeds: Vec<u64> = study.runs.iter().map(|run| run.seed).collect();
    match (seeds.iter().min(), seeds.iter().max()) {
        (Some(a), Some(b)) if a == b => parts.push(format!("seed {a}")),
        (Some(_), Some(_)) => parts.push("a seed for each run, in the records".to_owned()),
        _ => {}
    }
    let mut html = String::from("<div class=\"how\"><h3>How it was run</h3>");
    if !study.head.method.is_empty() {
        let _ = write!(html, "<p>{}</p>", Escaped(&study.head.method));
    }
    let _ = write!(html, "<p>{}.</p>", Escaped(&parts.join(", ")));
    let fixed = fixed_parameters(study);
    if !fixed.is_empty() {
        let _ = write!(html, "<p>In all runs: {}.</p>", Escaped(&fixed.join(", ")));
    }
    html.push_str("</div>\n");
    html
}

fn fixed_parameters(study: &Study<'_>) -> Vec<String> {
    let measured: Vec<_> = study.runs.iter().filter(|run| run.outcome == Outcome::Measured).collect();
    let Some(first) = measured.first() else { return Vec::new() };
    first
        .parameters
        .iter()
        .filter(|(name, value)| measured.iter().all(|run| run.parameters.get(*name) == Some(*value)))
        .map(|(name, value)| study.parameter_in_words(name, value))
        .take(16)
        .collect()
}
