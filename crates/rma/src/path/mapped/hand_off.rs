//! Puts of passive epochs to a program's own memory, handed to a target that happens to be in the library.
//!
//! Only the owner can store there without the kernel, whose copy costs a microsecond. But members that lock,
//! put and unlock in turns are in the library all the time. So the origin stages its puts, offers them when
//! it has to complete them, and polls for about as long as the kernel would take. A member looks for offers
//! whenever it begins or ends a passive epoch. If the target does not take an offer, the origin revokes it,
//! and the kernel copies after all. If the target has taken it, the origin waits.
//!
//! ```text
//!   origin                                target
//!   entries                               offered? claim it: compare-and-swap
//!   offered := how far (release)          apply the entries
//!   given back? done (acquire)            given back := how far (release)
//!   too long: revoke it: compare-and-swap
//!     revoked: the kernel copies; claimed: wait on
//! ```
//! No origin waits for a target that computes: a target claims an offer only in the call in which it applies
//! it. Before an origin does another operation at the target by itself, or ends the epoch, it settles the
//! offer, so that its operations stay in order. Cost: three cache lines travel in place of a system call; if
//! a target is never in the library, one offer in 33 epochs is in vain. When not to use: where members
//! outnumber processors, or in a job of many members, in which the search for offers costs more than it
//! gains.

use unisono_sync::atomics::{AtomicU32, Ordering};

/// In the low bits of a position, which is a multiple of 16.
const OFFERED: u32 = 1;
const CLAIMED: u32 = 2;

/// The word of an origin's offer to a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfferWord<'a>(pub(crate) &'a AtomicU32);

impl OfferWord<'_> {
    /// Called by the origin: the target may apply everything up to `position`.
    #[inline]
    pub(crate) fn offer(self, position: u32) {
        // SYNC(hand-off) release: the entries before the offer
        self.0.store(position | OFFERED, Ordering::Release);
    }

    /// Called by the origin: takes the offer back. False: the target has claimed it.
    pub(crate) fn revoke(self, position: u32) -> bool {
        // Relaxed is enough: the origin wrote the entries itself, and the target reads them only after an
        // offer.
        self.0.compare_exchange(position | OFFERED, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Called by the target: claims the offer, if there is one and it `is_next`. Returns its position.
    #[inline]
    pub(crate) fn claim(self, is_next: impl FnOnce() -> bool) -> Option<u32> {
        // SYNC(hand-off) acquire: the entries after the offer
        let word = self.0.load(Ordering::Acquire);
        if word & OFFERED == 0 || !is_next() {
            return None;
        }
        let position = word & !OFFERED;
        let claimed = position | CLAIMED;
        // SYNC(hand-off) acquire: as above; it may have been revoked and offered again meanwhile
        self.0
            .compare_exchange(word, claimed, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then_some(position)
    }
}
