//! Rows and fields of comma-separated values (RFC 4180), with their offsets in the text.

use super::error::{Mistake, wrong};

/// A row: its offset in the table, and its fields with their offsets.
pub(super) type TableRow = (usize, Vec<(usize, String)>);

/// Splits a table into rows and fields. A field in quotation marks may have commas and line ends; a quotation
/// mark in it is doubled. Empty lines, and lines that begin with #, are left out.
pub(super) fn rows(table: &str) -> Result<Vec<TableRow>, Mistake> {
    let bytes = table.as_bytes();
    let (mut rows, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let begin = at;
        let end = |at: usize| {
            matches!(bytes.get(at), None | Some(b'\n'))
                || bytes[at..].starts_with(b"\r\n")
                || bytes[at] == b'\r' && at + 1 == bytes.len()
        };
        let is_comment = table[at..].trim_start_matches([' ', '\t']).starts_with('#');
        let mut fields = Vec::new();
        if is_comment {
            at += table[at..].find('\n').unwrap_or(table.len() - at);
        } else {
            loop {
                let (field_at, mut field) = (at, String::new());
                if bytes.get(at) == Some(&b'"') {
                    loop {
                        let Some(length) = table[at + 1..].find('"') else {
                            return wrong(
                                field_at,
                                "the quotation mark that begins this field has no counterpart",
                            );
                        };
                        field.push_str(&table[at + 1..at + 1 + length]);
                        at += length + 2;
                        if bytes.get(at) != Some(&b'"') {
                            break;
                        }
                        field.push('"');
                    }
                    if !end(at) && bytes[at] != b',' {
                        return wrong(
                            at,
                            "a comma or the end of the line follows a field in quotation marks",
                        );
                    }
                } else {
                    let length = table[at..].find([',', '\n']).unwrap_or(table.len() - at);
                    field.push_str(table[at..at + length].trim_end_matches('\r'));
                    at += length;
                }
                fields.push((field_at, field));
                if bytes.get(at) != Some(&b',') {
                    break;
                }
                at += 1;
            }
        }
        at += table[at..].find('\n').map_or(table.len() - at, |length| length + 1);
        if fields.iter().any(|(_, field)| !field.trim().is_empty()) {
            rows.push((begin, fields));
        }
    }
    Ok(rows)
}
