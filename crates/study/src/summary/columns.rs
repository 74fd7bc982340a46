//! Tables whose lines fit a terminal: no number is broken, and texts are folded between words.

/// The blanks before each line.
const INDENT: &str = "   ";

/// Aligns cells in columns: the first `left` are left-aligned, the others right-aligned; the last column is
/// not padded. The first row has the heads. If lines would be wider than `width` characters, the heads and
/// the texts of the first `left` columns and of the last one are folded, the widest first, as far as their
/// words allow.
pub(super) fn align_columns(cells: &[Vec<String>], left: usize, width: usize) -> String {
    let count = cells.iter().map(Vec::len).max().unwrap_or(0);
    let is_text = |column: usize| column < left || column + 1 == count;
    let widths = column_widths(cells, count, is_text, width);
    let mut out = String::new();
    for row in cells {
        let folded: Vec<Vec<&str>> =
            row.iter().zip(&widths).map(|(cell, width)| fold_cell(cell, *width)).collect();
        let height = folded.iter().map(Vec::len).max().unwrap_or(0);
        for at in 0..height {
            let mut line = String::from(INDENT);
            for (column, cell) in folded.iter().enumerate() {
                let cell = cell.get(at).copied().unwrap_or_default();
                let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
                let text = if is_text(column) { format!(" {cell}{pad} ") } else { format!(" {pad}{cell} ") };
                line.push_str(&text);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
    out
}

/// Returns the widths of the columns: those of their longest cells, or less where texts have to be folded.
fn column_widths(
    cells: &[Vec<String>],
    count: usize,
    is_text: impl Fn(usize) -> bool,
    width: usize,
) -> Vec<usize> {
    let longest = |column: usize, length: &dyn Fn(usize, &str) -> usize| {
        let cells = cells.iter().enumerate().filter_map(|(row, cells)| Some((row, cells.get(column)?)));
        cells.map(|(row, cell)| length(row, cell.as_str())).max().unwrap_or(0)
    };
    let characters = |text: &str| text.chars().count();
    let longest_word = |text: &str| text.split(' ').map(characters).max().unwrap_or(0);
    let minimum = |column: usize| {
        let is_folded = |row: usize| row == 0 || is_text(column);
        longest(column, &|row, cell| if is_folded(row) { longest_word(cell) } else { characters(cell) })
    };
    let minima: Vec<usize> = (0..count).map(minimum).collect();
    let mut widths: Vec<usize> =
        (0..count).map(|column| longest(column, &|_, cell| characters(cell))).collect();
    // an empty last column leaves no blanks at the end of a line
    let line = |widths: &[usize]| -> usize {
        INDENT.len() + widths.iter().filter(|width| **width > 0).map(|width| width + 2).sum::<usize>()
    };
    while line(&widths) > width.saturating_add(1) {
        let foldable = (0..count).filter(|column| widths[*column] > minima[*column]);
        let Some(widest) = foldable.max_by_key(|column| widths[*column]) else { break };
        widths[widest] -= 1;
    }
    widths
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
    fn a_cell_is_folded_where_a_word_ends() {
        assert_eq!(fold_cell("ab cd ef", 5), ["ab cd", "ef"]);
        assert_eq!(fold_cell("ab cd ef", 4), ["ab", "cd", "ef"]);
        assert_eq!(fold_cell("ab cd", 5), ["ab cd"]);
        assert_eq!(fold_cell("", 0), [""]);
        assert_eq!(fold_cell("Weißdorn am Weg", 8), ["Weißdorn", "am Weg"]);
    }
}
