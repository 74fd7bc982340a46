//! A priority queue for start tags: a calendar of the near future, and a wheel for tags further ahead.
//!
//! A start-time fair queue inserts start tags between the virtual time and one packet's cost beyond it. The
//! calendar divides that range into pages of equally many consecutive tags, in a ring ([`PageRing`]); a bit
//! for each page shows whether the page has entries. An entry is appended to its page. If the ring is long
//! enough, a page covers one tag. Otherwise the queue sorts each page when the virtual time reaches it; a
//! page covers so few tags that most pages hold one or two entries, or entries of one tag. An entry whose
//! page lies beyond the ring waits in the [`Wheel`] until the ring covers that page. Only a class with a far
//! smaller weight than its siblings inserts tags that far ahead, and it does so rarely.
//!
//! The order is exact; equal tags leave first in, first out. The wheel and the pages keep that order, and the
//! wheel hands over the entries of a page before any other entry can be appended to that page.
//!
//! Cost: constant for weights that do not differ by orders of magnitude; otherwise the cost of the wheel.
//! Inserting and taking have hardly a branch that depends on the tags, unless a page has to be sorted.
//! Memory: 8 bytes a page, at most 131,072 pages, and some 50 bytes for each entry, all allocated when the
//! calendar is made.
//!
//! Reference: Brown, "Calendar queues" (CACM 1988).

use crate::packed_queue::TaggedSlot;
use crate::ring::PageRing;
use crate::wheel::Wheel;

#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    /// The base-2 logarithm of the number of tags in a page.
    shift: u32,
    /// The number of the current page, counted from tag 0; this page is sorted.
    today: u64,
    /// The first page whose entries are in the wheel: at most one turn of the ring after `today`.
    horizon: u64,
    ring: PageRing,
    far: Wheel,
    /// The tag taken last.
    base: u64,
}

const MAX_PAGES: usize = 1 << 17;

impl Calendar {
    /// Returns a queue for at most `classes` entries. `span` is the distance ahead of the virtual time within
    /// which tags are usually inserted.
    pub(crate) fn new(classes: usize, span: u64) -> Self {
        let wanted = usize::try_from(span).unwrap_or(MAX_PAGES).min(16 * classes).min(MAX_PAGES);
        let pages = wanted.next_power_of_two().max(512);
        let mut shift = 0;
        while span >> shift > pages as u64 {
            shift += 1;
        }
        let (ring, far) = (PageRing::new(pages, classes), Wheel::new(classes));
        Self { shift, today: 0, horizon: pages as u64, ring, far, base: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty() && self.far.is_empty()
    }

    /// Inserts a slot that is not in the queue. Its tag must not be below the last one taken.
    #[inline]
    pub(crate) fn insert(&mut self, entry: TaggedSlot) {
        debug_assert!(entry.tag >= self.base, "{entry:?} is below {}, which was served", self.base);
        let page = entry.tag >> self.shift;
        let place = self.ring.place(page);
        if page >= self.horizon {
            self.far.insert(entry.slot, entry.tag);
        } else if self.shift > 0 && page == self.today {
            self.ring.insert(place, entry);
        } else {
            self.ring.append(place, entry);
        }
    }

    /// Takes the entry with the least tag; among equal tags, the one inserted first.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<TaggedSlot> {
        let from = self.ring.place(self.today);
        let Some(place) = self.ring.next(from) else { return self.take_far() };
        let page = self.today + self.ring.place((place.wrapping_sub(from)) as u64) as u64;
        if self.far.is_empty() {
            self.horizon = page + self.ring.pages();
        } else if page + self.ring.pages() / 2 >= self.horizon {
            self.bring_near(page);
        }
        if self.shift > 0 && page != self.today {
            self.ring.sort(place);
        }
        self.today = page;
        let entry = self.ring.pop(place);
        self.base = entry.tag;
        Some(entry)
    }

    /// Takes the first entry of the wheel; called when the ring is empty.
    #[cold]
    fn take_far(&mut self) -> Option<TaggedSlot> {
        let (slot, tag) = self.far.take()?;
        self.base = tag;
        self.today = tag >> self.shift;
        self.bring_near(self.today);
        // the other entries of the same page are in the ring now
        self.ring.sort(self.ring.place(self.today));
        Some(TaggedSlot::new(tag, slot))
    }

    /// Moves the horizon to one turn of the ring beyond `page`.
    #[cold]
    fn bring_near(&mut self, page: u64) {
        self.horizon = page + self.ring.pages();
        let horizon = self.horizon.checked_shl(self.shift).filter(|tags| tags >> self.shift == self.horizon);
        while let Some((slot, tag)) = self.far.take_below(horizon.unwrap_or(u64::MAX)) {
            self.ring.append(self.ring.place(tag >> self.shift), TaggedSlot::new(tag, slot));
        }
    }

    /// Returns the slots that will probably be taken next, in order.
    #[inline]
    pub(crate) fn coming(&self) -> impl Iterator<Item = u32> {
        self.ring.coming(self.ring.place(self.today))
    }

    /// Takes a slot out of the queue, which must hold it with this tag. Searches for it, so call this rarely.
    pub(crate) fn remove(&mut self, entry: TaggedSlot) {
        let page = entry.tag >> self.shift;
        if page >= self.horizon {
            self.far.remove(entry.slot, entry.tag);
        } else {
            self.ring.remove(self.ring.place(page), entry.slot);
        }
    }

    /// Changes every tag in the queue and the tag taken last to what `tag_now` returns for it. `tag_now` must
    /// keep their order.
    pub(crate) fn rebuild(&mut self, tag_now: impl Fn(u64) -> u64) {
        let base = tag_now(self.base);
        let entries: Vec<TaggedSlot> = std::iter::from_fn(|| self.take()).collect();
        self.restart(base);
        for TaggedSlot { tag, slot } in entries {
            self.insert(TaggedSlot::new(tag_now(tag), slot));
        }
    }

    /// Restarts the empty queue at a tag.
    #[inline]
    pub(crate) fn restart(&mut self, base: u64) {
        debug_assert!(self.is_empty(), "nothing may be left behind");
        self.base = base;
        self.today = base >> self.shift;
        self.horizon = self.today + self.ring.pages();
        self.far.restart(base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Step {
        Insert { ahead: u64 },
        Take,
        Exchange { ahead: u64 },
        Remove { which: usize },
        Rebuild { back: u64 },
        Restart { ahead: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let ahead = || {
            prop_oneof![
                4 => 0..4_u64,
                4 => 0..5_000_u64,
                2 => 0..1_u64 << 20,
                1 => 0..1_u64 << 61,
            ]
        };
        let step = prop_oneof![
            6 => ahead().prop_map(|ahead| Step::Insert { ahead }),
            3 => Just(Step::Take),
            3 => ahead().prop_map(|ahead| Step::Exchange { ahead }),
            1 => any::<usize>().prop_map(|which| Step::Remove { which }),
            1 => any::<u64>().prop_map(|back| Step::Rebuild { back }),
            1 => ahead().prop_map(|ahead| Step::Restart { ahead }),
        ];
        prop::collection::vec(step, 1..300)
    }

    proptest! {
        #[test]
        fn what_is_taken_is_what_a_sorted_set_would_give(
            steps in steps(), span in prop::sample::select(vec![1, 1000, 20_000, 1 << 30]),
        ) {
            let mut calendar = Calendar::new(301, span);
            let mut model: BTreeSet<(u64, usize, u32)> = BTreeSet::new(); // tag, order of insertion, slot
            let (mut base, mut free) = (0_u64, (0..301).rev().collect::<Vec<u32>>());
            for (at, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert { ahead } => {
                        let Some(tag) = base.checked_add(ahead).filter(|tag| *tag < 1 << 63) else { continue };
                        let slot = free.pop().expect("there are as many slots as steps");
                        calendar.insert(TaggedSlot::new(tag, slot));
                        model.insert((tag, at, slot));
                    }
                    Step::Exchange { ahead } => {
                        let Some(tag) = base.checked_add(ahead).filter(|tag| *tag < 1 << 63) else { continue };
                        let slot = free.pop().expect("there are as many slots as steps");
                        model.insert((tag, at, slot));
                        let expected = model.pop_first().expect("one was entered");
                        calendar.insert(TaggedSlot::new(tag, slot));
                        let entry = calendar.take().expect("one was entered");
                        prop_assert_eq!((entry.tag, entry.slot), (expected.0, expected.2));
                        base = entry.tag;
                        free.push(entry.slot);
                    }
                    Step::Take => {
                        let expected = model.pop_first();
                        let entry = calendar.take().map(|entry| (entry.tag, entry.slot));
                        prop_assert_eq!(entry, expected.map(|(tag, _, slot)| (tag, slot)));
                        if let Some((tag, _, slot)) = expected {
                            base = tag;
                            free.push(slot);
                        }
                    }
                    Step::Remove { which } => {
                        if model.is_empty() { continue }
                        let entry = *model.iter().nth(which % model.len()).expect("it is below the length");
                        model.remove(&entry);
                        calendar.remove(TaggedSlot::new(entry.0, entry.2));
                        free.push(entry.2);
                    }
                    Step::Rebuild { back } => {
                        let back = if base == 0 { 0 } else { back % base };
                        calendar.rebuild(|tag| tag - back);
                        base -= back;
                        model = model.into_iter().map(|(tag, at, slot)| (tag - back, at, slot)).collect();
                    }
                    Step::Restart { ahead } => {
                        if !model.is_empty() { continue }
                        let Some(tag) = base.checked_add(ahead).filter(|tag| *tag < 1 << 62) else { continue };
                        calendar.restart(tag);
                        base = tag;
                    }
                }
                prop_assert_eq!(calendar.is_empty(), model.is_empty());
            }
        }
    }
}
