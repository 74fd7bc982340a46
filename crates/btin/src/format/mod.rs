//! The file formats: `btin-topo-1` for networks and groups, `btin-tree-1` for barrier registers, both JSON.
//!
//! The idea: a widely used parser reads the file. Only after an error, a second pass over the text finds the
//! wrong element. So every error names line, column and element, and reading a correct file takes no longer.

mod document;
mod locate;
mod topology;
mod tree;

pub use locate::{JsonStep, locate};
#[cfg(feature = "foreign")]
pub(crate) use topology::is_aggregation;
pub use topology::{Generated, NetworkFile};

use std::fmt;
use unisono_text::Position;

/// The position of an error in a file, and its reason; lines and columns count from 1.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{line}:{column}: {}{problem}", ElementPrefix(.element))]
#[non_exhaustive]
pub struct ReadError {
    pub line: usize,
    /// The column in the line, in characters from 1.
    pub column: usize,
    /// The element, such as `links[3]` or `node b`; empty if the position alone is clear.
    pub element: String,
    pub problem: String,
}

struct ElementPrefix<'a>(&'a str);

impl fmt::Display for ElementPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}

impl ReadError {
    pub fn at(text: &str, offset: usize, element: impl Into<String>, problem: impl Into<String>) -> Self {
        let Position { line, column } = Position::at_offset(text, offset);
        Self { line, column, element: element.into(), problem: problem.into() }
    }

    /// Makes an error at an element of a JSON text, or at its nearest ancestor if the element does not exist.
    pub fn in_json(text: &str, path: &[JsonStep<'_>], problem: impl Into<String>) -> Self {
        let mut element = String::new();
        for step in path {
            match step {
                JsonStep::Key(key) if element.is_empty() => element.push_str(key),
                JsonStep::Key(key) => element.push_str(&format!(".{key}")),
                JsonStep::Index(index) => element.push_str(&format!("[{index}]")),
            }
        }
        Self::at(text, locate(text, path), element, problem)
    }

    pub(crate) fn from_json(error: &serde_json::Error) -> Self {
        let message = error.to_string();
        let problem = message.rsplit_once(" at line ").map_or(message.as_str(), |(before, _)| before);
        Self {
            line: error.line().max(1),
            column: error.column().max(1),
            element: String::new(),
            problem: problem.replacen("EOF while parsing", "the file ends inside", 1),
        }
    }
}

/// Removes the byte order mark that some programs put before UTF-8.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Parses a key as a decimal number. Refuses leading zeros, so that no two keys stand for the same number.
fn number<T: std::str::FromStr + fmt::Display>(key: &str) -> Option<T> {
    key.parse().ok().filter(|number: &T| number.to_string() == key)
}
