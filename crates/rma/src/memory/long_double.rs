//! C's `long double` on x86-64: 80 bits of the x87 unit, in 16 bytes of memory.
//!
//! Rust has no such type, so the unit's own instructions do the arithmetic, one element at a time: some five
//! nanoseconds each. The six bytes of padding stay as they are. When not to use: on other processors, where
//! `long double` has another format and no operation is defined for it (`Operation::is_defined_for`).
//! Reference: System V ABI for AMD64, section 3.1.2; Intel SDM volume 1, chapter 8.

use crate::model::Operation;

/// The number of bytes from one element to the next.
#[cfg(target_arch = "x86_64")]
const SIZE: usize = 16;

/// Combines the element at `source` into the element at `target`.
///
/// # Safety
/// [`SIZE`] bytes are readable at both, and writable at `target`.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn combine(operation: Operation, target: *mut u8, source: *const u8) {
    macro_rules! arithmetic {
        ($instruction:literal) => {
            // SAFETY: ten of the SIZE bytes at `source` and at `target` are read, and ten at `target` are
            // written. The ABI has the unit's stack empty at a call; two values are pushed and two popped.
            unsafe {
                std::arch::asm!(
                    "fld tbyte ptr [{source}]",
                    "fld tbyte ptr [{target}]",
                    $instruction,
                    "fstp tbyte ptr [{target}]",
                    source = in(reg) source,
                    target = in(reg) target,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                    options(nostack),
                );
            }
        };
    }
    match operation {
        Operation::Sum => arithmetic!("faddp st(1), st"),
        Operation::Product => arithmetic!("fmulp st(1), st"),
        Operation::Min | Operation::Max => {
            // SAFETY: SIZE bytes are readable at both.
            let order = unsafe { compare(source, target) };
            let better = match order {
                Some(order) if operation == Operation::Min => order.is_lt(),
                Some(order) => order.is_gt(),
                // One operand is not a number: take the other. SAFETY: SIZE bytes are readable at `target`.
                None => unsafe { compare(target, target) }.is_none(),
            };
            if better {
                // SAFETY: the ten bytes of a value are fewer than the SIZE that are writable at `target`.
                unsafe { std::ptr::copy(source, target, 10) };
            }
        }
        _ => {}
    }
}

/// Compares the elements at `a` and `b`. Returns `None` if at least one is not a number.
///
/// # Safety
/// [`SIZE`] bytes are readable at both.
#[cfg(target_arch = "x86_64")]
unsafe fn compare(a: *const u8, b: *const u8) -> Option<std::cmp::Ordering> {
    let (above, below, unordered): (u8, u8, u8);
    // SAFETY: ten of the SIZE bytes at `a` and at `b` are read. The ABI has the unit's stack empty at a call;
    // two values are pushed and two popped.
    unsafe {
        std::arch::asm!(
            "fld tbyte ptr [{b}]",
            "fld tbyte ptr [{a}]",
            "fucompi st, st(1)",
            "seta {above}",
            "setb {below}",
            "setp {unordered}",
            "fstp st(0)",
            a = in(reg) a,
            b = in(reg) b,
            above = out(reg_byte) above,
            below = out(reg_byte) below,
            unordered = out(reg_byte) unordered,
            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
            options(nostack, readonly),
        );
    }
    (unordered == 0).then(|| above.cmp(&below))
}

/// Combines, as [`combine`] does, complex numbers of two elements each, the real part first.
///
/// # Safety
/// As for [`combine`], with twice [`SIZE`] bytes.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn combine_complex(operation: Operation, target: *mut u8, source: *const u8) {
    // SAFETY: twice SIZE bytes are readable at `target`; arrays of bytes need no alignment.
    let [a, b] = unsafe { target.cast::<Parts>().read() };
    // SAFETY: twice SIZE bytes are readable at `source`.
    let [c, d] = unsafe { source.cast::<Parts>().read() };
    let result = match operation {
        Operation::Sum => [combined(Operation::Sum, a, c), combined(Operation::Sum, b, d)],
        Operation::Product => {
            let mut negative = combined(Operation::Product, b, d);
            // the sign is the uppermost of the ten bytes' bits
            negative[9] ^= 0x80;
            [
                combined(Operation::Sum, combined(Operation::Product, a, c), negative),
                combined(
                    Operation::Sum,
                    combined(Operation::Product, a, d),
                    combined(Operation::Product, b, c),
                ),
            ]
        }
        _ => [a, b],
    };
    // SAFETY: twice SIZE bytes are writable at `target`.
    unsafe { target.cast::<Parts>().write(result) };
}

#[cfg(target_arch = "x86_64")]
type Parts = [[u8; SIZE]; 2];

#[cfg(target_arch = "x86_64")]
fn combined(operation: Operation, mut a: [u8; SIZE], b: [u8; SIZE]) -> [u8; SIZE] {
    // SAFETY: two arrays of the size.
    unsafe { combine(operation, a.as_mut_ptr(), b.as_ptr()) };
    a
}

/// Leaves at `target` the pair (value, then index as an int) with the smaller or greater value; of equal
/// values, the pair with the smaller index.
///
/// # Safety
/// As for [`combine`], with twice [`SIZE`] bytes.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn combine_pair(operation: Operation, target: *mut u8, source: *const u8) {
    use std::cmp::Ordering;
    let index = |of: *const u8| {
        // SAFETY: twice SIZE bytes are readable at both; the int is in the first four bytes behind the value.
        unsafe { of.wrapping_add(SIZE).cast::<i32>().read_unaligned() }
    };
    let better = if operation == Operation::MinLoc { Ordering::Less } else { Ordering::Greater };
    // SAFETY: SIZE bytes are readable at both.
    let taken = match unsafe { compare(source, target) } {
        Some(Ordering::Equal) => index(source) < index(target),
        order => order == Some(better),
    };
    if taken {
        // SAFETY: value and index are the first 20 of twice SIZE bytes, which are writable at `target`.
        unsafe { std::ptr::copy(source, target, SIZE + size_of::<i32>()) };
    }
}

/// Never called: no operation is defined.
///
/// # Safety
/// None needed.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn combine_complex(_operation: Operation, _target: *mut u8, _source: *const u8) {}

/// Never called: no operation is defined.
///
/// # Safety
/// None needed.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn combine_pair(_operation: Operation, _target: *mut u8, _source: *const u8) {}

/// Never called: no operation is defined.
///
/// # Safety
/// None needed.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn combine(_operation: Operation, _target: *mut u8, _source: *const u8) {}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Converts a double to a long double: the same value with more bits.
    fn long(value: f64) -> [u8; SIZE] {
        let mut long = [0xee; SIZE];
        // SAFETY: eight bytes are read and ten written.
        unsafe {
            std::arch::asm!(
                "fld qword ptr [{value}]",
                "fstp tbyte ptr [{long}]",
                value = in(reg) &raw const value,
                long = in(reg) long.as_mut_ptr(),
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        long
    }

    fn combined(operation: Operation, a: [u8; SIZE], b: [u8; SIZE]) -> [u8; SIZE] {
        let mut target = a;
        // SAFETY: two arrays of the size.
        unsafe { combine(operation, target.as_mut_ptr(), b.as_ptr()) };
        target
    }

    proptest! {
        /// Integers of 26 bits: sums and products are exact in either type.
        #[test]
        fn exact_results_are_those_of_doubles(a in -67_108_864_i32..67_108_864, b in -67_108_864_i32..67_108_864) {
            let (a, b) = (f64::from(a), f64::from(b));
            let check = |operation, expected| (combined(operation, long(a), long(b)), long(expected));
            for (operation, expected) in
                [(Operation::Sum, a + b), (Operation::Product, a * b), (Operation::Min, a.min(b)), (Operation::Max, a.max(b))]
            {
                let (is, should) = check(operation, expected);
                prop_assert_eq!(is, should);
            }
        }
    }

    #[test]
    fn more_bits_than_a_double_has_are_kept_and_the_padding_is_left_alone() {
        let tiny = 2_f64.powi(-60);
        let sum = combined(Operation::Sum, long(1.0), long(tiny));
        assert_ne!(sum, long(1.0));
        assert_eq!(combined(Operation::Sum, sum, long(-1.0)), long(tiny));
        assert_eq!(sum[10..], [0xee; 6]);
    }

    #[test]
    fn the_other_operand_is_taken_where_one_is_not_a_number() {
        for operation in [Operation::Min, Operation::Max] {
            assert_eq!(combined(operation, long(f64::NAN), long(2.0)), long(2.0));
            assert_eq!(combined(operation, long(2.0), long(f64::NAN)), long(2.0));
        }
    }
}
