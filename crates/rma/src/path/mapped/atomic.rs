//! Combining element by element with the processor's atomic instructions.
//!
//! This works for elements of 1, 2, 4 or 8 bytes at aligned addresses. Sums of integers, bitwise operations,
//! replace and no-op use the atomic operation of that kind; all others use a compare-and-swap loop around
//! [`combine`]. Cost: at least one atomic instruction for each element, 5 to 8 ns if this processor's cache
//! holds the line.

use crate::memory::combine::combine;
use crate::model::{Element, Operation};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Whether elements at `address` can be combined by atomic instructions.
#[inline]
pub(super) fn is_possible(element: Element, address: *const u8) -> bool {
    let size = element.size();
    size <= 8 && (address as usize).is_multiple_of(size)
}

/// Whether these elements are integers, whose sum is the processor's addition of words.
const fn is_integer(element: Element) -> bool {
    matches!(
        element,
        Element::I8
            | Element::I16
            | Element::I32
            | Element::I64
            | Element::U8
            | Element::U16
            | Element::U32
            | Element::U64
            | Element::Byte
    )
}

macro_rules! each {
    ($atomic:ty, $word:ty, $element:expr, $operation:expr, $target:expr, $source:expr, $count:expr, $result:expr) => {{
        for index in 0..$count {
            let address = $target.cast::<$word>().wrapping_add(index);
            // SAFETY: `accumulate`'s caller promises aligned, valid window memory.
            let there = unsafe { <$atomic>::from_ptr(address) };
            let brought = $source.cast::<$word>().wrapping_add(index);
            // SAFETY: `accumulate`'s caller promises that the source is readable.
            let value = unsafe { brought.read_unaligned() };
            // Accumulates need no ordering with other accesses, because the epochs order them.
            let before = match $operation {
                Operation::Sum if is_integer($element) => there.fetch_add(value, Ordering::Relaxed),
                Operation::Replace => there.swap(value, Ordering::Relaxed),
                Operation::NoOp => there.load(Ordering::Relaxed),
                Operation::BitAnd => there.fetch_and(value, Ordering::Relaxed),
                Operation::BitOr => there.fetch_or(value, Ordering::Relaxed),
                Operation::BitXor => there.fetch_xor(value, Ordering::Relaxed),
                _ => {
                    let mut seen = there.load(Ordering::Relaxed);
                    loop {
                        let mut next = seen;
                        let (into, from) = ((&raw mut next).cast::<u8>(), (&raw const value).cast::<u8>());
                        // SAFETY: two words of this function, one element each.
                        unsafe { combine($element, $operation, into, from, size_of::<$word>()) };
                        match there.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed) {
                            Ok(before) => break before,
                            Err(now) => seen = now,
                        }
                    }
                }
            };
            if !$result.is_null() {
                let back = $result.cast::<$word>().wrapping_add(index);
                // SAFETY: `accumulate`'s caller promises that the result is writable.
                unsafe { back.write_unaligned(before) };
            }
        }
    }};
}

/// Combines `bytes` of `source` into `target`, and stores the old values in `result`, unless it is null.
///
/// # Safety
/// [`is_possible`] holds, `target` is valid for atomic access and `source` and `result` for `bytes` bytes;
/// the operation is defined for the element.
#[inline]
pub(super) unsafe fn accumulate(
    element: Element,
    operation: Operation,
    target: *mut u8,
    source: *const u8,
    result: *mut u8,
    bytes: usize,
) {
    let count = bytes / element.size();
    match element.size() {
        1 => each!(AtomicU8, u8, element, operation, target, source, count, result),
        2 => each!(AtomicU16, u16, element, operation, target, source, count, result),
        4 => each!(AtomicU32, u32, element, operation, target, source, count, result),
        _ => each!(AtomicU64, u64, element, operation, target, source, count, result),
    }
}

/// Writes `new` if `target` holds `compare`, and returns the old value. `compare`, `new` and the result are
/// the low bytes of a word.
///
/// # Safety
/// [`is_possible`] holds, and `target` is valid for atomic access.
#[inline]
pub(super) unsafe fn compare_and_swap(element: Element, target: *mut u8, compare: u64, new: u64) -> u64 {
    macro_rules! swap {
        ($atomic:ty, $word:ty) => {{
            // SAFETY: the caller promises that the target is valid for atomic access.
            let there = unsafe { <$atomic>::from_ptr(target.cast()) };
            let (compare, new) = (compare as $word, new as $word);
            // programs build locks with it, so it orders memory
            // SYNC(window-cas) release: publishes the origin's writes before
            // SYNC(window-cas) acquire: sees the writes of the previous rank that swapped
            let before = there.compare_exchange(compare, new, Ordering::AcqRel, Ordering::Acquire);
            u64::from(before.unwrap_or_else(|seen| seen))
        }};
    }
    match element.size() {
        1 => swap!(AtomicU8, u8),
        2 => swap!(AtomicU16, u16),
        4 => swap!(AtomicU32, u32),
        _ => swap!(AtomicU64, u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn atomically_and_plainly_the_same_comes_out(
            there in any::<[u64; 3]>(),
            brought in any::<[u64; 3]>(),
            element in proptest::sample::select(&Element::ALL[..]),
            operation in proptest::sample::select(&Operation::ALL[..]),
        ) {
            let (mut plain, mut atomic, mut before) = (there, there, [0_u64; 3]);
            let source = brought.as_ptr().cast::<u8>();
            prop_assume!(is_possible(element, atomic.as_ptr().cast()) && operation.is_defined_for(element));
            // SAFETY: arrays of this function with equal length.
            unsafe { combine(element, operation, plain.as_mut_ptr().cast(), source, 24) };
            // SAFETY: arrays of this function with equal length, aligned for any element.
            unsafe {
                let (target, result) = (atomic.as_mut_ptr().cast(), before.as_mut_ptr().cast());
                accumulate(element, operation, target, source, result, 24);
            }
            prop_assert_eq!(atomic, plain);
            prop_assert_eq!(before, there);
        }
    }
}
