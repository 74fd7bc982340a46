//! Passive operations on a user's memory, handed to a target that happens to be in the library.
//!
//! Nobody but its owner can store there without the kernel, whose copy costs a microsecond. But members that
//! lock, put and unlock in turns are in the library all the time. So the origin stages its puts, offers them
//! when it has to complete them, and polls for about as long as the kernel would take; whoever begins or ends
//! a passive epoch looks for offers. An offer that nobody took is revoked, and the kernel copies after all;
//! one that was taken is waited for.
//!
//! ```text
//!   origin                                target
//!   entries                               offered? claim it: compare-and-swap
//!   offered := how far (release)          apply the entries
//!   given back? done (acquire)            given back := how far (release)
//!   too long: revoke it: compare-and-swap
//!     revoked: the kernel copies; claimed: wait on
//! ```
//! Nothing waits for a target that is elsewhere: it can claim only what it applies in the same call. Who
//! begins another operation at the target itself, or ends the epoch, settles first, so that the order of one
//! origin's operations stays. Cost: three lines that travel, instead of a system call; once in 33 epochs an
//! offer in vain where a target is elsewhere. When not to use: where members outnumber processors, or so many
//! members that looking for offers costs more than it brings.

use unisono_sync::atomics::{AtomicU32, Ordering};

/// In the low bits of a position, which is a multiple of 16.
const OFFERED: u32 = 1;
const CLAIMED: u32 = 2;

/// The word of an origin's offer to a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfferWord<'a>(pub(crate) &'a AtomicU32);

impl OfferWord<'_> {
    /// The origin's: everything up to `position` may be applied by the target.
    #[inline]
    pub(crate) fn offer(self, position: u32) {
        // SYNC(hand-off) release: the entries before the offer
        self.0.store(position | OFFERED, Ordering::Release);
    }

    /// The origin's: takes the offer back; whether that was possible.
    pub(crate) fn revoke(self, position: u32) -> bool {
        // The entries are the origin's own: whoever reads them later does so after another offer.
        self.0.compare_exchange(position | OFFERED, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The target's: takes an offer, if there is one and it `is_next`; up to which position.
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
