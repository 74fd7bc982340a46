//! A file that is too long usually contains a second concept, so the length of a file is limited.

use super::sources::Sources;

const MAX_LINES: usize = 600;
const ENDINGS: [&str; 6] = [".rs", ".c", ".cc", ".h", ".css", ".js"];

pub(super) fn check(sources: &Sources) -> Vec<String> {
    sources
        .files
        .iter()
        .filter(|file| !file.is_generated() && ENDINGS.iter().any(|ending| file.has_ending(ending)))
        .map(|file| (&file.path, file.text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(path, lines)| format!("{path}:{MAX_LINES}: {lines} lines; look for the second concept"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_long_is_a_problem() {
        let long = "\n".repeat(MAX_LINES + 1);
        let made = format!("/* do not edit */{long}");
        let files = [("a.rs", &*long), ("a.toml", &long), ("b.rs", "\n"), ("c.h", &made)];
        assert_eq!(check(&Sources::from_texts(&files)).len(), 1);
    }
}
