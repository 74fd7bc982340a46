//! Exact quantiles of a handful of values.
//!
//! The idea: sort, then interpolate linearly between the two order statistics around `q * (n - 1)` (type 7 of
//! Hyndman and Fan, the default of R and `NumPy`). The median of an even number of runs is therefore the mean
//! of the middle two. Values that are not finite are left out.
//!
//! Cost: one sorted copy. Not for millions of samples: use [`crate::Histogram`].
//!
//! Reference: R. J. Hyndman, Y. Fan, *Sample Quantiles in Statistical Packages*, 1996.

use crate::record::Distribution;

pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the quantile `q` (clamped to 0..=1) of ascending values; `None` without values.
pub fn sorted_quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = q.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    Some(low + (high - low) * (place - below as f64))
}

/// Returns the quantile `q` of values in any order; `None` if none is finite.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    sorted_quantile(&sorted(values), q)
}

/// Returns the median; `None` if no value is finite.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Returns the minimum, the quartiles, the median, the 99th percentile and the maximum; `None` if no value is
/// finite.
pub fn distribution(values: &[f64]) -> Option<Distribution> {
    let sorted = sorted(values);
    Some(Distribution {
        n: sorted.len() as u64,
        min: sorted_quantile(&sorted, 0.0)?,
        p25: sorted_quantile(&sorted, 0.25)?,
        median: sorted_quantile(&sorted, 0.5)?,
        p75: sorted_quantile(&sorted, 0.75)?,
        p99: sorted_quantile(&sorted, 0.99)?,
        max: sorted_quantile(&sorted, 1.0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[5.0]), Some(5.0));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN, 2.0, f64::INFINITY]), Some(2.0));
    }

    #[test]
    fn quartiles_agree_with_r() {
        // quantile(c(1, 2, 4, 8, 16, 32), c(.25, .75, .99)) in R
        let d = distribution(&[32.0, 1.0, 16.0, 2.0, 8.0, 4.0]).expect("six values");
        assert!(
            (d.p25 - 2.5).abs() < 1e-9 && (d.p75 - 14.0).abs() < 1e-9 && (d.p99 - 31.2).abs() < 1e-9,
            "{d:?}"
        );
    }

    proptest! {
        #[test]
        fn a_quantile_splits_the_values_in_its_proportion(values in prop::collection::vec(-1e6f64..1e6, 1..80), q in 0.0f64..=1.0) {
            let x = quantile(&values, q).expect("not empty");
            let below = values.iter().filter(|v| **v < x - 1e-9).count() as f64;
            let up_to = values.iter().filter(|v| **v <= x + 1e-9).count() as f64;
            let place = q * (values.len() - 1) as f64;
            prop_assert!(below <= place.ceil() + 1e-9, "{below} below, place {place}");
            prop_assert!(up_to >= place.floor() + 1.0 - 1e-9, "{up_to} up to, place {place}");
        }

        #[test]
        fn quantiles_never_fall_as_q_rises(values in prop::collection::vec(-1e6f64..1e6, 1..40), a in 0.0f64..=1.0, b in 0.0f64..=1.0) {
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            prop_assert!(quantile(&values, low) <= quantile(&values, high));
        }
    }
}
