//! Values of an event's named fields: numbers, truth values and texts.
//!
//! The DDS content filter and CORBA's Notification Service filter constraints work on typed structures. Here
//! each field of an event has a type of its own, so that a filter needs no schema.
//!
//! Whole numbers and decimals are one kind: `3` equals `3.0`. Comparisons between them are exact, beyond 2^53
//! too.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A number in a canonical form: a decimal whose value is a whole number of 64 bits is stored as a whole
/// number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Numeric(NumericForm);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum NumericForm {
    Whole(i64),
    /// The bits of an `f64` that is not a whole number of 64 bits. All NaNs have the same bits.
    Decimal(u64),
}

/// 2^63, the first number beyond the whole numbers of 64 bits.
const END: f64 = 9_223_372_036_854_775_808.0;

impl From<i64> for Numeric {
    fn from(number: i64) -> Self {
        Self(NumericForm::Whole(number))
    }
}

impl From<f64> for Numeric {
    fn from(number: f64) -> Self {
        if number.is_nan() {
            return Self(NumericForm::Decimal(f64::NAN.to_bits()));
        }
        if number.trunc() == number && (-END..END).contains(&number) {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "whole and within the range, as just checked"
            )]
            return Self(NumericForm::Whole(number as i64));
        }
        Self(NumericForm::Decimal(number.to_bits()))
    }
}

impl Numeric {
    /// Returns the nearest `f64`.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        match self.0 {
            NumericForm::Whole(number) => number as f64,
            NumericForm::Decimal(bits) => f64::from_bits(bits),
        }
    }

    /// Returns the number if it is a whole number of 64 bits.
    #[must_use]
    pub fn to_whole(self) -> Option<i64> {
        match self.0 {
            NumericForm::Whole(number) => Some(number),
            NumericForm::Decimal(_) => None,
        }
    }

    /// Returns the order of the two numbers, or `None` if either is NaN.
    #[must_use]
    pub fn compare(self, other: Self) -> Option<Ordering> {
        match (self.0, other.0) {
            (NumericForm::Whole(one), NumericForm::Whole(other)) => Some(one.cmp(&other)),
            (NumericForm::Decimal(one), NumericForm::Decimal(other)) => {
                f64::from_bits(one).partial_cmp(&f64::from_bits(other))
            }
            (NumericForm::Whole(one), NumericForm::Decimal(other)) => whole_with(one, f64::from_bits(other)),
            (NumericForm::Decimal(_), NumericForm::Whole(_)) => other.compare(self).map(Ordering::reverse),
        }
    }

    /// Returns a key that has the order of the numbers, except for rounding: two numbers that round to the
    /// same `f64` have the same key, and others keep their order. Returns `None` for NaN.
    pub(crate) fn order_key(self) -> Option<u64> {
        let number = self.to_f64();
        let bits = number.to_bits();
        // positive numbers have the order of their bits, negative numbers the reverse order
        (!number.is_nan()).then_some(if bits >> 63 == 1 { !bits } else { bits | 1 << 63 })
    }

    /// Applies one of the operators `+`, `-`, `*` and `/`. Whole numbers stay whole while they fit; `/` is a
    /// floating-point division.
    pub(crate) fn calculate(self, operation: char, other: Self) -> Self {
        if let (NumericForm::Whole(one), NumericForm::Whole(other)) = (self.0, other.0) {
            let whole = match operation {
                '+' => one.checked_add(other),
                '-' => one.checked_sub(other),
                '*' => one.checked_mul(other),
                _ => None,
            };
            if let Some(whole) = whole {
                return whole.into();
            }
        }
        let (one, other) = (self.to_f64(), other.to_f64());
        Self::from(match operation {
            '+' => one + other,
            '-' => one - other,
            '*' => one * other,
            _ => one / other,
        })
    }
}

fn whole_with(whole: i64, decimal: f64) -> Option<Ordering> {
    if decimal.is_nan() {
        return None;
    }
    if decimal >= END {
        return Some(Ordering::Less);
    }
    if decimal < -END {
        return Some(Ordering::Greater);
    }
    #[expect(clippy::cast_possible_truncation, reason = "within the range, as just checked")]
    let below = decimal.floor() as i64;
    // the decimal is not whole, so it is greater than its floor
    Some(if whole <= below { Ordering::Less } else { Ordering::Greater })
}

impl fmt::Debug for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            NumericForm::Whole(number) => write!(f, "{number}"),
            NumericForm::Decimal(bits) => write!(f, "{}", f64::from_bits(bits)),
        }
    }
}

/// The value of a field.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum FieldValue {
    Number(Numeric),
    Bool(bool),
    Text(Arc<str>),
}

impl From<i64> for FieldValue {
    fn from(number: i64) -> Self {
        Self::Number(number.into())
    }
}

impl From<f64> for FieldValue {
    fn from(number: f64) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for FieldValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for FieldValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// The named fields of an event, by which filters decide.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldSet {
    /// Ascending by name, each name once.
    fields: Vec<(Arc<str>, FieldValue)>,
}

impl FromIterator<(Arc<str>, FieldValue)> for FieldSet {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, FieldValue)>>(fields: I) -> Self {
        Self::from_unsorted(fields.into_iter().collect())
    }
}

impl FieldSet {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the set with one more field, which replaces a field of the same name.
    #[must_use]
    pub fn with(mut self, name: impl Into<Arc<str>>, value: impl Into<FieldValue>) -> Self {
        self.set(name, value);
        self
    }

    /// Adds a field, or replaces the field of that name.
    pub fn set(&mut self, name: impl Into<Arc<str>>, value: impl Into<FieldValue>) {
        let (name, value) = (name.into(), value.into());
        match self.place(&name) {
            Ok(at) => self.fields[at].1 = value,
            Err(at) => self.fields.insert(at, (name, value)),
        }
    }

    /// Makes a set of fields that are given in any order. Of several fields with the same name, the last one
    /// counts. Cost: a sort of the fields.
    fn from_unsorted(mut fields: Vec<(Arc<str>, FieldValue)>) -> Self {
        fields.reverse();
        fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        fields.dedup_by(|(later, _), (first, _)| later == first);
        Self { fields }
    }

    #[must_use]
    pub fn field(&self, name: &str) -> Option<&FieldValue> {
        self.place(name).ok().map(|at| &self.fields[at].1)
    }

    /// Returns the fields, ascending by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &FieldValue)> {
        self.fields.iter().map(|(name, value)| (name, value))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns about how many bytes of memory the fields take.
    pub(crate) fn memory(&self) -> usize {
        let of = |(name, value): &(Arc<str>, FieldValue)| {
            let text = if let FieldValue::Text(text) = value { text.len() } else { 0 };
            size_of::<(Arc<str>, FieldValue)>() + name.len() + text
        };
        self.fields.iter().map(of).sum()
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.fields.binary_search_by(|(other, _)| (**other).cmp(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_whole_decimal_is_the_whole_number() {
        assert_eq!(Numeric::from(3.0), Numeric::from(3));
        assert_eq!(Numeric::from(-0.0), Numeric::from(0));
        assert_ne!(Numeric::from(2.5), Numeric::from(2));
    }

    #[test]
    fn whole_numbers_beyond_the_precision_of_decimals_compare_exactly() {
        let (even, odd) = (Numeric::from(1_i64 << 53), Numeric::from((1_i64 << 53) + 1));
        assert_eq!(even.compare(odd), Some(Ordering::Less));
        assert_eq!(Numeric::from(i64::MAX).compare(END.into()), Some(Ordering::Less));
        assert_eq!(Numeric::from(i64::MIN).compare((-1e300).into()), Some(Ordering::Greater));
        assert_eq!(Numeric::from(f64::NAN).compare(Numeric::from(f64::NAN)), None);
    }

    proptest! {
        #[test]
        fn fields_in_any_order_are_those_that_were_set_one_by_one(
            fields in prop::collection::vec(("[a-c]{1,2}", any::<i64>()), 0..30),
        ) {
            let one_by_one = fields.iter().fold(FieldSet::new(), |set, (name, value)| set.with(name.as_str(), *value));
            let all: FieldSet = fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            prop_assert_eq!(all, one_by_one);
        }

        #[test]
        fn the_order_key_never_contradicts_the_order(one: f64, other: i64, third: f64) {
            let numbers = [Numeric::from(one), Numeric::from(other), Numeric::from(third)];
            for one in numbers {
                for other in numbers {
                    let keys = (one.order_key(), other.order_key());
                    match one.compare(other) {
                        None => prop_assert!(keys.0.is_none() || keys.1.is_none()),
                        Some(Ordering::Less) => prop_assert!(keys.0 <= keys.1),
                        Some(Ordering::Equal) => prop_assert!(keys.0 == keys.1),
                        Some(Ordering::Greater) => prop_assert!(keys.0 >= keys.1),
                    }
                }
            }
        }
    }
}
