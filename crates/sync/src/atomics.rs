//! What a model replaces: the atomics (the standard library's, or loom's under `--cfg loom`) and the clocks.
//!
//! Protocol code names only this module, so that the code that runs is the code that was checked. Some
//! functions differ in kind: [`pause`] and [`give_way`] yield to the model checker's scheduler;
//! [`light_fence`], which is only a compiler fence on the machine (its partner calls membarrier), is a full
//! fence in a model, because loom has no membarrier; and the clocks [`now`] and [`ticks`] stand still in a
//! model.

use unisono_linux::clock::{self, Nanos, Ticks};

#[cfg(loom)]
pub use loom::sync::Arc;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::Arc;
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Tells the processor, or the model, that this thread only waits.
#[inline]
pub fn pause() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

/// Lets another runnable thread have the core.
pub fn give_way() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// The frequent side of an asymmetric handshake: keeps the compiler from reordering, costs nothing.
#[inline]
pub fn light_fence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Now on `CLOCK_MONOTONIC`; in a model time does not pass.
#[must_use]
pub fn now() -> Nanos {
    if cfg!(loom) { Nanos::ZERO } else { clock::now() }
}

/// Now by the cheapest clock; in a model time does not pass.
#[inline]
#[must_use]
pub fn ticks() -> Ticks {
    if cfg!(loom) { Ticks(0) } else { clock::ticks() }
}
