//! Windows: making and freeing windows, attaching memory, and finding other ranks' parts in this address
//! space.

use crate::error::{CallStatus, argument, ffi_call, null, rank};
use crate::handle;
use crate::job::{JobHandle, job};
use std::ffi::{c_int, c_void};
use unisono_rma::{Completion, Error, Job, Locks, Spec, Style, Window};

/// Memory of each member of a job that the other members read and write.
#[derive(Debug)]
pub struct WindowHandle(pub(crate) Window);

/// The program never locks this window: no agent thread runs for it, and lock calls are errors.
pub const UNISONO_NO_LOCKS: u32 = 1;
/// Unlock completes operations at the origin only. They are complete at the target after the next flush to
/// it, unisono_window_settle() or unisono_window_free().
pub const UNISONO_LOCAL_COMPLETION: u32 = 2;

/// How the window synchronizes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StyleCode {
    /// Stores and flags where ranks share memory; elsewhere as DEFERRED.
    Direct = 0,
    /// Messages everywhere. The call that ends an epoch sends them (Thakur, Gropp, Toonen, EuroPVM/MPI 2004).
    Deferred = 1,
    /// Messages everywhere, one for each call; for comparison.
    Naive = 2,
}

/// Properties of a window to make. All zero selects the defaults, and so does a NULL pointer to this struct.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WindowSpec {
    /// Bytes of a displacement unit of this rank's part; 0 means 1.
    pub unit: u32,
    /// A sum of UNISONO_NO_LOCKS and UNISONO_LOCAL_COMPLETION; the same on all ranks.
    pub flags: u32,
    /// A value of unisono_style; the same on all ranks.
    pub style: c_int,
}

/// Calls a function with the window behind a handle.
///
/// # Safety
/// `window` is null or a live handle that no other thread uses now.
#[inline]
pub(crate) unsafe fn with_window(
    window: *mut WindowHandle,
    call: impl FnOnce(&mut Window) -> Result<(), Error>,
) -> CallStatus {
    // SAFETY: null or a live handle of this thread's; the caller guarantees it.
    ffi_call(|| match unsafe { window.as_mut() } {
        Some(WindowHandle(window)) => call(window),
        None => Err(null("window")),
    })
}

/// # Safety
/// `spec` is null or readable.
unsafe fn spec(spec: *const WindowSpec) -> Result<Spec, Error> {
    // SAFETY: null or readable; the caller guarantees it.
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

/// Makes a window: calls `make` with a job and a spec, and stores the handle in `to`. Until then, and after
/// an error, `*to` is NULL.
///
/// # Safety
/// The pointers are null or valid; no other thread uses the job now.
unsafe fn make_window(
    job: *mut JobHandle,
    spec: *const WindowSpec,
    to: *mut *mut WindowHandle,
    make: impl FnOnce(&mut Job, Spec) -> Result<Window, Error>,
) -> CallStatus {
    ffi_call(|| {
        // SAFETY: null or writable; the caller guarantees it.
        let to = unsafe { handle::emptied(to, "window") }?;
        // SAFETY: null or readable; the caller guarantees it.
        let spec = unsafe { self::spec(spec) }?;
        // SAFETY: null or a live handle of this thread's; the caller guarantees it.
        let window = make(unsafe { self::job(job) }?, spec)?;
        *to = Box::into_raw(Box::new(WindowHandle(window)));
        Ok(())
    })
}

/// Makes a window of zeroed memory that the library allocates: `bytes` bytes at this rank; other ranks may
/// pass other sizes. `*base` becomes the memory's address. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_allocate(
    job: *mut JobHandle,
    bytes: u64,
    spec: *const WindowSpec,
    base: *mut *mut c_void,
    window: *mut *mut WindowHandle,
) -> CallStatus {
    let make = |job: &mut Job, spec| {
        // SAFETY: unisono.h requires NULL or room for the address.
        let base = unsafe { base.as_mut() }.ok_or_else(|| null("base"))?;
        let made = job.allocate(bytes, spec)?;
        *base = made.mapped(job.rank()).map_or(std::ptr::null_mut(), |mapped| mapped.base.cast());
        Ok(made)
    };
    // SAFETY: unisono.h requires null or valid pointers, and one thread at a time per job.
    unsafe { make_window(job, spec, window, make) }
}

/// Makes a window of `bytes` bytes of the program's memory at `base`. The memory stays valid until the window
/// is freed. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_create(
    job: *mut JobHandle,
    base: *mut c_void,
    bytes: u64,
    spec: *const WindowSpec,
    window: *mut *mut WindowHandle,
) -> CallStatus {
    let make = |job: &mut Job, spec| {
        if base.is_null() && bytes > 0 {
            return Err(null("base"));
        }
        // SAFETY: unisono.h requires that the memory stays valid until the window is freed.
        unsafe { job.create(base.cast(), bytes, spec) }
    };
    // SAFETY: unisono.h requires null or valid pointers, and one thread at a time per job.
    unsafe { make_window(job, spec, window, make) }
}

/// Makes a window without memory: ranks attach memory later. Displacements are addresses. Collective.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_dynamic(
    job: *mut JobHandle,
    spec: *const WindowSpec,
    window: *mut *mut WindowHandle,
) -> CallStatus {
    // SAFETY: unisono.h requires null or valid pointers, and one thread at a time per job.
    unsafe { make_window(job, spec, window, |job, spec| job.dynamic(spec)) }
}

/// Attaches memory of this rank to a dynamic window. The memory stays valid until the program detaches it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_attach(
    window: *mut WindowHandle,
    address: *mut c_void,
    bytes: usize,
) -> CallStatus {
    // SAFETY: unisono.h requires that the memory stays valid until it is detached.
    let call = |window: &mut Window| unsafe { window.attach(address.cast(), bytes) };
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, call) }
}

/// Detaches memory that the program attached at this address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_detach(
    window: *mut WindowHandle,
    address: *mut c_void,
) -> CallStatus {
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, |window| window.detach(address.cast())) }
}

/// Gets the address of rank `rank`'s part in this process, its size in bytes, and its displacement unit; each
/// pointer may be NULL. `*base` becomes NULL if this process does not map the part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_mapped(
    window: *mut WindowHandle,
    rank: c_int,
    base: *mut *mut c_void,
    bytes: *mut u64,
    unit: *mut u32,
) -> CallStatus {
    let call = |window: &mut Window| {
        let mapped = window.mapped(self::rank(rank)?);
        let found = mapped.map_or((std::ptr::null_mut(), 0, 0), |m| (m.base.cast(), m.bytes, m.unit));
        // SAFETY: unisono.h requires NULL or room for the result.
        if let Some(base) = unsafe { base.as_mut() } {
            *base = found.0;
        }
        // SAFETY: unisono.h requires NULL or room for the result.
        if let Some(bytes) = unsafe { bytes.as_mut() } {
            *bytes = found.1;
        }
        // SAFETY: unisono.h requires NULL or room for the result.
        if let Some(unit) = unsafe { unit.as_mut() } {
            *unit = found.2;
        }
        Ok(())
    };
    // SAFETY: unisono.h requires NULL or a live handle that no other thread uses now.
    unsafe { with_window(window, call) }
}

/// Frees the window and sets the handle to null. `before` is called with the window just before.
///
/// # Safety
/// `from` is null, or the address of a handle. The handle is null or live, and no copy of it is in use.
pub(crate) unsafe fn free<T>(
    from: *mut *mut WindowHandle,
    before: impl FnOnce(&Window) -> T,
) -> Result<T, Error> {
    // SAFETY: null or valid; the caller guarantees it.
    let from = unsafe { from.as_mut() }.ok_or_else(|| null("window"))?;
    // SAFETY: null or live; the caller guarantees it.
    let Some(WindowHandle(window)) = (unsafe { from.as_mut() }) else {
        return Err(Error::Freed { call: "unisono_window_free" });
    };
    let seen = before(window);
    window.free()?;
    // SAFETY: `make_window` made it; the program's pointer becomes NULL here, so it is freed once.
    drop(unsafe { Box::from_raw(std::mem::replace(from, std::ptr::null_mut())) });
    Ok(seen)
}

/// Frees the window and sets `*window` to NULL. Collective: waits for all ranks. Fails inside an epoch; the
/// window then stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unisono_window_free(window: *mut *mut WindowHandle) -> CallStatus {
    // SAFETY: unisono.h requires NULL or the address of a handle.
    ffi_call(|| unsafe { free(window, |_| ()) })
}
