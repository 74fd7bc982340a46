//! Memory that several processes map, and that disappears with the last of them.
//!
//! A region is a memfd: it has no name in any file system, so nothing is left behind after kill -9. A child
//! inherits it across `fork`. Another process of the same user opens it by its path under `/proc/PID/fd`
//! ([`SharedMemory::path`], [`SharedMemory::open`]), or gets its descriptor through a socket.
//!
//! A fresh region is zeroed. Its size is sealed, so that no peer can shrink it under our feet (a shrunk
//! mapping kills with SIGBUS). Contents are hostile: other processes write them at any time, so they are
//! only ever seen as atomics ([`SharedMemory::words`]) or copied.
//!
//! Cost: one page fault a page; afterwards ordinary memory. Reference: memfd_create(2), fcntl(2) on seals.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// A mapped region of shared memory.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    mapping: Mapping,
}

/// A region that is mapped, and that nobody else finds through this process: it has no descriptor. Unmapped
/// on drop.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; whoever uses the address keeps to atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` hands out an address only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Size in bytes, whole pages.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its first byte, page-aligned. Valid as long as `self`.
    #[must_use]
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl SharedMemory {
    /// A fresh, zeroed region of at least `bytes`, rounded up to whole pages.
    ///
    /// # Errors
    /// The kernel's reason, such as a memory limit. `InvalidInput` for zero bytes.
    pub fn create(bytes: usize) -> io::Result<Self> {
        let page = page_size();
        let bytes = bytes.checked_next_multiple_of(page).filter(|bytes| *bytes > 0).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("cannot map {bytes} bytes"))
        })?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string and the flags are known to every kernel since 3.17.
        let descriptor = unsafe { libc::memfd_create(c"unisono".as_ptr(), flags) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: memfd_create just returned this descriptor; nobody else owns it.
        let file = unsafe { File::from_raw_fd(descriptor) };
        file.set_len(bytes as u64)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: sealing our own descriptor; no memory is involved.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Self::map(file)
    }

    /// Maps a region that another process created, by the [`path`](Self::path) it passed on.
    ///
    /// # Errors
    /// `NotFound` when the creator is gone, `PermissionDenied` for another user's, `InvalidData` for a
    /// file whose size is not sealed.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::map_sealed(OpenOptions::new().read(true).write(true).open(path)?)
    }

    /// Maps the region behind a descriptor, such as one that another process passed on.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        Self::map_sealed(File::from(descriptor))
    }

    /// Where processes of the same user find this region while this process lives.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// The mapping, and the descriptor, which is not needed any more once everybody has mapped the region: a
    /// program may have more regions than it may have descriptors.
    #[must_use]
    pub fn into_parts(self) -> (Mapping, OwnedFd) {
        (self.mapping, self.file.into())
    }

    /// Size in bytes, whole pages.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.mapping.bytes
    }

    /// Never: a region has at least a page.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Its first byte, page-aligned. Valid as long as `self`.
    #[must_use]
    pub const fn start(&self) -> NonNull<u8> {
        self.mapping.start
    }

    /// The region as words that any process may change at any time.
    #[must_use]
    pub fn words(&self) -> &[AtomicU32] {
        let words = self.mapping.bytes / size_of::<AtomicU32>();
        // SAFETY: the mapping is page-aligned, readable and writable for `bytes` bytes until drop, its
        // size is sealed, and every bit pattern is a valid AtomicU32.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr().cast::<AtomicU32>(), words) }
    }

    fn map_sealed(file: File) -> io::Result<Self> {
        // SAFETY: reading the seals of our own descriptor.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            let reason = "not a shared region of unisono: its size is not sealed";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Self::map(file)
    }

    fn map(file: File) -> io::Result<Self> {
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let (access, sharing) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, sharing, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start =
            NonNull::new(start.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { file, mapping: Mapping { start, bytes } })
    }
}

/// For passing the region on.
impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made in `map` with this size, and borrows of it end before `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn two_mappings_of_one_region_see_each_other_and_start_zeroed() {
        let first = SharedMemory::create(100).expect("a page can be mapped");
        let second = SharedMemory::open(&first.path()).expect("our own region opens by path");
        assert_eq!(first.len(), page_size());
        assert!(first.words().iter().all(|word| word.load(SeqCst) == 0));
        first.words()[7].store(42, SeqCst);
        assert_eq!(second.words()[7].load(SeqCst), 42);
        drop(first);
        assert_eq!(second.words()[7].load(SeqCst), 42);
    }

    #[test]
    fn nobody_can_shrink_a_region_and_an_unsealed_file_is_refused() {
        let region = SharedMemory::create(1).expect("a page can be mapped");
        assert!(region.file.set_len(0).is_err());
        let refused = SharedMemory::open(Path::new("/dev/null")).expect_err("/dev/null is no region");
        assert!(refused.to_string().contains("sealed") || refused.kind() == io::ErrorKind::InvalidInput);
        assert!(SharedMemory::create(0).is_err());
    }

    #[test]
    fn a_region_stays_mapped_without_its_descriptor_and_is_not_found_any_more() {
        let region = SharedMemory::create(1).expect("a page can be mapped");
        let other = SharedMemory::open(&region.path()).expect("our own region opens by path");
        let (mapping, descriptor) = region.into_parts();
        drop(descriptor);
        other.words()[3].store(7, SeqCst);
        // SAFETY: the mapping has a page, which is only seen as atomics.
        let word = unsafe { &*mapping.start().as_ptr().cast::<AtomicU32>().wrapping_add(3) };
        assert_eq!((word.load(SeqCst), mapping.bytes()), (7, page_size()));
    }
}
