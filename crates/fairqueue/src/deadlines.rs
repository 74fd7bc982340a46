//! Earliest deadline first, within one class.
//!
//! A min-max heap: the levels of a binary heap alternately hold the least and the greatest of the entries
//! below them. So the packet to serve is at the top, and the packet to drop is its child with the later
//! deadline. A packet's deadline counts as no earlier than the deadlines of earlier packets of its flow, so
//! that no flow is reordered. Cost: steps in the logarithm of the number of packets, at either end. Memory
//! grows with the greatest number of packets that have waited at a time, and is reused.
//!
//! Reference: Atkinson, Sack, Santoro, Strothotte, "Min-max heaps and generalized priority queues" (CACM
//! 1986).

use std::collections::HashMap;
use unisono_time::Instant;

/// Deadline, order of arrival, and the number of the packet.
type DeadlineEntry = (Instant, u64, u32);

#[derive(Clone, Debug, Default)]
pub(crate) struct Deadlines {
    heap: Vec<DeadlineEntry>,
    arrivals: u64,
    /// For each flow, the latest deadline that waits and the number of packets that wait.
    flows: HashMap<u32, (Instant, u32)>,
}

impl Deadlines {
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns the packets that wait, in no particular order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u32> {
        self.heap.iter().map(|entry| entry.2)
    }

    pub(crate) fn push(&mut self, deadline: Instant, flow: u32, packet: u32) {
        let (latest, packets) = self.flows.entry(flow).or_default();
        *latest = deadline.max(*latest);
        *packets += 1;
        self.heap.push((*latest, self.arrivals, packet));
        self.arrivals += 1;
        self.rise(self.heap.len() - 1);
    }

    /// Counts a packet of a flow that has left.
    pub(crate) fn departed(&mut self, flow: u32) {
        if let Some((_, packets)) = self.flows.get_mut(&flow) {
            *packets -= 1;
            if *packets == 0 {
                self.flows.remove(&flow);
            }
        }
    }

    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.remove(0)
    }

    pub(crate) fn pop_last(&mut self) -> Option<u32> {
        let last = match self.heap.len() {
            0 => return None,
            1 => 0,
            2 => 1,
            _ if self.heap[1] > self.heap[2] => 1,
            _ => 2,
        };
        self.remove(last)
    }

    fn remove(&mut self, at: usize) -> Option<u32> {
        if at >= self.heap.len() {
            return None;
        }
        let entry = self.heap.swap_remove(at);
        self.sink(at);
        Some(entry.2)
    }

    /// Returns whether entry `one` belongs above entry `other` by the rule (least or greatest on top) of the
    /// level that `level_of` is on.
    fn above(&self, level_of: usize, one: usize, other: usize) -> bool {
        let (one, other) = (self.heap[one], self.heap[other]);
        if is_min_level(level_of) { one < other } else { one > other }
    }

    fn rise(&mut self, mut at: usize) {
        if at > 0 && self.above(parent(at), at, parent(at)) {
            self.heap.swap(at, parent(at));
            at = parent(at);
        }
        while at > 2 && self.above(at, at, parent(parent(at))) {
            self.heap.swap(at, parent(parent(at)));
            at = parent(parent(at));
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let children = 2 * at + 1..2 * at + 3;
            let grandchildren = 4 * at + 3..4 * at + 7;
            let below = children.chain(grandchildren).filter(|below| *below < self.heap.len());
            let first = below.reduce(|one, other| if self.above(at, other, one) { other } else { one });
            let Some(first) = first.filter(|first| self.above(at, *first, at)) else { return };
            self.heap.swap(at, first);
            if first <= 2 * at + 2 {
                return; // a child that comes first has no children: they would come before it
            }
            if self.above(parent(first), first, parent(first)) {
                self.heap.swap(first, parent(first));
            }
            at = first;
        }
    }
}

fn parent(at: usize) -> usize {
    (at - 1) / 2
}

/// Returns whether an entry is on a level that holds the least entries.
fn is_min_level(at: usize) -> bool {
    (at + 1).ilog2().is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn both_ends_are_those_of_a_sorted_set(steps in prop::collection::vec((0..5_u8, 0..40_u64), 1..300)) {
            let (mut heap, mut model) = (Deadlines::default(), BTreeSet::new());
            for (at, (step, deadline)) in (0_u32..).zip(steps) {
                match step {
                    0 => prop_assert_eq!(heap.pop(), model.pop_first().map(|(_, at)| at)),
                    1 => prop_assert_eq!(heap.pop_last(), model.pop_last().map(|(_, at)| at)),
                    _ => {
                        heap.push(Instant::from_nanos(deadline), at, at); // each packet is its own flow
                        model.insert((deadline, at));
                    }
                }
                prop_assert_eq!(heap.is_empty(), model.is_empty());
            }
        }
    }
}
