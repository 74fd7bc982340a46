//! A map from short keys to 32-bit numbers, which programs in the kernel fill. When it is full, the kernel
//! evicts keys that were not used recently.

use super::Attributes;
use std::io;
use std::os::fd::OwnedFd;

const LEAST_RECENTLY_USED: u32 = 9;

/// The map (`BPF_MAP_TYPE_LRU_HASH`); its values have four bytes.
#[derive(Debug)]
pub struct LruMap(OwnedFd);

impl LruMap {
    /// Makes a map with keys of `key_bytes` bytes that keeps about `keys` of them. Fails with `EPERM` without
    /// `CAP_BPF`, and with `EINVAL` before Linux 4.10.
    pub fn new(name: &str, key_bytes: u32, keys: u32) -> io::Result<Self> {
        Ok(Self(Attributes::map(LEAST_RECENTLY_USED, name, [key_bytes, 4, keys]).make_map()?))
    }
}

crate::as_fd!(LruMap.0);
