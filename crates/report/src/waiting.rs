//! The answer about the cost of waiting on this host.

use crate::number;
use crate::study::Study;
use crate::topic_answer::{AnswerPicture, TopicAnswer};
use crate::wording::{self, Tone};
use std::time::Duration;
use unisono_measure::Evidence;
use unisono_measure::quantile;
use unisono_measure::record::{Better, Chart, Distribution, Verdict};
use unisono_measure::selector::{self, Selector};
use unisono_measure::verdict::judge;

/// Returns the costs of the cheapest and the dearest way to wait, in the first two situations of the study.
pub(crate) fn waiting_answer(studies: &[Study<'_>]) -> Option<TopicAnswer> {
    let study = waiting_studies(studies).into_iter().find(|study| WaitingCost::new(study).is_some())?;
    let charts = || study.head.charts.iter().take(2);
    let costs: Vec<WaitingCost<'_>> =
        charts().filter_map(|chart| WaitingCost::from_chart(study, chart)).collect();
    let said = costs.iter().find(|cost| cost.in_words.is_some())?;
    let words: Vec<String> = costs.iter().filter_map(|cost| cost.in_words_beside(said)).collect();
    let picture = charts().find_map(|chart| {
        let first = WaitingCost::from_chart(study, chart)?.variants;
        let of = Selector {
            variants: first.into_iter().map(str::to_owned).collect(),
            figure: chart.y.first()?.clone(),
            conditions: selector::conditions(&chart.only),
            ..Selector::default()
        };
        AnswerPicture::new(study, &of, Better::Lower, &format!(", {}", lower(&chart.title)))
    });
    Some(TopicAnswer::new(words.join(" "), picture).resting_on(said.evidence))
}

/// Returns the title with a small first letter, for use within a sentence.
pub(crate) fn lower(title: &str) -> String {
    let mut chars = title.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// Returns the studies about the cost of waiting, otherwise the first study that timed a barrier.
fn waiting_studies<'a>(studies: &'a [Study<'a>]) -> Vec<&'a Study<'a>> {
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

pub(crate) struct WaitingCost<'a> {
    pub(crate) study: &'a Study<'a>,
    pub(crate) title: &'a str,
    pub(crate) headline: Option<String>,
    /// A sentence for the screen, for example `One processor: fastest is yield ...`; the picture has the
    /// whole title.
    pub(crate) in_words: Option<String>,
    /// The runs behind the comparison of the cheapest way with the dearest.
    evidence: Option<Evidence>,
    pub(crate) tiles: Vec<CostTile>,
    /// The variants, the cheapest first.
    pub(crate) variants: Vec<&'a str>,
}

/// Ways that differ by less than this factor take about as long: two runs of one way differ by as much.
const MAX_ALIKE: f64 = 1.05;

/// The conclusion that the runs permit about the cheapest way to wait compared with the dearest.
#[derive(Clone, Copy)]
enum VerdictState {
    Decided(Option<Evidence>),
    /// Fewer rounds than a conclusion needs.
    SeenOnce(Evidence),
    /// The runs scatter more than the two ways differ; the duration is the time of further runs that would
    /// decide.
    Undecided(Option<Evidence>, Option<Duration>),
}

impl VerdictState {
    fn for_verdict(asked: &Verdict, study: &Study<'_>) -> Self {
        let sides = [&asked.variant, &asked.against];
        let behind = study.runs.iter().copied();
        let behind = behind.filter(|run| sides.contains(&&run.variant) && run.has_parameters(&asked.only));
        let evidence = Evidence::from_runs(&behind.collect::<Vec<_>>(), |run| asked.value_of(run));
        let judged = judge(asked, &study.runs);
        let is_open = judged.iter().all(|judgement| wording::tone(judgement) == Tone::Undecided);
        match evidence {
            Some(evidence) if evidence.is_seen_once() => Self::SeenOnce(evidence),
            _ if is_open => {
                Self::Undecided(evidence, judged.iter().filter_map(|one| one.time_to_decide).min())
            }
            _ => Self::Decided(evidence),
        }
    }

    fn evidence(self) -> Option<Evidence> {
        match self {
            Self::Decided(evidence) | Self::Undecided(evidence, _) => evidence,
            Self::SeenOnce(evidence) => Some(evidence),
        }
    }

    fn qualified(self, words: String) -> String {
        match self {
            Self::Decided(_) => words,
            Self::SeenOnce(evidence) => format!("Seen once ({}), no verdict: {words}", evidence.in_words()),
            Self::Undecided(_, time) => {
                format!("Not decided, the runs scatter{}: {words}", wording::more_would_tell(time))
            }
        }
    }
}

pub(crate) struct CostTile {
    pub(crate) name: String,
    pub(crate) median: String,
    pub(crate) least: String,
    pub(crate) greatest: String,
}

pub(crate) fn waiting_costs<'a>(studies: &'a [Study<'a>]) -> Vec<WaitingCost<'a>> {
    waiting_studies(studies).into_iter().filter_map(WaitingCost::new).collect()
}

impl<'a> WaitingCost<'a> {
    fn new(study: &'a Study<'a>) -> Option<Self> {
        Self::from_chart(study, study.head.charts.first()?)
    }

    fn from_chart(study: &'a Study<'a>, chart: &'a Chart) -> Option<Self> {
        let (title, figure) = (chart.title.as_str(), chart.y.first()?);
        let unit = study.unit(figure);
        let says = |value: f64| number::quantity(value, &unit);
        let mut rows = study.rows(chart, None);
        rows.retain(|row| !row.values(figure).is_empty());
        let costs = rows.into_iter().filter_map(|row| {
            let cost = quantile::distribution(&row.values(figure))?;
            Some((row.variant, row.name, cost))
        });
        let mut costs: Vec<(&'a str, String, Distribution)> = costs.collect();
        costs.sort_by(|a, b| a.2.median.total_cmp(&b.2.median));
        let ((_, best, least), (_, worst, most)) = (costs.first()?, costs.last()?);
        let figure = lower(&study.label(figure));
        let (best, worst) = (short_label(best), short_label(worst));
        let (fast, slow) = (says(least.median), says(most.median));
        let place = Verdict {
            variant: costs.last()?.0.to_owned(),
            against: costs.first()?.0.to_owned(),
            figure: chart.y.first()?.clone(),
            better: Better::Lower,
            only: chart.only.clone(),
            ..Verdict::default()
        };
        let standing = VerdictState::for_verdict(&place, study);
        let compared = (costs.len() > 1 && least.median > 0.0).then(|| {
            let short = title.split_once(", ").map_or(title, |(title, _)| title);
            let ratio = most.median / least.median;
            if ratio <= MAX_ALIKE {
                let alike = format!("the {figure} is about {fast} with each of {} ways.", costs.len());
                return (standing.qualified(wording::capitalized(&alike)), format!("{short}: {alike}"));
            }
            let times = wording::times_as_long(ratio);
            let headline = format!("The {figure} is {fast} with {best} and {slow} with {worst}, {times}.");
            let headline = standing.qualified(headline);
            let in_words =
                format!("{short}: fastest is {best} ({figure} {fast}); {worst} takes {times} ({slow}).");
            (headline, in_words)
        });
        let (headline, in_words): (Option<String>, Option<String>) = compared.unzip();
        let in_words = in_words.map(|words| match standing {
            // the screen says by itself that an answer was seen once
            VerdictState::SeenOnce(_) => words,
            _ => standing.qualified(words),
        });
        let evidence = standing.evidence();
        let tile = |(_, name, cost): &(&str, String, Distribution)| CostTile {
            name: name.clone(),
            median: says(cost.median),
            least: says(cost.min),
            greatest: says(cost.max),
        };
        let tiles = costs.iter().take(8).map(tile).collect();
        let variants = costs.iter().map(|(variant, ..)| *variant).collect();
        Some(Self { study, title, headline, in_words, evidence, tiles, variants })
    }

    /// Returns the sentence in an answer whose number of rounds is that of `first`: with its own number, if
    /// that is another one.
    fn in_words_beside(&self, first: &Self) -> Option<String> {
        let words = self.in_words.clone()?;
        let rounds = |cost: &Self| cost.evidence.map(|evidence| evidence.rounds);
        Some(match self.evidence {
            Some(evidence) if rounds(self) != rounds(first) => {
                let once = if evidence.is_seen_once() { "seen once, " } else { "" };
                words.replacen(": ", &format!(" ({once}{}): ", evidence.in_words()), 1)
            }
            _ => words,
        })
    }
}

/// Returns a label without its part in brackets.
fn short_label(label: &str) -> &str {
    label.split_once(" (").map_or(label, |(label, _)| label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::studies;
    use std::collections::BTreeMap;
    use unisono_measure::record::{Figure, Line, Question, RunLine, StudyLine};

    /// Makes a study with these rounds on two processors, and these on one.
    fn two_situations(rounds: [u32; 2]) -> Vec<Line> {
        let only = |cpus: u32| BTreeMap::from([("cpus".to_owned(), cpus.into())]);
        let chart = |title: &str, cpus| Chart {
            title: title.into(),
            y: vec!["latency".into()],
            only: only(cpus),
            ..Chart::default()
        };
        let head = StudyLine {
            study: "s".into(),
            topic: "barrier".into(),
            answers: Some(Question::Waiting),
            charts: vec![chart("Two processors", 2), chart("One processor", 1)],
            ..StudyLine::default()
        };
        let run = |variant: &str, cpus, repetition, value| RunLine {
            study: "s".into(),
            topic: "barrier".into(),
            variant: variant.into(),
            parameters: only(cpus),
            repetition,
            figures: vec![Figure::new("latency", value, "ns")],
            ..RunLine::default()
        };
        let mut lines = vec![Line::Study(Box::new(head))];
        for (rounds, cpus) in rounds.into_iter().zip([2, 1]) {
            for repetition in 0..rounds {
                for (variant, value) in [("sleep", 9.0), ("spin", 1.0)] {
                    lines.push(Line::Run(Box::new(run(variant, cpus, repetition, value))));
                }
            }
        }
        lines
    }

    #[test]
    fn a_situation_with_other_rounds_than_the_first_has_its_own_number() {
        let answer = |rounds| {
            let lines = two_situations(rounds);
            let answer = waiting_answer(&studies(&lines)).expect("both were measured");
            (answer.evidence.map(|evidence| evidence.rounds), answer.words)
        };
        let (rounds, words) = answer([4, 1]);
        assert_eq!(rounds, Some(4), "{words}");
        assert!(words.starts_with("Two processors: "), "{words}");
        assert!(words.contains(" One processor (seen once, n = 1 round): "), "{words}");
        let (rounds, words) = answer([2, 2]);
        assert_eq!(rounds, Some(2));
        assert!(!words.contains("n = "), "{words}");
    }
}
