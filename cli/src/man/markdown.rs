//! Converts the part of Markdown that the documentation uses to roff: headings, paragraphs, lists, code,
//! tables, `**bold**` and links. Each row of a table becomes a paragraph that hangs below its first cell, so
//! that it fits a terminal of any width.

/// Converts a text to roff.
pub(super) fn roff(markdown: &str) -> String {
    let mut page = String::new();
    let mut is_code = false;
    let mut was_empty = true;
    let mut heads = Vec::new();
    for line in joined(markdown).lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            page.push_str(if is_code { ".PP\n.RS 4\n.nf\n" } else { ".fi\n.RE\n" });
            was_empty = true;
            continue;
        }
        if is_code {
            page.push_str(&protected(&escaped(line)));
        } else if line.trim().is_empty() {
            was_empty = true;
            continue;
        } else if let Some(heading) = line.strip_prefix('#') {
            let heading = heading.trim_start_matches('#').trim();
            page.push_str(&format!(".SS \"{}\"\n", escaped(heading).replace('"', "\\(dq")));
        } else if let Some(item) = line.strip_prefix("- ") {
            page.push_str(".IP \\(bu 3\n");
            page.push_str(&protected(&inline(item)));
        } else if let Some(row) = line.strip_prefix('|') {
            if was_empty {
                heads = cells(row);
            } else if !row.starts_with("--") {
                page.push_str(&table_row(&heads, &cells(row)));
            }
        } else {
            if was_empty {
                page.push_str(".PP\n");
            }
            page.push_str(&protected(&inline(line.trim_start())));
        }
        was_empty = false;
    }
    page
}

/// Joins the lines of each paragraph and of each item: bold text and code go on in the next line.
fn joined(markdown: &str) -> String {
    let mut text = String::new();
    let (mut is_code, mut is_open) = (false, false);
    for line in markdown.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let is_own = is_code || is_fence || line.trim().is_empty() || line.starts_with(['#', '|']);
        if is_open && !is_own && !line.starts_with("- ") {
            text.push(' ');
            text.push_str(line.trim());
        } else {
            text.push_str(if text.is_empty() { "" } else { "\n" });
            text.push_str(line);
        }
        is_open = !is_own;
    }
    text
}

fn cells(row: &str) -> Vec<String> {
    row.trim_end_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Converts a row to a paragraph: the first cell, in parentheses the middle cells with their heads, and the
/// last cell, indented.
fn table_row(heads: &[String], cells: &[String]) -> String {
    let [first, middle @ .., last] = cells else { return protected(&inline(&cells.concat())) };
    let middle = heads.iter().skip(1).zip(middle).filter(|(_, cell)| !cell.is_empty());
    let middle: Vec<String> = middle.map(|(head, cell)| format!("{head}: {cell}")).collect();
    let facts = if middle.is_empty() { String::new() } else { format!("({}) ", middle.join("; ")) };
    let text = inline(format!("{facts}{last}").trim_end());
    // an empty line would be a paragraph of its own
    let text = if text.is_empty() { "\\&".to_owned() } else { text };
    format!(".TP\n{}{}", protected(&inline(first)), protected(&text))
}

/// Escapes the beginning of a line that roff would take for a request.
pub(super) fn protected(line: &str) -> String {
    let mark = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
    format!("{mark}{line}\n")
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Converts a line of a paragraph: bold text stays bold, code loses its marks, links become their text.
fn inline(line: &str) -> String {
    let mut text = String::new();
    for (at, part) in line.split('`').enumerate() {
        if at % 2 == 1 {
            text.push_str(&format!("\\fB{}\\fR", escaped(part)));
            continue;
        }
        for (at, part) in escaped(&without_links(part)).split("**").enumerate() {
            text.push_str(if at == 0 { "" } else { ["\\fR", "\\fB"][at % 2] });
            text.push_str(part);
        }
    }
    text
}

/// Replaces `[text](place)` by `text`.
fn without_links(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('[') {
        let Some((words, (_, behind))) =
            after.split_once("](").and_then(|(words, place)| Some((words, place.split_once(')')?)))
        else {
            break;
        };
        text.push_str(before);
        text.push_str(words);
        rest = behind;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marks_of_the_documentation_become_those_of_roff() {
        let page = roff(
            "# A\n\nOne `x\n-y` and **two**, see [there](a.md).\n\n- item\n  goes on\n\n```toml\n.a = \"\\\"\n```\n",
        );
        assert_eq!(
            page,
            ".SS \"A\"\n.PP\nOne \\fBx \\-y\\fR and \\fBtwo\\fR, see there.\n.IP \\(bu 3\nitem goes on\n.PP\n.RS 4\n.nf\n\\&.a = \"\\e\"\n.fi\n.RE\n"
        );
        assert_eq!(without_links("[[gang]] (a)"), "[[gang]] (a)");
        let table = roff("| key | default | meaning |\n|---|---|---|\n| `a` | 1 | first |\n| `b` | | |\n");
        assert_eq!(table, ".TP\n\\fBa\\fR\n(default: 1) first\n.TP\n\\fBb\\fR\n\\&\n");
    }
}
