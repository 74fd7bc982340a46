//! The atomics and clocks of the protocols: the machine's or, under `--cfg loom`, the model checker's.
//!
//! Protocol code uses only this module, so the model checker checks the code that runs. Three things differ
//! in a model. [`pause`] and [`yield_now`] yield to the model checker. [`light_fence`] is a full fence,
//! because loom has no membarrier; on the machine it is a compiler fence whose partner calls membarrier. The
//! clocks [`now`] and [`ticks`] stand still.

use unisono_linux::clock::{self, Instant, Ticks};

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
pub fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// Executes the fence of the frequent side of an asymmetric handshake. The fence stops the compiler from
/// reordering, and costs no instruction.
#[inline]
pub fn light_fence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Reads `CLOCK_MONOTONIC`; in a model time does not pass.
pub fn now() -> Instant {
    if cfg!(loom) { Instant::ZERO } else { clock::now() }
}

/// Reads the cheapest clock; in a model time does not pass.
#[inline]
pub fn ticks() -> Ticks {
    if cfg!(loom) { Ticks(0) } else { clock::ticks() }
}
