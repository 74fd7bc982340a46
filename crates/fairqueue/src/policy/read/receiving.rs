//! Reads the keys that say how packets that come in are received: `receive`, `receive_processors` and
//! `receive_checksums`.

use super::super::ClassReceiving;
use super::super::error::{Mistake, wrong};
use super::{Placed, WrittenValue, text_of, word_of};
use std::collections::BTreeSet;

/// The kernel supports no more processors.
const MAX_PROCESSORS: u32 = 8192;

/// How the kernel receives packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WrittenWay {
    ByDevice,
    ByClass,
}

/// The keys as they were written.
#[derive(Default)]
pub(super) struct WrittenReceiving {
    way: Option<Placed<WrittenWay>>,
    processors: Option<Placed<BTreeSet<u32>>>,
    checksums: Option<Placed<()>>,
}

impl WrittenReceiving {
    pub(super) fn read_way(&mut self, value: &WrittenValue<'_>) -> Result<(), Mistake> {
        const WORDS: [(&str, WrittenWay); 2] =
            [("by-device", WrittenWay::ByDevice), ("by-class", WrittenWay::ByClass)];
        self.way = Some(word_of("receive", &WORDS, value)?);
        Ok(())
    }

    pub(super) fn read_processors(&mut self, value: &WrittenValue<'_>) -> Result<(), Mistake> {
        let text = text_of("receive_processors", "a list of processors such as \"0-3,8\"", value)?;
        let Some(value) = processors(&text.value) else {
            let what = format!(
                "receive_processors: {:?} is no list of processors; write numbers and ranges, as in \"0-3,8\"",
                text.value
            );
            return wrong(text.at, what);
        };
        self.processors = Some(Placed { value, at: text.at });
        Ok(())
    }

    pub(super) fn read_checksums(&mut self, value: &WrittenValue<'_>) -> Result<(), Mistake> {
        self.checksums = Some(word_of("receive_checksums", &[("complete", ())], value)?);
        Ok(())
    }

    /// Returns the terms of receiving by class, or `None` if the kernel receives as it does by itself.
    pub(super) fn checked(self) -> Result<Option<ClassReceiving>, Mistake> {
        let Self { way, processors, checksums } = self;
        if way.is_some_and(|way| way.value == WrittenWay::ByClass) {
            return Ok(Some(ClassReceiving {
                processors: processors.map(|processors| processors.value),
                has_complete_checksums: checksums.is_some(),
            }));
        }
        let processors = processors.map(|processors| ("receive_processors", processors.at));
        let checksums = checksums.map(|checksums| ("receive_checksums", checksums.at));
        match processors.or(checksums) {
            Some((key, at)) => {
                wrong(at, format!("`{key}` is for receive = \"by-class\"; add that, or take `{key}` out"))
            }
            None => Ok(None),
        }
    }
}

/// Parses a list of processors in the kernel's format.
fn processors(text: &str) -> Option<BTreeSet<u32>> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number < MAX_PROCESSORS);
    let mut all = BTreeSet::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = number(first)?..=number(last)?;
        if range.is_empty() {
            return None;
        }
        all.extend(range);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::super::super::Policy;
    use super::*;

    fn read(lines: &str) -> Result<Option<ClassReceiving>, String> {
        let text = format!("rate = \"1mbit\"\n{lines}\n[class.a]\n");
        Policy::parse(&text).map(|policy| policy.receiving).map_err(|error| error.to_string())
    }

    #[test]
    fn a_policy_says_how_packets_are_received() {
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("receive = \"by-device\""), Ok(None));
        let terms = |processors: Option<&[u32]>, has_complete_checksums| {
            let processors = processors.map(|list| list.iter().copied().collect());
            Ok(Some(ClassReceiving { processors, has_complete_checksums }))
        };
        assert_eq!(read("receive = \"by-class\""), terms(None, false));
        assert_eq!(
            read("receive_checksums = \"complete\"\nreceive_processors = \"8, 0-2\"\nreceive = \"by-class\""),
            terms(Some(&[0, 1, 2, 8]), true)
        );
    }

    #[test]
    fn what_says_nothing_is_refused_with_its_place() {
        let way = "receive = \"by-class\"\n";
        for (lines, place, hint) in [
            ("receive = \"by-clas\"".to_owned(), "2:11:", "did you mean `by-class`?"),
            ("receive = true".to_owned(), "2:11:", "one of by-device, by-class"),
            (format!("{way}receive_processors = 3"), "3:22:", "such as \"0-3,8\""),
            (format!("{way}receive_processors = \"3-1\""), "3:22:", "is no list of processors"),
            (format!("{way}receive_processors = \"\""), "3:22:", "is no list of processors"),
            (format!("{way}receive_processors = \"9000\""), "3:22:", "is no list of processors"),
            (format!("{way}receive_checksums = \"none\""), "3:21:", "complete"),
            ("receive_processors = \"1\"".to_owned(), "2:22:", "is for receive = \"by-class\""),
            ("receive_checksums = \"complete\"".to_owned(), "2:21:", "is for receive = \"by-class\""),
        ] {
            let error = read(&lines).expect_err(&lines);
            assert!(error.starts_with(place) && error.contains(hint), "{lines}: {error}");
        }
    }
}
