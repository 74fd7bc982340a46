//! Lock-unlock on the direct path: a word, and stores.
//!
//! A lock is taken when it is asked for (for lock_all: when a target is first accessed), and every operation is
//! done at once, so that unlock has nothing to wait for. (The first lock after a fence waits until the target has
//! applied what the fence left staged for it.) Who finds the lock held sleeps on its word and looks
//! around ten times a second. Cost: two atomic operations; a flush is a fence instruction, if anything was
//! stored. Reference: the paper, section 4.3, for what is spared: no request, no agent, no acknowledgement.

use super::lock_word::{Attempt, LockWord};
use super::{Direct, Held};
use crate::error::Error;
use crate::window::Lock;
use unisono_linux::clock::{Nanos, now, ticks};
use unisono_linux::futex::{self, Count, Scope};
use unisono_sync::atomics::{Ordering, fence};

const SLICE: Nanos = Nanos(100_000_000);
/// Polls of a held lock before one sleeps, where there is a processor for everybody.
const POLLS: u32 = 200;

impl Direct {
    #[inline]
    pub(crate) fn lock(&mut self, target: usize, lock: Lock) -> Result<(), Error> {
        self.take_lock(target, lock)
    }

    pub(crate) fn lock_unchecked(&mut self, target: usize) -> Result<(), Error> {
        if let Some(epoch) = self.peers[target].settling {
            self.await_settled(target, epoch)?;
        }
        let peer = &mut self.peers[target];
        (peer.held, peer.opened, peer.direct) = (Held::Unchecked, true, !peer.base.is_null());
        Ok(())
    }

    #[inline]
    pub(super) fn take_lock(&mut self, target: usize, lock: Lock) -> Result<(), Error> {
        if let Some(epoch) = self.peers[target].settling {
            self.await_settled(target, epoch)?;
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
        (peer.held, peer.opened, peer.direct) = (Held::Lock(lock), true, !peer.base.is_null());
        Ok(())
    }

    #[cold]
    fn await_lock(&mut self, target: usize, lock: Lock) -> Result<(), Error> {
        let (start, mut asleep) = (ticks(), Nanos::ZERO);
        let taken = self.lock_in_earnest(target, lock, &mut asleep);
        self.waiter.waits.passive.add(ticks().since(start).to_nanos(), asleep);
        taken
    }

    fn lock_in_earnest(&self, target: usize, lock: Lock, asleep: &mut Nanos) -> Result<(), Error> {
        let word = self.region.lock(target).word(0);
        let exclusive = (lock == Lock::Exclusive).then_some(self.me as u32);
        if !self.host.crowded {
            for _ in 0..POLLS {
                std::hint::spin_loop();
                let taken = match exclusive {
                    Some(rank) => LockWord(word).try_exclusive(rank),
                    None => LockWord(word).try_shared(),
                };
                if taken {
                    return Ok(());
                }
            }
        }
        let patience = self.shared.patience();
        let over = patience.map(|patience| patience.after(now()));
        let mut slept = false;
        loop {
            match LockWord(word).attempt(exclusive, slept) {
                Attempt::Taken => return Ok(()),
                Attempt::Again => {}
                Attempt::Sleep(seen) => {
                    let period =
                        self.shared.hook.call().unwrap_or(SLICE).min(patience.unwrap_or(SLICE)).min(SLICE);
                    let before = now();
                    futex::wait(word, seen, Some(period.after(before)), Scope::Shared);
                    *asleep = now().since(before).after(*asleep);
                    slept = true;
                    if let Some(gone) = self.host.who_is_gone() {
                        return Err(gone.into());
                    }
                    if over.is_some_and(|over| now() >= over) {
                        return Err(Error::NotYet);
                    }
                }
            }
        }
    }

    #[inline]
    pub(crate) fn unlock(&mut self, target: usize) {
        let peer = &mut self.peers[target];
        let held = std::mem::replace(&mut peer.held, Held::Nothing);
        (peer.opened, peer.direct) = (false, false);
        if held == Held::Unchecked {
            self.flush();
        }
        let word = self.region.lock(target).word(0);
        let wakes = match held {
            Held::Lock(Lock::Exclusive) => LockWord(word).release_exclusive(),
            Held::Lock(Lock::Shared) => LockWord(word).release_shared(),
            Held::Unchecked | Held::Nothing => false,
        };
        if wakes {
            futex::wake(word, Count::All, Scope::Shared);
        }
    }

    /// Everything stored so far is visible to everybody before anything that follows.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if self.dirty {
            self.dirty = false;
            // SYNC(window) fence: stores into windows before this rank's later loads
            fence(Ordering::SeqCst);
        }
    }
}
