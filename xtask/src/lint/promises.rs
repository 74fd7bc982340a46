//! The tests that SECURITY.md names exist. Each promise there names the tests that prove it, as `` `FILE.rs`:
//! `test`, `test` ``. FILE is a path from `crates/`, or for a host test the name of the file alone.

use super::sources::Sources;

const DOCUMENT: &str = "SECURITY.md";

pub(super) fn check(sources: &Sources) -> Vec<String> {
    let Some(document) = sources.files.iter().find(|file| file.path == DOCUMENT) else { return Vec::new() };
    let mut problems = Vec::new();
    let mut file = None;
    for (line, at) in document.text.lines().zip(1..) {
        // the file applies to the next line, too, but not beyond the end of a table row or a paragraph
        if line.trim().is_empty() || line.starts_with('|') {
            file = None;
        }
        for token in line.split('`').skip(1).step_by(2) {
            if token.ends_with(".rs") && !token.contains(char::is_whitespace) {
                let path = path_of(token);
                file = sources.files.iter().find(|file| file.path == path);
                if file.is_none() {
                    problems.push(format!("{DOCUMENT}:{at}: there is no file {path}"));
                }
            } else if let Some(tests) = file.filter(|_| is_test_name(token)) {
                let definition = format!("fn {token}(");
                if !tests.text.contains(&definition) {
                    problems.push(format!("{DOCUMENT}:{at}: {} has no test {token}", tests.path));
                }
            }
        }
    }
    problems
}

fn path_of(token: &str) -> String {
    match token {
        _ if ["cli/", "xtask/", "abi/", "crates/"].iter().any(|top| token.starts_with(top)) => {
            token.to_owned()
        }
        _ if token.contains('/') => format!("crates/{token}"),
        _ => format!("crates/host-tests/tests/{token}"),
    }
}

/// Whether a word is the name of a test: these names are sentences, with several underscores.
fn is_test_name(token: &str) -> bool {
    token.matches('_').count() >= 3
        && token.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_whose_test_is_gone_is_a_problem() {
        let found = check(&Sources::from_texts(&[
            (
                DOCUMENT,
                "| a | `broker/tests/a.rs`: `a_test_that_is_there`, `a_test_that_is_gone` |\n| b | `gone.rs`: `x` |\n",
            ),
            ("crates/broker/tests/a.rs", "fn a_test_that_is_there() {}\n"),
        ]));
        assert_eq!(
            found,
            [
                "SECURITY.md:1: crates/broker/tests/a.rs has no test a_test_that_is_gone",
                "SECURITY.md:2: there is no file crates/host-tests/tests/gone.rs",
            ]
        );
    }
}
