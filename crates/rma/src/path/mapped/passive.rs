//! Lock-unlock on the mapped path: one word for the lock, and stores.
//!
//! `lock` takes the lock (after lock_all, the first access to a target takes it), and every operation is done
//! at once, so that unlock need not wait for any. Puts to a program's own memory are an exception: they are
//! staged, and handed to the target if it is in the library when they have to be complete (`hand_off.rs`).
//! The first lock after a fence waits until the target has applied the puts that the fence left staged for
//! it. A rank that finds the lock held polls briefly, then sleeps on its word and checks ten times a second
//! whether a member is gone. Cost: two atomic operations; a flush is one fence instruction, if this rank has
//! stored anything. Unlike the paper's protocol (section 4.3) it needs no request, no agent and no
//! acknowledgement.

use super::hand_off::OfferPlacement;
use super::lock_word::{Attempt, LockWord, POLLS};
use super::staging::{Head, Stamp};
use super::{LockHeld, MappedPath};
use crate::model::{Assert, EpochKind, Error, Lock, Rank, Stats};
use unisono_linux::clock::{Duration, now, ticks};
use unisono_linux::futex::{self, Scope, WakeCount};
use unisono_sync::atomics::{Ordering, fence};
use unisono_sync::{BriefBudget, MAX_SLEEP, poll_briefly};

/// The largest job whose members check for offers. A check reads one line of each other member whenever an
/// epoch begins or ends, some 20 ns for a line that is in no near cache: 16 members cost a third of a
/// microsecond, and an accepted offer saves about 1 us. Chosen by this sum; measured with 2.
pub(super) const MAX_OFFER_MEMBERS: usize = 16;
/// The longest put (bytes) that is offered; longer puts go through the kernel. A target that claims an offer
/// copies the put at a moment that it did not choose: 512 KB delay the target by some 50 us, as long as a
/// wake-up takes. 512 KB are a quarter of the longest ring (2 MB), so an origin can stage the next put while
/// another is offered. Chosen, not measured; 256 KB handed over took 0.81 times as long as Open MPI's copy by
/// the kernel (0.77 to 0.82, n = 7, as in `offer_lifetime.rs`).
pub(super) const MAX_OFFERED_BYTES: usize = 512 << 10;
/// The number of epochs without an offer to a target that did not take the last one. If a target computes,
/// one epoch in 33 loses the time of an offer in vain, which is the time of two copies by the kernel: 6 % in
/// all. With 16 epochs the loss would be twice that; with 64 epochs an origin would notice later that a
/// target is in the library again. Chosen by this sum, not measured.
const EPOCHS_WITHOUT_OFFER: u8 = 32;
/// The longest sleep until a claimed offer is applied: the target wakes no origin, so the sleep ends by
/// itself. The target copies at most [`MAX_OFFERED_BYTES`] bytes, so it takes 0.1 ms only if it has lost its
/// processor.
const MAX_CLAIM_SLEEP: Duration = Duration::from_micros(100);

impl MappedPath {
    #[inline]
    pub(crate) fn lock(
        &mut self,
        target: Rank,
        lock: Lock,
        assert: Assert,
        _: &mut Stats,
    ) -> Result<(), Error> {
        if assert.has(Assert::NO_CHECK) {
            return self.lock_unchecked(target.index());
        }
        self.serve();
        self.take_lock(target.index(), lock)
    }

    pub(crate) fn lock_all(&mut self, assert: Assert, _: &mut Stats) -> Result<(), Error> {
        if assert.has(Assert::NO_CHECK) {
            return (0..self.peers.len()).try_for_each(|target| self.lock_unchecked(target));
        }
        self.serve();
        // The locks of other ranks are taken at the first access to each rank.
        self.take_lock(self.me, Lock::Shared)
    }

    pub(crate) fn hold(&mut self, target: Rank, lock: Lock, _: &mut Stats) -> Result<(), Error> {
        match self.peers[target.index()].held {
            LockHeld::Nothing => self.take_lock(target.index(), lock),
            LockHeld::Lock(_) | LockHeld::Unchecked => Ok(()),
        }
    }

    fn lock_unchecked(&mut self, target: usize) -> Result<(), Error> {
        if let Some(epoch) = self.peers[target].applying_epoch {
            self.await_applied(target, epoch)?;
        }
        let peer = &mut self.peers[target];
        (peer.held, peer.opened, peer.direct) = (LockHeld::Unchecked, true, !peer.base.is_null());
        Ok(())
    }

    #[inline]
    pub(super) fn take_lock(&mut self, target: usize, lock: Lock) -> Result<(), Error> {
        if let Some(epoch) = self.peers[target].applying_epoch {
            self.await_applied(target, epoch)?;
        }
        let word = LockWord(self.region.lock(target).word(0));
        let taken = match lock {
            Lock::Shared => word.try_shared(),
            Lock::Exclusive => word.try_exclusive(self.me as u32),
        };
        if !taken {
            self.await_lock(target, lock)?;
        }
        let peer = &mut self.peers[target];
        (peer.held, peer.opened, peer.direct) = (LockHeld::Lock(lock), true, !peer.base.is_null());
        Ok(())
    }

    #[cold]
    fn await_lock(&mut self, target: usize, lock: Lock) -> Result<(), Error> {
        let (start, mut asleep) = (ticks(), Duration::ZERO);
        let taken = self.lock_slow(target, lock, &mut asleep);
        self.waiter.waits.passive.add(ticks().since(start).to_duration(), asleep);
        taken
    }

    fn lock_slow(&self, target: usize, lock: Lock, asleep: &mut Duration) -> Result<(), Error> {
        let word = self.region.lock(target).word(0);
        let exclusive = (lock == Lock::Exclusive).then_some(self.me as u32);
        let tries = || match exclusive {
            Some(rank) => LockWord(word).try_exclusive(rank),
            None => LockWord(word).try_shared(),
        };
        if !self.host.crowded && poll_briefly(POLLS, tries) {
            return Ok(());
        }
        let timeout = self.shared.wait_timeout();
        let longest = timeout.map_or(MAX_SLEEP, |timeout| timeout.min(MAX_SLEEP));
        let over = timeout.map(|timeout| now() + timeout);
        let mut slept = false;
        loop {
            match LockWord(word).attempt(exclusive, slept) {
                Attempt::Taken => return Ok(()),
                Attempt::Again => {}
                Attempt::Sleep(seen) => {
                    let period = self.shared.hook.call().map_or(longest, |pause| pause.min(longest));
                    let before = now();
                    futex::wait(word, seen, Some(before + period), Scope::Shared);
                    *asleep += now() - before;
                    slept = true;
                    if let Some(gone) = self.host.gone_member() {
                        return Err(gone.into());
                    }
                    if over.is_some_and(|over| now() >= over) {
                        return Err(Error::NotYet);
                    }
                }
            }
        }
    }

    /// Whether to stage a put of a passive epoch, and offer it later.
    pub(super) fn may_offer(&mut self, target: usize) -> bool {
        let peer = &mut self.peers[target];
        if !peer.writer.is_empty() {
            return true;
        }
        peer.offers_paused = peer.offers_paused.saturating_sub(1);
        peer.offers_paused == 0 && peer.held != LockHeld::Nothing
    }

    /// Applies the offers of other members.
    #[inline]
    fn serve(&mut self) {
        if self.offers_puts {
            self.serve_all();
        }
    }

    #[inline(never)]
    fn serve_all(&mut self) {
        for origin in (0..self.peers.len()).filter(|origin| *origin != self.me) {
            let (ring, offers) = (self.region.ring(origin, self.me), self.region.offers(origin, self.me));
            let reader = &mut self.peers[origin].reader;
            let Some((end, form)) = offers.claim(|start| reader.is_next(ring, start)) else { continue };
            let mut reader = std::mem::take(reader);
            if form == OfferPlacement::InLine {
                let put = offers.carried();
                let (data, length) = put.data();
                self.part(self.me).apply(
                    Head { how: None, offset: put.offset, length },
                    data,
                    self.own_bytes,
                );
                reader.skip_to(end);
            } else {
                reader.drain_to(ring, end, Stamp::PASSIVE, |head, data| {
                    self.part(self.me).apply(head, data, self.own_bytes);
                });
            }
            offers.applied(end);
            reader.publish_given_back_if_old(ring);
            self.peers[origin].reader = reader;
        }
    }

    /// Completes the staged puts to a target: the target takes them, or the kernel copies them.
    #[inline]
    pub(super) fn complete_staged(&mut self, target: usize) -> Result<(), Error> {
        if !self.offers_puts || self.peers[target].writer.is_empty() {
            Ok(())
        } else {
            self.offer_staged(target)
        }
    }

    #[inline(never)]
    fn offer_staged(&mut self, target: usize) -> Result<(), Error> {
        let me = self.me;
        let ring = self.region.ring(me, target);
        let writer = &mut self.peers[target].writer;
        let staged = writer.staged();
        let (span, mut form) = (writer.span(ring), OfferPlacement::InRing);
        if let Some((head, data)) = writer.only_short_put(ring, Stamp::PASSIVE) {
            // SAFETY: this member staged the entry, which lies in the ring and is padded to 16 bytes.
            unsafe { self.region.offers(me, target).carry(head.offset, data, head.length) };
            form = OfferPlacement::InLine;
        }
        self.peers[target].staging_stamp = None;
        self.region.offers(me, target).offer(span, form);
        let (mut budget, mut is_offered) = (BriefBudget::new(self.offer_lifetime.for_bytes(staged)), true);
        loop {
            if self.region.offers(me, target).is_applied(span.end) {
                let peer = &mut self.peers[target];
                peer.writer.mark_applied();
                peer.offers_paused = 0;
                return Ok(());
            }
            self.serve();
            if budget.is_left() {
                continue;
            }
            if is_offered && self.region.offers(me, target).revoke(span.end, form) {
                self.peers[target].offers_paused = EPOCHS_WITHOUT_OFFER;
                let began = ticks();
                let copied = self.execute_staged(EpochKind::Locked, target);
                self.offer_lifetime.record_copy(staged, ticks().since(began).to_duration());
                return copied;
            }
            // The target has claimed the offer and applies it, but it may have lost its processor.
            is_offered = false;
            let (word, claimed) = self.region.offers(me, target).claimed(span.end);
            if word.load(Ordering::Relaxed) == claimed {
                futex::wait(word, claimed, Some(now() + MAX_CLAIM_SLEEP), Scope::Shared);
                if let Some(gone) = self.host.gone_member() {
                    return Err(gone.into());
                }
            }
        }
    }

    #[inline]
    pub(crate) fn unlock(&mut self, target: Rank, _: Lock, _: &mut Stats) -> Result<(), Error> {
        let target = target.index();
        if self.peers[target].writer.is_empty() {
            self.serve();
        }
        let settled = self.complete_staged(target);
        self.release(target);
        settled
    }

    pub(crate) fn unlock_all(&mut self, stats: &mut Stats) -> Result<Result<(), Error>, Error> {
        let targets = (0..self.peers.len()).map(Rank::at);
        Ok(targets.map(|target| self.unlock(target, Lock::Shared, stats)).fold(Ok(()), Result::and))
    }

    /// Does nothing: an unlock returns only when its operations are done.
    pub(crate) fn settle(&mut self, _: &mut Stats) -> Result<(), Error> {
        Ok(())
    }

    #[inline]
    fn release(&mut self, target: usize) {
        let peer = &mut self.peers[target];
        let held = std::mem::replace(&mut peer.held, LockHeld::Nothing);
        (peer.opened, peer.direct, peer.staging_stamp) = (false, false, None);
        if held == LockHeld::Unchecked {
            self.fence_stores();
        }
        let word = self.region.lock(target).word(0);
        let wakes = match held {
            LockHeld::Lock(Lock::Exclusive) => LockWord(word).release_exclusive(),
            LockHeld::Lock(Lock::Shared) => LockWord(word).release_shared(),
            LockHeld::Unchecked | LockHeld::Nothing => false,
        };
        if wakes {
            futex::wake(word, WakeCount::All, Scope::Shared);
        }
    }

    /// Completes all operations to a target there, and makes them visible to all members before any later
    /// access.
    #[inline]
    pub(crate) fn flush(&mut self, target: Rank, _: Lock, _: &mut Stats) -> Result<(), Error> {
        self.fence_stores();
        self.serve();
        self.complete_staged(target.index())
    }

    /// Does nothing: every operation is complete at the origin when its call returns.
    #[inline]
    pub(crate) fn flush_local(&mut self, _: Rank, _: Lock, _: &mut Stats) -> Result<(), Error> {
        Ok(())
    }

    pub(crate) fn test_local(&mut self, _: Rank, _: Lock) -> Result<bool, Error> {
        Ok(true)
    }

    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        Ok(())
    }

    #[inline]
    fn fence_stores(&mut self) {
        if self.dirty {
            self.dirty = false;
            // SYNC(window) fence: stores into windows come before this rank's later loads
            fence(Ordering::SeqCst);
        }
    }
}
