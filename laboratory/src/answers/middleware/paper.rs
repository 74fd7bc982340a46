//! The numbers of the paper's tables and figures (`paper.toml`), and our runs to compare with each.

use serde::Deserialize;
use std::sync::LazyLock;
use unisono_measure::Selector;

/// A number of the paper, and our runs to compare with it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PaperLine {
    pub(super) measure: String,
    pub(super) study: String,
    /// The selector of our values: the ratio of middleware to native.
    pub(super) compare: Selector,
    pub(super) unit: String,
    /// The paper's values: native, middleware, and their ratio.
    pub(super) paper: [String; 3],
}

#[derive(Deserialize)]
struct PaperFile {
    line: Vec<PaperLine>,
}

pub(super) const CONTROL: &str = "middleware-control";

pub(super) static PAPER: LazyLock<Vec<PaperLine>> = LazyLock::new(|| {
    let file: PaperFile =
        toml::from_str(include_str!("paper.toml")).expect("parses, as a test of this module shows");
    file.line
});

#[cfg(test)]
mod tests {
    use super::PAPER;

    #[test]
    fn each_line_compares_two_variants() {
        for line in PAPER.iter() {
            assert!(line.compare.against.is_some(), "{}", line.measure);
        }
    }
}
