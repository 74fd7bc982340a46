//! A priority queue for a few children, whose order is encoded in one number.
//!
//! Each child has a place among its siblings, a digit of five bits. The waiting children form a number of
//! such digits; the lowest digit is the next child. To insert a child, the queue counts the tags that are not
//! greater than the child's, without a branch on any of them, and shifts the digits of the later children to
//! make room. To take the next child, the queue shifts the digits back. So a decision costs the same whatever
//! the tags are. (A search among six siblings would take few instructions, but a single mispredicted branch
//! in it costs more than they do.) The order is exact; equal tags leave first in, first out.

use unisono_intrinsics::prefetch;

/// A child that wants service, and its start tag.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TaggedSlot {
    pub(crate) tag: u64,
    pub(crate) slot: u32,
}

impl TaggedSlot {
    #[inline]
    pub(crate) fn new(tag: u64, slot: u32) -> Self {
        Self { tag, slot }
    }
}

const DIGIT: u32 = 5;
const PLACES: usize = 1 << DIGIT;
/// The most children whose digits fit into the number.
pub(crate) const MAX_PACKED: usize = (u128::BITS / DIGIT) as usize;
/// The tag of a child that does not wait: greater than any other tag.
const IDLE: u64 = u64::MAX;

#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct PackedQueue {
    order: u128,
    waiting: u32,
    /// The number of tags that an insertion compares, four at a time.
    size: u32,
    tags: [u64; PLACES],
    slots: [u32; PLACES],
}

impl PackedQueue {
    /// Returns a queue for at most [`MAX_PACKED`] children, given by their slots. No child waits yet.
    pub(crate) fn new(children: &[u32]) -> Self {
        let size = u32::try_from(children.len().next_multiple_of(4)).expect("a small number");
        let mut slots = [0; PLACES];
        slots[..children.len()].copy_from_slice(children);
        Self { order: 0, waiting: 0, size, tags: [IDLE; PLACES], slots }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Inserts a child that does not wait, behind all children whose tags are not greater.
    #[inline(always)]
    pub(crate) fn insert(&mut self, place: u8, tag: u64) {
        let place = usize::from(place) % PLACES;
        let (four, _) = self.tags.as_chunks::<4>();
        let count = |tags: &[u64; 4]| -> u32 { tags.iter().map(|other| u32::from(*other <= tag)).sum() };
        let before: u32 = four[..self.size as usize / 4].iter().map(count).sum();
        let shift = DIGIT * before;
        if self.waiting < u64::BITS / DIGIT {
            // the order fits into the lower half of the number
            let order = self.order as u64;
            let behind = order >> (shift % u64::BITS);
            self.order =
                u128::from(order ^ ((behind ^ (behind << DIGIT | place as u64)) << (shift % u64::BITS)));
        } else {
            let behind = self.order >> shift;
            self.order ^= (behind ^ (behind << DIGIT | place as u128)) << shift;
        }
        self.tags[place] = tag;
        self.waiting += 1;
    }

    /// Takes the child with the least tag; among equal tags, the one inserted first.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<TaggedSlot> {
        self.waiting = self.waiting.checked_sub(1)?;
        let place = self.order as usize % PLACES;
        self.order >>= DIGIT;
        let tag = std::mem::replace(&mut self.tags[place], IDLE);
        Some(TaggedSlot::new(tag, self.slots[place]))
    }

    /// Returns the slot of the child that would be taken after `after` others.
    #[inline]
    pub(crate) fn peek(&self, after: u32) -> Option<u32> {
        let place = (self.order >> (DIGIT * after)) as usize % PLACES;
        (self.waiting > after).then(|| self.slots[place])
    }

    /// Prefetches the order and the tags.
    #[inline]
    pub(crate) fn fetch(&self) {
        prefetch(&self.order);
        prefetch(&self.tags[7]);
        prefetch(&self.tags[15]);
        prefetch(&self.slots);
    }

    pub(crate) fn remove(&mut self, place: u8) {
        let digit = |at: u32| self.order >> (DIGIT * at) & (PLACES as u128 - 1);
        let Some(at) = (0..self.waiting).find(|at| digit(*at) == u128::from(place)) else { return };
        let low = (1 << (DIGIT * at)) - 1;
        self.order = self.order & low | (self.order >> DIGIT) & !low;
        self.tags[usize::from(place) % PLACES] = IDLE;
        self.waiting -= 1;
    }

    /// Changes every tag to what `tag_now` returns for it. `tag_now` must keep their order.
    pub(crate) fn change(&mut self, tag_now: impl Fn(u64) -> u64) {
        for tag in self.tags.iter_mut().filter(|tag| **tag != IDLE) {
            *tag = tag_now(*tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn what_is_taken_is_what_a_sorted_set_would_give(
            steps in prop::collection::vec((0..8_u8, 0..MAX_PACKED as u8, 0..20_u64), 1..300),
        ) {
            let slots: Vec<u32> = (100..100 + MAX_PACKED as u32).collect();
            let mut few = PackedQueue::new(&slots);
            let mut model: BTreeSet<(u64, usize, u8)> = BTreeSet::new(); // tag, order of insertion, place
            for (at, (step, place, tag)) in steps.into_iter().enumerate() {
                let waits = model.iter().find(|entry| entry.2 == place).copied();
                match (step, waits) {
                    (0..2, _) => {
                        let entry = few.take().map(|entry| (entry.tag, entry.slot));
                        let expected = model.pop_first().map(|(tag, _, place)| (tag, 100 + u32::from(place)));
                        prop_assert_eq!(entry, expected);
                    }
                    (2, Some(entry)) => {
                        few.remove(place);
                        model.remove(&entry);
                    }
                    (3, _) => {
                        few.change(|tag| tag + 1);
                        model = model.into_iter().map(|(tag, at, place)| (tag + 1, at, place)).collect();
                    }
                    (_, None) => {
                        few.insert(place, tag);
                        model.insert((tag, at, place));
                    }
                    _ => {}
                }
                prop_assert_eq!(few.peek(1), model.iter().nth(1).map(|entry| 100 + u32::from(entry.2)));
                prop_assert_eq!(few.is_empty(), model.is_empty());
            }
        }
    }
}
