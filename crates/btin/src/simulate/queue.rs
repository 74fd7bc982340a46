//! What happens next: events by time, and of one time in the order in which they were thought of.

use super::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The events ahead.
pub(super) struct Queue<E> {
    heap: BinaryHeap<Entry<E>>,
    next: u64,
}

struct Entry<E> {
    key: Reverse<(Time, u64)>,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl<E> Queue<E> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), next: 0 }
    }

    pub(super) fn push(&mut self, at: Time, event: E) {
        self.heap.push(Entry { key: Reverse((at, self.next)), event });
        self.next += 1;
    }

    pub(super) fn pop(&mut self) -> Option<(Time, E)> {
        self.heap.pop().map(|Entry { key: Reverse((at, _)), event }| (at, event))
    }

    /// How many events there have been.
    pub(super) fn events(&self) -> u64 {
        self.next
    }
}
