//! Finds the subscriptions that an event matches: by topic, by type, and by content.
//!
//! ```text
//!   topic's name --trie--> patterns (each with a type) --content index each--> subscriptions
//! ```
//! If an event matches few subscriptions, a search of ten thousand takes about as long as a search of ten:
//! `benches/subscriptions.rs`.

mod access;
mod content;
mod intervals;
mod routes;
mod subscribers;

use crate::filter::ContentFilter;
use crate::ids::SubscriptionId;
use crate::number_map::{NumberMap, give_back};
use crate::pattern::TopicPattern;
use crate::trie::PatternTrie;
use crate::value::FieldSet;
use content::ContentIndex;
use routes::LongRoutes;
use std::collections::HashMap;
use std::sync::Arc;
use subscribers::Subscribers;

pub use routes::TopicRoute;
pub use subscribers::AudienceChange;

/// Topics that an interest leaves out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ExceptedTopics {
    pub pattern: TopicPattern,
    /// Topics of the pattern that are not left out.
    pub but: Vec<TopicPattern>,
}

impl ExceptedTopics {
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.pattern.matches(name) && !self.but.iter().any(|but| but.matches(name))
    }
}

/// The events that a subscription asks for.
///
/// ```
/// use unisono_eventchannel::{FieldSet, Interest};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let hot = Interest::in_topics("plant/+/heat".parse()?).filtered("celsius > 80".parse()?);
/// assert!(hot.matches("plant/1/heat", None, &FieldSet::new().with("celsius", 90.0)));
/// assert!(!hot.matches("plant/1/smoke", None, &FieldSet::new().with("celsius", 90.0)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Interest {
    pub pattern: TopicPattern,
    /// Topics of the pattern that the subscription excludes.
    pub except: Arc<[ExceptedTopics]>,
    /// The name of a type: topics of another type, or without a type, do not match. `None`: any type matches.
    pub event_type: Option<Arc<str>>,
    /// A condition on the content. `None`: any content matches.
    pub filter: Option<ContentFilter>,
}

impl Interest {
    /// Makes an interest in all events of the topics of a pattern.
    #[must_use]
    pub fn in_topics(pattern: TopicPattern) -> Self {
        Self { pattern, except: Arc::default(), event_type: None, filter: None }
    }

    #[must_use]
    pub fn leaving_out(mut self, except: Vec<ExceptedTopics>) -> Self {
        self.except = except.into();
        self
    }

    #[must_use]
    pub fn typed(mut self, event_type: &str) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    #[must_use]
    pub fn filtered(mut self, filter: ContentFilter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Returns whether the interest has a wildcard, a type, an exception or a filter. Many such interests of
    /// one consumer may ask for the same topic.
    #[must_use]
    pub fn is_broad(&self) -> bool {
        self.pattern.has_wildcard()
            || self.event_type.is_some()
            || !self.except.is_empty()
            || self.filter.is_some()
    }

    /// Returns the number of comparisons of an event with this interest: its pattern, its excepted patterns,
    /// and the operations of its filter.
    #[must_use]
    pub fn comparisons(&self) -> usize {
        let excepted = self.except.iter().map(|except| 1 + except.but.len()).sum::<usize>();
        1 + excepted + self.filter.as_ref().map_or(0, ContentFilter::operations)
    }

    /// Returns whether the interest asks for a topic of this name and type, whatever the content of its
    /// events.
    #[must_use]
    pub fn asks_for(&self, name: &str, event_type: Option<&str>) -> bool {
        self.pattern.matches(name)
            && (self.event_type.is_none() || self.event_type.as_deref() == event_type)
            && !self.except.iter().any(|except| except.has(name))
    }

    /// Returns whether the interest asks for an event. For many subscriptions, [`SubscriptionIndex`]
    /// evaluates fewer.
    #[must_use]
    pub fn matches(&self, name: &str, event_type: Option<&str>, fields: &FieldSet) -> bool {
        self.asks_for(name, event_type) && self.filter.as_ref().is_none_or(|filter| filter.matches(fields))
    }
}

/// A pattern, the requested type, and the excepted topics.
type PatternKey = (TopicPattern, Option<Arc<str>>, Arc<[ExceptedTopics]>);

/// A pattern with its subscriptions.
#[derive(Debug)]
struct IndexedPattern {
    /// The interest in the pattern without a filter; subscriptions without a filter share it.
    unfiltered: Arc<Interest>,
    /// The subscriptions without a filter.
    subscribers: Subscribers,
    /// The subscriptions with filters. `None`: there are none.
    content: Option<Box<ContentIndex>>,
}

impl IndexedPattern {
    fn insert(&mut self, (owner, id): (Option<u32>, u32), filter: Option<&ContentFilter>) -> AudienceChange {
        match filter {
            None => self.subscribers.insert(owner, id),
            Some(filter) => self.content.get_or_insert_default().insert((owner, id), filter.clause()),
        }
    }

    fn remove(&mut self, (owner, id): (Option<u32>, u32), filter: Option<&ContentFilter>) -> AudienceChange {
        let Some(filter) = filter else { return self.subscribers.remove(owner, id) };
        let Some(content) = &mut self.content else { return AudienceChange::Unchanged };
        let changed = content.remove((owner, id), filter.clause());
        if content.is_empty() {
            self.content = None;
        }
        changed
    }

    fn subscriptions(&self) -> impl Iterator<Item = u32> {
        let filtered = self.content.iter().flat_map(|content| content.subscriptions());
        self.subscribers.as_slice().iter().copied().chain(filtered)
    }

    /// Adds the subscriptions that an event with these fields matches to `found`. Returns the number of
    /// filters that were compared.
    fn matching(&mut self, fields: &FieldSet, found: &mut Vec<u32>) -> usize {
        found.extend(self.subscribers.as_slice());
        self.content.as_mut().map_or(0, |content| content.matching(fields, found))
    }
}

/// An index of subscriptions, to find the subscriptions that an event matches.
#[derive(Debug, Default)]
pub struct SubscriptionIndex {
    trie: PatternTrie,
    patterns: Vec<Option<Box<IndexedPattern>>>,
    numbers: HashMap<PatternKey, u32>,
    free: Vec<u32>,
    /// The interest of each subscription, and the subscription's owner, if it has one.
    interests: NumberMap<SubscriptionId, (Arc<Interest>, Option<u32>)>,
    /// Changes with every pattern that is added or removed.
    generation: u64,
    long: LongRoutes,
    /// A buffer, reused to save an allocation.
    met: Vec<u32>,
    /// Whether the last search met a pattern with filters.
    met_filters: bool,
}

impl SubscriptionIndex {
    /// Adds a subscription. It replaces a subscription with the same number.
    pub fn insert(&mut self, id: SubscriptionId, interest: Interest) -> AudienceChange {
        self.insert_for(None, id, interest)
    }

    /// Like [`insert`](Self::insert), for an owner: an event matches only the first of the owner's equal
    /// subscriptions.
    pub fn insert_for(
        &mut self,
        owner: Option<u32>,
        id: SubscriptionId,
        interest: Interest,
    ) -> AudienceChange {
        self.remove(id);
        let key = (interest.pattern.clone(), interest.event_type.clone(), Arc::clone(&interest.except));
        let number = match self.numbers.get(&key) {
            Some(number) => *number,
            None => {
                let number = self.free.pop().unwrap_or_else(|| {
                    self.patterns.push(None);
                    u32::try_from(self.patterns.len() - 1).expect("memory ends before 2^32 patterns")
                });
                self.generation += 1;
                self.trie.insert(&interest.pattern, number);
                let unfiltered = Arc::new(Interest { filter: None, ..interest.clone() });
                let (subscribers, content) = (Subscribers::default(), None);
                let pattern = IndexedPattern { unfiltered, subscribers, content };
                self.patterns[number as usize] = Some(Box::new(pattern));
                self.numbers.insert(key, number);
                number
            }
        };
        let Some(pattern) = &mut self.patterns[number as usize] else { return AudienceChange::Unchanged };
        let changed = pattern.insert((owner, id.0), interest.filter.as_ref());
        let interest = match interest.filter {
            None => Arc::clone(&pattern.unfiltered),
            Some(_) => Arc::new(interest),
        };
        self.interests.insert(id, (interest, owner));
        changed
    }

    pub fn remove(&mut self, id: SubscriptionId) -> AudienceChange {
        let Some((interest, owner)) = self.interests.remove(&id) else { return AudienceChange::Unchanged };
        give_back(&mut self.interests);
        let key = (interest.pattern.clone(), interest.event_type.clone(), Arc::clone(&interest.except));
        let Some(number) = self.numbers.get(&key).copied() else { return AudienceChange::Unchanged };
        let Some(pattern) = &mut self.patterns[number as usize] else { return AudienceChange::Unchanged };
        let changed = pattern.remove((owner, id.0), interest.filter.as_ref());
        if pattern.subscribers.is_empty() && pattern.content.is_none() {
            self.generation += 1;
            self.trie.remove(&key.0, number);
            self.patterns[number as usize] = None;
            self.numbers.remove(&key);
            give_back(&mut self.numbers);
            self.free.push(number);
        }
        changed
    }

    #[must_use]
    pub fn interest(&self, id: SubscriptionId) -> Option<&Interest> {
        self.interests.get(&id).map(|(interest, _)| &**interest)
    }

    /// Returns the subscriptions that ask for a topic of this name and type, whatever the content of its
    /// events; of an owner's equal subscriptions, only the first.
    pub fn of_topic<'a>(
        &'a self,
        name: &'a str,
        event_type: Option<&'a str>,
    ) -> impl Iterator<Item = (SubscriptionId, &'a Interest)> {
        let patterns = self.trie.matching(name);
        let asked =
            patterns.into_iter().filter(move |number| asks(&self.patterns, *number, name, event_type));
        let contents = asked.filter_map(|number| self.patterns[number as usize].as_ref());
        let subscriptions = contents.flat_map(|pattern| pattern.subscriptions()).map(SubscriptionId);
        subscriptions.filter_map(|id| Some((id, self.interest(id)?)))
    }

    /// Fills `found` with the subscriptions that an event matches, each once, in no particular order; of an
    /// owner's equal subscriptions, only with the first. Returns the number of patterns and filters that were
    /// compared.
    pub fn matching(
        &mut self,
        (name, event_type): (&str, Option<&str>),
        route: &mut TopicRoute,
        fields: &FieldSet,
        found: &mut Vec<SubscriptionId>,
    ) -> usize {
        found.clear();
        let Self { trie, patterns, long, met, met_filters, .. } = self;
        let search = || {
            let mut matching = trie.matching(name);
            matching.retain(|number| asks(patterns, *number, name, event_type));
            matching
        };
        let route = long.patterns_of(route, self.generation, search);
        let mut compared = route.len();
        *met_filters = false;
        for pattern in route {
            if let Some(pattern) = &mut patterns[*pattern as usize] {
                *met_filters |= pattern.content.is_some();
                compared += pattern.matching(fields, met);
            }
        }
        found.extend(met.drain(..).map(SubscriptionId));
        compared
    }

    /// Returns whether the result of the last [`matching`](Self::matching) depends on the event's fields.
    pub(crate) fn has_met_filters(&self) -> bool {
        self.met_filters
    }
}

/// Returns whether the entry of a pattern that matches the name asks for topics of this type, and does not
/// except this topic.
fn asks(patterns: &[Option<Box<IndexedPattern>>], number: u32, name: &str, event_type: Option<&str>) -> bool {
    patterns[number as usize].as_ref().is_some_and(|pattern| {
        let Interest { event_type: asked, except, .. } = &*pattern.unfiltered;
        (asked.is_none() || asked.as_deref() == event_type) && !except.iter().any(|except| except.has(name))
    })
}
