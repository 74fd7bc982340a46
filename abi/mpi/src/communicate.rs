//! Communication. All functions here have the same safety contract: the window and the types came from this
//! library, the window is used by nobody else meanwhile, and buffers are as large as counts and types say and
//! stay untouched as long as the standard asks for.

use crate::failure::{AGAIN, UNFINISHED, answer, failed, guard};
use crate::types::Type;
use crate::windows::rank_of;
use std::ffi::{c_int, c_uint, c_void};
use unisono_rma::{Element, Error, Operation, Request, Sink, Source, Target, Window};

#[inline]
fn operation_of(code: c_uint) -> Result<Operation, Error> {
    u8::try_from(code)
        .ok()
        .and_then(Operation::from_code)
        .ok_or_else(|| Error::Type(format!("{code} is no operation")))
}

#[inline]
fn element_of(code: c_uint) -> Result<Element, Error> {
    u8::try_from(code)
        .ok()
        .and_then(Element::from_code)
        .ok_or_else(|| Error::Type(format!("{code} is no element type")))
}

/// # Safety
/// The module's.
#[inline]
unsafe fn source<'a>(address: *const c_void, count: i64, of: *const Type) -> Source<'a> {
    // SAFETY: the caller's promise.
    let of = unsafe { &*of };
    Source { address: address.cast(), count: count.cast_unsigned(), layout: &of.layout }
}

/// # Safety
/// The module's.
#[inline]
unsafe fn sink<'a>(address: *mut c_void, count: i64, of: *const Type) -> Sink<'a> {
    // SAFETY: the caller's promise.
    let of = unsafe { &*of };
    Sink { address: address.cast(), count: count.cast_unsigned(), layout: &of.layout }
}

/// # Safety
/// The module's.
#[inline]
unsafe fn target<'a>(rank: c_int, place: i64, count: i64, of: *const Type) -> Result<Target<'a>, Error> {
    // SAFETY: the caller's promise.
    let of = unsafe { &*of };
    Ok(Target { rank: rank_of(rank)?, place, count: count.cast_unsigned(), layout: &of.layout })
}

/// Waits for what a request-based form began.
fn finish(window: &mut Window, request: Result<Request, Error>) -> c_int {
    match request {
        // it was issued, and must not be again
        Ok(request) => match answer(window.wait_request(request)) {
            AGAIN => UNFINISHED,
            finished => finished,
        },
        Err(error) => failed(&error),
    }
}

/// # Safety
/// The module's.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_put(
    window: *mut Window,
    origin: *const c_void,
    origin_count: i64,
    origin_type: *const Type,
    rank: c_int,
    place: i64,
    target_count: i64,
    target_type: *const Type,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        // SAFETY: the caller's promise.
        let source = unsafe { source(origin, origin_count, origin_type) };
        // SAFETY: the caller's promise.
        match unsafe { target(rank, place, target_count, target_type) } {
            // SAFETY: the caller's promise.
            Ok(target) => answer(unsafe { window.raw_put(source, target) }),
            Err(error) => failed(&error),
        }
    })
}

/// # Safety
/// The module's.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_get(
    window: *mut Window,
    origin: *mut c_void,
    origin_count: i64,
    origin_type: *const Type,
    rank: c_int,
    place: i64,
    target_count: i64,
    target_type: *const Type,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        // SAFETY: the caller's promise.
        let sink = unsafe { sink(origin, origin_count, origin_type) };
        // SAFETY: the caller's promise.
        match unsafe { target(rank, place, target_count, target_type) } {
            // SAFETY: the caller's promise.
            Ok(target) => answer(unsafe { window.raw_get(sink, target) }),
            Err(error) => failed(&error),
        }
    })
}

/// # Safety
/// The module's.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_accumulate(
    window: *mut Window,
    origin: *const c_void,
    origin_count: i64,
    origin_type: *const Type,
    rank: c_int,
    place: i64,
    target_count: i64,
    target_type: *const Type,
    operation: c_uint,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        // SAFETY: the caller's promise.
        let source = unsafe { source(origin, origin_count, origin_type) };
        // SAFETY: the caller's promise.
        let target = unsafe { target(rank, place, target_count, target_type) };
        match (target, operation_of(operation)) {
            (Ok(target), Ok(operation)) => {
                // SAFETY: the caller's promise.
                answer(unsafe { window.raw_accumulate(source, target, operation) })
            }
            (Err(error), _) | (_, Err(error)) => failed(&error),
        }
    })
}

/// # Safety
/// The module's.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_get_accumulate(
    window: *mut Window,
    origin: *const c_void,
    origin_count: i64,
    origin_type: *const Type,
    result: *mut c_void,
    result_count: i64,
    result_type: *const Type,
    rank: c_int,
    place: i64,
    target_count: i64,
    target_type: *const Type,
    operation: c_uint,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        // SAFETY: the caller's promise.
        let source = unsafe { source(origin, origin_count, origin_type) };
        // SAFETY: the caller's promise.
        let sink = unsafe { sink(result, result_count, result_type) };
        // SAFETY: the caller's promise.
        let target = unsafe { target(rank, place, target_count, target_type) };
        match (target, operation_of(operation)) {
            (Ok(target), Ok(operation)) => {
                // SAFETY: the caller's promise.
                answer(unsafe { window.raw_get_accumulate(source, sink, target, operation) })
            }
            (Err(error), _) | (_, Err(error)) => failed(&error),
        }
    })
}

/// # Safety
/// The module's.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_fetch_and_op(
    window: *mut Window,
    origin: *const c_void,
    result: *mut c_void,
    element: c_uint,
    rank: c_int,
    place: i64,
    operation: c_uint,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        match (rank_of(rank), element_of(element), operation_of(operation)) {
            (Ok(rank), Ok(element), Ok(operation)) => {
                let (origin, result) = (origin.cast(), result.cast());
                // SAFETY: the caller's promise.
                answer(unsafe { window.raw_fetch_and_op(origin, result, element, (rank, place), operation) })
            }
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => failed(&error),
        }
    })
}

/// # Safety
/// The module's.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_compare_and_swap(
    window: *mut Window,
    origin: *const c_void,
    compare: *const c_void,
    result: *mut c_void,
    element: c_uint,
    rank: c_int,
    place: i64,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        match (rank_of(rank), element_of(element)) {
            (Ok(rank), Ok(element)) => {
                let (origin, compare, result) = (origin.cast(), compare.cast(), result.cast());
                // SAFETY: the caller's promise.
                answer(unsafe {
                    window.raw_compare_and_swap(origin, compare, result, element, (rank, place))
                })
            }
            (Err(error), _) | (_, Err(error)) => failed(&error),
        }
    })
}

/// # Safety
/// The module's.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_rput(
    window: *mut Window,
    origin: *const c_void,
    origin_count: i64,
    origin_type: *const Type,
    rank: c_int,
    place: i64,
    target_count: i64,
    target_type: *const Type,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        // SAFETY: the caller's promise.
        let source = unsafe { source(origin, origin_count, origin_type) };
        // SAFETY: the caller's promise.
        match unsafe { target(rank, place, target_count, target_type) } {
            Ok(target) => {
                // SAFETY: the caller's promise.
                let request = unsafe { window.raw_rput(source, target) };
                finish(window, request)
            }
            Err(error) => failed(&error),
        }
    })
}

/// # Safety
/// The module's.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_rget(
    window: *mut Window,
    origin: *mut c_void,
    origin_count: i64,
    origin_type: *const Type,
    rank: c_int,
    place: i64,
    target_count: i64,
    target_type: *const Type,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        // SAFETY: the caller's promise.
        let sink = unsafe { sink(origin, origin_count, origin_type) };
        // SAFETY: the caller's promise.
        match unsafe { target(rank, place, target_count, target_type) } {
            Ok(target) => {
                // SAFETY: the caller's promise.
                let request = unsafe { window.raw_rget(sink, target) };
                finish(window, request)
            }
            Err(error) => failed(&error),
        }
    })
}

/// # Safety
/// The module's.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_raccumulate(
    window: *mut Window,
    origin: *const c_void,
    origin_count: i64,
    origin_type: *const Type,
    rank: c_int,
    place: i64,
    target_count: i64,
    target_type: *const Type,
    operation: c_uint,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        // SAFETY: the caller's promise.
        let source = unsafe { source(origin, origin_count, origin_type) };
        // SAFETY: the caller's promise.
        let target = unsafe { target(rank, place, target_count, target_type) };
        match (target, operation_of(operation)) {
            (Ok(target), Ok(operation)) => {
                // SAFETY: the caller's promise.
                let request = unsafe { window.raw_raccumulate(source, target, operation) };
                finish(window, request)
            }
            (Err(error), _) | (_, Err(error)) => failed(&error),
        }
    })
}

/// # Safety
/// The module's.
#[unsafe(no_mangle)]
unsafe extern "C" fn core_rget_accumulate(
    window: *mut Window,
    origin: *const c_void,
    origin_count: i64,
    origin_type: *const Type,
    result: *mut c_void,
    result_count: i64,
    result_type: *const Type,
    rank: c_int,
    place: i64,
    target_count: i64,
    target_type: *const Type,
    operation: c_uint,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { &mut *window };
        // SAFETY: the caller's promise.
        let source = unsafe { source(origin, origin_count, origin_type) };
        // SAFETY: the caller's promise.
        let sink = unsafe { sink(result, result_count, result_type) };
        // SAFETY: the caller's promise.
        let target = unsafe { target(rank, place, target_count, target_type) };
        match (target, operation_of(operation)) {
            (Ok(target), Ok(operation)) => {
                // SAFETY: the caller's promise.
                let request = unsafe { window.raw_rget_accumulate(source, sink, target, operation) };
                finish(window, request)
            }
            (Err(error), _) | (_, Err(error)) => failed(&error),
        }
    })
}
