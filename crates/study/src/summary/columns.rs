//! Tables whose lines fit a terminal: no number is broken, and texts are folded between words.

use std::collections::BTreeSet;

/// The blanks before each line.
const INDENT: &str = "   ";

/// The blanks before a note below its row: deeper than the folded lines of a label.
const NOTE_INDENT: &str = "      ";

/// The width (characters) down to which the first column is folded, as long as the numbers fit beside it.
/// Chosen, not measured: two short words.
const MIN_LABEL: usize = 12;

/// Aligns cells in columns: the first `left` are left-aligned, the others right-aligned. The first row has
/// the heads, and the last cell of a row is a note. If lines would be wider than `width` characters, the
/// heads of the numbers are folded, then the texts of the first `left` columns, the widest first, as far as
/// their words allow. A note for which that makes no room stands below its row.
pub(super) fn align_columns(cells: &[Vec<String>], left: usize, width: usize) -> String {
    let count = cells.iter().map(Vec::len).max().unwrap_or(0).saturating_sub(1);
    let widths = column_widths(cells, count, left, width);
    let mut out = String::new();
    for row in cells {
        let folded: Vec<Vec<&str>> =
            row.iter().zip(&widths).map(|(cell, width)| fold_cell(cell, *width)).collect();
        let note = row.get(count).map_or("", String::as_str);
        let is_beside = row_width(&widths) <= room_beside(note.chars().count(), width);
        let height = folded.iter().map(Vec::len).max().unwrap_or(0);
        for at in 0..height {
            let mut line = String::from(INDENT);
            for (column, cell) in folded.iter().enumerate() {
                let cell = cell.get(at).copied().unwrap_or_default();
                let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
                let text = if column < left { format!(" {cell}{pad} ") } else { format!(" {pad}{cell} ") };
                line.push_str(&text);
            }
            if at == 0 && is_beside {
                line.push(' ');
                line.push_str(note);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        if !is_beside && !note.is_empty() {
            for line in note_lines(note, width) {
                out.push_str(NOTE_INDENT);
                out.push_str(&line);
                out.push('\n');
            }
        }
    }
    out
}

/// Returns the widths of the columns before the notes: those of their longest cells, or less where heads or
/// texts have to be folded.
fn column_widths(cells: &[Vec<String>], count: usize, left: usize, width: usize) -> Vec<usize> {
    let longest = |column: usize, length: &dyn Fn(usize, &str) -> usize| {
        let cells = cells.iter().enumerate().filter_map(|(row, cells)| Some((row, cells.get(column)?)));
        cells.map(|(row, cell)| length(row, cell.as_str())).max().unwrap_or(0)
    };
    let minimum = |column: usize| {
        let is_folded = |row: usize| row == 0 || column < left;
        longest(column, &|row, cell| {
            if is_folded(row) { longest_word(cell) } else { cell.chars().count() }
        })
    };
    let whole: Vec<usize> =
        (0..count).map(|column| longest(column, &|_, cell| cell.chars().count())).collect();
    let words: Vec<usize> = (0..count).map(minimum).collect();
    // a folded head costs the rows nothing
    let heads: Vec<usize> =
        (0..count).map(|column| if column < left { whole[column] } else { words[column] }).collect();
    let mut texts = words.clone();
    if let Some(label) = texts.first_mut() {
        *label = (*label).max(whole[0].min(MIN_LABEL));
    }
    // room for the longest note if possible, otherwise for shorter ones, at last for none
    let notes = cells.iter().filter_map(|row| row.get(count)).map(|note| note.chars().count());
    let notes: BTreeSet<usize> = notes.chain([0]).collect();
    for note in notes.into_iter().rev() {
        let room = room_beside(note, width);
        let mut widths = whole.clone();
        narrow(&mut widths, &heads, room);
        narrow(&mut widths, &texts, room);
        if row_width(&widths) <= room {
            return widths;
        }
    }
    let mut widths = whole;
    narrow(&mut widths, &words, room_beside(0, width));
    widths
}

/// Takes from the widest column, character by character, until the row is as narrow as `room` or each column
/// has its minimum.
fn narrow(widths: &mut [usize], minima: &[usize], room: usize) {
    while row_width(widths) > room {
        let foldable = (0..widths.len()).filter(|column| widths[*column] > minima[*column]);
        let Some(widest) = foldable.max_by_key(|column| widths[*column]) else { break };
        widths[widest] -= 1;
    }
}

/// Returns the width of a row without its note; each cell has a blank before and behind it.
fn row_width(widths: &[usize]) -> usize {
    INDENT.len() + widths.iter().map(|width| width + 2).sum::<usize>()
}

/// Returns the width that a row may have in a line of `width` characters, beside a note of `note` characters.
fn room_beside(note: usize, width: usize) -> usize {
    // without a note, no blank stays at the end of the line
    if note == 0 { width.saturating_add(1) } else { width.saturating_sub(note + 1) }
}

fn longest_word(text: &str) -> usize {
    text.split(' ').map(|word| word.chars().count()).max().unwrap_or(0)
}

/// Folds a note into lines below its row. A number of runs, such as `(n = 2)`, stays whole.
fn note_lines(note: &str, width: usize) -> Vec<String> {
    let note = note.replace("(n = ", "(n\u{a0}=\u{a0}");
    let room = width.saturating_sub(NOTE_INDENT.len()).max(longest_word(&note));
    fold_cell(&note, room).into_iter().map(|line| line.replace('\u{a0}', " ")).collect()
}

/// Folds a cell between words into lines of at most `width` characters.
fn fold_cell(cell: &str, width: usize) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = cell;
    while let Some((end, _)) = rest.char_indices().nth(width) {
        // the blank behind the last word that fits may itself be beyond the width
        let until = end + usize::from(rest[end..].starts_with(' '));
        let Some(space) = rest[..until].rfind(' ').filter(|at| *at > 0) else { break };
        lines.push(rest[..space].trim_end());
        rest = rest[space..].trim_start();
    }
    lines.push(rest);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_table_is_folded_between_words_and_its_numbers_stay_whole() {
        let rows = [
            ["", "workload of each program", "barriers per second, median", "n", ""],
            ["gangs, all threads together", "bursts of 50 us", "12,000,000 1/s", "3", "seen twice"],
            ["plain", "bursts", "5 1/s", "12", ""],
        ];
        let cells = rows.map(|row| row.map(str::to_owned).to_vec());
        let whole = align_columns(&cells, 2, usize::MAX);
        assert_eq!(whole.lines().count(), 3, "{whole}");
        assert!(whole.lines().any(|line| line.chars().count() > 80), "{whole}");
        assert_eq!(align_columns(&cells, 2, whole.lines().map(str::len).max().unwrap_or(0)), whole);
        for width in [80, 60, 50] {
            let folded = align_columns(&cells, 2, width);
            assert!(folded.lines().all(|line| line.chars().count() <= width), "{width}:\n{folded}");
            let words = |text: &str| {
                let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
                words.sort();
                words
            };
            assert_eq!(words(&folded), words(&whole), "{width}:\n{folded}");
            let gangs = folded.lines().find(|line| line.starts_with("    gangs,")).expect("a row");
            assert!(gangs.contains(" 12,000,000 1/s "), "{width}:\n{folded}");
        }
        // no word is broken: the narrowest table is the same for all smaller widths
        assert_eq!(align_columns(&cells, 2, 10), align_columns(&cells, 2, 0));
    }

    #[test]
    fn numbers_stay_on_their_row_and_a_note_that_does_not_fit_stands_below_it() {
        let modes = "two modes: 2,067 (n = 4) and 3,178,000 (n = 2)";
        let rows = [
            ["", "processors", "latency (ns), median", "least", "greatest", "n", ""],
            ["block 0 times, then sleep (futex)", "one", "two modes", "2,050", "3,200,000", "6", modes],
            ["spin", "one", "107 ns", "104", "110", "2", "seen twice"],
        ];
        let cells = rows.map(|row| row.map(str::to_owned).to_vec());
        let text = align_columns(&cells, 2, 80);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
        let below = format!("{NOTE_INDENT}{modes}");
        assert_eq!(lines.iter().filter(|line| **line == below).count(), 1, "{text}");
        let spin = lines.last().expect("a row");
        assert!(spin.starts_with("    spin") && spin.ends_with("  2  seen twice"), "{text}");
        for width in 56..80 {
            let text = align_columns(&cells, 2, width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            let row = text.lines().find(|line| line.starts_with("    block")).expect("a row");
            let numbers = ["two modes", "2,050", "3,200,000"];
            assert!(numbers.iter().all(|number| row.contains(number)), "{width}:\n{text}");
            assert!(row.ends_with(" 6"), "{width}:\n{text}");
            assert!(text.contains("(n = 4)") && text.contains("(n = 2)"), "{width}:\n{text}");
        }
        let whole = align_columns(&cells, 2, usize::MAX);
        assert_eq!(whole.lines().count(), 3, "{whole}");
        assert!(whole.contains(&format!("  6  {modes}\n")), "{whole}");
    }

    #[test]
    fn a_cell_is_folded_where_a_word_ends() {
        assert_eq!(fold_cell("ab cd ef", 5), ["ab cd", "ef"]);
        assert_eq!(fold_cell("ab cd ef", 4), ["ab", "cd", "ef"]);
        assert_eq!(fold_cell("ab cd", 5), ["ab cd"]);
        assert_eq!(fold_cell("", 0), [""]);
        assert_eq!(fold_cell("Weißdorn am Weg", 8), ["Weißdorn", "am Weg"]);
    }
}
