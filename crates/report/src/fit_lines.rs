//! Breaks an answer into the lines of a terminal, and shortens it at the end of a sentence or a clause.

/// The maximum number of lines of a text without an end to shorten it at, such as a reason of another
/// program. Chosen, not measured.
pub(crate) const MAX_SENTENCE_LINES: usize = 6;

/// Breaks a text into lines of `width` columns, if possible at most `most`. A longer text loses its last
/// sentences; a single long sentence, its last clauses. A sentence without a clause to lose takes more lines.
pub(crate) fn fit_lines(text: &str, width: usize, most: usize) -> Vec<String> {
    let text = text.replace(['\u{2009}', '\u{a0}', '\u{202f}'], " ");
    let whole = wrap_words(&text, width);
    if whole.len() <= most {
        return whole;
    }
    // the time that would decide, behind a semicolon, belongs to the words before it
    let is_end = |rest: &str| rest.starts_with(' ') && !rest.starts_with(" about ");
    let ends = text.match_indices([';', '.']).filter(|(at, _)| is_end(&text[at + 1..]));
    let ends: Vec<usize> = ends.map(|(at, _)| at).collect();
    let sentence = |end: &usize| wrap_words(&format!("{}.", &text[..*end]), width);
    if let Some(fits) = ends.iter().rev().map(sentence).find(|lines| lines.len() <= most) {
        return fits;
    }
    // the first clause may be an introduction, which says nothing alone
    let clauses: Vec<usize> = clause_ends(&text).filter(|at| *at > width * most / 2).collect();
    if let Some(fits) = clauses.iter().rev().map(sentence).find(|lines| lines.len() <= most) {
        return fits;
    }
    let first = ends.iter().find(|end| text[**end..].starts_with('.'));
    let mut lines = first.map_or(whole, sentence);
    if lines.len() > MAX_SENTENCE_LINES {
        lines.truncate(MAX_SENTENCE_LINES);
        if let Some(last) = lines.last_mut() {
            while last.chars().count() + 1 > width {
                last.pop();
            }
            last.push('\u{2026}');
        }
    }
    lines
}

/// Returns the places of the commas between clauses: those outside brackets and quotation marks that do not
/// end a label such as `spin 50 us, then block`.
fn clause_ends(text: &str) -> impl Iterator<Item = usize> {
    let is_start = |rest: &str| rest.starts_with(", or ") || rest.starts_with(", and ");
    text.match_indices(", ").map(|(at, _)| at).filter(move |at| {
        let before = &text[..*at];
        let is_bracketed = before.matches('(').count() > before.matches(')').count();
        is_start(&text[*at..]) && !is_bracketed && before.matches('"').count().is_multiple_of(2)
    })
}

/// Breaks a text between words; a number of runs, such as `(n = 2)`, counts as one word.
fn wrap_words(text: &str, width: usize) -> Vec<String> {
    let text = text.replace("(n = ", "(n\u{a0}=\u{a0}");
    let mut lines = vec![String::new()];
    for word in text.split(|c: char| c.is_whitespace() && c != '\u{a0}') {
        let mut word: Vec<char> = word.chars().collect();
        while !word.is_empty() {
            let line = lines.last_mut().expect("there is always one");
            let used = line.chars().count();
            let space = usize::from(used > 0);
            if used + space + word.len() <= width {
                if space == 1 {
                    line.push(' ');
                }
                line.extend(word.drain(..));
            } else if used > 0 {
                lines.push(String::new());
            } else {
                // a path longer than a line
                line.extend(word.drain(..width));
                lines.push(String::new());
            }
        }
    }
    lines.retain(|line| !line.is_empty());
    lines.into_iter().map(|line| line.replace('\u{a0}', " ")).collect()
}
