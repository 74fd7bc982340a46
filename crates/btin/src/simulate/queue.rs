//! The event queue of a simulation: by time, and at the same time in the order in which events were added.

use super::SimulatedTime;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The future events, each with its time and its number. No two have the same number, so that the events
/// themselves are never compared; they are `Ord` because the heap requires it.
pub(super) struct EventQueue<E> {
    heap: BinaryHeap<Reverse<(SimulatedTime, u64, E)>>,
    next: u64,
}

impl<E: Ord> EventQueue<E> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), next: 0 }
    }

    pub(super) fn push(&mut self, at: SimulatedTime, event: E) {
        self.heap.push(Reverse((at, self.next, event)));
        self.next += 1;
    }

    pub(super) fn pop(&mut self) -> Option<(SimulatedTime, E)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }

    pub(super) fn events(&self) -> u64 {
        self.next
    }
}
