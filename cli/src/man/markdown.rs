//! Converts the part of Markdown that the documentation uses to roff: headings, paragraphs, lists, code,
//! tables, `**bold**` and links.

/// Converts a text to roff.
pub(super) fn roff(markdown: &str) -> String {
    let mut page = String::new();
    let mut is_code = false;
    let mut was_empty = true;
    for line in markdown.lines() {
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
        } else if line.starts_with('|') {
            // a row of a table stays a line of its own
            page.push_str(if was_empty { ".PP\n" } else { ".br\n" });
            page.push_str(&protected(&inline(line)));
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

/// Escapes the beginning of a line that roff would take for a request.
fn protected(line: &str) -> String {
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
            "# A\n\nOne `x -y`\nand **two**, see [there](a.md).\n\n- item\n\n```toml\n.a = \"\\\"\n```\n",
        );
        assert_eq!(
            page,
            ".SS \"A\"\n.PP\nOne \\fBx \\-y\\fR\nand \\fBtwo\\fR, see there.\n.IP \\(bu 3\nitem\n.PP\n.RS 4\n.nf\n\\&.a = \"\\e\"\n.fi\n.RE\n"
        );
        assert_eq!(without_links("[[gang]] (a)"), "[[gang]] (a)");
    }
}
