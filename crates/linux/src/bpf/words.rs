//! An array of words that programs in the kernel and this process share without system calls.

use super::{ARRAY, Attributes};
use crate::mapping::Mapping;
use rustix::mm::MapFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;

const CAN_BE_MAPPED: u32 = 1 << 10;

/// The words, all zero from the beginning. They stay mapped in a child after fork(2).
#[derive(Debug)]
pub struct Words {
    descriptor: OwnedFd,
    mapping: Mapping,
}

impl Words {
    /// Makes an array of `count` words. Fails with `EPERM` without `CAP_BPF`, and with `EINVAL` before Linux
    /// 5.5.
    pub fn new(name: &str, count: u32) -> io::Result<Self> {
        // a single element holds all words, because programs can only get the address of one element at a
        // time
        let descriptor =
            Attributes::map(ARRAY, name, [4, 8 * count, 1]).word(16, CAN_BE_MAPPED).make_map()?;
        let mapping = Mapping::shared(descriptor.as_fd(), 0, count as usize * 8, MapFlags::empty())?;
        Ok(Self { descriptor, mapping })
    }

    pub fn all(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has that many aligned words and lives as long as `self`; other users change
        // them atomically.
        unsafe { std::slice::from_raw_parts(self.mapping.start().as_ptr().cast(), self.mapping.bytes() / 8) }
    }
}

crate::as_fd!(Words.descriptor);
