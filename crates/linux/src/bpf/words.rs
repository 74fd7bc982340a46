//! An array of words that programs in the kernel and this process share without system calls.

use super::{ARRAY, Attributes, MAP_CREATE, bpf, owned};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

const CAN_BE_MAPPED: u32 = 1 << 10;

/// The words, all zero from the beginning. They stay mapped in a child after fork(2).
#[derive(Debug)]
pub struct Words {
    descriptor: OwnedFd,
    start: NonNull<AtomicU64>,
    count: u32,
}

// SAFETY: the mapping belongs to the process, not to a thread; all access is atomic.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Makes an array of so many words.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, `ENOMEM`; `EINVAL`: none, or the kernel is older than 5.5.
    pub fn new(name: &str, count: u32) -> io::Result<Self> {
        // one element with all of them: programs can have the address of a single element alone
        let mut attributes = Attributes::new()
            .word(0, ARRAY)
            .word(4, 4)
            .word(8, 8 * count)
            .word(12, 1)
            .word(16, CAN_BE_MAPPED)
            .name(28, name);
        // SAFETY: the command follows no pointers.
        let descriptor = owned(unsafe { bpf(MAP_CREATE, &mut attributes)? });
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (bytes, map) = (count as usize * 8, descriptor.as_raw_fd());
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, map, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { descriptor, start, count })
    }

    #[must_use]
    pub fn all(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has so many aligned words and lives as long as `self`; others change them
        // atomically.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count as usize) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and slices of it borrow `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.count as usize * 8) };
    }
}

impl AsFd for Words {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
