//! Tables and texts whose lines fit a terminal: the least important columns are left out first, and texts are
//! folded.

/// Width of the first column, which names the rows.
const NAME: usize = 24;
/// In a line narrower than this, the names get two fifths of the width, so that the most important columns
/// fit beside them.
const WIDE: usize = 80;
/// A text is not folded into lines narrower than this. Chosen, not measured.
const MIN_FOLDED: usize = 20;

pub(crate) struct Column {
    /// A column with a higher rank is left out earlier.
    pub(crate) rank: u8,
    pub(crate) width: usize,
    pub(crate) head: &'static str,
    /// One cell for each row.
    pub(crate) cells: Vec<String>,
}

/// Returns the table in lines of at most `width` characters: `head` above the names, then the columns that
/// fit. With `usize::MAX` it has all columns and full names.
pub(crate) fn lines(head: &str, names: &[String], mut columns: Vec<Column>, width: usize) -> String {
    let name = if width < WIDE { (width * 2 / 5).min(NAME) } else { NAME };
    let mut room = width.saturating_sub(name);
    let mut by_rank: Vec<usize> = (0..columns.len()).collect();
    by_rank.sort_by_key(|at| columns[*at].rank);
    let mut fits = vec![false; columns.len()];
    for at in by_rank {
        let needed = columns[at].width + 1;
        fits[at] = needed <= room;
        room -= if fits[at] { needed } else { room };
    }
    let mut fits = fits.into_iter();
    columns.retain(|_| fits.next() == Some(true));
    let line = |first: &str, cell: &dyn Fn(&Column) -> String| {
        let first = if width == usize::MAX { first.to_owned() } else { cut(first, name) };
        let cells = columns.iter().map(|column| format!(" {:>1$}", cell(column), column.width));
        let line = format!("{first:<name$}{}", cells.collect::<String>());
        line.trim_end().to_owned()
    };
    let head = line(head, &|column| column.head.to_owned());
    let rows = names.iter().enumerate().map(|(at, name)| line(name, &|column| column.cells[at].clone()));
    [head].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

/// Cuts a text to `max_letters` characters; a text that was cut ends in a mark.
pub(crate) fn cut(text: &str, max_letters: usize) -> String {
    if text.chars().count() <= max_letters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max_letters.saturating_sub(1)).collect();
    kept + "~"
}

/// Returns `head` and `text` on one line, if they fit. Otherwise the text is folded, and its further lines
/// are indented by `indent`.
pub(crate) fn hanging(head: &str, text: &str, indent: usize, width: usize) -> String {
    let margin = " ".repeat(indent);
    let line = format!("{head}{text}");
    let Some(room) = width.checked_sub(indent).filter(|room| *room >= MIN_FOLDED) else { return line };
    let first_room = width.saturating_sub(head.chars().count());
    let first = fold(text, first_room.max(1));
    let first = first.lines().next().unwrap_or_default();
    let rest = text[first.len()..].trim_start();
    let rest = fold(rest, room);
    let rest: String = rest.lines().map(|line| format!("\n{margin}{line}")).collect();
    format!("{head}{first}{rest}")
}

/// Folds each line of a text that is wider than `width`; its further lines are indented by two. Rows of
/// tables that fit stay as they are.
pub(crate) fn hanging_lines(text: &str, width: usize) -> String {
    text.lines().map(|line| hanging("", line, 2, width)).collect::<Vec<_>>().join("\n")
}

/// Folds a text into lines of at most `width` characters, broken between words if possible.
pub(crate) fn fold(text: &str, width: usize) -> String {
    let mut folded = Vec::new();
    for line in text.lines() {
        let mut rest = line;
        while let Some((end, _)) = rest.char_indices().nth(width) {
            let space = rest[..end].rfind(' ').filter(|at| *at > 0);
            let (start, next) = rest.split_at(space.unwrap_or(end));
            folded.push(start.trim_end());
            rest = next.trim_start();
        }
        folded.push(rest);
    }
    folded.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_between_words_and_a_long_word_anywhere() {
        assert_eq!(fold("\n90 frames came; dropped: 1", 10), "\n90 frames\ncame;\ndropped: 1");
        assert_eq!(fold("abcdefgh", 3), "abc\ndef\ngh");
        assert_eq!(fold("as it is", usize::MAX), "as it is");
        assert_eq!(cut("enp0s31f6", 5), "enp0~");
        let text = "a text that goes on behind its head";
        assert_eq!(hanging("  name  ", text, 8, 30), "  name  a text that goes on\n        behind its head");
        assert_eq!(hanging("  name  ", text, 8, usize::MAX), format!("  name  {text}"));
        let lines = "name   us\nbtin  7.1\n\n5 members of 6 nodes at 6 switches";
        let folded = "name   us\nbtin  7.1\n\n5 members of 6 nodes\n  at 6 switches";
        assert_eq!(hanging_lines(lines, 22), folded);
        assert_eq!(hanging_lines(lines, usize::MAX), lines);
    }
}
