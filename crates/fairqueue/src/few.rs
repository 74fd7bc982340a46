//! Who is next among few: a short list in order.
//!
//! For a class with a handful of children a sorted list of 16-byte entries beats anything clever: an entry
//! is a shift within one or two cache lines. Order is exact, among equal tags first in, first out.

/// Up to so many children are kept in a list.
pub(crate) const FEW: usize = 32;

#[derive(Clone, Debug, Default)]
pub(crate) struct Few {
    /// Descending, so that the next one is at the end.
    entries: Vec<(u64, u32)>,
}

impl Few {
    pub(crate) fn new(slots: usize) -> Self {
        Self { entries: Vec::with_capacity(slots) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline]
    pub(crate) fn insert(&mut self, slot: u32, tag: u64) {
        // from the front: what continues after its service usually goes far back
        let at = self.entries.iter().position(|entry| entry.0 <= tag).unwrap_or(self.entries.len());
        self.entries.insert(at, (tag, slot));
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<(u32, u64)> {
        self.entries.pop().map(|(tag, slot)| (slot, tag))
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        self.entries.retain(|entry| entry.1 != slot);
    }

    pub(crate) fn rebuild(&mut self, tag_now: impl Fn(u64) -> u64) {
        for entry in &mut self.entries {
            entry.0 = tag_now(entry.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_tag_comes_first_and_equal_ones_in_the_order_they_came() {
        let mut few = Few::new(4);
        for (slot, tag) in [(0, 5), (1, 3), (2, 5), (3, 3)] {
            few.insert(slot, tag);
        }
        few.remove(3);
        few.insert(3, 3);
        let order: Vec<_> = std::iter::from_fn(|| few.take()).collect();
        assert_eq!(order, [(1, 3), (3, 3), (0, 5), (2, 5)]);
        assert!(few.is_empty());
    }
}
