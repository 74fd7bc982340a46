//! Memory that one process writes and others read: words for a protocol, bytes for the data.
//!
//! The writer ([`PublishedWords`]) alone may store. Readers ([`ForeignWords`]) map the memory read-only, so
//! that no reader can change the data that another reads. Readers copy the bytes or read them as atomics: the
//! writer may change them at any time, and a protocol has to tell its readers when a copy is whole. Words
//! start at zero. The writer can lend bytes ([`LentBytes`]) to code that fills them while the writer itself
//! writes to other bytes. In a model both sides hold loom's atomics, and copies are made word by word.

use crate::atomics::AtomicU32;
#[cfg(loom)]
use crate::atomics::{Arc, Ordering};
use std::io;
use std::ops::Range;
#[cfg(not(loom))]
use {
    std::os::fd::{AsFd, BorrowedFd, OwnedFd},
    std::sync::Arc,
    std::sync::atomic::{AtomicBool, AtomicU8, Ordering},
    unisono_intrinsics::{prefetch, prefetch_to_write},
    unisono_linux::shared_memory::{ReadOnlyMapping, SharedMemory},
};

const WORD: usize = size_of::<u32>();
/// Bytes of a cache line.
#[cfg(not(loom))]
const LINE: usize = 64;

/// The writer's side.
///
/// ```
/// use std::os::fd::AsFd;
/// use unisono_sync::{ForeignWords, PublishedWords};
///
/// # fn main() -> std::io::Result<()> {
/// let mut mine = PublishedWords::create(16)?;
/// // another process gets the descriptor through a socket
/// let theirs = ForeignWords::new(mine.as_fd().try_clone_to_owned()?)?;
/// mine.write(0, b"ready");
/// let mut read = [0; 5];
/// theirs.read(0, &mut read);
/// assert_eq!(&read, b"ready");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PublishedWords {
    #[cfg(not(loom))]
    region: Arc<SharedMemory>,
    /// The bytes that may still be lent: each loan's range, and whether the borrower has given it back.
    #[cfg(not(loom))]
    lent: Vec<(Range<usize>, Arc<AtomicBool>)>,
    #[cfg(loom)]
    words: Arc<Box<[AtomicU32]>>,
}

/// A reader's side.
#[derive(Debug)]
pub struct ForeignWords {
    #[cfg(not(loom))]
    mapping: ReadOnlyMapping,
    #[cfg(loom)]
    words: Arc<Box<[AtomicU32]>>,
}

#[cfg(not(loom))]
impl PublishedWords {
    /// Creates zeroed memory of at least `words` words.
    pub fn create(words: usize) -> io::Result<Self> {
        let bytes = words.checked_mul(WORD).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { region: Arc::new(SharedMemory::create_published(bytes)?), lent: Vec::new() })
    }

    /// Returns a slice of the words. Panics if `range` ends past the last word, or if some of its words are
    /// lent.
    #[inline]
    pub fn words(&self, range: Range<usize>) -> &[AtomicU32] {
        assert!(!self.has_lent(&(range.start * WORD..range.end * WORD)), "{range:?} is lent");
        &self.region.words()[range]
    }

    /// Returns bytes for writing in place. Readers see the changes at once. Panics if `range` ends past the
    /// last byte, or if some of its bytes are lent.
    #[must_use]
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.region.len(), "{range:?} is outside");
        assert!(!self.has_lent(&range), "{range:?} is lent");
        let start = self.region.start().as_ptr().wrapping_add(range.start);
        // SAFETY: the range was checked; the region is zeroed at first and stays mapped as long as `self`.
        // No other process can write it, because its seals forbid that; no other code in this process writes
        // it while `self` is borrowed mutably, because it is not lent.
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
    }

    /// Lends bytes for writing in place, until the loan ends or is dropped. Panics if `range` ends past the
    /// last byte, or if some of its bytes are already lent.
    #[must_use]
    pub fn lend(&mut self, range: Range<usize>) -> LentBytes {
        assert!(range.start <= range.end && range.end <= self.region.len(), "{range:?} is outside");
        self.lent.retain(|(_, is_back)| !comes_back(is_back));
        assert!(!self.has_lent(&range), "{range:?} is lent");
        let is_back = Arc::new(AtomicBool::new(false));
        self.lent.push((range.clone(), Arc::clone(&is_back)));
        LentBytes { region: Arc::clone(&self.region), range, is_back }
    }

    /// Returns whether a part of these bytes is lent.
    #[inline]
    pub fn has_lent(&self, range: &Range<usize>) -> bool {
        let overlaps = |lent: &Range<usize>| lent.start < range.end && range.start < lent.end;
        self.lent.iter().any(|(lent, is_back)| overlaps(lent) && !comes_back(is_back))
    }

    /// Returns whether this memory has lent these bytes.
    #[must_use]
    pub fn is_lender_of(&self, bytes: &LentBytes) -> bool {
        Arc::ptr_eq(&self.region, &bytes.region)
    }

    /// Prefetches these bytes for writing. Panics if `range` ends past the last byte.
    #[inline]
    pub fn prefetch(&self, range: Range<usize>) {
        let lines = self.region.words()[range.start / WORD..range.end.div_ceil(WORD)].chunks(LINE / WORD);
        lines.for_each(|line| prefetch_to_write(&line[0]));
    }

    /// Copies `bytes` to the position `at`. Panics if they do not fit there, or if some of the bytes there
    /// are lent.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.bytes_mut(at..at + bytes.len()).copy_from_slice(bytes);
    }
}

/// Returns whether the borrower has given the lent bytes back.
#[cfg(not(loom))]
fn comes_back(is_back: &AtomicBool) -> bool {
    // SYNC(lent) acquire: sees what the borrower wrote, before the writer uses the bytes again
    is_back.load(Ordering::Acquire)
}

/// Bytes of a [`PublishedWords`] that are lent for writing. The memory stays mapped until they are dropped,
/// even if its owner is dropped before.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct LentBytes {
    region: Arc<SharedMemory>,
    range: Range<usize>,
    is_back: Arc<AtomicBool>,
}

#[cfg(not(loom))]
impl LentBytes {
    /// Returns the range of the bytes in the memory of their owner.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let start = self.region.start().as_ptr().wrapping_add(self.range.start);
        // SAFETY: `lend` checked the range; the region is zeroed at first, and mapped as long as `self`.
        // Until these bytes are back, `PublishedWords` refuses to access them, and other processes cannot
        // write.
        unsafe { std::slice::from_raw_parts(start, self.range.len()) }
    }

    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.region.start().as_ptr().wrapping_add(self.range.start);
        // SAFETY: as in `bytes`; and no other code has these bytes, because `self` is borrowed mutably and
        // `lend` lends no byte twice.
        unsafe { std::slice::from_raw_parts_mut(start, self.range.len()) }
    }

    /// Gives the bytes back; this value then holds none. The memory stays mapped until this value is dropped.
    pub fn end(&mut self) {
        self.range = 0..0;
        // SYNC(lent) release: publishes what the borrower wrote
        self.is_back.store(true, Ordering::Release);
    }
}

#[cfg(not(loom))]
impl Drop for LentBytes {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(not(loom))]
impl AsFd for PublishedWords {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.region.as_fd()
    }
}

#[cfg(not(loom))]
impl ForeignWords {
    /// Maps the region of a [`PublishedWords`] of another process.
    pub fn new(descriptor: OwnedFd) -> io::Result<Self> {
        Ok(Self { mapping: ReadOnlyMapping::new(descriptor)? })
    }

    pub fn count(&self) -> usize {
        self.mapping.words().len()
    }

    /// Returns a slice of the words; any store to it ends the process (SIGSEGV). Panics if `range` ends past
    /// the last word.
    #[inline]
    pub fn words(&self, range: Range<usize>) -> &[AtomicU32] {
        &self.mapping.words()[range]
    }

    /// Returns bytes that the writer may change at any time. Panics if `range` ends past the last byte.
    pub fn bytes(&self, range: Range<usize>) -> &[AtomicU8] {
        &self.mapping.bytes()[range]
    }

    /// Prefetches these bytes for reading. Panics if `range` ends past the last byte.
    #[inline]
    pub fn prefetch(&self, range: Range<usize>) {
        self.bytes(range).chunks(LINE).for_each(|line| prefetch(&line[0]));
    }

    /// Copies the bytes from the position `at` on. The writer may change them meanwhile. Panics if there are
    /// too few bytes after `at`.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let from = self.bytes(at..at + into.len());
        // SAFETY: both areas are as long as `from`, and the memory of another process does not overlap this
        // one's. The other process may write meanwhile; the caller has to detect a torn copy.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), into.as_mut_ptr(), from.len()) };
    }

    /// Appends a copy of these bytes. The writer may change them meanwhile. Panics if `range` ends past the
    /// last byte.
    #[inline]
    pub fn append_to(&self, range: Range<usize>, into: &mut Vec<u8>) {
        let from = self.bytes(range);
        into.reserve(from.len());
        let spare = into.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: `from` is readable, `reserve` made room for its length, and the two do not overlap. The
        // other process may write meanwhile, which only makes the copy useless; the caller has to detect it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), spare, from.len()) };
        // SAFETY: the copy above initialized `from.len()` bytes behind the vector's end.
        unsafe { into.set_len(into.len() + from.len()) };
    }
}

#[cfg(loom)]
impl PublishedWords {
    /// Creates zeroed memory of `words` words.
    pub fn create(words: usize) -> io::Result<Self> {
        Ok(Self { words: Arc::new((0..words).map(|_| AtomicU32::new(0)).collect()) })
    }

    /// Returns a reader's side of this memory.
    pub fn reader(&self) -> ForeignWords {
        ForeignWords { words: Arc::clone(&self.words) }
    }

    /// Returns a slice of the words. Panics if `range` ends past the last word.
    pub fn words(&self, range: Range<usize>) -> &[AtomicU32] {
        &self.words[range]
    }

    /// Does nothing: a model has no caches.
    pub fn prefetch(&self, _: Range<usize>) {}

    /// Copies whole words to the position `at`. Panics if they do not fit there.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        for (index, word) in bytes.chunks(WORD).enumerate() {
            let word = u32::from_ne_bytes(word.try_into().expect("models write whole words"));
            self.words[at / WORD + index].store(word, Ordering::Relaxed);
        }
    }
}

#[cfg(loom)]
impl ForeignWords {
    pub fn count(&self) -> usize {
        self.words.len()
    }

    /// Returns a slice of the words. Panics if `range` ends past the last word.
    pub fn words(&self, range: Range<usize>) -> &[AtomicU32] {
        &self.words[range]
    }

    /// Does nothing: a model has no caches.
    pub fn prefetch(&self, _: Range<usize>) {}

    /// Appends a copy of these bytes. They must be whole words. Panics if `range` ends past the last byte.
    pub fn append_to(&self, range: Range<usize>, into: &mut Vec<u8>) {
        for word in &self.words[range.start / WORD..range.end / WORD] {
            into.extend(word.load(Ordering::Relaxed).to_ne_bytes());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::atomics::Ordering::SeqCst;

    #[test]
    fn what_is_written_is_read_by_word_by_byte_and_as_a_copy() {
        let mut own = PublishedWords::create(1).expect("a page");
        let foreign =
            ForeignWords::new(own.as_fd().try_clone_to_owned().expect("a descriptor")).expect("sealed");
        own.write(64, b"hello");
        own.bytes_mut(66..68).copy_from_slice(b"LL");
        own.words(0..1)[0].store(7, SeqCst);
        let mut copy = b">".to_vec();
        foreign.append_to(64..69, &mut copy);
        assert_eq!((foreign.words(0..1)[0].load(SeqCst), &copy[..]), (7, &b">heLLo"[..]));
        assert_eq!(foreign.bytes(65..66)[0].load(SeqCst), b'e');
        foreign.read(66, &mut copy[..2]);
        assert_eq!(copy, b"LLeLLo");
    }

    #[test]
    fn lent_bytes_are_written_in_place_and_outlive_their_owner() {
        let mut own = PublishedWords::create(64).expect("a page");
        let foreign =
            ForeignWords::new(own.as_fd().try_clone_to_owned().expect("a descriptor")).expect("sealed");
        let (mut one, mut other) = (own.lend(8..13), own.lend(13..16));
        one.bytes_mut().copy_from_slice(b"hello");
        other.bytes_mut().copy_from_slice(b"you");
        own.write(16, b"!");
        let mut copy = Vec::new();
        foreign.append_to(8..17, &mut copy);
        assert_eq!((&copy[..], one.bytes()), (&b"helloyou!"[..], &b"hello"[..]));
        one.end();
        assert_eq!(one.bytes(), b"");
        own.write(8, b"H");
        assert!(own.is_lender_of(&other) && own.has_lent(&(0..14)) && !own.has_lent(&(0..13)));
        drop(own);
        other.bytes_mut().fill(b'.');
        foreign.read(13, &mut copy[..3]);
        assert_eq!(&copy[..3], b"...");
    }

    #[test]
    #[should_panic(expected = "is lent")]
    fn bytes_that_are_lent_are_not_written_by_their_owner() {
        let mut own = PublishedWords::create(64).expect("a page");
        let _lent = own.lend(8..13);
        own.write(12, b"x");
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn nothing_is_written_past_the_end() {
        PublishedWords::create(1).expect("a page").write(1 << 20, b"x");
    }
}
