//! Issuing an operation: it is done at once, staged or queued.
//!
//! | the target is | a short put or accumulate | any other operation |
//! |---|---|---|
//! | locked, or known to be in its epoch | done at once | done at once |
//! | not known to be in its epoch | staged in the pair's ring | queued until the epoch ends |
//!
//! If the target's part is not mapped, any put or accumulate that the ring has room for counts as short, and
//! is staged in all epochs but passive ones; a get is done at once where the target is in its epoch.
//!
//! "Known" costs nothing: it follows from the fence or the lock. A check of the target's flag may cost the
//! transfer of a line between two processors. The flag of post-start-complete-wait lies in a line of the
//! origin's own, so only contiguous puts of at most [`MIN_CHECKED_BYTES`] bytes skip its check. Fence epochs
//! check the target's exposure only before an operation is queued. Staged entries go before queued
//! operations, and a queue that is not empty takes all later operations, so that accumulates stay in order.

use super::passive::MAX_OFFERED_BYTES;
use super::scattered::AlikeEntries;
use super::staging::{HEAD, Head, MAX_STAGED_BYTES, Stamp, room};
use super::{LockHeld, MappedPath, TargetExposure};
use crate::memory::copy::copy;
use crate::memory::cursor::walk;
use crate::memory::op::Op;
use crate::model::{Element, EpochKind, Error, Lock, Operation, Rank, Verb};
use unisono_sync::poll_briefly;

/// The length (bytes) above which a put is worth a check whether the target has posted; shorter puts are
/// staged without a check. A check is a line transfer, 30 to 100 ns; staging copies the data twice, which
/// takes as long for about 256 bytes. Computed, not measured.
const MIN_CHECKED_BYTES: usize = 256;
/// The number of polls for the post of a target that is about to post. They take half a microsecond. Without
/// them, two ranks that post and put at the same time each find that the other's post has not arrived yet;
/// they queue their puts, and copy the data only in complete. A step of four puts (2 pinned ranks, three
/// interleaved runs) took for 16 KB 0.94 to 1.07 us without polls and 0.84 to 0.86 with them, and for 64 KB
/// 2.9 to 3.4 and 2.7 to 2.8; there was no difference at 16 B, 1 KB and 256 KB.
const POLLS: u32 = 32;

impl MappedPath {
    /// Does, stages or queues an operation that the window has checked.
    pub(crate) fn issue(&mut self, reach: EpochKind, target: Rank, op: Op) -> Result<(), Error> {
        let target = target.index();
        if target == self.me {
            return self.execute(target, &op);
        }
        match reach {
            EpochKind::Locked => {
                if self.peers[target].held == LockHeld::Nothing {
                    self.take_lock(target, Lock::Shared)?;
                }
                self.complete_staged(target)?;
                self.dirty = true;
                return self.execute(target, &op);
            }
            EpochKind::Fence | EpochKind::Started => {}
        }
        // A get is ordered with no other operation, so that staged operations may stay staged.
        if op.is_get() && !self.mapped && (self.peers[target].opened || self.is_open(reach, target)) {
            return self.execute(target, &op);
        }
        if self.peers[target].opened && (self.mapped || !self.is_stageable(&op)) {
            self.execute_staged(reach, target)?;
            return self.execute(target, &op);
        }
        let stages = reach == EpochKind::Started || self.target_exposure == TargetExposure::Unknown;
        // The target posts into a line of this member's own. But the target's exposure lies in a line of the
        // target's own, and a check of it costs a transfer.
        let checks_exposure = reach == EpochKind::Started
            && self.mapped
            && (self.is_open(reach, target)
                || (op.total > MAX_STAGED_BYTES as u64 && self.is_opened_soon(target)));
        if !checks_exposure
            && stages
            && self.peers[target].queue.is_empty()
            && self.try_stage_op(reach, target, &op)
        {
            return Ok(());
        }
        if self.peers[target].queue.is_empty() && (checks_exposure || self.is_open(reach, target)) {
            self.open(reach, target)?;
            return self.execute(target, &op);
        }
        self.peers[target].staging_stamp = None;
        self.peers[target].queue.push(op);
        Ok(())
    }

    /// Whether no operation to `target` is queued. Staged operations do not count: in a passive epoch only
    /// puts are staged, and puts have no result.
    pub(crate) fn is_settled(&self, target: Rank) -> bool {
        self.peers[target.index()].queue.is_empty()
    }

    fn is_stageable(&self, op: &Op) -> bool {
        matches!(op.verb, Verb::Put | Verb::Accumulate)
            && match op.layout.is_contiguous() {
                true => op.total <= self.max_staged_bytes() as u64,
                false => !self.mapped && self.may_stage_blocks(op),
            }
    }

    /// Whether an empty ring may have room for an entry for each block, and no block splits an element.
    fn may_stage_blocks(&self, op: &Op) -> bool {
        let element = op.element.map_or(1, |element| element.size() as u64);
        let runs = op.layout.runs();
        let blocks = runs.iter().fold(0, |blocks: u64, run| blocks.saturating_add(run.count));
        let heads = blocks.saturating_mul(op.count).saturating_mul(HEAD as u64);
        op.total.saturating_add(heads) <= room(self.region.plan.ring_bytes) as u64
            && runs.iter().all(|run| run.bytes.is_multiple_of(element))
    }

    /// Returns the largest length of data that is staged. For a part that is not mapped it is the room of the
    /// ring, because otherwise the kernel would copy the data, page by page.
    #[inline]
    fn max_staged_bytes(&self) -> usize {
        let ring_bytes = self.region.plan.ring_bytes;
        if self.mapped { MAX_STAGED_BYTES.min(ring_bytes / 4) } else { room(ring_bytes) }
    }

    pub(super) fn stamp(&self, reach: EpochKind, target: usize) -> Stamp {
        match reach {
            EpochKind::Locked => Stamp::PASSIVE,
            EpochKind::Started => Stamp::completion(self.peers[target].completed.wrapping_add(1)),
            _ => Stamp::fence(self.epoch),
        }
    }

    #[inline]
    fn try_stage_op(&mut self, reach: EpochKind, target: usize, op: &Op) -> bool {
        if !self.is_stageable(op) {
            return false;
        }
        let how = op.element.zip(op.operation).filter(|_| op.verb == Verb::Accumulate);
        let stamp = self.stamp(reach, target);
        if !op.layout.is_contiguous() {
            return self.stage_blocks(target, stamp, how, op);
        }
        let Some(data) = op.data.slice(op.total) else { return false };
        let head = Head { how, offset: op.offset, length: data.len() };
        // SAFETY: the data is a slice of this length, and `is_stageable` has checked that it is short enough.
        unsafe { self.stage_entry(target, stamp, head, data.as_ptr()) }
    }

    /// Stages an entry for each block of an operation, or none; returns whether the ring had room.
    #[inline(never)]
    fn stage_blocks(
        &mut self,
        target: usize,
        stamp: Stamp,
        how: Option<(Element, Operation)>,
        op: &Op,
    ) -> bool {
        let data = op.bytes();
        let staged = self.peers[target].writer.staged();
        let mut fits = true;
        walk(&op.layout, op.count, std::ptr::null_mut(), 0, op.total, |block, from, to| {
            let offset = op.offset.wrapping_add(block as isize as i64);
            let head = Head { how, offset, length: to - from };
            // SAFETY: the block's data is a slice of this length, and `may_stage_blocks` has checked that all
            // blocks together are short enough.
            fits = fits && unsafe { self.stage_entry(target, stamp, head, data[from..to].as_ptr()) };
        });
        if !fits {
            self.peers[target].writer.truncate(staged);
        }
        fits
    }

    /// Stages an entry; returns whether the ring had room.
    ///
    /// # Safety
    /// `head.length` bytes, at most [`Self::max_staged_bytes`], are readable at `data`.
    #[inline]
    unsafe fn stage_entry(&mut self, target: usize, stamp: Stamp, head: Head, data: *const u8) -> bool {
        let (writer, memory) = (&mut self.peers[target].writer, self.region.ring_memory(self.me, target));
        // SAFETY: the caller promises that the data is readable; the ring lies in the segment.
        if unsafe { writer.try_push(memory, stamp, head, data) } {
            return true;
        }
        // SAFETY: the caller promises that the data is readable; the ring lies in the segment.
        unsafe { writer.push(self.region.ring(self.me, target), stamp, head, data) }
    }

    /// Writes contiguous bytes to byte `start` of a part, if no check is needed: as a store where the target
    /// is mapped and known to be in its epoch, as an entry of the ring where the last put to this target was
    /// staged in the same epoch. Returns false if nothing was done.
    ///
    /// # Safety
    /// `bytes` bytes are readable at `source`, and lie inside the target's part from `start` on.
    #[inline]
    pub(crate) unsafe fn try_put_direct(
        &mut self,
        target: usize,
        start: u64,
        source: *const u8,
        bytes: usize,
    ) -> bool {
        let Some(peer) = self.peers.get(target) else { return false };
        if peer.direct {
            // SAFETY: the caller promises a readable source and a range inside the part; a direct part is
            // mapped.
            unsafe { copy(source, peer.base.wrapping_add(start as usize), bytes) };
            self.dirty = true;
            return true;
        }
        // SAFETY: the caller promises that the source is readable.
        peer.staging_stamp
            .is_some_and(|stamp| unsafe { self.stage_next_put(target, stamp, start, source, bytes) })
    }

    /// Stages one more put for a target whose last put was staged in the same epoch.
    ///
    /// # Safety
    /// `bytes` bytes are readable at `source`.
    #[inline(never)] // so that a put that is a store is inlined into its caller
    unsafe fn stage_next_put(
        &mut self,
        target: usize,
        stamp: Stamp,
        start: u64,
        source: *const u8,
        bytes: usize,
    ) -> bool {
        let head = Head { how: None, offset: start.cast_signed(), length: bytes };
        // SAFETY: the caller promises that the source is readable; its length is checked first.
        bytes <= self.max_staged_bytes() && unsafe { self.stage_entry(target, stamp, head, source) }
    }

    /// Reads contiguous bytes from byte `start` of a part, if it is mapped and known to be in its epoch.
    ///
    /// # Safety
    /// `bytes` bytes are writable at `sink`, and lie inside the target's part from `start` on.
    #[inline]
    pub(crate) unsafe fn try_get_direct(
        &self,
        target: usize,
        start: u64,
        sink: *mut u8,
        bytes: usize,
    ) -> bool {
        let Some(peer) = self.peers.get(target).filter(|peer| peer.direct) else { return false };
        // SAFETY: the caller promises a writable sink and a range inside the part; a direct part is mapped.
        unsafe { copy(peer.base.wrapping_add(start as usize), sink, bytes) };
        true
    }

    /// Combines elements into a part from byte `start` on, if the part is mapped and known to be in its
    /// epoch.
    #[inline]
    pub(crate) fn try_accumulate_direct(
        &mut self,
        target: usize,
        start: u64,
        how: (Element, Operation),
        brought: &[u8],
        result: Option<&mut [u8]>,
    ) -> Result<bool, Error> {
        if !self.peers.get(target).is_some_and(|peer| peer.direct) {
            return Ok(false);
        }
        self.dirty = true;
        self.part(target).accumulate(start.cast_signed(), how, brought, result)?;
        Ok(true)
    }

    /// Stages a contiguous put to a part that is not open, without building an [`Op`].
    #[inline]
    pub(crate) fn try_stage_put(
        &mut self,
        reach: EpochKind,
        target: usize,
        offset: i64,
        data: &[u8],
    ) -> bool {
        if data.len() > self.max_staged_bytes() {
            return false;
        }
        let stages = match reach {
            EpochKind::Fence => self.target_exposure == TargetExposure::Unknown && !self.peers[target].opened,
            // Short puts are staged whether or not the target has posted: a check costs more than their copy.
            EpochKind::Started => {
                !self.peers[target].opened
                    && (!self.mapped || data.len() <= MIN_CHECKED_BYTES || !self.is_open(reach, target))
            }
            EpochKind::Locked => {
                self.offers_puts && data.len() <= MAX_OFFERED_BYTES && self.may_offer(target)
            }
        };
        stages && target != self.me && self.peers[target].queue.is_empty() && {
            let stamp = self.stamp(reach, target);
            let head = Head { how: None, offset, length: data.len() };
            // SAFETY: the data is a slice of this length; the function's first line checks that it is short
            // enough.
            let staged = unsafe { self.stage_entry(target, stamp, head, data.as_ptr()) };
            self.peers[target].staging_stamp = staged.then_some(stamp);
            staged
        }
    }

    /// Whether the target has begun the epoch in which this member accesses it.
    #[inline]
    pub(super) fn is_open(&self, reach: EpochKind, target: usize) -> bool {
        match reach {
            EpochKind::Started => {
                let used = self.peers[target].used.wrapping_add(1);
                self.peers[target].held == LockHeld::Unchecked
                    || self.region.posts(target, self.me).reached(used)
            }
            _ => self.region.exposure(target).reached(self.epoch),
        }
    }

    /// Polls for a moment for a target's post. The polls take less time than a long operation, and are made
    /// at most once in an epoch in which the target is late. Queuing the operation costs more, because no
    /// work is done meanwhile.
    #[inline(never)]
    fn is_opened_soon(&self, target: usize) -> bool {
        if self.host.crowded || !self.peers[target].queue.is_empty() {
            return false;
        }
        poll_briefly(POLLS, || self.is_open(EpochKind::Started, target))
    }

    /// Does the staged operations, and lets later operations be done directly. Called when the target is in
    /// its epoch.
    pub(super) fn open(&mut self, reach: EpochKind, target: usize) -> Result<(), Error> {
        self.execute_staged(reach, target)?;
        self.peers[target].staging_stamp = None;
        self.peers[target].opened = true;
        self.peers[target].direct = self.mapped;
        Ok(())
    }

    pub(super) fn execute_staged(&mut self, reach: EpochKind, target: usize) -> Result<(), Error> {
        if self.peers[target].writer.is_empty() {
            return Ok(());
        }
        let stamp = self.stamp(reach, target);
        let mut writer = std::mem::take(&mut self.peers[target].writer);
        let (mut done, mut alike) = (Ok(()), AlikeEntries::default());
        let is_reached_by_kernel = self.peers[target].base.is_null();
        writer.withdraw(self.region.ring(self.me, target), stamp, |head, data| {
            // SAFETY: this member wrote the entry, which lies in the ring.
            let data = unsafe { std::slice::from_raw_parts(data, head.length) };
            if done.is_err() || (is_reached_by_kernel && alike.add(head, data)) {
                return;
            }
            done = self.execute_alike(target, &mut alike);
            if done.is_ok() && !(is_reached_by_kernel && alike.add(head, data)) {
                done = self.execute_entry(target, head, data);
            }
        });
        self.peers[target].writer = writer;
        done.and_then(|()| self.execute_alike(target, &mut alike))
    }

    /// Does the queued operations for a target that is in its epoch.
    pub(super) fn execute_queue(&mut self, reach: EpochKind, target: usize) -> Result<(), Error> {
        let is_ordered = |op: &Op| !matches!(op.verb, Verb::Put | Verb::Get);
        if self.mapped || self.peers[target].queue.iter().any(is_ordered) {
            self.open(reach, target)?;
        }
        for op in std::mem::take(&mut self.peers[target].queue) {
            self.execute(target, &op)?;
        }
        Ok(())
    }
}
