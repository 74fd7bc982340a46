//! Cache lines of words, in private or in shared memory.
//!
//! One participant writes a [`CacheLine`] and others poll it. A line has two halves of 64 bytes, each a
//! hardware cache line, and is aligned to 128 bytes, so that neither writes to a neighboring line nor the
//! adjacent-line prefetcher cause false sharing. The first half holds sixteen words. The second half counts
//! the sleepers of each flag. Only sleepers and wake-ups write the second half, so the signaller usually
//! reads it from its own cache. (If the count lay beside the word, it would lie in the hardware line into
//! which the next signal is stored: two threads that exchanged signals through one line spent a third of each
//! episode on reading it.) [`Lines`] is an array of cache lines on the heap or in a [`SharedMemory`] region;
//! protocols use it without knowing which. All words start at zero. Cost: 128 bytes a line.

use crate::atomics::{Arc, AtomicU32, Ordering};
use crate::flag::{Flag, Sleepers};
#[cfg(not(loom))]
use std::ptr::NonNull;
#[cfg(not(loom))]
use unisono_linux::mapping::Mapping;
#[cfg(not(loom))]
use unisono_linux::shared_memory::SharedMemory;

/// Sixteen words in one half, the sleepers of their flags in the other; see the module.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct CacheLine {
    words: [AtomicU32; CacheLine::WORDS],
    /// The number of sleepers and the count of wake-ups of each flag.
    sleepers: [Sleepers; CacheLine::FLAGS],
    #[cfg(loom)]
    kernel: crate::flag::ModelKernel,
}

impl CacheLine {
    pub const WORDS: usize = 16;
    /// The number of flags in a line. A flag lies in an even word; the last two words hold no flag, and the
    /// last is a counter.
    pub const FLAGS: usize = (Self::WORDS - 2) / 2;

    fn zeroed() -> Self {
        Self {
            words: std::array::from_fn(|_| AtomicU32::new(0)),
            sleepers: std::array::from_fn(|_| Sleepers::none()),
            #[cfg(loom)]
            kernel: crate::flag::ModelKernel::default(),
        }
    }

    /// Returns one word. Panics if `index` is not below [`Self::WORDS`].
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU32 {
        &self.words[index]
    }

    /// Returns the counter in the last word; no flag uses this word.
    #[inline]
    pub fn counter(&self) -> &AtomicU32 {
        &self.words[Self::WORDS - 1]
    }

    /// Sets every flag to `value` with no sleepers, and the counter and the odd words, which hold no flag, to
    /// zero. May be called only while no thread waits at this line or signals its flags.
    pub fn reset(&self, value: u32) {
        for flag in 0..Self::FLAGS {
            self.words[2 * flag].store(value, Ordering::Relaxed);
            self.words[2 * flag + 1].store(0, Ordering::Relaxed);
            self.sleepers[flag].count.store(0, Ordering::Relaxed);
        }
        self.counter().store(0, Ordering::Relaxed);
    }

    /// Returns one flag, whose word is `2 * index`. Panics if `index` is not below [`Self::FLAGS`].
    #[inline]
    pub fn flag(&self, index: usize) -> Flag<'_> {
        Flag {
            word: &self.words[2 * index],
            sleepers: &self.sleepers[index],
            counter: None,
            #[cfg(loom)]
            kernel: &self.kernel,
        }
    }
}

/// An array of cache lines; clones share it.
///
/// ```
/// use unisono_sync::{Lines, Wakeups};
///
/// let lines = Lines::on_heap(2);
/// let flag = lines.line(1).flag(0);
/// assert!(!flag.reached(3));
/// flag.signal(3, Wakeups::Never);
/// assert!(flag.reached(3) && lines.line(1).flag(0).reached(2));
/// ```
#[derive(Clone, Debug)]
pub struct Lines {
    owner: Arc<Owner>,
    #[cfg(not(loom))]
    first: NonNull<CacheLine>,
    count: usize,
}

#[derive(Debug)]
enum Owner {
    Heap(Box<[CacheLine]>),
    #[cfg(not(loom))]
    Shared(SharedMemory),
    #[cfg(not(loom))]
    Mapped(Mapping),
}

// SAFETY: `first` points into memory that `owner` keeps alive and in place; lines are made of atomics.
#[cfg(not(loom))]
unsafe impl Send for Lines {}
// SAFETY: `first` points into memory that `owner` keeps alive and in place; lines are made of atomics.
#[cfg(not(loom))]
unsafe impl Sync for Lines {}

impl Lines {
    /// Creates zeroed lines for the threads of this process.
    pub fn on_heap(count: usize) -> Self {
        let owner = Arc::new(Owner::Heap((0..count).map(|_| CacheLine::zeroed()).collect()));
        #[cfg(not(loom))]
        let first = match &*owner {
            Owner::Heap(lines) => NonNull::from(&**lines).cast::<CacheLine>(),
            Owner::Shared(region) => region.start().cast::<CacheLine>(),
            Owner::Mapped(mapping) => mapping.start().cast::<CacheLine>(),
        };
        Self {
            owner,
            #[cfg(not(loom))]
            first,
            count,
        }
    }

    /// Takes a shared region as an array of as many lines as fit into it.
    #[cfg(not(loom))]
    pub fn in_region(region: SharedMemory) -> Self {
        let (first, count) = (region.start().cast::<CacheLine>(), region.len() / size_of::<CacheLine>());
        Self { owner: Arc::new(Owner::Shared(region)), first, count }
    }

    /// Takes an anonymous mapping, which other processes cannot open, as an array of as many lines as fit
    /// into it.
    #[cfg(not(loom))]
    pub fn in_mapping(mapping: Mapping) -> Self {
        let (first, count) = (mapping.start().cast::<CacheLine>(), mapping.bytes() / size_of::<CacheLine>());
        Self { owner: Arc::new(Owner::Mapped(mapping)), first, count }
    }

    /// Returns the address of the first line. It is valid while any value that shares these lines exists.
    #[cfg(not(loom))]
    pub fn start(&self) -> NonNull<u8> {
        self.first.cast()
    }

    /// Returns the lines `first..first + count`, as an array that shares the memory. Panics if the range ends
    /// past the last line.
    #[cfg(not(loom))]
    #[must_use]
    pub fn part(&self, first: usize, count: usize) -> Self {
        let fits = first.checked_add(count).is_some_and(|end| end <= self.count);
        assert!(fits, "lines {first} to {first}+{count} of {}", self.count);
        // SAFETY: the range was checked against the array's length.
        let start = unsafe { self.first.add(first) };
        Self { owner: Arc::clone(&self.owner), first: start, count }
    }

    /// Returns the region that holds these lines, if other processes can map it.
    #[cfg(not(loom))]
    pub fn region(&self) -> Option<&SharedMemory> {
        match &*self.owner {
            Owner::Heap(_) | Owner::Mapped(_) => None,
            Owner::Shared(region) => Some(region),
        }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns one line. Panics if `index` is not below [`Self::count()`].
    #[inline]
    pub fn line(&self, index: usize) -> &CacheLine {
        assert!(index < self.count, "line {index} of {}", self.count);
        #[cfg(loom)]
        {
            let Owner::Heap(lines) = &*self.owner;
            &lines[index]
        }
        #[cfg(not(loom))]
        {
            // SAFETY: the index was checked against the array's length.
            let line = unsafe { self.first.add(index) };
            // SAFETY: `owner` keeps the initialized array alive at this address. The heap aligns it by its
            // type, and a region begins at a page. No thread ever has an exclusive reference to a line.
            unsafe { line.as_ref() }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::atomics::Ordering::SeqCst;

    #[test]
    fn lines_in_a_region_are_seen_through_a_second_mapping() {
        let region = SharedMemory::create(4096).expect("a page can be mapped");
        let other = Lines::in_region(SharedMemory::open(&region.path()).expect("our own region opens"));
        let lines = Lines::in_region(region);
        assert_eq!(lines.count(), 4096 / 128);
        lines.line(3).word(5).store(7, SeqCst);
        assert_eq!(other.line(3).word(5).load(SeqCst), 7);
    }

    #[test]
    fn who_sleeps_is_noted_apart_from_what_is_polled() {
        assert_eq!((size_of::<CacheLine>(), std::mem::offset_of!(CacheLine, sleepers)), (128, 64));
    }

    #[test]
    fn heap_lines_start_at_zero_and_are_shared_by_clones() {
        let lines = Lines::on_heap(2);
        let clone = lines.clone();
        assert_eq!(lines.line(1).word(15).load(SeqCst), 0);
        clone.line(1).word(15).store(1, SeqCst);
        drop(clone);
        assert_eq!(lines.line(1).word(15).load(SeqCst), 1);
    }

    #[test]
    fn a_part_shares_the_memory_and_ends_where_it_ends() {
        let lines = Lines::on_heap(4);
        let part = lines.part(1, 2);
        lines.line(2).word(0).store(9, SeqCst);
        assert_eq!((part.count(), part.line(1).word(0).load(SeqCst)), (2, 9));
        assert!(std::panic::catch_unwind(|| part.part(1, 2)).is_err());
    }

    #[test]
    #[should_panic(expected = "line 2 of 2")]
    fn a_line_past_the_last_is_refused() {
        let _ = Lines::on_heap(2).line(2);
    }
}
