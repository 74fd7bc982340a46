//! Changes the terms of one class of a policy, without reading the rest of its subscribers' table.
//!
//! ```text
//!   text in force --> find the class, write its weight and ceiling --> text with the change
//!                                                                          |
//!              refused, as `Policy::parse` would refuse it <-- checked <-- classes without matches
//! ```
//! Nearly all the time of [`Policy::parse`] goes into the matches of the rows: addresses are parsed, indexed
//! and compared with each other. A change of weight or ceiling leaves them as they are. So the classes are
//! read without them, and checked by the same code.
//!
//! Cost: one pass over the text, and for each class a part of a microsecond.

use super::error::Mistake;
use super::read::{ClassLine, HEADING, KEYS, RowMatches, Written, read};
use super::subscribers::{MBIT, broken_promise};
use super::{Policy, ROOT, check};
use crate::hierarchy::ClassId;
use crate::rate::Rate;
use crate::weight::Weight;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use unisono_text::nearest;

/// Other terms for one class. A term that is `None` stays as it is.
///
/// ```
/// use unisono_fairqueue::TermsChange;
///
/// let text = "rate = \"100mbit\"\n[class.video]\nweight = 3\n[class.rest]\n";
/// let change = TermsChange {
///     weight: Some("1".parse()?),
///     ceiling: Some("80mbit".parse()?),
///     ..TermsChange::for_class("video")
/// };
/// let changed = change.apply_to(text)?;
/// assert!(changed.text.contains("weight = 1\n") && changed.text.contains("ceiling = \"80mbit\"\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TermsChange {
    pub class: String,
    /// For a class of a subscriber: the guaranteed rate.
    pub rate: Option<Rate>,
    /// For any other class.
    pub weight: Option<Weight>,
    pub ceiling: Option<Rate>,
}

/// Why a class cannot have these terms. All that a caller can do is show it to the user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}")]
#[non_exhaustive]
pub struct TermsChangeError {
    pub what: String,
}

/// A policy with a change.
#[derive(Clone, Debug)]
pub struct ChangedPolicy {
    /// The whole text, with all matches.
    pub text: String,
    /// The policy without the matches of its subscribers: good for all but the assignment of packets to
    /// classes.
    pub classes: Policy,
    pub class: ClassId,
}

/// The terms of a class.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ClassTerms {
    pub class: String,
    pub weight: f64,
    /// Bits a second while all classes are backlogged.
    pub guarantee: f64,
    /// Bits a second.
    pub ceiling: u64,
}

impl ChangedPolicy {
    /// Returns the terms of the changed class.
    pub fn terms(&self) -> ClassTerms {
        let class = self.classes.hierarchy.class(self.class);
        ClassTerms {
            class: class.name.clone(),
            weight: class.weight.to_f64(),
            guarantee: self.classes.guarantee(self.class),
            ceiling: self.classes.ceiling(self.class).bits_per_second(),
        }
    }
}

fn refuse<T>(what: impl Into<String>) -> Result<T, TermsChangeError> {
    Err(TermsChangeError { what: what.into() })
}

impl TermsChange {
    /// Returns a change that leaves a class as it is.
    pub fn for_class(class: &str) -> Self {
        Self { class: class.to_owned(), rate: None, weight: None, ceiling: None }
    }

    /// Returns the weight that the class gets, if it changes. A subscriber's weight is the guaranteed rate in
    /// Mbit/s. Fails if the rate has too many digits for a weight.
    pub fn new_weight(&self) -> Result<Option<Weight>, TermsChangeError> {
        let Some(rate) = self.rate else { return Ok(self.weight) };
        let weight = (rate.bits_per_second() as f64 / MBIT).to_string();
        weight.parse().map(Some).or_else(|error| refuse(format!("the rate {rate}, in Mbit/s: {error}")))
    }

    /// Returns the policy with this change, in whose `text` the class is. Fails, among other reasons, if
    /// [`Policy::parse`] would refuse the policy, or if a subscriber would not get the guaranteed rate.
    pub fn apply_to(&self, text: &str) -> Result<ChangedPolicy, TermsChangeError> {
        let weight = self.new_weight()?;
        let rows = rows_of(text);
        let row = find_row(text, rows, &self.class);
        let name = &self.class;
        if row.is_some() && self.weight.is_some() {
            return refuse(format!(
                "`{name}` is a subscriber, whose weight is the guaranteed rate; say the rate instead"
            ));
        }
        if row.is_none() && self.rate.is_some() && self.is_declared(&text[..rows]) {
            return refuse(format!(
                "class `{name}` is not from a table of subscribers; its guaranteed rate follows from its weight: say the weight \
                 instead"
            ));
        }
        let written = [
            (ClassLine::Weight, "weight", weight.map(|weight| weight.to_string())),
            (ClassLine::Ceiling, "ceiling", self.ceiling.map(|ceiling| format!("\"{ceiling}\""))),
        ];
        let mut changed = text.to_owned();
        for (line, key, value) in written {
            let Some(value) = value else { continue };
            let place = match row {
                Some(row) => line.find(&changed, row).map(|line| (line, format!("{key} = {value}"))),
                None => {
                    // the text before the rows may have become longer
                    let head = changed.len() - (text.len() - rows);
                    place_in_toml(&changed[..head], name, key, &value)
                }
            };
            let Some((place, value)) = place else { return refuse(self.not_found(text)) };
            changed.replace_range(place, &value);
        }
        self.check(changed, weight)
    }

    /// Checks the changed text.
    fn check(&self, text: String, weight: Option<Weight>) -> Result<ChangedPolicy, TermsChangeError> {
        let place = |Mistake { at, what }: Mistake| TermsChangeError { what: in_class(&text, at, &what) };
        let written = read(&text, RowMatches::Skipped).map_err(place)?;
        let rows = rows_of(&text);
        let mut promised: Vec<(String, f64)> = written
            .classes
            .iter()
            .filter(|class| class.name.at > rows)
            .filter_map(|class| Some((class.name.value.clone(), class.weight?.to_f64() * MBIT)))
            .collect();
        // the user knows this class, and hears of it first
        promised.sort_by_key(|(name, _)| *name != self.class);
        let classes = checked(&text, written).map_err(place)?;
        let hierarchy = &classes.hierarchy;
        let found = hierarchy.find(&self.class).filter(|class| *class != ClassId::ROOT);
        let is_as_wanted = |class: &ClassId| {
            weight.is_none_or(|weight| hierarchy.class(*class).weight == weight)
                && (self.ceiling.is_none() || classes.ceilings[class.index()] == self.ceiling)
        };
        let Some(class) = found.filter(is_as_wanted) else {
            return refuse(self.not_alone());
        };
        let guarantees = classes.guarantees();
        for (name, promised) in promised {
            let Some(class) = hierarchy.find(&name) else { continue };
            let ceiling = classes.ceiling(class);
            if promised > ceiling.bits_per_second() as f64 {
                let rate = promised / MBIT;
                return refuse(format!(
                    "`{name}`: the guaranteed rate {rate}mbit is above the ceiling {ceiling}"
                ));
            }
            if let Some(what) = broken_promise(&classes, &guarantees, class, promised) {
                return refuse(what);
            }
        }
        Ok(ChangedPolicy { class, classes, text })
    }

    fn is_declared(&self, head: &str) -> bool {
        DeTable::parse(head).is_ok_and(|document| {
            document.get_ref().get("class").is_some_and(|classes| find_table(classes, &self.class).is_some())
        })
    }

    fn not_alone(&self) -> String {
        format!(
            "class `{}` is written in a form that cannot be changed alone; change the policy, and apply it",
            self.class
        )
    }

    /// Says why a text has no place for the terms of the class.
    fn not_found(&self, text: &str) -> String {
        let name = &self.class;
        let policy = read(text, RowMatches::Skipped).and_then(|written| checked(text, written));
        let Ok(policy) = policy else {
            return format!(
                "the policy in force cannot be read, so `{name}` cannot be found; apply it again"
            );
        };
        if name != ROOT && policy.hierarchy.find(name).is_some() {
            return self.not_alone();
        }
        let names = || policy.hierarchy.classes().skip(1).map(|(_, class)| class.name.as_str());
        match nearest(name, names()) {
            Some(near) => format!("the policy in force has no class `{name}`; did you mean `{near}`?"),
            None if names().count() <= MAX_LISTED => format!(
                "the policy in force has no class `{name}`; its classes are {}",
                names().collect::<Vec<_>>().join(", ")
            ),
            None => format!(
                "the policy in force has no class `{name}`; a new subscriber is added to the table, and the policy applied"
            ),
        }
    }
}

fn checked(text: &str, written: Written) -> Result<Policy, Mistake> {
    check::check(text, written, &|at| at.to_string())
}

/// The most classes that a message lists.
const MAX_LISTED: usize = 20;

/// Returns the offset of the first row's class, or of the end of the text.
fn rows_of(text: &str) -> usize {
    text.find(HEADING).map_or(text.len(), |at| at + HEADING.len())
}

/// Returns the offset of a class among the rows, which begin at `rows`.
fn find_row(text: &str, rows: usize, name: &str) -> Option<usize> {
    // with the end of the line before
    let begin = rows.checked_sub(1).filter(|_| rows < text.len())?;
    Some(begin + text[begin..].find(&format!("\n[class.{name}]\n"))? + 1)
}

/// Returns the bytes of a text to replace, and what by, so that a class that is written in it has this value.
/// The caller checks the result, because TOML has more forms than are known here.
fn place_in_toml(text: &str, class: &str, key: &str, value: &str) -> Option<(Range<usize>, String)> {
    let document = DeTable::parse(text).ok()?;
    let found = find_table(document.get_ref().get("class")?, class)?;
    let table = found.get_ref().as_table()?;
    if let Some(present) = table.get(key) {
        return Some((present.span(), value.to_owned()));
    }
    let is_inline = text[found.span()].starts_with('{');
    let is_simple = |value: &DeValue<'_>| !matches!(value, DeValue::Table(_));
    let first = table.iter().filter(|(_, value)| is_simple(value.get_ref())).map(|(key, _)| key.span().start);
    let end = if is_inline { ", " } else { "\n" };
    if let Some(at) = first.min() {
        // before the key there may be others, as in `class.a.packets = 5`
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        if !is_inline && !text[line..at].trim().is_empty() {
            return None;
        }
        return Some((at..at, format!("{key} = {value}{end}")));
    }
    // a heading without keys, which may be the last line of the text
    let line = found.span().start;
    let at = line + text[line..].find('\n').unwrap_or(text.len() - line);
    (!is_inline).then(|| (at..at, format!("\n{key} = {value}")))
}

/// Finds the table of a class among these classes and those inside of them.
fn find_table<'t, 'a>(classes: &'t Spanned<DeValue<'a>>, name: &str) -> Option<&'t Spanned<DeValue<'a>>> {
    let table = classes.get_ref().as_table()?;
    let tables = || {
        table.iter().filter(|(key, value)| {
            matches!(value.get_ref(), DeValue::Table(_)) && !KEYS.contains(&key.get_ref().as_ref())
        })
    };
    let here = tables().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value);
    here.or_else(|| tables().find_map(|(_, value)| find_table(value, name)))
}

/// Returns a message with the name of the class that has the mistake: users do not see the text in force, so
/// its lines say nothing to them.
fn in_class(text: &str, at: usize, what: &str) -> String {
    let class = read(text, RowMatches::Skipped).ok().and_then(|written| {
        let before = written.classes.into_iter().filter(|class| class.name.at <= at);
        Some(before.max_by_key(|class| class.name.at)?.name.value)
    });
    class.map_or_else(|| what.to_owned(), |class| format!("class `{class}`: {what}"))
}

#[cfg(test)]
mod tests;
