//! Memory that several processes map, and that disappears with the last of them.
//!
//! A region is a memfd: it has no name in any file system, so nothing is left behind after kill -9. A child
//! inherits it across `fork`. Another process of the same user opens it by its path under `/proc/PID/fd`
//! ([`SharedMemory::path`], [`SharedMemory::open`]), or gets its descriptor through a socket.
//!
//! A new region is zeroed. Its size is sealed, so that no peer can shrink it while this process uses it (a
//! shrunk mapping kills with SIGBUS). Its contents are untrusted: other processes write them at any time, so
//! they are only accessed as atomics ([`SharedMemory::words`]) or copied. A region that only its creator may
//! write ([`SharedMemory::create_published`]) is mapped by other processes as a [`ReadOnlyMapping`].
//!
//! Cost: one page fault per page; afterwards ordinary memory. Reference: memfd_create(2), fcntl(2) on seals.

use crate::mapping::Mapping;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::mm::MapFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32};

#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    mapping: Mapping,
}

impl SharedMemory {
    /// Creates a new, zeroed region of at least `bytes`, rounded up to whole pages. Fails with `InvalidInput`
    /// for zero bytes.
    pub fn create(bytes: usize) -> io::Result<Self> {
        Self::create_sealed(bytes, SealFlags::empty())
    }

    /// Does the same as [`create`](Self::create), for a region that only this process writes, and only
    /// through this mapping: a process that gets the descriptor can only read. Needs Linux 5.1.
    pub fn create_published(bytes: usize) -> io::Result<Self> {
        Self::create_sealed(bytes, SealFlags::FUTURE_WRITE)
    }

    fn create_sealed(bytes: usize, seal: SealFlags) -> io::Result<Self> {
        let page = page_size();
        let bytes = bytes.checked_next_multiple_of(page).filter(|bytes| *bytes > 0).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("cannot map {bytes} bytes"))
        })?;
        let file = File::from(memfd_create("unisono", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.set_len(bytes as u64)?;
        // Map before sealing: the seal against writing spares existing mappings.
        let region = Self::map(file)?;
        fcntl_add_seals(&region.file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | seal)?;
        Ok(region)
    }

    /// Maps a region that another process created, by the [`path`](Self::path) that it passed on. Fails with
    /// `NotFound` if the creator is gone, `PermissionDenied` for another user's region, `InvalidData` for a
    /// file whose size is not sealed.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::map_sealed(OpenOptions::new().read(true).write(true).open(path)?)
    }

    /// Maps the region of a descriptor, such as a descriptor that another process passed on. Fails as
    /// [`open`](Self::open) does.
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        Self::map_sealed(File::from(descriptor))
    }

    /// Returns the path by which processes of the same user open this region while this process lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Returns the mapping and the descriptor. Once all processes have mapped the region, the descriptor is
    /// no longer needed: a program may have more regions than descriptors.
    pub fn into_parts(self) -> (Mapping, OwnedFd) {
        (self.mapping, self.file.into())
    }

    /// Returns the region's size in bytes, a multiple of the page size.
    pub const fn len(&self) -> usize {
        self.mapping.bytes()
    }

    /// Always false: a region has at least a page.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Returns the address of the region's first byte, page-aligned. Valid as long as `self`.
    pub const fn start(&self) -> NonNull<u8> {
        self.mapping.start()
    }

    /// Returns the region as words that any process may change at any time.
    pub fn words(&self) -> &[AtomicU32] {
        let words = self.mapping.bytes() / size_of::<AtomicU32>();
        // SAFETY: the mapping is page-aligned, readable and writable for `bytes` bytes until drop, its size
        // is sealed, and every bit pattern is a valid AtomicU32.
        unsafe { std::slice::from_raw_parts(self.mapping.start().as_ptr().cast::<AtomicU32>(), words) }
    }

    fn map_sealed(file: File) -> io::Result<Self> {
        require_seal(&file, SealFlags::SHRINK, "its size is not sealed")?;
        Self::map(file)
    }

    fn map(file: File) -> io::Result<Self> {
        let mapping = Mapping::shared(file.as_fd(), 0, length(&file)?, MapFlags::empty())?;
        Ok(Self { file, mapping })
    }
}

fn length(file: &File) -> io::Result<usize> {
    usize::try_from(file.metadata()?.len()).map_err(io::Error::other)
}

fn require_seal(file: &File, wanted: SealFlags, otherwise: &str) -> io::Result<()> {
    if fcntl_get_seals(file).is_ok_and(|seals| seals.contains(wanted)) {
        return Ok(());
    }
    let reason = format!("not a shared region of unisono: {otherwise}");
    Err(io::Error::new(io::ErrorKind::InvalidData, reason))
}

/// A region that another process writes and this one reads.
#[derive(Debug)]
pub struct ReadOnlyMapping(Mapping);

impl ReadOnlyMapping {
    /// Maps a region of [`SharedMemory::create_published`]. Fails with `InvalidData` for a file that could
    /// shrink, or that a process other than its creator could write.
    pub fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let file = File::from(descriptor);
        require_seal(&file, SealFlags::SHRINK, "its size is not sealed")?;
        require_seal(&file, SealFlags::FUTURE_WRITE, "anybody may write it")?;
        Mapping::read_only(file.as_fd(), length(&file)?).map(Self)
    }

    /// Returns the region as words that its creator may change at any time. A store to them ends the process
    /// (SIGSEGV).
    pub fn words(&self) -> &[AtomicU32] {
        let words = self.0.bytes() / size_of::<AtomicU32>();
        // SAFETY: the mapping is page-aligned and readable for `bytes` bytes until drop, its size is sealed,
        // and every bit pattern is a valid AtomicU32.
        unsafe { std::slice::from_raw_parts(self.0.start().as_ptr().cast::<AtomicU32>(), words) }
    }

    /// Returns the region as [`words`](Self::words) does, but as bytes.
    pub fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(self.0.start().as_ptr().cast::<AtomicU8>(), self.0.bytes()) }
    }
}

crate::as_fd!(SharedMemory.file);

pub(crate) fn page_size() -> usize {
    rustix::param::page_size()
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
    fn a_published_region_is_written_by_its_creator_alone() {
        let region = SharedMemory::create_published(1).expect("Linux 5.1 or later");
        let descriptor = || region.as_fd().try_clone_to_owned().expect("a descriptor is free");
        let reader = ReadOnlyMapping::new(descriptor()).expect("it is sealed");
        region.words()[3].store(0x2a, SeqCst);
        assert_eq!((reader.words()[3].load(SeqCst), reader.bytes()[12].load(SeqCst)), (0x2a, 0x2a));
        assert!(SharedMemory::from_descriptor(descriptor()).is_err(), "a second writer");
        let unsealed = SharedMemory::create(1).expect("a page can be mapped").into_parts().1;
        assert!(ReadOnlyMapping::new(unsealed).expect_err("writable").to_string().contains("may write"));
    }

    #[test]
    fn a_region_stays_mapped_without_its_descriptor_and_is_not_found_any_more() {
        let region = SharedMemory::create(1).expect("a page can be mapped");
        let other = SharedMemory::open(&region.path()).expect("our own region opens by path");
        let (mapping, descriptor) = region.into_parts();
        drop(descriptor);
        other.words()[3].store(7, SeqCst);
        // SAFETY: the mapping has a page, which is only accessed as atomics.
        let word = unsafe { &*mapping.start().as_ptr().cast::<AtomicU32>().wrapping_add(3) };
        assert_eq!((word.load(SeqCst), mapping.bytes()), (7, page_size()));
    }
}
