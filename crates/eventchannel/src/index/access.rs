//! Access paths: the conditions through which the index finds a clause.
//!
//! A clause need only be evaluated for an event that meets one of its access paths. For an `and` the paths of
//! any single part are enough, because the `and` holds only if that part does. For an `or` the paths of all
//! its parts are needed. The index looks up an equality in a hash table, a range in an interval tree, a
//! prefix condition by the hash of each prefix of the event's text, and any other condition by the presence
//! of the field. A condition with `not` has no access path, because events without its field meet it. A
//! filter that has only such conditions is evaluated for each event.
//!
//! Any part of an `and` is sufficient, so a clause may have several *ways* to be found. Each way is a set of
//! paths. The index begins with the way of the lowest estimated cost, which grows with the number of other
//! clauses on its paths. For example, if many subscriptions have the condition `site == "roof"`, the clause
//! `site == "roof" and sensor == 17` is found by its sensor. How often events meet a way is known only later.
//! If events meet it too often, `content.rs` changes to the next way.
//!
//! Reference: access predicates in Ji, Jacobsen, "A-Tree: A Dynamic Data Structure for Efficiently Indexing
//! Arbitrary Boolean Expressions" (SIGMOD 2018), sections 3 and 4.

use super::intervals::{ClauseId, IntervalIndex};
use crate::filter::{Clause, NumericRange, Predicate};
use crate::value::{FieldSet, FieldValue};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The maximum number of ways that are kept for a clause. Each takes memory, and the first of them, in the
/// order of cost, save the most.
const MAX_WAYS: usize = 4;

#[derive(Clone, PartialEq, Debug)]
pub(super) enum AccessPath {
    Equal(Arc<str>, FieldValue),
    /// The lowest and the highest order key of a numeric range, both inclusive.
    Within(Arc<str>, (u64, u64)),
    Starts(Arc<str>, Arc<str>),
    Exists(Arc<str>),
}

/// The clauses with an access path over one field.
#[derive(Debug, Default)]
struct FieldIndex {
    equal: HashMap<FieldValue, Vec<ClauseId>>,
    ranges: IntervalIndex,
    starts: HashMap<Arc<str>, Vec<ClauseId>>,
    /// Number of indexed prefixes of each length in bytes.
    lengths: BTreeMap<usize, usize>,
    exists: Vec<ClauseId>,
}

#[derive(Debug, Default)]
pub(super) struct AccessIndex {
    fields: HashMap<Arc<str>, FieldIndex>,
}

fn take(clauses: &mut Vec<ClauseId>, clause: ClauseId) {
    if let Some(at) = clauses.iter().position(|other| *other == clause) {
        clauses.swap_remove(at);
    }
}

impl AccessIndex {
    /// Returns the ways to find a clause, in ascending order of their estimated costs. Empty: the clause is
    /// evaluated for each event.
    pub(super) fn ways(&self, clause: &Clause) -> Vec<Vec<AccessPath>> {
        let mut ways = match clause {
            Clause::All(parts) => parts.iter().filter_map(|part| self.cheapest(part)).collect(),
            other => Vec::from_iter(self.cheapest(other)),
        };
        ways.sort_by_key(|(cost, _)| *cost);
        ways.truncate(MAX_WAYS);
        ways.into_iter().map(|(_, paths)| paths).collect()
    }

    fn cheapest(&self, clause: &Clause) -> Option<(usize, Vec<AccessPath>)> {
        match clause {
            // no path leads to `Always(false)`, such as an `or` without parts, so it is never evaluated
            Clause::Always(value) => (!value).then(|| (0, Vec::new())),
            Clause::IsNot(_) => None,
            Clause::All(parts) => {
                parts.iter().filter_map(|part| self.cheapest(part)).min_by_key(|(cost, _)| *cost)
            }
            Clause::Any(parts) => parts.iter().try_fold((0, Vec::new()), |(cost, mut paths), part| {
                let (more, others) = self.cheapest(part)?;
                paths.extend(others);
                Some((cost + more, paths))
            }),
            Clause::Is(predicate) => {
                let paths = paths(predicate)?;
                Some((paths.iter().map(|path| self.cost(path)).sum(), paths))
            }
        }
    }

    /// Estimates the cost of this path for an event that meets it: a constant for the kind of path, and the
    /// number of clauses that the event finds on it. The estimate is used only to choose a way.
    fn cost(&self, path: &AccessPath) -> usize {
        let none = FieldIndex::default();
        let field = self.fields.get(path.name()).unwrap_or(&none);
        match path {
            AccessPath::Equal(_, value) => 1 + field.equal.get(value).map_or(0, Vec::len),
            AccessPath::Starts(_, prefix) => 4 + field.starts.get(prefix).map_or(0, Vec::len),
            // Assumes that a value within this range is also within half of the clauses' ranges if this range
            // has one bound, and within few of them if it has two.
            AccessPath::Within(_, (0, _) | (_, u64::MAX)) => 8 + field.ranges.len() / 2,
            AccessPath::Within(..) => 8 + field.ranges.len() / 16,
            AccessPath::Exists(_) => 16 + field.exists.len(),
        }
    }

    pub(super) fn insert(&mut self, path: &AccessPath, clause: ClauseId) {
        let field = self.fields.entry(Arc::clone(path.name())).or_default();
        match path {
            AccessPath::Equal(_, value) => field.equal.entry(value.clone()).or_default().push(clause),
            AccessPath::Within(_, keys) => field.ranges.insert(*keys, clause),
            AccessPath::Starts(_, prefix) => {
                let clauses = field.starts.entry(Arc::clone(prefix)).or_default();
                if clauses.is_empty() {
                    *field.lengths.entry(prefix.len()).or_default() += 1;
                }
                clauses.push(clause);
            }
            AccessPath::Exists(_) => field.exists.push(clause),
        }
    }

    pub(super) fn remove(&mut self, path: &AccessPath, clause: ClauseId) {
        let Some(field) = self.fields.get_mut(path.name()) else { return };
        match path {
            AccessPath::Equal(_, value) => {
                if let Some(clauses) = field.equal.get_mut(value) {
                    take(clauses, clause);
                    if clauses.is_empty() {
                        field.equal.remove(value);
                    }
                }
            }
            AccessPath::Within(_, keys) => field.ranges.remove(*keys, clause),
            AccessPath::Starts(_, prefix) => {
                if let Some(clauses) = field.starts.get_mut(prefix) {
                    take(clauses, clause);
                    if clauses.is_empty() {
                        field.starts.remove(prefix);
                        if let Some(texts) = field.lengths.get_mut(&prefix.len()) {
                            *texts -= 1;
                        }
                        field.lengths.retain(|_, texts| *texts > 0);
                    }
                }
            }
            AccessPath::Exists(_) => take(&mut field.exists, clause),
        }
        let bare = field.equal.is_empty() && field.starts.is_empty() && field.exists.is_empty();
        if bare && field.ranges.len() == 0 {
            self.fields.remove(path.name());
        }
    }

    /// Passes each clause with a path that the event meets to `found`. It may pass a clause more than once.
    pub(super) fn met(&self, fields: &FieldSet, mut found: impl FnMut(ClauseId)) {
        for (name, value) in fields.iter() {
            let Some(field) = self.fields.get(name) else { continue };
            field.exists.iter().for_each(|clause| found(*clause));
            if let Some(clauses) = field.equal.get(value) {
                clauses.iter().for_each(|clause| found(*clause));
            }
            match value {
                FieldValue::Number(number) if field.ranges.len() > 0 => {
                    if let Some(key) = number.order_key() {
                        field.ranges.containing(key, &mut found);
                    }
                }
                FieldValue::Text(text) => {
                    for length in field.lengths.range(..=text.len()).map(|(length, _)| *length) {
                        if let Some(clauses) = text.get(..length).and_then(|text| field.starts.get(text)) {
                            clauses.iter().for_each(|clause| found(*clause));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

impl AccessPath {
    fn name(&self) -> &Arc<str> {
        match self {
            Self::Equal(name, _) | Self::Within(name, _) | Self::Starts(name, _) | Self::Exists(name) => name,
        }
    }
}

/// Returns access paths of a condition: an event that meets the condition meets at least one of them.
fn paths(predicate: &Predicate) -> Option<Vec<AccessPath>> {
    Some(match predicate {
        Predicate::Equal(name, value) => vec![AccessPath::Equal(Arc::clone(name), value.clone())],
        Predicate::OneOf(name, values) => {
            values.iter().map(|value| AccessPath::Equal(Arc::clone(name), value.clone())).collect()
        }
        Predicate::Within(name, range) => {
            keys(range).map(|keys| AccessPath::Within(Arc::clone(name), keys)).into_iter().collect()
        }
        Predicate::Starts(name, prefix) => vec![AccessPath::Starts(Arc::clone(name), Arc::clone(prefix))],
        Predicate::Exists(_) | Predicate::Compare(_) => {
            vec![AccessPath::Exists(Arc::clone(predicate.needs()?))]
        }
    })
}

/// Returns the lowest and highest order key of a range, or `None` for an empty range. Rounding may widen the
/// range a little, but never narrows it.
fn keys(range: &NumericRange) -> Option<(u64, u64)> {
    let low = range.low.and_then(|(number, _)| number.order_key()).unwrap_or(0);
    let high = range.high.and_then(|(number, _)| number.order_key()).unwrap_or(u64::MAX);
    (low <= high).then_some((low, high))
}
