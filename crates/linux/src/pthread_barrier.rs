//! The C library's thread barrier, for comparison: `pthread_barrier_init(3)` and its companions. It blocks at
//! once and never spins.

use std::cell::UnsafeCell;
use std::io;

/// A barrier for threads of this process. Boxed, because the C library may rely on a fixed address.
pub struct PthreadBarrier(Box<UnsafeCell<libc::pthread_barrier_t>>);

// SAFETY: the C library allows every thread of the process to use the barrier.
unsafe impl Send for PthreadBarrier {}
// SAFETY: `wait` is the only use of a shared reference, and the C library allows several threads to call it.
unsafe impl Sync for PthreadBarrier {}

impl PthreadBarrier {
    /// Makes a barrier for `count` threads, at least one.
    pub fn new(count: u32) -> io::Result<Self> {
        // SAFETY: zeroes are a valid value of this plain C union.
        let barrier = Box::new(UnsafeCell::new(unsafe { std::mem::zeroed() }));
        // SAFETY: the barrier is writable memory of the right type, and no attributes are given.
        let code = unsafe { libc::pthread_barrier_init(barrier.get(), std::ptr::null(), count) };
        if code == 0 { Ok(Self(barrier)) } else { Err(io::Error::from_raw_os_error(code)) }
    }

    pub fn wait(&self) -> io::Result<()> {
        // SAFETY: `new` has initialized the barrier, and it lives as long as `self`.
        match unsafe { libc::pthread_barrier_wait(self.0.get()) } {
            0 | libc::PTHREAD_BARRIER_SERIAL_THREAD => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl Drop for PthreadBarrier {
    fn drop(&mut self) {
        // destroy waits for threads that are still leaving; it only fails for an uninitialized barrier
        // SAFETY: `new` has initialized the barrier, and no other reference to it exists.
        unsafe { libc::pthread_barrier_destroy(self.0.get()) };
    }
}

impl std::fmt::Debug for PthreadBarrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PthreadBarrier")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::thread;

    #[test]
    fn nobody_passes_before_all_have_arrived() {
        let barrier = PthreadBarrier::new(3).expect("a barrier");
        let arrived = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for episode in 1..=50 {
                        arrived.fetch_add(1, Relaxed);
                        barrier.wait().expect("passed");
                        assert!(arrived.load(Relaxed) >= 3 * episode);
                        barrier.wait().expect("passed");
                    }
                });
            }
        });
        assert!(PthreadBarrier::new(0).is_err());
    }
}
