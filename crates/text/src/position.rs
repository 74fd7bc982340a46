//! A position in a text, for errors of parsers.

use std::fmt;

/// A position in a text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
}

impl Position {
    /// Returns the position of the character to which the byte at offset `at` of a text belongs.
    #[must_use]
    pub fn at_offset(text: &str, at: usize) -> Self {
        let before = &text[..text.floor_char_boundary(at)];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one() {
        let text = "a\nbé = 1";
        let place = |at| Position::at_offset(text, at).to_string();
        assert_eq!([place(0), place(2), place(4), place(6), place(99)], ["1:1", "2:1", "2:2", "2:4", "2:7"]);
    }
}
