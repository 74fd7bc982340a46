//! Staged operations: short puts and accumulates for a target that is not known to be in its epoch yet, and those of
//! any length that has room for a target whose memory is out of reach.
//!
//! The idea: the origin writes them into a ring that only it writes, each stamped with its epoch, and says how
//! far the ring is filled when it ends its epoch; the target applies those of the epoch that it is ending,
//! after the call that shows that the origin has ended its own (the barrier of a fence, the completion flag,
//! which lies in the line that says how far). Nobody waits for the target to begin its epoch.
//!
//! ```text
//!   ... | stamp length element operation place | data, padded to 16 | stamp ...
//!   ... | stamp LONG element operation place | length | to the next line | data, padded to 16 | stamp ...
//! ```
//! Two copies by two processors at memory speed beat the one of the kernel, which looks every page up: four times
//! 64 KB each way 12 us against 27 to 35. What the caches hold is used again: an origin that finds the ring
//! empty begins at its start, and says so.
//!
//! An origin that finds the target in its epoch after all takes its own entries back ([`Out::take_back`]) and
//! does them directly, so that the order of accumulates stays. Cost: 16 bytes and the data, two cache lines
//! for four short puts. When not to use: for memory in reach of the origin, once it is exposed. Entries are untrusted:
//! lengths and places are checked by the target.

use crate::element::Element;
use crate::operation::Operation;
use crate::window::copy;
use unisono_sync::atomics::{AtomicU32, Ordering};

/// Bytes of an entry's head, and what entries are aligned to.
const HEAD: usize = 16;
/// Longer data is staged only where it would be copied by the kernel otherwise, and lies in lines of its own.
pub(crate) const MOST: usize = 1024;
/// What the lines of a long entry begin at multiples of.
const LINE: usize = 64;

/// A ring, and the words beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring<'a> {
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

/// What has been written since the ring was begun again, when that moment is old.
const OLD: u32 = 1 << 30;

/// Short entries may go on for so many bytes before it is worth a look whether the ring is empty.
const LAP: usize = 16 << 10;

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

/// The origin's end of a ring.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// Bytes ever written, and how many of them the target is known to have given back.
    written: u32,
    given_back: u32,
    /// Where this epoch's entries begin.
    epoch_start: u32,
    /// Where the ring was begun again last, or a place after that.
    begun: u32,
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
    pub(super) fn commit(&mut self, ring: Ring<'_>) {
        if !self.is_empty() {
            self.epoch_start = self.written;
            self.renew_beginning(ring);
            // SYNC(filled) release: the entries, and where they begin, before how far they reach
            ring.filled.store(self.written, Ordering::Release);
        }
    }

    /// How far it is filled, for an offer.
    pub(super) fn position(&mut self, ring: Ring<'_>) -> u32 {
        self.renew_beginning(ring);
        self.written
    }

    #[inline]
    fn renew_beginning(&mut self, ring: Ring<'_>) {
        if self.written.wrapping_sub(self.begun) > OLD {
            // So far behind it would soon seem to lie ahead; this is behind what the target has read.
            self.begun = self.written.wrapping_sub(2 * ring.size as u32);
            ring.begin.store(self.begun, Ordering::Relaxed);
        }
    }

    /// What was not applied yet, fillers included.
    pub(super) fn staged(&self) -> usize {
        self.written.wrapping_sub(self.epoch_start) as usize
    }

    /// The target has applied everything.
    pub(super) fn handed_over(&mut self) {
        (self.epoch_start, self.given_back) = (self.written, self.written);
    }

    /// Writes a short entry, if there is room that this member knows of: the common case.
    ///
    /// # Safety
    /// As [`stage`](Self::stage), with `ring` its start and size.
    #[inline]
    pub(super) unsafe fn stage_quickly(
        &mut self,
        (ring, size): (*mut u8, usize),
        stamp: Stamp,
        head: Head,
        data: *const u8,
    ) -> bool {
        let at = self.written as usize & (size - 1);
        let needed = HEAD + head.length.next_multiple_of(HEAD);
        if head.length > MOST
            || at + needed > size
            || self.used() + needed > size
            || (at >= LAP && self.is_empty())
        {
            return false;
        }
        let into = ring.wrapping_add(at).cast::<u128>();
        // SAFETY: the ring is mapped, `at` is a multiple of 16 below its size; the target reads it only after
        // `filled` says so.
        unsafe { into.write_unaligned(encode(stamp, head.length as u16, head.how, head.place)) };
        // SAFETY: the caller promises the data; the entry lies within the ring, as computed above.
        unsafe { copy(data, ring.wrapping_add(at + HEAD), head.length) };
        self.written = self.written.wrapping_add(needed as u32);
        true
    }

    /// Writes an entry of `length` bytes from `data`, if there is room.
    ///
    /// # Safety
    /// `head.length` bytes, at most [`room`] of the ring's, are readable at `data`; the ring is mapped.
    #[inline(never)]
    pub(super) unsafe fn stage(&mut self, ring: Ring<'_>, stamp: Stamp, head: Head, data: *const u8) -> bool {
        let size = ring.size;
        let is_long = head.length > MOST;
        let mut at = self.written as usize & (size - 1);
        if self.is_empty() && at >= if is_long { 1 } else { LAP } && self.is_idle(ring) {
            self.written = self.written.wrapping_add((size - at) as u32);
            (self.epoch_start, self.given_back, at) = (self.written, self.written, 0);
            self.begun = self.written;
            ring.begin.store(self.written, Ordering::Relaxed);
        }
        let filler = if after(at, head.length) > size { size - at } else { 0 };
        let needed = if filler > 0 { filler + after(0, head.length) } else { after(at, head.length) - at };
        if self.used() + needed > size {
            self.look(ring);
            if self.used() + needed > size {
                return false;
            }
        }
        let put = |at: usize, word: u128| {
            let into = ring.start.wrapping_add(at).cast::<u128>();
            // SAFETY: the ring is mapped, `at` is a multiple of 16 below its size; the target reads it only
            // after `filled` says so.
            unsafe { into.write_unaligned(word) };
        };
        if filler > 0 {
            put(at, encode(stamp, FILLER, None, 0));
        }
        let at = (at + filler) & (size - 1);
        if is_long {
            put(at, encode(stamp, LONG, head.how, head.place));
            put(at + HEAD, head.length as u128);
        } else {
            put(at, encode(stamp, head.length as u16, head.how, head.place));
        }
        let into = ring.start.wrapping_add(data_of(at, is_long));
        // SAFETY: the caller promises the data; the entry lies within the ring, as computed above.
        unsafe { copy(data, into, head.length) };
        self.written = self.written.wrapping_add(needed as u32);
        true
    }

    #[inline]
    fn used(&self) -> usize {
        self.written.wrapping_sub(self.given_back) as usize
    }

    /// Looks how far the target has read; it does not know yet where this member has begun again.
    fn look(&mut self, ring: Ring<'_>) {
        // SYNC(given-back) acquire: the target has read what it gave back
        let given_back = ring.given_back.load(Ordering::Acquire);
        if given_back.wrapping_sub(self.given_back).cast_signed() > 0 {
            self.given_back = given_back;
        }
    }

    /// Whether the target has given everything back.
    fn is_idle(&mut self, ring: Ring<'_>) -> bool {
        self.look(ring);
        self.used() == 0
    }

    /// Takes this epoch's entries back, in order, before the target may look at them.
    pub(super) fn take_back(&mut self, ring: Ring<'_>, stamp: Stamp, mut visit: impl FnMut(Head, *const u8)) {
        let mut reader = In { read: self.epoch_start };
        while reader.read != self.written && reader.next(ring, stamp, &mut visit) {}
        self.written = self.epoch_start;
    }
}

impl In {
    /// Asks for the lines where the next entries will be, that they travel at the same time as what says so.
    #[inline]
    pub(super) fn expect(&self, (ring, size): (*mut u8, usize)) {
        #[cfg(target_arch = "x86_64")]
        for line in [0, LINE] {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let at = (self.read as usize + line) & (size - 1);
            // SAFETY: a prefetch reads nothing; every x86-64 processor has it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(ring.wrapping_add(at).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (ring, size);
    }

    /// Applies all entries of an epoch.
    #[inline]
    pub(super) fn drain(&mut self, ring: Ring<'_>, stamp: Stamp, mut visit: impl FnMut(Head, *const u8)) {
        // SYNC(filled) acquire: the entries, and where they begin, after how far they reach
        let filled = ring.filled.load(Ordering::Acquire);
        if filled == self.read {
            return;
        }
        self.find_beginning(ring);
        if filled.wrapping_sub(self.read) as usize > ring.size {
            return;
        }
        // Who writes there may lie about lengths: beyond is the end too.
        while filled.wrapping_sub(self.read).cast_signed() > 0 && self.next(ring, stamp, &mut visit) {}
        // SYNC(given-back) release: the copies before the room is given back
        ring.given_back.store(self.read, Ordering::Release);
    }

    /// Skips what the origin has skipped.
    #[inline]
    fn find_beginning(&mut self, ring: Ring<'_>) {
        let begin = ring.begin.load(Ordering::Relaxed);
        if begin.wrapping_sub(self.read).cast_signed() > 0 {
            self.read = begin & !(HEAD as u32 - 1);
        }
    }

    /// Whether the next entry, which was offered, has this stamp.
    pub(super) fn is_next(&mut self, ring: Ring<'_>, stamp: Stamp) -> bool {
        self.find_beginning(ring);
        let from = ring.start.wrapping_add(self.read as usize & (ring.size - 1)).cast::<u32>();
        // SAFETY: the ring is mapped, and the place a multiple of 16 below its size.
        let word = unsafe { from.read_volatile() };
        word == stamp.0
    }

    /// Applies all entries up to a position that was claimed.
    pub(super) fn drain_to(
        &mut self,
        ring: Ring<'_>,
        position: u32,
        stamp: Stamp,
        mut visit: impl FnMut(Head, *const u8),
    ) {
        while position.wrapping_sub(self.read).cast_signed() > 0 && self.next(ring, stamp, &mut visit) {}
        self.read = position;
        // SYNC(given-back) release: the copies before the room is given back
        ring.given_back.store(position, Ordering::Release);
    }

    /// Visits the next entry, if it has this stamp.
    #[inline]
    fn next(&mut self, ring: Ring<'_>, stamp: Stamp, visit: &mut impl FnMut(Head, *const u8)) -> bool {
        let (ring, size) = (ring.start, ring.size);
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
        let is_long = length == LONG;
        let length = if is_long {
            let from = ring.wrapping_add((at + HEAD) & (size - 1)).cast::<u128>();
            // SAFETY: as above.
            usize::try_from(unsafe { from.read_volatile() }).unwrap_or(0)
        } else {
            usize::from(length).min(MOST)
        };
        let data = data_of(at, is_long).min(size);
        let length = length.min(size - data);
        let how = Element::from_code((word >> 48) as u8)
            .zip(Operation::from_code((word >> 56) as u8))
            .filter(|(element, operation)| operation.is_defined_for(*element));
        let head = Head { how, place: ((word >> 64) as u64).cast_signed(), length };
        visit(head, ring.wrapping_add(data));
        self.read = self.read.wrapping_add((data + length.next_multiple_of(HEAD) - at) as u32);
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Words {
        filled: AtomicU32,
        begin: AtomicU32,
        given_back: AtomicU32,
    }

    impl Words {
        fn beside(&self, start: *mut u8, size: usize) -> Ring<'_> {
            Ring { start, size, filled: &self.filled, begin: &self.begin, given_back: &self.given_back }
        }
    }

    fn stage(out: &mut Out, ring: Ring<'_>, stamp: Stamp, place: i64, length: usize) -> bool {
        let head = Head { how: None, place, length };
        // SAFETY: the array has seventeen bytes, the length is at most that, and the ring is the test's.
        unsafe { out.stage(ring, stamp, head, [7_u8; 17].as_ptr()) }
    }

    #[test]
    fn entries_come_out_in_order_epoch_by_epoch_and_the_ring_wraps() {
        let mut memory = vec![0_u128; 16];
        let words = Words::default();
        let ring = words.beside(memory.as_mut_ptr().cast::<u8>(), 256);
        let (mut out, mut came) = (Out::default(), In::default());
        for epoch in 1..200_u32 {
            let stamp = Stamp::fence(epoch);
            let lengths = [epoch as usize % 17, 8, epoch as usize % 5];
            for (place, length) in lengths.into_iter().enumerate() {
                assert!(stage(&mut out, ring, stamp, place as i64, length), "room in {epoch}");
            }
            came.drain(ring, stamp, |_, _| unreachable!("not committed"));
            if epoch.is_multiple_of(3) {
                let mut again = 0;
                out.take_back(ring, stamp, |_, _| again += 1);
                assert_eq!(again, 3, "taken back in epoch {epoch}");
                out.commit(ring);
                came.drain(ring, stamp, |_, _| unreachable!("taken back"));
                continue;
            }
            out.commit(ring);
            came.drain(ring, Stamp::fence(epoch + 1), |_, _| unreachable!("another epoch"));
            let mut places = Vec::new();
            came.drain(ring, stamp, |head, data| {
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
        let words = Words::default();
        let ring = words.beside(memory.as_mut_ptr().cast::<u8>(), 256);
        let (mut out, mut came) = (Out::default(), In::default());
        let mut staged = 0;
        while stage(&mut out, ring, Stamp::completion(1), 0, 16) {
            staged += 1;
        }
        assert_eq!(staged, 8);
        out.commit(ring);
        let mut seen = 0;
        came.drain(ring, Stamp::completion(1), |_, _| seen += 1);
        assert_eq!(seen, staged);
        assert!(stage(&mut out, ring, Stamp::completion(2), 0, 16));
    }

    /// A ring of lines, as one in a segment is.
    #[repr(align(64))]
    #[derive(Clone)]
    struct Memory([u8; SIZE]);
    const SIZE: usize = 16 << 10;

    #[test]
    fn a_beginning_so_old_that_its_number_seems_to_lie_ahead_is_none() {
        let mut memory = Box::new(Memory([0; SIZE]));
        let words = Words::default();
        let ring = words.beside(memory.0.as_mut_ptr(), SIZE);
        let (mut out, mut came) = (Out::default(), In::default());
        let (data, mut bytes) = ([7; MOST], 0_u64);
        for epoch in 1.. {
            let (stamp, head) = (Stamp::fence(epoch), Head { how: None, place: 0, length: MOST });
            // SAFETY: the data is an array of this length, the ring is the test's.
            assert!(unsafe { out.stage(ring, stamp, head, data.as_ptr()) }, "room after {bytes} bytes");
            out.commit(ring);
            let mut came_out = 0;
            came.drain(ring, stamp, |_, _| came_out += 1);
            assert_eq!(came_out, 1, "after {bytes} bytes");
            bytes += (HEAD + MOST) as u64;
            if bytes > (1 << 31) + 8 * SIZE as u64 {
                break;
            }
        }
    }

    proptest! {
        #[test]
        fn entries_of_any_length_that_found_room_come_out_as_they_went_in(
            epochs in prop::collection::vec(prop::collection::vec(0..room(SIZE), 1..6), 1..30),
        ) {
            let mut memory = Box::new(Memory([0; SIZE]));
            let words = Words::default();
            let (mut out, mut came) = (Out::default(), In::default());
            let ring = words.beside(memory.0.as_mut_ptr(), SIZE);
            for (number, lengths) in (1..).zip(epochs) {
                let (stamp, mut staged) = (Stamp::fence(number), Vec::new());
                for length in lengths {
                    let data: Vec<u8> = (0..length).map(|at| (at + length) as u8 ^ number as u8).collect();
                    let head = Head { how: None, place: length as i64, length };
                    // SAFETY: the data is a vector of this length, the ring is the test's.
                    if unsafe { out.stage(ring, stamp, head, data.as_ptr()) } {
                        staged.push(data);
                    }
                }
                out.commit(ring);
                let mut taken = Vec::new();
                came.drain(ring, stamp, |head, data| {
                    assert_eq!(head.place, head.length as i64);
                    // SAFETY: the entry's data lies in the ring.
                    taken.push(unsafe { std::slice::from_raw_parts(data, head.length) }.to_vec());
                });
                prop_assert_eq!(&taken, &staged);
                // An empty ring has room for all of it, wherever the last entry ended.
                let length = SIZE / 4 - 64;
                let (head, data) = (Head { how: None, place: 0, length }, vec![1; length]);
                for entry in 0..4 {
                    // SAFETY: as above.
                    let found_room = unsafe { out.stage(ring, stamp, head, data.as_ptr()) };
                    prop_assert!(found_room, "entry {}", entry);
                }
                out.take_back(ring, stamp, |head, _| assert_eq!(head.length, length));
            }
        }

        #[test]
        fn no_bytes_in_a_ring_make_anybody_read_beyond_it(
            bytes in prop::collection::vec(any::<u8>(), SIZE / 16),
            long in any::<bool>(),
        ) {
            let mut memory = Box::new(Memory([0; SIZE]));
            for (at, byte) in bytes.into_iter().enumerate() {
                memory.0[at * 16 + 6] = byte;
                let code = if long { LONG.to_le_bytes() } else { [byte; 2] };
                memory.0[at * 16 + 4..at * 16 + 6].copy_from_slice(&code);
            }
            let words = Words::default();
            words.filled.store(SIZE as u32, Ordering::Relaxed);
            let ring = words.beside(memory.0.as_mut_ptr(), SIZE);
            let mut came = In::default();
            let start = ring.start as usize;
            let reader = |head: Head, data: *const u8| {
                let from = data as usize - start;
                assert!(from <= SIZE && from + head.length <= SIZE, "{from} {}", head.length);
            };
            came.drain(ring, Stamp(0), reader);
        }
    }
}
