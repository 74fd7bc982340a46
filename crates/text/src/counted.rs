//! Numbers of things in words, for messages to the user.

use std::fmt;

/// Writes a number of things, with the noun in the plural where needed: `1 switch`, `2 switches`. Knows only
/// regular nouns, and `leaf`.
pub fn counted(count: impl fmt::Display, one: &str) -> String {
    let count = count.to_string();
    if count == "1" {
        return format!("1 {one}");
    }
    let hisses = ["s", "x", "z", "ch", "sh"].iter().any(|end| one.ends_with(end));
    match (one.strip_suffix('y'), one.strip_suffix("leaf")) {
        (Some(stem), _) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{count} {stem}ies"),
        (_, Some(stem)) => format!("{count} {stem}leaves"),
        _ if hisses => format!("{count} {one}es"),
        _ => format!("{count} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular_and_every_other_number_plural() {
        let text = |count: u64| {
            ["core", "switch", "process", "study", "delay", "leaf"].map(|one| counted(count, one))
        };
        assert_eq!(text(1), ["1 core", "1 switch", "1 process", "1 study", "1 delay", "1 leaf"]);
        assert_eq!(text(2), ["2 cores", "2 switches", "2 processes", "2 studies", "2 delays", "2 leaves"]);
        assert_eq!(counted(0, "rank"), "0 ranks");
        assert_eq!(counted("1,024", "run"), "1,024 runs");
    }
}
