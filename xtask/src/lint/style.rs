//! Consistent style: a module with submodules is `name/mod.rs`, comments are as wide as code, and documents
//! have a maximum width.

use super::sources::{SourceFile, Sources};
use std::collections::BTreeSet;

/// Finds files `name.rs` that are beside a folder `name/`.
pub(super) fn modules(sources: &Sources) -> Vec<String> {
    let mut folders: BTreeSet<&str> = BTreeSet::new();
    for file in sources.rust() {
        folders.extend(file.path.match_indices('/').map(|(at, _)| &file.path[..at]));
    }
    let beside = |file: &&SourceFile| {
        file.path.contains("/src/")
            && file.path.strip_suffix(".rs").is_some_and(|name| folders.contains(name))
    };
    let problem = |file: &SourceFile| {
        format!("{}:1: move it to {}/mod.rs", file.path, file.path.trim_end_matches(".rs"))
    };
    sources.rust().filter(beside).map(problem).collect()
}

/// Finds comment lines wider than `max_width` of rustfmt.toml, which rustfmt applies to code. A table row may
/// be wider, because it cannot be broken.
pub(super) fn width(sources: &Sources) -> Vec<String> {
    let Some(width) = sources.files.iter().find(|file| file.path == "rustfmt.toml").and_then(max_width)
    else {
        return vec!["rustfmt.toml:1: it sets no max_width".to_owned()];
    };
    let mut problems = Vec::new();
    for file in sources.rust() {
        let row = |line: &str| line.trim_start().trim_start_matches(['/', '!']).trim_start().starts_with('|');
        let comment = |line: &str| line.trim_start().starts_with("//") && !row(line);
        let wide = |line: &str| comment(line) && line.chars().count() > width;
        let lines = (1..).zip(file.text.lines()).filter(|(_, line)| wide(line));
        problems.extend(
            lines.map(|(number, _)| format!("{}:{number}: a comment wider than {width} columns", file.path)),
        );
    }
    problems
}

/// The maximum width of prose lines in a document. Two windows of this width fit next to each other on a
/// usual screen, and longer lines are hard to follow. Wider than code, because sentences have no indentation.
const MAX_DOCUMENT_WIDTH: usize = 120;

/// Finds lines of documents that are wider than [`MAX_DOCUMENT_WIDTH`] and could be broken: not table rows,
/// code, headings or long addresses.
pub(super) fn prose(sources: &Sources) -> Vec<String> {
    let mut problems = Vec::new();
    for file in sources.files.iter().filter(|file| file.has_ending(".md") && !file.is_generated()) {
        let mut is_code = false;
        for (number, line) in (1..).zip(file.text.lines()) {
            let text = line.trim_start();
            is_code ^= text.starts_with("```");
            let stays = is_code || text.starts_with(['|', '#', '<']) || line.starts_with("    ");
            let first: String = text.chars().take(MAX_DOCUMENT_WIDTH).collect();
            if !stays
                && line.chars().count() > MAX_DOCUMENT_WIDTH
                && first.trim_start_matches(['-', ' ']).contains(' ')
            {
                problems
                    .push(format!("{}:{number}: a line wider than {MAX_DOCUMENT_WIDTH} columns", file.path));
            }
        }
    }
    problems
}

fn max_width(file: &SourceFile) -> Option<usize> {
    file.text.lines().find_map(|line| line.strip_prefix("max_width = ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_beside_its_folder_is_a_problem() {
        let found = modules(&Sources::from_texts(&[
            ("x/src/a.rs", ""),
            ("x/src/a/b.rs", ""),
            ("x/src/c/mod.rs", ""),
            ("x/src/c/d.rs", ""),
            ("x/tests/e.rs", ""),
            ("x/tests/e/f.rs", ""),
        ]));
        assert_eq!(found, ["x/src/a.rs:1: move it to x/src/a/mod.rs"]);
    }

    #[test]
    fn a_line_of_a_document_that_could_be_broken_is_not_too_wide() {
        let long = "word ".repeat(25);
        let address = format!("- https://{}", "x".repeat(MAX_DOCUMENT_WIDTH));
        let text = format!("{long}\n| {long} |\n```\n{long}\n```\n# {long}\n{address}\n- {long}\nshort\n");
        let found = prose(&Sources::from_texts(&[("a.md", &text), ("b.txt", &long), ("c.md", "short")]));
        assert_eq!(found, ["a.md:1: a line wider than 120 columns", "a.md:8: a line wider than 120 columns"]);
    }

    #[test]
    fn a_comment_wider_than_code_may_be_is_a_problem() {
        let text = "// 0123456789\nlet x = \"0123456789\";\n  /// é234\n//! | 0123456789 |\n";
        let found = width(&Sources::from_texts(&[("a.rs", text), ("rustfmt.toml", "max_width = 10\n")]));
        assert_eq!(found, ["a.rs:1: a comment wider than 10 columns"]);
    }
}
