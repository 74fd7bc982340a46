//! Maps from keys to values, both plain bytes, that this process fills and programs in the kernel read.

use super::{Attributes, MAP_UPDATE, MAP_UPDATE_BATCH, bpf, element};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const HASH: u32 = 1;
const PREFIX_TRIE: u32 = 11;
/// The flag of a map whose entries are allocated one by one; tries of prefixes require it.
const NO_PREALLOCATION: u32 = 1;

#[derive(Debug)]
pub struct Table {
    descriptor: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Table {
    /// Makes a hash table (`BPF_MAP_TYPE_HASH`) with room for `max_entries` keys. Fails with `EPERM` without
    /// `CAP_BPF`.
    pub fn new(name: &str, key_bytes: u32, value_bytes: u32, max_entries: u32) -> io::Result<Self> {
        Self::of_kind(HASH, 0, name, [key_bytes, value_bytes, max_entries])
    }

    /// Makes a table whose look-ups find the longest prefix of a key (`BPF_MAP_TYPE_LPM_TRIE`). A key begins
    /// with the number of its bits, as a number of four bytes in host byte order. Fails with `EPERM` without
    /// `CAP_BPF`, and with `EINVAL` before Linux 4.11.
    pub fn of_prefixes(name: &str, key_bytes: u32, value_bytes: u32, max_entries: u32) -> io::Result<Self> {
        Self::of_kind(PREFIX_TRIE, NO_PREALLOCATION, name, [key_bytes, value_bytes, max_entries])
    }

    fn of_kind(kind: u32, flags: u32, name: &str, [key, value, entries]: [u32; 3]) -> io::Result<Self> {
        let descriptor = Attributes::map(kind, name, [key, value, entries]).word(16, flags).make_map()?;
        Ok(Self { descriptor, key_bytes: key as usize, value_bytes: value as usize })
    }

    /// Maps `key` to `value`. Fails with `E2BIG` or `ENOSPC` if the table is full, and with `EINVAL` if a
    /// length differs from the table's.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if (key.len(), value.len()) != (self.key_bytes, self.value_bytes) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: key and value have the sizes that the table was made with.
        unsafe { element(MAP_UPDATE, &self.descriptor, key.as_ptr(), value.as_ptr()) }
    }

    /// Maps each key to its value, in one system call where the kernel can (Linux 5.6; prefixes: 5.13). Both
    /// are given end to end. Fails as [`insert`](Self::insert) does; some keys may have been inserted then.
    pub fn insert_all(&self, keys: &[u8], values: &[u8]) -> io::Result<()> {
        let keys_of = || keys.chunks_exact(self.key_bytes);
        let count = keys_of().len();
        if count * self.key_bytes != keys.len() || count * self.value_bytes != values.len() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let words = u32::try_from(count).ok().filter(|count| *count > 0).map(|count| {
            Attributes::new()
                .pointer(16, keys.as_ptr())
                .pointer(24, values.as_ptr())
                .word(32, count)
                .word(36, self.descriptor.as_raw_fd() as u32)
        });
        // SAFETY: both arrays have `count` elements of the sizes that the table was made with.
        if words.is_some_and(|mut attributes| unsafe { bpf(MAP_UPDATE_BATCH, &mut attributes).is_ok() }) {
            return Ok(());
        }
        // an older kernel; or an error, which a single key meets again
        let values = values.chunks_exact(self.value_bytes);
        keys_of().zip(values).try_for_each(|(key, value)| self.insert(key, value))
    }
}

crate::as_fd!(Table.descriptor);
