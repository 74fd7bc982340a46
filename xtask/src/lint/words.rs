//! Names use the words of the field: a reader who searches for `MAX_` or `TIMEOUT` finds every bound and
//! every time limit.
//!
//! Constants may not contain the words of [`NOT_IN_CONSTANTS`], nor consist of a word of [`NO_CONSTANTS`].
//! Names of functions may not consist of a word of [`NO_FUNCTIONS`]. Types may not have the names that the
//! table "Here we say / never" of the glossary lists as never to be used.

use super::code::Code;
use super::sources::Sources;
use std::collections::BTreeSet;

const GLOSSARY: &str = "docs/glossary.md";
const TABLE: &str = "## Here we say / never";
/// Words that constants may not contain, and the word to use instead.
const NOT_IN_CONSTANTS: [(&str, &str); 11] = [
    ("MOST", "MAX"),
    ("LARGEST", "MAX"),
    ("LONGEST", "MAX"),
    ("LEAST", "MIN"),
    ("FEWEST", "MIN"),
    ("SHORTEST", "MIN"),
    ("SMALLEST", "MIN"),
    ("PATIENCE", "TIMEOUT"),
    ("LOOK", "INTERVAL"),
    ("LOOKS", "INTERVAL"),
    ("GLANCE", "INTERVAL"),
];
/// Words that name no quantity, and what to use instead.
const NO_CONSTANTS: [(&str, &str); 7] = [
    ("AGAIN", "X_INTERVAL or X_DELAY"),
    ("PAUSE", "X_INTERVAL or X_DELAY"),
    ("OFTEN", "X_INTERVAL"),
    ("SOON", "X_DELAY"),
    ("EARLY", "X_DELAY"),
    ("LATE", "MAX_LATENESS or X_TIMEOUT"),
    ("REST", "X_INTERVAL"),
];
/// Words that do not name a function's action, and the words to use instead.
const NO_FUNCTIONS: [(&str, &str); 20] = [
    ("of", "from_x, for_x or get"),
    ("one", "a verb"),
    ("each", "a verb"),
    ("look", "scan, sample, poll, check or update"),
    ("looks", "scan, sample, poll, check or update"),
    ("tell", "send, notify or report"),
    ("tells", "send, notify or report"),
    ("told", "send, notify or report"),
    ("hear", "receive or handle"),
    ("heard", "receive or handle"),
    ("say", "send or print"),
    ("says", "send or print"),
    ("said", "the noun of the message"),
    ("give", "the act and its object"),
    ("got", "the noun of the result"),
    ("but", "with_x"),
    ("most", "max_x"),
    ("least", "min_x"),
    ("let_go", "release"),
    ("take_back", "undo_x, restore or revoke"),
];
/// Established terms that contain such a word.
const TERMS: [&str; 2] = ["LEAST_RECENTLY_USED", "DROP_LONGEST"];

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let glossary = sources.files.iter().find(|file| file.path == GLOSSARY);
    let never = glossary.map(|file| never_types(&file.text)).unwrap_or_default();
    let mut problems = Vec::new();
    for file in sources.rust() {
        for (line, at) in file.text.lines().zip(1..).filter(|_| !is_for_tests(&file.path)) {
            let whole = [(constant(line), &NO_CONSTANTS[..]), (function(line), &NO_FUNCTIONS[..])];
            for (name, words) in whole {
                let found = words.iter().find(|(word, _)| Some(*word) == name);
                problems.extend(
                    found.map(|(word, say)| format!("{}:{at}: {word} is no name; say {say}", file.path)),
                );
            }
        }
        for (line, at) in file.text.lines().zip(1..) {
            let Some(name) = constant(line).filter(|name| !TERMS.contains(name)) else { continue };
            let dialect = NOT_IN_CONSTANTS.iter().find(|(word, _)| name.split('_').any(|part| part == *word));
            problems.extend(
                dialect.map(|(word, say)| format!("{}:{at}: {name} says {word}; say {say}", file.path)),
            );
        }
        if file.path.contains("/tests/") {
            continue;
        }
        let Ok(code) = Code::read(&file.text, &["of a crate"]) else { continue };
        let used = code.types.into_iter().filter(|(name, _)| never.contains(name.as_str()));
        problems.extend(used.map(|(name, at)| {
            format!("{}:{at}: {name} is a name that {GLOSSARY} lists as never to be used", file.path)
        }));
    }
    problems
}

/// Whether the file contains only tests, whose names are not checked: they do not mislead readers who search
/// the code.
fn is_for_tests(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Returns the name of the function that a line defines.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.trim_start().split_once("fn ").filter(|(_, rest)| rest.contains('('))?;
    let is_definition = |word: &str| {
        word.starts_with("pub") || word.ends_with(')') || ["const", "unsafe", "async", "in"].contains(&word)
    };
    before.split_whitespace().all(is_definition).then(|| rest.split(['(', '<']).next())?
}

/// Returns the name of the constant that a line defines.
fn constant(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub") || *word == "in");
    let is_constant = matches!(words.next()?, "const" | "static");
    let name = words.next().filter(|_| is_constant)?.strip_suffix(':')?;
    name.starts_with(|first: char| first.is_ascii_uppercase()).then_some(name)
}

/// Returns the types among the names of the column "never". A name that is followed by a remark is wrong only
/// in the meaning that the remark gives, which this check cannot see.
fn never_types(glossary: &str) -> BTreeSet<&str> {
    let table = glossary.split_once(TABLE).map_or("", |(_, table)| table);
    let rows = table.lines().filter_map(|line| line.strip_prefix('|')?.split('|').nth(1));
    let names = rows.flat_map(|column| {
        let mut parts = column.split('`');
        parts.next();
        let mut names = Vec::new();
        while let (Some(name), Some(behind)) = (parts.next(), parts.next()) {
            if !behind.trim_start().starts_with('(') {
                names.push(name);
            }
        }
        names
    });
    let is_type = |name: &&str| {
        name.starts_with(|first: char| first.is_ascii_uppercase())
            && name.contains(|letter: char| letter.is_ascii_lowercase())
            && name.chars().all(char::is_alphanumeric)
    };
    names.filter(is_type).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_constants_with_a_word_that_says_nothing_are_problems_outside_tests() {
        let text = "const AGAIN: u8 = 1;\nconst AGAIN_AFTER: u8 = 1;\npub(in super::super) const fn of<T>(x: T) {}\nfn of_x() {}\n// fn look(\nlet x = \"fn say(\";\n";
        let found =
            check(&Sources::from_texts(&[("crates/a/src/b.rs", text), ("crates/a/src/b/tests.rs", text)]));
        assert_eq!(
            found,
            [
                "crates/a/src/b.rs:1: AGAIN is no name; say X_INTERVAL or X_DELAY",
                "crates/a/src/b.rs:3: of is no name; say from_x, for_x or get",
            ]
        );
    }

    #[test]
    fn words_of_the_dialect_are_problems_with_the_word_to_say() {
        let found = check(&Sources::from_texts(&[
            (
                GLOSSARY,
                "## Here we say / never\n\n| say | never | why |\n|---|---|---|\n| `Poller` | `Door`, `Kept` (of a budget) | x |\n",
            ),
            (
                "crates/a/src/lib.rs",
                "pub(crate) const MOST_NAMES: u8 = 1;\nconst MAX_NAMES: u8 = 1;\nstruct Door;\nenum Kept {}\n",
            ),
            (
                "crates/a/src/b.rs",
                "static LOOKUP: u8 = 1;\nconst LEAST_RECENTLY_USED: u8 = 9;\nfn most_of() {}\n",
            ),
        ]));
        assert_eq!(
            found,
            [
                "crates/a/src/lib.rs:1: MOST_NAMES says MOST; say MAX",
                "crates/a/src/lib.rs:3: Door is a name that docs/glossary.md lists as never to be used",
            ]
        );
    }
}
