//! Weights, and the cost of a byte in the parent's virtual time.
//!
//! A finish tag is `S + length / weight`. A rounded quotient could decide between tags that ought to be
//! equal. So siblings share a unit in which one byte costs each of them a whole number. With weights 6, 3 and
//! 1 the unit is the sixth of a byte, and a byte costs 1, 2 and 6. That unit is the least common multiple of
//! the weights as whole numbers. Where it would be too large (for several weights such as 1000003 and
//! 999983), costs are rounded to some 12 digits, and [`WeightScale::exact`] is false.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// The weight of a class relative to its siblings; a positive number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weight {
    numerator: NonZeroU32,
    denominator: NonZeroU32,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is no weight: a positive decimal number such as 3 or 0.25, with at most nine digits")]
pub struct WeightError {
    text: String,
}

impl Weight {
    pub const ONE: Self = Self { numerator: NonZeroU32::MIN, denominator: NonZeroU32::MIN };

    pub fn from_integer(weight: NonZeroU32) -> Self {
        Self { numerator: weight, denominator: NonZeroU32::MIN }
    }

    /// Returns the weight as a fraction: numerator and denominator.
    pub fn fraction(self) -> (u32, u32) {
        (self.numerator.get(), self.denominator.get())
    }

    pub fn to_f64(self) -> f64 {
        f64::from(self.numerator.get()) / f64::from(self.denominator.get())
    }

    /// Returns the cost of a byte for this weight in the unit in which it is `cost` for the weight `other`.
    /// Returns `None` if that is no whole number, or too large.
    pub(crate) fn cost_beside(self, other: Self, cost: u64) -> Option<u64> {
        let [own, others] = [(self, other), (other, self)]
            .map(|(one, other)| u128::from(one.numerator.get()) * u128::from(other.denominator.get()));
        let unit = u128::from(cost) * others;
        let cost = unit.is_multiple_of(own).then(|| unit / own)?;
        u64::try_from(cost).ok().filter(|cost| *cost <= MAX_COST)
    }
}

impl FromStr for Weight {
    type Err = WeightError;

    fn from_str(text: &str) -> Result<Self, WeightError> {
        let error = || WeightError { text: text.to_owned() };
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits: String = [whole, part].concat();
        let sound = !whole.is_empty()
            && text.ends_with(|last: char| last.is_ascii_digit())
            && digits.bytes().all(|digit| digit.is_ascii_digit());
        let digits = digits.trim_start_matches('0');
        if !sound || digits.len() > 9 || part.len() > 9 {
            return Err(error());
        }
        let number = digits.parse().ok().and_then(NonZeroU32::new).ok_or_else(error)?;
        let places = u32::try_from(part.len()).expect("fits because there are at most nine places");
        let denominator = 10_u32.pow(places);
        let common = gcd(u128::from(number.get()), u128::from(denominator));
        let reduce = |value: u32| {
            let reduced = u32::try_from(u128::from(value) / common).ok();
            reduced.and_then(NonZeroU32::new).ok_or_else(error)
        };
        Ok(Self { numerator: reduce(number.get())?, denominator: reduce(denominator)? })
    }
}

/// A weight is written as its text.
#[cfg(feature = "serde")]
impl serde::Serialize for Weight {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Weight {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_f64())
    }
}

/// The greatest cost of a byte: the cost of the longest packet (2^24 bytes) is then below 2^62, a quarter of
/// the range of 64 bits.
const MAX_COST: u64 = 1 << 38;

/// The costs of a byte for a group of siblings.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct WeightScale {
    pub(crate) costs: Vec<u64>,
    /// Whether the costs are exactly in inverse proportion to the weights.
    pub(crate) exact: bool,
}

impl WeightScale {
    pub(crate) fn from_weights(weights: &[Weight]) -> Self {
        let exact = exact_costs(weights);
        let costs = exact.clone().unwrap_or_else(|| {
            let min_weight = weights.iter().map(|weight| weight.to_f64()).fold(f64::INFINITY, f64::min);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most MAX_COST")]
            let cost =
                |weight: &Weight| ((min_weight / weight.to_f64() * MAX_COST as f64).round() as u64).max(1);
            weights.iter().map(cost).collect()
        });
        Self { costs, exact: exact.is_some() }
    }

    /// Returns an estimate of how far most start tags are ahead of the virtual time: 8192 bytes, a few
    /// packets of usual length, at the mean cost of the children, where each child counts as often as it is
    /// served.
    pub(crate) fn span(&self) -> u64 {
        let rate: f64 = self.costs.iter().map(|cost| 1.0 / *cost as f64).sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive number; `as` saturates"
        )]
        let span = (8192.0 * self.costs.len() as f64 / rate) as u64;
        span
    }
}

fn exact_costs(weights: &[Weight]) -> Option<Vec<u64>> {
    let integers = to_integers(weights);
    let unit = integers.iter().try_fold(1_u128, |unit, whole| lcm(unit, u128::from(*whole)))?;
    let cost = |whole: &u64| u64::try_from(unit / u128::from(*whole)).ok().filter(|cost| *cost <= MAX_COST);
    integers.iter().map(cost).collect()
}

/// Returns the weights as whole numbers, all multiplied by the same factor. A denominator divides 10^9 and a
/// numerator is below 10^9, so the products fit.
pub(crate) fn to_integers(weights: &[Weight]) -> Vec<u64> {
    let divide = |a: u64, b: u64| u64::try_from(gcd(a.into(), b.into())).map_or(1, |common| a / common);
    let common: u64 = weights.iter().fold(1, |common, weight| {
        let denominator = u64::from(weight.denominator.get());
        // most of many weights have a denominator that is known already
        if common.is_multiple_of(denominator) { common } else { divide(common, denominator) * denominator }
    });
    let times = |weight: &Weight| common / u64::from(weight.denominator.get());
    weights.iter().map(|weight| u64::from(weight.numerator.get()) * times(weight)).collect()
}

pub(crate) fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn lcm(a: u128, b: u128) -> Option<u128> {
    // of many weights, most are known already
    if a.is_multiple_of(b) { Some(a) } else { (a / gcd(a, b)).checked_mul(b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(texts: &[&str]) -> Vec<Weight> {
        texts.iter().map(|text| text.parse().expect("it is a weight")).collect()
    }

    #[test]
    fn a_byte_costs_whole_numbers_in_inverse_proportion() {
        assert_eq!(WeightScale::from_weights(&weights(&["60", "30", "10"])).costs, [1, 2, 6]);
        assert_eq!(WeightScale::from_weights(&weights(&["0.5", "1.5", "2"])).costs, [12, 4, 3]);
        assert_eq!(WeightScale::from_weights(&weights(&["7"])).costs, [1]);
    }

    #[test]
    fn a_weight_that_fits_the_unit_of_its_siblings_has_a_cost_in_it() {
        let [six, three, four, quarter] = ["6", "3", "4", "0.25"].map(|text| weights(&[text])[0]);
        assert_eq!(three.cost_beside(six, 2), Some(4));
        assert_eq!(quarter.cost_beside(six, 2), Some(48));
        assert_eq!(six.cost_beside(quarter, 48), Some(2));
        assert_eq!(four.cost_beside(three, 2), None, "3 * 2 / 4");
        assert_eq!(quarter.cost_beside(six, MAX_COST), None);
    }

    #[test]
    fn weights_without_a_small_common_unit_are_rounded_and_say_so() {
        let odd = weights(&["999999937", "999999929", "999999893", "999999883", "1"]);
        let scale = WeightScale::from_weights(&odd);
        assert!(!scale.exact);
        let unit = odd[0].to_f64() * scale.costs[0] as f64;
        for (weight, cost) in odd.iter().zip(&scale.costs) {
            let off = weight.to_f64() * *cost as f64 / unit - 1.0;
            assert!(off.abs() < 0.01, "{weight}: {off}");
        }
        let near = WeightScale::from_weights(&weights(&[
            "999983", "1000003", "999979", "999961", "999959", "999953",
        ]));
        assert!(!near.exact);
        assert!(near.costs.iter().all(|cost| *cost > MAX_COST / 2));
    }

    #[test]
    fn what_is_no_positive_decimal_number_is_refused() {
        for text in ["", "0", "0.0", "-1", "1.", ".5", "1e3", "inf", "1234567890", "1.2.3", "٣"] {
            assert!(text.parse::<Weight>().is_err(), "{text}");
        }
        assert_eq!("0.250".parse::<Weight>().expect("it is a weight").fraction(), (1, 4));
        assert_eq!("000012".parse::<Weight>().expect("it is a weight").fraction(), (12, 1));
    }
}
