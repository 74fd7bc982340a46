//! The waiting events of one supplier on one topic (a *flow*): their number, and the turns of events that
//! must stay in order.

use super::ascending::AscendingQueue;
use super::{DueTurn, InboxQueue};
use crate::event::EventPayload;
use crate::ids::{SupplierId, TopicId};
use crate::number_map::NumberMap;
use unisono_time::Instant;

/// Turns that ascend in order of arrival.
pub(super) type AscendingTurns = AscendingQueue<DueTurn, ()>;

/// The waiting events of a supplier on a topic.
#[derive(Debug, Default)]
pub(super) struct WaitingFlow {
    pub(super) events: usize,
    /// The turns of kept events, and of events that leave in the order of publication.
    pub(super) ordered: AscendingTurns,
}

/// The topic and the supplier of a flow.
pub(super) type FlowKey = (TopicId, SupplierId);

/// The flows with waiting events. One of them is stored outside the map, because most inboxes have no other.
#[derive(Debug, Default)]
pub(super) struct WaitingFlows {
    one: Option<(FlowKey, WaitingFlow)>,
    others: NumberMap<FlowKey, WaitingFlow>,
}

impl WaitingFlows {
    pub(super) fn get(&self, key: FlowKey) -> Option<&WaitingFlow> {
        match &self.one {
            Some((of, flow)) if *of == key => Some(flow),
            _ => self.others.get(&key),
        }
    }

    pub(super) fn get_mut(&mut self, key: FlowKey) -> Option<&mut WaitingFlow> {
        match &mut self.one {
            Some((of, flow)) if *of == key => Some(flow),
            _ => self.others.get_mut(&key),
        }
    }

    pub(super) fn get_or_insert_with(
        &mut self,
        key: FlowKey,
        new: impl FnOnce() -> WaitingFlow,
    ) -> &mut WaitingFlow {
        if self.one.is_none() && !self.others.contains_key(&key) {
            return &mut self.one.insert((key, new())).1;
        }
        match &mut self.one {
            Some((of, flow)) if *of == key => flow,
            _ => self.others.entry(key).or_insert_with(new),
        }
    }

    pub(super) fn remove(&mut self, key: FlowKey) -> Option<WaitingFlow> {
        match self.one.take_if(|(of, _)| *of == key) {
            Some((_, flow)) => Some(flow),
            None => self.others.remove(&key),
        }
    }
}

/// Makes the kept events of a supplier on a topic due no later than a new event, because they precede it.
pub(super) fn advance_kept<P: EventPayload>(
    queue: &mut InboxQueue<P>,
    supplier: SupplierId,
    kept: &mut AscendingTurns,
    due: Instant,
) {
    let mut later = Vec::new();
    while let Some((turn, ())) = kept.last().filter(|((latest, _), ())| *latest > due) {
        let turn = *turn;
        kept.remove(&turn);
        later.push(turn);
    }
    for turn in later.into_iter().rev() {
        queue.advance(supplier, turn, due);
        kept.push((due, turn.1), ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn flows_are_those_of_a_map(steps in prop::collection::vec((0..4_u32, 0..3_u8), 0..100)) {
            let (mut flows, mut map) = (WaitingFlows::default(), BTreeMap::<FlowKey, usize>::new());
            for (number, step) in steps {
                let key = (TopicId(number / 2), SupplierId(number % 2));
                match step {
                    0 => {
                        let removed = flows.remove(key).map(|flow| flow.events);
                        prop_assert_eq!(removed, map.remove(&key));
                    }
                    1 => {
                        flows.get_or_insert_with(key, WaitingFlow::default).events += 1;
                        *map.entry(key).or_default() += 1;
                    }
                    _ => {
                        flows.get_mut(key).into_iter().for_each(|flow| flow.events += 1);
                        map.get_mut(&key).into_iter().for_each(|events| *events += 1);
                    }
                }
                for number in 0..4 {
                    let key = (TopicId(number / 2), SupplierId(number % 2));
                    prop_assert_eq!(flows.get(key).map(|flow| flow.events), map.get(&key).copied());
                }
            }
        }
    }
}
