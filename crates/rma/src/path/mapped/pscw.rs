//! Post-start-complete-wait on the mapped path: one flag for each pair of ranks and each direction.
//!
//! ```text
//!   target:  post: posts[target->origin] += 1                 wait: completions[origin->target] reached
//!   origin:  start: nothing   put: stored if posted, else     complete: completions += 1
//!                             staged or queued                (waits for the post only if queued)
//! ```
//! Each word has one writer and one reader, so that neither side needs a read-modify-write. An origin that
//! has only staged operations, or none, completes without a wait: the target finds their stamps in its ring.
//!
//! Cost: two stores and two polls for each pair. With NO_CHECK the origin does not poll. The target stores
//! its post all the same, so that a NO_CHECK given by one side only does no harm. Reference: the paper,
//! section 4.2.

use super::staging::Stamp;
use super::{LockHeld, MappedPath};
use crate::model::{Assert, EpochKind, Error, Rank, Stats, WindowPart};

impl MappedPath {
    pub(crate) fn post(&mut self, origins: &[Rank], _: Assert, _: &mut Stats) -> Result<(), Error> {
        for origin in origins.iter().map(|rank| rank.index()) {
            self.peers[origin].posted = self.peers[origin].posted.wrapping_add(1);
            self.region.posts(self.me, origin).signal(self.peers[origin].posted, self.wakeups);
        }
        Ok(())
    }

    pub(crate) fn start(&mut self, targets: &[Rank], assert: Assert, _: &mut Stats) -> Result<(), Error> {
        self.close_all();
        if assert.has(Assert::NO_CHECK) {
            for target in targets.iter().map(|rank| rank.index()) {
                let peer = &mut self.peers[target];
                (peer.held, peer.opened, peer.direct) = (LockHeld::Unchecked, true, self.mapped);
            }
        }
        Ok(())
    }

    pub(crate) fn complete(&mut self, targets: &[Rank], _: Assert, _: &mut Stats) -> Result<(), Error> {
        if self.shared.wait_timeout().is_some() {
            self.await_posts(targets)?;
        }
        for target in targets.iter().map(|rank| rank.index()) {
            let used = self.peers[target].used.wrapping_add(1);
            if !self.peers[target].queue.is_empty() {
                let posts = self.region.posts(target, self.me);
                if self.peers[target].held != LockHeld::Unchecked {
                    self.waiter.wait_for(EpochKind::Started, posts, used)?;
                }
                self.execute_queue(EpochKind::Started, target)?;
            }
            let peer = &mut self.peers[target];
            peer.writer.commit(self.region.ring(self.me, target));
            peer.staging_stamp = None;
            peer.used = used;
            peer.completed = peer.completed.wrapping_add(1);
            (peer.opened, peer.direct, peer.held) = (false, false, LockHeld::Nothing);
            self.region.completions(self.me, target).signal(peer.completed, self.wakeups);
        }
        Ok(())
    }

    /// Waits for all posts that `complete` needs, so that `complete` either gives up before it has done
    /// anything, or completes.
    #[cold]
    fn await_posts(&mut self, targets: &[Rank]) -> Result<(), Error> {
        for target in targets.iter().map(|rank| rank.index()) {
            let peer = &self.peers[target];
            if !peer.queue.is_empty() && peer.held != LockHeld::Unchecked {
                let used = peer.used.wrapping_add(1);
                self.waiter.wait_for(EpochKind::Started, self.region.posts(target, self.me), used)?;
            }
        }
        Ok(())
    }

    pub(crate) fn wait(
        &mut self,
        origins: &[Rank],
        parts: &[WindowPart],
        _: &mut Stats,
    ) -> Result<(), Error> {
        for origin in origins.iter().map(|rank| rank.index()) {
            let next = self.peers[origin].awaited.wrapping_add(1);
            let completions = self.region.completions(origin, self.me);
            self.waiter.wait_for(EpochKind::Started, completions, next)?;
            self.peers[origin].reader.prefetch_entries(self.region.ring_memory(origin, self.me));
        }
        self.waited(origins, parts);
        Ok(())
    }

    pub(crate) fn test(&mut self, origins: &[Rank], parts: &[WindowPart]) -> Result<bool, Error> {
        let done = origins.iter().map(|rank| rank.index()).all(|origin| {
            let next = self.peers[origin].awaited.wrapping_add(1);
            self.region.completions(origin, self.me).reached(next)
        });
        if done {
            self.waited(origins, parts);
        } else {
            self.progress()?;
        }
        Ok(done)
    }

    /// Applies the staged operations of all origins. The origins have completed.
    fn waited(&mut self, origins: &[Rank], parts: &[WindowPart]) {
        for origin in origins.iter().map(|rank| rank.index()) {
            let number = self.peers[origin].awaited.wrapping_add(1);
            self.peers[origin].awaited = number;
            if origin != self.me {
                self.apply_from(origin, Stamp::completion(number), parts[self.me].bytes);
            }
        }
    }
}
