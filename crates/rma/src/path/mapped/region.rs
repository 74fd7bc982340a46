//! A window's segment: the writers of its lines, and the positions of rings and parts.
//!
//! ```text
//!   the barrier's lines   unisono-barrier's
//!   3 lines a rank        exposure (its owner)  |  lock word (any rank)  |  gate of accumulates (any rank)
//!   a line for each pair  from a rank, to a rank: posts, completions, read position of the ring
//!   one more for each     offers, where puts are handed over
//!   rings                 for each pair, operations staged by the first for the second
//!   parts                 each rank's memory: page-aligned, or one directly after the other
//! ```

use super::hand_off::OfferLine;
use super::passive::MAX_OFFER_MEMBERS;
use super::staging::StagingRing;
use crate::model::{Error, Placement, WindowPart};
use unisono_sync::{CacheLine, Flag, Lines};

const PAGE: u64 = 4096;

/// The positions of all lines, rings and parts in a segment; every member computes the same.
#[derive(Debug)]
pub(super) struct SegmentPlan {
    size: usize,
    /// The number of lines of the fences' barrier; they come first.
    barrier: usize,
    /// Whether each pair has a line for offers.
    offers_puts: bool,
    pub(super) ring_bytes: usize,
    pub(super) offsets: Box<[u64]>,
    pub(super) bytes: usize,
}

impl SegmentPlan {
    pub(super) fn new(
        parts: &[WindowPart],
        with_memory: bool,
        placement: Placement,
        barrier: usize,
    ) -> Result<Self, Error> {
        let size = parts.len();
        let ring_bytes = match size {
            // Here the rings carry the puts that the kernel would copy otherwise. A page that no rank touches
            // takes no memory.
            0..=8 if !with_memory => 2 << 20,
            9..=32 if !with_memory => 64 << 10,
            0..=8 => 16 << 10,
            9..=32 => 4 << 10,
            _ => 1 << 10,
        };
        let offers_puts = !with_memory && size <= MAX_OFFER_MEMBERS;
        let lines = barrier * size_of::<CacheLine>() + bytes_of_lines(size, offers_puts);
        let mut end = ((lines + size * size * ring_bytes) as u64).next_multiple_of(PAGE);
        let mut offsets = Vec::with_capacity(size);
        for part in parts {
            if placement == Placement::Pages {
                end = end.next_multiple_of(PAGE);
            }
            offsets.push(end);
            let bytes = if with_memory { part.bytes } else { 0 };
            end = end.checked_add(bytes).filter(|end| *end < 1 << 46).ok_or(Error::Size(part.bytes))?;
        }
        let bytes = usize::try_from(end).map_err(|_| Error::Size(end))?;
        Ok(Self { size, barrier, offers_puts, ring_bytes, offsets: offsets.into(), bytes })
    }
}

/// Returns the number of bytes of this module's lines, which come before the rings.
fn bytes_of_lines(size: usize, offers_puts: bool) -> usize {
    lines_of(size, offers_puts) * size_of::<CacheLine>()
}

const fn lines_of(size: usize, offers_puts: bool) -> usize {
    3 * size + size * size * if offers_puts { 2 } else { 1 }
}

#[derive(Debug)]
pub(super) struct Region {
    pub(super) lines: Lines,
    start: *mut u8,
    pub(super) plan: SegmentPlan,
}

impl Region {
    pub(super) fn new(segment: &Lines, plan: SegmentPlan) -> Self {
        let start = segment.start().as_ptr();
        let lines = segment.part(plan.barrier, lines_of(plan.size, plan.offers_puts));
        Self { lines, start, plan }
    }

    /// Returns the exposure of a rank: the last fence epoch that it has entered.
    #[inline]
    pub(super) fn exposure(&self, rank: usize) -> Flag<'_> {
        self.lines.line(3 * rank).flag(0)
    }

    /// Returns the line with a rank's presence: the target of its current accumulate, plus one.
    #[inline]
    pub(super) fn presence(&self, rank: usize) -> &CacheLine {
        self.lines.line(3 * rank)
    }

    #[inline]
    pub(super) fn lock(&self, rank: usize) -> &CacheLine {
        self.lines.line(1 + 3 * rank)
    }

    #[inline]
    pub(super) fn gate(&self, rank: usize) -> &CacheLine {
        self.lines.line(2 + 3 * rank)
    }

    #[inline]
    fn pair(&self, from: usize, to: usize) -> &CacheLine {
        self.lines.line(3 * self.plan.size + from * self.plan.size + to)
    }

    /// Returns the flag with the number of exposures of `target` to `origin` so far.
    #[inline]
    pub(super) fn posts(&self, target: usize, origin: usize) -> Flag<'_> {
        self.pair(target, origin).flag(0)
    }

    /// Returns the flag with the number of completions of `origin` at `target` so far.
    #[inline]
    pub(super) fn completions(&self, origin: usize, target: usize) -> Flag<'_> {
        self.pair(origin, target).flag(1)
    }

    /// Returns the line of `origin`'s offers to `target`. Panics if this window's puts are not handed over.
    #[inline]
    pub(super) fn offers(&self, origin: usize, target: usize) -> OfferLine<'_> {
        let size = self.plan.size;
        OfferLine(self.lines.line(3 * size + size * size + origin * size + target))
    }

    /// Returns the address of the ring from `origin` to `target`, and its size.
    #[inline]
    pub(super) fn ring_memory(&self, origin: usize, target: usize) -> (*mut u8, usize) {
        let (lines, size) = (bytes_of_lines(self.plan.size, self.plan.offers_puts), self.plan.ring_bytes);
        (
            self.lines.start().as_ptr().wrapping_add(lines + (origin * self.plan.size + target) * size),
            size,
        )
    }

    /// Returns the ring from `origin` to `target`. Its fill level lies beside the origin's completions in one
    /// line.
    #[inline]
    pub(super) fn ring(&self, origin: usize, target: usize) -> StagingRing<'_> {
        let (start, size) = self.ring_memory(origin, target);
        let (forth, back) = (self.pair(origin, target), self.pair(target, origin));
        StagingRing { start, size, filled: forth.word(9), begin: forth.word(10), given_back: back.word(8) }
    }

    pub(super) fn part(&self, rank: usize) -> *mut u8 {
        self.start.wrapping_add(self.plan.offsets[rank] as usize)
    }
}
