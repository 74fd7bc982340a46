//! The past of a topic, for consumers that subscribe late: the last event of each key, or the last events.
//!
//! The number of events is bounded by [`HistoryDepth::max_events`]. Cost: logarithmic in that number for each
//! event; nothing for topics without history.

use crate::event::ChannelEvent;
use crate::kept::KeptCharge;
use crate::topic::HistoryDepth;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct TopicHistory<P> {
    depth: HistoryDepth,
    /// The kept events by their place: the number of the event in the order of arrival.
    events: BTreeMap<u64, (Arc<ChannelEvent<P>>, KeptCharge)>,
    came: u64,
    /// For each key, the place of its event in `events`.
    keys: HashMap<Option<Arc<str>>, u64>,
}

impl<P> TopicHistory<P> {
    pub(crate) fn new(depth: HistoryDepth) -> Self {
        Self { depth, events: BTreeMap::new(), came: 0, keys: HashMap::new() }
    }

    fn is_by_key(&self) -> bool {
        matches!(self.depth, HistoryDepth::LastValue { .. })
    }

    /// Returns whether the history keeps any events.
    pub(crate) fn keeps(&self) -> bool {
        self.depth.max_events() > 0
    }

    /// Returns the place of the event that a new event with this key displaces.
    fn displaced_place(&self, key: Option<&Arc<str>>) -> Option<u64> {
        let former = self.is_by_key().then(|| self.keys.get(&key.cloned()).copied()).flatten();
        let oldest = || self.events.first_key_value().map(|(place, _)| *place);
        former.or_else(|| if self.events.len() >= self.depth.max_events() { oldest() } else { None })
    }

    /// Returns the charge that is released when a new event with this key is kept.
    pub(crate) fn displaced(&self, key: Option<&Arc<str>>) -> Option<KeptCharge> {
        self.events.get(&self.displaced_place(key)?).map(|(_, charge)| *charge)
    }

    /// Keeps an event, if the history keeps any events.
    pub(crate) fn push(&mut self, event: &Arc<ChannelEvent<P>>, charge: KeptCharge) {
        if !self.keeps() {
            return;
        }
        if let Some(place) = self.displaced_place(event.key.as_ref())
            && let Some((displaced, _)) = self.events.remove(&place)
            && self.is_by_key()
        {
            self.keys.remove(&displaced.key);
        }
        self.came += 1;
        self.events.insert(self.came, (Arc::clone(event), charge));
        if self.is_by_key() {
            self.keys.insert(event.key.clone(), self.came);
        }
    }

    /// Returns the kept events, the oldest first.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Arc<ChannelEvent<P>>> {
        self.events.values().map(|(event, _)| event)
    }

    /// Returns the kept events, each with its charge, the oldest first.
    pub(crate) fn charged(&self) -> impl Iterator<Item = &(Arc<ChannelEvent<P>>, KeptCharge)> {
        self.events.values()
    }

    /// Takes over the events of a former history, the oldest first. Returns the charges of the events that do
    /// not fit.
    pub(crate) fn take_over(&mut self, former: Self) -> Vec<KeptCharge> {
        let mut released = Vec::new();
        for (event, charge) in former.events.into_values() {
            match self.keeps() {
                true => released.extend(self.displaced(event.key.as_ref())),
                false => released.push(charge),
            }
            self.push(&event, charge);
        }
        released
    }

    /// Returns the charges to release when the topic is removed.
    pub(crate) fn charges(&self) -> impl Iterator<Item = KeptCharge> {
        self.events.values().map(|(_, charge)| *charge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Criticality, NO_DEADLINE};
    use crate::ids::{SupplierId, TopicId};
    use crate::kept::KeepingTerms;
    use crate::quality::{DispatchOrder, EventOrigin};
    use crate::value::FieldSet;
    use proptest::prelude::*;
    use unisono_time::Instant;

    fn event(key: u8, sequence: u64) -> Arc<ChannelEvent<Vec<u8>>> {
        Arc::new(ChannelEvent {
            topic: TopicId(0),
            key: (key > 0).then(|| key.to_string().into()),
            fields: FieldSet::new(),
            payload: Vec::new(),
            supplier: SupplierId(0),
            origin: EventOrigin::Local,
            share: 1,
            order: DispatchOrder::Deadlines,
            sequence,
            published: Instant::ZERO,
            deadline: NO_DEADLINE,
            criticality: Criticality::default(),
        })
    }

    proptest! {
        #[test]
        fn history_is_what_a_list_of_all_events_would_show(
            keys in prop::collection::vec(0..6_u8, 0..60), most in 0..5_usize, by_key: bool,
        ) {
            let depth = match by_key {
                true => HistoryDepth::LastValue { keys: most },
                false => HistoryDepth::Last { events: most },
            };
            let mut history = TopicHistory::new(depth);
            let mut all: Vec<(u8, u64)> = Vec::new();
            for (sequence, key) in (0..).zip(keys) {
                let (event, terms) = (event(key, sequence), KeepingTerms::default());
                history.push(&event, KeptCharge::new(&terms, 0, sequence));
                if by_key {
                    all.retain(|(other, _)| *other != key);
                }
                all.push((key, sequence));
                if all.len() > most {
                    all.remove(0);
                }
                let kept: Vec<u64> = history.events().map(|event| event.sequence).collect();
                let expected: Vec<u64> = all.iter().map(|(_, sequence)| *sequence).collect();
                prop_assert_eq!(kept, expected);
            }
            prop_assert!(history.keys.len() <= most);
        }

        #[test]
        fn a_history_that_takes_another_one_over_is_as_if_the_events_came_to_it(
            keys in prop::collection::vec(0..6_u8, 0..20), depths in prop::array::uniform2((0..5_usize, any::<bool>())),
        ) {
            let [before, after] = depths.map(|(most, by_key)| match by_key {
                true => HistoryDepth::LastValue { keys: most },
                false => HistoryDepth::Last { events: most },
            });
            let (mut former, mut taking, mut direct) =
                (TopicHistory::new(before), TopicHistory::new(after), TopicHistory::new(after));
            for (sequence, key) in (0..).zip(keys) {
                let charge = KeptCharge::new(&KeepingTerms::default(), 0, sequence);
                former.push(&event(key, sequence), charge);
            }
            let all: Vec<_> = former.charged().cloned().collect();
            all.iter().for_each(|(event, charge)| direct.push(event, *charge));
            let mut released = taking.take_over(former);
            let kept: Vec<u64> = taking.events().map(|event| event.sequence).collect();
            prop_assert_eq!(&kept, &direct.events().map(|event| event.sequence).collect::<Vec<_>>());
            // each charge is kept or released, and none twice
            released.extend(taking.charges());
            let mut places: Vec<_> = released.iter().map(|charge| charge.place).collect();
            places.sort_unstable();
            prop_assert_eq!(places, all.iter().map(|(_, charge)| charge.place).collect::<Vec<_>>());
        }
    }
}
