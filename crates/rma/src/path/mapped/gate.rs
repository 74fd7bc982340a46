//! The gate of accumulates: single elements pass side by side, longer ones one by one; and which of the two
//! it is stays until the other kind comes often.
//!
//! Elements can be combined with the processor's atomic instructions, which any number of ranks may do at
//! once, but each costs 5 to 8 ns; or with vector instructions, at memory speed, by one at a time behind a
//! lock. The two do not mix. The idea is that of biased locks: while only single elements come, everybody
//! passes without a lock. The first longer accumulate turns the gate round - takes the lock, says so, waits
//! until everybody inside has left - and from then on everybody takes the lock, until [`SHORTS`] single
//! elements in a row have come. The danger is the classic one: one enters while another turns the gate round.
//!
//! ```text
//!   side by side                      turns it round (has the lock)
//!   presence := target                one by one := yes
//!   ---- light fence ----             ---- heavy fence ----
//!   one by one? leave, take the lock  presence = target? wait
//! ```
//! Either fence comes first: the one who enters sees that the gate has turned, or the other sees who is
//! inside. The light one is no instruction where membarrier fences for both. Turning it back needs no fence:
//! with the lock held nobody is inside, and whoever gets the lock next looks again.
//!
//! Cost: side by side two stores to a line of one's own and a load; one by one a compare-and-swap and a
//! store; a turn a membarrier (about a microsecond), at most every [`SHORTS`] operations. Checked by
//! `tests/loom.rs`. Reference: Russell, Detlefs, "Eliminating synchronization-related atomic operations with
//! biased locking and bulk rebiasing", OOPSLA 2006.

use unisono_linux::futex::Scope;
#[cfg(not(loom))]
use unisono_linux::membarrier;
use unisono_sync::Wakeups;
use unisono_sync::atomics::{AtomicU32, Ordering, fence, light_fence};

/// So many single elements in a row turn the gate back.
#[cfg(not(loom))]
const SHORTS: u32 = 1024;
#[cfg(loom)]
const SHORTS: u32 = 1;

/// A target's gate, as one rank sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetGate<'a> {
    /// Whether one passes one by one, with the lock.
    pub(crate) one_by_one: &'a AtomicU32,
    /// The lock: zero, or who has it, plus one.
    pub(crate) holder: &'a AtomicU32,
    /// How many sleep until it is free.
    pub(crate) sleepers: &'a AtomicU32,
    /// Single elements in a row, one by one. The holder's.
    pub(crate) shorts: &'a AtomicU32,
    /// This rank's presence: zero, or at whom it accumulates side by side, plus one.
    pub(crate) presence: &'a AtomicU32,
    pub(crate) target: u32,
    pub(crate) wakeups: Wakeups,
}

/// What came through the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Short,
    Long,
}

impl TargetGate<'_> {
    /// Enters beside others; whether that is possible now.
    #[inline]
    pub(crate) fn try_enter(&self) -> bool {
        self.presence.store(self.target + 1, Ordering::Relaxed);
        self.light_fence();
        // SYNC(gate-turn) acquire: sees what was done one by one before
        if self.one_by_one.load(Ordering::Acquire) == 0 {
            return true;
        }
        self.leave();
        false
    }

    #[inline]
    pub(crate) fn leave(&self) {
        // SYNC(presence) release: what was combined before it is over
        self.presence.store(0, Ordering::Release);
    }

    /// Whether one passes one by one: a hint without the lock, and true with it.
    #[inline]
    pub(crate) fn is_one_by_one(&self) -> bool {
        self.one_by_one.load(Ordering::Relaxed) != 0
    }

    /// Takes the lock, if it is free.
    #[inline]
    pub(crate) fn try_lock(&self, rank: u32) -> bool {
        self.holder.load(Ordering::Relaxed) == 0
            // SYNC(gate-lock) acquire: sees what the last holder did
            && self.holder.compare_exchange(0, rank + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// With the lock: has everybody pass one by one from now on. Who is inside has to be waited for
    /// afterwards.
    #[cold]
    pub(crate) fn turn(&self) {
        self.one_by_one.store(1, Ordering::Relaxed);
        heavy_fence(self.wakeups);
    }

    /// Whether a rank is still inside.
    pub(crate) fn holds(&self, presence: &AtomicU32) -> bool {
        // SYNC(presence) acquire: sees what it combined
        presence.load(Ordering::Acquire) == self.target + 1
    }

    /// Gives the lock back; whether to wake sleepers.
    #[inline]
    pub(crate) fn unlock(&self, passed: Length) -> bool {
        let shorts = if passed == Length::Short { self.shorts.load(Ordering::Relaxed) + 1 } else { 0 };
        if shorts >= SHORTS {
            // SYNC(gate-turn) release: what was combined one by one, by this holder and those before
            self.one_by_one.store(0, Ordering::Release);
        }
        self.shorts.store(if shorts >= SHORTS { 0 } else { shorts }, Ordering::Relaxed);
        // SYNC(gate-lock) release: what was combined
        self.holder.store(0, Ordering::Release);
        self.light_fence();
        self.sleepers.load(Ordering::Relaxed) != 0
    }

    /// Says that this rank is about to sleep until the lock is free; it has to look once more.
    pub(crate) fn announce_sleeper(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        heavy_fence(self.wakeups);
    }

    #[inline]
    fn light_fence(&self) {
        match self.wakeups {
            // SYNC(gate) light: presence before gate, lock before sleepers; the other's membarrier is the
            // fence here
            Wakeups::Asymmetric(_) => light_fence(),
            // SYNC(gate) fence: as above
            _ => fence(Ordering::SeqCst),
        }
    }
}

fn heavy_fence(wakeups: Wakeups) {
    #[cfg(not(loom))]
    if matches!(wakeups, Wakeups::Asymmetric(_)) && membarrier::fence_all(Scope::Shared).is_ok() {
        // SYNC(gate) fence: membarrier fences wherever a member runs
        return;
    }
    let _ = (wakeups, Scope::Shared);
    // SYNC(gate) fence: gate before presence, sleepers before lock
    fence(Ordering::SeqCst);
}
