//! Staged operations: short puts and accumulates for a target that is not known to be in its epoch yet, and
//! those of any length that has room for a target whose memory is out of reach.
//!
//! The idea: the origin writes them into a ring that only it writes, each stamped with its epoch, and says
//! how far the ring is filled when it ends its epoch; the target applies those of the epoch that it is
//! ending, after the call that shows that the origin has ended its own (the barrier of a fence, the
//! completion flag, which lies in the line that says how far). Nobody waits for the target to begin its
//! epoch.
//!
//! ```text
//!   ... | stamp length element operation place | data, padded to 16 | stamp ...
//!   ... | stamp LONG element operation place | length | to the next line | data, padded to 16 | stamp ...
//! ```
//! Two copies by two processors at memory speed beat the one of the kernel, which looks every page up: four
//! times 64 KB each way 12 us against 27 to 35. What the caches hold is used again: an origin that finds the
//! ring empty begins at its start, and says so.
//!
//! An origin that finds the target in its epoch after all takes its own entries back ([`Out::take_back`]) and
//! does them directly, so that the order of accumulates stays. Cost: 16 bytes and the data, two cache lines
//! for four short puts. When not to use: for memory in reach of the origin, once it is exposed. Entries are
//! untrusted: lengths and places are checked by the target.

mod origin;
mod target;
#[cfg(test)]
mod tests;

pub(crate) use origin::Out;
pub(super) use target::In;

use crate::model::{Element, Operation};
use unisono_sync::atomics::AtomicU32;

/// Bytes of an entry's head, and what entries are aligned to.
const HEAD: usize = 16;
/// Longer data is staged only where it would be copied by the kernel otherwise, and lies in lines of its own.
pub(crate) const MOST: usize = 1024;
/// What the lines of a long entry begin at multiples of.
const LINE: usize = 64;

/// A ring, and the words beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StagingRing<'a> {
    pub(super) start: *mut u8,
    /// A power of two.
    pub(super) size: usize,
    /// How far it is filled; the origin's.
    pub(super) filled: &'a AtomicU32,
    /// From where on, if that is further than the target has read; the origin's.
    pub(super) begin: &'a AtomicU32,
    /// How far the target has read; the target's.
    pub(super) given_back: &'a AtomicU32,
}

/// The epoch of an entry, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u32);

impl Stamp {
    pub(super) const fn fence(epoch: u32) -> Self {
        Self(1 << 31 | epoch)
    }

    /// Passive epochs' entries, which are never ahead of an epoch of another kind.
    pub(super) const PASSIVE: Self = Self(3 << 30);

    pub(super) const fn completion(number: u32) -> Self {
        Self(1 << 30 | number & 0x3fff_ffff)
    }
}

/// The head of an entry, without its stamp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// How it is combined; `None`: put.
    pub(super) how: Option<(Element, Operation)>,
    pub(super) place: i64,
    pub(super) length: usize,
}

/// The length of an entry that only fills the ring's end.
const FILLER: u16 = u16::MAX;
/// The length of an entry whose length follows its head.
const LONG: u16 = FILLER - 1;

/// The most data that an entry of a ring can have.
pub(super) const fn room(ring_bytes: usize) -> usize {
    ring_bytes - 2 * LINE
}

/// Where the data of an entry at `at` begins.
const fn data_of(at: usize, is_long: bool) -> usize {
    if is_long { (at + 2 * HEAD).next_multiple_of(LINE) } else { at + HEAD }
}

/// Where the entry after one at `at` begins.
const fn after(at: usize, length: usize) -> usize {
    data_of(at, length > MOST) + length.next_multiple_of(HEAD)
}

/// A head as it lies in the ring.
fn encode(stamp: Stamp, length: u16, how: Option<(Element, Operation)>, place: i64) -> u128 {
    let (element, operation) = how.map_or((0, 0), |(element, operation)| (element as u8, operation as u8));
    u128::from(stamp.0)
        | u128::from(length) << 32
        | u128::from(element) << 48
        | u128::from(operation) << 56
        | u128::from(place.cast_unsigned()) << 64
}
