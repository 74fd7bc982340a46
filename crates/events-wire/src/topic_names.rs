//! Names and types of topics. The broker sends each once, and then only the topic's number. When a program
//! has received as many names as the broker records, both ends forget all of them ([`ALL_TOPICS`]).

use crate::frame::ALL_TOPICS;
use std::sync::Arc;
use unisono_eventchannel::NumberMap;

/// The names and types that a program has received.
#[derive(Debug, Default)]
pub struct TopicNames {
    names: NumberMap<u32, Arc<str>>,
    types: NumberMap<u32, Arc<str>>,
}

impl TopicNames {
    /// Handles a frame TOPIC.
    pub fn learn(&mut self, number: u32, name: &str) {
        match number {
            ALL_TOPICS => {
                self.names.clear();
                self.types.clear();
            }
            number => drop(self.names.insert(number, name.into())),
        }
    }

    /// Handles the report that a topic has a new type, or no type any more.
    pub fn learn_type(&mut self, number: u32, event_type: Option<&str>) {
        match event_type {
            // a broker sends a topic's name before its type
            Some(event_type) if self.names.contains_key(&number) => {
                self.types.insert(number, event_type.into());
            }
            _ => drop(self.types.remove(&number)),
        }
    }

    /// Returns the number of known names.
    #[must_use]
    #[allow(
        clippy::len_without_is_empty,
        reason = "a counter for tests and tables; nobody asks for emptiness"
    )]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    #[must_use]
    pub fn name(&self, number: u32) -> Option<&Arc<str>> {
        self.names.get(&number)
    }

    #[must_use]
    pub fn event_type(&self, number: u32) -> Option<&Arc<str>> {
        self.types.get(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_and_types_are_forgotten_at_once_and_a_type_needs_a_name() {
        let mut names = TopicNames::default();
        names.learn(1, "a");
        names.learn_type(1, Some("T"));
        names.learn_type(2, Some("U"));
        assert_eq!((names.name(1).map(|name| &**name), names.event_type(1).is_some()), (Some("a"), true));
        assert!(names.event_type(2).is_none());
        names.learn(ALL_TOPICS, "");
        assert!(names.name(1).is_none() && names.event_type(1).is_none());
    }
}
