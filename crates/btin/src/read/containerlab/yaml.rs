//! Reads a YAML text into values, each with its position in the text.
//!
//! An alias (`*name`) is another reference to the anchored value, not a copy, so that the memory for values
//! is proportional to the text. Depth and number of values are limited. A key must be a scalar, and may occur
//! once in its mapping.

use crate::format::ReadError;
use saphyr_parser::{Event, Parser, ScanError};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The maximum depth of nesting. An extended link of containerlab is five levels deep.
const DEEPEST: usize = 64;

/// The maximum number of values of a file. Each takes about 60 bytes in memory, and a link of containerlab at
/// least four values.
const MAX_VALUES: usize = 4_000_000;

pub(super) struct Yaml<'t> {
    text: &'t str,
    /// The byte offset of each value, and the value.
    values: Vec<(usize, Content<'t>)>,
}

enum Content<'t> {
    Scalar(Cow<'t, str>),
    Sequence(Vec<u32>),
    /// Keys and values, alternating.
    Mapping(Vec<u32>),
}

#[derive(Clone, Copy)]
pub(super) struct YamlValue<'y> {
    yaml: &'y Yaml<'y>,
    number: u32,
}

/// A sequence or mapping whose end has not been read yet.
struct Unfinished {
    anchor: usize,
    at: usize,
    is_mapping: bool,
    parts: Vec<u32>,
}

impl<'t> Yaml<'t> {
    pub(super) fn parse(text: &'t str) -> Result<Self, ReadError> {
        let mut yaml = Self { text, values: Vec::new() };
        let mut parser = Parser::new_from_str(text);
        let mut anchors: HashMap<usize, u32> = HashMap::new();
        let mut unfinished: Vec<Unfinished> = Vec::new();
        // the parser counts characters, but positions are bytes
        let (mut characters, mut at) = (0, 0);
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| unreadable(&error))?;
            let ahead = span.start.index().saturating_sub(characters);
            at += text[at..].chars().take(ahead).map(char::len_utf8).sum::<usize>();
            characters += ahead;
            let (anchor, start, content) = match event {
                Event::DocumentStart(_) if !yaml.values.is_empty() => {
                    return Err(yaml.wrong(at, "a second document; write one network into one file"));
                }
                Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                    if unfinished.len() == DEEPEST {
                        return Err(yaml.wrong(at, format!("values more than {DEEPEST} deep")));
                    }
                    let is_mapping = matches!(event, Event::MappingStart(..));
                    unfinished.push(Unfinished { anchor, at, is_mapping, parts: Vec::new() });
                    continue;
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    let Some(Unfinished { anchor, at, is_mapping, parts }) = unfinished.pop() else {
                        continue;
                    };
                    if is_mapping {
                        yaml.check_keys(&parts)?;
                    }
                    let content = if is_mapping { Content::Mapping(parts) } else { Content::Sequence(parts) };
                    (anchor, at, content)
                }
                Event::Scalar(text, _, anchor, _) => (anchor, at, Content::Scalar(text)),
                Event::Alias(anchor) => {
                    let Some(number) = anchors.get(&anchor) else {
                        return Err(yaml.wrong(at, "an alias inside the value that it stands for"));
                    };
                    if let Some(outer) = unfinished.last_mut() {
                        outer.parts.push(*number);
                    }
                    continue;
                }
                _ => continue,
            };
            if yaml.values.len() == MAX_VALUES {
                return Err(yaml.wrong(start, format!("more than {MAX_VALUES} values")));
            }
            let number = u32::try_from(yaml.values.len()).expect("fits because MAX_VALUES does");
            yaml.values.push((start, content));
            anchors.insert(anchor, number);
            if let Some(outer) = unfinished.last_mut() {
                outer.parts.push(number);
            }
        }
        Ok(yaml)
    }

    /// Returns the outermost value, or `None` if the text is empty.
    pub(super) fn root(&self) -> Option<YamlValue<'_>> {
        let last = u32::try_from(self.values.len()).ok()?.checked_sub(1)?;
        Some(YamlValue { yaml: self, number: last })
    }

    fn wrong(&self, at: usize, problem: impl Into<String>) -> ReadError {
        ReadError::at(self.text, at, "", problem)
    }

    fn check_keys(&self, parts: &[u32]) -> Result<(), ReadError> {
        let mut known = HashSet::new();
        for key in parts.iter().step_by(2) {
            let (at, content) = &self.values[*key as usize];
            match content {
                Content::Scalar(key) if key == "<<" => {
                    return Err(self.wrong(*at, "a merge key (<<) is not read; write its values here"));
                }
                Content::Scalar(key) if !known.insert(key) => {
                    return Err(self.wrong(*at, format!("{key} is there twice")));
                }
                Content::Scalar(_) => {}
                _ => return Err(self.wrong(*at, "a key that is not a word")),
            }
        }
        Ok(())
    }
}

fn unreadable(error: &ScanError) -> ReadError {
    let (line, column) = (error.marker().line(), error.marker().col() + 1);
    ReadError { line, column, element: String::new(), problem: error.info().to_owned() }
}

impl<'y> YamlValue<'y> {
    fn content(self) -> &'y Content<'y> {
        &self.yaml.values[self.number as usize].1
    }

    /// Returns the byte offset of the value in the text.
    pub(super) fn at(self) -> usize {
        self.yaml.values[self.number as usize].0
    }

    pub(super) fn wrong(self, element: &str, problem: impl Into<String>) -> ReadError {
        ReadError::at(self.yaml.text, self.at(), element, problem)
    }

    /// Returns the text of a scalar, or `None` if it is empty or the value is no scalar.
    pub(super) fn word(self) -> Option<&'y str> {
        match self.content() {
            Content::Scalar(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// Returns the elements of a sequence, and none for other values.
    pub(super) fn items(self) -> impl ExactSizeIterator<Item = Self> {
        let parts = if let Content::Sequence(parts) = self.content() { &parts[..] } else { &[] };
        parts.iter().map(move |number| Self { number: *number, ..self })
    }

    /// Returns the keys and values of a mapping, and none for other values.
    pub(super) fn entries(self) -> impl ExactSizeIterator<Item = (&'y str, Self)> {
        let parts = if let Content::Mapping(parts) = self.content() { &parts[..] } else { &[] };
        parts.chunks_exact(2).map(move |pair| {
            let key = Self { number: pair[0], ..self };
            (key.word().unwrap_or_default(), Self { number: pair[1], ..self })
        })
    }

    /// Returns the value of a key of a mapping.
    pub(super) fn find(self, key: &str) -> Option<Self> {
        self.entries().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}
