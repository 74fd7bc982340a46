//! A notation for values of the records: figure F of variant V where P.
//!
//! ```text
//!   gang.work                               a figure of a variant
//!   gang.work/processors                    the quotient of two figures of a run
//!   gang.work@interval_us=10,place=cross    of the runs with these parameter values
//!   gang.work@interval_us=most              with the greatest value of the parameter (`least`: the smallest)
//!   tun-spin|tun.delay_us                   of the first of these variants that has the figure
//!   gang/linux.work                         the ratio of two variants, pair by pair
//!   gang/linux.work@interval_us=each        one ratio for each value of the parameter
//! ```
//! Study files, claims and sentences write selectors, and records hold the parts ([`Verdict`]). A value is
//! written as in JSON; a word that is no JSON is a string. Strings with a comma cannot be written.

use crate::quantile;
use crate::record::{RunLine, Verdict};
use serde::Deserialize;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Values of the records. Its parts are in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct Selector {
    /// The variants; a lookup takes the first that has a value.
    pub variants: Vec<String>,
    /// The variant to compare with.
    pub against: Option<String>,
    pub figure: String,
    /// The figure of the same run by which `figure` is divided.
    pub divisor: Option<String>,
    pub conditions: BTreeMap<String, Condition>,
}

/// The wanted value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    Is(Value),
    Least,
    Most,
    /// Every value, each for itself.
    Each,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadSelector {
    #[error("{0:?} names no figure of a variant; write VARIANT.FIGURE")]
    NoFigure(String),
    #[error("{0:?} is no condition; write PARAMETER=VALUE")]
    NoCondition(String),
}

impl Selector {
    /// Returns the value of a run: the figure, or the quotient of two figures.
    pub fn value_of(&self, run: &RunLine) -> Option<f64> {
        run.quotient(&self.figure, self.divisor.as_deref())
    }

    /// Returns the parameter values that the conditions select among these runs. [`Condition::Each`] selects
    /// no value. `None` if no run has the parameter.
    pub fn place(&self, runs: &[&RunLine]) -> Option<BTreeMap<String, Value>> {
        let fixed = self.conditions.iter().filter(|(_, condition)| **condition != Condition::Each);
        fixed.map(|(name, condition)| Some((name.clone(), condition.value(name, runs)?))).collect()
    }

    /// Returns the values of the first variant that has any, in the order of the runs.
    pub fn values(&self, runs: &[&RunLine]) -> Vec<f64> {
        let Some(place) = self.place(runs) else { return Vec::new() };
        let values_of = |variant: &String| -> Vec<f64> {
            let there = runs.iter().filter(|run| run.variant == *variant && run.has_parameters(&place));
            there.filter_map(|run| self.value_of(run)).collect()
        };
        self.variants.iter().map(values_of).find(|values| !values.is_empty()).unwrap_or_default()
    }

    pub fn median(&self, runs: &[&RunLine]) -> Option<f64> {
        quantile::median(&self.values(runs))
    }

    /// Returns the same selector for one other variant, compared with nothing.
    #[must_use]
    pub fn of_variant(&self, variant: &str) -> Self {
        Self { variants: vec![variant.to_owned()], against: None, ..self.clone() }
    }

    /// Returns whether a comparison at parameter values answers this selector: the same sides and figure, all
    /// conditions, and no split by another parameter.
    pub fn is_answered_by(&self, verdict: &Verdict, place: &BTreeMap<String, Value>) -> bool {
        self.variants.contains(&verdict.variant)
            && self.against.as_ref() == Some(&verdict.against)
            && self.figure == verdict.figure
            && self.divisor == verdict.divisor
            && verdict.by.as_ref().is_none_or(|by| self.conditions.contains_key(by))
            && self.conditions.iter().all(|(name, condition)| match condition {
                Condition::Is(wanted) => place.get(name).is_some_and(|value| same_value(value, wanted)),
                _ => false,
            })
    }
}

impl Condition {
    /// Returns the selected value of the parameter among these runs.
    pub fn value(&self, name: &str, runs: &[&RunLine]) -> Option<Value> {
        let numbers =
            runs.iter().filter_map(|run| run.parameters.get(name)).filter(|value| value.is_number());
        let ascending =
            |a: &&Value, b: &&Value| a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal);
        match self {
            Self::Is(value) => Some(value.clone()),
            Self::Least => numbers.min_by(ascending).cloned(),
            Self::Most => numbers.max_by(ascending).cloned(),
            Self::Each => None,
        }
    }
}

/// Returns the conditions that hold at these parameter values.
pub fn conditions(place: &BTreeMap<String, Value>) -> BTreeMap<String, Condition> {
    place.iter().map(|(name, value)| (name.clone(), Condition::Is(value.clone()))).collect()
}

/// Returns whether two values of a parameter are the same; `2` and `2.0` are.
pub(crate) fn same_value(a: &Value, b: &Value) -> bool {
    a == b || a.as_f64().zip(b.as_f64()).is_some_and(|(a, b)| a == b)
}

/// Returns the values of a parameter in these runs, ascending: numbers before the others.
pub fn parameter_values<'r>(runs: &[&'r RunLine], name: &str) -> Vec<&'r Value> {
    let mut values: Vec<&Value> = runs.iter().filter_map(|run| run.parameters.get(name)).collect();
    values.sort_by(|a, b| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (None, None) => a.to_string().cmp(&b.to_string()),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
    values.dedup_by(|a, b| same_value(a, b));
    values
}

impl FromStr for Condition {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "least" => Self::Least,
            "most" => Self::Most,
            "each" => Self::Each,
            value => Self::Is(serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))),
        })
    }
}

impl FromStr for Selector {
    type Err = BadSelector;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (head, conditions) = text.split_once('@').map_or((text, None), |(head, rest)| (head, Some(rest)));
        // names of variants may have a dot, names of figures have none
        let Some((variants, figures)) = head.rsplit_once('.').filter(|(a, b)| !a.is_empty() && !b.is_empty())
        else {
            return Err(BadSelector::NoFigure(text.to_owned()));
        };
        let pair = |text: &str| match text.split_once('/') {
            Some((one, other)) => (one.to_owned(), Some(other.to_owned())),
            None => (text.to_owned(), None),
        };
        let ((variants, against), (figure, divisor)) = (pair(variants), pair(figures));
        let condition = |part: &str| match part.split_once('=') {
            Some((name, value)) if !name.is_empty() && !value.is_empty() => {
                let Ok(condition) = value.parse::<Condition>();
                Ok((name.to_owned(), condition))
            }
            _ => Err(BadSelector::NoCondition(part.to_owned())),
        };
        let conditions = conditions.into_iter().flat_map(|all| all.split(','));
        Ok(Self {
            variants: variants.split('|').map(str::to_owned).collect(),
            against,
            figure,
            divisor,
            conditions: conditions.map(condition).collect::<Result<_, _>>()?,
        })
    }
}

impl TryFrom<String> for Selector {
    type Error = BadSelector;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Least => f.write_str("least"),
            Self::Most => f.write_str("most"),
            Self::Each => f.write_str("each"),
            // a string that would be read as something else keeps its quotes
            Self::Is(Value::String(text)) if text.parse() == Ok(self.clone()) => f.write_str(text),
            Self::Is(value) => value.fmt(f),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.variants.join("|"))?;
        if let Some(against) = &self.against {
            write!(f, "/{against}")?;
        }
        write!(f, ".{}", self.figure)?;
        if let Some(divisor) = &self.divisor {
            write!(f, "/{divisor}")?;
        }
        for (at, (name, condition)) in self.conditions.iter().enumerate() {
            write!(f, "{}{name}={condition}", if at == 0 { '@' } else { ',' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Figure;
    use proptest::prelude::*;

    fn selector(text: &str) -> Selector {
        text.parse().expect("a selector")
    }

    fn run(variant: &str, at: u32, work: f64, processors: f64) -> RunLine {
        RunLine {
            variant: variant.into(),
            parameters: BTreeMap::from([("at".to_owned(), at.into())]),
            figures: vec![Figure::new("work", work, "1/s"), Figure::new("processors", processors, "1")],
            ..RunLine::default()
        }
    }

    #[test]
    fn each_part_of_a_selector_has_its_place() {
        let all = selector("a.b|c/d-e.work/processors@at=1,how=cross,for=each,text=\"2\"");
        let is = |value: Value| Condition::Is(value);
        let conditions = [
            ("at", is(1.into())),
            ("how", is("cross".into())),
            ("for", Condition::Each),
            ("text", is("2".into())),
        ];
        assert_eq!(
            all,
            Selector {
                variants: vec!["a.b".into(), "c".into()],
                against: Some("d-e".into()),
                figure: "work".into(),
                divisor: Some("processors".into()),
                conditions: conditions.map(|(name, value)| (name.to_owned(), value)).into(),
            }
        );
        assert_eq!(all.to_string(), "a.b|c/d-e.work/processors@at=1,for=each,how=cross,text=\"2\"");
    }

    #[test]
    fn values_of_a_parameter_ascend_with_numbers_first() {
        let at = |value: Value| RunLine {
            parameters: BTreeMap::from([("at".to_owned(), value)]),
            ..RunLine::default()
        };
        let runs = ["all".into(), 10.into(), Value::Bool(true), 2.into(), 2.0.into()].map(at);
        let values = parameter_values(&runs.each_ref(), "at");
        assert_eq!(values, [&2.into(), &10.into(), &"all".into(), &Value::Bool(true)]);
    }

    #[test]
    fn a_selector_without_a_figure_or_a_value_is_refused() {
        let refused = |text: &str| text.parse::<Selector>().expect_err("it is no selector").to_string();
        assert_eq!(refused("gang"), "\"gang\" names no figure of a variant; write VARIANT.FIGURE");
        assert_eq!(refused(".work"), "\".work\" names no figure of a variant; write VARIANT.FIGURE");
        assert_eq!(refused("gang.work@at"), "\"at\" is no condition; write PARAMETER=VALUE");
    }

    #[test]
    fn a_lookup_takes_the_first_variant_with_values_at_the_place() {
        let runs =
            [run("a", 1, 4.0, 2.0), run("a", 2, 6.0, 2.0), run("a", 2, 8.0, 2.0), run("b", 3, 9.0, 1.0)];
        let runs: Vec<&RunLine> = runs.iter().collect();
        let median = |text: &str| selector(text).median(&runs);
        assert_eq!(median("a.work@at=2.0"), Some(7.0));
        assert_eq!(median("a.work/processors@at=least"), Some(2.0));
        assert_eq!(median("c|a.work"), Some(6.0));
        assert_eq!(median("a.work@at=most"), None, "only b was measured there");
        assert_eq!(median("b.work@at=most"), Some(9.0));
        assert_eq!(median("a.idle"), None);
        assert_eq!(median("a.work@unknown=most"), None);
    }

    proptest! {
        #[test]
        fn a_written_selector_is_read_back(
            variants in prop::collection::vec("[a-z0-9.-]{1,5}", 1..3),
            against in prop::option::of("[a-z-]{1,5}"),
            figure in "[a-z_]{1,5}",
            divisor in prop::option::of("[a-z_]{1,5}"),
            conditions in prop::collection::btree_map("[a-z_]{1,5}", prop_oneof![
                Just(Condition::Least),
                Just(Condition::Most),
                Just(Condition::Each),
                any::<i32>().prop_map(|number| Condition::Is(number.into())),
                any::<bool>().prop_map(|flag| Condition::Is(flag.into())),
                "[a-z0-9 -]{1,6}|least|most|each".prop_map(|text| Condition::Is(text.into())),
            ], 0..3),
        ) {
            let one = Selector { variants, against, figure, divisor, conditions };
            prop_assert_eq!(one.to_string().parse::<Selector>().expect("as written"), one);
        }
    }
}
