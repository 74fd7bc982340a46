//! The layout of a supplier's memory, and the consumer's checks of the layout that the header claims.
//!
//! ```text
//!   header (128 bytes) | entries: depth x 32 bytes | slots: each `largest` bytes, rounded up
//!   header words:  0 magic   1 depth   2 largest   3 slots   16 closed   17 orders   18 early
//! ```
//! The kernel allocates a page at its first use. So a slot that only slow consumers need uses address space,
//! but no memory until its first use.

use unisono_sync::atomics::{AtomicU32, Ordering};
use unisono_sync::{ForeignWords, PublishedWords};

/// "UEM1": the version of this layout.
const MAGIC: u32 = u32::from_le_bytes(*b"UEM1");

/// The number of words of the header. Its second half has a cache line of its own: it is written when the
/// supplier leaves, gives an order, or publishes an event that is due before an earlier one.
const HEADER: usize = 32;
const DEPTH: usize = 1;
const EVENT_BYTES_WORD: usize = 2;
const SLOTS: usize = 3;
const CLOSED: usize = 16;
const ORDERS: usize = 17;
const EARLY_TURN: usize = 18;

/// Words of an entry.
pub(super) const ENTRY: usize = 8;

/// The maximum number of events of one supplier that a consumer may hold at once. For each of them the
/// supplier has one slot per consumer, so that it never waits for a holder.
pub(super) const HOLDS: usize = if cfg!(loom) { 1 } else { 4 };

/// The number of bytes of the next event that both ends prefetch while they are busy with the present one.
/// Longer copies last long enough for the processor's own prefetcher.
pub(super) const AHEAD: usize = 2048;

/// Maximum number of events in a ring. A header with more is hostile or damaged: the longest queue of a
/// direct ring has 16,384.
const MAX_DEPTH: u32 = 1 << 16;
/// Maximum bytes of an event, so that a slot's byte offsets cannot overflow.
const MAX_EVENT_BYTES: u32 = 1 << 30;
/// The maximum number of consumers of one supplier. Each takes a page and a descriptor, and a process may
/// usually have 1024 descriptors.
const MAX_CONSUMERS: u32 = 1 << 10;
/// Maximum address space of one supplier: 64 GiB. A header that asks for more is hostile or damaged; a
/// process on common processors has 47 bits of addresses.
const MAX_BYTES: u64 = 1 << 36;

/// From this size on, a slot covers at least a page. Such slots are reclaimed at once, which keeps the memory
/// small; the cost is negligible compared with the cost of writing the slot.
const LARGE: usize = 4096;

/// The size of a supplier's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryGeometry {
    depth: u32,
    largest: u32,
    slots: u32,
}

impl MemoryGeometry {
    /// Makes the size of a ring of the last `depth` events (rounded up to a power of two) of at most
    /// `largest` bytes each, for at most `consumers` consumers at once. Returns `None` beyond 65,536 events,
    /// 1 GiB per event, 1,024 consumers or 64 GiB in total, or if `largest` or `consumers` is 0.
    #[must_use]
    pub fn new(depth: u32, largest: u32, consumers: u32) -> Option<Self> {
        // At least two entries: an entry that is being rewritten has the turn of the entry before it.
        let depth = depth.max(2).checked_next_power_of_two()?;
        let within = depth <= MAX_DEPTH && largest <= MAX_EVENT_BYTES && consumers <= MAX_CONSUMERS;
        if !within || largest == 0 || consumers == 0 {
            return None;
        }
        let spare = u32::try_from(spare(depth, largest)).ok()?;
        // The sum of the slots in the ring, the slot on loan, the retired slots that are not examined yet,
        // and the held slots.
        let slots = depth + 1 + spare + consumers * HOLDS as u32;
        let geometry = Self { depth, largest, slots };
        (geometry.bytes() <= MAX_BYTES).then_some(geometry)
    }

    /// Returns the number of events in the ring.
    #[must_use]
    pub const fn depth(self) -> u32 {
        self.depth
    }

    /// Returns the maximum number of bytes of an event.
    #[must_use]
    pub const fn largest(self) -> u32 {
        self.largest
    }

    pub(super) const fn slots(self) -> u32 {
        self.slots
    }

    /// Returns the number of retired slots that accumulate before the holds are examined.
    pub(super) fn spare(self) -> usize {
        spare(self.depth, self.largest)
    }

    /// Returns the index of this turn's entry.
    pub(super) const fn index(self, turn: u64) -> usize {
        (turn & (self.depth as u64 - 1)) as usize
    }

    /// Returns the index of the first word of an entry.
    pub(super) const fn entry(index: usize) -> usize {
        HEADER + index * ENTRY
    }

    /// Returns the number of bytes from one slot to the next. This is an odd number of whole cache lines, so
    /// that short events in large slots do not all fall into the same cache sets.
    const fn stride(self) -> u64 {
        let line = if cfg!(loom) { 4 } else { 64 };
        ((self.largest as u64).div_ceil(line) | 1) * line
    }

    const fn first_slot(self) -> u64 {
        let end = ((HEADER + self.depth as usize * ENTRY) * size_of::<u32>()) as u64;
        if cfg!(loom) { end } else { end.next_multiple_of(4096) }
    }

    /// Returns the offset of the first byte of a slot.
    pub(super) const fn slot(self, slot: u32) -> usize {
        (self.first_slot() + slot as u64 * self.stride()) as usize
    }

    /// Returns the number of bytes of the whole memory.
    pub const fn bytes(self) -> u64 {
        self.first_slot() + self.slots as u64 * self.stride()
    }

    pub(super) fn words(self) -> usize {
        (self.bytes() as usize).div_ceil(size_of::<u32>())
    }

    /// Writes the sizes into the header, before any other process sees the memory.
    pub(super) fn write(self, words: &PublishedWords) {
        let header = words.words(0..HEADER);
        header[DEPTH].store(self.depth, Ordering::Relaxed);
        header[EVENT_BYTES_WORD].store(self.largest, Ordering::Relaxed);
        header[SLOTS].store(self.slots, Ordering::Relaxed);
        header[0].store(MAGIC, Ordering::Relaxed);
    }

    /// Returns the sizes in the header, if they are consistent and fit into the memory. The header is not
    /// read again.
    pub(super) fn read(words: &ForeignWords) -> Option<Self> {
        if words.count() < HEADER {
            return None;
        }
        let header = words.words(0..HEADER);
        let word = |index: usize| header[index].load(Ordering::Relaxed);
        let geometry = Self { depth: word(DEPTH), largest: word(EVENT_BYTES_WORD), slots: word(SLOTS) };
        let Self { depth, largest, slots } = geometry;
        let sane = word(0) == MAGIC
            && (2..=MAX_DEPTH).contains(&depth)
            && depth.is_power_of_two()
            && (1..=MAX_EVENT_BYTES).contains(&largest)
            && slots > depth;
        let fits = || geometry.bytes() <= (words.count() * size_of::<u32>()) as u64;
        (sane && fits()).then_some(geometry)
    }

    /// Returns the word that is set when the supplier has left.
    pub(super) fn closed(header: &[AtomicU32]) -> &AtomicU32 {
        &header[CLOSED]
    }

    /// Returns the word with the number of orders that the supplier has given to its consumers.
    pub(super) fn orders(header: &[AtomicU32]) -> &AtomicU32 {
        &header[ORDERS]
    }

    /// Returns the word with the turn after the last event that is due before an earlier one.
    pub(super) fn early(header: &[AtomicU32]) -> &AtomicU32 {
        &header[EARLY_TURN]
    }

    pub(super) const fn header() -> std::ops::Range<usize> {
        0..HEADER
    }
}

const fn spare(depth: u32, largest: u32) -> usize {
    if cfg!(loom) || largest as usize >= LARGE {
        1
    } else if depth < 16 {
        depth as usize
    } else {
        16
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn slots_do_not_overlap_entries_or_the_end() {
        for (depth, largest, consumers) in [(1, 1, 1), (2, 64, 3), (100, 1024, 16), (8, 1 << 20, 64)] {
            let geometry = MemoryGeometry::new(depth, largest, consumers).expect("within the limits");
            let entries_end = MemoryGeometry::entry(geometry.depth() as usize) * 4;
            assert!(geometry.depth() >= depth && geometry.slot(0) >= entries_end);
            assert!(geometry.slot(1) - geometry.slot(0) >= largest as usize);
            let end = geometry.slot(geometry.slots() - 1) + largest as usize;
            assert!(end <= geometry.words() * 4, "{end} of {}", geometry.words() * 4);
        }
    }

    #[test]
    fn what_is_beyond_the_limits_is_refused() {
        let none =
            [(0x1_0001, 1, 1), (2, 0, 1), (2, 1, 0), (u32::MAX, 1, 1), (2, 1 << 31, 1), (65536, 1 << 30, 1)];
        for (depth, largest, consumers) in none {
            assert_eq!(MemoryGeometry::new(depth, largest, consumers), None);
        }
    }

    #[test]
    fn a_header_that_lies_is_refused_and_an_honest_one_is_read() {
        let geometry = MemoryGeometry::new(4, 100, 1).expect("small");
        let own = PublishedWords::create(geometry.words()).expect("a page");
        let descriptor = own.as_fd().try_clone_to_owned().expect("a descriptor");
        let foreign = ForeignWords::new(descriptor).expect("sealed");
        assert_eq!(MemoryGeometry::read(&foreign), None, "nothing is there yet");
        geometry.write(&own);
        assert_eq!(MemoryGeometry::read(&foreign), Some(geometry));
        let lies = [
            (0, 0),
            (DEPTH, 3),
            (DEPTH, 0),
            (DEPTH, u32::MAX),
            (EVENT_BYTES_WORD, 0),
            (EVENT_BYTES_WORD, 1 << 30),
            (SLOTS, 4),
        ];
        for (word, lie) in lies.into_iter().chain([(SLOTS, u32::MAX), (SLOTS, 1 << 20)]) {
            let word = &own.words(0..HEADER)[word];
            let truth = word.swap(lie, Ordering::Relaxed);
            assert_eq!(MemoryGeometry::read(&foreign), None, "{truth} became {lie}");
            word.store(truth, Ordering::Relaxed);
        }
    }
}
