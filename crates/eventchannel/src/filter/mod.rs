//! Filters by content: a small language of conditions on the fields of an event.
//!
//! ```text
//! temperature > 80 and not (site in ("lab", "test")) or alarm
//! altitude - ground < 300 and callsign starts_with "DLH"
//! exists pressure and pressure >= 0.8 and pressure < 1.2
//! ```
//!
//! | written | means |
//! |---|---|
//! | `and`, `or`, `not` | in order of increasing precedence: `or`, `and`, `not` |
//! | `==` `!=` `<` `<=` `>` `>=` | numbers by value; texts and truth values with `==` and `!=` only |
//! | `x in (1, 2)`, `x not in ("a", "b")` | `x` equals a value of the list; `x` exists and equals none |
//! | `x starts_with "ab"` | a text that begins so |
//! | `exists x` | the event has the field |
//! | `x` alone | `x == true` |
//! | `+` `-` `*` `/` | on numbers; `/` is a floating-point division |
//! | `"text"`, with `\"` and `\\` | a text |
//!
//! A field's name consists of letters, digits, `_` and `.`, and begins with a letter or `_`. A comparison
//! with a field that the event does not have is false, even `!=` and `not in`; a `not` before it makes it
//! true. So an event without `x` passes `not x == 1`, but not `x != 1`. Values of different kinds are unequal
//! and have no order; NaN is unequal to everything.
//!
//! An error names line and column. The depth of parentheses and the length of a text are limited, so that a
//! hostile filter costs no more than its length.
//!
//! Reference: the event filters of Shenoy et al., section 2.3.2 (`lib.rs`); SQL's subset in DDS
//! content-filtered topics, without its schema.

mod clause;
mod lexer;
mod parser;

pub(crate) use clause::{Clause, NumericRange, Predicate};

use crate::value::FieldSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use unisono_text::Position;

/// The maximum length of a filter, in bytes. A filter is written by a person or generated from a list; 16 KiB
/// hold a list of a thousand names. Chosen, not measured.
pub const MAX_FILTER: usize = 16 << 10;

/// A condition on the fields of an event, parsed and simplified.
///
/// ```
/// use unisono_eventchannel::{ContentFilter, FieldSet, FilterError};
///
/// let filter: ContentFilter = "celsius > 80 and not armed".parse()?;
/// assert!(filter.matches(&FieldSet::new().with("celsius", 81.5).with("armed", false)));
/// assert!("celsius > ".parse::<ContentFilter>().is_err_and(|error| error.at.column > 1));
/// # Ok::<(), FilterError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ContentFilter {
    text: Arc<str>,
    clause: Arc<Clause>,
    operations: usize,
}

/// Why a text is not a filter.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{at}: {what}")]
#[non_exhaustive]
pub struct FilterError {
    pub at: Position,
    /// The error, and how to correct the text.
    pub what: String,
}

impl FromStr for ContentFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let clause = Arc::new(parser::parse(text)?);
        let operations = clause.operations();
        Ok(Self { text: text.into(), clause, operations })
    }
}

impl PartialEq for ContentFilter {
    /// Returns whether both filters have the same text.
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Display for ContentFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl ContentFilter {
    /// Returns whether an event with these fields passes this filter. For many filters, an index evaluates
    /// fewer.
    #[must_use]
    pub fn matches(&self, fields: &FieldSet) -> bool {
        self.clause.holds(fields)
    }

    /// Returns the number of comparisons, calculations and values in lists: an approximation of the cost of
    /// an evaluation, and of the memory.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.operations
    }

    /// Returns two fields that the filter compares by `==` or `!=`, if there are any. Often the second one
    /// was meant as a text, and lacks its double quotes: `site == lab`.
    #[must_use]
    pub fn compared_fields(&self) -> Option<(&str, &str)> {
        self.clause.compared_fields()
    }

    pub(crate) fn clause(&self) -> &Clause {
        &self.clause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(filter: &str) -> bool {
        let fields = FieldSet::new()
            .with("temperature", 81.5)
            .with("site", "roof")
            .with("alarm", true)
            .with("count", 3)
            .with("nan", f64::NAN);
        filter.parse::<ContentFilter>().expect("a filter").matches(&fields)
    }

    #[test]
    fn filters_say_what_the_table_says() {
        for (filter, expected) in [
            ("temperature > 80", true),
            ("80 < temperature", true),
            ("temperature >= 81.5 and temperature < 81.5", false),
            ("count == 3.0", true),
            ("count != 3", false),
            ("count in (1, 2, 3)", true),
            ("count not in (1, 2, 3)", false),
            ("site == \"roof\" and alarm", true),
            ("not alarm", false),
            ("not missing", true),
            ("missing != 1", false),
            ("not missing == 1", true),
            ("missing not in (1)", false),
            ("exists site and not exists missing", true),
            ("site starts_with \"ro\"", true),
            ("site starts_with \"\"", true),
            ("count starts_with \"3\"", false),
            ("count + 1 == 4 and count * 2 - 1 == 5 and count / 2 == 1.5", true),
            ("(count + 1) * 2 == 8", true),
            ("-count < -2", true),
            ("count / 0 > 1000000", true),
            ("temperature < count", false),
            ("site == site", true),
            ("site < count or alarm", true),
            ("nan == nan or nan < 1 or nan >= 1", false),
            ("alarm or missing and missing", true),
            ("(alarm or missing) and missing", false),
            ("true", true),
            ("not true or false", false),
            ("nan != 1", true),
            ("count > 1 and count > 2 and count <= 3", true),
            ("site == \"ro\\\"of\"", false),
            ("alarm == true", true),
            ("site != 3", true),
        ] {
            assert_eq!(passes(filter), expected, "{filter}");
        }
    }

    #[test]
    fn two_fields_that_are_compared_are_found() {
        for (filter, expected) in [
            ("site == lab", Some(("site", "lab"))),
            ("a > 1 and not (b or site != lab)", Some(("site", "lab"))),
            ("site == \"lab\" or \"lab\" == site", None),
            ("level < limit and level - 1 == limit", None),
        ] {
            let filter: ContentFilter = filter.parse().expect("a filter");
            assert_eq!(filter.compared_fields(), expected, "{filter}");
        }
    }

    #[test]
    fn an_error_names_its_line_and_column_and_what_to_write() {
        let said = |text: &str| text.parse::<ContentFilter>().expect_err("no filter").to_string();
        for (text, message) in [
            ("", "1:1: the filter ends where a condition is expected"),
            ("a = 1", "1:3: `=` is no comparison; write `==`"),
            ("a >\n  and", "2:3: expected a field, a number, a text or `(`, found `and`"),
            ("a and 3", "1:7: expected a condition, found a number; compare it with something"),
            ("a < \"x\"", "1:3: texts compare with ==, !=, in and starts_with only"),
            ("a == 1 b", "1:8: expected `and`, `or` or the end, found `b`"),
            ("(a > 1", "1:7: expected `)`, found the end"),
            ("(a > 1) + 2", "1:1: a condition is no value; join conditions with `and` or `or`"),
            ("a starts_with 3", "1:15: expected a text in double quotes, found `3`"),
            ("a in ()", "1:7: expected a number, a text, true or false, found `)`"),
            ("\"abc", "1:1: a text without its closing quote"),
            (
                "a > 99999999999999999999",
                "1:5: `99999999999999999999` does not fit 64 bits; write it with a decimal point",
            ),
            ("a > 1e999", "1:5: `1e999` is larger than any number; the largest has 308 zeros"),
            (
                "a § b",
                "1:3: `§` begins nothing; quote texts, and write names of letters, digits, _ and .",
            ),
            ("a < 1 < 2", "1:7: expected `and`, `or` or the end, found `<`"),
            ("\"x\" + 1 > 2", "1:1: `+` needs numbers"),
            ("3 in (3)", "1:1: expected a field before `in`"),
            ("exists 3", "1:8: expected the name of a field, found `3`"),
            ("1 < true", "1:3: truth values compare with == and != only"),
        ] {
            assert_eq!(said(text), message, "{text}");
        }
        assert!(said(&"(".repeat(1000)).contains("nested more than 64 deep"));
        assert!(said(&"not ".repeat(1000)).contains("nested more than 64 deep"));
        assert!(said(&" ".repeat(20_000)).contains("20000 bytes"));
    }
}
