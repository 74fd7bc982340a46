//! The gate of accumulates: accumulates of a few elements run at the same time, longer ones one after the
//! other. The gate stays in one state until accumulates of the other kind are frequent.
//!
//! A rank can combine elements with the processor's atomic instructions; any number of ranks may do so at
//! the same time, at 5 to 8 ns for each element. Or it combines them with vector instructions at memory
//! speed, one rank at a time behind a lock. The two do not mix. The idea comes from biased locks: as long as
//! all accumulates are single elements, every rank passes without a lock. The first longer accumulate turns
//! the gate round: its rank takes the lock, sets a flag, and waits until every rank inside has left. From
//! then on every rank takes the lock, until [`SHORTS`] single elements in a row have come. The danger is that
//! a rank enters while another turns the gate:
//!
//! ```text
//!   side by side                      turns it round (has the lock)
//!   presence := target                one by one := yes
//!   ---- light fence ----             ---- heavy fence ----
//!   one by one? leave, take the lock  presence = target? wait
//! ```
//! The two fences have an order. So either the entering rank sees that the gate has turned, or the other rank
//! sees the entering rank inside. Where membarrier(2) executes the fence for both sides, the light fence is
//! no instruction. To turn the gate back needs no fence: while the lock is held no rank is inside, and the
//! next holder of the lock checks the flag again.
//!
//! Cost: side by side two stores to the rank's own line and a load; one by one a compare-and-swap and a
//! store; for each turn to one by one a membarrier (about 2 us), at most once in [`SHORTS`] short
//! accumulates. Checked by `tests/loom.rs`. Reference: Russell, Detlefs, "Eliminating synchronization-related
//! atomic operations with biased locking and bulk rebiasing", OOPSLA 2006.

use unisono_linux::futex::Scope;
#[cfg(not(loom))]
use unisono_linux::membarrier;
use unisono_sync::Wakeups;
use unisono_sync::atomics::{AtomicU32, Ordering, fence, light_fence};

/// The number of single elements in a row after which the gate turns back. Turning the gate again costs a
/// membarrier, about 2 us, the time of 64 KB without a gate: after 1,024 elements of 30 ns that is 7 % of
/// their time at worst, when programs alternate so that each turn is in vain. With half of this number it is
/// 13 %; with twice the number a phase of single elements runs behind the lock for longer than the turn would
/// have cost.
#[cfg(not(loom))]
const SHORTS: u32 = 1024;
#[cfg(loom)]
const SHORTS: u32 = 1;

/// A target's gate, from the view of one rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetGate<'a> {
    /// Nonzero: ranks pass one by one, with the lock.
    pub(crate) one_by_one: &'a AtomicU32,
    /// The lock: zero, or the rank of its holder plus one.
    pub(crate) holder: &'a AtomicU32,
    /// The number of ranks that sleep until the lock is free.
    pub(crate) sleepers: &'a AtomicU32,
    /// The number of single elements in a row that passed one by one. Only the holder of the lock accesses
    /// it.
    pub(crate) shorts: &'a AtomicU32,
    /// This rank's presence: zero, or the target of its side-by-side accumulate, plus one.
    pub(crate) presence: &'a AtomicU32,
    pub(crate) target: u32,
    pub(crate) wakeups: Wakeups,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccumulateLength {
    Short,
    Long,
}

impl TargetGate<'_> {
    /// Enters side by side with others. Returns false if the gate has turned.
    #[inline]
    pub(crate) fn try_enter(&self) -> bool {
        self.presence.store(self.target + 1, Ordering::Relaxed);
        self.light_fence();
        // SYNC(gate-turn) acquire: sees the earlier accumulates that passed one by one
        if self.one_by_one.load(Ordering::Acquire) == 0 {
            return true;
        }
        self.leave();
        false
    }

    #[inline]
    pub(crate) fn leave(&self) {
        // SYNC(presence) release: publishes this rank's accumulates before it leaves
        self.presence.store(0, Ordering::Release);
    }

    /// Whether ranks pass one by one. Without the lock this is a hint; with the lock it is exact.
    #[inline]
    pub(crate) fn is_one_by_one(&self) -> bool {
        self.one_by_one.load(Ordering::Relaxed) != 0
    }

    /// Takes the lock, if it is free.
    #[inline]
    pub(crate) fn try_lock(&self, rank: u32) -> bool {
        self.holder.load(Ordering::Relaxed) == 0
            // SYNC(gate-lock) acquire: sees the last holder's accumulates
            && self.holder.compare_exchange(0, rank + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Makes ranks pass one by one from now on. Only the holder of the lock calls this, and then waits for
    /// the ranks inside.
    #[cold]
    pub(crate) fn turn(&self) {
        self.one_by_one.store(1, Ordering::Relaxed);
        heavy_fence(self.wakeups);
    }

    /// Whether the rank with this presence is still inside.
    pub(crate) fn holds(&self, presence: &AtomicU32) -> bool {
        // SYNC(presence) acquire: sees the accumulates of a rank that has left
        presence.load(Ordering::Acquire) == self.target + 1
    }

    /// Releases the lock. Returns whether the caller has to wake sleepers.
    #[inline]
    pub(crate) fn unlock(&self, passed: AccumulateLength) -> bool {
        let shorts =
            if passed == AccumulateLength::Short { self.shorts.load(Ordering::Relaxed) + 1 } else { 0 };
        if shorts >= SHORTS {
            // SYNC(gate-turn) release: publishes the accumulates of this holder and of those before it
            self.one_by_one.store(0, Ordering::Release);
        }
        self.shorts.store(if shorts >= SHORTS { 0 } else { shorts }, Ordering::Relaxed);
        // SYNC(gate-lock) release: publishes this holder's accumulates
        self.holder.store(0, Ordering::Release);
        self.light_fence();
        self.sleepers.load(Ordering::Relaxed) != 0
    }

    /// Announces that this rank is about to sleep until the lock is free. The rank has to try once more after
    /// this call and before it sleeps.
    pub(crate) fn announce_sleeper(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        heavy_fence(self.wakeups);
    }

    #[inline]
    fn light_fence(&self) {
        match self.wakeups {
            // SYNC(gate) light: presence is written before the gate is read, and the lock before the
            // sleepers; the other side's membarrier is the fence here
            Wakeups::Asymmetric(_) => light_fence(),
            // SYNC(gate) fence: as above
            _ => fence(Ordering::SeqCst),
        }
    }
}

fn heavy_fence(wakeups: Wakeups) {
    #[cfg(not(loom))]
    if matches!(wakeups, Wakeups::Asymmetric(_)) && membarrier::fence_all(Scope::Shared).is_ok() {
        // SYNC(gate) fence: membarrier runs a fence on each CPU that runs a member
        return;
    }
    let _ = (wakeups, Scope::Shared);
    // SYNC(gate) fence: the gate is written before presence is read, and the sleepers before the lock
    fence(Ordering::SeqCst);
}
