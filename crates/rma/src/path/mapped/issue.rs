//! At once, staged or queued: what becomes of an operation when it is issued.

use super::passive::LONGEST;
use super::staging::{Head, MOST, Stamp, room};
use super::{After, Held, MappedPath};
use crate::memory::op::Op;
use crate::model::{Error, Lock, Reach, Verb};

/// Puts longer than this are worth a look whether the target has posted.
const FEW: usize = 256;
/// Looks for the post of a target that is about to make it: half a microsecond.
const POLLS: u32 = 32;

impl MappedPath {
    /// Takes an operation that was checked.
    pub(crate) fn issue(&mut self, reach: Reach, target: usize, op: Op) -> Result<(), Error> {
        if target == self.me {
            return self.execute(target, &op);
        }
        match reach {
            Reach::Locked => {
                if self.peers[target].held == Held::Nothing {
                    self.take_lock(target, Lock::Shared)?;
                }
                self.settle(target)?;
                self.dirty = true;
                return self.execute(target, &op);
            }
            Reach::Fence | Reach::Started => {}
        }
        if self.peers[target].opened && (self.mapped || !self.is_stageable(&op)) {
            self.take_back(reach, target)?;
            return self.execute(target, &op);
        }
        let stages = reach == Reach::Started || self.after == After::Unknown;
        // A post is in a line of this member's own; an exposure is not, and is looked at only in need.
        let looks = reach == Reach::Started
            && self.mapped
            && (self.is_open(reach, target) || (op.total > MOST as u64 && self.opens_soon(target)));
        if !looks && stages && self.peers[target].queue.is_empty() && self.stage(reach, target, &op) {
            return Ok(());
        }
        if self.peers[target].queue.is_empty() && (looks || self.is_open(reach, target)) {
            self.open(reach, target)?;
            return self.execute(target, &op);
        }
        self.peers[target].stages = None;
        self.peers[target].queue.push(op);
        Ok(())
    }

    fn is_stageable(&self, op: &Op) -> bool {
        matches!(op.verb, Verb::Put | Verb::Accumulate)
            && op.layout.is_contiguous()
            && op.total <= self.most_staged() as u64
    }

    /// How much data an entry may have. What is out of reach would be copied by the kernel, page by page.
    #[inline]
    fn most_staged(&self) -> usize {
        let ring_bytes = self.region.plan.ring_bytes;
        if self.mapped { MOST.min(ring_bytes / 4) } else { room(ring_bytes) }
    }

    pub(super) fn stamp(&self, reach: Reach, target: usize) -> Stamp {
        match reach {
            Reach::Locked => Stamp::PASSIVE,
            Reach::Started => Stamp::completion(self.peers[target].completed.wrapping_add(1)),
            _ => Stamp::fence(self.epoch),
        }
    }

    #[inline]
    fn stage(&mut self, reach: Reach, target: usize, op: &Op) -> bool {
        if !self.is_stageable(op) {
            return false;
        }
        let Some(data) = op.data.slice(op.total) else { return false };
        let how = op.element.zip(op.operation).filter(|_| op.verb == Verb::Accumulate);
        let (head, stamp) = (Head { how, place: op.place, length: data.len() }, self.stamp(reach, target));
        // SAFETY: the data is a slice of this length, short enough as asked above.
        unsafe { self.stage_bytes(target, stamp, head, data.as_ptr()) }
    }

    /// Stages an entry.
    ///
    /// # Safety
    /// `head.length` bytes, at most [`Self::most_staged`], are readable at `data`.
    #[inline]
    unsafe fn stage_bytes(&mut self, target: usize, stamp: Stamp, head: Head, data: *const u8) -> bool {
        let (out, place) = (&mut self.peers[target].out, self.region.place_of_ring(self.me, target));
        // SAFETY: as the caller promises; the ring is the segment's.
        if unsafe { out.stage_quickly(place, stamp, head, data) } {
            return true;
        }
        // SAFETY: as above.
        unsafe { out.stage(self.region.ring(self.me, target), stamp, head, data) }
    }

    /// Stages one more put for a target that the last one was staged for, in the same epoch.
    ///
    /// # Safety
    /// `length` bytes are readable at `data`.
    #[inline]
    pub(crate) unsafe fn stage_again(
        &mut self,
        target: usize,
        place: i64,
        length: usize,
        data: *const u8,
    ) -> bool {
        match self.peers[target].stages {
            Some(stamp) if length <= self.most_staged() => {
                // SAFETY: as the caller promises.
                unsafe { self.stage_bytes(target, stamp, Head { how: None, place, length }, data) }
            }
            _ => false,
        }
    }

    /// A contiguous put to a part that is not open: staged without an operation being made of it.
    #[inline]
    pub(crate) fn stage_put(&mut self, reach: Reach, target: usize, place: i64, data: &[u8]) -> bool {
        if data.len() > self.most_staged() {
            return false;
        }
        let stages = match reach {
            Reach::Fence => self.after == After::Unknown && !self.peers[target].opened,
            // A few short ones are staged whether or not the target has posted: looking costs a transfer.
            Reach::Started => {
                !self.peers[target].opened
                    && (!self.mapped || data.len() <= FEW || !self.is_open(reach, target))
            }
            Reach::Locked => self.hands_over && data.len() <= LONGEST && self.may_offer(target),
        };
        stages && target != self.me && self.peers[target].queue.is_empty() && {
            let stamp = self.stamp(reach, target);
            let head = Head { how: None, place, length: data.len() };
            // SAFETY: the data is a slice of this length, short enough as just asked.
            let staged = unsafe { self.stage_bytes(target, stamp, head, data.as_ptr()) };
            self.peers[target].stages = staged.then_some(stamp);
            staged
        }
    }

    /// Whether the target is in the epoch that this member accesses it in.
    #[inline]
    pub(super) fn is_open(&self, reach: Reach, target: usize) -> bool {
        match reach {
            Reach::Started => {
                let used = self.peers[target].used.wrapping_add(1);
                self.peers[target].held == Held::Unchecked || self.region.posts(target, self.me).reached(used)
            }
            _ => self.region.exposure(target).reached(self.epoch),
        }
    }

    /// Whether a target posts in a moment: worth less than what a long operation takes, once in an epoch that
    /// finds it late, and cheaper than to queue what could have been done meanwhile.
    #[inline(never)]
    fn opens_soon(&self, target: usize) -> bool {
        if self.host.crowded || !self.peers[target].queue.is_empty() {
            return false;
        }
        (0..POLLS).any(|_| {
            std::hint::spin_loop();
            self.is_open(Reach::Started, target)
        })
    }

    /// The target is in its epoch: what was staged is done directly, and so is what follows.
    pub(super) fn open(&mut self, reach: Reach, target: usize) -> Result<(), Error> {
        self.take_back(reach, target)?;
        self.peers[target].stages = None;
        self.peers[target].opened = true;
        self.peers[target].direct = self.mapped;
        Ok(())
    }

    pub(super) fn take_back(&mut self, reach: Reach, target: usize) -> Result<(), Error> {
        if self.peers[target].out.is_empty() {
            return Ok(());
        }
        let stamp = self.stamp(reach, target);
        let mut out = std::mem::take(&mut self.peers[target].out);
        let mut done = Ok(());
        out.take_back(self.region.ring(self.me, target), stamp, |head, data| {
            // SAFETY: the entry is this member's own and lies in the ring.
            let data = unsafe { std::slice::from_raw_parts(data, head.length) };
            if done.is_ok() {
                done = self.enter(target, head, data);
            }
        });
        self.peers[target].out = out;
        done
    }

    /// Does what was queued for a target that is in its epoch.
    pub(super) fn execute_queue(&mut self, reach: Reach, target: usize) -> Result<(), Error> {
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
