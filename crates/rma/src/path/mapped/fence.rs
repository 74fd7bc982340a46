//! Fence on the direct path: one barrier episode, and none where nothing has to end.
//!
//! ```text
//!   fence (ends nothing)     put put put            fence
//!   exposure := epoch        staged, or stored      queue: wait for exposure, do it
//!                            where exposed          barrier
//!                                                   apply what was staged here
//! ```
//! After a fence with a barrier all are known to be in their epoch, and operations are stores - unless what
//! was staged is still being applied somewhere, in which case origins look at the exposure first ([`After`]).
//! Which of these holds follows from the fences called, so that all members know it alike.
//!
//! Cost: a barrier episode; a store for a fence that ends nothing. Reference: the paper, section 4.1, for the
//! fence that does nothing; `unisono-barrier` for the episode.

use super::staging::Stamp;
use super::{After, MappedPath};
use crate::model::{Assert, Error, Part, Reach};
use crate::path::message::Serving;

impl MappedPath {
    pub(crate) fn fence(&mut self, closes: bool, assert: Assert, parts: &[Part]) -> Result<(), Error> {
        let staged = self.after == After::Unknown;
        if closes {
            self.end_access()?;
            self.barrier.meet(Serving::Unneeded)?;
            if staged {
                self.apply_all(Stamp::fence(self.epoch), parts);
            }
        }
        self.epoch = self.epoch.wrapping_add(1) & 0x3fff_ffff;
        self.after = match self.after {
            _ if !closes || !self.mapped => After::Unknown,
            After::Unknown => After::Checked,
            _ => After::Open,
        };
        let succeeds = !assert.has(Assert::NO_SUCCEED);
        let open = succeeds && self.after == After::Open;
        for peer in &mut self.peers {
            (peer.opened, peer.direct) = (open, open);
            if closes {
                peer.settling = staged.then_some(self.epoch);
            }
        }
        let me = &mut self.peers[self.me];
        (me.direct, me.settling) = (succeeds, None);
        if (succeeds && !open) || (closes && staged) {
            self.region.exposure(self.me).signal(self.epoch, self.wakeups);
        }
        Ok(())
    }

    /// Does what is queued; what is staged is the targets' from here on.
    fn end_access(&mut self) -> Result<(), Error> {
        for target in 0..self.peers.len() {
            if !self.peers[target].queue.is_empty() {
                let exposure = self.region.exposure(target);
                self.waiter.wait_for(Reach::Fence, exposure, self.epoch)?;
                self.execute_queue(Reach::Fence, target)?;
            }
            self.peers[target].stages = None;
            self.peers[target].out.commit(self.region.ring(self.me, target));
        }
        Ok(())
    }

    fn apply_all(&mut self, stamp: Stamp, parts: &[Part]) {
        let me = self.me;
        let origins = (0..self.peers.len()).filter(|origin| *origin != me);
        for origin in origins.clone() {
            self.peers[origin].came.expect(self.region.place_of_ring(origin, me));
        }
        for origin in origins {
            self.apply_from(origin, stamp, parts[self.me].bytes);
        }
    }

    /// Waits until a target has applied what the last fence left staged for it; a lock's operations come
    /// after.
    #[cold]
    pub(super) fn await_settled(&mut self, target: usize, epoch: u32) -> Result<(), Error> {
        let exposure = self.region.exposure(target);
        self.waiter.wait_for(Reach::Locked, exposure, epoch)?;
        self.peers[target].settling = None;
        Ok(())
    }

    /// Applies what `origin` staged in an epoch that is over.
    #[inline]
    pub(super) fn apply_from(&mut self, origin: usize, stamp: Stamp, bytes: u64) {
        let mut came = std::mem::take(&mut self.peers[origin].came);
        came.drain(self.region.ring(origin, self.me), stamp, |head, data| self.apply(head, data, bytes));
        self.peers[origin].came = came;
    }
}
