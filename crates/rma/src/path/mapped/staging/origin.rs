//! The origin's end of a ring. It writes entries, and then commits them at the end of their epoch, offers
//! them, or takes them back.

use super::StagingReader;
use super::{
    FILLER, HEAD, Head, LONG_ENTRY, MAX_STAGED_BYTES, REPUBLISH_AFTER, StagingRing, Stamp, after, data_of,
    encode,
};
use crate::memory::copy::copy;
use crate::path::mapped::hand_off::{CARRIED, OfferedSpan};
use unisono_sync::atomics::Ordering;

/// The number of bytes of short entries after which the origin checks whether the ring is empty. An origin
/// that finds the ring empty writes from the ring's start again, into memory that its cache holds. The
/// first-level cache holds 32 KB or more, of which the ring may use half. The check is a transfer of the
/// target's line. Chosen, not measured.
const REWIND_AFTER: usize = 16 << 10;

/// The origin's end of a ring.
#[derive(Debug, Default)]
pub(crate) struct StagingWriter {
    // Bytes ever written, and bytes that the target is known to have given back. Both wrap around.
    written: u32,
    given_back: u32,
    /// The position of this epoch's first entry.
    epoch_start: u32,
    /// The position at which the origin last began again at the ring's start, or a later position.
    begun: u32,
}

impl StagingWriter {
    #[inline]
    pub(in crate::path::mapped) fn is_empty(&self) -> bool {
        self.written == self.epoch_start
    }

    /// Ends the epoch: the entries belong to the target once it has seen the call that ends the epoch.
    #[inline]
    pub(in crate::path::mapped) fn commit(&mut self, ring: StagingRing<'_>) {
        if !self.is_empty() {
            self.epoch_start = self.written;
            self.publish_beginning_if_old(ring);
            // SYNC(filled) release: the entries, and their beginning, are written before the fill level
            ring.filled.store(self.written, Ordering::Release);
        }
    }

    /// Returns the range of this epoch's entries, for an offer.
    #[inline]
    pub(in crate::path::mapped) fn span(&mut self, ring: StagingRing<'_>) -> OfferedSpan {
        self.publish_beginning_if_old(ring);
        OfferedSpan { start: self.epoch_start, end: self.written }
    }

    /// Returns the only entry of this epoch and its data, if the entry is a put that a line can carry.
    #[inline]
    pub(in crate::path::mapped) fn only_short_put(
        &self,
        ring: StagingRing<'_>,
        stamp: Stamp,
    ) -> Option<(Head, *const u8)> {
        if self.staged() > HEAD + CARRIED.next_multiple_of(HEAD) {
            return None;
        }
        let (mut reader, mut found) = (StagingReader::at(self.epoch_start), None);
        let is_one = reader.next(ring, stamp, &mut |head, data| found = Some((head, data)))
            && reader.position() == self.written;
        found.filter(|(head, _)| is_one && head.how.is_none() && head.length <= CARRIED)
    }

    #[inline]
    fn publish_beginning_if_old(&mut self, ring: StagingRing<'_>) {
        if self.written.wrapping_sub(self.begun) > REPUBLISH_AFTER {
            // Positions wrap around: a position so far behind would soon seem to lie ahead. The new position
            // is still behind the target's read position.
            self.begun = self.written.wrapping_sub(2 * ring.size as u32);
            ring.begin.store(self.begun, Ordering::Relaxed);
        }
    }

    /// Returns the number of bytes staged in this epoch, fillers included.
    pub(in crate::path::mapped) fn staged(&self) -> usize {
        self.written.wrapping_sub(self.epoch_start) as usize
    }

    /// Removes the newest entries of this epoch, until `staged` bytes of it are left.
    pub(in crate::path::mapped) fn truncate(&mut self, staged: usize) {
        self.written = self.epoch_start.wrapping_add(staged as u32);
    }

    /// Records that the target has applied all entries.
    pub(in crate::path::mapped) fn mark_applied(&mut self) {
        (self.epoch_start, self.given_back) = (self.written, self.written);
    }

    /// Writes a short entry, if this member knows of enough room, which is the common case. Returns whether
    /// it did.
    ///
    /// # Safety
    /// As [`push`](Self::push), with `ring` its start and size.
    #[inline]
    pub(in crate::path::mapped) unsafe fn try_push(
        &mut self,
        (ring, size): (*mut u8, usize),
        stamp: Stamp,
        head: Head,
        data: *const u8,
    ) -> bool {
        let at = self.written as usize & (size - 1);
        let needed = HEAD + head.length.next_multiple_of(HEAD);
        if head.length > MAX_STAGED_BYTES
            || at + needed > size
            || self.used() + needed > size
            || (at >= REWIND_AFTER && self.is_empty())
        {
            return false;
        }
        let into = ring.wrapping_add(at).cast::<u128>();
        // SAFETY: the ring is mapped, `at` is a multiple of 16 below its size; the target reads it only after
        // `filled` has passed it.
        unsafe { into.write_unaligned(encode(stamp, head.length as u16, head.how, head.offset)) };
        // SAFETY: the caller promises the data; the entry lies within the ring, as computed above.
        unsafe { copy(data, ring.wrapping_add(at + HEAD), head.length) };
        self.written = self.written.wrapping_add(needed as u32);
        true
    }

    /// Writes an entry of `head.length` bytes from `data`, if there is room. Returns whether it did.
    ///
    /// # Safety
    /// `head.length` bytes, at most `room` of the ring's size, are readable at `data`; the ring is mapped.
    #[inline(never)]
    pub(in crate::path::mapped) unsafe fn push(
        &mut self,
        ring: StagingRing<'_>,
        stamp: Stamp,
        head: Head,
        data: *const u8,
    ) -> bool {
        let size = ring.size;
        let is_long = head.length > MAX_STAGED_BYTES;
        let mut at = self.written as usize & (size - 1);
        if self.is_empty() && at >= if is_long { 1 } else { REWIND_AFTER } && self.is_idle(ring) {
            self.written = self.written.wrapping_add((size - at) as u32);
            (self.epoch_start, self.given_back, at) = (self.written, self.written, 0);
            self.begun = self.written;
            ring.begin.store(self.written, Ordering::Relaxed);
        }
        let filler = if after(at, head.length) > size { size - at } else { 0 };
        let needed = if filler > 0 { filler + after(0, head.length) } else { after(at, head.length) - at };
        if self.used() + needed > size {
            self.refresh_read_position(ring);
            if self.used() + needed > size {
                return false;
            }
        }
        let put = |at: usize, word: u128| {
            let into = ring.start.wrapping_add(at).cast::<u128>();
            // SAFETY: the ring is mapped, `at` is a multiple of 16 below its size; the target reads it only
            // after `filled` has passed it.
            unsafe { into.write_unaligned(word) };
        };
        if filler > 0 {
            put(at, encode(stamp, FILLER, None, 0));
        }
        let at = (at + filler) & (size - 1);
        if is_long {
            put(at, encode(stamp, LONG_ENTRY, head.how, head.offset));
            put(at + HEAD, head.length as u128);
        } else {
            put(at, encode(stamp, head.length as u16, head.how, head.offset));
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

    /// Reads the target's read position. Ignores a position behind the known one: the target may not know yet
    /// where this member has begun again.
    fn refresh_read_position(&mut self, ring: StagingRing<'_>) {
        // SYNC(given-back) acquire: the target has read the entries whose room it gave back
        let given_back = ring.given_back.load(Ordering::Acquire);
        if given_back.wrapping_sub(self.given_back).cast_signed() > 0 {
            self.given_back = given_back;
        }
    }

    /// Whether the target has given all room back.
    fn is_idle(&mut self, ring: StagingRing<'_>) -> bool {
        self.refresh_read_position(ring);
        self.used() == 0
    }

    /// Withdraws this epoch's entries, in order, before the target may read them.
    pub(in crate::path::mapped) fn withdraw(
        &mut self,
        ring: StagingRing<'_>,
        stamp: Stamp,
        mut visit: impl FnMut(Head, *const u8),
    ) {
        let mut reader = StagingReader::at(self.epoch_start);
        while reader.position() != self.written && reader.next(ring, stamp, &mut visit) {}
        self.written = self.epoch_start;
    }
}
