//! Requests: operations whose completion at the origin the program can wait for or test individually.

use crate::error::{CallStatus, null};
use crate::handle;
use crate::window::{WindowHandle, with_window};
use std::ffi::c_int;
use unisono_rma::{Request, Window};

/// An operation that may not be complete yet.
#[derive(Debug)]
pub struct RequestHandle(Request);

/// Stores a request in the program's pointer, unless the pointer is null.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn write_handle(to: *mut *mut RequestHandle, issued: Request) {
    // SAFETY: null or writable; the caller guarantees it.
    if let Some(to) = unsafe { to.as_mut() } {
        *to = Box::into_raw(Box::new(RequestHandle(issued)));
    }
}

/// Waits until the operation is complete at the origin, and sets `*request` to NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_request_wait(
    window: *mut WindowHandle,
    request: *mut *mut RequestHandle,
) -> CallStatus {
    let call = |window: &mut Window| {
        // SAFETY: unisono.h requires NULL or the address of a handle, which `write_handle` made.
        let owned = unsafe { handle::take(request, "request") }?;
        window.wait_request(owned.0)
    };
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, call) }
}

/// Tests whether the operation is complete at the origin. If so, sets `*done` to 1 and `*request` to NULL;
/// otherwise sets `*done` to 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_request_test(
    window: *mut WindowHandle,
    request: *mut *mut RequestHandle,
    done: *mut c_int,
) -> CallStatus {
    let call = |window: &mut Window| {
        // SAFETY: unisono.h requires NULL or room for the result.
        let done = unsafe { done.as_mut() }.ok_or_else(|| null("done"))?;
        // SAFETY: unisono.h requires NULL or the address of a handle.
        let from = unsafe { request.as_mut() }.ok_or_else(|| null("request"))?;
        // SAFETY: null or a live handle, as above.
        let asked = unsafe { from.as_ref() }.ok_or_else(|| null("*request"))?;
        let is_done = window.test_request(&asked.0)?;
        *done = c_int::from(is_done);
        if is_done {
            // SAFETY: `write_handle` made it; the program's pointer becomes NULL here, so it is freed once.
            drop(unsafe { Box::from_raw(std::mem::replace(from, std::ptr::null_mut())) });
        }
        Ok(())
    };
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, call) }
}
