//! Whole numbers of any length, with the operations that exact tags need.

use crate::weight::gcd;
use std::cmp::Ordering;

/// A whole number that is not negative.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Natural {
    /// The digits to base 2^64, the lowest first; the last one is not 0.
    digits: Vec<u64>,
}

impl From<u64> for Natural {
    fn from(value: u64) -> Self {
        Self::from_digits(vec![value])
    }
}

impl Natural {
    fn from_digits(mut digits: Vec<u64>) -> Self {
        while digits.last() == Some(&0) {
            digits.pop();
        }
        Self { digits }
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        let (mut digits, mut carry) = (Vec::with_capacity(self.digits.len() + 1), false);
        for at in 0..self.digits.len().max(other.digits.len()) {
            let digit = |number: &Self| number.digits.get(at).copied().unwrap_or(0);
            let (sum, over) = digit(self).overflowing_add(digit(other));
            let (sum, more) = sum.overflowing_add(u64::from(carry));
            digits.push(sum);
            carry = over || more;
        }
        digits.push(u64::from(carry));
        Self::from_digits(digits)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    pub(crate) fn times(&self, factor: u64) -> Self {
        let (mut digits, mut carry) = (Vec::with_capacity(self.digits.len() + 1), 0);
        for digit in &self.digits {
            let product = u128::from(*digit) * u128::from(factor) + carry;
            digits.push(product as u64);
            carry = product >> 64;
        }
        digits.push(carry as u64);
        Self::from_digits(digits)
    }

    /// Returns the quotient and the remainder. The divisor must not be 0.
    #[expect(clippy::cast_possible_truncation, reason = "both are below the divisor or below 2 to the 64th")]
    pub(crate) fn divided_by(&self, divisor: u64) -> (Self, u64) {
        let (mut digits, mut rest) = (vec![0; self.digits.len()], 0);
        for (digit, quotient) in self.digits.iter().zip(&mut digits).rev() {
            let value = rest << 64 | u128::from(*digit);
            *quotient = (value / u128::from(divisor)) as u64;
            rest = value % u128::from(divisor);
        }
        (Self::from_digits(digits), rest as u64)
    }

    /// Returns the least common multiple with a number that is not 0.
    #[expect(clippy::cast_possible_truncation, reason = "a divisor of a number of 64 bits")]
    pub(crate) fn common_multiple(&self, other: u64) -> Self {
        let (_, rest) = self.divided_by(other);
        self.times(other / gcd(other.into(), rest.into()) as u64)
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_digits = || self.digits.iter().rev().cmp(other.digits.iter().rev());
        self.digits.len().cmp(&other.digits.len()).then_with(by_digits)
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_bigint::BigUint;
    use proptest::prelude::*;

    fn both() -> impl Strategy<Value = (Natural, BigUint)> {
        let digit = prop_oneof![any::<u64>(), Just(0), Just(u64::MAX)];
        prop::collection::vec(digit, 0..5).prop_map(|digits| {
            let zero = BigUint::default();
            let big = digits.iter().rev().fold(zero, |number, digit| (number << 64) + BigUint::from(*digit));
            (Natural::from_digits(digits), big)
        })
    }

    fn same(ours: &Natural, theirs: &BigUint) -> bool {
        ours.digits == theirs.to_u64_digits()
    }

    proptest! {
        #[test]
        fn it_counts_as_another_library_does((a, big_a) in both(), (b, big_b) in both(), c in 1..u64::MAX) {
            prop_assert!(same(&a.plus(&b), &(&big_a + &big_b)));
            prop_assert!(same(&a.times(c), &(&big_a * c)));
            let (quotient, rest) = a.divided_by(c);
            prop_assert!(same(&quotient, &(&big_a / c)) && BigUint::from(rest) == &big_a % c);
            prop_assert_eq!(a.cmp(&b), big_a.cmp(&big_b));
            let (mut common, mut rest) = (BigUint::from(c), &big_a % c);
            while rest != BigUint::default() {
                (common, rest) = (rest.clone(), common % rest);
            }
            prop_assert!(same(&a.common_multiple(c), &(&big_a * c / common)));
        }
    }
}
