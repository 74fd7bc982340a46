//! Finds the known name that an unknown name was probably meant to be, for error messages.

/// Returns the known name with the fewest edits, if so few edits may be a typing error: one edit, two in
/// names of four letters or more, a third of the letters of longer names. Chosen by examples, not measured:
/// with one edit for four letters `pear` would not find `pair`, and with two for three letters `udp` would be
/// proposed for `tcp`.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    closest(word, known, |shorter| 1.max((shorter / 2).min(2)).max(shorter / 3))
}

/// Returns a known name like [`nearest`], but allows only one edit in names of up to five letters. Use it
/// where a new name is as valid as a known one, so that a wrong guess would refuse a name that was meant. For
/// example, `rest` is accepted as a new name beside `post`, but `rst` is taken for a misspelt `rest`.
pub fn misspelt<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    closest(word, known, |shorter| 1.max(shorter / 3))
}

/// Returns the known name with the fewest edits, if their number is at most `max_edits` of the shorter name's
/// length.
fn closest<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    max_edits: impl Fn(usize) -> usize,
) -> Option<&'a str> {
    known
        .into_iter()
        // a word may be as long as a whole file; only a candidate of similar length can be meant
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= 8)
        // two swapped letters count as one edit
        .map(|candidate| (strsim::osa_distance(word, candidate), candidate))
        .min()
        .filter(|(edits, candidate)| *edits <= max_edits(candidate.len().min(word.len())))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_recognized_and_nonsense_is_not() {
        let known = ["interval_us", "variance_us", "threads", "libgomp", "libomp"];
        let found = |word| nearest(word, known);
        assert_eq!(found("intervall_us"), Some("interval_us"));
        assert_eq!(found("libgom"), Some("libgomp"));
        assert_eq!(found("therads"), Some("threads"), "two letters swapped");
        assert_eq!(found("xyzzy"), None);
        assert_eq!(nearest("pear", ["link", "pair"]), Some("pair"));
        assert_eq!(nearest("tcp", ["udp", "icmp"]), None);
        assert_eq!(nearest("x", []), None);
        assert_eq!(nearest("rest", ["post"]), Some("post"), "a hint costs nothing");
        assert_eq!(misspelt("rest", ["post"]), None, "it may be a name of its own");
        assert_eq!(misspelt("rst", ["post", "rest"]), Some("rest"));
    }
}
