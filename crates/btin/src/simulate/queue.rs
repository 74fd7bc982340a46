//! What happens next: events by time, and of one time in the order in which they were thought of.

use super::SimulatedTime;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The events ahead.
pub(super) struct EventQueue<E> {
    heap: BinaryHeap<ScheduledEvent<E>>,
    next: u64,
}

struct ScheduledEvent<E> {
    key: Reverse<(SimulatedTime, u64)>,
    event: E,
}

impl<E> PartialEq for ScheduledEvent<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for ScheduledEvent<E> {}

impl<E> PartialOrd for ScheduledEvent<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for ScheduledEvent<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl<E> EventQueue<E> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), next: 0 }
    }

    pub(super) fn push(&mut self, at: SimulatedTime, event: E) {
        self.heap.push(ScheduledEvent { key: Reverse((at, self.next)), event });
        self.next += 1;
    }

    pub(super) fn pop(&mut self) -> Option<(SimulatedTime, E)> {
        self.heap.pop().map(|ScheduledEvent { key: Reverse((at, _)), event }| (at, event))
    }

    /// How many events there have been.
    pub(super) fn events(&self) -> u64 {
        self.next
    }
}
