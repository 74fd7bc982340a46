//! Prefetches the memory of the classes that will probably be served next.

use super::{INNER, Scheduler};
use unisono_intrinsics::prefetch;

/// The number of classes from which on they do not fit into the cache, so that prefetching pays.
const LARGE: usize = 8192;

impl<T> Scheduler<T> {
    /// Prefetches the memory that the next decisions will need.
    #[inline]
    pub(super) fn fetch_next(&self) {
        if self.leaves.len() >= LARGE {
            self.fetch();
        }
    }

    #[inline(never)]
    fn fetch(&self) {
        let inner = &self.inner[0];
        if inner.child.many {
            let mut coming = self.calendars[inner.queue as usize].coming();
            let (first, third) = (coming.next(), coming.nth(1));
            self.fetch_packets(first);
            self.fetch_leaf(third);
        } else {
            // for each of the next three classes the next step: its inner class, its leaf, or its leaf's
            // packets
            self.fetch_inner(self.next_below(0, 2, 2));
            self.fetch_leaf(self.next_below(0, 1, 1));
            self.fetch_packets(self.next_below(0, 0, 1));
        }
    }

    /// Returns the slot, below an inner class `height` levels above the leaves, that will probably be served
    /// after `after` others.
    #[inline]
    fn next_below(&self, root: usize, after: u32, height: u32) -> Option<u32> {
        let mut inner = &self.inner[root];
        let mut slot = self.packed.get(inner.queue as usize)?.peek(after)?;
        while inner.height > height {
            inner = self.inner.get((slot & !INNER) as usize)?;
            slot = self.packed.get(inner.queue as usize)?.peek(0)?;
        }
        Some(slot)
    }

    #[inline]
    fn fetch_inner(&self, slot: Option<u32>) {
        let at = slot.map_or(usize::MAX, |slot| (slot ^ INNER) as usize);
        if let (Some(inner), Some(packed)) = (self.inner.get(at), self.packed.get(at)) {
            prefetch(inner);
            packed.fetch(); // the index is right only if no class has a calendar, which is rare
        }
    }

    #[inline]
    fn fetch_leaf(&self, slot: Option<u32>) {
        if let Some(leaf) = slot.and_then(|slot| self.leaves.get(slot as usize)) {
            prefetch(leaf);
        }
    }

    #[inline]
    fn fetch_packets(&self, slot: Option<u32>) {
        if let Some(leaf) = slot.and_then(|slot| self.leaves.get(slot as usize)) {
            self.queues.fetch(&leaf.queue);
        }
    }
}
