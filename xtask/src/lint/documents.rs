//! Each file has a `//!` comment, and no doc comment merely repeats a name. rustc's `missing_docs` demands a
//! doc comment for every public item, which tempts authors to write comments without content. This check
//! finds those.

use super::sources::{SourceFile, Sources};

/// A doc comment of at most this many words is taken to add nothing to the name.
const MAX_EMPTY_WORDS: usize = 2;

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let is_code = |file: &&SourceFile| file.path.contains("/src/") && !file.has_ending("/tests.rs");
    sources.rust().filter(is_code).flat_map(file_problems).collect()
}

fn file_problems(file: &SourceFile) -> Vec<String> {
    let mut problems = Vec::new();
    let mut problem = |line: usize, text: &str| {
        problems.push(format!("{}:{line}: {text}", file.path));
    };
    if !file.text.lines().any(|line| line.starts_with("//!")) {
        problem(1, "say in `//!` what this file holds");
    }
    let lines: Vec<&str> = file.text.lines().map(str::trim_start).collect();
    let is_document = |line: &str| line.starts_with("///") && !line.starts_with("////");
    let mut at = 0;
    while at < lines.len() {
        let begin = at;
        while at < lines.len() && is_document(lines[at]) {
            at += 1;
        }
        let words = lines[begin..at].iter().flat_map(|line| line[3..].split_whitespace()).count();
        // clap shows these as help texts; they may be short
        let is_help = file.path.starts_with("cli/");
        let is_order = begin < at && lines[begin].starts_with("/// cbindgen:");
        if begin < at && words <= MAX_EMPTY_WORDS && !is_help && !is_order {
            problem(begin + 1, "this document says no more than the name; delete it");
        }
        at += 1;
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        check(&Sources::from_texts(&[("x/src/a.rs", text)]))
    }

    #[test]
    fn a_document_of_two_words_is_a_problem() {
        let text = "//! A.\n/// The rank.\npub rank: u32,\n/// Ranks of the job,\n/// counted.\nsize: u32,\n";
        assert_eq!(lines(text), ["x/src/a.rs:2: this document says no more than the name; delete it"]);
    }

    #[test]
    fn a_file_that_does_not_say_what_it_holds_is_a_problem() {
        assert_eq!(lines("use std::fmt;\n"), ["x/src/a.rs:1: say in `//!` what this file holds"]);
    }
}
