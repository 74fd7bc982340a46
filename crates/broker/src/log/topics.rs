//! The file `topics`: the histories that the log's topics keep for late subscribers, as declared by their
//! suppliers.
//!
//! Each declaration is one line of JSON; the last line of a topic is valid. Unreadable lines, such as an
//! incomplete one after a crash, are ignored. When the file is opened, and once it has grown too large
//! (`line_file.rs`), it is rewritten with one line for each topic that keeps a history. Each topic belongs to
//! the identity that declared it last. The lines of one identity, and of all, are bounded; and the broker
//! charges an identity for its topics ([`KeptTopic::memory`]) and forgets them when the channel retires them.
//!
//! Cost: a line per new declaration; nothing per event.

use super::LogError;
use super::line_file::LineFile;
use crate::name_owner::NameOwner;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use unisono_events_wire::KeptHistory;

/// The name of the file.
pub(super) const TOPICS: &str = "topics";
/// Maximum bytes of all lines that count: 65,536 topics, as many as a channel has, with lines of 512 bytes.
/// One owner has at most half.
const MAX_BYTES: u64 = if cfg!(test) { 4 << 20 } else { 32 << 20 };

/// The declaration of a topic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptTopic {
    pub topic: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    pub history: KeptHistory,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// `None`: an older broker has written the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<NameOwner>,
}

impl KeptTopic {
    /// Returns the number of bytes of memory that the log takes for the topic.
    pub fn memory(&self) -> usize {
        /// The declaration in its map, with room for the allocator.
        const ENTRY: usize = 384;
        if self.history == KeptHistory::None {
            return 0;
        }
        // the map's key is a second copy of the name
        ENTRY + 2 * self.topic.len() + self.event_type.as_ref().map_or(0, String::len)
    }

    fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("has a text because it is names and numbers");
        line.push(b'\n');
        line
    }
}

#[derive(Debug)]
pub(super) struct KeptTopics {
    file: LineFile,
    known: KnownTopics,
}

/// The topics that keep a history, each with the bytes of its line.
#[derive(Debug, Default)]
struct KnownTopics {
    topics: BTreeMap<String, (KeptTopic, u64)>,
    /// Bytes of all lines by owner; an owner without topics has no entry.
    bytes: HashMap<Option<NameOwner>, u64>,
}

impl KnownTopics {
    fn all_bytes(&self) -> u64 {
        self.bytes.values().sum()
    }

    /// Returns whether this declaration, in place of the topic's former one, exceeds no bound.
    fn has_room(&self, topic: &KeptTopic, bytes: u64) -> bool {
        let former = self.topics.get(&topic.topic);
        let freed = former.map_or(0, |(_, bytes)| *bytes);
        let of_owner =
            former.filter(|(former, _)| former.owner == topic.owner).map_or(0, |(_, bytes)| *bytes);
        let theirs = self.bytes.get(&topic.owner).copied().unwrap_or(0);
        self.all_bytes() - freed + bytes <= MAX_BYTES && theirs - of_owner + bytes <= MAX_BYTES / 2
    }

    fn insert(&mut self, topic: KeptTopic, bytes: u64) {
        self.remove(&topic.topic);
        *self.bytes.entry(topic.owner.clone()).or_default() += bytes;
        self.topics.insert(topic.topic.clone(), (topic, bytes));
    }

    fn remove(&mut self, topic: &str) {
        let Some((topic, bytes)) = self.topics.remove(topic) else { return };
        if let Some(theirs) = self.bytes.get_mut(&topic.owner) {
            *theirs -= bytes;
            if *theirs == 0 {
                self.bytes.remove(&topic.owner);
            }
        }
    }

    fn lines(&self) -> Vec<u8> {
        self.topics.values().flat_map(|(topic, _)| topic.line()).collect()
    }
}

impl KeptTopics {
    pub(super) fn open(log: &Path) -> Result<Self, LogError> {
        let path = log.join(TOPICS);
        let text = LineFile::content(&path)?;
        let mut known = KnownTopics::default();
        let lines = text.split(|byte| *byte == b'\n');
        for topic in lines.filter_map(|line| serde_json::from_slice::<KeptTopic>(line).ok()) {
            let bytes = topic.line().len() as u64;
            match topic.history {
                KeptHistory::None => known.remove(&topic.topic),
                _ if known.has_room(&topic, bytes) => known.insert(topic, bytes),
                // an older broker had no such bound
                _ => {}
            }
        }
        drop(text);
        Ok(Self { file: LineFile::replace(&path, &known.lines())?, known })
    }

    pub(super) fn known(&self) -> impl Iterator<Item = &KeptTopic> {
        self.known.topics.values().map(|(topic, _)| topic)
    }

    /// Returns whether a declaration would change nothing, whoever owns the topic.
    pub(super) fn has_declared(&self, topic: &KeptTopic) -> bool {
        match self.known.topics.get(&topic.topic) {
            Some((known, _)) => {
                (known.history, known.exclusive, &known.event_type)
                    == (topic.history, topic.exclusive, &topic.event_type)
            }
            None => topic.history == KeptHistory::None,
        }
    }

    /// Records the declaration of a topic.
    pub(super) fn declared(&mut self, topic: KeptTopic) -> Result<(), LogError> {
        if self.has_declared(&topic) {
            return Ok(());
        }
        let keeps = topic.history != KeptHistory::None;
        let line = topic.line();
        let bytes = line.len() as u64;
        if keeps && !self.known.has_room(&topic, bytes) {
            return Err(LogError::TooManyTopics { most: MAX_BYTES / 2 });
        }
        self.file.append(&line)?;
        match keeps {
            true => self.known.insert(topic, bytes),
            false => self.known.remove(&topic.topic),
        }
        self.compact()
    }

    /// Forgets the declarations of these topics.
    pub(super) fn forget<'a>(&mut self, topics: impl Iterator<Item = &'a str>) -> Result<(), LogError> {
        let mut lines = Vec::new();
        for topic in topics {
            let Some((known, _)) = self.known.topics.get(topic) else { continue };
            let none = KeptTopic {
                topic: topic.to_owned(),
                event_type: None,
                history: KeptHistory::None,
                ..known.clone()
            };
            lines.extend(none.line());
            self.known.remove(topic);
        }
        if !lines.is_empty() {
            self.file.append(&lines)?;
            self.compact()?;
        }
        Ok(())
    }

    fn compact(&mut self) -> Result<(), LogError> {
        if self.file.is_overgrown(self.known.all_bytes()) {
            self.file = LineFile::replace(self.file.path(), &self.known.lines())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn topic(name: &str, history: KeptHistory) -> KeptTopic {
        KeptTopic { topic: name.to_owned(), event_type: None, history, exclusive: false, owner: None }
    }

    #[test]
    fn the_last_whole_declaration_of_a_topic_counts_wherever_a_crash_cuts_the_file_off() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut topics = KeptTopics::open(directory.path()).expect("it is empty");
        let declared = [
            topic("a", KeptHistory::Last(3)),
            topic("b", KeptHistory::LastValue(2)),
            topic("a", KeptHistory::Last(3)),
            topic("c", KeptHistory::None),
            topic("b", KeptHistory::None),
            topic("a", KeptHistory::Last(5)),
        ];
        for declared in &declared {
            topics.declared(declared.clone()).expect("there is room");
        }
        let whole = fs::read(directory.path().join(TOPICS)).expect("it was written");
        assert_eq!(
            whole.iter().filter(|byte| **byte == b'\n').count(),
            4,
            "what is known is not written again"
        );
        for length in 0..=whole.len() {
            fs::write(directory.path().join(TOPICS), &whole[..length]).expect("room on the disk");
            let mut expected = BTreeMap::new();
            for line in whole[..length].split(|byte| *byte == b'\n') {
                // a line without its line end may be complete
                let Ok(topic) = serde_json::from_slice::<KeptTopic>(line) else { continue };
                expected.insert(topic.topic.clone(), topic.history);
            }
            expected.retain(|_, history| *history != KeptHistory::None);
            let topics = KeptTopics::open(directory.path()).expect("it opens");
            let known: BTreeMap<_, _> = topics.known().map(|it| (it.topic.clone(), it.history)).collect();
            assert_eq!(known, expected, "{length}");
            let lines = fs::read(directory.path().join(TOPICS)).expect("it was written");
            assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), expected.len());
        }
    }

    #[test]
    fn declarations_in_a_loop_leave_a_small_file_with_the_last_of_them() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut topics = KeptTopics::open(directory.path()).expect("it is empty");
        let path = directory.path().join(TOPICS);
        let long = "x".repeat(60_000);
        let mut most = 0;
        for number in 0..200 {
            topics.declared(topic(&long, KeptHistory::Last(number + 1))).expect("there is room");
            topics.declared(topic("other", KeptHistory::Last(number + 1))).expect("there is room");
            topics.declared(topic("gone", KeptHistory::Last(1))).expect("there is room");
            topics.forget(["gone", "never"].into_iter()).expect("there is room");
            most = most.max(fs::metadata(&path).expect("it is there").len());
        }
        assert!(most <= (1 << 20) + 3 * 61_000, "{most} bytes for one name of 60,000");
        let topics = KeptTopics::open(directory.path()).expect("it opens");
        let known: Vec<_> = topics.known().cloned().collect();
        assert_eq!(known, [topic("other", KeptHistory::Last(200)), topic(&long, KeptHistory::Last(200))]);
    }

    #[test]
    fn one_owner_has_half_of_the_bytes_and_others_find_room() {
        let directory = tempfile::tempdir().expect("a scratch directory");
        let mut topics = KeptTopics::open(directory.path()).expect("it is empty");
        let of = |owner: u32, number: u32| KeptTopic {
            owner: Some(NameOwner::User(owner)),
            ..topic(&format!("{owner}/{number}/{}", "x".repeat(60_000)), KeptHistory::Last(1))
        };
        let fill = |topics: &mut KeptTopics, owner| {
            (0..1000).take_while(|number| topics.declared(of(owner, *number)).is_ok()).count()
        };
        let (first, second) = (fill(&mut topics, 1), fill(&mut topics, 2));
        assert!(first == 34 && second == 34, "{first} {second}");
        assert_eq!(fill(&mut topics, 3), 1, "the bound of all");
        // a topic with a new owner is charged to the new one
        let again = KeptTopic { owner: Some(NameOwner::User(2)), history: KeptHistory::Last(2), ..of(1, 0) };
        topics.declared(again.clone()).expect_err("its new owner has no room");
        topics.forget([&*of(2, 0).topic].into_iter()).expect("room on the disk");
        topics.declared(again).expect("it has room");
        let counted = topics.known.bytes.clone();
        let topics = KeptTopics::open(directory.path()).expect("it opens");
        assert_eq!(topics.known.bytes, counted);
        assert_eq!(topics.known().count(), 34 + 34 + 1 - 1);
    }
}
