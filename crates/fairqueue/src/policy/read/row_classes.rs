//! Classes that were made from the rows of a table, at the end of a policy's text.
//!
//! ```toml
//! # classes from a table
//! [class.smith]
//! weight = 5
//! ceiling = "50mbit"
//! parent = "tower1"
//! match = [{ address = "100.64.1.17/32" }, { address = "2001:db8:1:17::/64" }]
//! ```
//! They are TOML as well. But a policy has up to 60,000 of them. Reading each one line by line, exactly as
//! [`write_class`] writes it, takes a fraction of the time. If a line looks otherwise, the whole text is read
//! as TOML.
//!
//! Cost: one pass over the lines (not measured alone).

use super::{Placed, WrittenClass, is_name};
use crate::policy::matcher::{Matcher, Network};
use crate::rate::Rate;
use std::fmt::Write;
use std::ops::Range;

/// The line before the classes.
pub(in super::super) const HEADING: &str = "# classes from a table\n";
/// The lines of a class.
pub(in super::super) const CLASS_LINES: usize = 5;

/// Appends a class to a policy's text, in [`CLASS_LINES`] lines.
pub(in super::super) fn write_class(
    text: &mut String,
    name: &str,
    weight: Option<f64>,
    ceiling: Option<Rate>,
    parent: &str,
    networks: &[Network],
) {
    let _ = writeln!(text, "[class.{name}]");
    if let Some(weight) = weight {
        let _ = write!(text, "weight = {weight}");
    }
    text.push('\n');
    if let Some(ceiling) = ceiling {
        let _ = write!(text, "ceiling = \"{ceiling}\"");
    }
    text.push('\n');
    if !parent.is_empty() {
        let _ = write!(text, "parent = \"{parent}\"");
    }
    text.push_str("\nmatch = [");
    for (number, network) in networks.iter().enumerate() {
        let separator = if number == 0 { "" } else { ", " };
        let _ = write!(text, "{separator}{{ address = \"{network}\" }}");
    }
    text.push_str("]\n");
}

/// Whether the matches of the classes are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum RowMatches {
    Read,
    /// Only the matches of the first class are read.
    Skipped,
}

/// A line of a class that may be empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum ClassLine {
    Weight,
    Ceiling,
}

impl ClassLine {
    /// Returns the number of the line in its class, and the begin of the line if it is not empty.
    fn place(self) -> (usize, &'static str) {
        match self {
            Self::Weight => (1, "weight = "),
            Self::Ceiling => (2, "ceiling = "),
        }
    }

    /// Returns the bytes of this line, without its end, in the class that begins at an offset of a text.
    /// Returns `None` if the line is another one.
    pub(in super::super) fn find(self, text: &str, class: usize) -> Option<Range<usize>> {
        let (number, begin) = self.place();
        let mut at = class;
        for _ in 0..number {
            at += text.get(at..)?.find('\n')? + 1;
        }
        let line = at..at + text.get(at..)?.find('\n')?;
        let is_it = line.is_empty() || text[line.clone()].starts_with(begin);
        is_it.then_some(line)
    }
}

/// The classes at the end of a text.
pub(super) struct RowClasses<'a> {
    /// The offset of the first class in the text.
    pub(super) begin: usize,
    /// The text up to the end of the first class. That class is left to the TOML reader: if the text before
    /// could not have such classes, it could not have the first one.
    pub(super) rest: &'a str,
    /// The other classes.
    pub(super) classes: Vec<WrittenClass>,
}

/// Returns the classes at the end of a text, or `None` if it does not end with such classes.
pub(super) fn at_end(text: &str, matches: RowMatches) -> Option<RowClasses<'_>> {
    let begin = text.find(HEADING)? + HEADING.len();
    let mut lines = RowLines { text, at: begin, matches };
    lines.class()?;
    let rest = &text[..lines.at];
    let mut classes = Vec::new();
    while lines.at < text.len() {
        classes.push(lines.class()?);
    }
    Some(RowClasses { begin, rest, classes })
}

struct RowLines<'a> {
    text: &'a str,
    /// The offset of the next line.
    at: usize,
    matches: RowMatches,
}

impl<'a> RowLines<'a> {
    /// Returns the next line and its offset.
    fn next(&mut self) -> Option<(usize, &'a str)> {
        let at = self.at;
        let line = &self.text[at..at + self.text[at..].find('\n')?];
        self.at += line.len() + 1;
        Some((at, line))
    }

    /// Returns the value of a line with this key, and its offset; or `None` for an empty line. Fails if the
    /// line is another one.
    fn value(&mut self, key: &str, end: &str) -> Option<Option<(usize, &'a str)>> {
        let (at, line) = self.next()?;
        if line.is_empty() {
            return Some(None);
        }
        Some(Some((at + key.len(), line.strip_prefix(key)?.strip_suffix(end)?)))
    }

    fn class(&mut self) -> Option<WrittenClass> {
        let (at, line) = self.next()?;
        let name = line.strip_prefix("[class.")?.strip_suffix(']').filter(|name| is_name(name))?;
        let at = at + "[class.".len();
        let mut class = WrittenClass::new(Placed { value: name.to_owned(), at }, None);
        if let Some((_, weight)) = self.value("weight = ", "")? {
            class.weight = Some(weight.parse().ok()?);
        }
        if let Some((at, ceiling)) = self.value("ceiling = \"", "\"")? {
            class.ceiling = Some(Placed { value: ceiling.parse().ok()?, at: at - 1 });
        }
        if let Some((at, parent)) = self.value("parent = \"", "\"")? {
            class.parent =
                Some(Placed { value: Some(parent).filter(|name| is_name(name))?.to_owned(), at: at - 1 });
        }
        let (mut at, networks) = self.value("match = [", "]")??;
        if self.matches == RowMatches::Skipped {
            return Some(class);
        }
        for written in networks.split(", ") {
            let network = written.strip_prefix("{ address = \"")?.strip_suffix("\" }")?.parse().ok()?;
            let matcher = Matcher { address: Some(network), ..Matcher::default() };
            class.matchers.push(Placed { value: matcher, at });
            at += written.len() + ", ".len();
        }
        Some(class)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Written, read_toml};
    use super::*;
    use crate::policy::error::Mistake;

    const POLICY: &str = "rate = \"1gbit\"\n[class.tower]\n";

    fn read(text: &str) -> Result<Written, Mistake> {
        super::super::read(text, RowMatches::Read)
    }

    fn with_three() -> String {
        let mut text = POLICY.to_owned() + HEADING;
        let networks =
            ["10.0.0.1", "fd00::/64", "10.1.0.0/16"].map(|network| network.parse().expect("sound"));
        let ceiling = "7250kbit".parse().expect("sound");
        write_class(&mut text, "a", Some(1.5), Some(ceiling), "tower", &networks[..2]);
        write_class(&mut text, "b", None, None, "", &networks[2..]);
        write_class(&mut text, "c-1", Some(0.001), None, "", &networks[1..2]);
        text
    }

    #[test]
    fn classes_at_the_end_are_read_as_toml_is() {
        let text = with_three();
        let RowClasses { begin, rest, classes } =
            at_end(&text, RowMatches::Read).expect("the text ends with classes");
        assert!(text[begin..].starts_with("[class.a]"));
        assert_eq!(classes.len(), 2);
        assert!(rest.ends_with("]\n") && text[rest.len()..].starts_with("[class.b]"));
        let debug = |written: Result<Written, _>| format!("{:?}", written.ok().expect("it is sound").classes);
        assert_eq!(debug(read(&text)), debug(read_toml(&text)));
    }

    #[test]
    fn a_text_with_other_lines_is_read_as_toml_alone() {
        let text = with_three();
        for (from, to) in [
            ("[class.b]\n", "[class.b] # her\n"),
            ("weight = 0.001", "weight = 0.00_1"),
            ("[{ address = \"10.1.0.0/16\" }]", "[{ port = 5 }]"),
            ("[{ address = \"10.1.0.0/16\" }]\n", "[{ address = \"10.1.0.0/16\" }]\n\n"),
        ] {
            let changed = text.replace(from, to);
            assert_ne!(changed, text);
            assert!(at_end(&changed, RowMatches::Read).is_none(), "{changed}");
            assert!(read(&changed).is_ok(), "{changed}");
        }
        assert!(at_end(&text.replace(HEADING, "# another\n"), RowMatches::Read).is_none());
        // a text in which the heading is part of a value
        let within = format!("rate = \"1gbit\"\ndefault = '''\n{}'''\n", &text[POLICY.len()..]);
        assert!(read(&within).is_ok_and(|written| written.classes.is_empty()));
    }
}
