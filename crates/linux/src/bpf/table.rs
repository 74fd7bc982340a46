//! A map from 64-bit to 32-bit numbers that this process fills and programs in the kernel read.

use super::{Attributes, MAP_CREATE, MAP_UPDATE, bpf, owned};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const HASH: u32 = 1;

/// The map (`BPF_MAP_TYPE_HASH`).
#[derive(Debug)]
pub struct Table(OwnedFd);

impl Table {
    /// Makes a map with room for `max_entries` keys. Fails with `EPERM` without `CAP_BPF`.
    pub fn new(name: &str, max_entries: u32) -> io::Result<Self> {
        let mut attributes =
            Attributes::new().word(0, HASH).word(4, 8).word(8, 4).word(12, max_entries).name(28, name);
        // SAFETY: the command follows no pointers.
        Ok(Self(owned(unsafe { bpf(MAP_CREATE, &mut attributes)? })))
    }

    /// Maps `key` to `value`. Fails with `E2BIG` if the map is full.
    pub fn insert(&self, key: u64, value: u32) -> io::Result<()> {
        let mut attributes = Attributes::new()
            .word(0, self.0.as_raw_fd() as u32)
            .pointer(8, &raw const key)
            .pointer(16, &raw const value);
        // SAFETY: the key has eight bytes and the value four, the sizes that the map was made with.
        unsafe { bpf(MAP_UPDATE, &mut attributes)? };
        Ok(())
    }
}

impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
