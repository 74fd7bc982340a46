//! Staged operations: short puts and accumulates for a target that is not known to be in its epoch yet, or
//! whose memory is out of reach.
//!
//! The idea: the origin writes them into a ring that only it writes, each stamped with its epoch, and says how
//! far the ring is filled when it ends its epoch; the target applies those of the epoch that it is ending,
//! after the call that shows that the origin has ended its own (the barrier of a fence, the completion flag,
//! which lies in the line that says how far). Nobody waits for the target to begin its epoch.
//!
//! ```text
//!   ... | stamp length element operation place | data, padded to 16 | stamp ...
//! ```
//! An origin that finds the target in its epoch after all takes its own entries back ([`Out::take_back`]) and
//! does them directly, so that the order of accumulates stays. Cost: 16 bytes and the data, two cache lines
//! for four short puts. Entries are untrusted: lengths and places are checked by the target.

use crate::element::Element;
use crate::operation::Operation;
use crate::window::copy;
use unisono_sync::atomics::{AtomicU32, Ordering};

/// Bytes of an entry's head, and what entries are aligned to.
const HEAD: usize = 16;
/// Longer data is not staged.
pub(crate) const MOST: usize = 1024;

/// The epoch of an entry, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u32);

impl Stamp {
    pub(super) const fn fence(epoch: u32) -> Self {
        Self(1 << 31 | epoch)
    }

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

/// The origin's end of a ring.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// Bytes ever written, and how many of them the target is known to have given back.
    written: u32,
    given_back: u32,
    /// Where this epoch's entries begin.
    epoch_start: u32,
}

/// The target's end of a ring.
#[derive(Debug, Default)]
pub(super) struct In {
    read: u32,
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

impl Out {
    pub(super) fn is_empty(&self) -> bool {
        self.written == self.epoch_start
    }

    /// The epoch is over: its entries are the target's, once it sees the call that ends it.
    #[inline]
    pub(super) fn commit(&mut self, filled: &AtomicU32) {
        if !self.is_empty() {
            self.epoch_start = self.written;
            // SYNC(filled) release: the entries before how far they reach
            filled.store(self.written, Ordering::Release);
        }
    }

    /// Writes an entry of `length` bytes from `data`, if there is room.
    ///
    /// # Safety
    /// `head.length` bytes, at most [`MOST`], are readable at `data`; the ring is mapped.
    #[inline]
    pub(super) unsafe fn stage(
        &mut self,
        (ring, size): (*mut u8, usize),
        given_back: &AtomicU32,
        stamp: Stamp,
        head: Head,
        data: *const u8,
    ) -> bool {
        let bytes = HEAD + head.length.next_multiple_of(HEAD);
        let at = self.written as usize & (size - 1);
        let filler = if at + bytes > size { size - at } else { 0 };
        let needed = filler + bytes;
        if self.written.wrapping_sub(self.given_back) as usize + needed > size {
            // SYNC(given-back) acquire: the target has read what it gave back
            self.given_back = given_back.load(Ordering::Acquire);
            if self.written.wrapping_sub(self.given_back) as usize + needed > size {
                return false;
            }
        }
        let put = |at: usize, word: u128| {
            let into = ring.wrapping_add(at).cast::<u128>();
            // SAFETY: the ring is mapped, `at` is a multiple of 16 below its size; the target reads it only
            // after `filled` says so.
            unsafe { into.write_unaligned(word) };
        };
        if filler > 0 {
            put(at, encode(stamp, FILLER, None, 0));
        }
        let at = (at + filler) & (size - 1);
        put(at, encode(stamp, head.length as u16, head.how, head.place));
        // SAFETY: the caller promises the data; the entry lies within the ring, as computed above.
        unsafe { copy(data, ring.wrapping_add(at + HEAD), head.length) };
        self.written = self.written.wrapping_add(needed as u32);
        true
    }

    /// Takes this epoch's entries back, in order, before the target may look at them.
    pub(super) fn take_back(
        &mut self,
        ring: (*mut u8, usize),
        stamp: Stamp,
        mut visit: impl FnMut(Head, *const u8),
    ) {
        let mut reader = In { read: self.epoch_start };
        while reader.read != self.written && reader.next(ring, stamp, &mut visit) {}
        self.written = self.epoch_start;
    }
}

impl In {
    /// Applies all entries of an epoch.
    #[inline]
    pub(super) fn drain(
        &mut self,
        ring: (*mut u8, usize),
        (filled, given_back): (&AtomicU32, &AtomicU32),
        stamp: Stamp,
        mut visit: impl FnMut(Head, *const u8),
    ) {
        let before = self.read;
        // SYNC(filled) acquire: the entries after how far they reach
        let filled = filled.load(Ordering::Acquire);
        if filled == before || filled.wrapping_sub(before) as usize > ring.1 {
            return;
        }
        while self.read != filled && self.next(ring, stamp, &mut visit) {}
        // SYNC(given-back) release: the copies before the room is given back
        given_back.store(self.read, Ordering::Release);
    }

    /// Visits the next entry, if it has this stamp.
    #[inline]
    fn next(
        &mut self,
        (ring, size): (*mut u8, usize),
        stamp: Stamp,
        visit: &mut impl FnMut(Head, *const u8),
    ) -> bool {
        let at = self.read as usize & (size - 1);
        let from = ring.wrapping_add(at).cast::<u128>();
        // SAFETY: the ring is mapped, and `at` is a multiple of 16 below its size. Another process wrote
        // this, and may write it again: the copy is what counts.
        let word = unsafe { from.read_volatile() };
        if word as u32 != stamp.0 {
            return false;
        }
        let length = (word >> 32) as u16;
        if length == FILLER {
            self.read = self.read.wrapping_add((size - at) as u32);
            return true;
        }
        let length = usize::from(length).min(MOST).min(size - at - HEAD);
        let how = Element::from_code((word >> 48) as u8)
            .zip(Operation::from_code((word >> 56) as u8))
            .filter(|(element, operation)| operation.is_defined_for(*element));
        let head = Head { how, place: ((word >> 64) as u64).cast_signed(), length };
        visit(head, ring.wrapping_add(at + HEAD));
        self.read = self.read.wrapping_add((HEAD + length.next_multiple_of(HEAD)) as u32);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn stage(
        out: &mut Out,
        ring: (*mut u8, usize),
        back: &AtomicU32,
        stamp: Stamp,
        place: i64,
        length: usize,
    ) -> bool {
        let head = Head { how: None, place, length };
        // SAFETY: the array has seventeen bytes, the length is at most that, and the ring is the test's.
        unsafe { out.stage(ring, back, stamp, head, [7_u8; 17].as_ptr()) }
    }

    #[test]
    fn entries_come_out_in_order_epoch_by_epoch_and_the_ring_wraps() {
        let mut memory = vec![0_u128; 16];
        let ring = (memory.as_mut_ptr().cast::<u8>(), 256);
        let (given_back, filled) = (AtomicU32::new(0), AtomicU32::new(0));
        let (mut out, mut came) = (Out::default(), In::default());
        for epoch in 1..200_u32 {
            let stamp = Stamp::fence(epoch);
            let lengths = [epoch as usize % 17, 8, epoch as usize % 5];
            let ends = (&filled, &given_back);
            for (place, length) in lengths.into_iter().enumerate() {
                assert!(stage(&mut out, ring, &given_back, stamp, place as i64, length), "room in {epoch}");
            }
            came.drain(ring, ends, stamp, |_, _| unreachable!("not committed"));
            if epoch.is_multiple_of(3) {
                let mut again = 0;
                out.take_back(ring, stamp, |_, _| again += 1);
                assert_eq!(again, 3, "taken back in epoch {epoch}");
                out.commit(&filled);
                came.drain(ring, ends, stamp, |_, _| unreachable!("taken back"));
                continue;
            }
            out.commit(&filled);
            came.drain(ring, ends, Stamp::fence(epoch + 1), |_, _| unreachable!("another epoch"));
            let mut places = Vec::new();
            came.drain(ring, ends, stamp, |head, data| {
                // SAFETY: the entry's data lies in the ring.
                let data = unsafe { std::slice::from_raw_parts(data, head.length) };
                assert_eq!(data, &[7; 17][..head.length]);
                places.push((head.place, head.length));
            });
            let expected: Vec<_> = lengths.iter().enumerate().map(|(at, n)| (at as i64, *n)).collect();
            assert_eq!(places, expected);
        }
    }

    #[test]
    fn a_full_ring_takes_no_more_until_room_is_given_back() {
        let mut memory = vec![0_u128; 16];
        let ring = (memory.as_mut_ptr().cast::<u8>(), 256);
        let (given_back, filled) = (AtomicU32::new(0), AtomicU32::new(0));
        let (mut out, mut came) = (Out::default(), In::default());
        let mut staged = 0;
        while stage(&mut out, ring, &given_back, Stamp::completion(1), 0, 16) {
            staged += 1;
        }
        assert_eq!(staged, 8);
        out.commit(&filled);
        let mut seen = 0;
        came.drain(ring, (&filled, &given_back), Stamp::completion(1), |_, _| seen += 1);
        assert_eq!(seen, staged);
        assert!(stage(&mut out, ring, &given_back, Stamp::completion(2), 0, 16));
    }
}
