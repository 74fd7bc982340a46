//! Staged operations: short puts and accumulates for a target that is not known to be in its epoch yet; if
//! the target's part is not mapped, puts and accumulates of any length and layout for which the ring has
//! room. Each block of a layout is an entry.
//!
//! The idea: the origin writes its operations into a ring that only it writes, each stamped with its epoch.
//! When it ends its epoch it publishes the fill level of the ring. The target applies the entries of the
//! epoch that it ends itself, after the call that shows that the origin has ended its own epoch: the barrier
//! of a fence, or the completion flag, which lies in the same line as the fill level. So no origin waits for
//! the target to begin its epoch.
//!
//! ```text
//!   ... | stamp length element operation offset | data, padded to 16 | stamp ...
//!   ... | stamp LONG_ENTRY element operation offset | length | to the next line | data, padded | stamp ...
//! ```
//! Two copies by two processors at memory speed take less time than one copy by the kernel, which looks up
//! every page: 12 us for four times 64 KB each way, against 27 to 35 us. 30,000 blocks of 8 bytes take
//! 0.3 ms, and 4.3 to 13 ms through the kernel. An origin that finds the ring empty begins again at the
//! ring's start, because the caches still hold that memory, and publishes the new beginning.
//!
//! If an origin finds the target in its epoch after all, it withdraws its entries
//! ([`StagingWriter::withdraw`]) and does their operations directly, so that accumulates stay in order. Cost:
//! 16 bytes and the data, so two cache lines for four short puts. When not to use: for a mapped part that is
//! exposed. The target does not trust entries: it checks lengths and offsets.

mod origin;
mod target;
#[cfg(test)]
mod tests;

pub(crate) use origin::StagingWriter;
pub(super) use target::StagingReader;

use crate::model::{Element, Operation};
use unisono_sync::atomics::AtomicU32;

/// The size of an entry's head, and the alignment of entries (bytes).
pub(super) const HEAD: usize = 16;
/// The longest data of a short entry (bytes). Longer data is staged only where the kernel would copy it
/// otherwise; it begins at a cache line. Staging copies twice, at 10 bytes a nanosecond or so: beyond 1 KB
/// the second copy (100 ns) costs more than the check of the target's flag that it saves. Computed, not
/// measured.
pub(crate) const MAX_STAGED_BYTES: usize = 1024;
const LINE: usize = 64;
/// The number of bytes after which a position that is seldom written is written again. Positions are 32 bits
/// wide and compared by their difference: a position that is 2^31 bytes behind seems to lie ahead, and the
/// reader would lose staged entries. Half of that leaves room for the bytes that are written until the next
/// check.
const REPUBLISH_AFTER: u32 = 1 << 30;

/// A ring, and the words beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StagingRing<'a> {
    pub(super) start: *mut u8,
    /// A power of two.
    pub(super) size: usize,
    /// The fill level. The origin writes it.
    pub(super) filled: &'a AtomicU32,
    /// The position of the first entry, if the target has not read that far. The origin writes it.
    pub(super) begin: &'a AtomicU32,
    /// The target's read position. The target writes it.
    pub(super) given_back: &'a AtomicU32,
}

/// The epoch of an entry, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u32);

impl Stamp {
    pub(super) const fn fence(epoch: u32) -> Self {
        Self(1 << 31 | epoch)
    }

    /// The stamp of passive epochs. Their entries are never ahead of an epoch of another kind.
    pub(super) const PASSIVE: Self = Self(3 << 30);

    pub(super) const fn completion(number: u32) -> Self {
        Self(1 << 30 | number & 0x3fff_ffff)
    }
}

/// The head of an entry, without its stamp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// The element and operation of an accumulate, or `None` if the entry is a put.
    pub(super) how: Option<(Element, Operation)>,
    pub(super) offset: i64,
    pub(super) length: usize,
}

/// The value of the length field of an entry that only fills the ring's end.
const FILLER: u16 = u16::MAX;
/// The value of the length field of an entry whose real length follows its head.
const LONG_ENTRY: u16 = FILLER - 1;

/// Returns the largest length of an entry's data, for a ring of `ring_bytes`.
pub(super) const fn room(ring_bytes: usize) -> usize {
    ring_bytes - 2 * LINE
}

/// Returns the position of the data of an entry at `at`.
const fn data_of(at: usize, is_long: bool) -> usize {
    if is_long { (at + 2 * HEAD).next_multiple_of(LINE) } else { at + HEAD }
}

/// Returns the position of the entry after the one at `at`.
const fn after(at: usize, length: usize) -> usize {
    data_of(at, length > MAX_STAGED_BYTES) + length.next_multiple_of(HEAD)
}

/// Encodes a head as it is stored in the ring.
fn encode(stamp: Stamp, length: u16, how: Option<(Element, Operation)>, offset: i64) -> u128 {
    let (element, operation) = how.map_or((0, 0), |(element, operation)| (element as u8, operation as u8));
    u128::from(stamp.0)
        | u128::from(length) << 32
        | u128::from(element) << 48
        | u128::from(operation) << 56
        | u128::from(offset.cast_unsigned()) << 64
}
