//! Topic names and topic patterns in MQTT's syntax.
//!
//! A topic's name is a sequence of levels joined by `/`: `plant/line3/temperature`. In a pattern the level
//! `+` matches any single level, and `#`, as the last level, any number of levels, zero included:
//! `plant/+/temperature`, `plant/#`. A pattern that begins with `+` or `#` does not match a topic whose name
//! begins with `$`: such topics are the channel's own.
//!
//! Reference: MQTT 5.0, section 4.7.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Maximum length of a topic name or pattern in bytes: MQTT's limit.
pub const MAX_NAME: usize = 65_535;
/// Maximum number of levels. Trees of levels are walked and dropped by recursion, so each level takes stack:
/// with a thread's stack of 2 MiB, a level may take up to 16 KiB.
pub const MAX_LEVELS: usize = 128;

/// A pattern that matches topic names.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TopicPattern {
    text: Arc<str>,
}

/// Why a text is not a valid topic name or pattern.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    #[error("the name of a topic is empty")]
    Empty,
    #[error("the name of a topic has {length} bytes; at most {MAX_NAME}")]
    TooLong { length: usize },
    #[error("the name of a topic has {levels} levels; at most {MAX_LEVELS}")]
    TooDeep { levels: usize },
    #[error("`{text}`: column {column}: a name has no NUL character")]
    Nul { text: String, column: usize },
    #[error("`{text}`: column {column}: `#` stands for all further levels, so it has to be the last one")]
    NotLast { text: String, column: usize },
    #[error(
        "`{text}`: column {column}: `{wildcard}` stands for {meaning} and is alone between slashes; use it in patterns only"
    )]
    Wildcard {
        text: String,
        /// Position of the character, counted from 1.
        column: usize,
        wildcard: char,
        meaning: &'static str,
    },
}

/// Checks that a text is a valid topic name.
///
/// # Errors
/// The text is empty or too long, or has a wildcard in it.
pub fn check_name(name: &str) -> Result<(), NameError> {
    check_text(name)?;
    match name.chars().position(|letter| matches!(letter, '+' | '#')) {
        Some(at) => Err(wildcard(name, at)),
        None => Ok(()),
    }
}

fn check_text(text: &str) -> Result<(), NameError> {
    match text.len() {
        0 => return Err(NameError::Empty),
        length if length > MAX_NAME => return Err(NameError::TooLong { length }),
        _ => {}
    }
    let levels = text.split('/').count();
    if levels > MAX_LEVELS {
        return Err(NameError::TooDeep { levels });
    }
    match text.chars().position(|letter| letter == '\0') {
        Some(at) => Err(NameError::Nul { text: text.to_owned(), column: at + 1 }),
        None => Ok(()),
    }
}

fn wildcard(text: &str, at: usize) -> NameError {
    let wildcard = text.chars().nth(at).unwrap_or('#');
    let meaning = if wildcard == '#' { "all further levels" } else { "one level" };
    NameError::Wildcard { text: text.to_owned(), column: at + 1, wildcard, meaning }
}

impl FromStr for TopicPattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check_text(text)?;
        let (mut column, last) = (0, text.split('/').count() - 1);
        for (number, level) in text.split('/').enumerate() {
            let misplaced = level.chars().position(|letter| match letter {
                '+' => level != "+",
                '#' => level != "#",
                _ => false,
            });
            if level == "#" && number != last {
                return Err(NameError::NotLast { text: text.to_owned(), column: column + 1 });
            }
            if let Some(at) = misplaced {
                return Err(wildcard(text, column + at));
            }
            column += level.chars().count() + 1;
        }
        Ok(Self { text: text.into() })
    }
}

impl fmt::Display for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TopicPattern {
    /// Makes the pattern that matches exactly one name.
    ///
    /// # Errors
    /// The text is not a valid topic name.
    pub fn exactly(name: &str) -> Result<Self, NameError> {
        check_name(name)?;
        Ok(Self { text: name.into() })
    }

    /// Returns whether the pattern has no wildcard and equals this name.
    pub(crate) fn is_exactly(&self, name: &str) -> bool {
        *self.text == *name
    }

    /// Returns whether the pattern can match more than one name.
    #[must_use]
    pub fn has_wildcard(&self) -> bool {
        // a wildcard is alone in its level
        self.text.contains(['+', '#'])
    }

    /// Returns the only name that the pattern matches, or `None` if the pattern has a wildcard.
    #[must_use]
    pub fn as_name(&self) -> Option<&str> {
        (!self.has_wildcard()).then_some(&*self.text)
    }

    pub(crate) fn levels(&self) -> impl Iterator<Item = &str> {
        self.text.split('/')
    }

    /// Returns whether some name could match both patterns. Names with a leading `$` are not treated
    /// specially here.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.levels(), other.levels());
        loop {
            match (ours.next(), theirs.next()) {
                (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
                (Some("+"), Some(_)) | (Some(_), Some("+")) => {}
                (Some(one), Some(other)) if one == other => {}
                _ => return false,
            }
        }
    }

    /// Returns whether the pattern matches the name of a topic.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        if name.starts_with('$') && self.text.starts_with(['+', '#']) {
            return false;
        }
        let (mut levels, mut names) = (self.levels(), name.split('/'));
        loop {
            match (levels.next(), names.next()) {
                (Some("#"), _) | (None, None) => return true,
                (Some("+"), Some(_)) => {}
                (Some(level), Some(name)) if level == name => {}
                _ => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> TopicPattern {
        text.parse().expect("a pattern")
    }

    #[test]
    fn patterns_match_as_mqtt_says() {
        for (text, name, matches) in [
            ("a/b", "a/b", true),
            ("a/b", "a/b/c", false),
            ("a/+", "a/b", true),
            ("a/+", "a", false),
            ("a/+", "a/b/c", false),
            ("+/b", "/b", true),
            ("a/#", "a/b/c", true),
            ("a/#", "a", true),
            ("#", "a/b", true),
            ("#", "$channel/deaths", false),
            ("+/deaths", "$channel/deaths", false),
            ("$channel/#", "$channel/deaths", true),
            ("a//b", "a//b", true),
            ("a/+/b", "a//b", true),
        ] {
            assert_eq!(pattern(text).matches(name), matches, "{text} and {name}");
        }
    }

    #[test]
    fn a_misplaced_wildcard_is_refused_with_its_column() {
        let said = |text: &str| text.parse::<TopicPattern>().expect_err("misplaced").to_string();
        assert_eq!(
            said("plant/#/x"),
            "`plant/#/x`: column 7: `#` stands for all further levels, so it has to be the last one"
        );
        assert!(said("plant/a+").contains("column 8: `+` stands for one level"));
        assert!(said("").contains("empty"));
        assert!(check_name("plant/+").expect_err("a pattern").to_string().contains("column 7"));
        assert!(said(&"x".repeat(70_000)).contains("70000 bytes"));
        assert!(said(&"/".repeat(1000)).contains("1001 levels"));
    }
}
