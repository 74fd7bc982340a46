//! The memory behind the rings, and the ownership of its chunks.

use crate::mapping::Mapping;
use rustix::mm::{Advice, madvise};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory in chunks of equal size. The kernel keeps the pages as long as a socket uses them.
#[derive(Debug)]
pub struct Umem {
    memory: Mapping,
    chunk: usize,
    count: u32,
    /// Distinguishes this memory's chunks from another's.
    id: u32,
}

/// A chunk that belongs to this process at the moment: at most one such value exists per chunk.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk {
    number: u32,
    of: u32,
}

static NEXT_ID: AtomicU32 = AtomicU32::new(0);

impl Umem {
    /// Allocates memory for `count` chunks, and returns them. Fails with `InvalidInput` if the chunk size is
    /// neither 2,048 nor 4,096 bytes, or if `count` is 0.
    pub fn new(chunk: usize, count: u32) -> io::Result<(Self, Vec<Chunk>)> {
        if !matches!(chunk, 2048 | 4096) || count == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{count} chunks of {chunk} bytes: the size is 2048 or 4096, and there has to be one"),
            ));
        }
        let memory = Mapping::populated(chunk * count as usize)?;
        // after a fork the first writer would get a copy, so the child gets none of these pages
        // SAFETY: the range is the mapping just made.
        let _ = unsafe { madvise(memory.start().as_ptr().cast(), memory.bytes(), Advice::LinuxDontFork) };
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let chunks = (0..count).map(|number| Chunk { number, of: id }).collect();
        Ok((Self { memory, chunk, count, id }, chunks))
    }

    pub fn chunk_size(&self) -> usize {
        self.chunk
    }

    /// Returns the total number of bytes.
    pub fn len(&self) -> usize {
        self.chunk * self.count as usize
    }

    /// Always false: there is at least one chunk.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn start(&self) -> u64 {
        self.memory.start().as_ptr() as u64
    }

    /// Returns the contents of a chunk.
    ///
    /// # Panics
    /// If the chunk belongs to another memory.
    pub fn bytes(&self, chunk: &Chunk) -> &[u8] {
        let start = self.pointer(chunk);
        // SAFETY: the chunk lies within the mapping, which lives as long as `self`. The kernel does not write
        // to it, and no code here can in the meantime, because the chunk's only value is borrowed.
        unsafe { std::slice::from_raw_parts(start, self.chunk) }
    }

    /// Returns the mutable contents of a chunk.
    ///
    /// # Panics
    /// If the chunk belongs to another memory.
    #[must_use]
    pub fn bytes_mut<'a>(&'a self, chunk: &'a mut Chunk) -> &'a mut [u8] {
        let start = self.pointer(chunk);
        // SAFETY: the chunk lies within the mapping; it is borrowed exclusively while the slice lives.
        unsafe { std::slice::from_raw_parts_mut(start, self.chunk) }
    }

    fn pointer(&self, chunk: &Chunk) -> *mut u8 {
        assert_eq!(chunk.of, self.id, "a chunk belongs to the memory that it is of");
        // SAFETY: numbers of chunks of this memory are below its count.
        unsafe { self.memory.start().as_ptr().add(chunk.number as usize * self.chunk) }
    }

    /// Returns the address of a chunk that is passed to the kernel.
    pub(super) fn address_of(&self, chunk: Chunk) -> u64 {
        assert_eq!(chunk.of, self.id, "a chunk belongs to the memory that it is of");
        u64::from(chunk.number) * self.chunk as u64
    }

    /// Returns the chunk that the kernel returns, and the offset of the address in it; `None` for an invalid
    /// address.
    pub(super) fn take(&self, address: u64) -> Option<(Chunk, usize)> {
        let address = usize::try_from(address).ok()?;
        let number = u32::try_from(address / self.chunk).ok().filter(|number| *number < self.count)?;
        Some((Chunk { number, of: self.id }, address % self.chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chunk_has_bytes_of_its_own() {
        let (umem, mut chunks) = Umem::new(2048, 3).expect("six KiB");
        for (value, chunk) in (1..).zip(&mut chunks) {
            umem.bytes_mut(chunk).fill(value);
        }
        for (value, chunk) in (1_u8..).zip(&chunks) {
            assert!(umem.bytes(chunk).iter().all(|byte| *byte == value));
        }
        assert_eq!(umem.len(), 3 * 2048);
    }

    #[test]
    fn a_chunk_goes_to_the_kernel_and_comes_back_wherever_its_frame_begins() {
        let (umem, mut chunks) = Umem::new(2048, 3).expect("six KiB");
        let last = chunks.pop().expect("three");
        let address = umem.address_of(last);
        let (chunk, offset) = umem.take(address + 256).expect("within");
        assert_eq!((umem.address_of(chunk), offset), (address, 256));
        assert!(umem.take(umem.len() as u64).is_none(), "beyond the end");
    }

    #[test]
    #[should_panic(expected = "belongs to the memory")]
    fn a_chunk_of_another_memory_is_refused() {
        let (one, _) = Umem::new(2048, 1).expect("two KiB");
        let (_other, chunks) = Umem::new(2048, 1).expect("two KiB");
        let _ = one.bytes(&chunks[0]);
    }

    #[test]
    fn sizes_that_the_kernel_refuses_are_refused_here() {
        assert!(Umem::new(1500, 4).is_err() && Umem::new(2048, 0).is_err());
    }
}
