//! Comparison of two variants, each run paired with its neighbor in time.
//!
//! The idea: machines drift (clock frequency, other guests of the hypervisor, file system caches). So a run
//! is compared with the run of the other variant in the *same repetition*. Each pair gives a ratio. The
//! median of the ratios is the answer, and its interval is the uncertainty. The numbers of pairs
//! won and lost need no assumption about the distribution.
//!
//! Cost: as for [`crate::interval`]. When not to use: for runs that were not neighbors in time.

use crate::interval::{BinomialTail, Estimate, median_interval};
use crate::record::Better;

/// Ratios closer to one than this count as a tie: two runs cannot resolve half a per cent.
pub const TIE_TOLERANCE: f64 = 0.005;

/// Fewer pairs than this give no verdict: two pairs agree by chance every second time.
pub const MIN_PAIRS: usize = 3;

/// The greatest width at which an interval that contains one means *no difference*.
pub(crate) const SAME_WIDTH: f64 = 0.1;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Median of the ratios (variant / against) with its interval.
    pub ratio: Estimate,
    /// Number of pairs whose ratio favors the variant by more than [`TIE_TOLERANCE`].
    pub wins: usize,
    /// Number of pairs whose ratio favors the other side by more than [`TIE_TOLERANCE`].
    pub losses: usize,
    pub ties: usize,
    /// Pairs without a ratio: the value of the other side is zero, or a value is not finite.
    pub undefined: usize,
    /// P-value of the two-sided sign test: the probability of counts at least as lopsided if neither variant
    /// is better.
    pub sign_p: f64,
}

/// The conclusion that a comparison allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The whole interval is on the better side.
    Better,
    /// The whole interval is on the worse side.
    Worse,
    /// The interval is narrow and contains one: no notable difference.
    Same,
    /// The interval contains one and is wide: these runs cannot decide.
    Undecided,
}

impl Comparison {
    /// Returns the conclusion at the comparison's level; `better` says whether ratios above or below one are
    /// good. Differences below [`TIE_TOLERANCE`] are *the same*. An interval that contains one and is wider
    /// than ten per cent is undecided, and so are fewer than [`MIN_PAIRS`] pairs.
    pub fn finding(&self, better: Better) -> Finding {
        let Estimate { low, high, .. } = self.ratio;
        let above = low > 1.0 + TIE_TOLERANCE;
        let below = high < 1.0 - TIE_TOLERANCE;
        if self.ratio.n < MIN_PAIRS {
            return Finding::Undecided;
        }
        match (above, below, better) {
            (true, _, Better::Higher) | (_, true, Better::Lower) => Finding::Better,
            (true, _, Better::Lower) | (_, true, Better::Higher) => Finding::Worse,
            _ if high - low <= SAME_WIDTH => Finding::Same,
            _ => Finding::Undecided,
        }
    }
}

/// Compares pairs (variant, against); `None` if no pair has a ratio.
pub fn compare(pairs: &[(f64, f64)], better: Better, level: f64) -> Option<Comparison> {
    let ratios: Vec<f64> = pairs.iter().map(|(v, a)| v / a).filter(|r| r.is_finite()).collect();
    let ratio = median_interval(&ratios, level)?;
    let above = ratios.iter().filter(|r| **r > 1.0 + TIE_TOLERANCE).count();
    let below = ratios.iter().filter(|r| **r < 1.0 - TIE_TOLERANCE).count();
    let (wins, losses) = match better {
        Better::Higher => (above, below),
        Better::Lower => (below, above),
    };
    Some(Comparison {
        ratio,
        wins,
        losses,
        ties: ratios.len() - above - below,
        undefined: pairs.len() - ratios.len(),
        sign_p: sign_test(wins, losses),
    })
}

/// Computes the two-sided exact sign test; ties are left out.
fn sign_test(wins: usize, losses: usize) -> f64 {
    let n = wins + losses;
    let fewer = wins.min(losses);
    let mut tail = BinomialTail::new(n);
    let mut sum = 0.0;
    for _ in 0..=fewer {
        sum = tail.add_next();
    }
    (2.0 * sum).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_common_drift_does_not_blur_a_paired_ratio() {
        // both variants become four times slower while the study runs; within each pair the ratio stays 2
        let pairs: Vec<(f64, f64)> = (0..8)
            .map(|i| {
                let base = 100.0 / (1.0 + f64::from(i) * 0.4);
                (2.0 * base, base)
            })
            .collect();
        let c = compare(&pairs, Better::Higher, 0.95).expect("eight pairs");
        assert!((c.ratio.low - 2.0).abs() < 1e-9 && (c.ratio.high - 2.0).abs() < 1e-9, "{c:?}");
        assert_eq!((c.wins, c.losses, c.finding(Better::Higher)), (8, 0, Finding::Better));
        assert_eq!(c.finding(Better::Lower), Finding::Worse);
    }

    #[test]
    fn starved_runs_are_counted_and_not_divided_by() {
        let c = compare(&[(1.0, 0.0), (3.0, 1.0), (4.0, 1.0)], Better::Higher, 0.95).expect("two pairs");
        assert_eq!((c.undefined, c.ratio.n), (1, 2));
        assert_eq!(compare(&[(1.0, 0.0)], Better::Higher, 0.95), None);
    }

    #[test]
    fn equal_is_the_same_and_scattered_is_undecided() {
        let same = compare(&[(1.0, 1.0), (1.002, 1.0), (0.999, 1.0)], Better::Higher, 0.95).expect("pairs");
        assert_eq!((same.finding(Better::Higher), same.ties), (Finding::Same, 3));
        let wide = compare(&[(0.5, 1.0), (2.0, 1.0), (1.1, 1.0)], Better::Higher, 0.95).expect("pairs");
        assert_eq!(wide.finding(Better::Higher), Finding::Undecided);
        let two = compare(&[(2.0, 1.0), (2.1, 1.0)], Better::Higher, 0.95).expect("pairs");
        assert_eq!(two.finding(Better::Higher), Finding::Undecided, "two agree by chance every second time");
    }

    #[test]
    fn the_sign_test_agrees_with_the_tables() {
        assert!((sign_test(8, 0) - 2.0 / 256.0).abs() < 1e-12);
        assert!((sign_test(9, 1) - 0.021_484_375).abs() < 1e-12);
        assert!((sign_test(5, 5) - 1.0).abs() < 1e-12);
        assert!((sign_test(0, 0) - 1.0).abs() < 1e-12);
        assert!((sign_test(600, 600) - 1.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn the_sign_test_agrees_with_counting_all_outcomes(wins in 0usize..7, losses in 0usize..7) {
            let n = wins + losses;
            let lopsided = wins.abs_diff(losses);
            let as_bad = (0..1u32 << n).filter(|outcome| {
                let ones = outcome.count_ones() as usize;
                ones.abs_diff(n - ones) >= lopsided
            });
            let expected = as_bad.count() as f64 / f64::from(1u32 << n);
            prop_assert!((sign_test(wins, losses) - expected).abs() < 1e-12);
        }

        #[test]
        fn swapping_the_sides_swaps_wins_and_losses(pairs in prop::collection::vec((0.1f64..10.0, 0.1f64..10.0), 1..20)) {
            let swapped: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
            let (c, d) = (compare(&pairs, Better::Higher, 0.95).expect("some"), compare(&swapped, Better::Lower, 0.95).expect("some"));
            // the tie band is not exactly symmetric under inversion: compare only pairs that are clearly
            // outside it
            let clear = |r: &&(f64, f64)| (r.0 / r.1 - 1.0).abs() > 2.0 * TIE_TOLERANCE;
            if pairs.iter().filter(clear).count() == pairs.len() {
                prop_assert_eq!((c.wins, c.losses), (d.wins, d.losses));
            }
        }
    }
}
