//! Memory that will be needed soon.

/// Asks the processor to bring the first bytes of something into its cache, and does not wait for them.
/// Changes nothing else; where the processor cannot be asked, nothing at all.
#[inline(always)]
pub fn prefetch<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching reads and writes nothing the program can see, at any address
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}
