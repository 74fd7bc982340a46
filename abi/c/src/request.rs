//! Requests: operations whose completion at the origin can be asked for one by one.

use crate::error::{Status, answer, null};
use crate::window::{WindowHandle, window};
use std::ffi::c_int;
use unisono_rma::Request;

/// An operation under way.
#[derive(Debug)]
pub struct RequestHandle(Request);

/// Fills in the caller's pointer, if there is one.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn give(to: *mut *mut RequestHandle, issued: Request) {
    // SAFETY: null or writable, as the caller says.
    if let Some(to) = unsafe { to.as_mut() } {
        *to = Box::into_raw(Box::new(RequestHandle(issued)));
    }
}

/// Waits until the operation is complete at the origin, and sets `*request` to NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_request_wait(
    window: *mut WindowHandle,
    request: *mut *mut RequestHandle,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        // SAFETY: the caller's pointer is null or valid.
        let from = unsafe { request.as_mut() }.ok_or_else(|| null("request"))?;
        if from.is_null() {
            return Err(null("*request"));
        }
        // SAFETY: made by `give`, and forgotten by the caller from here on.
        let owned = unsafe { Box::from_raw(std::mem::replace(from, std::ptr::null_mut())) };
        window.wait_request(owned.0)
    })
}

/// Whether the operation is complete at the origin (`*done` is 1); if so, `*request` becomes NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_request_test(
    window: *mut WindowHandle,
    request: *mut *mut RequestHandle,
    done: *mut c_int,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        // SAFETY: the caller's pointer is null or writable.
        let done = unsafe { done.as_mut() }.ok_or_else(|| null("done"))?;
        // SAFETY: the caller's pointer is null or valid.
        let from = unsafe { request.as_mut() }.ok_or_else(|| null("request"))?;
        // SAFETY: null or a live handle.
        let asked = unsafe { from.as_ref() }.ok_or_else(|| null("*request"))?;
        let is_done = window.test_request(&asked.0)?;
        *done = c_int::from(is_done);
        if is_done {
            // SAFETY: made by `give`, and forgotten by the caller from here on.
            drop(unsafe { Box::from_raw(std::mem::replace(from, std::ptr::null_mut())) });
        }
        Ok(())
    })
}
