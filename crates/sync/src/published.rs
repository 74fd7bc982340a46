//! Memory that one process writes and others read: words for a protocol, bytes for the data.
//!
//! The writer ([`PublishedWords`]) alone may store. Readers ([`ForeignWords`]) map the memory read-only, so
//! that no reader can change the data of another. Readers copy the bytes or read them as atomics: the writer
//! may change them at any time, and a protocol has to tell its readers when a copy is whole. Words start at
//! zero. In a model both sides hold loom's atomics, and copies are made word by word.

use crate::atomics::AtomicU32;
#[cfg(loom)]
use crate::atomics::{Arc, Ordering};
use std::io;
use std::ops::Range;
#[cfg(not(loom))]
use {
    std::os::fd::{AsFd, BorrowedFd, OwnedFd},
    std::sync::atomic::AtomicU8,
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
    region: SharedMemory,
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
    /// Zeroed memory of at least `words` words.
    pub fn create(words: usize) -> io::Result<Self> {
        let bytes = words.checked_mul(WORD).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { region: SharedMemory::create_published(bytes)? })
    }

    /// A slice of the words. Panics past the last.
    #[inline]
    pub fn words(&self, range: Range<usize>) -> &[AtomicU32] {
        &self.region.words()[range]
    }

    /// Bytes for writing in place. Readers see the changes at once. Panics past the end.
    #[must_use]
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.region.len(), "{range:?} is outside");
        let start = self.region.start().as_ptr().wrapping_add(range.start);
        // SAFETY: the range was checked; the region is zeroed at first and stays mapped as long as `self`.
        // No other process can write it, because its seals forbid that; no other code in this process writes
        // it while `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
    }

    /// Prefetches these bytes for writing. Panics past the end.
    #[inline]
    pub fn prefetch(&self, range: Range<usize>) {
        let lines = self.region.words()[range.start / WORD..range.end.div_ceil(WORD)].chunks(LINE / WORD);
        lines.for_each(|line| prefetch_to_write(&line[0]));
    }

    /// Copies `bytes` to the position `at`. Panics past the end.
    #[inline]
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.bytes_mut(at..at + bytes.len()).copy_from_slice(bytes);
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

    /// A slice of the words; any store to it ends the process (SIGSEGV). Panics past the last.
    #[inline]
    pub fn words(&self, range: Range<usize>) -> &[AtomicU32] {
        &self.mapping.words()[range]
    }

    /// Bytes that the writer may change at any time. Panics past the end.
    pub fn bytes(&self, range: Range<usize>) -> &[AtomicU8] {
        &self.mapping.bytes()[range]
    }

    /// Prefetches these bytes for reading. Panics past the end.
    #[inline]
    pub fn prefetch(&self, range: Range<usize>) {
        self.bytes(range).chunks(LINE).for_each(|line| prefetch(&line[0]));
    }

    /// Copies the bytes from the position `at` on. The writer may change them meanwhile. Panics past the end.
    #[inline]
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let from = self.bytes(at..at + into.len());
        // SAFETY: both are as long as `from`, and the memory of another process does not overlap this one's.
        // The other process may write meanwhile; the caller has to detect a torn copy.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), into.as_mut_ptr(), from.len()) };
    }

    /// Appends a copy of these bytes. The writer may change them meanwhile. Panics past the end.
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
    /// Zeroed memory of `words` words.
    pub fn create(words: usize) -> io::Result<Self> {
        Ok(Self { words: Arc::new((0..words).map(|_| AtomicU32::new(0)).collect()) })
    }

    /// A reader's side of this memory.
    pub fn reader(&self) -> ForeignWords {
        ForeignWords { words: Arc::clone(&self.words) }
    }

    /// A slice of the words. Panics past the last.
    pub fn words(&self, range: Range<usize>) -> &[AtomicU32] {
        &self.words[range]
    }

    /// A model has no caches.
    pub fn prefetch(&self, _: Range<usize>) {}

    /// Copies whole words to the position `at`. Panics past the end.
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

    /// A slice of the words. Panics past the last.
    pub fn words(&self, range: Range<usize>) -> &[AtomicU32] {
        &self.words[range]
    }

    /// A model has no caches.
    pub fn prefetch(&self, _: Range<usize>) {}

    /// Appends a copy of these bytes. They must be whole words. Panics past the end.
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
    #[should_panic(expected = "outside")]
    fn nothing_is_written_past_the_end() {
        PublishedWords::create(1).expect("a page").write(1 << 20, b"x");
    }
}
