//! Topics: a name, a type, and the history kept for late subscribers, as in DDS.

use crate::pattern::{NameError, check_name};
use std::fmt;
use std::sync::Arc;

/// The past events that a late subscriber receives; a smaller value promises less (DDS: DURABILITY and
/// HISTORY).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum HistoryDepth {
    #[default]
    None,
    /// The last event of each key; events without a key share one key. If there would be more than `keys`
    /// keys, the key whose last event is the oldest is dropped.
    LastValue { keys: usize },
    /// The last `events` events, whatever their keys.
    Last { events: usize },
}

impl HistoryDepth {
    /// Returns the maximum number of events that are kept.
    #[must_use]
    pub fn max_events(self) -> usize {
        match self {
            Self::None => 0,
            Self::LastValue { keys } => keys,
            Self::Last { events } => events,
        }
    }
}

impl fmt::Display for HistoryDepth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::LastValue { keys: 1 } => f.write_str("the last value of one key"),
            Self::LastValue { keys } => write!(f, "the last value of {keys} keys"),
            Self::Last { events: 1 } => f.write_str("the last event"),
            Self::Last { events } => write!(f, "the last {events} events"),
        }
    }
}

/// Whose events consumers get when several suppliers publish on a topic (DDS: OWNERSHIP).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Ownership {
    /// Consumers get the events of all suppliers.
    #[default]
    Shared,
    /// Consumers get the events of the strongest live supplier; the other ones are its hot standby.
    Exclusive,
}

/// The properties of a topic to declare.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TopicSpec {
    pub name: Arc<str>,
    /// The type name of the topic's events. `None`: any type.
    pub event_type: Option<Arc<str>>,
    pub history: HistoryDepth,
    pub ownership: Ownership,
}

impl TopicSpec {
    /// Makes the properties of a topic of any type, without history, with shared ownership.
    ///
    /// # Errors
    /// The text is not a valid topic name.
    pub fn new(name: &str) -> Result<Self, NameError> {
        check_name(name)?;
        let (history, ownership) = (HistoryDepth::None, Ownership::Shared);
        Ok(Self { name: name.into(), event_type: None, history, ownership })
    }

    #[must_use]
    pub fn typed(mut self, event_type: &str) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    #[must_use]
    pub fn keeping(mut self, history: HistoryDepth) -> Self {
        self.history = history;
        self
    }

    #[must_use]
    pub fn owned(mut self, ownership: Ownership) -> Self {
        self.ownership = ownership;
        self
    }
}

impl fmt::Display for TopicSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ownership = match self.ownership {
            Ownership::Shared => "shared",
            Ownership::Exclusive => "exclusive",
        };
        write!(f, "keeps {}, {ownership}, ", self.history)?;
        match &self.event_type {
            None => f.write_str("of any type"),
            Some(name) => write!(f, "of type `{name}`"),
        }
    }
}
