//! Windows: making, freeing, attaching memory, and finding others' parts in one's own address space.

use crate::error::{Status, answer, argument, null, rank};
use crate::job::{JobHandle, job};
use std::ffi::{c_int, c_void};
use unisono_rma::{Completion, Error, Locks, Spec, Style, Window};

/// Memory that the members of a job access.
#[derive(Debug)]
pub struct WindowHandle(pub(crate) Window);

/// Locks are never used on this window: no agent thread, and lock calls are errors.
pub const UNISONO_NO_LOCKS: u32 = 1;
/// Unlock completes at the origin only; at the target with the next flush or collective call.
pub const UNISONO_LOCAL_COMPLETION: u32 = 2;

/// How synchronization is done.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StyleCode {
    /// Direct stores and flags where memory is shared; otherwise deferred.
    Direct = 0,
    /// The paper's protocol everywhere: all work in the second synchronization call.
    Deferred = 1,
    /// The naive forms that the paper describes, for comparison.
    Naive = 2,
}

/// What kind of window to make. All zero is the default, and so is a NULL pointer to it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WindowSpec {
    /// Displacements into this rank's part count so many bytes; 0 means 1.
    pub unit: u32,
    /// UNISONO_NO_LOCKS, UNISONO_LOCAL_COMPLETION; the same on all ranks.
    pub flags: u32,
    /// One of unisono_style; the same on all ranks.
    pub style: c_int,
}

/// The window behind a handle.
///
/// # Safety
/// `window` is null or a live handle that no other thread uses now.
#[inline]
pub(crate) unsafe fn window<'a>(window: *mut WindowHandle) -> Result<&'a mut Window, Error> {
    // SAFETY: null or a live handle, as the caller says.
    let handle = unsafe { window.as_mut() };
    handle.map(|handle| &mut handle.0).ok_or_else(|| null("window"))
}

/// # Safety
/// `spec` is null or readable.
unsafe fn spec(spec: *const WindowSpec) -> Result<Spec, Error> {
    // SAFETY: null or readable, as the caller says.
    let Some(given) = (unsafe { spec.as_ref() }) else { return Ok(Spec::new()) };
    if given.flags & !(UNISONO_NO_LOCKS | UNISONO_LOCAL_COMPLETION) != 0 {
        return Err(argument(format!("{:#x} are no flags of a unisono_spec", given.flags)));
    }
    let style = match given.style {
        0 => Style::Direct,
        1 => Style::Deferred,
        2 => Style::Naive,
        other => return Err(argument(format!("{other} is no unisono_style"))),
    };
    let locks = if given.flags & UNISONO_NO_LOCKS != 0 { Locks::Never } else { Locks::Possible };
    let local = given.flags & UNISONO_LOCAL_COMPLETION != 0;
    let completion = if local { Completion::Local } else { Completion::Remote };
    Ok(Spec::new().unit(given.unit.max(1)).style(style).locks(locks).completion(completion))
}

/// Fills in the caller's pointer.
///
/// # Safety
/// `to` is null or writable.
unsafe fn place<'a>(to: *mut *mut WindowHandle) -> Result<&'a mut *mut WindowHandle, Error> {
    // SAFETY: null or writable, as the caller says.
    let to = unsafe { to.as_mut() }.ok_or_else(|| null("window"))?;
    *to = std::ptr::null_mut();
    Ok(to)
}

fn handle(window: Window) -> *mut WindowHandle {
    Box::into_raw(Box::new(WindowHandle(window)))
}

/// A window over zeroed memory of the library's, `bytes` here (members may differ); `*base` is where.
/// Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_allocate(
    job: *mut JobHandle,
    bytes: u64,
    spec: *const WindowSpec,
    base: *mut *mut c_void,
    window: *mut *mut WindowHandle,
) -> Status {
    answer(|| {
        // SAFETY: the caller's pointer.
        let to = unsafe { place(window) }?;
        // SAFETY: the caller's pointer is null or writable.
        let base = unsafe { base.as_mut() }.ok_or_else(|| null("base"))?;
        // SAFETY: the caller's pointer.
        let spec = unsafe { self::spec(spec) }?;
        // SAFETY: the caller's handle.
        let job = unsafe { self::job(job) }?;
        let made = job.allocate(bytes, spec)?;
        *base = made.mapped(job.rank()).map_or(std::ptr::null_mut(), |mapped| mapped.base.cast());
        *to = handle(made);
        Ok(())
    })
}

/// A window over the caller's memory, which stays valid until the window is freed. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_create(
    job: *mut JobHandle,
    base: *mut c_void,
    bytes: u64,
    spec: *const WindowSpec,
    window: *mut *mut WindowHandle,
) -> Status {
    answer(|| {
        // SAFETY: the caller's pointer.
        let to = unsafe { place(window) }?;
        // SAFETY: the caller's pointer.
        let spec = unsafe { self::spec(spec) }?;
        if base.is_null() && bytes > 0 {
            return Err(null("base"));
        }
        // SAFETY: the caller's handle.
        let job = unsafe { self::job(job) }?;
        // SAFETY: the memory stays valid until the window is freed, which unisono.h asks for.
        *to = handle(unsafe { job.create(base.cast(), bytes, spec) }?);
        Ok(())
    })
}

/// A window to which memory is attached later; displacements are addresses. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_dynamic(
    job: *mut JobHandle,
    spec: *const WindowSpec,
    window: *mut *mut WindowHandle,
) -> Status {
    answer(|| {
        // SAFETY: the caller's pointer.
        let to = unsafe { place(window) }?;
        // SAFETY: the caller's pointer.
        let spec = unsafe { self::spec(spec) }?;
        // SAFETY: the caller's handle.
        *to = handle(unsafe { self::job(job) }?.dynamic(spec)?);
        Ok(())
    })
}

/// Attaches memory to a dynamic window; it stays valid until it is detached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_attach(
    window: *mut WindowHandle,
    address: *mut c_void,
    bytes: usize,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        // SAFETY: the memory stays valid until it is detached, which unisono.h asks for.
        unsafe { window.attach(address.cast(), bytes) }
    })
}

/// Detaches memory, by the address it was attached with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_detach(window: *mut WindowHandle, address: *mut c_void) -> Status {
    // SAFETY: the caller's handle.
    answer(|| unsafe { self::window(window) }?.detach(address.cast()))
}

/// Where the part of rank `rank` lies in this process, how long it is, and its unit; each pointer may be
/// NULL. `*base` becomes NULL where the part is out of reach.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_mapped(
    window: *mut WindowHandle,
    rank: c_int,
    base: *mut *mut c_void,
    bytes: *mut u64,
    unit: *mut u32,
) -> Status {
    answer(|| {
        // SAFETY: the caller's handle.
        let window = unsafe { self::window(window) }?;
        let mapped = window.mapped(self::rank(rank)?);
        let found = mapped.map_or((std::ptr::null_mut(), 0, 0), |m| (m.base.cast(), m.bytes, m.unit));
        // SAFETY: the caller's pointer is null or writable.
        if let Some(base) = unsafe { base.as_mut() } {
            *base = found.0;
        }
        // SAFETY: as above.
        if let Some(bytes) = unsafe { bytes.as_mut() } {
            *bytes = found.1;
        }
        // SAFETY: as above.
        if let Some(unit) = unsafe { unit.as_mut() } {
            *unit = found.2;
        }
        Ok(())
    })
}

/// Frees the window, and sets the handle to null.
///
/// # Safety
/// `from` is null, or a live handle of which there is no other copy in use.
pub(crate) unsafe fn free(from: &mut *mut WindowHandle) -> Result<(), Error> {
    if from.is_null() {
        return Err(Error::Freed { call: "unisono_window_free" });
    }
    // SAFETY: live, as the caller says.
    unsafe { self::window(*from) }?.free()?;
    // SAFETY: made by `handle`, and forgotten by the caller from here on.
    drop(unsafe { Box::from_raw(std::mem::replace(from, std::ptr::null_mut())) });
    Ok(())
}

/// Frees the window and sets `*window` to NULL. Collective, and waits for everybody. Fails inside an epoch,
/// and the window stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_free(window: *mut *mut WindowHandle) -> Status {
    answer(|| {
        // SAFETY: the caller's pointer is null or valid.
        let from = unsafe { window.as_mut() }.ok_or_else(|| null("window"))?;
        // SAFETY: the caller's handle.
        unsafe { free(from) }
    })
}
