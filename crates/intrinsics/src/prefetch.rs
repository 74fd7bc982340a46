//! Prefetching of memory that will be needed soon.

/// Asks the processor to bring the first bytes of a value into its cache, and does not wait for them. Has no
/// other effect. Does nothing on processors other than x86-64.
#[inline(always)]
pub fn prefetch<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching reads and writes nothing that the program can see, at any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}

/// Prefetches a value that will be written: like [`prefetch`], but takes the line from the other processors'
/// caches.
#[inline(always)]
pub fn prefetch_to_write<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching reads and writes nothing that the program can see, at any address; a processor
    // without this instruction treats it as a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) std::ptr::from_ref(what),
            options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    prefetch(what);
}
