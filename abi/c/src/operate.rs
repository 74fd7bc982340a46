//! The communication calls: put, get, accumulate and their kin, with and without requests.
//!
//! Common to all: they are issued inside an access epoch to the target, and are complete at the origin
//! (buffers may be used again, results have come) after the call that ends the epoch, a flush, or the
//! request's wait. `place` counts the target's units from its base, or is an address in a dynamic window.

use crate::error::{Status, answer, argument, null, rank};
use crate::layout::{LayoutHandle, element, layout};
use crate::request::{self, RequestHandle};
use crate::window::{WindowHandle, window};
use std::ffi::{c_int, c_void};
use unisono_rma::{Element, Error, Layout, Operation, Sink, Source, Target};

/// The predefined operations.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationCode {
    Sum = 1,
    Product = 2,
    Min = 3,
    Max = 4,
    /// Both nonzero: 1, else 0.
    LogicalAnd = 5,
    LogicalOr = 6,
    /// Exactly one nonzero.
    LogicalXor = 7,
    BitAnd = 8,
    BitOr = 9,
    /// Bitwise exclusive or.
    BitXor = 10,
    /// What is brought.
    Replace = 11,
    /// What is there; for get_accumulate and fetch_and_op.
    NoOp = 12,
    /// The pair with the smaller value; of equal ones the smaller place.
    MinLoc = 13,
    /// The pair with the greater value; of equal ones the smaller place.
    MaxLoc = 14,
}

fn operation(code: c_int) -> Result<Operation, Error> {
    let known = u8::try_from(code).ok().and_then(Operation::from_code);
    known.ok_or_else(|| argument(format!("{code} is no unisono_operation")))
}

/// Whether there is data, but no memory for it. A layout of runs may count from NULL: its offsets are
/// addresses then.
#[inline]
fn is_nowhere(address: *const c_void, count: u64, layout: &Layout) -> bool {
    if !address.is_null() {
        return false;
    }
    std::hint::cold_path();
    count > 0 && layout.is_contiguous() && layout.size() > 0
}

/// What is read; the name of what is missing. (An error would be copied about on the way to the fast path.)
///
/// # Safety
/// `of` is null or a live layout.
#[inline]
unsafe fn source<'a>(
    address: *const c_void,
    count: u64,
    of: *const LayoutHandle,
) -> Result<Source<'a>, &'static str> {
    // SAFETY: null or live, as the caller says.
    let Some(LayoutHandle(layout)) = (unsafe { of.as_ref() }) else { return Err("layout") };
    if is_nowhere(address, count, layout) {
        Err("origin")
    } else {
        Ok(Source { address: address.cast(), count, layout })
    }
}

/// What is written, as `source`.
///
/// # Safety
/// `of` is null or a live layout.
#[inline]
unsafe fn sink<'a>(
    address: *mut c_void,
    count: u64,
    of: *const LayoutHandle,
) -> Result<Sink<'a>, &'static str> {
    // SAFETY: null or live, as the caller says.
    let Some(LayoutHandle(layout)) = (unsafe { of.as_ref() }) else { return Err("layout") };
    let missing = is_nowhere(address, count, layout);
    if missing {
        Err("the memory for the result")
    } else {
        Ok(Sink { address: address.cast(), count, layout })
    }
}

/// # Safety
/// `of` is null or a live layout.
#[inline]
unsafe fn target<'a>(
    target: c_int,
    place: i64,
    count: u64,
    of: *const LayoutHandle,
) -> Result<Target<'a>, Error> {
    // SAFETY: null or a live layout, as the caller says.
    let layout = unsafe { layout(of) }?;
    Ok(Target { rank: rank(target)?, place, count, layout })
}

/// The source of a get_accumulate; with the no-op it is ignored, and may be NULL altogether.
///
/// # Safety
/// `of` is null or a live layout.
unsafe fn source_for<'a>(
    operation: Operation,
    address: *const c_void,
    count: u64,
    of: *const LayoutHandle,
) -> Result<Source<'a>, Error> {
    static NOTHING: Layout = Layout::of(Element::Byte);
    if operation == Operation::NoOp {
        return Ok(Source { address: std::ptr::null(), count: 0, layout: &NOTHING });
    }
    // SAFETY: `of` is null or live, as the caller says.
    unsafe { source(address, count, of) }.map_err(null)
}

/// Writes origin data to the target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_put(
    window: *mut WindowHandle,
    origin: *const c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    target: c_int,
    place: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        // SAFETY: the caller's layout.
        let source = unsafe { source(origin, origin_count, origin_layout) }.map_err(null)?;
        // SAFETY: the caller's layout.
        let target = unsafe { self::target(target, place, target_count, target_layout) }?;
        // SAFETY: origin memory stays valid until the operation is complete, which unisono.h asks for.
        unsafe { window.raw_put(source, target) }
    })
}

/// Reads target data into origin memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_get(
    window: *mut WindowHandle,
    origin: *mut c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    target: c_int,
    place: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        // SAFETY: the caller's layout.
        let sink = unsafe { sink(origin, origin_count, origin_layout) }.map_err(null)?;
        // SAFETY: the caller's layout.
        let target = unsafe { self::target(target, place, target_count, target_layout) }?;
        // SAFETY: origin memory stays valid until the operation is complete, which unisono.h asks for.
        unsafe { window.raw_get(sink, target) }
    })
}

/// Combines origin data into the target, each element atomically; `operation` is one of unisono_operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_accumulate(
    window: *mut WindowHandle,
    origin: *const c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    target: c_int,
    place: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
    operation: c_int,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        // SAFETY: the caller's layout.
        let source = unsafe { source(origin, origin_count, origin_layout) }.map_err(null)?;
        // SAFETY: the caller's layout.
        let target = unsafe { self::target(target, place, target_count, target_layout) }?;
        let operation = self::operation(operation)?;
        // SAFETY: origin memory stays valid until the operation is complete, which unisono.h asks for.
        unsafe { window.raw_accumulate(source, target, operation) }
    })
}

/// As accumulate, and puts what was there before into `result`. The no-op ignores the origin, which may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_get_accumulate(
    window: *mut WindowHandle,
    origin: *const c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    result: *mut c_void,
    result_count: u64,
    result_layout: *const LayoutHandle,
    target: c_int,
    place: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
    operation: c_int,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        let operation = self::operation(operation)?;
        // SAFETY: the caller's layout.
        let source = unsafe { source_for(operation, origin, origin_count, origin_layout) }?;
        // SAFETY: the caller's layout.
        let result = unsafe { sink(result, result_count, result_layout) }.map_err(null)?;
        // SAFETY: the caller's layout.
        let target = unsafe { self::target(target, place, target_count, target_layout) }?;
        // SAFETY: origin memory stays valid until the operation is complete, which unisono.h asks for.
        unsafe { window.raw_get_accumulate(source, result, target, operation) }
    })
}

/// Writes origin data to the target.
/// In a passive epoch; `*request` says when it is complete at the origin. With NULL a flush says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_rput(
    window: *mut WindowHandle,
    origin: *const c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    target: c_int,
    place: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
    request: *mut *mut RequestHandle,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        // SAFETY: the caller's layout.
        let source = unsafe { source(origin, origin_count, origin_layout) }.map_err(null)?;
        // SAFETY: the caller's layout.
        let target = unsafe { self::target(target, place, target_count, target_layout) }?;
        // SAFETY: origin memory stays valid until the operation is complete, which unisono.h asks for.
        let issued = unsafe { window.raw_rput(source, target) }?;
        // SAFETY: the caller's pointer.
        unsafe { request::give(request, issued) };
        Ok(())
    })
}

/// Reads target data into origin memory.
/// In a passive epoch; `*request` says when it is complete at the origin. With NULL a flush says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_rget(
    window: *mut WindowHandle,
    origin: *mut c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    target: c_int,
    place: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
    request: *mut *mut RequestHandle,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        // SAFETY: the caller's layout.
        let sink = unsafe { sink(origin, origin_count, origin_layout) }.map_err(null)?;
        // SAFETY: the caller's layout.
        let target = unsafe { self::target(target, place, target_count, target_layout) }?;
        // SAFETY: origin memory stays valid until the operation is complete, which unisono.h asks for.
        let issued = unsafe { window.raw_rget(sink, target) }?;
        // SAFETY: the caller's pointer.
        unsafe { request::give(request, issued) };
        Ok(())
    })
}

/// Combines origin data into the target, each element atomically; `operation` is one of unisono_operation.
/// In a passive epoch; `*request` says when it is complete at the origin. With NULL a flush says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_raccumulate(
    window: *mut WindowHandle,
    origin: *const c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    target: c_int,
    place: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
    operation: c_int,
    request: *mut *mut RequestHandle,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        // SAFETY: the caller's layout.
        let source = unsafe { source(origin, origin_count, origin_layout) }.map_err(null)?;
        // SAFETY: the caller's layout.
        let target = unsafe { self::target(target, place, target_count, target_layout) }?;
        let operation = self::operation(operation)?;
        // SAFETY: origin memory stays valid until the operation is complete, which unisono.h asks for.
        let issued = unsafe { window.raw_raccumulate(source, target, operation) }?;
        // SAFETY: the caller's pointer.
        unsafe { request::give(request, issued) };
        Ok(())
    })
}

/// As accumulate, and puts what was there before into `result`. The no-op ignores the origin, which may be
/// NULL. In a passive epoch; `*request` says when it is complete at the origin. With NULL a flush says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_rget_accumulate(
    window: *mut WindowHandle,
    origin: *const c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    result: *mut c_void,
    result_count: u64,
    result_layout: *const LayoutHandle,
    target: c_int,
    place: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
    operation: c_int,
    request: *mut *mut RequestHandle,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        let operation = self::operation(operation)?;
        // SAFETY: the caller's layout.
        let source = unsafe { source_for(operation, origin, origin_count, origin_layout) }?;
        // SAFETY: the caller's layout.
        let result = unsafe { sink(result, result_count, result_layout) }.map_err(null)?;
        // SAFETY: the caller's layout.
        let target = unsafe { self::target(target, place, target_count, target_layout) }?;
        // SAFETY: origin memory stays valid until the operation is complete, which unisono.h asks for.
        let issued = unsafe { window.raw_rget_accumulate(source, result, target, operation) }?;
        // SAFETY: the caller's pointer.
        unsafe { request::give(request, issued) };
        Ok(())
    })
}

/// get_accumulate of one element; `element` is one of unisono_element.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_fetch_and_op(
    window: *mut WindowHandle,
    origin: *const c_void,
    result: *mut c_void,
    element: c_int,
    target: c_int,
    place: i64,
    operation: c_int,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        let operation = self::operation(operation)?;
        if result.is_null() || (origin.is_null() && operation != Operation::NoOp) {
            return Err(null("origin or result"));
        }
        let (element, target) = (self::element(element)?, (rank(target)?, place));
        // SAFETY: origin memory stays valid until the operation is complete, which unisono.h asks for.
        unsafe { window.raw_fetch_and_op(origin.cast(), result.cast(), element, target, operation) }
    })
}

/// Writes one element if what is there equals `compare`, and puts what was there into `result`. Elements are
/// integers, bytes or bools.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_compare_and_swap(
    window: *mut WindowHandle,
    origin: *const c_void,
    compare: *const c_void,
    result: *mut c_void,
    element: c_int,
    target: c_int,
    place: i64,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        if origin.is_null() || compare.is_null() || result.is_null() {
            return Err(null("origin, compare or result"));
        }
        let (element, target) = (self::element(element)?, (rank(target)?, place));
        let (origin, compare, result) = (origin.cast(), compare.cast(), result.cast());
        // SAFETY: origin memory stays valid until the operation is complete, which unisono.h asks for.
        unsafe { window.raw_compare_and_swap(origin, compare, result, element, target) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_operations_are_those_of_the_engine() {
        let mirror = [
            (OperationCode::Sum, Operation::Sum),
            (OperationCode::BitXor, Operation::BitXor),
            (OperationCode::Replace, Operation::Replace),
            (OperationCode::NoOp, Operation::NoOp),
            (OperationCode::MaxLoc, Operation::MaxLoc),
        ];
        for (ours, theirs) in mirror {
            assert_eq!(operation(ours as c_int).expect("a code"), theirs);
        }
        assert!(operation(0).is_err() && operation(15).is_err() && operation(-1).is_err());
    }
}
