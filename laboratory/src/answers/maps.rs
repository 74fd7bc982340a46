//! Describes a map of ratios in a sentence: where there are gains and losses, and how large they are.

use std::collections::BTreeMap;
use unisono_measure::quantile;
use unisono_measure::record::{ChartKind, Outcome, RunLine};
use unisono_measure::verdict;
use unisono_report::extension::{Study, TopicAnswer};
use unisono_text::counted;

/// Ratios that are closer to one than this are neither a gain nor a loss.
const MIN_GAIN: f64 = 0.05;

/// Returns the answer of the first map that has runs.
pub(super) fn topic_answer(studies: &[Study<'_>]) -> Option<TopicAnswer> {
    let words = studies.iter().find_map(|study| {
        let chart = study.head.charts.iter().find(|chart| chart.kind == ChartKind::Map)?;
        gains_in_words(study, chart.y.first()?)
    })?;
    // there is no chart: the study's section starts with the map itself, and two bars would show less than
    // the sentence
    Some(TopicAnswer::new(words, None))
}

fn gains_in_words(study: &Study<'_>, figure: &str) -> Option<String> {
    let mut places: BTreeMap<String, (&RunLine, Vec<f64>)> = BTreeMap::new();
    for run in study.runs.iter().filter(|run| run.outcome == Outcome::Measured) {
        if let Some(value) = run.value(figure).filter(|value| value.is_finite() && *value > 0.0) {
            let place = format!("{} {:?}", run.variant, run.parameters);
            places.entry(place).or_insert_with(|| (run, Vec::new())).1.push(value);
        }
    }
    let medians = places.into_values().filter_map(|(run, values)| Some((run, quantile::median(&values)?)));
    let mut places: Vec<(&RunLine, f64)> = medians.collect();
    places.sort_by(|a, b| a.1.total_cmp(&b.1));
    let gains = places.iter().filter(|(_, ratio)| *ratio > 1.0 + MIN_GAIN).count();
    let losses = places.iter().filter(|(_, ratio)| *ratio < 1.0 - MIN_GAIN).count();
    let ((least, low), (most, high)) = (places.first()?, places.last()?);
    let mut text = format!("Gangs gain in {gains} of {}", counted(places.len(), "situation"));
    if gains > 0 {
        text += &format!(", at most {} times ({})", verdict::format_ratio(*high), study.circumstances(most));
    }
    text += &format!(". They lose in {losses}");
    if losses > 0 {
        text +=
            &format!(", at most {} times ({})", verdict::format_ratio(1.0 / low), study.circumstances(least));
    }
    Some(text + ".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_measure::record::{Chart, Figure, Line, StudyLine};
    use unisono_report::extension::studies;

    #[test]
    fn gains_and_losses_are_counted_with_their_greatest() {
        let chart = Chart { kind: ChartKind::Map, y: vec!["gain".into()], ..Chart::default() };
        let head = StudyLine { study: "s".into(), charts: vec![chart], ..StudyLine::default() };
        let run = |(cores, gain): (u32, f64)| {
            Line::Run(Box::new(RunLine {
                study: "s".into(),
                variant: "equal".into(),
                parameters: BTreeMap::from([("cores".to_owned(), cores.into())]),
                figures: vec![Figure::new("gain", gain, "1")],
                ..RunLine::default()
            }))
        };
        let phrase = |gains: &[(u32, f64)]| {
            let lines: Vec<Line> = std::iter::once(Line::Study(Box::new(head.clone())))
                .chain(gains.iter().copied().map(run))
                .collect();
            topic_answer(&studies(&lines)).map(|phrase| phrase.words.replace('\u{a0}', " "))
        };
        assert_eq!(
            phrase(&[(64, 4.0), (128, 1.01), (256, 0.5), (512, 8.0)]).as_deref(),
            Some(
                "Gangs gain in 2 of 4 situations, at most 8.00 times (equal with 512 cores). They lose in 1, at most 2.00 times (equal with 256 cores)."
            )
        );
        assert_eq!(phrase(&[(64, 1.0)]).as_deref(), Some("Gangs gain in 0 of 1 situation. They lose in 0."));
        assert_eq!(phrase(&[]), None);
    }
}
