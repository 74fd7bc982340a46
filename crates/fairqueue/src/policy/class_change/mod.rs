//! Changes the terms of one class of a policy: its weight and its ceiling.
//!
//! ```text
//!   terms of the class in the tree --> checked as `Policy::parse` would do --> a few bytes of the text
//!                                         |
//!                                         +-- refused: the terms before
//! ```
//! Nearly all the time of [`Policy::parse`] goes into the matches of the rows: addresses are parsed, indexed
//! and compared with each other. A change of weight or ceiling leaves them as they are, and most checks of
//! the tree as well. So [`Policy::change_terms`] changes two numbers of a policy in memory. Without such a
//! policy, [`TermsChange::apply_to`] first reads a text without its matches.
//!
//! Cost: [`Policy::change_terms`] searches the text once, and computes the guarantees of all classes, a part
//! of a microsecond each. [`TermsChange::apply_to`] takes some microseconds for each class.

use super::read::{ClassForm, ClassLine, HEADING, KEYS, RowMatches, read};
use super::subscribers::{MBIT, broken_promise};
use super::{Policy, check};
use crate::hierarchy::ClassId;
use crate::rate::Rate;
use crate::weight::Weight;
use serde::{Deserialize, Serialize};
use std::iter;
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
/// let changed = change.apply_to(text)?.policy.text;
/// assert!(changed.contains("weight = 1\n") && changed.contains("ceiling = \"80mbit\"\n"));
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
    /// The policy without the matches of its subscribers: good for all but the assignment of packets to
    /// classes. Its text is whole.
    pub policy: Policy,
    pub terms: ClassTerms,
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

    /// Returns the policy of a text with this change. Fails as [`Policy::change_terms`] does, or if the text
    /// is no policy.
    pub fn apply_to(&self, text: &str) -> Result<ChangedPolicy, TermsChangeError> {
        let read = read(text, RowMatches::Skipped);
        let Ok(mut policy) = read.and_then(|written| check::check(text, written, &|at| at.to_string()))
        else {
            let name = &self.class;
            return refuse(format!(
                "the policy in force cannot be read, so `{name}` cannot be found; apply it again"
            ));
        };
        let terms = policy.change_terms(self)?;
        Ok(ChangedPolicy { policy, terms })
    }

    /// Writes this change into the text of a policy that has accepted it ([`Policy::change_terms`]). A change
    /// of another policy may fail, or change something else.
    pub fn write_into(&self, text: &mut String) -> Result<(), TermsChangeError> {
        for (place, written) in self.edits(text)? {
            text.replace_range(place, &written);
        }
        Ok(())
    }

    /// Returns the bytes of a text to replace, and what by, the last ones first.
    fn edits(&self, text: &str) -> Result<Vec<(Range<usize>, String)>, TermsChangeError> {
        let ceiling = self.ceiling.map(|ceiling| format!("\"{ceiling}\""));
        let weight = self.new_weight()?.map(|weight| weight.to_string());
        let rows = rows_of(text);
        if let Some(row) = find_row(text, rows, &self.class) {
            let lines = [(ClassLine::Ceiling, "ceiling", ceiling), (ClassLine::Weight, "weight", weight)];
            let edit = |(line, key, value): (ClassLine, _, Option<String>)| {
                let written = format!("{key} = {}", value?);
                Some(line.find(text, row).map(|place| (place, written)).ok_or_else(|| self.not_alone()))
            };
            return lines.into_iter().filter_map(edit).collect();
        }
        let mut head = text[..rows].to_owned();
        for (key, value) in [("weight", weight), ("ceiling", ceiling)] {
            let Some(value) = value else { continue };
            let place = place_in_toml(&head, &self.class, key, &value);
            let (place, written) = place.ok_or_else(|| self.not_alone())?;
            head.replace_range(place, &written);
        }
        Ok(vec![(0..rows, head)])
    }

    /// Returns whether a text declares the class with these terms. TOML has more forms than are known to
    /// [`place_in_toml`].
    fn is_written_in(&self, text: &str) -> bool {
        let Ok(written) = read(text, RowMatches::Skipped) else { return false };
        let class = written.classes.iter().find(|class| class.name.value == self.class);
        class.is_some_and(|class| {
            let ceiling = class.ceiling.as_ref().map(|ceiling| ceiling.value);
            (self.weight.is_none() || class.weight == self.weight)
                && (self.ceiling.is_none() || ceiling == self.ceiling)
        })
    }

    fn not_alone(&self) -> TermsChangeError {
        let what = format!(
            "class `{}` is written in a form that cannot be changed alone; change the policy, and apply it",
            self.class
        );
        TermsChangeError { what }
    }
}

impl Policy {
    /// Gives a class other terms, also in the policy's text. Fails, among other reasons, if [`Policy::parse`]
    /// would refuse such a policy, or if a subscriber would not get the guaranteed rate. On an error, the
    /// policy is as before.
    pub fn change_terms(&mut self, change: &TermsChange) -> Result<ClassTerms, TermsChangeError> {
        let weight = change.new_weight()?;
        let class = self.hierarchy.find(&change.class).filter(|class| *class != ClassId::ROOT);
        let Some(class) = class else { return refuse(self.no_class(&change.class)) };
        let (name, form) = (&change.class, self.forms[class.index()]);
        match form {
            ClassForm::Row | ClassForm::PromisedRow if change.weight.is_some() => {
                return refuse(format!(
                    "`{name}` is a subscriber, whose weight is the guaranteed rate; say the rate instead"
                ));
            }
            ClassForm::Declared if change.rate.is_some() => {
                return refuse(format!(
                    "class `{name}` is not from a table of subscribers; its guaranteed rate follows from its weight: say the \
                     weight instead"
                ));
            }
            ClassForm::Implied => return Err(change.not_alone()),
            _ => {}
        }
        let edits = change.edits(&self.text)?;
        if form == ClassForm::Declared && !edits.iter().all(|(_, head)| change.is_written_in(head)) {
            return Err(change.not_alone());
        }
        let before = (self.hierarchy.class(class).weight, self.ceilings[class.index()]);
        self.set_terms(class, weight, change.ceiling);
        if change.rate.is_some() {
            self.forms[class.index()] = ClassForm::PromisedRow;
        }
        let guarantees = self.guarantees();
        if let Err(error) = self.check_terms(class, &guarantees) {
            (self.hierarchy.class_mut(class).weight, self.ceilings[class.index()]) = before;
            self.forms[class.index()] = form;
            return Err(error);
        }
        for (place, written) in edits {
            self.text.replace_range(place, &written);
        }
        Ok(ClassTerms {
            class: change.class.clone(),
            weight: self.hierarchy.class(class).weight.to_f64(),
            guarantee: guarantees[class.index()],
            ceiling: self.ceiling(class).bits_per_second(),
        })
    }

    /// Checks the policy after a change of the terms of one class.
    fn check_terms(&self, changed: ClassId, guarantees: &[f64]) -> Result<(), TermsChangeError> {
        let tree = &self.hierarchy;
        let mut open = vec![changed];
        while let Some(class) = open.pop() {
            self.check_ceiling(class)?;
            open.extend(&tree.class(class).children);
        }
        // the user knows the changed class, and hears of it first
        let others = tree.classes().map(|(class, _)| class).filter(|class| *class != changed);
        for class in iter::once(changed).chain(others) {
            if self.forms[class.index()] != ClassForm::PromisedRow {
                continue;
            }
            let promised = tree.class(class).weight.to_f64() * MBIT;
            let ceiling = self.ceiling(class);
            if promised > ceiling.bits_per_second() as f64 {
                let (name, rate) = (&tree.class(class).name, promised / MBIT);
                return refuse(format!(
                    "`{name}`: the guaranteed rate {rate}mbit is above the ceiling {ceiling}"
                ));
            }
            if let Some(what) = broken_promise(self, guarantees, class, promised) {
                return refuse(what);
            }
        }
        Ok(())
    }

    /// Checks the ceiling of a class against the link and the classes above it. The error has no position:
    /// users do not see the text in force.
    fn check_ceiling(&self, class: ClassId) -> Result<(), TermsChangeError> {
        let Some(ceiling) = self.ceilings[class.index()] else { return Ok(()) };
        let name = &self.hierarchy.class(class).name;
        if ceiling > self.rate {
            return refuse(format!(
                "class `{name}`: the ceiling {ceiling} is over the link's rate; write at most \"{}\"",
                self.rate
            ));
        }
        let mut above = self.hierarchy.class(class).parent;
        while above != ClassId::ROOT {
            if let Some(lower) = self.ceilings[above.index()].filter(|above| *above < ceiling) {
                return refuse(format!(
                    "class `{name}`: the ceiling {ceiling} is over that of `{}` above it; write at most \"{lower}\"",
                    self.hierarchy.class(above).name
                ));
            }
            above = self.hierarchy.class(above).parent;
        }
        Ok(())
    }

    /// Says that the policy in force has no class of this name, and which names it has.
    fn no_class(&self, name: &str) -> String {
        let names = || self.hierarchy.classes().skip(1).map(|(_, class)| class.name.as_str());
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

#[cfg(test)]
mod tests;
