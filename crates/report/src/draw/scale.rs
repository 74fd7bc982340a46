//! Maps values to positions, and chooses the ticks.
//!
//! Linear scales start at zero. Zero has no logarithm, but sweeps often start with it, so a logarithmic scale
//! has a separate position for zero before the first decade.

use unisono_measure::record;

/// The length of the axis reserved for zero, in pixels.
const ZERO_SLOT: f64 = 30.0;

#[derive(Clone, Debug)]
pub(crate) struct PixelScale {
    kind: record::Scale,
    /// The least value shown (of the logarithmic part).
    low: f64,
    high: f64,
    /// The position of `low`; `to` is the position of `high`.
    from: f64,
    to: f64,
    /// The position of zero on a logarithmic scale, if zero occurs.
    zero: Option<f64>,
}

impl PixelScale {
    /// Returns a scale that shows all finite `values` between the pixels `from` and `to`.
    pub(crate) fn new(kind: record::Scale, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        // spans beyond 1e300 overflow; no measured value is that large
        let values: Vec<f64> = values.filter(|v| v.is_finite()).map(|v| v.clamp(-1e300, 1e300)).collect();
        match kind {
            record::Scale::Linear => Self::linear(&values, from, to),
            record::Scale::Log => Self::log(&values, from, to),
        }
    }

    fn linear(values: &[f64], from: f64, to: f64) -> Self {
        let low = values.iter().copied().fold(0.0, f64::min);
        let mut high = values.iter().copied().fold(0.0, f64::max);
        if high <= low {
            high = low + 1.0;
        }
        let step = nice_step((high - low) / 4.0);
        let low = (low / step).floor() * step;
        // a little space above the greatest value, so that no dot lies on the frame
        let high = ((high + (high - low) * 0.02) / step).ceil() * step;
        Self { kind: record::Scale::Linear, low, high, from, to, zero: None }
    }

    fn log(values: &[f64], from: f64, to: f64) -> Self {
        let positive = || values.iter().copied().filter(|v| *v > 1e-300);
        let low = positive().fold(f64::INFINITY, f64::min);
        let high = positive().fold(0.0, f64::max);
        let has_zero = values.iter().any(|v| *v <= 1e-300);
        let (low, high) = if low <= high { (low, high) } else { (1.0, 10.0) };
        // values that hardly differ must look so: the axis spans at least a factor of four
        let (low, high) = if high / low < 4.0 {
            let middle = (low.ln() + high.ln()) / 2.0;
            ((middle - 2f64.ln()).exp(), (middle + 2f64.ln()).exp())
        } else {
            (low / 1.15, high * 1.15)
        };
        let slot = if has_zero { ZERO_SLOT.copysign(to - from) } else { 0.0 };
        let zero = has_zero.then_some(from + 8f64.copysign(to - from));
        Self { kind: record::Scale::Log, low, high, from: from + slot, to, zero }
    }

    /// Returns the position of a value, limited to the scale's ends.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let share = match self.kind {
            record::Scale::Linear => (value - self.low) / (self.high - self.low),
            record::Scale::Log if value <= 1e-300 => {
                return self.zero.unwrap_or(self.from);
            }
            record::Scale::Log => (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
        };
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        self.from + share * (self.to - self.from)
    }

    /// Returns the position between the zero and the logarithmic part, if there is a zero.
    pub(crate) fn gap(&self) -> Option<f64> {
        self.zero.map(|zero| (zero + self.from) / 2.0)
    }

    /// Returns round values in ascending order, all within the scale, at most about `most` of them.
    pub(crate) fn ticks(&self, most: usize) -> Vec<f64> {
        let most = most.max(2);
        let mut ticks = match self.kind {
            record::Scale::Linear => self.linear_ticks(most),
            record::Scale::Log => self.log_ticks(most),
        };
        if self.zero.is_some() {
            ticks.insert(0, 0.0);
        }
        ticks
    }

    fn linear_ticks(&self, most: usize) -> Vec<f64> {
        let step = nice_step((self.high - self.low) / most as f64);
        let first = (self.low / step).ceil();
        (0..=most + 1)
            .map(|i| (first + i as f64) * step)
            .take_while(|tick| *tick <= self.high + step * 1e-6)
            .map(|tick| if tick.abs() < step * 1e-6 { 0.0 } else { tick })
            .collect()
    }

    fn log_ticks(&self, most: usize) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let decades = (self.high / self.low).log10().max(0.1);
        let per_decade: &[f64] = match most as f64 / decades {
            room if room >= 6.0 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            room if room >= 3.0 => &[1.0, 2.0, 5.0],
            room if room >= 2.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let every = if per_decade.len() > 1 { 1 } else { ((decades / most as f64).ceil() as i32).max(1) };
        (first..=last)
            .filter(|exponent| exponent.rem_euclid(every) == 0)
            .flat_map(|exponent| per_decade.iter().map(move |digit| digit * 10f64.powi(exponent)))
            .filter(|tick| *tick >= self.low * 0.999 && *tick <= self.high * 1.001)
            .collect()
    }
}

/// Returns the least of 1, 2, 2.5, 5 times a power of ten that is not less than `rough`.
fn nice_step(rough: f64) -> f64 {
    if !(1e-300..=1e300).contains(&rough) {
        return if rough > 1e300 { 1e300 } else { 1e-300 };
    }
    let power = 10f64.powf(rough.log10().floor());
    let digit = rough / power;
    let nice = [1.0, 2.0, 2.5, 5.0].into_iter().find(|nice| digit <= nice * 1.000_001).unwrap_or(10.0);
    nice * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use record::Scale::{Linear, Log};

    #[test]
    fn linear_ticks_are_round_and_start_at_zero() {
        let scale = PixelScale::new(Linear, [3.0, 9.3].into_iter(), 0.0, 100.0);
        assert_eq!(scale.ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(scale.place(0.0), 0.0);
        assert_eq!(scale.place(10.0), 100.0);
    }

    #[test]
    fn logarithmic_ticks_are_decades_when_room_is_short() {
        let scale = PixelScale::new(Log, [1.0, 100_000.0].into_iter(), 0.0, 300.0);
        assert_eq!(scale.ticks(6), [1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
        assert_eq!(scale.ticks(3), [1.0, 100.0, 10_000.0]);
    }

    #[test]
    fn zero_has_a_place_of_its_own_before_the_first_decade() {
        let scale = PixelScale::new(Log, [0.0, 10.0, 1000.0].into_iter(), 50.0, 300.0);
        assert!(scale.place(0.0) < scale.gap().expect("a gap"));
        assert!(scale.gap().expect("a gap") < scale.place(10.0));
        assert_eq!(scale.ticks(5).first(), Some(&0.0));
    }

    #[test]
    fn values_that_hardly_differ_stay_close_together_on_a_logarithmic_scale() {
        let scale = PixelScale::new(Log, [100.0, 101.0].into_iter(), 0.0, 300.0);
        assert!((scale.place(101.0) - scale.place(100.0)).abs() < 5.0);
    }

    proptest! {
        #[test]
        fn every_value_lands_within_the_scale_in_order(
            log in any::<bool>(),
            values in proptest::collection::vec(any::<f64>(), 0..20),
        ) {
            let scale = PixelScale::new(if log { Log } else { Linear }, values.iter().copied(), 40.0, 300.0);
            let mut sorted: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
            sorted.sort_by(f64::total_cmp);
            let places: Vec<f64> = sorted.iter().map(|v| scale.place(*v)).collect();
            prop_assert!(places.iter().all(|p| (40.0..=300.0).contains(p)));
            prop_assert!(places.is_sorted());
        }

        #[test]
        fn there_are_never_more_ticks_than_room(
            log in any::<bool>(),
            values in proptest::collection::vec(any::<f64>(), 0..20),
            most in 2usize..9,
        ) {
            let scale = PixelScale::new(if log { Log } else { Linear }, values.into_iter(), 40.0, 300.0);
            let ticks = scale.ticks(most);
            prop_assert!(ticks.len() <= most * 2 + 3, "{ticks:?}");
            prop_assert!(ticks.is_sorted());
            prop_assert!(ticks.iter().all(|tick| tick.is_finite()));
        }
    }
}
