//! A filter as a tree of conditions. The tree is simplified, so that equivalent filters tend to have equal
//! trees, and so that an index can find the conditions by which to look up a filter.
//!
//! `not` is pushed down to the single conditions (De Morgan), nested `and`s and `or`s are flattened,
//! constants are eliminated, and the bounds of one field in one `and` become one range: `x >= 5 and x < 10`
//! is a single condition.

use crate::value::{FieldSet, FieldValue, Numeric};
use std::cmp::Ordering;
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Clause {
    Always(bool),
    All(Vec<Clause>),
    Any(Vec<Clause>),
    Is(Predicate),
    IsNot(Predicate),
}

impl Clause {
    pub(super) fn operations(&self) -> usize {
        match self {
            Self::Always(_) => 1,
            Self::All(parts) | Self::Any(parts) => 1 + parts.iter().map(Self::operations).sum::<usize>(),
            Self::Is(predicate) | Self::IsNot(predicate) => predicate.operations(),
        }
    }

    pub(super) fn compared_fields(&self) -> Option<(&str, &str)> {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().find_map(Self::compared_fields),
            Self::Is(Predicate::Compare(sides)) | Self::IsNot(Predicate::Compare(sides)) => match &**sides {
                (Operand::Field(one), how, Operand::Field(other)) if !how.orders() => {
                    Some((&**one, &**other))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

impl Predicate {
    fn operations(&self) -> usize {
        match self {
            Self::OneOf(_, values) => values.len(),
            Self::Compare(sides) => sides.0.operations() + sides.2.operations(),
            _ => 1,
        }
    }
}

/// One condition. Each is false for an event that lacks its field.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Predicate {
    /// The value is not NaN, because a filter cannot express NaN.
    Equal(Arc<str>, FieldValue),
    /// Two or more values.
    OneOf(Arc<str>, Vec<FieldValue>),
    Within(Arc<str>, NumericRange),
    Starts(Arc<str>, Arc<str>),
    Exists(Arc<str>),
    Compare(Box<(Operand, Comparator, Operand)>),
}

/// The numbers between two bounds. A bound is a number, and whether the number itself is in the range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct NumericRange {
    pub(crate) low: Option<(Numeric, bool)>,
    pub(crate) high: Option<(Numeric, bool)>,
}

impl NumericRange {
    pub(crate) fn contains(&self, number: Numeric) -> bool {
        let beyond = |bound: Option<(Numeric, bool)>, side: Ordering| {
            bound.is_none_or(|(bound, within)| match number.compare(bound) {
                Some(Ordering::Equal) => within,
                Some(order) => order == side,
                None => false,
            })
        };
        number.compare(number).is_some()
            && beyond(self.low, Ordering::Greater)
            && beyond(self.high, Ordering::Less)
    }

    fn intersect(self, other: Self) -> Self {
        let tighter =
            |one: Option<(Numeric, bool)>, other: Option<(Numeric, bool)>, side: Ordering| match (one, other)
            {
                (Some(one), Some(other)) => match one.0.compare(other.0) {
                    Some(Ordering::Equal) => Some((one.0, one.1 && other.1)),
                    Some(order) if order == side => Some(one),
                    _ => Some(other),
                },
                (one, other) => one.or(other),
            };
        Self {
            low: tighter(self.low, other.low, Ordering::Greater),
            high: tighter(self.high, other.high, Ordering::Less),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Comparator {
    Equal,
    Different,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Comparator {
    pub(super) fn from_sign(sign: &str) -> Self {
        match sign {
            "==" => Self::Equal,
            "!=" => Self::Different,
            "<" => Self::Less,
            "<=" => Self::AtMost,
            ">" => Self::Greater,
            _ => Self::AtLeast,
        }
    }

    /// Returns whether the comparison needs an order, which only numbers have.
    pub(super) fn orders(self) -> bool {
        !matches!(self, Self::Equal | Self::Different)
    }

    fn mirrored(self) -> Self {
        match self {
            Self::Equal | Self::Different => self,
            Self::Less => Self::Greater,
            Self::Greater => Self::Less,
            Self::AtMost => Self::AtLeast,
            Self::AtLeast => Self::AtMost,
        }
    }

    fn holds(self, one: &FieldValue, other: &FieldValue) -> bool {
        let order = match (one, other) {
            (FieldValue::Number(one), FieldValue::Number(other)) => match one.compare(*other) {
                Some(order) => order,
                None => return self == Self::Different,
            },
            _ if self.orders() => return false,
            _ if one == other => Ordering::Equal,
            _ => Ordering::Less,
        };
        match self {
            Self::Equal => order.is_eq(),
            Self::Different => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

/// A side of a comparison.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Operand {
    Literal(FieldValue),
    Field(Arc<str>),
    Calculated(Box<(Operand, char, Operand)>),
}

impl Operand {
    fn operations(&self) -> usize {
        match self {
            Self::Literal(_) | Self::Field(_) => 1,
            Self::Calculated(sides) => 1 + sides.0.operations() + sides.2.operations(),
        }
    }

    /// Makes a calculation, or returns `None` if one of its sides can never be a number.
    pub(super) fn calculated(one: Self, sign: &str, other: Self) -> Option<Self> {
        let sign = sign.chars().next()?;
        match (&one, &other) {
            (Self::Literal(FieldValue::Number(one)), Self::Literal(FieldValue::Number(other))) => {
                Some(Self::Literal(FieldValue::Number(one.calculate(sign, *other))))
            }
            (Self::Literal(FieldValue::Bool(_) | FieldValue::Text(_)), _)
            | (_, Self::Literal(FieldValue::Bool(_) | FieldValue::Text(_))) => None,
            _ => Some(Self::Calculated(Box::new((one, sign, other)))),
        }
    }

    /// Evaluates the operand. Returns `None` if a field is missing, or if its value is not a number where one
    /// is needed.
    fn value(&self, fields: &FieldSet) -> Option<FieldValue> {
        match self {
            Self::Literal(value) => Some(value.clone()),
            Self::Field(name) => fields.field(name).cloned(),
            Self::Calculated(_) => self.number(fields).map(FieldValue::Number),
        }
    }

    fn number(&self, fields: &FieldSet) -> Option<Numeric> {
        let number = |value: &FieldValue| match value {
            FieldValue::Number(number) => Some(*number),
            _ => None,
        };
        match self {
            Self::Literal(value) => number(value),
            Self::Field(name) => fields.field(name).and_then(number),
            Self::Calculated(calculation) => {
                let (one, sign, other) = &**calculation;
                Some(one.number(fields)?.calculate(*sign, other.number(fields)?))
            }
        }
    }

    /// Returns a field that the operand needs.
    fn needs(&self) -> Option<&Arc<str>> {
        match self {
            Self::Literal(_) => None,
            Self::Field(name) => Some(name),
            Self::Calculated(calculation) => calculation.0.needs().or_else(|| calculation.2.needs()),
        }
    }
}

impl Predicate {
    pub(super) fn one_of(name: Arc<str>, mut values: Vec<FieldValue>) -> Self {
        let mut seen = std::collections::HashSet::new();
        values.retain(|value| seen.insert(value.clone()));
        match values.len() {
            1 => Self::Equal(name, values.swap_remove(0)),
            _ => Self::OneOf(name, values),
        }
    }

    pub(crate) fn holds(&self, fields: &FieldSet) -> bool {
        match self {
            Self::Equal(name, value) => fields.field(name) == Some(value),
            Self::OneOf(name, values) => fields.field(name).is_some_and(|value| values.contains(value)),
            Self::Within(name, range) => {
                matches!(fields.field(name), Some(FieldValue::Number(number)) if range.contains(*number))
            }
            Self::Starts(name, prefix) => {
                matches!(fields.field(name), Some(FieldValue::Text(text)) if text.starts_with(&**prefix))
            }
            Self::Exists(name) => fields.field(name).is_some(),
            Self::Compare(comparison) => {
                let (one, how, other) = &**comparison;
                match (one.value(fields), other.value(fields)) {
                    (Some(one), Some(other)) => how.holds(&one, &other),
                    _ => false,
                }
            }
        }
    }

    /// Returns a field that the condition needs: without the field, the condition is false. `None`: the
    /// condition compares constants, which no parsed filter does.
    pub(crate) fn needs(&self) -> Option<&Arc<str>> {
        match self {
            Self::Equal(name, _)
            | Self::OneOf(name, _)
            | Self::Within(name, _)
            | Self::Starts(name, _)
            | Self::Exists(name) => Some(name),
            Self::Compare(comparison) => comparison.0.needs().or_else(|| comparison.2.needs()),
        }
    }
}

impl Clause {
    pub(super) fn compared(left: Operand, how: Comparator, right: Operand) -> Self {
        match (left, right) {
            (Operand::Literal(one), Operand::Literal(other)) => Self::Always(how.holds(&one, &other)),
            (Operand::Field(name), Operand::Literal(value)) => Self::with_constant(name, how, value),
            (Operand::Literal(value), Operand::Field(name)) => {
                Self::with_constant(name, how.mirrored(), value)
            }
            (left, right) => Self::Is(Predicate::Compare(Box::new((left, how, right)))),
        }
    }

    fn with_constant(name: Arc<str>, how: Comparator, value: FieldValue) -> Self {
        let compare = |name, value| {
            Self::Is(Predicate::Compare(Box::new((Operand::Field(name), how, Operand::Literal(value)))))
        };
        match (how, value) {
            // a calculation of constants may have given NaN, which equals nothing
            (Comparator::Different, value) => compare(name, value),
            (_, FieldValue::Number(number)) if number.compare(number).is_none() => Self::Always(false),
            (Comparator::Equal, value) => Self::Is(Predicate::Equal(name, value)),
            (_, FieldValue::Number(number)) => {
                let within = matches!(how, Comparator::AtMost | Comparator::AtLeast);
                let bound = Some((number, within));
                let range = match how {
                    Comparator::Less | Comparator::AtMost => NumericRange { low: None, high: bound },
                    _ => NumericRange { low: bound, high: None },
                };
                Self::Is(Predicate::Within(name, range))
            }
            (_, value) => compare(name, value),
        }
    }

    pub(super) fn negated(self) -> Self {
        match self {
            Self::Always(value) => Self::Always(!value),
            Self::All(parts) => Self::any(parts.into_iter().map(Self::negated).collect()),
            Self::Any(parts) => Self::all(parts.into_iter().map(Self::negated).collect()),
            Self::Is(predicate) => Self::IsNot(predicate),
            Self::IsNot(predicate) => Self::Is(predicate),
        }
    }

    /// Makes the clause that is true if all parts are true.
    pub(super) fn all(parts: Vec<Self>) -> Self {
        let mut joined: Vec<Self> = Vec::new();
        let flat = parts.into_iter().flat_map(|part| match part {
            Self::All(inner) => inner,
            other => vec![other],
        });
        for part in flat {
            match part {
                Self::Always(true) => {}
                Self::Always(false) => return Self::Always(false),
                Self::Is(Predicate::Within(name, range)) => {
                    let same = joined.iter_mut().find_map(|other| match other {
                        Self::Is(Predicate::Within(its, range)) if *its == name => Some(range),
                        _ => None,
                    });
                    match same {
                        Some(other) => *other = other.intersect(range),
                        None => joined.push(Self::Is(Predicate::Within(name, range))),
                    }
                }
                other => joined.push(other),
            }
        }
        match joined.len() {
            0 => Self::Always(true),
            1 => joined.swap_remove(0),
            _ => Self::All(joined),
        }
    }

    /// Makes the clause that is true if any part is true.
    pub(super) fn any(parts: Vec<Self>) -> Self {
        let mut joined: Vec<Self> = Vec::new();
        let flat = parts.into_iter().flat_map(|part| match part {
            Self::Any(inner) => inner,
            other => vec![other],
        });
        for part in flat {
            match part {
                Self::Always(false) => {}
                Self::Always(true) => return Self::Always(true),
                other => joined.push(other),
            }
        }
        match joined.len() {
            0 => Self::Always(false),
            1 => joined.swap_remove(0),
            _ => Self::Any(joined),
        }
    }

    pub(crate) fn holds(&self, fields: &FieldSet) -> bool {
        match self {
            Self::Always(value) => *value,
            Self::All(parts) => parts.iter().all(|part| part.holds(fields)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(fields)),
            Self::Is(predicate) => predicate.holds(fields),
            Self::IsNot(predicate) => !predicate.holds(fields),
        }
    }
}
