//! Hand-off: puts of passive epochs to a program's own memory, passed to a target that is in the library.
//!
//! Only the owner can store into its memory without the kernel, whose copy costs a microsecond. But members
//! that lock, put and unlock in turns are in the library all the time. So the origin stages its puts, offers
//! them when it has to complete them, and polls for about as long as the kernel would take. A member checks
//! for offers whenever it begins or ends a passive epoch. If the target does not take an offer, the origin
//! revokes it, and the kernel copies after all. If the target has taken it, the origin waits.
//!
//! ```text
//!   origin                                target
//!   entries, or one short put in the line
//!   word := end, OFFERED (release)        OFFERED? word := end, CLAIMED: compare-and-swap
//!                                         apply them
//!   APPLIED? done (acquire)               word := end, APPLIED (release)
//!   too late: revoke it: compare-and-swap
//!     revoked: the kernel copies; CLAIMED: wait on
//! ```
//! No origin waits for a target that computes: a target claims an offer only in the call that applies
//! it. Before an origin does another operation at the target by itself, or ends the epoch, it completes the
//! offer, so that its operations stay in order.
//!
//! Everything about one offer is in one cache line, together with the data of a put of up to [`CARRIED`]
//! bytes. Cost: that line travels to the target and back in place of a system call; longer puts add the lines
//! of their entries. If a target is never in the library, one offer in 33 epochs is in vain. When not to use:
//! where members outnumber processors, or in a job of many members, because there the search for offers costs
//! more than it gains.

use unisono_sync::CacheLine;
use unisono_sync::atomics::{AtomicU32, Ordering};

// The state of an offer, in the low bits of a position; positions are multiples of 16.
const OFFERED: u32 = 1;
const CLAIMED: u32 = 2;
const APPLIED: u32 = 4;
/// Set together with [`OFFERED`] if the put is in the line.
const IN_LINE: u32 = 8;
const BITS: u32 = 15;

// Words of the line. The target writes the first word, the origin writes all.
const WORD: usize = 0;
const START: usize = 1;
const LENGTH: usize = 2;
const OFFSET: usize = 3;
const DATA: usize = 5;

/// The longest put that fits into the line (bytes).
pub(crate) const CARRIED: usize = (CacheLine::WORDS - DATA) * size_of::<u32>();

/// The range of an offer's entries in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OfferedSpan {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// Whether the offered put is in the line or only in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferPlacement {
    InLine,
    InRing,
}

impl OfferPlacement {
    const fn bits(self) -> u32 {
        match self {
            Self::InLine => OFFERED | IN_LINE,
            Self::InRing => OFFERED,
        }
    }
}

/// A put that arrived in the line. Another process wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CarriedPut {
    pub(crate) offset: i64,
    length: usize,
    words: [u32; CacheLine::WORDS - DATA],
}

impl CarriedPut {
    /// Returns the address of the put's bytes, and their number, at most [`CARRIED`].
    #[inline]
    pub(crate) const fn data(&self) -> (*const u8, usize) {
        ((&raw const self.words).cast(), self.length)
    }
}

/// The line of an origin's offers to a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfferLine<'a>(pub(crate) &'a CacheLine);

impl<'a> OfferLine<'a> {
    /// Copies `length` bytes from `data`, at most [`CARRIED`], into the line. Called by the origin while
    /// there is no offer.
    ///
    /// # Safety
    /// Whole words are readable at `data`, as many as `length` bytes need.
    #[inline]
    pub(crate) unsafe fn carry(self, offset: i64, data: *const u8, length: usize) {
        self.0.word(LENGTH).store(length as u32, Ordering::Relaxed);
        self.0.word(OFFSET).store(offset as u32, Ordering::Relaxed);
        self.0.word(OFFSET + 1).store((offset >> 32) as u32, Ordering::Relaxed);
        for word in 0..length.min(CARRIED).div_ceil(size_of::<u32>()) {
            // SAFETY: the caller promises that the word is readable.
            let value = unsafe { data.cast::<u32>().wrapping_add(word).read_unaligned() };
            self.0.word(DATA + word).store(value, Ordering::Relaxed);
        }
    }

    /// Lets the target apply the entries in `span`. Called by the origin.
    #[inline]
    pub(crate) fn offer(self, span: OfferedSpan, form: OfferPlacement) {
        self.0.word(START).store(span.start, Ordering::Relaxed);
        // SYNC(hand-off) release: the entries, or the put in the line, are written before the offer
        self.0.word(WORD).store(span.end | form.bits(), Ordering::Release);
    }

    /// Whether the target has applied all entries up to `end`. Called by the origin.
    #[inline]
    pub(crate) fn is_applied(self, end: u32) -> bool {
        // SYNC(applied) acquire: this member's later operations come after the puts
        self.0.word(WORD).load(Ordering::Acquire) == end | APPLIED
    }

    /// Revokes the offer. Returns false if the target has claimed it. Called by the origin.
    pub(crate) fn revoke(self, end: u32, form: OfferPlacement) -> bool {
        // Relaxed is enough: the origin wrote the entries itself, and the target reads them only after an
        // offer.
        let word = self.0.word(WORD);
        word.compare_exchange(end | form.bits(), 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Returns the word at which the origin sleeps while the target applies the claimed entries up to `end`,
    /// and the word's value meanwhile.
    pub(crate) fn claimed(self, end: u32) -> (&'a AtomicU32, u32) {
        (self.0.word(WORD), end | CLAIMED)
    }

    /// Claims the offer, if there is one and its start `is_next`. Returns the end and the form of the offer.
    /// Called by the target.
    #[inline]
    pub(crate) fn claim(self, is_next: impl FnOnce(u32) -> bool) -> Option<(u32, OfferPlacement)> {
        // SYNC(hand-off) acquire: the entries are read after the offer
        let word = self.0.word(WORD).load(Ordering::Acquire);
        if word & OFFERED == 0 || !is_next(self.0.word(START).load(Ordering::Relaxed)) {
            return None;
        }
        let end = word & !BITS;
        let form = if word & IN_LINE == 0 { OfferPlacement::InRing } else { OfferPlacement::InLine };
        // SYNC(hand-off) acquire: as above; the offer may have been revoked and made again meanwhile
        self.0
            .word(WORD)
            .compare_exchange(word, end | CLAIMED, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then_some((end, form))
    }

    /// Returns the put in the line. Called by the target after it claimed an offer whose put is there. The
    /// origin changes the line again only after the put was applied.
    #[inline]
    pub(crate) fn carried(self) -> CarriedPut {
        let word = |at: usize| self.0.word(at).load(Ordering::Relaxed);
        CarriedPut {
            offset: (u64::from(word(OFFSET)) | u64::from(word(OFFSET + 1)) << 32).cast_signed(),
            length: (word(LENGTH) as usize).min(CARRIED),
            words: std::array::from_fn(|at| word(DATA + at)),
        }
    }

    /// Records that all claimed entries up to `end` are applied. Called by the target.
    #[inline]
    pub(crate) fn applied(self, end: u32) {
        // SYNC(applied) release: the puts come before the origin learns that they are done
        self.0.word(WORD).store(end | APPLIED, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use unisono_sync::Lines;

    #[test]
    fn a_put_comes_out_of_the_line_as_it_went_in_whatever_its_length() {
        let lines = Lines::on_heap(1);
        let offers = OfferLine(lines.line(0));
        for length in 0..=CARRIED {
            let data: [u8; CARRIED] = std::array::from_fn(|at| (at + length) as u8);
            let offset = -1 - ((length as i64) << 40);
            // SAFETY: the array is as long as the longest put, and that is a whole number of words.
            unsafe { offers.carry(offset, data.as_ptr(), length) };
            let span = OfferedSpan { start: 32, end: 96 };
            offers.offer(span, OfferPlacement::InLine);
            assert!(!offers.is_applied(span.end));
            assert_eq!(offers.claim(|start| start == 33), None, "another start");
            assert_eq!(offers.claim(|start| start == span.start), Some((span.end, OfferPlacement::InLine)));
            assert!(!offers.revoke(span.end, OfferPlacement::InLine), "it is claimed");
            let put = offers.carried();
            let (bytes, came) = put.data();
            // SAFETY: the put holds this many bytes.
            let bytes = unsafe { std::slice::from_raw_parts(bytes, came) };
            assert_eq!((put.offset, bytes), (offset, &data[..length]));
            offers.applied(span.end);
            assert!(offers.is_applied(span.end));
            assert_eq!(offers.claim(|_| true), None, "there is none any more");
        }
    }

    #[test]
    fn a_length_that_no_origin_would_write_is_cut_to_the_line() {
        let lines = Lines::on_heap(1);
        lines.line(0).word(LENGTH).store(u32::MAX, Ordering::Relaxed);
        assert_eq!(OfferLine(lines.line(0)).carried().data().1, CARRIED);
    }
}
