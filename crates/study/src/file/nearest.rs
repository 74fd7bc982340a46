//! Suggests a known key for an unknown one.

/// The candidate with the least edit distance, if it is near enough to be meant.
pub(super) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (strsim::levenshtein(wrong, candidate), candidate))
        .min()
        .filter(|(d, candidate)| *d <= 2.max(candidate.len() / 3))
        .map(|(_, candidate)| candidate)
}

/// Adds the nearest known key to serde's "unknown field `x`, expected one of `a`, `b`".
pub(super) fn explain(message: &str) -> String {
    let message = message.trim();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let is_unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    let Some(wrong) = quoted.next().filter(|_| is_unknown) else { return message.replace('\n', " ") };
    let known: Vec<&str> = quoted.collect();
    let what = if message.starts_with("unknown field") { "key" } else { "value" };
    match nearest(wrong, known.iter().copied()) {
        Some(meant) => format!("unknown {what} `{wrong}`; did you mean `{meant}`?"),
        None => format!("unknown {what} `{wrong}`; expected one of {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_recognized_and_nonsense_is_not() {
        let known = ["interval_us", "variance_us", "threads"];
        assert_eq!(nearest("intervall_us", known.into_iter()), Some("interval_us"));
        assert_eq!(nearest("xyzzy", known.into_iter()), None);
    }

    #[test]
    fn an_explanation_names_the_key_that_was_meant() {
        let said = explain("unknown field `titel`, expected one of `id`, `topic`, `title`");
        assert_eq!(said, "unknown key `titel`; did you mean `title`?");
        assert_eq!(explain("missing field `id`"), "missing field `id`");
    }
}
