//! A file that has grown too long holds a second concept. What cbindgen makes is as long as its sources say.

use super::sources::Sources;

const LINES: usize = 600;
const ENDINGS: [&str; 6] = [".rs", ".c", ".cc", ".h", ".css", ".js"];

pub(super) fn check(sources: &Sources) -> Vec<String> {
    sources
        .files
        .iter()
        .filter(|file| ENDINGS.iter().any(|ending| file.is(ending)) && !is_made(&file.text))
        .map(|file| (&file.path, file.text.lines().count()))
        .filter(|(_, lines)| *lines > LINES)
        .map(|(path, lines)| format!("{path}:{LINES}: {lines} lines; look for the second concept"))
        .collect()
}

fn is_made(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.contains("Made by cbindgen"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_long_is_a_problem() {
        let long = "\n".repeat(LINES + 1);
        let made = format!("/* Made by cbindgen */{long}");
        let files = [("a.rs", &*long), ("a.toml", &long), ("b.rs", "\n"), ("c.h", &made)];
        assert_eq!(check(&Sources::of(&files)).len(), 1);
    }
}
