//! The lock of a window's part: one word, shared or exclusive, with sleepers.
//!
//! ```text
//!   bit 31       held exclusively; bits 0 to 11 then are the rank of the holder
//!   bit 30       a rank sleeps, or is about to
//!   bits 0 to 12 number of ranks that hold it shared
//! ```
//! Without contention a compare-and-swap takes the lock and one atomic operation releases it. A rank that
//! finds it held sets the sleepers' bit by a compare-and-swap and sleeps while the word stays as it is: a
//! release in between changes the word, and the kernel refuses the sleep. The last holder clears the bit and
//! wakes all sleepers. While ranks sleep, a new shared request does not join the holders but sleeps, too, so
//! that an exclusive request does not starve.
//!
//! Cost: two atomic operations on one line. `tests/loom.rs` checks this file itself.

use unisono_sync::atomics::{AtomicU32, Ordering};

/// The number of polls of a held lock before a sleep, here and at the gate of accumulates, if there is a
/// processor for every member. With a `pause` of 20 to 140 cycles they take 2 to 10 us, the time in which a
/// running holder does a few short operations. Chosen, not measured: a wake-up costs 28 to 60 us
/// (`unisono_sync::SpinBudget`), so ten times as many polls would still pay where holders release the lock
/// quickly, and would waste processor time where they do not.
pub(super) const POLLS: u32 = 200;

const EXCLUSIVE: u32 = 1 << 31;
const SLEEPERS: u32 = 1 << 30;
const COUNT: u32 = (1 << 13) - 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LockWord<'a>(pub(crate) &'a AtomicU32);

/// The next step of a rank that may not have the lock yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    Taken,
    /// Sleep while the word has this value.
    Sleep(u32),
    Again,
}

impl LockWord<'_> {
    #[inline]
    pub(crate) fn try_exclusive(self, rank: u32) -> bool {
        // SYNC(window-lock) acquire: sees the last holder's writes
        self.0.compare_exchange(0, EXCLUSIVE | rank, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    pub(crate) fn try_shared(self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word & (EXCLUSIVE | SLEEPERS) == 0
            // SYNC(window-lock) acquire: sees the last exclusive holder's writes
            && self.0.compare_exchange(word, word + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Makes one step of taking a contended lock. `slept` says whether this rank has already slept for the
    /// lock.
    #[cold]
    pub(crate) fn attempt(self, exclusive: Option<u32>, slept: bool) -> Attempt {
        let word = self.0.load(Ordering::Relaxed);
        let next = match exclusive {
            Some(rank) if word & !SLEEPERS == 0 => Some(word | EXCLUSIVE | rank),
            None if word & EXCLUSIVE == 0 && (slept || word & SLEEPERS == 0 || word & COUNT == 0) => {
                Some(word + 1)
            }
            _ => None,
        };
        if let Some(next) = next {
            // SYNC(window-lock) acquire: as above
            let taken = self.0.compare_exchange(word, next, Ordering::Acquire, Ordering::Relaxed);
            return if taken.is_ok() { Attempt::Taken } else { Attempt::Again };
        }
        let marked = word | SLEEPERS;
        let marks = word == marked
            || self.0.compare_exchange(word, marked, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if marks { Attempt::Sleep(marked) } else { Attempt::Again }
    }

    /// Releases an exclusive lock. Returns whether the caller has to wake the sleepers.
    #[inline]
    pub(crate) fn release_exclusive(self) -> bool {
        // SYNC(window-lock) release: publishes this holder's writes
        self.0.swap(0, Ordering::Release) & SLEEPERS != 0
    }

    /// Releases a shared lock. Returns whether the caller has to wake the sleepers.
    #[inline]
    pub(crate) fn release_shared(self) -> bool {
        // SYNC(window-lock) release: publishes this holder's writes
        let before = self.0.fetch_sub(1, Ordering::Release);
        before & COUNT == 1
            && before & SLEEPERS != 0
            // If another rank has taken the lock meanwhile, that rank will wake them.
            && self.0.compare_exchange(SLEEPERS, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
