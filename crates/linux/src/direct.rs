//! Files without the page cache: open(2) with `O_DIRECT`, and memory aligned for it.
//!
//! Each read comes from the disk, in the order of the requests, so that a scheduler of requests really
//! controls their order. Positions, lengths and memory have to be multiples of the disk's block; 4096 bytes
//! suit all disks. Cost: an access to the disk for each call. Some file systems refuse (tmpfs before Linux
//! 6.6).
//!
//! Reference: open(2), section `O_DIRECT`.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Positions, lengths and memory have to be multiples of this.
pub const BLOCK: usize = 4096;

/// Opens a file for reading without the page cache, and for writing if requested.
pub fn open(path: &Path, access: FileAccess) -> io::Result<File> {
    OpenOptions::new().read(true).write(access == FileAccess::Write).custom_flags(libc::O_DIRECT).open(path)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileAccess {
    Read,
    Write,
}

/// Zeroed memory that begins at a multiple of [`BLOCK`].
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    from: usize,
    length: usize,
}

impl Aligned {
    /// Allocates at least `length` bytes, rounded up to whole blocks.
    pub fn new(length: usize) -> Self {
        let length = length.next_multiple_of(BLOCK);
        let memory = vec![0; length + BLOCK];
        let from = memory.as_ptr().align_offset(BLOCK);
        Self { memory, from, length }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.from..self.from + self.length]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..self.from + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_as_long_as_asked_in_whole_blocks() {
        for length in [1, BLOCK, BLOCK + 1, 10 * BLOCK] {
            let memory = Aligned::new(length);
            assert_eq!(memory.as_ptr().align_offset(BLOCK), 0);
            assert_eq!(memory.len(), length.next_multiple_of(BLOCK));
        }
    }
}
