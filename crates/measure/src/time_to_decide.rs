//! Computes how much longer a study must measure until an undecided comparison is decided.
//!
//! The idea: the interval of a median shrinks with the square root of the number of pairs. A comparison is
//! decided when its interval no longer contains one, or when the interval is narrow around one; the case that
//! needs fewer pairs counts. The time for one pair is the time that the pairs so far took, disturbed runs
//! included, so a machine that spoils half of the runs needs twice the time.
//!
//! Cost: a few multiplications. When not to use: an interval of three pairs is itself uncertain by half, and
//! so is the time.

use crate::evidence::MIN_ROUNDS;
use crate::paired::{Comparison, Finding, MIN_PAIRS, SAME_WIDTH, TIE_TOLERANCE};
use crate::record::{Better, Outcome, RunLine};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The factor by which more pairs are planned than the square root law gives. By chance, half of the measured
/// distances from one are greater than the true ones; with a factor of 1, fewer than half of the comparisons
/// would be decided in the predicted time.
const MARGIN: f64 = 1.5;

/// The longest time that is stated: a longer one is no plan.
const MAX_TIME: Duration = Duration::from_secs(100 * 3600);

/// Returns the number of pairs that decides an undecided comparison, if further pairs are like the pairs so
/// far; `None` if it is decided.
pub fn pairs_to_decide(comparison: &Comparison, better: Better) -> Option<f64> {
    if comparison.finding(better) != Finding::Undecided {
        return None;
    }
    let ratio = comparison.ratio;
    let n = ratio.n as f64;
    // the factor by which an interval must shrink, squared
    let factor = |width: f64, wanted: f64| {
        if wanted > 0.0 { (width / wanted).powi(2) } else { f64::INFINITY }
    };
    let leaves_one = factor(ratio.value - ratio.low, ratio.value - (1.0 + TIE_TOLERANCE))
        .min(factor(ratio.high - ratio.value, (1.0 - TIE_TOLERANCE) - ratio.value));
    let is_same = factor(ratio.high - ratio.low, SAME_WIDTH);
    Some((n * leaves_one.min(is_same) * MARGIN).ceil().max(n + 1.0).max(MIN_PAIRS as f64))
}

/// Returns the time until the comparison of these runs is decided; `None` if it is decided, or if nothing was
/// measured and no run was disturbed. `runs` are the runs of both sides, `pairs` the number of their pairs.
pub(crate) fn time_to_decide(
    comparison: Option<&Comparison>,
    better: Better,
    pairs: usize,
    runs: &[&RunLine],
) -> Option<Duration> {
    let counts = |run: &&&RunLine| matches!(run.outcome, Outcome::Measured | Outcome::Disturbed);
    let taken: f64 = runs.iter().filter(counts).map(|run| run.elapsed_s).filter(|s| s.is_finite()).sum();
    let seconds = match comparison {
        Some(comparison) => {
            let wanted = pairs_to_decide(comparison, better)?;
            taken / pairs.max(1) as f64 * (wanted - pairs as f64).max(1.0)
        }
        // no pair so far: each pair takes at least as long as the attempts so far
        None if runs.iter().any(|run| run.outcome == Outcome::Disturbed) => taken * MIN_PAIRS as f64,
        None => return None,
    };
    (seconds > 0.0).then(|| Duration::from_secs_f64(seconds.min(MAX_TIME.as_secs_f64())))
}

/// The runs of one variant with the same parameters.
#[derive(Default)]
struct RepeatedRun {
    rounds: BTreeSet<u32>,
    /// Seconds of all attempts.
    taken_s: f64,
}

/// Returns the time until each variant at each parameter point of these runs has the rounds that a conclusion
/// needs; `None` if each has, or if more time does not help.
pub fn time_to_see_again(runs: &[&RunLine]) -> Option<Duration> {
    let mut rows: BTreeMap<(&str, &str, String), RepeatedRun> = BTreeMap::new();
    let tried = runs.iter().filter(|run| matches!(run.outcome, Outcome::Measured | Outcome::Disturbed));
    for run in tried.filter(|run| run.elapsed_s.is_finite()) {
        let row = rows.entry((&run.study, &run.variant, format!("{:?}", run.parameters))).or_default();
        row.taken_s += run.elapsed_s;
        if run.outcome == Outcome::Measured {
            row.rounds.insert(run.repetition);
        }
    }
    let missing_s = |row: &RepeatedRun| {
        let rounds = row.rounds.len();
        row.taken_s / rounds.max(1) as f64 * MIN_ROUNDS.saturating_sub(rounds) as f64
    };
    let seconds: f64 = rows.values().map(missing_s).sum();
    (seconds > 0.0).then(|| Duration::from_secs_f64(seconds.min(MAX_TIME.as_secs_f64())))
}

/// Returns the time in words, for example `about 6 min more`.
pub fn in_words(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s >= MAX_TIME.as_secs_f64() => "more than 100 h more".to_owned(),
        s if s < 60.0 => format!("about {:.0} s more", s.max(1.0)),
        s if s < 5_400.0 => format!("about {:.0} min more", s / 60.0),
        s => format!("about {:.0} h more", s / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paired::compare;
    use proptest::prelude::*;
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    /// Pairs with the true ratio `ratio` that scatter by up to the factor `1 + scatter`.
    fn pairs(random: &mut Pcg64Mcg, n: usize, ratio: f64, scatter: f64) -> Vec<(f64, f64)> {
        let mut noise = || (0..4).map(|_| random.random_range(-scatter..scatter)).sum::<f64>() / 2.0;
        (0..n).map(|_| (ratio * noise().exp(), 1.0)).collect()
    }

    #[test]
    fn the_pairs_foretold_decide_most_comparisons() {
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let (mut undecided, mut told) = (0, 0);
        for ratio in [1.0, 1.05, 1.2].into_iter().cycle().take(90) {
            let mut all = pairs(&mut random, 8, ratio, 0.3);
            let first = compare(&all, Better::Higher, 0.95).expect("pairs");
            let Some(wanted) = pairs_to_decide(&first, Better::Higher) else { continue };
            if wanted > 200.0 {
                continue; // the test would take minutes
            }
            undecided += 1;
            all.extend(pairs(&mut random, wanted as usize - 8, ratio, 0.3));
            let later = compare(&all, Better::Higher, 0.95).expect("pairs");
            told += usize::from(later.finding(Better::Higher) != Finding::Undecided);
        }
        assert!(undecided > 30 && told * 2 > undecided, "{told} of {undecided} were decided as foretold");
    }

    proptest! {
        #[test]
        fn only_undecided_comparisons_need_more_and_always_more_than_they_have(
            n in 1usize..20, ratio in 0.5f64..2.0, scatter in 0.01f64..1.0, seed in 0u64..1000,
        ) {
            let all = pairs(&mut Pcg64Mcg::seed_from_u64(seed), n, ratio, scatter);
            let found = compare(&all, Better::Higher, 0.95).expect("pairs");
            match pairs_to_decide(&found, Better::Higher) {
                Some(wanted) => prop_assert!(wanted > n as f64 && wanted >= MIN_PAIRS as f64 && wanted.is_finite()),
                None => prop_assert!(found.finding(Better::Higher) != Finding::Undecided),
            }
        }
    }

    #[test]
    fn disturbed_runs_make_each_pair_longer() {
        let run = |outcome, elapsed_s| RunLine { outcome, elapsed_s, ..RunLine::default() };
        let good = run(Outcome::Measured, 1.0);
        let lost = run(Outcome::Disturbed, 1.0);
        let wide = compare(&[(0.5, 1.0), (2.0, 1.0), (1.1, 1.0), (0.8, 1.0)], Better::Higher, 0.95);
        let time =
            |runs: &[&RunLine]| time_to_decide(wide.as_ref(), Better::Higher, 4, runs).expect("undecided");
        assert_eq!(time(&[&good, &lost]), time(&[&good]) * 2);
        let none = |runs: &[&RunLine]| time_to_decide(None, Better::Higher, 0, runs);
        assert_eq!(none(&[&lost, &lost]), Some(Duration::from_secs(6)));
        assert_eq!(none(&[&run(Outcome::Skipped, 0.0)]), None, "more time does not help");
    }

    #[test]
    fn figures_seen_once_take_the_rounds_that_a_conclusion_lacks() {
        let run = |repetition, outcome| RunLine { repetition, outcome, elapsed_s: 2.0, ..RunLine::default() };
        let runs: Vec<RunLine> = (0..3).map(|repetition| run(repetition, Outcome::Measured)).collect();
        let of = |runs: &[RunLine]| time_to_see_again(&runs.iter().collect::<Vec<_>>());
        assert_eq!(of(&runs[..1]), Some(Duration::from_secs(4)), "two rounds more");
        assert_eq!((of(&runs[..2]), of(&runs)), (Some(Duration::from_secs(2)), None));
        assert_eq!(of(&[run(0, Outcome::Disturbed)]), Some(Duration::from_secs(6)));
        assert_eq!((of(&[run(0, Outcome::Skipped)]), of(&[])), (None, None), "more time does not help");
    }

    #[test]
    fn times_are_said_in_one_unit() {
        let words = |s| in_words(Duration::from_secs(s));
        assert_eq!((words(40), words(360)), ("about 40 s more".into(), "about 6 min more".into()));
        assert_eq!((words(7_200), words(400_000)), ("about 2 h more".into(), "more than 100 h more".into()));
    }
}
