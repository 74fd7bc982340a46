//! Reads `records.jsonl`.
//!
//! A study appends a line after every run, so a crash can leave half a line at the end. This is no error: the
//! runs before it count, and the report mentions it. Any other unreadable line is an error with line and
//! column, because a report of half the records would mislead.

use crate::Error;
use std::path::Path;
use unisono_linux::read::MACHINE_WRITTEN;
use unisono_measure::record::{FORMAT, Line, RunLine, StudyLine};

#[derive(Debug)]
pub(crate) struct RecordsFile {
    pub(crate) lines: Vec<Line>,
    /// The number of the last line, if the file ends in the middle of it.
    pub(crate) cut_off: Option<usize>,
}

pub(crate) fn read(path: &Path) -> Result<RecordsFile, Error> {
    let bytes = unisono_linux::read::file(path, MACHINE_WRITTEN).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Error::Missing { path: path.to_owned() },
        _ => Error::Read { path: path.to_owned(), source },
    })?;
    parse(&bytes, path)
}

/// Parses the lines of a records file; `path` is for messages only.
pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<RecordsFile, Error> {
    let mut read = RecordsFile { lines: Vec::new(), cut_off: None };
    let mut rest = bytes;
    let mut number = 0;
    while !rest.is_empty() {
        number += 1;
        let end = rest.iter().position(|b| *b == b'\n');
        let (line, after) = match end {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, &rest[rest.len()..]),
        };
        rest = after;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<Line>(line) {
            Ok(line) => {
                let format = match &line {
                    Line::Study(study) => &study.format,
                    Line::Run(run) => &run.format,
                };
                if format != FORMAT {
                    return Err(Error::Format { path: path.to_owned(), line: number, found: format.clone() });
                }
                read.lines.push(line);
            }
            // only a line without a newline can have been cut off
            Err(error) if end.is_none() && (error.is_eof() || std::str::from_utf8(line).is_err()) => {
                read.cut_off = Some(number);
            }
            Err(error) => {
                let error = error_with_column(line).unwrap_or(error);
                // serde_json appends its own position, which counts lines within this line
                let what = error.to_string();
                let what = what.split(" at line ").next().unwrap_or(&what).to_owned();
                return Err(Error::Bad { path: path.to_owned(), line: number, column: error.column(), what });
            }
        }
    }
    if read.lines.is_empty() {
        return Err(Error::Empty { path: path.to_owned() });
    }
    Ok(read)
}

/// Finds the column of an error. serde reads a tagged line twice, and the error of the second reading has no
/// column; parsing the line again as the kind that its tag names restores the column.
fn error_with_column(line: &[u8]) -> Option<serde_json::Error> {
    #[derive(serde::Deserialize)]
    struct Kind {
        kind: String,
    }
    match serde_json::from_slice::<Kind>(line).ok()?.kind.as_str() {
        "study" => serde_json::from_slice::<StudyLine>(line).err(),
        "run" => serde_json::from_slice::<RunLine>(line).err(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> String {
        let run = RunLine { format: FORMAT.into(), study: "s".into(), ..RunLine::default() };
        serde_json::to_string(&Line::Run(Box::new(run))).expect("a record serializes")
    }

    fn parse_text(text: &str) -> Result<RecordsFile, Error> {
        parse(text.as_bytes(), Path::new("records.jsonl"))
    }

    #[test]
    fn a_last_line_that_was_cut_off_is_tolerated_and_said() {
        let whole = run();
        let read = parse_text(&format!("{whole}\n{}", &whole[..whole.len() / 2])).expect("readable");
        assert_eq!((read.lines.len(), read.cut_off), (1, Some(2)));
        let read = parse_text(&format!("{whole}\n{whole}")).expect("readable");
        assert_eq!((read.lines.len(), read.cut_off), (2, None));
    }

    #[test]
    fn a_bad_line_is_refused_with_its_line_and_column() {
        let whole = run();
        let error = parse_text(&format!("{whole}\n\n{{\"kind\":\"run\",}}\n{whole}\n")).expect_err("bad");
        assert!(matches!(error, Error::Bad { line: 3, column: 15, .. }), "{error}");
        let error = parse_text("{\"kind\":\"run\",\"study\":7}\n").expect_err("a number");
        assert!(matches!(error, Error::Bad { line: 1, column: 23, .. }), "{error}");
        let cut = format!("{}\n{whole}\n", &whole[..whole.len() / 2]);
        assert!(matches!(parse_text(&cut).expect_err("cut in the middle"), Error::Bad { line: 1, .. }));
    }

    #[test]
    fn another_format_and_an_empty_file_are_refused() {
        let other = run().replace(FORMAT, "unisono-record-9");
        assert!(matches!(parse_text(&other).expect_err("other"), Error::Format { line: 1, .. }));
        assert!(matches!(parse_text("\n \n").expect_err("empty"), Error::Empty { .. }));
    }

    #[test]
    fn every_prefix_of_a_good_file_is_readable() {
        let whole = format!("{}\n{}\n", run(), run().replace("\"s\"", "\"\u{e4}\""));
        for end in run().len() + 1..whole.len() {
            assert!(parse(&whole.as_bytes()[..end], Path::new("x")).is_ok(), "prefix of {end} bytes");
        }
    }
}
