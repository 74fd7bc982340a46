//! Reads and writes another process's memory: process_vm_readv(2), process_vm_writev(2), proc_pid_mem(5).
//!
//! A call copies once and needs neither a shared mapping nor the cooperation of the other process. The kernel
//! allows it as it allows ptrace: for the same user, unless Yama or a container's filter forbids it; to find
//! out, [`read`] a known word. With a [`HeldMemory`] the kernel looks the process up and checks the
//! permission once instead of in each call; but it copies twice, through a page of its own. Cost: a system
//! call and a lookup for each page. 16 bytes take 1.3 us, or 1.0 us with a `HeldMemory`; with transfers in
//! both directions at the same time, 1.6 us and 1.0 us. From a few pages on [`write()`] is faster. When not
//! to use: for short data that can be shared instead.

use crate::pidfd::start_time;
use crate::pinned::PinnedProcess;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// A process's memory, held open: it refers to the same process even after the process number is reused.
#[derive(Debug)]
pub struct HeldMemory(File);

impl HeldMemory {
    /// Opens the memory of a process. Fails with `EACCES` or `EPERM` where that is forbidden, with `ESRCH` if
    /// the process has ended, and with `ENOENT` without /proc.
    pub fn open(process: &PinnedProcess) -> io::Result<Self> {
        let open = |number| OpenOptions::new().read(true).write(true).open(format!("/proc/{number}/mem"));
        process.read(open).map(Self)
    }

    /// Copies `into.len()` bytes from `address`. Fails with `EIO` for unmapped memory, and with
    /// [`io::ErrorKind::UnexpectedEof`] if the process has ended.
    #[inline]
    pub fn read(&self, address: usize, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, address as u64)
    }

    /// Copies `bytes` to `address`, even where the process itself may only read, like a debugger's write.
    /// Fails as [`read`] does.
    ///
    /// # Safety
    /// The caller may overwrite the memory at `address` of that process (possibly this one).
    #[inline]
    pub unsafe fn write(&self, address: usize, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address as u64)
    }
}

/// Whose memory a call reads or writes.
#[derive(Clone, Copy, Debug)]
pub enum MemoryOf<'a> {
    Own,
    Pinned(&'a PinnedProcess),
    /// The process with this number and start time, if the kernel or the limit of descriptors refuses a
    /// pidfd.
    Identified {
        number: u32,
        started: u64,
    },
}

impl MemoryOf<'_> {
    fn number(self) -> u32 {
        match self {
            MemoryOf::Own => std::process::id(),
            MemoryOf::Pinned(process) => process.number(),
            MemoryOf::Identified { number, .. } => number,
        }
    }

    /// Checks that the process lives. Fails with `ESRCH` if it has ended, because another process may have
    /// its number.
    fn check(self) -> io::Result<()> {
        let lives = match self {
            MemoryOf::Own => true,
            MemoryOf::Pinned(process) => process.lives(),
            MemoryOf::Identified { number, started } => start_time(number) == Some(started),
        };
        if lives { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    }
}

/// A range of another process's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRange {
    pub address: usize,
    pub bytes: usize,
}

/// The number of ranges in one system call: the kernel's limit (UIO_MAXIOV).
pub const MAX_RANGES: usize = 1024;

/// Copies `into.len()` bytes from `address` of a process, and then checks that the process still lives. Fails
/// with `EPERM` where that is forbidden, `EFAULT` for unmapped memory, `ESRCH` if the process has ended.
pub fn read(of: MemoryOf<'_>, address: usize, into: &mut [u8]) -> io::Result<()> {
    read_ranges(of, &[RemoteRange { address, bytes: into.len() }], into)
}

/// Copies the ranges one after the other to `into`, which is as long as all of them. Fails as [`read`] does.
/// Cost: one system call for [`MAX_RANGES`] ranges, and 0.12 us for each range of up to 32 bytes.
pub fn read_ranges(of: MemoryOf<'_>, ranges: &[RemoteRange], into: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let read = transfer(local, of.number(), ranges, |process, local, remote, count| {
        // SAFETY: the local vector is a slice; the kernel checks the remote ones.
        unsafe { libc::process_vm_readv(process, local, 1, remote, count, 0) }
    });
    of.check().and(read)
}

/// Checks that a process lives, and copies `bytes` to its `address`. Fails as [`read`] does.
///
/// # Safety
/// The caller may overwrite the memory at `address` of the process (which may be this one).
pub unsafe fn write(of: MemoryOf<'_>, address: usize, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the caller vouches for this range.
    unsafe { write_ranges(of, &[RemoteRange { address, bytes: bytes.len() }], bytes) }
}

/// Checks that a process lives, and copies `bytes` to the ranges, one after the other; it is as long as all
/// of them. Fails as [`read`] does. Cost: one system call for [`MAX_RANGES`] ranges, and 0.26 us for each
/// range of up to 32 bytes.
///
/// # Safety
/// The caller may overwrite the ranges of the process (which may be this one).
pub unsafe fn write_ranges(of: MemoryOf<'_>, ranges: &[RemoteRange], bytes: &[u8]) -> io::Result<()> {
    of.check()?;
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    transfer(local, of.number(), ranges, |process, local, remote, count| {
        // SAFETY: the local vector is a slice, only read; the caller vouches for the remote ones.
        unsafe { libc::process_vm_writev(process, local, 1, remote, count, 0) }
    })
}

/// Repeats a call until all bytes are transferred, because a transfer may end early.
fn transfer(
    mut local: libc::iovec,
    process: u32,
    mut ranges: &[RemoteRange],
    call: impl Fn(libc::pid_t, *const libc::iovec, *const libc::iovec, libc::c_ulong) -> isize,
) -> io::Result<()> {
    let process = libc::pid_t::try_from(process).map_err(io::Error::other)?;
    let mut several = Vec::new();
    let mut done = 0; // bytes of the first range
    while let Some(RemoteRange { address, bytes }) = ranges.first()
        && local.iov_len > 0
    {
        let vector =
            |address: usize, bytes| libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes };
        let first = vector(address + done, bytes - done);
        let remote = if ranges.len() > 1 {
            several.clear();
            several.push(first);
            let others = ranges[1..].iter().take(MAX_RANGES - 1);
            several.extend(others.map(|range| vector(range.address, range.bytes)));
            several.as_slice()
        } else {
            std::slice::from_ref(&first)
        };
        let moved = call(process, &raw const local, remote.as_ptr(), remote.len() as libc::c_ulong);
        let Ok(moved) = usize::try_from(moved) else { return Err(io::Error::last_os_error()) };
        if moved == 0 {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
        local.iov_base = local.iov_base.wrapping_byte_add(moved);
        local.iov_len -= moved;
        done += moved;
        while let Some(range) = ranges.first().filter(|range| range.bytes <= done) {
            done -= range.bytes;
            ranges = &ranges[1..];
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_own_memory_is_read_and_written_and_nobodys_is_not() {
        let (source, mut target) = ([1_u8, 2, 3, 4], [0_u8; 4]);
        let us = MemoryOf::Own;
        if let Err(reason) = read(us, source.as_ptr() as usize, &mut target) {
            assert_ne!(reason.raw_os_error(), Some(libc::EFAULT), "the memory is there: {reason}");
            return;
        }
        assert_eq!(target, source);
        // SAFETY: the target is an array of this function's, of that length.
        unsafe { write(us, target.as_mut_ptr() as usize, &[9, 9]) }.expect("as reading was");
        assert_eq!(std::hint::black_box(target), [9, 9, 3, 4]);
        assert!(read(us, 16, &mut [0]).is_err());
    }

    #[test]
    fn ranges_are_read_and_written_one_after_the_other_however_many_there_are() {
        let us = MemoryOf::Own;
        let mut memory: Vec<u8> = (0..9000_u32).map(|at| at as u8).collect();
        let start = memory.as_mut_ptr() as usize;
        // in falling order, with gaps between them
        let ranges: Vec<RemoteRange> = (0..MAX_RANGES + 500)
            .rev()
            .map(|at| RemoteRange { address: start + 5 * at, bytes: 1 + at % 4 })
            .collect();
        let places = |range: &RemoteRange| range.address - start..range.address - start + range.bytes;
        let expected: Vec<u8> = ranges.iter().flat_map(places).map(|at| at as u8).collect();
        let mut read = vec![0; expected.len()];
        if let Err(reason) = read_ranges(us, &ranges, &mut read) {
            assert_ne!(reason.raw_os_error(), Some(libc::EFAULT), "the memory is there: {reason}");
            return;
        }
        assert_eq!(read, expected);
        let flipped: Vec<u8> = expected.iter().map(|byte| !byte).collect();
        // SAFETY: the ranges lie in the vector.
        unsafe { write_ranges(us, &ranges, &flipped) }.expect("as reading was");
        let written: std::collections::BTreeSet<usize> = ranges.iter().flat_map(places).collect();
        for (at, byte) in std::hint::black_box(memory).into_iter().enumerate() {
            assert_eq!(byte, if written.contains(&at) { !(at as u8) } else { at as u8 }, "byte {at}");
        }
        let beyond = [ranges[0], RemoteRange { address: 16, bytes: 1 }];
        let mut bytes = vec![0; ranges[0].bytes + 1];
        assert!(read_ranges(us, &beyond, &mut bytes).is_err(), "nobody has memory there");
    }

    #[test]
    fn memory_held_on_to_is_read_and_written_until_its_process_ends() {
        let (source, mut target) = ([1_u8, 2, 3, 4], [0_u8; 4]);
        // Without /proc there is nothing to hold.
        let Ok(own) = HeldMemory::open(&PinnedProcess::own().expect("it runs")) else { return };
        own.read(source.as_ptr() as usize, &mut target).expect("the memory is there");
        assert_eq!(target, source);
        // SAFETY: the target is an array of this function's, of that length.
        unsafe { own.write(target.as_mut_ptr() as usize, &[9, 9]) }.expect("as reading was");
        assert_eq!(std::hint::black_box(target), [9, 9, 3, 4]);
        assert!(own.read(16, &mut [0]).is_err());
        // a child that has not executed its program yet may still have this process's memory: a child that
        // has written has executed it
        let mut yes = std::process::Command::new("yes");
        let mut child = yes.stdout(std::process::Stdio::piped()).spawn().expect("yes(1) exists");
        std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut [0]).expect("it writes");
        let pinned = PinnedProcess::of_child(&child).expect("our child");
        let held = HeldMemory::open(&pinned).expect("our child");
        child.kill().expect("our child");
        child.wait().expect("our child");
        assert!(held.read(source.as_ptr() as usize, &mut target).is_err());
        // SAFETY: the process has ended, so no memory is written.
        assert!(unsafe { held.write(source.as_ptr() as usize, &[1]) }.is_err());
        let late = read(MemoryOf::Pinned(&pinned), source.as_ptr() as usize, &mut target);
        assert_eq!(late.map_err(|error| error.raw_os_error()), Err(Some(libc::ESRCH)));
        // this process has the memory, but it did not start at the given time
        let other = MemoryOf::Identified { number: std::process::id(), started: 0 };
        // SAFETY: it is refused, and the target is an array of this function's.
        let written = unsafe { write(other, target.as_mut_ptr() as usize, &[7]) };
        assert_eq!(written.map_err(|error| error.raw_os_error()), Err(Some(libc::ESRCH)));
    }
}
