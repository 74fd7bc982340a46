//! Handles that the library makes and a C program holds: how they get into the program's pointer and out of
//! it.

use crate::error::null;
use unisono_rma::Error;

/// Sets the program's pointer for a handle to NULL, and returns the pointer. It stays NULL if the call fails.
/// `what` names the pointer in the error if its address is NULL.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn emptied<'a, T>(to: *mut *mut T, what: &str) -> Result<&'a mut *mut T, Error> {
    // SAFETY: null or writable; the caller guarantees it.
    let to = unsafe { to.as_mut() }.ok_or_else(|| null(what))?;
    *to = std::ptr::null_mut();
    Ok(to)
}

/// Stores a new handle in the program's pointer.
///
/// # Safety
/// `to` is null or writable.
pub(crate) unsafe fn store<T>(to: *mut *mut T, what: &str, made: T) -> Result<(), Error> {
    // SAFETY: null or writable; the caller guarantees it.
    *unsafe { emptied(to, what) }? = Box::into_raw(Box::new(made));
    Ok(())
}

/// Takes a handle back from the program's pointer, which becomes NULL, so that the handle is freed once.
///
/// # Safety
/// `from` is null or the address of a handle. The handle is null, or a `Box` made it and no copy is in use.
pub(crate) unsafe fn take<T>(from: *mut *mut T, what: &str) -> Result<Box<T>, Error> {
    // SAFETY: null or the address of a handle; the caller guarantees it.
    let from = unsafe { from.as_mut() }.ok_or_else(|| null(what))?;
    if from.is_null() {
        return Err(null(&format!("*{what}")));
    }
    // SAFETY: a `Box` made it; the program's pointer becomes NULL here, so it is freed once.
    Ok(unsafe { Box::from_raw(std::mem::replace(from, std::ptr::null_mut())) })
}
