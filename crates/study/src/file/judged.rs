//! Verdicts and budgets as study files write them: a [`Selector`] says which values are judged.
//!
//! ```toml
//! [[verdict]]
//! compare = "gang/spread.barriers_per_s@interval_us=each"   # a ratio for each interval
//! sides = ["gangs", "pinned threads"]                       # otherwise the labels of the variants
//! circumstance = "no busy loop"
//!
//! [[budget]]
//! label = "16 B step, fence"
//! value = "engine-fence.step_ns@bytes=16"
//! most = 200
//! ```

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use unisono_measure::Selector;
use unisono_measure::record::{Better, Budget, ExpectedKind, Question, Verdict};
use unisono_measure::selector::Condition;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenVerdict {
    compare: Selector,
    sides: Option<[String; 2]>,
    circumstance: Option<String>,
    bystanders: Option<String>,
    #[serde(default)]
    better: Better,
    expected: Option<f64>,
    expected_from: Option<String>,
    #[serde(default)]
    expected_kind: ExpectedKind,
    answers: Option<Question>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenBudget {
    label: String,
    value: Selector,
    over: Option<String>,
    most: Option<f64>,
    least: Option<f64>,
    #[serde(default)]
    every: bool,
}

pub(super) fn verdicts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Verdict>, D::Error> {
    let written = Vec::<WrittenVerdict>::deserialize(from)?;
    written.into_iter().map(|verdict| verdict.read().map_err(D::Error::custom)).collect()
}

pub(super) fn budgets<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Budget>, D::Error> {
    let written = Vec::<WrittenBudget>::deserialize(from)?;
    written.into_iter().map(|budget| budget.read().map_err(D::Error::custom)).collect()
}

/// Refuses parts of a selector that only a reader of records understands.
fn check(of: &Selector) -> Result<(), String> {
    let is_relative = |condition: &Condition| matches!(condition, Condition::Least | Condition::Most);
    if of.variants.len() != 1 || of.conditions.values().any(is_relative) {
        return Err(format!("\"{of}\" is to name one variant, and values of parameters"));
    }
    Ok(())
}

impl WrittenVerdict {
    fn read(self) -> Result<Verdict, String> {
        check(&self.compare)?;
        let splits = self.compare.conditions.values().filter(|condition| **condition == Condition::Each);
        if self.compare.against.is_none() || splits.count() > 1 {
            return Err(format!(
                "\"{}\" compares nothing; write VARIANT/VARIANT.FIGURE, and `each` for one parameter at most",
                self.compare
            ));
        }
        Ok(Verdict {
            sides: self.sides,
            circumstance: self.circumstance,
            bystanders: self.bystanders,
            better: self.better,
            expected: self.expected,
            expected_from: self.expected_from,
            expected_kind: self.expected_kind,
            answers: self.answers,
            ..Verdict::from(&self.compare)
        })
    }
}

impl WrittenBudget {
    fn read(self) -> Result<Budget, String> {
        check(&self.value)?;
        let Verdict { variant, against, figure, only, divisor: None, by: None, .. } =
            Verdict::from(&self.value)
        else {
            return Err(format!("\"{}\" is to be a figure, or a ratio of two variants", self.value));
        };
        Ok(Budget {
            label: self.label,
            variant,
            figure,
            only,
            divisor: Some(against).filter(|against| !against.is_empty()),
            subtrahend: self.over,
            most: self.most,
            least: self.least,
            every: self.every,
        })
    }
}
