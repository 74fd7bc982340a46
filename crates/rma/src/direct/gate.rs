//! The gate of accumulates: short ones pass side by side, long ones alone.
//!
//! A short accumulate combines element by element with the processor's atomic instructions. A long one would
//! be ten times slower that way; it closes the target's gate, waits until everybody inside has left, and
//! combines with vector instructions. The danger is the classic one: one enters while the other closes.
//!
//! ```text
//!   short                             long
//!   presence := target                gate := rank
//!   ---- light fence ----             ---- heavy fence ----
//!   gate closed? leave, wait          presence = target? wait
//! ```
//! Either fence comes first: the short one sees the closed gate, or the long one sees who is inside. The light
//! one is no instruction where membarrier fences for both. Cost: two stores to a line of one's own and a load
//! for a short one; a membarrier (microseconds) for a long one. Checked by `tests/loom.rs`.

use unisono_linux::futex::Scope;
#[cfg(not(loom))]
use unisono_linux::membarrier;
use unisono_sync::Wakeups;
use unisono_sync::atomics::{AtomicU32, Ordering, fence, light_fence};

/// A target's gate, as one rank sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate<'a> {
    /// Zero, or who is inside alone, plus one.
    pub(crate) closed: &'a AtomicU32,
    /// This rank's presence: zero, or at whom it accumulates, plus one.
    pub(crate) presence: &'a AtomicU32,
    pub(crate) target: u32,
    pub(crate) wakeups: Wakeups,
}

impl Gate<'_> {
    /// Enters beside others; whether the gate was open.
    #[inline]
    pub(crate) fn try_enter(&self) -> bool {
        self.presence.store(self.target + 1, Ordering::Relaxed);
        match self.wakeups {
            // SYNC(gate) light: presence before gate; the long one's membarrier is the fence here
            Wakeups::Asymmetric(_) => light_fence(),
            // SYNC(gate) fence: presence before gate
            _ => fence(Ordering::SeqCst),
        }
        // SYNC(gate-word) acquire: sees what the last one alone did
        if self.closed.load(Ordering::Acquire) == 0 {
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

    /// Closes the gate; whether it was open.
    pub(crate) fn try_close(&self, rank: u32) -> bool {
        // SYNC(gate-word) acquire: sees what the last one alone did
        let closed = self.closed.compare_exchange(0, rank + 1, Ordering::Acquire, Ordering::Relaxed);
        if closed.is_err() {
            return false;
        }
        heavy_fence(self.wakeups);
        true
    }

    /// Whether a rank is still inside.
    pub(crate) fn holds(&self, presence: &AtomicU32) -> bool {
        // SYNC(presence) acquire: sees what it combined
        presence.load(Ordering::Acquire) == self.target + 1
    }

    pub(crate) fn open(&self) {
        // SYNC(gate-word) release: what was combined alone
        self.closed.store(0, Ordering::Release);
    }
}

fn heavy_fence(wakeups: Wakeups) {
    #[cfg(not(loom))]
    if matches!(wakeups, Wakeups::Asymmetric(_)) && membarrier::fence_all(Scope::Shared).is_ok() {
        // SYNC(gate) fence: membarrier fences wherever a member runs
        return;
    }
    let _ = (wakeups, Scope::Shared);
    // SYNC(gate) fence: gate before presence
    fence(Ordering::SeqCst);
}
