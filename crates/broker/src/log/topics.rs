//! The file `topics`: the histories that the log's topics keep for late subscribers, as declared by their
//! suppliers.
//!
//! Each declaration is one line of JSON; the last line of a topic is valid. An incomplete line after a crash
//! is ignored. When the file is opened, it is rewritten with one line for each topic that keeps a history.
//!
//! Cost: a line per new declaration; nothing per event.

use super::LogError;
use crate::name_owner::NameOwner;
use crate::spec::KeptHistory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The name of the file.
pub(super) const TOPICS: &str = "topics";
/// Maximum number of remembered topics: as many as a channel has at a time.
const MAX_TOPICS: usize = 65_536;

/// The declaration of a topic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptTopic {
    pub topic: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    pub history: KeptHistory,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// None: an older broker has written the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<NameOwner>,
}

#[derive(Debug)]
pub(super) struct KeptTopics {
    path: PathBuf,
    file: File,
    known: BTreeMap<String, KeptTopic>,
    /// Whether the last line was written incompletely.
    torn: bool,
}

impl KeptTopics {
    pub(super) fn open(log: &Path) -> Result<Self, LogError> {
        let path = log.join(TOPICS);
        let refused = |source| LogError::Read { path: path.clone(), source };
        let text = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(refused(error)),
        };
        let mut known = BTreeMap::new();
        let lines = text.split(|byte| *byte == b'\n');
        for topic in lines.filter_map(|line| serde_json::from_slice::<KeptTopic>(line).ok()) {
            match topic.history {
                KeptHistory::None => drop(known.remove(&topic.topic)),
                _ if known.len() < MAX_TOPICS => drop(known.insert(topic.topic.clone(), topic)),
                _ => {}
            }
        }
        let anew = log.join("topics.new");
        let written = || {
            let mut options = OpenOptions::new();
            let mut file = options.append(true).create_new(true).mode(0o600).open(&anew)?;
            let lines: Vec<u8> = known.values().flat_map(line).collect();
            file.write_all(&lines)?;
            file.sync_data()?;
            fs::rename(&anew, &path)?;
            Ok(file)
        };
        // left by a broker that was killed during the rewrite
        let _ = fs::remove_file(&anew);
        let file = written().map_err(|source| LogError::Write { path: path.clone(), source })?;
        Ok(Self { path, file, known, torn: false })
    }

    pub(super) fn known(&self) -> impl Iterator<Item = &KeptTopic> {
        self.known.values()
    }

    /// Records the declaration of a topic.
    pub(super) fn declared(&mut self, topic: KeptTopic) -> Result<(), LogError> {
        let keeps = topic.history != KeptHistory::None;
        let known = self.known.get(&topic.topic);
        if known == Some(&topic) || (known.is_none() && (!keeps || self.known.len() >= MAX_TOPICS)) {
            return Ok(());
        }
        let mut line = line(&topic);
        if self.torn {
            line.insert(0, b'\n');
        }
        self.torn = true;
        let written = self.file.write_all(&line);
        written.map_err(|source| LogError::Write { path: self.path.clone(), source })?;
        self.torn = false;
        match keeps {
            true => drop(self.known.insert(topic.topic.clone(), topic)),
            false => drop(self.known.remove(&topic.topic)),
        }
        Ok(())
    }
}

fn line(topic: &KeptTopic) -> Vec<u8> {
    let mut line = serde_json::to_vec(topic).expect("has a text because it is names and numbers");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
