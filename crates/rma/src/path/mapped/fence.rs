//! Fence on the mapped path: one barrier episode, and none for a fence that ends no epoch.
//!
//! ```text
//!   fence (ends no epoch)    put put put            fence
//!   exposure := epoch        staged, or stored      queue: wait for exposure, do it
//!                            where exposed          barrier
//!                                                   apply the entries staged here
//! ```
//! After a fence with a barrier all members are known to be in their epoch, so operations on mapped parts are
//! stores. There is one exception: if puts were staged in the epoch that ended, a target may still be
//! applying them. For one epoch origins then check its exposure first ([`TargetExposure`]). Puts are staged
//! only in epochs that began without a barrier, or where the parts are not mapped. All members know which
//! case it is, because all call the same fences.
//!
//! Cost: a barrier episode, and one store if puts were staged in the epoch that ended; only a store for a
//! fence that ends no epoch. Reference: the paper, section 4.1, for the fence that does nothing;
//! `unisono-barrier` for the episode.

use super::execute::TargetPart;
use super::gate::AccumulateLength;
use super::staging::Stamp;
use super::{MappedPath, TargetExposure};
use crate::model::{Assert, EpochKind, Error, Stats, WindowPart};
use crate::path::message::PacketServing;

/// The number of staged bytes above which the target takes the gate of its part for all of them, and not for
/// each accumulate: an accumulate of one element takes 30 ns through the gate, and a tenth of that behind it.
/// Taking the gate may make others wait, so a few entries do without. Chosen, not measured.
const MAX_SHARED_BYTES: usize = 4 << 10;

impl MappedPath {
    pub(crate) fn fence(
        &mut self,
        closes: bool,
        assert: Assert,
        parts: &[WindowPart],
        _: &mut Stats,
    ) -> Result<(), Error> {
        let staged = self.target_exposure == TargetExposure::Unknown;
        if closes {
            self.end_access()?;
            self.barrier.wait(PacketServing::Unneeded)?;
            if staged {
                self.apply_all(Stamp::fence(self.epoch), parts);
            }
        }
        self.epoch = self.epoch.wrapping_add(1) & 0x3fff_ffff;
        self.target_exposure = match self.target_exposure {
            _ if !closes || !self.mapped => TargetExposure::Unknown,
            TargetExposure::Unknown => TargetExposure::Checked,
            _ => TargetExposure::Open,
        };
        let succeeds = !assert.has(Assert::NO_SUCCEED);
        let open = succeeds && self.target_exposure == TargetExposure::Open;
        for peer in &mut self.peers {
            (peer.opened, peer.direct) = (open, open);
            if closes {
                peer.applying_epoch = staged.then_some(self.epoch);
            }
        }
        let me = &mut self.peers[self.me];
        (me.direct, me.applying_epoch) = (succeeds, None);
        if (succeeds && !open) || (closes && staged) {
            self.region.exposure(self.me).signal(self.epoch, self.wakeups);
        }
        Ok(())
    }

    /// Does the queued operations, and leaves the staged ones to their targets.
    fn end_access(&mut self) -> Result<(), Error> {
        for target in 0..self.peers.len() {
            if !self.peers[target].queue.is_empty() {
                let exposure = self.region.exposure(target);
                self.waiter.wait_for(EpochKind::Fence, exposure, self.epoch)?;
                self.execute_queue(EpochKind::Fence, target)?;
            }
            self.peers[target].staging_stamp = None;
            self.peers[target].writer.commit(self.region.ring(self.me, target));
        }
        Ok(())
    }

    fn apply_all(&mut self, stamp: Stamp, parts: &[WindowPart]) {
        let me = self.me;
        let origins = (0..self.peers.len()).filter(|origin| *origin != me);
        for origin in origins.clone() {
            self.peers[origin].reader.prefetch_entries(self.region.ring_memory(origin, me));
        }
        for origin in origins {
            self.apply_from(origin, stamp, parts[self.me].bytes);
        }
    }

    /// Waits until a target has applied the puts that the last fence left staged for it: the operations of a
    /// lock epoch must be done after these puts.
    #[cold]
    pub(super) fn await_applied(&mut self, target: usize, epoch: u32) -> Result<(), Error> {
        let exposure = self.region.exposure(target);
        self.waiter.wait_for(EpochKind::Locked, exposure, epoch)?;
        self.peers[target].applying_epoch = None;
        Ok(())
    }

    /// Applies the operations that `origin` staged in the finished epoch of `stamp`.
    #[inline]
    pub(super) fn apply_from(&mut self, origin: usize, stamp: Stamp, bytes: u64) {
        let mut reader = std::mem::take(&mut self.peers[origin].reader);
        let ring = self.region.ring(origin, self.me);
        let part = self.part(self.me);
        let is_long = reader.unread(ring) > MAX_SHARED_BYTES;
        let mut drain = |part: &TargetPart<'_>| {
            reader.drain(ring, stamp, |head, data| part.apply(head, data, bytes));
        };
        let drained = is_long && {
            let exclusively = || {
                drain(&TargetPart { alone: true, ..self.part(self.me) });
                Ok(())
            };
            part.exclusively(AccumulateLength::Long, exclusively).is_ok()
        };
        // also if another member has died: its entries are not in the way of others then
        if !drained {
            drain(&part);
        }
        self.peers[origin].reader = reader;
    }
}
