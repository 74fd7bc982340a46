//! The answer about the cost of waiting on this host.

use crate::number;
use crate::study::Study;
use crate::topic_answer::{AnswerPicture, TopicAnswer};
use crate::wording::{self, Tone};
use std::time::Duration;
use unisono_measure::Evidence;
use unisono_measure::modes::two_modes;
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
    let answer = TopicAnswer::new(words.join(" "), picture).resting_on(said.standing.evidence());
    Some(if matches!(said.standing, VerdictState::Undecided(..)) { answer.undecided() } else { answer })
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
    /// The conclusion about the cheapest way compared with the dearest.
    standing: VerdictState,
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
    TooFewRounds(Evidence),
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
            Some(evidence) if evidence.too_few_in_words().is_some() => Self::TooFewRounds(evidence),
            _ if is_open => {
                Self::Undecided(evidence, judged.iter().filter_map(|one| one.time_to_decide).min())
            }
            _ => Self::Decided(evidence),
        }
    }

    fn evidence(self) -> Option<Evidence> {
        match self {
            Self::Decided(evidence) | Self::Undecided(evidence, _) => evidence,
            Self::TooFewRounds(evidence) => Some(evidence),
        }
    }

    fn qualified(self, words: String) -> String {
        match self {
            Self::Decided(_) => words,
            Self::TooFewRounds(evidence) => {
                let seen = wording::capitalized(evidence.too_few_in_words().unwrap_or_default());
                format!("{seen} ({}), no verdict: {words}", evidence.in_words())
            }
            Self::Undecided(_, time) => wording::not_decided(time, &words),
        }
    }
}

pub(crate) struct CostTile {
    pub(crate) name: String,
    /// The median, or both modes.
    pub(crate) typical: String,
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
            let values = row.values(figure);
            // no run had the median between two modes
            let typical = match two_modes(&values) {
                Some(modes) => format!("{} or {}", says(modes.low.median), says(modes.high.median)),
                None => says(quantile::median(&values)?),
            };
            Some(WayCost {
                variant: row.variant,
                name: row.name,
                runs: quantile::distribution(&values)?,
                typical,
            })
        });
        let mut costs: Vec<WayCost<'a>> = costs.collect();
        costs.sort_by(|a, b| a.runs.median.total_cmp(&b.runs.median));
        let (first, last) = (costs.first()?, costs.last()?);
        let figure = lower(&study.label(figure));
        let (best, worst) = (short_label(&first.name), short_label(&last.name));
        let (fast, slow) = (&first.typical, &last.typical);
        let against_best = |variant: &str| Verdict {
            variant: variant.to_owned(),
            against: first.variant.to_owned(),
            figure: chart.y[0].clone(),
            better: Better::Lower,
            only: chart.only.clone(),
            ..Verdict::default()
        };
        let standing = VerdictState::for_verdict(&against_best(last.variant), study);
        let is_slower = |variant: &str| {
            let judged = judge(&against_best(variant), &study.runs);
            judged.iter().all(|judgement| wording::tone(judgement) == Tone::Worse)
        };
        // the ways that the runs do not show to be slower than the best one
        let between = &costs[1..costs.len().max(2) - 1];
        let alike: Vec<_> = between.iter().take_while(|way| !is_slower(way.variant)).collect();
        let compared = (costs.len() > 1 && first.runs.median > 0.0).then(|| {
            let short = title.split_once(", ").map_or(title, |(title, _)| title);
            let ratio = last.runs.median / first.runs.median;
            if ratio <= MAX_ALIKE {
                let alike = format!("the {figure} is about {fast} with each of {} ways.", costs.len());
                return (standing.qualified(wording::capitalized(&alike)), format!("{short}: {alike}"));
            }
            // Too few rounds show neither that ways differ nor that they are alike.
            if matches!(standing, VerdictState::TooFewRounds(_)) {
                let headline =
                    format!("The {figure} was {fast} with {best} and {slow} with {worst}; no factor yet.");
                let in_words = format!(
                    "{short}: fastest was {best} ({figure} {fast}); {worst} took {slow}; no factor yet."
                );
                return (standing.qualified(headline), in_words);
            }
            let times = wording::times_as_long(ratio);
            let Some(second) = alike.first() else {
                let headline =
                    format!("The {figure} is {fast} with {best} and {slow} with {worst}, {times}.");
                let in_words =
                    format!("{short}: fastest is {best} ({figure} {fast}); {worst} takes {times} ({slow}).");
                return (standing.qualified(headline), in_words);
            };
            let names = match alike.len() {
                1 => format!("{} and {}", quoted(best), quoted(short_label(&second.name))),
                more => format!("{} of {} ways", more + 1, costs.len()),
            };
            let alike = || std::iter::once(first).chain(alike.iter().copied()).map(|way| &way.runs);
            let ends = [
                says(alike().map(|runs| runs.min).fold(f64::INFINITY, f64::min)),
                says(alike().map(|runs| runs.max).fold(0.0, f64::max)),
            ];
            let range = if ends[0] == ends[1] { ends[0].clone() } else { ends.join(" to ") };
            let headline = format!(
                "No difference is seen between {names} ({figure} {range}); {worst} takes {slow}, {times}."
            );
            let in_words =
                format!("{short}: alike: {names} ({figure} {range}); {worst} takes {times} ({slow}).");
            (standing.qualified(headline), in_words)
        });
        let (headline, in_words): (Option<String>, Option<String>) = compared.unzip();
        let in_words = in_words.map(|words| match standing {
            // the screen says by itself that an answer has too few rounds
            VerdictState::TooFewRounds(_) => words,
            _ => standing.qualified(words),
        });
        let tile = |way: &WayCost<'_>| CostTile {
            name: way.name.clone(),
            typical: way.typical.clone(),
            least: says(way.runs.min),
            greatest: says(way.runs.max),
        };
        let tiles = costs.iter().take(8).map(tile).collect();
        let variants = costs.iter().map(|way| way.variant).collect();
        Some(Self { study, title, headline, in_words, standing, tiles, variants })
    }

    /// Returns the sentence in an answer with the number of rounds of `first`: with its own number, if the
    /// two differ.
    fn in_words_beside(&self, first: &Self) -> Option<String> {
        let words = self.in_words.clone()?;
        let rounds = |cost: &Self| cost.standing.evidence().map(|evidence| evidence.rounds);
        Some(match self.standing.evidence() {
            Some(evidence) if rounds(self) != rounds(first) => {
                let seen = evidence.too_few_in_words().map(|seen| format!("{seen}, ")).unwrap_or_default();
                words.replacen(": ", &format!(" ({seen}{}): ", evidence.in_words()), 1)
            }
            _ => words,
        })
    }
}

/// The cost of one way to wait.
struct WayCost<'a> {
    variant: &'a str,
    name: String,
    runs: Distribution,
    /// The median in words, or both modes.
    typical: String,
}

/// Puts a label with a comma into quotation marks, for a list of labels.
fn quoted(label: &str) -> String {
    if label.contains(',') { format!("\"{label}\"") } else { label.to_owned() }
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

    /// Makes a study of three ways to wait in one situation, with these values in its rounds.
    fn three_ways<const ROUNDS: usize>(values: [[f64; ROUNDS]; 3]) -> Vec<Line> {
        let chart = Chart { title: "Two processors".into(), y: vec!["latency".into()], ..Chart::default() };
        let head = StudyLine {
            study: "s".into(),
            topic: "barrier".into(),
            answers: Some(Question::Waiting),
            charts: vec![chart],
            labels: BTreeMap::from([("spin-block".to_owned(), "spin, then block".to_owned())]),
            ..StudyLine::default()
        };
        let mut lines = vec![Line::Study(Box::new(head))];
        for (variant, values) in ["yield", "spin-block", "block"].into_iter().zip(values) {
            lines.extend(values.into_iter().zip(0..).map(|(value, repetition)| {
                Line::Run(Box::new(RunLine {
                    study: "s".into(),
                    topic: "barrier".into(),
                    variant: variant.into(),
                    repetition,
                    figures: vec![Figure::new("latency", value, "ns")],
                    ..RunLine::default()
                }))
            }));
        }
        lines
    }

    #[test]
    fn only_a_way_that_is_decidedly_faster_than_the_second_is_called_the_fastest() {
        let said = |values| {
            let lines = three_ways(values);
            let studies = studies(&lines);
            let answer = waiting_answer(&studies).expect("it was measured").words;
            let [cost] = &waiting_costs(&studies)[..] else { panic!("one situation") };
            let plain = |text: &str| text.replace(number::NO_BREAK_SPACE, " ");
            (plain(&answer), plain(cost.headline.as_deref().unwrap_or_default()))
        };
        let dear = [900.0, 910.0, 905.0, 902.0];
        let (card, section) = said([[10.0, 11.0, 10.5, 10.0], [20.0, 21.0, 20.5, 22.0], dear]);
        assert!(card.contains("fastest is yield (latency 10.3 ns)"), "{card}");
        assert!(section.starts_with("The latency is 10.3 ns with yield"), "{section}");
        let (card, section) = said([[18.0, 30.0, 12.0, 19.0], [20.0, 21.0, 20.5, 22.0], dear]);
        assert!(
            card.contains(r#"alike: yield and "spin, then block" (latency 12 ns to 30 ns); block takes"#),
            "{card}"
        );
        assert!(section.starts_with("No difference is seen between yield and"), "{section}");
        assert!(!card.contains("fastest") && !section.contains("fastest"), "{card} {section}");
    }

    #[test]
    fn a_way_with_two_modes_has_no_median() {
        let lines = three_ways([[1.0, 1.0, 9.0, 1.0, 9.0], [100.0; 5], [900.0; 5]]);
        let answer = waiting_answer(&studies(&lines)).expect("it was measured").words;
        let answer = answer.replace(number::NO_BREAK_SPACE, " ");
        assert!(answer.contains("fastest is yield (latency 1 ns or 9 ns)"), "{answer}");
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
