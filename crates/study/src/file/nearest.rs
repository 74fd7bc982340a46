//! The known key that an unknown one was probably meant to be.

/// The candidate with the least edit distance, if it is near enough to be meant.
pub(super) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (distance(wrong, candidate), candidate))
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

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }

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
