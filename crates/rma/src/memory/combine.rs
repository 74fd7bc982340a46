//! Combining data element by element: the arithmetic of accumulates, not atomic by itself.
//!
//! The idea: one loop for each operation and type, over unaligned addresses; the compiler vectorizes it.
//! Integers wrap. If one operand of a minimum or maximum of floats is NaN, the result is the other operand.
//! The caller makes sure that no other thread combines into the same memory meanwhile (by a lock, one thread,
//! or the gate of the mapped path). Cost: memory speed for long data. Reference: MPI-4.0 section 6.9.2.

use crate::memory::long_double;
use crate::model::{Element, Operation};

/// Combines `bytes` (a multiple of the element's size) of `source` into `target`.
///
/// # Safety
/// `target` is readable and writable, `source` readable, for `bytes`; they do not overlap, or are equal. The
/// operation is defined for the element.
pub(crate) unsafe fn combine(
    element: Element,
    operation: Operation,
    target: *mut u8,
    source: *const u8,
    bytes: usize,
) {
    let count = bytes / element.size();
    match operation {
        Operation::NoOp => {}
        // SAFETY: the caller promises that `bytes` are readable and writable.
        Operation::Replace => unsafe { std::ptr::copy(source, target, bytes) },
        #[cfg(target_arch = "x86_64")]
        // Below four vectors of 64 bytes, the check for the features costs more than wider vectors gain.
        _ if bytes >= 256 && has_widest() => {
            // SAFETY: the line above has checked the features that the function is compiled for.
            unsafe { dispatch_widest(element, operation, target, source, count) };
        }
        #[cfg(target_arch = "x86_64")]
        _ if bytes >= 64 && std::arch::is_x86_feature_detected!("avx2") => {
            // SAFETY: the line above has checked the features that the function is compiled for.
            unsafe { dispatch_wide(element, operation, target, source, count) };
        }
        _ => dispatch(element, operation, target, source, count),
    }
}

/// Does the same as [`dispatch`], compiled for vectors of 32 bytes. The results are the same to the bit,
/// because no operations are fused.
///
/// # Safety
/// The processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dispatch_wide(element: Element, operation: Operation, t: *mut u8, s: *const u8, n: usize) {
    dispatch(element, operation, t, s, n);
}

/// Whether the processor has vectors of 64 bytes, for elements of every size.
#[cfg(target_arch = "x86_64")]
fn has_widest() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl")
}

/// Does the same as [`dispatch`], compiled for vectors of 64 bytes, with the same results to the bit.
///
/// # Safety
/// The processor has the features that [`has_widest`] checks.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn dispatch_widest(element: Element, operation: Operation, t: *mut u8, s: *const u8, n: usize) {
    dispatch(element, operation, t, s, n);
}

/// Applies `f` to each pair of elements.
#[inline(always)]
fn combine_elements<T: Copy>(target: *mut u8, source: *const u8, count: usize, f: impl Fn(T, T) -> T) {
    let (target, source) = (target.cast::<T>(), source.cast::<T>());
    for index in 0..count {
        let (there, brought) = (target.wrapping_add(index), source.wrapping_add(index));
        // SAFETY: `combine`'s caller promises `count` readable elements.
        let a = unsafe { there.read_unaligned() };
        // SAFETY: `combine`'s caller promises `count` readable elements.
        let b = unsafe { brought.read_unaligned() };
        // SAFETY: `combine`'s caller promises `count` writable elements, too.
        unsafe { there.write_unaligned(f(a, b)) };
    }
}

macro_rules! integers {
    ($type:ty, $operation:expr, $target:expr, $source:expr, $count:expr) => {{
        let (t, s, n) = ($target, $source, $count);
        match $operation {
            Operation::Sum => combine_elements::<$type>(t, s, n, <$type>::wrapping_add),
            Operation::Product => combine_elements::<$type>(t, s, n, <$type>::wrapping_mul),
            Operation::Min => combine_elements::<$type>(t, s, n, Ord::min),
            Operation::Max => combine_elements::<$type>(t, s, n, Ord::max),
            Operation::LogicalAnd => {
                combine_elements::<$type>(t, s, n, |a, b| <$type>::from(a != 0 && b != 0))
            }
            Operation::LogicalOr => {
                combine_elements::<$type>(t, s, n, |a, b| <$type>::from(a != 0 || b != 0))
            }
            Operation::LogicalXor => {
                combine_elements::<$type>(t, s, n, |a, b| <$type>::from((a != 0) != (b != 0)))
            }
            Operation::BitAnd => combine_elements::<$type>(t, s, n, |a, b| a & b),
            Operation::BitOr => combine_elements::<$type>(t, s, n, |a, b| a | b),
            Operation::BitXor => combine_elements::<$type>(t, s, n, |a, b| a ^ b),
            _ => {}
        }
    }};
}

macro_rules! reals {
    ($type:ty, $operation:expr, $target:expr, $source:expr, $count:expr) => {{
        let (t, s, n) = ($target, $source, $count);
        match $operation {
            Operation::Sum => combine_elements::<$type>(t, s, n, |a, b| a + b),
            Operation::Product => combine_elements::<$type>(t, s, n, |a, b| a * b),
            Operation::Min => combine_elements::<$type>(t, s, n, <$type>::min),
            Operation::Max => combine_elements::<$type>(t, s, n, <$type>::max),
            _ => {}
        }
    }};
}

macro_rules! complexes {
    ($type:ty, $operation:expr, $target:expr, $source:expr, $count:expr) => {{
        let (t, s, n) = ($target, $source, $count);
        match $operation {
            Operation::Sum => combine_elements::<$type>(t, s, 2 * n, |a, b| a + b),
            Operation::Product => {
                combine_elements::<[$type; 2]>(t, s, n, |[a, b], [c, d]| [a * c - b * d, a * d + b * c])
            }
            _ => {}
        }
    }};
}

/// Combines pairs of a value and an index, which have the padding of a struct in C.
macro_rules! pairs {
    ($value:ty, $index:ty, $operation:expr, $target:expr, $source:expr, $count:expr) => {{
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct Pair {
            value: $value,
            index: $index,
        }
        let (t, s, n) = ($target, $source, $count);
        let choose = |a: Pair, b: Pair, better: bool| {
            let smaller = if b.index < a.index { b } else { a };
            if better {
                b
            } else if a.value == b.value {
                smaller
            } else {
                a
            }
        };
        match $operation {
            Operation::MinLoc => combine_elements::<Pair>(t, s, n, |a, b| choose(a, b, b.value < a.value)),
            Operation::MaxLoc => combine_elements::<Pair>(t, s, n, |a, b| choose(a, b, b.value > a.value)),
            _ => {}
        }
    }};
}

#[inline(always)]
fn dispatch(element: Element, operation: Operation, t: *mut u8, s: *const u8, n: usize) {
    match element {
        Element::Byte | Element::U8 => integers!(u8, operation, t, s, n),
        Element::I8 => integers!(i8, operation, t, s, n),
        Element::I16 => integers!(i16, operation, t, s, n),
        Element::I32 => integers!(i32, operation, t, s, n),
        Element::I64 => integers!(i64, operation, t, s, n),
        Element::U16 => integers!(u16, operation, t, s, n),
        Element::U32 => integers!(u32, operation, t, s, n),
        Element::U64 => integers!(u64, operation, t, s, n),
        Element::F32 => reals!(f32, operation, t, s, n),
        Element::F64 => reals!(f64, operation, t, s, n),
        Element::Complex32 => complexes!(f32, operation, t, s, n),
        Element::Complex64 => complexes!(f64, operation, t, s, n),
        // Any nonzero byte is true, so that no byte is an invalid bool.
        Element::Bool => integers!(u8, operation, t, s, n),
        Element::F32Int => pairs!(f32, i32, operation, t, s, n),
        Element::F64Int => pairs!(f64, i32, operation, t, s, n),
        Element::IntInt => pairs!(i32, i32, operation, t, s, n),
        Element::LongInt => pairs!(i64, i32, operation, t, s, n),
        Element::ShortInt => pairs!(i16, i32, operation, t, s, n),
        Element::F32F32 => pairs!(f32, f32, operation, t, s, n),
        Element::F64F64 => pairs!(f64, f64, operation, t, s, n),
        Element::LongDouble | Element::ComplexLong | Element::LongDoubleInt => {
            let one = match element {
                Element::LongDouble => long_double::combine,
                Element::ComplexLong => long_double::combine_complex,
                _ => long_double::combine_pair,
            };
            for at in (0..n).map(|index| index * element.size()) {
                // SAFETY: `combine`'s caller promises `n` elements at both.
                unsafe { one(operation, t.wrapping_add(at), s.wrapping_add(at)) };
            }
        }
        // these have only replace and no-op, and `combine` handles both before it comes here
        Element::Bits128 | Element::Bits256 => {}
    }
}

/// Stores the value at `target` in `result`, and writes `new` to `target` if that value equals `compare`.
///
/// # Safety
/// `size` bytes at `target` are readable and writable.
pub(crate) unsafe fn compare_and_swap(target: *mut u8, compare: &[u8], new: &[u8], result: &mut [u8]) {
    let size = result.len();
    // SAFETY: the caller promises that `target` is readable; `result` is a slice of this length.
    unsafe { std::ptr::copy(target, result.as_mut_ptr(), size) };
    if result == compare {
        // SAFETY: the caller promises that `target` is writable; indexing panics if `new` is shorter.
        unsafe { std::ptr::copy(new[..size].as_ptr(), target, size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combined<T: Copy, const N: usize>(
        element: Element,
        operation: Operation,
        a: [T; N],
        b: [T; N],
    ) -> [T; N] {
        let mut target = a;
        // SAFETY: two arrays of this function with the same length.
        unsafe {
            combine(element, operation, target.as_mut_ptr().cast(), b.as_ptr().cast(), size_of_val(&b));
        }
        target
    }

    #[test]
    fn numbers_are_combined_as_the_standard_says() {
        use Operation as O;
        assert_eq!(combined(Element::I32, O::Sum, [1, i32::MAX], [2, 1]), [3, i32::MIN]);
        assert_eq!(combined(Element::U8, O::Max, [1_u8, 200], [2, 1]), [2, 200]);
        assert_eq!(combined(Element::I8, O::Min, [-1_i8, 100], [2, 1]), [-1, 1]);
        assert_eq!(combined(Element::I64, O::LogicalXor, [5_i64, 0], [7, 7]), [0, 1]);
        assert_eq!(combined(Element::U16, O::BitXor, [5_u16], [1]), [4]);
        assert_eq!(combined(Element::F64, O::Product, [1.5_f64], [2.0]), [3.0]);
        assert_eq!(combined(Element::F32, O::Min, [f32::NAN], [2.0]), [2.0]);
        assert_eq!(combined(Element::Complex64, O::Product, [0.0_f64, 1.0], [0.0, 1.0]), [-1.0, 0.0]);
        assert_eq!(combined(Element::Bool, O::LogicalAnd, [1_u8, 1], [1, 0]), [1, 0]);
        assert_eq!(combined(Element::I32, O::Replace, [1], [2]), [2]);
        assert_eq!(combined(Element::I32, O::NoOp, [1], [2]), [1]);
    }

    #[test]
    fn the_index_of_the_extreme_is_found_and_the_smaller_index_of_equal_ones() {
        let (min, max) = (Operation::MinLoc, Operation::MaxLoc);
        assert_eq!(combined(Element::IntInt, min, [5, 1, 7, 9], [4, 2, 7, 3]), [4, 2, 7, 3]);
        assert_eq!(combined(Element::IntInt, max, [5, 1, 7, 3], [4, 2, 7, 9]), [5, 1, 7, 3]);
    }
}
