//! The two sides of a transfer, for the raw layer: addresses, counts and layouts.

use crate::model::{Layout, Rank};

/// Data at the origin, to be read.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The address of the first element. May be null if there is no data.
    pub address: *const u8,
    pub count: u64,
    pub layout: &'a Layout,
}

/// Memory at the origin, to be written.
#[derive(Clone, Copy, Debug)]
pub struct Sink<'a> {
    /// The address of the first element. May be null if there is no data.
    pub address: *mut u8,
    pub count: u64,
    pub layout: &'a Layout,
}

/// Data in a target's part of the window.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub rank: Rank,
    /// From the window's base, in the target's displacement units; in a dynamic window an address.
    pub displacement: i64,
    pub count: u64,
    pub layout: &'a Layout,
}

/// The size and unit of a member's part, as the member announced them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowPart {
    pub(crate) bytes: u64,
    /// Bytes of a displacement unit.
    pub(crate) unit: u32,
}

impl WindowPart {
    /// Returns the position of `displacement` in the part (bytes), if the `bytes` bytes from there on lie
    /// inside the part.
    #[inline]
    pub(crate) fn inside(self, bytes: usize, displacement: i64) -> Option<u64> {
        let start = u64::try_from(displacement).ok()?.checked_mul(u64::from(self.unit))?;
        let end = start.checked_add(bytes as u64)?;
        (end <= self.bytes).then_some(start)
    }
}
