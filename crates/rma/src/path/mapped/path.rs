//! The mapped path as an implementation of [`Path`].

use super::MappedPath;
use crate::memory::op::Op;
use crate::model::{Assert, Counts, EpochKind, Error, Lock, Medium, Rank, Stats, Traffic, Waits, WindowPart};
use crate::path::message::MessageEngine;
use crate::path::{AttachmentChange, Path};
use unisono_linux::clock::Nanos;
use unisono_sync::Waited;

impl Path for MappedPath {
    #[inline]
    fn fence(
        &mut self,
        closes: bool,
        assert: Assert,
        parts: &[WindowPart],
        _: &mut Stats,
    ) -> Result<(), Error> {
        self.fence(closes, assert, parts)
    }

    #[inline]
    fn post(&mut self, origins: &[Rank], _: Assert, _: &mut Stats) -> Result<(), Error> {
        self.post(origins);
        Ok(())
    }

    #[inline]
    fn start(&mut self, targets: &[Rank], assert: Assert, _: &mut Stats) -> Result<(), Error> {
        self.start(targets, assert);
        Ok(())
    }

    #[inline]
    fn complete(&mut self, targets: &[Rank], _: Assert, _: &mut Stats) -> Result<(), Error> {
        self.complete(targets)
    }

    #[inline]
    fn wait(&mut self, origins: &[Rank], parts: &[WindowPart], _: &mut Stats) -> Result<(), Error> {
        self.wait(origins, parts)
    }

    fn test(&mut self, origins: &[Rank], parts: &[WindowPart]) -> Result<bool, Error> {
        self.test(origins, parts)
    }

    #[inline]
    fn lock(&mut self, target: Rank, lock: Lock, assert: Assert, _: &mut Stats) -> Result<(), Error> {
        match assert.has(Assert::NO_CHECK) {
            true => self.lock_unchecked(target.index()),
            false => self.lock(target.index(), lock),
        }
    }

    #[inline]
    fn unlock(&mut self, target: Rank, _: Lock, _: &mut Stats) -> Result<(), Error> {
        self.unlock(target.index())
    }

    fn lock_all(&mut self, assert: Assert, _: &mut Stats) -> Result<(), Error> {
        match assert.has(Assert::NO_CHECK) {
            true => (0..self.peers.len()).try_for_each(|target| self.lock_unchecked(target)),
            // The locks of other ranks are taken at the first access to each.
            false => self.lock(self.me, Lock::Shared),
        }
    }

    fn unlock_all(&mut self, _: &mut Stats) -> Result<Result<(), Error>, Error> {
        Ok((0..self.peers.len()).map(|target| self.unlock(target)).fold(Ok(()), Result::and))
    }

    fn settle(&mut self, _: &mut Stats) -> Result<(), Error> {
        Ok(())
    }

    #[inline]
    fn flush(&mut self, target: Rank, _: Lock, _: &mut Stats) -> Result<(), Error> {
        self.flush(target.index())
    }

    #[inline]
    fn flush_local(&mut self, _: Rank, _: Lock, _: &mut Stats) -> Result<(), Error> {
        // Every operation was done when it was issued.
        Ok(())
    }

    fn test_local(&mut self, _: Rank, _: Lock) -> Result<bool, Error> {
        Ok(true)
    }

    fn sync(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn progress(&mut self) -> Result<(), Error> {
        Self::progress(self)
    }

    #[inline]
    fn issue(&mut self, reach: EpochKind, target: Rank, op: Op) -> Result<(), Error> {
        self.issue(reach, target.index(), op)
    }

    /// In a passive epoch only puts are staged, and puts have no result.
    fn is_settled(&self, target: Rank) -> bool {
        self.peers[target.index()].queue.is_empty()
    }

    fn free(&mut self) -> Result<(), Error> {
        self.shared.barrier(self.number)?;
        self.shared.core().forget_window(self.number);
        self.peers.iter_mut().for_each(|peer| (peer.direct, peer.base) = (false, std::ptr::null_mut()));
        Ok(())
    }

    /// The path's barrier informs the others when it is dropped; its memory is the segment's.
    fn abandon(&mut self) {}

    fn mapped(&self, rank: Rank) -> Option<*mut u8> {
        Some(self.peers[rank.index()].base).filter(|base| !base.is_null())
    }

    fn waits(&self) -> Waits {
        let mut waits = self.waiter.waits;
        let episodes = self.barrier.waited();
        waits.fence.add(Nanos(episodes.awake.0 + episodes.asleep.0), episodes.asleep);
        waits
    }

    #[inline]
    fn take_gate_waits(&mut self) -> Waited {
        self.gate_waits.take()
    }

    fn traffic(&self, issued: &Counts) -> Traffic {
        Traffic::divided(issued, &self.by_kernel, Medium::Kernel, Medium::Stores)
    }

    fn shared(&self) -> &MessageEngine {
        &self.shared
    }

    fn change_attached(&self, _: AttachmentChange<'_>) -> Option<Result<(), Error>> {
        None
    }
}
