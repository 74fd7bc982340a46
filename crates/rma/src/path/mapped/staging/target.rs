//! The target's end of a ring. It visits the entries of an epoch in order, and gives their room back. Another
//! process wrote the entries, so the target checks their contents before it uses them.

use super::{FILLER, HEAD, Head, LONG_ENTRY, MAX_STAGED_BYTES, REPUBLISH_AFTER, StagingRing, Stamp, data_of};
use crate::model::{Element, Operation};
use unisono_sync::atomics::Ordering;

/// The target's end of a ring.
#[derive(Debug, Default)]
pub(in crate::path::mapped) struct StagingReader {
    read: u32,
    /// The read position that is published in the ring's word.
    published: u32,
}

impl StagingReader {
    /// Creates a reader of a member's own entries from `position` on.
    pub(super) const fn at(position: u32) -> Self {
        Self { read: position, published: position }
    }

    /// Returns the read position.
    pub(super) const fn position(&self) -> u32 {
        self.read
    }

    /// Prefetches the lines of the next entries, so that their transfers overlap with that of the line that
    /// announces them.
    #[inline]
    pub(in crate::path::mapped) fn prefetch_entries(&self, (ring, size): (*mut u8, usize)) {
        #[cfg(target_arch = "x86_64")]
        for line in [0, super::LINE] {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let at = (self.read as usize + line) & (size - 1);
            // SAFETY: a prefetch reads nothing; every x86-64 processor has it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(ring.wrapping_add(at).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (ring, size);
    }

    /// Returns the number of bytes that the origin has committed and this member has not read. The origin may
    /// write any number.
    #[inline]
    pub(in crate::path::mapped) fn unread(&self, ring: StagingRing<'_>) -> usize {
        ring.filled.load(Ordering::Relaxed).wrapping_sub(self.read) as usize
    }

    /// Applies all entries of an epoch.
    #[inline]
    pub(in crate::path::mapped) fn drain(
        &mut self,
        ring: StagingRing<'_>,
        stamp: Stamp,
        mut visit: impl FnMut(Head, *const u8),
    ) {
        // SYNC(filled) acquire: the entries, and their beginning, are read after the fill level
        let filled = ring.filled.load(Ordering::Acquire);
        if filled == self.read {
            return;
        }
        self.find_beginning(ring);
        if filled.wrapping_sub(self.read) as usize > ring.size {
            return;
        }
        // The origin may write wrong lengths, so a position beyond the end ends the loop as well.
        while filled.wrapping_sub(self.read).cast_signed() > 0 && self.next(ring, stamp, &mut visit) {}
        self.publish_read(ring);
    }

    #[inline]
    fn publish_read(&mut self, ring: StagingRing<'_>) {
        self.published = self.read;
        // SYNC(given-back) release: the copies are made before the room is given back
        ring.given_back.store(self.read, Ordering::Release);
    }

    /// Skips the bytes that the origin has skipped.
    #[inline]
    fn find_beginning(&mut self, ring: StagingRing<'_>) {
        let begin = ring.begin.load(Ordering::Relaxed);
        if begin.wrapping_sub(self.read).cast_signed() > 0 {
            self.read = begin & !(HEAD as u32 - 1);
        }
    }

    /// Whether this member has read everything before `start`, the beginning of an offer.
    #[inline]
    pub(in crate::path::mapped) fn is_next(&mut self, ring: StagingRing<'_>, start: u32) -> bool {
        self.find_beginning(ring);
        self.read == start
    }

    /// Applies all entries up to a claimed position, which the origin's process wrote. Its low bits are cut
    /// off, because entries begin at multiples of [`HEAD`]. If the position is further away than the ring's
    /// length, no entries are applied.
    pub(in crate::path::mapped) fn drain_to(
        &mut self,
        ring: StagingRing<'_>,
        position: u32,
        stamp: Stamp,
        mut visit: impl FnMut(Head, *const u8),
    ) {
        let position = position & !(HEAD as u32 - 1);
        if position.wrapping_sub(self.read) as usize <= ring.size {
            while position.wrapping_sub(self.read).cast_signed() > 0 && self.next(ring, stamp, &mut visit) {}
        }
        self.read = position;
    }

    /// Skips the entries up to a claimed position, whose data arrived in the offer's line.
    #[inline]
    pub(in crate::path::mapped) fn skip_to(&mut self, position: u32) {
        self.read = position & !(HEAD as u32 - 1);
    }

    /// Publishes the read position if the published one is old. Called after entries were handed over: the
    /// origin learns from the hand-off that their room is free again, so the ring's word is written only
    /// rarely.
    #[inline]
    pub(in crate::path::mapped) fn publish_given_back_if_old(&mut self, ring: StagingRing<'_>) {
        if self.read.wrapping_sub(self.published) > REPUBLISH_AFTER {
            self.publish_read(ring);
        }
    }

    /// Visits the next entry, if it has this stamp; returns whether it has.
    #[inline]
    pub(super) fn next(
        &mut self,
        ring: StagingRing<'_>,
        stamp: Stamp,
        visit: &mut impl FnMut(Head, *const u8),
    ) -> bool {
        let (ring, size) = (ring.start, ring.size);
        let at = self.read as usize & (size - 1);
        let from = ring.wrapping_add(at).cast::<u128>();
        // SAFETY: the ring is mapped, and `at` is a multiple of 16 below its size. Another process wrote this
        // word, and may write it again: only the copy is used.
        let word = unsafe { from.read_volatile() };
        if word as u32 != stamp.0 {
            return false;
        }
        let length = (word >> 32) as u16;
        if length == FILLER {
            self.read = self.read.wrapping_add((size - at) as u32);
            return true;
        }
        let is_long = length == LONG_ENTRY;
        let length = if is_long {
            let from = ring.wrapping_add((at + HEAD) & (size - 1)).cast::<u128>();
            // SAFETY: the ring is mapped, and `at` is a multiple of 16 below its size. Another process wrote
            // this word, and may write it again: only the copy is used.
            usize::try_from(unsafe { from.read_volatile() }).unwrap_or(0)
        } else {
            usize::from(length).min(MAX_STAGED_BYTES)
        };
        let data = data_of(at, is_long).min(size);
        let length = length.min(size - data);
        let how = Element::from_code((word >> 48) as u8)
            .zip(Operation::from_code((word >> 56) as u8))
            .filter(|(element, operation)| operation.is_defined_for(*element));
        let head = Head { how, offset: ((word >> 64) as u64).cast_signed(), length };
        visit(head, ring.wrapping_add(data));
        self.read = self.read.wrapping_add((data + length.next_multiple_of(HEAD) - at) as u32);
        true
    }
}
