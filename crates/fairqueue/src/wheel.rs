//! A monotone priority queue for any distance of tags: no tag is inserted below the last one taken.
//!
//! The start tags that a start-time fair queue serves never decrease, and no tag is ever inserted below the
//! one served last. For such a monotone queue a heap does more work than necessary. This queue is a radix
//! structure with 64 buckets on each level. An entry's level is the highest digit (six bits) in which its tag
//! differs from the tag served last, and that digit selects its bucket. So all entries of a lower level come
//! before all entries of a higher one, and one word of bits on each level finds the first bucket. When a
//! bucket above the lowest level becomes the first, its least tag becomes the tag served last and its entries
//! move down.
//!
//! The order is exact; equal tags leave first in, first out: they always share a bucket, and buckets keep
//! their order when they move down.
//!
//! Cost: an entry moves down at most once a level, in practice once or twice. A bucket is a chain of chunks
//! of adjacent entries, so that moving it down reads neighboring memory instead of one class after the other.
//! All chunks that can be needed are allocated when the queue is made. When not to use it: for few entries,
//! because a level takes half a kilobyte (see `packed_queue.rs` instead).
//!
//! Reference: Ahuja, Mehlhorn, Orlin, Tarjan, "Faster algorithms for the shortest path problem" (radix
//! heaps).

const DIGIT: u32 = 6;
const BUCKETS: usize = 1 << DIGIT;
const LEVELS: usize = u64::BITS.div_ceil(DIGIT) as usize;
const NONE: u32 = u32::MAX;
/// The entries of a chunk; with its header, a chunk fills four cache lines.
const ROOM: usize = 15;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct WheelChunk {
    next: u32,
    /// The entries from `from` to `to` are in use.
    from: u32,
    to: u32,
    entries: [(u64, u32); ROOM],
}

/// The first and the last chunk of a bucket.
#[derive(Clone, Copy, Debug)]
struct BucketEnds {
    first: u32,
    last: u32,
}

const NO_CHUNKS: BucketEnds = BucketEnds { first: NONE, last: NONE };

#[derive(Clone, Debug)]
pub(crate) struct Wheel {
    /// The tag served last; no tag in the queue is below it.
    base: u64,
    /// One bit for each level that has entries.
    levels: u32,
    /// For each level, one bit for each bucket that has entries.
    buckets: [u64; LEVELS],
    ends: Box<[[BucketEnds; BUCKETS]; LEVELS]>,
    chunks: Vec<WheelChunk>,
    free: u32,
}

impl Wheel {
    /// Returns a queue for at most `classes` entries.
    pub(crate) fn new(classes: usize) -> Self {
        // a bucket has at most two chunks that are not full, its first and its last; with one entry only one
        let count = classes / ROOM + 2 * classes.min(LEVELS * BUCKETS) + 1;
        let count = u32::try_from(count).expect("fits because classes have numbers of 30 bits");
        let chunk = |next| WheelChunk { next, from: 0, to: 0, entries: [(0, 0); ROOM] };
        Self {
            base: 0,
            levels: 0,
            buckets: [0; LEVELS],
            ends: Box::new([[NO_CHUNKS; BUCKETS]; LEVELS]),
            chunks: (1..count).chain([NONE]).map(chunk).collect(),
            free: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.levels == 0
    }

    /// Inserts a slot that is not in the queue. Its tag must not be below the last one taken.
    #[inline]
    pub(crate) fn insert(&mut self, slot: u32, tag: u64) {
        debug_assert!(tag >= self.base, "{tag} is below {}, which was served", self.base);
        let (level, bucket) = self.place(tag);
        let last = self.ends[level][bucket].last;
        if let Some(chunk) = self.chunks.get_mut(last as usize)
            && let Some(entry) = chunk.entries.get_mut(chunk.to as usize)
        {
            *entry = (tag, slot);
            chunk.to += 1;
        } else {
            self.insert_in_new_chunk(level, bucket, (tag, slot));
        }
    }

    /// Takes the slot with the least tag; among equal tags, the one inserted first.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(u32, u64)> {
        self.take_below(u64::MAX)
    }

    /// Takes the first slot if its tag is below `limit`. Afterwards tags from `limit` on may still be
    /// inserted.
    pub(crate) fn take_below(&mut self, limit: u64) -> Option<(u32, u64)> {
        loop {
            if self.levels == 0 {
                return None;
            }
            let level = self.levels.trailing_zeros() as usize;
            let bucket = self.buckets[level].trailing_zeros() as usize;
            let shift = DIGIT * self.levels.trailing_zeros();
            // the least tag that the bucket can hold
            let above = self.base.checked_shr(shift + DIGIT).map_or(0, |base| base << (shift + DIGIT));
            let min_tag = above | (bucket as u64) << shift;
            if min_tag >= limit {
                return None;
            }
            if level > 0 {
                self.move_down(level, limit);
                continue;
            }
            let first = self.ends[0][bucket].first;
            let chunk = &mut self.chunks[first as usize];
            let (tag, slot) = chunk.entries[chunk.from as usize];
            chunk.from += 1;
            if chunk.from == chunk.to {
                self.drop_first(0, bucket);
            }
            self.base = tag;
            return Some((slot, tag));
        }
    }

    /// Takes a slot out of the queue, which must hold it with this tag. Searches for it, so call this rarely.
    pub(crate) fn remove(&mut self, slot: u32, tag: u64) {
        let (level, bucket) = self.place(tag);
        let entries = self.empty(level, bucket);
        for (tag, other) in entries.into_iter().filter(|(_, other)| *other != slot) {
            self.insert(other, tag);
        }
    }

    /// Restarts the empty queue at a tag.
    #[inline]
    pub(crate) fn restart(&mut self, base: u64) {
        debug_assert!(self.is_empty(), "nothing may be left behind");
        self.base = base;
    }

    /// Returns the level and the bucket of a tag. The level is the position of the highest digit in which the
    /// tag differs from the base.
    #[inline]
    fn place(&self, tag: u64) -> (usize, usize) {
        let differs = (tag ^ self.base) | 1;
        let level = (u64::BITS - 1 - differs.leading_zeros()) / DIGIT;
        (level as usize, (tag >> (level * DIGIT)) as usize % BUCKETS)
    }

    #[cold]
    fn insert_in_new_chunk(&mut self, level: usize, bucket: usize, entry: (u64, u32)) {
        let at = self.free;
        let chunk = &mut self.chunks[at as usize];
        self.free = chunk.next;
        (chunk.next, chunk.from, chunk.to) = (NONE, 0, 1);
        chunk.entries[0] = entry;
        let ends = &mut self.ends[level][bucket];
        let last = std::mem::replace(&mut ends.last, at);
        match last {
            NONE => {
                ends.first = at;
                self.buckets[level] |= 1 << bucket;
                self.levels |= 1 << level;
            }
            last => self.chunks[last as usize].next = at,
        }
    }

    /// Frees the first chunk of a bucket. All its entries have been taken.
    fn drop_first(&mut self, level: usize, bucket: usize) {
        let ends = &mut self.ends[level][bucket];
        let at = ends.first;
        let chunk = &mut self.chunks[at as usize];
        ends.first = std::mem::replace(&mut chunk.next, self.free);
        self.free = at;
        if ends.first == NONE {
            ends.last = NONE;
            self.now_empty(level, bucket);
        }
    }

    fn now_empty(&mut self, level: usize, bucket: usize) {
        self.buckets[level] &= !(1 << bucket);
        if self.buckets[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Sets the base to the least tag of the first bucket of a level, or to `limit` if that is less, and
    /// moves the entries of the bucket to the levels below.
    fn move_down(&mut self, level: usize, limit: u64) {
        let bucket = self.buckets[level].trailing_zeros() as usize;
        let first = std::mem::replace(&mut self.ends[level][bucket], NO_CHUNKS).first;
        self.now_empty(level, bucket);
        let mut min_tag = limit;
        let mut at = first;
        while let Some(chunk) = self.chunks.get(at as usize) {
            let entries = &chunk.entries[chunk.from as usize..chunk.to as usize];
            min_tag = entries.iter().map(|entry| entry.0).fold(min_tag, u64::min);
            at = chunk.next;
        }
        self.base = min_tag;
        let mut at = first;
        while at != NONE {
            // a copy, so that the chunk can be reused while its entries are inserted
            let WheelChunk { next, from, to, entries } = self.chunks[at as usize];
            self.chunks[at as usize].next = self.free;
            self.free = at;
            for (tag, slot) in &entries[from as usize..to as usize] {
                self.insert(*slot, *tag);
            }
            at = next;
        }
    }

    /// Empties a bucket and returns its entries.
    fn empty(&mut self, level: usize, bucket: usize) -> Vec<(u64, u32)> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunks.get(self.ends[level][bucket].first as usize) {
            all.extend_from_slice(&chunk.entries[chunk.from as usize..chunk.to as usize]);
            self.drop_first(level, bucket);
        }
        all
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
        Remove { which: usize },
        TakeBelow { ahead: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let ahead = prop_oneof![
            4 => 0..4_u64,
            4 => 0..5_000_u64,
            1 => 0..1_u64 << 40,
            1 => 0..1_u64 << 61,
        ];
        let step = prop_oneof![
            6 => ahead.prop_map(|ahead| Step::Insert { ahead }),
            5 => Just(Step::Take),
            1 => any::<usize>().prop_map(|which| Step::Remove { which }),
            1 => (0..10_000_u64).prop_map(|ahead| Step::TakeBelow { ahead }),
        ];
        prop::collection::vec(step, 1..300)
    }

    proptest! {
        #[test]
        fn what_is_taken_is_what_a_sorted_set_would_give(steps in steps()) {
            let mut wheel = Wheel::new(300);
            let mut model: BTreeSet<(u64, usize, u32)> = BTreeSet::new(); // tag, order of insertion, slot
            let (mut base, mut free) = (0_u64, (0..300).rev().collect::<Vec<u32>>());
            for (at, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert { ahead } => {
                        let Some(tag) = base.checked_add(ahead).filter(|tag| *tag < 1 << 63) else { continue };
                        let slot = free.pop().expect("there are as many slots as steps");
                        wheel.insert(slot, tag);
                        model.insert((tag, at, slot));
                    }
                    Step::Take => {
                        let expected = model.pop_first();
                        prop_assert_eq!(wheel.take(), expected.map(|(tag, _, slot)| (slot, tag)));
                        if let Some((tag, _, slot)) = expected {
                            base = tag;
                            free.push(slot);
                        }
                    }
                    Step::Remove { which } => {
                        if model.is_empty() { continue }
                        let entry = *model.iter().nth(which % model.len()).expect("it is below the length");
                        model.remove(&entry);
                        wheel.remove(entry.2, entry.0);
                        free.push(entry.2);
                    }
                    Step::TakeBelow { ahead } => {
                        let limit = base.saturating_add(ahead);
                        let expected = model.first().copied().filter(|(tag, ..)| *tag < limit);
                        let taken = wheel.take_below(limit);
                        prop_assert_eq!(taken, expected.map(|(tag, _, slot)| (slot, tag)));
                        match expected {
                            Some(entry) => {
                                model.remove(&entry);
                                base = entry.0;
                                free.push(entry.2);
                            }
                            None => base = limit,
                        }
                    }
                }
                prop_assert_eq!(wheel.is_empty(), model.is_empty());
            }
        }
    }
}
