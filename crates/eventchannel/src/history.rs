//! The past of a topic, for consumers that subscribe late: the last event of each key, or the last events.
//!
//! Bounded by [`HistoryDepth::most`]. Cost: a logarithm an event; nothing for topics without history.

use crate::event::ChannelEvent;
use crate::topic::HistoryDepth;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct TopicHistory<P> {
    depth: HistoryDepth,
    /// By when they came, the oldest first.
    events: BTreeMap<u64, Arc<ChannelEvent<P>>>,
    came: u64,
    /// For each key its event's place among the events.
    keys: HashMap<Option<Arc<str>>, u64>,
}

impl<P> TopicHistory<P> {
    pub(crate) fn new(depth: HistoryDepth) -> Self {
        Self { depth, events: BTreeMap::new(), came: 0, keys: HashMap::new() }
    }

    pub(crate) fn push(&mut self, event: &Arc<ChannelEvent<P>>) {
        if self.depth.most() == 0 {
            return;
        }
        self.came += 1;
        self.events.insert(self.came, Arc::clone(event));
        let by_key = matches!(self.depth, HistoryDepth::LastValue { .. });
        if by_key && let Some(former) = self.keys.insert(event.key.clone(), self.came) {
            self.events.remove(&former);
        }
        if self.events.len() > self.depth.most()
            && let Some((_, oldest)) = self.events.pop_first()
            && by_key
        {
            self.keys.remove(&oldest.key);
        }
    }

    /// What is kept, the oldest first.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Arc<ChannelEvent<P>>> {
        self.events.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Criticality, NO_DEADLINE};
    use crate::ids::{SupplierId, TopicId};
    use crate::quality::EventOrigin;
    use crate::value::FieldSet;
    use proptest::prelude::*;
    use unisono_linux::clock::Nanos;

    fn event(key: u8, sequence: u64) -> Arc<ChannelEvent<Vec<u8>>> {
        Arc::new(ChannelEvent {
            topic: TopicId(0),
            key: (key > 0).then(|| key.to_string().into()),
            fields: FieldSet::new(),
            payload: Vec::new(),
            supplier: SupplierId(0),
            origin: EventOrigin::Here,
            sequence,
            published: Nanos::ZERO,
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
                history.push(&event(key, sequence));
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
    }
}
