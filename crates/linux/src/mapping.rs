//! Memory from mmap(2), unmapped on drop.

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};

/// Mapped memory, readable and (except for `read_only`) writable. It keeps no descriptor through which
/// another process could map it.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; users of the address only access atomics, or
// parts that a single thread owns.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` only gives out an address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of a file from `offset` on; other processes see the writes.
    pub(crate) fn shared(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        more: MapFlags,
    ) -> io::Result<Self> {
        Self::map(file, offset, bytes, ProtFlags::READ | ProtFlags::WRITE, more)
    }

    /// Maps a file as [`shared`](Self::shared) does, but only for reading data that other processes write. A
    /// store ends this process (SIGSEGV).
    pub(crate) fn read_only(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Self::map(file, 0, bytes, ProtFlags::READ, MapFlags::empty())
    }

    fn map(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        access: ProtFlags,
        more: MapFlags,
    ) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice affects no other memory.
        let start = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED | more, file, offset) }?;
        Self::at(start.cast(), bytes)
    }

    /// Maps new zeroed memory with all pages present.
    pub(crate) fn populated(bytes: usize) -> io::Result<Self> {
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice affects no other memory.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, access, kind) }?;
        Self::at(start.cast(), bytes)
    }

    fn at(start: *mut u8, bytes: usize) -> io::Result<Self> {
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { start, bytes })
    }

    /// Returns the requested size in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of the first byte, page-aligned. Valid as long as `self`.
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made above with this size, and borrows of it end before `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
