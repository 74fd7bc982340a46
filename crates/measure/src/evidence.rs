//! States how well a figure is supported: the number of rounds in which it was measured, and the spread of
//! its runs.
//!
//! A round is a repetition of a study: its runs are neighbors in time, so a disturbance of minutes spoils all
//! runs of a round alike. Figures of fewer than [`MIN_ROUNDS`] rounds are *seen once*, or twice: they are
//! shown, and nothing is concluded from them.
//!
//! Cost: linear in the number of runs.

use crate::paired::MIN_PAIRS;
use crate::quantile;
use crate::record::{Outcome, RunLine};
use std::collections::{BTreeMap, BTreeSet};

/// Fewer rounds than this allow no conclusion, as fewer pairs allow no verdict.
pub const MIN_ROUNDS: usize = MIN_PAIRS;

/// The rounds and the spread of the weakest of several figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    pub rounds: usize,
    /// The difference between the greatest and the least run, as a share of the median. `None` for a single
    /// run, and for a median of 0.
    pub spread: Option<f64>,
}

impl Evidence {
    /// Computes the evidence of the values of these runs. Runs of one variant with the same parameters belong
    /// together; the result has the rounds of the group with the fewest rounds, and the greatest spread of a
    /// group. `None` without a value.
    pub fn from_runs(runs: &[&RunLine], value: impl Fn(&RunLine) -> Option<f64>) -> Option<Self> {
        let mut rows: BTreeMap<(&str, String), Row> = BTreeMap::new();
        for run in runs {
            let Some(value) = value(run) else { continue };
            let row = rows.entry((&run.variant, format!("{:?}", run.parameters))).or_default();
            row.rounds.insert(run.repetition);
            row.values.push(value);
        }
        let rows = rows.into_values();
        rows.map(|row| Self { rounds: row.rounds.len(), spread: spread(&row.values) }).reduce(Self::weaker)
    }

    /// Returns the fewer rounds and the greater spread of the two.
    #[must_use]
    pub fn weaker(self, other: Self) -> Self {
        let spread = self.spread.into_iter().chain(other.spread).reduce(f64::max);
        Self { rounds: self.rounds.min(other.rounds), spread }
    }

    /// Returns `seen once` or `seen twice`; `None` if there are enough rounds for a conclusion.
    #[must_use]
    pub fn too_few_in_words(&self) -> Option<&'static str> {
        match self.rounds {
            MIN_ROUNDS.. => None,
            2 => Some("seen twice"),
            _ => Some("seen once"),
        }
    }

    /// Returns the evidence in words, for example `n = 3 rounds, runs differ by 4 %`, or `n = 1 round`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let rounds = if self.rounds == 1 { "round" } else { "rounds" };
        let spread = self.spread.map_or(String::new(), |spread| match spread {
            // a factor is easier to read than thousands of per cent
            2.0.. => format!(", runs differ by {spread:.0} times the median"),
            _ => format!(", runs differ by {:.0} %", spread * 100.0),
        });
        format!("n = {} {rounds}{spread}", self.rounds)
    }
}

/// Returns the number of runs that were left out for lack of time and that no later repetition replaced.
pub fn left_out<'r>(runs: impl IntoIterator<Item = &'r RunLine>) -> usize {
    // the repetitions of the runs left out, and of the measured ones, of a variant with the same parameters
    let mut rows: BTreeMap<(&str, &str, String), [Vec<u32>; 2]> = BTreeMap::new();
    for run in runs {
        let side = match run.outcome {
            Outcome::Cut => 0,
            Outcome::Measured => 1,
            _ => continue,
        };
        let row = rows.entry((&run.study, &run.variant, format!("{:?}", run.parameters))).or_default();
        row[side].push(run.repetition);
    }
    let open = |[cut, measured]: &[Vec<u32>; 2]| {
        let last = cut.iter().max();
        let later = measured.iter().filter(|repetition| Some(*repetition) > last).count();
        cut.len().saturating_sub(later)
    };
    rows.values().map(open).sum()
}

/// The runs of a variant with the same parameters.
#[derive(Default)]
struct Row {
    rounds: BTreeSet<u32>,
    values: Vec<f64>,
}

fn spread(values: &[f64]) -> Option<f64> {
    let median = quantile::median(values)?;
    let (least, greatest) = (quantile::quantile(values, 0.0)?, quantile::quantile(values, 1.0)?);
    let spread = (greatest - least) / median.abs();
    (values.len() > 1 && spread.is_finite()).then_some(spread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Figure;

    fn run(variant: &str, repetition: u32, value: f64) -> RunLine {
        let figures = vec![Figure::new("x", value, "ns")];
        RunLine { variant: variant.into(), repetition, figures, ..RunLine::default() }
    }

    fn evidence(runs: &[RunLine]) -> Option<Evidence> {
        Evidence::from_runs(&runs.iter().collect::<Vec<_>>(), |run| run.value("x"))
    }

    #[test]
    fn several_starts_in_one_repetition_are_one_round() {
        let once = evidence(&[run("a", 0, 1.0), run("a", 0, 2.0), run("a", 0, 3.0)]).expect("values");
        assert_eq!(once, Evidence { rounds: 1, spread: Some(1.0) });
        assert_eq!(once.too_few_in_words(), Some("seen once"));
        assert_eq!(once.in_words(), "n = 1 round, runs differ by 100 %");
        let wide = Evidence { rounds: 3, spread: Some(12.35) };
        assert_eq!(wide.in_words(), "n = 3 rounds, runs differ by 12 times the median");
        assert_eq!(evidence(&[]), None);
    }

    #[test]
    fn a_later_repetition_replaces_a_run_that_was_left_out() {
        let cut = |repetition| RunLine { outcome: Outcome::Cut, ..run("a", repetition, 0.0) };
        let mut runs = vec![run("a", 0, 1.0), cut(1), cut(2), run("b", 3, 1.0)];
        assert_eq!(left_out(&runs), 2);
        runs.push(run("a", 3, 1.0));
        assert_eq!(left_out(&runs), 1);
        runs.extend([run("a", 4, 1.0), run("a", 5, 1.0)]);
        assert_eq!(left_out(&runs), 0);
    }

    #[test]
    fn the_weakest_variant_counts() {
        let runs =
            [run("a", 0, 10.0), run("a", 1, 10.0), run("a", 2, 11.0), run("b", 0, 5.0), run("b", 2, 5.0)];
        let both = evidence(&runs).expect("values");
        assert_eq!((both.rounds, both.too_few_in_words()), (2, Some("seen twice")));
        assert_eq!(evidence(&runs[..3]).expect("values").in_words(), "n = 3 rounds, runs differ by 10 %");
        assert_eq!(evidence(&runs[..3]).expect("values").too_few_in_words(), None);
    }
}
