//! The atomics facade: the standard library's, or loom's under `--cfg loom`.
//!
//! Protocol code names only this module, so that the code that runs is the code that was checked. Two
//! functions differ in kind: [`pause`] yields to the model checker's scheduler, and [`light_fence`], which
//! is only a compiler fence on the machine (its partner calls membarrier), is a full fence in a model,
//! because loom has no membarrier.

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

/// The frequent side of an asymmetric handshake: keeps the compiler from reordering, costs nothing.
#[inline]
pub fn light_fence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}
