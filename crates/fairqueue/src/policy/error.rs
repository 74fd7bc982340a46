//! Where a policy is wrong, and a correction.

use std::fmt;
use unisono_linux::nearest::nearest;

/// A position in the text of a policy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
}

impl Position {
    /// The position of the byte at offset `at` of a text.
    #[must_use]
    pub fn at_offset(text: &str, at: usize) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        Self { line, column: before[start..].chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why a text is not a policy. The caller cannot do anything but show it to the author of the text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{at}: {what}")]
pub struct PolicyError {
    pub at: Position,
    /// The mistake, and the text to write instead.
    pub what: String,
}

/// A mistake at a byte offset of the text.
pub(super) struct Mistake {
    pub(super) at: usize,
    pub(super) what: String,
}

/// Returns an error for the text at a byte offset.
pub(super) fn wrong<T>(at: usize, what: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake { at, what: what.into() })
}

/// "did you mean `x`?", or all known words.
pub(super) fn meant(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("expected one of {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        let text = "a\nbé = 1";
        let place = |at| Position::at_offset(text, at).to_string();
        assert_eq!([place(0), place(2), place(6), place(99)], ["1:1", "2:1", "2:4", "2:7"]);
    }

    #[test]
    fn a_typing_error_is_recognized_and_nonsense_is_not() {
        assert_eq!(nearest("wieght", ["limit", "weight"]), Some("weight"));
        assert_eq!(nearest("rst", ["video", "rest"]), Some("rest"));
        assert_eq!(nearest("bulk", ["video", "rest"]), None);
        assert_eq!(nearest("tpc", ["udp", "tcp"]), Some("tcp"));
    }
}
