//! The communication calls: put, get, accumulate and their variants, with and without requests.
//!
//! A call is issued inside an access epoch to its target. It is complete at the origin (the program may use
//! the buffers again, and results have arrived) after the call that ends the epoch, after a flush, or after
//! the wait for its request. `displacement` counts the target's units from its base; in a dynamic window it
//! is an address.

use crate::error::{CallStatus, argument, null, rank};
use crate::layout::{LayoutHandle, element};
use crate::request::{self, RequestHandle};
use crate::window::{WindowHandle, with_window};
use std::ffi::{c_int, c_void};
use unisono_rma::{Element, Error, Layout, Operation, Sink, Source, Target, Window};

/// The predefined operations.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationCode {
    Sum = 1,
    Product = 2,
    Min = 3,
    Max = 4,
    /// 1 if both are nonzero, else 0.
    LogicalAnd = 5,
    LogicalOr = 6,
    /// 1 if exactly one is nonzero, else 0.
    LogicalXor = 7,
    BitAnd = 8,
    BitOr = 9,
    BitXor = 10,
    /// Writes the origin's value, whatever the target holds.
    Replace = 11,
    /// Leaves the target's value; for get_accumulate and fetch_and_op.
    NoOp = 12,
    /// The pair with the smaller value; if the values are equal, the pair with the smaller index.
    MinLoc = 13,
    /// The pair with the greater value; if the values are equal, the pair with the smaller index.
    MaxLoc = 14,
}

fn operation(code: c_int) -> Result<Operation, Error> {
    let known = u8::try_from(code).ok().and_then(Operation::from_code);
    known.ok_or_else(|| argument(format!("{code} is no unisono_operation")))
}

/// Whether `address` is NULL although there is data to transfer. With a layout of runs NULL is valid, because
/// its offsets may be absolute addresses.
#[inline]
fn is_nowhere(address: *const c_void, count: u64, layout: &Layout) -> bool {
    if !address.is_null() {
        return false;
    }
    std::hint::cold_path();
    count > 0 && layout.is_contiguous() && layout.size() > 0
}

/// The origin's side of a transfer in its C form: address, count and layout.
type NearSide = (*const c_void, u64, *const LayoutHandle);
/// The target's side in its C form: rank, displacement, count and layout.
type FarSide = (c_int, i64, u64, *const LayoutHandle);

/// The origin's side, checked.
type Origin<'a> = (*const c_void, u64, &'a Layout);

/// Checks both sides of a transfer and calls `issue` to begin it. Makes a request, if the caller passed a
/// place for one. A failed check creates its error in this function, because a helper that returned an error
/// would cost every put a copy. Each caller passes a closure of its own, so that the compiler inlines this
/// function there: a call would cost a put 30 instructions.
///
/// # Safety
/// `window` is null or a live handle that no other thread uses now; the layouts are null or live; `request`
/// is null or writable.
#[inline]
unsafe fn transfer(
    window: *mut WindowHandle,
    (origin, origin_count, origin_layout): NearSide,
    (rank, displacement, count, target_layout): FarSide,
    request: Option<*mut *mut RequestHandle>,
    issue: impl FnOnce(&mut Window, Origin<'_>, Target<'_>) -> Result<(), Error>,
) -> CallStatus {
    let call = |window: &mut Window| {
        // SAFETY: null or live; the caller guarantees it.
        let near = unsafe { origin_layout.as_ref() };
        // SAFETY: null or live; the caller guarantees it.
        let far = unsafe { target_layout.as_ref() };
        let (Some(LayoutHandle(near)), Some(LayoutHandle(layout))) = (near, far) else {
            return Err(null("layout"));
        };
        if is_nowhere(origin, origin_count, near) {
            return Err(null("origin"));
        }
        let target = Target { rank: self::rank(rank)?, displacement, count, layout };
        let made = request.map(|_| window.request(target.rank)).transpose()?;
        issue(window, (origin, origin_count, near), target)?;
        if let (Some(request), Some(made)) = (request, made) {
            // SAFETY: null or writable; the caller guarantees it.
            unsafe { request::write_handle(request, made) };
        }
        Ok(())
    };
    // SAFETY: null or a live handle; the caller guarantees it.
    unsafe { with_window(window, call) }
}

#[inline(always)] // the fast path of every put: inlined into the call with a request and the call without
fn put(window: &mut Window, (origin, count, layout): Origin<'_>, target: Target<'_>) -> Result<(), Error> {
    // SAFETY: unisono.h requires that origin memory stays valid until the operation is complete.
    unsafe { window.raw_put(Source { address: origin.cast(), count, layout }, target) }
}

#[inline(always)] // as `put`
fn get(window: &mut Window, (origin, count, layout): Origin<'_>, target: Target<'_>) -> Result<(), Error> {
    // SAFETY: as in `put`; the caller passed writable memory.
    unsafe { window.raw_get(Sink { address: origin.cast_mut().cast(), count, layout }, target) }
}

fn accumulate(
    window: &mut Window,
    (origin, count, layout): Origin<'_>,
    target: Target<'_>,
    operation: c_int,
) -> Result<(), Error> {
    let source = Source { address: origin.cast(), count, layout };
    // SAFETY: as in `put`.
    unsafe { window.raw_accumulate(source, target, self::operation(operation)?) }
}

fn get_accumulate(
    window: &mut Window,
    (origin, count, layout): Origin<'_>,
    target: Target<'_>,
    (result, result_count, result_layout): (*mut c_void, u64, *const LayoutHandle),
    operation: c_int,
) -> Result<(), Error> {
    let operation = self::operation(operation)?;
    // SAFETY: unisono.h requires null or a live layout.
    let Some(LayoutHandle(into)) = (unsafe { result_layout.as_ref() }) else { return Err(null("layout")) };
    if is_nowhere(result, result_count, into) {
        return Err(null("the memory for the result"));
    }
    let source = Source { address: origin.cast(), count, layout };
    let sink = Sink { address: result.cast(), count: result_count, layout: into };
    // SAFETY: as in `put`, for the result as well.
    unsafe { window.raw_get_accumulate(source, sink, target, operation) }
}

/// Returns the origin's side of a get_accumulate. The no-op does not read the origin, so the program may pass
/// NULL: an empty layout then takes the place of the program's.
fn unless_ignored(operation: c_int, near: NearSide) -> NearSide {
    static NOTHING: LayoutHandle = LayoutHandle(Layout::from_element(Element::Byte));
    if operation == OperationCode::NoOp as c_int { (std::ptr::null(), 0, &raw const NOTHING) } else { near }
}

/// Writes origin data to the target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_put(
    window: *mut WindowHandle,
    origin: *const c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    target: c_int,
    displacement: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
) -> CallStatus {
    let near = (origin, origin_count, origin_layout);
    let far = (target, displacement, target_count, target_layout);
    // SAFETY: unisono.h requires NULL or live handles that no other thread uses now.
    unsafe { transfer(window, near, far, None, put) }
}

/// Reads target data into origin memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_get(
    window: *mut WindowHandle,
    origin: *mut c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    target: c_int,
    displacement: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
) -> CallStatus {
    let near = (origin.cast_const(), origin_count, origin_layout);
    let far = (target, displacement, target_count, target_layout);
    // SAFETY: unisono.h requires NULL or live handles that no other thread uses now.
    unsafe { transfer(window, near, far, None, get) }
}

/// Combines origin data into the target, each element atomically; `operation` is a value of
/// unisono_operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_accumulate(
    window: *mut WindowHandle,
    origin: *const c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    target: c_int,
    displacement: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
    operation: c_int,
) -> CallStatus {
    let near = (origin, origin_count, origin_layout);
    let far = (target, displacement, target_count, target_layout);
    // SAFETY: unisono.h requires NULL or live handles that no other thread uses now.
    unsafe {
        transfer(window, near, far, None, |window, near, target| {
            accumulate(window, near, target, operation)
        })
    }
}

/// Like unisono_accumulate(), and stores the target's previous data in `result`. The no-op ignores the
/// origin, which may then be NULL.
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
    displacement: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
    operation: c_int,
) -> CallStatus {
    let near = unless_ignored(operation, (origin, origin_count, origin_layout));
    let far = (target, displacement, target_count, target_layout);
    // SAFETY: unisono.h requires NULL or live handles that no other thread uses now.
    unsafe {
        transfer(window, near, far, None, |window, near, target| {
            get_accumulate(window, near, target, (result, result_count, result_layout), operation)
        })
    }
}

/// Like unisono_put(), in a passive epoch. `*request` becomes a request that completes when the operation is
/// complete at the origin. If `request` is NULL, a flush completes the operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_rput(
    window: *mut WindowHandle,
    origin: *const c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    target: c_int,
    displacement: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
    request: *mut *mut RequestHandle,
) -> CallStatus {
    let near = (origin, origin_count, origin_layout);
    let far = (target, displacement, target_count, target_layout);
    // SAFETY: unisono.h requires NULL or live handles that no other thread uses now.
    unsafe { transfer(window, near, far, Some(request), put) }
}

/// Like unisono_get(), in a passive epoch. `*request` becomes a request that completes when the operation is
/// complete at the origin. If `request` is NULL, a flush completes the operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_rget(
    window: *mut WindowHandle,
    origin: *mut c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    target: c_int,
    displacement: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
    request: *mut *mut RequestHandle,
) -> CallStatus {
    let near = (origin.cast_const(), origin_count, origin_layout);
    let far = (target, displacement, target_count, target_layout);
    // SAFETY: unisono.h requires NULL or live handles that no other thread uses now.
    unsafe { transfer(window, near, far, Some(request), get) }
}

/// Like unisono_accumulate(), in a passive epoch. `*request` becomes a request that completes when the
/// operation is complete at the origin. If `request` is NULL, a flush completes the operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_raccumulate(
    window: *mut WindowHandle,
    origin: *const c_void,
    origin_count: u64,
    origin_layout: *const LayoutHandle,
    target: c_int,
    displacement: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
    operation: c_int,
    request: *mut *mut RequestHandle,
) -> CallStatus {
    let near = (origin, origin_count, origin_layout);
    let far = (target, displacement, target_count, target_layout);
    // SAFETY: unisono.h requires NULL or live handles that no other thread uses now.
    unsafe {
        transfer(window, near, far, Some(request), |window, near, target| {
            accumulate(window, near, target, operation)
        })
    }
}

/// Like unisono_get_accumulate(), in a passive epoch. `*request` becomes a request that completes when the
/// operation is complete at the origin. If `request` is NULL, a flush completes the operation.
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
    displacement: i64,
    target_count: u64,
    target_layout: *const LayoutHandle,
    operation: c_int,
    request: *mut *mut RequestHandle,
) -> CallStatus {
    let near = unless_ignored(operation, (origin, origin_count, origin_layout));
    let far = (target, displacement, target_count, target_layout);
    // SAFETY: unisono.h requires NULL or live handles that no other thread uses now.
    unsafe {
        transfer(window, near, far, Some(request), |window, near, target| {
            get_accumulate(window, near, target, (result, result_count, result_layout), operation)
        })
    }
}

/// Like unisono_get_accumulate(), for a single element; `element` is a value of unisono_element.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_fetch_and_op(
    window: *mut WindowHandle,
    origin: *const c_void,
    result: *mut c_void,
    element: c_int,
    target: c_int,
    displacement: i64,
    operation: c_int,
) -> CallStatus {
    let call = |window: &mut Window| {
        let operation = self::operation(operation)?;
        if result.is_null() || (origin.is_null() && operation != Operation::NoOp) {
            return Err(null("origin or result"));
        }
        let (element, target) = (self::element(element)?, (rank(target)?, displacement));
        // SAFETY: unisono.h requires that origin memory stays valid until the operation is complete.
        unsafe { window.raw_fetch_and_op(origin.cast(), result.cast(), element, target, operation) }
    };
    // SAFETY: unisono.h requires a live handle that no other thread uses now.
    unsafe { with_window(window, call) }
}

/// Stores the target's element in `result`, and replaces it with the origin's element if it was equal to
/// `compare`. Elements are integers, bytes or bools.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_compare_and_swap(
    window: *mut WindowHandle,
    origin: *const c_void,
    compare: *const c_void,
    result: *mut c_void,
    element: c_int,
    target: c_int,
    displacement: i64,
) -> CallStatus {
    let call = |window: &mut Window| {
        if origin.is_null() || compare.is_null() || result.is_null() {
            return Err(null("origin, compare or result"));
        }
        let (element, target) = (self::element(element)?, (rank(target)?, displacement));
        let (origin, compare, result) = (origin.cast(), compare.cast(), result.cast());
        // SAFETY: unisono.h requires that origin memory stays valid until the operation is complete.
        unsafe { window.raw_compare_and_swap(origin, compare, result, element, target) }
    };
    // SAFETY: unisono.h requires a live handle that no other thread uses now.
    unsafe { with_window(window, call) }
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
