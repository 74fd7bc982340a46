//! A type name is unique in the whole workspace, so that a reader needs to learn it only once.

use super::code::Code;
use super::sources::{SourceFile, Sources};
use std::collections::BTreeMap;

/// Names that may be used again, because they have the same meaning in each crate or subcommand.
const ALLOWED: [&str; 3] = ["Error", "Args", "Options"];

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in sources.rust().filter(|file| is_shipped(file)) {
        let code = match Code::read(&file.text, &["of a crate"]) {
            Ok(code) => code,
            Err(error) => {
                return vec![format!("{}: {error}", file.path)];
            }
        };
        for (name, line) in code.types {
            places.entry(name).or_default().push(format!("{}:{line}", file.path));
        }
    }
    places.retain(|name, places| places.len() > 1 && !ALLOWED.contains(&name.as_str()));
    let problem = |(name, places): (String, Vec<String>)| {
        format!("{}: {name} is a type elsewhere, too: {}", places[0], places[1..].join(", "))
    };
    places.into_iter().map(problem).collect()
}

fn is_shipped(file: &SourceFile) -> bool {
    let folders = ["/tests/", "/benches/", "/examples/"];
    let is_at_the_top = ["examples/", "fuzz/"].iter().any(|folder| file.path.starts_with(folder));
    !is_at_the_top
        && !file.has_ending("/tests.rs")
        && !folders.iter().any(|folder| file.path.contains(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_two_types_is_a_problem_with_all_places() {
        let found = check(&Sources::from_texts(&[
            ("crates/a/src/lib.rs", "struct Place;\nenum Error {}"),
            ("crates/b/src/lib.rs", "struct Error;\npub enum Place {}"),
            ("crates/b/tests/b.rs", "struct Place;"),
        ]));
        assert_eq!(found, ["crates/a/src/lib.rs:1: Place is a type elsewhere, too: crates/b/src/lib.rs:2"]);
    }
}
