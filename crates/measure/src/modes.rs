//! Decides whether a handful of runs has *one* center, or falls into two clusters.
//!
//! The idea: on plain Linux the same pair of spinning programs runs at 37,000 or at millions of barriers a
//! second, different from one start to the next. The median of such runs describes no run at all. So the
//! values are sorted, their logarithms taken, and the largest gap found. Two modes are reported if that gap
//! stands out: a factor of at least [`MIN_FACTOR`] between the neighbors, and at least [`MIN_GAP_RATIO`]
//! times the mean gap within the two sides, and at least [`MIN_MODE_RUNS`] runs on each side. Each mode comes
//! with its number of runs.
//!
//! This rule is deliberately simpler than a dip test: with five to ten runs a dip test has no power, and the
//! gaps that matter here are factors, not per cents. A single run far from the others is no mode: an outlier
//! looks the same as a rare mode that was seen once. The least and the greatest run beside the median show
//! it, so it is not hidden.
//!
//! When not to use: with more than two modes only the two sides of the largest gap are reported.
//!
//! Reference: J. A. Hartigan, P. M. Hartigan, *The Dip Test of Unimodality*, 1985 (the alternative).

use crate::quantile;
use std::fmt;

/// The least factor between the runs on the two sides of the gap.
pub const MIN_FACTOR: f64 = 1.5;

/// The least ratio of the gap to the mean gap within the two sides (both of logarithms).
pub const MIN_GAP_RATIO: f64 = 4.0;

/// The least number of runs in a mode: a value that no second run has may be an outlier.
pub const MIN_MODE_RUNS: usize = 2;

/// The least number of runs that can have two modes. Chosen, not measured: of four runs, two slow ones before
/// two fast ones may just as well be a machine that changed once during the study.
pub const MIN_RUNS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunCluster {
    pub n: usize,
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl RunCluster {
    fn from_sorted(sorted: &[f64]) -> Option<Self> {
        let median = quantile::sorted_quantile(sorted, 0.5)?;
        Some(Self { n: sorted.len(), median, min: *sorted.first()?, max: *sorted.last()? })
    }
}

/// Two clusters of runs, with no run between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoModes {
    pub low: RunCluster,
    pub high: RunCluster,
}

impl fmt::Display for TwoModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (self.low, self.high);
        write!(
            f,
            "two modes: {} (n = {}) and {} (n = {})",
            crate::units::number(low.median),
            low.n,
            crate::units::number(high.median),
            high.n
        )
    }
}

/// Returns the two modes of the values, if there are two; values that are not finite are left out. Values of
/// zero (a starved program), if there are several, form a mode of their own beside other values.
pub fn two_modes(values: &[f64]) -> Option<TwoModes> {
    let sorted = quantile::sorted(values);
    if sorted.len() < MIN_RUNS || sorted[0] < 0.0 {
        return None;
    }
    let zeros = sorted.iter().filter(|v| **v == 0.0).count();
    let split = if zeros > 0 { zeros } else { dominant_gap(&sorted)? };
    if split < MIN_MODE_RUNS || sorted.len() - split < MIN_MODE_RUNS {
        return None;
    }
    Some(TwoModes {
        low: RunCluster::from_sorted(&sorted[..split])?,
        high: RunCluster::from_sorted(&sorted[split..])?,
    })
}

/// Returns the index of the first value after the largest gap of logarithms, if that gap stands out.
fn dominant_gap(sorted: &[f64]) -> Option<usize> {
    let gaps: Vec<f64> = sorted.windows(2).map(|w| (w[1] / w[0]).ln()).collect();
    let (at, largest) = gaps.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let others = gaps.len() - 1;
    let within = (gaps.iter().sum::<f64>() - largest) / others as f64;
    (largest >= MIN_FACTOR.ln() && largest >= MIN_GAP_RATIO * within).then_some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_of_plain_linux_show_their_two_modes() {
        let runs = [37_100.0, 5_500_000.0, 36_800.0, 37_400.0, 5_300_000.0, 36_900.0];
        let modes = two_modes(&runs).expect("two modes");
        assert_eq!((modes.low.n, modes.high.n), (4, 2));
        assert!((modes.low.median - 37_000.0).abs() < 1.0, "{modes:?}");
        assert_eq!(modes.to_string(), "two modes: 37,000 (n = 4) and 5,400,000 (n = 2)");
    }

    #[test]
    fn scatter_of_some_per_cent_is_one_mode() {
        assert_eq!(two_modes(&[12.3e6, 12.1e6, 12.5e6, 11.9e6, 12.4e6]), None);
        assert_eq!(
            two_modes(&[1.0, 2.0, 4.0, 8.0, 16.0]),
            None,
            "an even spread over a decade is wide, not two"
        );
    }

    #[test]
    fn one_run_far_from_the_others_is_an_outlier_and_four_runs_are_too_few() {
        assert_eq!(two_modes(&[2_067.0, 3_178.0, 3_180.0]), None, "one of three");
        assert_eq!(two_modes(&[1.0, 100.0, 101.0, 102.0, 100.5, 101.5]), None, "one of six");
        assert_eq!(two_modes(&[1.0, 1.1, 100.0, 101.0]), None, "two of four");
        let modes = two_modes(&[1.0, 1.1, 100.0, 101.0, 102.0]).expect("two of five");
        assert_eq!((modes.low.n, modes.high.n), (2, 3));
    }

    #[test]
    fn starved_runs_are_a_mode_of_their_own() {
        let modes = two_modes(&[0.0, 5.0, 5.1, 0.0, 5.2]).expect("zero beside five");
        assert_eq!((modes.low.n, modes.high.n), (2, 3));
        assert_eq!(two_modes(&[0.0; 5]), None);
        assert_eq!(two_modes(&[0.0, 5.0, 5.1, 5.0, 5.2]), None, "one starved run");
    }

    proptest! {
        #[test]
        fn clusters_that_are_a_decade_apart_are_found(low in prop::collection::vec(0.9f64..1.1, 2..8), high in prop::collection::vec(9.0f64..11.0, 2..8), scale in 1e-3f64..1e6) {
            prop_assume!(low.len() + high.len() >= MIN_RUNS);
            let values: Vec<f64> = low.iter().chain(&high).map(|v| v * scale).collect();
            let modes = two_modes(&values).expect("two clusters");
            prop_assert_eq!((modes.low.n, modes.high.n), (low.len(), high.len()));
        }

        #[test]
        fn runs_within_a_factor_below_the_least_are_never_split(values in prop::collection::vec(1.0f64..1.49, 3..30)) {
            prop_assert_eq!(two_modes(&values), None);
        }
    }
}
