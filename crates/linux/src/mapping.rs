//! Memory from mmap(2), unmapped on drop.

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};

/// Mapped memory, readable and (but for `read_only`) writable. It has no descriptor by which
/// others could find it.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; whoever uses the address keeps to atomics, or
// to parts that one thread owns.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` hands out an address only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of a file from `offset` on, so that others see what is written.
    pub(crate) fn shared(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        more: MapFlags,
    ) -> io::Result<Self> {
        Self::of(file, offset, bytes, ProtFlags::READ | ProtFlags::WRITE, more)
    }

    /// As [`shared`](Self::shared), for reading what others write. A store ends the process (SIGSEGV).
    pub(crate) fn read_only(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        Self::of(file, 0, bytes, ProtFlags::READ, MapFlags::empty())
    }

    fn of(
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
        access: ProtFlags,
        more: MapFlags,
    ) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED | more, file, offset) }?;
        Self::at(start.cast(), bytes)
    }

    /// Fresh zeroed memory, all of it present.
    pub(crate) fn populated(bytes: usize) -> io::Result<Self> {
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, access, kind) }?;
        Self::at(start.cast(), bytes)
    }

    fn at(start: *mut u8, bytes: usize) -> io::Result<Self> {
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { start, bytes })
    }

    /// Size in bytes, as it was asked for.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its first byte, page-aligned. Valid as long as `self`.
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
